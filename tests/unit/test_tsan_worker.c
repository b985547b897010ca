/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pool of copy threads: every job is carried out once and comes back once, its results are
 * seen by the loop, sleepers wake, and marks pass when they should. Also run under
 * ThreadSanitizer.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "libtier/base/crc32c.h"
#include "libtier/base/time.h"
#include "tests/lib/unit.h"
#include "tierd/worker.h"

#define THREADS 3u

static void copy_one(const struct mem_ops *self, struct core_copy *copy)
{
	(void)self;
	for (uint32_t i = 0; i < copy->count; i++)
		copy->item[i].crc = crc32c_copy(copy->item[i].dst, copy->item[i].src,
						copy->item[i].bytes);
	copy->res = 0;
}

static int prepare_none(const struct mem_region *region, uint64_t offset, uint64_t bytes)
{
	(void)region;
	return offset + bytes == 3 ? 0 : -EIO;
}

static const struct mem_ops ops = { .name = "test", .copy = copy_one, .prepare = prepare_none,
				    .punch = prepare_none };

/* Wait for one finished job, asleep if there is none. */
static struct job *next_done(struct worker_pool *p, int fd)
{
	struct job *job;

	while (!(job = worker_reap(p))) {
		struct pollfd wait = { .fd = fd, .events = POLLIN };
		uint64_t count;

		if (worker_sleep(p)) {
			assert_int_equal(poll(&wait, 1, 60000), 1);
			assert_int_equal(read(fd, &count, sizeof(count)), 8);
		}
		worker_awake(p);
	}
	return job;
}

static void test_jobs_come_back_once(void **state)
{
	enum { ROUNDS = 300, BATCH = 40, BYTES = 512 };
	struct core_copy *copy = calloc(BATCH, sizeof(*copy));
	uint8_t *src = malloc(BATCH * BYTES), *dst = malloc(BATCH * BYTES);
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	struct worker_pool *p;

	(void)state;
	assert_int_equal(worker_open(&p, THREADS, fd), 0);
	for (int round = 0; round < ROUNDS; round++) {
		bool seen[BATCH] = { false };

		for (int i = 0; i < BATCH; i++) {
			struct job *job = worker_job(p);

			assert_non_null(job);
			memset(src + i * BYTES, round + i, BYTES);
			copy[i].count = 1;
			copy[i].item[0] = (struct core_copy_item){ .dst = dst + i * BYTES,
								   .src = src + i * BYTES,
								   .bytes = BYTES };
			job->kind = JOB_COPY;
			job->klass = (uint8_t)(i % ABI_CLASS_COUNT);
			job->brief = i % 3 == 0;
			job->ops = &ops;
			job->copy = &copy[i];
			worker_submit(p, job);
			if (i % 7 == 0)
				worker_kick(p);
		}
		worker_kick(p);
		for (int i = 0; i < BATCH; i++) {
			struct job *job = next_done(p, fd);
			long which = job->copy - copy;

			assert_false(seen[which]);
			seen[which] = true;
			assert_int_equal(job->copy->item[0].crc,
					 crc32c(0, dst + which * BYTES, BYTES));
			assert_int_equal(dst[which * BYTES], (uint8_t)(round + which));
			worker_put(p, job);
		}
		assert_null(worker_reap(p));
	}
	worker_close(p);
	close(fd);
	free(copy);
	free(src);
	free(dst);
}

static void test_all_jobs_at_once(void **state)
{
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	struct worker_pool *p;
	uint32_t count = 0;
	uint64_t mark;

	(void)state;
	assert_int_equal(worker_open(&p, THREADS, fd), 0);
	assert_int_equal(worker_threads(p), THREADS);
	assert_true(worker_passed(p, worker_mark(p)));
	for (struct job *job; (job = worker_job(p)) != NULL; count++) {
		job->kind = count % 2 ? JOB_PREPARE : JOB_PUNCH;
		job->klass = ABI_CLASS_CLEANUP;
		job->ops = &ops;
		job->range = (struct core_range){ .offset = count % 3, .bytes = 2 };
		worker_submit(p, job);
	}
	assert_int_equal(count, WORKER_JOBS_MAX);
	assert_int_equal(worker_jobs_free(p), 0);
	mark = worker_mark(p);
	worker_kick(p);
	while (count--) {
		struct job *job = next_done(p, fd);

		assert_int_equal(job->res, job->range.offset == 1 ? 0 : -EIO);
		assert_false(worker_passed(p, mark));
		worker_put(p, job);
	}
	assert_true(worker_passed(p, mark));
	assert_int_equal(worker_jobs_free(p), WORKER_JOBS_MAX);
	worker_close(p);
	close(fd);
}

static void test_verify_finds_the_bad_pieces(void **state)
{
	static uint8_t page[CORE_SEGMENTS_IO][64];
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	struct core_io io = { .piece_count = CORE_SEGMENTS_IO };
	struct worker_pool *p;
	struct job *job;

	(void)state;
	for (uint32_t i = 0; i < CORE_SEGMENTS_IO; i++) {
		memset(page[i], (int)i, sizeof(page[i]));
		io.piece[i] = (struct core_io_piece){ .addr = page[i], .bytes = sizeof(page[i]),
						      .seed = i };
		io.piece[i].crc = crc32c(i, page[i], sizeof(page[i]));
	}
	page[0][5] ^= 1;
	page[17][63] ^= 128;
	io.piece[63].seed++;
	worker_verify(&io);
	assert_int_equal(io.bad_mask, 1ull | 1ull << 17 | 1ull << 63);
	io.bad_mask = 0;
	assert_int_equal(worker_open(&p, 1, fd), 0);
	job = worker_job(p);
	job->kind = JOB_VERIFY;
	job->klass = 0;
	job->brief = true;
	job->io = &io;
	worker_submit(p, job);
	worker_kick(p);
	worker_put(p, next_done(p, fd));
	assert_int_equal(io.bad_mask, 1ull | 1ull << 17 | 1ull << 63);
	worker_close(p);
	close(fd);
}

/* ---- one thread, which waits in a copy ----------------------------------------------------- */

static struct gate {
	int at[2], let[2]; /* pipes: the copy says that it began, and waits for a word */
} gate;

static void copy_that_waits(const struct mem_ops *self, struct core_copy *copy)
{
	char word = 0;

	(void)self;
	assert_int_equal(write(gate.at[1], &word, 1), 1);
	assert_int_equal(read(gate.let[0], &word, 1), 1);
	copy->res = 0;
}

static void gate_reached(void)
{
	char word;

	assert_int_equal(read(gate.at[0], &word, 1), 1);
}

static void gate_open(void)
{
	char word = 0;

	assert_int_equal(write(gate.let[1], &word, 1), 1);
}

/* Returns what it signals on. */
static int one_thread(struct worker_pool **p)
{
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	assert_int_equal(pipe(gate.at), 0);
	assert_int_equal(pipe(gate.let), 0);
	assert_int_equal(worker_open(p, 1, fd), 0);
	return fd;
}

static void one_thread_ends(struct worker_pool *p, int fd)
{
	worker_close(p);
	for (int i = 0; i < 2; i++) {
		close(gate.at[i]);
		close(gate.let[i]);
	}
	close(fd);
}

static void submit_copy(struct worker_pool *p, const struct mem_ops *by, struct core_copy *copy,
			uint32_t klass)
{
	struct job *job = worker_job(p);

	assert_non_null(job);
	job->kind = JOB_COPY;
	job->klass = (uint8_t)klass;
	job->brief = false;
	job->ops = by;
	job->copy = copy;
	worker_submit(p, job);
	worker_kick(p);
}

/* What demand waits for does not wait for a copy that all threads are in. */
static void test_brief_jobs_pass_copies(void **state)
{
	static const struct mem_ops slow = { .copy = copy_that_waits };
	struct core_io io = { .piece_count = 0, .bad_mask = 1 };
	struct core_copy copy = { .count = 1 };
	struct worker_pool *p;
	struct job *job;
	int fd = one_thread(&p);

	(void)state;
	submit_copy(p, &slow, &copy, ABI_CLASS_DEMAND);
	gate_reached();
	job = worker_job(p);
	job->kind = JOB_VERIFY;
	job->klass = ABI_CLASS_DEMAND;
	job->brief = true;
	job->io = &io;
	worker_submit(p, job);
	worker_kick(p);
	job = next_done(p, fd);
	assert_int_equal(job->kind, JOB_VERIFY);
	worker_put(p, job);
	gate_open();
	worker_put(p, next_done(p, fd));
	one_thread_ends(p, fd);
}

static int discard_that_waits(const struct drive *device, uint64_t offset, uint64_t bytes)
{
	char word = 0;

	(void)device;
	assert_int_equal(write(gate.at[1], &word, 1), 1);
	assert_int_equal(read(gate.let[0], &word, 1), 1);
	return (int)(offset + bytes);
}

/* What takes patience keeps no copy thread: with one of these, copies come back beside it. */
static void test_patience_is_a_thread_of_its_own(void **state)
{
	static const struct drive_ops block = { .discard = discard_that_waits };
	struct core_copy copy = { .count = 0 };
	struct worker_pool *p;
	struct job *job;
	int fd = one_thread(&p);

	(void)state;
	job = worker_job(p);
	job->kind = JOB_DISCARD;
	job->klass = ABI_CLASS_CLEANUP;
	job->brief = false;
	job->patient = true;
	job->drive = &block;
	job->range = (struct core_range){ .offset = 3, .bytes = 4 };
	worker_submit(p, job);
	worker_kick(p);
	gate_reached();
	for (uint32_t i = 0; i < 3; i++) {
		submit_copy(p, &ops, &copy, ABI_CLASS_CLEANUP);
		job = next_done(p, fd);
		assert_int_equal(job->kind, JOB_COPY);
		assert_false(job->patient);
		worker_put(p, job);
	}
	gate_open();
	job = next_done(p, fd);
	assert_int_equal(job->kind, JOB_DISCARD);
	assert_int_equal(job->res, 7);
	worker_put(p, job);
	one_thread_ends(p, fd);
}

#define CLASS_JOBS 3u

static uint32_t begun[ABI_CLASS_COUNT * CLASS_JOBS], begun_count; /* the one copy thread's */

static void copy_in_turn(const struct mem_ops *self, struct core_copy *copy)
{
	(void)self;
	begun[begun_count++] = copy->order;
	copy->res = 0;
}

/* While the one thread is in a copy, others come: it takes the most urgent ones first, and those of
 * a class in the order in which they came. */
static void test_urgent_jobs_are_begun_first(void **state)
{
	static const struct mem_ops slow = { .copy = copy_that_waits };
	static const struct mem_ops quick = { .copy = copy_in_turn };
	static struct core_copy first, copy[COUNT(begun)];
	struct worker_pool *p;
	int fd = one_thread(&p);

	(void)state;
	begun_count = 0;
	submit_copy(p, &slow, &first, ABI_CLASS_CLEANUP);
	gate_reached();
	for (uint32_t i = 0; i < COUNT(begun); i++) {
		uint32_t klass = ABI_CLASS_COUNT - 1 - i % ABI_CLASS_COUNT;

		copy[i].count = 0;
		copy[i].order = klass * CLASS_JOBS + i / ABI_CLASS_COUNT;
		submit_copy(p, &quick, &copy[i], klass);
	}
	gate_open();
	for (uint32_t i = 0; i <= COUNT(begun); i++)
		worker_put(p, next_done(p, fd));
	assert_int_equal(begun_count, COUNT(begun));
	for (uint32_t i = 0; i < COUNT(begun); i++)
		assert_int_equal(begun[i], i);
	one_thread_ends(p, fd);
}

/* A job that finished before the loop says that it sleeps wakes nobody, so the loop must not; with
 * none finished it may, and the next one wakes it. */
static void test_no_sleep_over_a_finished_job(void **state)
{
	static const struct mem_ops slow = { .copy = copy_that_waits };
	static const struct mem_ops quick = { .copy = copy_in_turn };
	struct core_copy first = { .count = 0 }, second = { .count = 0 };
	struct worker_pool *p;
	int fd = one_thread(&p);
	struct pollfd wake = { .fd = fd, .events = POLLIN };

	(void)state;
	begun_count = 0;
	submit_copy(p, &quick, &first, ABI_CLASS_DEMAND);
	submit_copy(p, &slow, &second, ABI_CLASS_DEMAND);
	gate_reached(); /* in the second: the first is finished */
	assert_false(worker_sleep(p));
	worker_put(p, worker_reap(p));
	assert_true(worker_sleep(p));
	assert_int_equal(poll(&wake, 1, 0), 0);
	gate_open();
	assert_int_equal(poll(&wake, 1, 60000), 1);
	worker_awake(p);
	worker_put(p, worker_reap(p));
	one_thread_ends(p, fd);
}

/* What was submitted is finished even when the pool closes at once. */
static void test_close_finishes_the_work(void **state)
{
	static uint8_t src[64], dst[64];
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	struct core_copy copy = { .count = 1 };
	struct worker_pool *p;

	(void)state;
	for (int i = 0; i < 50; i++) {
		struct job *job;

		memset(src, i + 1, sizeof(src));
		copy.item[0] = (struct core_copy_item){ .dst = dst, .src = src,
							.bytes = sizeof(src) };
		assert_int_equal(worker_open(&p, THREADS, fd), 0);
		job = worker_job(p);
		job->kind = JOB_COPY;
		job->klass = ABI_CLASS_WRITEBACK;
		job->ops = &ops;
		job->copy = &copy;
		worker_submit(p, job);
		worker_close(p);
		assert_int_equal(dst[63], i + 1);
	}
	close(fd);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_jobs_come_back_once),
		cmocka_unit_test(test_all_jobs_at_once),
		cmocka_unit_test(test_verify_finds_the_bad_pieces),
		cmocka_unit_test(test_brief_jobs_pass_copies),
		cmocka_unit_test(test_patience_is_a_thread_of_its_own),
		cmocka_unit_test(test_urgent_jobs_are_begun_first),
		cmocka_unit_test(test_no_sleep_over_a_finished_job),
		cmocka_unit_test(test_close_finishes_the_work),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("workers", tests, NULL, NULL);
}
