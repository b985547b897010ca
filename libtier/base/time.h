/*
 * The clock of both sides: monotonic nanoseconds, comparable between processes of one boot.
 * The daemon's core never calls it: there, time arrives in events.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_BASE_TIME_H
#define TIER_BASE_TIME_H

#include <stdint.h>
#include <time.h>

#define NS_PER_US UINT64_C(1000)
#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S UINT64_C(1000000000)

/* CLOCK_MONOTONIC; about 20 ns, no system call. */
static inline uint64_t time_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/* CLOCK_REALTIME, in milliseconds since 1970: whoever may set it may also set it back. */
static inline uint64_t time_wall_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return t.tv_sec < 0 ? 0 : (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / NS_PER_MS;
}

static inline struct timespec time_to_timespec(uint64_t ns)
{
	return (struct timespec){
		.tv_sec = (time_t)(ns / NS_PER_S),
		.tv_nsec = (long)(ns % NS_PER_S),
	};
}

#endif
