/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a put: what came is counted and kept as it says, what nobody brings any more leaves,
 * and its place is free. Each of these looks at all of its blocks, so each is a walk that goes on
 * in later events: by the step of who waits for the answer, or, for one whose end nobody waits for
 * (aborted, expired, its client or context gone), by put_work.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "tierd/core/state.h"

/* ---- retention ---------------------------------------------------------------------------- */

/* What the put says of a block that is committed, if it is its tenant's. */
void put_retain_block(struct core *c, const struct put *p, uint32_t slot)
{
	struct context *x = p->ctx;

	if ((!p->args.priority && !p->args.ttl_ms) || block_salt(x, slot) != p->args.salt)
		return;
	retain_say(c, x, slot, p->args.priority, p->args.ttl_ms);
	if (x->meta[slot].persist == PERSIST_REFUSED)
		admit_again(c, x, slot, false); /* priority counts there, too */
}

/* False: not all of them yet. */
static bool put_retain(struct core *c, struct put *p)
{
	if (!p->args.priority && !p->args.ttl_ms)
		return true;
	for (; p->kept_on < p->done; p->kept_on++) {
		struct abi_block_ref ref = p->ref[p->kept_on];

		if (meter_spent(&c->meter))
			return false;
		meter_charge(&c->meter, 1);
		if (block_alive(p->ctx, ref) &&
		    index_block(&p->ctx->ix, ref.slot)->state == ABI_BLOCK_COMMITTED)
			put_retain_block(c, p, ref.slot);
	}
	return true;
}

/* ---- letting go --------------------------------------------------------------------------- */

static void put_unlink(struct core *c, struct put *p)
{
	struct put **link = &c->puts.orphans;

	if (p->client < CORE_CLIENTS_MAX)
		link = &c->client[p->client].puts;
	while (*link != p)
		link = &(*link)->next;
	*link = p->next;
}

/* One block of it: pending, it goes, but for one of a sharded put, unless others write it. */
static void block_free(struct core *c, struct put *p, uint32_t i)
{
	struct context *x = p->ctx;
	uint32_t slot = p->ref[i].slot;
	const struct block_meta *m = &x->meta[slot];
	struct block_use *use;
	bool pending;

	if (bit_get(p->kept, i)) {
		p->kept[i / 64] &= ~(1ull << i % 64);
		block_unhold(c, x, slot);
	}
	if (!put_mine(p, i))
		return;
	p->mine[i / 64] &= ~(1ull << i % 64);
	use = block_use_make(x, slot);
	assert(use->writers > 0);
	use->writers--;
	pending = index_block(&x->ix, slot)->state == ABI_BLOCK_PENDING;
	p->shared |= pending && use->writers;
	if (m->flags & BLOCK_DROPPED)
		block_release(c, x, slot);
	else if (pending && !use->writers &&
		 !(m->flags & BLOCK_SHARDED && quota_client_lives(c, m->owner)))
		block_drop(c, x, slot);
	else
		block_use_settle(x, slot);
}

/*
 * Let a put's blocks go and unhook it; who else writes them waits no longer for what this one has
 * not brought. False: there are more than one event looks at.
 */
static bool put_free(struct core *c, struct put *p)
{
	p->committing = true; /* nobody finds it any more */
	if (!put_places_drop(c, p))
		return false;
	for (; p->freed < p->done && !meter_spent(&c->meter); p->freed++) {
		meter_charge(&c->meter, 1);
		block_free(c, p, p->freed);
	}
	if (p->freed < p->done)
		return false;
	if (p->shared)
		request_wake_phase(c, REQUEST_WRITTEN);
	put_unlink(c, p);
	account_give(c, p->account, p->client < CORE_CLIENTS_MAX ? &c->client[p->client] : NULL,
		     ACCOUNT_PUTS);
	p->used = false;
	p->next = c->puts.free;
	c->puts.free = p;
	return true;
}

/* The same for one whose end nobody waits for: it goes on in put_work. */
void put_let_free(struct core *c, struct put *p)
{
	if (put_free(c, p))
		return;
	p->freeing = true;
	p->next_freeing = c->puts.freeing;
	c->puts.freeing = p;
}

void put_work(struct core *c)
{
	struct put *p;

	while ((p = c->puts.freeing) && !meter_spent(&c->meter)) {
		struct put *next = p->next_freeing;

		if (put_free(c, p))
			c->puts.freeing = next;
	}
}

/* The client has gone. A committing put ends with its request, when its copies are over. */
void put_abort(struct core *c, struct put *p)
{
	if (!p->committing)
		put_let_free(c, p);
	if (!p->used)
		return;
	put_unlink(c, p);
	p->next = c->puts.orphans;
	c->puts.orphans = p;
	p->client = CORE_CLIENTS_MAX;
}

/* ---- the answer --------------------------------------------------------------------------- */

/*
 * All of a put is whole: the shorter block that it goes on from is not needed any more. Where no
 * tombstone finds room it may come back after a restart, and leave as others do.
 */
static void put_replace(struct core *c, struct put *p)
{
	static const uint8_t none[ABI_KEY_BYTES];
	uint32_t slot;

	if (memcmp(p->args.replaces, none, sizeof(none)) == 0 || p->epoch != p->ctx->spec.epoch ||
	    p->replaced)
		return;
	p->replaced = true;
	slot = index_find(&p->ctx->ix, p->args.replaces);
	if (slot == ABI_SLOT_NONE || index_block(&p->ctx->ix, slot)->state != ABI_BLOCK_COMMITTED)
		return;
	tombstone(c, p->ctx, p->args.replaces, core_lsn(c));
	block_drop(c, p->ctx, slot);
	c->metrics.blocks_replaced++;
}

/* How many of its blocks are whole? False: not known yet. */
static bool count_visible(struct core *c, struct put *p)
{
	for (; p->counted < p->done; p->counted++) {
		struct abi_block_ref ref = p->ref[p->counted];

		if (meter_spent(&c->meter))
			return false;
		meter_charge(&c->meter, 1);
		p->visible += block_alive(p->ctx, ref) &&
			      index_block(&p->ctx->ix, ref.slot)->state == ABI_BLOCK_COMMITTED;
	}
	return true;
}

/* It is over, and told so once what came was counted. */
void put_end(struct core *c, struct request *r, int res)
{
	struct put *p = r->put;

	assert(!r->outstanding);
	if (!p->ending) {
		p->ending = true;
		p->res = res;
		p->counted = p->visible = 0;
	}
	if (!p->res && p->epoch != p->ctx->spec.epoch) { /* raised while it was counted */
		p->res = -ESTALE;
		p->counted = p->visible = 0;
	}
	if (!count_visible(c, p)) {
		request_go_on(c, r);
		return;
	}
	if (!p->res && p->visible == p->args.count)
		put_replace(c, p);
	if (!put_retain(c, p) || !put_free(c, p)) {
		request_go_on(c, r);
		return;
	}
	r->put = NULL;
	evict_room_ahead(c, r->ctx, ABI_TIER_CXL);
	request_end(c, r, p->res, p->visible, 0);
}
