/*
 * Match, lease and gather over a real index: what is found, what is refused and why, what the
 * daemon sees in the hazard slots, and that lists agree with single calls.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/unit/test_libtier_world.h"

static struct abi_reader *area(struct world *w, uint32_t i)
{
	struct fake_client *k = &w->fake->client[0];

	return (struct abi_reader *)((uint8_t *)k->region + k->region->reader_offset) + i;
}

static uint32_t slots_set(struct world *w)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < ABI_HAZARD_SLOTS; i++)
		n += area(w, 0)->slot[i] != 0;
	return n;
}

/* The page holds what fake_store put there. */
static void assert_page(const struct tier_lease *lease, uint32_t n, uint32_t page)
{
	tier_key key = world_key(n);
	const uint8_t *data = lease->data;

	assert_non_null(data);
	assert_int_equal(lease->bytes, 4096);
	assert_int_equal(data[0], fake_byte(key.bytes, page));
	assert_int_equal(data[4095], fake_byte(key.bytes, page));
}

/* ---- match ----------------------------------------------------------------------------------- */

static void test_match_finds_a_prefix(void **state)
{
	struct world *w = *state;
	struct tier_found found[200];
	tier_key keys[200];

	for (uint32_t i = 0; i < 200; i++) {
		keys[i] = world_key(i);
		if (i < 150 && i != 120)
			fake_store(w->x, &keys[i], ABI_BLOCK_COMMITTED);
	}
	fake_store(w->x, &keys[120], ABI_BLOCK_PENDING);
	assert_int_equal(tier_match(w->c, keys, 200, found), 120);
	assert_int_equal(tier_match(w->c, keys, 200, NULL), 120);
	assert_int_equal(tier_match(w->c, keys, 7, NULL), 7);
	assert_int_equal(tier_match(w->c, keys + 121, 29, found + 121), 29);
	for (uint32_t i = 0; i < 200; i++) {
		uint8_t want = i == 120 ? TIER_PENDING : i < 150 ? TIER_HIT : TIER_MISS;

		assert_int_equal(found[i].state, want);
	}
	assert_int_equal(found[3].tier, TIER_CXL);
}

/* The hash looks at 16 bytes of a key, the tag at 2: what is equal there must be told apart. */
static void test_keys_that_look_alike(void **state)
{
	struct world *w = *state;
	tier_key key = world_key(1), alike = key, keys[4];
	struct tier_found found[4];
	struct tier_lease lease;

	fake_store(w->x, &key, ABI_BLOCK_COMMITTED);
	alike.bytes[31] ^= 1;
	assert_int_equal(tier_match(w->c, &alike, 1, found), 0);
	assert_int_equal(found[0].state, TIER_MISS);
	assert_int_equal(tier_lease_key(w->r, w->c, &alike, 0, 0, &lease), -ENOENT);
	for (uint32_t i = 0; i < 4; i++)
		keys[i] = i < 2 ? key : alike;
	assert_int_equal(tier_match(w->c, keys, 4, found), 2);
	assert_int_equal(found[3].state, TIER_MISS);
	fake_store(w->x, &alike, ABI_BLOCK_COMMITTED);
	assert_int_equal(tier_match(w->c, keys, 4, found), 4);
	assert_int_not_equal(found[0].block.slot, found[3].block.slot);
}

static void test_match_of_many_keys_through_growth(void **state)
{
	enum { KEYS = 3000 };
	struct world *w = *state;
	tier_key *keys = calloc(KEYS, sizeof(*keys));

	for (uint32_t i = 0; i < KEYS; i++) {
		keys[i] = world_key(i);
		w->x->mem_used[ABI_TIER_CXL] = 0; /* the bytes do not matter here */
		fake_store(w->x, &keys[i], ABI_BLOCK_COMMITTED);
		if (i % 500 == 0)
			assert_int_equal(tier_match(w->c, keys, i + 1, NULL), i + 1);
	}
	assert_int_equal(tier_match(w->c, keys, KEYS, NULL), KEYS);
	for (uint32_t i = 0; i < KEYS; i += 97)
		index_remove(&w->x->ix, index_find(&w->x->ix, keys[i].bytes));
	assert_int_equal(tier_match(w->c, keys, KEYS, NULL), 0);
	assert_int_equal(tier_match(w->c, keys + 1, KEYS - 1, NULL), 96);
	free(keys);
}

static void test_match_obeys_hit_rules(void **state)
{
	struct world *w = *state;
	const struct tier_part parts[] = {
		{ .name = "kv", .kind = TIER_KIND_DENSE, .layers = 1, .groups = 1,
		  .page_bytes = 4096 },
		{ .name = "win", .kind = TIER_KIND_WINDOW, .kind_arg = 256, .layers = 1,
		  .groups = 1, .page_bytes = 4096, .hit_rule = TIER_HIT_LAST, .hit_arg = 2 },
	};
	const struct tier_geometry_options o = { .size = sizeof(o), .part_count = 2,
						 .part = parts };
	/* Bits: 1 = kv, 2 = win. */
	const uint8_t have[] = { 1, 3, 3, 1, 3, 3, 2 };
	const int64_t usable[] = { 0, 0, 3, 3, 3, 6, 6 };
	struct fake_context *x;
	tier_geometry *g;
	tier_context *c;
	tier_key keys[COUNT(have)];

	assert_int_equal(tier_geometry_new(&g, &o), 0);
	assert_int_equal(tier_context_create(w->t, "rules", g, NULL, &c), 0);
	x = &w->fake->context[1];
	for (uint32_t i = 0; i < COUNT(have); i++) {
		keys[i] = world_key(i);
		index_block(&x->ix, fake_store(x, &keys[i], ABI_BLOCK_COMMITTED))->parts = have[i];
	}
	for (uint32_t i = 0; i < COUNT(have); i++)
		assert_int_equal(tier_match(c, keys, i + 1, NULL), usable[i]);
	tier_geometry_free(g);
}

static void test_match_refuses_nonsense(void **state)
{
	struct world *w = *state;
	tier_key key = world_key(1);

	assert_int_equal(tier_match(NULL, &key, 1, NULL), -EINVAL);
	assert_int_equal(tier_match(w->c, NULL, 1, NULL), -EINVAL);
	assert_int_equal(tier_match(w->c, NULL, 0, NULL), 0);
	assert_non_null(strstr(tier_error_text(), "keys"));
}

/* ---- one page -------------------------------------------------------------------------------- */

/* hazard.h's tables in digits: what both sides compute alike can be wrong on both. */
static void test_words_are_as_the_format_says(void **state)
{
	(void)state;
	assert_true(abi_place(0, ABI_TIER_HBM, 0) == 0x8000000000000000);
	assert_true(abi_place(0xabc1234, ABI_TIER_REMOTE, UINT64_MAX) == 0x80091a3fffffffff);
	assert_true(abi_access(0xabc1234, 0x89abcdef, 0xfffe) == 0xfffe123489abcdef);
}

static void test_lease_shows_the_bytes_and_is_seen(void **state)
{
	struct world *w = *state;
	tier_block b = world_block(w, 1);
	struct tier_lease lease;

	for (uint32_t page = 0; page < 6; page++) {
		const struct abi_page *d = index_page(&w->x->ix, b.slot, page);

		assert_int_equal(tier_lease_page(w->r, w->c, b, page, 0, &lease), 0);
		assert_page(&lease, 1, page);
		assert_int_equal(lease.tier, TIER_CXL);
		assert_int_equal(area(w, 0)->slot[lease.slot],
				 abi_place(0, ABI_TIER_CXL, d->word[ABI_TIER_CXL]));
		assert_true(lease.slot < area(w, 0)->high_water);
		tier_release(w->r, &lease);
		assert_null(lease.data);
		assert_int_equal(slots_set(w), 0);
	}
	assert_int_equal(area(w, 0)->access_tail, 6);
	assert_int_equal(area(w, 0)->access[5], abi_access(0, b.slot, 1));
	assert_int_equal(area(w, 0)->high_water, 1);
}

static void test_lease_prefers_hbm(void **state)
{
	struct world *w = *state;
	tier_block b = world_block(w, 1);
	struct tier_lease lease;

	fake_page_ready(w->x, b.slot, 2, ABI_TIER_HBM, 0xaa);
	assert_int_equal(tier_lease_page(w->r, w->c, b, 2, 0, &lease), 0);
	assert_int_equal(lease.tier, TIER_HBM);
	assert_int_equal(*(const uint8_t *)lease.data, 0xaa);
	tier_release(w->r, &lease);
	assert_int_equal(tier_lease_page(w->r, w->c, b, 2, TIER_LEASE_CXL, &lease), 0);
	assert_int_equal(lease.tier, TIER_CXL);
	assert_page(&lease, 1, 2);
	tier_release(w->r, &lease);
}

static void test_lease_of_what_is_not_there(void **state)
{
	struct world *w = *state;
	tier_block b = world_block(w, 1);
	struct abi_page *d = index_page(&w->x->ix, b.slot, 3);
	struct tier_lease lease;

	page_retire(d, ABI_TIER_CXL);
	assert_int_equal(tier_lease_page(w->r, w->c, b, 3, 0, &lease), -ENODATA);
	assert_int_equal(lease.error, -ENODATA);
	assert_null(lease.data);
	assert_int_equal(tier_lease_page(w->r, w->c, b, 6, 0, &lease), -EINVAL);
	assert_int_equal(tier_lease_page(w->r, w->c, b, 0, 8, &lease), -EINVAL);
	assert_int_equal(tier_lease_page(NULL, w->c, b, 0, 0, &lease), -EINVAL);
	assert_int_equal(tier_lease_page(w->r, NULL, b, 0, 0, &lease), -EINVAL);
	assert_int_equal(tier_lease_page(w->r, w->c, b, 0, 0, NULL), -EINVAL);
	assert_int_equal(slots_set(w), 0);
}

static void test_a_block_that_went_is_stale(void **state)
{
	struct world *w = *state;
	tier_block b = world_block(w, 1);
	struct tier_lease lease;
	tier_block wild = { .slot = UINT32_MAX, .generation = b.generation };

	index_remove(&w->x->ix, b.slot);
	assert_int_equal(tier_lease_page(w->r, w->c, b, 0, 0, &lease), -ESTALE);
	assert_int_equal(tier_lease_page(w->r, w->c, wild, 0, 0, &lease), -ESTALE);
	wild.slot = 77;
	assert_int_equal(tier_lease_page(w->r, w->c, wild, 0, 0, &lease), -ESTALE);
	wild = (tier_block){ 0, 0 };
	assert_int_equal(tier_lease_page(w->r, w->c, wild, 0, 0, &lease), -ESTALE);
}

static void test_a_slot_used_anew_is_stale(void **state)
{
	struct world *w = *state;
	tier_block b = world_block(w, 1);
	tier_key key = world_key(2);
	struct tier_lease lease;

	index_remove(&w->x->ix, b.slot);
	for (uint32_t p = 0; p < 6; p++) {
		page_retire(index_page(&w->x->ix, b.slot, p), ABI_TIER_CXL);
		page_free(index_page(&w->x->ix, b.slot, p), ABI_TIER_CXL);
	}
	index_slot_free(&w->x->ix, b.slot);
	assert_int_equal(fake_store(w->x, &key, ABI_BLOCK_COMMITTED), b.slot);
	assert_int_equal(tier_lease_page(w->r, w->c, b, 0, 0, &lease), -ESTALE);
	assert_int_equal(tier_lease_key(w->r, w->c, &key, 0, 0, &lease), 0);
	assert_page(&lease, 2, 0);
	tier_release(w->r, &lease);
}

static void test_a_new_epoch_invalidates_all(void **state)
{
	struct world *w = *state;
	tier_block b = world_block(w, 1);
	tier_key key = world_key(1);
	struct tier_lease held, lease;
	uint64_t epoch = 0;

	assert_int_equal(tier_lease_page(w->r, w->c, b, 0, 0, &held), 0);
	assert_int_equal(tier_context_epoch(w->c), 1);
	assert_int_equal(tier_context_raise_epoch(w->t, "ctx", &epoch), 0);
	assert_int_equal(epoch, 2);
	assert_int_equal(tier_context_epoch(w->c), 2);
	assert_int_equal(tier_match(w->c, &key, 1, NULL), 0);
	assert_int_equal(tier_lease_page(w->r, w->c, b, 0, 0, &lease), -ESTALE);
	assert_int_equal(tier_lease_key(w->r, w->c, &key, 0, 0, &lease), -ENOENT);
	assert_page(&held, 1, 0);
	tier_release(w->r, &held);
}

static void test_a_pending_block_is_not_readable(void **state)
{
	struct world *w = *state;
	tier_key key = world_key(9);
	struct tier_found found;
	struct tier_lease lease;

	fake_page_ready(w->x, fake_store(w->x, &key, ABI_BLOCK_PENDING), 0, ABI_TIER_CXL, 1);
	assert_int_equal(tier_match(w->c, &key, 1, &found), 0);
	assert_int_equal(found.state, TIER_PENDING);
	assert_int_equal(tier_lease_page(w->r, w->c, found.block, 0, 0, &lease), -ENODATA);
	assert_int_equal(tier_lease_key(w->r, w->c, &key, 0, 0, &lease), -ENODATA);
}

static void test_a_removed_context_is_a_miss(void **state)
{
	struct world *w = *state;
	tier_block b = world_block(w, 1);
	tier_key key = world_key(1);
	struct tier_lease lease;

	assert_int_equal(tier_context_remove(w->t, "ctx"), 0);
	assert_int_equal(tier_match(w->c, &key, 1, NULL), 0);
	assert_int_equal(tier_lease_page(w->r, w->c, b, 0, 0, &lease), -ESTALE);
}

/* ---- slots ----------------------------------------------------------------------------------- */

static void test_the_access_log_goes_round(void **state)
{
	static const struct abi_reader untouched;
	struct world *w = *state;
	tier_block b = world_block(w, 1);
	struct tier_lease lease;
	uint32_t n = ABI_ACCESS_LOG + ABI_ACCESS_LOG / 2;

	for (uint32_t i = 0; i < n; i++) {
		assert_int_equal(tier_lease_page(w->r, w->c, b, 0, 0, &lease), 0);
		tier_release(w->r, &lease);
	}
	assert_int_equal(area(w, 0)->access_tail, n);
	for (uint32_t i = 0; i < ABI_ACCESS_LOG; i++)
		assert_int_equal(area(w, 0)->access[i], abi_access(0, b.slot, 1));
	assert_memory_equal(area(w, 1), &untouched, sizeof(untouched));
}

static void test_slots_run_out_and_come_back(void **state)
{
	struct world *w = *state;
	tier_block b = world_block(w, 1);
	static struct tier_lease lease[ABI_HAZARD_SLOTS];
	struct tier_lease copy, more;

	for (uint32_t i = 0; i < ABI_HAZARD_SLOTS; i++)
		assert_int_equal(tier_lease_page(w->r, w->c, b, i % 6, 0, &lease[i]), 0);
	assert_int_equal(slots_set(w), ABI_HAZARD_SLOTS);
	assert_int_equal(tier_lease_page(w->r, w->c, b, 0, 0, &more), -EAGAIN);
	copy = lease[500];
	tier_release(w->r, &lease[500]);
	tier_release(w->r, &lease[500]);
	tier_release(w->r, &copy);
	assert_int_equal(tier_lease_page(w->r, w->c, b, 0, 0, &more), 0);
	assert_int_equal(more.slot, copy.slot);
	assert_int_equal(tier_lease_page(w->r, w->c, b, 0, 0, &copy), -EAGAIN);
	lease[500] = more;
	tier_release_many(w->r, lease, ABI_HAZARD_SLOTS);
	assert_int_equal(slots_set(w), 0);
	assert_int_equal(tier_lease_page(w->r, w->c, b, 0, 0, &more), 0);
	/* Closing releases what is held. */
	tier_reader_close(w->r);
	assert_int_equal(slots_set(w), 0);
	assert_int_equal(area(w, 0)->owned, 0);
}

static void test_readers_run_out_and_come_back(void **state)
{
	struct world *w = *state;
	tier_reader *r[4];

	for (uint32_t i = 1; i < 4; i++)
		assert_int_equal(tier_reader_open(w->t, &r[i]), 0);
	assert_int_equal(tier_reader_open(w->t, &r[0]), -EAGAIN);
	assert_null(r[0]);
	assert_int_equal(area(w, 2)->owned, 1);
	tier_reader_close(r[2]);
	assert_int_equal(area(w, 2)->owned, 0);
	assert_int_equal(tier_reader_open(w->t, &r[2]), 0);
	tier_reader_close(NULL);
}

static void test_hostile_release(void **state)
{
	struct world *w = *state;
	struct tier_lease lease = { .data = &lease, .slot = 5 };

	tier_release(w->r, &lease);
	lease = (struct tier_lease){ .data = &lease, .slot = UINT16_MAX };
	tier_release(w->r, &lease);
	tier_release(NULL, &lease);
	tier_release(w->r, NULL);
	tier_release_many(w->r, NULL, 5);
	assert_int_equal(tier_lease_page(w->r, w->c, world_block(w, 1), 0, 0, &lease), 0);
	assert_int_equal(lease.slot, 0);
}

/* ---- lists ----------------------------------------------------------------------------------- */

static void test_lists_agree_with_single_calls(void **state)
{
	enum { PAGES = 300 };
	struct world *w = *state;
	tier_block b[50];
	struct tier_page page[PAGES];
	struct tier_lease lease[PAGES];
	uint32_t bad = 0;

	for (uint32_t i = 0; i < 50; i++)
		b[i] = world_block(w, i);
	index_remove(&w->x->ix, b[7].slot);
	page_retire(index_page(&w->x->ix, b[8].slot, 4), ABI_TIER_CXL);
	for (uint32_t i = 0; i < PAGES; i++)
		page[i] = (struct tier_page){ b[i / 6], i % 6 };
	page[299].page = 6;
	assert_int_equal(tier_lease_pages(w->r, w->c, page, PAGES, 0, lease), PAGES - 8);
	assert_int_equal(slots_set(w), PAGES - 8);
	for (uint32_t i = 0; i < PAGES; i++) {
		if (i / 6 == 7)
			assert_int_equal(lease[i].error, -ESTALE);
		else if (i == 8 * 6 + 4)
			assert_int_equal(lease[i].error, -ENODATA);
		else if (i == 299)
			assert_int_equal(lease[i].error, -EINVAL);
		else
			assert_page(&lease[i], i / 6, i % 6);
		bad += lease[i].data == NULL;
	}
	assert_int_equal(bad, 8);
	tier_release_many(w->r, lease, PAGES);
	assert_int_equal(slots_set(w), 0);
}

static uint32_t world_page(struct world *w, uint32_t part, uint32_t layer, uint32_t group)
{
	return (uint32_t)tier_geometry_page(tier_context_geometry(w->c), part, layer, group);
}

static void test_lease_blocks_is_one_page_of_each(void **state)
{
	struct world *w = *state;
	tier_block b[40];
	struct tier_selection s = { .blocks = b, .count = 40 };
	struct tier_lease lease[40];

	for (uint32_t i = 0; i < 40; i++)
		b[i] = world_block(w, i);
	s.page = world_page(w, 0, 1, 1);
	assert_int_equal(tier_lease_blocks(w->r, w->c, &s, lease), 40);
	for (uint32_t i = 0; i < 40; i++)
		assert_page(&lease[i], i, 3);
	tier_release_many(w->r, lease, 40);
	s.page = world_page(w, 1, 1, 0);
	assert_int_equal(tier_lease_blocks(w->r, w->c, &s, lease), 40);
	assert_page(&lease[39], 39, 5);
	tier_release_many(w->r, lease, 40);
}

static void test_lease_blocks_refuses_nonsense(void **state)
{
	struct world *w = *state;
	tier_block b = world_block(w, 0);
	struct tier_selection s = { .blocks = &b, .count = 1 };
	const uint32_t beyond[] = { 6, world_page(w, 2, 0, 0), world_page(w, 1, 0, 1) };
	struct tier_lease lease;

	for (uint32_t i = 0; i < COUNT(beyond); i++) {
		s.page = beyond[i];
		assert_int_equal(tier_lease_blocks(w->r, w->c, &s, &lease), -EINVAL);
	}
	s = (struct tier_selection){ .blocks = &b, .count = 1, .flags = 8 };
	assert_int_equal(tier_lease_blocks(w->r, w->c, &s, &lease), -EINVAL);
	s = (struct tier_selection){ .blocks = &b, .count = 1 };
	assert_int_equal(tier_lease_blocks(w->r, w->c, &s, NULL), -EINVAL);
	assert_int_equal(tier_lease_blocks(w->r, w->c, NULL, &lease), -EINVAL);
	s.blocks = NULL;
	assert_int_equal(tier_lease_blocks(w->r, w->c, &s, &lease), -EINVAL);
	s.count = 0;
	assert_int_equal(tier_lease_blocks(w->r, w->c, &s, NULL), 0);
	assert_int_equal(slots_set(w), 0);
}

static void test_a_list_is_all_or_nothing_for_slots(void **state)
{
	struct world *w = *state;
	tier_block b = world_block(w, 1);
	static struct tier_page page[ABI_HAZARD_SLOTS + 1];
	static struct tier_lease lease[ABI_HAZARD_SLOTS + 1];

	for (uint32_t i = 0; i <= ABI_HAZARD_SLOTS; i++)
		page[i] = (struct tier_page){ b, 0 };
	assert_int_equal(tier_lease_pages(w->r, w->c, page, ABI_HAZARD_SLOTS + 1, 0, lease),
			 -EAGAIN);
	assert_int_equal(slots_set(w), 0);
	assert_int_equal(tier_lease_pages(w->r, w->c, page, ABI_HAZARD_SLOTS, 0, lease),
			 ABI_HAZARD_SLOTS);
	assert_int_equal(tier_lease_pages(w->r, w->c, page, 1, 0, lease), -EAGAIN);
	tier_release_many(w->r, lease, ABI_HAZARD_SLOTS);
	assert_int_equal(tier_lease_pages(w->r, w->c, NULL, 1, 0, lease), -EINVAL);
	assert_int_equal(tier_lease_pages(w->r, w->c, page, 1, 0, NULL), -EINVAL);
	assert_int_equal(tier_lease_pages(w->r, w->c, page, 1, 8, lease), -EINVAL);
}

static void test_gather_copies(void **state)
{
	enum { PAGES = 100 };
	struct world *w = *state;
	static uint8_t out[PAGES * 8192];
	struct tier_page page[PAGES];
	int32_t error[PAGES];
	struct tier_lease held[ABI_HAZARD_SLOTS - 7];

	memset(error, 0x7f, sizeof(error));
	for (uint32_t i = 0; i < PAGES; i += 5) {
		tier_block b = world_block(w, i / 5);

		for (uint32_t k = 0; k < 5; k++)
			page[i + k] = (struct tier_page){ b, k };
	}
	page_retire(index_page(&w->x->ix, page[50].block.slot, 0), ABI_TIER_CXL);
	assert_int_equal(tier_gather(w->r, w->c, page, PAGES, INTO(out, 0, error)), PAGES - 1);
	for (uint32_t i = 0; i < PAGES; i++) {
		tier_key key = world_key(i / 5);

		assert_int_equal(error[i], i == 50 ? -ENODATA : 0);
		assert_int_equal(out[i * 4096 + 4095], i == 50 ? 0 : fake_byte(key.bytes, i % 5));
	}
	assert_int_equal(slots_set(w), 0);
	assert_int_equal(tier_gather(w->r, w->c, page, PAGES, INTO(out, 8192, NULL)), PAGES - 1);
	assert_int_equal(out[8192 * 99], fake_byte(world_key(19).bytes, 4));
	/* In groups of what slots there are. */
	for (uint32_t i = 0; i < COUNT(held); i++)
		assert_int_equal(tier_lease_page(w->r, w->c, page[0].block, 0, 0, &held[i]), 0);
	memset(out, 0, sizeof(out));
	assert_int_equal(tier_gather(w->r, w->c, page, PAGES, INTO(out, 8192, error)), PAGES - 1);
	assert_int_equal(out[8192 * 99], fake_byte(world_key(19).bytes, 4));
	tier_release_many(w->r, held, COUNT(held));
	assert_int_equal(tier_gather(w->r, w->c, page, 1, INTO(out, 100, error)), 0);
	assert_int_equal(error[0], -EINVAL);
	/* One that no block has takes no room: the next one lies where it would have. */
	page[0].page = w->x->ix.pages_per_block;
	memset(out, 0, sizeof(out));
	assert_int_equal(tier_gather(w->r, w->c, page, 2, INTO(out, 0, error)), 1);
	assert_int_equal(error[0], -EINVAL);
	assert_int_equal(out[4095], fake_byte(world_key(0).bytes, 1));
	assert_int_equal(tier_gather(w->r, w->c, page, 1, INTO(NULL, 0, error)), -EINVAL);
	assert_int_equal(tier_gather(NULL, w->c, page, 1, INTO(out, 0, error)), -EINVAL);
	assert_int_equal(tier_gather(w->r, w->c, page, 1, NULL), -EINVAL);
}

static void test_counters_count(void **state)
{
	struct world *w = *state;
	tier_block b = world_block(w, 1);
	struct tier_counters n = { .size = sizeof(n) };
	struct tier_lease lease;

	assert_int_equal(tier_lease_page(w->r, w->c, b, 0, 0, &lease), 0);
	index_remove(&w->x->ix, b.slot);
	assert_int_equal(tier_lease_page(w->r, w->c, b, 0, 0, &lease), -ESTALE);
	tier_reader_close(w->r);
	assert_int_equal(tier_counters(w->t, &n), 0);
	assert_int_equal(n.leases, 1);
	assert_int_equal(n.lease_stale, 1);
	assert_int_equal(n.lookups, 1);
	assert_int_equal(n.lookup_hits, 1);
	n.size = 4;
	assert_int_equal(tier_counters(w->t, &n), -EINVAL);
	assert_int_equal(tier_counters(w->t, NULL), -EINVAL);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)
	const struct CMUnitTest tests[] = {
		T(test_match_finds_a_prefix),
		T(test_keys_that_look_alike),
		T(test_match_of_many_keys_through_growth),
		T(test_match_obeys_hit_rules),
		T(test_match_refuses_nonsense),
		cmocka_unit_test(test_words_are_as_the_format_says),
		T(test_lease_shows_the_bytes_and_is_seen),
		T(test_lease_prefers_hbm),
		T(test_lease_of_what_is_not_there),
		T(test_a_block_that_went_is_stale),
		T(test_a_slot_used_anew_is_stale),
		T(test_a_new_epoch_invalidates_all),
		T(test_a_pending_block_is_not_readable),
		T(test_a_removed_context_is_a_miss),
		T(test_the_access_log_goes_round),
		T(test_slots_run_out_and_come_back),
		T(test_readers_run_out_and_come_back),
		T(test_hostile_release),
		T(test_lists_agree_with_single_calls),
		T(test_lease_blocks_is_one_page_of_each),
		T(test_lease_blocks_refuses_nonsense),
		T(test_a_list_is_all_or_nothing_for_slots),
		T(test_gather_copies),
		T(test_counters_count),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
