/*
 * The lock-free readers against one action of the daemon, at every instruction of theirs: a page is
 * retired or moved, a slot used anew, a bucket rewritten. Under a lease nothing may have changed,
 * and what is there all the time must be found (libtier/abi/hazard.h, index.h). Sequentially
 * consistent; tests/model has the store buffers.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/unit/step.h"
#include "tests/unit/test_libtier_world.h"

#define PAGES 6u
#define LIST 2u
#define SCRIBBLE 0xee
#define CHAIN (ABI_BUCKET_SLOTS + 1) /* entries of a bucket line and one in an overflow line */
#define APART 120u /* instructions between a writer's two halves: less than a reader's patience */

/* One round: the reader's call, and what it got. */
struct round {
	struct world *w;
	tier_key key;
	tier_block block;
	uint32_t page;
	uint32_t slot;
	tier_key other; /* key of a neighbour in the bucket, or of the slot's next life */
	uint32_t neighbour; /* the first entry of the chain, and one that is in no chain */
	uint32_t guest;
	bool freed;     /* the daemon found a place in no hazard word, and used it anew */
	bool kept;      /* ... or in one */
	int rc;
	struct tier_lease lease[LIST];
	struct tier_page list[LIST];
	struct tier_found found;
};

static struct abi_reader *area(const struct world *w)
{
	struct fake_client *k = &w->fake->client[0];

	return (void *)((uint8_t *)k->region + k->region->reader_offset);
}

/* As the daemon scans: up to the high-water word. */
static bool held(const struct round *k, uint64_t word)
{
	const struct abi_reader *r = area(k->w);
	uint64_t place = abi_place(k->w->x->ix.header->context_id, ABI_TIER_CXL, word);

	for (uint32_t i = 0; i < r->high_water && i < ABI_HAZARD_SLOTS; i++)
		if (r->slot[i] == place)
			return true;
	return false;
}

/* The place is somebody else's now, unless a reader is there. */
static void use_anew(struct round *k, uint64_t word)
{
	if (held(k, word)) {
		k->kept = true;
		return;
	}
	k->freed = true;
	memset(k->w->x->mem[ABI_TIER_CXL] + abi_word_addr(word), SCRIBBLE, 4096);
}

static void retire(void *arg)
{
	struct round *k = arg;
	struct abi_page *d = index_page(&k->w->x->ix, k->slot, k->page);
	uint64_t word = d->word[ABI_TIER_CXL];

	page_retire(d, ABI_TIER_CXL);
	use_anew(k, word);
}

static void move(void *arg)
{
	struct round *k = arg;
	struct fake_context *x = k->w->x;
	struct abi_page *d = index_page(&x->ix, k->slot, k->page);
	uint64_t word = d->word[ABI_TIER_CXL], to = x->mem_used[ABI_TIER_CXL];

	x->mem_used[ABI_TIER_CXL] += 4096;
	memcpy(x->mem[ABI_TIER_CXL] + to, x->mem[ABI_TIER_CXL] + abi_word_addr(word), 4096);
	page_move(d, ABI_TIER_CXL, to);
	use_anew(k, word);
}

/* The block goes, and another one takes its slot as soon as its pages are free. */
static void replace(void *arg)
{
	struct round *k = arg;
	struct fake_context *x = k->w->x;

	index_remove(&x->ix, k->slot);
	for (uint32_t p = 0; p < PAGES; p++) {
		struct abi_page *d = index_page(&x->ix, k->slot, p);
		uint64_t word = d->word[ABI_TIER_CXL];

		page_retire(d, ABI_TIER_CXL);
		use_anew(k, word);
		if (!held(k, word))
			page_free(d, ABI_TIER_CXL);
	}
	if (k->kept)
		return;
	index_slot_free(&x->ix, k->slot);
	fake_store(x, &k->other, ABI_BLOCK_COMMITTED);
}

/* ---- the reader's calls --------------------------------------------------------------------- */

static void lease_page(void *arg)
{
	struct round *k = arg;

	k->rc = tier_lease_page(k->w->r, k->w->c, k->block, k->page, 0, &k->lease[0]);
}

static void lease_key(void *arg)
{
	struct round *k = arg;

	k->rc = tier_lease_key(k->w->r, k->w->c, &k->key, k->page, 0, &k->lease[0]);
}

static void lease_list(void *arg)
{
	struct round *k = arg;

	k->rc = tier_lease_pages(k->w->r, k->w->c, k->list, LIST, 0, k->lease);
}

static void match_one(void *arg)
{
	struct round *k = arg;

	k->rc = (int)tier_match(k->w->c, &k->key, 1, &k->found);
}

static void match_list(void *arg)
{
	struct round *k = arg;
	tier_key keys[4] = { k->key, k->key, k->key, k->key };
	struct tier_found found[4];

	k->rc = (int)tier_match(k->w->c, keys, 4, found) == 4;
	k->found = found[3];
}

/* ---- rounds --------------------------------------------------------------------------------- */

static void begin(struct round *k, struct world *w, uint32_t n)
{
	*k = (struct round){ .w = w, .page = n % PAGES };
	k->key = world_key(2 * n);
	k->other = world_key(2 * n + 1);
	k->block = world_block(w, 2 * n);
	k->slot = k->block.slot;
	for (uint32_t i = 0; i < LIST; i++)
		k->list[i] = (struct tier_page){ k->block, (k->page + i) % PAGES };
}

/* A lease shows the bytes of its block, or there is none. */
static void judge(struct round *k, struct tier_lease *lease, uint32_t page)
{
	if (!lease->data) {
		assert_true(lease->error == -ENODATA || lease->error == -ESTALE ||
			    lease->error == -ENOENT);
		return;
	}
	for (uint32_t i = 0; i < 4096; i += 64)
		assert_int_equal(((const uint8_t *)lease->data)[i],
				 fake_byte(k->key.bytes, page));
	tier_release(k->w->r, lease);
}

/* No hazard word stays behind. */
static void assert_quiet(const struct world *w)
{
	for (uint32_t i = 0; i < ABI_HAZARD_SLOTS; i++)
		assert_int_equal(area(w)->slot[i], 0);
}

/* Instructions of a call that nothing disturbs. */
static uint32_t steps_of(struct world *w, void (*call)(void *), uint32_t n)
{
	struct round k;
	struct step s = { .arg = &k };
	uint32_t steps;

	if (!STEP_WORKS)
		skip();
	begin(&k, w, n);
	steps = step_run(&s, call);
	tier_release_many(w->r, k.lease, LIST);
	return steps;
}

/*
 * call, with what happens before its 1st, 2nd ... last instruction; at least once each way: it came
 * early enough for the place to be used anew, and too late.
 */
static void at_each(struct world *w, void (*call)(void *), void (*happens)(void *), bool list)
{
	uint32_t freed = 0, kept = 0, steps = steps_of(w, call, 0);

	for (uint32_t at = 1; at <= steps; at += step_stride(steps)) {
		struct round k;
		struct step s = { .at = { at }, .happens = { happens }, .arg = &k };

		begin(&k, w, at);
		step_run(&s, call);
		for (uint32_t i = 0; i < (list ? LIST : 1); i++)
			judge(&k, &k.lease[i], list ? k.list[i].page : k.page);
		assert_quiet(w);
		freed += k.freed;
		kept += k.kept;
	}
	/* A lease is published near its end: a wide stride may pass over that. */
	assert_true(freed > 2 && (kept > 2 || step_stride(steps) > 8));
}

static void test_a_page_is_retired(void **state)
{
	at_each(*state, lease_page, retire, false);
}

static void test_a_page_moves(void **state)
{
	at_each(*state, lease_page, move, false);
}

static void test_a_slot_is_used_anew(void **state)
{
	at_each(*state, lease_page, replace, false);
}

static void test_a_slot_is_used_anew_under_a_key(void **state)
{
	at_each(*state, lease_key, replace, false);
}

static void test_a_page_of_a_list_is_retired(void **state)
{
	at_each(*state, lease_list, retire, true);
}

static void test_a_page_of_a_list_moves(void **state)
{
	struct world *w = *state;
	struct tier_lease all[ABI_HAZARD_SLOTS];
	struct tier_page pages[ABI_HAZARD_SLOTS];
	tier_block b = world_block(w, 1);

	at_each(w, lease_list, move, true);
	/* None of the reader's slots was lost on the way. */
	for (uint32_t i = 0; i < ABI_HAZARD_SLOTS; i++)
		pages[i] = (struct tier_page){ b, i % PAGES };
	assert_int_equal(tier_lease_pages(w->r, w->c, pages, ABI_HAZARD_SLOTS, 0, all),
			 ABI_HAZARD_SLOTS);
	for (uint32_t i = 1; i < ABI_HAZARD_SLOTS; i++)
		assert_true(all[i].slot != all[0].slot);
	tier_release_many(w->r, all, ABI_HAZARD_SLOTS);
}

/* ---- look-ups ------------------------------------------------------------------------------- */

/* A reference that match gives is of the key that was asked for, or stale. */
static void test_match_while_a_slot_is_used_anew(void **state)
{
	struct world *w = *state;
	uint32_t steps = steps_of(w, match_list, 0);

	for (uint32_t at = 1; at <= steps; at += step_stride(steps)) {
		struct tier_lease lease;
		struct round k;
		struct step s = { .at = { at }, .happens = { replace }, .arg = &k };
		int rc;

		begin(&k, w, at);
		step_run(&s, at / step_stride(steps) % 2 ? match_one : match_list);
		if (k.rc != 1)
			continue;
		rc = tier_lease_page(w->r, w->c, k.found.block, k.page, 0, &lease);
		if (rc == 0)
			judge(&k, &lease, k.page);
	}
}

static struct abi_bucket *bucket_of(const struct round *k)
{
	const struct index *ix = &k->w->x->ix;
	uint64_t hash = abi_key_hash(k->key.bytes);

	return &ix->bucket[abi_bucket_of(hash, ix->header->bucket_count)];
}

static uint32_t *taken; /* where our entry was */

/* The writer's first half: seq is odd, and our entry has left its place. */
static void bucket_opens(void *arg)
{
	struct abi_bucket *b = bucket_of(arg), *line = b;
	struct round *k = arg;
	uint32_t i = 0;

	atomic_store_relaxed_u32(&b->seq, b->seq + 1);
	release_fence();
	while (line->slot[i] != k->slot)
		if (++i == ABI_BUCKET_SLOTS) {
			line = &k->w->x->ix.overflow[line->overflow - 1];
			i = 0;
		}
	taken = &line->slot[i];
	atomic_store_relaxed_u32(taken, ABI_SLOT_NONE);
}

static void bucket_closes(void *arg)
{
	struct abi_bucket *b = bucket_of(arg);
	struct round *k = arg;

	atomic_store_relaxed_u32(taken, k->slot);
	atomic_store_release_u32(&b->seq, b->seq + 1);
}

/* Stores a block whose key is of this bucket. */
static uint32_t chained(struct world *w, uint64_t bucket)
{
	static uint64_t last;
	tier_key key = { .bytes = { 0 } };

	do {
		last++;
		memcpy(key.bytes, &last, sizeof(last));
	} while (abi_bucket_of(abi_key_hash(key.bytes), w->x->ix.header->bucket_count) != bucket);
	return fake_store(w->x, &key, ABI_BLOCK_COMMITTED);
}

static void look_for(struct round *k, struct world *w, uint32_t slot)
{
	*k = (struct round){ .w = w, .slot = slot };
	memcpy(k->key.bytes, index_block(&w->x->ix, slot)->key, sizeof(k->key.bytes));
}

static void chain_new(struct world *w, uint32_t *slot, uint64_t bucket, uint32_t entries)
{
	for (uint32_t i = 0; i < entries; i++)
		slot[i] = chained(w, bucket);
}

/* What is in the table all the time is found, also while its entry is on its way; in the bucket's
 * own line and in another one. */
static void test_match_while_a_bucket_is_written(void **state)
{
	static void (*const calls[])(void *) = { match_one, match_list };
	struct world *w = *state;
	uint32_t slot[CHAIN];

	if (!STEP_WORKS)
		skip();
	chain_new(w, slot, 0, CHAIN);
	for (uint32_t c = 0; c < 2 * COUNT(calls); c++) {
		struct round k;
		struct step whole = { .arg = &k };
		uint32_t steps;

		look_for(&k, w, slot[c % 2 ? CHAIN - 1 : 0]);
		steps = step_run(&whole, calls[c / 2]);
		assert_true(steps > 2 * APART);
		for (uint32_t at = 1; at + APART <= steps; at += step_stride(steps)) {
			struct step s = { .at = { at, at + APART },
					  .happens = { bucket_opens, bucket_closes },
					  .arg = &k };

			step_run(&s, calls[c / 2]);
			assert_int_equal(k.rc, 1);
			assert_int_equal(k.found.block.slot, k.slot);
		}
	}
}

/* Our entry, the last one, moves to the bucket's own line; the line in which it was gets another
 * chain's. */
static void neighbour_leaves(void *arg)
{
	struct round *k = arg;
	struct index *ix = &k->w->x->ix;

	index_remove(ix, k->neighbour);
	index_block_state(ix, k->guest, ABI_BLOCK_COMMITTED);
	if (index_insert(ix, k->guest) == 0)
		k->freed = true;
}

static void test_match_while_an_entry_leaves_its_overflow_line(void **state)
{
	struct world *w = *state;
	struct index *ix = &w->x->ix;
	struct round k;
	struct step whole = { .arg = &k };
	uint32_t slot[CHAIN], other[CHAIN], steps;

	if (!STEP_WORKS)
		skip();
	chain_new(w, slot, 0, CHAIN);
	chain_new(w, other, 1, CHAIN);
	index_remove(ix, other[CHAIN - 1]);
	look_for(&k, w, slot[CHAIN - 1]);
	steps = step_run(&whole, match_list);
	for (uint32_t at = 1; at <= steps; at += step_stride(steps)) {
		struct step s = { .at = { at }, .happens = { neighbour_leaves }, .arg = &k };

		look_for(&k, w, slot[CHAIN - 1]);
		k.neighbour = slot[0];
		k.guest = other[CHAIN - 1];
		step_run(&s, match_list);
		assert_int_equal(k.rc, 1);
		assert_int_equal(k.found.block.slot, k.slot);
		assert_true(k.freed);
		/* As it was, but for who is first and who is last. */
		index_remove(ix, k.guest);
		index_block_state(ix, k.neighbour, ABI_BLOCK_COMMITTED);
		assert_int_equal(index_insert(ix, k.neighbour), 0);
		slot[0] = k.slot;
		slot[CHAIN - 1] = k.neighbour;
	}
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)
	const struct CMUnitTest tests[] = {
		T(test_a_page_is_retired),
		T(test_a_page_moves),
		T(test_a_slot_is_used_anew),
		T(test_a_slot_is_used_anew_under_a_key),
		T(test_a_page_of_a_list_is_retired),
		T(test_a_page_of_a_list_moves),
		T(test_match_while_a_slot_is_used_anew),
		T(test_match_while_a_bucket_is_written),
		T(test_match_while_an_entry_leaves_its_overflow_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
