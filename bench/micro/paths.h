/* SPDX-License-Identifier: Apache-2.0 */
/* The two paths into HBM with real bytes, a row of the plan workload; see paths.c. */
#ifndef TIER_BENCH_MICRO_PATHS_H
#define TIER_BENCH_MICRO_PATHS_H

#include "bench/bench.h"

int paths_real(struct bench *b);

#endif
