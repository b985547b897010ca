/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who leaves NVMe, and so the service, when a context or an account is at its quota there: its own
 * older blocks, durable and pinned ones excepted. Who leaves a memory tier is in evict.c.
 */
#include "tierd/core/state.h"

#define WALK_MAX 8192u /* candidates looked at in one call */

/* A walk over slots for cached blocks on NVMe, up to a rank or of one account. */
struct nvme_walk {
	uint64_t bytes; /* wanted */
	uint32_t rank;
	bool ends; /* those with blocks behind them stay */
	const struct holding *account; /* NULL = any */
};

static bool nvme_may(const struct core *c, const struct context *x, const struct nvme_walk *w,
		     uint32_t slot)
{
	const struct block_use *use = block_use(x, slot);
	const struct block_meta *m = &x->meta[slot];
	const struct abi_block *b = index_block(&x->ix, slot);

	return b->state == ABI_BLOCK_COMMITTED && m->persist == PERSIST_CLEAN && !use->hold &&
	       !(m->flags & BLOCK_DURABLE) && !(w->ends && b->child != ABI_SLOT_NONE) &&
	       !block_use_is_pinned(use) &&
	       quota_within(c, x, slot, ABI_TIER_NVME, w->rank) &&
	       !(w->account && !quota_of(c, x, slot, w->account));
}

/*
 * The context is at its NVMe quota: its own older blocks go, durable and pinned ones excepted.
 * Slots are handed out in order, so a clock over them is roughly oldest first; from the end of a
 * prefix the walk goes on with what that leaves without a block behind it.
 */
static uint64_t nvme_clock(struct core *c, struct context *x, const struct nvme_walk *w)
{
	uint64_t gone = 0;

	for (uint32_t n = 0; n < x->ix.slots_used && n < WALK_MAX && gone < w->bytes &&
			     !meter_spent(&c->meter); n++) {
		uint32_t slot = x->nvme_cursor++ % (uint32_t)x->ix.slots_used;

		meter_charge_table(&c->meter, n % 8 == 0);
		while (slot != ABI_SLOT_NONE && gone < w->bytes && !meter_spent(&c->meter) &&
		       nvme_may(c, x, w, slot)) {
			uint32_t parent = block_parent(x, slot);

			gone += block_bytes(x, slot);
			meter_charge(&c->meter, 1);
			block_drop(c, x, slot);
			slot = w->ends ? parent : ABI_SLOT_NONE;
		}
	}
	return gone;
}

static uint64_t nvme_walk(struct core *c, struct context *x, uint64_t bytes, uint32_t rank,
			  const struct holding *account)
{
	struct nvme_walk w = { .bytes = bytes, .rank = rank, .ends = true, .account = account };
	uint64_t gone = nvme_clock(c, x, &w);

	w.ends = false; /* what is behind those that can go cannot: so be it */
	return gone ? gone : nvme_clock(c, x, &w);
}

bool evict_nvme(struct core *c, struct context *x, uint64_t bytes)
{
	uint64_t gone = 0;

	for (uint32_t rank = 0; rank < RANKS && gone < bytes; rank++)
		if (quota_ranked(c, x, ABI_TIER_NVME, rank))
			gone += nvme_walk(c, x, bytes - gone, rank, NULL);
	return gone > 0;
}

/* Do the block's accounts allow so many bytes more on NVMe? If not, their own older blocks go. */
bool evict_nvme_account(struct core *c, struct context *x, uint32_t slot, uint64_t bytes)
{
	while (quota_left(c, x, slot, ABI_TIER_NVME) < bytes)
		if (!nvme_walk(c, x, bytes, RANK_KEEP, quota_short(c, x, slot, ABI_TIER_NVME)))
			return false;
	return true;
}
