/*
 * A look-up in stages (libtier/src/index_read.h) over chains of one to three lines, with the
 * daemon's writer at work between any two stages: entries leave, move from line to line, lines go
 * to other chains, buckets are split. What stays in the table is found, whatever happens meanwhile.
 * test_libtier_steps.c has the same between any two instructions.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "libtier/src/index_read.h"
#include "tests/lib/unit.h"
#include "tierd/core/unit/index.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#define BLOCKS 2000u
#define CHAIN 20u /* entries of the chain that is looked at: three lines */
#define OTHERS 10u /* of one beside it: a line and an entry */

enum { STAGE_TAGS, STAGE_OVERFLOW, STAGE_FINISH, STAGES };

struct world {
	struct index ix;
	struct map map; /* as a client has it */
	uint64_t memory[1 << 15];
	uint32_t slot[CHAIN];
	uint32_t other[OTHERS];
	uint32_t others; /* of them in the table */
	uint64_t key; /* the last one tried by key_for */
};

/* ---- chains on purpose ----------------------------------------------------------------------- */

/* A key that is new, of this bucket. */
static void key_for(struct world *w, uint8_t *key, uint64_t bucket)
{
	memset(key, 0, ABI_KEY_BYTES);
	do {
		w->key++;
		memcpy(key, &w->key, sizeof(w->key));
	} while (abi_bucket_of(abi_key_hash(key), w->ix.header->bucket_count) != bucket);
}

/* Into the table; with this key, or a new one of the bucket. */
static uint32_t put(struct world *w, const uint8_t *key, uint64_t bucket)
{
	uint32_t slot = index_slot_alloc(&w->ix);
	struct abi_block *b = index_block(&w->ix, slot);

	if (key)
		memcpy(b->key, key, sizeof(b->key));
	else
		key_for(w, b->key, bucket);
	index_block_state(&w->ix, slot, ABI_BLOCK_COMMITTED);
	assert_int_equal(index_insert(&w->ix, slot), 0);
	return slot;
}

static void drop(struct world *w, uint32_t slot)
{
	index_remove(&w->ix, slot);
	index_slot_free(&w->ix, slot);
}

static struct world *world_new(uint32_t entries)
{
	const struct abi_geometry geometry = { .part_count = 1, .pages_per_block = 1 };
	struct abi_index_header h = { 0 };
	struct world *w = aligned_alloc(64, sizeof(*w) + 64 - sizeof(*w) % 64);

	assert_non_null(w);
	memset(w, 0, sizeof(*w));
	index_plan(&h, &geometry, BLOCKS);
	index_format(&w->ix, w->memory, &h, &geometry);
	w->map = (struct map){
		.header = w->ix.header, .block = w->ix.block, .page = w->ix.page,
		.bucket = w->ix.bucket, .overflow = w->ix.overflow, .blocks_max = BLOCKS,
		.pages_per_block = 1, .buckets_max = h.buckets_max,
		.overflow_max = h.overflow_max,
	};
	/* The second chain has one entry less than it takes for a line more. */
	while (w->others < ABI_BUCKET_SLOTS)
		w->other[w->others++] = put(w, NULL, 1);
	for (uint32_t i = 0; i < entries; i++)
		w->slot[i] = put(w, NULL, 0);
	return w;
}

/* ---- a look-up in stages --------------------------------------------------------------------- */

struct look {
	uint8_t key[ABI_KEY_BYTES];
	uint64_t buckets;
	struct index_probe probe;
	struct index_found found;
};

static void look_begin(struct world *w, struct look *l, const uint8_t *key)
{
	memset(l, 0, sizeof(*l));
	memcpy(l->key, key, sizeof(l->key));
	l->buckets = index_read_buckets(&w->map);
	index_read_start(&w->map, l->buckets, l->key, &l->probe);
}

/* The stages of a look-up one by one, with what happens before one of them. */
static bool look_on(struct world *w, struct look *l, uint32_t at, void (*happens)(struct world *))
{
	for (uint32_t stage = 0; stage < STAGES; stage++) {
		if (happens && stage == at)
			happens(w);
		if (stage == STAGE_TAGS)
			index_read_tags(&w->map, &l->probe);
		else if (stage == STAGE_OVERFLOW)
			index_read_overflow(&w->map, &l->probe);
	}
	return index_read_finish(&w->map, l->buckets, l->key, &l->probe, &l->found);
}

/* ---- nobody writes --------------------------------------------------------------------------- */

/* Each stage asks for the line that the next one reads, and two lines need nothing else. */
static void test_lines_are_read_in_turn(void **state)
{
	struct world *w = world_new(CHAIN);

	(void)state;
	for (uint32_t i = 0; i < CHAIN; i++) {
		uint32_t line = i / ABI_BUCKET_SLOTS;
		struct look l;

		look_begin(w, &l, index_block(&w->ix, w->slot[i])->key);
		assert_ptr_equal(l.probe.bucket, &w->ix.bucket[0]);
		index_read_tags(&w->map, &l.probe);
		assert_int_equal(l.probe.slot, line ? INDEX_PROBE_SLOW : w->slot[i]);
		assert_ptr_equal(l.probe.line, line ? &w->ix.overflow[0] : NULL);
		index_read_overflow(&w->map, &l.probe);
		assert_int_equal(l.probe.slot, line > 1 ? INDEX_PROBE_SLOW : w->slot[i]);
		assert_ptr_equal(l.probe.line, line > 1 ? &w->ix.overflow[1] : NULL);
		assert_true(index_read_finish(&w->map, l.buckets, l.key, &l.probe, &l.found));
		assert_int_equal(l.found.slot, w->slot[i]);
	}
	free(w);
}

static void test_a_miss_reads_all_lines(void **state)
{
	(void)state;
	for (uint32_t entries = 0; entries <= CHAIN; entries++) {
		struct world *w = world_new(entries);
		uint32_t lines = entries ? (entries + ABI_BUCKET_SLOTS - 1) / ABI_BUCKET_SLOTS : 1;
		uint8_t key[ABI_KEY_BYTES];
		struct look l;

		key_for(w, key, 0);
		look_begin(w, &l, key);
		assert_false(look_on(w, &l, 0, NULL));
		assert_int_equal(l.probe.slot, lines > 2 ? INDEX_PROBE_SLOW : INDEX_PROBE_NONE);
		free(w);
	}
}

/* Equal tags of other keys, in either line: the one behind them is found all the same. */
static void test_other_keys_of_the_same_tag(void **state)
{
	struct world *w = world_new(0);
	uint8_t key[ABI_KEY_BYTES];

	(void)state;
	key_for(w, key, 0);
	for (uint32_t i = 0; i < CHAIN; i++) {
		key[ABI_KEY_BYTES - 1] = (uint8_t)i; /* the hash is of the first half */
		w->slot[i] = put(w, key, 0);
	}
	for (uint32_t i = 0; i < CHAIN; i++) {
		struct look l;

		look_begin(w, &l, index_block(&w->ix, w->slot[i])->key);
		assert_true(look_on(w, &l, 0, NULL));
		assert_int_equal(l.found.slot, w->slot[i]);
	}
	free(w);
}

/* ---- the writer between the stages ----------------------------------------------------------- */

/* The last entry fills the hole, so it moves to the head line. */
static void first_leaves(struct world *w)
{
	drop(w, w->slot[0]);
}

/* ... and the line in which it was, if it is empty now, is another chain's. */
static void line_goes_elsewhere(struct world *w)
{
	drop(w, w->slot[0]);
	w->other[w->others++] = put(w, NULL, 1);
}

/* Nothing of the bucket stays where it was: as many new ones as it takes for a split. */
static void bucket_splits(struct world *w)
{
	uint64_t count = w->ix.header->bucket_count;

	for (uint64_t bucket = 2; w->ix.header->bucket_count == count; bucket++)
		put(w, NULL, bucket % (count - 2) + 2);
}

/* Half of a write: what a look-up meets must not be taken for an answer. */
static void head_is_odd_for_a_moment(struct world *w)
{
	w->ix.bucket[0].seq++;
	drop(w, w->other[0]);
	w->ix.bucket[0].seq++;
}

static void others_come_and_go(struct world *w)
{
	drop(w, w->other[0]);
	w->other[0] = put(w, NULL, 1);
	drop(w, put(w, NULL, 1));
}

static void (*const writers[])(struct world *) = {
	first_leaves, line_goes_elsewhere, bucket_splits, head_is_odd_for_a_moment,
	others_come_and_go,
};

static void test_what_stays_is_found(void **state)
{
	(void)state;
	for (uint32_t entries = 2; entries <= CHAIN; entries++)
		for (uint32_t at = 0; at < STAGES; at++)
			for (uint32_t n = 0; n < COUNT(writers); n++) {
				struct world *w = world_new(entries);
				uint32_t slot = w->slot[entries - 1];
				uint32_t generation = index_block(&w->ix, slot)->generation;
				struct look l;

				look_begin(w, &l, index_block(&w->ix, slot)->key);
				assert_true(look_on(w, &l, at, writers[n]));
				assert_int_equal(l.found.slot, slot);
				assert_int_equal(l.found.generation, generation);
				free(w);
			}
}

static uint32_t last_of(const struct world *w)
{
	uint32_t n = 0;

	while (n < CHAIN && w->slot[n] != ABI_SLOT_NONE)
		n++;
	return n - 1;
}

static void last_leaves(struct world *w)
{
	drop(w, w->slot[last_of(w)]);
}

/* Its slot is the next one's, in a line of another chain. */
static void slot_is_used_anew(struct world *w)
{
	last_leaves(w);
	put(w, NULL, 1);
}

/* Its key comes back in another slot and another line. */
static void last_comes_back(struct world *w)
{
	uint32_t last = last_of(w);
	uint8_t key[ABI_KEY_BYTES];

	memcpy(key, index_block(&w->ix, w->slot[last])->key, sizeof(key));
	drop(w, w->slot[last]);
	put(w, NULL, 1);
	w->slot[last] = put(w, key, 0);
}

static void test_what_has_gone_is_not_found(void **state)
{
	static void (*const leaves[])(struct world *) = { last_leaves, slot_is_used_anew,
							  last_comes_back };

	(void)state;
	for (uint32_t entries = 1; entries < CHAIN; entries++)
		for (uint32_t at = 0; at < STAGES; at++)
			for (uint32_t n = 0; n < COUNT(leaves); n++) {
				struct world *w = world_new(entries);
				uint32_t slot = w->slot[entries - 1];
				struct look l;

				w->slot[entries] = ABI_SLOT_NONE;
				look_begin(w, &l, index_block(&w->ix, slot)->key);
				assert_int_equal(look_on(w, &l, at, leaves[n]),
						 leaves[n] == last_comes_back);
				if (leaves[n] == last_comes_back)
					assert_int_equal(l.found.slot, w->slot[entries - 1]);
				free(w);
			}
}

/* ---- a writer that is scheduled away --------------------------------------------------------- */

struct stopped {
	struct world *w;
	uint32_t stands; /* in the middle of the bucket */
};

/* An entry is out of its line, as when it moves to another one, for some milliseconds. */
static void *stopped_writer(void *arg)
{
	struct stopped *s = arg;
	struct abi_bucket *head = &s->w->ix.bucket[0];
	uint32_t *tags = (uint32_t *)(void *)head->tag;
	uint32_t was = tags[0];

	atomic_store_release_u32(&head->seq, head->seq + 1);
	atomic_store_release_u32(&tags[0], 0);
	atomic_store_release_u32(&s->stands, 1);
	usleep(3000);
	atomic_store_release_u32(&tags[0], was);
	atomic_store_release_u32(&head->seq, head->seq + 1);
	return NULL;
}

/* What is not in the line at that moment is waited for, what is there is found without. */
static void test_a_writer_that_stands_still(void **state)
{
	struct world *w = world_new(3);
	struct stopped s = { .w = w };
	struct index_found found;
	uint32_t seq = w->ix.bucket[0].seq;
	pthread_t thread;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, stopped_writer, &s), 0);
	while (!atomic_load_acquire_u32(&s.stands))
		usleep(10);
	assert_true(index_read_find(&w->map, index_block(&w->ix, w->slot[2])->key, INDEX_NO_PAGE,
				    &found));
	assert_int_equal(found.slot, w->slot[2]);
	assert_true(index_read_find(&w->map, index_block(&w->ix, w->slot[0])->key, INDEX_NO_PAGE,
				    &found));
	assert_int_equal(found.slot, w->slot[0]);
	assert_int_equal(w->ix.bucket[0].seq, seq + 2);
	pthread_join(thread, NULL);
	free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lines_are_read_in_turn),
		cmocka_unit_test(test_a_miss_reads_all_lines),
		cmocka_unit_test(test_other_keys_of_the_same_tag),
		cmocka_unit_test(test_what_stays_is_found),
		cmocka_unit_test(test_what_has_gone_is_not_found),
		cmocka_unit_test(test_a_writer_that_stands_still),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
