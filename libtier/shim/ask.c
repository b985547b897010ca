/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process' connection to the daemon, made at the first question. A child of fork has its own; a
 * program that closes all descriptors loses it, and gets a new one. What is asked holds a lock, is
 * not cancelled, and has a deadline; a signal's handler that comes in between passes through.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libtier/base/time.h"
#include "libtier/shim/shim.h"
#include "libtier/src/socket.h"

#define CONNECT_NS (2 * NS_PER_S)
#define ANSWER_NS (120 * NS_PER_S)
#define AWAY_NS (1 * NS_PER_S) /* before the next try, when the daemon was away */
#define PLACE 900              /* descriptors below are the program's to name */

static struct {
	pthread_mutex_t lock;
	struct socket socket;
	pid_t pid;      /* that it is of */
	ino_t inode;    /* of the socket: the number may be somebody else's by now */
	uint64_t away_ns; /* no attempt before */
	struct message message;
} link_ = { .lock = PTHREAD_MUTEX_INITIALIZER, .socket = { .fd = -1 } };

bool shim_owns(int fd)
{
	return fd >= 0 && fd == link_.socket.fd && link_.pid == getpid();
}

/* Is the descriptor still the socket that was made? */
static bool is_socket(void)
{
	struct stat st;

	return link_.socket.fd >= 0 && fstat(link_.socket.fd, &st) == 0 &&
	       S_ISSOCK(st.st_mode) && st.st_ino == link_.inode;
}

static bool is_ours(void)
{
	return link_.pid == getpid() && is_socket();
}

static void drop(void)
{
	if (is_socket())
		close(link_.socket.fd);
	link_.socket.fd = -1;
	shim_look_dropped();
}

/* The parent's is the parent's alone: the daemon sees it die by its hang-up. */
static void after_fork(void)
{
	shim_enter();
	drop();
	shim_leave();
	pthread_mutex_init(&link_.lock, NULL);
	shim_forked();
	shim_folder_forked();
	shim_look_forked();
	link_.away_ns = 0;
}

/* Out of the way of programs that expect the lowest numbers. */
static int move_up(void)
{
	int fd = fcntl(link_.socket.fd, F_DUPFD_CLOEXEC, PLACE);
	struct stat st;

	if (fd >= 0) {
		close(link_.socket.fd);
		link_.socket.fd = fd;
	}
	if (fstat(link_.socket.fd, &st))
		return -errno;
	link_.inode = st.st_ino;
	link_.pid = getpid();
	return 0;
}

static int greet(uint64_t deadline_ns)
{
	struct wire_hello hello = {
		.header.type = WIRE_HELLO,
		.staging_bytes = ABI_PAGE_ALIGN,
		.sq_entries = 8,
		.readers = 1,
		.name = "tier run",
	};
	int rc = socket_send(&link_.socket, &hello.header, sizeof(hello), deadline_ns);

	if (rc == 0)
		rc = socket_receive(&link_.socket, &link_.message, WIRE_WELCOME, deadline_ns);
	if (rc == 0)
		message_drop(&link_.message); /* rings and staging: objects need none */
	return rc;
}

static int connect_anew(void)
{
	static bool registered;
	const char *path = getenv("TIER_SOCKET");
	uint64_t now = time_now_ns();
	int rc;

	if (!path || strlen(path) >= 108 || now < link_.away_ns)
		return -ENOTCONN;
	if (!registered)
		registered = pthread_atfork(NULL, NULL, after_fork) == 0;
	rc = socket_open(&link_.socket, path, now + CONNECT_NS);
	if (rc == 0)
		rc = move_up();
	if (rc == 0)
		rc = greet(now + CONNECT_NS);
	if (rc) {
		drop();
		link_.away_ns = now + AWAY_NS;
		return -ENOTCONN;
	}
	return 0;
}

/* Errors of the way there, as against those that the daemon answers. */
static bool is_broken(int rc)
{
	return rc == -ENOTCONN || rc == -EPROTO || rc == -EBADF;
}

static int ask_once(struct wire_object *q, uint16_t answer, uint64_t deadline_ns)
{
	int rc = is_ours() ? 0 : connect_anew();

	if (rc == 0)
		rc = socket_send(&link_.socket, &q->header, sizeof(*q), deadline_ns);
	if (rc == 0)
		rc = socket_receive(&link_.socket, &link_.message, answer, deadline_ns);
	if (is_broken(rc))
		drop();
	return rc;
}

static void tell_found(void)
{
	struct wire_object_hold m;

	for (uint32_t i = 0; i < SHIM_MAPS_MAX; i++)
		if (shim_look_found(i, &m))
			socket_send(&link_.socket, &m.header, sizeof(m), 0);
}

static int ask_locked(struct wire_object *q, uint16_t answer, struct wire_object_info *info,
		      int *fd)
{
	uint64_t deadline_ns = time_now_ns() + ANSWER_NS;
	bool held = is_ours();
	int rc;

	if (held)
		tell_found();
	rc = ask_once(q, answer, deadline_ns);

	/* The daemon was restarted: uploads are gone, names are not. */
	if (rc == -ENOTCONN && held && q->header.type != WIRE_OBJ_COMMIT) {
		link_.away_ns = 0;
		rc = ask_once(q, answer, deadline_ns);
	}
	if (rc)
		return rc == -EOPNOTSUPP || is_broken(rc) ? -ENOTCONN : rc;
	if (info)
		memcpy(info, link_.message.bytes, sizeof(*info));
	if (fd)
		*fd = message_take_fd(&link_.message, 0);
	message_drop(&link_.message);
	return fd && *fd < 0 ? -EPROTO : 0;
}

void shim_question(struct wire_object *q, uint16_t type, const struct shim_name_of *n)
{
	memset(q, 0, sizeof(*q));
	q->header.type = type;
	shim_question_of(q, n);
}

void shim_question_of(struct wire_object *q, const struct shim_name_of *n)
{
	memset(q->context, 0, sizeof(q->context));
	memset(q->name, 0, sizeof(q->name));
	memcpy(q->context, n->context, strlen(n->context));
	memcpy(q->name, n->name, strlen(n->name));
}

int shim_ask(struct wire_object *q, uint16_t answer, struct wire_object_info *info, int *fd)
{
	int saved = errno, state, rc;

	shim_enter();
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	pthread_mutex_lock(&link_.lock);
	rc = ask_locked(q, answer, info, fd);
	pthread_mutex_unlock(&link_.lock);
	pthread_setcancelstate(state, NULL);
	shim_leave();
	errno = saved;
	return rc;
}

void shim_tell_real(const struct shim_name_of *n)
{
	struct wire_object_hold m = { .header.type = WIRE_OBJ_HOLD, .passed = 1 };
	struct wire_object_info info;
	struct wire_object q;
	int state;

	memcpy(m.context, n->context, sizeof(m.context));
	shim_enter();
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	pthread_mutex_lock(&link_.lock);
	if (is_ours())
		socket_send(&link_.socket, &m.header, sizeof(m), 0);
	pthread_mutex_unlock(&link_.lock);
	pthread_setcancelstate(state, NULL);
	shim_leave();
	/* With its answer the daemon has read that, too, whatever becomes of this process. */
	shim_question(&q, WIRE_OBJ_STAT, n);
	shim_ask(&q, WIRE_OBJ_INFO, &info, NULL);
}

bool shim_alive(void)
{
	int saved = errno, state;
	bool alive = true;

	shim_enter();
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	if (pthread_mutex_trylock(&link_.lock) == 0) {
		alive = is_ours() && !socket_hung_up(&link_.socket);
		if (alive)
			tell_found();
		else
			drop();
		pthread_mutex_unlock(&link_.lock);
	}
	pthread_setcancelstate(state, NULL);
	shim_leave();
	errno = saved;
	return alive;
}

/* One answer's names. The daemon's words are judged like anybody's. */
static int take_names(size_t prefix, char *after, uint64_t *out, size_t stride)
{
	const struct wire_object_names *head = (const void *)link_.message.bytes;
	size_t at = sizeof(*head), end = link_.message.header.length;
	uint32_t n = 0;

	for (; n < head->count && n < SHIM_NAMES_MAX; n++) {
		const uint8_t *from = link_.message.bytes + at;
		char *name = (char *)out + n * stride + sizeof(*out);
		struct wire_object_name one;

		if (at + sizeof(one) > end)
			return -EPROTO;
		memcpy(&one, from, sizeof(one));
		if (one.name_bytes <= prefix || one.name_bytes >= ABI_OBJECT_NAME_BYTES ||
		    one.name_bytes > end - at - sizeof(one))
			return -EPROTO;
		memset(after, 0, ABI_OBJECT_NAME_BYTES);
		memcpy(after, from + sizeof(one), one.name_bytes);
		memset(name, 0, ABI_OBJECT_NAME_BYTES);
		memcpy(name, after + prefix, one.name_bytes - prefix);
		memcpy((char *)out + n * stride, &one.mtime_ns, sizeof(*out));
		at += (sizeof(one) + one.name_bytes + 7) & ~(size_t)7;
	}
	return (int)n;
}

int shim_list(struct wire_object *q, size_t prefix, char after[ABI_OBJECT_NAME_BYTES],
	      uint64_t *out, size_t stride, bool *more)
{
	int saved = errno, state, rc;

	shim_enter();
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	pthread_mutex_lock(&link_.lock);
	rc = ask_once(q, WIRE_OBJ_NAMES, time_now_ns() + ANSWER_NS);
	if (rc == 0) {
		const struct wire_object_names *head = (const void *)link_.message.bytes;

		*more = head->more;
		rc = take_names(prefix, after, out, stride);
		message_drop(&link_.message);
	}
	pthread_mutex_unlock(&link_.lock);
	pthread_setcancelstate(state, NULL);
	shim_leave();
	errno = saved;
	return rc;
}
