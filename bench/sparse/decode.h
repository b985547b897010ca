/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sparse decode that reads a context's pages from tier: at each step each (layer, group) needs the
 * pages of 16 blocks (select.h), where they can be read. Pages are those of MSA-428B: 64 KiB, the
 * keys and values of 128 tokens of a group; 4 of its 57 sparse layers, and its 4 groups. (All 57
 * are read by decode.h's user too, in smaller pages.) The index branch, whose keys are in the
 * engine's own memory, is made up by select.h.
 *
 * With a clock, a layer's computing is waited for. Without one it is done: the golden model's main
 * branch (cuda/ref/msa.h) over what was leased, compared with the same over bytes that never were
 * in tier.
 */
#ifndef TIER_BENCH_SPARSE_DECODE_H
#define TIER_BENCH_SPARSE_DECODE_H

#include "bench/micro/pool.h"
#include "bench/sparse/select.h"

#define DECODE_LAYERS 4u
#define DECODE_GROUPS 4u
#define DECODE_PAGES (DECODE_LAYERS * DECODE_GROUPS) /* of a block */
#define DECODE_PAGE_BYTES 65536u
#define DECODE_LAYER_PAGES (DECODE_GROUPS * SELECT_TOP) /* needed of a layer, at each step */

/* Who asks for pages before they are needed. */
enum decode_look {
	DECODE_ON_DEMAND,
	DECODE_DRAFT,  /* a draft token's selection says what the next step needs */
	DECODE_FOLLOW, /* layers choose what the first one has chosen: known a layer ahead */
	DECODE_LOOKS
};

struct decode {
	struct pool *pool;
	const struct selection_trace *trace;
	uint32_t reader;
	enum decode_look look;
	bool compute;
	bool hbm; /* pages are asked for there, and read from there where they are */
	uint32_t block_layers; /* layers that are stored as one block, under a key of their own */
	uint64_t layer_ns; /* of a layer that is waited for; 0 = not */
	bool settle; /* a step begins when all that was asked for has come */
	uint32_t asked; /* requests under way */
	/* What came of it: pages needed, of these not in memory, in HBM; outputs that differ. */
	uint64_t looks, surprises, from_hbm, outputs, wrong, ns;
	struct tier_lease lease[DECODE_LAYER_PAGES], late[DECODE_LAYER_PAGES];
	struct tier_page page[DECODE_LAYER_PAGES], missing[DECODE_LAYER_PAGES];
	uint16_t expected[DECODE_PAGE_BYTES / 2];
};

extern const char *const decode_look_name[DECODE_LOOKS];

/* Bytes of a page, for pool_spec.fill. */
void decode_fill_page(void *to, uint32_t block, uint32_t page);

/* The outputs of a layer, from its chosen pages in d->lease: counts them. */
void decode_compare(struct decode *d, uint32_t step, uint32_t layer);

/* Steps from ... to - 1 of the trace. Errors: the library's; said. */
int decode_steps(struct decode *d, uint32_t from, uint32_t to);

#endif
