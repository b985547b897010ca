/*
 * The index against a plain table of which key has which slot: a million random inserts and
 * removes, the structure recounted line by line, keys that collide up to the chain's limit, the
 * life of slots. Prints what an insert and a look-up cost, and the bytes a block.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tierd/core/unit/index.h"
#include "libtier/base/time.h"
#include "tests/lib/property.h"
#include "tests/lib/unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGES 2u /* of a block, in most tests */

struct world {
	struct index ix;
	void *memory;
	size_t bytes;
};

static struct world *world_new(uint64_t blocks, uint32_t pages)
{
	struct abi_geometry geometry = { .part_count = 1, .pages_per_block = pages };
	struct abi_index_header header = { .context_id = 3, .boot_token = 99 };
	struct world *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	index_plan(&header, &geometry, blocks);
	w->bytes = header.total_bytes;
	w->memory = mmap(NULL, w->bytes, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert_ptr_not_equal(w->memory, MAP_FAILED);
	index_format(&w->ix, w->memory, &header, &geometry);
	return w;
}

static void world_free(struct world *w)
{
	munmap(w->memory, w->bytes);
	free(w);
}

/* The key of an id; the first half decides the hash, the second tells equal hashes apart. */
static void key_of(uint64_t id, uint64_t group, uint8_t *key)
{
	struct rng rng = { group };
	uint64_t word[4] = { rng_next(&rng), rng_next(&rng), id, ~id };

	memcpy(key, word, sizeof(word));
}

static int put(struct world *w, uint64_t id, uint64_t group, uint32_t *slot)
{
	struct abi_block *block;
	int rc;

	*slot = index_slot_alloc(&w->ix);
	assert_int_not_equal(*slot, ABI_SLOT_NONE);
	block = index_block(&w->ix, *slot);
	assert_int_equal(block->state, ABI_BLOCK_FREE);
	key_of(id, group, block->key);
	index_block_state(&w->ix, *slot, ABI_BLOCK_PENDING);
	rc = index_insert(&w->ix, *slot);
	if (rc < 0) {
		index_block_state(&w->ix, *slot, ABI_BLOCK_FREE);
		index_slot_free(&w->ix, *slot);
	}
	return rc;
}

static void drop(struct world *w, uint32_t slot)
{
	uint32_t generation = index_block(&w->ix, slot)->generation;

	index_remove(&w->ix, slot);
	assert_int_equal(index_block(&w->ix, slot)->state, ABI_BLOCK_FREE);
	assert_int_not_equal(index_block(&w->ix, slot)->generation, generation);
	index_slot_free(&w->ix, slot);
}

static uint32_t find(const struct world *w, uint64_t id, uint64_t group)
{
	uint8_t key[ABI_KEY_BYTES];

	key_of(id, group, key);
	return index_find(&w->ix, key);
}

/* ---- the structure, recounted -------------------------------------------------------------- */

struct recount {
	uint64_t entries;
	uint64_t overflow; /* lines in chains */
	uint32_t longest;
	uint8_t *seen; /* a byte a slot */
};

static void recount_entry(const struct world *w, uint64_t bucket, const struct abi_bucket *line,
			  uint32_t i, struct recount *r)
{
	const struct abi_block *block = index_block(&w->ix, line->slot[i]);
	uint64_t hash = abi_key_hash(block->key);

	assert_int_equal(abi_bucket_of(hash, w->ix.header->bucket_count), bucket);
	assert_int_equal(line->tag[i], abi_key_tag(hash));
	assert_int_not_equal(block->state, ABI_BLOCK_FREE);
	assert_int_equal(r->seen[line->slot[i]], 0);
	r->seen[line->slot[i]] = 1;
	r->entries++;
}

static void recount_chain(const struct world *w, uint64_t bucket, struct recount *r)
{
	const struct abi_bucket *line = &w->ix.bucket[bucket];
	uint32_t lines = 1;

	assert_int_equal(line->seq % 2, 0);
	for (;; lines++) {
		uint32_t n = 0;

		while (n < ABI_BUCKET_SLOTS && line->slot[n] != ABI_SLOT_NONE)
			recount_entry(w, bucket, line, n++, r);
		for (uint32_t i = n; i < ABI_BUCKET_SLOTS; i++) {
			assert_int_equal(line->slot[i], ABI_SLOT_NONE);
			assert_int_equal(line->tag[i], 0);
		}
		assert_int_equal(line->reserved, 0);
		assert_true(lines == 1 || n > 0);
		if (!line->overflow)
			break;
		assert_int_equal(n, ABI_BUCKET_SLOTS);
		line = &w->ix.overflow[line->overflow - 1];
		r->overflow++;
	}
	r->longest = lines > r->longest ? lines : r->longest;
}

static void recount(const struct world *w, struct recount *r)
{
	uint64_t unused = 0;
	uint32_t line = w->ix.overflow_free;

	*r = (struct recount){ .seen = calloc(w->ix.blocks_max, 1) };
	assert_non_null(r->seen);
	for (uint64_t b = 0; b < w->ix.header->bucket_count; b++)
		recount_chain(w, b, r);
	for (; line; line = w->ix.overflow[line - 1].seq, unused++)
		assert_int_equal(w->ix.overflow[line - 1].slot[0], ABI_SLOT_NONE);
	assert_int_equal(r->entries, w->ix.entries);
	assert_int_equal(r->overflow + unused, w->ix.overflow_used);
	assert_in_range(r->longest, 1, ABI_CHAIN_MAX);
	free(r->seen);
}

/* ---- tests --------------------------------------------------------------------------------- */

static void check_plan(uint64_t blocks, uint32_t pages)
{
	struct abi_geometry g = { .part_count = 1, .pages_per_block = pages };
	struct abi_index_header h = { 0 };

	index_plan(&h, &g, blocks);
	assert_int_equal(h.blocks_max, blocks);
	assert_int_equal(h.pages_per_block, pages);
	assert_true(h.bucket_offset >= sizeof(h) + sizeof(g));
	assert_true(h.overflow_offset >= h.bucket_offset + h.buckets_max * 64);
	assert_true(h.block_offset >= h.overflow_offset + h.overflow_max * 64);
	assert_true(h.desc_offset >= h.block_offset + blocks * 64);
	assert_true(h.total_bytes >= h.desc_offset + blocks * pages * 32);
	assert_int_equal(h.total_bytes % ABI_HUGE, 0);
	assert_int_equal((h.bucket_offset | h.overflow_offset | h.block_offset | h.desc_offset) %
				 ABI_PAGE_ALIGN, 0);
	/* Even all overflow lines in use: little beside the block's own 64 bytes. */
	if (blocks > 100000)
		assert_true((h.buckets_max + h.overflow_max) * 64 < blocks * 18);
}

static void test_plan(void **state)
{
	(void)state;
	check_plan(1, 1);
	check_plan(7, 65536);
	check_plan(10000000, 164);
	check_plan(ABI_SLOT_NONE - 1, ABI_PAGES_PER_BLOCK_MAX);
}

static void test_format(void **state)
{
	struct world *w = world_new(1000, PAGES);
	const struct abi_index_header *h = w->memory;
	const struct abi_geometry *g = (const void *)(h + 1);
	uint64_t before = index_bytes_used(&w->ix);
	uint32_t slot;

	(void)state;
	assert_int_equal(h->magic, ABI_INDEX_MAGIC);
	assert_int_equal(h->version, ABI_VERSION);
	assert_int_equal(h->context_id, 3);
	assert_int_equal(h->boot_token, 99);
	assert_int_equal(g->pages_per_block, PAGES);
	assert_in_range(h->bucket_count, 1, h->buckets_max);
	assert_int_equal(find(w, 1, 1), ABI_SLOT_NONE);
	assert_int_equal(put(w, 1, 1, &slot), 0);
	assert_int_equal(index_bytes_used(&w->ix) - before, 64); /* descriptors: descs.h */
	index_block_state(&w->ix, slot, ABI_BLOCK_COMMITTED);
	assert_int_equal(index_block(&w->ix, slot)->state, ABI_BLOCK_COMMITTED);
	index_epoch(&w->ix, 5);
	assert_int_equal(h->epoch, 5);
	world_free(w);
}

/* Ids 0 … ids - 1, each in the table or not; the model remembers its slot. */
static void random_steps(struct world *w, uint32_t *model, uint32_t ids, uint32_t steps,
			 struct rng *rng)
{
	for (uint32_t i = 0; i < steps; i++) {
		uint32_t id = (uint32_t)rng_below(rng, ids);

		assert_int_equal(find(w, id, id), model[id]);
		if (model[id] == ABI_SLOT_NONE) {
			assert_int_equal(put(w, id, id, &model[id]), 0);
			assert_int_equal(find(w, id, id), model[id]);
		} else {
			drop(w, model[id]);
			model[id] = ABI_SLOT_NONE;
			assert_int_equal(find(w, id, id), ABI_SLOT_NONE);
		}
	}
}

static void test_random_against_model(void **state)
{
	const uint32_t ids = 200000, rounds = 10;
	uint32_t *model = malloc(ids * sizeof(*model));
	struct world *w = world_new(ids, 1);
	struct rng rng = { 2024 };
	struct recount r;

	(void)state;
	assert_non_null(model);
	memset(model, 0xff, ids * sizeof(*model));
	for (uint32_t round = 0; round < rounds; round++) {
		random_steps(w, model, ids, 100000, &rng);
		recount(w, &r);
		for (uint32_t id = 0; id < ids; id++)
			assert_int_equal(find(w, id, id), model[id]);
	}
	for (uint32_t id = 0; id < ids; id++)
		if (model[id] != ABI_SLOT_NONE)
			drop(w, model[id]);
	recount(w, &r);
	assert_int_equal(r.entries + r.overflow, 0);
	free(model);
	world_free(w);
}

/* A small table to its last slot, over and over: slots and overflow lines come back. */
static void test_fills_to_the_last_slot(void **state)
{
	const uint32_t blocks = 5000;
	struct world *w = world_new(blocks, PAGES);
	uint32_t slot, *slots = malloc(blocks * sizeof(*slots));
	uint64_t overflow = 0, bytes = 0;
	struct recount r;

	(void)state;
	assert_non_null(slots);
	for (uint32_t round = 0; round < 5; round++) {
		for (uint32_t i = 0; i < blocks; i++)
			assert_int_equal(put(w, i, i, &slots[i]), 0);
		assert_int_equal(index_slot_alloc(&w->ix), ABI_SLOT_NONE);
		recount(w, &r);
		assert_true(round == 0 || w->ix.overflow_used == overflow);
		assert_true(round == 0 || index_bytes_used(&w->ix) == bytes);
		overflow = w->ix.overflow_used;
		bytes = index_bytes_used(&w->ix);
		for (uint32_t i = 0; i < blocks; i++)
			drop(w, slots[round % 2 ? blocks - 1 - i : i]);
		recount(w, &r);
	}
	assert_int_equal(w->ix.slots_used, blocks);
	assert_int_equal(w->ix.slots_free, blocks);
	for (uint32_t i = 0; i < blocks; i++)
		assert_int_equal(put(w, i, 0, &slot), i < ABI_CHAIN_MAX * 9 ? 0 : -ENOSPC);
	free(slots);
	world_free(w);
}

/* Keys of one hash: the chain's limit refuses the next and leaves the table as it was. */
static void test_colliding_keys(void **state)
{
	const uint32_t limit = ABI_CHAIN_MAX * ABI_BUCKET_SLOTS;
	struct world *w = world_new(100000, 1);
	uint32_t slot, slots[ABI_CHAIN_MAX * ABI_BUCKET_SLOTS];
	uint32_t refused = 0;
	struct recount r;

	(void)state;
	for (uint32_t i = 0; i < limit; i++)
		assert_int_equal(put(w, i, 77, &slots[i]), 0);
	assert_int_equal(put(w, limit, 77, &slot), -ENOSPC);
	assert_int_equal(w->ix.entries, limit);
	assert_int_equal(find(w, limit, 77), ABI_SLOT_NONE);
	/* Growth splits the chain again and again and never takes it apart. It has no room for the
	 * few others that fall into its bucket. */
	for (uint32_t i = 0; i < 50000; i++)
		if (put(w, i, 1000000 + i, &slot) < 0)
			refused++;
	recount(w, &r);
	assert_int_equal(r.longest, ABI_CHAIN_MAX);
	assert_int_equal(r.entries, limit + 50000 - refused);
	assert_in_range(refused, 0, 200);
	for (uint32_t i = 0; i < limit; i++)
		assert_int_equal(find(w, i, 77), slots[i]);
	drop(w, slots[5]);
	assert_int_equal(find(w, 5, 77), ABI_SLOT_NONE);
	assert_int_equal(put(w, limit, 77, &slot), 0);
	assert_int_equal(find(w, limit, 77), slot);
	recount(w, &r);
	world_free(w);
}

/* Groups of colliding keys up to the last slot: the worst use of overflow lines there is. */
static void test_overflow_never_runs_out(void **state)
{
	static const uint32_t groups[] = { 10, 19, 28, 64, 72 };

	(void)state;
	for (uint32_t g = 0; g < COUNT(groups); g++) {
		const uint32_t blocks = 7200;
		struct world *w = world_new(blocks, 1);
		struct recount r;
		uint32_t slot;

		for (uint32_t i = 0; i < blocks; i++) {
			int rc = put(w, i, i / groups[g], &slot);

			/* Two groups may share a bucket until the table has grown. */
			assert_true(rc == 0 || rc == -ENOSPC);
		}
		recount(w, &r);
		assert_true(w->ix.entries > blocks / 2);
		world_free(w);
	}
}

static void test_slot_lives(void **state)
{
	struct world *w = world_new(3, PAGES);
	uint32_t a, b, c, again;

	(void)state;
	assert_int_equal(put(w, 1, 1, &a), 0);
	assert_int_equal(put(w, 2, 2, &b), 0);
	assert_int_equal(put(w, 3, 3, &c), 0);
	assert_int_equal(index_slot_alloc(&w->ix), ABI_SLOT_NONE);
	/* Out of its bucket a slot is not for use until it is given back. */
	index_remove(&w->ix, b);
	assert_int_equal(index_slot_alloc(&w->ix), ABI_SLOT_NONE);
	index_slot_free(&w->ix, b);
	assert_int_equal(index_slot_alloc(&w->ix), b);
	index_slot_free(&w->ix, b);
	assert_int_equal(put(w, 4, 4, &again), 0);
	assert_int_equal(again, b);
	drop(w, a);
	drop(w, c);
	assert_int_equal(w->ix.slots_free, 2);
	world_free(w);
}

/* ---- misuse -------------------------------------------------------------------------------- */

struct misuse {
	struct world *w;
	uint32_t slot;
};

static void misuse_insert(void *arg)
{
	struct misuse *m = arg;

	index_insert(&m->w->ix, m->slot);
}

static void misuse_remove(void *arg)
{
	struct misuse *m = arg;

	index_remove(&m->w->ix, m->slot);
}

static void misuse_free(void *arg)
{
	struct misuse *m = arg;

	index_slot_free(&m->w->ix, m->slot);
}

static void test_asserts(void **state)
{
	struct misuse m = { .w = world_new(10, PAGES) };

	(void)state;
	assert_int_equal(put(m.w, 1, 1, &m.slot), 0);
	assert_true(aborts(misuse_insert, &m)); /* the slot is in, and so is its key (X2) */
	assert_true(aborts(misuse_free, &m));   /* still in a bucket */
	assert_false(aborts(misuse_remove, &m));
	index_remove(&m.w->ix, m.slot);
	assert_true(aborts(misuse_remove, &m));
	assert_true(aborts(misuse_insert, &m)); /* state FREE */
	assert_false(aborts(misuse_free, &m));
	m.slot = 9; /* never handed out */
	assert_true(aborts(misuse_free, &m));
	assert_true(aborts(misuse_insert, &m));
	world_free(m.w);
}

/* ---- figures ------------------------------------------------------------------------------- */

static uint64_t time_inserts(struct world *w, uint32_t count)
{
	uint64_t begin = time_now_ns();
	uint32_t slot;

	for (uint32_t i = 0; i < count; i++)
		assert_int_equal(put(w, i, i, &slot), 0);
	return time_now_ns() - begin;
}

static uint64_t time_finds(const struct world *w, uint32_t count)
{
	struct rng rng = { 5 };
	uint64_t begin = time_now_ns();

	for (uint32_t i = 0; i < count; i++) {
		uint32_t id = (uint32_t)rng_below(&rng, count);

		assert_int_equal(find(w, id, id), id);
	}
	return time_now_ns() - begin;
}

static void test_figures(void **state)
{
	const uint32_t count = 1000000;
	struct world *w = world_new(count, 1);
	uint64_t insert = time_inserts(w, count), look = time_finds(w, count);
	double bytes = 64.0 * (double)(w->ix.header->bucket_count + w->ix.overflow_used) / count;
	struct recount r;

	(void)state;
	recount(w, &r);
	printf("# index of 10^6 blocks: %.0f ns an insert (with its key and growth), %.0f ns a "
	       "random find\n",
	       (double)insert / count, (double)look / count);
	printf("# %.2f bytes of buckets a block; longest chain %u lines, %llu of %llu lines "
	       "overflow\n",
	       bytes, r.longest, (unsigned long long)r.overflow,
	       (unsigned long long)(w->ix.header->bucket_count + r.overflow));
	assert_true(bytes <= 16.0);
	assert_true(r.longest <= 4);
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_plan),
		cmocka_unit_test(test_format),
		cmocka_unit_test(test_random_against_model),
		cmocka_unit_test(test_fills_to_the_last_slot),
		cmocka_unit_test(test_colliding_keys),
		cmocka_unit_test(test_overflow_never_runs_out),
		cmocka_unit_test(test_slot_lives),
		cmocka_unit_test(test_asserts),
		cmocka_unit_test(test_figures),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
