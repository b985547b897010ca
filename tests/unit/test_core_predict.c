/*
 * The predictor against outputs of known distributions: the upper bound covers what it promises,
 * also when the distribution moves; keys do not mix; who is unknown gets no number.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/lib/property.h"
#include "tests/lib/unit.h"
#include "tierd/core/unit/predict.h"

#define CELLS 64u

/* Skewed: mostly small, some large. */
static uint32_t skewed(struct rng *rng, uint32_t scale)
{
	uint32_t a = (uint32_t)rng_below(rng, 1000) + 1;

	return scale * 40 / a + (uint32_t)rng_below(rng, scale) + 1;
}

static void test_nothing_is_known_at_first(void **state)
{
	const struct predict_key key = { .salt = 3 };
	struct predict p;

	(void)state;
	assert_int_equal(predict_open(&p, CELLS), 0);
	assert_false(predict_ask(&p, &key).known);
	predict_tell(&p, &key, 0, 7);
	assert_true(predict_ask(&p, &key).known);
	assert_int_equal(predict_ask(&p, &key).expected, 7);
	predict_close(&p);
}

/* Share of outputs above the bound, in percent, over the second half of n. */
static double misses(uint32_t n, bool drift)
{
	struct predict p;
	struct rng rng = { 5 };
	uint32_t over = 0;

	assert_int_equal(predict_open(&p, CELLS), 0);
	for (uint32_t i = 0; i < n; i++) {
		const struct predict_key key = { .salt = i % 3, .role = i % 2 };
		struct predict_answer a = predict_ask(&p, &key);
		uint32_t out = skewed(&rng, 50 + (drift ? i / 40 : 0));

		if (i > n / 2)
			over += out > a.upper;
		predict_tell(&p, &key, a.known ? a.upper : 0, out);
	}
	predict_close(&p);
	return 100.0 * over / (n / 2.0);
}

static void test_the_bound_covers_what_it_promises(void **state)
{
	(void)state;
	assert_in_range((uint64_t)(misses(20000, false) * 10), 30, 65);
	assert_in_range((uint64_t)(misses(20000, true) * 10), 30, 65);
}

/* By rank, before anything was learned of the bound itself. */
static void test_the_bound_is_the_rank_that_was_promised(void **state)
{
	const struct predict_key key = { .salt = 3 };
	struct predict_answer a;
	struct predict p;

	(void)state;
	assert_int_equal(predict_open(&p, CELLS), 0);
	for (uint32_t i = 1; i <= 18; i++)
		predict_tell(&p, &key, 0, 100 * i);
	a = predict_ask(&p, &key);
	assert_int_equal(a.expected, 1000);
	assert_int_equal(a.upper, 1800 + 450); /* too few for one in twenty */
	for (uint32_t i = 19; i <= 59; i++)
		predict_tell(&p, &key, 0, 100 * i);
	a = predict_ask(&p, &key);
	assert_int_equal(a.expected, 3000);
	assert_int_equal(a.upper, 5700); /* 57 of 60 are no more */
	predict_close(&p);
}

static void test_keys_do_not_mix(void **state)
{
	const struct predict_key small = { .context = 1, .salt = 1 };
	struct predict_key large = small, other = small;
	struct predict p;

	(void)state;
	large.role = 1;
	other.context = 2;
	assert_int_equal(predict_open(&p, CELLS), 0);
	for (uint32_t i = 0; i < 100; i++) {
		predict_tell(&p, &small, 0, 5 + i % 3);
		predict_tell(&p, &large, 0, 500 + i % 30);
	}
	assert_in_range(predict_ask(&p, &small).upper, 5, 8);
	assert_in_range(predict_ask(&p, &large).expected, 500, 530);
	assert_false(predict_ask(&p, &other).known);
	predict_close(&p);
}

static void test_the_table_is_bounded(void **state)
{
	struct predict p;

	(void)state;
	assert_int_equal(predict_open(&p, CELLS), 0);
	for (uint64_t salt = 0; salt < 10000; salt++) {
		const struct predict_key key = { .salt = salt };

		predict_tell(&p, &key, 0, 3);
		assert_true(predict_ask(&p, &key).known);
	}
	predict_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_is_known_at_first),
		cmocka_unit_test(test_the_bound_covers_what_it_promises),
		cmocka_unit_test(test_the_bound_is_the_rank_that_was_promised),
		cmocka_unit_test(test_keys_do_not_mix),
		cmocka_unit_test(test_the_table_is_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
