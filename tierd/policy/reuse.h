/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the policy "reuse" share: its constants, the statistics and the state. All of
 * them were chosen on the made-up traces of bench/replay/synth.c and on the first half of the
 * conversation trace; docs/policies.md says how.
 */
#ifndef TIERD_POLICY_REUSE_H
#define TIERD_POLICY_REUSE_H

#include <stdbool.h>

#include "tierd/core/policy_ops.h"
#include "tierd/policy/ghosts.h"

/*
 * Time is counted in uses of blocks and cut into epochs of 1/16 of the blocks in the tier: an age
 * of 16 epochs is about what a block reaches under LRU. Ages from EPOCHS on are one.
 */
#define REUSE_EPOCHS_TIER 16u
#define REUSE_EPOCH_MIN 64u
#define REUSE_EPOCHS 128u
#define REUSE_AGES 14u /* ranges of ages, see reuse_age_first */

/*
 * Kinds of blocks. One that was used once is told by how many blocks its request brought (a turn
 * that adds little is mostly followed by another), whether the request went on where a few others
 * had been, and whether it was the prompt's last (which the next turn often replaces); one that was
 * used again by how often.
 */
#define REUSE_RUNS 6u /* 1, 2-3, 4-7, 8-15, 16-31, 32 ... blocks brought */
#define REUSE_KINDS_NEW (REUSE_RUNS * 4u)
#define REUSE_KINDS (REUSE_KINDS_NEW + 3u) /* then: used 2, 3-4, 5 ... times */
#define REUSE_FAMILIES 5u		   /* of kinds: new, 2, 3-4, 5 ..., last of a prompt */

/* Depths, for what a block costs to compute again. */
#define REUSE_DEPTHS 4u
#define REUSE_ROWS (REUSE_KINDS * REUSE_DEPTHS)
#define REUSE_GROUPS (REUSE_ROWS * REUSE_AGES)

/* Doubly linked, newest first; node numbers, 0 = none. */
struct reuse_list {
	uint32_t head, tail;
};

/* Blocks of one row and epoch: those that are the end of their path here, and the others. */
struct reuse_cell {
	struct reuse_list leaf, inner;
};

/* What was seen of a kind, decayed: uses again at an age, and block-epochs spent there. */
struct reuse_seen {
	double uses[REUSE_AGES];
	double time[REUSE_AGES];
};

struct reuse_node {
	uint32_t prev, next;
	uint32_t parent;      /* node; 0 = none */
	uint32_t parent_life; /* that it had then: nodes are used again */
	uint32_t life;	      /* counts the blocks that this node stood for */
	uint32_t children;    /* in the tier */
	uint32_t epoch;	   /* of its last use */
	uint32_t batch;	   /* that inserted it; low bits */
	uint32_t tag;	   /* of its key */
	uint8_t kind, depth, uses, flags;
};

struct reuse {
	uint64_t blocks_max, resident;
	uint64_t clock, epoch_end;
	uint32_t epoch;
	uint32_t lowest; /* no leaf stands in a group ranked below */
	struct reuse_seen seen[REUSE_KINDS];
	uint32_t known[REUSE_KINDS][REUSE_EPOCHS]; /* blocks and ghosts by epoch of last use */
	double rate[REUSE_KINDS][REUSE_AGES];	   /* uses again to come, an epoch of waiting */
	uint16_t order[REUSE_GROUPS];		   /* groups, least worth first */
	uint16_t rank[REUSE_GROUPS];
	struct reuse_cell cell[REUSE_ROWS][REUSE_EPOCHS + 1]; /* the last: older than that */
	uint64_t leaves[REUSE_ROWS][REUSE_EPOCHS / 64];	      /* cells with a leaf */
	struct ghosts *ghosts;				      /* behind the nodes */
	struct reuse_node node[];			      /* slot + 1 */
};

extern const uint32_t reuse_age_first[REUSE_AGES + 1];
uint32_t reuse_age(uint32_t epochs);

/* The statistics: rate from seen. */
void reuse_learn(struct reuse *r);

#endif
