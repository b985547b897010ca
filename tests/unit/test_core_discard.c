/*
 * Dead segments are discarded: which, when, in what order, and what a crash or an error makes of
 * it. The device is memory, in which a discard leaves rubbish at once.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/unit.h"
#include "tests/unit/one_host.h"
#include "tierd/core/state.h"
#include "tierd/core/unit/store_priv.h"

#define SPARED 4u
#define SEALED 9u /* of the segments that fill() writes, one is still open */
#define STEPS 4000u

static int set_up(void **state)
{
	host.discard = true;
	host.discard_res = 0;
	return one_host_stable_boot(state);
}

static int tear_down(void **state)
{
	host.discard_res = 0;
	one_host_off(state);
	host.discard = false;
	return 0;
}

/* Ten segments: all but the reserve. */
static void fill(void)
{
	for (uint32_t n = 0; n < 60; n += 3)
		one_host_put_half(n);
}

static const struct store_segment *segment(uint32_t i)
{
	return &host.core->drive[0]->store->segment[i];
}

static uint32_t count(bool stale)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < HOST_SEGMENTS; i++)
		n += segment(i)->state == STORE_FREE && segment(i)->stale == stale;
	return n;
}

static bool until(enum core_action_kind kind)
{
	for (uint32_t n = 0; n < STEPS && !one_host_waits(kind); n++)
		one_host_step();
	return one_host_waits(kind) > 0;
}

/* The context goes, and all of its segments with it; up to the first discard. */
static uint32_t empty_until_a_discard(void)
{
	host.held = true;
	host_context_remove(&host, 0);
	assert_true(until(CORE_AC_DISCARD));
	assert_int_equal(host.bag_count, 1);
	return store_segment_of(host.core->drive[0]->store, host.bag[0].range.offset);
}

static void empty(void)
{
	host_context_remove(&host, 0);
	assert_true(host_settle(&host, 400));
	assert_false(host.context[0].made);
}

static void again(void)
{
	struct disk_context spec;

	host_spec(&spec, HOST_KIND_STORE, 0);
	assert_int_equal(host_context_make(&host, 0, &spec), 0);
	host_client_attach(&host, 0);
	assert_true(host_settle(&host, 60));
}

static uint32_t records_in(const uint8_t *disk, uint32_t i)
{
	const struct disk_super *p = &host.super;
	const uint8_t *summary = disk + p->segment_offset + i * p->segment_bytes;
	struct store_view v;
	size_t cursor = 0;
	uint32_t n = 0;

	while (!store_next(host.core->drive[0]->store, i, summary, p->summary_bytes, &cursor, &v))
		n++;
	return n;
}

/* All but those that are opened next; and what is written there afterwards is as good as ever. */
static void test_dead_segments_are_discarded(void **state)
{
	const struct core_metrics *m = core_metrics(host.core);

	(void)state;
	fill();
	assert_int_equal(m->discards, 0);
	empty();
	assert_int_equal(m->discards, SEALED - SPARED);
	assert_int_equal(m->discarded_bytes, m->discards * (HOST_SEGMENT - HOST_SUMMARY));
	assert_int_equal(m->discards_failed, 0);
	assert_int_equal(count(true), SPARED);
	host_audit(&host);
	again();
	for (uint32_t n = 0; n < 24; n += 3)
		one_host_put_half(n); /* these fit those that were spared and the open one */
	assert_int_equal(count(false), HOST_SEGMENTS - SEALED - 1 + SEALED - SPARED);
	for (uint32_t n = 24; n < 60; n += 3)
		one_host_put_half(n);
	assert_int_equal(m->read_bad, 0);
	host_audit(&host);
}

static void test_without_it_nothing_is(void **state)
{
	(void)state;
	host.core->config.discard = false;
	fill();
	empty();
	assert_int_equal(core_metrics(host.core)->discards, 0);
}

/* A crash at any time finds no record whose data may be gone, and all others. */
static void test_records_are_void_before_their_data(void **state)
{
	uint32_t i;

	(void)state;
	fill();
	i = empty_until_a_discard();
	assert_int_equal(records_in(one_host_stable, i), 0);
	assert_true(records_in(one_host_stable, i ? i - 1 : i + 1) > 0);
	assert_int_equal(segment(i)->lsn_on_disk, 0);
	assert_int_equal(segment(i)->state, STORE_DISCARDING);
}

/* What was discarded before a crash is not discarded again after it. */
static void test_a_restart_knows_what_was(void **state)
{
	struct core_recovery r;
	uint64_t discards;

	(void)state;
	fill();
	empty();
	again();
	one_host_put_half(0);
	discards = core_metrics(host.core)->discards;
	assert_true(discards > 0);
	r = one_host_restart(false);
	assert_int_equal(r.blocks, 3);
	assert_int_equal(r.records_bad, 0);
	assert_true(host_settle(&host, 200));
	assert_int_equal(core_metrics(host.core)->discards, 0);
	assert_int_equal(count(true), SPARED);
	host_audit(&host);
}

/* Segments are dead, and none was discarded. */
static void dead_unseen(void)
{
	host.core->config.discard = false;
	fill();
	empty();
	again();
	host.core->config.discard = true;
}

/* A put and its write-back come first, from the header to the flush. */
static void test_not_beside_others(void **state)
{
	const struct abi_put_args args = { .count = 3 };

	(void)state;
	dead_unseen();
	host.held = true;
	assert_int_equal(host_reserve(&host, &args, 0, ABI_SQE_DURABLE), 0);
	assert_true(host_commit(&host, ABI_SQE_DURABLE));
	while (host.bag_count || core_context(host.core, host.context[0].id)->dirty_bytes) {
		assert_false(one_host_waits(CORE_AC_DISCARD) || discard_busy(host.core->drive[0]));
		one_host_step();
	}
	assert_true(until(CORE_AC_DISCARD));
}

#define LATE_NS (1000 * MS)

/*
 * In a store that is never quiet a step is taken a second after the one before it, the header's and
 * each piece's: dead segments go all the same, and who reads meets one piece in a second.
 */
static void test_a_store_in_use_is_discarded_slowly(void **state)
{
	uint64_t begun, last = 0, gap;
	uint32_t steps = 0;

	(void)state;
	dead_unseen();
	assert_int_equal(one_host_put_begin(0, 1, ABI_SQE_DURABLE), 0); /* its copy has no end */
	begun = last = host.now_ns;
	assert_true(host.bag_count > 0 && host.core->actions.copies > 0);
	for (uint32_t left = host.bag_count; host.now_ns < begun + 8 * LATE_NS + LATE_NS / 2;) {
		if (host.bag_count > left && host.bag[left].kind != CORE_AC_SYNC) {
			gap = host.now_ns - last;
			assert_true(gap >= LATE_NS && gap < LATE_NS + 20 * MS);
			last = host.now_ns;
			steps++;
		}
		if (host.bag_count > left)
			host_carry(&host, left);
		else
			host_tick(&host, 10 * MS);
	}
	assert_int_equal(steps, 8);
	assert_int_equal(core_metrics(host.core)->discards, 4);
	assert_true(host.core->actions.copies > 0);
}

/* Nor is there a second one while the first is under way. */
static void test_one_at_a_time(void **state)
{
	(void)state;
	fill();
	empty_until_a_discard();
	for (uint32_t n = 0; n < 100; n++)
		host_tick(&host, 10 * MS);
	assert_int_equal(host.bag_count, 1);
}

/* Who needs room gets all other segments, and this one when the device is done with it. */
static void test_the_segment_is_not_opened_meanwhile(void **state)
{
	struct core_action discard;
	uint32_t i;

	(void)state;
	fill();
	i = empty_until_a_discard();
	discard = host.bag[0];
	host.bag_count = 0;
	host.held = false;
	again();
	for (uint32_t n = 0; n < 48; n += 3) {
		one_host_put_half(n);
		assert_int_equal(segment(i)->state, STORE_DISCARDING);
	}
	host_audit(&host);
	host.bag[host.bag_count++] = discard;
	host_carry_all(&host);
	assert_int_equal(segment(i)->state, STORE_FREE);
	for (uint32_t n = 48; n < 60; n += 3)
		one_host_put_half(n);
	assert_int_equal(core_metrics(host.core)->read_bad, 0);
	host_audit(&host);
}

static void test_a_device_without_is_asked_once(void **state)
{
	(void)state;
	host.discard_res = -EOPNOTSUPP;
	fill();
	empty();
	assert_int_equal(core_metrics(host.core)->discards_failed, 1);
	assert_int_equal(core_metrics(host.core)->discards, 0);
	assert_int_equal(core_next_tick(host.core) == UINT64_MAX, 1);
	again();
	fill();
}

/* One that failed is left alone until its segment has lived again; the others are not. */
static void test_a_failed_one_is_not_repeated(void **state)
{
	(void)state;
	fill();
	empty_until_a_discard();
	host.held = false;
	host.fault = HOST_FAILS;
	assert_true(host_settle(&host, 400));
	assert_int_equal(core_metrics(host.core)->discards_failed, 1);
	assert_int_equal(core_metrics(host.core)->discards, SEALED - SPARED - 1);
	assert_int_equal(count(true), SPARED);
	host_audit(&host);
}

/* A flush that fails may have lost the header: first one must be there for sure. */
static void test_a_lost_header_is_written_again(void **state)
{
	uint32_t i, syncs = 0;

	(void)state;
	fill();
	host.held = true;
	host_context_remove(&host, 0);
	for (uint32_t n = 0; n < STEPS && !discard_busy(host.core->drive[0]); n++)
		one_host_step();
	i = host.core->drive[0]->discarder.place.segment;
	assert_true(until(CORE_AC_SYNC));
	host.fault = HOST_FAILS;
	host_carry(&host, 0);
	assert_int_equal(segment(i)->state, STORE_FREE);
	assert_true(segment(i)->lsn_on_disk > 0);
	for (uint32_t n = 0; n < STEPS && !one_host_waits(CORE_AC_DISCARD); n++) {
		syncs += one_host_waits(CORE_AC_SYNC) > 0;
		one_host_step();
	}
	assert_true(syncs > 0);
	assert_true(one_host_waits(CORE_AC_DISCARD));
	i = host.core->drive[0]->discarder.place.segment;
	assert_int_equal(records_in(one_host_stable, i), 0);
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		EACH(test_dead_segments_are_discarded),
		EACH(test_without_it_nothing_is),
		EACH(test_records_are_void_before_their_data),
		EACH(test_a_restart_knows_what_was),
		EACH(test_not_beside_others),
		EACH(test_a_store_in_use_is_discarded_slowly),
		EACH(test_one_at_a_time),
		EACH(test_the_segment_is_not_opened_meanwhile),
		EACH(test_a_device_without_is_asked_once),
		EACH(test_a_failed_one_is_not_repeated),
		EACH(test_a_lost_header_is_written_again),
	};

	return cmocka_run_group_tests(tests, one_host, NULL);
}
