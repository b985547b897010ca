/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Putting what a prompt brings anew: pieces of one run, written where the daemon will take them
 * from (tier_put_data), several under way at a time. Best effort: a piece that is not taken is
 * counted as dropped and costs a later prompt its hit, nothing else.
 */
#include "bench/trace/engine.h"

#include <errno.h>
#include <time.h>

#include "bench/trace/gen.h"

#define PIECE_BLOCKS 32u
#define PIECES_MAX 8u
#define ROOM_WAIT_NS (5 * NS_PER_S)

struct pieces {
	int op[PIECES_MAX];
	uint32_t blocks[PIECES_MAX];
	uint32_t first, count; /* a ring */
};

static void fill_block(struct engine *e, tier_put *put, uint32_t i, const tier_key *key)
{
	const struct engine_settings *set = e->set;
	uint32_t page = 0;

	for (uint32_t layer = 0; layer < set->layers; layer++)
		for (uint32_t group = 0; group < set->groups; group++)
			gen_page(tier_put_data(put, i, ENGINE_PART_KV, layer, group),
				 set->page_bytes, key, page++);
	for (uint32_t layer = 0; layer < set->layers; layer++)
		gen_page(tier_put_data(put, i, ENGINE_PART_INDEX, layer, 0), set->sidecar_bytes,
			 key, page++);
}

static void fill(struct engine *e, tier_put *put, uint32_t first, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		if (tier_put_exists(put, i)) {
			engine_count(&e->stats->put_exists, 1);
			continue;
		}
		fill_block(e, put, i, &e->request.key[first + i]);
		engine_count(&e->stats->put_blocks, 1);
		engine_count(&e->stats->put_bytes, e->block_bytes);
	}
}

/* Wait for the oldest piece. */
static int piece_end(struct engine *e, struct pieces *p)
{
	struct tier_completion got;
	uint32_t blocks = p->blocks[p->first];
	int error = engine_op_wait(e, p->op[p->first], &got);

	p->first = (p->first + 1) % PIECES_MAX;
	p->count--;
	if (error)
		return error;
	if (got.status == TIER_DROPPED) {
		engine_count(&e->stats->put_dropped, blocks - got.value);
	} else if (got.result) {
		engine_count(&e->stats->put_failed, blocks);
		e->stats->put_error = got.result;
	}
	return 0;
}

/* Room was lacking: let something end, or some time pass. */
static int wait_for_room(struct engine *e, struct pieces *p, uint64_t since_ns)
{
	const struct timespec moment = { .tv_nsec = 200000 };

	if (p->count)
		return piece_end(e, p);
	if (time_now_ns() - since_ns > ROOM_WAIT_NS)
		return -ETIMEDOUT;
	nanosleep(&moment, NULL);
	return engine_reap(e, 0);
}

static int begin(struct engine *e, struct pieces *p, uint32_t first, uint32_t count, tier_put **put)
{
	const struct tier_put_options options = {
		.size = sizeof(options),
		.depth = first,
		.parent = first ? &e->request.key[first - 1] : NULL,
	};
	uint64_t since_ns = time_now_ns();
	int error;

	for (;;) {
		error = tier_put_begin(e->c, &e->request.key[first], count, &options, put);
		if (error != -ENOBUFS && error != -EAGAIN)
			return error;
		error = wait_for_room(e, p, since_ns);
		if (error)
			return error;
	}
}

static int commit(struct engine *e, struct pieces *p, tier_put *put, uint32_t blocks)
{
	uint64_t since_ns = time_now_ns();
	int op = engine_op_begin(e, false), error = op;

	while (op >= 0) {
		error = tier_put_commit(put, engine_op_tag(op));
		if (error != -EAGAIN)
			break;
		error = wait_for_room(e, p, since_ns);
		if (error)
			break;
	}
	if (error < 0) {
		if (op >= 0)
			engine_op_drop(e, op);
		tier_put_abort(put);
		return error;
	}
	p->op[(p->first + p->count) % PIECES_MAX] = op;
	p->blocks[(p->first + p->count) % PIECES_MAX] = blocks;
	p->count++;
	return 0;
}

static int put_piece(struct engine *e, struct pieces *p, uint32_t first, uint32_t count)
{
	tier_put *put;
	int error = 0;

	if (p->count == PIECES_MAX)
		error = piece_end(e, p);
	if (!error)
		error = begin(e, p, first, count, &put);
	if (error == -ETIMEDOUT) {
		/* No room for long: a best-effort put gives way. */
		engine_count(&e->stats->put_dropped, count);
		return 0;
	}
	if (error)
		return error;
	fill(e, put, first, count);
	return commit(e, p, put, count);
}

int engine_put(struct engine *e, uint32_t first)
{
	struct pieces p = { .count = 0 };
	uint64_t begin_ns = time_now_ns();
	int error = 0;

	for (uint32_t at = first; at < e->request.blocks && !error; at += PIECE_BLOCKS) {
		uint32_t count = e->request.blocks - at;

		error = put_piece(e, &p, at, count < PIECE_BLOCKS ? count : PIECE_BLOCKS);
	}
	while (p.count && !error)
		error = piece_end(e, &p);
	engine_count(&e->stats->put_ns, time_now_ns() - begin_ns);
	return error;
}
