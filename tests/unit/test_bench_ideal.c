/*
 * The least wait of users whose returns nobody knows (bench/model/ideal.c): where all is in memory
 * it is that of the conversations themselves, and with less memory it is more.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "bench/model/ideal.h"
#include "tests/lib/unit.h"

#define GIB (1ull << 30)

/* 2 GiB of prefixes; a layer takes 2 ms to read and 1 ms to compute. */
static struct talk_spec spec_of(uint64_t cxl_bytes, bool heavy)
{
	return (struct talk_spec){ .host = { .cxl_bytes = cxl_bytes,
					     .nvme_bytes = 8 * GIB,
					     .layers = 16,
					     .page_bytes = 1u << 20,
					     .read_gbps = 4,
					     .write_gbps = 4,
					     .copy_gbps = 20,
					     .latency_ns = 80000 },
				   .users = 16,
				   .blocks = 8,
				   .turns = 4,
				   .seed = 5,
				   .heavy = heavy,
				   .think_s = 0.5,
				   .sigma = heavy ? 1.2 : 0.6,
				   .think_most_s = 10,
				   .layer_ns = 1000000 };
}

static double least_ms(uint64_t cxl_bytes, bool heavy)
{
	const struct talk_spec spec = spec_of(cxl_bytes, heavy);
	double p95_ns = 0;

	assert_int_equal(ideal_run(&spec, &p95_ns), 0);
	return p95_ns / 1e6;
}

static void test_with_all_in_memory_it_is_what_users_wait(void **state)
{
	(void)state;
	for (uint32_t heavy = 0; heavy < 2; heavy++) {
		struct talk_spec spec = spec_of(4 * GIB, heavy);
		struct talk_result whole;
		double least = least_ms(4 * GIB, heavy);

		assert_int_equal(talk_run(&spec, &whole), 0);
		assert_true(whole.p95_ns / 1e6 > least - 0.01 && whole.p95_ns / 1e6 < least + 0.01);
	}
}

static void test_with_less_memory_it_is_more(void **state)
{
	(void)state;
	for (uint32_t heavy = 0; heavy < 2; heavy++) {
		assert_true(least_ms(0, heavy) > 1.5 * least_ms(4 * GIB, heavy));
		assert_true(least_ms(GIB / 4, heavy) > 1.01 * least_ms(4 * GIB, heavy));
		assert_true(least_ms(GIB / 4, heavy) < 0.99 * least_ms(0, heavy));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_with_all_in_memory_it_is_what_users_wait),
		cmocka_unit_test(test_with_less_memory_it_is_more),
	};

	return cmocka_run_group_tests_name("ideal", tests, NULL, NULL);
}
