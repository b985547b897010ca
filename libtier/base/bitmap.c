/*
 * Word-at-a-time bitmap scans; see bitmap.h for the contract.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "libtier/base/bitmap.h"

/* The bits of word number w that lie in from … end - 1. */
static uint64_t mask_of(size_t w, size_t from, size_t end)
{
	uint64_t mask = ~UINT64_C(0);

	if (w == from / 64)
		mask <<= from % 64;
	if (w == end / 64)
		mask &= (UINT64_C(1) << (end % 64)) - 1;
	return mask;
}

static void write_range(uint64_t *words, size_t from, size_t count, bool value)
{
	size_t end = from + count;

	for (size_t w = from / 64; w < BITMAP_WORDS(end) && count > 0; w++) {
		uint64_t mask = mask_of(w, from, end);

		words[w] = value ? words[w] | mask : words[w] & ~mask;
	}
}

void bitmap_set_range(uint64_t *words, size_t from, size_t count)
{
	write_range(words, from, count, true);
}

void bitmap_clear_range(uint64_t *words, size_t from, size_t count)
{
	write_range(words, from, count, false);
}

/* flip is all ones to look for clear bits, zero to look for set ones. */
static size_t find(const uint64_t *words, size_t end, size_t from, uint64_t flip)
{
	for (size_t w = from / 64; from < end && w < BITMAP_WORDS(end); w++) {
		uint64_t hits = (words[w] ^ flip) & mask_of(w, from, end);

		if (hits)
			return w * 64 + (size_t)__builtin_ctzll(hits);
	}
	return end;
}

size_t bitmap_find_set(const uint64_t *words, size_t end, size_t from)
{
	return find(words, end, from, 0);
}

size_t bitmap_find_clear(const uint64_t *words, size_t end, size_t from)
{
	return find(words, end, from, ~UINT64_C(0));
}

size_t bitmap_find_clear_run(const uint64_t *words, size_t end, size_t from, size_t count)
{
	while (from < end) {
		size_t start = bitmap_find_clear(words, end, from);
		size_t stop = bitmap_find_set(words, end, start);

		if (start < end && stop - start >= count)
			return start;
		from = stop;
	}
	return end;
}

size_t bitmap_count(const uint64_t *words, size_t end)
{
	size_t count = 0;

	for (size_t w = 0; w < BITMAP_WORDS(end); w++)
		count += (size_t)__builtin_popcountll(words[w] & mask_of(w, 0, end));
	return count;
}
