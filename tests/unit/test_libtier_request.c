/*
 * Requests: puts, asking, completions to many waiters, backpressure, a daemon that does not answer.
 *
 * SPDX-License-Identifier: Apache-2.0
 */


#include "tests/unit/test_libtier_world.h"

#include "libtier/src/submit.h"

#define LONG_NS (60 * NS_PER_S)

static void fill_block(tier_put *p, uint32_t block, uint8_t byte)
{
	for (uint32_t layer = 0; layer < 2; layer++) {
		for (uint32_t group = 0; group < 2; group++)
			memset(tier_put_data(p, block, 0, layer, group),
			       byte + (int)(layer * 2 + group), 4096);
		memset(tier_put_data(p, block, 1, layer, 0), byte + 4 + (int)layer, 4096);
	}
}

static void assert_block(struct world *w, const tier_key *key, uint8_t byte)
{
	struct tier_lease lease;

	for (uint32_t page = 0; page < 6; page++) {
		assert_int_equal(tier_lease_key(w->r, w->c, key, page, 0, &lease), 0);
		assert_int_equal(((const uint8_t *)lease.data)[17], (uint8_t)(byte + page));
		tier_release(w->r, &lease);
	}
}

static struct tier_completion wait_one(tier *t)
{
	struct tier_completion c = { 0 };

	assert_int_equal(tier_wait(t, &c, 1, 1, LONG_NS), 1);
	return c;
}

/* ---- put ------------------------------------------------------------------------------------- */

static void test_put_in_place(void **state)
{
	struct world *w = *state;
	tier_key keys[3] = { world_key(1), world_key(2), world_key(3) };
	struct tier_completion c;
	struct tier_found found[3];
	tier_put *p;

	assert_int_equal(tier_put_begin(w->c, keys, 3, NULL, &p), 0);
	assert_int_equal(tier_match(w->c, keys, 3, found), 0);
	assert_int_equal(found[2].state, TIER_PENDING);
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(tier_put_exists(p, i), 0);
		assert_int_equal((uintptr_t)tier_put_data(p, i, 0, 0, 0) % 4096, 0);
		fill_block(p, i, (uint8_t)(10 * i));
	}
	assert_int_equal(tier_put_commit(p, 77), 0);
	c = wait_one(w->t);
	assert_int_equal(c.user_data, 77);
	assert_int_equal(c.result, 0);
	assert_int_equal(c.value, 3);
	assert_int_equal(tier_match(w->c, keys, 3, NULL), 3);
	for (uint32_t i = 0; i < 3; i++)
		assert_block(w, &keys[i], (uint8_t)(10 * i));
	/* Again: all is there. */
	assert_int_equal(tier_put_begin(w->c, keys, 3, NULL, &p), 0);
	assert_int_equal(tier_put_exists(p, 0), 1);
	assert_int_equal(tier_put_exists(p, 2), 1);
	assert_int_equal(tier_put_exists(p, 3), 0);
	tier_put_abort(p);
	assert_int_equal(tier_drain(w->t), 0);
	assert_int_equal(w->fake->ops[ABI_OP_PUT_ABORT], 1);
}

static void test_put_layout_of_a_shard(void **state)
{
	struct world *w = *state;
	struct tier_put_options o = { .size = sizeof(o), .shard = 1, .shards = 2, .depth = 5,
				      .salt = 99 };
	tier_key key = world_key(1);
	uint8_t *base;
	tier_put *p;

	o.parent = &key;
	assert_int_equal(tier_put_begin(w->c, &key, 1, &o, &p), 0);
	assert_int_equal(w->fake->put[0].args.depth, 5);
	assert_int_equal(w->fake->put[0].args.salt, 99);
	assert_int_equal(w->fake->put[0].args.shard, 1);
	assert_memory_equal(w->fake->put[0].args.parent, key.bytes, 32);
	/* Group 1 of each layer, then the replicated sidecar. */
	base = tier_put_data(p, 0, 0, 0, 1);
	assert_non_null(base);
	assert_null(tier_put_data(p, 0, 0, 0, 0));
	assert_ptr_equal(tier_put_data(p, 0, 0, 1, 1), base + 4096);
	assert_ptr_equal(tier_put_data(p, 0, 1, 0, 0), base + 8192);
	assert_ptr_equal(tier_put_data(p, 0, 1, 1, 0), base + 12288);
	assert_null(tier_put_data(p, 1, 1, 1, 0));
	assert_null(tier_put_data(p, 0, 2, 0, 0));
	assert_null(tier_put_data(p, 0, 1, 2, 0));
	assert_null(tier_put_data(p, 0, 1, 0, 1));
	assert_null(tier_put_data(NULL, 0, 0, 0, 0));
	tier_put_abort(p);
	o.parts = 2;
	assert_int_equal(tier_put_begin(w->c, &key, 1, &o, &p), 0);
	assert_null(tier_put_data(p, 0, 0, 0, 1));
	assert_non_null(tier_put_data(p, 0, 1, 0, 0));
	tier_put_abort(p);
}

static void test_put_refuses_nonsense(void **state)
{
	struct world *w = *state;
	struct tier_put_options o = { .size = sizeof(o) };
	tier_key key = world_key(1);
	tier_put *p;

	assert_int_equal(tier_put_begin(NULL, &key, 1, NULL, &p), -EINVAL);
	assert_int_equal(tier_put_begin(w->c, NULL, 1, NULL, &p), -EINVAL);
	assert_int_equal(tier_put_begin(w->c, &key, 1, NULL, NULL), -EINVAL);
	assert_int_equal(tier_put_begin(w->c, &key, 0, NULL, &p), -EINVAL);
	assert_int_equal(tier_put_begin(w->c, &key, UINT32_MAX, NULL, &p), -EINVAL);
	o.flags = 4;
	assert_int_equal(tier_put_begin(w->c, &key, 1, &o, &p), -EINVAL);
	o = (struct tier_put_options){ .size = sizeof(o), .shard = 2, .shards = 2 };
	assert_int_equal(tier_put_begin(w->c, &key, 1, &o, &p), -EINVAL);
	o = (struct tier_put_options){ .size = sizeof(o), .shard = 1 };
	assert_int_equal(tier_put_begin(w->c, &key, 1, &o, &p), -EINVAL);
	o = (struct tier_put_options){ .size = sizeof(o), .parts = 5 };
	assert_int_equal(tier_put_begin(w->c, &key, 1, &o, &p), -EINVAL);
	/* Three ranks on two groups: rank 0 has none, and asks for nothing else. */
	o = (struct tier_put_options){ .size = sizeof(o), .parts = 1, .shards = 3 };
	assert_int_equal(tier_put_begin(w->c, &key, 1, &o, &p), -EINVAL);
	o = (struct tier_put_options){ 0 };
	assert_int_equal(tier_put_begin(w->c, &key, 1, &o, &p), -EINVAL);
	assert_int_equal(tier_put_commit(NULL, 0), -EINVAL);
	tier_put_abort(NULL);
	assert_int_equal(tier_put_begin(w->c, &key, 1, NULL, &p), 0);
	assert_int_equal(tier_put_commit(p, 1ull << 63), -EINVAL);
	tier_put_abort(p);
	w->x->writable = 0;
	assert_int_equal(tier_context_open(w->t, "ctx", NULL, &w->c), 0);
	assert_int_equal(tier_put_begin(w->c, &key, 1, NULL, &p), -EACCES);
	assert_null(p);
}

static void test_the_arena_fills_and_empties(void **state)
{
	struct world *w = *state; /* 1 MiB of staging, 24 KiB a block */
	tier_key keys[42];
	tier_put *p[64];
	uint32_t n = 0;
	int rc = 0;

	for (uint32_t i = 0; i < 42; i++)
		keys[i] = world_key(i);
	while (n < 64 && (rc = tier_put_begin(w->c, keys, 5, NULL, &p[n])) == 0)
		n++;
	assert_int_equal(rc, -ENOBUFS);
	assert_int_equal(n, 8);
	assert_non_null(strstr(tier_error_text(), "staging"));
	tier_put_abort(p[3]);
	assert_int_equal(tier_put_begin(w->c, keys, 5, NULL, &p[3]), 0);
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(tier_put_commit(p[i], i), 0);
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(wait_one(w->t).result, 0);
	assert_int_equal(tier_put_begin(w->c, keys, 42, NULL, &p[0]), 0);
	/* Left open: tier_close ends it. */
}

static void test_put_copy_in_pieces(void **state)
{
	enum { BLOCKS = 100 };
	struct world *w = *state; /* 2.4 MB through 1 MiB of staging */
	tier_key keys[BLOCKS];
	uint8_t *data = malloc(BLOCKS * 6 * 4096);

	for (uint32_t i = 0; i < BLOCKS; i++) {
		keys[i] = world_key(i);
		for (uint32_t page = 0; page < 6; page++)
			memset(data + (i * 6 + page) * 4096, (int)(i + page), 4096);
	}
	assert_int_equal(tier_put_copy(w->c, keys, BLOCKS, data, NULL), BLOCKS);
	assert_int_equal(tier_match(w->c, keys, BLOCKS, NULL), BLOCKS);
	for (uint32_t i = 0; i < BLOCKS; i++)
		assert_block(w, &keys[i], (uint8_t)i);
	assert_int_equal(tier_put_copy(w->c, keys, BLOCKS, data, NULL), BLOCKS);
	assert_int_equal(tier_put_copy(w->c, keys, 0, NULL, NULL), 0);
	assert_int_equal(tier_put_copy(w->c, keys, 1, NULL, NULL), -EINVAL);
	assert_int_equal(tier_put_copy(w->c, NULL, 1, data, NULL), -EINVAL);
	assert_int_equal(tier_put_copy(NULL, keys, 1, data, NULL), -EINVAL);
	free(data);
}

/* ---- ask ------------------------------------------------------------------------------------- */

static bool hook_keep(struct fake *f, const struct abi_sqe *e, struct abi_cqe *c, bool *silent)
{
	(void)f;
	(void)c;
	*silent = e->op == ABI_OP_FETCH || e->op == ABI_OP_FETCH_PAGES ||
		  e->op == ABI_OP_PUT_RESERVE;
	return *silent;
}

static bool hook_late(struct fake *f, const struct abi_sqe *e, struct abi_cqe *c, bool *silent)
{
	(void)f;
	(void)silent;
	if (e->op != ABI_OP_FETCH)
		return false;
	c->status = ABI_STATUS_LATE;
	c->value = 1;
	return true;
}

static bool hook_echo(struct fake *f, const struct abi_sqe *e, struct abi_cqe *c, bool *silent)
{
	(void)silent;
	if (e->op != ABI_OP_FETCH && e->op != ABI_OP_FETCH_PAGES && e->op != ABI_OP_PIN)
		return false;
	/* The first reference as it travelled. */
	memcpy(&c->value, f->client[0].staging + e->arg_offset, sizeof(c->value));
	c->aux = e->arg_bytes;
	return true;
}

static void test_references_travel_without_salt(void **state)
{
	struct world *w = *state;
	tier_block b = world_block(w, 1);
	struct tier_page page = { b, 3 };
	struct tier_completion c;
	uint64_t pin;
	union {
		uint64_t word;
		struct abi_block_ref ref;
	} want = { .ref = { b.slot, index_block(&w->x->ix, b.slot)->generation } };

	w->fake->hook = hook_echo;
	assert_int_equal(tier_fetch_start(w->c, &b, 1, ASK(TIER_CXL, .user_data = 5)), 0);
	c = wait_one(w->t);
	assert_int_equal(c.user_data, 5);
	assert_int_equal(c.value, want.word);
	assert_int_equal(c.aux, sizeof(struct abi_block_ref));
	assert_int_equal(tier_fetch_pages_start(w->c, &page, 1, ASK(TIER_HBM, .user_data = 6)), 0);
	c = wait_one(w->t);
	assert_int_equal(c.value, want.word);
	assert_int_equal(c.aux, sizeof(struct abi_page_ref));
	assert_int_equal(tier_pin(w->c, &b, 1, TIER_CXL, 0, &pin), sizeof(struct abi_block_ref));
	assert_int_equal(pin, want.word);
	assert_int_equal(tier_unpin(w->c, pin), 0);
}

static void test_fetch_waits_and_is_late(void **state)
{
	struct world *w = *state;
	tier_block b[3] = { world_block(w, 1), world_block(w, 2), world_block(w, 3) };
	struct tier_range range = { .part_first = 1, .part_count = 1 };
	struct tier_page page = { b[0], 0 };
	tier_key keys[3] = { world_key(1), world_key(2), world_key(9) };

	assert_int_equal(tier_fetch(w->c, b, 3, NULL), 3);
	assert_int_equal(tier_fetch(w->c, b, 3, ASK(TIER_HBM, .range = &range)), 3);
	assert_int_equal(tier_fetch(w->c, b, 0, NULL), 0);
	assert_int_equal(tier_fetch_pages(w->c, &page, 1, NULL), 1);
	w->fake->hook = hook_late;
	assert_int_equal(tier_fetch(w->c, b, 3, NULL), 1);
	w->fake->hook = NULL;
	assert_int_equal(tier_delete(w->c, keys, 3), 2);
	assert_int_equal(tier_match(w->c, keys, 1, NULL), 0);
}

static void test_ask_refuses_nonsense(void **state)
{
	struct world *w = *state;
	tier_block b = world_block(w, 1);
	struct tier_page page = { b, 0 };
	struct tier_range range = { .part_first = 1, .part_count = 2 };
	uint64_t pin;

	assert_int_equal(tier_fetch_start(NULL, &b, 1, NULL), -EINVAL);
	assert_int_equal(tier_fetch_start(w->c, NULL, 1, NULL), -EINVAL);
	assert_int_equal(tier_fetch_start(w->c, &b, 0, NULL), -EINVAL);
	assert_int_equal(tier_fetch_start(w->c, &b, 1, ASK(TIER_NVME)), -EINVAL);
	assert_int_equal(tier_fetch_start(w->c, &b, 1, ASK(TIER_CXL, .user_data = UINT64_MAX)),
			 -EINVAL);
	assert_int_equal(tier_fetch_start(w->c, &b, 8193, NULL), -EINVAL);
	assert_int_equal(tier_fetch_start(w->c, &b, 1, ASK(TIER_CXL, .range = &range)), -EINVAL);
	range = (struct tier_range){ .part_first = 2 };
	assert_int_equal(tier_fetch_start(w->c, &b, 1, ASK(TIER_CXL, .range = &range)), -EINVAL);
	range = (struct tier_range){ .layer_first = 2 };
	assert_int_equal(tier_fetch_start(w->c, &b, 1, ASK(TIER_CXL, .range = &range)), -EINVAL);
	range = (struct tier_range){ .layer_first = 2, .layer_count = 1 };
	assert_int_equal(tier_fetch_start(w->c, &b, 1, ASK(TIER_CXL, .range = &range)), -EINVAL);
	assert_non_null(strstr(tier_error_text(), "no part of the range has a layer 2"));
	assert_int_equal(tier_fetch_pages_start(w->c, &page, 4097, NULL), -EINVAL);
	assert_int_equal(tier_fetch_pages_start(w->c, &page, 1, ASK(77)), -EINVAL);
	range = (struct tier_range){ 0 };
	assert_int_equal(tier_fetch_pages_start(w->c, &page, 1, ASK(TIER_CXL, .range = &range)),
			 -EINVAL);
	assert_int_equal(tier_fetch_pages(w->c, &page, 1, ASK(TIER_CXL, .range = &range)), -EINVAL);
	assert_int_equal(tier_fetch(w->c, NULL, 1, NULL), -EINVAL);
	assert_int_equal(tier_fetch_pages(w->c, NULL, 1, NULL), -EINVAL);
	assert_int_equal(tier_pin(w->c, &b, 1, TIER_CXL, 0, NULL), -EINVAL);
	assert_int_equal(tier_pin(w->c, &b, 0, TIER_CXL, 0, &pin), -EINVAL);
	assert_int_equal(tier_pin(w->c, &b, 1, TIER_REMOTE, 0, &pin), -EINVAL);
	assert_int_equal(tier_unpin(NULL, 0), -EINVAL);
	assert_int_equal(tier_delete(w->c, NULL, 1), -EINVAL);
	assert_int_equal(tier_cancel(NULL, 0), -EINVAL);
	assert_int_equal(tier_cancel(w->t, UINT64_MAX), -EINVAL);
	assert_int_equal(tier_drain(NULL), -EINVAL);
}

/* Answers what was asked for. */
static bool hook_ask(struct fake *f, const struct abi_sqe *e, struct abi_cqe *c, bool *silent)
{
	(void)f;
	(void)silent;
	if (e->op != ABI_OP_FETCH && e->op != ABI_OP_FETCH_PAGES)
		return false;
	c->value = e->tier | (uint64_t)e->part_first << 8 | (uint64_t)e->part_count << 16 |
		   (uint64_t)e->layer_first << 24 | (uint64_t)e->layer_count << 32 |
		   (uint64_t)e->klass << 48;
	c->aux = e->deadline_ns;
	return true;
}

static void test_an_ask_travels_whole(void **state)
{
	struct world *w = *state;
	tier_block b = world_block(w, 1);
	struct tier_page page = { b, 0 };
	const struct tier_range range = { 1, 1, 1, 2 };
	struct tier_ask ask = { .size = sizeof(ask), .range = &range, .user_data = 5,
				.klass = TIER_CLASS_SPECULATIVE };
	const uint64_t klass = (uint64_t)TIER_CLASS_SPECULATIVE << 48;
	struct tier_completion c;

	ask.deadline_ns = time_now_ns() + LONG_NS;
	w->fake->hook = hook_ask;
	assert_int_equal(tier_fetch_start(w->c, &b, 1, &ask), 0);
	c = wait_one(w->t);
	assert_int_equal(c.user_data, 5);
	assert_int_equal(c.value, TIER_HBM | 1 << 8 | 1 << 16 | 1 << 24 | 2ull << 32 | klass);
	assert_int_equal(c.aux, ask.deadline_ns);
	assert_int_equal(tier_fetch(w->c, &b, 1, &ask), c.value);
	ask.range = NULL;
	assert_int_equal(tier_fetch_pages_start(w->c, &page, 1, &ask), 0);
	c = wait_one(w->t);
	assert_int_equal(c.user_data, 5);
	assert_int_equal(c.value, TIER_HBM | klass);
	assert_int_equal(c.aux, ask.deadline_ns);
	assert_int_equal(tier_fetch_pages(w->c, &page, 1, &ask), TIER_HBM | klass);
	ask.klass = TIER_CLASS_SPECULATIVE + 1; /* the daemon's own */
	assert_int_equal(tier_fetch_pages(w->c, &page, 1, &ask), -EINVAL);
	ask.klass = TIER_CLASS_DEMAND;
	ask.reserved = 1;
	assert_int_equal(tier_fetch(w->c, &b, 1, &ask), -EINVAL);
}

static void test_no_ask_is_cxl_and_everything(void **state)
{
	struct world *w = *state;
	tier_block b = world_block(w, 1);
	struct tier_page page = { b, 0 };
	struct tier_completion c;

	w->fake->hook = hook_ask;
	assert_int_equal(tier_fetch(w->c, &b, 1, NULL), TIER_CXL);
	assert_int_equal(tier_fetch_pages(w->c, &page, 1, NULL), TIER_CXL);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(i ? tier_fetch_start(w->c, &b, 1, NULL) :
				     tier_fetch_pages_start(w->c, &page, 1, NULL), 0);
		c = wait_one(w->t);
		assert_int_equal(c.user_data, 0);
		assert_int_equal(c.value, TIER_CXL);
		assert_int_equal(c.aux, 0);
	}
}

static void test_an_ask_carries_its_size(void **state)
{
	struct world *w = *state;
	tier_block b = world_block(w, 1);
	struct tier_page page = { b, 0 };
	struct {
		struct tier_ask ask;
		uint64_t newer;
	} from = { .ask = { .size = sizeof(from), .tier = TIER_CXL } };

	w->fake->hook = hook_ask;
	assert_int_equal(tier_fetch(w->c, &b, 1, &from.ask), TIER_CXL);
	from.newer = 1;
	assert_int_equal(tier_fetch(w->c, &b, 1, &from.ask), -E2BIG);
	assert_int_equal(tier_fetch_start(w->c, &b, 1, &from.ask), -E2BIG);
	assert_int_equal(tier_fetch_pages(w->c, &page, 1, &from.ask), -E2BIG);
	assert_int_equal(tier_fetch_pages_start(w->c, &page, 1, &from.ask), -E2BIG);
	/* An older caller knows no deadline. */
	from.ask.deadline_ns = 1;
	from.ask.size = offsetof(struct tier_ask, deadline_ns);
	assert_int_equal(tier_fetch(w->c, &b, 1, &from.ask), TIER_CXL);
	from.ask.size = 0;
	assert_int_equal(tier_fetch(w->c, &b, 1, &from.ask), -EINVAL);
	assert_int_equal(tier_fetch_pages_start(w->c, &page, 1, &from.ask), -EINVAL);
}

static void test_cancel_finds_by_user_data(void **state)
{
	struct world *w = *state;
	tier_block b = world_block(w, 1);

	assert_int_equal(tier_cancel(w->t, 5), -ENOENT);
	w->fake->hook = hook_keep;
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(tier_fetch_start(w->c, &b, 1, ASK(TIER_CXL, .user_data = 5)), 0);
	assert_int_equal(tier_cancel(w->t, 5), 0);
	assert_int_equal(w->fake->ops[ABI_OP_CANCEL], 3);
	assert_int_equal(tier_cancel(w->t, 6), -ENOENT);
}

static void test_read_pages_fetches_what_is_missing(void **state)
{
	struct world *w = *state;
	tier_block b = world_block(w, 1);
	struct tier_page page[3] = { { b, 0 }, { b, 1 }, { b, 2 } };
	struct tier_lease lease[3];

	assert_int_equal(tier_read_pages(w->r, w->c, page, 3, 0, lease), 3);
	tier_release_many(w->r, lease, 3);
	page_retire(index_page(&w->x->ix, b.slot, 1), ABI_TIER_CXL);
	/* The fake says READY and brings nothing: bounded, and the rest is leased. */
	assert_int_equal(tier_read_pages(w->r, w->c, page, 3, 0, lease), 2);
	assert_int_equal(lease[1].error, -ENODATA);
	assert_null(lease[1].data);
	assert_true(w->fake->ops[ABI_OP_FETCH_PAGES] >= 1);
	tier_release_many(w->r, lease, 3);
}

static bool hook_full(struct fake *f, const struct abi_sqe *e, struct abi_cqe *c, bool *silent)
{
	(void)f;
	(void)silent;
	c->res = -ENOSPC;
	c->aux = (uint64_t)(ABI_TIER_CXL + 1) << 8 * ABI_HELD_TIER |
		 (uint64_t)ABI_LIMIT_HOST << 8 * ABI_HELD_LIMIT |
		 40ull << 8 * ABI_HELD_LEASED | 30ull << 8 * ABI_HELD_REMOVED;
	return e->op == ABI_OP_FETCH_PAGES;
}

static bool hook_late_pages(struct fake *f, const struct abi_sqe *e, struct abi_cqe *c,
			    bool *silent)
{
	(void)f;
	(void)silent;
	c->status = ABI_STATUS_LATE;
	return e->op == ABI_OP_FETCH_PAGES;
}

static void test_read_pages_says_why_a_page_did_not_come(void **state)
{
	struct world *w = *state;
	tier_block b = world_block(w, 1);
	struct tier_page page[3] = { { b, 0 }, { b, 1 }, { b, 2 } };
	struct tier_lease lease[3];

	page_retire(index_page(&w->x->ix, b.slot, 1), ABI_TIER_CXL);
	w->fake->hook = hook_full;
	assert_int_equal(tier_read_pages(w->r, w->c, page, 3, 0, lease), 2);
	assert_int_equal(lease[0].error, 0);
	assert_int_equal(lease[1].error, -ENOSPC);
	assert_non_null(strstr(tier_error_text(), "no room in CXL"));
	assert_non_null(strstr(tier_error_text(),
			       "40 % leased (30 % of contexts that were removed)"));
	tier_release_many(w->r, lease, 3);
	w->fake->hook = hook_late_pages;
	assert_int_equal(tier_read_pages(w->r, w->c, page, 3, 0, lease), 2);
	assert_int_equal(lease[1].error, -ETIMEDOUT);
	tier_release_many(w->r, lease, 3);
}

/* ---- completions ----------------------------------------------------------------------------- */

static void test_a_full_ring_pushes_back(void **state)
{
	struct world *w = *state;
	tier_block b = world_block(w, 1);
	struct tier_completion c[256];
	uint32_t n = 0, got = 0;
	int rc;

	w->fake->mute = true;
	while ((rc = tier_fetch_start(w->c, &b, 1, ASK(TIER_CXL, .user_data = n))) == 0)
		n++;
	assert_int_equal(rc, -EAGAIN);
	assert_int_equal(n, FAKE_SQ);
	assert_int_equal(tier_poll(w->t, c, 256), 0);
	w->fake->mute = false;
	while (got < n) {
		rc = tier_wait(w->t, c, 1, 256, LONG_NS);
		assert_true(rc > 0);
		for (int i = 0; i < rc; i++)
			assert_int_equal(c[i].user_data, got++);
	}
	/* Completions that nobody takes push back, too, and leave waiting calls alone. */
	for (n = 0; (rc = tier_fetch_start(w->c, &b, 1, ASK(TIER_CXL, .user_data = n))) == 0; n++)
		tier_drain(w->t);
	assert_int_equal(rc, -EAGAIN);
	assert_int_equal(tier_fetch(w->c, &b, 1, NULL), 1);
	assert_int_equal(tier_wait(w->t, c, n < 256 ? n : 256, 256, LONG_NS), n < 256 ? n : 256);
	assert_int_equal(tier_fetch_start(w->c, &b, 1, ASK(TIER_CXL, .user_data = n)), 0);
}

static void test_wait_is_bounded(void **state)
{
	struct world *w = *state;
	tier_block b = world_block(w, 1);
	uint64_t begin = time_now_ns();
	struct tier_completion c;

	assert_int_equal(tier_wait(w->t, &c, 1, 1, 20 * NS_PER_MS), 0);
	assert_true(time_now_ns() - begin >= 20 * NS_PER_MS);
	assert_int_equal(tier_wait(w->t, &c, 0, 1, LONG_NS), 0);
	assert_int_equal(tier_wait(w->t, &c, 2, 1, 0), -EINVAL);
	assert_int_equal(tier_wait(w->t, NULL, 1, 1, 0), -EINVAL);
	assert_int_equal(tier_poll(w->t, NULL, 1), -EINVAL);
	assert_int_equal(tier_poll(NULL, &c, 1), -EINVAL);
	/* A daemon that does not answer: the deadline, and a moment's grace. */
	w->fake->hook = hook_keep;
	begin = time_now_ns();
	assert_int_equal(tier_fetch(w->c, &b, 1,
				    ASK(TIER_CXL, .deadline_ns = begin + 10 * NS_PER_MS)),
			 -ETIMEDOUT);
	assert_true(time_now_ns() - begin < 9 * NS_PER_S); /* the default is 10 s */
}

static uint64_t given_up; /* user_data of the reserve that its caller left */

static bool hook_slow_reserve(struct fake *f, const struct abi_sqe *e, struct abi_cqe *c,
			      bool *silent)
{
	(void)f;
	if (e->op == ABI_OP_PUT_RESERVE && given_up == 0) {
		given_up = e->user_data;
		*silent = true;
		return true;
	}
	if (e->op == ABI_OP_NOP || e->op != ABI_OP_DRAIN || given_up == 0)
		return false;
	/* The answer to the old question, instead of one to this. */
	c->user_data = given_up;
	c->value = 7;
	given_up = 1;
	return true;
}

static void test_a_reserve_that_comes_late_is_aborted(void **state)
{
	struct world *w = *state;
	struct tier_put_options o = { .size = sizeof(o) };
	const uint32_t *sq_tail = &w->fake->client[0].region->sq_tail;
	uint32_t tail = atomic_load_acquire_u32(sq_tail);
	tier_key key = world_key(1);
	struct tier_completion c;
	tier_put *p;

	given_up = 0;
	w->fake->hook = hook_slow_reserve;
	/* On a crowded machine it may be late before it is asked. */
	for (uint64_t wait_ns = 5 * NS_PER_MS; atomic_load_acquire_u32(sq_tail) == tail;
	     wait_ns *= 2) {
		o.deadline_ns = time_now_ns() + wait_ns;
		assert_int_equal(tier_put_begin(w->c, &key, 1, &o, &p), -ETIMEDOUT);
	}
	while (!fake_ops(w->fake, ABI_OP_PUT_RESERVE))
		usleep(1000);
	assert_true(given_up != 0);
	{
		const struct submission s = {
			.entry = { .op = ABI_OP_DRAIN }, .owner = REQUEST_ORPHAN };

		LOCK_SCOPE(&w->t->lock);
		assert_int_equal(submit_entry(w->t, &s, NULL), 0);
	}
	for (uint32_t i = 0; i < 600 && !fake_ops(w->fake, ABI_OP_PUT_ABORT); i++)
		tier_wait(w->t, &c, 1, 1, 50 * NS_PER_MS);
	assert_int_equal(fake_ops(w->fake, ABI_OP_PUT_ABORT), 1);
}

static void test_the_event_descriptor(void **state)
{
	struct world *w = *state;
	tier_block b = world_block(w, 1);
	struct tier_completion c[4];
	int fd = tier_event_fd(w->t);
	struct pollfd p = { .fd = fd, .events = POLLIN };

	assert_true(fd >= 0);
	assert_int_equal(tier_event_fd(w->t), fd);
	assert_int_equal(tier_poll(w->t, c, 4), 0);
	assert_int_equal(poll(&p, 1, 0), 0);
	for (uint32_t i = 0; i < 50; i++) {
		int n = 0;

		assert_int_equal(tier_fetch_start(w->c, &b, 1, ASK(TIER_CXL, .user_data = i)), 0);
		/* A waiting call of the same thread takes it off the ring meanwhile. */
		if (i % 2)
			assert_int_equal(tier_fetch(w->c, &b, 1, NULL), 1);
		assert_int_equal(poll(&p, 1, 60000), 1);
		while (n == 0) {
			n = tier_poll(w->t, c, 4);
			if (n == 0)
				assert_int_equal(poll(&p, 1, 60000), 1);
		}
		assert_int_equal(n, 1);
		assert_int_equal(c[0].user_data, i);
		/* The daemon signals behind the completion that we have taken: it has by then. */
		fake_ops(w->fake, ABI_OP_FETCH);
		assert_int_equal(tier_poll(w->t, c, 4), 0);
		assert_int_equal(poll(&p, 1, 0), 0);
	}
}

/* ---- many threads ---------------------------------------------------------------------------- */

struct worker {
	struct world *w;
	tier_block b;
	uint32_t number;
	uint32_t failed;
};

static void *waiter(void *arg)
{
	struct worker *k = arg;

	for (uint32_t i = 0; i < 200; i++)
		k->failed += tier_fetch(k->w->c, &k->b, 1, NULL) != 1;
	return NULL;
}

static void *putter(void *arg)
{
	struct worker *k = arg;
	static uint8_t data[6 * 4096];

	for (uint32_t i = 0; i < 50; i++) {
		tier_key key = world_key(k->number * 1000 + i);

		k->failed += tier_put_copy(k->w->c, &key, 1, data, NULL) != 1;
	}
	return NULL;
}

static void *starter(void *arg)
{
	struct worker *k = arg;

	for (uint32_t i = 0; i < 200; i++)
		while (tier_fetch_start(k->w->c, &k->b, 1,
					ASK(TIER_CXL, .user_data = i)) == -EAGAIN)
			usleep(100);
	return NULL;
}

static void *taker(void *arg)
{
	struct worker *k = arg;
	struct tier_completion c[8];

	for (uint32_t n = 0; n < 200;) {
		int got = tier_wait(k->w->t, c, 1, 8, LONG_NS);

		if (got <= 0) {
			k->failed++;
			break;
		}
		n += (uint32_t)got;
	}
	return NULL;
}

static void test_waiters_of_all_kinds_together(void **state)
{
	static void *(*const kind[])(void *) = { waiter, putter, starter, taker, waiter, putter };
	struct world *w = *state;
	pthread_t thread[COUNT(kind)];
	struct worker k[COUNT(kind)];

	for (uint32_t i = 0; i < COUNT(kind); i++)
		k[i] = (struct worker){ .w = w, .b = world_block(w, i), .number = i };
	for (uint32_t i = 0; i < COUNT(kind); i++)
		assert_int_equal(pthread_create(&thread[i], NULL, kind[i], &k[i]), 0);
	for (uint32_t i = 0; i < COUNT(kind); i++)
		pthread_join(thread[i], NULL);
	for (uint32_t i = 0; i < COUNT(kind); i++)
		assert_int_equal(k[i].failed, 0);
}

/* ---- admin ----------------------------------------------------------------------------------- */

static void test_admin_joins_the_pieces(void **state)
{
	struct world *w = *state;
	char *reply;

	assert_int_equal(tier_admin(w->t, "status", NULL, &reply), 0);
	assert_string_equal(reply, "{\"verb\":\"ok\"}");
	free(reply);
	assert_int_equal(tier_admin(w->t, "status", "{}", &reply), 0);
	free(reply);
	assert_int_equal(tier_admin(w->t, NULL, NULL, &reply), -EINVAL);
	assert_int_equal(tier_admin(w->t, "", NULL, &reply), -EINVAL);
	assert_int_equal(tier_admin(w->t, "x", NULL, NULL), -EINVAL);
	assert_int_equal(tier_admin(w->t, "a-verb-that-is-longer-than-any-may-be", NULL, &reply),
			 -EINVAL);
	assert_null(reply);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)
	const struct CMUnitTest tests[] = {
		T(test_put_in_place),
		T(test_put_layout_of_a_shard),
		T(test_put_refuses_nonsense),
		T(test_the_arena_fills_and_empties),
		T(test_put_copy_in_pieces),
		T(test_references_travel_without_salt),
		T(test_fetch_waits_and_is_late),
		T(test_ask_refuses_nonsense),
		T(test_an_ask_travels_whole),
		T(test_no_ask_is_cxl_and_everything),
		T(test_an_ask_carries_its_size),
		T(test_cancel_finds_by_user_data),
		T(test_read_pages_fetches_what_is_missing),
		T(test_read_pages_says_why_a_page_did_not_come),
		T(test_a_full_ring_pushes_back),
		T(test_wait_is_bounded),
		T(test_a_reserve_that_comes_late_is_aborted),
		T(test_the_event_descriptor),
		T(test_waiters_of_all_kinds_together),
		T(test_admin_joins_the_pieces),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
