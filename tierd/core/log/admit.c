/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Admission: is a best-effort block worth a write to NVMe? Write-back asks before it takes a block
 * of the dirty list; what durable puts brought is never asked about.
 *
 *   refused    stays in CXL as its only copy and is no longer dirty: it leaves the service when it
 *              is evicted, as in a context without NVMe
 *   used again asked about anew, with what is known then; its parents first, for they were used too
 *   wanted     by a durable put, or to be moved to NVMe: written, whatever the policy says
 *
 * A child of a refused block is refused: without its parent it could not be found as a prefix.
 */
#include <assert.h>
#include <errno.h>

#include "tierd/core/state.h"

#define BEFORE_MAX 1024u /* blocks that one waits for, at most */
#define GIVE_UP_MAX 1024u /* in one look */

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
