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

static void stack_use(struct stack *s, uint32_t key)
{
	uint32_t age = s->r->epoch - s->epoch[key];
	double before = s->r->regret.account, expect = stack_has(s, age);
	bool here = rng_below(&s->rng, 2);

	if (s->known[key] || age >= REUSE_EPOCHS) {
		reuse_regret_use(s->r, age, here);
		assert_true(fabs(s->r->regret.account - before - here + expect) < 1e-6);
	}
	if (s->known[key])
		reuse_regret_drop(s->r, age);
	s->known[key] = rng_below(&s->rng, 20) > 0; /* some are forgotten at once */
	s->epoch[key] = s->r->epoch;
	reuse_regret_add(s->r);
	if (!s->known[key])
		reuse_regret_drop(s->r, 0);
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
	turns(r, 6, true);
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

/* A store that fills ever faster: no block becomes young again, though its epoch has few bits. */
static void test_reuse_keeps_the_old_old_while_it_grows(void **state)
{
	const uint32_t blocks = 40000, epochs = 700;
	const struct policy_size size = { blocks, blocks, blocks };
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
	const struct policy_size size = { 2 * blocks, blocks, 2 * blocks }; /* epochs of 64 uses */
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
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
