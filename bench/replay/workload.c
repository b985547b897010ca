/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierbench replay: every policy that there is at four sizes of store, beside the offline
 * optimum. A table, then the rows that are judged: the share of the way from LRU to the optimum
 * that the default goes, never behind LRU, and compute saved beside who has most hits. The core's
 * speed, NVMe behind the memory, and a daemon (--real) are judged in files of their own.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/policy/policy.h"
#include "bench/replay/replay.h"
#include "bench/replay/synth.h"

#define POLICIES_MAX 16u
#define POLICY_HITS "reuse-hits" /* the default, out for hits */
#define SYNTH "synth:"
#define SYNTH_REFERENCES 300000u

struct replays {
	struct bench *b;
	struct prepared p;
};

static double share(double part, double whole)
{
	return whole > 0 ? part / whole : 0;
}

static double hit_share(const struct outcome *o)
{
	return share((double)o->blocks_hit, (double)o->blocks);
}

/* ---- the trace ----------------------------------------------------------------------------- */

/* synth:NAME[:SEED], or a file. */
static int trace_take(struct trace **out, const char *name)
{
	char why[256], pattern[32], *end;
	const char *colon;
	uint64_t seed = 1;
	int error;

	if (strncmp(name, SYNTH, strlen(SYNTH)) != 0) {
		error = trace_open(out, name, 0, why, sizeof(why));
		if (error)
			fprintf(stderr, "tierbench: %s\n", why);
		return error;
	}
	name += strlen(SYNTH);
	snprintf(pattern, sizeof(pattern), "%.*s", (int)strcspn(name, ":"), name);
	colon = strchr(name, ':');
	if (colon)
		seed = strtoull(colon + 1, &end, 10);
	if (colon && (*end || end == colon + 1)) {
		fprintf(stderr, "tierbench: %s%s: the seed is not a number\n", SYNTH, name);
		return -EINVAL;
	}
	error = synth_make(out, pattern, seed, SYNTH_REFERENCES);
	if (error == -ENOENT) {
		fprintf(stderr, "tierbench: no pattern \"%s\"; there are:\n", pattern);
		for (uint32_t i = 0; synth_at(i); i++)
			fprintf(stderr, "  %-8s %s\n", synth_at(i)->name, synth_at(i)->help);
	}
	return error;
}

/* ---- the table ----------------------------------------------------------------------------- */

static void table_head(const struct replays *r, uint32_t percent, uint64_t capacity)
{
	printf("\n%u %% of %llu blocks: a store of %llu\n", percent,
	       (unsigned long long)r->p.trace->distinct, (unsigned long long)capacity);
	printf("  %-10s %8s %8s %9s %14s %12s\n", "policy", "blocks", "bytes", "compute",
	       "blocks put", "Mrefs/s");
}

static void table_row(const char *name, const struct outcome *o)
{
	printf("  %-10s %8.4f %8.4f %9.4f", name, hit_share(o),
	       share((double)o->tokens_hit, (double)o->tokens), share(o->flops_hit, o->flops));
	if (o->seconds > 0)
		printf(" %14llu %12.2f", (unsigned long long)o->put_blocks,
		       (double)o->blocks / o->seconds / 1e6);
	printf("\n");
	fflush(stdout);
}

/* ---- judged -------------------------------------------------------------------------------- */

struct judged {
	uint32_t percent;
	char size[REPLAY_SIZE_TEXT]; /* as rows say it */
	struct outcome lru, mine, optimum;
	struct outcome hits; /* mine, with all depths worth the same */
	struct outcome best; /* of the other policies, the one with most hits */
	const char *best_name;
};

/* More compute than who has most hits: offline, of the other policies, and itself when it tries. */
static int judge_compute(struct replays *r, const struct judged *t)
{
	char all[BENCH_TEXT], others[BENCH_TEXT], online[BENCH_TEXT], itself[BENCH_TEXT];
	const struct bench_figure figures[] = {
		{ "replay", all, "flops", "optimum for hits", { BENCH_RATIO_AT_LEAST, 1 } },
		{ "replay", others, "flops", online, { BENCH_RATIO_AT_LEAST, 1 } },
		{ "replay", itself, "flops", POLICY_HITS, { BENCH_RATIO_AT_LEAST, 1 } },
	};
	const double beside[] = { t->optimum.flops_hit, t->best.flops_hit, t->hits.flops_hit };
	int error = 0;

	snprintf(all, sizeof(all), "%s, compute beside most hits at %s, offline", POLICY_DEFAULT,
		 t->size);
	snprintf(others, sizeof(others), "%s, compute beside most hits at %s, online",
		 POLICY_DEFAULT, t->size);
	snprintf(online, sizeof(online), "%s", t->best_name);
	snprintf(itself, sizeof(itself), "%s, compute beside itself for hits at %s",
		 POLICY_DEFAULT, t->size);
	for (uint32_t i = 0; i < sizeof(beside) / sizeof(beside[0]) && !error; i++)
		error = bench_judge_exact(r->b->results, &figures[i], t->mine.flops_hit, beside[i]);
	return error;
}

static int judge_size(struct replays *r, const struct judged *t)
{
	char gap[BENCH_TEXT], lru[BENCH_TEXT], compute[BENCH_TEXT];
	const struct bench_figure figures[] = {
		{ "replay", gap, "points", "optimum over lru", { BENCH_RATIO_AT_LEAST, 0.15 } },
		{ "replay", lru, "hits", "lru", { BENCH_RATIO_AT_LEAST, 1 } },
		{ "replay", compute, "flops", "lru", { BENCH_RATIO_AT_LEAST, 1 } },
	};
	double over = hit_share(&t->mine) - hit_share(&t->lru);
	double most = hit_share(&t->optimum) - hit_share(&t->lru);
	bool middle = t->percent == 5 || t->percent == 10;
	int error = 0;

	snprintf(gap, sizeof(gap), "%s over lru, hits at %s", POLICY_DEFAULT, t->size);
	snprintf(lru, sizeof(lru), "%s, hits at %s", POLICY_DEFAULT, t->size);
	snprintf(compute, sizeof(compute), "%s, compute saved at %s", POLICY_DEFAULT, t->size);
	if (most > 0 && middle)
		error = bench_judge_exact(r->b->results, &figures[0], 100 * over, 100 * most);
	if (!error && t->lru.blocks_hit)
		error = bench_judge_exact(r->b->results, &figures[1], (double)t->mine.blocks_hit,
					  (double)t->lru.blocks_hit);
	if (!error && t->lru.blocks_hit)
		error = bench_judge_exact(r->b->results, &figures[2], t->mine.flops_hit,
					  t->lru.flops_hit);
	if (!error && t->best.blocks_hit && middle)
		error = judge_compute(r, t);
	return error;
}

static void judged_take(struct judged *t, const char *name, const struct outcome *o)
{
	if (strcmp(name, "lru") == 0)
		t->lru = *o;
	if (strcmp(name, POLICY_DEFAULT) == 0) {
		t->mine = *o;
	} else if (strcmp(name, POLICY_HITS) == 0) {
		t->hits = *o;
	} else if (!t->best_name || o->blocks_hit > t->best.blocks_hit) {
		t->best = *o;
		t->best_name = name;
	}
}

static int replay_size(struct replays *r, uint32_t percent, struct judged *t)
{
	uint64_t distinct = r->p.trace->distinct;
	uint64_t capacity = replay_capacity(distinct * percent / 100);
	struct policy_ops ops;
	int error = 0;

	t->percent = percent;
	replay_size_text(t->size, percent, capacity, distinct);
	table_head(r, percent, capacity);
	for (uint32_t i = 0; bench_policy_at(i, &ops) && !error; i++) {
		struct outcome o = { 0 };

		error = replay_core(&o, &r->p, ops.name, capacity);
		if (error)
			return bench_failed("replay", error);
		table_row(ops.name, &o);
		judged_take(t, ops.name, &o);
	}
	if (!error)
		error = replay_optimum(&t->optimum, &r->p, capacity);
	if (!error)
		table_row("optimum", &t->optimum);
	return error;
}

static int replay_all(struct replays *r)
{
	struct judged at[REPLAY_SIZES] = { 0 };
	int error = 0;

	printf("%zu requests, %zu blocks of %u tokens, %llu different; at most %.4f could hit\n",
	       r->p.trace->request_count, r->p.trace->id_count, r->p.trace->block_tokens,
	       (unsigned long long)r->p.trace->distinct,
	       share((double)r->p.trace->reusable, (double)r->p.trace->id_count));
	printf("hits: of blocks, of bytes (the tokens' KV: a last block may be partly filled), of\n"
	       "operations that were not done again (Llama-3.1-8B: replay.h)\n");
	for (uint32_t i = 0; i < REPLAY_SIZES && !error; i++)
		error = replay_size(r, replay_percent[i], &at[i]);
	printf("\n");
	for (uint32_t i = 0; i < REPLAY_SIZES && !error; i++)
		error = judge_size(r, &at[i]);
	return error;
}

int bench_replay(struct bench *b)
{
	struct replays r = { .b = b };
	struct trace *t = NULL;
	int error = trace_take(&t, b->trace);

	if (!error)
		error = prepare(&r.p, t);
	if (!error)
		error = replay_all(&r);
	if (!error && !b->quick)
		error = bench_replay_made(b);
	if (!error)
		error = bench_replay_speed(b, &r.p);
	if (!error)
		error = bench_replay_flash(b, &r.p);
	if (!error && b->real)
		error = bench_replay_real(b, t);
	prepared_free(&r.p);
	trace_close(t);
	return error;
}
