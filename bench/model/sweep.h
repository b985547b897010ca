/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ITME's turn sweep as a model: many conversations, turn after turn, on one engine; equal fast
 * memory for a conventional offload (host memory alone, LRU, what has gone is recomputed) and for
 * tier (the same memory as its CXL tier, NVMe behind it). Both are the real core on a modelled
 * host. The ratios of recomputation, copy and device are ITME's (itme.h).
 *
 * A turn of one conversation: restore the prefix block by block (a block that is there is copied;
 * one that is not is recomputed: a late block is an answer), do the turn's own work, put its new
 * blocks. tier knows who comes next: the engine prefetches the next conversation's prefix, with the
 * time of its turn as deadline. With a box it begins to pull what is missing of it, a block after
 * the other. When its turn begins it asks once more, for what has left since and can be here before
 * it is read, unless computing is faster; what has not come when it is read is recomputed.
 */
#ifndef TIER_BENCH_MODEL_SWEEP_H
#define TIER_BENCH_MODEL_SWEEP_H

#include "bench/model/itme.h"
#include "bench/model/model.h"

#define SWEEP_BLOCK_BYTES (16u << 20)

struct sweep_spec {
	bool tiered;           /* NVMe behind the fast memory */
	bool ours;             /* tier's own order of eviction, also without NVMe */
	bool box;              /* a memory box (tierd/net/box.h) has all that was put */
	uint64_t recompute_ns; /* a block; the unit of all other times */
	double speed;          /* of the device beside ITME's, or of the network to the box */
	const struct model_drive *drive; /* NULL: constant rates */
};

struct sweep {
	struct model *m;
	struct sweep_spec spec;
	uint32_t talk, turn, block;
	uint64_t turn_ns;
	struct {
		uint32_t talk, block, end; /* what is looked at next */
		uint32_t next_end;         /* and behind it, of the one that comes */
		uint32_t carried;
		bool busy;
	} link; /* to the box: a block at a time */
	bool over;
	double seconds[ITME_TURNS + 1]; /* of each turn, all conversations */
};

/* Errors: -EIO the modelled host failed; model_open's. */
int sweep_run(struct sweep *s, const struct sweep_spec *spec);

#endif
