/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a prefix: windows of blocks, two at a time, so that the next window's pages come from
 * NVMe while this one's are verified. A page that is in memory is read where it lies, under a
 * lease; one that is not is fetched to CXL and then leased.
 */
#include "bench/trace/engine.h"

#include <errno.h>
#include <string.h>

#include "bench/trace/gen.h"

#define FETCH_TRIES 4

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

/* Lease what is there, note what is not, ask for that. */
static int window_begin(struct engine *e, struct engine_window *w, uint32_t first, uint32_t count)
{
	int64_t n;

	w->first = first;
	w->blocks = min_u32(
		count, min_u32(ENGINE_WINDOW_BLOCKS, ENGINE_WINDOW_PAGES / e->pages_per_block));
	w->usable = w->blocks;
	w->pages = w->blocks * e->pages_per_block;
	w->missing = 0;
	w->op = -1;
	memset(w->slowest, TIER_HBM, sizeof(w->slowest));
	for (uint32_t i = 0; i < w->pages; i++)
		w->page[i] = (struct tier_page){
			.block = e->request.block[first + i / e->pages_per_block],
			.page = i % e->pages_per_block,
		};
	n = tier_lease_pages(e->r, e->c, w->page, w->pages, 0, w->lease);
	if (n < 0)
		return (int)n;
	for (uint32_t i = 0; i < w->pages; i++) {
		if (w->lease[i].data)
			continue;
		if (w->lease[i].error != -ENODATA) {
			w->usable = min_u32(w->usable, i / e->pages_per_block);
			break;
		}
		w->wanted_at[w->missing] = i;
		w->wanted[w->missing++] = w->page[i];
	}
	if (w->missing)
		return fetch_start(e, w->wanted, w->missing, TIER_CXL, &w->op);
	return 0;
}

static void verify_at(struct engine *e, struct engine_window *w, uint32_t i,
		      struct tier_lease *lease, uint32_t where)
{
	uint32_t block = i / e->pages_per_block;

	if (engine_verify(e, lease, &w->page[i], &e->request.key[w->first + block], where))
		w->usable = min_u32(w->usable, block);
	if (w->slowest[block] < where)
		w->slowest[block] = (uint8_t)where;
}

/* Lease and verify those wanted that have come; the others stay wanted. */
static int take_fetched(struct engine *e, struct engine_window *w)
{
	uint32_t left = 0;
	int64_t n = tier_lease_pages(e->r, e->c, w->wanted, w->missing, 0, w->fetched);

	if (n < 0)
		return (int)n;
	for (uint32_t i = 0; i < w->missing; i++) {
		uint32_t at = w->wanted_at[i];

		if (w->fetched[i].data) {
			engine_count(&e->stats->fetch_bytes, w->fetched[i].bytes);
			verify_at(e, w, at, &w->fetched[i], TIER_NVME);
		} else if (w->fetched[i].error == -ENODATA) {
			w->wanted_at[left] = at;
			w->wanted[left++] = w->page[at];
		} else {
			w->usable = min_u32(w->usable, at / e->pages_per_block);
		}
	}
	w->missing = left;
	return 0;
}

static int window_fetched(struct engine *e, struct engine_window *w)
{
	struct tier_completion got;
	int error = 0;

	for (int tries = 0; w->missing && tries < FETCH_TRIES; tries++) {
		if (w->op < 0)
			error = fetch_start(e, w->wanted, w->missing, TIER_CXL, &w->op);
		if (!error)
			error = engine_op_wait(e, w->op, &got);
		w->op = -1;
		if (error)
			return error;
		if (got.status == TIER_LATE)
			engine_count(&e->stats->fetches_late, 1);
		error = take_fetched(e, w);
		if (error)
			return error;
	}
	for (uint32_t i = 0; i < w->missing; i++)
		w->usable = min_u32(w->usable, w->wanted_at[i] / e->pages_per_block);
	return 0;
}

/* Verify what was leased at once, then what was fetched. */
static int window_end(struct engine *e, struct engine_window *w)
{
	int error;

	for (uint32_t i = 0; i < w->pages; i++)
		if (w->lease[i].data)
			verify_at(e, w, i, &w->lease[i], w->lease[i].tier);
	error = window_fetched(e, w);
	if (error)
		return error;
	for (uint32_t b = 0; b < w->usable; b++)
		engine_count(&e->stats->hit_tier[w->slowest[b]], 1);
	return 0;
}

/* After the prefix has ended early: nothing of a window that was begun may be kept. */
static int window_drop(struct engine *e, struct engine_window *w)
{
	struct tier_completion got;

	tier_release_many(e->r, w->lease, w->pages);
	return w->op < 0 ? 0 : engine_op_wait(e, w->op, &got);
}

int64_t engine_read_prefix(struct engine *e, uint32_t count)
{
	uint32_t begun = 0, usable = 0, turn = 0;
	bool next = false;
	int error;

	error = window_begin(e, &e->window[0], 0, count);
	if (error)
		return error;
	begun = e->window[0].blocks;
	for (;; turn ^= 1) {
		struct engine_window *w = &e->window[turn], *ahead = &e->window[turn ^ 1];

		next = begun < count;
		if (next) {
			error = window_begin(e, ahead, begun, count - begun);
			if (error)
				return error;
			begun += ahead->blocks;
		}
		error = window_end(e, w);
		if (error)
			return error;
		usable += w->usable;
		if (w->usable < w->blocks || !next)
			break;
	}
	if (next) {
		error = window_drop(e, &e->window[turn ^ 1]);
		if (error)
			return error;
	}
	return usable;
}
