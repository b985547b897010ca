/* SPDX-License-Identifier: Apache-2.0 */
/* A bare socket with a checksum, and the same through OpenSSL; see hosts_wire.h. */
#include "bench/micro/hosts_wire.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench.h"
#include "libtier/base/cleanup.h"
#include "libtier/base/crc32c.h"
#include "tierd/net/conn.h"

#define FRAME_PAGES (HOSTS_FRAME / HOSTS_PAGE)

static int all(int fd, SSL *ssl, void *bytes, size_t count, bool out)
{
	for (char *at = bytes, *end = at + count; at < end;) {
		ssize_t n;
		size_t done = 0;

		if (ssl && (out ? SSL_write_ex(ssl, at, (size_t)(end - at), &done) :
				  SSL_read_ex(ssl, at, (size_t)(end - at), &done)) != 1)
			return -ECONNRESET;
		n = ssl ? (ssize_t)done :
		    out ? send(fd, at, (size_t)(end - at), MSG_NOSIGNAL) :
			  recv(fd, at, (size_t)(end - at), MSG_WAITALL);
		if (n <= 0)
			return -ECONNRESET;
		at += n;
	}
	return 0;
}

/* ---- the sender ---------------------------------------------------------------------------- */

static void serve(int fd, SSL *ssl, uint8_t *bytes)
{
	uint32_t wanted, crc[FRAME_PAGES];

	while (all(fd, ssl, &wanted, sizeof(wanted), false) == 0)
		for (uint32_t at = 0; at < wanted; at += HOSTS_FRAME) {
			for (uint32_t i = 0; i < FRAME_PAGES; i++)
				crc[i] = crc32c(0, bytes + at + i * HOSTS_PAGE, HOSTS_PAGE);
			if (all(fd, ssl, crc, sizeof(crc), true) ||
			    all(fd, ssl, bytes + at, HOSTS_FRAME, true))
				return;
		}
}

/* A child a connection, as tierd-net has a thread for each. */
static void sender(int listener, SSL_CTX *tls)
{
	uint8_t *bytes = malloc(16 << 20);
	uint64_t x = 1;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGCHLD, SIG_IGN);
	for (size_t i = 0; bytes && i < (16 << 20) / 8; i++)
		((uint64_t *)(void *)bytes)[i] = bench_random(&x);
	for (int i = 0; bytes && i < 2; i++) {
		int fd = accept(listener, NULL, NULL), one = 1;
		SSL *ssl = i ? SSL_new(tls) : NULL;

		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		if (fork())
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (!ssl || (SSL_set_fd(ssl, fd) && SSL_accept(ssl) == 1))
			serve(fd, ssl, bytes);
		_exit(0);
	}
	for (;;)
		pause();
}

/* ---- the receiver -------------------------------------------------------------------------- */

static SSL_CTX *certificates(const char *folder, const char *name)
{
	char path[1024], why[512];
	SSL_CTX *tls;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	tls = conn_tls(path, why, sizeof(why));
	if (!tls)
		fprintf(stderr, "%s\n", why);
	return tls;
}

static int connect_both(struct hosts_wire *w, const struct sockaddr_in *to)
{
	int one = 1;

	for (int i = 0; i < 2; i++) {
		w->fd[i] = socket(AF_INET, SOCK_STREAM, 0);
		if (connect(w->fd[i], (const struct sockaddr *)to, sizeof(*to)))
			return -errno;
		setsockopt(w->fd[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	}
	w->ssl = SSL_new(w->tls);
	return w->ssl && SSL_set_fd(w->ssl, w->fd[1]) && SSL_connect(w->ssl) == 1 ? 0 : -EACCES;
}

int hosts_wire_open(struct hosts_wire *w, const char *folder)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t bytes = sizeof(at);
	int listener CLEANUP_CLOSE = socket(AF_INET, SOCK_STREAM, 0);
	SSL_CTX *tls = certificates(folder, "A");

	*w = (struct hosts_wire){ .fd = { -1, -1 }, .tls = certificates(folder, "B") };
	if (!tls || !w->tls)
		return -EINVAL;
	if (bind(listener, (struct sockaddr *)&at, sizeof(at)) || listen(listener, 2) ||
	    getsockname(listener, (struct sockaddr *)&at, &bytes))
		return -errno;
	fflush(NULL);
	w->sender = fork();
	if (w->sender == 0)
		sender(listener, tls);
	SSL_CTX_free(tls);
	return w->sender < 0 ? -errno : connect_both(w, &at);
}

void hosts_wire_close(struct hosts_wire *w)
{
	SSL_free(w->ssl);
	SSL_CTX_free(w->tls);
	for (int i = 0; i < 2; i++)
		if (w->fd[i] >= 0)
			close(w->fd[i]);
	if (w->sender > 0 && kill(w->sender, SIGKILL) == 0)
		waitpid(w->sender, NULL, 0);
}

int hosts_wire_get(struct hosts_wire *w, bool tls, void *to, uint32_t bytes)
{
	SSL *ssl = tls ? w->ssl : NULL;
	uint32_t crc[FRAME_PAGES];
	int fd = w->fd[tls];
	int rc = all(fd, ssl, &bytes, sizeof(bytes), true);

	for (uint8_t *at = to, *end = at + bytes; at < end && rc == 0; at += HOSTS_FRAME) {
		rc = all(fd, ssl, crc, sizeof(crc), false);
		if (rc == 0)
			rc = all(fd, ssl, at, HOSTS_FRAME, false);
		for (uint32_t i = 0; i < FRAME_PAGES && rc == 0; i++)
			if (crc32c(0, at + i * HOSTS_PAGE, HOSTS_PAGE) != crc[i])
				rc = -EBADMSG;
	}
	return rc;
}
