/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a client can write is read once, by the core (test_front_reads.c has the front): arguments
 * and bytes of requests in its staging, words of its readers and of its streams. All of a client's
 * memory traps each access (reads.h) while the core handles events.
 */
#include "tests/unit/one_host.h"
#include "tests/unit/reads.h"

#define STAGING (128u << 10)
#define AREA (STAGING + (64u << 10)) /* staging, then readers, then lines */
#define BLOCKS 4u

static struct reads reads;
static uint8_t *area;
static struct host_client own; /* the host's memory of client 0, while it has ours */
static struct abi_reader *reader;
static struct abi_stream *line;

static int set_up(void **state)
{
	struct disk_context spec;

	(void)state;
	area = mmap(NULL, AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(area != MAP_FAILED);
	own = host.client[0];
	host.client[0].staging = area;
	host.client[0].readers = reader = (void *)(area + STAGING);
	host.client[0].lines = line = (void *)(reader + HOST_READERS);
	assert_true((uint8_t *)(line + HOST_LINES) <= area + AREA);
	host.staging_bytes = STAGING;
	host.blind = true;
	host_spec(&spec, HOST_KIND_STORE, 0);
	one_host_boot(&spec, 1);
	assert_true(host_settle(&host, 60));
	reads_open(&reads, area, AREA);
	return 0;
}

static int tear_down(void **state)
{
	one_host_off(state);
	reads_close(&reads);
	munmap(area, AREA);
	host.client[0].staging = own.staging;
	host.client[0].readers = own.readers;
	host.client[0].lines = own.lines;
	host.staging_bytes = HOST_STAGING;
	host.blind = false;
	return 0;
}

/*
 * Words that are looked at again and again, in one event, too, but each time by the same
 * instruction: what it finds is new. A stream's claim is also compared with the one that was seen.
 */
static void words_check(void)
{
	size_t at = STAGING;

	reads_check_codes(&reads, at, HOST_READERS * sizeof(*reader), 1, "a reader");
	at += HOST_READERS * sizeof(*reader);
	reads_check_codes(&reads, at, HOST_LINES * sizeof(*line), 2, "a stream's line");
	reads_forget(&reads, STAGING, AREA - STAGING);
}

/* Time passes, and whatever is under way ends, an action at a time. */
static void watched_tick(void)
{
	bool held = host.held;

	host.held = true;
	reads_begin(&reads);
	host_tick(&host, MS);
	reads_end(&reads);
	words_check();
	for (uint32_t i = 0; i < 64 && host.bag_count; i++) {
		reads_begin(&reads);
		host_carry(&host, 0);
		reads_end(&reads);
		words_check();
	}
	host.held = held;
}

/* An entry whose arguments lie in staging, until it is answered; what it read was read once. */
static int32_t watched(struct abi_sqe sqe, const char *what)
{
	reads_forget(&reads, 0, AREA);
	sqe.context_id = host.context[0].id;
	host.answer.res = 1;
	host.held = true;
	reads_begin(&reads);
	assert_true(host_request(&host, 0, &sqe));
	reads_end(&reads);
	words_check();
	for (uint32_t i = 0; i < 200 && host.answer.res > 0; i++)
		watched_tick();
	host.held = false;
	reads_check(&reads, 0, STAGING, 1, what);
	return host.answer.res;
}

static void keys(uint8_t *at, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		host_key(i, at + (size_t)i * ABI_KEY_BYTES);
}

static struct abi_sqe by_keys(uint8_t op, uint32_t count)
{
	keys(area, count);
	return (struct abi_sqe){ .op = op, .flags = ABI_SQE_KEYS, .count = count,
				 .arg_bytes = count * ABI_KEY_BYTES };
}

static void put(uint16_t flags)
{
	struct abi_put_args *args = (void *)area;
	struct abi_sqe sqe = { .op = ABI_OP_PUT_RESERVE, .flags = flags, .count = BLOCKS };

	memset(args, 0, sizeof(*args));
	args->count = BLOCKS;
	args->ttl_ms = 100000;
	args->priority = ABI_PRIORITY_HIGH;
	keys((uint8_t *)(args + 1), BLOCKS);
	sqe.arg_bytes = sizeof(*args) + BLOCKS * ABI_KEY_BYTES;
	assert_int_equal(watched(sqe, "a reservation's arguments"), 0);
	sqe = (struct abi_sqe){ .op = ABI_OP_PUT_COMMIT, .flags = flags,
				.handle = host.answer.value, .arg_offset = HOST_PUT_DATA };
	assert_int_equal(watched(sqe, "the bytes of a put"), 0);
}

static struct abi_block_ref ref_of(uint32_t n)
{
	struct core_location at;
	uint8_t key[ABI_KEY_BYTES];

	host_key(n, key);
	assert_int_equal(core_locate(host.core, host.context[0].id, key, &at), 0);
	return (struct abi_block_ref){
		at.slot, index_block(&core_context(host.core, host.context[0].id)->ix,
				     at.slot)->generation };
}

static struct abi_sqe by_refs(uint8_t op, void *to)
{
	struct abi_block_ref *ref = to;

	for (uint32_t i = 0; i < BLOCKS; i++)
		ref[i] = ref_of(i);
	return (struct abi_sqe){ .op = op, .count = BLOCKS };
}

static void test_puts_and_deletions(void **state)
{
	struct abi_reserve_args *args = (void *)area;
	struct abi_sqe sqe = { .op = ABI_OP_RESERVE, .count = 1, .arg_bytes = sizeof(*args) };

	(void)state;
	if (!READS_WORK)
		skip();
	put(0);
	put(ABI_SQE_DURABLE);
	assert_int_equal(watched(by_keys(ABI_OP_DELETE, BLOCKS), "keys of a deletion"), 0);
	*args = (struct abi_reserve_args){ .expected = 2, .p95 = 4 };
	sqe.deadline_ns = host.now_ns + 500 * MS;
	assert_int_equal(watched(sqe, "a reservation of room"), 0);
	assert_true(reads.reads > 0);
}

/* Pages by blocks and one by one, into HBM and back, pinned and looked ahead for. */
static void test_what_moves_pages(void **state)
{
	struct abi_page_ref *page = (void *)area;
	struct abi_sqe sqe;

	(void)state;
	if (!READS_WORK)
		skip();
	put(ABI_SQE_DURABLE);
	sqe = by_keys(ABI_OP_FETCH, BLOCKS);
	assert_int_equal(watched(sqe, "keys of a fetch"), 0);
	sqe = by_refs(ABI_OP_PREFETCH, area);
	sqe.arg_bytes = BLOCKS * sizeof(struct abi_block_ref);
	sqe.deadline_ns = host.now_ns + 20 * MS;
	assert_int_equal(watched(sqe, "references of a prefetch"), 0);
	for (uint32_t i = 0; i < BLOCKS; i++)
		page[i] = (struct abi_page_ref){ ref_of(i).slot, ref_of(i).generation, i, 0 };
	sqe = (struct abi_sqe){ .op = ABI_OP_FETCH_PAGES, .count = BLOCKS,
				.arg_bytes = BLOCKS * sizeof(*page) };
	assert_int_equal(watched(sqe, "a list of pages"), 0);
	sqe = by_keys(ABI_OP_PIN, BLOCKS);
	sqe.tier = ABI_TIER_CXL;
	assert_int_equal(watched(sqe, "keys of a pin"), 0);
	sqe = by_keys(ABI_OP_MIGRATE, BLOCKS);
	sqe.tier = ABI_TIER_NVME;
	watched(sqe, "keys of a migration");
}

static void test_what_foresight_reads(void **state)
{
	struct abi_conversation_args *connection = (void *)area;
	struct abi_plan_args *plan = (void *)area;
	struct abi_access *access = (void *)(plan + 1);
	uint64_t *position = (void *)(area + STAGING / 2);
	struct abi_sqe sqe;

	(void)state;
	if (!READS_WORK)
		skip();
	put(0);
	*connection = (struct abi_conversation_args){ .return_ns = host.now_ns + 20 * MS };
	sqe = by_refs(ABI_OP_CONVERSATION, connection + 1);
	sqe.mode = ABI_CONVERSATION_TURN_END;
	sqe.arg_bytes = sizeof(*connection) + BLOCKS * sizeof(struct abi_block_ref);
	assert_int_equal(watched(sqe, "the end of a turn"), 0);
	*plan = (struct abi_plan_args){ .position_offset = STAGING / 2 };
	for (uint32_t i = 0; i < BLOCKS; i++)
		access[i] = (struct abi_access){ .block = ref_of(i) };
	sqe = (struct abi_sqe){ .op = ABI_OP_PLAN, .mode = ABI_PLAN_BEGIN, .count = BLOCKS,
				.arg_bytes = sizeof(*plan) + BLOCKS * sizeof(*access) };
	assert_int_equal(watched(sqe, "a plan"), 0);
	for (*position = 1; *position <= BLOCKS; ++*position) { /* once an event */
		reads_forget(&reads, STAGING / 2, sizeof(*position));
		host.held = true;
		reads_begin(&reads);
		host_tick(&host, MS);
		reads_end(&reads);
		reads_check(&reads, STAGING / 2, sizeof(*position), 1, "a plan's position");
		host_carry_all(&host);
	}
}

/* A stream whose client releases layer after layer, and then writes nonsense. */
static void test_lines_of_streams(void **state)
{
	struct abi_sqe sqe;

	(void)state;
	if (!READS_WORK)
		skip();
	put(0);
	sqe = by_refs(ABI_OP_STREAM, area);
	sqe.arg_bytes = BLOCKS * sizeof(struct abi_block_ref);
	sqe.generation = 7;
	sqe.deadline_ns = host.now_ns + 500 * MS;
	line[0].released = abi_stream_released(7, 0);
	line[0].wait = 1;
	watched(sqe, "references of a stream");
	for (uint32_t released = 1; released < 6; released++) {
		line[0].released = abi_stream_released(7, released);
		watched_tick();
	}
	line[0].released = UINT64_MAX;
	watched_tick();
	assert_int_equal(line[0].generation, 7);
}

/* What readers say: of leases, of what they have read, of their kernels. */
static void test_words_of_readers(void **state)
{
	uint32_t id = host.context[0].id;

	(void)state;
	if (!READS_WORK)
		skip();
	for (uint32_t round = 0; round < 4; round++) {
		struct context *x = core_context(host.core, id);
		struct abi_block_ref ref;

		put(0);
		ref = ref_of(round);
		reader[0].high_water = round == 3 ? UINT32_MAX : 2;
		reader[0].slot[1] = abi_place(id, ABI_TIER_CXL,
					      index_page(&x->ix, ref.slot, 0)->word[ABI_TIER_CXL]);
		reader[0].access[reader[0].access_tail++ % ABI_ACCESS_LOG] =
			abi_access(id, ref.slot, 1);
		reader[1].era_begin = 1 + round / 2;
		reader[1].era_done = round / 2;
		watched(by_keys(ABI_OP_DELETE, round + 1), "keys of a deletion");
		for (uint32_t i = 0; i < 8; i++)
			watched_tick();
	}
	memset(reader, 0, HOST_READERS * sizeof(*reader));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(test_puts_and_deletions), TEST(test_what_moves_pages),
		TEST(test_what_foresight_reads), TEST(test_lines_of_streams),
		TEST(test_words_of_readers),
	};

	return cmocka_run_group_tests(tests, one_host, NULL);
}
