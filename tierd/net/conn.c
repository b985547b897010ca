/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sockets and TLS under one interface; see conn.h. Descriptors do not block: each wait is a poll
 * with what is left until the deadline, so that no peer holds a thread longer.
 */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "libtier/base/atomic.h"
#include "libtier/base/cleanup.h"
#include "libtier/base/time.h"
#include "tierd/net/conn.h"

#define IOV_BATCH 64u

/* ---- waiting ------------------------------------------------------------------------------- */

static int wait_for(int fd, int stop, short events, uint64_t deadline_ns)
{
	struct pollfd p[] = { { .fd = fd, .events = events }, { .fd = stop, .events = POLLIN } };
	uint64_t now = time_now_ns();
	struct timespec left = time_to_timespec(deadline_ns > now ? deadline_ns - now : 0);
	int n;

	if (now >= deadline_ns)
		return -ETIMEDOUT; /* who always has a byte more than was read ends here, too */
	n = ppoll(p, 2, &left, NULL);
	if (n < 0 && errno != EINTR)
		return -errno;
	if (n > 0 && p[1].revents)
		return -ECANCELED;
	return n == 0 ? -ETIMEDOUT : 0;
}

/* What a system call's failure means; 0: wait for `events` and try again. */
static int judge(const struct conn *c, ssize_t n, short events, uint64_t deadline_ns)
{
	if (n == 0)
		return -ENOTCONN;
	if (errno == EINTR)
		return 0;
	if (errno == EAGAIN)
		return wait_for(c->fd, c->stop, events, deadline_ns);
	return errno == EPIPE || errno == ECONNRESET ? -ENOTCONN : -errno;
}

static int judge_tls(const struct conn *c, int rc, uint64_t deadline_ns)
{
	int why = SSL_get_error(c->ssl, rc);

	ERR_clear_error(); /* the thread's queue: the next look is at what comes next */
	switch (why) {
	case SSL_ERROR_WANT_READ:
		return wait_for(c->fd, c->stop, POLLIN, deadline_ns);
	case SSL_ERROR_WANT_WRITE:
		return wait_for(c->fd, c->stop, POLLOUT, deadline_ns);
	case SSL_ERROR_SSL:
		return -EPROTO;
	default:
		return -ENOTCONN;
	}
}

/* ---- bytes --------------------------------------------------------------------------------- */

static int tls_move(struct conn *c, const struct iovec *iov, bool out, uint64_t deadline_ns)
{
	size_t done = 0, n;

	while (done < iov->iov_len) {
		char *at = (char *)iov->iov_base + done;
		size_t left = iov->iov_len - done;
		int rc = out ? SSL_write_ex(c->ssl, at, left, &n) :
			       SSL_read_ex(c->ssl, at, left, &n);

		if (rc == 1) {
			done += n;
			continue;
		}
		rc = judge_tls(c, rc, deadline_ns);
		if (rc)
			return rc;
	}
	return 0;
}

/* Pass over n bytes of a batch. */
static void advance(struct iovec *iov, uint32_t *first, size_t n)
{
	while (n && n >= iov[*first].iov_len) {
		n -= iov[*first].iov_len;
		(*first)++;
	}
	if (n) {
		iov[*first].iov_base = (char *)iov[*first].iov_base + n;
		iov[*first].iov_len -= n;
	}
}

/*
 * Into count places, and behind them into `ahead`, for which iov has one more: what comes next is
 * mostly there by then, and so takes no system call of its own.
 */
static ssize_t receive(struct conn *c, struct iovec *iov, uint32_t count)
{
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = count + 1 };
	size_t wanted = 0, n = c->ahead_end - c->ahead_at;
	ssize_t got;

	if (n) {
		n = n < iov->iov_len ? n : iov->iov_len;
		memcpy(iov->iov_base, c->ahead + c->ahead_at, n);
		c->ahead_at += (uint32_t)n;
		return (ssize_t)n;
	}
	for (uint32_t i = 0; i < count; i++)
		wanted += iov[i].iov_len;
	iov[count] = (struct iovec){ c->ahead, sizeof(c->ahead) };
	got = recvmsg(c->fd, &m, 0);
	if (got <= 0 || (size_t)got <= wanted)
		return got;
	c->ahead_at = 0;
	c->ahead_end = (uint32_t)((size_t)got - wanted);
	return (ssize_t)wanted;
}

/* A batch of at most IOV_BATCH places, in one direction. */
static int batch(struct conn *c, const struct iovec *from, uint32_t count, bool out,
		 uint64_t deadline_ns)
{
	struct iovec iov[IOV_BATCH + 1];
	uint32_t first = 0;

	memcpy(iov, from, count * sizeof(*iov));
	while (first < count) {
		struct msghdr m = { .msg_iov = iov + first, .msg_iovlen = count - first };
		ssize_t n = out ? sendmsg(c->fd, &m, MSG_NOSIGNAL) :
				  receive(c, iov + first, count - first);
		int rc;

		if (n > 0) {
			advance(iov, &first, (size_t)n);
			continue;
		}
		rc = judge(c, n, out ? POLLOUT : POLLIN, deadline_ns);
		if (rc)
			return rc;
	}
	return 0;
}

static int transfer(struct conn *c, const struct iovec *iov, uint32_t count, bool out,
		    uint64_t deadline_ns)
{
	int rc = 0;

	while (count && rc == 0) {
		uint32_t some = c->ssl ? 1 : count < IOV_BATCH ? count : IOV_BATCH;

		rc = c->ssl ? tls_move(c, iov, out, deadline_ns) :
			      batch(c, iov, some, out, deadline_ns);
		iov += some;
		count -= some;
	}
	return rc;
}

int conn_send(struct conn *c, const struct iovec *iov, uint32_t count, uint64_t deadline_ns)
{
	return transfer(c, iov, count, true, deadline_ns);
}

int conn_read(struct conn *c, const struct iovec *iov, uint32_t count, uint64_t deadline_ns)
{
	return transfer(c, iov, count, false, deadline_ns);
}

int conn_send_message(struct conn *c, const struct net_header *m, uint64_t deadline_ns)
{
	struct iovec iov = { (void *)(uintptr_t)m, m->length };

	return conn_send(c, &iov, 1, deadline_ns);
}

int conn_send_fd(struct conn *c, const struct net_header *m, int fd, uint64_t deadline_ns)
{
	struct iovec iov = { (void *)(uintptr_t)m, m->length };
	union {
		struct cmsghdr header;
		uint8_t bytes[CMSG_SPACE(sizeof(int))];
	} control = { .bytes = { 0 } };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control,
			      .msg_controllen = sizeof(control.bytes) };
	struct cmsghdr *h = CMSG_FIRSTHDR(&msg);
	ssize_t n;
	int rc;

	h->cmsg_level = SOL_SOCKET;
	h->cmsg_type = SCM_RIGHTS;
	h->cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(h), &fd, sizeof(fd));
	while ((n = sendmsg(c->fd, &msg, MSG_NOSIGNAL)) <= 0) {
		rc = judge(c, n, POLLOUT, deadline_ns);
		if (rc)
			return rc;
	}
	iov = (struct iovec){ (uint8_t *)(uintptr_t)m + n, m->length - (size_t)n };
	return iov.iov_len ? conn_send(c, &iov, 1, deadline_ns) : 0;
}

int conn_message(struct conn *c, uint64_t deadline_ns)
{
	struct net_header *h = (void *)c->message;
	struct iovec iov = { h, sizeof(*h) };
	int rc = conn_read(c, &iov, 1, deadline_ns);

	if (rc)
		return rc;
	if (net_check(h, sizeof(*h)) < 0)
		return -EPROTO;
	iov = (struct iovec){ h + 1, h->length - sizeof(*h) };
	rc = conn_read(c, &iov, 1, deadline_ns);
	if (rc)
		return rc;
	return net_check(h, h->length) == (int64_t)h->length ? 0 : -EPROTO;
}

int conn_expect(struct conn *c, uint16_t type, uint64_t deadline_ns)
{
	int rc = conn_message(c, deadline_ns);

	return rc || conn_got(c)->type == type ? rc : -EPROTO;
}

bool conn_readable(struct conn *c)
{
	struct pollfd p[] = { { .fd = c->fd, .events = POLLIN },
			      { .fd = c->stop, .events = POLLIN } };

	return c->ahead_at < c->ahead_end || (c->ssl && SSL_has_pending(c->ssl)) ||
	       poll(p, 2, 0) > 0;
}

/* ---- TLS ----------------------------------------------------------------------------------- */

/* Who is struck out: a list of each authority, if there is the file. */
static bool load_crl(SSL_CTX *tls, const char *path)
{
	X509_STORE *store = SSL_CTX_get_cert_store(tls);
	X509_LOOKUP *lookup;

	if (access(path, F_OK))
		return errno == ENOENT;
	lookup = X509_STORE_add_lookup(store, X509_LOOKUP_file());
	return lookup && X509_load_crl_file(lookup, path, X509_FILETYPE_PEM) > 0 &&
	       X509_STORE_set_flags(store, X509_V_FLAG_CRL_CHECK);
}

SSL_CTX *conn_tls(const char *folder, char *text, size_t text_bytes)
{
	SSL_CTX *tls = SSL_CTX_new(TLS_method());
	char ca[4096], cert[4096], key[4096], crl[4096];

	snprintf(ca, sizeof(ca), "%s/ca.pem", folder);
	snprintf(cert, sizeof(cert), "%s/cert.pem", folder);
	snprintf(key, sizeof(key), "%s/key.pem", folder);
	snprintf(crl, sizeof(crl), "%s/crl.pem", folder);
	if (tls && SSL_CTX_set_min_proto_version(tls, TLS1_3_VERSION) &&
	    SSL_CTX_load_verify_locations(tls, ca, NULL) &&
	    SSL_CTX_use_certificate_chain_file(tls, cert) == 1 &&
	    SSL_CTX_use_PrivateKey_file(tls, key, SSL_FILETYPE_PEM) == 1 &&
	    SSL_CTX_check_private_key(tls) && load_crl(tls, crl)) {
		/* Who hangs up without a word is gone: messages have their lengths. */
		SSL_CTX_set_options(tls, SSL_OP_IGNORE_UNEXPECTED_EOF);
		SSL_CTX_set_verify(tls, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
		/* Connections are kept: resuming one is not worth a ticket. */
		SSL_CTX_set_num_tickets(tls, 0);
		SSL_CTX_set_session_cache_mode(tls, SSL_SESS_CACHE_OFF);
		/* A record in one read, not in two. */
		SSL_CTX_set_read_ahead(tls, 1);
		SSL_CTX_set_default_read_buffer_len(tls, 64 << 10);
		SSL_CTX_set_ciphersuites(tls, "TLS_AES_128_GCM_SHA256:"
					      "TLS_CHACHA20_POLY1305_SHA256:"
					      "TLS_AES_256_GCM_SHA384");
		return tls;
	}
	snprintf(text, text_bytes, "%s: ca.pem, cert.pem (this host's name as its common name) and "
				   "key.pem must be there and agree; crl.pem, if it is, be a list",
		 folder);
	ERR_clear_error();
	SSL_CTX_free(tls);
	return NULL;
}

/* All of it: a name that is cut, or ends with a NUL within it, could be another host's. */
static bool common_name(const X509 *cert, char name[NET_NAME_BYTES])
{
	X509_NAME *subject = cert ? X509_get_subject_name(cert) : NULL;
	int length = X509_NAME_get_text_by_NID(subject, NID_commonName, NULL, 0);

	return length > 0 && length < (int)NET_NAME_BYTES &&
	       X509_NAME_get_text_by_NID(subject, NID_commonName, name, NET_NAME_BYTES) == length &&
	       strlen(name) == (size_t)length;
}

static SSL_CTX *tls_of(struct conn_self *self)
{
	LOCK_SCOPE(&self->lock);
	if (self->tls)
		SSL_CTX_up_ref(self->tls);
	return self->tls;
}

/* Would its peer's certificate be taken by these? */
static bool still_good(const struct conn *c, SSL_CTX *tls)
{
	X509_STORE_CTX *v = X509_STORE_CTX_new();
	bool good = v &&
		    X509_STORE_CTX_init(v, SSL_CTX_get_cert_store(tls),
					sk_X509_value(c->chain, 0), c->chain) &&
		    X509_verify_cert(v) == 1;

	X509_STORE_CTX_free(v);
	ERR_clear_error();
	return good;
}

uint32_t conn_use_tls(struct conn_self *self, SSL_CTX *tls)
{
	uint32_t ended = 0;

	LOCK_SCOPE(&self->lock);
	SSL_CTX_free(self->tls);
	self->tls = tls;
	for (struct conn *c = self->all; c; c = c->next)
		if (!still_good(c, tls)) {
			shutdown(c->fd, SHUT_RDWR); /* its thread finds it hung up */
			ended++;
		}
	return ended;
}

bool conn_newest(const struct conn *c)
{
	if (!c->ssl)
		return true;
	LOCK_SCOPE(&c->self->lock);
	return SSL_get_SSL_CTX(c->ssl) == c->self->tls;
}

/* One of all, unless it is not good by certificates that came meanwhile. */
static int enroll(struct conn *c)
{
	struct conn_self *self = c->self;
	STACK_OF(X509) *chain = X509_chain_up_ref(SSL_get0_verified_chain(c->ssl));

	if (!chain)
		return -ENOMEM;
	LOCK_SCOPE(&self->lock);
	c->chain = chain;
	c->next = self->all;
	self->all = c;
	return SSL_get_SSL_CTX(c->ssl) == self->tls || still_good(c, self->tls) ? 0 : -EACCES;
}

static void leave(struct conn *c)
{
	struct conn **at = &c->self->all;

	LOCK_SCOPE(&c->self->lock);
	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
}

/* Bare: nothing. */
static int handshake(struct conn *c, bool server, uint64_t deadline_ns)
{
	SSL_CTX *tls = tls_of(c->self);
	int rc;

	if (!tls)
		return 0;
	c->ssl = SSL_new(tls);
	SSL_CTX_free(tls);
	if (!c->ssl || !SSL_set_fd(c->ssl, c->fd))
		return -ENOMEM;
	while ((rc = server ? SSL_accept(c->ssl) : SSL_connect(c->ssl)) != 1) {
		rc = judge_tls(c, rc, deadline_ns);
		if (rc)
			return rc == -EPROTO ? -EACCES : rc;
	}
	return common_name(SSL_get0_peer_certificate(c->ssl), c->peer) ? enroll(c) : -EACCES;
}

/* ---- greeting ------------------------------------------------------------------------------ */

static int send_hello(struct conn *c, const struct conn_self *self, uint64_t deadline_ns)
{
	struct net_hello m = {
		.header = { .magic = NET_MAGIC, .version = NET_VERSION, .type = NET_HELLO,
			    .length = sizeof(m) },
		.incarnation = self->incarnation,
		.features = self->features,
		.pool = atomic_load_relaxed_u64(&self->pool),
	};

	c->own_pool = m.pool;
	memcpy(m.name, self->name, strlen(self->name));
	return conn_send_message(c, &m.header, deadline_ns);
}

static int take_hello(struct conn *c, uint64_t deadline_ns)
{
	const struct net_hello *m = (const void *)c->message;
	int rc = conn_expect(c, NET_HELLO, deadline_ns);

	if (rc)
		return rc;
	if (c->ssl && strcmp(c->peer, m->name) != 0)
		return -EACCES; /* a certificate of another host */
	memcpy(c->peer, m->name, sizeof(c->peer));
	c->incarnation = m->incarnation;
	c->features = m->features;
	c->pool = m->pool;
	return 0;
}

static struct conn *conn_new(int fd, int stop)
{
	struct conn *c = calloc(1, sizeof(*c));

	if (c)
		c->message = aligned_alloc(64, NET_MESSAGE_MAX);
	if (!c || !c->message) {
		free(c);
		close(fd);
		return NULL;
	}
	c->fd = fd;
	c->stop = stop;
	return c;
}

void conn_close(struct conn *c)
{
	if (!c)
		return;
	if (c->verbs)
		c->self->verbs_close(c->verbs);
	if (c->chain)
		leave(c);
	sk_X509_pop_free(c->chain, X509_free);
	SSL_free(c->ssl);
	close(c->fd);
	free(c->message);
	free(c);
}

int conn_accept(struct conn **out, struct conn_self *self, int fd, uint64_t deadline_ns)
{
	struct conn *c = conn_new(fd, self->stop);
	int one = 1, rc;

	if (!c)
		return -ENOMEM;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	c->self = self;
	rc = handshake(c, true, deadline_ns);
	if (rc == 0)
		rc = take_hello(c, deadline_ns);
	if (rc == 0)
		rc = send_hello(c, self, deadline_ns);
	if (rc)
		conn_close(c);
	else
		*out = c;
	return rc;
}

int conn_local(struct conn **out, int fd, int stop)
{
	*out = conn_new(fd, stop);
	return *out ? 0 : -ENOMEM;
}

/* ---- addresses ----------------------------------------------------------------------------- */

/* "host:port" in numbers, for names may take their time. Free with freeaddrinfo. */
static int resolve(const char *address, int flags, struct addrinfo **out)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = flags };
	char host[NET_NAME_BYTES];
	char *port, *from = host;

	snprintf(host, sizeof(host), "%s", address);
	port = strrchr(host, ':');
	if (!port)
		return -EINVAL;
	*port++ = '\0';
	if (*from == '[' && port > host + 2 && port[-2] == ']') {
		from++;
		port[-2] = '\0';
	}
	return getaddrinfo(*from ? from : NULL, port, &hints, out) ? -EINVAL : 0;
}

int conn_address(const char *address, uint8_t out[16])
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	struct addrinfo *a = NULL;
	int rc = resolve(address, AI_NUMERICHOST, &a);

	if (rc)
		return rc;
	if (a->ai_family == AF_INET) {
		memcpy(out, mapped, sizeof(mapped));
		memcpy(out + 12, &((struct sockaddr_in *)a->ai_addr)->sin_addr, 4);
	} else {
		memcpy(out, &((struct sockaddr_in6 *)a->ai_addr)->sin6_addr, 16);
	}
	freeaddrinfo(a);
	return 0;
}

static int connect_to(const char *address, int stop, uint64_t deadline_ns)
{
	struct addrinfo *a = NULL;
	int fd CLEANUP_CLOSE = -1;
	int rc = resolve(address, AI_NUMERICHOST, &a), one = 1, error = 0;
	socklen_t bytes = sizeof(error);

	if (rc)
		return rc;
	fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	rc = fd < 0 ? -errno : 0;
	if (rc == 0 && connect(fd, a->ai_addr, a->ai_addrlen) != 0)
		rc = errno == EINPROGRESS ? wait_for(fd, stop, POLLOUT, deadline_ns) : -errno;
	freeaddrinfo(a);
	if (rc == 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0)
		rc = -error;
	if (rc)
		return rc;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return take_fd(&fd);
}

int conn_open(struct conn **out, struct conn_self *self, const char *address,
	      const char *name, uint64_t deadline_ns)
{
	int fd = connect_to(address, self->stop, deadline_ns), rc;
	struct conn *c;

	if (fd < 0)
		return fd;
	c = conn_new(fd, self->stop);
	if (!c)
		return -ENOMEM;
	c->self = self;
	rc = handshake(c, false, deadline_ns);
	if (rc == 0)
		rc = send_hello(c, self, deadline_ns);
	if (rc == 0)
		rc = take_hello(c, deadline_ns);
	if (rc == 0 && strcmp(c->peer, name) != 0)
		rc = -EACCES;
	if (rc)
		conn_close(c);
	else
		*out = c;
	return rc;
}

int conn_listen(const char *address)
{
	struct addrinfo *a = NULL;
	int fd CLEANUP_CLOSE = -1;
	int rc = resolve(address, AI_PASSIVE | AI_NUMERICHOST, &a), one = 1;

	if (rc)
		return rc;
	fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) ||
	    bind(fd, a->ai_addr, a->ai_addrlen) || listen(fd, 64))
		rc = -errno;
	freeaddrinfo(a);
	return rc ? rc : take_fd(&fd);
}

int conn_listen_local(const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd CLEANUP_CLOSE = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	if ((size_t)snprintf(a.sun_path, sizeof(a.sun_path), "%s", path) >= sizeof(a.sun_path))
		return -ENAMETOOLONG;
	/* What an earlier life left: nobody listens there. */
	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
		return -EADDRINUSE;
	if (errno == ECONNREFUSED)
		unlink(path);
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) || listen(fd, 64) || chmod(path, 0666))
		return -errno;
	return take_fd(&fd);
}
