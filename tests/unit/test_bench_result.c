/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Medians and intervals, verdicts, and the rows that tierbench writes: an interval that spans the
 * goal must not become "met".
 */
#include "bench/result.h"
#include "bench/tick.h"
#include "tests/lib/unit.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void test_quantiles(void **state)
{
	double odd[] = { 5, 1, 3 }, even[] = { 4, 1, 3, 2 }, one[] = { 7 };

	(void)state;
	assert_true(sample_quantile(odd, 3, 0.5) == 3);
	assert_true(sample_quantile(even, 4, 0.5) == 2.5);
	assert_true(sample_quantile(even, 4, 0) == 1 && sample_quantile(even, 4, 1) == 4);
	assert_true(sample_quantile(one, 1, 0.99) == 7);
	assert_true(sample_quantile(NULL, 0, 0.5) == 0);
}

static void test_intervals(void **state)
{
	struct sample s = { 0 }, empty = { 0 };
	struct sample_summary a, b;

	(void)state;
	for (int i = 0; i < 9; i++)
		sample_add(&s, 100 + (i * 7) % 9);
	a = sample_summarise(&s);
	b = sample_summarise(&s);
	assert_true(a.median == 104);
	assert_true(a.low <= a.median && a.median <= a.high);
	assert_true(a.low >= 100 && a.high <= 108 && a.low < a.high);
	assert_memory_equal(&a, &b, sizeof(a));
	a = sample_summarise(&empty);
	assert_true(a.median == 0 && a.low == 0 && a.high == 0);
	for (uint32_t i = 0; i < 2 * SAMPLE_ROUNDS_MAX; i++)
		sample_add(&s, 1);
	assert_int_equal(s.count, SAMPLE_ROUNDS_MAX);
}

static void test_lowest_is_by_median(void **state)
{
	const struct sample s[] = {
		{ .value = { 3, 3, 3 }, .count = 3 },
		{ .value = { 0, 9, 9 }, .count = 3 }, /* once very low */
		{ .value = { 2, 7, 2 }, .count = 3 },
		{ .value = { 2, 2, 1 }, .count = 3 },
	};

	(void)state;
	assert_int_equal(sample_lowest(s, 4), 2);
	assert_int_equal(sample_lowest(s, 2), 0);
	assert_int_equal(sample_lowest(s, 1), 0);
}

static void test_ratio_is_by_round(void **state)
{
	struct sample value = { .value = { 2, 9, 8 }, .count = 3 };
	struct sample peer = { .value = { 1, 0, 2, 5 }, .count = 4 }, ratio;

	(void)state;
	ratio = sample_ratio(&value, &peer);
	assert_int_equal(ratio.count, 2);
	assert_true(ratio.value[0] == 2 && ratio.value[1] == 4);
}

static void test_verdicts(void **state)
{
	const struct bench_goal most = { BENCH_RATIO_AT_MOST, 3.5 };
	const struct bench_goal least = { BENCH_RATIO_AT_LEAST, 0.9 };
	char text[32];

	(void)state;
	assert_int_equal(bench_verdict_of(&most, 3, 3.5), BENCH_MET);
	assert_int_equal(bench_verdict_of(&most, 3.6, 4), BENCH_SHORT);
	assert_int_equal(bench_verdict_of(&most, 3, 4), BENCH_CANNOT_TELL);
	assert_int_equal(bench_verdict_of(&least, 0.9, 1), BENCH_MET);
	assert_int_equal(bench_verdict_of(&least, 0.5, 0.89), BENCH_SHORT);
	assert_int_equal(bench_verdict_of(&least, 0.89, 1), BENCH_CANNOT_TELL);
	assert_int_equal(bench_verdict_of(&least, NAN, NAN), BENCH_CANNOT_TELL);
	bench_goal_text(&most, text, sizeof(text));
	assert_string_equal(text, "ratio <= 3.5");
	bench_goal_text(&least, text, sizeof(text));
	assert_string_equal(text, "ratio >= 0.9");
}

static const struct bench_figure figure = {
	"lease", "one \"page\"", "ns", "chase", { BENCH_RATIO_AT_MOST, 3.5 }
};

/* Six rounds are too few, however clear they are. */
static void test_too_few_rounds(void **state)
{
	struct bench_results results = { 0 };
	struct sample value = { 0 }, peer = { 0 };

	(void)state;
	for (uint32_t i = 0; i < SAMPLE_ROUNDS_MIN; i++) {
		assert_int_equal(bench_judge(&results, &figure, &value, &peer), 0);
		assert_int_equal(results.row[i].verdict, BENCH_CANNOT_TELL);
		sample_add(&value, 200);
		sample_add(&peer, 100);
	}
	assert_int_equal(bench_judge(&results, &figure, &value, &peer), 0);
	assert_int_equal(results.row[SAMPLE_ROUNDS_MIN].verdict, BENCH_MET);
	assert_true(results.row[SAMPLE_ROUNDS_MIN].ratio == 2);
	bench_results_free(&results);
}

static const char *text_of(const json_t *row, const char *name)
{
	return json_string_value(json_object_get(row, name));
}

static void test_json(void **state)
{
	static const struct bench_plot plot = { "scale", "clients", "us" };
	const char *dir = getenv("TMPDIR");
	struct bench_results results = { 0 };
	char path[256];
	json_t *rows, *row;

	(void)state;
	snprintf(path, sizeof(path), "%s/rows.json", dir ? dir : "/tmp");
	assert_int_equal(bench_judge_exact(&results, &figure, 400, 100), 0);
	assert_int_equal(bench_judge_missing(&results, &figure, "no fio"), 0);
	assert_int_equal(bench_point(&results, &plot, "p50", 255, 0.25), 0);
	assert_int_equal(bench_write_json(&results, path), 0);
	rows = json_load_file(path, 0, NULL);
	assert_int_equal(json_array_size(rows), 3);
	row = json_array_get(rows, 0);
	assert_string_equal(text_of(row, "workload"), "scale");
	assert_string_equal(text_of(row, "curve"), "p50");
	assert_string_equal(text_of(row, "x_name"), "clients");
	assert_string_equal(text_of(row, "y_name"), "us");
	assert_true(json_number_value(json_object_get(row, "x")) == 255);
	assert_true(json_number_value(json_object_get(row, "y")) == 0.25);
	row = json_array_get(rows, 1);
	assert_string_equal(text_of(row, "workload"), "lease");
	assert_string_equal(text_of(row, "figure"), "one \"page\"");
	assert_string_equal(text_of(row, "verdict"), "short");
	assert_string_equal(text_of(row, "goal"), "ratio <= 3.5");
	assert_true(json_number_value(json_object_get(row, "ratio")) == 4);
	assert_true(json_number_value(json_object_get(row, "against_value")) == 100);
	assert_int_equal(json_array_size(json_object_get(row, "spread")), 2);
	row = json_array_get(rows, 2);
	assert_string_equal(text_of(row, "verdict"), "cannot tell");
	assert_true(json_is_null(json_object_get(row, "value")));
	json_decref(rows);
	unlink(path);
	assert_int_equal(bench_write_json(&results, "/nonexistent/rows.json"), -ENOENT);
	bench_results_free(&results);
}

static void test_tick(void **state)
{
	struct tick t;
	uint64_t from, to;

	(void)state;
	tick_calibrate(&t);
	assert_true(t.ns_per_tick > 0.01 && t.ns_per_tick < 1000);
	assert_true(t.overhead_ns >= 0 && t.overhead_ns < 100000);
	assert_true(t.resolution_ns > 0);
	from = tick_now();
	to = tick_now();
	assert_true(tick_ns(&t, from, to) >= 0);
	assert_true(tick_ns(&t, to, to) == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_quantiles),
		cmocka_unit_test(test_intervals),
		cmocka_unit_test(test_lowest_is_by_median),
		cmocka_unit_test(test_ratio_is_by_round),
		cmocka_unit_test(test_verdicts),
		cmocka_unit_test(test_too_few_rounds),
		cmocka_unit_test(test_json),
		cmocka_unit_test(test_tick),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
