/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of contexts: one index and one region a memory tier each, by the context's id.
 * Owns mappings and descriptors; decides nothing. Called by the loop thread only.
 */
#ifndef TIERD_MEMORY_H
#define TIERD_MEMORY_H

#include "tierd/backend/backend_ops.h"
#include "tierd/worker.h"

struct memory;

/* Regions of one context. A region without bytes is a tier that the context does not use. */
struct context_memory {
	uint32_t id;
	struct mem_region index;
	struct mem_region mem[ABI_MEM_TIERS];
	/* once retired */
	struct context_memory *next;
	uint64_t mark; /* mapped until the jobs up to here have ended */
};

/* ops: one a memory tier, NULL where the tier is not there. Errors: -ENOMEM. */
int memory_open(struct memory **out, const struct mem_ops *const ops[ABI_MEM_TIERS]);

/*
 * Unmaps everything that is left. A context that is there stays as it is for those who have it
 * mapped: their leases outlive us. One that is retired is emptied.
 */
void memory_close(struct memory *m);

/*
 * Make the regions of a planned context; not yet under an id.
 * Errors: -ENOMEM, -EMFILE, or the backend's.
 */
int memory_make(struct memory *m, const struct disk_context *spec,
		const struct core_context_plan *plan, struct context_memory **out);
uint64_t memory_unmake(struct memory *m, struct context_memory *made);
/* The same, but those who have it mapped keep it as it is. */
void memory_leave(struct memory *m, struct context_memory *made);

/*
 * What was made for the tier is replaced by a former daemon's, before the core has it. Takes the
 * descriptor on success. Errors: -EINVAL it is no memfd of ours of that length, or the tier has
 * none; those of mem_map.
 */
int memory_take(const struct memory *m, struct context_memory *made, uint32_t tier, int fd);

/* The core took it under this id. What a former context of its index left is retired. */
void memory_adopt(struct memory *m, uint32_t id, struct context_memory *made,
		  const struct worker_pool *workers);

/* The context is gone: unmap once every job submitted so far has ended (memory_reap). */
void memory_retire(struct memory *m, uint32_t id, const struct worker_pool *workers);
uint64_t memory_reap(struct memory *m, const struct worker_pool *workers);

/* Regions in files that it has, those that are being given up included, and their bytes of address
 * space. */
uint32_t memory_regions(const struct memory *m, uint64_t *bytes);

/* The first at *index or behind it, NULL = none; *index is then its own. */
const struct context_memory *memory_next(const struct memory *m, uint32_t *index);

/* NULL when there is no such context. */
const struct context_memory *memory_find(const struct memory *m, uint32_t id);

/*
 * Read-only descriptors for a client, of this number by which they are revoked: index, then the
 * memory tiers; a tier that is not used gets one of /dev/null. The caller closes them.
 * Errors: -ENOENT, -EMFILE.
 */
int memory_grant(const struct memory *m, uint32_t id, uint64_t client,
		 int fd[1 + ABI_MEM_TIERS]);

/* For a device of a client: as mem_ops.lend. Errors: also -ENOENT. */
int memory_lend(const struct memory *m, const struct core_range *range, int *fd, uint32_t *count);
/* The right to write a range of a context: as mem_ops.grant. */
int memory_grant_write(const struct memory *m, const struct core_range *range);

/*
 * The client of this number reads no more through what it was granted, where a tier's memory can be
 * taken back: *tiers has a bit for each in which it reads nothing now. Returns how many pieces of
 * ABI_HUGE somebody's device may still read, so that a tier's bit is missing: ask again.
 */
uint32_t memory_revoke(const struct memory *m, uint64_t client, uint32_t *tiers);

#endif
