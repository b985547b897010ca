/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What translated PTX uses beside emu.cuh. Registers are bits without a type. Each access of memory
 * goes through global_at or shared_at (launch.h), which know what may be touched, and by whom.
 */
#pragma once
#include "cuda/emu/emu.cuh"

template <class T> DEV T ptx_load(const unsigned char *at)
{
	T value;

	memcpy(&value, at, sizeof(value));
	return value;
}

template <class T> DEV void ptx_store(unsigned char *at, T value)
{
	memcpy(at, &value, sizeof(value));
}

DEV const unsigned char *ptx_param(const unsigned char *param, uint32_t all, uint64_t at,
				   uint32_t bytes)
{
	if (at + bytes > all)
		emu::die("ld.param: %u bytes at %llu of %u", bytes, (unsigned long long)at, all);
	return param + at;
}

/* Shifted out is shifted out: no shift is undefined. */
template <class T> DEV T ptx_shl(T x, uint32_t by)
{
	return by >= sizeof(T) * 8 ? (T)0 : (T)(x << by);
}

template <class T> DEV T ptx_shr(T x, uint32_t by)
{
	return by >= sizeof(T) * 8 ? (T)(x < 0 ? -1 : 0) : (T)(x >> by);
}

/* Into b the low bits of a, from bit `at` on. */
template <class T> DEV T ptx_bfi(T a, T b, uint32_t at, uint32_t bits)
{
	const uint32_t width = sizeof(T) * 8;
	const T mask = bits >= width ? ~(T)0 : ptx_shl<T>(1, bits) - 1;

	return (T)((b & ~ptx_shl<T>(mask, at)) | ptx_shl<T>(a & mask, at));
}

DEV uint32_t ptx_bfly(uint32_t value, uint32_t lanes, int64_t clamp, int64_t mask,
		      int line = __builtin_LINE())
{
	if ((uint32_t)clamp != 31 || (uint32_t)mask != 0xffffffffu)
		emu::die("shfl.sync.bfly at line %d: not of all lanes", line);
	return shuffle_xor(value, lanes, line);
}
