/*
 * Asking the kernel for huge pages when it refuses for a moment, or for good. mem_common.c is
 * compiled into this program with a kernel that answers as a test wants it to, so that nothing here
 * depends on what the host gives, nor on time.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <time.h>

#include "libtier/base/time.h"
#include "tests/lib/unit.h"

#define COLLAPSE 25 /* MADV_COLLAPSE, which older headers lack */
#define POPULATE 23

static struct {
	uint32_t refusals; /* so many more calls fail, */
	int error;         /* with this */
	uint32_t asked;
	uint32_t waits;
	uint64_t waited_ns;
	uint32_t populated; /* whole ranges, in small pages */
	bool waits_next;    /* the last call failed: not again at once */
} kernel;

static int kernel_madvise(void *at, size_t bytes, int advice)
{
	if (advice == POPULATE && bytes == 2 << 20) {
		kernel.populated++;
		kernel.waits_next = false;
	}
	if (advice != COLLAPSE)
		return madvise(at, bytes, advice);
	kernel.asked++;
	assert_false(kernel.waits_next);
	if (!kernel.refusals)
		return 0;
	kernel.refusals--;
	kernel.waits_next = true;
	errno = kernel.error;
	return -1;
}

static int kernel_nanosleep(const struct timespec *wait, struct timespec *left)
{
	assert_null(left);
	assert_int_equal(wait->tv_sec, 0);
	assert_true(wait->tv_nsec > 0);
	kernel.waits++;
	kernel.waited_ns += (uint64_t)wait->tv_nsec;
	kernel.waits_next = false;
	return 0;
}

#define madvise kernel_madvise
#define nanosleep kernel_nanosleep
#include "tierd/backend/mem_common.c"

/* Prepares two pieces of a fresh region. */
static void prepare(uint32_t refusals, int error)
{
	struct mem_region region;

	memset(&kernel, 0, sizeof(kernel));
	kernel.refusals = refusals;
	kernel.error = error;
	assert_int_equal(mem_create(&region, "tier-test", 4 * ABI_HUGE), 0);
	assert_int_equal(mem_prepare(&region, ABI_HUGE, 2 * ABI_HUGE), 0);
	assert_int_equal(mem_resident(&region) >= (int64_t)(kernel.populated * ABI_HUGE), 1);
	mem_destroy(&region);
}

static void test_granted(void **state)
{
	(void)state;
	prepare(0, 0);
	assert_int_equal(kernel.asked, 2);
	assert_int_equal(kernel.waits, 0);
	assert_int_equal(kernel.populated, 0);
}

/* Somebody holds a page: that passes, if it is waited for. */
static void test_refused_for_a_moment(void **state)
{
	static const int errors[] = { EAGAIN, EBUSY };

	(void)state;
	for (uint32_t i = 0; i < COUNT(errors); i++)
		for (uint32_t n = 1; n < COLLAPSE_TRIES; n++) {
			prepare(n, errors[i]);
			assert_int_equal(kernel.asked, 2 + n);
			assert_int_equal(kernel.waits, n);
			assert_int_equal(kernel.populated, 0);
		}
}

/* Not for long: other areas wait behind this one, and small pages do. */
static void test_refused_all_the_time(void **state)
{
	(void)state;
	prepare(UINT32_MAX, EAGAIN);
	assert_int_equal(kernel.asked, 2 * COLLAPSE_TRIES);
	assert_int_equal(kernel.waits, 2 * (COLLAPSE_TRIES - 1));
	assert_true(kernel.waited_ns < 2 * NS_PER_MS);
	assert_int_equal(kernel.populated, 2);
}

/* A kernel that does not know how, or has no huge page: no use in waiting. */
static void test_refused_for_good(void **state)
{
	static const int errors[] = { EINVAL, ENOMEM, ENOSYS };

	(void)state;
	for (uint32_t i = 0; i < COUNT(errors); i++) {
		prepare(2, errors[i]);
		assert_int_equal(kernel.asked, 2);
		assert_int_equal(kernel.waits, 0);
		assert_int_equal(kernel.populated, 2);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_granted),
		cmocka_unit_test(test_refused_for_a_moment),
		cmocka_unit_test(test_refused_all_the_time),
		cmocka_unit_test(test_refused_for_good),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
