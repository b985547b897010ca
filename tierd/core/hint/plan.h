/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans (design, section 6 a): a client says which blocks it will read, in which order. belady.c
 * decides what is loaded and what leaves for it; plan.c does it in time. Memory is taken at start.
 */
#ifndef TIERD_CORE_PLAN_H
#define TIERD_CORE_PLAN_H

#include "tierd/core/unit/belady.h"

struct core;
struct context;
struct request;

#define PLANS_MAX 8u
#define PLANS_CLIENT_MAX 2u
#define PLAN_ACCESSES_MAX 131072u
#define PLAN_OPS 512u      /* decided and not yet done */
#define PLAN_FLYING_MAX 8u /* loads under way, each of up to PLAN_BATCH blocks */
#define PLAN_BATCH 32u

struct plan {
	uint32_t client, client_connection;
	struct context *ctx; /* NULL = free */
	uint64_t id;
	const uint8_t *position_word; /* in the client's staging: never trusted */
	uint32_t position;   /* accesses before it are over; never goes back */
	uint32_t judged;     /* ... have been looked at, whether the plan was right */
	uint32_t trust;      /* share of loaded blocks that were read, of 65536 */
	bool ended;          /* its client's no more; it lets go of its marks */
	bool wrong;          /* it was not right: nothing is loaded or kept for it any more */
	uint64_t start_ns;   /* of the times; 0 = they were not given */
	uint64_t access_ns;  /* pace: measured, at first what the client says */
	uint64_t moved_ns;   /* when the position was seen to change */
	uint64_t due_ns;     /* when the first load that is not due yet will be */
	uint64_t block_bytes; /* of the range */
	uint16_t part_first, part_count, layer_first, layer_count;
	uint8_t tier;
	uint32_t slack;      /* blocks that may be loaded before their victims have left */
	uint32_t op_head, op_load, op_tail; /* evicted up to head, loaded up to load */
	struct belady_op op[PLAN_OPS]; /* ring */
	uint32_t flying;     /* loads under way */
	struct belady belady;
	uint32_t *time_us;   /* by access */
	uint8_t *loaded;     /* by access, a bit: it was brought by us */
	void *memory;
};

struct plans {
	struct plan *table; /* PLANS_MAX */
	uint32_t count;
	uint64_t next_ns;
	uint64_t seq;
};

/* Also by connections whose users are back. The block of the reference may have gone. */
void plan_mark(struct context *x, struct abi_block_ref ref, uint32_t tier, bool in);
int plans_open(struct core *c);
void plans_close(struct core *c);
void plan_tick(struct core *c);
uint64_t plan_next(const struct core *c);

#endif
