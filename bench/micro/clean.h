/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the workload clean share: daemons' stores, and the core alone. */
#ifndef TIER_BENCH_MICRO_CLEAN_H
#define TIER_BENCH_MICRO_CLEAN_H

#include "bench/bench.h"

#define CLEAN_SEGMENT_BYTES (2u << 20)
#define CLEAN_PAGE_BYTES 65536u   /* a block has one */
#define CLEAN_SEGMENT_BLOCKS 28u /* and 256 KiB of records */
/* The plan of a store (core/unit/store_codec.c) takes at most so much for what is no segment. */
#define CLEAN_OVERHEAD_BYTES (2u << 20)
#define CLEAN_FILLS 3u

extern const uint32_t clean_full[CLEAN_FILLS]; /* percent */

/*
 * What oldest-first cleaning writes for a byte put in a log of which the share u is live, when it
 * is overwritten uniformly; see clean.c.
 */
double clean_oldest_first(double u);

struct pool;

/* A daemon with a store that is so full; discard: one more setting, or NULL. */
int clean_open_store(struct pool *p, struct bench *b, uint32_t percent, const char *discard);
/* All that two such stores hold, in turns. */
int clean_read_both(struct pool *const p[2], uint32_t round, uint64_t pause_ns, double gbps[2]);
/* Prefix i of one, and how many there are, for pool_rewrite. */
uint32_t clean_prefixes(const struct pool *p);
uint32_t clean_prefix(uint32_t i);

/* Reads of a store whose dead segments are being discarded. */
int clean_discards(struct bench *b);

/* The trace into both logs, by the core alone. */
int clean_trace(struct bench *b);

#endif
