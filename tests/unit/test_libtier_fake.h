/*
 * A daemon for libtier's tests: real socket, real memfds, real index (tierd/core's writer), and a
 * ring served by a thread, without policy, store or mercy. A test can stop it, restart it with
 * another boot token, make it mute, or answer an entry itself. Included by
 * tests/unit/test_libtier_* only; it must never stub what the library does. Here are its thread and
 * its life; the parts are in test_libtier_fake_{context,ring,socket}.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_TESTS_LIBTIER_FAKE_H
#define TIER_TESTS_LIBTIER_FAKE_H

#include <poll.h>
#include <stdlib.h>

#include "tests/unit/test_libtier_fake_ring.h"
#include "tests/unit/test_libtier_fake_socket.h"

static inline void fake_accept(struct fake *f)
{
	int sock = accept4(f->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	for (uint32_t i = 0; sock >= 0 && i < FAKE_CLIENTS; i++) {
		if (f->client[i].sock >= 0)
			continue;
		f->client[i].sock = sock;
		return;
	}
	if (sock >= 0)
		close(sock);
}

static inline void *fake_loop(void *arg)
{
	struct fake *f = arg;

	for (;;) {
		struct pollfd p[2 + 2 * FAKE_CLIENTS];
		uint64_t n;

		p[0] = (struct pollfd){ .fd = f->stop, .events = POLLIN };
		p[1] = (struct pollfd){ .fd = f->listener, .events = POLLIN };
		for (uint32_t i = 0; i < FAKE_CLIENTS; i++) {
			p[2 + 2 * i] = (struct pollfd){ .fd = f->client[i].sock, .events = POLLIN };
			p[3 + 2 * i] = (struct pollfd){ .fd = f->client[i].region ?
								      f->client[i].doorbell :
								      -1,
							.events = POLLIN };
		}
		poll(p, 2 + 2 * FAKE_CLIENTS, 2);
		if (p[0].revents)
			return NULL;
		pthread_mutex_lock(&f->lock);
		if (p[1].revents)
			fake_accept(f);
		for (uint32_t i = 0; i < FAKE_CLIENTS; i++) {
			if (p[2 + 2 * i].revents)
				fake_question(f, &f->client[i]);
			if (p[3 + 2 * i].revents && f->client[i].region &&
			    read(f->client[i].doorbell, &n, sizeof(n)) < 0)
				continue;
			if (f->client[i].region)
				fake_ring(f, &f->client[i]);
		}
		pthread_mutex_unlock(&f->lock);
	}
}

static inline void fake_start(struct fake *f)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };

	for (uint32_t i = 0; i < FAKE_CLIENTS; i++)
		f->client[i] = (struct fake_client){ .sock = -1, .doorbell = -1, .event = -1 };
	memset(f->put, 0, sizeof(f->put));
	f->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	memcpy(a.sun_path, f->path, sizeof(a.sun_path));
	unlink(f->path);
	assert_int_equal(bind(f->listener, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(f->listener, 16), 0);
	f->stop = eventfd(0, EFD_CLOEXEC);
	assert_int_equal(pthread_create(&f->thread, NULL, fake_loop, f), 0);
	f->running = true;
}

/* As a crash: sockets close, nothing is said. Contexts stay unless forget. */
static inline void fake_stop(struct fake *f, bool forget)
{
	const uint64_t one = 1;

	if (!f->running)
		return;
	assert_int_equal(write(f->stop, &one, sizeof(one)), sizeof(one));
	pthread_join(f->thread, NULL);
	f->running = false;
	close(f->stop);
	close(f->listener);
	unlink(f->path);
	for (uint32_t i = 0; i < FAKE_CLIENTS; i++)
		fake_client_drop(&f->client[i]);
	for (uint32_t i = 0; forget && i < FAKE_CONTEXTS; i++)
		fake_context_drop(&f->context[i]);
}

/* Another boot: contexts of the same names and geometries, empty, in new memory. */
static inline void fake_restart(struct fake *f)
{
	fake_stop(f, false);
	f->boot_token++;
	for (uint32_t i = 0; i < FAKE_CONTEXTS; i++) {
		struct abi_geometry g = f->context[i].geometry;
		char name[ABI_NAME_BYTES];

		if (!f->context[i].used)
			continue;
		memcpy(name, f->context[i].name, sizeof(name));
		fake_context_drop(&f->context[i]);
		fake_context_make(f, i, name, &g);
	}
	fake_start(f);
}

static inline struct fake *fake_new(void)
{
	struct fake *f = calloc(1, sizeof(*f));
	const char *dir = getenv("TMPDIR");

	assert_non_null(f);
	snprintf(f->path, sizeof(f->path), "%s/tier-fake-%d-%p.sock", dir ? dir : "/tmp", getpid(),
		 (void *)f);
	pthread_mutex_init(&f->lock, NULL);
	f->boot_token = 0x1122334455667788ull;
	f->staging_max = 4u << 20;
	f->readers_max = 4;
	fake_start(f);
	return f;
}

static inline void fake_free(struct fake *f)
{
	fake_stop(f, true);
	pthread_mutex_destroy(&f->lock);
	free(f);
}

/* How often this was asked for, what the daemon has begun being done. */
static FAKE_UNUSED uint32_t fake_ops(struct fake *f, uint32_t op)
{
	uint32_t n;

	pthread_mutex_lock(&f->lock);
	n = f->ops[op];
	pthread_mutex_unlock(&f->lock);
	return n;
}

#endif
