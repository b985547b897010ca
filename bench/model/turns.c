/* SPDX-License-Identifier: Apache-2.0 */
/* The turns workload: ITME's sweep (sweep.h) with constant rates, judged; then real bytes. */
#include <errno.h>
#include <stdlib.h>

#include "bench/bench.h"
#include "bench/micro/turns.h"
#include "bench/model/sweep.h"

#define RECOMPUTE_NS 10000000ull

static int one(struct sweep *s, bool tiered, double speed)
{
	const struct sweep_spec spec = { .tiered = tiered, .recompute_ns = RECOMPUTE_NS,
					 .speed = speed };

	return sweep_run(s, &spec);
}

static int sweep_rows(struct bench *b, double speed)
{
	char least[BENCH_TEXT], late[BENCH_TEXT];
	struct bench_figure never = { "turns", least, "x", "conventional offload, same fast memory",
				      { BENCH_RATIO_AT_LEAST, 1 } };
	struct bench_figure gain = { "turns", late, "x", "conventional offload, same fast memory",
				     { BENCH_RATIO_AT_LEAST, ITME_GAIN } };
	struct sweep *s = calloc(2, sizeof(*s));
	double worst = 1e9, worst_late = 1e9;
	uint32_t worst_at = 0;
	int err = s ? one(&s[0], false, speed) : -ENOMEM;

	if (!err)
		err = one(&s[1], true, speed);
	for (uint32_t k = 1; !err && k <= ITME_TURNS; k++) {
		double ratio = s[0].seconds[k] / s[1].seconds[k];

		if (ratio < worst) {
			worst = ratio;
			worst_at = k;
		}
		if (k >= ITME_LATE_TURN && ratio < worst_late)
			worst_late = ratio;
		if (k % 5 == 0 || k == 9 || k == 11)
			bench_say("turns: device x %.1f, turn %u: %.3f times the offload's speed",
				  speed, k, ratio);
	}
	free(s);
	if (err)
		return err;
	snprintf(least, sizeof(least),
		 "model: ITME's sweep, worst of turns 1-35 (turn %u), device x %.1f",
		 worst_at, speed);
	snprintf(late, sizeof(late), "model: ITME's sweep, worst of turns %u-35, device x %.1f",
		 ITME_LATE_TURN, speed);
	err = bench_judge_exact(b->results, &never, worst, 1);
	return err ? err : bench_judge_exact(b->results, &gain, worst_late, 1);
}

/* A host with a memory box beside the same host without, both without NVMe. */
static int box_rows(struct bench *b, double speed)
{
	char least[BENCH_TEXT], most[BENCH_TEXT];
	struct bench_figure never = { "turns", least, "x", "the same host without a box",
				      { BENCH_RATIO_AT_LEAST, 1 } };
	struct bench_figure gain = { "turns", most, "x", "the same host without a box",
				     { BENCH_RATIO_AT_LEAST, ITME_GAIN } };
	struct sweep_spec spec = { .ours = true, .recompute_ns = RECOMPUTE_NS, .speed = speed };
	struct sweep *s = calloc(2, sizeof(*s));
	double worst = 1e9, best = 0;
	int err = s ? sweep_run(&s[0], &spec) : -ENOMEM;

	spec.box = true;
	if (!err)
		err = sweep_run(&s[1], &spec);
	for (uint32_t k = 1; !err && k <= ITME_TURNS; k++) {
		double ratio = s[0].seconds[k] / s[1].seconds[k];

		worst = ratio < worst ? ratio : worst;
		best = ratio > best ? ratio : best;
		if (k % 5 == 0)
			bench_say("turns: a box by %.1f x 100 Gbit/s, turn %u: %.3f times the host "
				  "without", speed, k, ratio);
	}
	free(s);
	if (err)
		return err;
	snprintf(least, sizeof(least),
		 "model: a memory box, worst of turns 1-35, %.1f x 100 Gbit/s", speed);
	snprintf(most, sizeof(most), "model: a memory box, best of turns 1-35, %.1f x 100 Gbit/s",
		 speed);
	err = bench_judge_exact(b->results, &never, worst, 1);
	return err ? err : bench_judge_exact(b->results, &gain, best, 1);
}

int bench_turns(struct bench *b)
{
	static const double speeds[] = { 1, 0.5, 2 };
	int err = 0;

	bench_say("turns: recompute 1 : copy 0.331 : device 0.405, %u conversations, memory full "
		  "in turn 10", ITME_TALKS);
	for (uint32_t i = 0; !err && i < 3; i++)
		err = sweep_rows(b, speeds[i]);
	for (uint32_t i = 0; !err && i < 3; i++)
		err = box_rows(b, speeds[i]);
	return err ? err : turns_real(b);
}
