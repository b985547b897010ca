/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timing of what takes nanoseconds: the processor's counter where there is one, calibrated against
 * CLOCK_MONOTONIC, with the cost of looking at it known, so that it can be taken off.
 */
#ifndef TIER_BENCH_TICK_H
#define TIER_BENCH_TICK_H

#include <stdint.h>

#include "libtier/base/time.h"

struct tick {
	double ns_per_tick;
	double overhead_ns;   /* of two readings with nothing between; the mean of many */
	double resolution_ns; /* by how much readings differ at least: some count in steps */
};

/* Takes 20 ms. */
void tick_calibrate(struct tick *t);

/* Earlier loads have been done when it is read, and later ones have not begun. */
static inline uint64_t tick_now(void)
{
#if defined(__x86_64__)
	uint64_t now;

	__builtin_ia32_lfence();
	now = __builtin_ia32_rdtsc();
	__builtin_ia32_lfence();
	return now;
#else
	return time_now_ns();
#endif
}

/* Nanoseconds between two readings, the readings themselves taken off; not below 0. */
static inline double tick_ns(const struct tick *t, uint64_t from, uint64_t to)
{
	double ns = (double)(to - from) * t->ns_per_tick - t->overhead_ns;

	return ns > 0 ? ns : 0;
}

#endif
