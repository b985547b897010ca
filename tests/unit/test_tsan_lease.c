/*
 * Readers against a daemon's hand that retires, frees and scribbles what they read, in one process
 * and one mapping, so that ThreadSanitizer and AddressSanitizer see every access of both sides. The
 * retiring thread keeps to libtier/abi/hazard.h: unpublish, membarrier, scan, then the place is
 * poisoned and given to another page. A reader under a lease must find its page's bytes throughout.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <linux/membarrier.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/lib/unit.h"
/* Before tier.h: its parameters are named like our handle type. */
#include "tierd/core/unit/index.h"
#include "tierd/core/unit/page.h"

#include "libtier/base/time.h"
#include "libtier/src/reader.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#endif

#define REGISTER MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED

#define BLOCKS 64u
#define SLOTS 96u /* some wait for their pages to be free */
#define PAGES 6u
#define PAGE_BYTES 4096u
#define PLACES 480u /* more than the pages that are there at a time */
#define READERS 3u
#define BATCH 48u
#define RUN_NS (1500 * NS_PER_MS)
#define LEASED_LEAST 100u /* by each reader */
#define FREED_LEAST 1000u

struct world {
	struct tier t;
	struct attachment a;
	struct tier_context c;
	struct map m;
	uint32_t alive;
	struct index ix;
	uint8_t *memory; /* PLACES pages */
	/* the writer's */
	uint32_t free_place[PLACES];
	uint32_t free_count;
	uint64_t kept[PLACES]; /* hazard words of places that their pages let go of, being read */
	uint32_t kept_count;
	uint32_t key_number[SLOTS]; /* of the block in the slot */
	bool dying[SLOTS];          /* left the index, pages not all free */
	uint32_t present[BLOCKS];   /* 1 + slot of key family i, 0 = none */
	uint32_t version[BLOCKS];   /* which of the family's keys is there; atomic */
	uint32_t seed;
	uint64_t freed;
	uint64_t held;
	uint32_t stop; /* atomic */
};

static tier_key key_of(uint32_t family, uint32_t version)
{
	uint32_t name[2] = { family, version };
	tier_key key;

	assert_int_equal(tier_key_opaque(&key, name, sizeof(name), NULL), 0);
	return key;
}

static uint8_t byte_of(const uint8_t *key, uint32_t page)
{
	return (uint8_t)(key[0] ^ key[5] * 3 ^ page * 29) | 1;
}

static uint32_t next_random(uint32_t *seed)
{
	return (*seed = *seed * 1664525 + 1013904223) >> 8;
}

/* ---- the writer ------------------------------------------------------------------------------ */

static void fill_page(struct world *w, uint32_t slot, uint32_t page)
{
	struct abi_page *d = index_page(&w->ix, slot, page);
	uint32_t place;
	uint8_t *at;

	if (w->free_count == 0 || page_state(d, ABI_TIER_CXL) != ABI_PAGE_ABSENT)
		return;
	place = w->free_place[--w->free_count];
	at = w->memory + (size_t)place * PAGE_BYTES;
	page_reserve(d, ABI_TIER_CXL, (uint64_t)place * PAGE_BYTES);
	page_fill(d, ABI_TIER_CXL);
	ASAN_UNPOISON_MEMORY_REGION(at, PAGE_BYTES);
	memset(at, byte_of(index_block(&w->ix, slot)->key, page), PAGE_BYTES);
	page_publish(d, ABI_TIER_CXL);
}

static void add_block(struct world *w, uint32_t family)
{
	uint32_t slot = index_slot_alloc(&w->ix);
	struct abi_block *b;
	tier_key key;
	uint64_t word;

	if (slot == ABI_SLOT_NONE)
		return;
	atomic_store_relaxed_u32(&w->version[family], w->version[family] + 1);
	key = key_of(family, w->version[family]);
	b = index_block(&w->ix, slot);
	for (uint32_t i = 0; i < 4; i++) {
		memcpy(&word, key.bytes + i * 8, 8);
		atomic_store_relaxed_u64((uint64_t *)(void *)(b->key + i * 8), word);
	}
	atomic_store_relaxed_u32(&b->epoch, 1);
	atomic_store_relaxed_u32(&b->parts, 3);
	atomic_store_relaxed_u32(&b->tier, ABI_TIER_CXL);
	index_block_state(&w->ix, slot, ABI_BLOCK_PENDING);
	assert_int_equal(index_insert(&w->ix, slot), 0);
	for (uint32_t p = 0; p < PAGES; p++)
		fill_page(w, slot, p);
	index_block_state(&w->ix, slot, ABI_BLOCK_COMMITTED);
	w->present[family] = 1 + slot;
}

static bool is_leased(const struct world *w, uint64_t place)
{
	for (uint32_t r = 0; r < w->a.readers_max; r++) {
		const struct abi_reader *area = &w->a.readers[r];
		uint32_t high = atomic_load_acquire_u32(&area->high_water);

		for (uint32_t i = 0; i < high && i < ABI_HAZARD_SLOTS; i++)
			if (atomic_load_acquire_u64(&area->slot[i]) == place)
				return true;
	}
	return false;
}

static void free_place(struct world *w, uint64_t place)
{
	uint64_t at = abi_word_addr(place);

	memset(w->memory + at, 0, PAGE_BYTES);
	ASAN_POISON_MEMORY_REGION(w->memory + at, PAGE_BYTES);
	w->free_place[w->free_count++] = (uint32_t)(at / PAGE_BYTES);
	atomic_store_relaxed_u64(&w->freed, w->freed + 1);
}

static void free_kept(struct world *w)
{
	uint32_t n = w->kept_count;

	w->kept_count = 0;
	for (uint32_t i = 0; i < n; i++)
		if (is_leased(w, w->kept[i]))
			w->kept[w->kept_count++] = w->kept[i];
		else
			free_place(w, w->kept[i]);
}

/* Places of RETIRING pages that nobody names are freed and scribbled over; the others are kept. */
static void free_retired(struct world *w)
{
	free_kept(w);
	/* One fence for the whole batch; the unpublishing stores came before. */
	assert_int_equal(syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0), 0);
	for (uint32_t i = 0; i < SLOTS * PAGES; i++) {
		struct abi_page *d = index_page(&w->ix, i / PAGES, i % PAGES);
		uint64_t place = abi_place(0, ABI_TIER_CXL, d->word[ABI_TIER_CXL]);

		if (page_state(d, ABI_TIER_CXL) != ABI_PAGE_RETIRING)
			continue;
		page_free(d, ABI_TIER_CXL);
		if (is_leased(w, place)) {
			w->held++;
			w->kept[w->kept_count++] = place;
			continue;
		}
		free_place(w, place);
	}
	for (uint32_t slot = 0; slot < SLOTS; slot++) {
		bool empty = w->dying[slot];

		for (uint32_t p = 0; p < PAGES && empty; p++)
			empty = page_state(index_page(&w->ix, slot, p), ABI_TIER_CXL) ==
				ABI_PAGE_ABSENT;
		if (!empty)
			continue;
		w->dying[slot] = false;
		index_slot_free(&w->ix, slot);
	}
}

static void retire_page(struct world *w, uint32_t slot, uint32_t page)
{
	struct abi_page *d = index_page(&w->ix, slot, page);

	if (page_state(d, ABI_TIER_CXL) == ABI_PAGE_READY)
		page_retire(d, ABI_TIER_CXL);
}

static void drop_block(struct world *w, uint32_t family)
{
	uint32_t slot = w->present[family] - 1;

	w->present[family] = 0;
	index_remove(&w->ix, slot);
	for (uint32_t p = 0; p < PAGES; p++)
		retire_page(w, slot, p);
	w->dying[slot] = true;
}

static void *write_on(void *arg)
{
	struct world *w = arg;

	while (!atomic_load_acquire_u32(&w->stop)) {
		for (uint32_t i = 0; i < BATCH; i++) {
			uint32_t r = next_random(&w->seed);
			uint32_t family = r % BLOCKS;

			if (w->present[family] == 0)
				add_block(w, family);
			else if (r >> 8 & 1)
				retire_page(w, w->present[family] - 1, (r >> 9) % PAGES);
			else if (r >> 9 & 1)
				fill_page(w, w->present[family] - 1, (r >> 10) % PAGES);
			else if ((r >> 10) % 4 == 0)
				drop_block(w, family);
		}
		free_retired(w);
	}
	return NULL;
}

/* ---- the readers ----------------------------------------------------------------------------- */

struct reading {
	struct world *w;
	tier_reader *r;
	uint32_t seed;
	uint64_t leased;
	uint64_t wrong;
};

/* All of the page, twice: while we hold it, nothing of it changes. */
static void verify(struct reading *k, const struct tier_lease *lease, const tier_key *key,
		   uint32_t page)
{
	const uint8_t *data = lease->data;

	for (uint32_t pass = 0; pass < 2; pass++)
		for (uint32_t i = 0; i < PAGE_BYTES; i += 64 - pass)
			k->wrong += data[i] != byte_of(key->bytes, page);
	atomic_store_relaxed_u64(&k->leased, k->leased + 1);
}

/* A key of each family: the newest, or one that may have gone. */
static void choose_keys(struct reading *k, tier_key *keys)
{
	for (uint32_t i = 0; i < BLOCKS; i++) {
		uint32_t version = atomic_load_relaxed_u32(&k->w->version[i]);

		keys[i] = key_of(i, version - next_random(&k->seed) % 8 / 7);
	}
}

static void read_single(struct reading *k, const tier_key *keys, const struct tier_found *found)
{
	struct tier_lease lease;

	for (uint32_t i = 0; i < BLOCKS; i++) {
		uint32_t page = next_random(&k->seed) % PAGES;
		int rc = found[i].state == TIER_HIT && i % 2 ?
				 tier_lease_page(k->r, &k->w->c, found[i].block, page, 0, &lease) :
				 tier_lease_key(k->r, &k->w->c, &keys[i], page, 0, &lease);

		if (rc == 0) {
			verify(k, &lease, &keys[i], page);
			tier_release(k->r, &lease);
		} else {
			k->wrong += rc != -ENODATA && rc != -ESTALE && rc != -ENOENT;
		}
	}
}

static void read_list(struct reading *k, const tier_key *keys, const struct tier_found *found)
{
	struct tier_lease lease[BLOCKS];
	struct tier_page page[BLOCKS];

	for (uint32_t i = 0; i < BLOCKS; i++)
		page[i] = (struct tier_page){ found[i].block, next_random(&k->seed) % PAGES };
	k->wrong += tier_lease_pages(k->r, &k->w->c, page, BLOCKS, 0, lease) < 0;
	for (uint32_t i = 0; i < BLOCKS; i++)
		if (lease[i].data)
			verify(k, &lease[i], &keys[i], page[i].page);
	tier_release_many(k->r, lease, BLOCKS);
}

static void *read_on(void *arg)
{
	struct reading *k = arg;
	struct tier_found found[BLOCKS];
	tier_key keys[BLOCKS];

	while (!atomic_load_acquire_u32(&k->w->stop)) {
		choose_keys(k, keys);
		tier_match(&k->w->c, keys, BLOCKS, found);
		for (uint32_t i = 0; i < BLOCKS; i++)
			if (found[i].state == TIER_MISS)
				found[i].block = (tier_block){ i, 12345 };
		read_list(k, keys, found);
		read_single(k, keys, found);
	}
	return NULL;
}

/* ---- the world ------------------------------------------------------------------------------- */

/* What tier_connect and tier_context_create make, over private memory. */
static void connect_privately(struct world *w, const struct abi_geometry *g, void *index)
{
	w->alive = 1;
	w->t.alive = &w->alive;
	assert_int_equal(lock_init(&w->t.lock), 0);
	list_init(&w->t.readers);
	list_init(&w->t.old);
	w->a.number = 1;
	w->a.readers_max = READERS;
	w->a.readers = calloc(READERS, sizeof(struct abi_reader));
	w->t.attachment_word = (uintptr_t)&w->a;
	w->m = (struct map){
		.number = 1,
		.header = index,
		.block = w->ix.block,
		.page = w->ix.page,
		.bucket = w->ix.bucket,
		.overflow = w->ix.overflow,
		.buckets_max = w->ix.header->buckets_max,
		.overflow_max = w->ix.header->overflow_max,
		.blocks_max = SLOTS,
		.pages_per_block = PAGES,
		.salt = 0x5a17,
		.part_count = 2,
		.parts_every = 3,
		.part = { { 0, PAGE_BYTES, PAGE_BYTES, 0 }, { 4, PAGE_BYTES, PAGE_BYTES, 0 } },
		.geometry = *g,
	};
	w->m.mem[ABI_TIER_CXL] = w->memory;
	w->m.mem_bytes[ABI_TIER_CXL] = PLACES * PAGE_BYTES;
	w->c.t = &w->t;
	w->c.alive = &w->alive;
	w->c.geometry.abi = *g;
	w->c.map_word = (uintptr_t)&w->m;
}

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	struct abi_index_header h = { 0 };
	tier_geometry *g;
	void *index;

	assert_int_equal(syscall(SYS_membarrier, REGISTER, 0, 0), 0);
	assert_int_equal(tier_geometry_preset(&g, "tiny"), 0);
	index_plan(&h, &g->abi, SLOTS);
	h.epoch = 1;
	index = aligned_alloc(4096, h.total_bytes);
	memset(index, 0, h.total_bytes);
	index_format(&w->ix, index, &h, &g->abi);
	w->memory = aligned_alloc(4096, PLACES * PAGE_BYTES);
	memset(w->memory, 0, PLACES * PAGE_BYTES);
	ASAN_POISON_MEMORY_REGION(w->memory, PLACES * PAGE_BYTES);
	for (uint32_t i = 0; i < PLACES; i++)
		w->free_place[w->free_count++] = i;
	connect_privately(w, &g->abi, index);
	tier_geometry_free(g);
	w->seed = 7;
	for (uint32_t i = 0; i < BLOCKS; i++)
		add_block(w, i);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	ASAN_UNPOISON_MEMORY_REGION(w->memory, PLACES * PAGE_BYTES);
	free(w->ix.header);
	free(w->memory);
	free(w->a.readers);
	lock_fini(&w->t.lock);
	free(w);
	return 0;
}

static void test_leases_against_retirement(void **state)
{
	struct world *w = *state;
	struct reading k[READERS];
	pthread_t writer, thread[READERS];

	for (uint32_t i = 0; i < READERS; i++) {
		k[i] = (struct reading){ .w = w, .seed = i + 1 };
		assert_int_equal(tier_reader_open(&w->t, &k[i].r), 0);
	}
	assert_int_equal(pthread_create(&writer, NULL, write_on, w), 0);
	for (uint32_t i = 0; i < READERS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, read_on, &k[i]), 0);
	usleep(RUN_NS / NS_PER_US);
	/* On a crowded machine, or where all have one processor, somebody's turn comes later. */
	for (uint32_t i = 0; i < READERS;)
		if (atomic_load_relaxed_u64(&k[i].leased) > LEASED_LEAST &&
		    atomic_load_relaxed_u64(&w->freed) > FREED_LEAST)
			i++;
		else
			usleep(1000);
	atomic_store_release_u32(&w->stop, 1);
	pthread_join(writer, NULL);
	for (uint32_t i = 0; i < READERS; i++) {
		pthread_join(thread[i], NULL);
		assert_int_equal(k[i].wrong, 0);
		assert_true(k[i].leased > LEASED_LEAST);
		tier_reader_close(k[i].r);
	}
	assert_true(w->freed > FREED_LEAST);
	print_message("leased %llu, freed %llu, found leased %llu\n",
		      (unsigned long long)(k[0].leased + k[1].leased + k[2].leased),
		      (unsigned long long)w->freed, (unsigned long long)w->held);
	/* Nobody holds anything: all that was retired can go. */
	w->held = 0;
	free_retired(w);
	assert_int_equal(w->held, 0);
	assert_int_equal(w->kept_count, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_leases_against_retirement, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
