/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierbench replay, its part about speed: block references that the core alone serves in a second
 * of processor time, with the default policy at each size of store. In rounds, all sizes in each;
 * judged are the slowest size and all of them together.
 */
#include <errno.h>
#include <stdio.h>

#include "bench/bench.h"
#include "bench/replay/replay.h"
#include "tierd/core/unit/policy_ops.h"

#define GOAL 2e6	   /* block references a second */
#define REFERENCES 10000u /* fewer are over before the clock can tell */

struct speeds {
	struct sample size[REPLAY_SIZES], all, goal;
};

static int one_round(struct speeds *s, const struct prepared *p)
{
	double blocks = 0, seconds = 0;
	int error = 0;

	for (uint32_t i = 0; i < REPLAY_SIZES && !error; i++) {
		struct outcome o = { 0 };

		error = replay_core(&o, p, POLICY_DEFAULT,
				    replay_capacity(p->trace->distinct * replay_percent[i] / 100));
		if (error || o.seconds <= 0)
			return error ? error : -EDOM;
		sample_add(&s->size[i], (double)o.blocks / o.seconds);
		blocks += (double)o.blocks;
		seconds += o.seconds;
	}
	sample_add(&s->all, blocks / seconds);
	sample_add(&s->goal, GOAL);
	return error;
}

static int judge(struct bench *b, const struct speeds *s)
{
	char name[2][BENCH_TEXT];
	const struct bench_goal goal = { BENCH_RATIO_AT_LEAST, 1 };
	const struct bench_figure slow = { "replay", name[0], "refs/s", "2 M a second", goal };
	const struct bench_figure all = { "replay", name[1], "refs/s", "2 M a second", goal };
	uint32_t slowest = 0;
	int error;

	for (uint32_t i = 1; i < REPLAY_SIZES; i++)
		if (sample_summarise(&s->size[i]).median <
		    sample_summarise(&s->size[slowest]).median)
			slowest = i;
	snprintf(name[0], BENCH_TEXT, "core alone, %s, the slowest of four sizes (%u %%)",
		 POLICY_DEFAULT, replay_percent[slowest]);
	snprintf(name[1], BENCH_TEXT, "core alone, %s, all four sizes", POLICY_DEFAULT);
	error = bench_judge(b->results, &slow, &s->size[slowest], &s->goal);
	return error ? error : bench_judge(b->results, &all, &s->all, &s->goal);
}

int bench_replay_speed(struct bench *b, const struct prepared *p)
{
	uint32_t rounds = b->quick ? 1 : b->rounds;
	struct speeds s = { 0 };
	int error = 0;

	if (p->trace->id_count < REFERENCES)
		return 0;
	for (uint32_t i = 0; i < rounds && !error; i++)
		error = one_round(&s, p);
	return error ? bench_failed("replay", error) : judge(b, &s);
}
