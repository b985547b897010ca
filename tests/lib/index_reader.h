/*
 * A reader of the index that follows the numbered steps of abi/index.h and nothing else: what the
 * tests of the writer hold it against. A look-up is cut in two, so that a test may let the writer
 * go on between what was read and the second look that judges it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_TESTS_INDEX_READER_H
#define TIER_TESTS_INDEX_READER_H

#include <stdbool.h>

#include "libtier/base/atomic.h"
#include "tierd/core/unit/index.h"

#define READER_CHAIN_BOUND 64u /* lines of a walk through a chain that changes meanwhile */

enum reader_answer { READER_FOUND, READER_MISS, READER_RETRY };

struct reader_look {
	uint64_t count; /* of buckets, at the beginning */
	uint32_t seq;   /* of the head line, at the beginning */
	const struct abi_bucket *head;
	/* what was found, in whatever state the chain was */
	bool found;
	uint32_t slot, generation, depth, state;
};

static inline bool reader_key_equal(const struct abi_block *block, const uint64_t *key)
{
	const uint64_t *word = (const void *)block->key;
	bool equal = true;

	for (uint32_t i = 0; i < ABI_KEY_BYTES / 8; i++)
		equal = atomic_load_relaxed_u64(&word[i]) == key[i] && equal;
	return equal;
}

static inline uint16_t reader_tag(const struct abi_bucket *line, uint32_t i)
{
	const uint32_t *pair = (const void *)&line->tag[i & ~1u];

	return (uint16_t)(atomic_load_relaxed_u32(pair) >> i % 2 * 16);
}

static inline bool reader_line(const struct index *ix, const struct abi_bucket *line,
			       const uint64_t *key, struct reader_look *look)
{
	uint16_t tag = abi_key_tag(abi_key_hash((const uint8_t *)key));

	for (uint32_t i = 0; i < ABI_BUCKET_SLOTS; i++) {
		uint32_t slot = atomic_load_relaxed_u32(&line->slot[i]);
		const struct abi_block *block = &ix->block[slot];

		if (slot == ABI_SLOT_NONE || reader_tag(line, i) != tag ||
		    !reader_key_equal(block, key))
			continue;
		look->slot = slot;
		look->generation = atomic_load_relaxed_u32(&block->generation);
		look->depth = atomic_load_relaxed_u32(&block->depth);
		look->state = atomic_load_relaxed_u32(&block->state);
		return true;
	}
	return false;
}

/* Steps 1 and 2 up to the second look. */
static inline void reader_begin(const struct index *ix, const uint64_t *key,
				struct reader_look *look)
{
	uint64_t hash = abi_key_hash((const uint8_t *)key);
	const struct abi_bucket *line;
	uint32_t next;

	*look = (struct reader_look){ .slot = ABI_SLOT_NONE };
	look->count = atomic_load_acquire_u64(&ix->header->bucket_count);
	look->head = line = &ix->bucket[abi_bucket_of(hash, look->count)];
	look->seq = atomic_load_acquire_u32(&look->head->seq);
	for (uint32_t n = 0; n < READER_CHAIN_BOUND && look->seq % 2 == 0; n++) {
		look->found = reader_line(ix, line, key, look);
		next = atomic_load_relaxed_u32(&line->overflow);
		if (look->found || !next)
			break;
		line = &ix->overflow[next - 1];
	}
}

/* The second look, and step 3. */
static inline enum reader_answer reader_end(const struct index *ix, const struct reader_look *look)
{
	acquire_fence();
	if (look->seq % 2 || atomic_load_relaxed_u32(&look->head->seq) != look->seq)
		return READER_RETRY;
	if (look->found)
		return READER_FOUND;
	if (atomic_load_acquire_u64(&ix->header->bucket_count) != look->count)
		return READER_RETRY;
	return READER_MISS;
}

/* READER_RETRY: gave up. */
static inline enum reader_answer reader_find(const struct index *ix, const uint64_t *key,
					     struct reader_look *look)
{
	enum reader_answer answer = READER_RETRY;

	for (uint32_t i = 0; i < ABI_READ_RETRIES && answer == READER_RETRY; i++) {
		reader_begin(ix, key, look);
		answer = reader_end(ix, look);
	}
	return answer;
}

#endif
