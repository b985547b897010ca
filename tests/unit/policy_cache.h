/* SPDX-License-Identifier: Apache-2.0 */
/* A small cache over numbered keys, kept by a policy; for tests of policies. */
#ifndef TIER_TESTS_UNIT_POLICY_CACHE_H
#define TIER_TESTS_UNIT_POLICY_CACHE_H

#include <stdlib.h>
#include <string.h>

#include "tests/lib/property.h"
#include "tests/lib/unit.h"
#include "tests/unit/policy_key.h"
#include "tierd/core/unit/policy_ops.h"

#define BLOCKS 60u
#define KEYS 200u
#define STEPS 60000u

/* A small cache over numbered keys: which slot has which. Slot = any free one. */
struct cache {
	struct policy_ops ops;
	void *policy;
	uint32_t slot_of[KEYS]; /* ABI_SLOT_NONE = not there */
	uint32_t key_of[KEYS]; /* by slot */
	uint32_t count, slots;
	struct rng rng;
};

static inline struct cache *cache_sized(const struct policy_ops *ops, uint64_t seed,
					const struct policy_size *size)
{
	struct cache *c = calloc(1, sizeof(*c));

	assert_non_null(ops);
	c->ops = *ops;
	c->policy = calloc(1, c->ops.state_bytes(size));
	c->ops.init(c->policy, size);
	c->rng = (struct rng){ seed };
	for (uint32_t i = 0; i < KEYS; i++)
		c->slot_of[i] = ABI_SLOT_NONE;
	c->slots = (uint32_t)size->blocks_max;
	for (uint32_t i = 0; i < KEYS; i++)
		c->key_of[i] = KEYS;
	return c;
}

static inline struct cache *cache_new(const struct policy_ops *ops, uint64_t seed)
{
	return cache_sized(ops, seed, &(struct policy_size){ BLOCKS, BLOCKS, BLOCKS, false });
}

static inline void cache_free(struct cache *c)
{
	free(c->policy);
	free(c);
}

/* Keys form a tree: the parent of k is (k - 1) / 3, so paths share their beginnings. */
static inline void cache_insert(struct cache *c, uint32_t key)
{
	uint8_t bytes[ABI_KEY_BYTES];
	struct policy_hint hint = {
		.parent = key ? c->slot_of[(key - 1) / 3] : ABI_SLOT_NONE,
		.key = bytes,
		.joined = rng_below(&c->rng, 4) == 0,
		.brought = 1 + (uint32_t)rng_below(&c->rng, 40),
		.last = rng_below(&c->rng, 4) == 0,
		.position = rng_below(&c->rng, 100000),
	};
	uint32_t slot = (uint32_t)rng_below(&c->rng, c->slots);

	while (c->key_of[slot] != KEYS)
		slot = (slot + 1) % c->slots;
	key_bytes(bytes, key);
	c->ops.insert(c->policy, slot, &hint);
	c->key_of[slot] = key;
	c->slot_of[key] = slot;
	c->count++;
}

static inline void cache_remove(struct cache *c, uint32_t slot)
{
	uint8_t bytes[ABI_KEY_BYTES];

	key_bytes(bytes, c->key_of[slot]);
	c->ops.remove(c->policy, slot, bytes);
	c->slot_of[c->key_of[slot]] = ABI_SLOT_NONE;
	c->key_of[slot] = KEYS;
	c->count--;
}

/* ---- walks --------------------------------------------------------------------------------- */

/* Nothing removed: every block once. */
static inline void walk_all(struct cache *c)
{
	bool seen[KEYS] = { false };
	uint32_t at = ABI_SLOT_NONE;

	for (uint32_t i = 0; i < c->count; i++) {
		at = c->ops.victim(c->policy, at);
		assert_in_range(at, 0, c->slots - 1);
		assert_int_not_equal(c->key_of[at], KEYS);
		assert_false(seen[at]);
		seen[at] = true;
	}
	assert_int_equal(c->ops.victim(c->policy, at), ABI_SLOT_NONE);
}

/* As the core evicts: some are passed over, the others removed. */
static inline void walk_remove(struct cache *c)
{
	uint32_t stays = ABI_SLOT_NONE, want = c->count / 2, gone = 0, steps = 0;

	while (gone < want) {
		uint32_t slot = c->ops.victim(c->policy, stays);

		if (slot == ABI_SLOT_NONE)
			break;
		assert_in_range(++steps, 1, 2 * BLOCKS);
		if (rng_below(&c->rng, 3) == 0) {
			stays = slot;
			continue;
		}
		cache_remove(c, slot);
		gone++;
	}
}

/* Blocks come, are used and leave at random; look at all of it now and then. Frees the cache. */
static inline void random_life(struct cache *c, void (*look)(struct cache *))
{
	for (uint32_t i = 0; i < STEPS; i++) {
		uint32_t key = (uint32_t)rng_below(&c->rng, KEYS);

		if (c->slot_of[key] != ABI_SLOT_NONE && rng_below(&c->rng, 8) == 0)
			cache_remove(c, c->slot_of[key]);
		else if (c->slot_of[key] != ABI_SLOT_NONE)
			c->ops.touch(c->policy, c->slot_of[key],
				     (uint32_t)rng_below(&c->rng, 3), i);
		else if (c->count < BLOCKS)
			cache_insert(c, key);
		if (c->count == BLOCKS)
			walk_remove(c);
		if (i % 32 == 0)
			look(c);
	}
	cache_free(c);
}

#endif
