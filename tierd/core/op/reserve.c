/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reservations: room in CXL for what a request is going to put, promised before it is needed, so
 * that its puts meet no eviction on their way. It begins with what is expected and grows in steps
 * as it is drawn down; the sum of what all may come to (the p95 of each) is kept below what can be
 * reserved at all, so that growth finds something to evict.
 *
 *   reserve -> [room is made] -> places of each class promised (space_reserve)
 *   put under it -> draws places down -> low: grows by a step, ahead of need
 *   handed back, past its deadline, or its client gone: the rest is free for all
 *
 * Who asks without numbers gets the predictor's (predict.h), which learns from what is handed back.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tierd/core/state.h"

#define CELLS 1024u
#define BLOCKS_UNKNOWN 8u  /* expected when nobody knows; four times that at most */
#define RETRY_NS (1 * MS)
#define SLAB_ITEMS 8u /* that a slab counts for: its bits are cleared, its memory is asked for */

int reserve_open(struct core *c)
{
	c->reserve.table = calloc(CORE_RESERVATIONS_MAX, sizeof(*c->reserve.table));
	c->reserve.free = ABI_SLOT_NONE;
	return c->reserve.table ? predict_open(&c->reserve.predict, CELLS) : -ENOMEM;
}

void reserve_close(struct core *c)
{
	predict_close(&c->reserve.predict);
	free(c->reserve.table);
}

/* ---- sums --------------------------------------------------------------------------------- */

static uint32_t blocks_of(const struct reservation *r, uint64_t pages)
{
	uint32_t per = r->ctx->ix.pages_per_block;

	return (uint32_t)((pages + per - 1) / per);
}

/* Blocks that the reservation may still come to. */
static uint32_t most_left(const struct reservation *r)
{
	uint32_t drawn = blocks_of(r, r->drawn), most = r->p95 > r->granted ? r->p95 : r->granted;

	return most > drawn ? most - drawn : 0;
}

static void most_set(struct core *c, struct reservation *r, uint32_t blocks)
{
	uint64_t more = (uint64_t)blocks - r->most; /* modulo 2^64, as the sums are */

	r->ctx->reserved_most_blocks += more;
	c->reserve.most_bytes += more * r->ctx->spec.geometry.block_bytes;
	r->most = blocks;
	assert(c->reserve.most_bytes / r->ctx->spec.geometry.block_bytes >=
	       r->ctx->reserved_most_blocks);
}

static void most_update(struct core *c, struct reservation *r)
{
	most_set(c, r, most_left(r));
}

static uint64_t promises_max(const struct context *x)
{
	return x->plan.quota[ABI_TIER_CXL] / 100 * QUOTA_PROMISES_PERCENT;
}

/* Is so much of the context's CXL, and of the host's, left to promise so many blocks more? */
static bool promisable(const struct core *c, const struct context *x, uint32_t blocks)
{
	uint64_t bytes = blocks * x->spec.geometry.block_bytes;
	uint64_t held = x->pinned[ABI_TIER_CXL] + c->reclaim.quarantined[ABI_TIER_CXL];

	return x->reserved_most_blocks * x->spec.geometry.block_bytes + bytes + held <=
		       promises_max(x) &&
	       quota_may_promise(c, ABI_TIER_CXL, bytes);
}

/* ---- places ------------------------------------------------------------------------------- */

static void give(struct reservation *r, uint32_t klass, uint32_t places)
{
	assert(r->left[klass] >= places);
	space_unreserve(r->ctx->space[ABI_TIER_CXL], klass, places);
	r->left[klass] -= places;
}

/* Slabs for so many places more, and these promised. -EINPROGRESS: it goes on in a later event. */
static int promise(struct core *c, struct reservation *r, uint32_t klass, uint32_t places)
{
	struct space *s = r->ctx->space[ABI_TIER_CXL];
	uint64_t fresh;
	int err;

	while ((err = space_reserve(s, klass, places, &fresh)) == 1) {
		place_prepare(c, r->ctx, ABI_TIER_CXL, fresh);
		meter_charge(&c->meter, SLAB_ITEMS);
		if (meter_spent(&c->meter))
			return -EINPROGRESS;
	}
	r->left[klass] += err ? 0 : places;
	return err;
}

/*
 * Promise places for so many blocks more, all of them or none. A walk: slabs that were taken for it
 * stay the context's.
 */
static int grow(struct core *c, struct reservation *r, uint32_t blocks)
{
	const struct context *x = r->ctx;
	int err = 0;

	if (place_set_aside(c, ABI_TIER_CXL, blocks * x->spec.geometry.block_bytes))
		return -ENOSPC;
	for (uint32_t k = 0; k < x->classes && !err; k++) {
		err = promise(c, r, k, blocks * x->block_places[k]);
		if (!err)
			continue;
		while (k-- > 0)
			give(r, k, blocks * x->block_places[k]);
		return err;
	}
	r->granted += blocks;
	most_update(c, r);
	return 0;
}

/* May it grow by a step? Up to its p95 that is promised already; beyond, as others may. */
static bool may_grow(const struct core *c, const struct reservation *r)
{
	uint32_t most = r->p95 > r->granted ? r->p95 : r->granted, then = r->granted + r->step;

	return then <= most || promisable(c, r->ctx, then - most);
}

/* Is it time for the next step? Half of one is kept ahead. */
static bool low(const struct reservation *r)
{
	for (uint32_t k = 0; k < r->ctx->classes; k++)
		if (2 * r->left[k] < r->step * r->ctx->block_places[k])
			return true;
	return false;
}

struct reservation *reserve_find(struct core *c, uint64_t id, uint32_t client,
				 const struct context *x)
{
	struct reservation *r = &c->reserve.table[id % CORE_RESERVATIONS_MAX];

	return id && r->used && r->id == id && r->client == client && r->ctx == x ? r : NULL;
}

/* A place for a put's page from its reservation; -ENOENT: none is left there. */
int64_t reserve_draw(struct core *c, const struct put *p, uint32_t slot, uint32_t page)
{
	struct context *x = p->ctx;
	struct reservation *r = reserve_find(c, p->reservation, p->client, x);
	uint32_t klass = x->part_class[x->page_part[page]];
	int64_t place;

	if (!r || quota_left(c, x, slot, ABI_TIER_CXL) < page_stride(x, page))
		return -ENOENT;
	if (!r->left[klass]) {
		c->metrics.reserve_short++;
		r->growing = c->reserve.growing = true;
		return -ENOENT;
	}
	place = space_alloc_reserved(x->space[ABI_TIER_CXL], klass);
	r->left[klass]--;
	r->drawn++;
	c->metrics.reserve_drawn++;
	most_update(c, r);
	if (low(r) && !r->growing) {
		r->growing = true;
		r->retry_ns = 0;
		c->reserve.growing = true;
	}
	return place;
}

/*
 * A put's page that drew nothing has a place elsewhere now: what the request came to counts it.
 * Else outputs would look the shorter the less could be promised, and so would the next promises.
 */
void reserve_beside(struct core *c, const struct put *p)
{
	struct reservation *r = reserve_find(c, p->reservation, p->client, p->ctx);

	if (r)
		r->beside++;
}

/* ---- life --------------------------------------------------------------------------------- */

static struct reservation *reservation_get(struct core *c, uint32_t client)
{
	struct reservation *r = NULL;

	if (!account_may(c, &c->client[client], ACCOUNT_RESERVATIONS))
		return NULL;
	if (c->reserve.free != ABI_SLOT_NONE) {
		r = &c->reserve.table[c->reserve.free];
		c->reserve.free = r->next_free;
	} else if (c->reserve.high < CORE_RESERVATIONS_MAX) {
		r = &c->reserve.table[c->reserve.high++];
	}
	if (r) {
		memset(r, 0, sizeof(*r));
		r->used = true;
		r->client = client;
		account_take(c, &c->client[client], ACCOUNT_RESERVATIONS);
		c->reserve.count++;
	}
	return r;
}

static void reservation_put(struct core *c, struct reservation *r)
{
	struct client *owner = &c->client[r->client];

	assert(r->used && c->reserve.count > 0);
	for (uint32_t k = 0; k < r->ctx->classes; k++)
		give(r, k, r->left[k]);
	most_set(c, r, 0);
	account_give(c, owner->account, owner, ACCOUNT_RESERVATIONS);
	r->used = false;
	r->next_free = c->reserve.free;
	c->reserve.free = (uint32_t)(r - c->reserve.table);
	c->reserve.count--;
}

static void reserve_end(struct core *c, struct reservation *r)
{
	reservation_put(c, r);
	request_wake_space(c);
}

/* At most what the context could ever be promised: a larger answer would never be granted, and so
 * nothing would teach the predictor better. */
static void cut(const struct context *x, struct abi_reserve_args *a)
{
	uint64_t most = promises_max(x) / x->spec.geometry.block_bytes;

	a->expected = a->expected < most ? a->expected : (uint32_t)most;
	a->p95 = a->p95 < most ? a->p95 : (uint32_t)most;
}

/* What the client did not say, the predictor does. */
static void predict(const struct core *c, const struct request *q, struct abi_reserve_args *a)
{
	const struct predict_key key = { a->salt, q->ctx->index, a->role };
	struct predict_answer p = predict_ask(&c->reserve.predict, &key);

	if (!a->expected) {
		a->expected = p.known ? p.expected : BLOCKS_UNKNOWN;
		a->p95 = p.known ? p.upper : 4 * BLOCKS_UNKNOWN;
		a->predicted = 1;
		cut(q->ctx, a);
	}
	a->expected += !a->expected;
	if (a->p95 < a->expected)
		a->p95 = a->expected;
	if (!a->step)
		a->step = (a->expected + 3) / 4;
	if (a->step > a->p95)
		a->step = a->p95;
}

static int args_check(const struct abi_reserve_args *a)
{
	for (size_t i = 0; i < sizeof(a->reserved); i++)
		if (a->reserved[i])
			return -EINVAL;
	if (a->predicted || a->p95 > ABI_RESERVE_BLOCKS_MAX ||
	    a->expected > ABI_RESERVE_BLOCKS_MAX || a->step > ABI_RESERVE_BLOCKS_MAX)
		return -EINVAL;
	return a->expected || !a->p95 ? 0 : -EINVAL;
}

/* Hand back: what was put under it teaches the predictor. */
static void hand_back(struct core *c, struct request *q)
{
	struct reservation *r = reserve_find(c, q->sqe.handle, q->client, q->ctx);
	uint32_t blocks;

	if (!r) {
		request_end(c, q, -ENOENT, 0, 0);
		return;
	}
	blocks = blocks_of(r, r->drawn + r->beside);
	predict_tell(&c->reserve.predict, &r->key, r->upper, blocks);
	reserve_end(c, r);
	request_end(c, q, 0, blocks, 0);
}

static void granted(struct core *c, struct request *q, struct reservation *r,
		    const struct abi_reserve_args *a)
{
	uint64_t end = q->sqe.deadline_ns, most = q->since_ns + PARK_HORIZON_NS;

	assert(r->client == q->client);
	end = end ? end : q->since_ns + RESERVE_DEFAULT_NS;
	r->deadline_ns = end < most ? end : most;
	r->id = ++c->reserve.seq * CORE_RESERVATIONS_MAX + (uint64_t)(r - c->reserve.table);
	r->key = (struct predict_key){ a->salt, q->ctx->index, a->role };
	r->upper = a->predicted ? a->p95 : 0;
	c->metrics.reservations++;
	request_end(c, q, 0, r->id, (uint64_t)a->p95 << 32 | r->granted);
}

/*
 * Make room for what is expected, as long as the request may wait; others may be promised it
 * meanwhile.
 */
static void reserve_step(struct core *c, struct request *q)
{
	const struct abi_reserve_args *a = (const struct abi_reserve_args *)q->arg;
	struct reservation *r;
	int err = q->error ? q->error : q->late ? -ETIMEDOUT : 0;

	q->phase = REQUEST_RUN;
	if (!err && !promisable(c, q->ctx, a->p95))
		err = -EDQUOT;
	r = err ? NULL : reservation_get(c, q->client);
	if (!r) {
		request_end(c, q, err ? err : -EAGAIN, 0,
			    err ? 0 : account_lack(c, &c->client[q->client],
						   ACCOUNT_RESERVATIONS));
		return;
	}
	r->ctx = q->ctx;
	r->expected = a->expected;
	r->p95 = a->p95;
	r->step = a->step;
	err = grow(c, r, a->expected);
	if (!err) {
		granted(c, q, r, a);
		return;
	}
	reservation_put(c, r);
	if (err == -EINPROGRESS) {
		request_go_on(c, q);
		return;
	}
	err = evict_room(c, q->ctx, ABI_TIER_CXL,
			 a->expected * q->ctx->spec.geometry.block_bytes);
	if (err)
		request_end(c, q, err, 0, 0);
	else if (!q->queued)
		request_wait_space(c, q);
}

static void reserve_request(struct core *c, struct request *q)
{
	struct abi_reserve_args *a = (struct abi_reserve_args *)q->arg;
	uint64_t most = q->since_ns + c->config.request_deadline_ns;
	int err;

	if (q->sqe.handle) {
		hand_back(c, q);
		return;
	}
	err = args_check(a);
	if (!err)
		predict(c, q, a);
	if (err) {
		request_end(c, q, err, 0, 0);
		return;
	}
	if (q->deadline_ns > most) /* the reservation's end is not the answer's */
		q->deadline_ns = most;
	reserve_step(c, q);
}

/* ---- time --------------------------------------------------------------------------------- */

/* Those that are low grow, ahead of need: what leaves for it is nobody's demand. */
void reserve_grow(struct core *c)
{
	bool more = false;

	if (!c->reserve.growing)
		return;
	meter_charge_table(&c->meter, c->reserve.high);
	for (uint32_t i = 0; i < c->reserve.high; i++) {
		struct reservation *r = &c->reserve.table[i];

		if (!r->used || !r->growing)
			continue;
		if (c->now_ns >= r->retry_ns) {
			int err = low(r) && may_grow(c, r) ? grow(c, r, r->step) : 0;

			r->growing = err != 0;
			r->retry_ns = c->now_ns + (err == -EINPROGRESS ? 0 : RETRY_NS);
			if (err && err != -EINPROGRESS)
				evict_room(c, r->ctx, ABI_TIER_CXL,
					   r->step * r->ctx->spec.geometry.block_bytes);
		}
		more |= r->growing;
	}
	c->reserve.growing = more;
}

/* Reservations of one client (its end), one context (its removal), or past their deadline. */
static void reservations_end(struct core *c, uint32_t client, const struct context *x,
			     uint64_t now_ns)
{
	for (uint32_t i = 0; c->reserve.count && i < c->reserve.high; i++) {
		struct reservation *r = &c->reserve.table[i];

		if (!r->used || (r->client != client && r->ctx != x && r->deadline_ns > now_ns))
			continue;
		c->metrics.reservations_expired++;
		reserve_end(c, r);
	}
}

static void reserve_client_gone(struct core *c, uint32_t client)
{
	reservations_end(c, client, NULL, 0);
}

static void reserve_context_gone(struct core *c, struct context *x)
{
	reservations_end(c, CORE_CLIENTS_MAX, x, 0);
}

void reserve_tick(struct core *c)
{
	reservations_end(c, CORE_CLIENTS_MAX, NULL, c->now_ns);
}

static uint64_t reserve_bytes(const struct abi_sqe *q)
{
	return q->handle ? 0 : sizeof(struct abi_reserve_args);
}

const struct op_ops op_reserve = {
	.name = "reserve",
	.context = true,
	.writes = true,
	.arg_bytes = reserve_bytes,
	.begin = reserve_request,
	.step = reserve_step,
	.client_gone = reserve_client_gone,
	.context_gone = reserve_context_gone,
};
