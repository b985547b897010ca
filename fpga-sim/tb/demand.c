/* SPDX-License-Identifier: Apache-2.0 */
/* Experiment f in the RTL: reads of random lines beside a window (exp/demand.c), in short. */
#include <stdio.h>

#include "experiment.h"

#define STAGE_LINES (32u << 10) /* 128 MiB of 4 KiB */
#define IDLE_CYCLES 4000000u

static uint64_t idle(struct bench *b, const struct exp_setting *set)
{
	uint64_t begin = b->cycle;

	readers_begin(b->readers, set, 0, 1); /* a line that it never may read */
	b->readers->allowed = 0;
	while (b->cycle < begin + IDLE_CYCLES && b->differences == 0)
		bench_cycle(b);
	return b->cycle - begin;
}

static void says(char text[64], const struct experiment *x, const struct clock_outcome *o)
{
	double us = 1 / x->rates.clock_mhz;

	snprintf(text, 64, "p50 %.1f us, p99 %.1f us, staging %.2f GB/s", o->p50 * us, o->p99 * us,
		 point_rate(&x->rates, o));
}

int experiment_demand(struct bench *b, struct experiment *x, uint32_t units)
{
	struct device_settings *s = device_settings(b->model);
	struct clock_outcome model, rtl;
	int rc;

	x->set = point_demand(&x->rates, x->sets_log, units);
	rc = point_demanded(&x->set, b->shape.mshrs, b->slots, STAGE_LINES, IDLE_CYCLES, &model);
	if (rc)
		return rc;
	if (units) {
		experiment_set(b, DEVICE_REG_STAGE_MOST, &s->stage_most, 0x01010101ull * units);
		x->rtl = experiment_pass(b, &x->set, STAGE_LINES);
	} else {
		x->rtl = idle(b, &x->set);
	}
	x->model = model.cycles;
	rtl = (struct clock_outcome){ .cycles = x->rtl, .flits = b->readers->done,
				      .p50 = readers_within(b->readers, 500),
				      .p99 = readers_within(b->readers, 990) };
	x->far = !experiment_near(rtl.p50, model.p50) || !experiment_near(rtl.p99, model.p99);
	says(x->rtl_says, x, &rtl);
	says(x->model_says, x, &model);
	return 0;
}
