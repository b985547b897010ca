/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One reader of a known sequence of blocks on a modelled host: it reads a block, computes, reads
 * the next; a block that is not there it fetches and waits for. With a plan, with a wrong one, or
 * without.
 */
#ifndef TIER_BENCH_MODEL_PLANRUN_H
#define TIER_BENCH_MODEL_PLANRUN_H

#include "bench/model/model.h"

enum plan_mode { PLAN_NONE, PLAN_RIGHT, PLAN_SHUFFLED };

struct plan_run {
	struct model_spec host;
	const uint32_t *seq; /* numbers of blocks */
	uint32_t count, distinct;
	uint32_t tier;       /* where they are read */
	uint64_t budget;     /* bytes of it that the plan may use; 0 = the default */
	enum plan_mode mode;
	uint64_t compute_ns; /* between two blocks */
	bool in_cxl;         /* they are there at the beginning, else on NVMe alone */
};

struct plan_outcome {
	double seconds, stall_s;
	uint64_t loads;      /* blocks that the device read */
	uint64_t direct_bytes, copied_bytes; /* into HBM, by path */
	double apart_s;      /* between the ends of the two paths */
};

/* Errors: -ENOMEM, -EIO the model failed. */
int plan_run(const struct plan_run *run, struct plan_outcome *out);

#endif
