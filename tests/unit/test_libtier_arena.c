/*
 * The staging arena's allocator against a plain map of its pages.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "libtier/src/arena.h"
#include "tests/lib/unit.h"

#define PAGES 256u
#define BYTES (PAGES * (uint64_t)ARENA_ALIGN)
#define PIECES_MAX 64u

static void test_ends_and_merging(void **state)
{
	struct arena a;
	uint64_t low, high, mid;

	(void)state;
	assert_int_equal(arena_init(&a, BYTES + 100, PIECES_MAX), 0);
	assert_int_equal(arena_longest(&a), BYTES);
	assert_int_equal(arena_alloc(&a, 1, ARENA_LOW, &low), 0);
	assert_int_equal(low, 0);
	assert_int_equal(arena_alloc(&a, 4097, ARENA_HIGH, &high), 0);
	assert_int_equal(high, BYTES - 8192);
	assert_int_equal(arena_alloc(&a, BYTES, ARENA_LOW, &mid), -ENOBUFS);
	assert_int_equal(arena_alloc(&a, 0, ARENA_LOW, &mid), -ENOBUFS);
	assert_int_equal(arena_alloc(&a, UINT64_MAX, ARENA_LOW, &mid), -ENOBUFS);
	assert_int_equal(arena_alloc(&a, BYTES - 3 * 4096, ARENA_LOW, &mid), 0);
	assert_int_equal(mid, 4096);
	assert_int_equal(a.used_bytes, BYTES);
	assert_int_equal(arena_longest(&a), 0);
	arena_free(&a, low, 1);
	arena_free(&a, high, 4097);
	assert_int_equal(arena_longest(&a), 8192);
	arena_free(&a, mid, BYTES - 3 * 4096);
	assert_int_equal(arena_longest(&a), BYTES);
	assert_int_equal(a.used_bytes, 0);
	arena_fini(&a);
}

/* Requests' arguments come from the last extent that fits, puts' bytes from the first. */
static void test_either_end_of_many(void **state)
{
	struct arena a;
	uint64_t at[4], low, high;

	(void)state;
	assert_int_equal(arena_init(&a, BYTES, PIECES_MAX), 0);
	for (uint32_t i = 0; i < COUNT(at); i++)
		assert_int_equal(arena_alloc(&a, 4096, ARENA_LOW, &at[i]), 0);
	arena_free(&a, at[0], 4096);
	arena_free(&a, at[2], 4096);
	assert_int_equal(arena_alloc(&a, BYTES - 4 * 4096, ARENA_HIGH, &high), 0);
	assert_int_equal(high, 4 * 4096);
	assert_int_equal(arena_alloc(&a, 1, ARENA_HIGH, &high), 0);
	assert_int_equal(high, at[2]);
	assert_int_equal(arena_alloc(&a, 1, ARENA_LOW, &low), 0);
	assert_int_equal(low, at[0]);
	arena_fini(&a);
}

static void test_the_books_are_bounded(void **state)
{
	struct arena a;
	uint64_t at[PIECES_MAX + 1];

	(void)state;
	assert_int_equal(arena_init(&a, BYTES, PIECES_MAX), 0);
	for (uint32_t i = 0; i < PIECES_MAX; i++)
		assert_int_equal(arena_alloc(&a, 1, ARENA_LOW, &at[i]), 0);
	assert_int_equal(arena_alloc(&a, 1, ARENA_LOW, &at[PIECES_MAX]), -ENOBUFS);
	/* As many extents as there can be. */
	for (uint32_t i = 0; i < PIECES_MAX; i += 2)
		arena_free(&a, at[i], 1);
	for (uint32_t i = 1; i < PIECES_MAX; i += 2)
		arena_free(&a, at[i], 1);
	assert_int_equal(arena_longest(&a), BYTES);
	arena_fini(&a);
}

struct piece {
	uint64_t start;
	uint64_t bytes;
};

/* The pages of a piece, which must all have been in the other state. */
static void mark(bool *used, const struct piece *p, bool value)
{
	uint64_t pages = (p->bytes + ARENA_ALIGN - 1) / ARENA_ALIGN;

	for (uint64_t i = 0; i < pages; i++) {
		assert_true(used[p->start / ARENA_ALIGN + i] != value);
		used[p->start / ARENA_ALIGN + i] = value;
	}
}

static uint64_t longest_clear(const bool *used)
{
	uint64_t longest = 0, run = 0;

	for (uint32_t i = 0; i < PAGES; i++) {
		run = used[i] ? 0 : run + 1;
		longest = run > longest ? run : longest;
	}
	return longest * ARENA_ALIGN;
}

static void test_random_use(void **state)
{
	static bool used[PAGES];
	struct piece piece[PIECES_MAX];
	uint32_t count = 0, seed = 1;
	struct arena a;

	(void)state;
	assert_int_equal(arena_init(&a, BYTES, PIECES_MAX), 0);
	for (uint32_t round = 0; round < 200000; round++) {
		uint32_t r = (seed = seed * 1664525 + 1013904223) >> 8;
		struct piece *p = &piece[count];

		if (r % 3 != 0 && count < PIECES_MAX) {
			p->bytes = 1 + (r >> 4) % (12 * ARENA_ALIGN);
			if (arena_alloc(&a, p->bytes, r & 4 ? ARENA_HIGH : ARENA_LOW, &p->start)) {
				assert_true(longest_clear(used) < p->bytes);
				continue;
			}
			mark(used, p, true);
			count++;
		} else if (count > 0) {
			p = &piece[r % count];
			mark(used, p, false);
			arena_free(&a, p->start, p->bytes);
			*p = piece[--count];
		}
		if (round % 64 == 0)
			assert_int_equal(arena_longest(&a), longest_clear(used));
	}
	arena_fini(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ends_and_merging),
		cmocka_unit_test(test_either_end_of_many),
		cmocka_unit_test(test_the_books_are_bounded),
		cmocka_unit_test(test_random_use),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
