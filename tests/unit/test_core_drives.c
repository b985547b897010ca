/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Of a drive that leaves nothing is waited for: no run of it is free, and no time of its matters.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tierd/core/log/writeback.h"
#include "tierd/core/state.h"
#include "tierd/core/unit/store_priv.h"

static struct core core;
static struct drive drive[2];
static struct store store[2];

static int set_up(void **state)
{
	(void)state;
	memset(&core, 0, sizeof(core));
	memset(drive, 0, sizeof(drive));
	memset(store, 0, sizeof(store));
	core.drives = 2;
	for (uint32_t i = 0; i < 2; i++) {
		core.drive[i] = &drive[i];
		drive[i].store = &store[i];
		for (uint32_t s = 0; s < STORE_STREAMS; s++)
			store[i].open[s] = ABI_SLOT_NONE;
	}
	return 0;
}

static void test_when_one_may_be_written_to_again(void **state)
{
	(void)state;
	drive[0].write_retry_ns = 5;
	drive[1].write_retry_ns = 9;
	assert_int_equal(drives_retry_ns(&core), 5);
	drive[0].leaving = true;
	assert_int_equal(drives_retry_ns(&core), 9);
	drive[1].leaving = true;
	assert_int_equal(drives_retry_ns(&core), UINT64_MAX);
}

static void test_where_a_run_can_begin(void **state)
{
	(void)state;
	assert_true(drives_idle(&core, DISK_LOG_DURABLE));
	for (uint32_t i = CORE_RUN_FIRST(DISK_LOG_DURABLE); i < CORE_RUN_END(DISK_LOG_DURABLE); i++)
		drive[1].run[i].phase = RUN_DATA;
	assert_true(drives_idle(&core, DISK_LOG_DURABLE));
	assert_true(drives_unflushed_room(&core, 1));
	drive[0].leaving = true;
	assert_false(drives_idle(&core, DISK_LOG_DURABLE));
	assert_false(drives_unflushed_room(&core, 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_when_one_may_be_written_to_again, set_up),
		cmocka_unit_test_setup(test_where_a_run_can_begin, set_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
