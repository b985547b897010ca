/* SPDX-License-Identifier: Apache-2.0 */
/* ITME's turn sweep with real bytes, rows of the turns workload; see turns.c. */
#ifndef TIER_BENCH_MICRO_TURNS_H
#define TIER_BENCH_MICRO_TURNS_H

#include "bench/bench.h"

int turns_real(struct bench *b);

#endif
