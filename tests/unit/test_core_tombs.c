/*
 * Tombstones that outgrow the records of a segment: those that are needed are made few records of,
 * whichever contexts they are of, and then left alone, and the cleaner ends; those that nothing
 * needs are not carried.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <string.h>

#include "tests/lib/property.h"
#include "tests/lib/unit.h"
#include "tests/unit/one_host.h"
#include "tierd/core/state.h"
#include "tierd/core/unit/store_priv.h"

#define SEGMENTS 24u
#define RUN 6u	     /* blocks of a put */
#define ABSENT 100000u /* keys from here on were never put */
#define CACHE 10000u

static int set_up(uint64_t segment_bytes, uint64_t summary_bytes)
{
	struct disk_context spec;

	one_host_disk((8u << 10) + 2 * HOST_CATALOG + SEGMENTS * segment_bytes, SEGMENTS,
		      segment_bytes, summary_bytes);
	host_spec(&spec, HOST_KIND_STORE, 0);
	spec.blocks_max = 5000;
	spec.quota[ABI_TIER_NVME] = UINT32_MAX;
	one_host_boot(&spec, 1);
	host.core->config.admit_all = true;
	one_host_suspect();
	return 0;
}

static int set_up_many(void **state)
{
	(void)state;
	return set_up(1u << 20, 64u << 10); /* 15 records, 60 blocks */
}

static int set_up_few(void **state)
{
	(void)state;
	return set_up(128u << 10, 24u << 10); /* 5 records, 6 blocks */
}

static int tear_down(void **state)
{
	one_host_off(state);
	one_host_disk_back();
	return 0;
}

static void drop(uint32_t first, uint32_t count)
{
	for (uint32_t n = 0; n < count; n++)
		assert_int_equal(one_host_delete(first + n, 1), 0);
}

static void pause_s(uint32_t seconds)
{
	for (uint32_t i = 0; i < 100 * seconds; i++)
		host_tick(&host, 10 * MS);
}

/* Blocks of the cache log, as many as the store takes, three times. */
static void fill(uint32_t blocks)
{
	for (uint32_t n = 0; n < 3 * SEGMENTS * blocks; n += RUN) {
		assert_int_equal(one_host_put(CACHE + n, RUN, 0), 0);
		host_tick(&host, 10 * MS);
	}
}

/*
 * A segment of promised blocks stays, and so do all tombstones that came after it, each in a record
 * of its own at first; the rest of the store is the cache log's, and always full.
 */
static void outgrow(uint32_t blocks, uint32_t keys)
{
	const struct core_metrics *m = &host.core->metrics;
	uint64_t cleaned, carried;

	for (uint32_t n = 0; n < 2 * blocks; n += RUN)
		assert_int_equal(one_host_put(n, RUN, ABI_SQE_DURABLE), 0);
	drop(ABSENT, keys);
	fill(blocks);
	assert_true(m->tombstones_carried > 0);
	pause_s(5);
	cleaned = m->cleaned_segments;
	carried = m->tombstones_carried;
	pause_s(5);
	assert_int_equal(m->cleaned_segments, cleaned);
	fill(blocks);
	assert_in_range(m->tombstones_carried - carried, 0, keys);
	host_audit(&host);
}

static void test_needed_ones_come_to_rest(void **state)
{
	(void)state;
	outgrow(60, 3000);
}

static void test_needed_ones_come_to_rest_in_few_records(void **state)
{
	(void)state;
	outgrow(6, 1200);
}

/* Of a key that was never put; there are two contexts. */
static void drop_of(uint32_t context, uint32_t n)
{
	const struct abi_sqe sqe = { .op = ABI_OP_DELETE,
				     .flags = ABI_SQE_KEYS,
				     .context_id = host.context[context].id,
				     .count = 1,
				     .arg_bytes = ABI_KEY_BYTES };

	host_key(ABSENT + n, host.client[0].staging);
	host.answer.res = 1;
	assert_true(host_request(&host, 0, &sqe));
	assert_int_equal(one_host_answer(), 0);
}

/* Records of tombstones in segments that are in use. */
static uint32_t tombstone_records(void)
{
	const struct disk_super *p = &host.super;
	uint32_t n = 0;

	for (uint32_t i = 0; i < p->segment_count; i++) {
		const uint8_t *summary = host.disk + p->segment_offset + i * p->segment_bytes;
		struct store_view v;
		size_t cursor = 0;

		if (host.core->drive[0]->store->segment[i].state == STORE_FREE)
			continue;
		while (!store_next(host.core->drive[0]->store, i, summary, p->summary_bytes,
				   &cursor, &v))
			n += v.head->type == DISK_RECORD_TOMBSTONE;
	}
	return n;
}

#define BY_TURNS 400u

/* Contexts that delete by turns, each key in a record of its own, are in few after the cleaner. */
static void test_those_of_two_contexts_are_sorted(void **state)
{
	const struct core_metrics *m = &host.core->metrics;
	struct disk_context spec;

	(void)state;
	host_spec(&spec, HOST_KIND_STORE, 1);
	spec.quota[ABI_TIER_NVME] = UINT32_MAX;
	assert_int_equal(host_context_make(&host, 1, &spec), 0);
	host_client_attach(&host, 0);
	for (uint32_t n = 0; n < 120; n += RUN)
		assert_int_equal(one_host_put(n, RUN, ABI_SQE_DURABLE), 0);
	for (uint32_t n = 0; n < BY_TURNS; n++)
		drop_of(n % 2, n);
	fill(60);
	pause_s(5);
	assert_true(m->tombstones_carried > BY_TURNS / 2);
	assert_in_range(tombstone_records(), 1, 60);
	host_audit(&host);
}

static uint64_t tombs_queued(void)
{
	return host.core->tombs[TOMBS_NEW].queued;
}

/*
 * Keys that never were leave none, and keys that have left the index all the same: their record
 * may come back. At a new start likewise, but where part of the store was not read.
 */
static void test_keys_that_never_were_leave_none(void **state)
{
	uint64_t queued;

	(void)state;
	one_host_off(state);
	one_host_disk_back();
	set_up(1u << 20, 64u << 10);
	for (uint32_t i = 0; i < SEGMENTS; i++)
		host.core->drive[0]->store->segment[i].suspect = false; /* it is new */
	for (uint32_t n = 0; n < 5 * RUN; n += RUN)
		assert_int_equal(one_host_put(n, RUN, ABI_SQE_DURABLE), 0);
	queued = tombs_queued();
	drop(ABSENT, 2000);
	assert_in_range(tombs_queued() - queued, 0, 40); /* keys may share a place */
	queued = tombs_queued();
	drop(0, RUN);
	assert_int_equal(tombs_queued() - queued, RUN);
	/* What leaves by itself leaves its record. */
	block_drop(host.core, core_context(host.core, host.context[0].id), 2 * RUN);
	queued = tombs_queued();
	for (uint32_t n = 0; n < 5 * RUN; n++)
		assert_true(one_host_delete(n, 1) <= 1);
	assert_int_equal(tombs_queued() - queued, 5 * RUN);
	one_host_restart(false);
	host_client_open(&host, 0);
	host_client_attach(&host, 0);
	queued = tombs_queued();
	drop(ABSENT, 2000);
	assert_in_range(tombs_queued() - queued, 0, 40);
	queued = tombs_queued();
	drop(0, RUN);
	assert_int_equal(tombs_queued() - queued, RUN);
	core_recover_unread(host.core, 0, SEGMENTS - 1);
	queued = tombs_queued();
	drop(ABSENT, RUN);
	assert_int_equal(tombs_queued() - queued, RUN);
	host_audit(&host);
}

/* The n-th sector of the disk that has a tombstone's record; NULL = there are no more. */
static uint8_t *tombstone_sector(uint32_t n)
{
	for (uint64_t at = 0; at < host.super.segment_count * host.super.segment_bytes;
	     at += DISK_SECTOR) {
		struct disk_record *r =
			(struct disk_record *)(host.disk + host.super.segment_offset + at);

		if (r->magic == DISK_RECORD_MAGIC && r->type == DISK_RECORD_TOMBSTONE && !n--)
			return (uint8_t *)r;
	}
	return NULL;
}

/* Any bit of the sector may rot, those that the record does not use included. */
static void rot(uint8_t *sector, uint32_t seed)
{
	struct rng rng = { seed };

	for (uint32_t round = 0; round < 300; round++) {
		uint32_t among = 8 * (round % 2 ? DISK_SECTOR : 304);
		uint32_t bit = (uint32_t)rng_below(&rng, among);
		uint8_t before = sector[bit / 8];

		sector[bit / 8] ^= (uint8_t)(1u << bit % 8);
		one_host_restart(round % 3 == 0);
		for (uint32_t i = 0; i < RUN; i++)
			assert_int_equal(is_there(i), i != 1 && i != 4);
		assert_int_equal(sector[bit / 8], before); /* put right in what was fed */
	}
	host_audit(&host);
}

static void test_a_flipped_bit_undoes_none(void **state)
{
	uint8_t *at;

	(void)state;
	assert_int_equal(one_host_put(0, RUN, ABI_SQE_DURABLE), 0);
	drop(1, 1);
	drop(4, 1);
	assert_non_null(tombstone_sector(1));
	rot(tombstone_sector(0), 1);
	rot(tombstone_sector(1), 2);
	at = tombstone_sector(0);
	rot(at - (size_t)(at - host.disk - host.super.segment_offset) % host.super.segment_bytes,
	    3); /* the header of its segment */
}

/* The cleaner sees through it, too: what it carries is what was written. */
static void test_a_flipped_bit_is_carried_right(void **state)
{
	const struct core_metrics *m = &host.core->metrics;
	uint64_t carried = m->tombstones_carried;

	(void)state;
	for (uint32_t n = 0; n < 120; n += RUN)
		assert_int_equal(one_host_put(n, RUN, ABI_SQE_DURABLE), 0);
	drop(1, 1);
	tombstone_sector(0)[sizeof(struct disk_record) + 7] ^= 16;
	drop(ABSENT, 400);
	fill(60);
	pause_s(5);
	assert_true(m->tombstones_carried > carried);
	one_host_restart(false);
	assert_false(is_there(1));
	assert_true(is_there(2));
}

static int32_t put_of_second(uint32_t n)
{
	const struct abi_put_args args = { .count = 1 };
	struct abi_sqe sqe = { .op = ABI_OP_PUT_RESERVE, .flags = ABI_SQE_DURABLE, .count = 1,
			       .context_id = host.context[1].id,
			       .arg_bytes = sizeof(args) + ABI_KEY_BYTES };

	memcpy(host.client[0].staging, &args, sizeof(args));
	host_key(n, host.client[0].staging + sizeof(args));
	host.answer.res = 1;
	assert_true(host_request(&host, 0, &sqe));
	if (host.answer.res)
		return host.answer.res;
	host.answer.res = 1;
	assert_true(host_commit(&host, ABI_SQE_DURABLE));
	return one_host_answer();
}

#define SMALL (2u << 20) /* quota of the one who deletes; the store has 24 MiB */

/*
 * Who puts and deletes all the time keeps no more of the store than its quota: what keeps the
 * tombstones needed is moved. Where nothing ends the need (a segment that was not read) it is
 * refused by name. Nobody else is, ever.
 */
static void test_many_are_their_contexts_alone(void **state)
{
	uint32_t second = 0, n;
	struct disk_context spec;

	(void)state;
	host_spec(&spec, HOST_KIND_STORE, 1);
	spec.quota[ABI_TIER_NVME] = 16u << 20;
	assert_int_equal(host_context_make(&host, 1, &spec), 0);
	host_client_attach(&host, 0);
	for (uint32_t i = 0; i < SEGMENTS; i++)
		core_home(host.core)->store->segment[i].suspect = false; /* it is new */
	core_context(host.core, host.context[0].id)->plan.quota[ABI_TIER_NVME] = SMALL;
	for (uint32_t i = 0; i < 20; i++)
		assert_int_equal(put_of_second(second++), 0);
	for (n = 0; n < 10000; n++) {
		assert_int_equal(one_host_put(n, 1, ABI_SQE_DURABLE), 0);
		assert_int_equal(one_host_delete(n, 1), 0);
		if (n % 100 == 0)
			assert_int_equal(put_of_second(second++), 0);
	}
	for (n = 0; n < 2 * TOMBS_MAX && one_host_delete(ABSENT + n, 1) == 0; n++)
		core_home(host.core)->store->segment[0].suspect = true;
	assert_int_equal(host.answer.res, -EDQUOT);
	assert_in_range(n, TOMBS_MAX / 2, TOMBS_MAX + 1);
	for (uint32_t i = 0; i < 40; i++)
		assert_int_equal(put_of_second(second++), 0);
	host_audit(&host);
}

/* Blocks of a page each, in records of their own, until the quota is used up: by their records. */
static void test_records_of_small_blocks_count(void **state)
{
	struct context *x = core_context(host.core, host.context[0].id);
	struct store_stats st;
	uint32_t n = 0, free;
	int32_t res = 0;

	(void)state;
	store_stats(core_home(host.core)->store, &st);
	free = st.segments_free;
	x->plan.quota[ABI_TIER_NVME] = SMALL;
	while (!res && n < 1000)
		res = one_host_put(n++ * 2, 1, ABI_SQE_DURABLE);
	assert_int_equal(res, -ENOSPC);
	assert_in_range(x->nvme_bytes + x->record_bytes, SMALL / 2, SMALL);
	store_stats(core_home(host.core)->store, &st);
	assert_in_range(free - st.segments_free, 1, SMALL / (1u << 20) + 2);
	host_audit(&host);
	one_host_restart(false);
	x = core_context(host.core, host.context[0].id);
	assert_in_range(x->nvme_bytes + x->record_bytes, SMALL / 2, SMALL);
	host_audit(&host);
}

static struct store_run tombstone_of_one(struct store *s)
{
	struct store_run run;

	assert_int_equal(store_append_tombstone(s, 1, false, &run), 0);
	store_append_done(s, &run, true);
	return run;
}

/* Only a run can be made void: tombstones of the segment before do not make later ones needed. */
static void test_one_makes_no_other_needed(void **state)
{
	struct store_run first, next;
	struct store *s;
	uint64_t oldest;

	(void)state;
	assert_int_equal(store_open(&s, &host.super), 0);
	first = tombstone_of_one(s);
	do
		next = tombstone_of_one(s);
	while (next.segment == first.segment);
	assert_false(store_tombs_needed(s, next.segment, &oldest));
	assert_int_equal(store_append(s, STORE_CACHE, 1, DISK_SECTOR, 1, &first), 0);
	next = tombstone_of_one(s);
	assert_true(store_tombs_needed(s, next.segment, &oldest));
	assert_int_equal(oldest, first.lsn);
	store_close(s);
}

static uint32_t segment_voiding(uint64_t bound)
{
	for (uint32_t i = 0; i < SEGMENTS; i++)
		if (core_home(host.core)->store->segment[i].lsn_tombstone == bound)
			return i;
	fail_msg("no tombstone voids what came up to %llu", (unsigned long long)bound);
	return 0;
}

/*
 * The oldest run of all has one deleted block and one that stays. Its tombstone, which reaches just
 * that far, outlives its segment: the store is full, and that is used anew.
 */
static void test_one_that_reaches_the_oldest_run_is_needed(void **state)
{
	struct store *s = core_home(host.core)->store;
	const struct tomb_sum *sum;
	const struct store_segment *g;
	uint64_t bound, sequence, oldest;
	uint32_t segment;

	(void)state;
	assert_int_equal(one_host_put(0, 2, 0), 0);
	pause_s(1);
	bound = store_lsn(s);
	s->segment[s->open[STORE_CACHE]].held = true; /* it stays where it is */
	drop(1, 1);
	pause_s(1);
	segment = segment_voiding(bound);
	g = &s->segment[segment];
	sequence = g->sequence;
	for (uint32_t n = 2 * RUN; g->state == STORE_OPEN; n++) { /* what else it has leaves */
		assert_int_equal(one_host_put(n, 1, ABI_SQE_DURABLE), 0);
		block_drop(host.core, core_context(host.core, host.context[0].id), slot_of(n));
	}
	for (uint32_t n = CACHE; g->sequence == sequence; n += RUN) {
		assert_in_range(n, CACHE, CACHE + 6000);
		assert_int_equal(one_host_put(n, RUN, 0), 0);
		host_tick(&host, 10 * MS);
		if (g->tomb_keys && g->sequence == sequence)
			assert_true(store_tombs_needed(s, segment, &oldest) && oldest == bound);
	}
	host_audit(&host);
	one_host_restart(false);
	assert_int_not_equal(slot_of(0), ABI_SLOT_NONE);
	assert_int_equal(slot_of(1), ABI_SLOT_NONE);
	sum = &core_context(host.core, host.context[0].id)->tombs; /* it counts as before */
	assert_int_equal(sum->age[0].keys, 1);
	assert_int_equal(sum->age[0].bound, bound);
}

/* ---- two contexts that know the same keys -------------------------------------------------- */

#define SAME 40u /* keys that both have */

static int32_t ask_of(uint32_t context, uint8_t op, uint16_t flags, uint32_t n)
{
	struct abi_put_args *args = (void *)host.client[0].staging;
	struct abi_sqe sqe = { .op = op, .flags = flags, .count = 1,
			       .context_id = host.context[context].id };
	int32_t rc;

	host.answer.res = 1;
	if (op == ABI_OP_DELETE) {
		host_key(n, host.client[0].staging);
		sqe.flags |= ABI_SQE_KEYS;
		sqe.arg_bytes = ABI_KEY_BYTES;
	} else {
		memset(args, 0, sizeof(*args));
		args->count = 1;
		host_key(n, (uint8_t *)(args + 1));
		sqe.arg_bytes = sizeof(*args) + ABI_KEY_BYTES;
	}
	assert_true(host_request(&host, 0, &sqe));
	rc = one_host_answer();
	if (op == ABI_OP_DELETE || rc)
		return rc;
	sqe = (struct abi_sqe){ .op = ABI_OP_PUT_COMMIT, .flags = flags,
				.handle = host.answer.value, .arg_offset = HOST_PUT_DATA };
	host.answer.res = 1;
	assert_true(host_request(&host, 0, &sqe));
	return one_host_answer();
}

static bool is_there_in(uint32_t context, uint32_t n)
{
	struct core_location at;
	uint8_t key[ABI_KEY_BYTES];

	host_key(n, key);
	return core_locate(host.core, host.context[context].id, key, &at) == 0;
}

static void both_again(void)
{
	const struct disk_super *p = &host.super;
	struct core_recovery out;
	struct disk_context list[2] = { host.context[0].spec, host.context[1].spec };
	struct disk_catalog catalog = { .next_uid = host.core->next_uid,
					.sequence = host.core->catalog.sequence };

	for (uint32_t i = 0; i < 2; i++)
		list[i] = core_context(host.core, host.context[i].id)->spec;
	host_halt(&host);
	host_boot(&host, &catalog);
	for (uint32_t i = 0; i < 2; i++)
		assert_int_equal(host_context_make(&host, i, &list[i]), 0);
	for (uint32_t i = 0; i < p->segment_count; i++)
		core_recover_segment(host.core, 0, i,
				     host.disk + p->segment_offset + i * p->segment_bytes,
				     p->summary_bytes);
	assert_int_equal(core_recover_finish(host.core, &out), 0);
	host_client_open(&host, 0);
	host_client_attach(&host, 0);
}

/* The same key is deleted in both, and each tombstone counts for the segment that it lies in. */
static void test_one_key_deleted_in_both(void **state)
{
	struct store *s = core_home(host.core)->store;
	struct disk_context spec;
	uint32_t first, segment;
	uint64_t bound;

	(void)state;
	host_spec(&spec, HOST_KIND_STORE, 1);
	spec.quota[ABI_TIER_NVME] = UINT32_MAX;
	assert_int_equal(host_context_make(&host, 1, &spec), 0);
	host_client_attach(&host, 0);
	for (uint32_t i = 0; i < 2; i++)
		assert_int_equal(ask_of(i, ABI_OP_PUT_RESERVE, ABI_SQE_DURABLE, 0), 0);
	assert_int_equal(ask_of(0, ABI_OP_DELETE, ABI_SQE_DURABLE, 0), 0);
	first = s->open[STORE_DURABLE];
	for (uint32_t n = 1; s->open[STORE_DURABLE] == first; n++)
		assert_int_equal(ask_of(0, ABI_OP_PUT_RESERVE, ABI_SQE_DURABLE, n), 0);
	bound = store_lsn(s);
	assert_int_equal(ask_of(1, ABI_OP_DELETE, ABI_SQE_DURABLE, 0), 0);
	segment = segment_voiding(bound);
	assert_int_not_equal(segment, first);
	both_again();
	assert_int_equal(segment_voiding(bound), segment);
	assert_false(is_there_in(0, 0) || is_there_in(1, 0));
}

#define FEW 8u /* blocks that the second context has room for */
#define MORE (3 * FEW) /* those that are put; all but the last ones are deleted */

/*
 * A run that has no slot until deletions are known is looked for among those of its own context,
 * though the other one deleted the same keys later.
 */
static void test_late_runs_are_voided_by_their_own(void **state)
{
	struct disk_context spec;

	(void)state;
	host_spec(&spec, HOST_KIND_STORE, 1);
	spec.quota[ABI_TIER_NVME] = UINT32_MAX;
	spec.blocks_max = FEW;
	assert_int_equal(host_context_make(&host, 1, &spec), 0);
	host_client_attach(&host, 0);
	for (uint32_t i = 2; i-- > 0;)
		for (uint32_t n = 0; n < MORE; n++) {
			assert_int_equal(ask_of(i, ABI_OP_PUT_RESERVE, ABI_SQE_DURABLE, n), 0);
			if (n < 2 * FEW)
				ask_of(i, ABI_OP_DELETE, ABI_SQE_DURABLE, n);
		}
	both_again();
	for (uint32_t n = 0; n < MORE; n++)
		for (uint32_t i = 0; i < 2; i++)
			if (is_there_in(i, n) != (n >= 2 * FEW))
				fail_msg("context %u key %u is %s", i, n,
					 is_there_in(i, n) ? "back" : "lost");
	host_audit(&host);
}

/* What one context deletes the other one keeps, over crashes and the cleaner's rounds, too. */
static void test_contexts_delete_for_themselves(void **state)
{
	uint64_t there[2] = { 0, 0 }, random = 1, carried = 0;
	struct disk_context spec;

	(void)state;
	host_spec(&spec, HOST_KIND_STORE, 1);
	spec.quota[ABI_TIER_NVME] = UINT32_MAX;
	assert_int_equal(host_context_make(&host, 1, &spec), 0);
	host_client_attach(&host, 0);
	for (uint32_t round = 0; round < 1500; round++) {
		uint32_t which, n;

		random = random * 6364136223846793005ull + 1442695040888963407ull;
		which = random >> 40 & 1;
		n = (uint32_t)(random >> 41) % SAME;
		if (random >> 33 & 1) {
			assert_int_equal(ask_of(which, ABI_OP_PUT_RESERVE, ABI_SQE_DURABLE, n), 0);
			there[which] |= 1ull << n;
		} else {
			ask_of(which, ABI_OP_DELETE, ABI_SQE_DURABLE, n);
			there[which] &= ~(1ull << n);
		}
		if (round % 100 != 99)
			continue;
		pause_s(1);
		host_audit(&host);
		carried += host.core->metrics.tombstones_carried;
		both_again();
		for (uint32_t i = 0; i < 2 * SAME; i++)
			if (is_there_in(i % 2, i / 2) != (there[i % 2] >> i / 2 & 1))
				fail_msg("round %u: context %u key %u is %s", round, i % 2, i / 2,
					 is_there_in(i % 2, i / 2) ? "back" : "lost");
	}
	assert_true(carried > 0);
}

#define TEST(name, set_up) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_needed_ones_come_to_rest, set_up_many),
		TEST(test_needed_ones_come_to_rest_in_few_records, set_up_few),
		TEST(test_those_of_two_contexts_are_sorted, set_up_many),
		TEST(test_keys_that_never_were_leave_none, set_up_many),
		TEST(test_a_flipped_bit_undoes_none, set_up_many),
		TEST(test_a_flipped_bit_is_carried_right, set_up_many),
		TEST(test_many_are_their_contexts_alone, set_up_many),
		TEST(test_records_of_small_blocks_count, set_up_many),
		cmocka_unit_test(test_one_makes_no_other_needed),
		TEST(test_one_that_reaches_the_oldest_run_is_needed, set_up_few),
		TEST(test_one_key_deleted_in_both, set_up_few),
		TEST(test_late_runs_are_voided_by_their_own, set_up_few),
		TEST(test_contexts_delete_for_themselves, set_up_few),
	};

	return cmocka_run_group_tests(tests, one_host, NULL);
}
