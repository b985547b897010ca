/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between an engine's layout of K and V and pages: msa_layout_in fills pages, msa_layout_out fills
 * the engine's memory. A CTA moves K or V of one head and block, 16 bytes a thread, so that the
 * lanes of half a warp move a token's vector together. Layouts are steps (ref/layout.h): one kernel
 * for all of them.
 */
#include "cuda/kernels/msa.cuh"

#define VECTORS (MSA_DIM * 2 / 16) /* of a token */

DEV uint64_t engine_at(const msa_layout &p, uint32_t v, uint32_t token, uint32_t head)
{
	const uint32_t page = token / p.page_tokens;
	const uint64_t row = p.table && !PLANTED(layout_table_unused) ? p.table[page] : page;
	const uint64_t behind = PLANTED(layout_near) ? (uint32_t)(row * p.page_step)
						     : row * p.page_step;

	return p.engine + (PLANTED(layout_v_is_k) ? 0 : v * p.v_step) + behind +
	       (PLANTED(layout_whole_token) ? token : token % p.page_tokens) * p.token_step +
	       (PLANTED(layout_first_head) ? 0 : head * p.head_step);
}

template <bool IN> DEV void move_block(const msa_layout &p)
{
	const uint32_t v = blockIdx.x % 2, head = blockIdx.x / 2 % p.heads;
	const uint32_t block = blockIdx.x / 2 / p.heads, first = block * MSA_TOKENS;
	const uint64_t page = p.page[(uint64_t)block * p.heads + head];
	const uint32_t behind = p.tokens > first ? p.tokens - first : 0;
	const uint32_t tokens = behind < MSA_TOKENS && !PLANTED(layout_tail_moved) ? behind
										   : MSA_TOKENS;

	if (!page)
		return;
	for (uint32_t i = threadIdx.x; i < tokens * VECTORS; i += MSA_THREADS) {
		const uint64_t there =
			engine_at(p, v, first + i / VECTORS, head) + i % VECTORS * 16;
		const uint64_t here = page + v * (MSA_PAGE_BYTES / 2) + i * 16;

		*(words4 *)(uintptr_t)(IN ? here : there) =
			*(const words4 *)(uintptr_t)(IN ? there : here);
	}
}

KERNEL void __launch_bounds__(MSA_THREADS) msa_layout_in(const GRID_CONSTANT msa_layout p)
{
	move_block<true>(p);
}

KERNEL void __launch_bounds__(MSA_THREADS) msa_layout_out(const GRID_CONSTANT msa_layout p)
{
	move_block<false>(p);
}
