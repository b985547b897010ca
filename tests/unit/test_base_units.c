/*
 * Human units: what is read, what is refused and with which errno, and how values print.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "libtier/base/units.h"
#include "tests/lib/unit.h"

#include <errno.h>

struct bytes_case {
	const char *text;
	int rc;
	uint64_t bytes;
};

static void test_bytes(void **state)
{
	static const struct bytes_case cases[] = {
		{ "0", 0, 0 },
		{ "4096", 0, 4096 },
		{ "17B", 0, 17 },
		{ "64KiB", 0, 65536 },
		{ "512MiB", 0, UINT64_C(512) << 20 },
		{ "2.5GiB", 0, UINT64_C(5) << 29 },
		{ "2.5 gib", 0, UINT64_C(5) << 29 },
		{ "0.125KiB", 0, 128 },
		{ "1TB", 0, UINT64_C(1000000000000) },
		{ "1.5kB", 0, 1500 },
		{ "134GiB", 0, UINT64_C(134) << 30 },
		{ "1KB", 0, 1000 },
		{ "3MB", 0, 3000000 },
		{ "3GB", 0, UINT64_C(3000000000) },
		{ "3PB", 0, UINT64_C(3000000000000000) },
		{ "3MiB", 0, UINT64_C(3) << 20 },
		{ "3TiB", 0, UINT64_C(3) << 40 },
		{ "16383PiB", 0, UINT64_C(16383) << 50 },
		{ "16384PiB", -ERANGE, 0 },
		{ "18446744073709551615", 0, UINT64_MAX },
		{ "18446744073709551616", -ERANGE, 0 },
		{ "99999999999999999999999999", -ERANGE, 0 },
		{ "", -EINVAL, 0 },
		{ "MiB", -EINVAL, 0 },
		{ "-1", -EINVAL, 0 },
		{ "+1", -EINVAL, 0 },
		{ "1.", -EINVAL, 0 },
		{ ".5GiB", -EINVAL, 0 },
		{ "1.5.5", -EINVAL, 0 },
		{ "1e9", -EINVAL, 0 },
		{ "0x10", -EINVAL, 0 },
		{ "5G", -EINVAL, 0 },
		{ "5GiBs", -EINVAL, 0 },
		{ "5GiB ", -EINVAL, 0 },
		{ "10%", -EINVAL, 0 },
		{ "auto", -EINVAL, 0 },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(cases); i++) {
		uint64_t bytes = 0;

		assert_int_equal(units_parse_bytes(cases[i].text, &bytes), cases[i].rc);
		assert_int_equal(bytes, cases[i].bytes);
	}
}

static uint64_t resolve(const char *text, uint64_t total)
{
	struct units_size size;

	assert_int_equal(units_parse_size(text, &size), 0);
	return units_resolve(&size, total, 777);
}

static void test_sizes(void **state)
{
	struct units_size size = { .kind = UNITS_BYTES, .value = 5 };

	(void)state;
	assert_int_equal(resolve("10%", 1000), 100);
	assert_int_equal(resolve("12.5%", UINT64_C(1) << 40), UINT64_C(1) << 37);
	assert_int_equal(resolve("100%", UINT64_MAX), UINT64_MAX);
	assert_int_equal(resolve("0%", 1000), 0);
	assert_int_equal(resolve("auto", 1000), 777);
	assert_int_equal(resolve("AUTO", 1000), 777);
	assert_int_equal(resolve("1MiB", 1000), 1 << 20);
	assert_int_equal(units_parse_size("100.001%", &size), -ERANGE);
	assert_int_equal(units_parse_size("16384PiB", &size), -ERANGE);
	assert_int_equal(units_parse_size("automatic", &size), -EINVAL);
	assert_int_equal(units_parse_size("ten%", &size), -EINVAL);
	assert_int_equal(units_parse_size("", &size), -EINVAL);
	assert_int_equal(size.kind, UNITS_BYTES);
	assert_int_equal(size.value, 5);
}

static void test_durations(void **state)
{
	static const struct bytes_case cases[] = {
		{ "0", 0, 0 },
		{ "250ns", 0, 250 },
		{ "1.5us", 0, 1500 },
		{ "20ms", 0, 20000000 },
		{ "20 ms", 0, 20000000 },
		{ "3s", 0, UINT64_C(3000000000) },
		{ "2min", 0, UINT64_C(120000000000) },
		{ "1h", 0, UINT64_C(3600000000000) },
		{ "0.5ns", 0, 0 },
		{ "5", -EINVAL, 0 },
		{ "5m", -EINVAL, 0 },
		{ "-5s", -EINVAL, 0 },
		{ "5124096h", -ERANGE, 0 },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(cases); i++) {
		uint64_t ns = 0;

		assert_int_equal(units_parse_ns(cases[i].text, &ns), cases[i].rc);
		assert_int_equal(ns, cases[i].bytes);
	}
}

static void test_prints_bytes(void **state)
{
	char text[UNITS_TEXT_BYTES];

	(void)state;
	assert_string_equal(units_print_bytes(text, 0), "0 B");
	assert_string_equal(units_print_bytes(text, 1023), "1023 B");
	assert_string_equal(units_print_bytes(text, 1024), "1.00 KiB");
	assert_string_equal(units_print_bytes(text, 65536), "64.0 KiB");
	assert_string_equal(units_print_bytes(text, UINT64_C(3) << 29), "1.50 GiB");
	assert_string_equal(units_print_bytes(text, UINT64_C(134) << 30), "134 GiB");
	assert_string_equal(units_print_bytes(text, (UINT64_C(1) << 20) - 1), "1.00 MiB");
	assert_string_equal(units_print_bytes(text, 10239), "10.0 KiB");
	assert_string_equal(units_print_bytes(text, UINT64_MAX), "16.0 EiB");
}

static void test_prints_times_and_rates(void **state)
{
	char text[UNITS_TEXT_BYTES];

	(void)state;
	assert_string_equal(units_print_ns(text, 18), "18 ns");
	assert_string_equal(units_print_ns(text, 224), "224 ns");
	assert_string_equal(units_print_ns(text, 1270), "1.27 us");
	assert_string_equal(units_print_ns(text, 477000), "477 us");
	assert_string_equal(units_print_ns(text, 999999), "1.00 ms");
	assert_string_equal(units_print_ns(text, UINT64_C(90000000000)), "90.0 s");
	assert_string_equal(units_print_ns(text, UINT64_C(599000000000)), "599 s");
	assert_string_equal(units_print_ns(text, UINT64_C(3600000000000)), "60.0 min");
	assert_string_equal(units_print_ns(text, UINT64_C(43200000000000)), "12.0 h");
	assert_string_equal(units_print_ns(text, UINT64_C(8640000000000000)), "100.0 d");
	assert_string_equal(units_print_ns(text, UINT64_MAX), "213504.0 d");
	assert_string_equal(units_print_rate(text, 25.0 * (1 << 30)), "25.0 GiB/s");
	assert_string_equal(units_print_rate(text, 0), "0 B/s");
	assert_string_equal(units_print_count(text, 760000), "760 K");
	assert_string_equal(units_print_count(text, 12), "12");
	assert_string_equal(units_print_count(text, 1200000), "1.20 M");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bytes),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_durations),
		cmocka_unit_test(test_prints_bytes),
		cmocka_unit_test(test_prints_times_and_rates),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
