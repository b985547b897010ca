/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The predictor (predict.h). What clients tell about their requests is used for their own context's
 * predictions only: a cell's key begins with the context.
 */
#include "tierd/core/unit/predict.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TARGET 0.05f /* share of outputs above the upper bound */
#define STEP 0.01f
#define LEVEL_MIN 0.005f
#define LEVEL_MAX 0.2f

static uint64_t mix(uint64_t a, uint64_t b)
{
	a = (a ^ b) * 0x9e3779b97f4a7c15ull;
	return a ^ a >> 29;
}

static uint64_t digest(const struct predict_key *key)
{
	uint64_t d = mix(0x7072656469637431ull, key->context);

	return mix(mix(d, key->salt), key->role) | 1; /* 0 = free */
}

int predict_open(struct predict *p, uint32_t cells)
{
	assert(cells >= PREDICT_WAYS && !(cells & (cells - 1)));
	memset(p, 0, sizeof(*p));
	p->cell = calloc(cells, sizeof(*p->cell));
	p->cells = cells;
	return p->cell ? 0 : -ENOMEM;
}

void predict_close(struct predict *p)
{
	free(p->cell);
	memset(p, 0, sizeof(*p));
}

static struct predict_cell *set_of(const struct predict *p, uint64_t d)
{
	return &p->cell[(d >> 20) & (p->cells - 1) & ~(uint64_t)(PREDICT_WAYS - 1)];
}

static struct predict_cell *find(const struct predict *p, uint64_t d)
{
	struct predict_cell *set = set_of(p, d);

	for (uint32_t i = 0; i < PREDICT_WAYS; i++)
		if (set[i].key == d)
			return &set[i];
	return NULL;
}

/* The key's cell; the one of its set that was told of longest ago makes way. */
static struct predict_cell *take(struct predict *p, uint64_t d)
{
	struct predict_cell *c = find(p, d), *set = set_of(p, d);

	if (!c) {
		c = set;
		for (uint32_t i = 1; i < PREDICT_WAYS; i++)
			if (set[i].used < c->used)
				c = &set[i];
		memset(c, 0, sizeof(*c));
		c->key = d;
		c->level = TARGET;
	}
	c->used = ++p->clock;
	return c;
}

/* The rank-th smallest output, 0 = the smallest: by counting, a window is small. */
static uint32_t ranked(const struct predict_cell *c, uint32_t rank)
{
	for (uint32_t i = 0; i < c->count; i++) {
		uint32_t below = 0, equal = 0;

		for (uint32_t k = 0; k < c->count; k++) {
			below += c->window[k] < c->window[i];
			equal += c->window[k] == c->window[i];
		}
		if (below <= rank && rank < below + equal)
			return c->window[i];
	}
	assert(!"rank is below count");
	return 0;
}

static uint32_t upper_of(const struct predict_cell *c)
{
	float exact = (float)(c->count + 1) * (1 - c->level);
	uint32_t rank = (uint32_t)exact + ((float)(uint32_t)exact < exact);

	/* Too few outputs for that level: the largest, and a quarter. */
	if (rank > c->count)
		return ranked(c, c->count - 1) + ranked(c, c->count - 1) / 4;
	return ranked(c, rank - 1);
}

struct predict_answer predict_ask(const struct predict *p, const struct predict_key *key)
{
	const struct predict_cell *c = find(p, digest(key));

	if (!c || !c->count)
		return (struct predict_answer){ 0, 0, false };
	return (struct predict_answer){ ranked(c, c->count / 2), upper_of(c), true };
}

void predict_tell(struct predict *p, const struct predict_key *key, uint32_t upper,
		  uint32_t output)
{
	struct predict_cell *c = take(p, digest(key));

	if (upper) {
		c->level += STEP * (TARGET - (output > upper));
		c->level = c->level < LEVEL_MIN ? LEVEL_MIN : c->level;
		c->level = c->level > LEVEL_MAX ? LEVEL_MAX : c->level;
	}
	c->window[c->at] = output;
	c->at = (c->at + 1) % PREDICT_WINDOW;
	c->count += c->count < PREDICT_WINDOW;
}
