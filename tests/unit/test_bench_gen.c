/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of a page: the same for the same key and number, different for any other, and every
 * wrong byte is found at its place, whatever the length and alignment.
 */
#include "bench/trace/gen.h"
#include "tests/lib/unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const tier_key key = { .bytes = { 1, 2, 3 } };

static void test_same_and_different(void **state)
{
	uint8_t a[4096], b[4096];
	tier_key other = key;

	(void)state;
	gen_page(a, sizeof(a), &key, 7);
	gen_page(b, sizeof(b), &key, 7);
	assert_memory_equal(a, b, sizeof(a));
	gen_page(b, sizeof(b), &key, 8);
	assert_memory_not_equal(a, b, 64);
	for (size_t i = 0; i < sizeof(other.bytes); i++) {
		other.bytes[i] ^= 1;
		assert_int_equal(gen_verify(a, sizeof(a), &other, 7, NULL), -EBADMSG);
		other.bytes[i] ^= 1;
	}
	assert_int_equal(gen_verify(a, sizeof(a), &key, 7, NULL), 0);
}

/* A shorter page is the beginning of a longer one: lengths with a tail agree with those without. */
static void test_lengths(void **state)
{
	static const size_t lengths[] = { 0, 1, 63, 64, 65, 127, 128, 500, 4095, 4096 };
	uint8_t all[4096], *page = malloc(4096 + 16);

	(void)state;
	assert_non_null(page);
	gen_page(all, sizeof(all), &key, 3);
	for (size_t i = 0; i < COUNT(lengths); i++)
		for (size_t skew = 0; skew < 16; skew += 5) {
			memset(page, 0xee, 4096 + 16);
			gen_page(page + skew, lengths[i], &key, 3);
			assert_memory_equal(page + skew, all, lengths[i]);
			assert_int_equal(page[skew + lengths[i]], 0xee);
			assert_int_equal(gen_verify(page + skew, lengths[i], &key, 3, NULL), 0);
		}
	free(page);
}

static void test_every_wrong_byte(void **state)
{
	uint8_t page[600];
	size_t at;

	(void)state;
	gen_page(page, sizeof(page), &key, 1);
	for (size_t i = 0; i < sizeof(page); i++) {
		page[i] ^= (uint8_t)(1u << i % 8);
		at = SIZE_MAX;
		assert_int_equal(gen_verify(page, sizeof(page), &key, 1, &at), -EBADMSG);
		assert_int_equal(at, i);
		page[i] ^= (uint8_t)(1u << i % 8);
	}
}

/* No page is all zero, and no two lines of it are the same: a torn or shifted page must show. */
static void test_lines_differ(void **state)
{
	uint8_t page[4096];

	(void)state;
	gen_page(page, sizeof(page), &key, 0);
	for (size_t i = 0; i < sizeof(page); i += 64)
		for (size_t k = i + 64; k < sizeof(page); k += 64)
			assert_memory_not_equal(page + i, page + k, 64);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_and_different),
		cmocka_unit_test(test_lengths),
		cmocka_unit_test(test_every_wrong_byte),
		cmocka_unit_test(test_lines_differ),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
