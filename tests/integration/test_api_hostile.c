/*
 * Every function of the API with values that no sane caller has, against a live daemon: each ends
 * with a promised error, soon, and neither side dies. What needs no daemon to be refused is in
 * tests/unit/test_libtier_*; here are the values that travel.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define WORLD_MORE tier_block block; /* one that is there */

#include "tests/integration/kv_world.h"

static int setup(void **state)
{
	static uint8_t data[BLOCK_BYTES];
	struct world *w = world_begin(NULL);
	struct tier_found found;
	tier_key key = { { 1 } };

	assert_int_equal(tier_put_copy(w->c, &key, 1, data, NULL), 1);
	assert_int_equal(tier_match(w->c, &key, 1, &found), 1);
	w->block = found.block;
	*state = w;
	return 0;
}

/* The connection still does what it should. */
static void assert_works(struct world *w)
{
	struct tier_lease lease;

	assert_int_equal(tier_check(w->t), 0);
	assert_int_equal(tier_fetch(w->c, &w->block, 1, NULL), 1);
	assert_int_equal(tier_lease_page(w->r, w->c, w->block, 0, 0, &lease), 0);
	tier_release(w->r, &lease);
}

static void test_connect(void **state)
{
	struct world *w = *state;
	struct tier_connect_options o = { .size = sizeof(o), .socket = w->d.socket };
	static char name[4096];
	tier *t[3];

	memset(name, '"', sizeof(name) - 1);
	o.name = name;
	o.staging_bytes = 1ull << 45;
	o.requests = 16384;
	o.readers = 64;
	assert_int_equal(tier_connect(&t[0], &o), 0);
	o.staging_bytes = 1;
	o.requests = 1;
	o.readers = 1;
	o.name = "";
	assert_int_equal(tier_connect(&t[1], &o), 0);
	assert_int_equal(tier_connect(&t[2], &o), 0);
	for (uint32_t i = 0; i < 3; i++)
		tier_close(t[i]);
	o.socket = w->d.store; /* no socket at all */
	assert_true(tier_connect(&t[0], &o) < 0);
	assert_works(w);
}

static void test_contexts(void **state)
{
	struct world *w = *state;
	struct tier_context_options o = { .size = sizeof(o) };
	const uint64_t quotas[] = { 1, 4096, 1ull << 62, UINT64_MAX - 1 };
	tier_context *c;
	int rc;

	for (uint32_t i = 0; i < COUNT(quotas); i++) {
		for (uint32_t level = 0; level < TIER_COUNT; level++) {
			o = (struct tier_context_options){ .size = sizeof(o) };
			o.quota[level] = quotas[i];
			rc = tier_context_create(w->t, "odd", w->g, &o, &c);
			if (rc == 0) {
				tier_context_close(c);
				assert_int_equal(tier_context_remove(w->t, "odd"), 0);
			} else {
				assert_true(rc == -ENOSPC || rc == -EINVAL);
				assert_null(c);
			}
		}
	}
	o = (struct tier_context_options){ .size = sizeof(o),
					   .quota = { TIER_QUOTA_NONE, TIER_QUOTA_NONE,
						      TIER_QUOTA_NONE, TIER_QUOTA_NONE } };
	assert_true(tier_context_create(w->t, "odd", w->g, &o, &c) < 0);
	o = (struct tier_context_options){ .size = sizeof(o), .quota[TIER_NVME] = BLOCK_BYTES - 1 };
	assert_int_equal(tier_context_create(w->t, "odd", w->g, &o, &c), -ENOSPC);
	assert_non_null(strstr(tier_error_text(), "too small for a block"));
	o = (struct tier_context_options){ .size = sizeof(o), .blocks_max = UINT32_MAX - 1 };
	assert_true(tier_context_create(w->t, "odd", w->g, &o, &c) <= 0);
	o = (struct tier_context_options){ .size = sizeof(o), .policy = "no-such" };
	assert_true(tier_context_create(w->t, "odd2", w->g, &o, &c) < 0);
	assert_int_equal(tier_context_open(w->t, "..", NULL, &c), -ENOENT);
	assert_works(w);
}

static void test_blocks_that_never_were(void **state)
{
	struct world *w = *state;
	const tier_block wild[] = {
		{ 0, 0 }, { UINT32_MAX, UINT32_MAX }, { UINT32_MAX, 0 }, { 0, UINT32_MAX },
		{ w->block.slot, w->block.generation + 1 }, { w->block.slot + 1, 1 },
	};
	tier_block mixed[3] = { w->block, { 77, 77 }, w->block };
	struct tier_page page[3] = { { w->block, 0 }, { { 5, 5 }, 0 }, { w->block, 5 } };
	struct tier_completion c;
	struct tier_lease lease[3];
	int32_t error[3];
	static uint8_t out[3 * 4096];
	uint64_t pin;

	for (uint32_t i = 0; i < COUNT(wild); i++) {
		assert_int_equal(tier_lease_page(w->r, w->c, wild[i], 0, 0, lease), -ESTALE);
		assert_int_equal(tier_fetch(w->c, &wild[i], 1, NULL), 0);
		assert_int_equal(tier_pin(w->c, &wild[i], 1, TIER_CXL, 0, &pin), -ESTALE);
		assert_int_equal(tier_fetch_start(w->c, &wild[i], 1,
						  ASK(TIER_HBM, .user_data = i)), 0);
		assert_int_equal(tier_wait(w->t, &c, 1, 1, LONG_NS), 1);
		assert_int_equal(c.status, TIER_MISSED);
		assert_int_equal(c.value, 0);
	}
	assert_int_equal(tier_fetch(w->c, mixed, 3, NULL), 1);
	assert_int_equal(tier_fetch_pages(w->c, page, 3, NULL), 2);
	page[2].page = UINT32_MAX;
	assert_int_equal(tier_fetch_pages(w->c, page, 3, NULL), 1);
	assert_int_equal(tier_read_pages(w->r, w->c, page, 3, 0, lease), 1);
	assert_int_equal(lease[1].error, -ESTALE);
	assert_int_equal(lease[2].error, -EINVAL);
	tier_release_many(w->r, lease, 3);
	assert_int_equal(tier_gather(w->r, w->c, page, 3, INTO(out, 0, error)), 1);
	assert_int_equal(error[1], -ESTALE);
	assert_int_equal(error[2], -EINVAL);
	assert_works(w);
}

/* Copies stay where their room is said to be. */
static void test_strides(void **state)
{
	struct world *w = *state;
	struct tier_page page[2] = { { w->block, 0 }, { w->block, 1 } };
	const size_t beyond[] = { SIZE_MAX, SIZE_MAX / 2, SIZE_MAX - 4095 };
	static uint8_t out[2 * 4096 + 1];
	int32_t error[2];

	assert_int_equal(tier_gather(w->r, w->c, page, 2, INTO(out, 0, error)), 2);
	memset(out, 0xee, sizeof(out));
	for (uint32_t i = 0; i < COUNT(beyond); i++)
		assert_int_equal(tier_gather(w->r, w->c, page, 2, INTO(out, beyond[i], error)),
				 -EINVAL);
	assert_int_equal(tier_gather(w->r, w->c, page, 2, INTO(out, 4095, error)), 0);
	assert_int_equal(error[0], -EINVAL);
	assert_int_equal(error[1], -EINVAL);
	for (uint32_t i = 0; i < sizeof(out); i++)
		assert_int_equal(out[i], 0xee);
	assert_int_equal(tier_gather(w->r, w->c, page, 2, INTO(out, 4097, error)), 2);
	assert_works(w);
}

/* Times fall, or begin with what is not understood. */
static void test_plans(void **state)
{
	struct world *w = *state;
	struct tier_access access[2] = { { w->block, 5, 0 }, { w->block, 4, 0 } };
	struct tier_plan_options o = { .size = sizeof(o), .tier = TIER_CXL };
	tier_plan *p;

	o.start_ns = time_now_ns();
	assert_int_equal(tier_plan_begin(w->c, access, 2, &o, &p), -EINVAL);
	o.start_ns = 0; /* without it they are none */
	assert_int_equal(tier_plan_begin(w->c, access, 2, &o, &p), 0);
	tier_plan_end(p);
	access[1].reserved = 1;
	assert_int_equal(tier_plan_begin(w->c, access, 2, &o, &p), -EINVAL);
	assert_works(w);
}

static void test_layers_of_a_stream(void **state)
{
	struct world *w = *state;
	tier_stream *s;

	assert_int_equal(tier_stream_open(w->c, &w->block, 1, NULL, &s), 0);
	assert_int_equal(tier_stream_wait(s, 0, time_now_ns() + LONG_NS), 1);
	assert_int_equal(tier_stream_wait(s, UINT32_MAX, time_now_ns() + LONG_NS), -ENODATA);
	assert_int_equal(tier_stream_wait(s, UINT32_MAX - 1, time_now_ns() + LONG_NS), -ENODATA);
	assert_int_equal(tier_stream_wait(NULL, 0, 0), -EINVAL);
	tier_stream_close(s);
	assert_works(w);
}

static void test_deadlines(void **state)
{
	struct world *w = *state;
	const uint64_t odd[] = { 1, UINT64_MAX, UINT64_MAX / 2, time_now_ns() };
	struct tier_ask ask = { .size = sizeof(ask), .tier = TIER_CXL, .user_data = 1 };
	struct tier_completion c;
	uint64_t pin;

	/* A parked prefetch until then protects nothing. */
	assert_int_equal(tier_pin(w->c, &w->block, 1, TIER_CXL, 1, &pin), -ETIMEDOUT);
	assert_int_equal(tier_pin(w->c, &w->block, 1, TIER_CXL, time_now_ns(), &pin), -ETIMEDOUT);
	for (uint32_t i = 0; i < COUNT(odd); i++) {
		/* What is there is there, however late. */
		ask.deadline_ns = odd[i];
		assert_int_equal(tier_fetch(w->c, &w->block, 1, &ask), 1);
		assert_int_equal(tier_fetch_start(w->c, &w->block, 1, &ask), 0);
		assert_int_equal(tier_wait(w->t, &c, 1, 1, LONG_NS), 1);
		assert_int_equal(c.result, 0);
	}
	assert_works(w);
}

static void test_ranges(void **state)
{
	struct world *w = *state;
	const struct tier_range odd[] = {
		{ 0, 1, 1, UINT16_MAX }, { 1, 1, 0, 0 }, { 0, 0, 1, 1 },
	};
	const struct tier_range nothing[] = {
		{ 0, 2, UINT16_MAX, 1 }, { 0, 0, UINT16_MAX, UINT16_MAX },
	};

	for (uint32_t i = 0; i < COUNT(odd); i++)
		assert_int_equal(tier_fetch(w->c, &w->block, 1,
					    ASK(TIER_CXL, .range = &odd[i])), 1);
	for (uint32_t i = 0; i < COUNT(nothing); i++)
		assert_int_equal(tier_fetch(w->c, &w->block, 1,
					    ASK(TIER_CXL, .range = &nothing[i])), -EINVAL);
	assert_works(w);
}

static void test_numbers_of_nothing(void **state)
{
	struct world *w = *state;
	const uint64_t odd[] = { 0, 1, UINT32_MAX, UINT64_MAX, 1ull << 63 };
	tier_key keys[3000];
	char *reply;

	for (uint32_t i = 0; i < COUNT(odd); i++) {
		assert_int_equal(tier_unpin(w->c, odd[i]), -ENOENT);
		assert_int_equal(tier_cancel(w->t, odd[i] & INT64_MAX), -ENOENT);
	}
	memset(keys, 0x5a, sizeof(keys));
	assert_int_equal(tier_match(w->c, keys, 3000, NULL), 0);
	assert_int_equal(tier_delete(w->c, keys, 3000), 0);
	assert_int_equal(tier_admin(w->t, "evict", "{\"context\":\"kv\",\"bytes\":-1}", &reply),
			 -EINVAL);
	assert_true(tier_admin(w->t, "locate", "[[[[[[[[", &reply) < 0);
	assert_true(tier_admin(w->t, "\x01\xff", "\xff", &reply) < 0);
	assert_works(w);
}

static void test_puts(void **state)
{
	struct world *w = *state;
	struct tier_put_options o = { .size = sizeof(o), .depth = UINT32_MAX, .salt = UINT64_MAX,
				      .deadline_ns = 1 };
	static uint8_t data[BLOCK_PAGES * 4096];
	tier_key same[4] = { { { 9 } }, { { 9 } }, { { 9 } }, { { 9 } } }, before = { { 8 } };
	struct tier_completion c;
	tier_put *p[4];
	int64_t n;
	int rc;

	/* One key four times in a put, and four puts of it at a time. */
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(tier_put_begin(w->c, same, 4, NULL, &p[i]), 0);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(tier_put_commit(p[i], i), 0);
	for (uint32_t i = 0; i < 4; i++) {
		assert_int_equal(tier_wait(w->t, &c, 1, 1, LONG_NS), 1);
		assert_int_equal(c.result, 0);
	}
	assert_int_equal(tier_match(w->c, same, 4, NULL), 4);
	same[0].bytes[1] = 1;
	assert_int_equal(tier_put_copy(w->c, same, 1, data, &o), -EINVAL);
	assert_non_null(strstr(tier_error_text(), "parent does not say which"));
	o.parent = &before;
	n = tier_put_copy(w->c, same, 1, data, &o);
	assert_true(n == 1 || n == -ETIMEDOUT || n == -ENOENT);
	o = (struct tier_put_options){ .size = sizeof(o), .shard = 65535, .shards = 65536 };
	same[0].bytes[1] = 2;
	rc = tier_put_begin(w->c, same, 1, &o, &p[0]);
	if (rc == 0)
		tier_put_abort(p[0]);
	o = (struct tier_put_options){ .size = sizeof(o), .reserved = 1 };
	assert_int_equal(tier_put_begin(w->c, same, 1, &o, &p[0]), -EINVAL);
	/* Its parent is itself. */
	o = (struct tier_put_options){ .size = sizeof(o), .parent = &same[0] };
	same[0].bytes[1] = 3;
	assert_int_equal(tier_put_copy(w->c, same, 1, data, &o), 1);
	assert_works(w);
}

static void test_close_with_everything_open(void **state)
{
	struct world *w = *state;
	struct tier_connect_options o = { .size = sizeof(o), .socket = w->d.socket,
					  .staging_bytes = 1u << 20 };
	tier_key key = { { 77 } };
	struct tier_lease lease;
	tier_context *c;
	tier_reader *r;
	tier_put *p;
	uint64_t pin;
	tier *t;

	for (uint32_t i = 0; i < 20; i++) {
		assert_int_equal(tier_connect(&t, &o), 0);
		assert_int_equal(tier_context_open(t, "kv", NULL, &c), 0);
		assert_int_equal(tier_reader_open(t, &r), 0);
		assert_int_equal(tier_lease_page(r, c, w->block, 0, 0, &lease), 0);
		assert_int_equal(tier_put_begin(c, &key, 1, NULL, &p), 0);
		assert_int_equal(tier_pin(c, &w->block, 1, TIER_CXL, 0, &pin), 1);
		assert_int_equal(tier_fetch_start(c, &w->block, 1, NULL), 0);
		tier_close(t);
	}
	assert_works(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_connect),
		cmocka_unit_test(test_contexts),
		cmocka_unit_test(test_blocks_that_never_were),
		cmocka_unit_test(test_strides),
		cmocka_unit_test(test_plans),
		cmocka_unit_test(test_layers_of_a_stream),
		cmocka_unit_test(test_deadlines),
		cmocka_unit_test(test_ranges),
		cmocka_unit_test(test_numbers_of_nothing),
		cmocka_unit_test(test_puts),
		cmocka_unit_test(test_close_with_everything_open),
	};

	return cmocka_run_group_tests(tests, setup, world_end);
}
