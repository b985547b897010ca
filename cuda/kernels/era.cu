/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A launch of a stream has ended: what its kernels read is read. The daemon sees the count from the
 * host, so the store is released to the whole system; nobody else writes the word.
 */
#include "cuda/kernels/era.h"
#include "cuda/kernels/gpu.cuh"

KERNEL void __launch_bounds__(32) msa_era_end(const GRID_CONSTANT msa_era p)
{
	if (threadIdx.x == 0 || PLANTED(era_of_each_lane))
		store_for_system(p.done, load_for_system(p.done) + (PLANTED(era_by_two) ? 2 : 1));
}
