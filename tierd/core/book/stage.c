/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Accounts of foresight (P2, P8): every byte that a prefetch, conversation or plan brings into a
 * memory tier is *staged* from the moment its place is taken until a reader comes (used) or the
 * page leaves again (wasted). The integral of staged bytes over time is the protected byte-seconds.
 *
 *   prefetch_bytes = prefetch_used + prefetch_wasted + prefetch_failed + staged now
 *
 * A use is seen by block: in a reader's access log, or when a demand asks for it. Where only some
 * pages of a block are staged, leaving pages are taken for staged ones until the count is nought.
 */
#include <assert.h>

#include "tierd/core/state.h"

#define LOOK_NS (50 * MS)    /* between looks at the access logs while something is staged */
#define LOOK_FOR_NS (500 * MS) /* after the last change; later uses are seen at the next event */

static void integrate(struct core *c)
{
	struct staged *s = &c->staged;

	assert(c->now_ns >= s->since_ns);
	s->byte_seconds += (double)s->bytes * (double)(c->now_ns - s->since_ns) / 1e9;
	s->since_ns = c->now_ns;
	c->metrics.protected_byte_seconds = (uint64_t)s->byte_seconds;
}

void stage_commit(struct core *c, struct context *x, uint32_t slot, uint32_t tier, uint64_t bytes)
{
	assert(tier < ABI_MEM_TIERS && slot < x->plan.blocks_max);
	integrate(c);
	c->staged.bytes += bytes;
	c->staged.changed_ns = c->now_ns;
	block_use_make(x, slot)->staged[tier] += (uint32_t)(bytes >> ABI_UNIT_SHIFT);
	c->metrics.prefetch_bytes += bytes;
}

/* Take up to `bytes` of the block out of the account; returns how many there were. */
static uint64_t take(struct core *c, struct context *x, uint32_t slot, uint32_t tier,
		     uint64_t bytes)
{
	uint64_t there = (uint64_t)block_use(x, slot)->staged[tier] << ABI_UNIT_SHIFT;

	assert(tier < ABI_MEM_TIERS && slot < x->plan.blocks_max);
	if (!there)
		return 0;
	if (there > bytes)
		there = bytes;
	integrate(c);
	assert(c->staged.bytes >= there);
	c->staged.bytes -= there;
	block_use_make(x, slot)->staged[tier] -= (uint32_t)(there >> ABI_UNIT_SHIFT);
	block_use_settle(x, slot);
	return there;
}

void stage_fail(struct core *c, struct context *x, uint32_t slot, uint32_t tier, uint64_t bytes)
{
	c->metrics.prefetch_failed += take(c, x, slot, tier, bytes);
}

void stage_use(struct core *c, struct context *x, uint32_t slot)
{
	for (uint32_t tier = 0; tier < ABI_MEM_TIERS; tier++)
		c->metrics.prefetch_used += take(c, x, slot, tier, UINT64_MAX);
}

void stage_leave(struct core *c, struct context *x, uint32_t slot, uint32_t tier, uint64_t bytes)
{
	c->metrics.prefetch_wasted += take(c, x, slot, tier, bytes);
}

void stage_tick(struct core *c)
{
	if (c->staged.bytes)
		integrate(c);
}

uint64_t stage_next(const struct core *c)
{
	if (!c->staged.bytes || c->now_ns >= c->staged.changed_ns + LOOK_FOR_NS)
		return UINT64_MAX;
	return c->now_ns + LOOK_NS;
}
