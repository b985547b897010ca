/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lanes: an order of leaving for the blocks of some tenants, each with an instance of the context's
 * policy. What a policy learns and how it weighs ages is of its own lane's blocks alone, so that
 * one tenant's scan teaches it nothing about another's prompts. A salt's blocks are all in one lane
 * (prefixes do not cross salts), as is what a client with a share of its own puts unsalted; the
 * rest is in the first.
 */
#ifndef TIERD_CORE_LANE_H
#define TIERD_CORE_LANE_H

#include "tierd/core/unit/policy_ops.h"

#define LANES 8u

/* Who leaves first: over = charged to an account that is over its soft share. */
#define RANK_LAPSED 0u /* past its TTL; over and of low priority */
#define RANK_OVER 1u   /* over */
#define RANK_LOW 2u    /* over and of high priority; of low priority */
#define RANK_NORMAL 3u
#define RANK_KEEP 4u   /* of high priority */
#define RANKS 5u
#define RANKS_SOUGHT 3u /* these may stand anywhere in a policy's order */

struct lanes {
	const struct policy_ops *policy;
	struct policy_size size[ABI_MEM_TIERS];
	/* Of an instance: all zero until the lane's first block comes. NULL = tier not used. */
	void *memory[ABI_MEM_TIERS][LANES];
	void *state[ABI_MEM_TIERS][LANES]; /* the same from then on; NULL before */
	uint32_t begun[ABI_MEM_TIERS];     /* that are not NULL */
	uint8_t named; /* a bit a lane: some block was ever in it, so it is charged in all tiers */
	/* evict.c: where walks for a rank go on, 1 + slot, and since when. */
	uint32_t cursor[ABI_MEM_TIERS][RANKS_SOUGHT][LANES];
	uint64_t since_ns[ABI_MEM_TIERS][RANKS_SOUGHT];
};

/* size: of each tier; blocks_max 0 = it is not used. Errors: -ENOMEM. Close it in any case. */
int lanes_open(struct lanes *l, const struct policy_ops *policy,
	       const struct policy_size size[ABI_MEM_TIERS]);
void lanes_close(struct lanes *l);

/* Bytes that were touched so far, at most, when the context has used so many slots. */
uint64_t lanes_bytes(const struct lanes *l, uint64_t slots);

/*
 * What those that are named may come to with so many slots, in all tiers: what the policy says of
 * that many sparse ones is no less than what it touches.
 */
uint64_t lanes_most(const struct lanes *l, uint64_t slots);

struct core;
struct context;

/* A lane's first block is about to be inserted: the instance's state. The lane is named. */
void *lane_begin(struct lanes *l, uint32_t tier, uint32_t lane);

/* The lanes that ever had a block in a tier, and by how much their tenants are over. */
struct lane_order {
	uint32_t count;
	uint32_t lane[LANES];
	int64_t over[LANES]; /* bytes that who is most over his share is by; descending */
};
void lanes_by_need(struct lane_order *out, const struct core *c, const struct context *x,
		   const struct lanes *lanes, uint32_t tier);

#endif
