/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How streams let go: layers that their client has released, one by one, and in the end everything.
 * A page that is still coming is waited for, so that no count ends while bytes move under it. Here
 * is also what is looked at as time passes: the client's line, and ends that nobody asked for.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "libtier/base/atomic.h"
#include "tierd/core/state.h"

#define BUSY_NS (MS / 10)

/* It has gone on to HBM, or is not wanted there any more. */
void stream_drop_stage(struct core *c, struct stream *s, uint32_t i, const struct abi_page_ref *at)
{
	if (s->item[i] & ITEM_STAGE)
		stream_page_drop(c, s->ctx, at->slot, at->page, ABI_TIER_CXL);
	s->item[i] &= (uint8_t)~ITEM_STAGE;
}

/* ---- letting go --------------------------------------------------------------------------- */

/* Nothing moves for the request any more. */
bool stream_release(struct core *c, struct request *r)
{
	(void)c;
	assert(r->stream->request == r);
	r->stream->request = NULL;
	r->stream = NULL;
	return true;
}

void stream_over(struct core *c, struct stream *s)
{
	assert(s->ended);
	s->over = true;
	c->streams.busy = true;
}

static void account(struct core *c, struct stream *s, uint32_t i, uint32_t bytes)
{
	if (!(s->item[i] & ITEM_MINE))
		return;
	if (s->item[i] & ITEM_LATE) {
		s->late += bytes;
		c->metrics.stream_late += bytes;
	} else if (i < s->released * s->per_layer) {
		s->used_bytes += bytes;
		c->metrics.stream_used += bytes;
	} else {
		s->wasted += bytes;
		c->metrics.stream_wasted += bytes;
	}
}

/* Take our counts on an item back. False: it is still coming; later. */
static bool drop_item(struct core *c, struct stream *s, uint32_t i)
{
	struct abi_page_ref at = { .slot = 0 };
	const struct abi_page *d;
	uint32_t block;

	if (!s->item[i])
		return true;
	stream_item(s, i, &block, &at.page); /* not void: the parts of a held block stay */
	at.slot = s->ref[block].slot;
	d = index_page(&s->ctx->ix, at.slot, at.page);
	if (page_state(d, s->tier) == ABI_PAGE_FILLING ||
	    (s->item[i] & ITEM_STAGE && page_state(d, ABI_TIER_CXL) == ABI_PAGE_FILLING))
		return false;
	stream_drop_stage(c, s, i, &at);
	if (s->item[i] & ITEM_COUNTED)
		stream_page_drop(c, s->ctx, at.slot, at.page, s->tier);
	account(c, s, i, page_stride(s->ctx, at.page));
	s->item[i] = 0;
	return true;
}

static void stream_free(struct core *c, struct stream *s)
{
	struct client *k = &c->client[s->client];
	struct context *x = s->ctx;

	assert(!s->held && s->dropped == s->issue);
	stream_window_end(c, s);
	if (s->request)
		s->request->stream = NULL;
	account_give(c, s->account, k->connection == s->connection ? k : NULL, ACCOUNT_STREAMS);
	s->used = false;
	c->streams.count--;
	while (c->streams.high && !c->streams.table[c->streams.high - 1].used)
		c->streams.high--;
	request_wake_space(c);
	core_signals.context_idle(c, x);
}

static void unhold(struct core *c, struct stream *s)
{
	while (s->held && !meter_spent(&c->meter)) {
		uint32_t slot = s->ref[--s->held].slot;

		meter_charge(&c->meter, 1);
		block_use_make(s->ctx, slot)->streams--;
		if (s->mode == ABI_MODE_CACHE)
			block_used(c, s->ctx, slot, 1);
		block_unhold(c, s->ctx, slot);
	}
	if (s->held)
		c->streams.busy = true;
	else
		stream_free(c, s);
}

static void let_go(struct core *c, struct stream *s)
{
	uint32_t item = s->released * s->per_layer, before = s->dropped;
	uint32_t end = s->over || item > s->issue ? s->issue : item;

	for (; s->dropped < end && !meter_spent(&c->meter); s->dropped++) {
		meter_charge(&c->meter, 1);
		if (!drop_item(c, s, s->dropped))
			break;
	}
	if (s->dropped < end) {
		c->streams.busy = true;
		return;
	}
	if (s->over) {
		unhold(c, s);
		return;
	}
	if (s->dropped == before)
		return;
	stream_window_moved(c, s);
	if (s->request)
		request_wake(c, s->request);
}

void stream_work(struct core *c)
{
	uint32_t first = c->streams.next; /* who had no share of the last event */

	if (!c->streams.busy)
		return;
	c->streams.busy = false;
	for (uint32_t n = 0, high = c->streams.high; n < high; n++) {
		struct stream *s = &c->streams.table[(first + n) % high];

		if (meter_spent(&c->meter)) {
			c->streams.next = (first + n) % high;
			c->streams.busy = true;
			return;
		}
		if (s->used)
			let_go(c, s);
	}
	c->streams.next = 0;
}

/* ---- time and death ----------------------------------------------------------------------- */

/* Layers are released, also some that have not come: these are not wanted any more. */
static void released(struct core *c, struct stream *s, uint32_t layers)
{
	uint32_t item = layers * s->per_layer;

	s->released = layers;
	if (s->ended)
		item = s->issue < item ? s->issue : item;
	s->issue = s->issue < item ? item : s->issue;
	s->copy = s->copy < item ? item : s->copy;
	s->done = s->done < item ? item : s->done;
	c->streams.busy = true;
	if (s->request)
		request_wake(c, s->request);
}

/* The client's word, read once and clamped (S2). */
static void poll(struct core *c, struct stream *s)
{
	uint64_t word = atomic_load_acquire_u64(&s->line->released);
	uint32_t layers = (uint32_t)word & ~ABI_STREAM_CLOSED;
	bool ours = word >> 32 == s->generation;

	layers = layers < s->layers ? layers : s->layers;
	if (ours && layers > s->released)
		released(c, s, layers);
	if (s->ended && (!ours || word & ABI_STREAM_CLOSED || layers == s->layers))
		stream_over(c, s);
	else if (!s->ended && (!ours || word & ABI_STREAM_CLOSED))
		request_abort(c, s->request, -ECANCELED);
}

void stream_tick(struct core *c)
{
	for (uint32_t i = 0; i < c->streams.high; i++) {
		struct stream *s = &c->streams.table[i];

		if (!s->used || s->over)
			continue;
		if (s->line)
			poll(c, s);
		if (!s->over && s->ended && c->now_ns >= s->until_ns) {
			c->metrics.streams_expired++;
			stream_over(c, s);
		}
	}
	if (c->now_ns >= c->streams.idle_ns)
		memcpy(c->streams.aside, c->streams.grants, sizeof(c->streams.aside));
}

uint64_t stream_next(const struct core *c)
{
	uint64_t next = c->streams.busy ? c->now_ns + BUSY_NS : UINT64_MAX;

	for (uint32_t i = 0; i < c->streams.high; i++) {
		const struct stream *s = &c->streams.table[i];

		if (!s->used || s->over)
			continue;
		if (s->line && atomic_load_acquire_u64(&s->line->released) !=
				       abi_stream_released(s->generation, s->released))
			return c->now_ns;
		if (s->ended && s->until_ns < next)
			next = s->until_ns;
	}
	return next;
}

/* Those not answered end with their request. */
static void end_all(struct core *c, uint32_t client, const struct context *x)
{
	for (uint32_t i = 0; i < c->streams.high; i++) {
		struct stream *s = &c->streams.table[i];

		if (!s->used || (s->client != client && s->ctx != x))
			continue;
		s->line = NULL;
		if (s->ended && !s->over)
			stream_over(c, s);
	}
}

void stream_client_gone(struct core *c, uint32_t client)
{
	end_all(c, client, NULL);
}

void stream_context_gone(struct core *c, struct context *x)
{
	end_all(c, CORE_CLIENTS_MAX, x);
}

bool stream_keeps(const struct core *c, const struct context *x, bool holds)
{
	(void)holds;
	for (uint32_t i = 0; i < c->streams.high; i++)
		if (c->streams.table[i].used && c->streams.table[i].ctx == x)
			return true;
	return false;
}
