/*
 * Segments are emptied at the least cost: pages move as long as others have room, and where they
 * have not, no more leaves than must. A context that fills the tier is told to live with half; one
 * finds its room in places of another size, with a reader in the segment that would be emptied.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <string.h>

#include "tests/lib/unit.h"
#include "tests/unit/one_host.h"
#include "tierd/core/state.h"

#define RUN 16u
#define WITHOUT_LARGE 6656u /* blocks of three small pages: all but 512 places of the tier */

static void key_of(uint32_t n, uint8_t key[ABI_KEY_BYTES])
{
	memset(key, 0, ABI_KEY_BYTES);
	memcpy(key, &n, sizeof(n));
	key[9] = (uint8_t)(n * 7);
}

/* A run of blocks, their bytes whatever lies in staging. Returns how many are visible. */
static uint32_t put(uint32_t first)
{
	struct abi_put_args *args = (struct abi_put_args *)host.client[0].staging;
	struct abi_sqe sqe = { .op = ABI_OP_PUT_RESERVE, .count = RUN };

	memset(args, 0, sizeof(*args));
	args->count = RUN;
	for (uint32_t i = 0; i < RUN; i++)
		key_of(first + i, (uint8_t *)(args + 1) + i * ABI_KEY_BYTES);
	sqe.context_id = host.context[0].id;
	sqe.arg_bytes = sizeof(*args) + RUN * ABI_KEY_BYTES;
	assert_true(host_request(&host, 0, &sqe));
	if (host.answer.res)
		return 0;
	sqe = (struct abi_sqe){ .op = ABI_OP_PUT_COMMIT, .arg_offset = 4096,
				.handle = host.answer.value };
	assert_true(host_request(&host, 0, &sqe));
	return host.answer.res ? 0 : (uint32_t)host.answer.value;
}

static void open_full(void)
{
	struct disk_context spec;

	host_boot(&host, NULL);
	host_spec(&spec, HOST_KIND_MEMORY, 0);
	spec.quota[ABI_TIER_CXL] = HOST_CXL;
	spec.blocks_max = 16384;
	assert_int_equal(host_context_make(&host, 0, &spec), 0);
	host_client_open(&host, 0);
	host_client_attach(&host, 0);
	for (uint32_t n = 0; n < 40000; n += RUN) {
		put(n);
		if (n % 1024 == 0)
			host_tick(&host, MS);
	}
	host_settle(&host, 1000);
}

/* Blocks without their page of the large class fill the tier; a third of them goes again. */
static void open_without_large(void)
{
	const struct abi_put_args args = { .count = 1, .parts = 5 };
	struct disk_context spec;

	host_spec(&spec, HOST_KIND_MEMORY, 0);
	spec.quota[ABI_TIER_CXL] = HOST_CXL;
	spec.blocks_max = 16384;
	spec.geometry.part[1].hit_rule = ABI_HIT_LAST;
	spec.geometry.part[1].hit_arg = 1;
	one_host_boot(&spec, 1);
	for (uint32_t n = 0; n < WITHOUT_LARGE; n++) {
		assert_int_equal(host_reserve(&host, &args, n, 0), 0);
		assert_true(host_commit(&host, 0));
		assert_int_equal(host.answer.value, 1);
	}
	for (uint32_t n = 0; n < WITHOUT_LARGE; n += 3) {
		struct abi_sqe sqe = { .op = ABI_OP_DELETE };

		assert_true(host_request_keys(&host, 0, sqe, n, 1));
		assert_int_equal(host.answer.res, 0);
	}
	host_settle(&host, 1000);
}

/* A reader keeps the first page of the block in CXL. Returns the place's offset. */
static uint64_t lease(uint32_t n)
{
	const struct context *x = core_context(host.core, host.context[0].id);
	struct abi_reader *r = &host.client[0].readers[0];
	const struct abi_page *d;
	uint8_t key[ABI_KEY_BYTES];

	host_key(n, key);
	d = index_page(&x->ix, index_find(&x->ix, key), 0);
	assert_int_equal(page_state(d, ABI_TIER_CXL), ABI_PAGE_READY);
	r->slot[0] = abi_place(x->id, ABI_TIER_CXL, d->word[ABI_TIER_CXL]);
	r->high_water = 1;
	return page_addr(d, ABI_TIER_CXL);
}

/* The segment that would be compacted gives nothing while a reader keeps it: then another is. */
static void test_a_reader_does_not_stop_compaction(void **state)
{
	const struct abi_put_args whole = { .count = 1 };
	const struct core_metrics *m;
	uint64_t gone;

	(void)state;
	open_without_large();
	m = core_metrics(host.core);
	gone = m->dropped_blocks;
	assert_true(lease(WITHOUT_LARGE - 1) >= HOST_CXL - ABI_HUGE);
	assert_int_equal(host_reserve(&host, &whole, WITHOUT_LARGE, 0), 0);
	assert_true(host_commit(&host, 0));
	host_settle(&host, 1000);
	assert_int_equal(host.answer.res, 0);
	assert_int_equal(host.answer.value, 1);
	assert_int_equal(m->dropped_blocks, gone); /* nobody had to leave */
	assert_true(m->moved_pages > 0);
	host_audit(&host);
	host.client[0].readers[0].slot[0] = 0;
	host_empty(&host);
	host_halt(&host);
}

/* However often it is looked for; and no more when it was let go. */
static void test_what_a_lease_keeps_is_charged_once(void **state)
{
	const struct abi_put_args args = { .count = 1 };
	struct core_client_view view;
	struct disk_context spec;

	(void)state;
	host_spec(&spec, HOST_KIND_MEMORY, 0);
	one_host_boot(&spec, 1);
	assert_int_equal(host_reserve(&host, &args, 0, 0), 0);
	assert_true(host_commit(&host, 0));
	lease(0);
	assert_int_equal(core_evict(host.core, host.context[0].id, ABI_TIER_CXL, UINT64_MAX, 1), 0);
	host_look(&host);
	for (uint32_t i = 0; i < 500; i++) {
		host_tick(&host, 5 * MS);
		assert_int_equal(core_client_view(host.core, 0, &view), 0);
		assert_in_range(view.quarantined[ABI_TIER_CXL], i < 100 ? 0 : 512, 512);
	}
	host.client[0].readers[0].slot[0] = 0;
	for (uint32_t i = 0; i < 500; i++)
		host_tick(&host, 5 * MS);
	assert_int_equal(core_client_view(host.core, 0, &view), 0);
	assert_int_equal(view.quarantined[ABI_TIER_CXL], 0);
	host_empty(&host);
	host_halt(&host);
}

static void test_half_is_kept_of_half(void **state)
{
	struct core_quota q = { .who = CORE_HOLDER_CONTEXT, .tier = ABI_TIER_CXL };
	struct core_context_stats before, after;
	const struct core_metrics *m;

	(void)state;
	open_full();
	q.context_id = host.context[0].id;
	core_context_stats(host.core, q.context_id, &before);
	q.limit.hard = before.tier[ABI_TIER_CXL].used / 2;
	assert_int_equal(core_quota_set(host.core, &q, 1), 0);
	for (uint32_t i = 0; i < 2000; i++)
		host_tick(&host, MS);
	core_context_stats(host.core, q.context_id, &after);
	m = core_metrics(host.core);
	assert_true(after.tier[ABI_TIER_CXL].used <= q.limit.hard);
	/* Two segments are left, one a class: 1,365 blocks of three small pages fill the one. */
	assert_int_equal(after.tier[ABI_TIER_CXL].used, 2 * ABI_HUGE);
	assert_int_equal(after.blocks, ABI_HUGE / 512 / 3);
	assert_true(m->moved_pages > 0);
	host_audit(&host);
	host_empty(&host);
	host_halt(&host);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_reader_does_not_stop_compaction),
		cmocka_unit_test(test_what_a_lease_keeps_is_charged_once),
		cmocka_unit_test(test_half_is_kept_of_half),
	};

	return cmocka_run_group_tests(tests, one_host, NULL);
}
