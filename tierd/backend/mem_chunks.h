/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tiers in the memory of a device have in common: the memory is chunks of ABI_HUGE; a
 * region is addresses that no processor can touch, and a table from its areas to chunks. A backend
 * adds the chunks, what it takes for one to hold other bytes, and the copies, which translate.
 * Called by cuda.c and cxl_sim.c.
 */
#ifndef TIERD_BACKEND_MEM_CHUNKS_H
#define TIERD_BACKEND_MEM_CHUNKS_H

#include "libtier/base/list.h"
#include "libtier/base/lock.h"
#include "tierd/backend/mem_common.h"

#define MEM_NO_CHUNK UINT32_MAX

struct mem_chunks {
	struct mem_ops ops; /* first: what the slots get is this */
	/* Which of the unused, by its place in the stack, suits this owner; the lock is held. */
	uint32_t (*choose)(const struct mem_chunks *m, uint32_t owner);
	/* The chunk, which nobody has, is going to hold this owner's bytes. Without the lock. */
	int (*empty)(struct mem_chunks *m, uint32_t chunk, uint32_t owner);
	struct lock lock;
	struct list regions GUARDED_BY(lock);
	uint32_t *unused GUARDED_BY(lock); /* chunks, a stack */
	uint32_t unused_count GUARDED_BY(lock);
};

/* Of a region; guarded by the lock. */
struct mem_private {
	struct mem_chunks *chunks;
	struct list link;
	void *reserved; /* addresses, around addr */
	uint8_t *addr;
	uint64_t bytes;
	uint32_t backed;  /* areas that have a chunk */
	uint32_t chunk[]; /* by area of ABI_HUGE */
};

/* With these slots, and no chunks; the caller sets both functions. Errors: lock_init's. */
int mem_chunks_begin(struct mem_chunks *m, const struct mem_ops *ops);
/* So many chunks, all unused; once. Errors: -ENOMEM. */
int mem_chunks_fill(struct mem_chunks *m, uint32_t count);
void mem_chunks_end(struct mem_chunks *m);

/* Slots of mem_ops. Ranges are checked: -EINVAL. No processor maps a region: nothing is shared. */
int mem_chunks_create(const struct mem_ops *self, struct mem_region *region, const char *label,
		      uint64_t bytes);
int mem_chunks_share(const struct mem_region *region, uint64_t client);
void mem_chunks_destroy(struct mem_region *region); /* and to leave it to others is the same */
int mem_chunks_prepare(const struct mem_region *region, uint64_t offset, uint64_t bytes);
int mem_chunks_punch(const struct mem_region *region, uint64_t offset, uint64_t bytes);
int64_t mem_chunks_resident(const struct mem_region *region);

/* Give the area a chunk if it has none. Errors: -ENOMEM none is unused; those of empty(). */
int mem_chunks_back(struct mem_private *own, uint64_t area, uint32_t owner);

/* The region that has this address; NULL. */
struct mem_private *mem_chunks_at(struct mem_chunks *m, const void *addr) REQUIRES(m->lock);

#endif
