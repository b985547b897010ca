/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dirty blocks: a list for each context and log, the oldest first; which of them make a run, and
 * when it is time for one. writeback.c writes it.
 */
#include <assert.h>

#include "tierd/core/state.h"

#define DUE_BLOCKS DISK_RUN_BLOCKS_MAX
#define GATHER_NS (4 * MS) /* that a durable block waits while more are being put: a run's copy */
#define GATHER_LOOK 256u   /* blocks looked at for a run */
#define GROW_NS (100 * MS) /* that a run waits, at most, while the block behind it is copied */
#define GROW_LOOK_NS (MS / 2)

static void enqueue(struct core *c, struct context *x, uint32_t slot, bool first)
{
	struct dirty *d = &x->dirty[dirty_log(x, slot)];

	assert(!(x->meta[slot].flags & BLOCK_DROPPED));
	if (!d->list.count) {
		d->since_ns = c->now_ns;
		d->full_since_ns = 0; /* of what is no longer there; this one has its try */
	}
	x->dirty_bytes += block_bytes(x, slot);
	if (first)
		block_link_first(c, &d->list, x, slot);
	else
		block_link(c, &d->list, x, slot);
}

void writeback_enqueue(struct core *c, struct context *x, uint32_t slot)
{
	if (!context_has_nvme(c, x))
		return;
	assert(x->meta[slot].persist == PERSIST_NONE);
	x->meta[slot].persist = PERSIST_QUEUED;
	enqueue(c, x, slot, false);
}

/* Some put wants a block durable that is not written yet: it goes to the durable log. */
void writeback_promise(struct core *c, struct context *x, uint32_t slot)
{
	struct block_meta *m = &x->meta[slot];
	bool queued = block_queued(m) && !(m->flags & BLOCK_DURABLE);

	if (queued)
		writeback_unqueue(c, x, slot);
	m->flags |= BLOCK_DURABLE;
	if (queued)
		enqueue(c, x, slot, false);
	admit_again(c, x, slot, true);
}

/*
 * It was on NVMe, and what is behind it may be: a crash before it is there again costs all of
 * these. So it does not wait behind what is dirty.
 */
void writeback_again(struct core *c, struct context *x, uint32_t slot)
{
	assert(x->meta[slot].persist == PERSIST_NONE);
	x->meta[slot].persist = PERSIST_QUEUED;
	enqueue(c, x, slot, index_block(&x->ix, slot)->child != ABI_SLOT_NONE);
}

/* ---- a run -------------------------------------------------------------------------------- */

static bool follows(const struct context *x, uint32_t slot, uint32_t before)
{
	const struct abi_block *b = index_block(&x->ix, slot), *p = index_block(&x->ix, before);

	return b->parent == before && b->parts == p->parts && b->epoch == p->epoch &&
	       block_account(x, slot) == block_account(x, before) &&
	       (x->meta[slot].flags & BLOCK_DURABLE) == (x->meta[before].flags & BLOCK_DURABLE);
}

/* The first block of a run and the dirty ones that follow it, each the child of the one before. */
uint32_t dirty_chain(const struct context *x, uint32_t first,
			     uint32_t chain[DISK_RUN_BLOCKS_MAX])
{
	uint32_t n = 0, look = GATHER_LOOK, slot = first;

	while (slot != ABI_SLOT_NONE && look--) {
		if (n && !(block_queued(&x->meta[slot]) && follows(x, slot, chain[n - 1]))) {
			slot = prefix_sibling(x, slot);
			continue;
		}
		chain[n++] = slot;
		if (n == DISK_RUN_BLOCKS_MAX)
			break;
		slot = index_block(&x->ix, slot)->child;
	}
	return n;
}

static bool is_pending(const struct context *x, uint32_t slot, bool moving)
{
	return index_block(&x->ix, slot)->state == ABI_BLOCK_PENDING &&
	       (!moving || block_use(x, slot)->moving);
}

/* Is one that would go on where the run ends on its way, from a put's staging or into it? */
static bool grows(const struct context *x, uint32_t last, bool moving)
{
	uint32_t slot = index_block(&x->ix, last)->child;

	for (uint32_t n = 0; n < GATHER_LOOK && slot != ABI_SLOT_NONE; n++) {
		if (is_pending(x, slot, moving) && follows(x, slot, last))
			return true;
		slot = prefix_sibling(x, slot);
	}
	return false;
}

/*
 * How a run is cut is how its blocks are read ever after: one that is still being copied is waited
 * for. Copies take no longer than writing what they bring, and nobody who waits for a put's last
 * block waits longer. One that is only begun may never come: a durable block waits for it hardly,
 * others by their age. True: look again at grow_look_ns.
 */
bool dirty_grows(const struct core *c, const struct context *x, struct dirty *d,
			  const uint32_t *chain, uint32_t n)
{
	bool young = d == &x->dirty[DISK_LOG_DURABLE] && c->now_ns < d->since_ns + GATHER_NS;
	uint32_t parent = block_parent(x, chain[0]);

	if (c->writeback.draining || c->queues.space_head || n == DISK_RUN_BLOCKS_MAX)
		return false;
	if (!grows(x, chain[n - 1], !young) &&
	    !(young && parent != ABI_SLOT_NONE && is_pending(x, parent, false) &&
	      follows(x, chain[0], parent)))
		return false;
	if (!d->grow_until_ns)
		d->grow_until_ns = c->now_ns + GROW_NS;
	d->grow_look_ns = c->now_ns + GROW_LOOK_NS;
	return c->now_ns < d->grow_until_ns;
}

/* Somebody waits for what is to be durable; the rest is written when much of it, or old. */
static uint64_t due_ns(const struct core *c, const struct context *x, const struct dirty *d)
{
	uint64_t at = d->since_ns;

	if (d != &x->dirty[DISK_LOG_DURABLE] && d->list.count < DUE_BLOCKS && !d->due)
		at += c->config.writeback_age_ns;
	return at > d->grow_look_ns ? at : d->grow_look_ns;
}

bool dirty_due(const struct core *c, const struct context *x, const struct dirty *d)
{
	if (!d->list.count || c->now_ns < drives_retry_ns(c) || c->now_ns < d->full_retry_ns)
		return false;
	return c->writeback.draining || c->queues.space_head || c->now_ns >= due_ns(c, x, d);
}

uint64_t dirty_next_tick(const struct core *c, const struct context *x)
{
	uint64_t next = UINT64_MAX;

	for (uint32_t log = 0; log < CORE_LOGS; log++) {
		const struct dirty *d = &x->dirty[log];
		uint64_t at = due_ns(c, x, d);

		if (!d->list.count)
			continue;
		at = drives_retry_ns(c) > c->now_ns ? drives_retry_ns(c) : at;
		at = d->full_retry_ns > at ? d->full_retry_ns : at;
		next = at < next ? at : next;
	}
	return next;
}
