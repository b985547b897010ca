/* SPDX-License-Identifier: Apache-2.0 */
/* Life of an engine and its requests to the daemon; see engine.h. */
#include "bench/trace/engine.h"

#include <errno.h>
#include <stdlib.h>

#include "libtier/base/atomic.h"

#define OP_WAIT_NS (10 * NS_PER_S)
/* Completions nobody waits for carry this beside their entry's number. */
#define TAG_BASE UINT64_C(0x7e50000000000000)

void engine_count(uint64_t *counter, uint64_t more)
{
	atomic_store_relaxed_u64(counter, *counter + more);
}

int engine_geometry(tier_geometry **out, const struct engine_settings *set)
{
	const struct tier_part part[] = {
		[ENGINE_PART_KV] = {
			.name = "kv",
			.kind = TIER_KIND_SPARSE,
			.preferred_tier = TIER_CXL,
			.layers = set->layers,
			.groups = set->groups,
			.page_bytes = set->page_bytes,
		},
		[ENGINE_PART_INDEX] = {
			.name = "index",
			.kind = TIER_KIND_INDEX,
			.shard_rule = TIER_SHARD_REPLICATED,
			.preferred_tier = TIER_HBM,
			.layers = set->layers,
			.groups = 1,
			.page_bytes = set->sidecar_bytes,
		},
	};
	const struct tier_geometry_options options = {
		.size = sizeof(options),
		.block_tokens = TRACE_BLOCK_TOKENS,
		.part_count = 2,
		.part = part,
	};

	if (set->layers > ENGINE_LAYERS_MAX || set->groups > ENGINE_GROUPS_MAX)
		return -EINVAL;
	if (set->layers * (set->groups + 1) > ENGINE_WINDOW_PAGES || set->top > ENGINE_TOP_MAX)
		return -EINVAL;
	return tier_geometry_new(out, &options);
}

static int open_context(struct engine *e)
{
	struct tier_context_options options = { .size = sizeof(options) };
	const struct tier_fingerprint fingerprint = {
		.size = sizeof(fingerprint),
		.model = "replay-1",
		.elements = "bytes",
		.layout = "generated",
		.hash = "mooncake-trace-1",
		.block_tokens = TRACE_BLOCK_TOKENS,
	};
	tier_geometry *g;
	int error = engine_geometry(&g, e->set);

	if (error)
		return error;
	e->pages_per_block = tier_geometry_pages(g);
	e->block_bytes = tier_geometry_block_bytes(g);
	error = tier_fingerprint_digest(options.fingerprint, &fingerprint);
	if (!error)
		error = tier_context_create(e->t, e->set->context, g, &options, &e->c);
	tier_geometry_free(g);
	return error;
}

int engine_open(struct engine **out, const struct engine_settings *set, struct engine_stats *stats,
		uint32_t number)
{
	const struct tier_connect_options options = {
		.size = sizeof(options),
		.socket = set->socket,
		.name = "replay-engine",
		.staging_bytes = set->staging_bytes,
	};
	struct engine *e = calloc(1, sizeof(*e));
	int error;

	if (!e)
		return -ENOMEM;
	e->set = set;
	e->stats = stats;
	e->random = UINT64_C(0x9e3779b97f4a7c15) * (number + 1);
	error = tier_connect(&e->t, &options);
	if (!error)
		error = open_context(e);
	if (!error)
		error = tier_reader_open(e->t, &e->r);
	if (error) {
		engine_close(e);
		return error;
	}
	*out = e;
	return 0;
}

void engine_close(struct engine *e)
{
	if (!e)
		return;
	tier_reader_close(e->r);
	tier_context_close(e->c);
	tier_close(e->t);
	free(e->request.key);
	free(e->request.found);
	free(e->request.block);
	free(e);
}

/* ---- requests under way -------------------------------------------------------------------- */

uint64_t engine_op_tag(int op)
{
	return TAG_BASE + (uint64_t)op;
}

static void op_end(struct engine *e, struct engine_op *op)
{
	if (op->fetch && --e->fetches == 0)
		engine_count(&e->stats->fetch_ns, time_now_ns() - e->fetching_since_ns);
	op->fetch = false;
}

int engine_reap(struct engine *e, uint32_t min)
{
	struct tier_completion got[ENGINE_OPS];
	int n = min ? tier_wait(e->t, got, min, ENGINE_OPS, OP_WAIT_NS)
		    : tier_poll(e->t, got, ENGINE_OPS);

	if (n < 0)
		return n;
	if ((uint32_t)n < min)
		return -ETIMEDOUT;
	for (int i = 0; i < n; i++) {
		uint64_t at = got[i].user_data - TAG_BASE;
		struct engine_op *op;

		if (at >= ENGINE_OPS || !e->op[at].busy)
			return -EBADMSG;
		op = &e->op[at];
		op_end(e, op);
		if (op->done) {
			op->busy = false; /* detached */
			continue;
		}
		op->got = got[i];
		op->done = true;
	}
	return 0;
}

int engine_op_begin(struct engine *e, bool fetch)
{
	for (;;) {
		int error;

		for (int i = 0; i < (int)ENGINE_OPS; i++) {
			if (e->op[i].busy)
				continue;
			e->op[i] = (struct engine_op){ .busy = true, .fetch = fetch };
			if (fetch && e->fetches++ == 0)
				e->fetching_since_ns = time_now_ns();
			return i;
		}
		error = engine_reap(e, 1);
		if (error)
			return error;
	}
}

void engine_op_drop(struct engine *e, int op)
{
	op_end(e, &e->op[op]);
	e->op[op].busy = false;
}

void engine_op_detach(struct engine *e, int op)
{
	if (e->op[op].done)
		e->op[op].busy = false;
	e->op[op].done = true;
}

int engine_op_wait(struct engine *e, int op, struct tier_completion *got)
{
	while (!e->op[op].done) {
		int error = engine_reap(e, 1);

		if (error)
			return error;
	}
	*got = e->op[op].got;
	e->op[op].busy = false;
	return 0;
}

/* ---- a request of the trace ---------------------------------------------------------------- */

static int take(struct engine *e, const struct trace *t, const struct trace_request *r)
{
	struct engine_request *q = &e->request;
	uint32_t room = r->id_count ? r->id_count : 1;

	free(q->key);
	free(q->found);
	free(q->block);
	q->key = calloc(room, sizeof(*q->key));
	q->found = calloc(room, sizeof(*q->found));
	q->block = calloc(room, sizeof(*q->block));
	q->blocks = r->id_count;
	q->usable = 0;
	if (!q->key || !q->found || !q->block)
		return -ENOMEM;
	return trace_keys(q->key, t, r);
}

/* Match the prompt; request.block[0 ... n) are the blocks of its prefix. */
static int64_t match(struct engine *e)
{
	struct engine_request *q = &e->request;
	int64_t n = tier_match(e->c, q->key, q->blocks, q->found);

	for (int64_t i = 0; i < n; i++)
		q->block[i] = q->found[i].block;
	return n;
}

int64_t engine_look(struct engine *e, const struct trace *t, const struct trace_request *r,
		    uint64_t *first_ns)
{
	uint64_t begin = time_now_ns();
	int64_t n = take(e, t, r);

	if (!n)
		n = match(e);
	if (n <= 0)
		return n;
	if (engine_read_prefix(e, 1) != 1)
		return 0;
	*first_ns = time_now_ns() - begin;
	return engine_read_prefix(e, (uint32_t)n);
}

int engine_serve(struct engine *e, const struct trace *t, const struct trace_request *r)
{
	struct engine_stats *s = e->stats;
	int64_t n = take(e, t, r), matched;
	int error;

	if (n)
		return (int)n;
	matched = match(e);
	n = matched > 0 ? engine_read_prefix(e, (uint32_t)matched) : matched;
	if (n < 0)
		return (int)n;
	engine_count(&s->blocks, r->id_count);
	engine_count(&s->blocks_hit, (uint64_t)n);
	engine_count(&s->blocks_lost, (uint64_t)(matched - n));
	engine_count(&s->tokens, r->input_tokens);
	engine_count(&s->tokens_saved, trace_tokens(t, r, (uint64_t)n));
	if (n < r->id_count) {
		error = engine_put(e, (uint32_t)n);
		if (error)
			return error;
		n = match(e);
		if (n < 0)
			return (int)n;
	}
	e->request.usable = (uint32_t)n;
	error = n ? engine_decode(e) : 0;
	engine_count(&s->requests, 1);
	return error;
}
