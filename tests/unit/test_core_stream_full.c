/*
 * Streams that together hold every block of a cache that is full: what they hold is their windows,
 * not the pages of the blocks that happen to be there. In a core with a small host around it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <string.h>

#include "tests/lib/unit.h"
#include "tests/unit/one_host.h"
#include "tierd/core/state.h"

#define LAYERS 8u
#define GROUPS 2u
#define PAGES (LAYERS * GROUPS)
#define BLOCKS 192u
#define STREAMS 4u
#define EACH (BLOCKS / STREAMS)
#define PUT 12u
#define TICKS 20000u /* nothing takes as many */
#define SEGMENT (2u << 20)
#define SUMMARY (64u << 10)

static struct abi_cqe answer[STREAMS];
static uint32_t generation[STREAMS];

static void completed(void *arg, uint32_t client, const struct abi_cqe *cqe)
{
	(void)arg;
	(void)client;
	host.answer = *cqe;
	answer[cqe->user_data % STREAMS] = *cqe;
}

static struct abi_page *page_of(uint32_t n, uint32_t page)
{
	return index_page(&context()->ix, slot_of(n), page);
}

static bool layer_is_there(uint32_t n, uint32_t layer, uint32_t tier)
{
	uint32_t there = 0;

	for (uint32_t page = layer * GROUPS; page < (layer + 1) * GROUPS; page++)
		there += page_state(page_of(n, page), tier) == ABI_PAGE_READY;
	return there == GROUPS;
}

/* Blocks of which more than half finds no room in CXL, all of them on NVMe. */
static int begin(void **state)
{
	struct disk_context spec;
	struct abi_geometry *g = &spec.geometry;

	(void)state;
	one_host_disk((8u << 10) + 2 * HOST_CATALOG + HOST_SEGMENTS * SEGMENT, HOST_SEGMENTS,
		      SEGMENT, SUMMARY);
	host_spec(&spec, HOST_KIND_STORE, 0);
	g->part_count = 1;
	g->part[0].layers = LAYERS;
	g->part[0].groups = GROUPS;
	g->pages_per_block = PAGES;
	g->block_bytes = PAGES * 4096;
	spec.quota[ABI_TIER_NVME] = 16u << 20;
	one_host_boot(&spec, 2);
	for (uint32_t n = 0; n < BLOCKS; n += PUT) {
		assert_int_equal(one_host_put(n, PUT, ABI_SQE_DURABLE), 0);
		assert_true(host_settle(&host, 100));
	}
	for (uint32_t n = 0; n < BLOCKS; n++)
		assert_true(is_there(n) && page_of(n, 0)->nvme);
	host.core->config.stream_share = 2;
	host.ears.complete = completed;
	return 0;
}

static int end(void **state)
{
	int error = one_host_off(state);

	one_host_disk_back();
	return error;
}

static struct abi_stream *line_of(uint32_t s)
{
	return &host.client[s / HOST_LINES].lines[s % HOST_LINES];
}

static void stream(uint32_t s, uint8_t tier, uint32_t first, uint32_t count, uint64_t window)
{
	const struct abi_sqe sqe = { .op = ABI_OP_STREAM, .tier = tier, 
				     .mode = ABI_MODE_STREAM, .user_data = s, .handle = window,
				     .stream = (uint16_t)(s % HOST_LINES),
				     .generation = ++generation[s],
				     .deadline_ns = host.now_ns + TICKS * MS };

	line_of(s)->released = abi_stream_released(generation[s], 0);
	answer[s] = (struct abi_cqe){ .res = 1 };
	assert_true(host_request_keys(&host, s / HOST_LINES, sqe, first, count));
}

/* Has the stream announced the layer? Then it is there. */
static bool layer_came(uint32_t s, uint32_t layer, uint8_t tier)
{
	if (line_of(s)->ready <= layer)
		return false;
	for (uint32_t n = 0; n < EACH; n++)
		assert_true(layer_is_there(s * EACH + n, layer, tier));
	return true;
}

static void release(uint32_t s, uint32_t layer)
{
	line_of(s)->released = abi_stream_released(generation[s], layer);
}

static void assert_streamed(void)
{
	assert_true(host_settle(&host, TICKS));
	for (uint32_t s = 0; s < STREAMS; s++) {
		assert_int_equal(answer[s].res, 0);
		assert_int_equal(answer[s].status, ABI_STATUS_READY);
		assert_int_equal(answer[s].value, EACH);
	}
	host_audit(&host);
}

/* One reader needs a layer of all blocks before it goes on to the next one. */
static void read_in_step(uint8_t tier)
{
	uint32_t layer = 0;

	for (uint32_t tick = 0; tick < TICKS && layer < LAYERS; tick++) {
		uint32_t came = 0;

		for (uint32_t s = 0; s < STREAMS; s++)
			came += layer_came(s, layer, tier);
		layer += came == STREAMS;
		for (uint32_t s = 0; s < STREAMS; s++)
			release(s, layer);
		host_tick(&host, MS);
		if (came == STREAMS)
			host_audit(&host);
	}
	assert_int_equal(layer, LAYERS);
	assert_streamed();
}

/* Each stream has a reader of its own. */
static void read_apart(uint8_t tier)
{
	uint32_t layer[STREAMS] = { 0 }, left = STREAMS * LAYERS;

	for (uint32_t tick = 0; tick < TICKS && left; tick++) {
		for (uint32_t s = 0; s < STREAMS; s++) {
			if (layer[s] == LAYERS || !layer_came(s, layer[s], tier))
				continue;
			release(s, ++layer[s]);
			left--;
		}
		host_tick(&host, MS);
	}
	assert_int_equal(left, 0);
	assert_streamed();
}

/* Windows of two layers each. Those begin first whose blocks are there: they give nothing. */
static void stream_all(uint8_t tier)
{
	for (uint32_t s = STREAMS; s--;)
		stream(s, tier, s * EACH, EACH, 2 * EACH * GROUPS * 4096);
}

static void test_streams_over_all_blocks_make_progress(void **state)
{
	(void)state;
	stream_all(ABI_TIER_CXL);
	read_in_step(ABI_TIER_CXL);
}

/* An event cannot look at all blocks of the cache. */
static void test_streams_over_more_than_an_event_make_progress(void **state)
{
	(void)state;
	host.core->meter.walk = 8;
	stream_all(ABI_TIER_CXL);
	read_in_step(ABI_TIER_CXL);
}

/* HBM is full of blocks that the streams hold, and so is CXL, through which theirs come. */
static void test_streams_to_hbm_make_progress(void **state)
{
	const struct abi_sqe sqe = { .op = ABI_OP_FETCH, .tier = ABI_TIER_HBM };

	(void)state;
	for (uint32_t n = 0; n < BLOCKS; n += PUT) {
		assert_true(host_request_keys(&host, 0, sqe, n, PUT));
		assert_true(host_settle(&host, 100));
	}
	stream_all(ABI_TIER_HBM);
	read_apart(ABI_TIER_HBM);
}

/* What is streamed again stays up to half of what the context may have. */
static void test_streams_keep_half_of_a_context(void **state)
{
	const uint64_t *adopted = &host.core->metrics.stream_adopted;

	(void)state;
	stream_all(ABI_TIER_CXL);
	read_apart(ABI_TIER_CXL);
	assert_int_equal(*adopted, 0);
	host.core->config.stream_again_ns = UINT64_MAX;
	stream_all(ABI_TIER_CXL);
	read_apart(ABI_TIER_CXL);
	assert_true(*adopted > 0 && *adopted <= context()->plan.quota[ABI_TIER_CXL] / 2);
}

/* The windows of a context's streams are no more than it may have, however large the pool is. */
static void test_windows_are_within_their_context(void **state)
{
	(void)state;
	host.core->config.stream_share = 1;
	for (uint32_t s = 0; s < STREAMS; s++)
		stream(s, ABI_TIER_CXL, s * EACH, EACH, 0);
	read_apart(ABI_TIER_CXL);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, begin, end)
	const struct CMUnitTest tests[] = {
		CASE(test_streams_over_all_blocks_make_progress),
		CASE(test_streams_over_more_than_an_event_make_progress),
		CASE(test_streams_to_hbm_make_progress),
		CASE(test_streams_keep_half_of_a_context),
		CASE(test_windows_are_within_their_context),
	};

	return cmocka_run_group_tests_name("stream_full", tests, one_host, NULL);
}
