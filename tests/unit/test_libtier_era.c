/* SPDX-License-Identifier: Apache-2.0 */
/* Eras: what a stream's reader writes into its area, and what it must not after a restart. */
#include "tests/unit/test_libtier_world.h"

#include <tier_kernel.h>

static struct abi_reader *area(struct world *w)
{
	struct fake_client *k = &w->fake->client[0];

	return (struct abi_reader *)((uint8_t *)k->region + k->region->reader_offset);
}

static void test_begins_are_counted(void **state)
{
	struct world *w = *state;
	uint64_t *done, *other;

	assert_int_equal(tier_era_begin(w->r), -EINVAL); /* none is open */
	assert_int_equal(tier_era_open(w->r, NULL), -EINVAL);
	assert_int_equal(tier_era_open(NULL, &done), -EINVAL);
	assert_int_equal(tier_era_open(w->r, &done), 0);
	assert_int_equal(tier_era_open(w->r, &other), -EBUSY);
	assert_int_equal(tier_era_failed(w->r), -EINVAL); /* nothing was announced */
	for (uint64_t n = 1; n < 5; n++) {
		assert_int_equal(tier_era_begin(w->r), 0);
		assert_int_equal(area(w)->era_begin, n);
	}
	*done += 3;
	assert_int_equal(area(w)->era_done, 3);
	/* A launch that failed: the next one has its number. */
	assert_int_equal(tier_era_failed(w->r), 0);
	assert_int_equal(tier_era_failed(w->r), -EINVAL);
	assert_int_equal(tier_era_begin(w->r), 0);
	assert_int_equal(area(w)->era_begin, 4);
	assert_int_equal(tier_era_begin(w->r), 0);
	assert_int_equal(area(w)->era_begin, 5);
}

/* Closing gives back what was never counted; the words go on from there. */
static void test_close_gives_back(void **state)
{
	struct world *w = *state;
	uint64_t *done;

	assert_int_equal(tier_era_open(w->r, &done), 0);
	assert_int_equal(tier_era_begin(w->r), 0);
	assert_int_equal(tier_era_begin(w->r), 0);
	tier_era_close(w->r);
	assert_int_equal(area(w)->era_begin, 2);
	assert_int_equal(area(w)->era_done, 2);
	tier_era_close(w->r); /* again: nothing */
	tier_era_close(NULL);
	assert_int_equal(tier_era_open(w->r, &done), 0);
	assert_int_equal(tier_era_begin(w->r), 0);
	assert_int_equal(area(w)->era_begin, 3);
	tier_reader_close(w->r);
	assert_int_equal(area(w)->era_done, 3);
	assert_int_equal(area(w)->owned, 0);
	/* Another reader in the area. */
	assert_int_equal(tier_reader_open(w->t, &w->r), 0);
	assert_int_equal(tier_era_open(w->r, &done), 0);
	assert_int_equal(*done, 3);
}

/* Whoever closed too soon: the device still counts there. */
static void test_an_area_that_is_behind(void **state)
{
	struct world *w = *state;
	uint64_t *done;

	area(w)->era_begin = 9;
	area(w)->era_done = 8;
	assert_int_equal(tier_era_open(w->r, &done), -EAGAIN);
	area(w)->era_done = 9;
	assert_int_equal(tier_era_open(w->r, &done), 0);
	assert_int_equal(tier_era_begin(w->r), 0);
	assert_int_equal(area(w)->era_begin, 10);
}

/* Graphs have the address of the old word: it stays mapped, and nothing new begins. */
static void test_a_daemon_that_was_replaced(void **state)
{
	struct world *w = *state;
	uint64_t *done, *anew;

	assert_int_equal(tier_era_open(w->r, &done), 0);
	assert_int_equal(tier_era_begin(w->r), 0);
	fake_restart(w->fake);
	assert_int_equal(world_attach(w), 1);
	assert_int_equal(tier_era_begin(w->r), -ESTALE);
	*done += 1;
	assert_int_equal(area(w)->era_begin, 0);
	tier_era_close(w->r);
	assert_int_equal(tier_era_open(w->r, &anew), 0);
	assert_int_equal(tier_era_begin(w->r), 0);
	assert_int_equal(area(w)->era_begin, 1);
	assert_ptr_not_equal(anew, done);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)
	const struct CMUnitTest tests[] = {
		T(test_begins_are_counted),
		T(test_close_gives_back),
		T(test_an_area_that_is_behind),
		T(test_a_daemon_that_was_replaced),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
