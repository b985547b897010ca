/*
 * The C side of bench/engines/binding: one look-up of a prefix, many times.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <tier.h>
#include <time.h>

double match_ns(tier_context *c, const tier_key *keys, uint32_t count, struct tier_found *found,
		uint32_t times);

double match_ns(tier_context *c, const tier_key *keys, uint32_t count, struct tier_found *found,
		uint32_t times)
{
	struct timespec a, b;

	clock_gettime(CLOCK_MONOTONIC, &a);
	for (uint32_t i = 0; i < times; i++) {
		if (tier_match(c, keys, count, found) != count)
			return -1;
	}
	clock_gettime(CLOCK_MONOTONIC, &b);
	return ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / times;
}
