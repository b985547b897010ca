/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierbench replay, its part with made-up traces: how far the default falls behind LRU anywhere, in
 * points of hits and in hits, as a share of the tier (docs/policies.md, Credit). The worst cases
 * are named. All patterns of synth.h, two seeds, all sizes: small ones, which are the hard ones.
 */
#include <stdio.h>

#include "bench/bench.h"
#include "bench/replay/replay.h"
#include "bench/replay/synth.h"
#include "tierd/core/unit/policy_ops.h"

#define SEEDS 2u
#define REFERENCES 60000u

struct worst {
	uint32_t cases, below;
	double points, share; /* LRU's lead at most, in percent: of all blocks; of the tier's */
	char points_of[64], share_of[64];
};

static void worst_take(struct worst *w, const char *name, const struct outcome *lru,
		       const struct outcome *mine, uint64_t capacity)
{
	double lead = (double)lru->blocks_hit - (double)mine->blocks_hit;
	double points = 100 * lead / (double)lru->blocks, share = 100 * lead / (double)capacity;

	w->cases++;
	w->below += lead > 0;
	if (points > w->points) {
		w->points = points;
		snprintf(w->points_of, sizeof(w->points_of), "%s", name);
	}
	if (share > w->share) {
		w->share = share;
		snprintf(w->share_of, sizeof(w->share_of), "%s", name);
	}
}

static int replay_sizes(struct worst *w, const struct trace *t, const char *pattern, uint32_t seed)
{
	struct prepared p;
	int error = prepare(&p, t);

	if (error)
		return error;
	for (uint32_t i = 0; i < REPLAY_SIZES && !error; i++) {
		uint64_t capacity = replay_capacity(t->distinct * replay_percent[i] / 100);
		struct outcome lru = { 0 }, mine = { 0 };
		char name[64];

		snprintf(name, sizeof(name), "synth:%s:%u at %u %%", pattern, seed,
			 replay_percent[i]);
		error = replay_core(&lru, &p, "lru", capacity);
		if (!error)
			error = replay_core(&mine, &p, POLICY_DEFAULT, capacity);
		if (!error)
			worst_take(w, name, &lru, &mine, capacity);
	}
	prepared_free(&p);
	return error;
}

static int judge(struct bench *b, const struct worst *w)
{
	char points[BENCH_TEXT], share[BENCH_TEXT];
	const struct bench_figure figures[] = {
		{ "replay", points, "points", w->points_of, { BENCH_VALUE_AT_MOST, 0 } },
		{ "replay", share, "% of tier", w->share_of, { BENCH_VALUE_AT_MOST, 25 } },
	};
	int error;

	snprintf(points, sizeof(points), "most below lru, made-up traces, %u of %u below",
		 w->below, w->cases);
	snprintf(share, sizeof(share), "most hits below lru, made-up traces");
	error = bench_judge_exact(b->results, &figures[0], w->points, 0);
	return error ? error : bench_judge_exact(b->results, &figures[1], w->share, 0);
}

int bench_replay_made(struct bench *b)
{
	struct worst w = { .points_of = "lru", .share_of = "lru" };
	const struct synth *pattern;
	int error = 0;

	for (uint32_t i = 0; (pattern = synth_at(i)) != NULL && !error; i++)
		for (uint32_t seed = 1; seed <= SEEDS && !error; seed++) {
			struct trace *t = NULL;

			error = synth_make(&t, pattern->name, seed, REFERENCES);
			if (!error)
				error = replay_sizes(&w, t, pattern->name, seed);
			trace_close(t);
		}
	return error ? bench_failed("replay", error) : judge(b, &w);
}
