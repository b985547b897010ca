/* SPDX-License-Identifier: Apache-2.0 */
/* Medians and bootstrap intervals; see sample.h. */
#include "bench/sample.h"

#include <stdlib.h>
#include <string.h>

#define RESAMPLES 2000u

void sample_add(struct sample *s, double value)
{
	if (s->count < SAMPLE_ROUNDS_MAX)
		s->value[s->count++] = value;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double sample_quantile(double *values, uint32_t count, double q)
{
	double at;
	uint32_t i;

	if (!count)
		return 0;
	qsort(values, count, sizeof(*values), compare);
	at = q * (count - 1);
	i = (uint32_t)at;
	if (i + 1 >= count)
		return values[count - 1];
	return values[i] + (at - i) * (values[i + 1] - values[i]);
}

static double median(const struct sample *s)
{
	struct sample sorted = *s;

	return sample_quantile(sorted.value, sorted.count, 0.5);
}

uint32_t sample_lowest(const struct sample *s, uint32_t count)
{
	uint32_t lowest = 0;

	for (uint32_t i = 1; i < count; i++)
		if (median(&s[i]) < median(&s[lowest]))
			lowest = i;
	return lowest;
}

struct sample_summary sample_summarise(const struct sample *s)
{
	struct sample_summary out = { 0 };
	double draw[SAMPLE_ROUNDS_MAX], medians[RESAMPLES];
	uint64_t x = UINT64_C(0x2545f4914f6cdd1d);

	if (!s->count)
		return out;
	memcpy(draw, s->value, s->count * sizeof(*draw));
	out.median = sample_quantile(draw, s->count, 0.5);
	for (uint32_t k = 0; k < RESAMPLES; k++) {
		for (uint32_t i = 0; i < s->count; i++) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			draw[i] = s->value[(x >> 32) % s->count];
		}
		medians[k] = sample_quantile(draw, s->count, 0.5);
	}
	out.low = sample_quantile(medians, RESAMPLES, 0.025);
	out.high = sample_quantile(medians, RESAMPLES, 0.975);
	return out;
}

struct sample sample_ratio(const struct sample *value, const struct sample *peer)
{
	struct sample out = { .count = 0 };
	uint32_t count = value->count < peer->count ? value->count : peer->count;

	for (uint32_t i = 0; i < count; i++)
		if (peer->value[i] != 0)
			sample_add(&out, value->value[i] / peer->value[i]);
	return out;
}
