/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wrappers of gpu.cuh, each by itself: what the model of the device makes of them, what nvcc
 * makes of their assembly, and what a device does, must be the same.
 */
#include "cuda/kernels/gpu.cuh"
#include "cuda/kernels/wrappers.h"

/* Two phases of an mbarrier that waits for two arrivals, one of which announces bytes. */
DEV uint32_t bulk_word(const msa_wrappers &p, uint64_t *bar, unsigned char *shared)
{
	uint32_t sum = 0;

	if (threadIdx.x == 0) {
		mbar_init(bar, 2);
		mbar_fence_init();
	}
	warp_sync();
	for (uint32_t phase = 0; phase < 2; phase++) {
		if (threadIdx.x == 0) {
			mbar_expect(bar, WRAPPERS_BYTES / 2);
			bulk_load(shared, p.bulk + phase * WRAPPERS_BYTES / 8, WRAPPERS_BYTES / 2,
				  bar);
		}
		if (threadIdx.x == 1)
			mbar_arrive(bar);
		mbar_wait(bar, phase);
		sum = sum * 3 + ((const uint32_t *)shared)[threadIdx.x];
		warp_sync();
	}
	return sum;
}

KERNEL void __launch_bounds__(32) msa_wrappers_all(const GRID_CONSTANT msa_wrappers p)
{
	DYN_SHARED(shared);
	__shared__ uint64_t bar;
	uint32_t in[WRAPPERS_IN], out[WRAPPERS_OUT];
	float d[4];

	for (uint32_t i = 0; i < WRAPPERS_IN; i++)
		in[i] = p.in[i * 32 + threadIdx.x];
	out[0] = pack_bf16(as_float(in[0]), as_float(in[1]));
	out[1] = as_bits(exp2_approx(as_float(in[2])));
	out[2] = e4m3_to_f16(in[3] & 0xffff);
	out[3] = as_bits(f16_to_float(out[2] & 0xffff));
	out[4] = as_bits(f16_to_float(out[2] >> 16));
	out[5] = shuffle_xor(in[4], 5);
	for (uint32_t i = 0; i < 4; i++)
		d[i] = as_float(in[5 + i]);
	mma_16816(d, &in[9], &in[13]);
	for (uint32_t i = 0; i < 4; i++)
		out[6 + i] = as_bits(d[i]);
	out[10] = bulk_word(p, &bar, shared);
	out[11] = as_bits(quad_sum(as_float(in[15])));
	for (uint32_t i = 0; i < WRAPPERS_OUT; i++)
		p.out[i * 32 + threadIdx.x] = out[i];
}
