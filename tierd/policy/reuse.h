/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the two parts of the default policy share: reuse.c keeps blocks in order and says who
 * leaves (its head says how), reuse_learn.c counts uses by class and age and says what waiting is
 * worth.
 */
#ifndef TIERD_POLICY_REUSE_H
#define TIERD_POLICY_REUSE_H

#include <assert.h>
#include <stdbool.h>

#include "tierd/core/unit/policy_ops.h"
#include "tierd/policy/ghosts.h"

#define EPOCHS 128u /* ages from here on are one */
#define AGES 14u    /* ranges of ages: 0, 1, 2, 3, 4-5, 6-7, 8-11, ... 96 on */

/*
 * Classes: a block used once by how many blocks its prompt had brought so far (1, 2-3, 4-7 ... 32
 * on), whether the prompt went on behind a block that a few had used, and whether it was the last
 * of its put; then those used 2-4 times, and more often.
 */
#define RUNS 6u
#define CLASSES_NEW (RUNS * 4u)
#define CLASSES (CLASSES_NEW + 2u)
#define DEPTHS 4u

/* Uses seen at each age, block-epochs spent there (both fade), and what follows. */
struct reuse_learnt {
	double uses[AGES][CLASSES], time[AGES][CLASSES];
	double rate[AGES][CLASSES]; /* uses to come a time that is waited, at the best patience */
	double never[CLASSES];	    /* chance of no use at any age told apart */
	double beyond[CLASSES];	    /* uses an epoch at ages beyond these */
};

#define ROWS (CLASSES * DEPTHS)
#define GROUPS (ROWS * AGES)
#define RINGS (ROWS * (EPOCHS + 1) + 1)
/* In the place of a node: the head of a ring. The last ring has all that have children here. */
#define HEAD (1u << 31)
#define INNER (HEAD | (RINGS - 1))

struct link {
	uint32_t prev, next; /* nodes, or the head */
};

struct node {
	struct link link;
	uint32_t parent; /* node; 0 = none */
	uint32_t epoch;	 /* of the last use */
	uint32_t children : 15, row : 10, uses : 6, in : 1;
};

/* Where a walk may begin: goes on only, but for leaves that come; anew each epoch. */
struct front {
	uint32_t at;   /* a rank, or an age */
	uint32_t ring; /* there; 0 = to be found */
};

struct reuse {
	struct policy_size size;
	uint64_t resident, clock, epoch_end, learnt;
	uint32_t epoch, learnt_epoch;
	uint32_t nodes, free;  /* handed out ever; first of these that is free */
	uint32_t began;	       /* node that began the walk out of turn; 0 = none did */
	uint32_t full_epochs;  /* since something had to leave */
	uint32_t edge;	       /* LRU would have what is younger, */
	double share;	       /* and so much of this age */
	double gone, balance;  /* O and B */
	/* No leaf ranks before: of all, of what LRU would not have. None is older. */
	struct front least, beyond, oldest;
	uint32_t *map, *slot;  /* by slot its node, and back; NULL = slot + 1 */
	struct ghosts *ghosts;
	struct reuse_learnt l;
	uint32_t known[EPOCHS][CLASSES]; /* blocks and ghosts, by epoch of last use */
	uint32_t here[EPOCHS];		 /* of these, in the tier */
	uint32_t leaves[EPOCHS + 1];
	uint64_t leafy[ROWS][EPOCHS / 64]; /* epochs in which the row has leaves */
	uint64_t marked[GROUPS / 64 + 1];  /* ranks of all groups with a leaf, and of others */
	uint16_t order[GROUPS], rank[GROUPS];
	struct link head[RINGS];
	struct node node[]; /* from 1 on; then map, slot, ghosts */
};

extern const uint32_t reuse_first[AGES + 1]; /* the age at which each range begins */
extern const double reuse_depth_worth[DEPTHS]; /* of a use, beside one at the start */

static inline uint32_t reuse_range(uint32_t epochs)
{
	uint32_t log;

	if (epochs < 2)
		return epochs;
	log = 31 - (uint32_t)__builtin_clz(epochs);
	return epochs < EPOCHS ? 2 * log + (epochs >> (log - 1) & 1) : AGES - 1;
}

/* An epoch has passed for so many known blocks of each class, by epoch of last use. */
void reuse_waited(struct reuse_learnt *l, const uint32_t known[EPOCHS][CLASSES], uint32_t epoch);

/* rate, never and beyond from uses and time. */
void reuse_learn(struct reuse_learnt *l);

#endif
