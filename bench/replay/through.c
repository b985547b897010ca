/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierbench replay --real: the trace through a daemon, beside the core alone. In lock-step, on the
 * first requests, every policy must agree in each request's hits and in how many blocks left; free
 * running, two clients at a time, the share that hits may differ by half a point. How these two
 * meet is different each time, and a policy that learns may take another turn while it knows
 * little: so they run in rounds, and over all of the trace.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/replay/replay.h"
#include "tierd/core/unit/policy_ops.h"

#define REQUESTS 500u	   /* in lock-step: it waits for ticks after each put */
#define FREE_REQUESTS 12500u /* all of bench/data */
#define FREE_PERCENT 10u /* where one run was furthest apart */
#define FREE_CLIENTS 2u
#define FREE_ROUNDS SAMPLE_ROUNDS_MIN
#define FREE_POINTS 0.5

/* A piece of the trace, and the same requests' hits twice. */
struct part {
	struct bench *b;
	struct service_options service;
	struct trace trace;
	struct prepared p;
	uint32_t *hit[2]; /* core alone, daemon */
};

/* Pages that were read, and wrong ones among them, of all runs; and blocks that left. */
struct read {
	uint64_t pages, bad, left;
};

static int part_take(struct part *p, struct bench *b, const struct trace *t, size_t requests,
		     const char *dir)
{
	*p = (struct part){ .b = b, .trace = *t };
	p->service = (struct service_options){ .tierd = b->tierd, .dir = dir };
	if (t->request_count > requests) {
		p->trace.request_count = requests;
		p->trace.id_count = t->request[requests].id_first;
	}
	for (uint32_t i = 0; i < 2; i++)
		p->hit[i] = calloc(p->trace.request_count, sizeof(*p->hit[i]));
	if (!p->hit[0] || !p->hit[1] || trace_count(&p->trace))
		return -ENOMEM;
	return prepare(&p->p, &p->trace);
}

static void part_free(struct part *p)
{
	prepared_free(&p->p);
	free(p->hit[0]);
	free(p->hit[1]);
}

static uint64_t apart(uint64_t a, uint64_t b)
{
	return a > b ? a - b : b - a;
}

/* ---- in lock-step -------------------------------------------------------------------------- */

/* Blocks that hit differently, request by request, or left differently, all in all. */
static int lockstep(struct part *p, const char *policy, uint32_t percent, struct read *sum,
		    uint64_t *different)
{
	const struct replay_through how = {
		.service = &p->service,
		.capacity = replay_capacity(p->trace.distinct * percent / 100),
	};
	struct outcome core = { .hit = p->hit[0] }, real = { .hit = p->hit[1] };
	int error = replay_core(&core, &p->p, policy, how.capacity);

	if (!error)
		error = replay_real(&real, &p->p, policy, &how);
	for (size_t q = 0; q < p->trace.request_count && !error; q++)
		*different += apart(p->hit[0][q], p->hit[1][q]);
	*different += apart(core.dropped_blocks, real.dropped_blocks);
	sum->pages += real.blocks_hit;
	sum->bad += real.bad_pages;
	sum->left += core.dropped_blocks;
	return error;
}

static int judge_lockstep(struct part *p, const char *policy, struct read *sum)
{
	char name[BENCH_TEXT], against[BENCH_TEXT];
	const struct bench_figure figure = { "replay", name, "blocks", against,
					     { BENCH_VALUE_AT_MOST, 0 } };
	uint64_t different = 0, before = sum->pages, left = sum->left;
	int error = 0;

	for (uint32_t i = 0; i < REPLAY_SIZES && !error; i++)
		error = lockstep(p, policy, replay_percent[i], sum, &different);
	if (error)
		return error;
	snprintf(name, sizeof(name), "%s, a daemon in lock-step: hits or leavings that differ",
		 policy);
	snprintf(against, sizeof(against), "hits, core alone; first %zu requests, four sizes",
		 p->trace.request_count);
	if (!different && sum->pages == before && sum->left == left)
		return bench_judge_missing(p->b->results, &figure, "nothing hit, nothing left");
	return bench_judge_exact(p->b->results, &figure, (double)different,
				 (double)(sum->pages - before));
}

static int all_lockstep(struct bench *b, const struct trace *t, const char *dir, struct read *sum)
{
	struct part p;
	const struct policy_ops *ops;
	int error = part_take(&p, b, t, REQUESTS, dir);

	for (uint32_t i = 0; (ops = policy_at(i)) != NULL && !error; i++)
		error = judge_lockstep(&p, ops->name, sum);
	part_free(&p);
	return error;
}

/* ---- free running -------------------------------------------------------------------------- */

static double hit_points(const struct outcome *o)
{
	return o->blocks ? 100.0 * (double)o->blocks_hit / (double)o->blocks : 0;
}

static int judge_free(struct part *p, uint32_t percent, struct read *sum)
{
	const struct replay_through how = {
		.service = &p->service,
		.capacity = replay_capacity(p->trace.distinct * percent / 100),
		.free_clients = FREE_CLIENTS,
	};
	char name[BENCH_TEXT], against[BENCH_TEXT], size[REPLAY_SIZE_TEXT];
	const struct bench_figure figure = { "replay", name, "points", against,
					     { BENCH_VALUE_AT_MOST, FREE_POINTS } };
	struct sample difference = { 0 }, alone = { 0 };
	struct outcome core = { 0 };
	uint32_t rounds = p->b->quick ? 1 : FREE_ROUNDS;
	int error = replay_core(&core, &p->p, POLICY_DEFAULT, how.capacity);

	for (uint32_t i = 0; i < rounds && !error; i++) {
		struct outcome real = { 0 };

		error = replay_real(&real, &p->p, POLICY_DEFAULT, &how);
		sample_add(&difference, fabs(hit_points(&real) - hit_points(&core)));
		sample_add(&alone, hit_points(&core));
		sum->pages += real.blocks_hit;
		sum->bad += real.bad_pages;
	}
	if (error)
		return error;
	replay_size_text(size, percent, how.capacity, p->trace.distinct);
	snprintf(name, sizeof(name), "%s, a daemon, %u clients, hits at %s: difference",
		 POLICY_DEFAULT, FREE_CLIENTS, size);
	snprintf(against, sizeof(against), "%% hits, core alone; first %zu requests",
		 p->trace.request_count);
	return bench_judge(p->b->results, &figure, &difference, &alone);
}

static int run_free(struct bench *b, const struct trace *t, const char *dir, struct read *sum)
{
	struct part p;
	int error = part_take(&p, b, t, FREE_REQUESTS, dir);

	if (!error)
		error = judge_free(&p, FREE_PERCENT, sum);
	part_free(&p);
	return error;
}

int bench_replay_real(struct bench *b, const struct trace *t)
{
	static const struct bench_figure wrong = { "replay", "wrong pages read through the daemon",
						   "pages", "read", { BENCH_VALUE_AT_MOST, 0 } };
	struct read sum = { 0 };
	char *dir = NULL;
	int error = service_dir_make(&dir, b->dir);

	if (!error)
		error = all_lockstep(b, t, dir, &sum);
	if (!error)
		error = run_free(b, t, dir, &sum);
	service_dir_remove(dir);
	if (error)
		return bench_failed("replay", error);
	if (!sum.pages)
		return bench_judge_missing(b->results, &wrong, "no prompt hit");
	return bench_judge_exact(b->results, &wrong, (double)sum.bad, (double)sum.pages);
}
