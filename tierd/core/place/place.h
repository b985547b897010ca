/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole blocks, places for their pages, who leaves, and what becomes of a place.
 * A last part of state.h, which includes it.
 */
#ifndef TIERD_CORE_PLACE_PLACE_H
#define TIERD_CORE_PLACE_PLACE_H

#include <assert.h>

/* block.c */
void block_leave_policy(struct core *c, struct context *x, uint32_t slot, uint32_t tier);
void block_enter_policy(struct core *c, struct context *x, uint32_t slot, uint32_t tier);
uint32_t block_new(struct context *x, const uint8_t *key);
void block_unnew(struct core *c, struct context *x, uint32_t slot);
bool block_enter(struct core *c, struct context *x, uint32_t slot);
void block_commit(struct core *c, struct context *x, uint32_t slot);
void block_release(struct core *c, struct context *x, uint32_t slot); /* frees a dropped slot */
void block_resident(struct core *c, struct context *x, uint32_t slot, uint32_t page, uint32_t tier);
void block_page_taken(struct core *c, struct context *x, uint32_t slot, uint32_t page,
		      uint32_t tier, uint64_t offset);
void block_page_freed(struct core *c, struct context *x, uint32_t slot, uint32_t page,
		      uint32_t tier);
void block_unwritten(struct core *c, struct context *x, uint32_t slot); /* leaves NVMe */
void block_unrefuse(struct context *x, uint32_t slot);
void block_tier_hint(struct context *x, uint32_t slot);
void block_used(struct core *c, struct context *x, uint32_t slot, uint32_t weight);
void block_left(struct core *c, struct context *x, uint32_t slot, uint32_t page, uint32_t tier);
void block_hold(struct context *x, uint32_t slot);
void block_await(struct context *x, uint32_t slot, uint32_t tier, uint32_t klass);
uint32_t block_class(const struct context *x, uint32_t slot, uint32_t tier, uint32_t klass);

/* block_drop.c */
void block_drop(struct core *c, struct context *x, uint32_t slot);
void block_retire(struct core *c, struct context *x, uint32_t slot);
void block_retire_tick(struct core *c);
void block_unhold(struct core *c, struct context *x, uint32_t slot);

/* What orders of eviction are told of a block. */
static inline struct policy_hint block_hint(const struct core *c, const struct context *x,
					    uint32_t slot)
{
	const struct abi_block *b = index_block(&x->ix, slot);
	const struct block_meta *m = &x->meta[slot];

	return (struct policy_hint){
		.now_ns = c->now_ns,
		.depth = b->depth,
		.parent = block_parent(x, slot),
		.bytes = block_bytes(x, slot),
		.salt = block_salt(x, slot),
		.key = b->key,
		.position = (uint64_t)b->depth * x->spec.geometry.block_tokens,
		.brought = 1u << m->brought,
		.joined = m->joined,
		.last = m->last,
	};
}

/* tables.c */
int tables_open(struct core *c);
void tables_close(struct core *c);
int tables_may_make(const struct core *c, const struct disk_context *spec,
		    const struct core_context_plan *plan, char *why, size_t why_bytes);
void tables_join(struct core *c, struct context *x);
void tables_leave(struct core *c, struct context *x);
void tables_count(struct core *c, struct context *x);
void tables_come_back(struct core *c, struct context *x);
int tables_may_swap(struct core *c, struct context *x, const struct lanes *next);
uint64_t tables_of(const struct context *x);
uint64_t tables_most(const struct context *x);
uint64_t tables_room(struct core *c, struct context *x, uint32_t *limit);
bool tables_lend(struct core *c, struct context *x, bool costs);
uint32_t tables_slot(struct core *c, struct context *x, uint64_t salt);
void tables_lane(struct context *x, uint32_t lane);
uint32_t tables_begin(struct core *c, struct context *x, uint32_t slot, uint64_t parts);
void tables_touched(struct context *x, uint32_t slot);
void tables_settled(struct context *x, uint32_t slot);
bool tables_want(struct context *x);
uint64_t tables_held(uint32_t limit);

/* swap.c */
int swap_begin(struct core *c, struct context *x, const struct policy_ops *policy);
void swap_end(struct core *c, struct context *x);
void swap_tick(struct core *c);

/* trial.c */
void trial_came(struct core *c, struct context *x, uint32_t slot);
void trial_left(struct core *c, struct context *x, uint32_t slot);
void trial_used(struct core *c, struct context *x, uint32_t slot, uint32_t weight);
void trial_deleted(struct core *c, struct context *x, uint32_t slot);
void trial_end(struct core *c, const struct context *x);
void trial_tick(struct core *c);

/* reclaim.c */
bool retire_page(struct core *c, struct context *x, uint32_t slot, uint32_t page, uint32_t tier);
bool retire_moved(struct core *c, struct context *x, uint32_t slot, uint32_t page, uint32_t tier,
		  uint64_t to);
bool retire_left(struct core *c, struct context *x, uint32_t page, uint32_t tier, uint64_t offset);
void reclaim_client_open(struct core *c, uint32_t client);
void reclaim_client_revoked(struct core *c, uint32_t client, uint32_t tiers);
void reclaim_flush(struct core *c);
void reclaim_now(struct core *c);
void reclaim_fenced(struct core *c, struct core_batch *batch);
void reclaim_scanned(struct core *c);
int reclaim_open(struct core *c);
void reclaim_close(struct core *c);
uint64_t reclaim_next(const struct core *c);
void reclaim_tick(struct core *c);

/* evict.c */
void place_prepare(struct core *c, struct context *x, uint32_t tier, uint64_t fresh);
int64_t place_alloc(struct core *c, struct context *x, uint32_t page, uint32_t tier);
int64_t place_alloc_stream(struct core *c, struct context *x, uint32_t page, uint32_t tier);
bool place_set_aside(const struct core *c, uint32_t tier, uint64_t bytes);
int64_t place_for(struct core *c, struct context *x, uint32_t slot, uint32_t page, uint32_t tier);
int64_t place_for_stream(struct core *c, struct context *x, uint32_t slot, uint32_t page,
			 uint32_t tier);
int evict_room(struct core *c, struct context *x, uint32_t tier, uint64_t bytes);
int evict_account(struct core *c, struct context *x, uint32_t slot, uint32_t tier, uint64_t bytes);
uint64_t evict_some(struct core *c, struct context *x, uint32_t tier, uint64_t bytes);
void evict_room_ahead(struct core *c, struct context *x, uint32_t tier);
void evict_drain_logs(struct core *c);
void evict_drain_client(struct core *c, uint32_t client);
bool evict_block(struct core *c, struct context *x, uint32_t slot, uint32_t tier);
bool evict_nvme(struct core *c, struct context *x, uint64_t bytes);
bool evict_may(const struct core *c, const struct context *x, uint32_t slot, uint32_t tier);
bool evict_nvme_account(struct core *c, struct context *x, uint32_t slot, uint64_t bytes);
void evict_prepare_refused(struct core *c, const struct core_range *range);
void evict_tick(struct core *c);

/* lend.c */
int lend_open(struct core *c);
void lend_close(struct core *c);
void lend_client_open(struct core *c, uint32_t client);
void lend_client_dead(struct core *c, uint32_t client);
/* The next of a client's; 0: it was the last (the first: lends.to). */
uint32_t lend_next(const struct core *c, uint32_t at);
/* Its bytes, if they count for its client's user: of a slab of another user's context. */
uint64_t lend_of_others(const struct core *c, uint32_t at, uint32_t *tier);
void lend_context_closing(struct core *c, const struct context *x);
void lend_recall(struct core *c, struct context *x, uint32_t tier, uint32_t count);
void lend_recall_index(struct core *c, struct context *x);
bool lend_comes(const struct core *c);

/* The page's place, just reserved, is one of the pool's. */
static inline void stream_page_charge(struct core *c, struct context *x, uint32_t slot,
				      uint32_t page, uint32_t tier)
{
	struct abi_page *d = index_page(&x->ix, slot, page);

	assert(!stream_page_charged(d, tier));
	d->streams[tier] |= STREAMS_POOL;
	c->streamed[tier] += page_stride(x, page);
}

/* The place was given back, or is the cache's from now on. */
static inline void stream_page_uncharge(struct core *c, struct context *x, uint32_t slot,
					uint32_t page, uint32_t tier)
{
	struct abi_page *d = index_page(&x->ix, slot, page);

	if (!stream_page_charged(d, tier))
		return;
	assert(c->streamed[tier] >= page_stride(x, page));
	d->streams[tier] &= (uint16_t)~STREAMS_POOL;
	c->streamed[tier] -= page_stride(x, page);
}

/* stream_page.c */
uint64_t stream_aside_unused(const struct core *c, uint32_t tier);
void stream_page_adopt(struct core *c, struct context *x, uint32_t slot, uint32_t page,
		       uint32_t tier);
void stream_page_adopt_block(struct core *c, struct context *x, uint32_t slot, uint32_t tier);
void stream_page_take(struct context *x, uint32_t slot, uint32_t page, uint32_t tier);
void stream_page_drop(struct core *c, struct context *x, uint32_t slot, uint32_t page,
		      uint32_t tier);

#endif
