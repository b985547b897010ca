/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One point of an experiment in the RTL, still in lock-step with the model; beside it the same by
 * the model's own clock, which must be within 5 % (docs/fpga-experiments.md).
 */
#ifndef TIER_FPGA_EXPERIMENT_H
#define TIER_FPGA_EXPERIMENT_H

#include "bench.h"

/* Cycles of RTL and model, and what else each says of itself. */
struct experiment {
	struct point_rates rates;
	struct exp_setting set;
	uint32_t sets_log; /* with lines of 4 KiB */
	uint64_t rtl, model;
	char rtl_says[64], model_says[64];
	bool far; /* they differ in something else than cycles */
};

/* A register, and the model's setting in the cycle in which the RTL has it. */
void experiment_set(struct bench *b, uint32_t offset, uint64_t *of_model, uint64_t value);
/* The stream's lines [0, lines), read by b->readers; by a window if the setting says so. Cycles. */
uint64_t experiment_pass(struct bench *b, const struct exp_setting *set, uint64_t lines);
bool experiment_near(double rtl, double model);

/* e: a sparse decode. percent: of its blocks are in DRAM. -errno. */
int experiment_decode(struct bench *b, struct experiment *x, uint32_t percent, bool ahead);
/* f: demand beside staging. units: that may be in the drive; 0: nothing is staged. -errno. */
int experiment_demand(struct bench *b, struct experiment *x, uint32_t units);

#endif
