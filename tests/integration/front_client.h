/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon of the test's own, and a client without manners: it speaks the protocol of
 * libtier/abi by hand, so that it can also speak it wrongly. Included by tests of the front only.
 */
#ifndef TIER_TESTS_FRONT_CLIENT_H
#define TIER_TESTS_FRONT_CLIENT_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libtier/abi/object.h"
#include "libtier/abi/ring.h"
#include "libtier/base/atomic.h"
#include "libtier/base/time.h"
#include "tests/lib/unit.h"

#define HELPER static inline __attribute__((unused))

/* ---- daemon -------------------------------------------------------------------------------- */

struct daemon {
	pid_t pid;
	uint32_t uid; /* 0 = the test's own; else it runs under this one, as a service does */
	char folder[128];
	char socket[160];
	char store[160];
	char log[160];
	void (*in_child)(void); /* before it becomes the daemon; NULL = nothing */
};

HELPER void daemon_folder(struct daemon *d)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(d->folder, sizeof(d->folder), "%.90s/tier-front-XXXXXX", tmp ? tmp : "/tmp");
	assert_non_null(mkdtemp(d->folder));
	d->uid = 0;
	d->in_child = NULL;
	/* Clients of other users must come through. */
	assert_int_equal(chmod(d->folder, 0755), 0);
	snprintf(d->socket, sizeof(d->socket), "%s/s", d->folder);
	snprintf(d->store, sizeof(d->store), "%s/store", d->folder);
	snprintf(d->log, sizeof(d->log), "%s/log", d->folder);
}

/* The program is opened first: another user may not be allowed to walk to it. */
HELPER void daemon_exec(const struct daemon *d, const char *program, char *const *argv)
{
	int fd = open(program, O_PATH | O_CLOEXEC);

	if (!d->uid)
		execv(program, argv);
	if (d->uid && (setgroups(0, NULL) || setgid(d->uid) || setuid(d->uid)))
		_exit(126);
	syscall(SYS_execveat, fd, "", argv, environ, AT_EMPTY_PATH);
	_exit(127);
}

/* Runs $BUILD/tierd with these settings ("--format" as well); returns its pid, with its standard
 * output in *out and its log appended to d->log. */
HELPER pid_t daemon_spawn(struct daemon *d, const char *const *extra, int *out)
{
	const char *build = getenv("BUILD");
	char program[256], socket[200], store[200];
	const char *argv[48] = { program, "--foreground", "--set", socket, "--set", store,
				 "--set", "hbm.size=16MiB", "--set", "cxl.size=64MiB",
				 "--set", "nvme.size=64MiB", "--set", "nvme.buffered=yes",
				 "--set", "socket.mode=0666",
				 /* a loaded machine's disk takes longer than the usual 2 s */
				 "--set", "request.deadline=9s" };
	int pipes[2], argc = 18;
	pid_t pid;

	snprintf(program, sizeof(program), "%s/tierd", build ? build : "build/plain");
	snprintf(socket, sizeof(socket), "socket=%s", d->socket);
	snprintf(store, sizeof(store), "store.path=%s", d->store);
	for (; extra && *extra; extra++) {
		if (strncmp(*extra, "--", 2) != 0)
			argv[argc++] = "--set";
		argv[argc++] = *extra;
	}
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		int log = open(d->log, O_WRONLY | O_CREAT | O_APPEND, 0644);

		dup2(pipes[1], STDOUT_FILENO);
		dup2(log, STDERR_FILENO);
		if (d->in_child)
			d->in_child();
		daemon_exec(d, program, (char *const *)(uintptr_t)argv);
	}
	close(pipes[1]);
	*out = pipes[0];
	return pid;
}

HELPER void daemon_start(struct daemon *d, const char *const *extra)
{
	char line[256] = "";
	int out;
	ssize_t n;

	d->pid = daemon_spawn(d, extra, &out);
	n = read(out, line, sizeof(line) - 1);
	close(out);
	if (n <= 0 || !strstr(line, "ready on"))
		fail_msg("tierd did not start; see %s", d->log);
}

HELPER int daemon_wait(struct daemon *d)
{
	int status = 0;

	assert_int_equal(waitpid(d->pid, &status, 0), d->pid);
	return status;
}

/* A recount of every byte must agree with the counters (I7): told in the daemon's log if not. */
HELPER void daemon_check(const struct daemon *d)
{
	const char *build = getenv("BUILD");
	char program[256];
	int status = 0;
	pid_t pid;

	snprintf(program, sizeof(program), "%s/tierctl", build ? build : "build/plain");
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		int log = open(d->log, O_WRONLY | O_CREAT | O_APPEND, 0644);

		dup2(log, STDOUT_FILENO);
		dup2(log, STDERR_FILENO);
		execl(program, program, "--socket", d->socket, "check", (char *)NULL);
		_exit(127);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		fail_msg("tierctl check ended with %x; see %s", (unsigned)status, d->log);
}

/* The daemon must have lived to here with its accounts right, and end well. */
HELPER void daemon_stop(struct daemon *d)
{
	int status;

	daemon_check(d);

	assert_int_equal(kill(d->pid, SIGTERM), 0);
	status = daemon_wait(d);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		fail_msg("tierd ended with status %x; see %s", (unsigned)status, d->log);
}

HELPER void daemon_remove(struct daemon *d)
{
	DIR *dir = opendir(d->folder);
	struct dirent *e;

	while (dir && (e = readdir(dir)))
		unlinkat(dirfd(dir), e->d_name, 0);
	if (dir)
		closedir(dir);
	rmdir(d->folder);
}

HELPER bool daemon_logged(const struct daemon *d, const char *text)
{
	FILE *f = fopen(d->log, "r");
	char line[2048];
	bool found = false;

	while (f && !found && fgets(line, sizeof(line), f))
		found = strstr(line, text) != NULL;
	if (f)
		fclose(f);
	return found;
}

HELPER int daemon_fds(const struct daemon *d)
{
	char path[64];
	DIR *dir;
	int count = 0;

	snprintf(path, sizeof(path), "/proc/%d/fd", d->pid);
	dir = opendir(path);
	assert_non_null(dir);
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

/* ---- one daemon for all cases of a program ------------------------------------------------- */

static struct daemon the_daemon __attribute__((unused));

HELPER int the_daemon_begin(const char *const *settings)
{
	daemon_folder(&the_daemon);
	daemon_start(&the_daemon, settings);
	return 0;
}

/* Of a group of tests. */
HELPER int the_daemon_setup(void **state)
{
	(void)state;
	return the_daemon_begin(NULL);
}

HELPER int the_daemon_teardown(void **state)
{
	(void)state;
	daemon_stop(&the_daemon);
	daemon_remove(&the_daemon);
	return 0;
}

/* What a test waits for comes in no time; how long that is, is the machine's to say. Once it is
 * there nothing is waited for: as long as this only where something is wrong. */
#define PATIENCE_MS 60000

/* ---- client -------------------------------------------------------------------------------- */

struct client {
	int sock;
	uint32_t seq;
	struct wire_welcome welcome;
	int fd[8]; /* of the last answer */
	int fds;
	int region_fd, staging_fd, doorbell, event;
	struct abi_region_header *region;
	uint8_t *staging;
	struct abi_sqe *sq;
	struct abi_cqe *cq;
	uint32_t sq_tail, cq_head;
};

union answer {
	struct wire_header header;
	struct wire_welcome welcome;
	struct wire_ctx_info info;
	struct wire_done done;
	struct wire_text text;
	struct wire_error error;
	uint8_t bytes[WIRE_MESSAGE_MAX];
};

HELPER int client_connect(struct client *c, const struct daemon *d)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };

	memset(c, 0, sizeof(*c));
	snprintf(at.sun_path, sizeof(at.sun_path), "%.100s", d->socket);
	c->sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_true(c->sock >= 0);
	return connect(c->sock, (struct sockaddr *)&at, sizeof(at)) ? -errno : 0;
}

/* One packet: its length, 0 at the end, or -ETIMEDOUT. */
HELPER ssize_t client_receive(struct client *c, union answer *a)
{
	char control[CMSG_SPACE(8 * sizeof(int))];
	struct iovec iov = { a->bytes, sizeof(a->bytes) };
	struct msghdr head = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
			       .msg_controllen = sizeof(control) };
	struct pollfd p = { .fd = c->sock, .events = POLLIN };
	struct cmsghdr *m;
	ssize_t n;

	c->fds = 0;
	if (poll(&p, 1, PATIENCE_MS) <= 0)
		return -ETIMEDOUT;
	n = recvmsg(c->sock, &head, MSG_CMSG_CLOEXEC);
	if (n <= 0)
		return 0;
	m = CMSG_FIRSTHDR(&head);
	if (m && m->cmsg_type == SCM_RIGHTS) {
		c->fds = (int)((m->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(c->fd, CMSG_DATA(m), (size_t)c->fds * sizeof(int));
	}
	return n;
}

HELPER void client_header(struct client *c, void *message, uint16_t type, size_t bytes)
{
	struct wire_header *h = message;

	*h = (struct wire_header){ WIRE_MAGIC, ABI_VERSION, type, (uint32_t)bytes, ++c->seq };
}

/* Ask and wait for the first packet of the answer; 0 when the daemon hung up instead. */
HELPER ssize_t client_ask(struct client *c, void *message, uint16_t type, size_t bytes,
			  union answer *a)
{
	client_header(c, message, type, bytes);
	if (send(c->sock, message, bytes, MSG_NOSIGNAL) < 0)
		return 0;
	return client_receive(c, a);
}

HELPER void client_map(struct client *c)
{
	struct stat st;

	c->region_fd = c->fd[0];
	c->staging_fd = c->fd[1];
	c->doorbell = c->fd[2];
	c->event = c->fd[3];
	assert_int_equal(fstat(c->region_fd, &st), 0);
	c->region = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED,
			 c->region_fd, 0);
	assert_true(c->region != MAP_FAILED);
	c->staging = mmap(NULL, c->welcome.staging_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
			  c->staging_fd, 0);
	assert_true(c->staging != MAP_FAILED);
	c->sq = (void *)((uint8_t *)c->region + c->region->sq_offset);
	c->cq = (void *)((uint8_t *)c->region + c->region->cq_offset);
	c->sq_tail = c->region->sq_tail;
	c->cq_head = c->region->cq_head;
}

HELPER void client_seal(struct client *c)
{
	assert_int_equal(fcntl(c->region_fd, F_ADD_SEALS, ABI_CLIENT_SEALS), 0);
	assert_int_equal(fcntl(c->staging_fd, F_ADD_SEALS, ABI_CLIENT_SEALS), 0);
}

/*
 * Connect, greet and map, but seal nothing. Returns 0 or the error the daemon answered; -ENOTCONN
 * when it hung up.
 */
HELPER int client_open_unsealed(struct client *c, const struct daemon *d, uint64_t staging)
{
	struct wire_hello hello = { .staging_bytes = staging, .sq_entries = 64, .readers = 2 };
	union answer a;
	int rc = client_connect(c, d);

	if (rc)
		return rc;
	snprintf(hello.name, sizeof(hello.name), "front-test");
	if (client_ask(c, &hello, WIRE_HELLO, sizeof(hello), &a) <= 0)
		return -ENOTCONN;
	if (a.header.type == WIRE_ERROR)
		return a.error.error;
	assert_int_equal(a.header.type, WIRE_WELCOME);
	assert_int_equal(c->fds, 4);
	c->welcome = a.welcome;
	client_map(c);
	return 0;
}

HELPER int client_open(struct client *c, const struct daemon *d)
{
	int rc = client_open_unsealed(c, d, 1 << 20);

	if (rc == 0)
		client_seal(c);
	return rc;
}

HELPER void client_close(struct client *c)
{
	if (c->region) {
		c->region->goodbye = 1; /* a polite client: its connection may end at once */
		munmap(c->region, c->region->total_bytes);
		munmap(c->staging, c->welcome.staging_bytes);
		close(c->region_fd);
		close(c->staging_fd);
		close(c->doorbell);
		close(c->event);
	}
	close(c->sock);
}

/* Has the daemon hung up, or does it soon? */
HELPER bool client_hung_up(struct client *c)
{
	struct pollfd p = { .fd = c->sock, .events = POLLRDHUP };
	int n = poll(&p, 1, PATIENCE_MS);

	return n == 1 && (p.revents & (POLLRDHUP | POLLHUP));
}

/* ---- rings --------------------------------------------------------------------------------- */

HELPER void client_ring(struct client *c)
{
	uint64_t one = 1;

	full_fence();
	if (atomic_load_relaxed_u32(&c->region->sq_wake))
		assert_int_equal(write(c->doorbell, &one, sizeof(one)), (ssize_t)sizeof(one));
}

HELPER bool client_push(struct client *c, const struct abi_sqe *sqe)
{
	uint32_t used = c->sq_tail - atomic_load_acquire_u32(&c->region->sq_head);

	if (used >= c->region->sq_entries)
		return false;
	c->sq[c->sq_tail & (c->region->sq_entries - 1)] = *sqe;
	c->sq_tail++;
	atomic_store_release_u32(&c->region->sq_tail, c->sq_tail);
	client_ring(c);
	return true;
}

/* Wait up to timeout_ms for a completion by looking; false = none. */
HELPER bool client_pop(struct client *c, struct abi_cqe *cqe, uint32_t timeout_ms)
{
	uint64_t end = time_now_ns() + timeout_ms * NS_PER_MS;
	uint32_t spins = 0;

	while (atomic_load_acquire_u32(&c->region->cq_tail) == c->cq_head) {
		if (time_now_ns() > end)
			return false;
		if (++spins % 1024 == 0)
			usleep(50);
		cpu_relax();
	}
	*cqe = c->cq[c->cq_head & (c->region->cq_entries - 1)];
	c->cq_head++;
	atomic_store_release_u32(&c->region->cq_head, c->cq_head);
	return true;
}

/* A NOP there and back. */
HELPER bool client_nop(struct client *c)
{
	struct abi_sqe sqe = { .op = ABI_OP_NOP, .user_data = 77 };
	struct abi_cqe cqe;

	return client_push(c, &sqe) && client_pop(c, &cqe, PATIENCE_MS) && cqe.res == 0 &&
	       cqe.user_data == 77;
}

/* The daemon lives and serves new clients. */
HELPER void daemon_serves(const struct daemon *d)
{
	struct client c;

	assert_int_equal(client_open(&c, d), 0);
	assert_true(client_nop(&c));
	client_close(&c);
}

#endif
