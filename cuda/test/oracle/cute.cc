/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model's mma.sync, by both makes of the wrapper, on fragments that were laid out by CuTe
 * (CUTLASS, BSD-3): an account of the instruction that is not ours. Its headers and a host compiler
 * are enough. `make cuda-cute CUTLASS=folder` builds it; nothing of CUTLASS is kept here.
 */
#include <stdio.h>
#include <string.h>

#include <cute/atom/mma_traits_sm80.hpp>

#include "cuda/kernels/wrappers.h"
#include "cuda/ref/msa.h"
#include "cuda/test/outside.h"

using traits = cute::MMA_Traits<cute::SM80_16x8x16_F32BF16BF16F32_TN>;

static constexpr int M = 16, N = 8, K = 16;
static float a[M][K], b[N][K], c[M][N];
alignas(16) static uint32_t in[WRAPPERS_IN * 32], bulk[WRAPPERS_BYTES / 4], out[WRAPPERS_OUT * 32];

static void fill(float *to, int count, uint32_t *seed)
{
	for (int i = 0; i < count; i++)
		to[i] = (float)(msa_random(seed) % 17) - 8;
}

/* A value of two that a word holds, low first. */
static void put_bf16(uint32_t word, int lane, int value, float f)
{
	in[(word + (uint32_t)value / 2) * 32 + (uint32_t)lane] |=
		(uint32_t)msa_to_bf16(f) << value % 2 * 16;
}

/* CuTe's layouts: of lane and value to the place in a matrix whose first index runs fastest. */
static void put_fragments(int lane)
{
	for (int value = 0; value < 8; value++) {
		const int at = traits::ALayout{}(lane, value);

		put_bf16(9, lane, value, a[at % M][at / M]);
	}
	for (int value = 0; value < 4; value++) {
		const int of_b = traits::BLayout{}(lane, value);
		const int of_c = traits::CLayout{}(lane, value);

		put_bf16(13, lane, value, b[of_b % N][of_b / N]);
		memcpy(&in[(5 + value) * 32 + lane], &c[of_c % M][of_c / M], 4);
	}
}

static int count_wrong(bool ptx)
{
	const msa_wrappers p = { in, bulk, out };
	const outside_launch launch = { "msa_wrappers_all", 1, 32, WRAPPERS_BYTES / 2, 1, ptx };
	const char *why = outside_run(&launch, &p, sizeof(p));
	int wrong = 0;

	if (why) {
		printf("%s\n", why);
		return 1;
	}
	for (int lane = 0; lane < 32; lane++) {
		for (int value = 0; value < 4; value++) {
			const int at = traits::CLayout{}(lane, value);
			float want = c[at % M][at / M], got;

			for (int k = 0; k < K; k++)
				want += a[at % M][k] * b[at / M][k];
			memcpy(&got, &out[(6 + value) * 32 + lane], 4);
			wrong += got != want;
		}
	}
	return wrong;
}

int main()
{
	uint32_t seed = 3;
	int wrong = 0;

	fill(&a[0][0], M * K, &seed);
	fill(&b[0][0], N * K, &seed);
	fill(&c[0][0], M * N, &seed);
	for (int lane = 0; lane < 32; lane++)
		put_fragments(lane);
	outside_allow(in, sizeof(in), false);
	outside_allow(bulk, sizeof(bulk), false);
	outside_allow(out, sizeof(out), true);
	for (int door = 0; door < 2; door++)
		wrong += count_wrong(door != 0);
	printf("mma.sync m16n8k16 on fragments laid out by CuTe: %d of %d values differ, of source "
	       "and PTX\n", wrong, 2 * M * N);
	return wrong != 0;
}
