/*
 * Foresight through the public API, against a live daemon: a prefetch holds no bytes until it is
 * due and is there in time; migration moves blocks down and up; every byte brought ahead is
 * accounted.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <jansson.h>

#define BLOCKS 16u
#define PARK_NS (700 * NS_PER_MS)
#define WORLD_MORE                                                                                 \
	tier_key key[BLOCKS];                                                                      \
	tier_block block[BLOCKS];

#include "tests/integration/kv_world.h"

static uint8_t byte_of(uint32_t n, uint32_t page)
{
	return (uint8_t)(n * 11 + page * 3 + 5);
}

/* Puts the blocks, so that each test finds them, clean and in memory. */
static void put_all(struct world *w)
{
	static uint8_t data[BLOCKS * BLOCK_BYTES];
	struct tier_put_options o = { .size = sizeof(o), .flags = TIER_PUT_DURABLE };
	struct tier_found found[BLOCKS];
	uint32_t tokens[BLOCKS];

	for (uint32_t i = 0; i < BLOCKS; i++)
		tokens[i] = 7000 + i;
	assert_int_equal(tier_key_chain(w->key, NULL, NULL, tokens, BLOCKS, 1), 0);
	for (uint32_t i = 0; i < BLOCKS * 6; i++)
		memset(data + i * 4096, byte_of(i / 6, i % 6), 4096);
	if (tier_put_copy(w->c, w->key, BLOCKS, data, &o) != BLOCKS)
		fail_msg("%s", tier_error_text());
	assert_int_equal(tier_match(w->c, w->key, BLOCKS, found), BLOCKS);
	for (uint32_t i = 0; i < BLOCKS; i++)
		w->block[i] = found[i].block;
}

static int setup(void **state)
{
	static const char *const settings[] = { "hbm.size=2MiB", NULL };

	*state = world_begin(settings);
	put_all(*state);
	return 0;
}

/* ---- what the daemon and the index say ------------------------------------------------------- */

static uint64_t metric(struct world *w, const char *name)
{
	uint64_t value = UINT64_MAX;
	json_t *root, *one;
	char *reply;
	size_t i;

	assert_int_equal(tier_admin(w->t, "stat", NULL, &reply), 0);
	root = json_loads(reply, 0, NULL);
	json_array_foreach(json_object_get(root, "metrics"), i, one)
		if (!strcmp(json_string_value(json_object_get(one, "name")), name))
			value = (uint64_t)json_integer_value(json_object_get(one, "value"));
	json_decref(root);
	free(reply);
	assert_true(value != UINT64_MAX);
	return value;
}

/* Blocks that lie whole in memory. */
static uint32_t in_memory(struct world *w)
{
	struct tier_found found[BLOCKS];
	uint32_t n = 0;

	assert_int_equal(tier_match(w->c, w->key, BLOCKS, found), BLOCKS);
	for (uint32_t i = 0; i < BLOCKS; i++)
		n += found[i].tier == TIER_CXL || found[i].tier == TIER_HBM;
	return n;
}

static struct tier_completion one_completion(struct world *w)
{
	struct tier_completion c;

	assert_int_equal(tier_wait(w->t, &c, 1, 1, LONG_NS), 1);
	return c;
}

/* Blocks that an earlier prefetch still protects stay for a moment. */
static void migrate(struct world *w, uint32_t level)
{
	struct tier_ask ask = { .size = sizeof(ask), .tier = level, .user_data = 3 };
	struct tier_completion c = { .value = 0 };

	for (uint32_t i = 0; i < PATIENCE_MS / 10 && c.value < BLOCKS; i++) {
		usleep(i ? 10000 : 0);
		ask.deadline_ns = time_now_ns() + 60 * NS_PER_S;
		assert_int_equal(tier_migrate(w->c, w->block, BLOCKS, &ask), 0);
		c = one_completion(w);
		assert_int_equal(c.result, 0);
		assert_int_equal(c.status, TIER_READY);
	}
	assert_int_equal(c.value, BLOCKS);
}

static void read_all(struct world *w)
{
	struct tier_lease lease;

	for (uint32_t i = 0; i < BLOCKS * 6; i++) {
		assert_int_equal(tier_lease_page(w->r, w->c, w->block[i / 6], i % 6, 0, &lease), 0);
		assert_int_equal(((const uint8_t *)lease.data)[77], byte_of(i / 6, i % 6));
		tier_release(w->r, &lease);
	}
}

/* ---- prefetch -------------------------------------------------------------------------------- */

static uint64_t patience_ends_ns(void)
{
	return time_now_ns() + PATIENCE_MS * NS_PER_MS;
}

/*
 * A prefetch for some time from now. *before: bytes brought ahead; *late: a third of the time later
 * it had cost nothing.
 */
static struct tier_completion prefetch(struct world *w, struct tier_ask *ask, uint64_t wait_ns,
				       uint64_t *before, bool *late)
{
	migrate(w, TIER_NVME);
	assert_int_equal(in_memory(w), 0);
	*before = metric(w, "prefetch_bytes");
	ask->deadline_ns = time_now_ns() + wait_ns;
	assert_int_equal(tier_prefetch(w->c, w->block, BLOCKS, ask), 0);
	usleep((useconds_t)(wait_ns / 3000));
	*late = in_memory(w) == 0 && metric(w, "prefetch_bytes") == *before;
	return one_completion(w);
}

/* Readers' logs are looked at now and then while something is staged. */
static void wait_until_used(struct world *w, uint64_t bytes)
{
	for (uint32_t i = 0; i < PATIENCE_MS / 10 && metric(w, "prefetch_used") < bytes; i++)
		usleep(10000);
	assert_int_equal(metric(w, "prefetch_used"), bytes);
}

static void test_a_prefetch_costs_nothing_until_it_is_due(void **state)
{
	struct world *w = *state;
	struct tier_ask ask = { .size = sizeof(ask), .tier = TIER_CXL, .user_data = 9 };
	uint64_t before = 0, brought = 0, used = 0, wait_ns = PARK_NS, end_ns = patience_ends_ns();
	struct tier_completion c = { .status = TIER_LATE };
	bool late = false;

	/*
	 * It begins late on purpose: where the device is crowded or the machine is taken away
	 * meanwhile, too late, time and again; or, as the bandwidth seen there was low, or as what
	 * came too late is still on its way, early, or with less to bring. The more time there is,
	 * the less the latter matters.
	 */
	while ((c.status == TIER_LATE || !late || brought < BLOCKS * BLOCK_BYTES) &&
	       time_now_ns() < end_ns) {
		used = metric(w, "prefetch_used");
		c = prefetch(w, &ask, wait_ns, &before, &late);
		brought = metric(w, "prefetch_bytes") - before;
		wait_ns += late ? 0 : PARK_NS / 2;
	}
	assert_true(late);
	assert_int_equal(c.user_data, 9);
	assert_int_equal(c.result, 0);
	assert_int_equal(c.status, TIER_READY);
	assert_int_equal(c.value, BLOCKS);
	assert_int_equal(c.aux, BLOCKS);
	assert_int_equal(in_memory(w), BLOCKS);
	assert_int_equal(brought, BLOCKS * BLOCK_BYTES);
	read_all(w);
	wait_until_used(w, used + BLOCKS * BLOCK_BYTES);
}

static void test_a_prefetch_is_cancelled_before_it_is_due(void **state)
{
	struct world *w = *state;
	struct tier_ask ask = { .size = sizeof(ask), .tier = TIER_CXL, .user_data = 10 };
	uint64_t before = metric(w, "prefetch_bytes");
	struct tier_completion c;

	migrate(w, TIER_NVME);
	ask.deadline_ns = time_now_ns() + 60 * NS_PER_S;
	assert_int_equal(tier_prefetch(w->c, w->block, BLOCKS, &ask), 0);
	assert_int_equal(tier_cancel(w->t, 10), 0);
	c = one_completion(w);
	assert_int_equal(c.result, -ECANCELED);
	assert_int_equal(metric(w, "prefetch_bytes"), before);
	ask.deadline_ns = time_now_ns() + 3600 * NS_PER_S;
	assert_int_equal(tier_prefetch(w->c, w->block, BLOCKS, &ask), 0);
	assert_int_equal(one_completion(w).status, TIER_DROPPED);
}

static void test_without_a_deadline_it_begins_at_once(void **state)
{
	struct world *w = *state;
	struct tier_completion c;

	migrate(w, TIER_NVME);
	assert_int_equal(tier_prefetch(w->c, w->block, BLOCKS, NULL), 0);
	c = one_completion(w);
	assert_int_equal(c.value, BLOCKS);
	assert_int_equal(c.aux, 0);
	assert_int_equal(in_memory(w), BLOCKS);
}

static void test_too_many_prefetches_are_not_taken(void **state)
{
	struct world *w = *state;
	struct tier_ask ask = { .size = sizeof(ask), .tier = TIER_CXL, .user_data = 20 };
	uint32_t dropped = 0;

	ask.deadline_ns = time_now_ns() + 60 * NS_PER_S;
	for (uint32_t i = 0; i < 70; i++)
		assert_int_equal(tier_prefetch(w->c, w->block, 1, &ask), 0);
	for (uint32_t i = 0; i < 6; i++)
		dropped += one_completion(w).status == TIER_DROPPED;
	assert_int_equal(dropped, 6);
	assert_int_equal(tier_cancel(w->t, 20), 0);
	for (uint32_t i = 0; i < 64; i++)
		assert_int_equal(one_completion(w).result, -ECANCELED);
}

/* ---- conversations --------------------------------------------------------------------------- */

static struct tier_completion conversation(struct world *w, uint32_t event,
					   const struct tier_conversation_options *o)
{
	if (tier_conversation(w->c, 77, event, o))
		fail_msg("%s", tier_error_text());
	return one_completion(w);
}

/* All blocks. */
static void wait_until_here(struct world *w)
{
	for (uint32_t i = 0; i < PATIENCE_MS / 10 && in_memory(w) < BLOCKS; i++)
		usleep(10000);
	assert_int_equal(in_memory(w), BLOCKS);
}

/* One turn's end and return; true: a third of the time between them later nothing was staged. */
static bool turn_is_late(struct world *w, uint64_t wait_ns)
{
	struct tier_conversation_options o = { .size = sizeof(o), .tier = TIER_CXL, .count = BLOCKS,
					       .blocks = w->block, .user_data = 5 };
	struct tier_completion c;
	bool late;

	migrate(w, TIER_NVME);
	o.return_ns = time_now_ns() + wait_ns;
	c = conversation(w, TIER_CONVERSATION_TURN_END, &o);
	assert_int_equal(c.result, 0);
	assert_int_equal(c.value, BLOCKS);
	usleep((useconds_t)(wait_ns / 3000));
	late = in_memory(w) == 0;
	wait_until_here(w);
	c = conversation(w, TIER_CONVERSATION_RETURN, NULL);
	assert_int_equal(c.status, TIER_READY);
	assert_int_equal(c.value, BLOCKS);
	assert_int_equal(c.aux, 2);
	read_all(w);
	assert_int_equal(conversation(w, TIER_CONVERSATION_CLOSE, NULL).result, 0);
	return late;
}

/* As with prefetches: where its device was slow, or the machine is crowded, with more time. */
static void test_a_conversation_is_staged_for_its_return(void **state)
{
	struct world *w = *state;
	uint64_t wait_ns = PARK_NS, end_ns = patience_ends_ns();
	bool late = false;

	while (!late && time_now_ns() < end_ns) {
		late = turn_is_late(w, wait_ns);
		wait_ns += PARK_NS / 2;
	}
	assert_true(late);
	assert_int_equal(conversation(w, TIER_CONVERSATION_CLOSE, NULL).result, -ENOENT);
	assert_int_equal(conversation(w, TIER_CONVERSATION_RETURN, NULL).status, TIER_MISSED);
}

static void test_an_early_return_is_late_and_served(void **state)
{
	struct world *w = *state;
	struct tier_conversation_options o = { .size = sizeof(o), .tier = TIER_CXL, .count = BLOCKS,
					       .blocks = w->block, .user_data = 5 };

	migrate(w, TIER_NVME);
	o.return_ns = time_now_ns() + 30 * NS_PER_S;
	assert_int_equal(conversation(w, TIER_CONVERSATION_TURN_END, &o).result, 0);
	assert_int_equal(conversation(w, TIER_CONVERSATION_RETURN, NULL).status, TIER_LATE);
	wait_until_here(w);
	assert_int_equal(conversation(w, TIER_CONVERSATION_CLOSE, NULL).result, 0);
}

static void test_who_closes_leaves_nothing_staged(void **state)
{
	struct world *w = *state;
	struct tier_conversation_options o = { .size = sizeof(o), .tier = TIER_CXL, .count = BLOCKS,
					       .blocks = w->block, .user_data = 5 };

	migrate(w, TIER_NVME);
	o.return_ns = time_now_ns() + 100 * NS_PER_MS;
	assert_int_equal(conversation(w, TIER_CONVERSATION_TURN_END, &o).result, 0);
	wait_until_here(w);
	assert_int_equal(conversation(w, TIER_CONVERSATION_CLOSE, NULL).result, 0);
	for (uint32_t i = 0; i < PATIENCE_MS / 10 && in_memory(w); i++)
		usleep(10000); /* what is still moving lands first */
	assert_int_equal(in_memory(w), 0);
}

/* ---- plans ----------------------------------------------------------------------------------- */

static void read_block(struct world *w, uint32_t n)
{
	struct tier_page page[6];
	struct tier_lease lease[6];

	for (uint32_t i = 0; i < 6; i++)
		page[i] = (struct tier_page){ w->block[n], i };
	assert_int_equal(tier_read_pages(w->r, w->c, page, 6, 0, lease), 6);
	assert_int_equal(((const uint8_t *)lease[3].data)[5], byte_of(n, 3));
	tier_release_many(w->r, lease, 6);
}

/* A reader that is faster than the device would ask for what the plan is bringing. */
static void wait_until_brought(struct world *w, uint32_t n)
{
	struct tier_found found[BLOCKS];

	for (uint32_t i = 0; i < PATIENCE_MS; i++) {
		assert_int_equal(tier_match(w->c, w->key, BLOCKS, found), BLOCKS);
		if (found[n].tier == TIER_CXL)
			return;
		usleep(1000);
	}
	fail_msg("the plan does not bring block %u", n);
}

static void test_a_plan_is_ahead_of_its_reader(void **state)
{
	struct world *w = *state;
	struct tier_access access[4 * BLOCKS];
	struct tier_plan_options o = { .size = sizeof(o), .tier = TIER_CXL };
	uint64_t loads = metric(w, "plan_loads"), reads = metric(w, "fetch_pages"), planned;
	struct tier_plan *p;

	migrate(w, TIER_NVME);
	for (uint32_t i = 0; i < 4 * BLOCKS; i++)
		access[i] = (struct tier_access){ .block = w->block[i % BLOCKS] };
	if (tier_plan_begin(w->c, access, 4 * BLOCKS, &o, &p))
		fail_msg("%s", tier_error_text());
	for (uint32_t i = 0; i < 4 * BLOCKS; i++) {
		usleep(4000);
		wait_until_brought(w, i % BLOCKS);
		read_block(w, i % BLOCKS);
		tier_plan_advance(p, i + 1);
	}
	tier_plan_end(p);
	assert_int_equal(metric(w, "plan_loads") - loads, BLOCKS);
	/* Each page was asked for once, by the plan: the reader found it there. */
	planned = metric(w, "fetch_pages") - reads;
	assert_in_range(planned, BLOCKS * 6, BLOCKS * 6 + 2 * 6);
	assert_int_equal(metric(w, "plans_wrong"), 0);
}

static void test_a_wrong_plan_is_given_up(void **state)
{
	struct world *w = *state;
	struct tier_access access[400];
	struct tier_plan_options o = { .size = sizeof(o), .tier = TIER_CXL };
	struct tier_plan *p;

	migrate(w, TIER_NVME);
	for (uint32_t i = 0; i < 400; i++)
		access[i] = (struct tier_access){ .block = w->block[i % 40 < 20 ? i % 8 : 8] };
	o.budget_bytes = 2 * BLOCK_BYTES;
	o.access_ns = NS_PER_MS;
	assert_int_equal(tier_plan_begin(w->c, access, 400, &o, &p), 0);
	for (uint32_t i = 0; i < 400 && !metric(w, "plans_wrong"); i++) {
		usleep(2000);
		tier_plan_advance(p, i + 1); /* and reads none of them */
	}
	assert_int_equal(metric(w, "plans_wrong"), 1);
	tier_plan_advance(p, UINT32_MAX); /* nonsense hurts nobody */
	usleep(30000);
	read_block(w, 9);
	tier_plan_end(p);
}

static void test_plans_have_limits(void **state)
{
	struct world *w = *state;
	struct tier_access one = { .block = w->block[0] };
	struct tier_plan_options o = { .size = sizeof(o), .tier = TIER_CXL };
	struct tier_plan *a, *b, *c = NULL;

	assert_int_equal(tier_plan_begin(w->c, &one, 1, NULL, &a), 0);
	assert_int_equal(tier_plan_begin(w->c, &one, 1, NULL, &b), 0);
	assert_int_equal(tier_plan_begin(w->c, &one, 1, NULL, &c), -ENOBUFS);
	assert_null(c);
	tier_plan_end(a);
	o.budget_bytes = UINT64_MAX;
	assert_int_equal(tier_plan_begin(w->c, &one, 1, &o, &c), -EINVAL);
	tier_plan_end(b);
	tier_plan_end(NULL);
}

/* ---- migrate, refusals ----------------------------------------------------------------------- */

static void test_blocks_go_down_and_up(void **state)
{
	struct world *w = *state;

	migrate(w, TIER_NVME);
	assert_int_equal(in_memory(w), 0);
	migrate(w, TIER_HBM);
	assert_int_equal(in_memory(w), BLOCKS);
	read_all(w);
	migrate(w, TIER_CXL);
	usleep(20000);
	assert_int_equal(in_memory(w), BLOCKS);
	read_all(w);
}

static void test_a_pinned_block_stays(void **state)
{
	struct world *w = *state;
	struct tier_ask ask = { .size = sizeof(ask), .tier = TIER_NVME, .user_data = 4 };
	struct tier_completion c;
	uint64_t pin;

	migrate(w, TIER_CXL);
	assert_int_equal(tier_pin(w->c, w->block, 2, TIER_CXL, 0, &pin), 2);
	assert_int_equal(tier_migrate(w->c, w->block, BLOCKS, &ask), 0);
	c = one_completion(w);
	assert_int_equal(c.user_data, 4);
	assert_int_equal(c.result, 0);
	assert_int_equal(c.status, TIER_READY);
	assert_int_equal(c.value, BLOCKS - 2);
	assert_int_equal(in_memory(w), 2);
	assert_int_equal(tier_unpin(w->c, pin), 0);
}

static void test_wrong_asks_are_refused(void **state)
{
	struct world *w = *state;
	struct tier_ask ask = { .size = sizeof(ask), .tier = TIER_NVME };

	assert_int_equal(tier_prefetch(w->c, w->block, 0, NULL), -EINVAL);
	assert_int_equal(tier_prefetch(w->c, NULL, 3, NULL), -EINVAL);
	assert_int_equal(tier_prefetch(w->c, w->block, 1, &ask), -EINVAL);
	ask.tier = TIER_REMOTE;
	assert_int_equal(tier_migrate(w->c, w->block, 1, &ask), -EINVAL);
	ask.tier = TIER_CXL;
	ask.klass = 7;
	assert_int_equal(tier_prefetch(w->c, w->block, 1, &ask), -EINVAL);
	assert_int_equal(tier_conversation(w->c, 1, 0, NULL), -EINVAL);
	assert_int_equal(tier_conversation(w->c, 1, TIER_CONVERSATION_TURN_END, NULL), -EINVAL);
	assert_int_equal(tier_conversation(w->c, 1, TIER_CONVERSATION_CLOSE + 1, NULL), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_prefetch_costs_nothing_until_it_is_due),
		cmocka_unit_test(test_a_prefetch_is_cancelled_before_it_is_due),
		cmocka_unit_test(test_without_a_deadline_it_begins_at_once),
		cmocka_unit_test(test_too_many_prefetches_are_not_taken),
		cmocka_unit_test(test_a_conversation_is_staged_for_its_return),
		cmocka_unit_test(test_an_early_return_is_late_and_served),
		cmocka_unit_test(test_who_closes_leaves_nothing_staged),
		cmocka_unit_test(test_a_plan_is_ahead_of_its_reader),
		cmocka_unit_test(test_a_wrong_plan_is_given_up),
		cmocka_unit_test(test_plans_have_limits),
		cmocka_unit_test(test_blocks_go_down_and_up),
		cmocka_unit_test(test_a_pinned_block_stays),
		cmocka_unit_test(test_wrong_asks_are_refused),
	};

	return cmocka_run_group_tests(tests, setup, world_end);
}
