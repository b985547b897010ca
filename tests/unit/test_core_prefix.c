/*
 * Whole prefixes under pressure. In memory alone, where who leaves is gone, the default policy lets
 * no block of a prompt go before those that hang below it, whatever was used in between. And with
 * every policy, over all tiers, no block stays in the service when the one before it has left.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tests/lib/property.h"
#include "tests/lib/unit.h"
#include "tests/unit/one_host.h"
#include "tierd/core/state.h"

#define PROMPTS 80u
#define LENGTH 5u
#define SHARED 2u /* blocks at the front that a prompt shares with the one before it */

/* Every other prompt goes on behind the first blocks of the one before it. */
static void key_of(uint32_t prompt, uint32_t depth, uint8_t key[ABI_KEY_BYTES])
{
	uint32_t n = (prompt % 2 && depth < SHARED ? prompt - 1 : prompt) * LENGTH + depth + 1;

	memset(key, 0, ABI_KEY_BYTES);
	memcpy(key, &n, sizeof(n));
	n *= 2654435761u;
	memcpy(key + 4, &n, sizeof(n));
}

static uint32_t slot_at(uint32_t prompt, uint32_t depth)
{
	uint8_t key[ABI_KEY_BYTES];

	key_of(prompt, depth, key);
	return index_find(&context()->ix, key);
}

static void put(uint32_t prompt)
{
	struct abi_put_args *args = (struct abi_put_args *)host.client[0].staging;
	struct abi_sqe sqe = { .op = ABI_OP_PUT_RESERVE, .count = LENGTH };

	memset(args, 0, sizeof(*args));
	args->count = LENGTH;
	for (uint32_t i = 0; i < LENGTH; i++)
		key_of(prompt, i, (uint8_t *)(args + 1) + (size_t)i * ABI_KEY_BYTES);
	sqe.context_id = host.context[0].id;
	sqe.arg_bytes = (uint32_t)(sizeof(*args) + (size_t)LENGTH * ABI_KEY_BYTES);
	assert_true(host_request(&host, 0, &sqe));
	if (host.answer.res)
		return; /* no room for it now: so be it */
	sqe = (struct abi_sqe){ .op = ABI_OP_PUT_COMMIT, .handle = host.answer.value,
				.arg_offset = 4096 };
	assert_true(host_request(&host, 0, &sqe));
	host_settle(&host, 40);
}

static void use(uint32_t prompt, uint32_t blocks)
{
	struct abi_reader *r = host.client[0].readers;

	for (uint32_t i = 0; i < blocks; i++) {
		uint32_t slot = slot_at(prompt, i);

		if (slot == ABI_SLOT_NONE)
			return;
		r->access[r->access_tail++ % ABI_ACCESS_LOG] =
			abi_access(context()->id, slot, 1);
	}
}

/* Returns how many blocks are in CXL; those of a prompt are its first. */
static uint32_t prefixes_are_whole(void)
{
	uint32_t count = 0;

	for (uint32_t p = 0; p < PROMPTS; p++) {
		bool there = true;

		for (uint32_t i = 0; i < LENGTH; i++) {
			uint32_t slot = slot_at(p, i);
			bool now = slot != ABI_SLOT_NONE &&
				   context()->meta[slot].there[ABI_TIER_CXL].pages > 0;

			if (now && !there)
				fail_msg("prompt %u: block %u stayed without its parent", p, i);
			there = now;
			count += now;
		}
	}
	return count;
}

/* Returns how many blocks are in the service, in whatever tier; of a prompt, its first. */
static uint32_t none_is_alone(const char *policy)
{
	uint32_t count = 0;

	for (uint32_t p = 0; p < PROMPTS; p++) {
		bool there = true;

		for (uint32_t i = 0; i < LENGTH; i++) {
			bool now = slot_at(p, i) != ABI_SLOT_NONE;

			if (now && !there)
				fail_msg("%s: prompt %u: block %u stayed in the service without "
					 "its parent", policy, p, i);
			there = now;
			count += now;
		}
	}
	return count;
}

static void start(const char *policy, uint64_t nvme_bytes)
{
	struct disk_context spec;

	host_boot(&host, NULL);
	host_spec(&spec, HOST_KIND_LARGE, 0);
	spec.blocks_max = PROMPTS * LENGTH;
	spec.quota[ABI_TIER_NVME] = nvme_bytes;
	snprintf(spec.policy, sizeof(spec.policy), "%s", policy);
	assert_int_equal(host_context_make(&host, 0, &spec), 0);
	host_client_open(&host, 0);
	host_client_attach(&host, 0);
}

static void stop(void)
{
	host_audit(&host);
	host_empty(&host);
	host_halt(&host);
}

static void test_over_all_tiers(const char *policy, uint64_t nvme_bytes)
{
	struct rng rng = { 12 };

	start(policy, nvme_bytes);
	for (uint32_t p = 0; p < PROMPTS; p++) {
		put(p);
		none_is_alone(policy);
		for (uint32_t n = 0; n < 3; n++)
			use((uint32_t)rng_below(&rng, p + 1),
			    1 + (uint32_t)rng_below(&rng, LENGTH));
	}
	assert_true(none_is_alone(policy) > 0);
	assert_true(host.core->metrics.dropped_blocks > 0);
	stop();
}

static void test_every_policy_in_memory(void **state)
{
	(void)state;
	for (uint32_t i = 0; policy_at(i); i++)
		test_over_all_tiers(policy_at(i)->name, UINT64_MAX);
}

/* What is over the quota of NVMe goes. */
static void test_every_policy_before_a_quota(void **state)
{
	(void)state;
	for (uint32_t i = 0; policy_at(i); i++)
		test_over_all_tiers(policy_at(i)->name, 1 << 20);
}

/* Whole segments go, oldest first, of a log that all prompts share. */
static void test_every_policy_before_a_full_log(void **state)
{
	(void)state;
	for (uint32_t i = 0; policy_at(i); i++)
		test_over_all_tiers(policy_at(i)->name, HOST_NVME);
}

/* What older builds had and this one has no more, on disk or in a call, is the default. */
static void test_retired_policies_are_the_default(void **state)
{
	static const char *const name[] = { "fifo", "s3fifo", "arc", "reuse-hits" };
	struct core_context_plan plan;
	struct disk_context spec;
	char why[128];

	(void)state;
	for (uint32_t i = 0; i < sizeof(name) / sizeof(name[0]); i++) {
		if (i)
			stop();
		start(name[i], UINT64_MAX);
		assert_string_equal(context()->spec.policy, POLICY_DEFAULT);
		assert_ptr_equal(context()->lanes.policy, policy_find(POLICY_DEFAULT));
	}
	spec = context()->spec;
	snprintf(spec.policy, sizeof(spec.policy), "astrology");
	assert_int_equal(core_context_plan(host.core, &spec, &plan, why, sizeof(why)), -EINVAL);
	assert_string_equal(why, "no such eviction policy: astrology");
	stop();
}

static void test_in_memory_alone(void **state)
{
	struct rng rng = { 11 };

	(void)state;
	start("", UINT64_MAX);
	assert_string_equal(context()->spec.policy, POLICY_DEFAULT);
	for (uint32_t p = 0; p < PROMPTS; p++) {
		put(p);
		prefixes_are_whole();
		for (uint32_t n = 0; n < 3; n++)
			use((uint32_t)rng_below(&rng, p + 1),
			    1 + (uint32_t)rng_below(&rng, LENGTH));
	}
	assert_true(prefixes_are_whole() > 0);
	assert_true(host.core->metrics.evicted_cxl + host.core->metrics.dropped_blocks > 0);
	stop();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_in_memory_alone),
		cmocka_unit_test(test_retired_policies_are_the_default),
		cmocka_unit_test(test_every_policy_in_memory),
		cmocka_unit_test(test_every_policy_before_a_quota),
		cmocka_unit_test(test_every_policy_before_a_full_log),
	};

	return cmocka_run_group_tests(tests, one_host, NULL);
}
