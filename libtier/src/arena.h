/*
 * The allocator of the staging arena: which bytes of it are in use. It never touches the arena
 * itself, which the daemon reads; its books are private memory. Put data is taken from the low end,
 * arguments from the high end, so that small short-lived pieces do not cut up the large ones.
 * No locking: the caller holds the connection's lock. Called by request.c and put.c.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_SRC_ARENA_H
#define TIER_SRC_ARENA_H

#include <stdint.h>

#define ARENA_ALIGN 4096u
#define ARENA_NONE UINT32_MAX

/* A run of free bytes. */
struct arena_extent {
	uint64_t start;
	uint64_t bytes;
	uint32_t next; /* by rising start; ARENA_NONE ends; also links unused nodes */
	uint32_t reserved;
};

struct arena {
	struct arena_extent *extent; /* extent_count nodes */
	uint32_t extent_count;
	uint32_t first;
	uint32_t unused;
	uint32_t allocations; /* at present; most: extent_count - 1 */
	uint64_t bytes;
	uint64_t used_bytes;
};

/*
 * All of [0, bytes) is free. allocations_max = most allocations at a time: its books are taken
 * here, and none later. Errors: -ENOMEM.
 */
int arena_init(struct arena *a, uint64_t bytes, uint32_t allocations_max);
void arena_fini(struct arena *a);

enum arena_end { ARENA_LOW, ARENA_HIGH };

/* The start of bytes (rounded up to ARENA_ALIGN) free bytes. -ENOBUFS: no run is long enough. */
int arena_alloc(struct arena *a, uint64_t bytes, enum arena_end end, uint64_t *start);

/* Give back what arena_alloc gave, with the same bytes. */
void arena_free(struct arena *a, uint64_t start, uint64_t bytes);

/* The longest run that is free. */
uint64_t arena_longest(const struct arena *a);

#endif
