/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How soon are blocks of a class used again? A hazard for each class and age, from counts. Counts
 * are few and come in bunches, so they lean on one shape over the ages for all classes, scaled to
 * the class. An age is worth the best ratio of uses to waiting that any patience from there on
 * yields (Gittins 1979; the "hit density" of Beckmann, Chen and Cidon, NSDI 2018).
 */
#include "tierd/policy/reuse.h"

#define PRIOR 0.25	    /* before anything was seen: uses an epoch, times the age */
#define SHAPE_WEIGHT 64.0   /* of the prior, in uses seen; */
#define CLASS_WEIGHT 32.0   /* of the scale that all have in common; */
#define OWN_WEIGHT 128.0    /* of the shape, beside the class's own */
#define FADE (1 - 1 / 512.0) /* of counts, an epoch */

const uint32_t reuse_first[AGES + 1] = { 0,  1,	2,  3,	4,  6,	8,  12,
					16, 24, 32, 48, 64, 96, 128 };
/* About the root of what computing it again costs (docs/policies.md). */
const double reuse_depth_worth[DEPTHS] = { 1.0, 1.2, 1.4, 1.8 };

void reuse_waited(struct reuse_learnt *l, const uint32_t known[EPOCHS][CLASSES], uint32_t epoch)
{
	for (uint32_t g = 0; g < AGES; g++) {
		uint32_t sum[CLASSES] = { 0 };

		for (uint32_t age = reuse_first[g]; age < reuse_first[g + 1]; age++)
			for (uint32_t k = 0; k < CLASSES; k++)
				sum[k] += known[(epoch - age) % EPOCHS][k];
		for (uint32_t k = 0; k < CLASSES; k++) {
			l->time[g][k] = (l->time[g][k] + sum[k]) * FADE;
			l->uses[g][k] *= FADE;
		}
	}
}

/* Uses an epoch at each age, of all classes, smoothed over neighbours. */
static void shape_learn(const struct reuse_learnt *l, double shape[AGES])
{
	double raw[AGES];

	for (uint32_t g = 0; g < AGES; g++) {
		double uses = SHAPE_WEIGHT, middle = (reuse_first[g] + reuse_first[g + 1]) / 2.0;
		double time = SHAPE_WEIGHT * middle / PRIOR;

		for (uint32_t k = 0; k < CLASSES; k++) {
			uses += l->uses[g][k];
			time += l->time[g][k];
		}
		raw[g] = uses / time;
	}
	for (uint32_t g = 0; g < AGES; g++)
		shape[g] = (raw[g ? g - 1 : 0] + 2 * raw[g] + raw[g + 1 < AGES ? g + 1 : g]) / 4;
}

/* The best uses a time from an age on, of all ages at which waiting might end. */
static double best_patience(const double hazard[AGES], const double through[AGES], uint32_t from)
{
	double best = 0, there = 1, uses = 0, time = 0;

	for (uint32_t g = from; g < AGES; g++) {
		double width = reuse_first[g + 1] - reuse_first[g];

		uses += there * (1 - through[g]);
		time += there * (g + 1 < AGES ? width * through[g] : 1 / hazard[g]);
		there *= through[g];
		if (uses > best * time)
			best = uses / time;
	}
	return best;
}

void reuse_learn(struct reuse_learnt *l)
{
	double shape[AGES], hazard[AGES], through[AGES]; /* through: chance to come to its end */

	shape_learn(l, shape);
	for (uint32_t k = 0; k < CLASSES; k++) {
		double uses = CLASS_WEIGHT, expected = CLASS_WEIGHT;

		for (uint32_t g = 1; g < AGES; g++) { /* within an epoch they are not counted */
			uses += l->uses[g][k];
			expected += l->time[g][k] * shape[g];
		}
		l->never[k] = 1;
		for (uint32_t g = 0; g < AGES; g++) {
			hazard[g] = (l->uses[g][k] + OWN_WEIGHT) /
				    (l->time[g][k] + OWN_WEIGHT * expected / (uses * shape[g]));
			through[g] = 1 / (1 + hazard[g] * (reuse_first[g + 1] - reuse_first[g]));
			l->never[k] *= g ? through[g] : 1;
		}
		through[AGES - 1] = 0; /* it has no end */
		l->beyond[k] = hazard[AGES - 1];
		for (uint32_t g = 0; g < AGES; g++)
			l->rate[g][k] = best_patience(hazard, through, g);
	}
}
