/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How eagerly blocks are kept (retain.c): priority and TTL, and what the store's records say of
 * them (D12). Part of state.h, which includes it.
 */
#ifndef TIERD_CORE_RETAIN_H
#define TIERD_CORE_RETAIN_H

#include <stdint.h>

#include "libtier/abi/disk.h"

struct core;
struct context;
struct put;

struct retain {
	uint64_t ahead_ms; /* the store's clock is so much ahead of now_ns; it never falls back */
	uint64_t newest_ms; /* what the newest record says, during recovery */
	uint64_t *lapse_ms[ABI_CONTEXTS_MAX]; /* ... by slot, by the store's clock; NULL = no TTL */
};

/* The wall clock says so, by CORE_EV_CLOCK. */
void retain_clock(struct core *c, uint64_t wall_ms);
uint64_t retain_now_ms(const struct core *c);

/* A put of the block's tenant says so of it. 0 = no TTL. */
void retain_say(struct core *c, struct context *x, uint32_t slot, uint32_t priority,
		uint32_t ttl_ms);

/* disk_block.keep of a block, now. */
uint32_t retain_word(const struct core *c, const struct context *x, uint32_t slot);

/* A record says it of a block, which nothing is known of. Errors: -ENOMEM. */
int retain_recovered(struct core *c, struct context *x, uint32_t slot, uint32_t word,
		     uint64_t written_ms);
/* All records were seen: TTLs run from here on. Frees what the recovery took. */
void retain_recovery_end(struct core *c);
void retain_close(struct core *c);

#endif
