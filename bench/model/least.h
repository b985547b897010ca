/* SPDX-License-Identifier: Apache-2.0 */
/* The least that a reader with a plan can be kept waiting; the peer of the plan workload. */
#ifndef TIER_BENCH_MODEL_LEAST_H
#define TIER_BENCH_MODEL_LEAST_H

#include <stdint.h>

struct least_spec {
	const uint32_t *seq; /* numbers of blocks */
	uint32_t count;
	uint32_t capacity;   /* blocks of the tier */
	uint64_t block_ns;   /* a block's transfer */
	uint64_t compute_ns; /* between two blocks */
};

struct least {
	uint32_t loads;  /* what offline Belady loads */
	double stall_ns; /* in all */
};

/* Errors: -ENOMEM. */
int least_stall(const struct least_spec *spec, struct least *out);

#endif
