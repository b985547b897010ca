/*
 * Histogram quantiles against the sorted samples, over several distributions; bucket borders;
 * merging.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "libtier/base/hist.h"
#include "tests/lib/unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLES 20000

static uint64_t next_random(uint64_t *seed)
{
	*seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return *seed >> 33;
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static double relative_error(uint64_t got, uint64_t want)
{
	return want ? fabs((double)got - (double)want) / (double)want : (double)got;
}

static void check_quantiles(uint64_t *values, size_t count)
{
	static const double quantiles[] = { 0, 0.001, 0.1, 0.25, 0.5, 0.9, 0.99, 0.999, 1 };
	struct hist *h = calloc(1, sizeof(*h));
	double sum = 0;

	assert_non_null(h);
	for (size_t i = 0; i < count; i++) {
		hist_record(h, values[i]);
		sum += (double)values[i];
	}
	qsort(values, count, sizeof(*values), compare);
	for (size_t i = 0; i < COUNT(quantiles); i++) {
		size_t rank = (size_t)ceil(quantiles[i] * (double)count);
		uint64_t want = values[rank ? rank - 1 : 0];

		assert_true(relative_error(hist_quantile(h, quantiles[i]), want) <= 1.0 / 64);
	}
	assert_int_equal(hist_quantile(h, 0), values[0]);
	assert_int_equal(hist_quantile(h, 1), values[count - 1]);
	assert_true(fabs(hist_mean(h) - sum / (double)count) <= 1e-9 * sum);
	free(h);
}

static void test_quantiles_of_samples(void **state)
{
	static uint64_t values[SAMPLES];
	uint64_t seed = 42;

	(void)state;
	for (size_t i = 0; i < SAMPLES; i++)
		values[i] = next_random(&seed) % 1000000;
	check_quantiles(values, SAMPLES);
	for (size_t i = 0; i < SAMPLES; i++) /* log-uniform over twelve decades */
		values[i] = (uint64_t)exp((double)(next_random(&seed) % 27000) / 1000);
	check_quantiles(values, SAMPLES);
	for (size_t i = 0; i < SAMPLES; i++)
		values[i] = next_random(&seed) % 40;
	check_quantiles(values, SAMPLES);
	for (size_t i = 0; i < SAMPLES; i++) /* two far modes */
		values[i] = next_random(&seed) % 100 ? 110000 : 4800000000;
	check_quantiles(values, SAMPLES);
	values[0] = 7;
	check_quantiles(values, 1);
}

/* At least q of all are at or below it: a rank between two is the upper one. */
static void test_ranks_are_exact(void **state)
{
	static struct hist h;

	(void)state;
	hist_init(&h);
	for (uint64_t i = 0; i < 10; i++)
		hist_record(&h, i);
	assert_int_equal(hist_quantile(&h, 0.1), 0);
	assert_int_equal(hist_quantile(&h, 0.11), 1);
	assert_int_equal(hist_quantile(&h, 0.5), 4);
	assert_int_equal(hist_quantile(&h, 0.51), 5);
	assert_int_equal(hist_quantile(&h, 0.99), 9);
}

static void test_empty(void **state)
{
	static struct hist h;
	static struct hist other;

	(void)state;
	hist_init(&h);
	assert_int_equal(hist_quantile(&h, 0.5), 0);
	assert_true(hist_mean(&h) == 0);
	hist_record(&other, 5);
	hist_merge(&other, &h);
	assert_int_equal(other.min, 5);
	assert_int_equal(other.count, 1);
	hist_merge(&h, &other);
	assert_int_equal(h.min, 5);
	hist_record_many(&h, 9, 0);
	assert_int_equal(h.count, 1);
}

/* Each bucket begins where the one before ends, and a value is in the bucket that covers it. */
static void test_buckets_tile_the_range(void **state)
{
	static struct hist h;

	(void)state;
	for (uint32_t i = 0; i < HIST_BUCKETS; i++) {
		uint64_t floor = hist_bucket_floor(i), end = hist_bucket_floor(i + 1);

		assert_true(floor < end);
		assert_true(end - floor <= 1 || (double)(end - floor) / (double)floor <= 1.0 / 32);
		hist_init(&h);
		hist_record(&h, floor);
		hist_record(&h, end - 1);
		assert_int_equal(h.buckets[i], 2);
	}
	assert_int_equal(hist_bucket_floor(HIST_BUCKETS), UINT64_C(1) << HIST_VALUE_BITS);
}

static void test_huge_values_keep_their_max(void **state)
{
	static struct hist h;

	(void)state;
	hist_init(&h);
	hist_record(&h, UINT64_MAX);
	hist_record(&h, UINT64_C(1) << HIST_VALUE_BITS);
	assert_int_equal(h.buckets[HIST_BUCKETS - 1], 2);
	assert_int_equal(hist_quantile(&h, 1), UINT64_MAX);
}

static void test_merge_equals_recording_all(void **state)
{
	static struct hist all, a, b;
	uint64_t seed = 7;

	(void)state;
	hist_init(&all);
	hist_init(&a);
	hist_init(&b);
	for (size_t i = 0; i < 1000; i++) {
		uint64_t value = next_random(&seed);

		hist_record(&all, value);
		hist_record(i % 3 ? &a : &b, value);
	}
	hist_merge(&a, &b);
	assert_memory_equal(&a, &all, sizeof(all));
	hist_record_many(&all, 100, 3);
	for (int i = 0; i < 3; i++)
		hist_record(&a, 100);
	assert_memory_equal(&a, &all, sizeof(all));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_quantiles_of_samples),
		cmocka_unit_test(test_ranks_are_exact),
		cmocka_unit_test(test_empty),
		cmocka_unit_test(test_buckets_tile_the_range),
		cmocka_unit_test(test_huge_values_keep_their_max),
		cmocka_unit_test(test_merge_equals_recording_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
