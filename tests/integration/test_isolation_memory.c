/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attacks on memory: other processes through /proc and ptrace, names of contexts, and the read-only
 * descriptors that a client is rightly given. The attacker may know every pid.
 */
#include "tests/integration/isolation.h"

#include <sched.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/xattr.h>

/* The call must fail with exactly this errno. */
#define FAILS(error, call)                                                                         \
	do {                                                                                       \
		errno = 0;                                                                         \
		CHECK((int64_t)(call) == -1 && errno == (error));                                  \
	} while (0)

/* ---- names ----------------------------------------------------------------------------------- */

static void by_name(struct isolation *w)
{
	tier *t = connect_to(&w->d);
	struct tier_context_options o = { .size = sizeof(o) };
	tier_geometry *g;
	tier_context *c;
	char *text;

	CHECK(tier_geometry_preset(&g, "tiny") == 0);
	CHECK(tier_context_open(t, "private", NULL, &c) == -ENOENT);
	CHECK(tier_context_open(t, "group", NULL, &c) == -ENOENT);
	CHECK(tier_context_open(t, "no-such-context", NULL, &c) == -ENOENT);
	CHECK(tier_context_remove(t, "private") == -ENOENT);
	CHECK(tier_context_raise_epoch(t, "private", NULL) == -ENOENT);
	CHECK(tier_context_create(t, "private", g, &o, &c) == -EACCES);
	CHECK(tier_admin(t, "evict", "{\"context\":\"private\"}", &text) == -EPERM);
	CHECK(tier_admin(t, "clients", NULL, &text) == -EPERM);
	CHECK(tier_admin(t, "pins", NULL, &text) == -EPERM);
	CHECK(tier_admin(t, "drain", NULL, &text) == -EPERM);
	/* What everybody may open, but not change. */
	CHECK(tier_context_open(t, "shared", NULL, &c) == 0);
	CHECK(put_secret(c, 5000) == -EACCES);
	CHECK(tier_delete(c, &(tier_key){ { 1 } }, 1) == -EACCES);
	CHECK(tier_context_remove(t, "shared") == -EACCES);
	CHECK(tier_context_raise_epoch(t, "shared", NULL) == -EACCES);
	tier_close(t);
}

static void test_names(void **state)
{
	struct isolation *w = isolation_of(state);

	if (w)
		attack(w, "open, create, remove, ask by name", by_name);
}

/* What the daemon says; to be freed. */
static char *told(tier *t, const char *verb, const char *args)
{
	char *text = NULL;

	CHECK(tier_admin(t, verb, args, &text) == 0);
	return text;
}

/* As for a name that nobody has. */
static void not_told(tier *t, const char *verb, const char *name)
{
	char args[160], want[160], key[65] = "", *text = NULL;
	const tier_key first = secret_key(0);

	for (size_t i = 0; i < sizeof(first.bytes); i++)
		snprintf(key + 2 * i, 3, "%02x", first.bytes[i]);
	snprintf(args, sizeof(args), "{\"context\":\"%s\",\"key\":\"%s\"}", name, key);
	snprintf(want, sizeof(want), "no context \"%s\"; tierctl context list shows yours", name);
	CHECK(tier_admin(t, verb, args, &text) == -ENOENT);
	CHECK(strstr(tier_error_text(), want));
}

/* Also what they may open is not told: it is not theirs. */
static void by_question(struct isolation *w)
{
	static const char *const names[] = { "private", "group", "shared", "no-such-context" };
	tier *t = connect_to(&w->d);
	tier_context *mine;
	char *text;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		not_told(t, "context", names[i]);
		not_told(t, "locate", names[i]);
	}
	text = told(t, "contexts", NULL);
	CHECK(strcmp(text, "{\"seen\":\"own\",\"contexts\":[]}") == 0);
	free(text);
	text = told(t, "status", NULL);
	CHECK(strstr(text, "\"seen\":\"own\",\"contexts\":0,\"blocks\":0,\"pages\":0,"
			   "\"index_bytes\":0,"));
	free(text);
	mine = create_as(t, "mine", 0600);
	text = told(t, "contexts", NULL);
	CHECK(strstr(text, "\"name\":\"mine\"") && !strstr(text, "},{\"id\""));
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		CHECK(!strstr(text, names[i]));
	free(text);
	free(told(t, "context", "{\"context\":\"mine\"}"));
	tier_context_close(mine);
	CHECK(tier_context_remove(t, "mine") == 0);
	not_told(t, "context", "mine");
	tier_close(t);
}

static void as_owner(struct isolation *w)
{
	tier *t = connect_to(&w->d);
	char *text = told(t, "contexts", NULL);

	CHECK(strstr(text, "\"private\"") && strstr(text, "\"group\"") &&
	      strstr(text, "\"shared\""));
	free(text);
	text = told(t, "context", "{\"context\":\"private\"}");
	CHECK(strstr(text, "\"owner_uid\":4301,"));
	free(text);
	CHECK(tier_admin(t, "stat", NULL, &text) == -EPERM);
	tier_close(t);
}

static void test_questions(void **state)
{
	struct isolation *w = isolation_of(state);

	if (!w)
		return;
	attack(w, "questions about contexts", by_question);
	attack_as(w, UID_READER, UID_VICTIM, "questions of the victim's group", by_question);
	attack_as(w, UID_VICTIM, UID_VICTIM, "the owner's questions", as_owner);
}

/* ---- other processes ------------------------------------------------------------------------- */

static void at_process(int32_t pid)
{
	char path[64], byte;
	struct iovec mine = { &byte, 1 }, theirs = { (void *)(uintptr_t)4096, 1 };
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	FAILS(EACCES, open(path, O_RDONLY | O_DIRECTORY));
	for (int fd = 0; fd < 64; fd++) {
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
		FAILS(EACCES, open(path, O_RDONLY));
		FAILS(EACCES, open(path, O_RDWR));
	}
	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	FAILS(EACCES, open(path, O_RDONLY));
	FAILS(EACCES, open(path, O_RDWR));
	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	FAILS(EACCES, open(path, O_RDONLY));
	snprintf(path, sizeof(path), "/proc/%d/map_files", pid);
	FAILS(EACCES, open(path, O_RDONLY | O_DIRECTORY));
	FAILS(EPERM, ptrace(PTRACE_SEIZE, pid, NULL, NULL));
	FAILS(EPERM, ptrace(PTRACE_ATTACH, pid, NULL, NULL));
	FAILS(EPERM, process_vm_readv(pid, &mine, 1, &theirs, 1, 0));
	FAILS(EPERM, process_vm_writev(pid, &mine, 1, &theirs, 1, 0));
	FAILS(EPERM, kill(pid, SIGSTOP));
	CHECK(pidfd >= 0);
	for (int fd = 0; fd < 64; fd++)
		FAILS(EPERM, syscall(SYS_pidfd_getfd, pidfd, fd, 0));
	close(pidfd);
}

static void by_process(struct isolation *w)
{
	at_process(w->board->pid);
	at_process(w->d.pid);
}

static void test_processes(void **state)
{
	struct isolation *w = isolation_of(state);

	if (w)
		attack(w, "/proc, ptrace, process_vm, pidfd_getfd", by_process);
}

static void by_file(struct isolation *w)
{
	char elsewhere[200];

	snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", w->d.folder);
	FAILS(EACCES, open(w->d.store, O_RDONLY));
	FAILS(EACCES, open(w->d.store, O_RDWR));
	FAILS(EACCES, unlink(w->d.store));
	FAILS(EACCES, unlink(w->d.socket));
	FAILS(EPERM, chmod(w->d.socket, 0600));
	FAILS(EACCES, rename(w->d.socket, elsewhere));
}

static void test_files(void **state)
{
	struct isolation *w = isolation_of(state);

	if (w)
		attack(w, "the store's file and the socket", by_file);
}

/* ---- granted descriptors --------------------------------------------------------------------- */

static void at_path(int fd)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	FAILS(EACCES, open(path, O_RDWR));
	FAILS(EACCES, open(path, O_WRONLY));
	FAILS(EACCES, open(path, O_RDWR | O_TRUNC));
	FAILS(EACCES, open(path, O_RDONLY));
	FAILS(EACCES, truncate(path, 0));
	FAILS(EPERM, chmod(path, 0666));
	FAILS(EPERM, chown(path, UID_ATTACKER, UID_ATTACKER));
}

/* Everything that might change a page through a descriptor that may only read. */
static void at_descriptor(int fd)
{
	struct stat st;
	uint8_t *at;

	CHECK(fstat(fd, &st) == 0 && st.st_uid == UID_DAEMON && (st.st_mode & 0777) == 0600);
	at_path(fd);
	FAILS(EBADF, write(fd, "x", 1));
	FAILS(EBADF, pwrite(fd, "x", 1, 0));
	FAILS(EINVAL, ftruncate(fd, 0));
	FAILS(EPERM, fchmod(fd, 0666));
	FAILS(EPERM, fchown(fd, UID_ATTACKER, UID_ATTACKER));
	FAILS(EBADF, fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096));
	FAILS(EBADF, fallocate(fd, 0, 0, 4096));
	FAILS(EPERM, fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE));
	CHECK(fsetxattr(fd, "user.x", "x", 1, 0) == -1);
	errno = 0;
	CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED &&
	      errno == EACCES);
	at = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	CHECK(at != MAP_FAILED);
	FAILS(EACCES, mprotect(at, 4096, PROT_READ | PROT_WRITE));
	FAILS(EACCES, madvise(at, 4096, MADV_REMOVE));
	munmap(at, 4096);
	/* A private copy is one's own affair: nobody else sees it. */
	at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	CHECK(at != MAP_FAILED);
	memset(at, 0xff, 4096);
	munmap(at, 4096);
}

/* As "root" of a user namespace of one's own, where the kernel allows one. */
static void in_namespace(const int *fd, int fds)
{
	int status;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		char path[64];

		if (unshare(CLONE_NEWUSER))
			_exit(0);
		prctl(PR_SET_DUMPABLE, 1);
		for (int i = 0; i < fds; i++) {
			snprintf(path, sizeof(path), "/proc/self/fd/%d", fd[i]);
			CHECK(open(path, O_RDWR) == -1);
			CHECK(fchmod(fd[i], 0666) == -1);
			CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd[i], 0) ==
			      MAP_FAILED);
		}
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

static void by_descriptor(struct isolation *w)
{
	int fd[3], fds = 0;
	struct client c;
	union answer a;

	CHECK(client_open(&c, &w->d) == 0);
	CHECK(c.welcome.flags & WIRE_ISOLATED);
	CHECK(ask_context(&c, WIRE_CTX_OPEN, "shared", &a) == 0);
	CHECK(c.fds == 3 && !a.info.writable);
	for (int i = 0; i < 3; i++)
		if (i == 0 || a.info.mem_bytes[i - 1])
			fd[fds++] = c.fd[i];
	CHECK(fds >= 2);
	for (int i = 0; i < fds; i++)
		at_descriptor(fd[i]);
	in_namespace(fd, fds);
	CHECK(client_nop(&c));
	client_close(&c);
}

static void test_descriptors(void **state)
{
	struct isolation *w = isolation_of(state);

	if (w)
		attack(w, "granted descriptors", by_descriptor);
}

/* One's own region and staging: sealed against what would hurt the daemon. */
static void by_own_memory(struct isolation *w)
{
	struct client c;

	CHECK(client_open(&c, &w->d) == 0);
	FAILS(EPERM, ftruncate(c.region_fd, 0));
	FAILS(EPERM, ftruncate(c.staging_fd, 0));
	FAILS(EPERM, ftruncate(c.region_fd, 1 << 30));
	FAILS(EPERM, fcntl(c.region_fd, F_ADD_SEALS, F_SEAL_WRITE));
	FAILS(EPERM, fallocate(c.staging_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
			       1 << 20));
	FAILS(EPERM, madvise(c.region, 4096, MADV_REMOVE));
	FAILS(EPERM, madvise(c.staging, 4096, MADV_REMOVE));
	FAILS(EPERM, fallocate(c.region_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
			       1 << 20));
	usleep(100000);
	close(c.sock);
}

static void test_own_memory(void **state)
{
	struct isolation *w = isolation_of(state);

	if (w)
		attack(w, "one's own region punched out", by_own_memory);
}

/* ---- a group --------------------------------------------------------------------------------- */

static void in_group(struct isolation *w)
{
	tier *t = connect_to(&w->d);
	tier_context *c;
	tier_reader *r;
	tier_key key = secret_key(1);
	struct tier_found found;
	tier_put *p;

	CHECK(tier_context_open(t, "private", NULL, &c) == -ENOENT);
	CHECK(tier_context_open(t, "shared", NULL, &c) == 0);
	tier_context_close(c);
	CHECK(tier_context_open(t, "group", NULL, &c) == 0);
	CHECK(tier_put_begin(c, &key, 1, NULL, &p) == -EACCES);
	CHECK(put_secret(c, 1) == -EACCES);
	CHECK(tier_delete(c, &key, 1) == -EACCES);
	CHECK(tier_match(c, &key, 1, &found) == 0);
	CHECK(tier_context_remove(t, "group") == -EACCES);
	CHECK(tier_context_raise_epoch(t, "group", NULL) == -EACCES);
	tier_context_close(c);
	CHECK(tier_context_open(t, "shared", NULL, &c) == 0);
	CHECK(tier_reader_open(t, &r) == 0);
	for (uint32_t n = 0; n < ATTACKED_BLOCKS; n++)
		CHECK(read_secret(r, c, n, n % ATTACKED_PAGES) == 1);
	tier_close(t);
}

static void test_a_group_may_read(void **state)
{
	struct isolation *w = isolation_of(state);

	if (w)
		attack_as(w, UID_READER, UID_VICTIM, "a reader of the victim's group", in_group);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_questions),
		cmocka_unit_test(test_processes),
		cmocka_unit_test(test_files),
		cmocka_unit_test(test_descriptors),
		cmocka_unit_test(test_own_memory),
		cmocka_unit_test(test_a_group_may_read),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("isolation, memory", tests, isolation_setup,
					   isolation_teardown);
}
