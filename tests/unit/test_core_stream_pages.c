/*
 * What becomes of the pages of streams, in a core with a small host around it: what was read once
 * leaves with its stream, what was asked for again or by somebody else stays, what nobody lets go
 * ends by itself, and who waits for a layer is woken.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <string.h>

#include "tests/lib/unit.h"
#include "tests/unit/one_host.h"
#include "tierd/core/state.h"

#define BLOCKS 8u
#define PAGES 4u
#define LAYERS 2u
#define STREAM 1u /* user_data of streams; 0 is that of all others */

static struct abi_cqe last[2];
static uint32_t woken[HOST_CLIENTS];
static uint32_t generation;

static void completed(void *arg, uint32_t client, const struct abi_cqe *cqe)
{
	(void)arg;
	(void)client;
	last[cqe->user_data % 2] = *cqe;
}

static void wake(void *arg, uint32_t client)
{
	(void)arg;
	woken[client]++;
}

static struct abi_page *page_of(uint32_t n, uint32_t page)
{
	uint8_t key[ABI_KEY_BYTES];

	host_key(n, key);
	return index_page(&context()->ix, index_find(&context()->ix, key), page);
}

/* Pages of blocks [first, end) that are in the tier. */
static int there(uint32_t first, uint32_t end, uint32_t tier)
{
	int count = 0;

	for (uint32_t n = first; n < end; n++)
		for (uint32_t page = 0; page < PAGES; page++)
			count += page_state(page_of(n, page), tier) == ABI_PAGE_READY;
	return count;
}

static void drop(uint32_t tier)
{
	core_evict(host.core, context()->id, tier, 1u << 30, 0);
	host_look(&host);
	assert_true(host_settle(&host, 60));
	assert_int_equal(there(0, BLOCKS, tier), 0);
}

/* Blocks that are on NVMe alone; nothing was streamed so far. */
static int begin(void **state)
{
	const struct abi_put_args args = { .count = BLOCKS };
	struct disk_context spec;

	(void)state;
	host_spec(&spec, HOST_KIND_STORE, 0);
	spec.geometry.part[0].layers = LAYERS;
	spec.geometry.part[0].groups = 1;
	one_host_boot(&spec, 2);
	assert_int_equal(host_reserve(&host, &args, 0, 0), 0);
	assert_true(host_commit(&host, 0));
	assert_int_equal(host.answer.value, BLOCKS);
	assert_true(host_settle(&host, 60));
	drop(ABI_TIER_CXL);
	host.ears.complete = completed;
	host.ears.wake = wake;
	memset(woken, 0, sizeof(woken));
	return 0;
}

static struct abi_stream *line_of(uint32_t client)
{
	return &host.client[client].lines[0];
}

static void stream(uint32_t client, uint8_t tier, uint8_t mode, uint32_t wait)
{
	const struct abi_sqe sqe = { .op = ABI_OP_STREAM, .tier = tier, .mode = mode,
				     .user_data = STREAM, .generation = ++generation };

	line_of(client)->released = abi_stream_released(generation, 0);
	line_of(client)->wait = wait;
	last[STREAM] = (struct abi_cqe){ .res = 1 };
	assert_true(host_request_keys(&host, client, sqe, 0, BLOCKS));
}

static void assert_streamed(void)
{
	assert_int_equal(last[STREAM].res, 0);
	assert_int_equal(last[STREAM].status, ABI_STATUS_READY);
	assert_int_equal(last[STREAM].value, BLOCKS);
}

/* The client is done with all layers. */
static void release(uint32_t client)
{
	line_of(client)->released = abi_stream_released(line_of(client)->generation, LAYERS);
	host_tick(&host, MS);
	assert_true(host_settle(&host, 60));
	host_audit(&host);
}

static void fetch(uint32_t client, uint32_t count, uint8_t tier)
{
	const struct abi_sqe sqe = { .op = ABI_OP_FETCH, .tier = tier };

	last[0] = (struct abi_cqe){ .res = 1 };
	assert_true(host_request_keys(&host, client, sqe, 0, count));
}

/* Of the table, too: who has as many as one user may waits, and the other does not. */
static void test_a_user_leaves_streams_to_others(void **state)
{
	struct client *k = &host.core->client[0];
	const uint32_t most = CORE_STREAMS_MAX / 4 * 3;

	(void)state;
	host_client_gone(&host, 1);
	host_client_dead(&host, 1);
	one_host_other_user(1);
	for (uint32_t i = 0; i < most; i++)
		account_take(host.core, k, ACCOUNT_STREAMS);
	stream(0, ABI_TIER_CXL, ABI_MODE_STREAM, 0);
	host_tick(&host, MS);
	assert_int_equal(last[STREAM].res, 1); /* not answered */
	stream(1, ABI_TIER_CXL, ABI_MODE_STREAM, 0);
	for (uint32_t i = 0; i < 20 && last[STREAM].res == 1; i++)
		host_tick(&host, MS);
	assert_streamed();
	for (uint32_t i = 0; i < most; i++)
		account_give(host.core, k->account, k, ACCOUNT_STREAMS);
	last[STREAM].res = 1;
	release(1); /* which wakes who waits */
	assert_true(host_settle(&host, 60));
	assert_streamed();
	release(0);
}

/* Of the windows, too: here one user's share is that of one stream, and the pool that of two. */
static void test_a_user_leaves_windows_to_others(void **state)
{
	(void)state;
	one_host_other_user(2);
	host.core->config.stream_share = 24;
	stream(0, ABI_TIER_CXL, ABI_MODE_STREAM, 0);
	for (uint32_t i = 0; i < 20 && last[STREAM].res == 1; i++)
		host_tick(&host, MS);
	assert_streamed(); /* and not released */
	stream(1, ABI_TIER_CXL, ABI_MODE_STREAM, 0);
	for (uint32_t i = 0; i < 20; i++)
		host_tick(&host, MS);
	assert_int_equal(last[STREAM].res, 1);
	stream(2, ABI_TIER_CXL, ABI_MODE_STREAM, 0);
	for (uint32_t i = 0; i < 20 && last[STREAM].res == 1; i++)
		host_tick(&host, MS);
	assert_streamed();
	host_audit(&host);
	last[STREAM].res = 1;
	host_client_gone(&host, 2);
	host_client_dead(&host, 2); /* who is alone now may have it all */
	for (uint32_t i = 0; i < 20 && last[STREAM].res == 1; i++)
		host_tick(&host, MS);
	assert_streamed();
	release(0);
	release(1);
}

/* A stream that nobody releases does not last as long as it says. */
static void test_no_stream_is_for_ever(void **state)
{
	struct abi_sqe sqe = { .op = ABI_OP_STREAM, .tier = ABI_TIER_CXL, .user_data = STREAM,
			       .generation = ++generation, .deadline_ns = UINT64_MAX };

	(void)state;
	line_of(0)->released = abi_stream_released(generation, 0);
	host.held = true; /* its bytes do not come */
	assert_true(host_request_keys(&host, 0, sqe, 0, BLOCKS));
	assert_int_equal(host.core->streams.table[0].deadline_ns, host.now_ns + PARK_HORIZON_NS);
	assert_int_equal(host.core->streams.table[0].request->deadline_ns,
			 host.now_ns + PARK_HORIZON_NS);
	host.held = false;
	host_carry_all(&host);
	assert_true(host_settle(&host, 60));
	release(0);
}

/* A client's word chooses among arrays of two. */
static void test_there_are_streams_to_memory_alone(void **state)
{
	static const uint8_t none[] = { ABI_TIER_NVME, ABI_TIER_COUNT - 1, ABI_TIER_COUNT, 255 };

	(void)state;
	for (uint32_t i = 0; i < sizeof(none); i++) {
		stream(0, none[i], ABI_MODE_STREAM, 0);
		assert_int_equal(last[STREAM].res, -EINVAL);
		stream(0, none[i], ABI_MODE_CACHE, 0);
		assert_int_equal(last[STREAM].res, -EINVAL);
	}
	assert_int_equal(host.core->streams.count, 0);
	host_audit(&host);
}

static void test_what_is_read_once_leaves(void **state)
{
	(void)state;
	for (uint8_t tier = ABI_TIER_HBM; tier <= ABI_TIER_CXL; tier++) {
		host_tick(&host, host.core->config.stream_again_ns + MS);
		stream(0, tier, ABI_MODE_STREAM, 0);
		assert_streamed();
		assert_int_equal(there(0, BLOCKS, tier), BLOCKS * PAGES);
		release(0);
		assert_int_equal(there(0, BLOCKS, tier), 0);
	}
}

/* What its reader has released was of use, to the page; the rest was not. */
static void test_what_was_released_is_used(void **state)
{
	const struct core_metrics *m = &host.core->metrics;

	(void)state;
	stream(0, ABI_TIER_CXL, ABI_MODE_STREAM, 0);
	assert_streamed();
	assert_int_equal(m->stream_bytes, BLOCKS * PAGES * 4096);
	line_of(0)->released = abi_stream_released(generation, 1) | ABI_STREAM_CLOSED;
	host_tick(&host, MS);
	assert_true(host_settle(&host, 60));
	assert_int_equal(m->stream_used, BLOCKS * 3 * 4096); /* all parts have a first layer */
	assert_int_equal(m->stream_wasted, BLOCKS * (PAGES - 3) * 4096);
}

/* Twice within the horizon: a candidate of the cache, which a third one long after is not. */
static void test_what_is_read_again_stays(void **state)
{
	(void)state;
	stream(0, ABI_TIER_CXL, ABI_MODE_STREAM, 0);
	release(0);
	stream(1, ABI_TIER_CXL, ABI_MODE_STREAM, 0);
	assert_streamed();
	release(1);
	assert_int_equal(there(0, BLOCKS, ABI_TIER_CXL), BLOCKS * PAGES);
	drop(ABI_TIER_CXL); /* it is in an order of eviction like others */
	host_tick(&host, host.core->config.stream_again_ns + MS);
	stream(0, ABI_TIER_CXL, ABI_MODE_STREAM, 0);
	assert_streamed();
	release(0);
	assert_int_equal(there(0, BLOCKS, ABI_TIER_CXL), 0);
}

static void test_an_answered_stream_ends_by_itself(void **state)
{
	(void)state;
	stream(0, ABI_TIER_CXL, ABI_MODE_STREAM, 0);
	assert_streamed();
	host_tick(&host, host.core->config.stream_hold_ns - MS);
	assert_int_equal(host.core->streams.count, 1);
	assert_int_equal(there(0, BLOCKS, ABI_TIER_CXL), BLOCKS * PAGES);
	host_tick(&host, 2 * MS);
	assert_true(host_settle(&host, 60));
	assert_int_equal(host.core->streams.count, 0);
	assert_int_equal(host.core->metrics.streams_expired, 1);
	assert_int_equal(there(0, BLOCKS, ABI_TIER_CXL), 0);
	host_audit(&host);
}

/* ---- others want them, too ------------------------------------------------------------------- */

static void test_what_was_fetched_meanwhile_stays(void **state)
{
	(void)state;
	stream(0, ABI_TIER_CXL, ABI_MODE_STREAM, 0);
	fetch(1, 2, ABI_TIER_CXL);
	assert_int_equal(last[0].value, 2);
	release(0);
	assert_int_equal(there(0, 2, ABI_TIER_CXL), 2 * PAGES);
	assert_int_equal(there(2, BLOCKS, ABI_TIER_CXL), 0);
}

/* A copy to HBM reads what the stream has let go: its source is not given away. */
static void test_what_a_fetch_copies_stays_until_then(void **state)
{
	(void)state;
	host.core->config.direct = false;
	stream(0, ABI_TIER_CXL, ABI_MODE_STREAM, 0);
	assert_streamed();
	host.held = true;
	fetch(1, 2, ABI_TIER_HBM);
	assert_true(host.core->actions.copies > 0);
	line_of(0)->released = abi_stream_released(line_of(0)->generation, LAYERS);
	host_tick(&host, MS);
	assert_int_equal(there(0, 2, ABI_TIER_CXL), 2 * PAGES);
	assert_int_equal(there(2, BLOCKS, ABI_TIER_CXL), 0);
	host.held = false;
	host_carry_all(&host);
	assert_true(host_settle(&host, 60));
	assert_int_equal(last[0].value, 2);
	assert_int_equal(there(0, 2, ABI_TIER_HBM), 2 * PAGES);
	host_audit(&host);
}

/* A put that makes them durable found pages of a stream there: it writes what it found. */
static void test_what_a_put_found_stays_until_it_is_whole(void **state)
{
	const struct abi_put_args args = { .count = BLOCKS };
	const struct abi_sqe sqe = { .op = ABI_OP_STREAM, .tier = ABI_TIER_CXL, .part_count = 1,
				     .mode = ABI_MODE_STREAM, .user_data = STREAM,
				     .generation = ++generation };

	(void)state;
	line_of(1)->released = abi_stream_released(generation, 0);
	assert_true(host_request_keys(&host, 1, sqe, 0, BLOCKS)); /* of the first part alone */
	assert_streamed();
	assert_int_equal(there(0, BLOCKS, ABI_TIER_CXL), BLOCKS * LAYERS);
	host.held = true;
	assert_int_equal(host_reserve(&host, &args, 0, ABI_SQE_DURABLE), 0);
	assert_true(host_commit(&host, ABI_SQE_DURABLE));
	last[0].res = 1;
	line_of(1)->released = abi_stream_released(generation, LAYERS);
	host_tick(&host, MS);
	assert_int_equal(there(0, BLOCKS, ABI_TIER_CXL), BLOCKS * LAYERS);
	host.held = false;
	host_carry_all(&host);
	assert_true(host_settle(&host, 60));
	assert_int_equal(last[0].res, 0);
	assert_int_equal(last[0].value, BLOCKS);
	host_audit(&host);
}

/* A stream for the cache keeps what it finds, brought or on its way by one that does not. */
static void test_a_stream_for_the_cache_keeps_what_it_joins(void **state)
{
	(void)state;
	host.core->config.stream_again_ns = 1; /* nothing is asked for "again" */
	for (uint32_t early = 0; early < 2; early++) {
		host.held = early;
		stream(0, ABI_TIER_CXL, ABI_MODE_STREAM, 0);
		stream(1, ABI_TIER_CXL, ABI_MODE_CACHE, 0);
		host.held = false;
		host_carry_all(&host);
		assert_streamed();
		assert_int_equal(host.core->streamed[ABI_TIER_CXL], 0);
		release(0);
		release(1);
		assert_int_equal(there(0, BLOCKS, ABI_TIER_CXL), BLOCKS * PAGES);
		drop(ABI_TIER_CXL);
	}
}

/* ---- who waits ------------------------------------------------------------------------------- */

static void test_who_waits_for_a_layer_is_woken(void **state)
{
	(void)state;
	host.held = true;
	stream(0, ABI_TIER_CXL, ABI_MODE_STREAM, 1);
	assert_int_equal(woken[0], 0);
	for (uint32_t i = 0; i < 100 && !line_of(0)->ready; i++) {
		assert_int_equal(woken[0], 0);
		host_carry(&host, 0);
	}
	assert_true(line_of(0)->ready > 0 && woken[0] > 0);
	assert_int_equal(woken[1], 0);
	host.held = false;
	host_carry_all(&host);
	release(0);
	/* For more layers than there are: at the end. Nobody waits: nobody is woken. */
	woken[0] = 0;
	stream(0, ABI_TIER_CXL, ABI_MODE_STREAM, LAYERS + 5);
	assert_streamed();
	assert_int_equal(woken[0], 1);
	release(0);
	woken[0] = 0;
	stream(0, ABI_TIER_CXL, ABI_MODE_STREAM, 0);
	assert_streamed();
	assert_int_equal(woken[0], 0);
}

/* A part that has not all layers has no items in the others. */
static void test_each_page_is_one_item(void **state)
{
	const struct abi_geometry *g = &context()->spec.geometry;
	struct abi_block_ref ref = { .slot = slot_of(0) };
	struct stream s = { .ctx = context(), .part_end = g->part_count, .layers = LAYERS,
			    .count = 1, .ref = &ref };
	uint32_t seen = 0, voids = 0;

	(void)state;
	for (uint32_t p = 0; p < g->part_count; p++)
		s.per_layer += g->part[p].groups;
	for (uint32_t i = 0; i < LAYERS * s.per_layer; i++) {
		uint32_t block, page = PAGES;

		if (!stream_item(&s, i, &block, &page)) {
			voids++;
			continue;
		}
		assert_int_equal(block, 0);
		assert_true(page < PAGES && !(seen >> page & 1));
		seen |= 1u << page;
	}
	assert_int_equal(seen, (1u << PAGES) - 1);
	assert_int_equal(voids, LAYERS * s.per_layer - PAGES);
	assert_true(voids > 0);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, begin, one_host_off)
	const struct CMUnitTest tests[] = {
		CASE(test_a_user_leaves_streams_to_others),
		CASE(test_a_user_leaves_windows_to_others),
		CASE(test_no_stream_is_for_ever),
		CASE(test_there_are_streams_to_memory_alone),
		CASE(test_what_is_read_once_leaves),
		CASE(test_what_was_released_is_used),
		CASE(test_what_is_read_again_stays),
		CASE(test_an_answered_stream_ends_by_itself),
		CASE(test_what_was_fetched_meanwhile_stays),
		CASE(test_what_a_fetch_copies_stays_until_then),
		CASE(test_what_a_put_found_stays_until_it_is_whole),
		CASE(test_a_stream_for_the_cache_keeps_what_it_joins),
		CASE(test_who_waits_for_a_layer_is_woken),
		CASE(test_each_page_is_one_item),
	};

	return cmocka_run_group_tests_name("stream_pages", tests, one_host, NULL);
}
