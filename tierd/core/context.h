/* SPDX-License-Identifier: Apache-2.0 */
/* A context: what the core keeps of it and, by slot, of its blocks. */
#ifndef TIERD_CORE_CONTEXT_H
#define TIERD_CORE_CONTEXT_H

#include "tierd/core/book/lane.h"
#include "tierd/core/core.h"
#include "tierd/core/hint/conversation.h"
#include "tierd/core/log/writeback.h"
#include "tierd/core/unit/block_meta.h"
#include "tierd/core/unit/descs.h"
#include "tierd/core/unit/former.h"
#include "tierd/core/unit/index.h"
#include "tierd/core/unit/ledger.h"
#include "tierd/core/unit/meter.h"
#include "tierd/core/unit/policy_ops.h"
#include "tierd/core/unit/space.h"
#include "tierd/core/unit/tenants.h"

#define CONTEXT_TABLES 24u /* of its own, at most, but those of lanes */
#define CONTEXT_SALTS 256u /* accounts a context: that of no salt, of "other", and of salts */

/* abi_page.streams: how many streams count on the page, and whether its place is the pool's. */
#define STREAMS_POOL 0x8000u

struct context {
	bool used;
	bool closing;  /* removal under way */
	bool leaving;  /* ... and not all that clients had of it has ended */
	struct meter_pass conversations_leave, pins_leave;
	bool listed;   /* a durable catalog names it: only then can it be found */
	bool listing;  /* ... the catalog being written does */
	uint64_t epoch_listed, epoch_listing; /* the epochs that these say */
	bool sweeping; /* blocks of old epochs may still be there */
	uint32_t id;    /* as clients know it: index and generation */
	uint32_t index; /* in core.context, bitmaps, lists, hazard words */
	uint32_t attached;
	uint32_t lent; /* slabs that devices have, by client, and of places that puts have */
	uint32_t sweep_slot;
	uint64_t epoch_seen; /* highest in any record: a raised epoch that a crash undid */
	struct disk_context spec;
	struct core_context_plan plan;
	struct core_context_memory memory;
	struct index ix;
	struct former *left; /* while a daemon takes over; else NULL */
	struct descs descs; /* of its pages: which have memory */
	struct block_meta *meta;
	struct block_uses uses;
	struct siblings siblings;
	struct tenants tenants;
	uint32_t *lapse_ms;    /* by slot, of those with KEEP_TTL; touched only for them */
	uint32_t *streamed_ms; /* by slot: last asked for by a stream, if any did; likewise */
	uint32_t lapse_high, streamed_high; /* what was touched of either: slots below */
	struct space *space[ABI_MEM_TIERS]; /* NULL = tier not used */
	struct lanes lanes;   /* its policy's instances */
	struct lanes *former; /* of the policy before, while blocks go over (swap.c); NULL = none */
	uint32_t swapped;     /* ... slots below have gone */
	uint8_t *page_part; /* page number -> part */
	uint32_t part_class[ABI_PARTS_MAX];
	struct think think; /* of all its tenants */
	uint32_t classes;
	uint32_t block_places[ABI_PARTS_MAX]; /* of each class, of a whole block */
	struct block_list pending;
	struct dirty dirty[CORE_LOGS];
	uint32_t slots_live;  /* block slots in use, dropped ones included */
	uint32_t punching;    /* segments */
	uint32_t unretired;   /* dropped blocks with pages that are still to be retired */
	uint32_t part_of, part_at; /* prefix.c: a dropped parent, the next child to look at */
	uint32_t nvme_cursor; /* evict_nvme: next slot to look at */
	struct {
		uint32_t slot, page;
	} left_at[ABI_MEM_TIERS]; /* evict.c: of a block, the page where its leaving goes on */
	uint64_t index_ready[INDEX_AREAS]; /* up to these offsets it has huge pages */
	uint64_t blocks, blocks_pending, nvme_bytes, dirty_bytes;
	uint64_t record_bytes; /* ... and beyond nvme_bytes, of its durable blocks' records */
	struct tomb_sum tombs;
	uint32_t put_copies; /* copy jobs of puts under way: their ends make room for the next */
	uint64_t refused; /* blocks that are PERSIST_REFUSED */
	uint64_t pinned[ABI_MEM_TIERS]; /* bytes that pins keep: once, however many they are */
	uint64_t pages_resident[ABI_MEM_TIERS];
	uint64_t retiring[ABI_MEM_TIERS]; /* bytes between retire and free */
	bool unsought[ABI_MEM_TIERS]; /* an event was spent before it was known who can leave */
	uint32_t streamed_at[ABI_MEM_TIERS]; /* 1 + slot: evict_streamed goes on behind it */
	uint64_t windows[ABI_MEM_TIERS]; /* bytes of the stream pool that its streams have */
	uint64_t gone_token;
	uint64_t moving[ABI_MEM_TIERS];   /* bytes of new places of pages that move */
	uint64_t detached;                /* places not free yet that no page names any more */
	uint64_t placed;                  /* bytes of places of puts, which no page names yet */
	struct ledger salts;
	uint64_t lead_ns[ABI_MEM_TIERS]; /* lead.c: not looked at before */
	uint64_t kept_blocks; /* with a priority or a TTL */
	uint64_t reserved_most_blocks; /* that reservations may come to and did not draw yet */
	uint32_t user;        /* its owner's, in core.tables */
	uint64_t begun;       /* groups of descriptors that blocks which are pending may come to */
	uint64_t table_bytes; /* as the sums in core.tables have it */
	bool descs_short;     /* somebody found no memory for descriptors: idle ones are given up */
	uint32_t index_lent;  /* clients whose devices have the index registered */
	uint64_t index_wanted_ns; /* when it was wanted back */
};

static inline bool bit_get(const uint64_t *map, uint32_t i)
{
	return map[i / 64] >> (i % 64) & 1;
}

static inline const struct abi_geometry *context_geometry(const struct context *x)
{
	return &x->spec.geometry;
}

static inline uint32_t page_stride(const struct context *x, uint32_t page)
{
	return x->spec.geometry.part[x->page_part[page]].page_stride;
}

/* Bytes at its end that no engine writes. */
static inline uint32_t page_padding(const struct context *x, uint32_t page)
{
	const struct abi_part *part = &x->spec.geometry.part[x->page_part[page]];

	return part->page_stride - part->page_bytes;
}

static inline bool stream_page_charged(const struct abi_page *d, uint32_t tier)
{
	return d->streams[tier] & STREAMS_POOL;
}

static inline uint32_t stream_page_count(const struct abi_page *d, uint32_t tier)
{
	return d->streams[tier] & (STREAMS_POOL - 1);
}

static inline bool block_queued(const struct block_meta *m)
{
	return m->persist == PERSIST_QUEUED || m->persist == PERSIST_WANTED;
}

/* What a block has at the moment: to look at, all nought when it has nothing; and to change. */
static inline const struct block_use *block_use(const struct context *x, uint32_t slot)
{
	return &x->uses.entry[x->meta[slot].use];
}

static inline struct block_use *block_use_make(struct context *x, uint32_t slot)
{
	struct block_meta *m = &x->meta[slot];

	if (!m->use)
		m->use = block_uses_take(&x->uses) & 0x3fffffffu;
	return &x->uses.entry[m->use];
}

static inline void block_use_drop(struct context *x, uint32_t slot)
{
	struct block_meta *m = &x->meta[slot];

	if (!m->use)
		return;
	memset(&x->uses.entry[m->use], 0, sizeof(struct block_use));
	block_uses_give(&x->uses, m->use);
	m->use = 0;
}

static inline void block_use_settle(struct context *x, uint32_t slot)
{
	struct block_meta *m = &x->meta[slot];

	if (!m->use || !block_use_is_nought(&x->uses.entry[m->use]))
		return;
	block_uses_give(&x->uses, m->use);
	m->use = 0;
}

/* Memory words of the block that are not ABSENT. */
static inline uint32_t block_words(const struct context *x, uint32_t slot)
{
	const struct block_meta *m = &x->meta[slot];

	return block_use(x, slot)->moving + m->there[ABI_TIER_HBM].pages +
	       m->there[ABI_TIER_CXL].pages;
}

static inline uint64_t block_salt(const struct context *x, uint32_t slot)
{
	return x->tenants.entry[x->meta[slot].tenant].salt;
}

static inline uint32_t block_account(const struct context *x, uint32_t slot)
{
	return x->tenants.entry[x->meta[slot].tenant].account;
}

static inline uint32_t block_lane(const struct context *x, uint32_t slot)
{
	return x->tenants.entry[x->meta[slot].tenant].lane;
}

/* Of the policy that has the block or will have it; NULL = no block of its lane came so far. */
static inline const struct lanes *block_lanes(const struct context *x, uint32_t slot)
{
	return x->former && slot >= x->swapped ? x->former : &x->lanes;
}

static inline void *block_policy(const struct context *x, uint32_t slot, uint32_t tier)
{
	return block_lanes(x, slot)->state[tier][block_lane(x, slot)];
}

#endif
