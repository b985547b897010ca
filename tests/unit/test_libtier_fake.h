/*
 * A daemon for libtier's tests: real socket, real memfds, real index (tierd/core's writer), and a
 * ring served by a thread, without policy, store or mercy. A test can stop it, restart it with
 * another boot token, make it mute, or answer an entry itself. Included by
 * tests/unit/test_libtier_* only; it must never stub what the library does.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_TESTS_LIBTIER_FAKE_H
#define TIER_TESTS_LIBTIER_FAKE_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Before tier.h: its parameters are named like our handle type. */
#include "tierd/core/index.h"
#include "tierd/core/page.h"

#include <tier.h>

#include "libtier/abi/ring.h"
#include "libtier/abi/wire.h"
#include "libtier/base/atomic.h"
#include "libtier/base/time.h"
#include "libtier/src/geometry.h"
#include "tests/lib/unit.h"

#define FAKE_CONTEXTS 4u
#define FAKE_CLIENTS 8u
#ifndef FAKE_MEM_BYTES
#define FAKE_MEM_BYTES (64ull << 20)
#define FAKE_BLOCKS 4096u
#endif
#define FAKE_SQ 64u
#define FAKE_CQ 128u
#define FAKE_STREAMS 4u
#define FAKE_UNUSED __attribute__((unused))

/* Descriptors of this process. */
static inline int fake_open_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int count = 0;

	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

struct fake_context {
	bool used;
	bool hidden; /* opens answer -ENOENT */
	char name[ABI_NAME_BYTES];
	uint32_t writable;
	struct abi_geometry geometry;
	struct index ix;
	int fd[1 + ABI_MEM_TIERS]; /* writable; clients get read-only ones */
	uint8_t *index_base;
	uint64_t index_bytes;
	uint8_t *mem[ABI_MEM_TIERS];
	uint64_t mem_used[ABI_MEM_TIERS];
};

struct fake_client {
	int sock;
	int doorbell;
	int event;
	struct abi_region_header *region;
	struct abi_stream *lines;
	uint64_t region_bytes;
	uint8_t *staging;
	uint64_t staging_bytes;
	uint32_t sq_head;
	uint32_t cq_tail;
};

struct fake;
/* Looks at an entry first: true = it has filled c and decided to answer or (*silent) not to. */
typedef bool (*fake_hook)(struct fake *f, const struct abi_sqe *e, struct abi_cqe *c, bool *silent);

struct fake_put {
	bool used;
	uint32_t context;
	uint32_t count;
	uint32_t slot[64];
	struct abi_put_args args;
};

struct fake {
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
	pthread_mutex_t lock; /* guards all below while the thread runs */
	pthread_t thread;
	bool running;
	int listener;
	int stop; /* eventfd */
	uint64_t boot_token;
	uint32_t staging_max;
	uint32_t readers_max;
	bool mute; /* takes no entries */
	bool stale;          /* sends the answer to an older question first */
	uint32_t delay_us;   /* before each answer on the socket */
	uint64_t region_boot; /* added to the boot token in a region */
	uint64_t staging_lie; /* to the bytes of staging that a welcome tells */
	uint64_t stream_lie;  /* to the place of the lines of streams */
	struct wire_ctx asked; /* the last question about a context */
	int refusal; /* that is the answer to all of them; 0 = none */
	fake_hook hook;
	/* answers operators' questions instead of us */
	void (*admin)(struct fake_client *k, const struct wire_header *q);
	uint32_t ops[ABI_OP_COUNT]; /* entries taken, by kind */
	struct fake_client client[FAKE_CLIENTS];
	struct fake_context context[FAKE_CONTEXTS];
	struct fake_put put[64];
};

/* ---- contexts -------------------------------------------------------------------------------- */

static inline int fake_memfd(uint64_t bytes)
{
	int fd = memfd_create("tier-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	return fd;
}

static inline void *fake_map(int fd, uint64_t bytes)
{
	void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	assert_ptr_not_equal(base, MAP_FAILED);
	return base;
}

static inline void fake_context_make(struct fake *f, uint32_t id, const char *name,
				     const struct abi_geometry *g)
{
	struct fake_context *x = &f->context[id];
	struct abi_index_header h = { .boot_token = f->boot_token, .context_id = id };

	memset(x, 0, sizeof(*x));
	index_plan(&h, g, FAKE_BLOCKS);
	h.mem_bytes[ABI_TIER_HBM] = FAKE_MEM_BYTES;
	h.mem_bytes[ABI_TIER_CXL] = FAKE_MEM_BYTES;
	h.epoch = 1;
	x->used = true;
	x->writable = 1;
	memcpy(x->name, name, strnlen(name, sizeof(x->name) - 1));
	x->geometry = *g;
	x->index_bytes = h.total_bytes;
	x->fd[0] = fake_memfd(h.total_bytes);
	x->index_base = fake_map(x->fd[0], h.total_bytes);
	index_format(&x->ix, x->index_base, &h, g);
	for (uint32_t i = 0; i < ABI_MEM_TIERS; i++) {
		x->fd[1 + i] = fake_memfd(FAKE_MEM_BYTES);
		x->mem[i] = fake_map(x->fd[1 + i], FAKE_MEM_BYTES);
	}
}

static inline void fake_context_drop(struct fake_context *x)
{
	if (!x->used)
		return;
	munmap(x->index_base, x->index_bytes);
	close(x->fd[0]);
	for (uint32_t i = 0; i < ABI_MEM_TIERS; i++) {
		munmap(x->mem[i], FAKE_MEM_BYTES);
		close(x->fd[1 + i]);
	}
	x->used = false;
}

static inline uint32_t fake_stride(const struct fake_context *x, uint32_t page)
{
	return x->geometry.part[geometry_part_of(&x->geometry, page)].page_stride;
}

/* What a page holds after fake_store: a byte pattern of slot, page and key. */
static inline uint8_t fake_byte(const uint8_t *key, uint32_t page)
{
	return (uint8_t)(key[0] * 31 + key[1] * 7 + page * 13 + 1);
}

/* Room for a page in a tier, published as READY with this byte. */
static inline void fake_page_ready(struct fake_context *x, uint32_t slot, uint32_t page,
				   uint32_t level, uint8_t byte)
{
	struct abi_page *d = index_page(&x->ix, slot, page);
	uint64_t at = x->mem_used[level];

	assert_true(at + fake_stride(x, page) <= FAKE_MEM_BYTES);
	x->mem_used[level] += fake_stride(x, page);
	memset(x->mem[level] + at, byte, fake_stride(x, page));
	page_reserve(d, level, at);
	page_fill(d, level);
	page_publish(d, level);
}

/* A block in this state with all its pages in CXL (when committed). Returns its slot. */
static inline uint32_t fake_store(struct fake_context *x, const tier_key *key, uint32_t state)
{
	uint32_t slot = index_slot_alloc(&x->ix);
	struct abi_block *b;

	assert_int_not_equal(slot, ABI_SLOT_NONE);
	b = index_block(&x->ix, slot);
	memcpy(b->key, key->bytes, sizeof(b->key));
	b->epoch = (uint32_t)x->ix.header->epoch;
	b->parts = (1u << x->geometry.part_count) - 1;
	b->tier = ABI_TIER_CXL;
	index_block_state(&x->ix, slot, ABI_BLOCK_PENDING);
	assert_int_equal(index_insert(&x->ix, slot), 0);
	for (uint32_t p = 0; state == ABI_BLOCK_COMMITTED && p < x->ix.pages_per_block; p++)
		fake_page_ready(x, slot, p, ABI_TIER_CXL, fake_byte(key->bytes, p));
	index_block_state(&x->ix, slot, state);
	return slot;
}

/* ---- ring ------------------------------------------------------------------------------------ */

static inline void fake_put_reserve(struct fake *f, struct fake_client *k, const struct abi_sqe *e,
				    struct abi_cqe *c)
{
	struct fake_context *x = &f->context[e->context_id];
	const uint8_t *arg = k->staging + e->arg_offset;
	uint32_t i = 0;

	while (i < 64 && f->put[i].used)
		i++;
	if (i == 64 || e->count > 64) {
		c->res = -ENOSPC;
		return;
	}
	f->put[i] = (struct fake_put){ .used = true, .context = e->context_id,
				       .count = e->count };
	memcpy(&f->put[i].args, arg, sizeof(f->put[i].args));
	for (uint32_t b = 0; b < e->count; b++) {
		tier_key key;

		memcpy(key.bytes, arg + sizeof(struct abi_put_args) + b * sizeof(key), sizeof(key));
		f->put[i].slot[b] = index_find(&x->ix, key.bytes);
		if (f->put[i].slot[b] == ABI_SLOT_NONE)
			f->put[i].slot[b] = fake_store(x, &key, ABI_BLOCK_PENDING);
		else if (index_block(&x->ix, f->put[i].slot[b])->state == ABI_BLOCK_COMMITTED)
			c->aux |= 1ull << b;
	}
	c->value = i + 1;
}

/* Unsharded puts of all parts only. */
static inline void fake_put_commit(struct fake *f, struct fake_client *k, const struct abi_sqe *e,
				   struct abi_cqe *c)
{
	struct fake_put *p = e->handle - 1 < 64 ? &f->put[e->handle - 1] : NULL;
	struct fake_context *x;
	const uint8_t *from = k->staging + e->arg_offset;

	if (!p || !p->used) {
		c->res = -ENOENT;
		return;
	}
	x = &f->context[p->context];
	for (uint32_t b = 0; b < p->count; b++) {
		bool there = index_block(&x->ix, p->slot[b])->state == ABI_BLOCK_COMMITTED;

		for (uint32_t g = 0; g < x->ix.pages_per_block; g++) {
			if (!there) {
				fake_page_ready(x, p->slot[b], g, ABI_TIER_CXL, 0);
				memcpy(x->mem[ABI_TIER_CXL] +
					       page_addr(index_page(&x->ix, p->slot[b], g),
							 ABI_TIER_CXL),
				       from, fake_stride(x, g));
			}
			from += fake_stride(x, g);
		}
		index_block_state(&x->ix, p->slot[b], ABI_BLOCK_COMMITTED);
	}
	c->value = p->count;
	p->used = false;
}

static inline void fake_delete(struct fake *f, struct fake_client *k, const struct abi_sqe *e,
			       struct abi_cqe *c)
{
	struct fake_context *x = &f->context[e->context_id];

	for (uint32_t i = 0; i < e->count; i++) {
		const uint8_t *key = k->staging + e->arg_offset + i * ABI_KEY_BYTES;
		uint32_t slot = index_find(&x->ix, key);

		if (slot == ABI_SLOT_NONE)
			continue;
		index_remove(&x->ix, slot);
		c->value++;
	}
}

static inline void fake_serve(struct fake *f, struct fake_client *k, const struct abi_sqe *e)
{
	struct abi_cqe *cq = (void *)((uint8_t *)k->region + k->region->cq_offset);
	struct abi_cqe c = { .user_data = e->user_data };
	const uint64_t one = 1;
	bool silent = false;

	f->ops[e->op < ABI_OP_COUNT ? e->op : 0]++;
	if (!f->hook || !f->hook(f, e, &c, &silent)) {
		if (e->op == ABI_OP_PUT_RESERVE)
			fake_put_reserve(f, k, e, &c);
		else if (e->op == ABI_OP_PUT_COMMIT)
			fake_put_commit(f, k, e, &c);
		else if (e->op == ABI_OP_PUT_ABORT)
			f->put[(e->handle - 1) % 64].used = false;
		else if (e->op == ABI_OP_DELETE)
			fake_delete(f, k, e, &c);
		else
			c.value = e->count;
	}
	if (silent)
		return;
	cq[k->cq_tail % FAKE_CQ] = c;
	atomic_store_release_u32(&k->region->cq_tail, ++k->cq_tail);
	full_fence();
	if (atomic_load_relaxed_u32(&k->region->cq_wait))
		assert_int_equal(write(k->event, &one, sizeof(one)), sizeof(one));
}

static inline void fake_ring(struct fake *f, struct fake_client *k)
{
	struct abi_sqe *sq = (void *)((uint8_t *)k->region + k->region->sq_offset);

	while (!f->mute && atomic_load_acquire_u32(&k->region->sq_tail) != k->sq_head &&
	       k->cq_tail - atomic_load_acquire_u32(&k->region->cq_head) < FAKE_CQ) {
		struct abi_sqe e = sq[k->sq_head % FAKE_SQ];

		atomic_store_release_u32(&k->region->sq_head, ++k->sq_head);
		fake_serve(f, k, &e);
	}
}

/* ---- socket ---------------------------------------------------------------------------------- */

static inline void fake_send(struct fake_client *k, void *message, size_t bytes, const int *fds,
			     uint32_t fd_count)
{
	char control[CMSG_SPACE(8 * sizeof(int))] = { 0 };
	struct iovec iov = { message, bytes };
	struct msghdr h = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct wire_header *w = message;

	w->magic = WIRE_MAGIC;
	w->version = ABI_VERSION;
	w->length = (uint32_t)bytes;
	if (fd_count > 0) {
		struct cmsghdr *c;

		h.msg_control = control;
		h.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
		c = CMSG_FIRSTHDR(&h);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
		memcpy(CMSG_DATA(c), fds, fd_count * sizeof(int));
	}
	/* A client that has gone is no concern of ours. */
	if (sendmsg(k->sock, &h, MSG_NOSIGNAL) < 0)
		return;
}

static inline void fake_error(struct fake_client *k, uint32_t seq, int error, const char *text)
{
	struct wire_error e = { .header = { .type = WIRE_ERROR, .seq = seq }, .error = error };

	snprintf(e.text, sizeof(e.text), "%s", text);
	fake_send(k, &e, sizeof(e), NULL, 0);
}

/* An error with a descriptor, which nobody is to keep. */
static inline void fake_stale(struct fake_client *k, uint32_t seq)
{
	struct wire_error e = { .header = { .type = WIRE_ERROR, .seq = seq }, .error = -EIO,
				.text = "of another question" };

	fake_send(k, &e, sizeof(e), &k->sock, 1);
}

static inline void fake_hello(struct fake *f, struct fake_client *k, const struct wire_hello *q)
{
	struct wire_welcome w = { .header = { .type = WIRE_WELCOME, .seq = q->header.seq } };
	uint64_t sq = sizeof(struct abi_region_header);
	uint64_t cq = sq + FAKE_SQ * sizeof(struct abi_sqe);
	uint64_t readers = cq + FAKE_CQ * sizeof(struct abi_cqe);
	uint64_t streams;
	int fds[4];

	k->region_bytes = readers + f->readers_max * sizeof(struct abi_reader);
	k->region_bytes = (k->region_bytes + sizeof(struct abi_stream) - 1) &
			  ~(sizeof(struct abi_stream) - 1);
	streams = k->region_bytes;
	k->region_bytes += FAKE_STREAMS * sizeof(struct abi_stream);
	k->staging_bytes = q->staging_bytes < f->staging_max ? q->staging_bytes : f->staging_max;
	fds[0] = fake_memfd(k->region_bytes);
	fds[1] = fake_memfd(k->staging_bytes);
	fds[2] = k->doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	fds[3] = k->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	k->region = fake_map(fds[0], k->region_bytes);
	k->staging = fake_map(fds[1], k->staging_bytes);
	*k->region = (struct abi_region_header){
		.magic = ABI_REGION_MAGIC,
		.version = ABI_VERSION,
		.features = ABI_REGION_STREAMS,
		.boot_token = f->boot_token + f->region_boot,
		.total_bytes = k->region_bytes,
		.sq_entries = FAKE_SQ,
		.cq_entries = FAKE_CQ,
		.readers_max = f->readers_max,
		.sq_offset = sq,
		.cq_offset = cq,
		.reader_offset = readers,
		.staging_bytes = k->staging_bytes,
		.stream_offset = streams + f->stream_lie,
		.streams_max = FAKE_STREAMS,
		.sq_tail = ABI_RING_BEGIN,
		.cq_head = ABI_RING_BEGIN,
		.sq_head = ABI_RING_BEGIN,
		.cq_tail = ABI_RING_BEGIN,
		.sq_wake = 1,
	};
	k->sq_head = k->cq_tail = ABI_RING_BEGIN;
	k->lines = (void *)((uint8_t *)k->region + streams);
	w.boot_token = f->boot_token;
	w.staging_bytes = k->staging_bytes + f->staging_lie;
	fake_send(k, &w, sizeof(w), fds, 4);
	close(fds[0]);
	close(fds[1]);
}

static inline int fake_read_only(int fd)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, O_RDONLY | O_CLOEXEC);
}

static inline void fake_info(struct fake *f, struct fake_client *k, uint32_t id, uint32_t seq)
{
	struct fake_context *x = &f->context[id];
	struct wire_ctx_info info = { .header = { .type = WIRE_CTX_INFO, .seq = seq },
				      .context_id = id,
				      .writable = x->writable,
				      .uid = id + 1,
				      .index_bytes = x->index_bytes };
	int fds[1 + ABI_MEM_TIERS];

	for (uint32_t i = 0; i < 1 + ABI_MEM_TIERS; i++)
		fds[i] = fake_read_only(x->fd[i]);
	for (uint32_t i = 0; i < ABI_MEM_TIERS; i++)
		info.mem_bytes[i] = x->ix.header->mem_bytes[i];
	fake_send(k, &info, sizeof(info), fds, 1 + ABI_MEM_TIERS);
	for (uint32_t i = 0; i < 1 + ABI_MEM_TIERS; i++)
		close(fds[i]);
}

static inline void fake_context_question(struct fake *f, struct fake_client *k,
					 const struct wire_ctx *q)
{
	uint32_t id = 0;

	f->asked = *q;
	while (id < FAKE_CONTEXTS && (!f->context[id].used || f->context[id].hidden ||
				      strcmp(f->context[id].name, q->name) != 0))
		id++;
	if (id == FAKE_CONTEXTS && q->header.type == WIRE_CTX_CREATE) {
		id = 0;
		while (id < FAKE_CONTEXTS && f->context[id].used)
			id++;
		if (id < FAKE_CONTEXTS)
			fake_context_make(f, id, q->name, &q->geometry);
	}
	if (f->refusal || id == FAKE_CONTEXTS) {
		fake_error(k, q->header.seq, f->refusal ? f->refusal : -ENOENT, "not there");
	} else if (q->header.type == WIRE_CTX_EPOCH || q->header.type == WIRE_CTX_REMOVE) {
		struct wire_done d = { .header = { .type = WIRE_DONE, .seq = q->header.seq } };
		struct index *ix = &f->context[id].ix;

		if (q->header.type == WIRE_CTX_EPOCH)
			index_epoch(ix, q->epoch ? q->epoch : ix->header->epoch + 1);
		else
			atomic_store_release_u64(&ix->header->closed, 1);
		d.value = ix->header->epoch;
		fake_send(k, &d, sizeof(d), NULL, 0);
	} else {
		fake_info(f, k, id, q->header.seq);
	}
}

static inline void fake_admin(struct fake_client *k, const struct wire_header *q)
{
	struct {
		struct wire_text t;
		char text[16];
	} m = { .t = { .header = { .type = WIRE_TEXT, .seq = q->seq }, .more = 1 } };

	memcpy(m.text, "{\"verb\":", 8);
	fake_send(k, &m, sizeof(m.t) + 8, NULL, 0);
	m.t.more = 0;
	memcpy(m.text, "\"ok\"}", 5);
	fake_send(k, &m, sizeof(m.t) + 5, NULL, 0);
}

static inline void fake_client_drop(struct fake_client *k)
{
	if (k->sock < 0)
		return;
	close(k->sock);
	if (k->region) {
		munmap(k->region, k->region_bytes);
		munmap(k->staging, k->staging_bytes);
		close(k->doorbell);
		close(k->event);
	}
	*k = (struct fake_client){ .sock = -1, .doorbell = -1, .event = -1 };
}

static inline void fake_question(struct fake *f, struct fake_client *k)
{
	static _Thread_local uint8_t bytes[WIRE_MESSAGE_MAX] __attribute__((aligned(8)));
	const struct wire_header *q = (const void *)bytes;
	ssize_t n = recv(k->sock, bytes, sizeof(bytes), MSG_DONTWAIT);

	if (n < 0 && errno == EAGAIN)
		return;
	if (n < (ssize_t)sizeof(*q)) {
		fake_client_drop(k);
		return;
	}
	usleep(f->delay_us);
	if (f->stale)
		fake_stale(k, q->seq - 1);
	switch (q->type) {
	case WIRE_HELLO:
		fake_hello(f, k, (const void *)bytes);
		break;
	case WIRE_ADMIN:
		(f->admin ? f->admin : fake_admin)(k, q);
		break;
	default:
		fake_context_question(f, k, (const void *)bytes);
	}
}

/* ---- life ------------------------------------------------------------------------------------ */

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

/* ---- what most tests begin with -------------------------------------------------------------- */

struct world {
	struct fake *fake;
	tier *t;
	tier_context *c;
	tier_reader *r;
	struct fake_context *x; /* the daemon's side of c */
};

static FAKE_UNUSED tier_key world_key(uint32_t n)
{
	tier_key key;

	assert_int_equal(tier_key_opaque(&key, &n, sizeof(n), NULL), 0);
	return key;
}

static FAKE_UNUSED tier *world_connect(const struct world *w)
{
	struct tier_connect_options o = { .size = sizeof(o), .socket = w->fake->path,
					  .staging_bytes = 1u << 20, .requests = 64, .readers = 4 };
	tier *t;

	assert_int_equal(tier_connect(&t, &o), 0);
	return t;
}

/* Attached to the daemon that runs now. Where the machine is taken away meanwhile, one try does not
 * do: each has a second. */
static FAKE_UNUSED int world_attach(struct world *w)
{
	int rc = tier_check(w->t);

	for (uint32_t i = 0; i < 6000 && rc != 1; i++) {
		usleep(10000);
		rc = tier_check(w->t);
	}
	return rc;
}

static FAKE_UNUSED int world_setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	tier_geometry *g;

	w->fake = fake_new();
	w->t = world_connect(w);
	assert_int_equal(tier_geometry_preset(&g, "tiny"), 0);
	assert_int_equal(tier_context_create(w->t, "ctx", g, NULL, &w->c), 0);
	tier_geometry_free(g);
	assert_int_equal(tier_reader_open(w->t, &w->r), 0);
	w->x = &w->fake->context[0];
	*state = w;
	return 0;
}

static FAKE_UNUSED int world_teardown(void **state)
{
	struct world *w = *state;

	tier_close(w->t);
	fake_free(w->fake);
	free(w);
	return 0;
}

/* Stores block n; returns it as match gives it. */
static FAKE_UNUSED tier_block world_block(struct world *w, uint32_t n)
{
	tier_key key = world_key(n);
	struct tier_found found;

	pthread_mutex_lock(&w->fake->lock);
	fake_store(w->x, &key, ABI_BLOCK_COMMITTED);
	pthread_mutex_unlock(&w->fake->lock);
	assert_int_equal(tier_match(w->c, &key, 1, &found), 1);
	return found.block;
}

#endif
