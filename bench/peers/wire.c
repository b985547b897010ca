/* SPDX-License-Identifier: Apache-2.0 */
/* Text protocols over a UNIX socket; see wire.h. */
#include "bench/peers/wire.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "bench/process.h"
#include "libtier/base/time.h"

#define PIECE_BYTES 1024u      /* of one wire_text */
#define SOCKET_BYTES (4 << 20) /* asked for; the kernel gives what it allows */

static int try_connect(const struct sockaddr_un *to)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), bytes = SOCKET_BYTES, error;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
	if (connect(fd, (const struct sockaddr *)to, sizeof(*to)) == 0)
		return fd;
	error = -errno;
	close(fd);
	return error;
}

int wire_open(struct wire *w, const char *path, uint64_t until_ns)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };

	*w = (struct wire){ .fd = -1 };
	if (strlen(path) >= sizeof(to.sun_path))
		return -ENAMETOOLONG;
	memcpy(to.sun_path, path, strlen(path) + 1);
	while ((w->fd = try_connect(&to)) < 0) {
		if (w->fd != -ENOENT && w->fd != -ECONNREFUSED)
			return w->fd;
		if (time_now_ns() > until_ns)
			return -ETIMEDOUT;
		process_moment();
	}
	return 0;
}

void wire_close(struct wire *w)
{
	if (w->fd >= 0)
		close(w->fd);
	w->fd = -1;
}

static int send_all(struct wire *w, struct iovec *io, int count)
{
	while (count) {
		struct msghdr message = { .msg_iov = io, .msg_iovlen = (size_t)count };
		ssize_t n = sendmsg(w->fd, &message, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		for (; count && (size_t)n >= io->iov_len; io++, count--)
			n -= (ssize_t)io->iov_len;
		if (count) {
			io->iov_base = (char *)io->iov_base + n;
			io->iov_len -= (size_t)n;
		}
	}
	return 0;
}

int wire_flush(struct wire *w)
{
	struct iovec io = { w->text, w->out };

	w->out = 0;
	return io.iov_len ? send_all(w, &io, 1) : 0;
}

int wire_text(struct wire *w, const char *format, ...)
{
	va_list args;
	int n, error = w->out + PIECE_BYTES > sizeof(w->text) ? wire_flush(w) : 0;

	if (error)
		return error;
	va_start(args, format);
	n = vsnprintf(w->text + w->out, PIECE_BYTES, format, args);
	va_end(args);
	if (n < 0 || (unsigned)n >= PIECE_BYTES)
		return -E2BIG;
	w->out += (size_t)n;
	return 0;
}

int wire_value(struct wire *w, const void *value, size_t bytes, const char *tail)
{
	struct iovec io[] = { { w->text, w->out },
			      { (void *)(uintptr_t)value, bytes },
			      { (void *)(uintptr_t)tail, strlen(tail) } };

	w->out = 0;
	return send_all(w, io, 3);
}

/* Up to `bytes` to `to`, and of what follows what there is to `in`. Returns how many to `to`. */
static ssize_t receive(struct wire *w, void *to, size_t bytes)
{
	struct iovec io[] = { { to, bytes }, { w->in + w->end, sizeof(w->in) - w->end } };
	struct msghdr message = { .msg_iov = bytes ? io : io + 1, .msg_iovlen = bytes ? 2 : 1 };

	for (;;) {
		ssize_t n = recvmsg(w->fd, &message, 0);

		if (n == 0)
			return -ECONNRESET;
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n < 0)
			continue;
		if ((size_t)n > bytes)
			w->end += (size_t)n - bytes;
		return (size_t)n < bytes ? n : (ssize_t)bytes;
	}
}

int wire_line(struct wire *w, char line[WIRE_LINE_BYTES])
{
	for (;;) {
		char *start = w->in + w->at;
		char *stop = memchr(start, '\n', w->end - w->at);
		size_t length = stop ? (size_t)(stop - start) : w->end - w->at;
		ssize_t n;

		if (stop) {
			memcpy(line, start, length);
			line[length && line[length - 1] == '\r' ? length - 1 : length] = '\0';
			w->at += length + 1;
			return 0;
		}
		if (length >= WIRE_LINE_BYTES)
			return -EPROTO;
		memmove(w->in, start, length);
		w->at = 0;
		w->end = length;
		n = receive(w, NULL, 0);
		if (n < 0)
			return (int)n;
	}
}

int wire_bytes(struct wire *w, void *to, size_t bytes)
{
	size_t there = w->end - w->at < bytes ? w->end - w->at : bytes;
	char line[WIRE_LINE_BYTES];
	int error;

	memcpy(to, w->in + w->at, there);
	w->at += there;
	if (there < bytes)
		w->at = w->end = 0;
	while (there < bytes) {
		ssize_t n = receive(w, (char *)to + there, bytes - there);

		if (n < 0)
			return (int)n;
		there += (size_t)n;
	}
	error = wire_line(w, line);
	return error ? error : *line ? -EPROTO : 0;
}
