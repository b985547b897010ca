/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Foresight (design P2, P7, P8): what is known of the future before it costs bytes. A prefetch
 * with a deadline is parked: it holds no bytes. park.c decides when it must begin to be in
 * time; stage.c keeps the accounts of bytes that were brought and not yet read.
 *
 *   PREFETCH -> parked (no hold, no place) --due--> a fetch of its class --> ready --> protected
 *                                                                  (a pin, within the budget)
 */
#ifndef TIERD_CORE_PARK_H
#define TIERD_CORE_PARK_H

#include <stdbool.h>
#include <stdint.h>

#include "libtier/abi/common.h"

struct core;
struct core_request_view;
struct context;
struct request;

#define PARKED_MAX 512u       /* parked on the host: half of all requests */
#define PARKED_CLIENT_MAX 64u /* parked of one client */
#define PARK_HORIZON_NS (600ull * 1000000000ull) /* no deadline is further away */

/* A parked prefetch: no bytes, a deadline, and when it must begin by the last look. */
struct park {
	struct request *r;
	uint64_t deadline_ns;
	uint64_t start_ns;
};

struct parked {
	struct park by_deadline[PARKED_MAX]; /* sorted, [count] */
	uint32_t count;
	uint32_t fresh;   /* whose residency is counted next */
	uint64_t next_ns; /* look again then; UINT64_MAX = nothing is parked */
	uint64_t slip_ns; /* how much later than foreseen transfers were, smoothed */
};

/* Bytes in memory tiers that were brought ahead of time and that nobody has read so far. */
struct staged {
	uint64_t bytes;
	uint64_t since_ns;   /* the integral is up to here */
	uint64_t changed_ns;
	double byte_seconds; /* the integral of bytes over time */
};

/*
 * The latest start of a transfer that is to be over by `end_ns` and before the next one on the same
 * channel must begin.
 */
static inline uint64_t park_latest(uint64_t end_ns, uint64_t next_ns, uint64_t transfer_ns)
{
	uint64_t end = end_ns < next_ns ? end_ns : next_ns;

	return end > transfer_ns ? end - transfer_ns : 0;
}

/* park.c */
bool park_may(const struct core *c, uint32_t account);
void park_take(struct core *c, struct request *r);
void park_tick(struct core *c);
uint64_t park_next(const struct core *c);

/* stage.c: a place was taken; nothing came; a reader came; a page left before one did */
void stage_commit(struct core *c, struct context *x, uint32_t slot, uint32_t tier, uint64_t bytes);
void stage_fail(struct core *c, struct context *x, uint32_t slot, uint32_t tier, uint64_t bytes);
void stage_use(struct core *c, struct context *x, uint32_t slot);
void stage_leave(struct core *c, struct context *x, uint32_t slot, uint32_t tier, uint64_t bytes);
void stage_tick(struct core *c);
uint64_t stage_next(const struct core *c);

#endif
