/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernels of sparse attention share: where a lane stands, and what a query sees. */
#pragma once
#include "cuda/kernels/gpu.cuh"
#include "cuda/kernels/msa.h"

#define WARPS (MSA_THREADS / 32)

/* Where in a fragment a lane stands. */
struct lane {
	uint32_t warp, row, pair; /* row 0-7 and row + 8; columns 2 * pair, 2 * pair + 1 */
};

DEV lane lane_here()
{
	const uint32_t l = threadIdx.x % 32;

	return { threadIdx.x / 32, l / 4, l % 4 };
}

/* Tokens of the block that a query at this position sees. */
DEV uint32_t seen_from(uint32_t position, int32_t block)
{
	const int64_t behind = (int64_t)position + (PLANTED(causal_off_by_one) ? 0 : 1) -
			       (int64_t)block * MSA_TOKENS;

	if (behind <= 0)
		return 0;
	return behind < MSA_TOKENS ? (uint32_t)behind : MSA_TOKENS;
}
