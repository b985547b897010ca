/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The instructions that kernels use beside plain C++: on the device each is one of PTX, on a
 * processor its model (cuda/emu/emu.cuh). Kernels include this and nothing of CUDA's, so that one
 * source is both. A mistake is planted where PLANTED(name) stands; only emulated builds can choose
 * one (cuda/emu/plants.def).
 */
#pragma once
#include <stdint.h>

#ifndef __CUDACC__
#include "cuda/emu/emu.cuh"
#else
#define DEV __device__ __forceinline__
#define KERNEL extern "C" __global__
#define GRID_CONSTANT __grid_constant__
#define DYN_SHARED(name) extern __shared__ __align__(1024) unsigned char name[]
/* One can be compiled in: nvcc -DPLANTED_NOW=name. */
#ifndef PLANTED_NOW
#define PLANTED_NOW none
#endif
#define PLANT_OF(name) PLANT_##name
#define PLANT_NOW(name) PLANT_OF(name)
#define PLANTED(name) (PLANT_##name == PLANT_NOW(PLANTED_NOW))
#define PLANT(name, cases, what) PLANT_##name,
enum { PLANT_none,
#include "cuda/emu/plants.def"
};
#undef PLANT
#define UNROLL _Pragma("unroll")

DEV void block_sync() { __syncthreads(); }
DEV void warp_sync() { __syncwarp(); }

DEV uint32_t shuffle_xor(uint32_t value, uint32_t mask)
{
	return __shfl_xor_sync(0xffffffffu, value, mask);
}

DEV float as_float(uint32_t bits) { return __uint_as_float(bits); }
DEV uint32_t as_bits(float f) { return __float_as_uint(f); }

DEV uint32_t shared_at(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

DEV void mbar_init(uint64_t *bar, uint32_t count)
{
	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
		     ::"r"(shared_at(bar)), "r"(count) : "memory");
}

/* Before the first bulk copy that is to arrive at a new mbarrier. */
DEV void mbar_fence_init()
{
	asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* Arrive, and wait for so many bytes more in this phase. */
DEV void mbar_expect(uint64_t *bar, uint32_t bytes)
{
	asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
		     ::"r"(shared_at(bar)), "r"(PLANTED(expect_nothing) ? 0 : bytes) : "memory");
}

DEV void mbar_arrive(uint64_t *bar)
{
	asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_at(bar)) : "memory");
}

/* Until the phase of this parity is over. */
DEV void mbar_wait(uint64_t *bar, uint32_t parity)
{
	asm volatile("{\n.reg .pred p;\nL_%=:\n"
		     "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
		     "@p bra D_%=;\nbra L_%=;\nD_%=:\n}"
		     ::"r"(shared_at(bar)), "r"(PLANTED(wait_other_parity) ? parity ^ 1 : parity)
		     : "memory");
}

/* dst in shared memory, src in global; both and bytes in units of 16. */
DEV void bulk_load(void *dst, const void *src, uint32_t bytes, uint64_t *bar)
{
	asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
		     "[%0], [%1], %2, [%3];"
		     ::"r"(shared_at(dst)), "l"(src), "r"(bytes), "r"(shared_at(bar)) : "memory");
}

/* d += a * b for a warp's tile of 16 by 8, over 16; fragments as in the PTX manual's figures. */
DEV void mma_16816(float d[4], const uint32_t a[4], const uint32_t b[2])
{
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
		     "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
		     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
		     : "r"(a[0]), "r"(a[PLANTED(mma_a_order) ? 2 : 1]),
		       "r"(a[PLANTED(mma_a_order) ? 1 : 2]), "r"(a[3]),
		       "r"(b[PLANTED(mma_b_order) ? 1 : 0]), "r"(b[PLANTED(mma_b_order) ? 0 : 1]));
}

DEV float exp2_approx(float x)
{
	float y;

	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

/* Two bf16 in a word, low first; nearest even. */
DEV uint32_t pack_bf16(float low, float high)
{
	uint32_t word;

	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word)
	    : "f"(PLANTED(pack_swapped) ? low : high), "f"(PLANTED(pack_swapped) ? high : low));
	return word;
}

/* Two e4m3 in the lower half, low first, to two f16: exact. */
DEV uint32_t e4m3_to_f16(uint32_t two)
{
	uint32_t word;

	asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(word) : "h"((uint16_t)two));
	return word;
}

/* Words of the host that processors look at meanwhile; a store comes behind all before it. */
DEV uint64_t load_for_system(const uint64_t *at)
{
	uint64_t value;

	asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value)
		     : "l"(__cvta_generic_to_global(at)) : "memory");
	return value;
}

/* Likewise, and before all that is loaded behind it. */
DEV uint64_t load_first_for_system(const uint64_t *at)
{
	uint64_t value;

	asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value)
		     : "l"(__cvta_generic_to_global(at)) : "memory");
	return value;
}

DEV void store_for_system(uint64_t *at, uint64_t value)
{
	asm volatile("st.release.sys.global.u64 [%0], %1;"
		     ::"l"(__cvta_generic_to_global(at)), "l"(value) : "memory");
}

DEV float f16_to_float(uint32_t half)
{
	float f;

	asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"((uint16_t)half));
	return f;
}
#endif

/* Loaded and stored as one. */
struct alignas(16) words4 { uint32_t x[4]; };
struct alignas(8) words2 { uint32_t x[2]; };

/* ---- from these ------------------------------------------------------------------------------ */

DEV float shuffle_xor_float(float value, uint32_t mask)
{
	return as_float(shuffle_xor(as_bits(value), mask));
}

/* Of four neighbouring lanes, which hold a row of an mma's result between them. */
DEV float quad_max(float x)
{
	x = fmaxf(x, shuffle_xor_float(x, 1));
	return fmaxf(x, shuffle_xor_float(x, 2));
}

DEV float quad_sum(float x)
{
	x += shuffle_xor_float(x, 1);
	return x + shuffle_xor_float(x, 2);
}
