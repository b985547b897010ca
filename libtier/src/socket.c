/*
 * Questions and answers on the daemon's socket; see socket.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "libtier/src/socket.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "libtier/abi/object.h"
#include "libtier/base/cleanup.h"
#include "libtier/base/time.h"
#include "libtier/src/error.h"

/* Sleeps until the events are there: 0, -ETIMEDOUT, or poll's error. */
static int wait_for(int fd, short events, uint64_t deadline_ns)
{
	for (;;) {
		struct pollfd p = { .fd = fd, .events = events };
		uint64_t now = time_now_ns();
		struct timespec left = time_to_timespec(deadline_ns > now ? deadline_ns - now : 0);
		int n = ppoll(&p, 1, &left, NULL);

		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -errno;
		if (time_now_ns() >= deadline_ns)
			return -ETIMEDOUT;
	}
}

static int explain_connect(int error, const char *path)
{
	struct stat st;

	switch (error) {
	case -ENOENT:
		return error_set(error, "connect: there is no socket %s; start tierd, or set "
					"TIER_SOCKET to where it listens", path);
	case -ECONNREFUSED:
		if (stat(path, &st) == 0 && !S_ISSOCK(st.st_mode))
			return error_set(error, "connect: %s is no socket; set TIER_SOCKET to "
						"where tierd listens", path);
		return error_set(error, "connect: nobody listens on %s; start tierd", path);
	case -EACCES:
	case -EPERM:
		return error_set(-EACCES, "connect: %s is closed to this user, by its own mode "
					  "(tierd's socket.mode) or by a folder above it", path);
	default:
		return error_set(error, "connect: %s: %s", path, strerror(-error));
	}
}

int socket_open(struct socket *s, const char *path, uint64_t deadline_ns)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd CLEANUP_CLOSE = -1;

	memcpy(address.sun_path, path, strlen(path) + 1);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return error_set(-errno, "connect: no socket: %s", strerror(errno));
	while (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
		/* EAGAIN: the daemon's queue of new clients is full. */
		if (errno != EAGAIN && errno != EINTR)
			return explain_connect(-errno, path);
		if (time_now_ns() >= deadline_ns)
			return error_set(-ETIMEDOUT, "connect: the daemon on %s does not accept "
						     "clients; is it stopped?", path);
		usleep(1000);
	}
	s->fd = take_fd(&fd);
	s->seq = 0;
	return 0;
}

void socket_close(struct socket *s)
{
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
}

static bool is_hang_up(int error)
{
	return error == -EPIPE || error == -ECONNRESET || error == -ENOTCONN;
}

static int explain(int error, const char *verb)
{
	if (is_hang_up(error))
		return error_note(-ENOTCONN, "the daemon hung up; the next call re-attaches");
	if (error == -ETIMEDOUT)
		return error_note(error, "the daemon did not answer in time; is it stopped?");
	return error_set(error, "socket: %s: %s", verb, strerror(-error));
}

int socket_send(struct socket *s, struct wire_header *question, size_t bytes, uint64_t deadline_ns)
{
	question->magic = WIRE_MAGIC;
	question->version = ABI_VERSION;
	question->length = (uint32_t)bytes;
	question->seq = ++s->seq;
	for (;;) {
		ssize_t n = send(s->fd, question, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
		int rc;

		if (n >= 0)
			return 0;
		if (errno != EAGAIN && errno != EINTR)
			return explain(-errno, "send");
		rc = wait_for(s->fd, POLLOUT, deadline_ns);
		if (rc)
			return explain(rc, "poll");
	}
}

/* What the kernel installed: no more than the control buffer has room for, MESSAGE_FDS_MAX. */
_Static_assert(CMSG_SPACE(MESSAGE_FDS_MAX * sizeof(int)) <
		       CMSG_LEN((MESSAGE_FDS_MAX + 1) * sizeof(int)), "no room for one more");

static void take_fds(struct message *m, struct msghdr *head)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(head); c; c = CMSG_NXTHDR(head, c)) {
		size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < count; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			m->fd[m->fd_count++] = fd;
		}
	}
}

/* Descriptors are cut off where there is no number left for them; the connection is as before. */
static int cut_off(struct message *m, int flags)
{
	message_drop(m);
	if (flags & MSG_TRUNC)
		return error_note(-EPROTO, "socket: the answer is longer than this protocol has");
	return error_note(-EMFILE, "socket: an answer's descriptors were cut off: the limit of "
				   "open files is reached; close some or raise it (ulimit -n)");
}

/* One packet, whoever it answers. Returns its length or an error. */
static ssize_t receive_packet(struct socket *s, struct message *m, uint64_t deadline_ns)
{
	char control[CMSG_SPACE(MESSAGE_FDS_MAX * sizeof(int))];
	struct iovec iov = { .iov_base = m->bytes, .iov_len = sizeof(m->bytes) };

	m->fd_count = 0;
	for (;;) {
		struct msghdr head = { .msg_iov = &iov,
				       .msg_iovlen = 1,
				       .msg_control = control,
				       .msg_controllen = sizeof(control) };
		ssize_t n = recvmsg(s->fd, &head, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
		int rc;

		if (n >= 0) {
			take_fds(m, &head);
			if (head.msg_flags & (MSG_TRUNC | MSG_CTRUNC))
				return cut_off(m, head.msg_flags);
			return n == 0 ? explain(-ENOTCONN, "receive") : n;
		}
		if (errno != EAGAIN && errno != EINTR)
			return explain(-errno, "receive");
		rc = wait_for(s->fd, POLLIN, deadline_ns);
		if (rc)
			return explain(rc, "poll");
	}
}

static size_t least_bytes(uint16_t type)
{
	switch (type) {
	case WIRE_WELCOME:
		return sizeof(struct wire_welcome);
	case WIRE_CTX_INFO:
		return sizeof(struct wire_ctx_info);
	case WIRE_DONE:
		return sizeof(struct wire_done);
	case WIRE_TEXT:
		return sizeof(struct wire_text);
	case WIRE_USAGE_LIST:
		return sizeof(struct wire_usage_list);
	case WIRE_SLAB:
		return sizeof(struct wire_slab);
	case WIRE_PLACE:
		return sizeof(struct wire_place);
	case WIRE_OBJ_INFO:
		return sizeof(struct wire_object_info);
	case WIRE_OBJ_NAMES:
		return sizeof(struct wire_object_names);
	default:
		return sizeof(struct wire_error);
	}
}

/* Is the packet an answer of this type, or an error? */
static int judge(const struct message *m, size_t bytes, uint16_t type)
{
	const struct wire_header *h = &m->header;

	if (h->magic != WIRE_MAGIC || h->length != bytes)
		return error_note(-EPROTO, "socket: the answer is not of this protocol; is the "
					   "socket tierd's?");
	if (h->version != ABI_VERSION)
		return error_set(-EPROTO, "socket: the daemon speaks version %u, this library %u; "
					  "update the older one", h->version, ABI_VERSION);
	if ((h->type != type && h->type != WIRE_ERROR) || bytes < least_bytes(h->type))
		return error_set(-EPROTO, "socket: unexpected answer of type %u", h->type);
	if (h->type == type)
		return 0;
	if (m->error.error >= 0 || m->error.error < -4095)
		return error_note(-EPROTO, "socket: the daemon answered an error without a number");
	return error_set(m->error.error, "%.*s",
			 (int)strnlen(m->error.text, sizeof(m->error.text)), m->error.text);
}

int socket_receive(struct socket *s, struct message *answer, uint16_t type, uint64_t deadline_ns)
{
	int rc;

	for (;;) {
		ssize_t n = receive_packet(s, answer, deadline_ns);

		if (n < 0)
			return (int)n;
		/* An answer that came after its question was given up: pass it over. */
		if ((size_t)n >= sizeof(answer->header) && answer->header.magic == WIRE_MAGIC &&
		    answer->header.seq != s->seq && (int32_t)(answer->header.seq - s->seq) < 0) {
			message_drop(answer);
			continue;
		}
		rc = (size_t)n < sizeof(answer->header) ?
			     error_note(-EPROTO, "socket: the answer is too short") :
			     judge(answer, (size_t)n, type);
		if (rc)
			message_drop(answer);
		return rc;
	}
}

void message_drop(struct message *m)
{
	for (uint32_t i = 0; i < m->fd_count; i++)
		if (m->fd[i] >= 0)
			close(m->fd[i]);
	m->fd_count = 0;
}

int message_take_fd(struct message *m, uint32_t i)
{
	return i < m->fd_count ? take_fd(&m->fd[i]) : -EBADF;
}

bool socket_hung_up(const struct socket *s)
{
	struct pollfd p = { .fd = s->fd, .events = POLLRDHUP };

	return poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL));
}
