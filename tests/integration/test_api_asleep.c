/*
 * A client and a daemon that both slept, through the public API: where they share a processor the
 * loop gives way to whom it woke, once after each sleep; elsewhere it does not.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <jansson.h>
#include <sched.h>

#include "tests/integration/kv_world.h"

#define TRIPS_MAX 20000u /* a minute, about: where others are busy a trip may find nobody asleep */
#define SLEEPS 20u

static int setup(void **state)
{
	*state = world_begin(NULL);
	return 0;
}

struct loop_counts {
	uint64_t sleeps, gave_way;
};

static struct loop_counts counts(const struct world *w)
{
	struct loop_counts now;
	json_t *root, *loop;
	char *reply;

	assert_int_equal(tier_admin(w->t, "stat", NULL, &reply), 0);
	root = json_loads(reply, 0, NULL);
	loop = json_object_get(root, "loop");
	now.sleeps = (uint64_t)json_integer_value(json_object_get(loop, "sleeps"));
	now.gave_way = (uint64_t)json_integer_value(json_object_get(loop, "gave_way"));
	json_decref(root);
	free(reply);
	return now;
}

/* The n-th processor that we may use. */
static void stay_on(pid_t pid, const cpu_set_t *all, int n)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, all) && n-- == 0)
			CPU_SET(cpu, &one);
	assert_int_equal(sched_setaffinity(pid, sizeof(one), &one), 0);
}

/* A request that waits for its answer, after a pause in which the daemon may fall asleep. */
static void trip(const struct world *w)
{
	const tier_key key = { { 1 } };

	usleep(3000);
	assert_int_equal(tier_delete(w->c, &key, 1), 0);
}

static void test_the_loop_gives_way(void **state)
{
	struct world *w = *state;
	struct loop_counts now = { 0 };
	cpu_set_t all;

	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	stay_on(0, &all, 0);
	stay_on(w->d.pid, &all, 0);
	for (uint32_t i = 0; i < TRIPS_MAX && now.gave_way < SLEEPS; i++) {
		trip(w);
		now = counts(w);
		assert_in_range(now.gave_way, 0, now.sleeps);
	}
	assert_in_range(now.gave_way, SLEEPS, UINT64_MAX);
	assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
}

static void test_not_to_others(void **state)
{
	struct world *w = *state;
	struct loop_counts before, now;
	cpu_set_t all;

	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	if (CPU_COUNT(&all) < 2)
		skip();
	stay_on(0, &all, 0);
	stay_on(w->d.pid, &all, 1);
	trip(w);
	before = now = counts(w);
	for (uint32_t i = 0; i < TRIPS_MAX && now.sleeps < before.sleeps + SLEEPS; i++) {
		trip(w);
		now = counts(w);
	}
	assert_in_range(now.sleeps, before.sleeps + SLEEPS, UINT64_MAX);
	assert_int_equal(now.gave_way, before.gave_way);
	assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_the_loop_gives_way, setup, world_end),
		cmocka_unit_test_setup_teardown(test_not_to_others, setup, world_end),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("api asleep", tests, NULL, NULL);
}
