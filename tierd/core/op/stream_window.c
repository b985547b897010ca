/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Windows of streams (P1): how many layers of a stream may be in a tier at a time, and who gets how
 * much of the stream pool. A stream needs two layers; it is refused at once when the pool could
 * never hold them, gets what it wants while there is enough, gives back down to its need while
 * others wait, and waits itself when all that is left is other streams' need.
 *
 * While there are other users, the windows of one are three quarters of the pool at most; but a
 * stream whose need is more gets it, when it is its user's only one, and what a user had before
 * others came he keeps. Once somebody else's stream waits, what goes beyond has its time. A
 * stream begins beside others of its context only if their windows are half of its quota at most.
 *
 * What was granted is set aside: caches may not grow into it (place_alloc). It stays so for some
 * seconds after the last stream, for the next one to find it.
 */
#include <assert.h>
#include <errno.h>

#include "tierd/core/state.h"

#define WINDOW_DEFAULT (128ull << 20)
#define ASIDE_NS (5000 * MS)
#define BEYOND_NS (30000 * MS) /* beyond a user's share, while other users' streams wait */

static uint64_t min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t pool_bytes(const struct core *c, uint32_t tier)
{
	return c->pool[tier].capacity / c->config.stream_share;
}

/* What the streams of one user may have of the pool. */
static uint64_t user_bytes(const struct core *c, uint32_t tier)
{
	uint64_t pool = pool_bytes(c, tier);

	return c->accounts.users > 1 ? pool / 4 * 3 : pool;
}

static uint64_t user_has(const struct core *c, const struct stream *s, uint32_t tier)
{
	assert(s->account < CORE_ACCOUNTS_MAX);
	return c->accounts.table[s->account].windows[tier];
}

/* What a window may still grow by: the pool has it, and its user may. */
static uint64_t left(const struct core *c, const struct stream *s, uint32_t tier)
{
	uint64_t pool = pool_bytes(c, tier), most = user_bytes(c, tier);
	uint64_t has = user_has(c, s, tier), all = c->streams.grants[tier];

	return min_u64(all < pool ? pool - all : 0, has < most ? most - has : 0);
}

/* Bytes of a layer of one block. */
static uint64_t layer_of_block(const struct stream *s, uint32_t layer)
{
	const struct abi_geometry *g = context_geometry(s->ctx);
	uint64_t bytes = 0;

	for (uint32_t p = s->part_first; p < s->part_end; p++)
		if (layer - g->part[p].layer_first < g->part[p].layers)
			bytes += (uint64_t)g->part[p].groups * g->part[p].page_stride;
	return bytes;
}

/* Bytes of its largest layer. */
static uint64_t layer_bytes(const struct stream *s)
{
	uint64_t most = 0;

	for (uint32_t layer = s->layer_first; layer < s->layer_first + s->layers; layer++)
		most = max_u64(most, layer_of_block(s, layer) * s->count);
	return most;
}

/* Bytes that it brings of one block. */
uint64_t stream_block_bytes(const struct stream *s)
{
	uint64_t bytes = 0;

	for (uint32_t layer = s->layer_first; layer < s->layer_first + s->layers; layer++)
		bytes += layer_of_block(s, layer);
	return bytes;
}

/* Half of what its context may have in the tiers that it passes. */
static uint64_t half_quota(const struct stream *s)
{
	uint64_t least = UINT64_MAX;

	for (uint32_t tier = s->tier; tier <= ABI_TIER_CXL; tier++)
		least = min_u64(least, s->ctx->plan.quota[tier] / 2);
	return least;
}

/*
 * How many blocks of a prefix it may hold. What a cache is to keep is there whole in the end: of a
 * prefix that is larger than half of what the context may have, the first blocks that are not.
 */
uint32_t stream_window_blocks(const struct stream *s)
{
	uint64_t bytes = stream_block_bytes(s);

	assert(s->layers && s->tier < ABI_MEM_TIERS);
	if (s->mode != ABI_MODE_CACHE || !bytes)
		return UINT32_MAX;
	return (uint32_t)min_u64(max_u64(half_quota(s) / bytes, 1), UINT32_MAX);
}

/*
 * Bytes of its blocks that may stay because they were streamed a short time before: those of a
 * context's live streams together are half of what it may have. The first blocks stay whole then,
 * where else the last layers of all would push out what came before them.
 */
uint64_t stream_window_keeps(const struct core *c, const struct stream *s)
{
	uint64_t most = half_quota(s);

	for (uint32_t i = 0; i < c->streams.high; i++) {
		const struct stream *k = &c->streams.table[i];

		if (k->used && k != s && k->ctx == s->ctx)
			most -= min_u64(most, k->kept);
	}
	return most;
}

/* 0, or -EMSGSIZE: it can never have the window of s->need bytes. */
int stream_window_plan(struct core *c, struct stream *s, uint64_t wanted)
{
	if (s->mode == ABI_MODE_CACHE) {
		s->window = s->layers;
		return 0;
	}
	s->layer_bytes = layer_bytes(s);
	s->need = s->layer_bytes * (s->layers < 2 ? s->layers : 2);
	s->want = min_u64(max_u64(wanted ? wanted : WINDOW_DEFAULT, s->need),
			  s->layer_bytes * s->layers);
	for (uint32_t tier = s->tier; tier <= ABI_TIER_CXL; tier++)
		if (s->need > pool_bytes(c, tier) || s->need > s->ctx->plan.quota[tier] / 2)
			return -EMSGSIZE;
	return wanted && wanted < s->need ? -EMSGSIZE : 0;
}

/* Bytes of window that it uses: of layers begun and not let go. */
static uint64_t in_use(const struct stream *s)
{
	uint32_t end = (s->issue + s->per_layer - 1) / s->per_layer;

	return (uint64_t)(end - s->dropped / s->per_layer) * s->layer_bytes;
}

static void set_window(struct stream *s)
{
	uint64_t least = UINT64_MAX;

	for (uint32_t tier = s->tier; tier <= ABI_TIER_CXL; tier++)
		least = min_u64(least, s->grant[tier]);
	s->window = (uint32_t)min_u64(s->layer_bytes ? least / s->layer_bytes : s->layers,
				      s->layers);
	assert(s->window);
}

static void grant(struct core *c, struct stream *s, uint32_t tier, uint64_t bytes)
{
	assert(user_has(c, s, tier) >= s->grant[tier] && s->ctx->windows[tier] >= s->grant[tier]);
	c->streams.grants[tier] += bytes - s->grant[tier]; /* modulo 2^64 */
	c->accounts.table[s->account].windows[tier] += bytes - s->grant[tier];
	s->ctx->windows[tier] += bytes - s->grant[tier];
	s->grant[tier] = bytes;
	c->streams.aside[tier] = max_u64(c->streams.aside[tier], c->streams.grants[tier]);
	c->streams.idle_ns = c->now_ns + ASIDE_NS;
}

/* Others wait: give back what is beyond the need and not in use. */
static void squeeze(struct core *c, struct stream *s)
{
	uint64_t keep = max_u64(s->need, in_use(s));

	for (uint32_t tier = s->tier; tier <= ABI_TIER_CXL; tier++)
		if (s->grant[tier] > keep)
			grant(c, s, tier, keep);
	set_window(s);
}

/* May its user have the window that it needs, beside those he has? */
static bool user_may(const struct core *c, const struct stream *s)
{
	for (uint32_t tier = s->tier; tier <= ABI_TIER_CXL; tier++) {
		uint64_t has = user_has(c, s, tier);

		if (has && has + s->need > user_bytes(c, tier))
			return false;
	}
	return true;
}

/* The same of its context. Its quota may have become smaller than the need since. */
static bool context_may(const struct stream *s)
{
	for (uint32_t tier = s->tier; tier <= ABI_TIER_CXL; tier++) {
		uint64_t has = s->ctx->windows[tier];

		if (has && has + s->need > s->ctx->plan.quota[tier] / 2)
			return false;
	}
	return true;
}

static bool fits(const struct core *c, const struct stream *s)
{
	for (uint32_t tier = s->tier; tier <= ABI_TIER_CXL; tier++)
		if (c->streams.grants[tier] + s->need > pool_bytes(c, tier))
			return false;
	return user_may(c, s) && context_may(s);
}

/* Would it help one that waits if this one gave back? Not what waits for its user, or context. */
static bool helps(const struct core *c, const struct stream *s, const struct stream *waiting)
{
	return (waiting->account == s->account || user_may(c, waiting)) &&
	       (waiting->ctx == s->ctx || context_may(waiting));
}

static bool others_wait(const struct core *c, const struct stream *s)
{
	for (uint32_t i = 0; i < c->streams.high; i++)
		if (c->streams.table[i].used && !c->streams.table[i].ended &&
		    !c->streams.table[i].window && helps(c, s, &c->streams.table[i]))
			return true;
	return false;
}

/* Its user's windows, up to its own in the order of the table, are more than he may have. */
static bool beyond_share(const struct core *c, const struct stream *s, uint32_t tier)
{
	uint64_t bytes = 0;

	if (user_has(c, s, tier) <= user_bytes(c, tier))
		return false;
	for (const struct stream *i = c->streams.table; i <= s; i++)
		bytes += i->used && i->account == s->account ? i->grant[tier] : 0;
	assert(bytes <= user_has(c, s, tier));
	return bytes > user_bytes(c, tier);
}

/* Does it take of what its user has beyond his share, in a tier that the other one finds full? */
static bool in_the_way(const struct core *c, const struct stream *s, const struct stream *waiting)
{
	for (uint32_t tier = waiting->tier; tier <= ABI_TIER_CXL; tier++)
		if (c->streams.grants[tier] + waiting->need > pool_bytes(c, tier) &&
		    beyond_share(c, s, tier))
			return true;
	return false;
}

/* What other users have beyond their share, while this one waits, is late before long. */
static void hurry_others(struct core *c, const struct stream *waiting)
{
	uint64_t end = c->now_ns + BEYOND_NS;

	if (!user_may(c, waiting) || !context_may(waiting))
		return;
	for (uint32_t i = 0; i < c->streams.high; i++) {
		struct stream *s = &c->streams.table[i];

		if (s->used && s->request && s->account != waiting->account &&
		    s->deadline_ns > end && in_the_way(c, s, waiting))
			s->deadline_ns = s->request->deadline_ns = end;
	}
}

/* False: it waits for other streams' windows. */
bool stream_admit(struct core *c, struct stream *s)
{
	for (uint32_t i = 0; !fits(c, s) && i < c->streams.high; i++)
		if (c->streams.table[i].used && c->streams.table[i].window &&
		    c->streams.table[i].mode == ABI_MODE_STREAM &&
		    helps(c, &c->streams.table[i], s))
			squeeze(c, &c->streams.table[i]);
	if (!fits(c, s)) {
		hurry_others(c, s);
		return false;
	}
	for (uint32_t tier = s->tier; tier <= ABI_TIER_CXL; tier++)
		grant(c, s, tier, max_u64(s->need, min_u64(s->want, left(c, s, tier))));
	set_window(s);
	return true;
}

/* Layers were let go: who waits gets them, else the stream may grow back to what it wants. */
void stream_window_moved(struct core *c, struct stream *s)
{
	if (s->mode == ABI_MODE_CACHE || !s->window)
		return;
	if (others_wait(c, s)) {
		squeeze(c, s);
		request_wake_space(c);
		return;
	}
	for (uint32_t tier = s->tier; tier <= ABI_TIER_CXL; tier++)
		if (s->grant[tier] < s->want && left(c, s, tier))
			grant(c, s, tier, min_u64(s->want, s->grant[tier] + left(c, s, tier)));
	set_window(s);
}

/* What it had goes to who waits for it all (stream_free wakes them), else to those who got less. */
void stream_window_end(struct core *c, struct stream *s)
{
	for (uint32_t tier = 0; tier < ABI_MEM_TIERS; tier++)
		if (s->grant[tier])
			grant(c, s, tier, 0);
	for (uint32_t i = 0; i < c->streams.high; i++) {
		struct stream *other = &c->streams.table[i];

		if (other == s || !other->used || other->over || others_wait(c, other))
			continue;
		stream_window_moved(c, other);
		if (other->request)
			request_wake(c, other->request);
	}
}
