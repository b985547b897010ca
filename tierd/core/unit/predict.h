/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much will a request put? An online predictor of quantiles for each (context, salt, role), in
 * a bounded table: pure data, no clock, no random source.
 *
 * Each cell keeps its last outputs. The upper bound is a conformal quantile of these (Vovk et al.,
 * Algorithmic Learning in a Random World, 2005: the ceil((n + 1)(1 - a))-th smallest covers the
 * next one with probability 1 - a when they are exchangeable), and the level a itself follows the
 * misses (Gibbs and Candes, Adaptive Conformal Inference Under Distribution Shift, NeurIPS 2021:
 * a += step (target - miss)), so that the share of misses goes to the target whatever the outputs
 * do.
 */
#ifndef TIERD_CORE_PREDICT_H
#define TIERD_CORE_PREDICT_H

#include <stdbool.h>
#include <stdint.h>

#define PREDICT_WINDOW 128u
#define PREDICT_WAYS 4u /* cells in which a key may be */

struct predict_key {
	uint64_t salt;
	uint32_t context, role;
};

struct predict_cell {
	uint64_t key; /* digest; 0 = free */
	uint64_t used; /* when: the oldest of a set makes way */
	float level;   /* of misses: 0.05 at first */
	uint32_t count, at; /* of window; next to overwrite */
	uint32_t window[PREDICT_WINDOW];
};

struct predict {
	struct predict_cell *cell;
	uint32_t cells;
	uint64_t clock;
};

struct predict_answer {
	uint32_t expected; /* median */
	uint32_t upper;    /* 95 % of outputs are not more */
	bool known;        /* false: nobody has told anything; both are 0 */
};

/* cells: a power of two, from PREDICT_WAYS on. Errors: -ENOMEM. */
int predict_open(struct predict *p, uint32_t cells);
void predict_close(struct predict *p);

struct predict_answer predict_ask(const struct predict *p, const struct predict_key *key);

/* What became of a request whose upper bound was `upper` (0 = it was not predicted). */
void predict_tell(struct predict *p, const struct predict_key *key, uint32_t upper,
		  uint32_t output);

#endif
