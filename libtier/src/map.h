/*
 * One context's shared memory as this process has it mapped: the index and the memory tiers, all
 * read-only. Sizes and offsets are copied once and checked against the mappings when it is made;
 * what is read from the index later (slots, addresses, chains) is checked against these copies at
 * each use, so that no value in shared memory can lead a reader outside.
 *
 * Made by context.c and attach.c; used by index_read.c, match.c, lease.c.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_SRC_MAP_H
#define TIER_SRC_MAP_H

#include <stdbool.h>
#include <stdint.h>
#include <tier.h>

#include "libtier/abi/index.h"
#include "libtier/abi/wire.h"
#include "libtier/base/atomic.h"
#include "libtier/base/list.h"

struct map_part {
	uint32_t page_base;
	uint32_t page_bytes;
	uint32_t page_stride;
	uint32_t hit_last; /* blocks of TIER_HIT_LAST; 0 = every block */
};

/* Constant once made, but for what the pointers point to. */
struct map {
	uint64_t number; /* of the attachment it belongs to */
	uint64_t uid;    /* of the context; each has another one */
	const struct abi_index_header *header;
	const struct abi_event *event; /* NULL: a daemon that writes none */
	const struct abi_block *block;
	const struct abi_page *page;
	const uint8_t *mem[ABI_MEM_TIERS];
	uint64_t mem_bytes[ABI_MEM_TIERS]; /* 0: none, no processor can read it, or some taken */
	uint32_t blocks_max;
	uint32_t pages_per_block;
	uint32_t context_id;
	uint32_t salt; /* folded into tier_block.generation: blocks of another boot are stale */
	uint32_t part_count;
	uint32_t parts_every; /* bit p: part p must be in every block */
	struct map_part part[ABI_PARTS_MAX];
	const struct abi_bucket *bucket;
	const struct abi_bucket *overflow;
	uint64_t buckets_max;
	uint64_t overflow_max;
	uint64_t gave_up_ns; /* index_read.c; atomic, the one member that readers write */
	bool writable;
	bool lost;        /* the context is not there any more: every look-up is a miss */
	struct list link; /* in its attachment; connection's lock */
	void *owner;      /* its tier_context, the first; connection's lock */
	uint32_t uses;    /* tier_contexts that have it, */
	uint64_t shared;  /* ... several, some time: its number; 0 = never; connection's lock */
	struct abi_geometry geometry;
	uint8_t fingerprint[32];
	void *index_base;
	uint64_t index_bytes;
	uint64_t mapped[ABI_MEM_TIERS]; /* bytes of mem */
	uint64_t tier_bytes[ABI_MEM_TIERS]; /* of addresses, mapped or not */
	int taken[ABI_MEM_TIERS];       /* by which it is watched (taken.h); < 0: not */
};

/* What came with CTX_INFO. */
struct map_source {
	const struct wire_ctx_info *info;
	const int *fd; /* index, then ABI_MEM_TIERS memories; stay the caller's */
	uint64_t boot_token;
	uint64_t number;
};

/*
 * Map and check. Errors: -EPROTO the daemon's numbers do not fit its memory (or another version),
 * -ENOMEM, or mmap's.
 */
int map_open(struct map **out, const struct map_source *source);

/* A map without anything in it, for a context that the daemon lost. Errors: -ENOMEM. */
int map_open_lost(struct map **out, const struct map *before, uint64_t number);

/* NULL is fine. Nobody may be reading it any more. */
void map_close(struct map *m);

/*
 * Map bytes of fd shared, kept out of forked children; large ones lie so that huge pages can map
 * them. Errors: negative errno.
 */
int map_shared(void **out, int fd, uint64_t bytes, int protection);

/* Some of the tier's memory was taken away (mem_bytes is 0): but is this there? */
bool map_is_left(const struct map *m, uint32_t level, uint64_t offset, uint32_t bytes);

/* The epoch as block lines carry it. */
static inline uint32_t map_epoch(const struct map *m)
{
	return (uint32_t)atomic_load_acquire_u64(&m->header->epoch);
}

/* Was the context removed? */
static inline bool map_closed(const struct map *m)
{
	return atomic_load_relaxed_u64(&m->header->closed) != 0;
}

/* The part of a page; page < pages_per_block. Contexts have one to three parts as a rule. */
static inline uint32_t map_part_of(const struct map *m, uint32_t page)
{
	uint32_t part = 0;

	while (part + 1 < m->part_count && page >= m->part[part + 1].page_base)
		part++;
	return part;
}

#endif
