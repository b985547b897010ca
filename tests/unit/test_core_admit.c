/*
 * Admission: what the policy does not admit is never written and leaves with its place in CXL; what
 * is used, wanted by a durable put or told to move to NVMe is written after all; a child never
 * without its parent. The policy admits what was used since it came.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tests/lib/twice.h"
#include "tests/lib/unit.h"
#include "tests/unit/one_host.h"
#include "tierd/core/state.h"

static const struct core_metrics *metrics(void)
{
	return core_metrics(host.core);
}

static uint32_t persist_of(uint32_t n)
{
	uint32_t slot = slot_of(n);

	assert_int_not_equal(slot, ABI_SLOT_NONE);
	return context()->meta[slot].persist;
}

/* Blocks [first, first + count) of one prompt, behind block first - 1 of it if depth is not 0. */
static void put(uint32_t first, uint32_t count, uint32_t depth, uint16_t flags, uint8_t priority)
{
	struct abi_put_args args = { .count = count, .depth = depth, .priority = priority };

	if (depth)
		host_key(first - 1, args.parent);
	assert_int_equal(host_reserve(&host, &args, first, flags), 0);
	assert_true(host_commit(&host, flags));
	host_settle(&host, 40);
	assert_int_equal(host.answer.res, 0);
}

static void use(uint32_t n)
{
	struct abi_reader *r = host.client[0].readers;

	r->access[r->access_tail++ % ABI_ACCESS_LOG] = abi_access(context()->id, slot_of(n), 1);
	evict_drain_logs(host.core);
	host_settle(&host, 40);
}

static void audited(void **state)
{
	(void)state;
	host_audit(&host);
}

static int setup(void **state)
{
	struct disk_context spec;

	(void)state;
	host_spec(&spec, HOST_KIND_STORE, 0);
	one_host_boot(&spec, 1);
	assert_true(twice_use(host.core->context[0]));
	return 0;
}

static void test_what_is_refused_is_not_written(void **state)
{
	uint64_t written = metrics()->blocks_written;

	put(0, 6, 0, 0, 0);
	for (uint32_t n = 0; n < 6; n++)
		assert_int_equal(persist_of(n), PERSIST_REFUSED);
	assert_int_equal(metrics()->blocks_written, written);
	assert_int_equal(metrics()->admission_refused, 6);
	assert_int_equal(context()->refused, 6);
	assert_int_equal(context()->dirty_bytes, 0);
	audited(state);
}

static void test_a_use_is_asked_about_anew(void **state)
{
	put(0, 4, 0, 0, 0);
	use(0);
	use(1);
	assert_int_equal(persist_of(0), PERSIST_CLEAN);
	assert_int_equal(persist_of(1), PERSIST_CLEAN);
	assert_int_equal(persist_of(2), PERSIST_REFUSED);
	assert_int_equal(metrics()->admission_again, 2);
	audited(state);
}

static void test_no_child_without_its_parent(void **state)
{
	put(0, 4, 0, 0, 0);
	use(2);
	assert_int_equal(persist_of(2), PERSIST_REFUSED); /* block 1 was not used */
	use(0);
	use(1);
	use(2);
	assert_int_equal(persist_of(2), PERSIST_CLEAN);
	assert_int_equal(persist_of(3), PERSIST_REFUSED);
	audited(state);
}

static void test_a_durable_put_writes_it(void **state)
{
	put(0, 4, 0, 0, 0);
	put(0, 4, 0, ABI_SQE_DURABLE, 0);
	for (uint32_t n = 0; n < 4; n++) {
		assert_int_equal(persist_of(n), PERSIST_CLEAN);
		assert_true(context()->meta[slot_of(n)].flags & BLOCK_DURABLE);
	}
	assert_int_equal(context()->refused, 0);
	audited(state);
}

/* One of two puts of a block wants it durable: it is written once, whichever ends first. */
static void test_a_durable_put_under_way_writes_it(void **state)
{
	const struct abi_put_args args = { .count = 1 };
	struct abi_cqe plain, durable;

	assert_int_equal(host_reserve(&host, &args, 0, 0), 0);
	plain = host.answer;
	assert_int_equal(host_reserve(&host, &args, 0, ABI_SQE_DURABLE), 0);
	durable = host.answer;
	host.answer = plain;
	assert_true(host_commit(&host, 0));
	assert_true(host_settle(&host, 60));
	assert_int_equal(persist_of(0), PERSIST_CLEAN);
	assert_int_equal(metrics()->blocks_written, 1);
	host.answer = durable;
	assert_true(host_commit(&host, ABI_SQE_DURABLE));
	assert_int_equal(one_host_answer(), 0);
	assert_int_equal(metrics()->blocks_written, 1);
	audited(state);
}

static void test_priority_writes_it(void **state)
{
	put(0, 4, 0, 0, ABI_PRIORITY_HIGH);
	for (uint32_t n = 0; n < 4; n++)
		assert_int_equal(persist_of(n), PERSIST_CLEAN);
	audited(state);
}

static int32_t to_nvme(uint32_t first, uint32_t count)
{
	const struct abi_sqe sqe = { .op = ABI_OP_MIGRATE, .tier = ABI_TIER_NVME,
				     .klass = ABI_CLASS_DEADLINE,
				     .deadline_ns = host.now_ns + 10000 * MS };

	host.answer.res = 1;
	assert_true(host_request_keys(&host, 0, sqe, first, count));
	return one_host_answer();
}

/* Told to move to NVMe: written, and gone from CXL. */
static void test_moving_to_nvme_writes_it(void **state)
{
	put(0, 2, 0, 0, 0);
	assert_int_equal(to_nvme(0, 2), 0);
	assert_int_equal(host.answer.value, 2);
	for (uint32_t n = 0; n < 2; n++) {
		assert_int_equal(persist_of(n), PERSIST_CLEAN);
		assert_int_equal(context()->meta[slot_of(n)].there[ABI_TIER_CXL].pages, 0);
	}
	audited(state);
}

/* Its salt has promises for all that it may have there: the others stay, and who asked is told. */
static void test_over_a_limit_of_nvme_it_stays(void **state)
{
	const struct core_quota q = { .who = CORE_HOLDER_SALT, .context_id = host.context[0].id,
				      .tier = ABI_TIER_NVME,
				      .limit = { 0, 3 * context()->spec.geometry.block_bytes } };

	assert_int_equal(core_quota_set(host.core, &q, 1), 0);
	host_look(&host);
	put(0, 3, 0, ABI_SQE_DURABLE, 0);
	put(10, 3, 0, 0, 0);
	assert_int_equal(to_nvme(10, 3), -EDQUOT);
	assert_int_equal(host.answer.value, 0);
	for (uint32_t n = 10; n < 13; n++)
		assert_int_equal(context()->meta[slot_of(n)].there[ABI_TIER_CXL].pages,
				 block_pages(context(), slot_of(n)));
	audited(state);
}

/* The same where the context may have no more. */
static void test_without_room_on_nvme_it_stays(void **state)
{
	put(0, 3, 0, ABI_SQE_DURABLE, 0);
	context()->plan.quota[ABI_TIER_NVME] = 3 * context()->spec.geometry.block_bytes;
	put(10, 2, 0, 0, 0);
	assert_int_equal(to_nvme(10, 2), -ENOSPC);
	assert_int_equal(host.answer.value, 0);
	for (uint32_t n = 10; n < 12; n++)
		assert_int_equal(persist_of(n), PERSIST_REFUSED);
	audited(state);
}

static void test_an_evicted_one_is_gone(void **state)
{
	put(0, 6, 0, 0, 0);
	assert_int_equal(core_evict(host.core, context()->id, ABI_TIER_CXL, 1u << 20, 0), 0);
	host_settle(&host, 40);
	for (uint32_t n = 0; n < 6; n++)
		assert_int_equal(slot_of(n), ABI_SLOT_NONE);
	assert_int_equal(metrics()->admission_lost, 6);
	assert_int_equal(context()->refused, 0);
	audited(state);
}

static void test_the_operator_may_write_all(void **state)
{
	host.core->config.admit_all = true;
	put(0, 6, 0, 0, 0);
	for (uint32_t n = 0; n < 6; n++)
		assert_int_equal(persist_of(n), PERSIST_CLEAN);
	assert_int_equal(metrics()->admission_refused, 0);
	audited(state);
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, setup, one_host_off)

int main(void)
{
	const struct CMUnitTest tests[] = {
		EACH(test_what_is_refused_is_not_written),
		EACH(test_a_use_is_asked_about_anew),
		EACH(test_no_child_without_its_parent),
		EACH(test_a_durable_put_writes_it),
		EACH(test_a_durable_put_under_way_writes_it),
		EACH(test_priority_writes_it),
		EACH(test_moving_to_nvme_writes_it),
		EACH(test_over_a_limit_of_nvme_it_stays),
		EACH(test_without_room_on_nvme_it_stays),
		EACH(test_an_evicted_one_is_gone),
		EACH(test_the_operator_may_write_all),
	};

	return cmocka_run_group_tests(tests, one_host, NULL);
}
