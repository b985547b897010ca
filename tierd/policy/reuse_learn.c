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

/* Before anything was seen: uses again fall with 1/age. In uses an epoch, times the age. */
#define PRIOR 0.25
/* What the layers weigh against counts, in uses seen. */
#define SHAPE_WEIGHT 128.0
#define FAMILY_WEIGHT 64.0
#define KIND_WEIGHT 8.0 /* times the blocks that a request of the kind brings at once */
#define OWN_SHAPE 8.0	/* times KIND_WEIGHT */

const uint32_t reuse_age_first[REUSE_AGES + 1] = { 0,  1,  2,  3,  4,  6,  8,  12,
						   16, 24, 32, 48, 64, 96, 128 };

static uint32_t family(uint32_t kind)
{
	if (kind < REUSE_KINDS_NEW)
		return kind & 1 ? 4 : 0;
	return 1 + kind - REUSE_KINDS_NEW;
}

static double kind_weight(uint32_t kind)
{
	uint32_t run = kind < REUSE_KINDS_NEW ? kind / 2 % REUSE_RUNS : 0;

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
			uses += r->seen[k].uses[a];
			time += r->seen[k].time[a];
		}
		raw[a] = uses / time;
	}
	for (uint32_t a = 0; a < REUSE_AGES; a++) {
		double before = raw[a ? a - 1 : a], after = raw[a + 1 < REUSE_AGES ? a + 1 : a];

		shape[a] = (before + 2 * raw[a] + after) / 4;
	}
}

/* Uses seen of a kind, and those that the shape would have had in the same time. */
static void kind_sum(const struct reuse_seen *s, const double shape[REUSE_AGES], double *uses,
		     double *expected)
{
	for (uint32_t a = 1; a < REUSE_AGES; a++) { /* within an epoch they are not counted */
		*uses += s->uses[a];
		*expected += s->time[a] * shape[a];
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
		kind_sum(&r->seen[k], shape, &uses[family(k)], &expected[family(k)]);
	for (uint32_t k = 0; k < REUSE_KINDS; k++) {
		const struct reuse_seen *s = &r->seen[k];
		double weight = kind_weight(k), own = weight * OWN_SHAPE, u = 0, e = 0, factor;

		factor = (uses[family(k)] + FAMILY_WEIGHT) / (expected[family(k)] + FAMILY_WEIGHT);
		kind_sum(s, shape, &u, &e);
		factor = (u + weight * factor) / (e + weight);
		for (uint32_t a = 0; a < REUSE_AGES; a++)
			hazard[a] = (s->uses[a] + own) / (s->time[a] + own / (factor * shape[a]));
		index_of(hazard, r->rate[k]);
		r->never[k] = never_of(hazard);
		r->beyond[k] = hazard[REUSE_AGES - 1];
	}
}
