/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a cache of so many blocks misses of one stream of choices: LRU, Belady's, and LRU that knows
 * some steps ahead. A step's own choices are all there while it is computed. Pure.
 */
#ifndef TIER_BENCH_SPARSE_CACHE_H
#define TIER_BENCH_SPARSE_CACHE_H

#include "bench/sparse/select.h"

#define CACHE_BELADY UINT32_MAX

/* One (reader, layer, group); the first quarter of its steps fills the cache. */
struct cache_stream {
	const struct selection_trace *trace;
	uint32_t reader, layer, group;
};

/*
 * Adds to *misses and *looks. ahead: known steps: 0 = LRU; CACHE_BELADY = all. Who is needed again
 * within these leaves last, the furthest of them first. Errors: -ENOMEM.
 */
int cache_misses(const struct cache_stream *s, uint32_t capacity, uint32_t ahead, uint64_t *misses,
		 uint64_t *looks);

#endif
