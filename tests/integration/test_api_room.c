/*
 * Who may hold what, through the API and against a live daemon: reservations and the puts made
 * under them, limits of salts, what is kept by priority and time, and what an answer of -ENOSPC
 * says. The accounts are recounted when the daemon is stopped.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <jansson.h>

#include "tests/integration/kv_world.h"

#define CXL_BLOCKS (32u * 1024 * 1024 / BLOCK_BYTES)

static int setup(void **state)
{
	static const char *const settings[] = { "cxl.size=32MiB", "hbm.size=0", "nvme.size=0",
						NULL };

	*state = world_begin(settings);
	return 0;
}

static tier_key key_of(uint32_t n)
{
	tier_key key;

	assert_int_equal(tier_key_opaque(&key, &n, sizeof(n), NULL), 0);
	return key;
}

/* While write-back is behind a slow disk a put may be dropped, or find no room: not once all that
 * was put is written. What is refused then is refused for what this is about. */
static int64_t put(struct world *w, uint32_t n, struct tier_put_options *o)
{
	static uint8_t data[BLOCK_BYTES];
	tier_key key = key_of(n);
	int64_t rc;

	o->size = sizeof(*o);
	rc = tier_put_copy(w->c, &key, 1, data, o);
	for (uint32_t i = 0; i < 3 && (rc == 0 || rc == -ENOSPC || rc == -ETIMEDOUT); i++) {
		assert_int_equal(tier_drain(w->t), 0);
		rc = tier_put_copy(w->c, &key, 1, data, o);
	}
	return rc;
}

static bool there(struct world *w, uint32_t n)
{
	struct tier_found found;
	tier_key key = key_of(n);

	return tier_match(w->c, &key, 1, &found) == 1;
}

static char *admin(struct world *w, const char *verb, const char *args)
{
	char *reply = NULL;

	assert_int_equal(tier_admin(w->t, verb, args, &reply), 0);
	return reply;
}

/* A number of tierctl quota's document: tiers of the context, or of the account of a salt. */
static uint64_t quota_number(struct world *w, const char *salt, const char *what)
{
	json_t *all, *context, *one, *salts;
	uint64_t value = UINT64_MAX;
	char *reply = admin(w, "quota", "{\"context\":\"kv\"}");
	size_t i;

	all = json_loads(reply, 0, NULL);
	free(reply);
	context = json_array_get(json_object_get(all, "contexts"), 0);
	salts = json_object_get(context, "salts");
	if (!salt)
		value = (uint64_t)json_integer_value(
			json_object_get(json_object_get(context, "cxl"), what));
	json_array_foreach(salts, i, one)
		if (salt && strcmp(salt, json_string_value(json_object_get(one, "holder"))) == 0)
			value = (uint64_t)json_integer_value(
				json_object_get(json_object_get(one, "cxl"), what));
	json_decref(all);
	return value;
}

/* ---- reservations -------------------------------------------------------------------------- */

static void test_a_reservation_is_drawn_down(void **state)
{
	struct tier_reserve_options o = { .size = sizeof(o), .expected = 10, .p95 = 20, .step = 4 };
	struct tier_put_options p = { .priority = 0 };
	struct tier_reserved r;
	struct world *w = *state;

	assert_int_equal(tier_reserve(w->c, &o, &r), 0);
	assert_int_equal(r.blocks, 10);
	assert_int_equal(r.p95, 20);
	assert_int_equal(quota_number(w, NULL, "reserved"), 10 * BLOCK_BYTES);
	p.reservation = r.id;
	for (uint32_t n = 0; n < 6; n++)
		assert_int_equal(put(w, 100 + n, &p), 1);
	assert_int_equal(quota_number(w, NULL, "reserved"), 4 * BLOCK_BYTES);
	for (uint32_t n = 6; n < 30; n++) /* beyond p95: it grows on */
		assert_int_equal(put(w, 100 + n, &p), 1);
	assert_in_range(quota_number(w, NULL, "reserved"), 2 * BLOCK_BYTES, 8 * BLOCK_BYTES);
	assert_int_equal(tier_reserve_end(w->c, r.id), 30);
	assert_int_equal(quota_number(w, NULL, "reserved"), 0);
	assert_int_equal(tier_reserve_end(w->c, r.id), -ENOENT);
	assert_int_equal(put(w, 200, &p), -ENOENT); /* what has ended is no room */
}

static void test_a_reservation_is_predicted(void **state)
{
	struct tier_reserve_options o = { .size = sizeof(o), .salt = 9, .role = 2,
					  .prompt_tokens = 3000 };
	struct tier_reserved r;
	struct world *w = *state;

	for (uint32_t i = 0; i < 20; i++) {
		struct tier_put_options p = { .salt = 9 };

		assert_int_equal(tier_reserve(w->c, &o, &r), 0);
		p.reservation = r.id;
		for (uint32_t n = 0; n < 3 + i % 2; n++)
			assert_int_equal(put(w, 1000 + i * 10 + n, &p), 1);
		assert_int_equal(tier_reserve_end(w->c, r.id), 3 + i % 2);
	}
	assert_int_equal(tier_reserve(w->c, &o, &r), 0);
	assert_in_range(r.blocks, 3, 4);
	assert_in_range(r.p95, 4, 5);
	assert_int_equal(tier_reserve_end(w->c, r.id), 0);
}

static void test_reservations_have_a_sum_and_an_end(void **state)
{
	struct tier_reserve_options o = { .size = sizeof(o), .expected = 1, .p95 = CXL_BLOCKS };
	struct tier_reserved r;
	struct world *w = *state;
	int rc = 0;

	assert_int_equal(tier_reserve(w->c, &o, &r), -EDQUOT);
	o.p95 = CXL_BLOCKS / 2;
	/* Both are asked for before the first ends: on a crowded machine with more time. */
	for (uint64_t wait_ns = 200 * NS_PER_MS; rc != -EDQUOT; wait_ns *= 2) {
		assert_true(wait_ns < 60 * NS_PER_S);
		o.deadline_ns = time_now_ns() + wait_ns;
		rc = tier_reserve(w->c, &o, &r);
		assert_true(rc == 0 || time_now_ns() >= o.deadline_ns);
		rc = rc ? rc : tier_reserve(w->c, &o, &r);
		assert_true(rc == -EDQUOT || time_now_ns() >= o.deadline_ns);
		for (uint32_t i = 0; i < PATIENCE_MS / 10 && quota_number(w, NULL, "reserved"); i++)
			usleep(10000);
		assert_int_equal(quota_number(w, NULL, "reserved"), 0);
		assert_true(time_now_ns() >= o.deadline_ns);
	}
	o.deadline_ns = 0;
	assert_int_equal(tier_reserve(w->c, &o, &r), 0);
	assert_int_equal(tier_reserve_end(w->c, r.id), 0);
	o.p95 = 0;
	o.expected = UINT32_MAX;
	assert_int_equal(tier_reserve(w->c, &o, &r), -EINVAL);
	assert_int_equal(tier_reserve(w->c, NULL, NULL), -EINVAL);
	assert_int_equal(tier_reserve_end(w->c, 0), -EINVAL);
}

/* ---- salts, priorities, time --------------------------------------------------------------- */

static void test_a_salt_stays_within_its_limit(void **state)
{
	struct tier_put_options p = { .salt = 7 };
	struct world *w = *state;

	free(admin(w, "quota-set", "{\"context\":\"kv\",\"salt\":\"7\",\"tier\":\"cxl\","
				   "\"hard\":491520}"));
	for (uint32_t n = 0; n < 100; n++)
		assert_int_equal(put(w, 3000 + n, &p), 1);
	assert_in_range(quota_number(w, "0x0000000000000007", "used"), 10 * BLOCK_BYTES, 491520);
	assert_true(there(w, 3099));
	assert_false(there(w, 3000)); /* its own oldest made way */
}

static void test_priority_and_time_say_who_leaves(void **state)
{
	struct tier_put_options low = { .priority = TIER_PRIORITY_LOW },
				high = { .priority = TIER_PRIORITY_HIGH },
				brief = { .ttl_ns = 50 * NS_PER_MS }, plain = { .salt = 0 };
	struct world *w = *state;
	uint32_t kept = 0, gone = 0;

	assert_int_equal(put(w, 0, &(struct tier_put_options){ .priority = 3 }), -EINVAL);
	for (uint32_t n = 0; n < 50; n++)
		assert_int_equal(put(w, 4000 + n, &high), 1);
	usleep(100000);
	for (uint32_t n = 0; n < CXL_BLOCKS * 2; n++)
		assert_int_equal(put(w, 5000 + n, &plain), 1);
	for (uint32_t n = 0; n < 50; n++)
		kept += there(w, 4000 + n);
	assert_int_equal(kept, 50); /* the oldest of all, and there */
	for (uint32_t n = 0; n < 50; n++) {
		assert_int_equal(put(w, 4100 + n, &low), 1);
		assert_int_equal(put(w, 4200 + n, &brief), 1);
	}
	usleep(100000);
	for (uint32_t n = 0; n < CXL_BLOCKS / 4; n++)
		assert_int_equal(put(w, 9000 + n, &plain), 1);
	for (uint32_t n = 0; n < 50; n++)
		gone += !there(w, 4100 + n) + !there(w, 4200 + n);
	assert_int_equal(gone, 100); /* the newest of all, and gone */
}

static void test_no_room_says_what_holds_it(void **state)
{
	struct tier_reserve_options o = { .size = sizeof(o), .expected = CXL_BLOCKS * 45 / 100 };
	struct tier_put_options p = { .salt = 0 };
	static uint64_t pin[CXL_BLOCKS];
	struct tier_reserved r;
	struct world *w = *state;
	uint32_t pinned = 0;
	int64_t n = 1;

	/* Reservations take 45 %, so pins get what is left of 80, not their 50. */
	assert_int_equal(tier_reserve(w->c, &o, &r), 0);
	for (uint32_t i = 0; i < CXL_BLOCKS; i++) {
		struct tier_found found;
		tier_key key = key_of(20000 + i);

		n = put(w, 20000 + i, &p);
		if (n == 1 && tier_match(w->c, &key, 1, &found) != 1)
			continue; /* until it is pinned it makes way as others do */
		if (n != 1 || tier_pin(w->c, &found.block, 1, TIER_CXL, 0, &pin[pinned]) < 0)
			break;
		pinned++;
	}
	assert_in_range(pinned, CXL_BLOCKS * 32 / 100, CXL_BLOCKS * 36 / 100);
	/* Room for a few is left: what comes under a limit of nothing finds none at all. */
	p.salt = 8;
	free(admin(w, "quota-set", "{\"context\":\"kv\",\"salt\":\"8\",\"tier\":\"cxl\","
				   "\"hard\":4096}"));
	n = put(w, 30000, &p);
	if (!strstr(tier_error_text(), "reserved") || !strstr(tier_error_text(), "pinned"))
		fail_msg("%s", tier_error_text());
	assert_int_equal(tier_reserve_end(w->c, r.id), 0);
	while (pinned > 0)
		assert_int_equal(tier_unpin(w->c, pin[--pinned]), 0);
}

static void test_a_refused_pin_says_whose_limit_it_is(void **state)
{
	struct world *w = *state;
	struct tier_put_options p = { .salt = 11 };
	struct tier_found found, other;
	tier_key key = key_of(40000), next = key_of(40001);
	uint64_t pin, more;

	assert_int_equal(put(w, 40000, &p), 1);
	assert_int_equal(put(w, 40001, &p), 1);
	assert_int_equal(tier_match(w->c, &key, 1, &found), 1);
	assert_int_equal(tier_match(w->c, &next, 1, &other), 1);
	free(admin(w, "quota-set", "{\"context\":\"kv\",\"salt\":\"11\",\"tier\":\"cxl\","
				   "\"pins\":40960}"));
	assert_int_equal(tier_pin(w->c, &found.block, 1, TIER_CXL, 0, &pin), 1);
	assert_int_equal(tier_pin(w->c, &found.block, 1, TIER_CXL, 0, &more), 1);
	assert_int_equal(tier_unpin(w->c, more), 0);
	assert_int_equal(quota_number(w, "0x000000000000000b", "pinned"), BLOCK_BYTES);
	assert_int_equal(tier_pin(w->c, &other.block, 1, TIER_CXL, 0, &more), -EDQUOT);
	if (!strstr(tier_error_text(), "pins of their salt may claim no more of CXL"))
		fail_msg("%s", tier_error_text());
	assert_int_equal(tier_unpin(w->c, pin), 0);
	assert_int_equal(quota_number(w, "0x000000000000000b", "pinned"), 0);
	free(admin(w, "quota-set", "{\"context\":\"kv\",\"tier\":\"cxl\",\"pins\":1}"));
	assert_int_equal(tier_pin(w->c, &found.block, 1, TIER_CXL, 0, &more), -EDQUOT);
	if (!strstr(tier_error_text(), "pins of the context"))
		fail_msg("%s", tier_error_text());
}

/* ---- hits that are held -------------------------------------------------------------------- */

#define HITS 24u

static int setup_small_store(void **state)
{
	static const char *const settings[] = { "cxl.size=8MiB", "hbm.size=0", "nvme.size=48MiB",
						NULL };

	*state = world_begin(settings);
	return 0;
}

/* How many of HITS blocks from number `first` on are there, and on NVMe alone. */
static uint32_t on_nvme(struct world *w, uint32_t first, struct tier_found *found)
{
	uint32_t there = 0, n = 0;

	for (uint32_t i = 0; i < HITS; i++) {
		tier_key key = key_of(first + i);

		there = tier_match(w->c, &key, 1, &found[i]) == 1;
		n += there && found[i].tier == TIER_NVME;
	}
	return n;
}

/*
 * Puts what is new, from *next on, until nothing is left of the HITS blocks from `first` on; what
 * is dropped because the disk is behind does not matter.
 */
static void put_until_gone(struct world *w, uint32_t first, uint32_t *next)
{
	struct tier_put_options p = { .salt = 0 };
	uint32_t left = HITS;

	/* By the clock: how many puts are dropped hangs on the disk. */
	for (uint64_t end = time_now_ns() + LONG_NS; left && time_now_ns() < end; (*next)++) {
		assert_true(put(w, *next, &p) >= 0);
		usleep(1000);
		left = 0;
		for (uint32_t i = 0; i < HITS; i++)
			left += there(w, first + i);
	}
	assert_int_equal(left, 0);
}

/* A hit on NVMe is loadable until its pin ends, though what is put meanwhile wants its room. */
static void test_a_hit_on_nvme_is_held_until_a_deadline(void **state)
{
	struct tier_put_options p = { .salt = 0 };
	struct world *w = *state;
	struct tier_found found[HITS];
	tier_block block[HITS];
	uint32_t next = 70000;
	uint64_t pin, brief;

	for (uint32_t i = 0; i < 2 * HITS; i++)
		assert_int_equal(put(w, 60000 + i, &p), 1);
	for (uint32_t i = 0; i < PATIENCE_MS && on_nvme(w, 60000, found) < HITS; i++)
		assert_true(put(w, next++, &p) >= 0);
	for (uint32_t i = 0; i < HITS; i++)
		block[i] = found[i].block;
	/* It protects them, though none is in CXL: that is what it would answer. */
	assert_int_equal(tier_pin(w->c, block, HITS, TIER_CXL, time_now_ns() + 10 * LONG_NS, &pin),
			 0);
	put_until_gone(w, 60000 + HITS, &next);
	assert_int_equal(on_nvme(w, 60000, found), HITS);
	assert_int_equal(tier_pin(w->c, block, HITS, TIER_CXL, time_now_ns() + NS_PER_S, &brief),
			 0);
	assert_int_equal(tier_unpin(w->c, pin), 0);
	assert_int_equal(tier_fetch(w->c, block, HITS, NULL), HITS);
	for (uint32_t i = 0; i < PATIENCE_MS && tier_unpin(w->c, brief) != -ENOENT; i++)
		usleep(1000);
	put_until_gone(w, 60000, &next);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_reservation_is_drawn_down),
		cmocka_unit_test(test_a_reservation_is_predicted),
		cmocka_unit_test(test_reservations_have_a_sum_and_an_end),
		cmocka_unit_test(test_a_salt_stays_within_its_limit),
		cmocka_unit_test(test_priority_and_time_say_who_leaves),
		cmocka_unit_test(test_no_room_says_what_holds_it),
		cmocka_unit_test(test_a_refused_pin_says_whose_limit_it_is),
		cmocka_unit_test_setup_teardown(test_a_hit_on_nvme_is_held_until_a_deadline,
						setup_small_store, world_end),
	};

	return cmocka_run_group_tests(tests, setup, world_end);
}
