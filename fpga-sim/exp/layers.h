/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sparse decode, for experiment e: which lines a layer of a model reads, step by step (blocks of
 * 64 KiB, chosen as bench/sparse/select.h does), and which ones it is expected to read in the next
 * step. Layers lie one after the other in flash.
 */
#ifndef TIER_FPGA_LAYERS_H
#define TIER_FPGA_LAYERS_H

#include "bench/sparse/select.h"
#include "points.h"

#define LAYERS 57u             /* of the model that is meant, ... */
#define LAYERS_STEP_US 10000.0 /* ... and what it computes in a step */
#define LAYERS_BLOCK_LOG 10u   /* log2 of a block's flits: 64 KiB */
#define LAYERS_LINES 16u       /* of a block, at most: of 4 KiB */

struct layers {
	struct selection_trace trace;
	uint32_t line_log, lines; /* lines: of a block */
	uint32_t count;           /* lines that a layer reads */
	uint64_t now[SELECT_TOP * LAYERS_LINES], next[SELECT_TOP * LAYERS_LINES];
};

/* Layers of so many blocks, and steps of them; the same each time. -errno. */
int layers_make(struct layers *l, uint32_t layers, uint32_t blocks, uint32_t steps);
void layers_free(struct layers *l);
void layers_lines(struct layers *l, uint32_t line_log); /* of the device */
void layers_at(struct layers *l, uint32_t step, uint32_t layer); /* fills `now` and `next` */

struct layers_run {
	uint32_t warm, timed; /* steps without the clock, then by it */
	bool fill;            /* before, all lines are touched */
	bool ahead;           /* while a layer computes, the next step's lines are touched */
};

uint32_t layers_compute(const struct point_rates *r); /* cycles of a layer's computing */
/* In the model, by its clock: all cycles of the timed steps. sets_log: of lines of 4 KiB. */
int layers_by_clock(struct layers *l, const struct layers_run *run, const struct point *p,
		    const struct point_rates *r, uint32_t sets_log, uint64_t *cycles);

#endif
