/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decoding: each step reads, for every layer, the sidecar of the whole prompt and then, for every
 * group, a list of the pages that the selection names. A stated share of a list was in the step
 * before's, as sparse attention does it. The sidecars, and after the first step the selected pages,
 * are brought to HBM without waiting; the blocks are pinned at CXL while the request lasts.
 */
#include "bench/trace/engine.h"

#include <errno.h>

#define SIDECAR_LIST 256u
#define PIN_NS (30 * NS_PER_S)
#define FETCH_TRIES 4
/* Every so many lists are leased page by page instead, for the other half of the figures. */
#define ONE_BY_ONE 4u

static uint32_t random_below(struct engine *e, uint32_t below)
{
	e->random ^= e->random << 13;
	e->random ^= e->random >> 7;
	e->random ^= e->random << 17;
	return (uint32_t)((e->random >> 32) * below >> 32);
}

static bool listed(const uint32_t *list, uint32_t count, uint32_t block)
{
	for (uint32_t i = 0; i < count; i++)
		if (list[i] == block)
			return true;
	return false;
}

/* The next selection: each entry stays with the stated chance, the others are chosen anew. */
static uint32_t select_pages(struct engine *e, uint32_t *list)
{
	const struct engine_request *q = &e->request;
	uint32_t count = q->usable < e->set->top ? q->usable : e->set->top, kept = 0;

	if (q->step)
		for (uint32_t i = 0; i < count; i++)
			if (random_below(e, 100) < e->set->repeat_percent)
				list[kept++] = list[i];
	while (kept < count) {
		uint32_t block = random_below(e, q->usable);

		while (listed(list, kept, block))
			block = (block + 1) % q->usable;
		list[kept++] = block;
	}
	return count;
}

/* A page that was not in memory when it was wanted. */
static int read_late(struct engine *e, const struct tier_page *page, const tier_key *key)
{
	struct tier_lease lease = { .error = -ENODATA };

	for (int tries = 0; tries < FETCH_TRIES && lease.error == -ENODATA; tries++) {
		int error = engine_fetch_pages(e, page, 1, TIER_CXL);

		if (error && error != -ENODATA)
			return error;
		lease.error = tier_lease_page(e->r, e->c, page->block, page->page, 0, &lease);
	}
	if (lease.error) {
		engine_count(&e->stats->decode_gone, 1);
		return 0;
	}
	engine_count(&e->stats->fetch_bytes, lease.bytes);
	engine_verify(e, &lease, page, key, TIER_NVME);
	return 0;
}

/* Verify a list's leases, then deal with those that were not to be had. */
static int read_list(struct engine *e, const uint32_t *list, uint32_t count, uint32_t page,
		     struct tier_lease *lease)
{
	const struct engine_request *q = &e->request;

	for (uint32_t i = 0; i < count; i++) {
		struct tier_page at = { .block = q->block[list[i]], .page = page };
		int error = 0;

		if (lease[i].data)
			engine_verify(e, &lease[i], &at, &q->key[list[i]], lease[i].tier);
		else if (lease[i].error == -ENODATA)
			error = read_late(e, &at, &q->key[list[i]]);
		else
			engine_count(&e->stats->decode_gone, 1);
		if (error)
			return error;
	}
	engine_count(&e->stats->decode_pages, count);
	return 0;
}

/* Lease and release, timed, before the leases that are read: the bytes are not touched here. */
static void time_one_by_one(struct engine *e, const uint32_t *list, uint32_t count, uint32_t page)
{
	for (uint32_t i = 0; i < count; i++) {
		struct tier_lease lease;
		uint64_t from = tick_now();
		int error = tier_lease_page(e->r, e->c, e->request.block[list[i]], page, 0, &lease);

		if (!error)
			tier_release(e->r, &lease);
		if (!error)
			hist_record(&e->stats->lease_one,
				    (uint64_t)tick_ns(&e->set->tick, from, tick_now()));
	}
}

static int read_selection(struct engine *e, uint32_t layer, uint32_t group)
{
	struct engine_request *q = &e->request;
	uint32_t *list = q->list[layer][group], count = select_pages(e, list);
	uint32_t page = layer * e->set->groups + group;
	struct tier_lease lease[ENGINE_TOP_MAX];
	tier_block block[ENGINE_TOP_MAX];
	const struct tier_selection s = { .blocks = block, .count = count, .page = page };
	uint64_t from, ns;
	int64_t n;

	for (uint32_t i = 0; i < count; i++)
		block[i] = q->block[list[i]];
	if (e->stats->decode_lists % ONE_BY_ONE == 0)
		time_one_by_one(e, list, count, page);
	engine_count(&e->stats->decode_lists, 1);
	from = tick_now();
	n = tier_lease_blocks(e->r, e->c, &s, lease);
	ns = (uint64_t)tick_ns(&e->set->tick, from, tick_now());
	if (n < 0)
		return (int)n;
	if (n == count && e->stats->decode_lists % ONE_BY_ONE != 1)
		hist_record_many(&e->stats->lease_list, ns / count, count);
	return read_list(e, list, count, page, lease);
}

/* The sidecar of one layer, of all blocks. */
static int read_sidecar(struct engine *e, uint32_t layer)
{
	struct engine_request *q = &e->request;
	uint32_t page = e->set->layers * e->set->groups + layer;
	struct tier_lease lease[SIDECAR_LIST];
	uint32_t list[SIDECAR_LIST];

	for (uint32_t at = 0; at < q->usable; at += SIDECAR_LIST) {
		uint32_t count = q->usable - at < SIDECAR_LIST ? q->usable - at : SIDECAR_LIST;
		const struct tier_selection s = {
			.blocks = &q->block[at], .count = count, .page = page,
		};
		int64_t n = tier_lease_blocks(e->r, e->c, &s, lease);
		int error;

		if (n < 0)
			return (int)n;
		for (uint32_t i = 0; i < count; i++)
			list[i] = at + i;
		error = read_list(e, list, count, page, lease);
		if (error)
			return error;
	}
	return 0;
}

/* Ask for something that nobody waits for; without a free entry it is not asked. */
static int detached(struct engine *e, int op, int error)
{
	if (error) {
		engine_op_drop(e, op);
		return error == -EAGAIN ? 0 : error;
	}
	engine_op_detach(e, op);
	return 0;
}

static int promote_sidecars(struct engine *e)
{
	const struct tier_range range = { .part_first = ENGINE_PART_INDEX, .part_count = 1 };
	struct tier_ask ask = { .size = sizeof(ask), .tier = TIER_HBM, .range = &range };
	int op = engine_op_begin(e, false);

	if (op < 0)
		return op;
	ask.user_data = engine_op_tag(op);
	return detached(e, op,
			tier_fetch_start(e->c, e->request.block, e->request.usable, &ask));
}

static int promote_selection(struct engine *e, uint32_t layer, uint32_t group)
{
	struct engine_request *q = &e->request;
	struct tier_page page[ENGINE_TOP_MAX];
	uint32_t count = q->usable < e->set->top ? q->usable : e->set->top;
	struct tier_ask ask = { .size = sizeof(ask), .tier = TIER_HBM };
	int op = engine_op_begin(e, false);

	if (op < 0)
		return op;
	ask.user_data = engine_op_tag(op);
	for (uint32_t i = 0; i < count; i++)
		page[i] = (struct tier_page){
			.block = q->block[q->list[layer][group][i]],
			.page = layer * e->set->groups + group,
		};
	return detached(e, op, tier_fetch_pages_start(e->c, page, count, &ask));
}

static int decode_layer(struct engine *e, uint32_t layer)
{
	int error = read_sidecar(e, layer);

	for (uint32_t group = 0; group < e->set->groups && !error; group++) {
		error = read_selection(e, layer, group);
		if (!error && e->request.step == 0)
			error = promote_selection(e, layer, group);
	}
	return error;
}

static int pin(struct engine *e, uint64_t *id)
{
	int64_t n = tier_pin(e->c, e->request.block, e->request.usable, TIER_CXL,
			     time_now_ns() + PIN_NS, id);

	if (n == -EDQUOT || n == -ESTALE || n == -EAGAIN) {
		engine_count(&e->stats->pins_refused, 1);
		return 1;
	}
	if (n < 0)
		return (int)n;
	engine_count(&e->stats->pins, 1);
	return 0;
}

int engine_decode(struct engine *e)
{
	uint64_t id = 0;
	int refused = pin(e, &id), error = refused < 0 ? refused : 0;

	if (!error)
		error = promote_sidecars(e);
	for (uint32_t step = 0; step < e->set->decode_steps && !error; step++) {
		e->request.step = step;
		for (uint32_t layer = 0; layer < e->set->layers && !error; layer++)
			error = decode_layer(e, layer);
	}
	if (!refused) {
		int unpinned = tier_unpin(e->c, id);

		if (!error && unpinned != -ENOENT)
			error = unpinned;
	}
	return error;
}
