/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of `tierbench sparse` have in common: how much of a context memory holds. */
#ifndef TIER_BENCH_SPARSE_SPARSE_H
#define TIER_BENCH_SPARSE_SPARSE_H

#include "bench/bench.h"

#define SPARSE_CXL_PERCENT 15u /* of the context */

/*
 * A context that lies on another host: bytes over its wire a token, single pages beside all of it
 * once, of an answer of so many tokens. No bytes.
 */
int sparse_wire(struct bench *b, uint64_t seed);

/* All 57 layers, in blocks of several sizes. Errors: the library's; said. */
int sparse_layers(struct bench *b, uint64_t seed);

#endif
