/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a prefix: one stream, layer by layer. While the engine waits for nothing it verifies the
 * pages of the layer that is there, where they lie, under leases; the next ones come meanwhile from
 * wherever they are. Blocks that went on the way, or came too late, end the prefix there: the
 * engine computes the rest.
 */
#include "bench/trace/engine.h"

#include <errno.h>
#include <string.h>

#include "bench/trace/gen.h"

#define STREAM_NS (2 * NS_PER_S) /* then the rest is computed */

int engine_verify(struct engine *e, struct tier_lease *lease, const struct tier_page *page,
		  const tier_key *key, uint32_t where)
{
	struct engine_stats *s = e->stats;
	uint64_t from = tick_now();
	int error = gen_verify(lease->data, lease->bytes, key, page->page, NULL);
	uint64_t ns = (uint64_t)tick_ns(&e->set->tick, from, tick_now());

	engine_count(&s->read[where].pages, 1);
	engine_count(&s->read[where].bytes, lease->bytes);
	engine_count(&s->read[where].ns, ns);
	engine_count(&s->verified_pages, 1);
	engine_count(&s->verified_bytes, lease->bytes);
	if (error)
		engine_count(&s->bad_pages, 1);
	tier_release(e->r, lease);
	return error;
}

/* Ask for pages; *op is the request's entry. */
static int fetch_start(struct engine *e, const struct tier_page *page, uint32_t count,
		       uint32_t target, int *op)
{
	struct tier_ask ask = { .size = sizeof(ask), .tier = target };
	int error;

	*op = engine_op_begin(e, true);
	if (*op < 0)
		return *op;
	ask.user_data = engine_op_tag(*op);
	for (;;) {
		error = tier_fetch_pages_start(e->c, page, count, &ask);
		if (error != -EAGAIN)
			break;
		error = engine_reap(e, 1);
		if (error)
			break;
	}
	if (error) {
		engine_op_drop(e, *op);
		*op = -1;
	}
	return error;
}

int engine_fetch_pages(struct engine *e, const struct tier_page *page, uint32_t count,
		       uint32_t target)
{
	struct tier_completion got;
	int op, error = fetch_start(e, page, count, target, &op);

	if (!error)
		error = engine_op_wait(e, op, &got);
	if (error)
		return error;
	if (got.status == TIER_LATE)
		engine_count(&e->stats->fetches_late, 1);
	return got.result ? -ENODATA : 0;
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* ---- a prefix ------------------------------------------------------------------------------ */

/* A piece of the prefix on its way. */
struct piece {
	tier_stream *s;
	uint32_t first, count;
	uint32_t usable; /* blocks whose pages all came and were right so far */
	bool nvme;	 /* some of it had to come from there */
	bool missed;	 /* the stream brought fewer blocks than it was asked for, all in time */
};

/* Where a page was when the prompt was matched. */
static uint32_t where(const struct engine *e, uint32_t block, const struct tier_lease *lease)
{
	return e->request.found[block].tier >= TIER_NVME ? TIER_NVME : lease->tier;
}

/* One page of each usable block. */
static int read_page(struct engine *e, struct piece *p, uint32_t page)
{
	for (uint32_t at = 0; at < p->usable; at += ENGINE_WINDOW_PAGES) {
		uint32_t first = p->first + at, n = min_u32(p->usable - at, ENGINE_WINDOW_PAGES);
		const struct tier_selection all = { .blocks = &e->request.block[first],
						    .count = n, .page = page };
		int64_t got = tier_lease_blocks(e->r, e->c, &all, e->lease);

		if (got < 0)
			return (int)got;
		for (uint32_t i = 0; i < n; i++) {
			const struct tier_page which = { e->request.block[first + i], page };
			struct tier_lease *lease = &e->lease[i];
			uint32_t from;

			if (!lease->data) {
				p->usable = min_u32(p->usable, at + i); /* it has gone */
				continue;
			}
			from = where(e, first + i, lease);
			if (from == TIER_NVME)
				engine_count(&e->stats->fetch_bytes, lease->bytes);
			if (engine_verify(e, lease, &which, &e->request.key[first + i], from))
				p->usable = min_u32(p->usable, at + i);
		}
	}
	return 0;
}

static int read_layer(struct engine *e, struct piece *p, uint32_t layer)
{
	const struct engine_settings *set = e->set;
	int error = read_page(e, p, set->layers * set->groups + layer);

	for (uint32_t group = 0; group < set->groups && !error; group++)
		error = read_page(e, p, layer * set->groups + group);
	return error;
}

/* Wait for the layer, if it is not there. */
static int64_t await_layer(struct engine *e, const struct piece *p, uint32_t layer)
{
	uint64_t from = time_now_ns();
	int64_t n;

	engine_count(&e->stats->layers, 1);
	if (tier_stream_ready(p->s) > layer)
		engine_count(&e->stats->layers_there, 1);
	n = tier_stream_wait(p->s, layer, 0);
	engine_count(&e->stats->layer_wait_ns, time_now_ns() - from);
	return n;
}

/*
 * How it ended: the layers that did not come are the engine's to compute. Who has read them all may
 * be faster than the answer, which is the one thing behind them.
 */
static void account(struct engine *e, struct piece *p)
{
	struct tier_stream_progress at = { .size = sizeof(at) };
	struct engine_stats *s = e->stats;

	if (p->usable)
		(void)tier_stream_wait(p->s, e->set->layers, 0); /* -ENODATA: it is there */
	if (tier_stream_look(p->s, &at) || !at.ended) {
		engine_count(&s->streams_ended_early, 1);
		return;
	}
	if (at.result)
		engine_count(&s->streams_failed, 1);
	else if (at.status == TIER_READY)
		engine_count(&s->streams_ready, 1);
	else if (at.status == TIER_LATE)
		engine_count(&s->streams_late, 1);
	else
		engine_count(&s->streams_missed, 1);
	p->missed = !at.result && at.status == TIER_MISSED;
}

/* Read what comes; nothing of it is of use when a layer is missing. */
static int read_piece(struct engine *e, struct piece *p)
{
	uint64_t from = time_now_ns();
	int error = 0;

	for (uint32_t layer = 0; layer < e->set->layers && p->usable && !error; layer++) {
		int64_t n = await_layer(e, p, layer);

		if (n == -ENODATA || n == -ETIMEDOUT || n == -ENOSPC)
			p->usable = 0;
		else if (n < 0)
			return (int)n;
		else
			p->usable = min_u32(p->usable, (uint32_t)n);
		error = read_layer(e, p, layer);
		tier_stream_release(p->s, layer + 1);
	}
	if (p->nvme)
		engine_count(&e->stats->fetch_ns, time_now_ns() - from);
	return error;
}

static int stream_open(struct engine *e, struct piece *p)
{
	const struct tier_stream_options o = {
		.size = sizeof(o),
		.tier = TIER_CXL,
		/* Decoding reads pages of it again and again: they are worth keeping. */
		.mode = e->set->decode_steps ? TIER_MODE_CACHE : TIER_MODE_STREAM,
		.deadline_ns = time_now_ns() + STREAM_NS,
	};
	int error = tier_stream_open(e->c, &e->request.block[p->first], p->count, &o, &p->s);

	for (uint32_t i = 0; i < p->count; i++)
		p->nvme = p->nvme || e->request.found[p->first + i].tier >= TIER_NVME;
	engine_count(&e->stats->streams, !error);
	return error;
}

/*
 * As many blocks as a stream's window or a cache takes; returns how many were usable. Of a prefix
 * that the cache cannot hold whole a stream brings the beginning, and the next one goes on there.
 */
static int64_t stream_blocks(struct engine *e, uint32_t first, uint32_t *count)
{
	for (;;) {
		struct piece p = { .first = first, .count = *count, .usable = *count };
		int error = stream_open(e, &p);

		if (error)
			return error;
		error = read_piece(e, &p);
		if (error != -EMSGSIZE)
			account(e, &p);
		tier_stream_close(p.s);
		if (!error && p.missed && p.usable)
			*count = p.usable;
		if (error != -EMSGSIZE || *count == 1)
			return error ? (int64_t)error : (int64_t)p.usable;
		*count = (*count + 1) / 2; /* two layers of them are more than the pool */
	}
}

int64_t engine_read_prefix(struct engine *e, uint32_t count)
{
	uint32_t usable = 0;

	while (usable < count) {
		uint32_t piece = count - usable;
		int64_t n = stream_blocks(e, usable, &piece);

		if (n < 0)
			return n;
		for (uint32_t i = usable; i < usable + n; i++)
			engine_count(&e->stats->hit_tier[min_u32(e->request.found[i].tier,
								 TIER_NVME)], 1);
		usable += (uint32_t)n;
		if (n < piece)
			break;
	}
	return usable;
}
