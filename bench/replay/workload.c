/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierbench replay: every policy of the registry at four sizes of store, beside the offline
 * optimum; with --real also through a daemon. A table, then the rows that are judged: the share of
 * the way from LRU to the optimum that the default goes, never behind LRU, compute saved beside who
 * has most hits, and the core's speed.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/replay/replay.h"
#include "bench/replay/synth.h"
#include "tierd/core/policy_ops.h"

#define POLICIES_MAX 16u
#define POLICY_HITS "reuse-hits" /* the default, out for hits */
#define SYNTH "synth:"
#define SYNTH_REFERENCES 300000u
#define SPEED_GOAL 2e6 /* block references a second */
#define SPEED_REFERENCES 10000u /* fewer are over before the clock can tell */

static const uint32_t percents[] = { 1, 5, 10, 25 };
#define SIZES (sizeof(percents) / sizeof(percents[0]))

struct replays {
	struct bench *b;
	struct prepared p;
	struct sample speed;
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
	printf("  %-10s %8s %8s %9s %14s %12s\n", "policy", "blocks", "tokens", "compute",
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

static int real_row(const struct replays *r, const char *policy, uint64_t capacity,
		    const struct outcome *core)
{
	const struct service_options service = { .tierd = r->b->tierd, .dir = r->b->dir };
	struct outcome o;
	int error = replay_real(&o, &r->p, policy, capacity, &service);

	if (error)
		return error;
	table_row("  real", &o);
	printf("           %lld blocks hit differently, %+.2f points; %lld left differently; "
	       "%llu wrong pages\n",
	       (long long)o.blocks_hit - (long long)core->blocks_hit,
	       100 * (hit_share(&o) - hit_share(core)),
	       (long long)o.dropped_blocks - (long long)core->dropped_blocks,
	       (unsigned long long)o.bad_pages);
	return o.bad_pages ? -EBADMSG : 0;
}

/* ---- judged -------------------------------------------------------------------------------- */

struct judged {
	struct outcome lru, mine, optimum;
	struct outcome hits; /* mine, with all depths worth the same */
	struct outcome best; /* of the other policies, the one with most hits */
	const char *best_name;
};

/* More compute than who has most hits: offline, of the other policies, and itself when it tries. */
static int judge_compute(struct replays *r, uint32_t percent, const struct judged *t)
{
	char all[BENCH_TEXT], others[BENCH_TEXT], online[BENCH_TEXT], itself[BENCH_TEXT];
	const struct bench_figure figures[] = {
		{ "replay", all, "flops", "optimum for hits", { BENCH_RATIO_AT_LEAST, 1 } },
		{ "replay", others, "flops", online, { BENCH_RATIO_AT_LEAST, 1 } },
		{ "replay", itself, "flops", POLICY_HITS, { BENCH_RATIO_AT_LEAST, 1 } },
	};
	const double beside[] = { t->optimum.flops_hit, t->best.flops_hit, t->hits.flops_hit };
	int error = 0;

	snprintf(all, sizeof(all), "%s, compute beside most hits at %u %%, offline", POLICY_DEFAULT,
		 percent);
	snprintf(others, sizeof(others), "%s, compute beside most hits at %u %%, online",
		 POLICY_DEFAULT, percent);
	snprintf(online, sizeof(online), "%s", t->best_name);
	snprintf(itself, sizeof(itself), "%s, compute beside itself for hits at %u %%",
		 POLICY_DEFAULT, percent);
	for (uint32_t i = 0; i < sizeof(beside) / sizeof(beside[0]) && !error; i++)
		error = bench_judge_exact(r->b->results, &figures[i], t->mine.flops_hit, beside[i]);
	return error;
}

static int judge_size(struct replays *r, uint32_t percent, const struct judged *t)
{
	char gap[BENCH_TEXT], lru[BENCH_TEXT], compute[BENCH_TEXT];
	const struct bench_figure figures[] = {
		{ "replay", gap, "points", "optimum over lru", { BENCH_RATIO_AT_LEAST, 0.15 } },
		{ "replay", lru, "hits", "lru", { BENCH_RATIO_AT_LEAST, 1 } },
		{ "replay", compute, "flops", "lru", { BENCH_RATIO_AT_LEAST, 1 } },
	};
	double over = hit_share(&t->mine) - hit_share(&t->lru);
	double most = hit_share(&t->optimum) - hit_share(&t->lru);
	int error = 0;

	snprintf(gap, sizeof(gap), "%s over lru, hits at %u %%", POLICY_DEFAULT, percent);
	snprintf(lru, sizeof(lru), "%s, hits at %u %%", POLICY_DEFAULT, percent);
	snprintf(compute, sizeof(compute), "%s, compute saved at %u %%", POLICY_DEFAULT, percent);
	if (most > 0 && (percent == 5 || percent == 10))
		error = bench_judge_exact(r->b->results, &figures[0], 100 * over, 100 * most);
	if (!error && t->lru.blocks_hit)
		error = bench_judge_exact(r->b->results, &figures[1], (double)t->mine.blocks_hit,
					  (double)t->lru.blocks_hit);
	if (!error && t->lru.blocks_hit)
		error = bench_judge_exact(r->b->results, &figures[2], t->mine.flops_hit,
					  t->lru.flops_hit);
	if (!error && t->best.blocks_hit && (percent == 5 || percent == 10))
		error = judge_compute(r, percent, t);
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
	uint64_t capacity = replay_capacity(r->p.trace->distinct * percent / 100);
	const struct policy_ops *ops;
	struct outcome o;
	int error = 0;

	table_head(r, percent, capacity);
	for (uint32_t i = 0; (ops = policy_at(i)) != NULL && !error; i++) {
		error = replay_core(&o, &r->p, ops->name, capacity);
		if (error)
			return bench_failed("replay", error);
		table_row(ops->name, &o);
		judged_take(t, ops->name, &o);
		if (strcmp(ops->name, POLICY_DEFAULT) == 0)
			sample_add(&r->speed, (double)o.blocks / o.seconds);
		if (r->b->real && strcmp(ops->name, POLICY_HITS) != 0)
			error = real_row(r, ops->name, capacity, &o);
	}
	if (!error)
		error = replay_optimum(&t->optimum, &r->p, capacity);
	if (!error)
		table_row("optimum", &t->optimum);
	return error;
}

static int replay_all(struct replays *r)
{
	static const struct bench_figure speed = { "replay",
						   "core alone, default policy",
						   "refs/s",
						   "2 M a second",
						   { BENCH_RATIO_AT_LEAST, 1 } };
	struct judged at[SIZES] = { 0 };
	double sum = 0;
	int error = 0;

	printf("%zu requests, %zu blocks, %llu different; at most %.4f could hit\n",
	       r->p.trace->request_count, r->p.trace->id_count,
	       (unsigned long long)r->p.trace->distinct,
	       share((double)r->p.trace->reusable, (double)r->p.trace->id_count));
	for (uint32_t i = 0; i < SIZES && !error; i++)
		error = replay_size(r, percents[i], &at[i]);
	printf("\n");
	for (uint32_t i = 0; i < SIZES && !error; i++)
		error = judge_size(r, percents[i], &at[i]);
	for (uint32_t i = 0; i < r->speed.count; i++)
		sum += r->speed.value[i];
	if (!error && r->p.trace->id_count >= SPEED_REFERENCES)
		error = bench_judge_exact(r->b->results, &speed, sum / r->speed.count, SPEED_GOAL);
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
	if (!error)
		error = bench_replay_flash(b, &r.p);
	prepared_free(&r.p);
	trace_close(t);
	return error;
}
