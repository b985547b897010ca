/*
 * Log-linear histogram; see hist.h for the contract. The bucket layout is that of HdrHistogram
 * (Tene): the leading bits of the value, taken as they are, number the bucket.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "libtier/base/hist.h"

#include <string.h>

#include "libtier/base/atomic.h"

/* The owner is the only writer: a relaxed load and store is enough, and readers never see half. */
static void add(uint64_t *p, uint64_t n)
{
	atomic_store_relaxed_u64(p, *p + n);
}

static uint32_t bucket_of(uint64_t value)
{
	uint32_t exponent;

	if (value >> HIST_VALUE_BITS)
		return HIST_BUCKETS - 1;
	if (value < HIST_SUB)
		return (uint32_t)value;
	exponent = 63u - (uint32_t)__builtin_clzll(value) - HIST_SUB_BITS;
	/* The leading one of value >> exponent, at bit HIST_SUB_BITS, carries into the exponent. */
	return exponent * HIST_SUB + (uint32_t)(value >> exponent);
}

uint64_t hist_bucket_floor(uint32_t i)
{
	uint32_t exponent;

	if (i < 2 * HIST_SUB)
		return i;
	exponent = i / HIST_SUB - 1;
	return (uint64_t)(HIST_SUB + i % HIST_SUB) << exponent;
}

void hist_init(struct hist *h)
{
	memset(h, 0, sizeof(*h));
}

void hist_record_many(struct hist *h, uint64_t value, uint64_t count)
{
	if (count == 0)
		return;
	if (h->count == 0 || value < h->min)
		atomic_store_relaxed_u64(&h->min, value);
	if (value > h->max)
		atomic_store_relaxed_u64(&h->max, value);
	add(&h->sum, value * count);
	add(&h->buckets[bucket_of(value)], count);
	add(&h->count, count);
}

void hist_record(struct hist *h, uint64_t value)
{
	hist_record_many(h, value, 1);
}

void hist_merge(struct hist *into, const struct hist *from)
{
	uint64_t count = atomic_load_relaxed_u64(&from->count);
	uint64_t min = atomic_load_relaxed_u64(&from->min);
	uint64_t max = atomic_load_relaxed_u64(&from->max);

	if (count == 0)
		return;
	if (into->count == 0 || min < into->min)
		into->min = min;
	if (max > into->max)
		into->max = max;
	into->count += count;
	into->sum += atomic_load_relaxed_u64(&from->sum);
	for (uint32_t i = 0; i < HIST_BUCKETS; i++)
		into->buckets[i] += atomic_load_relaxed_u64(&from->buckets[i]);
}

static uint64_t clamp(uint64_t value, uint64_t low, uint64_t high)
{
	if (value < low)
		return low;
	return value > high ? high : value;
}

uint64_t hist_quantile(const struct hist *h, double q)
{
	uint64_t count = atomic_load_relaxed_u64(&h->count);
	uint64_t min = atomic_load_relaxed_u64(&h->min);
	uint64_t max = atomic_load_relaxed_u64(&h->max);
	uint64_t rank, seen = 0;

	if (count == 0)
		return 0;
	if (q <= 0)
		return min;
	/* The nearest-rank definition: the smallest value with at least q of all at or below it. */
	rank = (uint64_t)(q * (double)count);
	if ((double)rank < q * (double)count)
		rank++;
	if (rank >= count)
		return max;
	for (uint32_t i = 0; i < HIST_BUCKETS; i++) {
		uint64_t floor = hist_bucket_floor(i);

		seen += atomic_load_relaxed_u64(&h->buckets[i]);
		if (seen >= rank)
			return clamp(floor + (hist_bucket_floor(i + 1) - floor) / 2, min, max);
	}
	return max;
}

double hist_mean(const struct hist *h)
{
	uint64_t count = atomic_load_relaxed_u64(&h->count);

	return count ? (double)atomic_load_relaxed_u64(&h->sum) / (double)count : 0;
}
