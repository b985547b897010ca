/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sparse attention, defined: slow, obvious, and the same for kernels, tests and benchmarks. A
 * context is cut into blocks of 128 tokens. The index branch scores each block for a query and
 * chooses 16; the main branch attends to these. A partial result is a value with init, merge and
 * normalise, so that blocks can be taken one at a time, from wherever they lie. Pure functions, any
 * thread; nothing is allocated. bf16 values are the upper halves of floats.
 *
 * NaN and infinity, and why:
 *   score    A key that gives no number counts for nothing: one damaged key neither wins its
 *            block a place nor loses it one. A block without any number scores -inf and is not
 *            chosen.
 *   attend   A NaN in a K row that is seen makes the whole row NaN, one in V its column: a wrong
 *            answer must show. Tokens behind the last one seen are not looked at: pages are
 *            filled up over time. Scores of nothing but -inf weigh nothing.
 *   nothing  Whoever sees no token gets nought, the empty sum, which merges without a trace.
 */
#ifndef CUDA_REF_MSA_H
#define CUDA_REF_MSA_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MSA_DIM 128u    /* values of a head's vector */
#define MSA_TOKENS 128u /* of a block */
#define MSA_TOP 16u     /* blocks that a query attends to */
#define MSA_LOST (-2)   /* chosen: what was to be chosen cannot be known */

float msa_from_bf16(uint16_t x);
/* Nearest, to even; a NaN stays one. */
uint16_t msa_to_bf16(float x);
/* Eight bits: sign, four of exponent (bias 7), three more. No infinities; 0x7f and 0xff are NaN. */
float msa_from_e4m3(uint8_t x);

/* Of the block's tokens, how many a query at this position (0 = the first token) sees. */
uint32_t msa_seen(uint64_t position, int64_t block);

/* max of q.k over the first `seen` keys, unscaled. q[MSA_DIM], k[MSA_TOKENS][MSA_DIM] bf16. */
float msa_score(const uint16_t *q, const uint16_t *k, uint32_t seen);
/* The same of e4m3 keys, times their block's scale, which is positive. */
float msa_score_e4m3(const uint16_t *q, const uint8_t *k, float scale, uint32_t seen);

/*
 * The blocks to attend to, in the order in which they are merged: first `local`, where the query
 * stands, then by falling score, equal ones by number; -1 where there are no more. Blocks of -inf
 * are not chosen. score[local + 1]: later blocks are not seen. One of NaN says that the block's
 * keys are not there: then all are MSA_LOST.
 */
void msa_choose(const float *score, uint32_t local, int32_t chosen[MSA_TOP]);

/* A partial result for one row: maximum of the scores (base 2), sum of their powers, and V summed
 * by these, not yet divided. */
struct msa_state {
	double most;
	double sum;
	double out[MSA_DIM];
};

void msa_init(struct msa_state *s);
/* One page on its own. q[MSA_DIM], kv: K[MSA_TOKENS][MSA_DIM], then V; scale_log2: of q.k, times
 * log2 e. */
void msa_attend(struct msa_state *s, const uint16_t *q, const uint16_t *kv, uint32_t seen,
		double scale_log2);
/* A chosen page that is not there: the row becomes NaN. */
void msa_attend_missing(struct msa_state *s);
/* into = into, then part. */
void msa_merge(struct msa_state *into, const struct msa_state *part);
void msa_normalise(const struct msa_state *s, float out[MSA_DIM]);

/* ---- inputs ---------------------------------------------------------------------------------- */

/*
 * Exact inputs: q has four values of +-1 and else nought, K and V are -1, 0 or 1. With a scale_log2
 * of 1 every score is a whole number within +-4 and every weight a power of two, so all sums are
 * exact in a float, in any order: equality is ==, and ties are common. Random ones: (-1, 1).
 */
enum msa_input { MSA_EXACT_Q, MSA_EXACT, MSA_RANDOM };

/* rows vectors of MSA_DIM; *seed goes on. */
void msa_fill(uint16_t *to, uint64_t rows, enum msa_input kind, uint32_t *seed);
void msa_fill_e4m3(uint8_t *to, uint64_t rows, enum msa_input kind, uint32_t *seed);
/* The next number of the same sequence. */
uint32_t msa_random(uint32_t *seed);

#ifdef __cplusplus
}
#endif

#endif
