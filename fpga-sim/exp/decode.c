/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Experiment e: sparse decode of a model of 57 layers, 16 of a context's 64 KiB blocks chosen in
 * each layer and step (bench/sparse/select.h: returning), in a device whose DRAM has 10 to 20 % of
 * them. A layer reads its blocks, then computes. With look-ahead the host touches a line of each
 * block that the next step is expected to choose in this layer (select_draft), while it computes.
 */
#include <stdlib.h>

#include "bench/sparse/select.h"
#include "exp.h"

#define LAYERS 57u
#define STEP_US 10000.0
#define SETS 13u /* log2, of lines of 4 KiB: 512 MiB of DRAM, whatever the size of the others */
#define BLOCK_LOG 10u /* log2 of a block's flits: 64 KiB */
#define WARM 100u /* steps, not timed */
#define TIMED 8u
#define CASES 3u
#define BLOCK_LINES 16u /* at most, of 4 KiB */

static const uint32_t BLOCKS[CASES] = { 1440, 1024, 720 }; /* 10, 14, 20 % in DRAM */

struct decode {
	struct exp *e;
	struct selection_trace trace;
	struct clock *c;
	struct exp_setting set;
	uint64_t now[SELECT_TOP * BLOCK_LINES], next[SELECT_TOP * BLOCK_LINES];
	uint32_t lines; /* of a block */
};

static void places(const struct decode *d, uint32_t layer, const uint16_t *block, uint64_t *line)
{
	uint64_t first = (uint64_t)layer * d->trace.spec.blocks;

	for (uint32_t i = 0; i < SELECT_TOP; i++) {
		for (uint32_t k = 0; k < d->lines; k++)
			*line++ = (first + block[i]) * d->lines + k;
	}
}

/* Where it all fits, all is there. */
static void fill(struct decode *d)
{
	for (uint64_t i = 0; i < (uint64_t)LAYERS * d->trace.spec.blocks * d->lines; i++)
		clock_touch(d->c, i, false);
}

static void warm(struct decode *d)
{
	uint32_t count = SELECT_TOP * d->lines;

	for (uint32_t step = 0; step < WARM; step++) {
		for (uint32_t layer = 0; layer < LAYERS; layer++) {
			places(d, layer, select_at(&d->trace, step, 0, layer, 0), d->now);
			for (uint32_t i = 0; i < count; i++)
				clock_touch(d->c, d->now[i], false);
		}
	}
}

/* Cycles of a step. */
static double timed(struct decode *d, bool ahead)
{
	uint32_t compute = (uint32_t)(STEP_US / LAYERS * d->e->rates.clock_mhz);
	uint32_t count = SELECT_TOP * d->lines;
	uint16_t draft[SELECT_TOP];
	uint64_t cycles = 0;

	for (uint32_t step = WARM; step < WARM + TIMED; step++) {
		for (uint32_t layer = 0; layer < LAYERS; layer++) {
			places(d, layer, select_at(&d->trace, step, 0, layer, 0), d->now);
			select_draft(&d->trace, step + 1, 0, layer, 0, draft);
			places(d, layer, draft, d->next);
			cycles += clock_layer(d->c, 0, count, d->next, ahead ? count : 0,
					      compute).cycles;
		}
	}
	return (double)cycles / TIMED;
}

/* Microseconds of a step, in a device of so many sets. */
static int run(struct decode *d, uint32_t sets, uint32_t line_log, bool ahead, double *us)
{
	struct point p = { .line_log = line_log };
	int rc;

	d->lines = 1u << (BLOCK_LOG - line_log);
	d->set = point_setting(&p, &d->e->rates, sets);
	d->set.list = d->now;
	rc = clock_open(&d->c, &d->set, d->e->mshrs, d->e->slots);
	if (rc)
		return rc;
	fill(d);
	warm(d);
	*us = timed(d, ahead) / d->e->rates.clock_mhz;
	clock_close(d->c);
	return 0;
}

static void say(struct decode *d, uint32_t line_log, bool ahead, double us, double all)
{
	double share = 100.0 * (16u << SETS) / ((double)LAYERS * d->trace.spec.blocks * 16);
	bool judged = ahead && line_log == BLOCK_LOG;
	char text[160], curve[64];
	struct row r = { .figure = text, .unit = "us a step", .against = "all in DRAM",
			 .goal = judged ? "ratio <= 1.15" : "none", .value = us,
			 .against_value = all, .ratio = us / all, .met = us <= 1.15 * all };

	snprintf(text, sizeof(text), "sparse decode, %.1f %% in DRAM, lines of %u KiB, %s", share,
		 (64u << line_log) >> 10, ahead ? "one step's look-ahead" : "no look-ahead");
	exp_row(d->e, &r);
	printf("  %-70s %8.0f us, %.3f of all in DRAM%s\n", text, us, r.ratio,
	       !judged ? "" : r.met ? ": goal <= 1.15 met" : ": goal <= 1.15 missed");
	snprintf(curve, sizeof(curve), "%u KiB, %s", (64u << line_log) >> 10,
		 ahead ? "look-ahead" : "none");
	exp_value(d->e, "decode", curve, share, r.ratio);
}

static int one(struct decode *d, uint32_t blocks)
{
	const struct select_spec spec = { .kind = SELECT_RETURNING, .blocks = blocks,
					  .layers = LAYERS, .groups = 1, .readers = 1,
					  .steps = WARM + TIMED + 1, .seed = 20261124 };
	double all, us;
	int rc = select_make(&d->trace, &spec);

	if (rc)
		return rc;
	rc = run(d, SETS + 4, BLOCK_LOG, false, &all);
	for (uint32_t i = 0; !rc && i < 4; i++) {
		uint32_t log = i < 2 ? BLOCK_LOG : 6;

		rc = run(d, SETS, log, i % 2, &us);
		if (!rc)
			say(d, log, i % 2, us, all);
	}
	select_free(&d->trace);
	return rc;
}

void exp_decode(struct exp *e)
{
	struct decode *d = calloc(1, sizeof(*d));

	printf("e: sparse decode, %u layers, %u blocks of 64 KiB each a step, %.0f us of "
	       "computing\n",
	       LAYERS, SELECT_TOP, STEP_US);
	for (uint32_t i = 0; d && i < CASES && !e->error; i++) {
		d->e = e;
		e->error = one(d, BLOCKS[i]);
	}
	free(d);
}
