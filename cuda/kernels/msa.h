/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sparse attention over pages: the parameters of the kernels, for device and host, C and C++. Of
 * each block of tokens a KV head has a page: K, then V. The index chooses MSA_TOP blocks a query;
 * decode attends to the chosen ones alone. What the kernels compute is defined by cuda/ref/msa.h.
 */
#ifndef CUDA_KERNELS_MSA_H
#define CUDA_KERNELS_MSA_H

#include <stdint.h>

#include "cuda/ref/msa.h"

#define MSA_ROWS 16u    /* rows of a query at most: the heads of a group, times tokens ahead */
#define MSA_PAGE_BYTES (2u * MSA_TOKENS * MSA_DIM * 2u)

#define MSA_THREADS 128u

/*
 * The index. A request is up to MSA_ROWS rows that share its keys: the index heads, times tokens
 * ahead; each row chooses for itself, and is a query of decode's.
 *
 * Keys of a block that a row sees and that are not there make the row MSA_LOST, which decode makes
 * NaN: a choice without them would look right. The row's own block needs no keys.
 */
struct msa_index {
	const uint16_t *q;        /* [requests][rows][MSA_DIM] bf16 */
	const uint32_t *position; /* [requests][rows] of the last token that it sees */
	const uint32_t *table;    /* [requests] its row of pages */
	const uint64_t *page;     /* [tables][blocks] address of keys [MSA_TOKENS][MSA_DIM], bf16 or
				   * e4m3, in units of 16 bytes; 0 = not there */
	const float *scale;       /* [tables][blocks] of e4m3 keys, positive */
	float *score;             /* [requests][rows][blocks] */
	int32_t *chosen;          /* [requests][rows][MSA_TOP] as msa_choose has it */
	uint32_t requests, rows, blocks;
	uint32_t span;            /* blocks that a CTA scores; MSA_SPAN_MOST at most */
};

/* msa_index_score_*: grid requests * (blocks / span, rounded up); msa_index_choose: grid requests *
 * rows; MSA_THREADS each. */
#define MSA_SPAN_MOST 128u
#define MSA_STAGES 3u
#define MSA_SCORE_SHARED(key_bytes) (4u * MSA_STAGES * 32u * MSA_DIM * (key_bytes))
#define MSA_CHOOSE_SHARED(blocks) ((blocks) * 8u)

/*
 * Decode. A query is up to MSA_ROWS rows that share what was chosen for them.
 *
 * Words of page tables may be the host's and change meanwhile: they are loaded for the whole
 * system.
 *
 * NaN: as in cuda/ref/msa.h. A page that was chosen and is not there makes NaN: an answer without
 * it would look right.
 */
struct msa_decode {
	const uint16_t *q;        /* [queries][rows][MSA_DIM] bf16 */
	const int32_t *chosen;    /* [queries][MSA_TOP] block, -1 = none, MSA_LOST */
	const uint32_t *position; /* [queries] of the last token that it sees */
	const uint32_t *table;    /* [queries] its row of pages */
	const uint64_t *page;     /* [tables][blocks] address of K[MSA_TOKENS][MSA_DIM] bf16, then
				   * V likewise, in units of 16 bytes; 0 = not there */
	float *part;              /* [queries][MSA_TOP][MSA_ROWS][MSA_DIM] scratch */
	float *state;             /* [queries][MSA_TOP][MSA_ROWS][2] scratch: maximum, sum */
	float *out;               /* [queries][rows][MSA_DIM] */
	uint32_t queries, rows, blocks;
	float scale_log2;         /* of q.k, times log2(e): 1 in exact tests */
};

/* msa_decode_part: grid queries * MSA_TOP; msa_decode_merge: grid queries; MSA_THREADS each. */
#define MSA_DECODE_SHARED (MSA_PAGE_BYTES + 4u * MSA_ROWS * 2u * 4u)

/*
 * Layout: between an engine's memory and pages. Steps are bytes, multiples of 16, as
 * msa_engine_steps of cuda/ref/layout.h has them for each layout.
 */
struct msa_layout {
	uint64_t engine;       /* address of the layer's first K */
	const uint32_t *table; /* [tokens / page_tokens, rounded up] the engine's page; NULL: in
				* order */
	const uint64_t *page;  /* [blocks][heads] address of K, then V; 0 = leave it out */
	uint64_t v_step, page_step, token_step, head_step;
	uint32_t page_tokens, heads;
	uint32_t tokens;       /* of the last block, those that there are move */
};

/* msa_layout_in fills pages, msa_layout_out the engine's memory: grid blocks * heads * 2;
 * MSA_THREADS. */

#endif
