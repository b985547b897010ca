/*
 * A bitmap over words that the caller owns: the free slots of a table, the free slices of a tier.
 * Finding the next set or clear bit scans a word at a time. No locking, no allocation.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_BASE_BITMAP_H
#define TIER_BASE_BITMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The number of 64-bit words that hold count bits. */
#define BITMAP_WORDS(count) (((size_t)(count) + 63) / 64)

static inline bool bitmap_test(const uint64_t *words, size_t bit)
{
	return (words[bit / 64] >> (bit % 64)) & 1;
}

static inline void bitmap_set(uint64_t *words, size_t bit)
{
	words[bit / 64] |= UINT64_C(1) << (bit % 64);
}

static inline void bitmap_clear(uint64_t *words, size_t bit)
{
	words[bit / 64] &= ~(UINT64_C(1) << (bit % 64));
}

/* Sets / clears bits from … from + count - 1. */
void bitmap_set_range(uint64_t *words, size_t from, size_t count);
void bitmap_clear_range(uint64_t *words, size_t from, size_t count);

/* The first set / clear bit in from … end - 1; end when there is none. */
size_t bitmap_find_set(const uint64_t *words, size_t end, size_t from);
size_t bitmap_find_clear(const uint64_t *words, size_t end, size_t from);

/* The start of the first run of count clear bits in from … end - 1; end when there is none. */
size_t bitmap_find_clear_run(const uint64_t *words, size_t end, size_t from, size_t count);

/* How many of the bits 0 … end - 1 are set. */
size_t bitmap_count(const uint64_t *words, size_t end);

#endif
