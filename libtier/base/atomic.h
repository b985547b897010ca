/*
 * Every atomic operation and fence of the project, spelled with its ordering, so that a search for
 * one word finds all places that depend on it. They work on plain uint32_t and uint64_t: the shared
 * structures of libtier/abi have fixed layouts, and _Atomic does not promise one across compilers.
 * Both sides include this file; nobody else names a compiler builtin.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_BASE_ATOMIC_H
#define TIER_BASE_ATOMIC_H

#include <stdbool.h>
#include <stdint.h>

#if defined(__SANITIZE_THREAD__)
#define ATOMIC_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define ATOMIC_TSAN 1
#endif
#endif
#ifndef ATOMIC_TSAN
#define ATOMIC_TSAN 0
#endif

/*
 * For type T with suffix S:
 *   atomic_load_relaxed_S(p)           a single load, no order
 *   atomic_load_acquire_S(p)           what follows sees what the release store had before it
 *   atomic_store_relaxed_S(p, v)       a single store, no order
 *   atomic_store_release_S(p, v)       what precedes is visible to whoever acquires v
 *   atomic_exchange_S(p, v)            full order (seq_cst); returns the old value
 *   atomic_add_relaxed_S(p, v)         counters; returns the old value
 *   atomic_add_S, atomic_sub_S         acquire and release; return the old value
 *   atomic_or_S, atomic_and_S          acquire and release; return the old value
 *   atomic_cas_S(p, &expected, v)      acquire and release on success, acquire on failure, where
 *                                      the value found is stored in expected; strong
 */
#define ATOMIC_DEFINE(T, S)                                                                        \
	static inline T atomic_load_relaxed_##S(const T *p)                                        \
	{                                                                                          \
		return __atomic_load_n(p, __ATOMIC_RELAXED);                                       \
	}                                                                                          \
	static inline T atomic_load_acquire_##S(const T *p)                                        \
	{                                                                                          \
		return __atomic_load_n(p, __ATOMIC_ACQUIRE);                                       \
	}                                                                                          \
	static inline void atomic_store_relaxed_##S(T *p, T v)                                     \
	{                                                                                          \
		__atomic_store_n(p, v, __ATOMIC_RELAXED);                                          \
	}                                                                                          \
	static inline void atomic_store_release_##S(T *p, T v)                                     \
	{                                                                                          \
		__atomic_store_n(p, v, __ATOMIC_RELEASE);                                          \
	}                                                                                          \
	static inline T atomic_exchange_##S(T *p, T v)                                             \
	{                                                                                          \
		return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);                                \
	}                                                                                          \
	static inline T atomic_add_relaxed_##S(T *p, T v)                                          \
	{                                                                                          \
		return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);                                 \
	}                                                                                          \
	static inline T atomic_add_##S(T *p, T v)                                                  \
	{                                                                                          \
		return __atomic_fetch_add(p, v, __ATOMIC_ACQ_REL);                                 \
	}                                                                                          \
	static inline T atomic_sub_##S(T *p, T v)                                                  \
	{                                                                                          \
		return __atomic_fetch_sub(p, v, __ATOMIC_ACQ_REL);                                 \
	}                                                                                          \
	static inline T atomic_or_##S(T *p, T v)                                                   \
	{                                                                                          \
		return __atomic_fetch_or(p, v, __ATOMIC_ACQ_REL);                                  \
	}                                                                                          \
	static inline T atomic_and_##S(T *p, T v)                                                  \
	{                                                                                          \
		return __atomic_fetch_and(p, v, __ATOMIC_ACQ_REL);                                 \
	}                                                                                          \
	static inline bool atomic_cas_##S(T *p, T *expected, T v)                                  \
	{                                                                                          \
		return __atomic_compare_exchange_n(p, expected, v, false, __ATOMIC_ACQ_REL,        \
						   __ATOMIC_ACQUIRE);                              \
	}

ATOMIC_DEFINE(uint32_t, u32)
ATOMIC_DEFINE(uint64_t, u64)

/* The compiler moves no load or store across; the processor may. */
static inline void compiler_fence(void)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/*
 * ThreadSanitizer does not model fences (gcc refuses them), so there each fence is an exchange on a
 * local: the same order in the machine, and no happens-before edge that would hide a race.
 */
static inline void atomic_fence_for_tsan(void)
{
	uint32_t dummy = 0;

	atomic_exchange_u32(&dummy, 1);
}

/* All loads and stores before it are visible before any after it: the only fence that orders an
 * earlier store with a later load. */
static inline void full_fence(void)
{
#if ATOMIC_TSAN
	atomic_fence_for_tsan();
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/* Loads before it happen before loads and stores after it: the second look of a sequence-word
 * reader, which must come after the reads that it judges. */
static inline void acquire_fence(void)
{
#if ATOMIC_TSAN
	atomic_fence_for_tsan();
#else
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
#endif
}

/* Loads and stores before it happen before stores after it: a sequence-word writer's begin. */
static inline void release_fence(void)
{
#if ATOMIC_TSAN
	atomic_fence_for_tsan();
#else
	__atomic_thread_fence(__ATOMIC_RELEASE);
#endif
}

/*
 * The reader's half of an asymmetric fence: it orders the reader's store (a hazard slot) before its
 * next load (the descriptor word). It costs nothing because the writer pays for both: its
 * membarrier() runs a full fence on every registered thread, so the processor's store buffer is
 * dealt with there, and here only the compiler must be kept from reordering. The writer's half is
 * the membarrier(2) call itself. Under TSan a real exchange stands in.
 */
static inline void asymmetric_light_fence(void)
{
#if ATOMIC_TSAN
	atomic_fence_for_tsan();
#else
	compiler_fence();
#endif
}

/* In a spin loop: tells the processor to leave its execution units to the other hyper-thread. */
static inline void cpu_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#else
	compiler_fence();
#endif
}

/* Starts fetching the line at p for reading, into all cache levels; p need not be mapped. */
static inline void prefetch_read(const void *p)
{
	__builtin_prefetch(p, 0, 3);
}

#endif
