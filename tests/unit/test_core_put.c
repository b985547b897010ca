/*
 * Puts of equal keys by several clients: the first commit wins, and nobody waits for bytes that
 * another announced and did not bring.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <string.h>

#include "tests/lib/unit.h"
#include "tests/unit/one_host.h"
#include "tierd/core/state.h"

#define BLOCKS 4u
#define ORDER 9u /* user_data of a cancel, whose answer is not kept */
#define FIRST_PARTS 3u /* all but the state, which a hit may lack (rule "last n") */

static struct abi_cqe answer[HOST_CLIENTS]; /* of each client's last request; .res 1 = none came */

static void complete(void *arg, uint32_t client, const struct abi_cqe *cqe)
{
	(void)arg;
	if (cqe->user_data != ORDER)
		answer[client] = *cqe;
}

static int begin(void **state)
{
	struct disk_context spec;
	struct abi_geometry *g = &spec.geometry;

	(void)state;
	host_spec(&spec, HOST_KIND_STORE, 0);
	g->part[2].groups = 2; /* the state: the last one */
	g->pages_per_block++;
	g->block_bytes += g->part[2].page_stride;
	one_host_boot(&spec, 2);
	host.ears.complete = complete;
	return 0;
}

/* Blocks from `first` on, to the last. */
static uint64_t reserve_from(uint32_t client, uint32_t first, uint32_t parts, uint16_t flags)
{
	const struct abi_put_args args = { .count = BLOCKS - first, .parts = parts };
	uint8_t *at = host.client[client].staging;
	struct abi_sqe sqe = { .op = ABI_OP_PUT_RESERVE, .flags = flags, .count = args.count };

	sqe.context_id = host.context[0].id;
	sqe.arg_bytes = (uint32_t)sizeof(args) + args.count * ABI_KEY_BYTES;
	memcpy(at, &args, sizeof(args));
	for (uint32_t n = 0; n < args.count; n++)
		host_key(first + n, at + sizeof(args) + n * ABI_KEY_BYTES);
	assert_true(host_request(&host, client, &sqe));
	assert_int_equal(answer[client].res, 0);
	return answer[client].value;
}

static uint64_t reserve(uint32_t client, uint32_t parts, uint16_t flags)
{
	return reserve_from(client, 0, parts, flags);
}

static void commit(uint32_t client, uint64_t put)
{
	const struct abi_sqe sqe = { .op = ABI_OP_PUT_COMMIT, .handle = put,
				     .context_id = host.context[0].id,
				     .deadline_ns = host.now_ns + 5000 * MS };

	answer[client].res = 1;
	assert_true(host_request(&host, client, &sqe));
}

static void test_nobody_waits_for_a_writer_that_hangs(void **state)
{
	uint64_t whole, most;

	(void)state;
	whole = reserve(0, 0, ABI_SQE_DURABLE);
	most = reserve(1, FIRST_PARTS, ABI_SQE_DURABLE);
	commit(1, most);
	assert_true(host_settle(&host, 100));
	assert_int_equal(answer[1].res, 0);
	assert_int_equal(answer[1].value, BLOCKS);
	commit(0, whole); /* it has come late, and nothing is wrong with that */
	assert_true(host_settle(&host, 100));
	assert_int_equal(answer[0].res, 0);
}

static void test_nobody_waits_for_a_writer_that_fails(void **state)
{
	uint64_t whole, most;

	(void)state;
	whole = reserve(0, 0, ABI_SQE_DURABLE);
	most = reserve(1, FIRST_PARTS, ABI_SQE_DURABLE);
	host.held = true;
	commit(0, whole);
	commit(1, most); /* all is on its way: it waits for the other's bytes */
	assert_int_equal(answer[1].res, 1);
	host.fault = HOST_FAILS;
	host.held = false;
	host_carry_all(&host);
	assert_int_equal(answer[0].res, -EIO);
	assert_true(host_settle(&host, 100));
	assert_int_equal(answer[1].res, 0);
	assert_int_equal(answer[1].value, BLOCKS);
}

static int place(uint32_t client, uint64_t put, uint32_t block, uint32_t page,
		 struct core_range *out)
{
	const struct core_put_page at = { .put = put, .block = block, .page = page };

	return core_put_place(host.core, client, &at, out);
}

/* What a client writes where it stays is nobody's before its commit, and nobody waits for it. */
static void test_places_are_their_puts_alone(void **state)
{
	const struct context *x = core_context(host.core, host.context[0].id);
	struct core_range first, again;
	uint64_t put, other;

	(void)state;
	put = reserve(0, 0, 0);
	other = reserve(1, 0, 0);
	assert_int_equal(place(0, put, 0, 0, &first), 0);
	assert_int_equal(place(0, put, 0, 0, &again), -EEXIST);
	assert_int_equal(place(0, put, BLOCKS, 0, &again), -EINVAL);
	assert_int_equal(place(0, put, 0, x->ix.pages_per_block, &again), -EINVAL);
	assert_int_equal(place(1, put, 0, 1, &again), -ENOENT); /* another client's put */
	assert_int_equal(place(1, other, 0, 0, &again), 0);
	assert_true(again.offset != first.offset);
	assert_true(x->placed && x->lent == 2);
	commit(1, other); /* while the other one has the same page's place */
	assert_true(host_settle(&host, 100));
	assert_int_equal(answer[1].res, 0);
	assert_int_equal(answer[1].value, BLOCKS);
	assert_int_equal(place(0, put, 0, 1, &again), -EEXIST);
	commit(0, put); /* the page has come from elsewhere */
	assert_true(host_settle(&host, 100));
	assert_int_equal(answer[0].res, 0);
	assert_int_equal(answer[0].value, BLOCKS);
	assert_int_equal(x->placed, 0);
	assert_int_equal(x->lent, 0);
}

/* Not before the client has lost the right to write it. */
static void test_a_place_is_free_when_its_put_is_over(void **state)
{
	const struct context *x = core_context(host.core, host.context[0].id);
	struct abi_sqe sqe = { .op = ABI_OP_PUT_ABORT };
	struct core_range range;

	(void)state;
	sqe.handle = reserve(0, 0, 0);
	assert_int_equal(place(0, sqe.handle, 0, 0, &range), 0);
	assert_int_equal(place(0, sqe.handle, 0, 1, &range), 0);
	host.held = true;
	assert_true(host_request(&host, 0, &sqe));
	assert_int_equal(x->lent, 2);
	assert_int_equal(place(0, sqe.handle, 0, 2, &range), -ENOENT);
	host.held = false;
	host_carry_all(&host);
	assert_true(host_settle(&host, 100));
	assert_int_equal(x->placed, 0);
	assert_int_equal(x->lent, 0);
}

/* What the other one has begun and not brought is looked for in each block, from any one on. */
static void test_a_gap_in_any_block_is_filled(void **state)
{
	(void)state;
	for (uint32_t first = 0; first < BLOCKS; first++) {
		uint64_t some = reserve_from(0, first, 0, 0), all = reserve(1, 0, 0);

		host.held = true;
		commit(0, some);
		commit(1, all);
		host.fault = HOST_FAILS; /* the first copy: what both have */
		host.held = false;
		host_carry_all(&host);
		assert_int_equal(answer[0].res, -EIO);
		assert_true(host_settle(&host, 100));
		assert_int_equal(answer[1].res, 0);
		assert_int_equal(answer[1].value, BLOCKS);
		one_host_delete(0, BLOCKS);
		assert_true(host_settle(&host, 100));
	}
}

/* Puts all blocks with these bytes. Returns the answer's res. */
static int32_t put_bytes(uint16_t flags, uint8_t byte)
{
	const struct abi_put_args args = { .count = BLOCKS };
	uint64_t bytes = BLOCKS * host.context[0].spec.geometry.block_bytes;

	assert_int_equal(host_reserve(&host, &args, 0, flags), 0);
	memset(host.client[0].staging + 4096, byte, bytes); /* where host_commit says they are */
	assert_true(host_commit(&host, flags));
	assert_true(host_settle(&host, 100));
	return answer[0].res;
}

/* Blocks that only NVMe has come anew for a durable put: but only as what they are. */
static void test_other_bytes_are_not_taken_for_a_block(void **state)
{
	(void)state;
	assert_int_equal(put_bytes(0, 1), 0);
	for (uint8_t byte = 2; byte-- > 0;) {
		core_evict(host.core, host.context[0].id, ABI_TIER_CXL, UINT64_MAX, 1);
		host_look(&host);
		assert_true(host_settle(&host, 100));
		assert_int_equal(put_bytes(ABI_SQE_DURABLE, byte == 1 ? 2 : 1),
				 byte == 1 ? -EBADMSG : 0);
	}
	host_audit(&host);
}

static void in_store_alone(void)
{
	core_evict(host.core, host.context[0].id, ABI_TIER_CXL, UINT64_MAX, 1);
	host_look(&host);
	assert_true(host_settle(&host, 100));
}

/* Blocks that come. */
static uint64_t fetched(enum host_fault fault)
{
	const struct abi_sqe sqe = { .op = ABI_OP_FETCH, .tier = ABI_TIER_CXL };

	host.fault = fault;
	assert_true(host_request_keys(&host, 0, sqe, 0, BLOCKS));
	assert_true(host_settle(&host, 100));
	assert_int_equal(answer[0].res, 0);
	return answer[0].value;
}

/* What lies on a drive that cannot be read is brought again by who has it, durable or not. */
static void test_what_a_failing_drive_holds_is_put_again(void **state)
{
	const struct core_metrics *m = core_metrics(host.core);
	uint64_t once = BLOCKS * host.context[0].spec.geometry.block_bytes;

	(void)state;
	for (uint16_t flags = 0; flags <= ABI_SQE_DURABLE; flags += ABI_SQE_DURABLE) {
		uint64_t before = m->put_bytes;

		assert_int_equal(put_bytes(flags, 1), 0);
		in_store_alone();
		assert_int_equal(put_bytes(flags, 1), 0);
		assert_int_equal(m->put_bytes, before + once); /* it may be readable */
		host.core->drive[0]->read_failures = CORE_FAILURES_MAX; /* by others' reads */
		assert_int_equal(put_bytes(flags, 2), -EBADMSG);
		assert_int_equal(put_bytes(flags, 1), 0);
		assert_int_equal(m->put_bytes, before + 2 * once);
		assert_int_equal(fetched(HOST_FAILS), BLOCKS); /* nothing is read */
		assert_int_equal(host.fault, HOST_FAILS);
		in_store_alone();
		assert_int_equal(fetched(HOST_WELL), BLOCKS);
		host_audit(&host);
		one_host_delete(0, BLOCKS);
	}
}

static uint64_t place_of(uint32_t n)
{
	return index_page(&context()->ix, slot_of(n), 0)->nvme;
}

/* The drive is well but for a sector: another put brings the blocks, and they lie elsewhere. */
static void test_what_could_not_be_read_is_put_again(void **state)
{
	const struct core_metrics *m = core_metrics(host.core);
	uint64_t once = BLOCKS * host.context[0].spec.geometry.block_bytes;

	(void)state;
	host.core->config.admit_all = true;
	for (uint16_t flags = 0; flags <= ABI_SQE_DURABLE; flags += ABI_SQE_DURABLE) {
		uint64_t before = m->put_bytes, place;

		assert_int_equal(put_bytes(flags, 1), 0);
		in_store_alone();
		place = place_of(0);
		assert_int_equal(fetched(HOST_FAILS), 0);
		assert_int_equal(put_bytes(flags, 1), 0);
		assert_int_equal(m->put_bytes, before + 2 * once);
		assert_int_equal(fetched(HOST_FAILS), BLOCKS); /* nothing is read */
		host.fault = HOST_WELL;
		one_host_pause(500); /* it is written */
		in_store_alone();
		assert_int_equal(context()->pages_resident[ABI_TIER_CXL], 0);
		assert_int_equal(place_of(0) == place, flags != 0); /* a promise stays there */
		assert_int_equal(fetched(HOST_WELL), BLOCKS);
		host_audit(&host);
		one_host_delete(0, BLOCKS);
	}
}

/* Client 0's put is cancelled while its copies are under way; these end well, or fail. */
static void cancel(uint16_t flags, enum host_fault fault)
{
	const struct abi_sqe order = { .op = ABI_OP_CANCEL, .user_data = ORDER };
	uint64_t put = reserve(0, 0, flags);

	host.held = true;
	commit(0, put);
	assert_true(host_request(&host, 0, &order));
	assert_int_equal(answer[0].res, 1);
	host.fault = fault;
	host.held = false;
	host_carry_all(&host);
}

/* What is done is done: who cancels a put too late is not told that it was not stored. */
static void test_a_put_that_is_stored_was_not_cancelled(void **state)
{
	(void)state;
	cancel(0, HOST_WELL);
	assert_int_equal(answer[0].res, 0);
	assert_int_equal(answer[0].value, BLOCKS);
	host_audit(&host);
}

/* Nor is it late. */
static void test_a_put_that_is_stored_is_not_late(void **state)
{
	uint64_t put = reserve(0, 0, 0);

	(void)state;
	host.held = true;
	commit(0, put);
	host_tick(&host, 5001 * MS);
	assert_int_equal(answer[0].res, 1);
	host.held = false;
	host_carry_all(&host);
	assert_int_equal(answer[0].res, 0);
	assert_int_equal(answer[0].value, BLOCKS);
}

/* Nor was a put that nobody committed in time never there: it is late, and only its owner's. */
static void test_a_put_committed_too_late_is_told_so(void **state)
{
	uint64_t put = reserve(0, 0, 0);

	(void)state;
	host_tick(&host, host.core->config.put_deadline_ns + MS);
	commit(1, put);
	assert_int_equal(answer[1].res, -ENOENT);
	commit(0, put);
	assert_int_equal(answer[0].res, -ETIMEDOUT);
	assert_int_equal(answer[0].value, 0);
	put = reserve(0, 0, 0); /* in its place, or not: the next is another */
	commit(0, put);
	assert_true(host_settle(&host, 100));
	assert_int_equal(answer[0].res, 0);
	commit(0, put);
	assert_int_equal(answer[0].res, -ENOENT);
}

/* It says how many blocks it stored; of the others nothing stays. */
static void test_a_cancelled_put_says_what_stays(void **state)
{
	struct context *x = core_context(host.core, host.context[0].id);

	(void)state;
	cancel(0, HOST_FAILS);
	assert_int_equal(answer[0].res, -ECANCELED);
	assert_in_range(answer[0].value, 0, BLOCKS - 1);
	assert_int_equal(x->blocks_pending, 0);
	assert_int_equal(x->blocks, answer[0].value);
	host_audit(&host);
}

/* All of it is there, but nobody knows that it is durable: that is what was cancelled. */
static void test_a_durable_put_is_cancelled_until_it_is_durable(void **state)
{
	(void)state;
	cancel(ABI_SQE_DURABLE, HOST_WELL);
	assert_int_equal(answer[0].res, -ECANCELED);
	assert_int_equal(answer[0].value, BLOCKS);
	host_audit(&host);
}

/*
 * Half of a sharded put, its time far away: it is its client's, who can be seen to have it, and
 * ends with him.
 */
static void test_half_a_put_ends_with_its_client(void **state)
{
	const struct abi_put_args args = { .count = BLOCKS, .shards = 2 };
	struct context *x = core_context(host.core, host.context[0].id);
	struct abi_sqe sqe = { .op = ABI_OP_PUT_RESERVE, .count = BLOCKS };
	struct core_client_view view;

	(void)state;
	sqe.context_id = host.context[0].id;
	sqe.deadline_ns = host.now_ns + 20ull * 24 * 3600 * 1000 * MS;
	sqe.arg_bytes = sizeof(args) + BLOCKS * ABI_KEY_BYTES;
	memcpy(host.client[0].staging, &args, sizeof(args));
	for (uint32_t n = 0; n < BLOCKS; n++)
		host_key(n, host.client[0].staging + sizeof(args) + n * ABI_KEY_BYTES);
	assert_true(host_request(&host, 0, &sqe));
	assert_int_equal(answer[0].res, 0);
	commit(0, answer[0].value);
	host_settle(&host, 40);
	assert_int_equal(x->blocks_pending, BLOCKS);
	assert_int_equal(core_client_view(host.core, 0, &view), 0);
	assert_int_equal(view.pending, BLOCKS);
	assert_int_equal(core_client_view(host.core, 1, &view), 0);
	assert_int_equal(view.pending, 0);
	for (uint32_t i = 0; i < x->pending.count; i++)
		assert_in_range(block_use(x, x->pending.head)->expires_ms, 0,
				host.now_ns / MS + 3600000);
	host_audit(&host);
	host_client_gone(&host, 0);
	for (uint32_t i = 0; i < 20; i++)
		host_tick(&host, 10 * MS);
	assert_int_equal(x->blocks_pending, 0);
	assert_int_equal(x->pages_resident[ABI_TIER_CXL], 0);
	host_audit(&host);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_nobody_waits_for_a_writer_that_hangs, begin,
						one_host_off),
		cmocka_unit_test_setup_teardown(test_nobody_waits_for_a_writer_that_fails, begin,
						one_host_off),
		cmocka_unit_test_setup_teardown(test_places_are_their_puts_alone, begin,
						one_host_off),
		cmocka_unit_test_setup_teardown(test_a_place_is_free_when_its_put_is_over, begin,
						one_host_off),
		cmocka_unit_test_setup_teardown(test_a_gap_in_any_block_is_filled, begin,
						one_host_off),
		cmocka_unit_test_setup_teardown(test_other_bytes_are_not_taken_for_a_block, begin,
						one_host_off),
		cmocka_unit_test_setup_teardown(test_what_a_failing_drive_holds_is_put_again, begin,
						one_host_off),
		cmocka_unit_test_setup_teardown(test_what_could_not_be_read_is_put_again, begin,
						one_host_off),
		cmocka_unit_test_setup_teardown(test_a_put_that_is_stored_was_not_cancelled, begin,
						one_host_off),
		cmocka_unit_test_setup_teardown(test_a_put_that_is_stored_is_not_late, begin,
						one_host_off),
		cmocka_unit_test_setup_teardown(test_a_put_committed_too_late_is_told_so, begin,
						one_host_off),
		cmocka_unit_test_setup_teardown(test_a_cancelled_put_says_what_stays, begin,
						one_host_off),
		cmocka_unit_test_setup_teardown(test_a_durable_put_is_cancelled_until_it_is_durable,
						begin, one_host_off),
		cmocka_unit_test_setup_teardown(test_half_a_put_ends_with_its_client, begin,
						one_host_off),
	};

	return cmocka_run_group_tests(tests, one_host, NULL);
}
