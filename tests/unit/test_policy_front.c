/*
 * Reuse remembers where its walks begin: after each step of a random life, what it remembers is
 * what it finds when it looks again. In all moods: as careful as LRU at first, at its limit, bold.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tierd/policy/reuse.h"
#include "tests/lib/property.h"
#include "tests/lib/unit.h"
#include "tests/unit/policy_key.h"

#include <stdlib.h>

#define BLOCKS 300u
#define STEPS 20000u

struct cache {
	const struct policy_ops *ops;
	struct reuse *r;
	bool there[BLOCKS];
	struct rng rng;
	uint32_t known, oldest, beyond; /* answers from memory; and how these walks begin */
};

static struct cache *cache_new(uint64_t seed)
{
	const struct policy_size size = { BLOCKS, BLOCKS, BLOCKS, false };
	struct cache *c = calloc(1, sizeof(*c));

	assert_non_null(c);
	c->ops = policy_find("reuse");
	c->r = calloc(1, c->ops->state_bytes(&size));
	assert_non_null(c->r);
	c->ops->init(c->r, &size);
	c->rng = (struct rng){ seed };
	return c;
}

static void cache_free(struct cache *c)
{
	free(c->r);
	free(c);
}

/* Twice the same: what is remembered, and what is found. */
static uint32_t first(struct cache *c)
{
	bool known = c->r->front.known;
	uint32_t slot = c->ops->victim(c->r, ABI_SLOT_NONE), oldest = c->r->oldest;

	c->known += known;
	c->r->front.known = false;
	assert_int_equal(c->ops->victim(c->r, ABI_SLOT_NONE), slot);
	assert_int_equal(c->r->oldest, oldest);
	c->oldest += oldest && !c->r->front.dear;
	c->beyond += oldest && c->r->front.dear;
	return slot;
}

static void insert(struct cache *c, uint32_t slot)
{
	uint32_t parent = (slot + BLOCKS - 1) % BLOCKS;
	uint8_t key[ABI_KEY_BYTES];
	const struct policy_hint hint = {
		.parent = c->there[parent] ? parent : ABI_SLOT_NONE,
		.key = key,
		.position = slot % 64 * 1024,
		.joined = c->there[parent],
		.last = slot % 5 == 4,
		.brought = 1 + slot % 16,
	};

	key_bytes(key, slot);
	c->ops->insert(c->r, slot, &hint);
	c->there[slot] = true;
}

static void take_out(struct cache *c, uint32_t slot)
{
	uint8_t key[ABI_KEY_BYTES];

	key_bytes(key, slot);
	c->ops->remove(c->r, slot, key);
	c->there[slot] = false;
}

/* Blocks that left are used where they are: epochs end of that, too, and no cell gains a leaf. */
static void used_elsewhere(struct cache *c)
{
	uint8_t key[ABI_KEY_BYTES];

	for (uint32_t slot = 0; slot < BLOCKS; slot++) {
		key_bytes(key, slot);
		if (!c->there[slot])
			c->ops->elsewhere(c->r, key);
		first(c);
	}
}

/* As bold as can be, and at its limit or far from it. */
static void mood(struct cache *c)
{
	struct reuse_regret *g = &c->r->regret;

	g->first = 0;
	g->caution = 1;
	g->balance = rng_below(&c->rng, 2) ? BLOCKS : -(double)BLOCKS;
	c->r->front.known = false; /* caution changes with the epoch, else */
}

/* What leaves is mostly who is asked for; what comes is mostly a few in a row. */
static void step(struct cache *c)
{
	uint32_t slot = (uint32_t)rng_below(&c->rng, BLOCKS), rows = slot % 7;

	if (rng_below(&c->rng, 4) == 0) {
		for (slot = first(c); slot != ABI_SLOT_NONE && rows-- > 0; slot = first(c))
			take_out(c, slot);
	} else if (!c->there[slot]) {
		for (; rows-- > 0 && slot < BLOCKS && !c->there[slot]; slot++)
			insert(c, slot);
	} else if (slot % 3) {
		c->ops->touch(c->r, slot, 1, 0);
	} else if (rng_below(&c->rng, 8) == 0) {
		take_out(c, slot);
	} else if (rng_below(&c->rng, 32) == 0) {
		used_elsewhere(c);
	}
	first(c);
}

static void test_reuse_remembers_where_walks_begin(void **state)
{
	uint32_t known = 0, oldest = 0, beyond = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= 4; seed++) {
		struct cache *c = cache_new(seed);

		for (uint32_t i = 0; i < STEPS; i++)
			i % 512 == 511 ? mood(c) : step(c);
		known += c->known;
		oldest += c->oldest;
		beyond += c->beyond;
		cache_free(c);
	}
	assert_in_range(known, 1, UINT32_MAX); /* and none of it for nothing */
	assert_in_range(oldest, 1, UINT32_MAX);
	assert_in_range(beyond, 1, UINT32_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reuse_remembers_where_walks_begin),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
