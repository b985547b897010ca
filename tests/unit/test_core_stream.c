/*
 * What streams decide before a byte moves: how items are numbered over parts that begin at
 * different layers, what window a stream needs, who gets how much of the pool, who gives back, who
 * waits, and how long room stays set aside. The whole machine at work is the simulator's.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/lib/unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tierd/core/state.h"

#define MIB (1ull << 20)
#define PAGE 65536u
#define SLOTS 16u

struct world {
	struct core c;
	struct context x;
	struct abi_index_header header;
	struct abi_block block[SLOTS];
	struct abi_block_ref ref[SLOTS];
};

static void part(struct abi_geometry *g, uint32_t first, uint32_t layers, uint32_t groups)
{
	g->part[g->part_count++] = (struct abi_part){
		.layers = layers,
		.groups = groups,
		.page_bytes = PAGE,
		.page_stride = PAGE,
		.page_base = g->pages_per_block,
		.layer_first = first,
	};
	g->pages_per_block += layers * groups;
}

static int set_up(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	w->c.config.stream_share = 8;
	w->c.streams.table = calloc(CORE_STREAMS_MAX, sizeof(*w->c.streams.table));
	for (uint32_t tier = 0; tier < ABI_MEM_TIERS; tier++) {
		w->c.pool[tier].capacity = tier == ABI_TIER_HBM ? 512 * MIB : 4096 * MIB;
		w->x.plan.quota[tier] = w->c.pool[tier].capacity;
	}
	w->x.ix.header = &w->header;
	w->x.ix.block = w->block;
	part(&w->x.spec.geometry, 0, 4, 2); /* kv of the model's layers 0 to 3 */
	part(&w->x.spec.geometry, 2, 4, 1); /* something of layers 2 to 5 */
	for (uint32_t i = 0; i < SLOTS; i++) {
		w->block[i].parts = 3;
		w->ref[i].slot = i;
	}
	*state = w;
	return 0;
}

static int tear_down(void **state)
{
	struct world *w = *state;

	free(w->c.streams.table);
	free(w);
	return 0;
}

/* A stream of count blocks over all parts and layers, as begin() leaves it. */
static struct stream *stream_of(struct world *w, uint32_t number, uint32_t tier, uint32_t count)
{
	struct stream *s = &w->c.streams.table[number];

	*s = (struct stream){ .used = true, .number = number, .ctx = &w->x, .ref = w->ref,
			      .tier = (uint8_t)tier, .count = count, .usable = count,
			      .part_end = 2, .layers = 6, .per_layer = 3 * count };
	if (w->c.streams.high <= number)
		w->c.streams.high = number + 1;
	return s;
}

/* ---- items ----------------------------------------------------------------------------------- */

static void test_items_go_layer_by_layer(void **state)
{
	struct world *w = *state;
	struct stream *s = stream_of(w, 0, ABI_TIER_CXL, 3);
	uint32_t seen = 0, layer_before = 0;

	for (uint32_t i = 0; i < 6 * 9; i++) {
		uint32_t block = 99, page = 99, layer = i / 9;

		if (!stream_item(s, i, &block, &page))
			continue;
		seen++;
		assert_true(layer >= layer_before);
		layer_before = layer;
		assert_true(block < 3);
		if (page < 8)
			assert_int_equal(page / 2, layer);
		else
			assert_int_equal(page - 8 + 2, layer);
	}
	assert_int_equal(seen, 3 * 12); /* every page of every block, once */
}

static void test_parts_that_a_block_lacks_are_void(void **state)
{
	struct world *w = *state;
	struct stream *s = stream_of(w, 0, ABI_TIER_CXL, 2);
	uint32_t seen[2] = { 0 }, block, page;

	w->block[1].parts = 1;
	for (uint32_t i = 0; i < 6 * 6; i++)
		if (stream_item(s, i, &block, &page))
			seen[block]++;
	assert_int_equal(seen[0], 12);
	assert_int_equal(seen[1], 8);
}

static void test_a_range_of_parts(void **state)
{
	struct world *w = *state;
	struct stream *s = stream_of(w, 0, ABI_TIER_CXL, 2);
	uint32_t block, page;

	s->part_first = 1;
	s->layer_first = 3;
	s->layers = 2;
	s->per_layer = 2;
	for (uint32_t i = 0; i < 4; i++) {
		assert_true(stream_item(s, i, &block, &page));
		assert_int_equal(block, i % 2);
		assert_int_equal(page, 8 + 1 + i / 2);
	}
}

/* ---- windows --------------------------------------------------------------------------------- */

/* Layers 2 and 3 are the largest: three pages of a block. */
static void test_a_window_is_two_layers_at_least(void **state)
{
	struct world *w = *state;
	struct stream *s = stream_of(w, 0, ABI_TIER_CXL, 16);

	assert_int_equal(stream_window_plan(&w->c, s, 0), 0);
	assert_int_equal(s->layer_bytes, 16 * 3 * PAGE);
	assert_int_equal(s->need, 2 * s->layer_bytes);
	assert_int_equal(s->want, 6 * s->layer_bytes); /* all of it is less than 128 MiB */
	assert_int_equal(stream_window_plan(&w->c, s, s->need), 0);
	assert_int_equal(s->want, s->need);
	assert_int_equal(stream_window_plan(&w->c, s, s->need - 1), -EMSGSIZE);
}

static void test_what_can_never_fit_is_refused(void **state)
{
	struct world *w = *state;
	struct stream *s = stream_of(w, 0, ABI_TIER_HBM, 1);

	/* An eighth of HBM is 64 MiB: 170 blocks are the last that fit twice. */
	s->count = 170;
	assert_int_equal(stream_window_plan(&w->c, s, 0), 0);
	s->count = 171;
	assert_int_equal(stream_window_plan(&w->c, s, 0), -EMSGSIZE);
	assert_int_equal(s->need, 2ull * 171 * 3 * PAGE);
	s->tier = ABI_TIER_CXL; /* there is room */
	assert_int_equal(stream_window_plan(&w->c, s, 0), 0);
	w->x.plan.quota[ABI_TIER_CXL] = 2 * s->need - 1; /* the context's own quota counts */
	assert_int_equal(stream_window_plan(&w->c, s, 0), -EMSGSIZE);
}

static void test_cache_mode_has_no_window(void **state)
{
	struct world *w = *state;
	struct stream *s = stream_of(w, 0, ABI_TIER_HBM, 1);

	s->count = 100000;
	s->mode = ABI_MODE_CACHE;
	assert_int_equal(stream_window_plan(&w->c, s, 0), 0);
	assert_int_equal(s->window, s->layers);
	assert_int_equal(w->c.streams.grants[ABI_TIER_HBM], 0);
}

/* A block has 12 pages: half of HBM holds 341 blocks, half of CXL 2,730. */
static void test_a_cache_takes_what_half_of_the_tier_holds(void **state)
{
	struct world *w = *state;
	struct stream *s = stream_of(w, 0, ABI_TIER_HBM, 1);

	assert_int_equal(stream_window_blocks(s), UINT32_MAX);
	s->mode = ABI_MODE_CACHE;
	assert_int_equal(stream_window_blocks(s), 341);
	s->layers = 1; /* of two pages */
	assert_int_equal(stream_window_blocks(s), 2048);
	s->layers = 6;
	s->tier = ABI_TIER_CXL;
	assert_int_equal(stream_window_blocks(s), 2730);
	w->x.plan.quota[ABI_TIER_CXL] = PAGE;
	assert_int_equal(stream_window_blocks(s), 1);
}

/* ---- the pool -------------------------------------------------------------------------------- */

/* Streams of 1,000 blocks: a layer is 187.5 MiB, the pool 512 MiB. */
static struct stream *large(struct world *w, uint32_t number)
{
	struct stream *s = stream_of(w, number, ABI_TIER_CXL, 1000);

	assert_int_equal(stream_window_plan(&w->c, s, 0), 0);
	assert_int_equal(s->need, 2 * 1000ull * 3 * PAGE);
	return s;
}

static void test_who_does_not_fit_waits(void **state)
{
	struct world *w = *state;
	struct stream *a = large(w, 0), *b = large(w, 1);

	assert_true(stream_admit(&w->c, a));
	assert_int_equal(a->window, 2);
	assert_false(stream_admit(&w->c, b));
	assert_int_equal(b->window, 0);
	stream_window_end(&w->c, a);
	assert_int_equal(w->c.streams.grants[ABI_TIER_CXL], 0);
	assert_true(stream_admit(&w->c, b));
	assert_int_equal(b->window, 2);
}

static void test_windows_shrink_to_their_need_for_others(void **state)
{
	struct world *w = *state;
	struct stream *a = stream_of(w, 0, ABI_TIER_CXL, 300), *b;

	/* A layer is 56.25 MiB; it wants six and may: 337.5 of 512 MiB. */
	assert_int_equal(stream_window_plan(&w->c, a, 512 * MIB), 0);
	assert_true(stream_admit(&w->c, a));
	assert_int_equal(a->window, 6);
	a->issue = 2 * a->per_layer + 1; /* it uses three of them */
	b = stream_of(w, 1, ABI_TIER_CXL, 900); /* needs 337.5 MiB */
	assert_int_equal(stream_window_plan(&w->c, b, 0), 0);
	assert_true(stream_admit(&w->c, b));
	assert_int_equal(b->window, 2);
	assert_int_equal(a->window, 3);
	assert_true(w->c.streams.grants[ABI_TIER_CXL] <= 512 * MIB);
	/* While nobody waits it grows into what is free: nothing yet, all when the other ends. */
	a->dropped = a->per_layer;
	stream_window_moved(&w->c, a);
	assert_int_equal(a->window, 3);
	stream_window_end(&w->c, b);
	assert_int_equal(a->window, 6);
}

static void test_who_waits_makes_others_give_back(void **state)
{
	struct world *w = *state;
	struct stream *a = stream_of(w, 0, ABI_TIER_CXL, 400), *b;

	/* A layer is 75 MiB; six are 450. */
	assert_int_equal(stream_window_plan(&w->c, a, 512 * MIB), 0);
	assert_true(stream_admit(&w->c, a));
	a->issue = 6 * a->per_layer; /* all in use: nothing to give now */
	b = stream_of(w, 1, ABI_TIER_CXL, 500);
	assert_int_equal(stream_window_plan(&w->c, b, 0), 0);
	assert_false(stream_admit(&w->c, b));
	for (uint32_t layer = 1; layer < 4; layer++) {
		a->dropped = layer * a->per_layer;
		stream_window_moved(&w->c, a);
		assert_int_equal(a->window, 6 - layer);
	}
	assert_true(stream_admit(&w->c, b));
	assert_int_equal(b->window, 2);
}

/* Two users are there. A stream of 100 blocks needs 37.5 MiB of 512, and wants 112.5. */
static struct stream *of_user(struct world *w, uint32_t number, uint32_t account, uint32_t blocks)
{
	struct stream *s = stream_of(w, number, ABI_TIER_CXL, blocks);

	w->c.accounts.users = 2;
	s->account = account;
	assert_int_equal(stream_window_plan(&w->c, s, 0), 0);
	return s;
}

/* One user's windows are three quarters of the pool at most: the other one has the rest. */
static void test_a_user_leaves_windows_to_others(void **state)
{
	struct world *w = *state;
	struct stream *s[12], *other, *more;
	uint32_t n = 0;

	for (; n < 12; n++) {
		s[n] = of_user(w, n, 1, 100);
		if (!stream_admit(&w->c, s[n]))
			break;
		s[n]->issue = s[n]->window * s[n]->per_layer; /* it never lets go */
		assert_true(w->c.accounts.table[1].windows[ABI_TIER_CXL] <= 384 * MIB);
	}
	assert_in_range(n, 3, 11);
	other = of_user(w, 20, 2, 300); /* needs 112.5 MiB */
	assert_true(stream_admit(&w->c, other));
	/* It may grow: who waits, waits for his own. */
	more = of_user(w, 21, 2, 10);
	assert_true(stream_admit(&w->c, more));
	stream_window_end(&w->c, other);
	other->used = false;
	assert_int_equal(more->window, more->layers);
	assert_false(stream_admit(&w->c, s[n]));
	stream_window_end(&w->c, s[0]);
	s[0]->used = false;
	assert_true(stream_admit(&w->c, s[n]));
}

/* It may need more than a user may have: then it is the only one of his. */
static void test_a_user_may_have_one_stream_of_any_size(void **state)
{
	struct world *w = *state;
	struct stream *small = of_user(w, 0, 1, 10), *whole = of_user(w, 1, 1, 1300);

	assert_true(whole->need > 384 * MIB);
	assert_true(stream_admit(&w->c, small));
	assert_false(stream_admit(&w->c, whole));
	stream_window_end(&w->c, small);
	small->used = false;
	assert_true(stream_admit(&w->c, whole));
	assert_int_equal(whole->window, 2);
	assert_false(stream_admit(&w->c, of_user(w, 2, 1, 10)));
	stream_window_end(&w->c, whole);
	assert_int_equal(w->c.accounts.table[1].windows[ABI_TIER_CXL], 0);
}

/* ... until somebody else has waited for a while, however long it may take by itself. */
static void test_who_has_more_than_his_share_has_his_time(void **state)
{
	struct world *w = *state;
	struct request whole_r = { .deadline_ns = 600000 * MS }, fair_r = whole_r;
	struct stream *whole = of_user(w, 0, 1, 1300), *fair = of_user(w, 1, 2, 100), *other;

	whole->request = &whole_r;
	fair->request = &fair_r;
	whole->deadline_ns = fair->deadline_ns = whole_r.deadline_ns;
	assert_true(stream_admit(&w->c, whole));
	assert_false(stream_admit(&w->c, of_user(w, 2, 1, 10))); /* its own user's */
	assert_int_equal(whole_r.deadline_ns, 600000 * MS);
	w->c.streams.table[2].used = false;
	assert_false(stream_admit(&w->c, fair));
	assert_int_equal(whole_r.deadline_ns, 30000 * MS);
	assert_int_equal(whole->deadline_ns, 30000 * MS);
	w->c.now_ns = 1000 * MS;
	assert_false(stream_admit(&w->c, fair)); /* looking again gives no new time */
	assert_int_equal(whole_r.deadline_ns, 30000 * MS);
	/* Who keeps to his share has all the time that he named. */
	stream_window_end(&w->c, whole);
	whole->used = false;
	other = of_user(w, 3, 3, 1200);
	assert_true(stream_admit(&w->c, fair));
	fair->issue = fair->layers * fair->per_layer;
	assert_false(stream_admit(&w->c, other));
	assert_int_equal(fair_r.deadline_ns, 600000 * MS);
}

/* Several of a user who was alone: only those that are beyond what he may have now. */
static void test_of_several_some_keep_their_time(void **state)
{
	struct world *w = *state;
	struct request r[2] = { { .deadline_ns = 600000 * MS }, { .deadline_ns = 600000 * MS } };
	struct stream *s[2] = { of_user(w, 0, 1, 680), of_user(w, 1, 1, 680) };

	w->c.accounts.users = 1;
	for (uint32_t i = 0; i < 2; i++) {
		s[i]->request = &r[i];
		s[i]->deadline_ns = r[i].deadline_ns;
		assert_true(stream_admit(&w->c, s[i]));
	}
	assert_false(stream_admit(&w->c, of_user(w, 2, 2, 100)));
	assert_int_equal(r[0].deadline_ns, 600000 * MS);
	assert_int_equal(r[1].deadline_ns, 30000 * MS);
}

/* Alone, a user may have it all; and what he has then he keeps when another one comes. */
static void test_a_user_alone_may_have_all_windows(void **state)
{
	struct world *w = *state;
	struct stream *a = of_user(w, 0, 1, 680), *b = of_user(w, 1, 1, 680);

	w->c.accounts.users = 1;
	assert_int_equal(a->need, 255 * MIB);
	assert_true(stream_admit(&w->c, a));
	assert_true(stream_admit(&w->c, b));
	w->c.accounts.users = 2;
	stream_window_moved(&w->c, a);
	assert_int_equal(a->window, 2);
	assert_int_equal(w->c.accounts.table[1].windows[ABI_TIER_CXL],
			 w->c.streams.grants[ABI_TIER_CXL]);
}

static void test_hbm_streams_count_in_both_tiers(void **state)
{
	struct world *w = *state;
	struct stream *s = stream_of(w, 0, ABI_TIER_HBM, 100);

	assert_int_equal(stream_window_plan(&w->c, s, 0), 0);
	assert_true(stream_admit(&w->c, s));
	/* A layer is 18.75 MiB: an eighth of HBM holds three. */
	assert_int_equal(s->window, 3);
	assert_int_equal(w->c.streams.grants[ABI_TIER_HBM], 64 * MIB);
	assert_int_equal(w->c.streams.grants[ABI_TIER_CXL], s->want);
}

static void test_room_stays_set_aside_for_a_while(void **state)
{
	struct world *w = *state;
	struct stream *s = large(w, 0);

	assert_true(stream_admit(&w->c, s));
	assert_int_equal(w->c.streams.aside[ABI_TIER_CXL], s->grant[ABI_TIER_CXL]);
	stream_window_end(&w->c, s);
	s->used = false;
	w->c.now_ns = 1000 * MS;
	stream_tick(&w->c);
	assert_int_equal(w->c.streams.aside[ABI_TIER_CXL], s->need);
	w->c.now_ns = 5000 * MS;
	stream_tick(&w->c);
	assert_int_equal(w->c.streams.aside[ABI_TIER_CXL], 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_items_go_layer_by_layer),
		TEST(test_parts_that_a_block_lacks_are_void),
		TEST(test_a_range_of_parts),
		TEST(test_a_window_is_two_layers_at_least),
		TEST(test_what_can_never_fit_is_refused),
		TEST(test_cache_mode_has_no_window),
		TEST(test_a_cache_takes_what_half_of_the_tier_holds),
		TEST(test_who_does_not_fit_waits),
		TEST(test_windows_shrink_to_their_need_for_others),
		TEST(test_who_waits_makes_others_give_back),
		TEST(test_a_user_leaves_windows_to_others),
		TEST(test_a_user_may_have_one_stream_of_any_size),
		TEST(test_who_has_more_than_his_share_has_his_time),
		TEST(test_of_several_some_keep_their_time),
		TEST(test_a_user_alone_may_have_all_windows),
		TEST(test_hbm_streams_count_in_both_tiers),
		TEST(test_room_stays_set_aside_for_a_while),
	};

	return cmocka_run_group_tests_name("stream", tests, NULL, NULL);
}
