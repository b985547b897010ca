/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection to another host, or to an engine of this one: messages and bytes with a deadline, in
 * TLS 1.3 with certificates of both sides, bare where the operator trusts the network, or UNIX.
 * A connection belongs to one thread at a time. After an error it is of no use but to be closed.
 */
#ifndef TIERD_NET_CONN_H
#define TIERD_NET_CONN_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <sys/uio.h>

#include "libtier/abi/net.h"
#include "libtier/base/lock.h"

struct conn_self;
struct verbs;

#define CONN_AHEAD_BYTES 4096u /* received with what was asked for: often the next message */

struct conn {
	int fd;
	int stop; /* readable once the process ends: nothing is waited for then */
	SSL *ssl; /* NULL = bare */
	char peer[NET_NAME_BYTES]; /* as its certificate says, or its HELLO where there is none */
	uint64_t incarnation;
	uint64_t features; /* NET_RDMA */
	struct verbs *verbs; /* NULL = bytes go by the connection itself */
	uint64_t pool;    /* what it has mapped (pool.h); 0 = none */
	uint64_t own_pool; /* what we told it that we have */
	uint8_t *message; /* NET_MESSAGE_MAX: the last one received */
	uint32_t ahead_at, ahead_end; /* of `ahead`: received and not taken; bare */
	uint8_t ahead[CONN_AHEAD_BYTES];
	bool used;        /* has answered before: it may have gone stale in the pool */
	struct conn_self *self; /* NULL = local */
	STACK_OF(X509) *chain;  /* the peer's certificate first; NULL = bare */
	struct conn *next;      /* self.lock, with a chain */
};

/* ca.pem, cert.pem, key.pem and perhaps crl.pem of a folder; NULL with why in text. */
SSL_CTX *conn_tls(const char *folder, char *text, size_t text_bytes);

/* Own names in HELLO, and all connections to other hosts that are in TLS. */
struct conn_self {
	const char *name;
	uint64_t incarnation;
	uint64_t features;
	void (*verbs_close)(struct verbs *v); /* what ends a connection's verbs */
	uint64_t pool; /* while etcd tells whose its extents are; atomic */
	int stop; /* an eventfd: readable once the process ends */
	struct lock lock; /* the last one that is taken */
	SSL_CTX *tls GUARDED_BY(lock); /* NULL = bare */
	struct conn *all GUARDED_BY(lock);
};

/*
 * From now on these certificates (taken over) are those of new connections. Those that are there go
 * on where the peer's certificate is good by them, too; the others end at once. Returns how many.
 */
uint32_t conn_use_tls(struct conn_self *self, SSL_CTX *tls);
/* Is it of the certificates that new ones have? */
bool conn_newest(const struct conn *c);

/*
 * Connect to "host:port" and exchange HELLO with the peer, who must be called `name`. Errors:
 * -EACCES the certificate is not its, -EPROTO, -ETIMEDOUT, -ECONNREFUSED ...
 */
int conn_open(struct conn **out, struct conn_self *self, const char *address,
	      const char *name, uint64_t deadline_ns);
/* The same on an accepted socket, which is taken over in any case. */
int conn_accept(struct conn **out, struct conn_self *self, int fd, uint64_t deadline_ns);
/* A UNIX socket, taken over: no HELLO. */
int conn_local(struct conn **out, int fd, int stop);
void conn_close(struct conn *c);

/* Errors: -ETIMEDOUT, -ENOTCONN the peer hung up, -EPROTO, -ECANCELED we end. */
int conn_send(struct conn *c, const struct iovec *iov, uint32_t count, uint64_t deadline_ns);
/* With a descriptor, which stays the caller's: to an engine of this host. */
int conn_send_fd(struct conn *c, const struct net_header *m, int fd, uint64_t deadline_ns);
int conn_send_message(struct conn *c, const struct net_header *m, uint64_t deadline_ns);
/* The next message, checked (net_check); it lies in c->message until the next call. */
int conn_message(struct conn *c, uint64_t deadline_ns);
/* The same where only one type may come: -EPROTO another one. */
int conn_expect(struct conn *c, uint16_t type, uint64_t deadline_ns);
/* Bytes behind a message, into count places. */
int conn_read(struct conn *c, const struct iovec *iov, uint32_t count, uint64_t deadline_ns);
/*
 * Is there something to read at this moment? Of a connection that lies idle: the other end has hung
 * up, or sent what nobody asked for. Also true when we end.
 */
bool conn_readable(struct conn *c);

static inline const struct net_header *conn_got(const struct conn *c)
{
	return (const struct net_header *)c->message;
}

/*
 * Listen on "host:port" or on a path of a UNIX socket. A descriptor that does not block (who comes
 * may have gone before it is accepted), or a negative errno.
 */
int conn_listen(const char *address);
int conn_listen_local(const char *path);
/* An address of that form as IPv6 has it. */
int conn_address(const char *address, uint8_t out[16]);

#endif
