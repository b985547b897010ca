/*
 * Runs of which blocks died one here, one there: the cleaner carries the others as one record, so
 * that a segment's survivors fit the records' room of one segment, however they lie.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/property.h"
#include "tests/lib/unit.h"
#include "tests/unit/one_host.h"
#include "tierd/core/state.h"
#include "tierd/core/unit/store_priv.h"

#define SEGMENTS 16u
#define SEGMENT (1u << 20) /* 60 blocks, of two runs; 15 records, as the default would have */
#define SUMMARY (64u << 10)
#define STORE_BYTES ((8u << 10) + 2 * HOST_CATALOG + SEGMENTS * SEGMENT)
#define RUN DISK_RUN_BLOCKS_MAX
#define KEYS 4096u

static bool stored[KEYS];

static int set_up(void **state)
{
	struct disk_context spec;

	(void)state;
	one_host_disk(STORE_BYTES, SEGMENTS, SEGMENT, SUMMARY);
	host_spec(&spec, HOST_KIND_STORE, 0);
	spec.blocks_max = 2000;
	spec.quota[ABI_TIER_NVME] = UINT32_MAX;
	one_host_boot(&spec, 1);
	memset(stored, 0, sizeof(stored));
	return 0;
}

static int tear_down(void **state)
{
	one_host_off(state);
	one_host_disk_back();
	return 0;
}

static int32_t put_some(uint32_t first, uint32_t count)
{
	int32_t res = one_host_put(first, count, ABI_SQE_DURABLE);

	for (uint32_t i = 0; i < count && !res; i++)
		stored[first + i] = true;
	return res;
}

static int32_t put(uint32_t first)
{
	return put_some(first, RUN);
}

static uint32_t fill(uint32_t first)
{
	uint32_t n = first;

	while (n + RUN <= KEYS && put(n) == 0)
		n += RUN;
	return n;
}

/* Delete all of the first `end` keys that are there but one in `of`; then a pause. */
static void thin_out(uint32_t end, uint32_t of, uint32_t ms)
{
	uint32_t chosen = 0;

	for (uint32_t n = 0; n < end; n++) {
		if (!stored[n] || chosen++ % of == 0)
			continue;
		one_host_delete_begin(n, 1);
		stored[n] = false;
	}
	assert_int_equal(one_host_answer(), 0);
	one_host_pause(ms);
}

/* The first `end` keys: a put that found no room may have left some of its blocks. */
static void check(uint32_t end)
{
	for (uint32_t n = 0; n < end; n++) {
		uint8_t key[ABI_KEY_BYTES];

		host_key(n, key);
		assert_int_equal(index_find(&context()->ix, key) != ABI_SLOT_NONE, stored[n]);
	}
	host_audit(&host);
}

/* Half of each run dies, in holes of one block: half of the store must be there for new ones. */
static void test_holes_give_their_room(void **state)
{
	uint32_t end = fill(0), more;

	(void)state;
	assert_true(end >= (SEGMENTS - STORE_RESERVE - 1) * 56);
	thin_out(end, 2, 2000);
	more = fill(end) - end;
	check(end + more);
	assert_true(more >= end / 4);
}

static uint32_t records_with_holes(void)
{
	const struct disk_super *p = &host.super;
	uint32_t found = 0;

	for (uint32_t i = 0; i < p->segment_count; i++) {
		const uint8_t *summary = host.disk + p->segment_offset + i * p->segment_bytes;
		struct store_view v;
		size_t cursor = 0;

		while (!store_next(host.core->drive[0]->store, i, summary, p->summary_bytes,
				   &cursor, &v))
			found += v.head->absent != 0;
	}
	return found;
}

/* Each is read from the device, and verifies: these are its own bytes. */
static void read_all(uint32_t end)
{
	struct abi_sqe sqe = { .op = ABI_OP_FETCH, .tier = ABI_TIER_CXL };

	for (uint32_t n = 0; n < end; n++) {
		if (!stored[n])
			continue;
		host.answer.res = 1;
		sqe.deadline_ns = host.now_ns + 1000 * MS;
		assert_true(host_request_keys(&host, 0, sqe, n, 1));
		assert_int_equal(one_host_answer(), 0);
		assert_int_equal(host.answer.status, ABI_STATUS_READY);
	}
	assert_int_equal(host.core->metrics.read_bad, 0);
}

static void restart(bool backwards)
{
	host.held = false;
	one_host_restart(backwards);
	host_client_open(&host, 0);
	host_client_attach(&host, 0);
}

/* However many holes there are, and however often what is left was moved: it comes back. */
static void test_what_has_holes_comes_back(void **state)
{
	uint32_t end = fill(0);

	(void)state;
	for (uint32_t round = 0; round < 6; round++) {
		thin_out(end, 2 + round % 2, 2000);
		end = fill(end);
		assert_true(records_with_holes() > 0);
		restart(round % 2);
		check(end);
		read_all(end);
	}
	assert_true(end >= 2 * SEGMENTS * RUN);
}

/* As much is under way, and has come to pass of it, as it happens; then everything stops. */
static void crash(struct rng *rng, uint32_t next)
{
	uint32_t steps = (uint32_t)rng_below(rng, 200);

	one_host_put_begin(next, 1 + (uint32_t)rng_below(rng, RUN), ABI_SQE_DURABLE);
	host.held = true;
	while (steps--) {
		host_carry(&host, (uint32_t)rng_below(rng, host.bag_count + !host.bag_count));
		if (!host.bag_count)
			host_tick(&host, MS);
	}
	restart(rng_below(rng, 2));
}

static void drop_some(struct rng *rng, uint32_t end, uint32_t percent)
{
	for (uint32_t n = 0; n < end; n++) {
		if (!stored[n] || rng_below(rng, 100) >= percent)
			continue;
		for (uint32_t tries = 0; tries < 10; tries++) /* a full store takes its time */
			if (one_host_delete(n, 1) != -ETIMEDOUT)
				break;
		assert_int_equal(host.answer.res, 0);
		stored[n] = false;
	}
}

/* Runs of all lengths, holes of all lengths, and crashes while they are moved. */
static void churn(uint64_t seed)
{
	struct rng rng = { seed };
	uint32_t end = 0;

	for (uint32_t round = 0; round < 12 && end + 64 * RUN < KEYS; round++) {
		uint32_t count;

		do {
			count = 1 + (uint32_t)rng_below(&rng, RUN);
			end += count;
		} while (end + RUN < KEYS && !put_some(end - count, count));
		drop_some(&rng, end, 20 + (uint32_t)rng_below(&rng, 60));
		if (rng_below(&rng, 2))
			one_host_pause((uint32_t)rng_below(&rng, 500));
		crash(&rng, end);
		for (uint32_t n = 0; n < end; n++)
			if (stored[n]) {
				uint8_t key[ABI_KEY_BYTES];

				host_key(n, key);
				assert_true(index_find(&context()->ix, key) != ABI_SLOT_NONE);
			}
		end += RUN; /* what the crash left of the put */
	}
	read_all(end);
	host_audit(&host);
}

static void test_churn_with_crashes(void **state)
{
	(void)state;
	churn(1);
}

static void test_more_churn_with_crashes(void **state)
{
	(void)state;
	churn(2);
}

/* Until the cleaner writes the data of a batch of runs with holes. */
static const struct cleaner *cleaning(void)
{
	const struct cleaner *k = &host.core->drive[0]->cleaner;

	for (uint32_t i = 0; k->phase != CLEAN_DATA || !k->by_record; i++) {
		assert_true(i < 20000);
		if (host.bag_count)
			host_carry(&host, 0);
		else
			host_tick(&host, MS);
	}
	return k;
}

/* Its device writes fail. */
static void spoil(const struct cleaner *k)
{
	while (k->phase == CLEAN_DATA) {
		host.fault = HOST_FAILS;
		host_carry_all(&host);
	}
	host.fault = HOST_WELL;
}

/* A batch that comes to nothing takes no room from the next, for which there may be just enough. */
static void test_a_failed_batch_gives_its_room_back(void **state)
{
	const struct cleaner *k;
	uint64_t record, data;

	(void)state;
	thin_out(fill(0), 2, 0);
	host.held = true;
	spoil(cleaning());
	k = cleaning(); /* perhaps in the segment that the other one had begun */
	assert_int_equal(k->failures, 1);
	record = k->run[0].place.record_offset;
	data = k->run[0].place.offset;
	spoil(k);
	cleaning();
	assert_int_equal(k->failures, 2);
	assert_int_equal(k->run[0].place.record_offset, record);
	assert_int_equal(k->run[0].place.offset, data);
	host_audit(&host);
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		EACH(test_holes_give_their_room),
		EACH(test_what_has_holes_comes_back),
		EACH(test_churn_with_crashes),
		EACH(test_more_churn_with_crashes),
		EACH(test_a_failed_batch_gives_its_room_back),
	};

	return cmocka_run_group_tests(tests, one_host, NULL);
}
