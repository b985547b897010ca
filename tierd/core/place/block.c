/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole blocks: making one, committing it; and its residency counters. Pages change only through
 * page.h, and the counters here follow each change at once. How one leaves: block_drop.c.
 */
#include <assert.h>
#include <string.h>

#include "tierd/core/state.h"

#define URGENT_BITS 2u /* of block_use.urgent, for each tier */
#define URGENT_MASK 3u

/* Is a policy on trial? Mostly not. */
static bool tried(const struct core *c)
{
	return __builtin_expect(c->evict.trial != NULL, false);
}

/* ---- life --------------------------------------------------------------------------------- */

uint32_t block_new(struct context *x, const uint8_t *key)
{
	uint32_t slot = former_slot(x->left, &x->ix, key);
	struct block_meta *m;
	struct abi_block *b;

	if (slot == ABI_SLOT_NONE)
		return slot;
	m = &x->meta[slot];
	assert(!m->use && m->tenant == TENANT_NONE && m->owner == LEDGER_NONE);
	memset(m, 0, sizeof(*m));
	m->prev = m->next = ABI_SLOT_NONE;
	b = index_block(&x->ix, slot);
	memcpy(b->key, key, ABI_KEY_BYTES);
	b->epoch = (uint32_t)x->spec.epoch;
	b->parent = b->child = ABI_SLOT_NONE;
	b->depth = 0;
	b->parts = 0;
	b->tier = ABI_TIER_NVME;
	x->slots_live++;
	return slot;
}

/* Undo block_new: it never entered the index, or nothing of it is left. */
void block_unnew(struct core *c, struct context *x, uint32_t slot)
{
	quota_unname(c, x, slot);
	prefix_leave(x, slot);
	assert(index_block(&x->ix, slot)->child == ABI_SLOT_NONE);
	block_use_drop(x, slot);
	x->meta[slot].flags = 0;
	x->slots_live--;
	if (x->descs.version[slot] < ABI_VERSION_MAX) /* X4: else it is never used again */
		index_slot_free(&x->ix, slot);
}

/* A whole one of before this start: a log has it, or it was handed over. False: it finds no place
 * in the index, and its slot is free again. */
bool block_enter(struct core *c, struct context *x, uint32_t slot)
{
	index_block_state(&x->ix, slot, ABI_BLOCK_COMMITTED);
	if (index_insert(&x->ix, slot)) {
		index_block_state(&x->ix, slot, ABI_BLOCK_FREE);
		block_unnew(c, x, slot);
		return false;
	}
	x->blocks++;
	return true;
}

void block_enter_policy(struct core *c, struct context *x, uint32_t slot, uint32_t tier)
{
	struct policy_hint hint = block_hint(c, x, slot);
	struct block_meta *m = &x->meta[slot];
	const struct lanes *lanes = block_lanes(x, slot);
	void *its = block_policy(x, slot, tier);

	if (m->there[tier].ordered)
		return;
	m->there[tier].ordered = 1;
	if (!its)
		its = lane_begin(lanes == x->former ? x->former : &x->lanes, tier,
				 block_lane(x, slot));
	lanes->policy->insert(its, slot, &hint);
	if (tried(c) && tier == ABI_TIER_CXL)
		trial_came(c, x, slot);
}

void block_leave_policy(struct core *c, struct context *x, uint32_t slot, uint32_t tier)
{
	struct block_meta *m = &x->meta[slot];

	if (!(m->there[tier].ordered))
		return;
	m->there[tier].ordered = 0;
	block_lanes(x, slot)->policy->remove(block_policy(x, slot, tier), slot,
					     index_block(&x->ix, slot)->key);
	if (tried(c) && tier == ABI_TIER_CXL)
		trial_left(c, x, slot);
}

/* Somebody has used it: every policy that has it is told. */
void block_used(struct core *c, struct context *x, uint32_t slot, uint32_t weight)
{
	const struct policy_ops *policy = block_lanes(x, slot)->policy;

	if (tried(c))
		trial_used(c, x, slot, weight);
	x->meta[slot].heat += x->meta[slot].heat < BLOCK_HEAT_MAX;
	for (uint32_t tier = 0; tier < ABI_MEM_TIERS; tier++)
		if (x->meta[slot].there[tier].ordered)
			policy->touch(block_policy(x, slot, tier), slot, weight, c->now_ns);
	if (x->meta[slot].persist == PERSIST_REFUSED)
		core_signals.block_wanted(c, x, slot);
	if (x->meta[slot].persist == PERSIST_CLEAN &&
	    !(x->meta[slot].there[ABI_TIER_CXL].ordered) && block_policy(x, slot, ABI_TIER_CXL))
		policy->elsewhere(block_policy(x, slot, ABI_TIER_CXL),
				  index_block(&x->ix, slot)->key);
}

void block_tier_hint(struct context *x, uint32_t slot)
{
	const struct block_meta *m = &x->meta[slot];
	uint32_t pages = block_pages(x, slot);
	uint32_t tier = ABI_TIER_NVME;

	if (m->there[ABI_TIER_HBM].pages == pages)
		tier = ABI_TIER_HBM;
	else if (m->there[ABI_TIER_CXL].pages == pages)
		tier = ABI_TIER_CXL;
	if (index_block(&x->ix, slot)->tier == tier)
		return;
	index_block(&x->ix, slot)->tier = tier;
	if (index_block(&x->ix, slot)->state == ABI_BLOCK_COMMITTED)
		index_event(&x->ix, ABI_EVENT_MOVED, slot);
}

void block_commit(struct core *c, struct context *x, uint32_t slot)
{
	const struct block_meta *m = &x->meta[slot];
	struct block_use *use = block_use_make(x, slot);

	assert(index_block(&x->ix, slot)->state == ABI_BLOCK_PENDING);
	assert(use->missing == 0);
	use->expires_ms = 0;
	if (use->begun)
		tables_settled(x, slot);
	block_unlink(c, &x->pending, x, slot);
	x->blocks_pending--;
	c->owners.account[m->owner].pending--;
	x->blocks++;
	c->metrics.blocks_committed++;
	block_tier_hint(x, slot);
	index_block_state(&x->ix, slot, ABI_BLOCK_COMMITTED);
	index_event(&x->ix, ABI_EVENT_STORED, slot);
	for (uint32_t tier = 0; tier < ABI_MEM_TIERS; tier++)
		if (m->there[tier].pages)
			block_enter_policy(c, x, slot, tier);
	block_use_settle(x, slot);
}

/* A page became READY: the word has been published by the caller. */
void block_resident(struct core *c, struct context *x, uint32_t slot, uint32_t page, uint32_t tier)
{
	struct block_meta *m = &x->meta[slot];
	struct block_use *use = block_use_make(x, slot);

	assert(page_state(index_page(&x->ix, slot, page), tier) == ABI_PAGE_READY);
	assert(use->moving > 0);
	use->moving--;
	m->there[tier].pages++;
	x->pages_resident[tier]++;
	assert(m->there[tier].pages <= x->ix.pages_per_block);
	if (index_block(&x->ix, slot)->state != ABI_BLOCK_COMMITTED)
		return;
	if (stream_page_charged(index_page(&x->ix, slot, page), tier))
		use->streamed[tier]++; /* never in the eviction order */
	else
		block_enter_policy(c, x, slot, tier);
	block_tier_hint(x, slot);
	block_use_settle(x, slot);
}

/* Apart: mostly something is left, and who asks is inline. */
static __attribute__((noinline)) void slot_release(struct core *c, struct context *x, uint32_t slot)
{
	const struct block_use *use = block_use(x, slot);
	const struct block_meta *m = &x->meta[slot];

	if (m->flags & BLOCK_LEAVING) { /* prefix_drop.c comes back */
		block_use_settle(x, slot);
		return;
	}
	for (uint32_t tier = 0; tier < ABI_MEM_TIERS; tier++)
		assert(!use->staged[tier] && !use->streamed[tier]);
	if (m->flags & BLOCK_UNRETIRED) {
		x->unretired--;
		block_unlink(c, &c->dropped.unretired, x, slot);
	}
	block_unnew(c, x, slot);
}

/* The slot of a dropped block is free once no page and nobody needs it. */
void block_release(struct core *c, struct context *x, uint32_t slot)
{
	const struct block_use *use = block_use(x, slot);
	const struct block_meta *m = &x->meta[slot];

	if (!(m->flags & BLOCK_DROPPED) || block_words(x, slot) || use->hold || use->writers)
		block_use_settle(x, slot); /* its pages may be all that is left */
	else
		slot_release(c, x, slot);
}

void block_hold(struct context *x, uint32_t slot)
{
	struct block_use *use = block_use_make(x, slot);

	assert(use->hold < UINT32_MAX);
	use->hold++;
}

/*
 * Somebody who holds the block waits in this class for a page that another brings to the tier.
 * Until nobody holds it, what is begun for it there takes that class if it is more urgent.
 */
void block_await(struct context *x, uint32_t slot, uint32_t tier, uint32_t klass)
{
	struct block_use *use = block_use_make(x, slot);
	uint32_t urgent = ABI_CLASS_SPECULATIVE - klass, at = URGENT_BITS * tier;

	assert(klass <= ABI_CLASS_SPECULATIVE && use->hold);
	if ((use->urgent >> at & URGENT_MASK) < urgent)
		use->urgent = ((use->urgent & ~(URGENT_MASK << at)) | urgent << at) & 15u;
}

/* The class in which a page of the block goes to the tier, for someone of this class. */
uint32_t block_class(const struct context *x, uint32_t slot, uint32_t tier, uint32_t klass)
{
	uint32_t urgent = block_use(x, slot)->urgent >> URGENT_BITS * tier & URGENT_MASK;
	uint32_t awaited = ABI_CLASS_SPECULATIVE - urgent;

	return awaited < klass ? awaited : klass;
}

/* A page gets a place, and is on its way there. */
void block_page_taken(struct core *c, struct context *x, uint32_t slot, uint32_t page,
		      uint32_t tier, uint64_t offset)
{
	struct abi_page *d = index_page(&x->ix, slot, page);

	if (descs_touch(&x->descs, slot, page))
		tables_touched(x, slot);
	if (!d->word[tier])
		page_renew(d, tier, x->descs.version[slot]);
	page_reserve(d, tier, offset);
	page_fill(d, tier);
	block_use_make(x, slot)->moving++;
	quota_add(c, x, slot, tier, page_stride(x, page));
}

/* A place was given back; the word is ABSENT. */
void block_page_freed(struct core *c, struct context *x, uint32_t slot, uint32_t page,
		      uint32_t tier)
{
	struct block_use *use = block_use_make(x, slot);

	assert(page_state(index_page(&x->ix, slot, page), tier) == ABI_PAGE_ABSENT);
	assert(use->moving > 0);
	use->moving--;
	quota_sub(c, x, slot, tier, page_stride(x, page));
	block_release(c, x, slot);
}

/* Its copy on NVMe is no more. */
void block_unwritten(struct core *c, struct context *x, uint32_t slot)
{
	struct block_meta *m = &x->meta[slot];
	uint32_t parts = index_block(&x->ix, slot)->parts;
	uint64_t bytes = block_bytes(x, slot);
	uint32_t segment = block_segment(c, x, slot);
	struct drive *dv = block_drive(c, x, slot);

	assert(m->persist == PERSIST_CLEAN);
	block_unlink(c, &dv->segment_blocks[segment], x, slot);
	x->record_bytes -= records_leave(c, x, slot);
	meter_charge_words(&c->meter, block_pages(x, slot));
	for (; parts; parts &= parts - 1) { /* what it has, not what it might have */
		const struct abi_part *part = &x->spec.geometry.part[__builtin_ctz(parts)];

		for (uint32_t i = 0; i < part->layers * part->groups; i++)
			index_page(&x->ix, slot, part->page_base + i)->nvme = 0;
	}
	store_live(dv->store, segment, -(int64_t)bytes);
	assert(x->nvme_bytes >= bytes);
	x->nvme_bytes -= bytes;
	quota_sub(c, x, slot, ABI_TIER_NVME, bytes);
	m->persist = PERSIST_NONE;
	if (m->settle == SETTLE_MISREAD)
		m->settle = SETTLE_NONE;
}

/* It is refused no more. */
void block_unrefuse(struct context *x, uint32_t slot)
{
	assert(x->meta[slot].persist == PERSIST_REFUSED && x->refused > 0);
	x->meta[slot].persist = PERSIST_NONE;
	x->refused--;
}

/* Called by reclaim when a READY page was unpublished. */
void block_left(struct core *c, struct context *x, uint32_t slot, uint32_t page, uint32_t tier)
{
	struct block_use *use = block_use_make(x, slot);
	struct block_meta *m = &x->meta[slot];

	assert(m->there[tier].pages > 0);
	m->there[tier].pages--;
	use->moving++;
	x->pages_resident[tier]--;
	if (stream_page_charged(index_page(&x->ix, slot, page), tier)) {
		assert(use->streamed[tier] > 0);
		use->streamed[tier]--;
	}
	if (m->flags & BLOCK_DROPPED)
		return;
	if (m->there[tier].pages == use->streamed[tier])
		block_leave_policy(c, x, slot, tier);
	block_tier_hint(x, slot);
}
