/*
 * A latency histogram of fixed size: every power of two is cut into 32 equal buckets, so that a
 * quantile is off by at most 1/64 (1.6 %) of its value over twelve decades. One thread records; any
 * thread may read or merge meanwhile and gets a slightly older state. Used by the daemon's counters
 * and by the benchmarks.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_BASE_HIST_H
#define TIER_BASE_HIST_H

#include <stdint.h>

#define HIST_SUB_BITS 5
#define HIST_SUB (1u << HIST_SUB_BITS)
/* Values from 2^40 (18 minutes in ns) on share the last bucket; max stays exact. */
#define HIST_VALUE_BITS 40
#define HIST_BUCKETS ((HIST_VALUE_BITS - HIST_SUB_BITS + 1) * HIST_SUB)

struct hist {
	uint64_t count;
	uint64_t sum; /* wraps after 2^64; 584 years of ns */
	uint64_t min; /* meaningless while count is 0 */
	uint64_t max;
	uint64_t buckets[HIST_BUCKETS];
};

/* All zero is an empty histogram too, so a calloc'ed one needs no init. */
void hist_init(struct hist *h);

void hist_record(struct hist *h, uint64_t value);

/* The same value count times: a batch that was timed as a whole. */
void hist_record_many(struct hist *h, uint64_t value, uint64_t count);

/* Adds from to into; from may be recorded to at the same time, into may not. */
void hist_merge(struct hist *into, const struct hist *from);

/*
 * The value below or at which the fraction q (0 … 1) of the recorded ones lies; the middle of its
 * bucket, within min … max. 0 when nothing was recorded. q = 0 is min, q = 1 is max, both exact.
 */
uint64_t hist_quantile(const struct hist *h, double q);

double hist_mean(const struct hist *h);

/* For exporters: the smallest value that falls into bucket i, i ≤ HIST_BUCKETS. */
uint64_t hist_bucket_floor(uint32_t i);

#endif
