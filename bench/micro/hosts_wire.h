/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The least that bringing bytes from another host can cost: a socket, and a checksum of each page
 * on both sides; bare, and through OpenSSL with tierd-net's settings. A process of its own sends.
 */
#ifndef TIER_BENCH_MICRO_HOSTS_WIRE_H
#define TIER_BENCH_MICRO_HOSTS_WIRE_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <sys/types.h>

#define HOSTS_PAGE (64u << 10)
#define HOSTS_FRAME (1u << 20)

struct hosts_wire {
	pid_t sender;
	int fd[2]; /* bare, TLS */
	SSL_CTX *tls;
	SSL *ssl;
};

/* Start the sender, with certificates of two hosts in folder/A and folder/B, and connect. */
int hosts_wire_open(struct hosts_wire *w, const char *folder);
void hosts_wire_close(struct hosts_wire *w);

/* Bring so many bytes, a multiple of HOSTS_FRAME, and check them. -EBADMSG: they are wrong. */
int hosts_wire_get(struct hosts_wire *w, bool tls, void *to, uint32_t bytes);

#endif
