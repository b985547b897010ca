/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How soon are blocks of a kind used again? A hazard for each kind and age, from counts of blocks
 * both in the tier and lately evicted, so that what was evicted early is not taken for useless.
 * Counts are few and come in bunches (all blocks of a prompt at once), hence three layers: one
 * shape over the ages for all kinds; a factor for each kind, weighed against its family's; and a
 * kind's own shape as far as its counts carry. From the hazards the index of a group follows: the
 * best ratio of uses to waiting that any patience from that age on yields (Gittins 1979; the "hit
 * density" of Beckmann, Chen and Cidon, NSDI 2018, with the stopping time chosen).
 */
#include "tierd/policy/reuse.h"

#include <string.h>

/* Before anything was seen: uses again fall with 1/age. In uses an epoch, times the age. */
#define PRIOR 0.25
/* What the layers weigh against counts, in uses seen. */
#define SHAPE_WEIGHT 64.0
#define FAMILY_WEIGHT 32.0
#define KIND_WEIGHT 8.0 /* times the blocks that a request of the kind brings at once */
#define OWN_SHAPE 4.0	/* times KIND_WEIGHT */
#define RUN_USED 3u	/* blocks used again are used in bunches, too: of 8, as a rule */

#define GRACE 1000.0 /* what was used in this epoch stays if anything else can go */
#define RANK_BITS 22u /* of a float without its sign, in two digits */
#define RANK_DIGITS (1u << RANK_BITS / 2)

/*
 * About the root of what recomputing costs at the depth (docs/policies.md). The whole of it would
 * keep long prompts that are not used again longer than the counts can tell them from others.
 */
const double reuse_depth_worth[REUSE_DEPTHS] = { 1.0, 1.2, 1.4, 1.8 };

const uint32_t reuse_age_first[REUSE_AGES + 1] = { 0,  1,  2,  3,  4,  6,  8,  12,
						   16, 24, 32, 48, 64, 96, 128 };

static uint32_t family(uint32_t kind)
{
	if (kind < REUSE_KINDS_NEW)
		return kind & 1 ? REUSE_FAMILIES - 1 : 0;
	return 1 + (kind - REUSE_KINDS_NEW) / REUSE_ORIGINS;
}

static double kind_weight(uint32_t kind)
{
	uint32_t run = kind < REUSE_KINDS_NEW ? kind / 2 % REUSE_RUNS : RUN_USED;

	return KIND_WEIGHT * (double)(1u << run);
}

/* One shape over the ages for all kinds, smoothed over neighbours. */
static void shape_learn(const struct reuse *r, double shape[REUSE_AGES])
{
	double raw[REUSE_AGES];

	for (uint32_t a = 0; a < REUSE_AGES; a++) {
		double middle = (reuse_age_first[a] + reuse_age_first[a + 1]) / 2.0;
		double prior = PRIOR / middle, uses = SHAPE_WEIGHT, time = SHAPE_WEIGHT / prior;

		for (uint32_t k = 0; k < REUSE_KINDS; k++) {
			uses += r->seen[a].uses[k];
			time += r->seen[a].time[k];
		}
		raw[a] = uses / time;
	}
	for (uint32_t a = 0; a < REUSE_AGES; a++) {
		double before = raw[a ? a - 1 : a], after = raw[a + 1 < REUSE_AGES ? a + 1 : a];

		shape[a] = (before + 2 * raw[a] + after) / 4;
	}
}

/* Uses seen of a kind, and those that the shape would have had in the same time. */
static void kind_sum(const struct reuse *r, uint32_t kind, const double shape[REUSE_AGES],
		     double *uses, double *expected)
{
	for (uint32_t a = 1; a < REUSE_AGES; a++) { /* within an epoch they are not counted */
		*uses += r->seen[a].uses[kind];
		*expected += r->seen[a].time[kind] * shape[a];
	}
}

/*
 * The index of every age from the hazards, backwards: a piece of time is joined with what follows
 * as long as that is better. A piece: chance of a use, expected time, chance to come through.
 */
static void index_of(const double hazard[REUSE_AGES], double index[REUSE_AGES])
{
	struct {
		double use, time, through;
	} piece[REUSE_AGES];
	uint32_t top = 0;

	for (uint32_t a = REUSE_AGES; a-- > 0;) {
		double width = reuse_age_first[a + 1] - reuse_age_first[a];
		double through = 1 / (1 + hazard[a] * width), use = 1 - through;
		double time = width * through;

		if (a == REUSE_AGES - 1) { /* no end */
			through = 0;
			use = 1;
			time = 1 / hazard[a];
		}
		while (top && piece[top - 1].use * time > use * piece[top - 1].time) {
			top--;
			use += through * piece[top].use;
			time += through * piece[top].time;
			through *= piece[top].through;
		}
		piece[top].use = use;
		piece[top].time = time;
		piece[top++].through = through;
		index[a] = use / time;
	}
}

/* The chance that a block is not used again after the epoch in which it was used last. */
static double never_of(const double hazard[REUSE_AGES])
{
	double never = 1;

	for (uint32_t a = 1; a < REUSE_AGES; a++)
		never /= 1 + hazard[a] * (reuse_age_first[a + 1] - reuse_age_first[a]);
	return never;
}

void reuse_learn(struct reuse *r)
{
	double shape[REUSE_AGES], hazard[REUSE_AGES];
	double uses[REUSE_FAMILIES] = { 0 }, expected[REUSE_FAMILIES] = { 0 };

	shape_learn(r, shape);
	for (uint32_t k = 0; k < REUSE_KINDS; k++)
		kind_sum(r, k, shape, &uses[family(k)], &expected[family(k)]);
	for (uint32_t k = 0; k < REUSE_KINDS; k++) {
		double weight = kind_weight(k), own = weight * OWN_SHAPE, u = 0, e = 0, factor;

		factor = (uses[family(k)] + FAMILY_WEIGHT) / (expected[family(k)] + FAMILY_WEIGHT);
		kind_sum(r, k, shape, &u, &e);
		factor = (u + weight * factor) / (e + weight);
		for (uint32_t a = 0; a < REUSE_AGES; a++)
			hazard[a] = (r->seen[a].uses[k] + own) /
				    (r->seen[a].time[k] + own / (factor * shape[a]));
		index_of(hazard, r->rate[k]);
		r->never[k] = never_of(hazard);
		r->beyond[k] = hazard[REUSE_AGES - 1];
	}
}

/* ---- ranks --------------------------------------------------------------------------------- */

static double worth_of(const struct reuse *r, uint32_t row, uint32_t age)
{
	double worth = r->rate[row / REUSE_DEPTHS][age] * reuse_depth_worth[row % REUSE_DEPTHS];

	return age ? worth : worth * GRACE;
}

double reuse_worth(const struct reuse *r, uint32_t group)
{
	return worth_of(r, group / REUSE_AGES, group % REUSE_AGES);
}

/* A group's worth as a number of RANK_BITS, to one part in 2^14: of equals the order stays. */
static uint32_t rank_key(double worth)
{
	float value = (float)worth;
	uint32_t bits;

	_Static_assert(sizeof(bits) == sizeof(value), "the bits of a float are ordered as it is");
	memcpy(&bits, &value, sizeof(bits));
	return bits >> (31 - RANK_BITS);
}

static void keys_make(const struct reuse *r, uint32_t key[REUSE_GROUPS])
{
	for (uint32_t row = 0; row < REUSE_ROWS; row++)
		for (uint32_t age = 0; age < REUSE_AGES; age++)
			key[row * REUSE_AGES + age] = rank_key(worth_of(r, row, age));
}

/* One pass of a radix sort by the digit at `shift`, which keeps the order of equals. */
static void rank_pass(const uint32_t key[REUSE_GROUPS], uint32_t shift,
		      const uint16_t from[REUSE_GROUPS], uint16_t to[REUSE_GROUPS])
{
	uint16_t first[RANK_DIGITS + 1] = { 0 };

	for (uint32_t i = 0; i < REUSE_GROUPS; i++)
		first[(key[i] >> shift) % RANK_DIGITS + 1]++;
	for (uint32_t d = 1; d < RANK_DIGITS; d++)
		first[d] = (uint16_t)(first[d] + first[d - 1]);
	for (uint32_t i = 0; i < REUSE_GROUPS; i++)
		to[first[(key[from[i]] >> shift) % RANK_DIGITS]++] = from[i];
}

void reuse_rank(struct reuse *r)
{
	uint32_t key[REUSE_GROUPS];
	uint16_t half[REUSE_GROUPS];

	keys_make(r, key);
	rank_pass(key, 0, r->order, half);
	rank_pass(key, RANK_BITS / 2, half, r->order);
	for (uint32_t i = 0; i < REUSE_GROUPS; i++)
		r->rank[r->order[i]] = (uint16_t)i;
}
