/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small statistics for benchmarks: medians, and how sure one may be of them. Every figure is
 * measured in rounds, each beside its peer; what is reported is the median, and the interval in
 * which the median lies when the rounds are drawn again (bootstrap, 95 %).
 */
#ifndef TIER_BENCH_SAMPLE_H
#define TIER_BENCH_SAMPLE_H

#include <stdint.h>

#define SAMPLE_ROUNDS_MAX 64u
#define SAMPLE_ROUNDS_MIN 7u

/* What a series of rounds came to. */
struct sample {
	double value[SAMPLE_ROUNDS_MAX];
	uint32_t count;
};

struct sample_summary {
	double median;
	double low, high; /* 95 % bootstrap interval of the median */
};

/* Later ones than SAMPLE_ROUNDS_MAX are dropped. */
void sample_add(struct sample *s, double value);

/* The q-quantile (0 ... 1) of values, interpolated; sorts them. 0 for an empty series. */
double sample_quantile(double *values, uint32_t count, double q);

/* The same rounds always give the same interval. All zero for an empty series. */
struct sample_summary sample_summarise(const struct sample *s);

/* Which of so many series has the lowest median; the first of equal ones. */
uint32_t sample_lowest(const struct sample *s, uint32_t count);

/* value[i] / peer[i] for each round that has both; a round whose peer is 0 is left out. */
struct sample sample_ratio(const struct sample *value, const struct sample *peer);

#endif
