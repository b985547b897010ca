/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How engines lay out a layer's K and V, and where in it a head's vector lies. Pages of ours are
 * K[MSA_TOKENS][MSA_DIM], then V, of one head and block (kernels/msa.h).
 *
 *   NHD         [K, V][token][head][dim]
 *   HND         [K, V][head][token][dim]
 *   page first  [K, V][token][layer][head][dim], as SGLang's host cache: all layers side by side
 *   paged       [K, V][page][token of the page][head][dim], as vLLM; a table says which page
 */
#ifndef CUDA_REF_LAYOUT_H
#define CUDA_REF_LAYOUT_H

#include "cuda/ref/msa.h"

#ifdef __cplusplus
extern "C" {
#endif

enum msa_layout_kind { MSA_NHD, MSA_HND, MSA_PAGE_FIRST, MSA_PAGED, MSA_LAYOUTS };

struct msa_engine {
	enum msa_layout_kind kind;
	uint32_t tokens;          /* that there is room for */
	uint32_t heads;
	uint32_t layers, layer;   /* page first: of so many, this one; else 1, 0 */
	uint32_t page_tokens;     /* paged: tokens is a multiple; else not used */
	const uint32_t *table;    /* paged: [tokens / page_tokens] their page; else NULL */
};

/* Values of bf16 that the whole has. */
uint64_t msa_engine_values(const struct msa_engine *e);

/* Number of the first value of K (v = 0) or V (1) of a token and head. */
uint64_t msa_engine_at(const struct msa_engine *e, uint32_t v, uint32_t token, uint32_t head);

/* The same as steps, in bytes, for kernels. */
struct msa_steps {
	uint64_t v, page, token, head;
	uint64_t first;       /* of the layer */
	uint32_t page_tokens;
};

void msa_engine_steps(const struct msa_engine *e, struct msa_steps *out);

#ifdef __cplusplus
}
#endif

#endif
