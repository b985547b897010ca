/*
 * Writes and flushes that fail: what records say of flushes (D9) stays true, whatever of a write
 * that failed came through all the same; who waits for room that a flush makes gets one; and a
 * durable put waits for no write that is not its own.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <string.h>

#include "tests/lib/twice.h"
#include "tests/lib/unit.h"
#include "tests/unit/one_host.h"
#include "tierd/core/state.h"

static int setup(void **state)
{
	struct disk_context spec;

	(void)state;
	memset(host.disk, 0, HOST_NVME);
	host_spec(&spec, HOST_KIND_STORE, 0);
	one_host_boot(&spec, 1);
	assert_true(twice_use(host.core->context[0])); /* it writes what is used again */
	host.held = true;
	return 0;
}

/* Carry out the one action there is, which is of this kind, with a fault. */
static void carry(enum core_action_kind kind, enum host_fault fault)
{
	assert_int_equal(host.bag_count, 1);
	assert_int_equal(host.bag[0].kind, kind);
	host.fault = fault;
	host_carry(&host, 0);
}

static void put_durably(uint32_t first, uint32_t count)
{
	const struct abi_put_args args = { .count = count };

	assert_int_equal(host_reserve(&host, &args, first, ABI_SQE_DURABLE), 0);
	assert_true(host_commit(&host, ABI_SQE_DURABLE));
}

/* One flush covers what is written again, the next one the tombstones that end the suspect. */
static void put_two_more(void)
{
	for (uint32_t n = 2; n < 4; n++) {
		put_durably(n, 1);
		assert_true(host_settle(&host, 200));
		assert_int_equal(host.answer.res, 0);
	}
}

/* Blocks from 0 on: the header of their segment is written and flushed, their data is written. */
static void put_but_the_record(uint32_t count)
{
	put_durably(0, count);
	carry(CORE_AC_COPY, HOST_WELL);
	carry(CORE_AC_WRITE, HOST_WELL); /* the header, */
	carry(CORE_AC_SYNC, HOST_WELL);
	carry(CORE_AC_WRITE, HOST_WELL); /* the data */
}

/* A flush that begins and ends beside the write that is under way. */
static void flush_beside(enum host_fault fault)
{
	sync_want(host.core->drive[0]);
	host_tick(&host, 20 * MS);
	host_tick(&host, 20 * MS); /* it waits for that write no longer */
	assert_int_equal(host.bag_count, 2);
	assert_int_equal(host.bag[1].kind, CORE_AC_SYNC);
	host.fault = fault;
	host_carry(&host, 1);
	host.fault = HOST_WELL;
}

/*
 * A record whose write failed may lie on the medium. Its data was in no flush when one failed and
 * forgot it: until its blocks are written again nothing may say that it has some.
 */
static void test_a_failed_record_is_not_proven(void **state)
{
	uint64_t lsn;

	(void)state;
	put_but_the_record(2);
	carry(CORE_AC_WRITE, HOST_SHORT); /* the record: it is there, but told otherwise */
	lsn = store_lsn(host.core->drive[0]->store);
	assert_int_equal(host.bag_count, 0);
	host_tick(&host, 1100 * MS);
	assert_int_equal(host.bag_count, 1); /* their data again */
	flush_beside(HOST_FAILS);
	flush_beside(HOST_WELL); /* it covers nothing new */
	assert_true(store_flushed_lsn(host.core->drive[0]->store) < lsn);
	host.held = false; /* they are, and what a flush says then is true */
	host_carry_all(&host);
	put_two_more();
	assert_true(store_flushed_lsn(host.core->drive[0]->store) > lsn);
}

/*
 * While a record is being written a flush fails, which may have forgotten its data, and the next
 * one is good. Then the record is there: until its blocks are written again nothing may say that it
 * has some, whatever else is flushed.
 */
static void test_a_record_that_ends_after_the_next_flush(void **state)
{
	uint64_t lsn;

	(void)state;
	put_but_the_record(2);
	lsn = store_lsn(host.core->drive[0]->store);
	flush_beside(HOST_FAILS);
	flush_beside(HOST_WELL);
	host_carry(&host, 0); /* the record; then its blocks again, */
	flush_beside(HOST_WELL);
	assert_true(store_flushed_lsn(host.core->drive[0]->store) < lsn);
	host.held = false; /* ... and all is well */
	host_carry_all(&host);
	put_two_more();
	assert_true(store_flushed_lsn(host.core->drive[0]->store) > lsn);
}

static void pin(uint32_t client, uint32_t first, uint32_t count)
{
	const struct abi_sqe sqe = { .op = ABI_OP_PIN, .tier = ABI_TIER_CXL };

	assert_true(host_request_keys(&host, client, sqe, first, count));
	assert_int_equal(host.answer.res, 0);
	assert_int_equal(host.answer.status, ABI_STATUS_READY);
}

/* The writer of block 0 dies before its record is written: nobody wants the flush. */
static void put_without_a_flush(void)
{
	put_but_the_record(1);
	host_client_gone(&host, 0);
	carry(CORE_AC_WRITE, HOST_WELL); /* the record */
}

/*
 * A block whose writer died waits for a flush that nobody wants. All else is pinned and is not to
 * be written: then room for others comes by that flush alone.
 */
static void test_room_that_a_flush_makes(void **state)
{
	const struct abi_put_args args = { .count = 24 };
	struct context *x = core_context(host.core, host.context[0].id);

	(void)state;
	host.held = false;
	host_client_open(&host, 1);
	host_client_attach(&host, 1);
	for (uint32_t i = 0; i < 4; i++) {
		assert_int_equal(host_reserve(&host, &args, 100 + 24 * i, 0), 0);
		assert_true(host_commit(&host, 0));
		pin(1, 100 + 24 * i, 24);
	}
	assert_true(host_settle(&host, 100));
	assert_int_equal(x->refused, 96);
	host.held = true;
	put_without_a_flush();
	assert_int_equal(host.bag_count, 0);
	assert_int_equal(x->dirty_bytes, 0);
	assert_int_equal(evict_room(host.core, x, ABI_TIER_CXL, 1), 0); /* it will come: */
	host_tick(&host, MS);
	carry(CORE_AC_SYNC, HOST_WELL);
}

/*
 * A durable put finds its blocks stored without that, and their segment of the cache log is dropped
 * before the put can have them written anew: they go to the durable log, not to that one again.
 */
static void test_a_dropped_segment_delays_no_durable_put(void **state)
{
	const struct abi_put_args args = { .count = 4 };
	struct context *x = core_context(host.core, host.context[0].id);
	uint8_t key[ABI_KEY_BYTES];
	uint32_t slot;

	(void)state;
	host.held = false;
	host.core->config.admit_all = true;
	host_client_open(&host, 1);
	host_client_attach(&host, 1);
	assert_int_equal(host_reserve(&host, &args, 100, 0), 0);
	assert_true(host_commit(&host, 0));
	assert_true(host_settle(&host, 100));
	host_key(100, key);
	slot = index_find(&x->ix, key);
	assert_int_equal(x->meta[slot].persist, PERSIST_CLEAN);
	pin(1, 100, 4);
	host.held = true;
	assert_int_equal(host_reserve(&host, &args, 100, ABI_SQE_DURABLE), 0);
	evict_segment(host.core, host.core->drive[0], block_segment(host.core, x, slot));
	assert_int_equal(x->meta[slot].persist, PERSIST_QUEUED);
	assert_true(host_commit(&host, ABI_SQE_DURABLE));
	assert_true(x->meta[slot].flags & BLOCK_DURABLE);
	host.held = false;
	host_carry_all(&host);
	assert_true(host_settle(&host, 100));
	assert_int_equal(host.answer.res, 0);
	assert_int_equal(host.answer.value, 4);
}

/* A flush that takes so long: so long the next one waits for runs, at most. */
static void flush_that_takes(uint64_t ns)
{
	put_durably(100, 1);
	while (host.bag[0].kind != CORE_AC_SYNC || host.core->drive[0]->run[0].phase != RUN_FREE ||
	       host.core->drive[0]->run[1].phase != RUN_FREE)
		host_carry(&host, 0);
	host_tick(&host, ns);
	carry(CORE_AC_SYNC, HOST_WELL);
	assert_int_equal(host.bag_count, 0);
}

/* Runs whose data is being written. */
static uint32_t runs_under_way(void)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < CORE_RUNS_MAX; i++)
		n += host.core->drive[0]->run[i].phase == RUN_DATA;
	return n;
}

static void carry_copies(void)
{
	for (uint32_t i = 0; i < host.bag_count;)
		if (host.bag[i].kind == CORE_AC_COPY)
			host_carry(&host, i);
		else
			i++;
}

/* Those who put together are written side by side and share a flush. */
static void test_one_flush_serves_who_put_together(void **state)
{
	uint64_t syncs;

	(void)state;
	flush_that_takes(2 * MS);
	syncs = host.core->metrics.syncs;
	for (uint32_t i = 0; i < 4; i++)
		put_durably(i, 1);
	carry_copies();
	assert_int_equal(runs_under_way(), 4);
	host_carry_all(&host);
	assert_int_equal(core_context(host.core, host.context[0].id)->dirty_bytes, 0);
	assert_int_equal(host.core->metrics.syncs - syncs, 1);
}

/* ... but nobody waits for others longer than a flush takes. */
static void test_a_flush_waits_no_longer_than_one_takes(void **state)
{
	uint64_t left;

	(void)state;
	flush_that_takes(2 * MS);
	put_durably(0, 1);
	put_durably(1, 1);
	carry_copies();
	assert_int_equal(runs_under_way(), 2);
	host_carry(&host, 0); /* the data of one, */
	host_carry(&host, 1); /* ... and its record */
	assert_int_equal(host.bag_count, 1);
	assert_int_equal(host.bag[0].kind, CORE_AC_WRITE);
	left = core_next_tick(host.core) - host.core->now_ns;
	assert_in_range(left, 2 * MS - 10000, 2 * MS + 10000);
	host_tick(&host, left - 10000);
	assert_int_equal(host.bag_count, 1);
	host_tick(&host, 10000);
	assert_int_equal(host.bag_count, 2);
	assert_int_equal(host.bag[1].kind, CORE_AC_SYNC);
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, setup, one_host_off)

/*
 * After a flush that failed whatever comes next fails, too: the n-th of what is done then. In the
 * end all is written again, and records say so: a suspect does not outlive its block's next write.
 */
static void test_nothing_is_suspect_for_ever(void **state)
{
	for (uint32_t n = 0; n < 10; n++) {
		uint64_t lsn;

		put_but_the_record(2);
		carry(CORE_AC_WRITE, HOST_WELL); /* the record */
		carry(CORE_AC_SYNC, HOST_FAILS);
		lsn = store_lsn(host.core->drive[0]->store);
		for (uint32_t i = 0; i <= n; i++) {
			for (uint32_t ms = 0; !host.bag_count && ms < 2000; ms++)
				host_tick(&host, MS);
			host.fault = i == n ? HOST_FAILS : HOST_WELL;
			host_carry(&host, 0);
		}
		host.fault = HOST_WELL;
		host.held = false;
		host_carry_all(&host);
		assert_true(host_settle(&host, 200));
		put_two_more();
		assert_true(store_flushed_lsn(host.core->drive[0]->store) > lsn);
		assert_int_equal(host.core->suspects, 0);
		one_host_off(state);
		setup(state);
	}
}

static void raise_epoch(void)
{
	assert_int_equal(core_context_epoch(host.core, host.context[0].id, 0, 0), 0);
}

/* A put that its epoch does not outlive is stale, however far it has come, and nothing else. */
static void test_a_put_is_of_its_epoch(void **state)
{
	uint32_t steps = 0;

	for (; one_host_put_begin(0, 3, ABI_SQE_DURABLE) == 0; steps++) {
		for (uint32_t i = 0; i < steps && host.answer.res > 0; i++)
			if (host.bag_count)
				host_carry(&host, 0);
			else
				host_tick(&host, MS);
		if (host.answer.res <= 0)
			break;
		raise_epoch();
		host_tick(&host, 0);
		if (steps) /* its bytes are there: it waits for nothing more */
			assert_int_equal(host.answer.res, -ESTALE);
		assert_int_equal(one_host_answer(), -ESTALE);
		one_host_off(state);
		setup(state);
	}
	assert_int_equal(host.answer.res, 0);
	assert_true(steps >= 6); /* a copy, header and flush, data, record, flush */
}

static void remove_other(void)
{
	host_context_remove(&host, 1);
}

/*
 * Blocks that a new epoch or a removal ended leave at once, and their segments are free. Not before
 * a durable catalog says so may a header end what these hold: else a crash that loses the catalog
 * brings back what later records had hidden.
 */
static void header_after_catalog(void (*ends)(void))
{
	ends();
	host_tick(&host, MS);
	assert_int_equal(host.bag_count, 1); /* the catalog */
	put_durably(0, 1);
	assert_int_equal(host.bag_count, 2);
	host_carry(&host, 1); /* a copy */
	host_tick(&host, 100 * MS);
	assert_true(core_next_tick(host.core) > host.core->now_ns);
	carry(CORE_AC_WRITE, HOST_WELL); /* there is no header beside it */
	assert_int_equal(host.core->drive[0]->run[DISK_LOG_DURABLE].phase, RUN_HEADER);
	carry(CORE_AC_SYNC, HOST_WELL);
	carry(CORE_AC_WRITE, HOST_WELL);
	assert_int_equal(host.core->drive[0]->run[DISK_LOG_DURABLE].phase, RUN_HEADER_SYNC);
}

static void test_a_header_waits_for_what_ended_a_life(void **state)
{
	struct disk_context spec;

	header_after_catalog(raise_epoch);
	one_host_off(state);
	setup(state);
	host.held = false;
	host_spec(&spec, HOST_KIND_STORE, 1);
	assert_int_equal(host_context_make(&host, 1, &spec), 0);
	host.held = true;
	header_after_catalog(remove_other);
}

/* All that there is to do, but the flush under way. */
static void carry_all_but_the_flush(void)
{
	for (uint32_t i = 0; i < host.bag_count;) {
		if (host.bag[i].kind == CORE_AC_SYNC) {
			i++;
			continue;
		}
		host_carry(&host, i);
		i = 0;
	}
}

/*
 * While a flush is under way the block that it covers is deleted, and its slot holds another one
 * that was written since: that one waits for the next flush.
 */
static void test_a_flush_does_not_settle_who_came_into_the_slot(void **state)
{
	struct context *x = core_context(host.core, host.context[0].id);
	const struct abi_sqe sqe = { .op = ABI_OP_DELETE };
	uint8_t key[ABI_KEY_BYTES];
	uint32_t slot;

	(void)state;
	put_without_a_flush();
	host_key(0, key);
	slot = index_find(&x->ix, key);
	assert_int_equal(x->meta[slot].settle, SETTLE_WRITTEN);
	assert_int_equal(host.bag_count, 0);
	host_client_dead(&host, 0);
	host_client_open(&host, 0);
	host_client_attach(&host, 0);
	assert_true(host_request_keys(&host, 0, sqe, 0, 1)); /* for it there is a flush */
	for (uint32_t i = 0; i < 20; i++, carry_all_but_the_flush())
		host_tick(&host, MS);
	assert_true(core_deleting(host.core));
	put_durably(1, 1);
	for (uint32_t i = 0; i < 20; i++, carry_all_but_the_flush())
		host_tick(&host, MS);
	host_key(1, key);
	assert_int_equal(index_find(&x->ix, key), slot);
	assert_int_equal(x->meta[slot].settle, SETTLE_WRITTEN);
	carry(CORE_AC_SYNC, HOST_WELL);
	assert_int_equal(x->meta[slot].settle, SETTLE_WRITTEN);
	carry(CORE_AC_SYNC, HOST_WELL); /* the next one */
	assert_int_equal(x->meta[slot].settle, SETTLE_NONE);
	assert_false(core_deleting(host.core));
}

static void all_but_flushes(void)
{
	for (uint32_t i = 0; i < 200; i++, carry_all_but_the_flush())
		host_tick(&host, MS);
}

/* ---- what a crash may bring back ----------------------------------------------------------- */

static uint32_t segment_of(uint32_t n)
{
	const struct context *x = core_context(host.core, host.context[0].id);

	assert_int_equal(x->meta[slot_of(n)].persist, PERSIST_CLEAN);
	return block_segment(host.core, x, slot_of(n));
}

/* The device forgets what it took of the block's first page. */
static void forget(uint64_t offset)
{
	memset(host.disk + offset, 0, DISK_SECTOR);
}

static uint64_t first_page(uint32_t n)
{
	struct context *x = core_context(host.core, host.context[0].id);

	return abi_nvme_offset(index_page(&x->ix, slot_of(n), 0)->nvme);
}

/* Records of a kind, from segment to segment. */
static void lose_records(uint32_t type, uint32_t segment, uint32_t end)
{
	const struct disk_super *p = &host.super;

	for (; segment < end; segment++)
		for (uint64_t at = 0; at < p->summary_bytes; at += DISK_SECTOR) {
			uint64_t start = p->segment_offset + segment * p->segment_bytes;
			struct disk_record *r = (struct disk_record *)(host.disk + start + at);

			if (r->magic == DISK_RECORD_MAGIC && r->type == type)
				memset(r, 0, DISK_SECTOR);
		}
}

/* The segment's runs are not needed, and it has a new life; what voids others was carried. */
static void restart_without(uint32_t segment)
{
	lose_records(DISK_RECORD_RUN, segment, segment + 1);
	one_host_restart(false);
}

/* Would a durable put of the block be answered, although its data is nowhere? */
static bool taken_for_durable(uint32_t n)
{
	const struct context *x = core_context(host.core, host.context[0].id);
	uint32_t slot = slot_of(n);

	return slot != ABI_SLOT_NONE && x->meta[slot].flags & BLOCK_DURABLE &&
	       x->meta[slot].settle == SETTLE_NONE;
}

/* Blocks 0 to 2 are written, and a flush fails which forgets their data; and again, elsewhere. */
static void suspect_and_write_again(void)
{
	uint32_t first;
	uint64_t data;

	host.held = false;
	one_host_put_half(100);
	assert_int_equal(one_host_put_begin(0, 3, ABI_SQE_DURABLE), 0);
	all_but_flushes();
	first = segment_of(0);
	data = first_page(0);
	carry(CORE_AC_SYNC, HOST_FAILS);
	forget(data);
	host.fault = HOST_WELL;
	assert_int_equal(one_host_answer(), 0);
	assert_true(segment_of(0) != first);
}

/*
 * What was written again after a failed flush is deleted, and its segment is opened anew; a crash
 * keeps the header, and loses the tombstone. The record from before that flush is without its data,
 * and flushed_lsn is beyond it: it does not come back.
 */
static void test_a_suspect_record_does_not_come_back(void **state)
{
	uint64_t lsn;
	uint32_t segment;

	(void)state;
	suspect_and_write_again();
	segment = segment_of(0);
	lsn = store_lsn(host.core->drive[0]->store);
	one_host_put_half(200);
	one_host_put_half(300);
	one_host_put_half(400);
	assert_true(store_flushed_lsn(host.core->drive[0]->store) > lsn);
	one_host_restart(false);
	assert_int_equal(segment_of(0), segment);
	assert_true(taken_for_durable(0));
	restart_without(segment);
	assert_false(taken_for_durable(0));
	assert_true(taken_for_durable(300));
	host_audit(&host);
}

/* Where its tombstone finds no room to wait, no record says that it has its data. */
static void test_a_suspect_without_a_tombstone_stays(void **state)
{
	struct tombs *t = &host.core->tombs[TOMBS_NEW];
	uint8_t key[ABI_KEY_BYTES];
	uint64_t lsn;

	(void)state;
	put_but_the_record(1);
	carry(CORE_AC_WRITE, HOST_WELL); /* the record */
	carry(CORE_AC_SYNC, HOST_FAILS);
	host.fault = HOST_WELL;
	lsn = store_lsn(host.core->drive[0]->store);
	for (uint32_t i = 0; i < 100 && store_lsn(host.core->drive[0]->store) == lsn; i++)
		host_tick(&host, MS);
	host_key(1000, key);
	while (tombs_room(t, 1))
		tomb_push(t, 1, key, 1);
	host.held = false;
	host_carry_all(&host);
	assert_int_equal(one_host_put(2, 1, ABI_SQE_DURABLE), 0);
	assert_true(store_flushed_lsn(host.core->drive[0]->store) < lsn);
	assert_int_equal(host.core->suspects, 1);
}

/*
 * Put durably, deleted and put again without that, and no flush in between; a crash keeps both
 * records, and the data of the second one. Proven is what was found and is read: not the first,
 * which comes back when a segment of the cache log is dropped.
 */
static void hidden_at_the_start(bool backwards)
{
	const struct abi_sqe sqe = { .op = ABI_OP_DELETE };
	const struct abi_put_args args = { .count = 3 };
	uint32_t segment;
	uint64_t data;

	host.held = false;
	host.core->config.admit_all = true;
	one_host_put_half(100);
	assert_int_equal(one_host_put(200, 1, 0), 0); /* both logs have begun */
	assert_true(host_settle(&host, 1000));
	segment = segment_of(200);
	host.held = true;
	put_durably(0, 3);
	all_but_flushes();
	data = first_page(0);
	assert_true(host_request_keys(&host, 0, sqe, 0, 3));
	all_but_flushes();
	assert_int_equal(host_reserve(&host, &args, 0, 0), 0);
	assert_true(host_commit(&host, 0));
	host_tick(&host, 3000 * MS);
	all_but_flushes();
	assert_int_equal(segment_of(0), segment);
	forget(data);
	lose_records(DISK_RECORD_TOMBSTONE, 0, HOST_SEGMENTS);
	host.held = false;
	one_host_restart(backwards);
	assert_int_equal(segment_of(0), segment);
	host_client_open(&host, 0);
	host_client_attach(&host, 0);
	for (uint32_t n = 300; n < 600; n += 100)
		one_host_put_half(n);
	restart_without(segment);
	assert_false(taken_for_durable(0));
	assert_true(taken_for_durable(300));
	host_audit(&host);
}

/* Whichever of the two is read first. */
static void test_a_record_hidden_at_the_start_does_not_come_back(void **state)
{
	hidden_at_the_start(false);
	one_host_off(state);
	setup(state);
	hidden_at_the_start(true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		EACH(test_a_failed_record_is_not_proven),
		EACH(test_a_record_that_ends_after_the_next_flush),
		EACH(test_room_that_a_flush_makes),
		EACH(test_one_flush_serves_who_put_together),
		EACH(test_a_flush_waits_no_longer_than_one_takes),
		EACH(test_a_dropped_segment_delays_no_durable_put),
		EACH(test_nothing_is_suspect_for_ever),
		EACH(test_a_flush_does_not_settle_who_came_into_the_slot),
		EACH(test_a_put_is_of_its_epoch),
		EACH(test_a_header_waits_for_what_ended_a_life),
		EACH(test_a_suspect_record_does_not_come_back),
		EACH(test_a_suspect_without_a_tombstone_stays),
		EACH(test_a_record_hidden_at_the_start_does_not_come_back),
	};

	return cmocka_run_group_tests(tests, one_host, NULL);
}
