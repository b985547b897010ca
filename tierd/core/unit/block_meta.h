/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the core keeps for each block, packed; a part of state.h. What only some blocks have at a
 * time is in block_use.h.
 */
#ifndef TIERD_CORE_BLOCK_META_H
#define TIERD_CORE_BLOCK_META_H

#include "libtier/abi/index.h"
#include "tierd/core/unit/block_use.h"
#include "tierd/core/place/prefix.h"

/* block_meta.persist: is there a copy on NVMe? */
#define PERSIST_NONE 0u    /* memory-only context, or pending */
#define PERSIST_QUEUED 1u  /* dirty: in its context's dirty list */
#define PERSIST_WRITING 2u /* part of a run under way */
#define PERSIST_CLEAN 3u   /* all pages are on NVMe: in its segment's list */
#define PERSIST_REFUSED 4u /* not worth a write (dirty.c): CXL has the only copy, in no list */
#define PERSIST_WANTED 5u  /* dirty, and written whatever the policy says */

#define BLOCK_HEAT_MAX 3u

/* block_meta.settle: is the copy in the durable log on the medium for sure? */
#define SETTLE_NONE 0u      /* yes; or there is none */
#define SETTLE_WRITTEN 1u   /* clean, waits for a flush: stays in CXL, to be written again */
#define SETTLE_RECOVERED 2u /* clean, its record was found: waits to be read (prove.c) */
#define SETTLE_UNKNOWN 3u   /* ... it could not be read: no durable answer before a restart */
#define SETTLE_SUSPECT 4u   /* dirty again, after a flush that failed */
#define SETTLE_MISREAD 5u   /* as NONE, in either log; but it could not be read from there since */

/* block_meta.flags */
#define BLOCK_DROPPED 1u    /* left the index; the slot waits for its pages */
#define BLOCK_DURABLE 2u    /* some put asked for durability: goes to the durable log */
#define BLOCK_SHARDED 4u    /* pending blocks outlive their writers until the deadline */
#define BLOCK_MOVING 8u     /* in a run of the cleaner */
#define BLOCK_AGAIN 16u     /* streamed twice in a short time: its pages are worth keeping */
#define BLOCK_UNRETIRED 32u /* dropped, in core.unretired: its pages are still to be retired */
/* dropped, in core.parents_leaving or waiting: its children are to follow */
#define BLOCK_LEAVING 64u

/* block_meta.keep: how eagerly the block is kept when room is short */
#define KEEP_PRIORITY 3u /* ABI_PRIORITY_* */
#define KEEP_TTL 4u      /* context.lapse_ms says when it becomes one of the first to go */

/*
 * What the daemon knows of a block beside its public line: 32 bytes, for each. What only some have
 * at a time is in block_use.h; what few contexts have at all, in arrays of struct context.
 */
struct block_meta {
	uint32_t prev, next; /* links of the one list it is in: pending, dirty, its segment's */
	uint32_t prev_ctx : 14, next_ctx : 14;
	uint32_t streamed : 1; /* context.streamed_ms is of this life */
	uint32_t brought : 3;  /* what policies are told of the put that brought it, as are: */
	uint32_t use : 30; /* its entry in context.uses; 0 = none */
	uint32_t heat : 2; /* times it was asked for since it was written, to BLOCK_HEAT_MAX */
	uint32_t joined : 1, last : 1;
	uint32_t tenant : 30; /* in context.tenants */
	struct {
		uint32_t pages : 17;  /* READY */
		uint32_t ordered : 1; /* inserted into that tier's policy */
		/* of its entry in context.siblings, a half; 0 = none */
		uint32_t sibling : SIBLING_BITS;
	} there[ABI_MEM_TIERS];
	uint16_t owner; /* account of the client that put it, in the core's ledger */
	uint16_t flags : 7, settle : 3, keep : 3, persist : 3;
};
_Static_assert(sizeof(struct block_meta) == 32, "two a cache line");
_Static_assert(ABI_CONTEXTS_MAX <= 1u << 14, "block_meta.prev_ctx");
_Static_assert(ABI_PAGES_PER_BLOCK_MAX < 1u << 17, "block_meta.there");
#define BLOCK_BROUGHT_MAX 7u

struct block_list {
	uint32_t head, tail; /* slots; ABI_SLOT_NONE = empty */
	uint16_t head_ctx, tail_ctx;
	uint32_t count;
};

/* Its entry in context.siblings; 0 = none. */
static inline uint32_t block_sibling(const struct block_meta *m)
{
	return m->there[0].sibling | (uint32_t)m->there[1].sibling << SIBLING_BITS;
}

#endif
