/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Another eviction policy for a context that is in use. The new one has lanes of its own; blocks go
 * over to them in the order of their slots, a share in each tick, and until the last one has gone
 * each is in exactly one of the two: block_lanes says in which. Victims come from the former lanes
 * first, whose order is learned. What the former policy knew does not go along.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "tierd/core/state.h"

#define SHARE 64u /* of a tick: nobody waits for it, and each block costs some cold lines */

int swap_begin(struct core *c, struct context *x, const struct policy_ops *policy)
{
	struct lanes *next = calloc(1, sizeof(*next)), now = x->lanes;
	int err;

	if (!next)
		return -ENOMEM;
	err = lanes_open(next, policy, now.size);
	next->named = now.named;
	if (!err)
		err = tables_may_swap(c, x, next);
	if (err) {
		lanes_close(next);
		free(next);
		return err;
	}
	trial_end(c, x); /* it is told of blocks that come and leave, not of these that go over */
	x->lanes = *next;
	*next = now;
	x->former = next;
	x->swapped = 0;
	tables_count(c, x);
	c->evict.swaps++;
	return 0;
}

void swap_end(struct core *c, struct context *x)
{
	if (!x->former)
		return;
	assert(c->evict.swaps > 0);
	c->evict.swaps--;
	lanes_close(x->former);
	free(x->former);
	x->former = NULL;
}

/* The cursor passes over it: out of the one, into the other. */
static void go_over(struct core *c, struct context *x, uint32_t slot)
{
	bool was[ABI_MEM_TIERS];

	for (uint32_t tier = 0; tier < ABI_MEM_TIERS; tier++) {
		was[tier] = x->meta[slot].there[tier].ordered;
		if (was[tier])
			block_leave_policy(c, x, slot, tier);
	}
	x->swapped = slot + 1;
	for (uint32_t tier = 0; tier < ABI_MEM_TIERS; tier++)
		if (was[tier])
			block_enter_policy(c, x, slot, tier);
	assert(block_lanes(x, slot) == &x->lanes);
}

void swap_tick(struct core *c)
{
	for (uint32_t i = 0; c->evict.swaps && i < c->contexts_high; i++) {
		struct context *x = c->context[i];

		if (!x || !x->former)
			continue;
		for (uint32_t n = 0; n < SHARE && x->swapped < x->ix.slots_used; n++) {
			meter_charge(&c->meter, 1);
			go_over(c, x, x->swapped);
		}
		if (x->swapped >= x->ix.slots_used)
			swap_end(c, x);
	}
}
