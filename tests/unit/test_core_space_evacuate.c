/*
 * Emptying slabs of a space: what is chosen, parking around places that stay, compaction between
 * classes, reservations that nothing else may take, limits.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>

#include "tests/lib/unit.h"
#include "tierd/core/unit/space.h"

#define MIB (1ull << 20)
#define SLAB (8 * MIB)
#define PAGE 65536u
#define SMALL 4096u
#define PLACES (SLAB / PAGE)

struct fixture {
	struct pool pool;
	struct space *s;
};

static void open_space_of(struct fixture *f, uint64_t slabs, uint64_t bytes, uint32_t page)
{
	const uint32_t stride[2] = { page, SMALL };

	f->pool = (struct pool){ .capacity = slabs * bytes, .slab_bytes = bytes };
	assert_int_equal(space_open(&f->s, &f->pool, slabs * bytes, slabs * bytes, stride, 2),
			 0);
	assert_int_equal(space_slab_bytes(f->s), bytes);
}

static void open_space(struct fixture *f, uint64_t slabs)
{
	open_space_of(f, slabs, SLAB, PAGE);
}

static uint64_t alloc(struct fixture *f, uint32_t klass)
{
	uint64_t fresh;
	int64_t at = space_alloc(f->s, klass, &fresh);

	assert_true(at >= 0);
	return (uint64_t)at;
}

static void test_one_place_keeps_one_unit(void **state)
{
	struct fixture f;
	uint64_t kept, bytes, given = 0, slab;
	uint32_t live;
	int64_t at;

	(void)state;
	open_space(&f, 32);
	slab = alloc(&f, 0);
	for (uint32_t i = 1; i < PLACES; i++)
		alloc(&f, 0);
	kept = slab + 70 * PAGE; /* in the third of four units */
	for (uint64_t place = slab; place < slab + SLAB; place += PAGE)
		if (place != kept)
			space_free(f.s, place);
	assert_int_equal(space_evacuate_begin(f.s, 99, &live), slab);
	assert_int_equal(live, 1);
	while ((at = space_park(f.s, slab, &bytes)) >= 0) {
		assert_true(kept < (uint64_t)at || kept >= (uint64_t)at + bytes);
		space_park_punched(f.s, (uint64_t)at, bytes);
		given += bytes;
	}
	assert_int_equal(given, SLAB - 2 * MIB);
	assert_int_equal(f.pool.used, 2 * MIB);
	assert_int_equal(space_parked(f.s, UINT64_MAX), slab);
	space_free(f.s, kept);
	at = space_park(f.s, slab, &bytes);
	assert_true(at >= 0 && bytes == 2 * MIB);
	space_park_punched(f.s, (uint64_t)at, bytes);
	assert_int_equal(f.pool.used, 0);
	assert_int_equal(space_parked(f.s, UINT64_MAX), UINT64_MAX);
	assert_int_equal(alloc(&f, 1), slab); /* it is as good as new */
	space_close(f.s);
	assert_int_equal(f.pool.used, 0);
}

/* Of a full slab all but the n-th place leaves. Returns how much is given back, around it. */
static uint64_t park_around(struct fixture *f, uint64_t bytes, uint32_t page, uint32_t n)
{
	uint64_t slab = alloc(f, 0), kept = slab + (uint64_t)n * page, given = 0, part;
	uint32_t live;
	int64_t at;

	for (uint64_t i = 1; i < bytes / page; i++)
		alloc(f, 0);
	for (uint64_t i = 0; i < bytes / page; i++)
		if (i != n)
			space_free(f->s, slab + i * page);
	assert_int_equal(space_evacuate_begin(f->s, 99, &live), slab);
	while ((at = space_park(f->s, slab, &part)) >= 0) {
		assert_in_range(at, slab, slab + bytes - 1);
		assert_true((uint64_t)at + part <= slab + bytes);
		assert_true(kept + page <= (uint64_t)at || kept >= (uint64_t)at + part);
		space_park_punched(f->s, (uint64_t)at, part);
		given += part;
	}
	return given;
}

/* Pages of 12 KiB: the 171st of a slab ends in its second unit of 2 MiB. */
static void test_a_place_over_a_boundary_keeps_both_units(void **state)
{
	const uint32_t page = 12288, over = 2 * MIB / page;
	struct fixture f;

	(void)state;
	for (uint32_t n = over - 1; n <= over + 1; n++) {
		open_space_of(&f, 32, SLAB, page);
		assert_int_equal(park_around(&f, SLAB, page, n),
				 SLAB - (n == over ? 4 : 2) * MIB);
		space_close(f.s);
	}
}

/* 33 units of 4 MiB of which the last is a half. */
static void test_the_last_unit_ends_with_its_slab(void **state)
{
	const uint64_t bytes = 130 * MIB;
	struct fixture f;

	(void)state;
	open_space_of(&f, 32, bytes, PAGE);
	assert_int_equal(park_around(&f, bytes, PAGE, 0), bytes - 4 * MIB);
	space_close(f.s);
	open_space_of(&f, 32, bytes, PAGE);
	assert_int_equal(park_around(&f, bytes, PAGE, 129 * MIB / PAGE), bytes - 2 * MIB);
	space_close(f.s);
}

static void test_what_is_promised_is_there(void **state)
{
	struct fixture f;
	uint64_t fresh;
	int rc;

	(void)state;
	open_space(&f, 16);
	while ((rc = space_reserve(f.s, 0, 3 * PLACES / 2, &fresh)) == 1)
		;
	assert_int_equal(rc, 0);
	/* Others take all the rest, and not one of these. */
	while (space_alloc(f.s, 1, &fresh) >= 0)
		;
	while (space_alloc(f.s, 0, &fresh) >= 0)
		;
	assert_int_equal(space_alloc_move(f.s, 0), -ENOSPC);
	assert_int_equal(space_surplus(f.s, true), -ENOENT);
	for (uint32_t i = 0; i < 3 * PLACES / 2; i++)
		assert_true(space_alloc_reserved(f.s, 0) >= 0);
	while ((rc = space_reserve(f.s, 0, PLACES, &fresh)) == 1)
		;
	assert_int_equal(rc, -ENOSPC);
	space_close(f.s);
}

static void test_room_in_the_wrong_class_is_compacted(void **state)
{
	uint64_t place[16 * PLACES];
	struct fixture f;
	uint64_t fresh;
	uint32_t live, n = 0;
	int64_t slab;

	(void)state;
	open_space(&f, 16);
	for (int64_t at; (at = space_alloc(f.s, 0, &fresh)) >= 0;)
		place[n++] = (uint64_t)at;
	assert_int_equal(n, 16 * PLACES);
	assert_int_equal(space_compact_begin(f.s, &live), -ENOENT); /* nothing to gain */
	for (uint32_t i = 0; i < n; i += 4) /* a quarter of every slab is free */
		space_free(f.s, place[i]);
	assert_int_equal(space_compact_begin(f.s, &live), -ENOENT); /* and nobody wants it */
	assert_int_equal(space_alloc(f.s, 1, &fresh), -ENOSPC);
	slab = space_compact_begin(f.s, &live);
	assert_true(slab >= 0);
	assert_int_equal(live, 3 * PLACES / 4);
	for (uint32_t i = 0; i < n; i++) {
		int64_t to;

		if (i % 4 == 0 || place[i] < (uint64_t)slab ||
		    place[i] >= (uint64_t)slab + SLAB)
			continue;
		to = space_alloc_move(f.s, 0);
		assert_true(to >= 0 && !space_is_evacuated(f.s, (uint64_t)to));
		space_free(f.s, place[i]);
	}
	assert_int_equal(space_slab_live(f.s, (uint64_t)slab), 0);
	space_evacuate_end(f.s, (uint64_t)slab);
	assert_true(space_alloc(f.s, 1, &fresh) >= 0);
	space_close(f.s);
}

/* One that could give nothing back comes last of all, until one of its places is free. */
static void test_a_shunned_slab_waits_for_its_readers(void **state)
{
	uint64_t place[2 * PLACES], low, high;
	struct fixture f;
	uint32_t live;

	(void)state;
	open_space(&f, 16);
	for (uint32_t i = 0; i < 2 * PLACES; i++)
		place[i] = alloc(&f, 0);
	low = place[0];
	high = place[PLACES];
	for (uint32_t i = 2; i < PLACES; i++) /* the lower one keeps two places, the upper half */
		space_free(f.s, place[i]);
	for (uint32_t i = PLACES; i < 2 * PLACES; i += 2)
		space_free(f.s, place[i]);
	assert_int_equal(space_evacuate_begin(f.s, 99, &live), low);
	space_shun(f.s, low);
	space_evacuate_end(f.s, low);
	assert_int_equal(space_evacuate_begin(f.s, 99, &live), high);
	assert_int_equal(live, PLACES / 2);
	assert_int_equal(space_evacuate_begin(f.s, 99, &live), low); /* there is no other */
	space_evacuate_end(f.s, high);
	space_evacuate_end(f.s, low);
	assert_int_equal(space_evacuate_begin(f.s, 99, &live), high);
	space_evacuate_end(f.s, high);
	space_free(f.s, place[1]);
	assert_int_equal(space_evacuate_begin(f.s, 99, &live), low);
	assert_int_equal(live, 1);
	space_evacuate_end(f.s, low);
	space_close(f.s);
}

static void test_weights_choose_what_leaves(void **state)
{
	struct fixture f;
	uint64_t large, small;
	uint32_t live;

	(void)state;
	open_space(&f, 16);
	large = alloc(&f, 0);
	small = alloc(&f, 1);
	for (uint32_t i = 0; i < 3; i++)
		alloc(&f, 1);
	assert_int_equal(space_evacuate_begin(f.s, 99, &live), small / SLAB * SLAB);
	space_evacuate_end(f.s, small / SLAB * SLAB);
	space_weigh(f.s, 1, 4 * PAGE); /* each small page takes four large ones along */
	assert_int_equal(space_evacuate_begin(f.s, 99, &live), large / SLAB * SLAB);
	space_evacuate_end(f.s, large / SLAB * SLAB);
	space_close(f.s);
}

static void test_full_slabs_are_chosen_where_they_cost_least(void **state)
{
	struct fixture f;
	uint64_t large, fresh;
	int64_t slab;
	uint32_t live;

	(void)state;
	open_space(&f, 16);
	space_limit(f.s, 2 * SLAB);
	large = alloc(&f, 0);
	for (uint32_t i = 1; i < PLACES; i++)
		alloc(&f, 0);
	alloc(&f, 1);
	alloc(&f, 1);
	space_weigh(f.s, 1, PLACES * PAGE);
	slab = space_evacuate_begin(f.s, 99, &live);
	assert_int_equal(slab, large);
	assert_int_equal(live, PLACES);
	space_free(f.s, large);
	assert_int_equal(space_alloc(f.s, 0, &fresh), -ENOSPC); /* nothing is placed there */
	space_evacuate_end(f.s, (uint64_t)slab);
	assert_int_equal(space_alloc(f.s, 0, &fresh), large);
	space_close(f.s);
}

/* One page in a slab: but it has all the room of its class, and the other class has plenty. */
static void test_the_only_room_of_a_class_stays(void **state)
{
	uint64_t place[3 * PLACES], small, only;
	struct fixture f;
	uint32_t live;

	(void)state;
	open_space(&f, 16);
	for (uint32_t i = 0; i < 3 * PLACES; i++)
		place[i] = alloc(&f, 0);
	for (uint32_t i = 0; i < 3 * PLACES; i += 2)
		space_free(f.s, place[i]);
	small = alloc(&f, 1);
	for (uint32_t i = 1; i < SLAB / SMALL; i++)
		alloc(&f, 1);
	only = alloc(&f, 1);
	assert_true(only >= small + SLAB);
	assert_int_equal(space_evacuate_begin(f.s, 99, &live), place[2 * PLACES]);
	assert_int_equal(live, PLACES / 2);
	space_evacuate_end(f.s, place[2 * PLACES]);
	for (uint32_t i = 0; i < SLAB / SMALL / 8; i++) /* there is other room now */
		space_free(f.s, small + (uint64_t)i * SMALL);
	assert_int_equal(space_evacuate_begin(f.s, 99, &live), only);
	assert_int_equal(live, 1);
	space_evacuate_end(f.s, only);
	space_close(f.s);
}

/* Its free room is promised: a full one goes instead, for who is to be given a slab. */
static void test_what_is_promised_stays_where_it_is(void **state)
{
	struct fixture f;
	uint64_t first, last = 0, fresh;
	uint32_t live;

	(void)state;
	open_space(&f, 16);
	space_limit(f.s, 2 * SLAB);
	first = alloc(&f, 0);
	for (uint32_t i = 0; i < PLACES; i++)
		last = alloc(&f, 0);
	assert_true(last - first >= SLAB);
	assert_int_equal(space_reserve(f.s, 0, PLACES - 1, &fresh), 0);
	assert_int_equal(space_evacuate_begin(f.s, 99, &live), first);
	assert_int_equal(live, PLACES);
	for (uint32_t i = 1; i < PLACES; i++)
		assert_true(space_alloc_reserved(f.s, 0) >= (int64_t)SLAB);
	assert_int_equal(space_evacuate_begin(f.s, 99, &live), last);
	space_close(f.s);
}

/* A device has it: it stays until all have left it, and is the last to be wanted back. */
static void test_a_lent_slab_stays(void **state)
{
	struct fixture f;
	uint64_t first, other, fresh;
	uint32_t live;

	(void)state;
	open_space(&f, 16);
	assert_int_equal(space_lend(f.s, 0), -EAGAIN); /* there is nothing */
	first = alloc(&f, 0);
	for (uint32_t i = 1; i < PLACES; i++)
		alloc(&f, 0);
	other = alloc(&f, 0);
	assert_int_equal(space_lend(f.s, other + PAGE), other);
	assert_int_equal(space_lend(f.s, other), other);
	/* The emptiest may not go, so the full one does. */
	assert_int_equal(space_evacuate_begin(f.s, 99, &live), first);
	assert_int_equal(space_lend(f.s, first), -EAGAIN);
	space_evacuate_end(f.s, first);
	/* Empty, it serves another size, and is not punched. */
	space_free(f.s, other);
	assert_int_equal(space_surplus(f.s, true), -ENOENT);
	space_limit(f.s, 2 * SLAB);
	assert_int_equal(space_alloc(f.s, 1, &fresh), other);
	assert_int_equal(fresh, UINT64_MAX);
	space_free(f.s, other);
	/* Wanted back: nobody else gets it, and it goes when the last has left. */
	assert_int_equal(space_recall(f.s), other);
	assert_int_equal(space_recall(f.s), -ENOENT);
	assert_true(space_is_recalled(f.s, other));
	assert_int_equal(space_lend(f.s, other), -EAGAIN);
	space_lend_end(f.s, other);
	assert_int_equal(space_surplus(f.s, true), -ENOENT);
	space_lend_end(f.s, other);
	assert_int_equal(space_surplus(f.s, true), other);
	space_punched(f.s, other);
	assert_false(space_is_recalled(f.s, other));
	space_close(f.s);
}

/* What was wanted back and then not taken is lent again. */
static void test_a_recall_is_forgotten(void **state)
{
	struct fixture f;
	uint64_t slab;

	(void)state;
	open_space(&f, 16);
	slab = alloc(&f, 0);
	assert_int_equal(space_lend(f.s, slab), slab);
	assert_int_equal(space_recall(f.s), slab);
	space_look(f.s); /* a device has it yet */
	assert_true(space_is_recalled(f.s, slab));
	space_lend_end(f.s, slab);
	assert_int_equal(space_lend(f.s, slab), -EAGAIN);
	space_look(f.s);
	assert_int_equal(space_lend(f.s, slab), slab);
	space_lend_end(f.s, slab);
	space_close(f.s);
}

static void test_a_lower_limit_holds(void **state)
{
	struct fixture f;
	uint64_t fresh;

	(void)state;
	open_space(&f, 16);
	space_limit(f.s, 2 * SLAB + MIB);
	for (uint32_t i = 0; i < 2 * PLACES; i++)
		alloc(&f, 0);
	assert_int_equal(space_alloc(f.s, 0, &fresh), -ENOSPC);
	space_limit(f.s, 3 * SLAB);
	assert_true(space_alloc(f.s, 0, &fresh) >= 0);
	space_close(f.s);
}

/* A space whose places were claimed, in any order, goes on as the one that handed them out. */
static void test_a_claimed_space_goes_on(void **state)
{
	static const uint32_t stride[] = { 4096, 12288 };
	struct pool from = { .capacity = 64ull << 20, .slab_bytes = 2u << 20 }, to = from;
	struct space *a, *b;
	uint64_t fresh, at[1400];

	(void)state;
	assert_int_equal(space_open(&a, &from, 64ull << 20, 64ull << 20, stride, 2), 0);
	assert_int_equal(space_open(&b, &to, 64ull << 20, 64ull << 20, stride, 2), 0);
	for (uint32_t i = 0; i < 1400; i++)
		at[i] = (uint64_t)space_alloc(a, i % 2, &fresh);
	for (uint32_t i = 0; i < 1400; i++)
		assert_int_equal(space_claim(b, i * 37 % 2, at[i * 37 % 1400]), 0);
	for (uint32_t i = 0; i < 600; i++)
		assert_int_equal(space_alloc(b, i % 2, &fresh), space_alloc(a, i % 2, &fresh));
	space_close(a);
	space_close(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_claimed_space_goes_on),
		cmocka_unit_test(test_one_place_keeps_one_unit),
		cmocka_unit_test(test_a_place_over_a_boundary_keeps_both_units),
		cmocka_unit_test(test_the_last_unit_ends_with_its_slab),
		cmocka_unit_test(test_what_is_promised_is_there),
		cmocka_unit_test(test_room_in_the_wrong_class_is_compacted),
		cmocka_unit_test(test_a_shunned_slab_waits_for_its_readers),
		cmocka_unit_test(test_weights_choose_what_leaves),
		cmocka_unit_test(test_full_slabs_are_chosen_where_they_cost_least),
		cmocka_unit_test(test_the_only_room_of_a_class_stays),
		cmocka_unit_test(test_what_is_promised_stays_where_it_is),
		cmocka_unit_test(test_a_lent_slab_stays),
		cmocka_unit_test(test_a_recall_is_forgotten),
		cmocka_unit_test(test_a_lower_limit_holds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
