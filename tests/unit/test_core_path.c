/*
 * Two paths into HBM, in a core with a small host around it: who brings which page, by what is
 * known of both channels; and what becomes of a page whose path fails, lies, or is taken away.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <string.h>

#include "tests/lib/unit.h"
#include "tests/unit/one_host.h"
#include "tierd/core/io/sched_priv.h"
#include "tierd/core/state.h"

#define BLOCKS 24u
#define BLOCK_BYTES 16384u
#define PAGES 4u
#define MSEC 1000000ull

static struct abi_cqe last[2]; /* the answers to user_data 0 and 1 */

static void completed(void *arg, uint32_t client, const struct abi_cqe *cqe)
{
	(void)arg;
	(void)client;
	last[cqe->user_data % 2] = *cqe;
}

static void key_of(uint32_t n, uint8_t key[ABI_KEY_BYTES])
{
	memset(key, 0, ABI_KEY_BYTES);
	key[0] = (uint8_t)(n + 1);
}

static void put(uint32_t n)
{
	struct abi_put_args *args = (struct abi_put_args *)host.client[0].staging;
	struct abi_sqe sqe = { .op = ABI_OP_PUT_RESERVE, .count = 1 };

	memset(args, 0, sizeof(*args));
	args->count = 1;
	key_of(n, (uint8_t *)(args + 1));
	sqe.context_id = host.context[0].id;
	sqe.arg_bytes = sizeof(*args) + ABI_KEY_BYTES;
	assert_true(host_request(&host, 0, &sqe));
	memset(host.client[0].staging + 4096, (int)n + 1, BLOCK_BYTES);
	sqe = (struct abi_sqe){ .op = ABI_OP_PUT_COMMIT, .handle = last[0].value,
				.arg_offset = 4096 };
	assert_true(host_request(&host, 0, &sqe));
}

static uint32_t slot_at(uint32_t n)
{
	uint8_t key[ABI_KEY_BYTES];

	key_of(n, key);
	return index_find(&context()->ix, key);
}

static const struct core_metrics *metrics(void)
{
	return core_metrics(host.core);
}

/* Blocks that are in CXL and on NVMe. */
static int set_up(void **state)
{
	struct disk_context spec;

	(void)state;
	host_spec(&spec, HOST_KIND_STORE, 0);
	one_host_boot(&spec, 1);
	host.ears.complete = completed;
	for (uint32_t n = 0; n < BLOCKS; n++)
		put(n);
	assert_true(host_settle(&host, 60));
	return 0;
}

/* What is believed of the channels, bytes a second. */
static void speeds(uint64_t read, uint64_t copy)
{
	host.core->sched->channel[SCHED_READ].bandwidth = read;
	host.core->sched->channel[SCHED_TO_HBM].bandwidth = copy;
	host.core->sched->channel[SCHED_READ].latency_ns = 0;
	host.core->sched->channel[SCHED_TO_HBM].latency_ns = 0;
}

static void fetch(uint32_t first, uint32_t count)
{
	struct abi_sqe sqe = { .op = ABI_OP_FETCH, .flags = ABI_SQE_KEYS, .count = count,
			       .tier = ABI_TIER_HBM, .arg_bytes = count * ABI_KEY_BYTES,
			       .user_data = 1 };

	sqe.context_id = host.context[0].id;
	for (uint32_t n = 0; n < count; n++)
		key_of(first + n, host.client[0].staging + n * ABI_KEY_BYTES);
	last[1].status = 99;
	assert_true(host_request(&host, 0, &sqe));
}

static void drop(uint32_t tier)
{
	core_evict(host.core, context()->id, tier, 1u << 30, 0);
	host_look(&host);
	assert_true(host_settle(&host, 60));
}

static void assert_in_hbm(uint32_t first, uint32_t count)
{
	assert_int_equal(last[1].status, ABI_STATUS_READY);
	assert_int_equal(last[1].value, count);
	for (uint32_t n = first; n < first + count; n++)
		for (uint32_t page = 0; page < PAGES; page++) {
			const struct abi_page *d = index_page(&context()->ix, slot_at(n), page);
			const uint8_t *at = host.context[0].mem[ABI_TIER_HBM];
			const struct abi_part *part =
				&context()->spec.geometry.part[context()->page_part[page]];

			assert_int_equal(page_state(d, ABI_TIER_HBM), ABI_PAGE_READY);
			at += page_addr(d, ABI_TIER_HBM);
			assert_int_equal(at[0], n + 1);
			assert_int_equal(at[part->page_bytes - 1], n + 1);
		}
	host_audit(&host);
}

/* ---- who brings what ------------------------------------------------------------------------- */

static void test_bytes_go_in_proportion_to_bandwidth(void **state)
{
	static const uint64_t share[][2] = { { 1, 1 }, { 2, 1 }, { 1, 3 } };
	uint64_t whole = (uint64_t)BLOCKS * BLOCK_BYTES;

	(void)state;
	for (uint32_t i = 0; i < 3; i++) {
		uint64_t direct = metrics()->direct_bytes, copied = metrics()->promoted_bytes;
		uint64_t want = whole * share[i][0] / (share[i][0] + share[i][1]);

		drop(ABI_TIER_HBM);
		speeds(share[i][0] * 1000000000, share[i][1] * 1000000000);
		fetch(0, BLOCKS);
		assert_in_hbm(0, BLOCKS);
		direct = metrics()->direct_bytes - direct;
		copied = metrics()->promoted_bytes - copied;
		assert_int_equal(direct + copied, whole);
		assert_true(direct + whole / 5 > want && direct < want + whole / 5);
	}
}

static void test_without_direct_reads_all_is_copied(void **state)
{
	uint64_t direct = metrics()->direct_bytes;

	(void)state;
	host.core->config.direct = false;
	speeds(100000000000, 1000000000);
	fetch(0, BLOCKS);
	assert_in_hbm(0, BLOCKS);
	drop(ABI_TIER_HBM);
	drop(ABI_TIER_CXL);
	fetch(0, BLOCKS);
	assert_in_hbm(0, BLOCKS);
	assert_int_equal(metrics()->direct_bytes, direct);
}

static void test_what_is_on_nvme_alone_leaves_a_copy_in_cxl_if_copies_keep_up(void **state)
{
	uint64_t direct;

	(void)state;
	drop(ABI_TIER_CXL);
	assert_int_equal(context()->pages_resident[ABI_TIER_CXL], 0);
	direct = metrics()->direct_bytes;
	speeds(1000000000, 50000000000);
	fetch(0, 4);
	assert_in_hbm(0, 4);
	assert_int_equal(metrics()->direct_bytes, direct);
	assert_int_equal(context()->pages_resident[ABI_TIER_CXL], 4 * PAGES);
	speeds(50000000000, 1000000000);
	fetch(4, 4);
	assert_in_hbm(4, 4);
	assert_int_equal(metrics()->direct_bytes, direct + 4 * BLOCK_BYTES);
	assert_int_equal(context()->pages_resident[ABI_TIER_CXL], 4 * PAGES);
}

/* ---- streams --------------------------------------------------------------------------------- */

static struct abi_stream line;

/* A client with a line for streams; those of the host have none. */
static void open_streamer(void)
{
	struct core_event e = { .kind = CORE_EV_CLIENT_OPEN };
	struct core_context_view view;

	host.blind = true;
	e.open = (struct core_client_open){ .client = 7,
					    .uid = HOST_OWNER,
					    .gid = HOST_OWNER,
					    .staging = host.client[0].staging,
					    .staging_bytes = HOST_STAGING,
					    .streams = &line,
					    .streams_max = 1 };
	host_event(&host, &e);
	assert_int_equal(core_context_find(host.core, host.context[0].spec.name, HOST_OWNER,
					   HOST_OWNER, &view), 0);
	assert_int_equal(core_context_attach(host.core, 7, &view), 0);
}

static void close_streamer(void)
{
	struct core_event e = { .kind = CORE_EV_CLIENT_GONE, .client = 7 };

	host_event(&host, &e);
	e.kind = CORE_EV_CLIENT_DEAD;
	host_event(&host, &e);
}

static void stream(uint32_t count, uint8_t mode)
{
	static uint32_t generation;
	struct core_event e = { .kind = CORE_EV_REQUEST };

	e.request.client = 7;
	e.request.sqe = (struct abi_sqe){ .op = ABI_OP_STREAM, .flags = ABI_SQE_KEYS,
					  .count = count, .tier = ABI_TIER_HBM, .mode = mode,
					  .context_id = host.context[0].id, .user_data = 1,
					  .arg_bytes = count * ABI_KEY_BYTES,
					  .generation = ++generation };
	for (uint32_t n = 0; n < count; n++)
		key_of(n, host.client[0].staging + n * ABI_KEY_BYTES);
	memset(&line, 0, sizeof(line));
	line.released = abi_stream_released(generation, 0);
	last[1] = (struct abi_cqe){ .status = 99 };
	host_event(&host, &e); /* its layers stay until they are released, or 10 s */
}

static void test_a_stream_uses_both_paths(void **state)
{
	uint64_t whole = (uint64_t)BLOCKS * BLOCK_BYTES, direct = metrics()->direct_bytes;
	uint64_t copied = metrics()->promoted_bytes;

	(void)state;
	open_streamer();
	drop(ABI_TIER_HBM);
	speeds(1000000000, 1000000000);
	stream(BLOCKS, ABI_MODE_STREAM);
	assert_in_hbm(0, BLOCKS);
	direct = metrics()->direct_bytes - direct;
	copied = metrics()->promoted_bytes - copied;
	assert_int_equal(direct + copied, whole);
	assert_in_range(direct, whole / 2 - whole / 5, whole / 2 + whole / 5);
	close_streamer();
}

/* What nobody will read again passes CXL by. */
static void test_a_stream_goes_straight_from_nvme(void **state)
{
	uint64_t direct = metrics()->direct_bytes;

	(void)state;
	open_streamer();
	drop(ABI_TIER_HBM);
	drop(ABI_TIER_CXL);
	speeds(1000000000, 50000000000);
	stream(BLOCKS, ABI_MODE_STREAM);
	assert_in_hbm(0, BLOCKS);
	assert_int_equal(metrics()->direct_bytes - direct, (uint64_t)BLOCKS * BLOCK_BYTES);
	assert_int_equal(context()->pages_resident[ABI_TIER_CXL], 0);
	close_streamer();
}

static void test_a_stream_whose_direct_read_fails_goes_through_cxl(void **state)
{
	uint64_t failed = metrics()->path_failed;

	(void)state;
	open_streamer();
	drop(ABI_TIER_HBM);
	drop(ABI_TIER_CXL);
	host.fault = HOST_FAILS;
	stream(4, ABI_MODE_STREAM);
	assert_in_hbm(0, 4);
	assert_true(metrics()->path_failed > failed);
	assert_true(metrics()->promoted_bytes > 0);
	close_streamer();
}

static void test_a_stream_whose_copy_fails_is_read(void **state)
{
	uint64_t direct = metrics()->direct_bytes;

	(void)state;
	open_streamer();
	drop(ABI_TIER_HBM);
	speeds(1000, 50000000000);
	host.fault = HOST_FAILS;
	stream(4, ABI_MODE_STREAM);
	assert_in_hbm(0, 4);
	assert_true(metrics()->direct_bytes > direct);
	close_streamer();
}

/* ---- paths that fail ------------------------------------------------------------------------- */

static void test_a_failed_read_is_copied(void **state)
{
	uint64_t failed = metrics()->path_failed;

	(void)state;
	speeds(50000000000, 1000000000);
	host.fault = HOST_FAILS;
	fetch(0, 4);
	assert_in_hbm(0, 4);
	assert_true(metrics()->path_failed > failed);
	assert_true(metrics()->promoted_bytes > 0);
	assert_int_equal(metrics()->direct_bytes + metrics()->promoted_bytes, 4 * BLOCK_BYTES);
}

static void test_a_failed_copy_is_read(void **state)
{
	(void)state;
	speeds(1000000000, 50000000000);
	host.fault = HOST_FAILS;
	fetch(0, 4);
	assert_in_hbm(0, 4);
	assert_int_equal(metrics()->path_failed, 1);
	assert_int_equal(metrics()->direct_bytes, 4 * BLOCK_BYTES);
}

/* Carry all out, and let every copy and read to HBM fail. */
static void carry_failing(void)
{
	for (uint32_t n = 0; n < 1000 && host.bag_count; n++) {
		host.fault = HOST_FAILS;
		host_carry(&host, 0);
	}
	host.fault = HOST_WELL;
	assert_int_equal(host.bag_count, 0);
}

static void test_both_failing_is_a_miss_and_ends(void **state)
{
	(void)state;
	host.held = true;
	fetch(0, 4);
	carry_failing();
	assert_int_equal(last[1].res, 0);
	assert_int_equal(last[1].status, ABI_STATUS_MISS);
	host_audit(&host);
	fetch(0, 4); /* the blocks are none the worse for it */
	host.held = false;
	host_carry_all(&host);
	assert_in_hbm(0, 4);
}

static void test_rotten_bytes_are_repaired_from_cxl(void **state)
{
	uint32_t slot = slot_at(0);

	(void)state;
	speeds(50000000000, 1000000000);
	host.disk[abi_nvme_offset(index_page(&context()->ix, slot, 0)->nvme) + 7] ^= 0x40;
	fetch(0, 2);
	assert_in_hbm(0, 2);
	assert_int_equal(slot_at(0), slot);
	assert_int_equal(metrics()->blocks_repaired, 1);
	assert_int_equal(metrics()->read_bad, 1);
	assert_true(host_settle(&host, 60)); /* it is written again */
	drop(ABI_TIER_HBM);
	drop(ABI_TIER_CXL);
	fetch(0, 2);
	assert_in_hbm(0, 2);
}

static void test_rotten_bytes_that_nothing_else_has_void_the_block(void **state)
{
	uint32_t slot = slot_at(0);

	(void)state;
	drop(ABI_TIER_CXL);
	speeds(50000000000, 1000000000);
	host.disk[abi_nvme_offset(index_page(&context()->ix, slot, 0)->nvme) + 7] ^= 0x40;
	fetch(0, 2);
	assert_int_equal(last[1].status, ABI_STATUS_MISS);
	assert_int_equal(slot_at(0), ABI_SLOT_NONE);
	host_audit(&host);
}

/* ---- taken away ------------------------------------------------------------------------------ */

static void test_cancel_ends_when_both_paths_have_stopped(void **state)
{
	struct abi_sqe cancel = { .op = ABI_OP_CANCEL, .handle = 1 };

	(void)state;
	speeds(1000000000, 1000000000);
	host.held = true;
	fetch(0, BLOCKS);
	assert_true(host.core->actions.ios > 0 && host.core->actions.copies > 0);
	last[0].status = 99; /* the cancel's own */
	assert_true(host_request(&host, 0, &cancel));
	while (host.bag_count) {
		if (host.core->actions.ios + host.core->actions.copies)
			assert_int_equal(last[0].status, 99);
		host_carry(&host, 0);
	}
	assert_int_equal(last[0].status, ABI_STATUS_READY);
	assert_int_equal(last[1].res, -ECANCELED);
	assert_int_equal(host.core->actions.ios + host.core->actions.copies, 0);
	host_audit(&host);
}

/* A demand that meets a prefetch's read into HBM raises it. */
static void test_demand_raises_a_direct_read(void **state)
{
	struct abi_sqe ahead = { .op = ABI_OP_FETCH, .klass = ABI_CLASS_SPECULATIVE,
				 .flags = ABI_SQE_KEYS, .count = BLOCKS, .tier = ABI_TIER_HBM,
				 .arg_bytes = BLOCKS * ABI_KEY_BYTES };
	uint64_t raised = metrics()->raised;

	(void)state;
	drop(ABI_TIER_CXL);
	speeds(50000000000, 1000000);
	host.core->config.device_depth = 1;
	host.held = true;
	fetch(BLOCKS - 1, 1); /* the device is busy with demand: the rest waits */
	ahead.context_id = host.context[0].id;
	for (uint32_t n = 0; n < BLOCKS; n++)
		key_of(n, host.client[0].staging + n * ABI_KEY_BYTES);
	assert_true(host_request(&host, 0, &ahead));
	fetch(3, 1);
	assert_true(metrics()->raised > raised);
	host.held = false;
	host_carry_all(&host);
	assert_true(host_settle(&host, 60));
	assert_in_hbm(3, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, one_host_off)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_bytes_go_in_proportion_to_bandwidth),
		TEST(test_without_direct_reads_all_is_copied),
		TEST(test_what_is_on_nvme_alone_leaves_a_copy_in_cxl_if_copies_keep_up),
		TEST(test_a_stream_uses_both_paths),
		TEST(test_a_stream_goes_straight_from_nvme),
		TEST(test_a_stream_whose_direct_read_fails_goes_through_cxl),
		TEST(test_a_stream_whose_copy_fails_is_read),
		TEST(test_a_failed_read_is_copied),
		TEST(test_a_failed_copy_is_read),
		TEST(test_both_failing_is_a_miss_and_ends),
		TEST(test_rotten_bytes_are_repaired_from_cxl),
		TEST(test_rotten_bytes_that_nothing_else_has_void_the_block),
		TEST(test_cancel_ends_when_both_paths_have_stopped),
		TEST(test_demand_raises_a_direct_read),
	};

	return cmocka_run_group_tests_name("path", tests, one_host, NULL);
}
