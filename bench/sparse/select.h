/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which blocks sparse attention chooses, step by step: made up, and calibrated to what is published
 * of it (HiSparse, arXiv 2608.07009: an LRU of 1, 2, 4 times the chosen misses 30, 13.4, 6.7 % of
 * them, Belady's of twice 8.2 %; ESS, arXiv 2512.10576: at a fifth of the context one layer misses
 * 36 times what another does). Two mechanisms meet it, which have nothing else in common:
 *
 *   returning  how long ago a block was last chosen is drawn, so sets come back (an LRU stack,
 *              Spirn 1976): choices are memoryless but for their order
 *   drifting   each block has a score of a fixed, a slow and a fast part; the highest are chosen
 *
 * Every (reader, layer, group) is a stream of its own. The block that is being written is chosen
 * always and is the engine's own; here stand the others. Pure, one thread at a time.
 */
#ifndef TIER_BENCH_SPARSE_SELECT_H
#define TIER_BENCH_SPARSE_SELECT_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda/ref/msa.h"

#define SELECT_TOP MSA_TOP

enum select_kind { SELECT_RETURNING, SELECT_DRIFTING, SELECT_KINDS };

struct select_spec {
	enum select_kind kind;
	uint32_t blocks; /* of the context, 256 at least */
	uint32_t layers, groups, readers, steps;
	bool follow; /* all layers choose what the first one does (IndexCache, arXiv 2603.12201) */
	/* Of several readers: the share of a step's choices that all have in common. */
	double shared;
	uint64_t seed;
};

/* All choices of all steps. */
struct selection_trace {
	struct select_spec spec;
	uint16_t *block;
};

/* Errors: -ENOMEM. */
int select_make(struct selection_trace *out, const struct select_spec *spec);
void select_free(struct selection_trace *s);

/* SELECT_TOP different blocks, in no order. */
static inline const uint16_t *select_at(const struct selection_trace *s, uint32_t step,
					uint32_t reader, uint32_t layer, uint32_t group)
{
	const struct select_spec *p = &s->spec;
	uint64_t stream = ((uint64_t)reader * p->layers + (p->follow ? 0 : layer)) * p->groups +
			  group;

	return s->block + (step * (uint64_t)p->readers * p->layers * p->groups + stream) *
				  SELECT_TOP;
}

/*
 * What a draft token's selection says of a step before it comes: of 100 choices 98.7 are right
 * (OasisKV, arXiv 2608.08097), others are any block.
 */
void select_draft(const struct selection_trace *s, uint32_t step, uint32_t reader, uint32_t layer,
		  uint32_t group, uint16_t out[SELECT_TOP]);

const char *select_name(enum select_kind kind);

#endif
