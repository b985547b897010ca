/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Standing grants, both ends as pure state: pages that are picked are those that come; what is
 * wrong, short, of another question or of another page ends it; none is good when the grant is
 * over at either end, or the holder says that it did not stand (R8).
 */
#include <errno.h>
#include <string.h>

#include "tests/lib/unit.h"
#include "tierd/net/keep.h"

#define MS 1000000ull
#define PAGES 3u

/* Pages travel in another order than that of their numbers. */
static struct shape_page page[PAGES] = { { .page = 2, .bytes = 4096 },
					 { .page = 0, .bytes = 512 },
					 { .page = 1, .bytes = 512 } };
static const uint32_t first[] = { 0, 1, 3 }, number[PAGES] = { 1, 2, 0 };
static const struct shape shape = { .layers = 2, .pages = PAGES, .block_bytes = 5120,
				    .first = (uint32_t *)first, .page = page,
				    .by_number = (uint32_t *)number };

struct world {
	struct keep keep;
	struct kept kept;
	struct net_ask ask;
	struct net_grant grant;
	struct {
		struct net_pick m;
		struct net_pick_page page[NET_FRAME_PAGES_MAX];
	} pick;
	struct {
		struct net_picked m;
		struct net_picked_page page[NET_FRAME_PAGES_MAX];
	} picked;
	struct net_word word;
	uint64_t now;
};

/* A grant of so many of 5 blocks, for 100 ms, that was asked for 10 ms before it was given. */
static struct world granted(uint32_t blocks)
{
	struct world w = { .now = 1000 * MS, .keep = { .asked = 5, .epoch = 3 } };

	keep_ask(&w.keep, &shape, 100 * MS, &w.ask, w.now);
	assert_int_equal(w.ask.header.length, sizeof(w.ask) + 5 * NET_KEY_BYTES);
	w.now += 10 * MS;
	kept_grant(&w.kept, &w.ask, &shape, blocks, &w.grant, w.now);
	return w;
}

/* A page of each of so many blocks, asked for. */
static void pick(struct world *w, uint32_t count)
{
	w->keep.count = count;
	for (uint32_t i = 0; i < count; i++)
		w->keep.page[i] = w->pick.page[i] = (struct net_pick_page){ i, i % PAGES };
	keep_pick(&w->keep, &w->pick.m);
	assert_int_equal(w->pick.m.header.length, sizeof(w->pick.m) + 8 * count);
}

static void answer(struct world *w, bool intact)
{
	int rc = kept_pick(&w->kept, &w->pick.m, intact, w->now);

	kept_picked(&w->kept, &w->pick.m, rc, &w->picked.m);
	if (!rc)
		kept_whole(&w->kept, intact, &w->word, w->now);
}

static void test_what_is_picked_comes_until_the_grant_is_over(void **state)
{
	struct world w = granted(4);

	(void)state;
	assert_int_equal(keep_granted(&w.keep, &w.grant), 0);
	assert_int_equal(w.keep.blocks, 4);
	for (uint32_t i = 0; i < 3; i++) {
		assert_true(keep_lasts(&w.keep, w.now));
		pick(&w, 4);
		w.picked.page[1].error = i == 2 ? -ENODATA : 0; /* it has left there */
		answer(&w, true);
		assert_int_equal(w.picked.m.bytes, 4096 + 2 * 512 + (i == 2 ? 0 : 512));
		assert_int_equal(keep_picked(&w.keep, &w.picked.m), 0);
		assert_int_equal(keep_whole(&w.keep, &w.word, true, w.now), 0);
	}
	/* Counted from before it was asked for, it is over here before it is there. */
	assert_false(keep_lasts(&w.keep, w.now + 90 * MS));
	w.now += 95 * MS;
	assert_int_equal(kept_pick(&w.kept, &w.pick.m, true, w.now), 0);
	assert_int_equal(kept_pick(&w.kept, &w.pick.m, true, w.now + 5 * MS), -ETIMEDOUT);
	assert_int_equal(kept_pick(&w.kept, &w.pick.m, true, w.now), -EPROTO); /* it was over */
}

static void test_a_page_is_good_when_all_stood_at_both_ends(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 5; i++) {
		struct world w = granted(4);
		int rc = i == 0 ? 0 : i == 4 ? -ETIMEDOUT : -ESTALE;

		assert_int_equal(keep_granted(&w.keep, &w.grant), 0);
		pick(&w, 4);
		answer(&w, i != 1); /* 1: it did not stand when it was asked for */
		if (i == 1) {
			assert_int_equal(w.picked.m.error, -ESTALE);
			assert_int_equal(w.picked.m.count, 0);
			assert_int_equal(keep_picked(&w.keep, &w.picked.m), -ESTALE);
			assert_int_equal(w.keep.state, KEEP_FREE);
			continue;
		}
		assert_int_equal(keep_picked(&w.keep, &w.picked.m), 0);
		if (i == 2) /* nor when the pages were read */
			kept_whole(&w.kept, false, &w.word, w.now);
		if (i == 4)
			w.now += 90 * MS;
		assert_int_equal(keep_whole(&w.keep, &w.word, i != 3, w.now), rc);
		assert_int_equal(w.keep.state, rc ? KEEP_FREE : KEEP_OPEN);
	}
	for (uint32_t i = 0; i < 2; i++) { /* the holder's time */
		struct world w = granted(4);

		assert_int_equal(keep_granted(&w.keep, &w.grant), 0);
		pick(&w, 1);
		kept_whole(&w.kept, true, &w.word, w.now + 100 * MS - i);
		assert_int_equal(w.word.error, i ? 0 : -ETIMEDOUT);
		assert_int_equal(w.kept.open, i);
	}
}

static void test_an_answer_that_is_none_ends_the_connection(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 5; i++) {
		struct world w = granted(4);

		assert_int_equal(keep_whole(&w.keep, &w.word, true, w.now), -EPROTO);
		assert_int_equal(keep_granted(&w.keep, &w.grant), 0);
		assert_int_equal(keep_granted(&w.keep, &w.grant), -EPROTO);
		assert_int_equal(keep_picked(&w.keep, &w.picked.m), -EPROTO);
		pick(&w, 4);
		answer(&w, true);
		w.picked.m.id -= i == 0; /* of the question before */
		w.picked.m.count -= i == 1;
		w.picked.m.bytes -= i == 2;
		w.picked.page[0].error = i == 3 ? -ENODATA : 0; /* and yet its bytes */
		assert_int_equal(keep_picked(&w.keep, &w.picked.m), i < 4 ? -EPROTO : 0);
		w.word.id--;
		assert_int_equal(keep_whole(&w.keep, &w.word, true, w.now), -EPROTO);
	}
	for (uint32_t i = 0; i < 6; i++) {
		struct world w = granted(4);

		w.grant.id += i == 0;
		w.grant.blocks = i == 1 ? 6 : w.grant.blocks;
		w.grant.layers += i == 2;
		w.grant.bytes += i == 3;
		w.grant.error = i == 4 ? -EBUSY : i == 5 ? -EPROTO : 0;
		assert_int_equal(keep_granted(&w.keep, &w.grant),
				 i == 4 ? -EBUSY : i == 5 ? -ENODATA : -EPROTO);
	}
}

static void test_no_page_is_picked_that_was_not_granted(void **state)
{
	struct world w = granted(4);
	struct world none = granted(0);

	(void)state;
	assert_int_equal(keep_granted(&none.keep, &none.grant), -ENODATA);
	assert_int_equal(kept_pick(&none.kept, &w.pick.m, true, w.now), -EPROTO);
	assert_int_equal(keep_granted(&w.keep, &w.grant), 0);
	pick(&w, 4);
	w.pick.page[3].block = 4;
	assert_int_equal(kept_pick(&w.kept, &w.pick.m, true, w.now), -EPROTO);
	w.pick.page[3] = (struct net_pick_page){ 3, PAGES };
	assert_int_equal(kept_pick(&w.kept, &w.pick.m, true, w.now), -EPROTO);
	/* However often it is named, no answer has more bytes than may be. */
	page[0].bytes = NET_PICK_BYTES / 4;
	for (uint32_t i = 0; i < 4; i++)
		w.pick.page[i] = (struct net_pick_page){ 0, 2 };
	assert_int_equal(kept_pick(&w.kept, &w.pick.m, true, w.now), 0);
	page[0].bytes++;
	assert_int_equal(kept_pick(&w.kept, &w.pick.m, true, w.now), -EPROTO);
	page[0].bytes = 4096;
	assert_null(keep_page(&shape, 4, &(struct net_pick_page){ 4, 0 }));
	assert_ptr_equal(keep_page(&shape, 4, &(struct net_pick_page){ 3, 0 }), &page[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_is_picked_comes_until_the_grant_is_over),
		cmocka_unit_test(test_a_page_is_good_when_all_stood_at_both_ends),
		cmocka_unit_test(test_an_answer_that_is_none_ends_the_connection),
		cmocka_unit_test(test_no_page_is_picked_that_was_not_granted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
