/*
 * Slots over a handover: a block that comes again has the slot and generation that it had, in any
 * order and among blocks that the former index never had; no slot of a block that does not come is
 * given before the end, and then with a higher generation; an index of another shape is none.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tierd/core/unit/former.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/lib/unit.h"

#define BLOCKS 512u
#define PAGES 2u

struct side {
	struct index ix;
	void *memory;
	size_t bytes;
};

static void side_open(struct side *s, uint64_t blocks, uint64_t boot_token)
{
	struct abi_geometry geometry = { .part_count = 1, .pages_per_block = PAGES };
	struct abi_index_header header = { .context_id = 3, .boot_token = boot_token };

	index_plan(&header, &geometry, blocks);
	s->bytes = header.total_bytes;
	s->memory = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert_ptr_not_equal(s->memory, MAP_FAILED);
	index_format(&s->ix, s->memory, &header, &geometry);
}

static void side_close(struct side *s)
{
	munmap(s->memory, s->bytes);
}

static void key_of(uint32_t n, uint8_t key[ABI_KEY_BYTES])
{
	uint64_t word[4] = { n * 0x9e3779b97f4a7c15ull, n * 0xd6e8feb86659fd93ull, n, ~n };

	memcpy(key, word, sizeof(word));
}

static uint32_t put(struct side *s, struct former *f, uint32_t n)
{
	uint8_t key[ABI_KEY_BYTES];
	uint32_t slot;

	key_of(n, key);
	slot = former_slot(f, &s->ix, key);
	if (slot == ABI_SLOT_NONE)
		return slot;
	assert_int_equal(s->ix.block[slot].state, ABI_BLOCK_FREE);
	memcpy(s->ix.block[slot].key, key, sizeof(key));
	index_block_state(&s->ix, slot, ABI_BLOCK_COMMITTED);
	assert_int_equal(index_insert(&s->ix, slot), 0);
	return slot;
}

static void drop(struct side *s, uint32_t slot)
{
	index_remove(&s->ix, slot);
	index_slot_free(&s->ix, slot);
}

/* 300 blocks, of which every third went and a hundred others came in their slots. */
static void fill(struct side *s, uint32_t slot[400])
{
	for (uint32_t i = 0; i < 300; i++)
		slot[i] = put(s, NULL, i);
	for (uint32_t i = 0; i < 300; i += 3) {
		drop(s, slot[i]);
		slot[i] = ABI_SLOT_NONE;
	}
	for (uint32_t i = 300; i < 350; i++)
		slot[i] = put(s, NULL, i);
}

static void test_blocks_keep_slots_and_generations(void **state)
{
	struct side before, now, then;
	struct former *f;
	uint32_t slot[400];

	(void)state;
	side_open(&before, BLOCKS, 7);
	side_open(&now, BLOCKS, 8);
	fill(&before, slot);
	assert_int_equal(former_open(&f, &now.ix, before.memory, before.ix.slots_used), 0);
	assert_int_equal(now.ix.header->life, 7);
	assert_true(put(&now, f, 1000) >= 300); /* one that the former index never had */
	for (uint32_t i = 350; i-- > 50;) { /* not the first fifty, and from behind */
		if (slot[i] == ABI_SLOT_NONE)
			continue;
		assert_int_equal(put(&now, f, i), slot[i]);
		assert_int_equal(now.ix.block[slot[i]].generation,
				 before.ix.block[slot[i]].generation);
	}
	drop(&now, slot[100]); /* once taken it is a slot like any other */
	assert_int_equal(put(&now, f, 100), slot[100]);
	assert_true(now.ix.block[slot[100]].generation > before.ix.block[slot[100]].generation);
	assert_int_equal(now.ix.slots_free, 0);
	former_close(f, &now.ix);
	for (uint64_t left = now.ix.slots_free; left > 0; left--) {
		uint32_t other = put(&now, NULL, 2000 + (uint32_t)left);

		assert_true(other < 300);
		assert_true(now.ix.block[other].generation > before.ix.block[other].generation);
	}
	side_open(&then, BLOCKS, 9); /* the next but one says the same life */
	assert_int_equal(former_open(&f, &then.ix, now.memory, now.ix.slots_used), 0);
	assert_int_equal(then.ix.header->life, 7);
	assert_int_equal(put(&then, f, 61), slot[61]);
	former_close(f, &then.ix);
	side_close(&then);
	side_close(&now);
	side_close(&before);
}

/* Without room beyond its slots, what the former index never had waits for the end. */
static void test_a_kept_slot_is_nobody_elses(void **state)
{
	struct side before, now;
	struct former *f;

	(void)state;
	side_open(&before, BLOCKS, 7);
	side_open(&now, BLOCKS, 8);
	for (uint32_t i = 0; i < BLOCKS; i++)
		assert_int_equal(put(&before, NULL, i), i);
	assert_int_equal(former_open(&f, &now.ix, before.memory, BLOCKS), 0);
	assert_int_equal(put(&now, f, 1000), ABI_SLOT_NONE);
	assert_int_equal(put(&now, f, 77), 77);
	former_close(f, &now.ix);
	assert_int_equal(now.ix.slots_free, BLOCKS - 1);
	assert_int_not_equal(put(&now, NULL, 1000), ABI_SLOT_NONE);
	side_close(&now);
	side_close(&before);
}

static void test_another_shape_is_none(void **state)
{
	struct side before, now;
	struct former *f = NULL;

	(void)state;
	side_open(&before, 2 * BLOCKS, 7);
	side_open(&now, BLOCKS, 8);
	assert_int_equal(former_open(&f, &now.ix, before.memory, 10), -EINVAL);
	side_close(&before);
	side_open(&before, BLOCKS, 7);
	assert_int_equal(former_open(&f, &now.ix, before.memory, BLOCKS + 1), -EINVAL);
	before.ix.header->bucket_count = before.ix.header->buckets_max + 1;
	assert_int_equal(former_open(&f, &now.ix, before.memory, 10), -EINVAL);
	before.ix.header->magic = 0;
	assert_int_equal(former_open(&f, &now.ix, before.memory, 10), -EINVAL);
	assert_null(f);
	assert_int_equal(now.ix.slots_used, 0);
	assert_int_equal(now.ix.header->life, 0);
	side_close(&now);
	side_close(&before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_blocks_keep_slots_and_generations),
		cmocka_unit_test(test_a_kept_slot_is_nobody_elses),
		cmocka_unit_test(test_another_shape_is_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
