/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The writer of one context's index (abi/index.h): slots, buckets, growth. Readers in other
 * processes look at the same memory meanwhile; every store here is ordered for them.
 *
 * A slot comes from index_slot_alloc with state FREE; the caller fills its block line, then
 * index_insert makes it findable. index_remove takes it out of its bucket at once; the caller
 * gives the slot back with index_slot_free when all its pages are ABSENT again (X3).
 */
#ifndef TIERD_CORE_INDEX_H
#define TIERD_CORE_INDEX_H

#include <stdbool.h>

#include "libtier/abi/index.h"

struct index {
	struct abi_index_header *header;
	struct abi_event *event;
	struct abi_bucket *bucket;
	struct abi_bucket *overflow;
	struct abi_block *block;
	struct abi_page *page;
	uint32_t pages_per_block;
	uint64_t blocks_max;
	uint64_t slots_used;  /* ever handed out: slots [0, slots_used) have been touched */
	uint64_t slots_free;  /* in the free list, threaded through abi_block.parent */
	uint32_t free_head;
	uint64_t entries;     /* slots in buckets */
	uint64_t overflow_used;
	uint32_t overflow_free; /* 1 + first free overflow line; 0 = none */
};

/* Fill the offsets and sizes of a header for this geometry and number of blocks. */
void index_plan(struct abi_index_header *header, const struct abi_geometry *geometry,
		uint64_t blocks_max);

/* Format zero-filled memory of header->total_bytes: header, geometry, first bucket lines. */
void index_format(struct index *ix, void *memory, const struct abi_index_header *header,
		  const struct abi_geometry *geometry);

/* A free slot, or ABI_SLOT_NONE when all blocks_max are in use. */
uint32_t index_slot_alloc(struct index *ix);

/* All pages of the slot are ABSENT, and none has the last version: such a slot is never given. */
void index_slot_free(struct index *ix, uint32_t slot);

/* The slot holding the key, in whatever state; ABI_SLOT_NONE = none. */
uint32_t index_find(const struct index *ix, const uint8_t *key);

/* Soon it will be looked for: the memory where that begins is brought. */
void index_prefetch(const struct index *ix, const uint8_t *key);

/* Make a filled slot findable; grows the table. Errors: -ENOSPC chain limit (colliding keys). */
int index_insert(struct index *ix, uint32_t slot);

/* Take it out of its bucket, state = FREE, generation raised. The slot is not yet free for use. */
void index_remove(struct index *ix, uint32_t slot);

/* Publish a state of the block line (release). */
void index_block_state(struct index *ix, uint32_t slot, uint32_t state);

/*
 * Tell who follows the context what became of a block (events.c); slot ABI_SLOT_NONE with CLEARED.
 * The change has been made.
 */
void index_event(struct index *ix, uint32_t kind, uint32_t slot);

/* New epoch for readers (release). */
void index_epoch(struct index *ix, uint64_t epoch);

/* Bytes of shared memory that have been touched, but for page descriptors (descs.h). */
uint64_t index_bytes_used(const struct index *ix);

/*
 * The areas of an index, one behind the other; each one is used from its front on, and what was
 * used once counts as used. Offsets in its memory.
 */
#define INDEX_AREAS 4u
#define INDEX_DESCS 3u /* the last one; not all of its used part has memory */
struct index_area {
	uint64_t begin;
	uint64_t used; /* up to here */
	uint64_t end;
};
struct index_area index_area(const struct index *ix, uint32_t i);

static inline struct abi_block *index_block(const struct index *ix, uint32_t slot)
{
	return &ix->block[slot];
}

static inline struct abi_page *index_page(const struct index *ix, uint32_t slot, uint32_t page)
{
	return &ix->page[(uint64_t)slot * ix->pages_per_block + page];
}

#endif
