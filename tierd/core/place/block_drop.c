/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a block leaves the service: out of the index at once, then its pages, as far as batches have
 * room and nobody holds it. Those behind it follow: prefix_drop.c.
 */
#include <assert.h>

#include "tierd/core/state.h"

/* ---- pages -------------------------------------------------------------------------------- */

static bool is_there(const struct block_meta *m)
{
	return m->there[ABI_TIER_HBM].pages || m->there[ABI_TIER_CXL].pages;
}

/* Retire what is READY of a page. False: no batch has room now. */
static bool retire_next(struct core *c, struct context *x, uint32_t slot, uint32_t page)
{
	bool all = true;

	meter_charge(&c->meter, 1);
	for (uint32_t tier = 0; tier < ABI_MEM_TIERS; tier++)
		if (descs_there(&x->descs, slot, page) &&
		    page_state(index_page(&x->ix, slot, page), tier) == ABI_PAGE_READY)
			all &= retire_page(c, x, slot, page, tier);
	return all;
}

/*
 * Retire what is READY of a dropped block; what finds no room in a batch now, and what is more than
 * one event looks at, is tried later.
 */
void block_retire(struct core *c, struct context *x, uint32_t slot)
{
	struct block_meta *m = &x->meta[slot];
	uint32_t page;

	assert(m->flags & BLOCK_DROPPED);
	if (block_use(x, slot)->hold)
		return; /* an io or copy of ours still reads them: block_unhold comes back */
	page = is_there(m) ? block_use(x, slot)->retired : 0;
	while (is_there(m) && !meter_spent(&c->meter) && retire_next(c, x, slot, page))
		page++;
	if (is_there(m)) {
		if (page) /* else there may be nothing to keep */
			block_use_make(x, slot)->retired = page;
		if (!(m->flags & (BLOCK_UNRETIRED | BLOCK_LEAVING))) {
			m->flags |= BLOCK_UNRETIRED;
			x->unretired++;
			block_link(c, &c->dropped.unretired, x, slot);
		}
	} else if (m->flags & BLOCK_UNRETIRED) {
		m->flags &= (uint8_t)~BLOCK_UNRETIRED;
		x->unretired--;
		block_unlink(c, &c->dropped.unretired, x, slot);
	}
	block_release(c, x, slot);
}

void block_unhold(struct core *c, struct context *x, uint32_t slot)
{
	struct block_use *use = block_use_make(x, slot);

	assert(use->hold > 0);
	if (--use->hold)
		return;
	use->urgent = 0;
	if (x->meta[slot].flags & BLOCK_DROPPED)
		block_retire(c, x, slot);
	else
		block_use_settle(x, slot);
}

/* One after the other: who cannot now is not in the way of those behind him. */
void block_retire_tick(struct core *c)
{
	for (uint32_t n = c->dropped.unretired.count;
	     n && c->reclaim.free && !meter_spent(&c->meter); n--) {
		struct context *x = c->context[c->dropped.unretired.head_ctx];
		uint32_t slot = c->dropped.unretired.head;

		block_retire(c, x, slot);
		if (c->dropped.unretired.count < 2 || c->dropped.unretired.head != slot ||
		    c->context[c->dropped.unretired.head_ctx] != x || meter_spent(&c->meter))
			continue;
		block_unlink(c, &c->dropped.unretired, x, slot);
		block_link(c, &c->dropped.unretired, x, slot);
	}
}

/* ---- the block ---------------------------------------------------------------------------- */

static void drop_persist(struct core *c, struct context *x, uint32_t slot)
{
	struct block_meta *m = &x->meta[slot];

	switch (m->persist) {
	case PERSIST_QUEUED:
	case PERSIST_WANTED:
		writeback_unqueue(c, x, slot);
		m->persist = PERSIST_NONE;
		break;
	case PERSIST_CLEAN:
		block_unwritten(c, x, slot);
		break;
	case PERSIST_REFUSED:
		block_unrefuse(x, slot);
		c->metrics.admission_lost++;
		break;
	default:
		break; /* WRITING: the run sees BLOCK_DROPPED when it ends */
	}
}

/* Who pinned or planned it, or waited for its pages, knows it by its generation: no more. */
static void block_unwant(struct core *c, struct context *x, uint32_t slot)
{
	struct block_use *use;

	if (!x->meta[slot].use)
		return;
	use = block_use_make(x, slot);
	use->missing = use->expires_ms = 0; /* or of a committed one its heads */
	for (uint32_t tier = 0; tier < ABI_MEM_TIERS; tier++)
		use->planned[tier] = 0;
	core_signals.block_gone(c, x, slot);
}

/*
 * The block leaves the service: out of the index at once, its pages when nobody reads them. Pages
 * on their way (FILLING) are freed by whoever fills them.
 */
void block_drop(struct core *c, struct context *x, uint32_t slot)
{
	struct block_meta *m = &x->meta[slot];
	uint32_t state = index_block(&x->ix, slot)->state;

	assert(state != ABI_BLOCK_FREE);
	assert(!(m->flags & BLOCK_DROPPED));
	index_prefetch(&x->ix, index_block(&x->ix, slot)->key);
	prefix_prefetch(x, slot);
	descs_prefetch(&x->descs, slot);
	if (state == ABI_BLOCK_PENDING) {
		block_unlink(c, &x->pending, x, slot);
		x->blocks_pending--;
		c->owners.account[m->owner].pending--;
		if (block_use(x, slot)->begun)
			tables_settled(x, slot);
	} else {
		x->blocks--;
		c->metrics.dropped_blocks++;
		drop_persist(c, x, slot);
	}
	for (uint32_t tier = 0; tier < ABI_MEM_TIERS; tier++)
		block_leave_policy(c, x, slot, tier);
	index_remove(&x->ix, slot);
	m->flags |= BLOCK_DROPPED;
	prefix_dropped(c, x, slot);
	block_unwant(c, x, slot);
	block_retire(c, x, slot);
}
