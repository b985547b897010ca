/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads wait for the memory they go to while a worker backs it, and for nothing else: held ones
 * come out in order, each as soon as the last area it touches is there. Punches wait likewise.
 */
#include "tests/lib/unit.h"
#include "tierd/prepare.h"
#include "tierd/worker.h"

static struct prepare p;
static uint8_t *const memory = (uint8_t *)0x200000000; /* never touched */

static struct core_io *read_at(struct core_io *io, uint64_t first, uint64_t second)
{
	*io = (struct core_io){ .piece_count = 2 };
	io->piece[0] = (struct core_io_piece){ .addr = memory + first, .bytes = 65536 };
	io->piece[1] = (struct core_io_piece){ .addr = memory + second, .bytes = 65536 };
	return io;
}

static int start(void **state)
{
	(void)state;
	p = (struct prepare){ .areas = 0 };
	return 0;
}

static void test_reads_elsewhere_go(void **state)
{
	static struct core_io io;

	(void)state;
	assert_false(prepare_hold(&p, read_at(&io, 0, 65536)));
	assert_true(prepare_begin(&p, memory + PREPARE_AREA));
	assert_false(prepare_hold(&p, read_at(&io, 0, PREPARE_AREA - 65536)));
	assert_false(prepare_hold(&p, read_at(&io, 2 * PREPARE_AREA, 0)));
	assert_true(prepare_hold(&p, read_at(&io, 0, PREPARE_AREA - 65535)));
	assert_null(prepare_release(&p));
	prepare_end(&p, memory + PREPARE_AREA);
	assert_ptr_equal(prepare_release(&p), &io);
	assert_null(prepare_release(&p));
}

static void test_last_byte_of_an_area_waits(void **state)
{
	static struct core_io io;

	(void)state;
	assert_true(prepare_begin(&p, memory));
	assert_true(prepare_hold(&p, read_at(&io, PREPARE_AREA - 1, 4 * PREPARE_AREA)));
	prepare_end(&p, memory + PREPARE_AREA); /* another's: nothing changes */
	assert_null(prepare_release(&p));
	prepare_end(&p, memory);
	assert_ptr_equal(prepare_release(&p), &io);
}

static void test_released_in_order_when_all_is_there(void **state)
{
	static struct core_io io[4];

	(void)state;
	assert_true(prepare_begin(&p, memory));
	assert_true(prepare_begin(&p, memory + PREPARE_AREA));
	assert_true(prepare_hold(&p, read_at(&io[0], 0, PREPARE_AREA)));
	assert_true(prepare_hold(&p, read_at(&io[1], PREPARE_AREA, 2 * PREPARE_AREA)));
	assert_true(prepare_hold(&p, read_at(&io[2], 0, 65536)));
	assert_true(prepare_hold(&p, read_at(&io[3], PREPARE_AREA, PREPARE_AREA + 65536)));
	prepare_end(&p, memory + PREPARE_AREA);
	assert_ptr_equal(prepare_release(&p), &io[1]);
	assert_ptr_equal(prepare_release(&p), &io[3]);
	assert_null(prepare_release(&p));
	prepare_end(&p, memory);
	assert_ptr_equal(prepare_release(&p), &io[0]);
	assert_ptr_equal(prepare_release(&p), &io[2]);
	assert_null(prepare_release(&p));
}

/* More areas than are known: those beyond are backed, too, and nobody waits for them. */
static void test_areas_are_bounded(void **state)
{
	static struct core_io io;
	uint32_t n = 0;

	(void)state;
	while (prepare_begin(&p, memory + n * PREPARE_AREA))
		n++;
	assert_int_equal(n, PREPARE_AREAS_MAX);
	assert_false(prepare_hold(&p, read_at(&io, n * PREPARE_AREA, n * PREPARE_AREA + 65536)));
	prepare_end(&p, memory + n * PREPARE_AREA);
	while (n-- > 0)
		prepare_end(&p, memory + n * PREPARE_AREA);
	assert_int_equal(p.areas, 0);
}

static struct job *punch_of(struct job *job, uint64_t offset, uint64_t bytes)
{
	static const struct mem_region region = { .addr = (void *)0x200000000 };

	*job = (struct job){ .region = &region, .range = { .offset = offset, .bytes = bytes } };
	return job;
}

/* What is backed after it was given back would belong to nobody. */
static void test_punches_wait(void **state)
{
	static struct job job[3];

	(void)state;
	assert_false(prepare_hold_punch(&p, punch_of(&job[0], 0, 4 * PREPARE_AREA)));
	assert_true(prepare_begin(&p, memory + PREPARE_AREA));
	assert_true(prepare_begin(&p, memory + 2 * PREPARE_AREA));
	assert_false(prepare_hold_punch(&p, punch_of(&job[0], 0, PREPARE_AREA)));
	assert_false(prepare_hold_punch(&p, punch_of(&job[0], 3 * PREPARE_AREA, PREPARE_AREA)));
	assert_true(prepare_hold_punch(&p, punch_of(&job[0], 0, 4 * PREPARE_AREA)));
	assert_true(prepare_hold_punch(&p, punch_of(&job[1], PREPARE_AREA, PREPARE_AREA)));
	assert_true(prepare_hold_punch(&p, punch_of(&job[2], 2 * PREPARE_AREA, PREPARE_AREA)));
	assert_null(prepare_release_punch(&p));
	prepare_end(&p, memory + PREPARE_AREA);
	assert_ptr_equal(prepare_release_punch(&p), &job[1]);
	assert_null(prepare_release_punch(&p));
	prepare_end(&p, memory + 2 * PREPARE_AREA);
	assert_non_null(prepare_release_punch(&p));
	assert_non_null(prepare_release_punch(&p));
	assert_null(prepare_release_punch(&p));
}

static void test_punches_are_bounded(void **state)
{
	static struct job job;
	uint32_t n = 0;

	(void)state;
	assert_true(prepare_begin(&p, memory));
	while (prepare_hold_punch(&p, punch_of(&job, 0, PREPARE_AREA)))
		n++;
	assert_int_equal(n, PREPARE_PUNCHES_MAX);
	assert_null(prepare_release_punch(&p));
	prepare_end(&p, memory);
	while (prepare_release_punch(&p))
		n--;
	assert_int_equal(n, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_reads_elsewhere_go, start),
		cmocka_unit_test_setup(test_last_byte_of_an_area_waits, start),
		cmocka_unit_test_setup(test_released_in_order_when_all_is_there, start),
		cmocka_unit_test_setup(test_areas_are_bounded, start),
		cmocka_unit_test_setup(test_punches_wait, start),
		cmocka_unit_test_setup(test_punches_are_bounded, start),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
