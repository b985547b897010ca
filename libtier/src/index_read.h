/*
 * Reading the index of a context while the daemon writes it: the look-up of libtier/abi/index.h,
 * for one key, and in four stages for many, so that a caller overlaps the misses of a batch.
 *
 * Calls the system only to nap, a bounded number of times, while the daemon stands in the middle of
 * writing the bucket; whatever bytes it meets it stays inside the map. For match.c and lease.c.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_SRC_INDEX_READ_H
#define TIER_SRC_INDEX_READ_H

#include <stddef.h>
#include <string.h>

#include "libtier/src/map.h"

/* A block line as it was at one moment of its life. */
struct index_found {
	uint32_t slot;
	uint32_t generation;
	uint32_t state; /* ABI_BLOCK_PENDING or ABI_BLOCK_COMMITTED */
	uint32_t epoch;
	uint32_t parts;
	uint32_t tier;
};

#define INDEX_NO_PAGE UINT32_MAX

/*
 * Find a key. page, or INDEX_NO_PAGE: its descriptor starts to be fetched as soon as the slot is
 * likely. false: no such block, or the bucket was being written for all of ABI_READ_NAPS.
 */
bool index_read_find(const struct map *m, const uint8_t *key, uint32_t page,
		     struct index_found *out);

/* Buckets in use at this moment; 0 when the context is closed or the count is out of bounds. */
static inline uint64_t index_read_buckets(const struct map *m)
{
	uint64_t count = atomic_load_acquire_u64(&m->header->bucket_count);

	return count > m->buckets_max || map_closed(m) ? 0 : count;
}

/* The entries of a line whose tag is equal: a set of bits (abi_tags_equal). */
static inline uint32_t index_equal_tags(const struct abi_bucket *b, uint16_t tag)
{
	const uint32_t *word = (const uint32_t *)(const void *)b->tag;
	const uint32_t copy[] = {
		atomic_load_relaxed_u32(&word[0]), atomic_load_relaxed_u32(&word[1]),
		atomic_load_relaxed_u32(&word[2]), atomic_load_relaxed_u32(&word[3]),
		atomic_load_relaxed_u32(&word[4]),
	};

	_Static_assert(offsetof(struct abi_bucket, tag) % sizeof(*word) == 0, "tags fill words");
	return abi_tags_equal(copy, tag);
}

/* The block line, if it is this key's, within one life of the slot. */
enum index_outcome { INDEX_FOUND, INDEX_ABSENT, INDEX_CHANGED };

static inline bool index_equal_keys(const struct abi_block *block, const uint8_t *key)
{
	const uint64_t *stored = (const uint64_t *)(const void *)block->key;
	uint64_t wanted[ABI_KEY_BYTES / 8];
	uint64_t differ = 0;

	memcpy(wanted, key, sizeof(wanted));
	for (uint32_t i = 0; i < ABI_KEY_BYTES / 8; i++)
		differ |= atomic_load_relaxed_u64(&stored[i]) ^ wanted[i];
	return differ == 0;
}

static inline enum index_outcome index_read_block(const struct map *m, uint32_t slot,
						  const uint8_t *key, struct index_found *out)
{
	const struct abi_block *b = &m->block[slot];

	out->slot = slot;
	out->generation = atomic_load_acquire_u32(&b->generation);
	if (!index_equal_keys(b, key))
		return INDEX_ABSENT;
	out->state = atomic_load_acquire_u32(&b->state);
	out->epoch = atomic_load_relaxed_u32(&b->epoch);
	out->parts = atomic_load_relaxed_u32(&b->parts);
	out->tier = atomic_load_relaxed_u32(&b->tier);
	/* The members before the second look at generation. */
	acquire_fence();
	if (atomic_load_relaxed_u32(&b->generation) != out->generation)
		return INDEX_CHANGED;
	if (out->state != ABI_BLOCK_PENDING && out->state != ABI_BLOCK_COMMITTED)
		return INDEX_ABSENT;
	return INDEX_FOUND;
}

/* ---- a look-up in stages; between two of them, do the same stage of other keys -------------- */

struct index_probe {
	const struct abi_bucket *bucket; /* the chain's head; NULL: nothing is to be found */
	const struct abi_bucket *line;   /* on its way, to be read in the next stage; NULL = none */
	uint64_t hash;
	uint32_t seq;
	uint32_t slot; /* the likely one, or one of the two below */
};
#define INDEX_PROBE_NONE ABI_SLOT_NONE       /* in no line, and no line is left */
#define INDEX_PROBE_SLOW (ABI_SLOT_NONE - 1) /* left to index_read_find */

static inline void index_read_start(const struct map *m, uint64_t buckets, const uint8_t *key,
				    struct index_probe *p)
{
	p->hash = abi_key_hash(key);
	p->bucket = NULL;
	if (buckets == 0)
		return;
	p->bucket = &m->bucket[abi_bucket_of(p->hash, buckets)];
	prefetch_read(p->bucket);
}

/* One line's tags; the block line that they point at, or the next line, is on its way then. */
static inline void index_read_line(const struct map *m, const struct abi_bucket *line,
				   struct index_probe *p)
{
	uint32_t equal = index_equal_tags(line, abi_key_tag(p->hash));
	uint32_t next;

	p->line = NULL;
	if (equal) {
		p->slot = atomic_load_relaxed_u32(&line->slot[__builtin_ctz(equal)]);
		if (p->slot < m->blocks_max)
			prefetch_read(&m->block[p->slot]);
		else
			p->slot = INDEX_PROBE_SLOW;
		return;
	}
	next = atomic_load_relaxed_u32(&line->overflow);
	p->slot = next ? INDEX_PROBE_SLOW : INDEX_PROBE_NONE;
	if (next == 0 || next > m->overflow_max)
		return;
	p->line = &m->overflow[next - 1];
	prefetch_read(p->line);
}

static inline void index_read_tags(const struct map *m, struct index_probe *p)
{
	p->line = NULL;
	p->slot = INDEX_PROBE_NONE;
	if (!p->bucket)
		return;
	p->seq = atomic_load_acquire_u32(&p->bucket->seq);
	index_read_line(m, p->bucket, p);
}

/* Keys whose entry is not in the head line. A third line, which few chains have, is read slowly. */
static inline void index_read_overflow(const struct map *m, struct index_probe *p)
{
	if (p->line)
		index_read_line(m, p->line, p);
}

/* Any answer that two lines of the chain and one block line do not give. */
bool index_read_slowly(const struct map *m, uint64_t buckets, const uint8_t *key,
		       const struct index_probe *p, struct index_found *out);

static inline bool index_read_finish(const struct map *m, uint64_t buckets, const uint8_t *key,
				     const struct index_probe *p, struct index_found *out)
{
	if (p->slot < m->blocks_max && index_read_block(m, p->slot, key, out) == INDEX_FOUND)
		return true;
	return index_read_slowly(m, buckets, key, p, out);
}

#endif
