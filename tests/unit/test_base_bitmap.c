/*
 * Bitmap scans against a plain array of flags, over every border of the words.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "libtier/base/bitmap.h"
#include "tests/lib/unit.h"

#include <string.h>

#define BITS 200

static size_t slow_find(const bool *flags, size_t end, size_t from, bool value)
{
	while (from < end && flags[from] != value)
		from++;
	return from < end ? from : end;
}

static size_t slow_run(const bool *flags, size_t end, size_t from, size_t count)
{
	for (; from + count <= end; from++)
		if (slow_find(flags, from + count, from, true) == from + count)
			return from;
	return end;
}

static void compare_all(const uint64_t *words, const bool *flags)
{
	for (size_t end = 0; end <= BITS; end += 7) {
		size_t set = 0;

		for (size_t i = 0; i < end; i++)
			set += flags[i];
		assert_int_equal(bitmap_count(words, end), set);
		for (size_t from = 0; from <= end; from += 3) {
			assert_int_equal(bitmap_find_set(words, end, from),
					 slow_find(flags, end, from, true));
			assert_int_equal(bitmap_find_clear(words, end, from),
					 slow_find(flags, end, from, false));
			for (size_t n = 1; n < 80; n += 13)
				assert_int_equal(bitmap_find_clear_run(words, end, from, n),
						 slow_run(flags, end, from, n));
		}
	}
}

static void test_agrees_with_flags(void **state)
{
	uint64_t words[BITMAP_WORDS(BITS)];
	bool flags[BITS];
	uint32_t seed = 1;

	(void)state;
	memset(words, 0, sizeof(words));
	memset(flags, 0, sizeof(flags));
	for (int step = 0; step < 60; step++) {
		size_t from, count;
		bool value = step % 2 == 0;

		seed = seed * 1664525 + 1013904223;
		from = (seed >> 8) % BITS;
		count = (seed >> 20) % (BITS - from + 1);
		(value ? bitmap_set_range : bitmap_clear_range)(words, from, count);
		for (size_t i = from; i < from + count; i++)
			flags[i] = value;
		for (size_t i = 0; i < BITS; i++)
			assert_int_equal(bitmap_test(words, i), flags[i]);
		compare_all(words, flags);
	}
}

static void test_single_bits(void **state)
{
	static const size_t bits[] = { 0, 1, 62, 63, 64, 65, 127, 128, 199 };
	uint64_t words[BITMAP_WORDS(BITS)];

	(void)state;
	for (size_t i = 0; i < COUNT(bits); i++) {
		memset(words, 0, sizeof(words));
		bitmap_set(words, bits[i]);
		assert_int_equal(bitmap_find_set(words, BITS, 0), bits[i]);
		assert_int_equal(bitmap_find_set(words, BITS, bits[i] + 1), BITS);
		assert_int_equal(bitmap_count(words, BITS), 1);
		bitmap_clear(words, bits[i]);
		assert_int_equal(bitmap_find_set(words, BITS, 0), BITS);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_agrees_with_flags),
		cmocka_unit_test(test_single_bits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
