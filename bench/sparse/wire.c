/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A context that lies on another host, by a standing grant (tier_grant_open) and by a stream of
 * all of it (tier_far_open). Each (layer, group) of the reader has a buffer of 15 % of the context,
 * least recently used, which is empty at first: what it misses goes over the wire. Counted, not
 * timed; a few of the 57 layers stand for all, which choose each by themselves.
 */
#include <errno.h>
#include <stdlib.h>

#include "bench/sparse/decode.h"
#include "bench/sparse/sparse.h"
#include "libtier/base/cleanup.h"

#define WORKLOAD "sparse"
#define BLOCKS 1024u /* 128 Ki tokens */
#define LAYERS_ALL 57u
#define TOKENS 100u /* of an answer */

/* Misses of one stream of choices: used[block] is the step of its last use + 1, 0: it is not in. */
static uint64_t misses_of(const struct selection_trace *t, uint32_t layer, uint32_t group,
			  uint32_t *used)
{
	uint32_t capacity = BLOCKS * SPARSE_CXL_PERCENT / 100, count = 0;
	uint64_t misses = 0;

	for (uint32_t step = 0; step < t->spec.steps; step++) {
		const uint16_t *chosen = select_at(t, step, 0, layer, group);

		for (uint32_t i = 0; i < SELECT_TOP; i++) {
			count += !used[chosen[i]];
			misses += !used[chosen[i]];
			used[chosen[i]] = step + 1;
		}
		for (; count > capacity; count--) {
			uint32_t oldest = UINT32_MAX, least = UINT32_MAX;

			for (uint32_t b = 0; b < BLOCKS; b++)
				if (used[b] && used[b] < least) {
					least = used[b];
					oldest = b;
				}
			used[oldest] = 0;
		}
	}
	return misses;
}

static int judge(struct bench *b, const struct selection_trace *t)
{
	char figure[BENCH_TEXT];
	const struct bench_figure row = { WORKLOAD, figure, "MiB/token", "all of it once",
					  { BENCH_RATIO_AT_MOST, 0.25 } };
	double page = DECODE_PAGE_BYTES / 1048576.0;
	double all = page * BLOCKS * LAYERS_ALL * DECODE_GROUPS, misses = 0;

	for (uint32_t i = 0; i < DECODE_PAGES; i++) {
		uint32_t *used CLEANUP_FREE = calloc(BLOCKS, sizeof(*used));

		if (!used)
			return -ENOMEM;
		misses += (double)misses_of(t, i / DECODE_GROUPS, i % DECODE_GROUPS, used);
	}
	snprintf(figure, sizeof(figure), "%s, on another host: answer of %u tokens, single pages",
		 select_name(t->spec.kind), t->spec.steps);
	return bench_judge_exact(b->results, &row,
				 misses / DECODE_LAYERS * LAYERS_ALL * page / t->spec.steps,
				 all / t->spec.steps);
}

int sparse_wire(struct bench *b, uint64_t seed)
{
	int error = 0;

	for (uint32_t kind = 0; kind < SELECT_KINDS && !error; kind++) {
		const struct select_spec spec = { .kind = kind, .blocks = BLOCKS,
						  .layers = DECODE_LAYERS, .readers = 1,
						  .groups = DECODE_GROUPS, .steps = TOKENS,
						  .seed = seed };
		struct selection_trace t;

		error = select_make(&t, &spec);
		if (error)
			return error;
		error = judge(b, &t);
		select_free(&t);
	}
	return error;
}
