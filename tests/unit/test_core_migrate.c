/*
 * Migrations, in a core with a small host around it: what is pinned stays where it is, and the
 * answer comes at once and says so; what is late is told.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <string.h>

#include "tests/lib/unit.h"
#include "tests/unit/one_host.h"
#include "tierd/core/state.h"

#define BLOCKS 24u
#define NONE 1 /* no answer has come */

static struct abi_cqe last[2]; /* by user_data; ours is 1 */

static void completed(void *arg, uint32_t client, const struct abi_cqe *cqe)
{
	(void)arg;
	(void)client;
	last[cqe->user_data % 2] = *cqe;
}

static struct abi_block_ref ref_of(uint32_t n)
{
	struct abi_block_ref ref;
	uint8_t key[ABI_KEY_BYTES];

	host_key(n, key);
	ref.slot = index_find(&context()->ix, key);
	ref.generation = index_block(&context()->ix, ref.slot)->generation;
	return ref;
}

static uint32_t pages(uint32_t n, uint32_t tier)
{
	return context()->meta[ref_of(n).slot].there[tier].pages;
}

static void put(uint32_t first, uint32_t count)
{
	const struct abi_put_args args = { .count = count };

	assert_int_equal(host_reserve(&host, &args, first, 0), 0);
	assert_true(host_commit(&host, 0));
}

static int begin(void **state)
{
	struct disk_context spec;

	(void)state;
	host_spec(&spec, HOST_KIND_STORE, 0);
	spec.geometry.part[0].layers = 2;
	spec.geometry.part[0].groups = 1;
	one_host_boot(&spec, 2);
	put(0, BLOCKS);
	assert_int_equal(host.answer.value, BLOCKS);
	assert_true(host_settle(&host, 60));
	host.ears.complete = completed;
	return 0;
}

static void ask(uint8_t op, uint8_t tier, uint32_t first, uint32_t count, uint64_t in_ns)
{
	const struct abi_sqe sqe = { .op = op, .tier = tier, .klass = ABI_CLASS_DEADLINE,
				     .deadline_ns = in_ns ? host.now_ns + in_ns : 0,
				     .user_data = 1 };

	last[1] = (struct abi_cqe){ .res = NONE };
	assert_true(host_request_keys(&host, 0, sqe, first, count));
}

/* Two blocks, whole or their first layers; both tiers. */
static void pin(uint32_t tier, uint32_t layers, uint64_t *id)
{
	struct abi_block_ref ref[2] = { ref_of(1), ref_of(2) };
	struct pin_ask of = { .client = 1, .tier = tier, .ctx = context(), .ref = ref,
			      .deadline_ns = UINT64_MAX, .layers = layers, .count = 2 };

	assert_int_equal(pin_take(host.core, &of), 2);
	*id = of.id;
}

/* Blocks 0 to 3 to NVMe: of these two stay, and nobody waits for the end of their pins. */
static void test_what_is_pinned_stays_and_is_not_waited_for(void **state)
{
	(void)state;
	for (uint32_t layers = 0; layers < 2; layers++) {
		uint64_t id;

		ask(ABI_OP_FETCH, ABI_TIER_CXL, 0, 4, 0);
		pin(ABI_TIER_CXL, layers, &id);
		ask(ABI_OP_MIGRATE, ABI_TIER_NVME, 0, 4, 0);
		host_tick(&host, 5 * MS);
		assert_int_equal(last[1].res, 0);
		assert_int_equal(last[1].status, ABI_STATUS_READY);
		assert_int_equal(last[1].value, 2);
		assert_int_equal(pages(0, ABI_TIER_CXL) + pages(3, ABI_TIER_CXL), 0);
		assert_int_equal(pages(1, ABI_TIER_CXL), block_pages(context(), ref_of(1).slot));
		assert_int_equal(pages(2, ABI_TIER_CXL), block_pages(context(), ref_of(2).slot));
		pin_end(host.core, &host.core->pins.table[id % CORE_PINS_MAX]);
	}
	host_audit(&host);
}

/* To CXL is out of HBM. */
static void test_a_migration_leaves_the_tiers_above(void **state)
{
	(void)state;
	ask(ABI_OP_FETCH, ABI_TIER_HBM, 0, 4, 0);
	assert_true(host_settle(&host, 60));
	ask(ABI_OP_MIGRATE, ABI_TIER_CXL, 0, 4, 0);
	assert_true(host_settle(&host, 60));
	assert_int_equal(last[1].res, 0);
	assert_int_equal(last[1].value, 4);
	for (uint32_t n = 0; n < 4; n++) {
		assert_int_equal(pages(n, ABI_TIER_HBM), 0);
		assert_int_equal(pages(n, ABI_TIER_CXL), block_pages(context(), ref_of(n).slot));
	}
	host_audit(&host);
}

/* Blocks leave a tier whole, so part of them is not moved out of one. */
static void test_part_of_a_block_is_not_moved_down(void **state)
{
	(void)state;
	for (uint8_t tier = ABI_TIER_CXL; tier <= ABI_TIER_NVME; tier++) {
		const struct abi_sqe layer = { .op = ABI_OP_MIGRATE, .tier = tier, .user_data = 1,
					       .layer_count = 1 };
		const struct abi_sqe part = { .op = ABI_OP_MIGRATE, .tier = tier, .user_data = 1,
					      .part_count = 1 };

		last[1].res = NONE;
		assert_true(host_request_keys(&host, 0, layer, 0, 4));
		assert_int_equal(last[1].res, -EINVAL);
		last[1].res = NONE;
		assert_true(host_request_keys(&host, 0, part, 0, 4));
		assert_int_equal(last[1].res, -EINVAL);
		assert_int_equal(pages(0, ABI_TIER_CXL), block_pages(context(), ref_of(0).slot));
	}
}

/* What is dirty goes once it is written; at the deadline who asked is told how far it came. */
static void test_a_late_migration_says_so(void **state)
{
	(void)state;
	host.held = true;
	put(BLOCKS, 1);
	host_carry(&host, 0); /* its copy; the write waits in the bag from now on */
	assert_int_equal(pages(BLOCKS, ABI_TIER_CXL), block_pages(context(), ref_of(BLOCKS).slot));
	ask(ABI_OP_MIGRATE, ABI_TIER_NVME, BLOCKS - 2, 3, 5 * MS);
	assert_int_equal(last[1].res, NONE);
	for (uint32_t i = 0; i < 4; i++)
		host_tick(&host, 2 * MS);
	assert_int_equal(last[1].res, 0);
	assert_int_equal(last[1].status, ABI_STATUS_LATE);
	assert_int_equal(last[1].value, 2);
	host.held = false;
	host_carry_all(&host);
}

/* Those that are there go all the same; who asked learns that one is not. */
static void test_a_block_that_is_not_there_is_told(void **state)
{
	(void)state;
	ask(ABI_OP_MIGRATE, ABI_TIER_NVME, BLOCKS - 2, 3, 0);
	host_tick(&host, 5 * MS);
	assert_int_equal(last[1].res, 0);
	assert_int_equal(last[1].status, ABI_STATUS_MISS);
	assert_int_equal(last[1].value, 2);
	assert_int_equal(pages(BLOCKS - 1, ABI_TIER_CXL), 0);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, begin, one_host_off)
	const struct CMUnitTest tests[] = {
		CASE(test_what_is_pinned_stays_and_is_not_waited_for),
		CASE(test_a_migration_leaves_the_tiers_above),
		CASE(test_part_of_a_block_is_not_moved_down),
		CASE(test_a_late_migration_says_so),
		CASE(test_a_block_that_is_not_there_is_told),
	};

	return cmocka_run_group_tests_name("migrate", tests, one_host, NULL);
}
