/*
 * Slabs are emptied at the least cost: pages move as long as others have room, and where they
 * have not, no more leaves than must. A context that fills the tier is told to live with half; one
 * finds its room in places of another size, with a reader in the slab that would be emptied; one
 * below its share gets its room when readers let slabs go that nobody could empty. What was deleted
 * and is put again within seconds finds its memory still there.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <string.h>

#include "tests/lib/unit.h"
#include "tests/unit/one_host.h"
#include "tierd/core/state.h"

#define RUN 16u
#define FULL 256u /* blocks of large pages: more than the tier holds */
#define SPARE 2048u
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

/* The slab that would be compacted gives nothing while a reader keeps it: then another is. */
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

/* Whose blocks go and come again finds memory that is there; who stays away gives it back. */
static void test_empty_slabs_stay_for_seconds(void **state)
{
	const struct abi_put_args args = { .count = 1 };
	struct disk_context spec;
	const struct pool *pool;
	uint64_t used;

	(void)state;
	host_spec(&spec, HOST_KIND_MEMORY, 0);
	spec.quota[ABI_TIER_CXL] = HOST_CXL;
	spec.blocks_max = 2 * SPARE;
	one_host_boot(&spec, 1);
	pool = &host.core->pool[ABI_TIER_CXL];
	for (uint32_t n = 0; n < SPARE; n++) {
		assert_int_equal(host_reserve(&host, &args, n, 0), 0);
		assert_true(host_commit(&host, 0));
	}
	used = pool->used;
	assert_true(used >= HOST_CXL / 2);
	for (uint32_t n = 0; n < SPARE; n++)
		assert_true(host_request_keys(&host, 0, (struct abi_sqe){ .op = ABI_OP_DELETE },
					      n, 1));
	for (uint32_t i = 0; i < 90; i++) /* nine seconds */
		host_tick(&host, 100 * MS);
	assert_int_equal(pool->live, 0);
	assert_int_equal(pool->used, used);
	for (uint32_t i = 0; i < 130; i++)
		host_tick(&host, 100 * MS);
	assert_true(pool->used < used); /* one a size of page stays */
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
	/* Two slabs are left, one a class: 1,365 blocks of three small pages fill the one. */
	assert_int_equal(after.tier[ABI_TIER_CXL].used, 2 * ABI_HUGE);
	assert_int_equal(after.blocks, ABI_HUGE / 512 / 3);
	assert_true(m->moved_pages > 0);
	host_audit(&host);
	host_empty(&host);
	host_halt(&host);
}

/* A context of large pages, without a store, fills a tier of so many bytes. */
static void open_large(uint64_t cxl_bytes)
{
	const struct abi_put_args args = { .count = 1 };
	struct disk_context spec;

	host_spec(&spec, HOST_KIND_LARGE, 0);
	spec.quota[ABI_TIER_CXL] = cxl_bytes;
	spec.quota[ABI_TIER_NVME] = UINT64_MAX;
	spec.blocks_max = (uint32_t)(cxl_bytes / spec.geometry.block_bytes);
	host.cxl_bytes = cxl_bytes;
	one_host_boot(&spec, 1);
	host.cxl_bytes = 0;
	for (uint32_t n = 0; !core_metrics(host.core)->dropped_blocks; n++) {
		assert_true(n < spec.blocks_max);
		assert_int_equal(host_reserve(&host, &args, n, 0), 0);
		assert_true(host_commit(&host, 0));
		assert_int_equal(host.answer.value, 1);
	}
}

/*
 * Many slabs are to be given, and who leaves first stands in whole ones, side by side: these are
 * what is given. No pages move into what is about to be empty, and none is emptied in addition.
 */
static void test_who_leaves_first_makes_the_room(void **state)
{
	const uint64_t lowered = 40u << 20;
	struct core_quota q = { .who = CORE_HOLDER_CONTEXT, .tier = ABI_TIER_CXL,
				.limit.hard = lowered };
	const struct context *x;
	struct space_stats st;
	uint64_t moved, slab;

	(void)state;
	open_large(64u << 20);
	x = core_context(host.core, host.context[0].id);
	slab = space_slab_bytes(x->space[ABI_TIER_CXL]);
	moved = core_metrics(host.core)->moved_pages;
	q.context_id = x->id;
	assert_int_equal(core_quota_set(host.core, &q, 1), 0);
	for (uint32_t i = 0; i < 500; i++)
		host_tick(&host, 2 * MS);
	space_stats(x->space[ABI_TIER_CXL], &st);
	printf("# 64 -> 40 MiB: %.1f live in %.1f, %llu moved\n", (double)st.live / (1 << 20),
	       (double)st.charged / (1 << 20),
	       (unsigned long long)core_metrics(host.core)->moved_pages - moved);
	assert_true(st.charged <= lowered);
	assert_true(st.live > lowered - slab);
	assert_true(core_metrics(host.core)->moved_pages - moved < slab / 12288);
	host_audit(&host);
	host_empty(&host);
	host_halt(&host);
}

/* Two contexts that may have all of the tier. The first one's blocks fill it. */
static void open_two(void)
{
	const struct abi_put_args args = { .count = 1 };
	struct disk_context spec;

	host_spec(&spec, HOST_KIND_LARGE, 0);
	spec.quota[ABI_TIER_CXL] = HOST_CXL;
	spec.quota[ABI_TIER_NVME] = UINT64_MAX;
	spec.blocks_max = 2 * FULL;
	one_host_boot(&spec, 0);
	spec.name[0] = 'C';
	assert_int_equal(host_context_make(&host, 1, &spec), 0);
	host_client_open(&host, 0);
	host_client_attach(&host, 0);
	for (uint32_t n = 0; n < FULL; n++) {
		assert_int_equal(host_reserve(&host, &args, n, 0), 0);
		assert_true(host_commit(&host, 0));
		assert_int_equal(host.answer.res, 0);
	}
}

/* A reader keeps a page in each slab of the first context. Returns their number. */
static uint32_t lease_each(void)
{
	const struct context *x = core_context(host.core, host.context[0].id);
	struct abi_reader *r = &host.client[0].readers[0];
	uint32_t slots = (uint32_t)x->ix.slots_used * x->ix.pages_per_block;
	bool leased[HOST_CXL / ABI_HUGE] = { false };

	for (uint32_t i = 0; i < slots; i++) {
		const struct abi_page *d = index_page(&x->ix, i / x->ix.pages_per_block,
						      i % x->ix.pages_per_block);
		uint64_t slab = page_addr(d, ABI_TIER_CXL) / ABI_HUGE;

		if (page_state(d, ABI_TIER_CXL) != ABI_PAGE_READY || leased[slab])
			continue;
		leased[slab] = true;
		r->slot[r->high_water++] = abi_place(x->id, ABI_TIER_CXL, d->word[ABI_TIER_CXL]);
	}
	return r->high_water;
}

/* A put of one block to the second context. Returns its answer; 1 = it waits. */
static int32_t put_second(uint32_t n)
{
	struct abi_put_args *args = (struct abi_put_args *)host.client[0].staging;
	struct abi_sqe sqe = { .op = ABI_OP_PUT_RESERVE, .count = 1 };

	memset(args, 0, sizeof(*args));
	args->count = 1;
	host_key(n, (uint8_t *)(args + 1));
	sqe.context_id = host.context[1].id;
	sqe.arg_bytes = sizeof(*args) + ABI_KEY_BYTES;
	assert_true(host_request(&host, 0, &sqe));
	assert_int_equal(host.answer.res, 0);
	host.answer.res = 1;
	assert_true(host_commit(&host, 0));
	return host.answer.res;
}

/* Slabs that are being emptied and are empty. */
static uint32_t emptied(void)
{
	const struct evacuation *e = &host.core->evacuation;
	uint32_t n = 0;

	for (uint32_t i = 0; e->ctx && i < e->slabs; i++)
		n += !space_slab_live(e->ctx->space[e->tier], e->slab[i]);
	return n;
}

/*
 * Readers keep every slab of who has to give, until nothing more is hoped for. When they let
 * some go that are being emptied just then, room is about to come: who wants it is not refused.
 */
static void test_what_readers_let_go_is_waited_for(void **state)
{
	(void)state;
	open_two();
	assert_int_equal(lease_each(), HOST_CXL / ABI_HUGE);
	put_second(0);
	assert_int_equal(one_host_answer(), -ENOSPC);
	assert_false(evacuate_hopeful(host.core));
	for (uint32_t i = 0; i < 2; i++) /* a block has pages of two sizes */
		host.client[0].readers[0].slot[i] = 0;
	for (uint32_t i = 0; i < 8 && emptied() < 2; i++)
		host_tick(&host, MS);
	assert_int_equal(emptied(), 2);
	assert_int_equal(put_second(0), 1);
	assert_int_equal(one_host_answer(), 0);
	assert_int_equal(host.answer.value, 1);
	host_audit(&host);
	memset(host.client[0].readers[0].slot, 0, sizeof(host.client[0].readers[0].slot));
	host_empty(&host);
	host_halt(&host);
}

/* A descriptor is an item: one event looks at as many as it has items left; the rest come later. */
static void test_each_descriptor_is_an_item(void **state)
{
	struct evacuation *e;
	struct context *x;
	uint64_t looked;

	(void)state;
	open_full();
	x = context();
	e = &host.core->evacuation;
	assert_null(e->ctx);
	evacuate_begin(host.core, x, ABI_TIER_CXL, ABI_HUGE);
	assert_ptr_equal(e->ctx, x);
	meter_begin(&host.core->meter);
	evacuate_step(host.core);
	looked = 0;
	for (uint32_t slot = 0; slot < e->slot; slot++)
		if (x->meta[slot].there[ABI_TIER_CXL].pages)
			looked += x->ix.pages_per_block;
	assert_true(looked > 0);
	assert_in_range(looked + e->page, 1, host.core->meter.items);
	assert_true(host.core->meter.items <= meter_ahead(&host.core->meter));
	host_look(&host);
	host_settle(&host, 1000);
	host_audit(&host);
	host_empty(&host);
	host_halt(&host);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_reader_does_not_stop_compaction),
		cmocka_unit_test(test_empty_slabs_stay_for_seconds),
		cmocka_unit_test(test_what_a_lease_keeps_is_charged_once),
		cmocka_unit_test(test_half_is_kept_of_half),
		cmocka_unit_test(test_who_leaves_first_makes_the_room),
		cmocka_unit_test(test_what_readers_let_go_is_waited_for),
		cmocka_unit_test(test_each_descriptor_is_an_item),
	};

	return cmocka_run_group_tests(tests, one_host, NULL);
}
