/*
 * The daemon of libtier's tests (test_libtier_fake.h): what it is made of, and its contexts in real
 * memfds with the real index, into which a test stores blocks.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_TESTS_LIBTIER_FAKE_CONTEXT_H
#define TIER_TESTS_LIBTIER_FAKE_CONTEXT_H

#include <dirent.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/un.h>
#include <unistd.h>

/* Before tier.h: its parameters are named like our handle type. */
#include "tierd/core/unit/index.h"
#include "tierd/core/unit/page.h"

#include <tier.h>

#include "libtier/abi/ring.h"
#include "libtier/abi/wire.h"
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
	uint64_t other; /* added to the uids of contexts: others under the same names */
	bool places; /* grants places of puts, each a file of its own */
	uint32_t placed; /* so many */
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

#endif
