/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device as kernels see it, on a processor: a block's threads are fibers, one block runs at a
 * time, and the schedule comes from a seed. The model is adversarial where the device may be: bulk
 * copies land late and out of order and read their source only then, memory that they are about to
 * write is NaN meanwhile, shared memory begins as NaN. What the device leaves undefined ends the
 * launch with a sentence that says who did what on which line; so does a hang. Used by
 * kernels/gpu.cuh in place of PTX; tests call emu::launch. One processor thread at a time.
 */
#pragma once
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "cuda/emu/launch.h"

#define DEV static inline
#define KERNEL extern "C"
#define GRID_CONSTANT
#define __launch_bounds__(...)
#define UNROLL
/* Gathered by the linker, so that each block finds NaN in it and not what the last one left. */
#define __shared__ static __attribute__((section("emu_shared")))
#define DYN_SHARED(name) unsigned char *const name = emu::shared()

struct emu_dim { uint32_t x; };

namespace emu {

/* ---- for the instructions below -------------------------------------------------------------- */

extern emu_dim thread_, block_, threads_, blocks_;

unsigned char *shared();
uint32_t shared_bytes();
/* Of memory that has grown old; relaxed: a load that the next one may overtake. */
const void *now_at(const void *at, bool relaxed);
[[noreturn]] void die(const char *format, ...) __attribute__((format(printf, 1, 2)));
uint32_t random();

/* All lanes of mask come to the same line; the last one does the work for all, then all go on. */
void meet(uint32_t mask, int line, const char *what, void *mine, void (*work)(void *lane[32]));
void barrier(int line);
void warp_barrier(int line);

void mbar_init(uint64_t *bar, uint32_t count, int line);
void mbar_fence();
void mbar_arrive(uint64_t *bar, uint32_t bytes_expected, int line);
void mbar_wait(uint64_t *bar, uint32_t parity, int line);
void bulk_load(void *dst, const void *src, uint32_t bytes, uint64_t *bar, int line);

} // namespace emu

#define threadIdx emu::thread_
#define blockIdx emu::block_
#define blockDim emu::threads_
#define gridDim emu::blocks_
#define PLANTED(name) (emu::planted == emu::PLANT_##name)

/* ---- instructions: each is one of PTX on the device (gpu.cuh) -------------------------------- */

#define LINE int line = __builtin_LINE()

DEV void block_sync(LINE) { emu::barrier(line); }

DEV void warp_sync(LINE) { emu::warp_barrier(line); }

DEV uint32_t shuffle_xor(uint32_t value, uint32_t mask, LINE)
{
	struct exchange { uint32_t value, mask, result; } mine = { value, mask, 0 };

	emu::meet(0xffffffffu, line, "shfl.sync", &mine, [](void **lane) {
		for (uint32_t l = 0; l < 32; l++) {
			auto *e = (exchange *)lane[l];

			if (e->mask > 31)
				emu::die("shfl.sync: lane mask %u", e->mask);
			e->result = ((exchange *)lane[l ^ e->mask])->value;
		}
	});
	return mine.result;
}

DEV float as_float(uint32_t bits) { float f; memcpy(&f, &bits, 4); return f; }
DEV uint32_t as_bits(float f) { uint32_t bits; memcpy(&bits, &f, 4); return bits; }

/* To bf16, nearest even; NaN stays a NaN. */
DEV uint32_t emu_bf16(float f)
{
	uint32_t u = as_bits(f);

	return f != f ? 0x7fffu : (u + 0x7fffu + (u >> 16 & 1)) >> 16;
}

DEV uint32_t pack_bf16(float low, float high) { return emu_bf16(low) | emu_bf16(high) << 16; }
DEV float exp2_approx(float x) { return exp2f(x); }

DEV uint64_t load_for_system(const uint64_t *at)
{
	return __atomic_load_n((const uint64_t *)emu::now_at(at, true), __ATOMIC_RELAXED);
}

DEV uint64_t load_first_for_system(const uint64_t *at)
{
	return __atomic_load_n((const uint64_t *)emu::now_at(at, false), __ATOMIC_ACQUIRE);
}

DEV void store_for_system(uint64_t *at, uint64_t value)
{
	__atomic_store_n(at, value, __ATOMIC_RELEASE);
}

DEV float f16_to_float(uint32_t half)
{
	const uint32_t exponent = half >> 10 & 31, rest = half & 1023;
	const float most = exponent == 31 ? rest ? NAN : INFINITY
				      : ldexpf((float)(exponent ? 1024 + rest : rest),
					       (int)(exponent ? exponent : 1) - 25);

	return half >> 15 & 1 ? -most : most;
}

/* One sign, four of exponent (bias 7), three more; no infinities. Subnormals get an exponent. */
DEV uint32_t emu_e4m3(uint32_t code)
{
	const uint32_t sign = code >> 7 & 1, rest = code & 127;
	uint32_t fraction = rest & 7, exponent = rest >> 3;

	if (rest == 127)
		return 0x7fff;
	if (rest < 8) {
		for (exponent = 1; fraction && !(fraction & 8); exponent--)
			fraction <<= 1;
		if (!fraction)
			return sign << 15;
	}
	return sign << 15 | (exponent + 8) << 10 | (fraction & 7) << 7;
}

DEV uint32_t e4m3_to_f16(uint32_t two) { return emu_e4m3(two) | emu_e4m3(two >> 8) << 16; }

DEV void mbar_init(uint64_t *b, uint32_t n, LINE) { emu::mbar_init(b, n, line); }
DEV void mbar_fence_init() { emu::mbar_fence(); }
DEV void mbar_expect(uint64_t *b, uint32_t n, LINE) { emu::mbar_arrive(b, n, line); }
DEV void mbar_arrive(uint64_t *b, LINE) { emu::mbar_arrive(b, 0, line); }
DEV void mbar_wait(uint64_t *b, uint32_t parity, LINE) { emu::mbar_wait(b, parity, line); }

DEV void bulk_load(void *dst, const void *src, uint32_t bytes, uint64_t *b, LINE)
{
	emu::bulk_load(dst, src, bytes, b, line);
}

/* The fragments of m16n8k16, as the PTX manual's figures have them. */
struct emu_mma {
	const uint32_t *a, *b;
	float *d;
};

DEV void emu_mma_warp(void **lane)
{
	float a[16][16], b[16][8];

	for (uint32_t l = 0; l < 32; l++) {
		auto *m = (const emu_mma *)lane[l];
		const uint32_t row = l / 4, column = l % 4 * 2;

		for (uint32_t i = 0; i < 8; i++)
			a[row + (i / 2 & 1) * 8][column + (i & 1) + (i / 4) * 8] =
				as_float(m->a[i / 2] >> (i & 1) * 16 << 16);
		for (uint32_t i = 0; i < 4; i++)
			b[column + (i & 1) + (i / 2) * 8][row] =
				as_float(m->b[i / 2] >> (i & 1) * 16 << 16);
	}
	for (uint32_t l = 0; l < 32; l++) {
		for (uint32_t i = 0; i < 4; i++) {
			const uint32_t row = l / 4 + i / 2 * 8, column = l % 4 * 2 + (i & 1);
			float sum = ((const emu_mma *)lane[l])->d[i];

			for (uint32_t k = 0; k < 16; k++)
				sum += a[row][k] * b[k][column];
			((const emu_mma *)lane[l])->d[i] = sum;
		}
	}
}

/* d += a * b for a warp's tile of 16 by 8, over 16. */
DEV void mma_16816(float d[4], const uint32_t a[4], const uint32_t b[2], LINE)
{
	emu_mma mine = { a, b, d };

	emu::meet(0xffffffffu, line, "mma.sync", &mine, emu_mma_warp);
}

#undef LINE
