/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the deterministic world over a number of seeds; `SIM_SEED=n` runs one and says what it did,
 * `SIM_SEEDS=n` and `SIM_STEPS=n` set how many and how long.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/lib/unit.h"
#include "tests/sim/world.h"

static uint64_t number(const char *name, uint64_t fallback)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 0) : fallback;
}

static void run(uint64_t seed, struct world_options *o)
{
	struct world_result r;

	o->seed = seed;
	world_run(o, &r);
	if (r.failure[0] || getenv("SIM_SEED"))
		print_message("seed %llu: %llu events, %llu commits, %llu fetches, %llu leases, "
			      "%llu crashes, %llu bad reads, %llu evicted, %llu quarantined, "
			      "%llu runs, %llu segments dropped: %s\n",
			      (unsigned long long)seed, (unsigned long long)r.events,
			      (unsigned long long)r.commits, (unsigned long long)r.fetches,
			      (unsigned long long)r.leases, (unsigned long long)r.crashes,
			      (unsigned long long)r.bad_reads, (unsigned long long)r.evicted,
			      (unsigned long long)r.quarantined, (unsigned long long)r.runs,
			      (unsigned long long)r.segments_dropped,
			      r.failure[0] ? r.failure : "held");
	assert_string_equal(r.failure, "");
}

static struct world_options options(void)
{
	return (struct world_options){
		.steps = number("SIM_STEPS", 20000),
		.cxl_bytes = 8u << 20,
		.hbm_bytes = 4u << 20,
		.nvme_bytes = 48u << 20,
	};
}

static void many(uint64_t from, struct world_options *o)
{
	uint64_t one = number("SIM_SEED", 0), n = number("SIM_SEEDS", 40);

	for (uint64_t seed = one ? one : from; seed < (one ? one + 1 : from + n); seed++)
		run(seed, o);
}

static void holds_without_faults(void **state)
{
	struct world_options o = options();

	(void)state;
	many(1, &o);
}

static void holds_with_faults(void **state)
{
	struct world_options o = options();

	(void)state;
	o.read_bad_ppm = 20000;
	o.write_bad_ppm = 10000;
	many(100001, &o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(holds_without_faults),
		cmocka_unit_test(holds_with_faults),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
