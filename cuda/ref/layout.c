/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts of engines, each as it is written down; and as steps, for kernels. See layout.h. */
#include "cuda/ref/layout.h"

uint64_t msa_engine_values(const struct msa_engine *e)
{
	return 2ull * e->tokens * e->layers * e->heads * MSA_DIM;
}

uint64_t msa_engine_at(const struct msa_engine *e, uint32_t v, uint32_t token, uint32_t head)
{
	uint64_t at = 0;

	switch (e->kind) {
	case MSA_NHD:
		at = ((uint64_t)v * e->tokens + token) * e->heads + head;
		break;
	case MSA_HND:
		at = ((uint64_t)v * e->heads + head) * e->tokens + token;
		break;
	case MSA_PAGE_FIRST:
		at = (((uint64_t)v * e->tokens + token) * e->layers + e->layer) * e->heads + head;
		break;
	default:
		at = ((uint64_t)v * e->tokens +
		      (uint64_t)e->table[token / e->page_tokens] * e->page_tokens +
		      token % e->page_tokens) * e->heads + head;
	}
	return at * MSA_DIM;
}

void msa_engine_steps(const struct msa_engine *e, struct msa_steps *out)
{
	const uint64_t vector = 2 * MSA_DIM;

	*out = (struct msa_steps){
		.v = msa_engine_values(e), /* half of them, two bytes each */
		.token = e->layers * e->heads * vector,
		.head = vector,
		.first = e->layer * e->heads * vector,
		.page_tokens = e->tokens,
	};
	if (e->kind == MSA_HND) {
		out->token = vector;
		out->head = e->tokens * vector;
	}
	if (e->kind == MSA_PAGED) {
		out->page_tokens = e->page_tokens;
		out->page = e->page_tokens * out->token;
	}
}
