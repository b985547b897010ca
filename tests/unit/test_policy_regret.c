/*
 * What reuse says of LRU, use by use, against a count over all keys; and how careful it becomes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tierd/policy/reuse.h"
#include "tests/lib/property.h"
#include "tests/lib/unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKS 60u
#define KEYS 200u
#define STEPS 60000u

/* Of the uses in a trace of keys, all known ones are judged as an LRU over epochs would. */
struct stack {
	struct reuse *r;
	uint32_t epoch[KEYS]; /* of the last use */
	bool known[KEYS];
	bool here[KEYS]; /* of the known ones */
	struct rng rng;
};

static double stack_has(const struct stack *s, uint32_t age)
{
	double newer = 0, same = 0, room;

	for (uint32_t k = 0; k < KEYS; k++) {
		uint32_t its = s->r->epoch - s->epoch[k];

		newer += s->known[k] && its < age;
		same += s->known[k] && its == age;
	}
	room = (double)s->r->resident - newer;
	if (age >= REUSE_EPOCHS)
		return room > 0;
	return room <= 0 ? 0 : room < same ? room / same : 1;
}

static void stack_leave(struct stack *s, uint32_t key)
{
	if (s->here[key])
		reuse_regret_leave(s->r, s->r->epoch - s->epoch[key]);
	s->here[key] = false;
}

static uint64_t stack_newer_here(const struct stack *s)
{
	uint64_t count = 0;

	for (uint32_t k = 0; k < KEYS; k++)
		count += s->here[k] && s->r->epoch - s->epoch[k] < s->r->regret.edge;
	return count;
}

static void stack_use(struct stack *s, uint32_t key)
{
	uint32_t age = s->r->epoch - s->epoch[key];
	double before = s->r->regret.account, expect = stack_has(s, age);
	bool here = rng_below(&s->rng, 2);

	if (s->known[key] || age >= REUSE_EPOCHS) {
		reuse_regret_use(s->r, age, here);
		assert_true(fabs(s->r->regret.account - before - here + expect) < 1e-6);
	}
	stack_leave(s, key);
	if (s->known[key])
		reuse_regret_drop(s->r, age);
	s->known[key] = rng_below(&s->rng, 20) > 0; /* some are forgotten at once */
	s->epoch[key] = s->r->epoch;
	reuse_regret_add(s->r);
	if (!s->known[key])
		reuse_regret_drop(s->r, 0);
	s->here[key] = s->known[key] && rng_below(&s->rng, 2);
	if (s->here[key])
		reuse_regret_come(s->r);
	stack_leave(s, (uint32_t)rng_below(&s->rng, KEYS));
	assert_int_equal(s->r->regret.newer_here, stack_newer_here(s));
}

static void test_reuse_knows_what_lru_would_have(void **state)
{
	struct stack s = { .r = calloc(1, sizeof(struct reuse)), .rng = { 9 } };

	(void)state;
	s.r->resident = BLOCKS;
	reuse_regret_init(s.r);
	for (uint32_t i = 0; i < STEPS; i++) {
		/* at times few keys are used, and the edge goes far back */
		uint64_t most = i / 4000 % 2 ? KEYS : 8;

		stack_use(&s, (uint32_t)(rng_below(&s.rng, most) * rng_below(&s.rng, KEYS) / KEYS));
		if (rng_below(&s.rng, 12))
			continue;
		reuse_regret_turn(s.r, true);
		s.r->epoch++;
		for (uint32_t k = 0; k < KEYS; k++)
			s.known[k] = s.known[k] && s.r->epoch - s.epoch[k] < REUSE_EPOCHS;
		for (uint32_t k = 0; k < KEYS; k++)
			s.here[k] = s.here[k] && s.known[k];
		assert_int_equal(s.r->regret.newer_here, stack_newer_here(&s));
	}
	free(s.r);
}

static void turns(struct reuse *r, uint32_t count, bool full)
{
	for (uint32_t i = 0; i < count; i++) {
		reuse_regret_turn(r, full);
		r->epoch++;
	}
}

/* Careful until the first blocks that left are some time past, then as little as it ever is. */
static void test_reuse_begins_carefully(void **state)
{
	struct reuse *r = calloc(1, sizeof(*r));
	double most;

	(void)state;
	r->resident = 64;
	reuse_regret_init(r);
	most = r->regret.caution;
	assert_true(most >= 1000); /* nothing is worth so much more than something else */
	turns(r, 100, false);
	assert_true(r->regret.caution == most);
	turns(r, REUSE_EPOCHS_TIER, true);
	assert_true(r->regret.caution == most);
	turns(r, 1, true);
	assert_in_range(r->regret.caution, 10, most / 10);
	turns(r, 3, true);
	assert_true(r->regret.caution < 10);
	free(r);
}

/* Losses make it careful, up to a limit; when they are forgotten it dares again. */
static void test_reuse_is_careful_after_losses(void **state)
{
	struct reuse *r = calloc(1, sizeof(*r));
	double least;

	(void)state;
	r->resident = 512;
	reuse_regret_init(r);
	turns(r, 100, true);
	least = r->regret.caution;
	assert_true(least > 1 && least < 2);
	for (uint32_t i = 0; i < 512; i++)
		reuse_regret_add(r);
	reuse_regret_use(r, 0, false);
	turns(r, 1, true);
	assert_true(r->regret.caution == least); /* one block lost is nothing yet */
	for (uint32_t i = 0; i < 3; i++)
		reuse_regret_use(r, 1, false);
	turns(r, 20, true);
	assert_true(r->regret.caution > 10 * least);
	turns(r, 400, true);
	assert_true(r->regret.caution == least);
	free(r);
}

static void used_once(struct reuse *r, uint32_t blocks)
{
	for (uint32_t i = 0; i < blocks; i++) {
		reuse_regret_add(r);
		reuse_regret_come(r);
	}
}

/* How many may be gone, so many epochs after rates began to count. */
static uint32_t limit_after(uint32_t epochs, uint32_t blocks)
{
	struct reuse *r = calloc(1, sizeof(*r));
	uint32_t gone = 0;

	r->resident = blocks;
	reuse_regret_init(r);
	turns(r, 50, false);
	turns(r, REUSE_EPOCHS_TIER + epochs, true);
	used_once(r, blocks);
	for (; gone < blocks && reuse_regret_allows(r, 0); gone++)
		reuse_regret_leave(r, 0);
	free(r);
	return gone;
}

/* First half of the limit, for hardly anything can have been missed yet; then more each epoch. */
static void test_reuse_begins_with_half_its_limit(void **state)
{
	(void)state;
	assert_int_equal(limit_after(0, 512), 64);
	assert_int_equal(limit_after(1, 512), 68);
	assert_int_equal(limit_after(15, 512), 124);
	assert_int_equal(limit_after(16, 512), 128);
	assert_int_equal(limit_after(400, 512), 128);
}

/* A quarter of what LRU would have may be gone, and more by what was won. */
static void test_reuse_has_a_limit(void **state)
{
	struct reuse *r = calloc(1, sizeof(*r));
	const uint32_t blocks = 512;

	(void)state;
	r->resident = blocks;
	reuse_regret_init(r);
	turns(r, 100, true);
	used_once(r, blocks);
	turns(r, 1, true);
	for (uint32_t i = 0; i < blocks / 4; i++) {
		assert_true(reuse_regret_allows(r, 1));
		reuse_regret_leave(r, 1);
	}
	assert_false(reuse_regret_allows(r, 1));
	assert_true(reuse_regret_allows(r, 100)); /* LRU would not have it either */
	reuse_regret_use(r, 100, true);
	assert_true(reuse_regret_allows(r, 1));
	reuse_regret_leave(r, 1);
	assert_false(reuse_regret_allows(r, 1));
	reuse_regret_use(r, 1, false); /* one is missed, and is back */
	reuse_regret_drop(r, 1);
	reuse_regret_add(r);
	reuse_regret_come(r);
	assert_false(reuse_regret_allows(r, 1));
	free(r);
}

#define TIER 1024u
#define GONE_KEYS 30000u

/* A tier under the policy, and an LRU of as many: when a key was used last, in uses. */
struct beside {
	const struct policy_ops *ops;
	struct reuse *r;
	uint32_t slot[GONE_KEYS], key[TIER]; /* a key's slot + 1, and back */
	uint32_t used[GONE_KEYS], uses;
	uint32_t keys, slots;
	struct rng rng;
};

static void key_bytes(uint8_t bytes[ABI_KEY_BYTES], uint32_t key)
{
	memset(bytes, 0, ABI_KEY_BYTES);
	memcpy(bytes, &(uint32_t){ key * 2654435761u }, sizeof(key));
}

static void beside_use(struct beside *b, uint32_t key, uint32_t brought)
{
	uint8_t bytes[ABI_KEY_BYTES], old[ABI_KEY_BYTES];
	struct policy_hint hint = { .parent = ABI_SLOT_NONE, .key = bytes, .brought = brought };
	uint32_t slot = b->slots;

	b->used[key] = ++b->uses;
	if (b->slot[key]) {
		b->ops->touch(b->r, b->slot[key] - 1, 1, 0);
		return;
	}
	if (slot < TIER) {
		b->slots++;
	} else {
		slot = b->ops->victim(b->r, ABI_SLOT_NONE);
		key_bytes(old, b->key[slot]);
		b->ops->remove(b->r, slot, old);
		b->slot[b->key[slot]] = 0;
	}
	key_bytes(bytes, key);
	b->ops->insert(b->r, slot, &hint);
	b->slot[key] = slot + 1;
	b->key[slot] = key;
}

static int used_later(const void *a, const void *b)
{
	const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x < y) - (x > y);
}

/* How many of those used last, as many as the tier has, are not in it. */
static uint32_t beside_gone(const struct beside *b)
{
	static uint32_t used[GONE_KEYS];
	uint32_t gone = 0, least;

	memcpy(used, b->used, b->keys * sizeof(*used));
	qsort(used, b->keys, sizeof(*used), used_later);
	least = b->keys > TIER ? used[TIER - 1] : 1;
	for (uint32_t k = 0; k < b->keys; k++)
		gone += b->used[k] >= least && !b->slot[k];
	return gone;
}

/* Some of what is put is used soon, four times, then never; the rest never at all. */
static void beside_round(struct beside *b, uint32_t recent[64], uint32_t at)
{
	uint32_t soon = recent[at % 64];

	for (uint32_t i = 0; i < 2; i++)
		beside_use(b, b->keys++, 32);
	if (at % 4 == 0 || !soon)
		recent[at % 64] = b->keys++;
	beside_use(b, recent[at % 64], 1);
}

/* With nothing to be won by it, what LRU would have goes up to the limit, and no further. */
static void test_reuse_keeps_to_its_limit(void **state)
{
	const struct policy_size size = { TIER, TIER, TIER, false };
	struct beside *b = calloc(1, sizeof(*b));
	uint32_t recent[64] = { 0 }, most = 0;

	(void)state;
	b->ops = policy_find("reuse");
	b->r = calloc(1, b->ops->state_bytes(&size));
	b->ops->init(b->r, &size);
	b->keys = 1; /* 0 = none, in recent */
	for (uint32_t at = 0; b->keys < GONE_KEYS - 4; at++) {
		beside_round(b, recent, at);
		if (at % 1000 == 0 && beside_gone(b) > most)
			most = beside_gone(b);
	}
	assert_true(b->r->regret.balance < TIER / 64);
	assert_in_range(most, TIER / 8, TIER / 4 + TIER / 16); /* an epoch's blocks are alike */
	free(b->r);
	free(b);
}

/* A store that fills ever faster: no block becomes young again, though its epoch has few bits. */
static void test_reuse_keeps_the_old_old_while_it_grows(void **state)
{
	const uint32_t blocks = 40000, epochs = 700;
	const struct policy_size size = { blocks, blocks, blocks, false };
	const struct policy_ops *ops = policy_find("reuse");
	struct reuse *r = calloc(1, ops->state_bytes(&size));
	uint8_t key[ABI_KEY_BYTES] = { 0 };
	struct policy_hint hint = { .parent = ABI_SLOT_NONE, .key = key, .brought = 1 };
	uint32_t slot = 0;

	(void)state;
	ops->init(r, &size);
	for (uint32_t epoch = 0; epoch < epochs; epoch++) {
		r->clock = r->epoch_end;
		for (uint32_t n = 0; n <= epoch / 8; n++, slot++) {
			memcpy(key, &slot, sizeof(slot));
			ops->insert(r, slot, &hint);
		}
		for (uint32_t old = 0; epoch > 2 * REUSE_EPOCHS && old < 256; old++)
			assert_true(reuse_age_of(r, &r->node[reuse_node_of(r, old)]) >=
				    REUSE_EPOCHS);
	}
	free(r);
}

/* A store that little leaves: what left in its first epochs is not taken for news much later. */
static void test_reuse_forgets_what_left_long_ago(void **state)
{
	const uint32_t blocks = 80, gone = 2000;
	/* Epochs of 64 uses. */
	const struct policy_size size = { 2 * blocks, blocks, 2 * blocks, false };
	const struct policy_ops *ops = policy_find("reuse");
	struct reuse *r = calloc(1, ops->state_bytes(&size));
	uint8_t key[ABI_KEY_BYTES] = { 0 };
	struct policy_hint hint = { .parent = ABI_SLOT_NONE, .key = key, .brought = 1 };

	(void)state;
	ops->init(r, &size);
	for (uint32_t n = 1; n < gone; n++) {
		memcpy(key, &n, sizeof(n));
		ops->insert(r, 0, &hint);
		ops->remove(r, 0, key);
	}
	for (uint32_t n = 0; n < blocks; n++) {
		memset(key, (int)n + 1, sizeof(key));
		ops->insert(r, n, &hint);
	}
	while (r->epoch < REUSE_NOTE_SPAN)
		for (uint32_t n = 0; n < blocks; n++)
			ops->touch(r, n, 1, 0);
	for (uint32_t n = 1; n < gone; n++) { /* their epochs' low bits are those of now */
		memcpy(key, &n, sizeof(n));
		assert_null(ghosts_find(r->ghosts, ghosts_tag(key)));
		ops->insert(r, blocks, &hint);
		ops->remove(r, blocks, key);
	}
	free(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reuse_knows_what_lru_would_have),
		cmocka_unit_test(test_reuse_begins_carefully),
		cmocka_unit_test(test_reuse_keeps_the_old_old_while_it_grows),
		cmocka_unit_test(test_reuse_is_careful_after_losses),
		cmocka_unit_test(test_reuse_forgets_what_left_long_ago),
		cmocka_unit_test(test_reuse_begins_with_half_its_limit),
		cmocka_unit_test(test_reuse_has_a_limit),
		cmocka_unit_test(test_reuse_keeps_to_its_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
