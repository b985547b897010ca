/*
 * The choices of sparse attention that `tierbench sparse` makes up (bench/sparse/select.c) have the
 * published locality, by both mechanisms and from any seed; what caches miss of them is right.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>

#include "bench/sparse/cache.h"
#include "tests/lib/unit.h"

#define BLOCKS 1024u
#define LAYERS 4u
#define GROUPS 2u

static void make(struct selection_trace *t, enum select_kind kind, uint64_t seed, uint32_t readers)
{
	const struct select_spec spec = { .kind = kind, .blocks = BLOCKS, .layers = LAYERS,
					  .groups = GROUPS, .readers = readers, .shared = 0.9,
					  .steps = readers > 1 ? 20 : 1200, .seed = seed };

	assert_int_equal(select_make(t, &spec), 0);
}

static double misses(const struct selection_trace *t, uint32_t first, uint32_t last,
		     uint32_t capacity, uint32_t ahead)
{
	uint64_t missed = 0, looks = 0;

	for (uint32_t layer = first; layer <= last; layer++)
		for (uint32_t group = 0; group < GROUPS; group++) {
			const struct cache_stream s = { t, 0, layer, group };

			assert_int_equal(cache_misses(&s, capacity, ahead, &missed, &looks), 0);
		}
	return 100.0 * (double)missed / (double)looks;
}

static void assert_near(double value, double published)
{
	if (value < published - 1.5 || value > published + 1.5)
		fail_msg("%.2f %% for %.1f", value, published);
}

static void test_locality_is_the_published_one(void **state)
{
	(void)state;
	for (uint32_t kind = 0; kind < SELECT_KINDS; kind++) {
		struct selection_trace t;
		double first, last;

		make(&t, kind, 77 + kind, 1);
		assert_near(misses(&t, 0, LAYERS - 1, 16, 0), 30);
		assert_near(misses(&t, 0, LAYERS - 1, 32, 0), 13.4);
		assert_near(misses(&t, 0, LAYERS - 1, 64, 0), 6.7);
		assert_near(misses(&t, 0, LAYERS - 1, 32, CACHE_BELADY), 8.2);
		first = misses(&t, 0, 0, BLOCKS / 5, 0);
		last = misses(&t, LAYERS - 1, LAYERS - 1, BLOCKS / 5, 0);
		assert_true(first > 20 * last && first < 60 * last);
		select_free(&t);
	}
}

static void test_knowing_more_steps_misses_less(void **state)
{
	struct selection_trace t;
	double before, now;

	(void)state;
	make(&t, SELECT_DRIFTING, 5, 1);
	before = misses(&t, 0, LAYERS - 1, 32, 0);
	for (uint32_t ahead = 1; ahead <= 64; ahead *= 4, before = now) {
		now = misses(&t, 0, LAYERS - 1, 32, ahead);
		assert_true(now < before);
	}
	assert_true(misses(&t, 0, LAYERS - 1, 32, CACHE_BELADY) <= before);
	select_free(&t);
}

static void assert_different(const uint16_t *block)
{
	for (uint32_t i = 0; i < SELECT_TOP; i++) {
		assert_true(block[i] < BLOCKS);
		for (uint32_t k = 0; k < i; k++)
			assert_int_not_equal(block[i], block[k]);
	}
}

/* Any step of any reader: 16 different blocks; two readers have most of them in common. */
static void test_readers_choose_in_common(void **state)
{
	(void)state;
	for (uint32_t kind = 0; kind < SELECT_KINDS; kind++) {
		struct selection_trace t;
		uint32_t common = 0;

		make(&t, kind, 11, 4);
		for (uint32_t step = 0; step < 20; step++)
			for (uint32_t r = 0; r < 4; r++)
				assert_different(select_at(&t, step, r, 1, 1));
		for (uint32_t i = 0; i < SELECT_TOP * SELECT_TOP; i++)
			common += select_at(&t, 10, 0, 0, 0)[i / SELECT_TOP] ==
				  select_at(&t, 10, 3, 0, 0)[i % SELECT_TOP];
		assert_true(common >= 8 && common <= 16);
		select_free(&t);
	}
}

static void test_a_draft_is_mostly_right(void **state)
{
	struct selection_trace t;
	uint32_t right = 0;

	(void)state;
	make(&t, SELECT_RETURNING, 3, 1);
	for (uint32_t step = 0; step < 1000; step++) {
		uint16_t draft[SELECT_TOP];

		select_draft(&t, step, 0, 0, 0, draft);
		for (uint32_t i = 0; i < SELECT_TOP; i++)
			right += draft[i] == select_at(&t, step, 0, 0, 0)[i];
	}
	assert_true(right > 15600 && right < 15950); /* 15,792 of 16,000 on average */
	select_free(&t);
}

static void test_too_few_blocks_are_refused(void **state)
{
	const struct select_spec spec = { .blocks = 255, .layers = 1, .groups = 1, .readers = 1,
					  .steps = 1 };
	struct selection_trace t;

	(void)state;
	assert_int_equal(select_make(&t, &spec), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_locality_is_the_published_one),
		cmocka_unit_test(test_knowing_more_steps_misses_less),
		cmocka_unit_test(test_readers_choose_in_common),
		cmocka_unit_test(test_a_draft_is_mostly_right),
		cmocka_unit_test(test_too_few_blocks_are_refused),
	};

	return cmocka_run_group_tests_name("sparse", tests, NULL, NULL);
}
