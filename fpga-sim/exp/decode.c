/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Experiment e: sparse decode of a model of 57 layers, 16 of a context's 64 KiB blocks chosen in
 * each layer and step (bench/sparse/select.h: returning), in a device whose DRAM has 10 to 20 % of
 * them. A layer reads its blocks, then computes. With look-ahead the host touches a line of each
 * block that the next step is expected to choose in this layer (select_draft), while it computes.
 */
#include <stdlib.h>

#include "exp.h"
#include "layers.h"

#define SETS 13u /* log2, of lines of 4 KiB: 512 MiB of DRAM, whatever the size of the others */
#define WARM 100u /* steps, not timed */
#define TIMED 8u
#define CASES 3u

static const uint32_t BLOCKS[CASES] = { 1440, 1024, 720 }; /* 10, 14, 20 % in DRAM */

/* Microseconds of a step, in a device of so many sets. */
static int run(struct exp *e, struct layers *l, uint32_t sets, uint32_t line_log, bool ahead,
	       double *us)
{
	struct layers_run run = { .warm = WARM, .timed = TIMED, .fill = true, .ahead = ahead };
	struct point p = { .line_log = line_log, .mshrs = e->mshrs, .slots = e->slots };
	uint64_t cycles = 0;
	int rc = layers_by_clock(l, &run, &p, &e->rates, sets, &cycles);

	*us = (double)cycles / TIMED / e->rates.clock_mhz;
	return rc;
}

static void say(struct exp *e, uint32_t blocks, uint32_t line_log, bool ahead, double us,
		double all)
{
	double share = 100.0 * (16u << SETS) / ((double)LAYERS * blocks * 16);
	bool judged = ahead && line_log == LAYERS_BLOCK_LOG;
	char text[160], curve[64];
	struct row r = { .figure = text, .unit = "us a step", .against = "all in DRAM",
			 .goal = judged ? "ratio <= 1.15" : "none", .value = us,
			 .against_value = all, .ratio = us / all, .met = us <= 1.15 * all };

	snprintf(text, sizeof(text), "sparse decode, %.1f %% in DRAM, lines of %u KiB, %s", share,
		 (64u << line_log) >> 10, ahead ? "one step's look-ahead" : "no look-ahead");
	exp_row(e, &r);
	printf("  %-70s %8.0f us, %.3f of all in DRAM%s\n", text, us, r.ratio,
	       !judged ? "" : r.met ? ": goal <= 1.15 met" : ": goal <= 1.15 missed");
	snprintf(curve, sizeof(curve), "%u KiB, %s", (64u << line_log) >> 10,
		 ahead ? "look-ahead" : "none");
	exp_value(e, "decode", curve, share, r.ratio);
}

static int one(struct exp *e, struct layers *l, uint32_t blocks)
{
	double all, us;
	int rc = layers_make(l, LAYERS, blocks, WARM + TIMED);

	if (rc)
		return rc;
	rc = run(e, l, SETS + 4, LAYERS_BLOCK_LOG, false, &all);
	for (uint32_t i = 0; !rc && i < 4; i++) {
		uint32_t log = i < 2 ? LAYERS_BLOCK_LOG : 6;

		rc = run(e, l, SETS, log, i % 2, &us);
		if (!rc)
			say(e, blocks, log, i % 2, us, all);
	}
	layers_free(l);
	return rc;
}

void exp_decode(struct exp *e)
{
	struct layers *l = calloc(1, sizeof(*l));

	printf("e: sparse decode, %u layers, %u blocks of 64 KiB each a step, %.0f us of "
	       "computing\n",
	       LAYERS, SELECT_TOP, LAYERS_STEP_US);
	for (uint32_t i = 0; l && i < CASES && !e->error; i++)
		e->error = one(e, l, BLOCKS[i]);
	free(l);
}
