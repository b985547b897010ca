/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dirty blocks: a list for each context and log, the oldest first; which of them are worth a write,
 * which make a run, and when it is time for one. writeback.c writes it.
 *
 * A best-effort block that is not worth a write is refused; what durable puts brought is never
 * asked about. A child of a refused block is refused: no prefix would find it without its parent.
 *
 *   refused    stays in CXL as its only copy and is no longer dirty: it leaves the service when it
 *              is evicted, as in a context without NVMe
 *   used again asked about anew, with what is known then; its parents first, for they were used too
 *   wanted     by a durable put, or to be moved to NVMe: written, whatever the policy says
 */
#include <assert.h>
#include <errno.h>

#include "tierd/core/state.h"

#define DUE_BLOCKS DISK_RUN_BLOCKS_MAX
#define GATHER_NS (4 * MS) /* that a durable block waits while more are being put: a run's copy */
#define GATHER_LOOK 256u   /* blocks looked at for a run */
#define GROW_NS (100 * MS) /* that a run waits, at most, while the block behind it is copied */
#define GROW_LOOK_NS (MS / 2)
#define BEFORE_MAX 1024u /* blocks that one waits for, at most */
#define GIVE_UP_MAX 1024u /* in one look */

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

/* It was used, or is wanted on NVMe: back to the dirty list. */
void admit_again(struct core *c, struct context *x, uint32_t slot, bool wanted)
{
	struct block_meta *m = &x->meta[slot];

	if (m->persist == PERSIST_REFUSED) {
		block_unrefuse(x, slot);
		writeback_enqueue(c, x, slot);
		c->metrics.admission_again++;
	}
	if (wanted && m->persist == PERSIST_QUEUED)
		m->persist = PERSIST_WANTED;
}

/*
 * Some put wants the block durable. Is it? If it was stored without that it is written again, into
 * the durable log.
 */
bool writeback_durable(struct core *c, struct context *x, uint32_t slot)
{
	struct block_meta *m = &x->meta[slot];

	if (m->flags & BLOCK_DURABLE)
		return m->persist == PERSIST_CLEAN && m->settle != SETTLE_RECOVERED;
	if (m->persist == PERSIST_REFUSED || block_queued(m)) { /* also: its segment was dropped */
		writeback_promise(c, x, slot);
	} else if (m->persist == PERSIST_CLEAN &&
		   m->there[ABI_TIER_CXL].pages == block_pages(x, slot)) {
		stream_page_adopt_block(c, x, slot, ABI_TIER_CXL); /* its only copy from now on */
		block_unwritten(c, x, slot);
		m->flags |= BLOCK_DURABLE;
		writeback_enqueue(c, x, slot);
	}
	return false;
}

/* ---- is it worth a write? ----------------------------------------------------------------- */

static bool is_worth(const struct core *c, const struct context *x, uint32_t slot)
{
	const struct block_meta *m = &x->meta[slot];
	uint32_t parent = block_parent(x, slot);

	if (c->config.admit_all || m->flags & BLOCK_DURABLE || m->persist == PERSIST_WANTED ||
	    (m->keep & KEEP_PRIORITY) == ABI_PRIORITY_HIGH)
		return true;
	if (parent != ABI_SLOT_NONE && x->meta[parent].persist == PERSIST_REFUSED)
		return false;
	if (!(m->there[ABI_TIER_CXL].ordered))
		return true; /* nothing is known of it */
	return block_lanes(x, slot)->policy->admit(block_policy(x, slot, ABI_TIER_CXL), slot,
				x->plan.quota[ABI_TIER_NVME] / x->spec.geometry.block_bytes);
}

/* It is not written: CXL keeps the only copy. The caller tells who waits for room. */
void admit_refuse(struct core *c, struct context *x, uint32_t slot)
{
	struct block_meta *m = &x->meta[slot];

	assert(m->persist == PERSIST_QUEUED);
	assert(m->there[ABI_TIER_CXL].pages == block_pages(x, slot));
	writeback_unqueue(c, x, slot);
	m->persist = PERSIST_REFUSED;
	x->refused++;
	c->metrics.admission_refused++;
	c->metrics.admission_refused_bytes += block_bytes(x, slot);
}

/* It waits for NVMe no longer: it stays in CXL, unwritten, or is there no more. */
static void give_up(struct core *c, struct context *x, uint32_t slot, bool stays)
{
	struct block_meta *m = &x->meta[slot];

	assert(block_queued(m) && !(stays && m->flags & BLOCK_DURABLE));
	if (stays) {
		m->persist = PERSIST_QUEUED; /* also what was wanted there */
		admit_refuse(c, x, slot);
		return;
	}
	c->metrics.quota_dropped++;
	block_drop(c, x, slot);
}

static void given_up(struct core *c)
{
	request_wake_phase(c, REQUEST_WRITTEN);
	request_wake_space(c); /* what stays is dirty no more */
}

/*
 * The head's account holds all it may on NVMe, in blocks that cannot go: this one goes, so that it
 * is in nobody's way. A durable put is told so. What is pinned, or was to be moved there, stays
 * where it is, unwritten; who wanted it moved is told (migrate.c).
 */
int admit_over_quota(struct core *c, struct context *x, uint32_t slot)
{
	const struct block_meta *m = &x->meta[slot];

	give_up(c, x, slot,
		!(m->flags & BLOCK_DURABLE) && (m->persist == PERSIST_WANTED ||
						block_use_is_pinned(block_use(x, slot))));
	given_up(c);
	return -EDQUOT;
}

/*
 * There is no room on NVMe, and none will come by itself: nothing waits for it any more. What was
 * promised goes, for a put that failed is not visible (I5); the rest stays in CXL, unwritten.
 */
void admit_give_up(struct core *c, struct context *x, uint32_t log)
{
	const struct block_list *list = &x->dirty[log].list;

	for (uint32_t n = 0; n < GIVE_UP_MAX && list->count; n++)
		give_up(c, x, list->head, log == DISK_LOG_CACHE);
	given_up(c);
}

/* How many of the chain's first blocks are worth it; the caller has refused those before. */
uint32_t admit_run(const struct core *c, const struct context *x, const uint32_t *chain, uint32_t n)
{
	uint32_t worth = 0;

	while (worth < n && is_worth(c, x, chain[worth]))
		worth++;
	return worth;
}

/*
 * What the block waits for: the first one before it in its prefix that is dirty, too. Written the
 * other way round a crash between the two leaves what nobody finds. Durable blocks are promised by
 * themselves and wait for none that is not.
 */
static uint32_t first_before(const struct context *x, uint32_t slot)
{
	for (uint32_t n = 0; n < BEFORE_MAX; n++) {
		uint32_t parent = block_parent(x, slot);

		if (parent == ABI_SLOT_NONE || !block_queued(&x->meta[parent]) ||
		    (x->meta[slot].flags & ~x->meta[parent].flags & BLOCK_DURABLE))
			break;
		slot = parent;
	}
	return slot;
}

/*
 * The dirty block that is to be written next to the log: of those that are worth a write the one
 * that waits longest, or what it waits for. Refuses those that are not. ABI_SLOT_NONE = none is.
 */
uint32_t admit_first(struct core *c, struct context *x, uint32_t log)
{
	const struct block_list *list = &x->dirty[log].list;
	uint32_t slot = ABI_SLOT_NONE;
	bool any = false;

	while (list->count && !meter_spent(&c->meter)) {
		meter_charge(&c->meter, 1);
		slot = first_before(x, list->head);
		if (is_worth(c, x, slot))
			break;
		admit_refuse(c, x, slot);
		slot = ABI_SLOT_NONE;
		any = true;
	}
	if (any)
		request_wake_space(c); /* they can be evicted now */
	return slot;
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
