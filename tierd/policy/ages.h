/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the two parts of the default policy share: ages.c keeps blocks in order and names who leaves
 * (its head says how), ages_learn.c counts uses by class and age and says what waiting is worth.
 */
#ifndef TIERD_POLICY_AGES_H
#define TIERD_POLICY_AGES_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
struct ages_learnt {
	double uses[AGES][CLASSES], time[AGES][CLASSES];
	double rate[AGES][CLASSES]; /* uses to come a time that is waited, at the best patience */
	double never[CLASSES];	    /* chance of no use at any age told apart */
	double beyond[CLASSES];	    /* uses an epoch at ages beyond these */
};

extern const uint32_t ages_first[AGES + 1]; /* the age at which each range begins */
extern const double ages_depth_worth[DEPTHS]; /* of a use, beside one at the start */

static inline uint32_t ages_range(uint32_t epochs)
{
	uint32_t log;

	if (epochs < 2)
		return epochs;
	log = 31 - (uint32_t)__builtin_clz(epochs);
	return epochs < EPOCHS ? 2 * log + (epochs >> (log - 1) & 1) : AGES - 1;
}

/* An epoch has passed for so many known blocks of each class, by epoch of last use. */
void ages_waited(struct ages_learnt *l, const uint32_t known[EPOCHS][CLASSES], uint32_t epoch);

/* rate, never and beyond from uses and time. */
void ages_learn(struct ages_learnt *l);

#endif
