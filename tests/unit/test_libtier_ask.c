/*
 * What is asked arrives whole: each option of a prefetch, a conversation, a reservation and a plan,
 * as the daemon reads it from the ring and the arena. And what a look-up says of many keys.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/unit/test_libtier_world.h"

#define LONG_NS (10 * NS_PER_S)
#define ARG_BYTES 1024u
#define CONVERSATION_BLOCKS 8184u /* as tier.h says */

/* The last request, as it came. */
static struct {
	struct abi_sqe e;
	uint8_t arg[ARG_BYTES] __attribute__((aligned(8)));
} got;

static bool note(struct fake *f, const struct abi_sqe *e, struct abi_cqe *c, bool *silent)
{
	size_t bytes = e->arg_bytes < ARG_BYTES ? e->arg_bytes : ARG_BYTES;

	(void)silent;
	got.e = *e;
	memset(got.arg, 0, sizeof(got.arg));
	memcpy(got.arg, f->client[0].staging + e->arg_offset, bytes);
	c->value = 77;
	c->aux = 5ull << 32 | 3;
	return true;
}

static int setup(void **state)
{
	int rc = world_setup(state);

	memset(&got, 0, sizeof(got));
	((struct world *)*state)->fake->hook = note;
	return rc;
}

static void arrived(struct world *w, uint64_t user_data)
{
	struct tier_completion c;

	assert_int_equal(tier_wait(w->t, &c, 1, 1, LONG_NS), 1);
	assert_int_equal(c.user_data, user_data);
}

static void expect_range(uint32_t part_first, uint32_t part_count, uint32_t layer_first,
			 uint32_t layer_count)
{
	assert_int_equal(got.e.part_first, part_first);
	assert_int_equal(got.e.part_count, part_count);
	assert_int_equal(got.e.layer_first, layer_first);
	assert_int_equal(got.e.layer_count, layer_count);
}

static void test_prefetch_and_migrate(void **state)
{
	static const struct tier_range range = { 1, 1, 1, 1 };
	struct world *w = *state;
	tier_block b[3] = { world_block(w, 1), world_block(w, 2), world_block(w, 3) };
	uint64_t later = time_now_ns() + LONG_NS;

	assert_int_equal(tier_prefetch(w->c, b, 3, ASK(TIER_HBM, .user_data = 4, .range = &range,
						       .deadline_ns = later)), 0);
	arrived(w, 4);
	assert_int_equal(got.e.op, ABI_OP_PREFETCH);
	assert_int_equal(got.e.tier, ABI_TIER_HBM);
	assert_int_equal(got.e.klass, ABI_CLASS_DEADLINE);
	assert_int_equal(got.e.count, 3);
	assert_true(got.e.deadline_ns == later);
	expect_range(1, 1, 1, 1);
	assert_int_equal(((struct abi_block_ref *)(void *)got.arg)[2].slot, b[2].slot);
	assert_int_equal(tier_prefetch(w->c, b, 1, NULL), 0);
	arrived(w, 0);
	assert_int_equal(got.e.tier, ABI_TIER_CXL);
	assert_int_equal(got.e.klass, ABI_CLASS_SPECULATIVE);
	expect_range(0, 0, 0, 0);
	assert_int_equal(tier_migrate(w->c, b, 2, ASK(TIER_NVME, .klass = TIER_CLASS_DEMAND + 1)),
			 0);
	arrived(w, 0);
	assert_int_equal(got.e.op, ABI_OP_MIGRATE);
	assert_int_equal(got.e.tier, ABI_TIER_NVME);
	assert_int_equal(got.e.klass, TIER_CLASS_DEMAND + 1);
	assert_int_equal(tier_prefetch(w->c, b, 1, ASK(TIER_NVME)), -EINVAL);
	/* Part of a block can go up, but not out of a tier. */
	assert_int_equal(tier_migrate(w->c, b, 1, ASK(TIER_HBM, .range = &range)), 0);
	arrived(w, 0);
	expect_range(1, 1, 1, 1);
	assert_int_equal(tier_migrate(w->c, b, 1, ASK(TIER_CXL, .range = &range)), -EINVAL);
	assert_int_equal(tier_migrate(w->c, b, 1, ASK(TIER_NVME, .range = &range)), -EINVAL);
	assert_non_null(strstr(tier_error_text(), "whole"));
}

static void test_conversations(void **state)
{
	static const struct tier_range parts = { .part_first = 1, .part_count = 1 };
	static const struct tier_range layers = { .layer_count = 1 };
	static tier_block many[CONVERSATION_BLOCKS + 9];
	struct world *w = *state;
	const tier_block pair[2] = { world_block(w, 1), world_block(w, 2) };
	struct tier_conversation_options o = { .size = sizeof(o),
					       .tier = TIER_HBM,
					       .count = 2,
					       .blocks = many,
					       .range = &parts,
					       .salt = 0xaabbccddeeull,
					       .return_ns = 1234567,
					       .layer_ns = 89,
					       .user_data = 6 };
	const struct abi_conversation_args *args = (void *)got.arg;

	for (uint32_t i = 0; i < COUNT(many); i++)
		many[i] = pair[i % 2];
	assert_int_equal(tier_conversation(w->c, 0x1122334455ull, TIER_CONVERSATION_TURN_END, &o),
			 0);
	arrived(w, 6);
	assert_int_equal(got.e.op, ABI_OP_CONVERSATION);
	assert_int_equal(got.e.mode, ABI_CONVERSATION_TURN_END);
	assert_true(got.e.handle == 0x1122334455ull);
	assert_int_equal(got.e.tier, ABI_TIER_HBM);
	assert_int_equal(got.e.count, 2);
	expect_range(1, 1, 0, 0);
	assert_true(args->salt == o.salt);
	assert_int_equal(args->return_ns, o.return_ns);
	assert_int_equal(args->layer_ns, o.layer_ns);
	assert_int_equal(((struct abi_block_ref *)(void *)(args + 1))[1].slot, many[1].slot);
	/* The first of a longer list are kept. */
	o.count = COUNT(many);
	assert_int_equal(tier_conversation(w->c, 1, TIER_CONVERSATION_TURN_END, &o), 0);
	arrived(w, 6);
	assert_int_equal(got.e.count, CONVERSATION_BLOCKS);
	assert_int_equal(got.e.arg_bytes, ABI_ARG_BYTES_MAX);
	o.range = &layers;
	assert_int_equal(tier_conversation(w->c, 1, TIER_CONVERSATION_TURN_END, &o), -EINVAL);
	o.range = NULL;
	o.tier = TIER_NVME;
	assert_int_equal(tier_conversation(w->c, 1, TIER_CONVERSATION_TURN_END, &o), -EINVAL);
	assert_int_equal(tier_conversation(w->c, 1, TIER_CONVERSATION_CLOSE + 1, NULL), -EINVAL);
	assert_int_equal(tier_conversation(w->c, 9, TIER_CONVERSATION_CLOSE, NULL), 0);
	arrived(w, 0);
	assert_int_equal(got.e.mode, ABI_CONVERSATION_CLOSE);
	assert_int_equal(got.e.count, 0);
}

static void test_reservations(void **state)
{
	struct world *w = *state;
	struct tier_reserve_options o = { .size = sizeof(o), .expected = 11, .p95 = 13, .step = 2,
					  .role = 5, .prompt_tokens = 7, .salt = 0xaabbccddeeull };
	const struct abi_reserve_args *args = (void *)got.arg;
	struct tier_reserved r;

	o.deadline_ns = time_now_ns() + LONG_NS;
	assert_int_equal(tier_reserve(w->c, &o, &r), 0);
	assert_int_equal(r.id, 77);
	assert_int_equal(r.blocks, 3);
	assert_int_equal(r.p95, 5);
	assert_true(got.e.deadline_ns == o.deadline_ns);
	assert_int_equal(got.e.arg_bytes, sizeof(*args));
	assert_int_equal(args->expected, 11);
	assert_int_equal(args->p95, 13);
	assert_int_equal(args->step, 2);
	assert_int_equal(args->role, 5);
	assert_int_equal(args->prompt_tokens, 7);
	assert_true(args->salt == o.salt);
	assert_int_equal(tier_reserve_end(w->c, 77), 77);
	assert_int_equal(got.e.handle, 77);
	assert_int_equal(tier_reserve_end(w->c, 0), -EINVAL);
	got.e.handle = 78;
	o.deadline_ns = time_now_ns(); /* over before it begins: nothing is asked for */
	assert_int_equal(tier_reserve(w->c, &o, &r), -ETIMEDOUT);
	assert_int_equal(got.e.handle, 78);
	o.deadline_ns = 0;
	o.p95 = 10;
	assert_int_equal(tier_reserve(w->c, &o, &r), -EINVAL);
	o.expected = 0;
	assert_int_equal(tier_reserve(w->c, &o, &r), -EINVAL);
}

static void test_plans(void **state)
{
	static const struct tier_range range = { .part_first = 1, .part_count = 1 };
	struct world *w = *state;
	const struct tier_access access[2] = { { .block = world_block(w, 1), .time_us = 3 },
					       { .block = world_block(w, 2), .time_us = 4 } };
	struct tier_plan_options o = { .size = sizeof(o), .tier = TIER_HBM, .range = &range,
				       .start_ns = 1000, .access_ns = 2000, .budget_bytes = 3000 };
	const struct abi_plan_args *args = (void *)got.arg;
	const struct abi_access *sent = (void *)(got.arg + sizeof(*args));
	uint64_t *position;
	tier_plan *p;

	assert_int_equal(tier_plan_begin(w->c, access, 2, &o, &p), 0);
	assert_int_equal(got.e.mode, ABI_PLAN_BEGIN);
	assert_int_equal(got.e.tier, ABI_TIER_HBM);
	expect_range(1, 1, 0, 0);
	assert_int_equal(args->start_ns, 1000);
	assert_int_equal(args->access_ns, 2000);
	assert_int_equal(args->budget_bytes, 3000);
	assert_int_equal(sent[0].time_us, 3);
	assert_int_equal(sent[1].time_us, 4);
	assert_int_equal(sent[1].block.slot, access[1].block.slot);
	position = (void *)(w->fake->client[0].staging + args->position_offset);
	assert_int_equal(*position, 0);
	tier_plan_advance(p, 2);
	assert_int_equal(*position, 2);
	tier_plan_end(p);
	assert_int_equal(got.e.mode, ABI_PLAN_END);
	assert_int_equal(got.e.handle, 77);
	/* The next one begins at 0, though its word was the last one's. */
	assert_int_equal(tier_plan_begin(w->c, access, 2, &o, &p), 0);
	assert_int_equal(*(uint64_t *)(void *)(w->fake->client[0].staging +
						args->position_offset), 0);
	tier_plan_end(p);
	o.reserved = 1;
	assert_int_equal(tier_plan_begin(w->c, access, 2, &o, &p), -EINVAL);
	o.reserved = 0;
	o.tier = TIER_NVME;
	assert_int_equal(tier_plan_begin(w->c, access, 2, &o, &p), -EINVAL);
}

/* What lies behind the first miss is told all the same, by those who ask for each key. */
static void test_matches_behind_a_miss(void **state)
{
	enum { KEYS = 100 };
	struct tier_counters before = { .size = sizeof(before) }, after = before;
	struct world *w = *state;
	struct tier_found found[KEYS];
	tier_key key[KEYS];

	for (uint32_t i = 0; i < KEYS; i++) {
		key[i] = world_key(i);
		if (i < 3 || i >= KEYS - 2)
			world_block(w, i);
	}
	assert_int_equal(tier_counters(w->t, &before), 0);
	memset(found, 0xee, sizeof(found));
	assert_int_equal(tier_match(w->c, key, KEYS, found), 3);
	for (uint32_t i = 0; i < KEYS; i++)
		assert_int_equal(found[i].state, i < 3 || i >= KEYS - 2 ? TIER_HIT : TIER_MISS);
	assert_int_equal(found[KEYS - 1].tier, TIER_CXL);
	assert_int_equal(tier_match(w->c, key, KEYS, NULL), 3);
	assert_int_equal(tier_counters(w->t, &after), 0);
	assert_int_equal(after.lookups - before.lookups, 2 * KEYS);
	assert_int_equal(after.lookup_hits - before.lookup_hits, 5 + 3);
}

static void test_arguments_of_an_operator(void **state)
{
	static char text[128 << 10];
	struct world *w = *state;
	char *reply;

	memset(text, 'x', sizeof(text) - 1);
	assert_int_equal(tier_admin(w->t, "status", text, &reply), -EINVAL);
	text[32] = '\0';
	assert_int_equal(tier_admin(w->t, text, NULL, &reply), -EINVAL);
	assert_int_equal(tier_admin(w->t, "", NULL, &reply), -EINVAL);
	assert_int_equal(tier_check(w->t), 0); /* and the connection lives on */
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, world_teardown)
	const struct CMUnitTest tests[] = {
		T(test_prefetch_and_migrate), T(test_conversations), T(test_reservations),
		T(test_plans), T(test_matches_behind_a_miss), T(test_arguments_of_an_operator),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
