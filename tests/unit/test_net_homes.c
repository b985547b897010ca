/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Homes of anchors: when a member goes or comes, only its own anchors move (K2); a home names the
 * newest holders (K3), forgets what was told longest ago, and believes a host about itself alone. A
 * box takes what it was offered in order, each host's up to its part (B3).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/unit.h"
#include "tierd/net/box.h"
#include "tierd/net/homes.h"

#define MEMBERS 40u
#define TAGS 20000u

static uint64_t tag(uint32_t number)
{
	uint8_t context[32] = { 3 }, key[NET_KEY_BYTES] = { 0 };

	memcpy(key, &number, sizeof(number));
	return homes_tag(context, 1, key);
}

static void members_of(uint32_t member[MEMBERS])
{
	char name[16];

	for (uint32_t i = 0; i < MEMBERS; i++) {
		snprintf(name, sizeof(name), "host%u", i);
		member[i] = homes_host(name);
	}
}

static void only_its_own_move(void **state)
{
	uint32_t member[MEMBERS], fewer[MEMBERS], at[MEMBERS] = { 0 }, moved = 0;

	(void)state;
	members_of(member);
	for (uint32_t i = 1; i < MEMBERS; i++) /* without the first, backwards */
		fewer[i - 1] = member[MEMBERS - i];
	for (uint32_t i = 0; i < TAGS; i++) {
		uint32_t home = homes_of(member, MEMBERS, tag(i));
		uint32_t then = homes_of(fewer, MEMBERS - 1, tag(i));

		at[home]++;
		if (home == 0)
			moved++;
		else
			assert_int_equal(member[home], fewer[then]);
	}
	for (uint32_t i = 0; i < MEMBERS; i++)
		assert_in_range(at[i], TAGS / MEMBERS * 3 / 4, TAGS / MEMBERS * 5 / 4);
	assert_int_equal(moved, at[0]);
}

static struct homes home_new(uint32_t room)
{
	struct homes h = { .room = room };

	h.slot = calloc(room + HOMES_WINDOW, sizeof(*h.slot));
	assert_non_null(h.slot);
	return h;
}

static void the_newest_holders(void **state)
{
	struct homes h = home_new(1024);
	uint32_t host[HOMES_HOLDERS];

	(void)state;
	for (uint32_t i = 1; i <= HOMES_HOLDERS + 2; i++)
		homes_hold(&h, tag(1), i, i);
	homes_hold(&h, tag(2), 77, 1);
	assert_int_equal(homes_find(&h, tag(1), host), HOMES_HOLDERS);
	for (uint32_t i = 0; i < HOMES_HOLDERS; i++)
		assert_int_equal(host[i], HOMES_HOLDERS + 2 - i);
	homes_hold(&h, tag(1), 4, 100); /* told again */
	homes_drop(&h, tag(1), 10);
	homes_drop(&h, tag(1), 1); /* it is not in it */
	assert_int_equal(homes_find(&h, tag(1), host), HOMES_HOLDERS - 1);
	assert_int_equal(host[0], 4);
	assert_int_equal(homes_find(&h, tag(2), host), 1);
	assert_int_equal(host[0], 77);
	assert_int_equal(host[1], 0);
	assert_int_equal(homes_find(&h, tag(3), host), 0);
	free(h.slot);
}

/* Of ten times too many, the last ones told are there. */
static void the_oldest_is_forgotten(void **state)
{
	struct homes h = home_new(64);
	uint32_t host[HOMES_HOLDERS], there = 0;

	(void)state;
	for (uint32_t i = 0; i < 640; i++)
		homes_hold(&h, tag(i), 1, i);
	for (uint32_t i = 0; i < 600; i++)
		there += homes_find(&h, tag(i), host);
	assert_in_range(there, 1, 64 + HOMES_WINDOW);
	for (uint32_t i = 632; i < 640; i++)
		assert_int_equal(homes_find(&h, tag(i), host), 1);
	free(h.slot);
}

/* Tags that many hosts hold, in a table that is too small for all, leave each other's last one. */
static void the_only_holder_stays(void **state)
{
	struct homes h = home_new(64);
	uint32_t host[HOMES_HOLDERS], tags = 32;

	(void)state;
	for (uint32_t i = 0; i < tags; i++)
		homes_hold(&h, tag(i), 1, i);
	for (uint32_t i = 0; i < 8 * tags; i++)
		homes_hold(&h, tag(i % 4), 2 + i / 4 % HOMES_HOLDERS, tags + i);
	for (uint32_t i = 4; i < tags; i++) {
		assert_int_equal(homes_find(&h, tag(i), host), 1);
		assert_int_equal(host[0], 1);
	}
	for (uint32_t i = 0; i < 4; i++)
		assert_true(homes_find(&h, tag(i), host) > 0);
	free(h.slot);
}

static void told_by_message(void **state)
{
	struct homes h = home_new(1024);
	struct {
		struct net_hold m;
		struct net_holding one[3];
	} hold = { .m = { .header = { NET_MAGIC, NET_VERSION, NET_HOLD, sizeof(hold), 0 },
			  .count = 3 },
		   .one = { { tag(1), 0, 0 }, { tag(2), 0, 0 }, { tag(3), 1, 0 } } };
	struct {
		struct net_find m;
		uint64_t tag[3];
	} find = { .m = { .header = { NET_MAGIC, NET_VERSION, NET_FIND, sizeof(find), 0 },
			  .id = 9, .count = 3 },
		   .tag = { tag(1), tag(2), tag(3) } };
	struct {
		struct net_held m;
		struct net_holders of[3];
	} held;

	(void)state;
	homes_hold(&h, tag(2), 6, 1);
	homes_hold(&h, tag(3), 5, 1);
	homes_hold(&h, tag(3), 6, 1);
	assert_int_equal(net_check(&hold, sizeof(hold)), sizeof(hold));
	homes_take(&h, &hold.m, 5, 2);
	assert_int_equal(net_check(&find, sizeof(find)), sizeof(find));
	homes_answer(&h, &find.m, &held.m);
	assert_int_equal(net_check(&held, sizeof(held)), sizeof(held));
	assert_int_equal(held.m.id, 9);
	assert_int_equal(held.of[0].host[0], 5);
	assert_int_equal(held.of[1].host[0], 5); /* the newest first */
	assert_int_equal(held.of[1].host[1], 6);
	assert_int_equal(held.of[2].host[0], 6); /* about itself alone a host is believed */
	assert_int_equal(homes_forget(&h, 2), 2);
	homes_answer(&h, &find.m, &held.m);
	assert_int_equal(held.of[1].host[1], 0);
	assert_int_equal(held.of[2].host[0], 0);
	free(h.slot);
}

/* Three hosts; one of them goes, comes back in another life, and is a home again. */
static void members_as_seen(void **state)
{
	struct peers p = { 0 };
	struct homes_view all, fewer, again;
	uint32_t place[HOMES_ASKED_MAX], own = 0;
	struct net_holders named[3] = { { { 0 } } };

	(void)state;
	assert_int_equal(peer_met(peers_add(&p, "b", "b:1"), 7), 0);
	assert_int_equal(peer_met(peers_add(&p, "c", "c:1"), 8), 0);
	peers_add(&p, "new", "new:1"); /* not met: no home */
	homes_view(&all, &p, "a");
	assert_int_equal(all.count, 3);
	peer_failed(&p.peer[1], 1, "gone");
	homes_view(&fewer, &p, "a");
	assert_int_equal(fewer.count, 2);
	assert_true(homes_changed(&all, &fewer));
	for (uint32_t i = 0; i < TAGS; i++) {
		uint32_t home = homes_place(&all, tag(i)), then = homes_place(&fewer, tag(i));

		own += home == HOMES_OURSELVES;
		assert_true(then == (home == 1 ? then : home));
	}
	assert_in_range(own, TAGS / 4, TAGS / 2);
	p.peer[1].fixed = true;
	assert_int_equal(peer_met(&p.peer[1], 9), 0);
	homes_view(&again, &p, "a");
	assert_true(homes_changed(&all, &again)); /* what it was told, it has not any more */
	homes_view(&fewer, &p, "a");
	assert_false(homes_changed(&fewer, &again));
	fewer.lost++; /* who failed was up again before anybody looked */
	assert_true(homes_changed(&fewer, &again));
	/* Who has the deepest one first; not ourselves, not who is not there. */
	named[0] = (struct net_holders){ { homes_host("b"), homes_host("x") } };
	named[2] = (struct net_holders){ { homes_host("a"), homes_host("c"), homes_host("b") } };
	assert_int_equal(homes_whom(&again, named, 3, place), 2);
	assert_int_equal(place[0], 1);
	assert_int_equal(place[1], 0);
	assert_int_equal(homes_whom(&again, named, 2, place), 1);
	assert_int_equal(homes_whom(&again, named + 1, 1, place), 0);
}

static void of_another_epoch(void **state)
{
	uint8_t context[32] = { 3 }, other[32] = { 4 }, key[NET_KEY_BYTES] = { 9 };
	uint64_t t = homes_tag(context, 1, key);

	(void)state;
	assert_true(t != homes_tag(context, 2, key));
	assert_true(t != homes_tag(other, 1, key));
}

/* A run of `count` blocks of prompt `number`. */
static struct offer offer_of(uint32_t number, uint32_t count)
{
	struct offer o = { .m = { .count = 0 } };
	uint8_t parent[NET_KEY_BYTES] = { 0 }, key[NET_KEY_BYTES] = { 0 };

	for (uint32_t i = 0; i < count; i++) {
		struct net_offer of = { .id = 1, .epoch = 1, .depth = i };

		memcpy(key, &number, sizeof(number));
		key[8] = (uint8_t)(i + 1);
		assert_true(offer_fits(&o, &of, parent));
		offer_add(&o, &of, parent, key);
		memcpy(parent, key, sizeof(parent));
	}
	return o;
}

static void a_run_is_of_one_prefix(void **state)
{
	struct offer o = offer_of(1, 3), full = offer_of(2, NET_OFFER_KEYS);
	struct net_offer of = { .epoch = 1, .depth = 3 };
	uint8_t other[NET_KEY_BYTES] = { 0 };

	(void)state;
	assert_int_equal(net_check(&o, sizeof(o)), o.m.header.length);
	assert_true(offer_fits(&o, &of, o.key[2]));
	assert_false(offer_fits(&o, &of, o.key[1]));
	assert_false(offer_fits(&o, &of, other));
	of.depth = 2;
	assert_false(offer_fits(&o, &of, o.key[2]));
	of = (struct net_offer){ .epoch = 2, .depth = 3 };
	assert_false(offer_fits(&o, &of, o.key[2]));
	of = (struct net_offer){ .epoch = 1, .depth = 3, .context = { 1 } };
	assert_false(offer_fits(&o, &of, o.key[2]));
	of = (struct net_offer){ .epoch = 1, .depth = NET_OFFER_KEYS };
	assert_false(offer_fits(&full, &of, full.key[NET_OFFER_KEYS - 1]));
}

static void no_host_takes_all_of_a_box(void **state)
{
	struct box *b = calloc(1, sizeof(*b));
	struct box_taken t;
	struct offer o;

	(void)state;
	assert_non_null(b);
	for (uint32_t i = 0; i < BOX_OFFERS + 8; i++) {
		uint32_t from = 1 + i % 5;

		o = offer_of(i, 1 + i % 7);
		assert_int_equal(box_take(b, &o.m, from), i < BOX_OFFERS ? 0 : -EBUSY);
		assert_int_equal(box_take(b, &o.m, from), i < BOX_OFFERS ? 0 : -EBUSY);
	}
	for (uint32_t i = 0; i < BOX_OFFERS; i++) {
		o = offer_of(i, 1 + i % 7);
		assert_true(box_next(b, &t));
		assert_int_equal(t.from, 1 + i % 5);
		assert_memory_equal(&t.offer, &o, o.m.header.length);
	}
	assert_false(box_next(b, &t));
	for (uint32_t i = 0; i < BOX_OFFERS; i++) {
		o = offer_of(i, 1);
		assert_int_equal(box_take(b, &o.m, 1), i < BOX_OFFERS_EACH ? 0 : -EBUSY);
	}
	assert_int_equal(box_take(b, &o.m, 2), 0);
	free(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_its_own_move),  cmocka_unit_test(the_newest_holders),
		cmocka_unit_test(the_oldest_is_forgotten),
		cmocka_unit_test(the_only_holder_stays), cmocka_unit_test(told_by_message),
		cmocka_unit_test(of_another_epoch),	  cmocka_unit_test(members_as_seen),
		cmocka_unit_test(a_run_is_of_one_prefix),
		cmocka_unit_test(no_host_takes_all_of_a_box),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
