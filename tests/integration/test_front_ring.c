/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rings of a live daemon: order, back-pressure, wake-ups; and heads, tails, entries and
 * eventfds as no library would leave them. What a client does there must cost only itself.
 */
#include "tests/integration/front_client.h"

/* ---- as it should be ----------------------------------------------------------------------- */

static void test_completions_come_back(void **state)
{
	struct abi_sqe sqe = { .op = ABI_OP_NOP };
	struct abi_cqe cqe = { .res = -1 };
	struct client c;
	uint64_t sent = 0, got = 0;
	bool seen[1000] = { false };

	(void)state;
	assert_int_equal(client_open(&c, &the_daemon), 0);
	assert_int_equal(c.region->sq_wake, 1);
	while (got < COUNT(seen)) {
		sqe.user_data = sent;
		if (sent < COUNT(seen) && client_push(&c, &sqe)) {
			sent++;
			continue;
		}
		assert_true(client_pop(&c, &cqe, PATIENCE_MS));
		assert_true(cqe.user_data < COUNT(seen));
		assert_false(seen[cqe.user_data]);
		assert_int_equal(cqe.res, 0);
		seen[cqe.user_data] = true;
		got++;
	}
	assert_int_equal(c.region->cq_tail, ABI_RING_BEGIN + 1000);
	client_close(&c);
}

/* After a while without requests the daemon asks to be rung, and is. */
static void test_the_doorbell(void **state)
{
	struct client c;

	(void)state;
	assert_int_equal(client_open(&c, &the_daemon), 0);
	for (int i = 0; i < 20; i++) {
		assert_true(client_nop(&c));
		for (int k = 0; k < PATIENCE_MS && !atomic_load_acquire_u32(&c.region->sq_wake);
		     k++)
			usleep(1000);
		assert_int_equal(atomic_load_acquire_u32(&c.region->sq_wake), 1);
	}
	/* Without ringing nobody comes ... */
	c.sq[c.sq_tail & (c.region->sq_entries - 1)] = (struct abi_sqe){ .user_data = 5 };
	c.sq_tail++;
	atomic_store_release_u32(&c.region->sq_tail, c.sq_tail);
	client_ring(&c);
	struct abi_cqe cqe = { .res = -1 };
	assert_true(client_pop(&c, &cqe, PATIENCE_MS));
	assert_int_equal(cqe.user_data, 5);
	client_close(&c);
}

static void test_sleepers_are_woken(void **state)
{
	struct abi_sqe sqe = { .op = ABI_OP_NOP };
	struct client c;

	(void)state;
	assert_int_equal(client_open(&c, &the_daemon), 0);
	for (int i = 0; i < 50; i++) {
		struct pollfd p = { .fd = c.event, .events = POLLIN };
		struct abi_cqe cqe = { .res = -1 };
		uint64_t count;

		atomic_store_relaxed_u32(&c.region->cq_wait, 1);
		full_fence();
		assert_true(client_push(&c, &sqe));
		assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
		assert_int_equal(read(c.event, &count, sizeof(count)), (ssize_t)sizeof(count));
		assert_true(client_pop(&c, &cqe, PATIENCE_MS));
		atomic_store_relaxed_u32(&c.region->cq_wait, 0);
		if (i % 10 == 0)
			usleep(5000);
	}
	client_close(&c);
}

/* R2: completions are never lost; who does not read them is not served until he does. */
static void test_unread_completions_hold_the_ring(void **state)
{
	struct abi_sqe sqe = { .op = ABI_OP_NOP };
	struct abi_cqe cqe = { .res = -1 };
	struct client c;
	uint32_t pushed = 0, got = 0, room;

	(void)state;
	assert_int_equal(client_open(&c, &the_daemon), 0);
	room = c.region->cq_entries + c.region->sq_entries;
	/* Until both are full, and a moment more. */
	for (uint32_t idle = 0; idle < (pushed < room ? PATIENCE_MS : 200u);) {
		sqe.user_data = pushed;
		if (client_push(&c, &sqe)) {
			pushed++;
			idle = 0;
		} else {
			usleep(1000);
			idle++;
		}
	}
	assert_int_equal(pushed, room);
	for (uint32_t i = 0; i < PATIENCE_MS && atomic_load_acquire_u32(&c.region->cq_tail) !=
						       ABI_RING_BEGIN + c.region->cq_entries; i++)
		usleep(1000);
	assert_int_equal(atomic_load_acquire_u32(&c.region->cq_tail),
			 ABI_RING_BEGIN + c.region->cq_entries);
	daemon_serves(&the_daemon);
	while (got < pushed) {
		assert_true(client_pop(&c, &cqe, PATIENCE_MS));
		assert_int_equal(cqe.user_data, got);
		got++;
	}
	assert_true(client_nop(&c));
	client_close(&c);
}

/* ---- as it should not be ------------------------------------------------------------------- */

static void expect_closed(struct client *c, int error)
{
	uint64_t one = 1;

	assert_int_equal(write(c->doorbell, &one, sizeof(one)), (ssize_t)sizeof(one));
	assert_true(client_hung_up(c));
	assert_int_equal(atomic_load_acquire_u32(&c->region->closed), 1);
	assert_int_equal(c->region->connection_error, error);
	client_close(c);
	daemon_serves(&the_daemon);
}

static void test_impossible_heads_and_tails(void **state)
{
	static const uint32_t ahead[] = { 65, 1000, 0x7fffffff, 0x80000000, 0xffffffff };
	struct client c;

	(void)state;
	for (size_t i = 0; i < COUNT(ahead); i++) {
		assert_int_equal(client_open(&c, &the_daemon), 0);
		assert_true(client_nop(&c));
		atomic_store_release_u32(&c.region->sq_tail, c.sq_tail + ahead[i]);
		expect_closed(&c, EPROTO);
		/* cq_head: more read than was written, or further behind than there is room (one
		 * behind is possible: an unread completion). */
		if (ahead[i] == 0xffffffff)
			continue;
		assert_int_equal(client_open(&c, &the_daemon), 0);
		assert_true(client_nop(&c));
		atomic_store_release_u32(&c.region->cq_head, c.cq_head + ahead[i]);
		atomic_store_release_u32(&c.region->sq_tail, c.sq_tail + 1);
		expect_closed(&c, EPROTO);
	}
}

/* The header's constants are the daemon's to know, not to read back. */
static void test_a_scribbled_header(void **state)
{
	struct client c;
	uint32_t entries;

	(void)state;
	assert_int_equal(client_open(&c, &the_daemon), 0);
	entries = c.region->sq_entries;
	c.region->sq_entries = 0;
	c.region->cq_entries = 0;
	c.region->sq_offset = ~0ull;
	c.region->cq_offset = ~0ull;
	c.region->reader_offset = ~0ull;
	c.region->readers_max = ~0u;
	c.region->total_bytes = ~0ull;
	c.region->sq_head = 12345;
	c.region->cq_tail = 54321;
	for (uint32_t i = 0; i < 3 * entries; i++) {
		uint32_t after = ABI_RING_BEGIN + i + 1;
		uint64_t one = 1;

		c.sq[c.sq_tail & (entries - 1)] = (struct abi_sqe){ .user_data = i };
		atomic_store_release_u32(&c.region->sq_tail, ++c.sq_tail);
		assert_int_equal(write(c.doorbell, &one, sizeof(one)), (ssize_t)sizeof(one));
		for (int k = 0; k < 10 * PATIENCE_MS &&
				atomic_load_acquire_u32(&c.region->cq_tail) != after; k++)
			usleep(100);
		assert_int_equal(atomic_load_acquire_u32(&c.region->cq_tail), after);
		atomic_store_release_u32(&c.region->cq_head, after);
	}
	munmap(c.staging, c.welcome.staging_bytes);
	c.region->total_bytes = 4096;
	client_close(&c);
	daemon_serves(&the_daemon);
}

/* Every entry gets one answer, whatever is in it. */
static void test_noise_in_entries(void **state)
{
	uint32_t seed = 4711, sent = 0, got = 0;
	struct abi_cqe cqe = { .res = -1 };
	struct client c;

	(void)state;
	assert_int_equal(client_open(&c, &the_daemon), 0);
	for (size_t i = 0; i < 65536; i++) {
		seed = seed * 1664525 + 1013904223;
		c.staging[i] = (uint8_t)(seed >> 24);
	}
	while (sent < 20000) {
		struct abi_sqe sqe;
		uint8_t *bytes = (uint8_t *)&sqe;

		for (size_t i = 0; i < sizeof(sqe); i++) {
			seed = seed * 1664525 + 1013904223;
			bytes[i] = (uint8_t)(seed >> 24);
		}
		sqe.op %= ABI_OP_COUNT + 1;
		sqe.user_data &= INT64_MAX;
		if (sent % 2) {
			sqe.klass %= ABI_CLASS_COUNT;
			sqe.flags &= 3;
			sqe.generation = 0;
			sqe.count %= 64;
			sqe.arg_offset %= 1 << 20;
			sqe.arg_bytes = sqe.count * 32;
			sqe.context_id %= 4;
			sqe.deadline_ns = 1;
		}
		if (client_push(&c, &sqe))
			sent++;
		while (client_pop(&c, &cqe, 0))
			got++;
	}
	while (got < sent) {
		assert_true(client_pop(&c, &cqe, PATIENCE_MS));
		got++;
	}
	assert_false(client_pop(&c, &cqe, 20));
	assert_true(client_nop(&c));
	client_close(&c);
	daemon_serves(&the_daemon);
}

/* Hazard words and access logs full of noise, while the daemon scans them. */
static void test_noise_in_reader_areas(void **state)
{
	struct client c;
	uint64_t *words;
	uint32_t seed = 99;

	(void)state;
	assert_int_equal(client_open(&c, &the_daemon), 0);
	words = (uint64_t *)((uint8_t *)c.region + c.region->reader_offset);
	for (size_t i = 0; i < 2 * sizeof(struct abi_reader) / sizeof(*words); i++) {
		seed = seed * 1664525 + 1013904223;
		words[i] = (uint64_t)seed << 32 | seed * 2654435761u;
	}
	for (int i = 0; i < 100; i++)
		assert_true(client_nop(&c));
	daemon_serves(&the_daemon);
	client_close(&c);
	daemon_serves(&the_daemon);
}

/* The open file of an eventfd is shared: make ours blocking and full. */
static void test_a_full_eventfd_stops_nobody(void **state)
{
	uint64_t most = UINT64_MAX - 1;
	struct abi_sqe sqe = { .op = ABI_OP_NOP };
	struct client c;

	(void)state;
	assert_int_equal(client_open(&c, &the_daemon), 0);
	assert_int_equal(fcntl(c.event, F_SETFL, 0), 0);
	assert_int_equal(fcntl(c.doorbell, F_SETFL, 0), 0);
	assert_int_equal(write(c.event, &most, sizeof(most)), (ssize_t)sizeof(most));
	atomic_store_relaxed_u32(&c.region->cq_wait, 1);
	full_fence();
	for (int i = 0; i < 10; i++) {
		assert_true(client_push(&c, &sqe));
		daemon_serves(&the_daemon);
	}
	client_close(&c);
	daemon_serves(&the_daemon);
}

static void test_shared_memory_is_sealed(void **state)
{
	struct client c;
	struct stat st;

	(void)state;
	assert_int_equal(client_open(&c, &the_daemon), 0);
	assert_int_equal(fstat(c.region_fd, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(fstat(c.staging_fd, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(ftruncate(c.region_fd, 0), -1);
	assert_int_equal(ftruncate(c.staging_fd, 0), -1);
	assert_int_equal(ftruncate(c.region_fd, 1 << 30), -1);
	assert_int_equal(fcntl(c.region_fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
	assert_int_equal(fcntl(c.staging_fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), -1);
	assert_int_equal(fallocate(c.region_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
				   4096), -1);
	daemon_serves(&the_daemon);
	c.region->total_bytes = 4096;
	client_close(&c);
	daemon_serves(&the_daemon);
}

/* ---- ends ---------------------------------------------------------------------------------- */

/* Killed with requests under way; its number comes back. */
static void test_killed_clients(void **state)
{
	(void)state;
	for (int i = 0; i < 20; i++) {
		int pipes[2];
		char byte;
		pid_t pid;

		assert_int_equal(pipe(pipes), 0);
		pid = fork();
		assert_true(pid >= 0);
		if (pid == 0) {
			struct client c;
			struct abi_sqe sqe = { .op = ABI_OP_NOP };

			if (client_open(&c, &the_daemon))
				_exit(1);
			((struct abi_reader *)((uint8_t *)c.region + c.region->reader_offset))
				->owned = 1;
			if (write(pipes[1], "x", 1) != 1)
				_exit(1);
			for (;;)
				client_push(&c, &sqe);
		}
		assert_int_equal(read(pipes[0], &byte, 1), 1);
		usleep(1000);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		close(pipes[0]);
		close(pipes[1]);
		daemon_serves(&the_daemon);
	}
}

static uint64_t cpu_ns(clockid_t of)
{
	struct timespec t;

	assert_int_equal(clock_gettime(of, &t), 0);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

#define IDLE_US 2000000u
#define IDLE_LOOKS 10u /* where it has little of the processor, it gets to its sleep late */

/* An idle daemon with idle clients sleeps: less than 2 % of one processor. */
static void test_idle_costs_nothing(void **state)
{
	uint64_t used = UINT64_MAX, took = 0;
	struct client c[20];
	clockid_t clock;

	(void)state;
	for (size_t i = 0; i < COUNT(c); i++) {
		assert_int_equal(client_open(&c[i], &the_daemon), 0);
		assert_true(client_nop(&c[i]));
	}
	usleep(100000);
	assert_int_equal(clock_getcpuclockid(the_daemon.pid, &clock), 0);
	for (uint32_t i = 0; i < IDLE_LOOKS && used > took / 50; i++) {
		used = cpu_ns(clock);
		took = time_now_ns();
		usleep(IDLE_US);
		used = cpu_ns(clock) - used;
		took = time_now_ns() - took;
	}
	assert_in_range(used, 0, took / 50);
	for (size_t i = 0; i < COUNT(c); i++)
		client_close(&c[i]);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_completions_come_back),
		cmocka_unit_test(test_the_doorbell),
		cmocka_unit_test(test_sleepers_are_woken),
		cmocka_unit_test(test_unread_completions_hold_the_ring),
		cmocka_unit_test(test_impossible_heads_and_tails),
		cmocka_unit_test(test_a_scribbled_header),
		cmocka_unit_test(test_noise_in_entries),
		cmocka_unit_test(test_noise_in_reader_areas),
		cmocka_unit_test(test_a_full_eventfd_stops_nobody),
		cmocka_unit_test(test_shared_memory_is_sealed),
		cmocka_unit_test(test_killed_clients),
		cmocka_unit_test(test_idle_costs_nothing),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("front ring", tests, the_daemon_setup,
					   the_daemon_teardown);
}
