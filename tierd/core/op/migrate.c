/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Migration: blocks go to one tier and leave those above it. Upwards it is a fetch of the asked
 * class; downwards copies above the target are retired once they are clean (CXL to NVMe waits for
 * write-back). What is pinned, or held by another request, stays; so does what cannot leave.
 *
 * Called by request.c. What a migration cannot move stays: a context without NVMe has no lower
 * tier than CXL, and what finds no room on NVMe, or is more than its salt or client may have there,
 * stays where it is; the migration ends there and says so. On NVMe the rules of write-back count:
 * best effort takes the room of older best effort of its account, also of what was moved before it.
 */
#include <assert.h>
#include <errno.h>

#include "tierd/core/state.h"

#define BLOCKS_PER_STEP 256u

static bool gone_above(const struct context *x, uint32_t slot, uint32_t target)
{
	for (uint32_t tier = 0; tier < target && tier < ABI_MEM_TIERS; tier++)
		if (x->meta[slot].there[tier].pages)
			return false;
	return true;
}

enum block_move { BLOCK_DONE, BLOCK_WAITS, BLOCK_STAYS };

/* Let it be written. Errors: write-back was told before, and has given it up. */
static int write_down(struct core *c, struct request *r, uint32_t slot)
{
	if (r->wanted && r->ctx->meta[slot].persist == PERSIST_REFUSED)
		return quota_left(c, r->ctx, slot, ABI_TIER_NVME) < block_bytes(r->ctx, slot)
			       ? -EDQUOT
			       : -ENOSPC;
	admit_again(c, r->ctx, slot, true);
	r->wanted = true;
	return 0;
}

static enum block_move move_block(struct core *c, struct request *r, uint32_t slot)
{
	struct context *x = r->ctx;
	uint32_t target = r->sqe.tier;

	if (gone_above(x, slot, target))
		return BLOCK_DONE;
	for (uint32_t tier = 0; tier < target && tier < ABI_MEM_TIERS; tier++) {
		if (!x->meta[slot].there[tier].pages)
			continue;
		if (block_use(x, slot)->pins[tier] || block_use(x, slot)->lead_pins[tier])
			return BLOCK_STAYS;
		if (tier == ABI_TIER_CXL && x->meta[slot].persist != PERSIST_CLEAN) {
			r->error = write_down(c, r, slot);
			return r->error ? BLOCK_STAYS : BLOCK_WAITS;
		}
		if (!evict_block(c, x, slot, tier))
			return BLOCK_WAITS; /* held by a request: that ends */
	}
	return gone_above(x, slot, target) ? BLOCK_DONE : BLOCK_WAITS;
}

static void migrate_end(struct core *c, struct request *r)
{
	if (r->late && r->cursor < r->sqe.count)
		r->status = ABI_STATUS_LATE;
	reclaim_flush(c);
	request_end(c, r, r->error, r->moved, 0);
}

static void demote_step(struct core *c, struct request *r)
{
	const struct abi_block_ref *ref = (const struct abi_block_ref *)r->arg;

	r->phase = REQUEST_RUN;
	for (uint32_t n = 0; !r->error && !r->late && r->cursor < r->sqe.count; n++) {
		enum block_move move = BLOCK_STAYS;

		if (n == BLOCKS_PER_STEP || meter_spent(&c->meter)) {
			request_go_on(c, r);
			return;
		}
		meter_charge(&c->meter, 1);
		if (!fetch_block_there(r->ctx, ref[r->cursor]))
			r->status = ABI_STATUS_MISS;
		else
			move = move_block(c, r, ref[r->cursor].slot);
		if (move == BLOCK_WAITS) {
			request_wait_space(c, r); /* write-back sees that someone waits */
			return;
		}
		r->wanted = false;
		r->moved += move == BLOCK_DONE;
		r->cursor++;
	}
	migrate_end(c, r);
}

/* The fetch to CXL is over and holds the block no more: its copy in HBM leaves, if it may. */
static void migrate_released(struct core *c, struct request *r, uint32_t slot)
{
	if (r->sqe.tier == ABI_TIER_CXL && r->ctx->meta[slot].there[ABI_TIER_HBM].pages &&
	    !(r->ctx->meta[slot].flags & BLOCK_DROPPED))
		evict_block(c, r->ctx, slot, ABI_TIER_HBM);
}

static bool migrate_release(struct core *c, struct request *r)
{
	return fetch_release_each(c, r, migrate_released);
}

static void migrate_begin(struct core *c, struct request *r)
{
	if (r->sqe.tier == ABI_TIER_NVME && !context_has_nvme(c, r->ctx)) {
		request_end(c, r, -EINVAL, 0, 0);
		return;
	}
	if (r->sqe.tier < ABI_TIER_NVME) {
		r->foreseen = true;
		fetch_begin(c, r);
		return;
	}
	fetch_resolve(c, r);
	demote_step(c, r);
}

static void migrate_step(struct core *c, struct request *r)
{
	if (r->sqe.tier < ABI_TIER_NVME)
		fetch_step(c, r);
	else
		demote_step(c, r);
}

/* Blocks leave a tier whole. */
static bool migrate_fits(const struct abi_sqe *q)
{
	return !q->mode && (q->tier == ABI_TIER_HBM || !(q->part_count || q->layer_count));
}

const struct op_ops op_migrate = {
	.name = "migrate",
	.tiers = ABI_TIER_NVME + 1,
	.fits = migrate_fits,
	.context = true,
	.writes = true,
	.arg_bytes = op_blocks_bytes,
	.begin = migrate_begin,
	.step = migrate_step,
	.release = migrate_release,
};
