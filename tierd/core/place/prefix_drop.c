/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What stands behind a block that was dropped leaves as well, a share in each event. What is held,
 * pinned or pending does later: its parent waits for it, and is looked at again. See prefix.c.
 */
#include <assert.h>

#include "tierd/core/state.h"

#define STEP_BLOCKS 256u /* dropped at the end of one event; the rest by the next, within 1 ms */
#define WAIT_NS (100 * MS) /* those with children that may not go yet are looked at again */

/* Does nobody hold it to a promise, for now? */
static bool may_go(const struct context *x, uint32_t slot)
{
	const struct block_use *use = block_use(x, slot);

	return index_block(&x->ix, slot)->state == ABI_BLOCK_COMMITTED && !use->hold &&
	       !use->writers && !block_use_is_pinned(use);
}

/*
 * Up to `most` of the children of a dropped block leave. Returns how many of them did; *more: the
 * walk goes on, behind those that may not go yet, in a later event.
 */
static uint32_t part(struct core *c, struct context *x, uint32_t slot, uint32_t most, bool *more)
{
	uint32_t gone = 0;

	if (x->part_of != slot)
		x->part_at = index_block(&x->ix, slot)->child;
	x->part_of = slot;
	while (x->part_at != ABI_SLOT_NONE && gone < most && !meter_spent(&c->meter)) {
		uint32_t child = x->part_at;

		x->part_at = prefix_sibling(x, child);
		if (!prefix_binds(x, child)) {
			prefix_leave(x, child);
		} else if (may_go(x, child)) {
			block_drop(c, x, child);
			c->metrics.prefix_dropped++;
			gone++;
		}
		meter_charge(&c->meter, 1);
	}
	*more = x->part_at != ABI_SLOT_NONE;
	if (!*more)
		x->part_of = ABI_SLOT_NONE;
	return gone;
}

/* The first of the list, which it then leaves; it goes on in the one where it belongs. */
static uint32_t part_first(struct core *c, struct block_list *list, uint32_t most)
{
	struct context *x = c->context[list->head_ctx];
	uint32_t slot = list->head, gone;
	bool more;

	assert(x->meta[slot].flags & BLOCK_LEAVING);
	block_unlink(c, list, x, slot);
	gone = part(c, x, slot, most, &more);
	if (more)
		block_link_first(c, &c->dropped.parents_leaving, x, slot);
	else if (index_block(&x->ix, slot)->child == ABI_SLOT_NONE)
		x->meta[slot].flags &= (uint8_t)~BLOCK_LEAVING;
	else
		block_link(c, &c->dropped.waiting, x, slot);
	block_retire(c, x, slot);
	return gone;
}

void prefix_step(struct core *c)
{
	uint32_t left = STEP_BLOCKS;

	for (uint32_t n = 0; c->dropped.parents_leaving.count && left && n < STEP_BLOCKS &&
			     !meter_spent(&c->meter); n++)
		left -= part_first(c, &c->dropped.parents_leaving, left);
}

/* Whoever kept the children may have let go: each of them is looked at once in a round. */
void prefix_tick(struct core *c)
{
	struct dropped *d = &c->dropped;
	uint32_t left = STEP_BLOCKS;

	if (!d->waiting.count || c->now_ns < d->waiting_next_ns)
		return;
	if (!d->waiting_left || d->waiting_left > d->waiting.count)
		d->waiting_left = d->waiting.count;
	for (; d->waiting_left && left && !meter_spent(&c->meter); d->waiting_left--)
		left -= part_first(c, &d->waiting, left);
	d->waiting_next_ns = c->now_ns + (d->waiting_left ? MS : WAIT_NS);
}

uint64_t prefix_next(const struct core *c)
{
	uint64_t next = c->dropped.parents_leaving.count ? c->now_ns + MS : UINT64_MAX;

	if (c->dropped.waiting.count && c->dropped.waiting_next_ns < next)
		next = c->dropped.waiting_next_ns;
	return next;
}
