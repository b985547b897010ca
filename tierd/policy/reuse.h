/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the policy "reuse" share: its constants, the statistics and the state. All of
 * them were chosen on the made-up traces of bench/replay/synth.c and on the first half of the
 * conversation trace; docs/policies.md says how.
 */
#ifndef TIERD_POLICY_REUSE_H
#define TIERD_POLICY_REUSE_H

#include <assert.h>
#include <stdbool.h>

#include "tierd/core/unit/policy_ops.h"
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
 * used again by how often, and by the last two of what it was told by when it was new.
 */
#define REUSE_RUNS 6u /* 1, 2-3, 4-7, 8-15, 16-31, 32 ... blocks brought */
#define REUSE_KINDS_NEW (REUSE_RUNS * 4u)
#define REUSE_ORIGINS 4u /* last or not, where a few others had been or not */
#define REUSE_KINDS (REUSE_KINDS_NEW + 2 * REUSE_ORIGINS) /* then: used 2-4, 5 ... times */
#define REUSE_FAMILIES 4u /* of kinds: new, used 2-4, 5 ... times, last of a prompt */

/* Depths, for what a block costs to compute again. */
#define REUSE_DEPTHS 4u
#define REUSE_ROWS (REUSE_KINDS * REUSE_DEPTHS)
#define REUSE_GROUPS (REUSE_ROWS * REUSE_AGES)
#define REUSE_RANK_WORDS ((REUSE_GROUPS + 63) / 64)
#define REUSE_ROW_WORDS ((REUSE_ROWS + 63) / 64)

/*
 * Blocks of one row and epoch: those that are the end of their path here, and the others. Heads of
 * lists, newest first; node numbers, 0 = none. `next` of the last is 0, `prev` of the first the
 * last.
 */
struct reuse_cell {
	uint32_t leaf, inner;
};

/* What was seen at an age, decayed: uses again of a kind, and block-epochs that it spent there. */
struct reuse_seen {
	double uses[REUSE_KINDS];
	double time[REUSE_KINDS];
};

/* Ages beyond all are told apart from young ones by being set back in time (reuse.c: epochs). */
#define REUSE_EPOCH_SPAN 512u
#define REUSE_USES_MAX 63u
#define REUSE_CHILDREN_MAX 0xfffffu /* one that ever had so many is never a leaf again */

/* 20 bytes a block in the tier, all of them named: what is written whole needs no load before. */
struct reuse_node {
	uint32_t prev : 30, depth : 2;
	uint32_t next : 31, in : 1; /* inserted; else next of the free nodes */
	uint32_t parent;            /* node; 0 = none */
	uint32_t life : 12;         /* counts the blocks that this node stood for */
	uint32_t children : 20;     /* in the tier */
	uint32_t parent_life : 12;  /* that it had then: nodes are used again */
	uint32_t epoch : 9;         /* of its last use; low bits */
	uint32_t kind : 5, uses : 6;
};
_Static_assert(sizeof(struct reuse_node) == 20, "packed");

/* What a ghost's note holds. */
#define REUSE_NOTE_SPAN 65536u
struct reuse_note {
	uint16_t epoch; /* of its last use; low bits */
	uint8_t kind, uses;
};

/*
 * What LRU would have hit, and who is ahead. All ages below `edge` would be in an LRU of as many
 * blocks, and so much of `edge` itself as is left (reuse_regret.c).
 */
struct reuse_regret {
	uint32_t known[REUSE_EPOCHS]; /* of all kinds, by epoch of last use, */
	uint32_t here[REUSE_EPOCHS];  /* and of these, in the tier */
	uint64_t newer, newer_here;   /* of these, at ages below edge */
	uint64_t full;		      /* the most blocks in the tier, since the last epoch's end */
	uint32_t edge;		      /* an age */
	uint32_t first;		      /* epochs to go before caution follows the account */
	double account;		      /* hits that LRU had not had, less those of LRU alone */
	double balance;		      /* the same, and nothing is forgotten */
	double credit;		      /* of the tier's blocks that may be at stake */
	double caution;		      /* so many times the least the oldest must be worth to stay */
};

/*
 * Where a walk begins: with the first leaf of a cell. Which cell that is changes when any gets its
 * first leaf or loses its last, and with the epoch; who leaves in between is found at once.
 */
struct reuse_front {
	bool known;
	bool dear; /* the oldest is worth clearly more than what is worth least */
	uint32_t age; /* of what is worth least */
	const struct reuse_cell *least, *oldest; /* NULL = there is no leaf */
};

/*
 * Where few of a context's blocks are in the tier at a time, nodes are handed out as blocks come
 * (map, slot); else node = slot + 1.
 */
struct reuse {
	struct policy_size size;
	uint64_t resident;
	uint64_t clock, epoch_end, learnt; /* learnt: then rates were learnt, in learnt_epoch */
	uint32_t epoch, learnt_epoch;
	bool flat;	 /* a use at any depth is worth the same */
	uint32_t nodes;  /* handed out ever, from 1 on */
	uint32_t free;   /* of these: first that is free; 0 = none */
	uint32_t oldest; /* node that began the present walk out of turn; 0 = none did */
	uint32_t swept;  /* the last node whose epoch was looked at, */
	uint32_t sweep_end; /* and of this round */
	uint32_t ghosts_swept; /* the line of ghosts to be looked at next */
	uint32_t *map;   /* by slot: its node, 0 = none; NULL = node is slot + 1 */
	uint32_t *slot;  /* by node; with map */
	struct ghosts *ghosts;
	/* The end of an epoch goes over all kinds of each age: those stand side by side. */
	struct reuse_seen seen[REUSE_AGES];
	uint32_t known[REUSE_EPOCHS][REUSE_KINDS]; /* blocks and ghosts by epoch of last use */
	double rate[REUSE_KINDS][REUSE_AGES];	   /* uses again to come, an epoch of waiting */
	double never[REUSE_KINDS];		   /* chance of no use at any age told apart */
	double beyond[REUSE_KINDS];		   /* uses an epoch at ages beyond these */
	struct reuse_regret regret;
	struct reuse_front front;
	uint16_t order[REUSE_GROUPS];		   /* groups, least worth first (reuse_worth) */
	uint16_t rank[REUSE_GROUPS];
	uint64_t leafy[REUSE_RANK_WORDS];	   /* by rank: all groups with a leaf, and others */
	uint64_t leafy_words;			   /* words of it that are not nought, and others */
	struct reuse_cell cell[REUSE_EPOCHS + 1][REUSE_ROWS]; /* the last: older than that */
	uint64_t leaves[REUSE_ROWS][REUSE_EPOCHS / 64];	      /* cells with a leaf, by row */
	uint64_t rows[REUSE_EPOCHS + 1][REUSE_ROW_WORDS];     /* the same by epoch */
	uint64_t columns[REUSE_EPOCHS / 64];		      /* epochs with a leaf in any row */
	struct reuse_node node[]; /* then map and slot, then the ghosts */
};

/* The node of a slot, 0 = none; and back. */
static inline uint32_t reuse_node_of(const struct reuse *r, uint32_t slot)
{
	return r->map ? r->map[slot] : slot + 1;
}

static inline uint32_t reuse_slot_of(const struct reuse *r, uint32_t node)
{
	return r->map ? r->slot[node] : node - 1;
}

/* Epochs since the node's last use; REUSE_EPOCHS or more: that many at least. */
static inline uint32_t reuse_age_of(const struct reuse *r, const struct reuse_node *n)
{
	return (r->epoch - n->epoch) % REUSE_EPOCH_SPAN;
}

/* Ages: 0, 1, 2, 3, 4-5, 6-7, 8-11, 12-15 ... 96 on: two for each power of two. */
extern const uint32_t reuse_age_first[REUSE_AGES + 1];

static inline uint32_t reuse_age(uint32_t epochs)
{
	uint32_t log;

	if (epochs < 2)
		return epochs;
	log = 31 - (uint32_t)__builtin_clz(epochs);
	return epochs < REUSE_EPOCHS ? 2 * log + (epochs >> (log - 1) & 1) : REUSE_AGES - 1;
}

/*
 * The order: into its cell and out of it, before what names the cell changes; within it, when the
 * node has become a leaf or is one no more; a walk's first node and the one after another, 0 =
 * none; what moves with the epoch, before and after it counts.
 */
void reuse_cell_push(struct reuse *r, uint32_t node);
void reuse_cell_pull(struct reuse *r, uint32_t node);
void reuse_cell_swap(struct reuse *r, uint32_t node, bool leaf);
uint32_t reuse_walk_begin(struct reuse *r);
uint32_t reuse_walk_on(struct reuse *r, uint32_t after);
void reuse_cells_turn(struct reuse *r);
void reuse_groups_mark(struct reuse *r);

/* What a use at a depth is worth. */
extern const double reuse_depth_worth[REUSE_DEPTHS];

/* The statistics: rate from seen; then order and rank from rate, by what groups are worth. */
void reuse_learn(struct reuse *r);
void reuse_rank(struct reuse *r);
double reuse_worth(const struct reuse *r, uint32_t group);

/*
 * Beside LRU: a block became known with this epoch, or is known no more at an age; a use of a known
 * block, which was in the tier or not, before it is dropped; the end of an epoch, before it counts,
 * and whether any block had to leave so far.
 */
void reuse_regret_init(struct reuse *r);
void reuse_regret_add(struct reuse *r);
void reuse_regret_drop(struct reuse *r, uint32_t age);
void reuse_regret_use(struct reuse *r, uint32_t age, bool here);
/* May one of this age leave, if LRU would keep it? */
bool reuse_regret_allows(struct reuse *r, uint32_t age);
void reuse_regret_turn(struct reuse *r, bool full);

/* Known blocks of this age that are in the tier. */
static inline uint32_t *reuse_regret_here(struct reuse *r, uint32_t age)
{
	return &r->regret.here[(r->epoch - age) % REUSE_EPOCHS];
}

/* A known block came into the tier at age 0, or is not in it any more at an age. */
static inline void reuse_regret_come(struct reuse *r)
{
	(*reuse_regret_here(r, 0))++;
	r->regret.newer_here += r->regret.edge > 0;
}

static inline void reuse_regret_leave(struct reuse *r, uint32_t age)
{
	uint32_t *here = reuse_regret_here(r, age);

	assert(age < REUSE_EPOCHS && *here > 0);
	(*here)--;
	r->regret.newer_here -= age < r->regret.edge;
}

#endif
