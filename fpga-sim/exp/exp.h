/* SPDX-License-Identifier: Apache-2.0 */
/* What the experiments share (exp.c: a, b; turns.c: c; lines.c: d; decode.c: e; demand.c: f). */
#ifndef TIER_FPGA_EXP_H
#define TIER_FPGA_EXP_H

#include <stdio.h>

#include "points.h"

struct exp {
	struct point_rates rates;
	uint32_t sets_log, mshrs, slots;
	FILE *rows, *curves;
	uint32_t count;
	int error;
};

struct row {
	const char *figure, *unit, *against, *goal;
	double value, against_value, ratio;
	bool met;
};

/* Written where rows are wanted. */
void exp_row(struct exp *e, const struct row *r);
/* A value of a curve of a plot, likewise. */
void exp_value(struct exp *e, const char *plot, const char *curve, double x, double y);

void exp_turns(struct exp *e);
void exp_lines(struct exp *e);
void exp_decode(struct exp *e);
void exp_demand(struct exp *e);

#endif
