/* SPDX-License-Identifier: Apache-2.0 */
/* Conversations with real bytes, rows of the byteseconds workload; see talks.c. */
#ifndef TIER_BENCH_MICRO_TALKS_H
#define TIER_BENCH_MICRO_TALKS_H

#include "bench/bench.h"

int talks_real(struct bench *b);

#endif
