/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes of tenants, an instance of the policy each; see lane.h. Evicts nothing: evict.c does. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "tierd/core/state.h"

#define LANE_PIECES 4u /* arrays of an instance: of each a page is touched that ends elsewhere */

/* What its instance is made for. */
static struct policy_size lane_size(const struct lanes *l, uint32_t tier, uint32_t lane)
{
	struct policy_size size = l->size[tier];

	size.sparse = lane > 0;
	return size;
}

int lanes_open(struct lanes *l, const struct policy_ops *policy,
	       const struct policy_size size[ABI_MEM_TIERS])
{
	l->policy = policy;
	for (uint32_t tier = 0; tier < ABI_MEM_TIERS; tier++) {
		l->size[tier] = size[tier];
		for (uint32_t lane = 0; size[tier].blocks_max && lane < LANES; lane++) {
			struct policy_size its = lane_size(l, tier, lane);

			l->memory[tier][lane] = table_new(1, policy->state_bytes(&its));
			if (!l->memory[tier][lane])
				return -ENOMEM;
		}
	}
	return 0;
}

void lanes_close(struct lanes *l)
{
	for (uint32_t tier = 0; tier < ABI_MEM_TIERS; tier++)
		for (uint32_t lane = 0; lane < LANES; lane++)
			free(l->memory[tier][lane]);
}

uint64_t lanes_bytes(const struct lanes *l, uint64_t slots)
{
	uint64_t bytes = 0;

	for (uint32_t tier = 0; tier < ABI_MEM_TIERS; tier++)
		for (uint32_t lane = 0, left = l->begun[tier]; left; lane++)
			if (l->state[tier][lane]) {
				bytes += l->policy->state_used(l->state[tier][lane], slots);
				left--;
			}
	return bytes;
}

/* Made for so many slots, with places apart from them: no less than it can have touched by then. */
static uint64_t most_of(const struct lanes *l, uint32_t tier, uint64_t slots)
{
	struct policy_size size = l->size[tier];

	size.sparse = true;
	size.blocks_max = slots;
	size.most = size.most < slots ? size.most : slots;
	return l->policy->state_bytes(&size) + LANE_PIECES * ABI_PAGE_ALIGN;
}

uint64_t lanes_most(const struct lanes *l, uint64_t slots)
{
	uint64_t bytes = 0;

	for (uint32_t tier = 0; l->named && tier < ABI_MEM_TIERS; tier++)
		if (l->size[tier].blocks_max)
			bytes += most_of(l, tier, slots);
	return bytes * (uint32_t)__builtin_popcount(l->named);
}

void *lane_begin(struct lanes *l, uint32_t tier, uint32_t lane)
{
	struct policy_size size = lane_size(l, tier, lane);

	assert(l->memory[tier][lane] && !l->state[tier][lane]);
	assert(l->named >> lane & 1); /* it is charged */
	l->begun[tier]++;
	l->state[tier][lane] = l->memory[tier][lane];
	l->policy->init(l->state[tier][lane], &size);
	return l->state[tier][lane];
}

/* ---- whose turn it is ---------------------------------------------------------------------- */

static void order_add(struct lane_order *o, uint32_t lane, int64_t over)
{
	uint32_t i = o->count++;

	for (; i && o->over[i - 1] < over; i--) {
		o->lane[i] = o->lane[i - 1];
		o->over[i] = o->over[i - 1];
	}
	o->lane[i] = lane;
	o->over[i] = over;
}

static int64_t max_i64(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* Of the lane's salts and clients with bytes in the tier. */
static int64_t most_over(const struct core *c, const struct context *x, uint32_t tier,
			 uint32_t lane)
{
	int64_t most = INT64_MIN;

	for (uint32_t i = lane; i < x->salts.count; i += LANES)
		most = max_i64(most, quota_over(c, x, i, tier));
	for (uint32_t i = lane; i < c->owners.count && quota_of_clients(c, tier); i += LANES)
		most = max_i64(most, quota_over(c, NULL, i, tier));
	return most;
}

void lanes_by_need(struct lane_order *out, const struct core *c, const struct context *x,
		   const struct lanes *lanes, uint32_t tier)
{
	uint32_t begun = lanes->begun[tier];

	out->count = 0;
	for (uint32_t lane = 0; lane < LANES; lane++)
		if (lanes->state[tier][lane]) /* of one alone nobody asks */
			order_add(out, lane, begun > 1 ? most_over(c, x, tier, lane) : INT64_MAX);
}
