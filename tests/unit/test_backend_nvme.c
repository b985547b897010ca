/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nvme backend moving bytes with O_DIRECT and io_uring: pieces against a plain copy, transfers
 * that the kernel cuts short, files that end too soon, rings without room.
 */
#include "tests/unit/test_backend_nvme.h"

#define FILE_BYTES (16 * MIB)

/* ---- moving pieces -------------------------------------------------------------------------- */

/* Pieces of random sizes, scattered over a buffer in a random order. */
static void scatter(struct fixture *f, struct core_io *io, uint8_t *buf)
{
	uint32_t n = 1 + below(f, below(f, 2) ? CORE_SEGMENTS_IO : 3);
	uint64_t at = 0;

	memset(io, 0, sizeof(*io));
	io->piece_count = n;
	for (uint32_t i = 0; i < n; i++) {
		io->piece[i].bytes = PAGE * (1 + below(f, 4));
		io->piece[i].addr = buf + at;
		/* Sometimes neighbours, so that they are merged. */
		at += io->piece[i].bytes + PAGE * below(f, 2);
		io->bytes += io->piece[i].bytes;
	}
	for (uint32_t i = 1; i < n && below(f, 2); i++) {
		struct core_io_piece t = io->piece[i];
		uint32_t k = below(f, i);

		io->piece[i] = io->piece[k];
		io->piece[k] = t;
	}
	io->offset = PAGE * below(f, (uint32_t)((FILE_BYTES - io->bytes) / PAGE));
}

#define BUFFER (CORE_SEGMENTS_IO * 5)
#define DEPTH 8u

static void copy_pieces(const struct core_io *io, uint8_t *model, bool to_model)
{
	uint64_t at = io->offset;

	for (uint32_t i = 0; i < io->piece_count; i++) {
		if (to_model)
			memcpy(model + at, io->piece[i].addr, io->piece[i].bytes);
		else
			assert_memory_equal(model + at, io->piece[i].addr, io->piece[i].bytes);
		at += io->piece[i].bytes;
	}
}

/* The model is what was written; reads of several operations at once must agree with it. */
static void test_pieces(void **state)
{
	struct fixture *f = *state;
	uint8_t *model, *buf[DEPTH];
	static struct core_io io[DEPTH];

	start(f, FILE_BYTES, 64);
	model = calloc(1, FILE_BYTES);
	assert_non_null(model);
	if (f->device)
		assert_int_equal(nvme()->pwrite(f->d, model, FILE_BYTES, 0), 0);
	else
		assert_int_equal(nvme()->bytes(f->d), FILE_BYTES);
	for (uint32_t i = 0; i < DEPTH; i++)
		buf[i] = pages(BUFFER);
	for (int round = 0; round < 60; round++) {
		bool writes = round % 2 == 0;
		uint32_t depth = writes ? 1 : DEPTH; /* writes may overlap, so one at a time */

		for (uint32_t i = 0; i < depth; i++) {
			for (size_t k = 0; k < BUFFER * PAGE; k += 8)
				*(uint64_t *)(buf[i] + k) = rng_next(&f->rng);
			scatter(f, &io[i], buf[i]);
			io[i].write = writes;
			assert_int_equal(nvme()->submit(f->d, &f->ring, &io[i]), 0);
		}
		for (uint32_t i = 0; i < depth; i++) {
			struct core_io *done = finish_one(f);

			assert_int_equal(done->res, done->bytes);
			copy_pieces(done, model, writes);
		}
	}
	assert_int_equal(nvme()->flush(f->d), 0);
	for (uint64_t at = 0; at < FILE_BYTES; at += BUFFER * PAGE) {
		size_t n = FILE_BYTES - at < BUFFER * PAGE ? FILE_BYTES - at : BUFFER * PAGE;

		assert_int_equal(nvme()->pread(f->d, buf[0], n, at), 0);
		assert_memory_equal(buf[0], model + at, n);
	}
	for (uint32_t i = 0; i < DEPTH; i++)
		free(buf[i]);
	free(model);
}

static void fill_file(struct fixture *f, uint8_t *buf)
{
	for (size_t i = 0; i < 16 * PAGE; i++)
		buf[i] = (uint8_t)(i / PAGE + 1);
	assert_int_equal(nvme()->pwrite(f->d, buf, 16 * PAGE, 0), 0);
	memset(buf, 0, 16 * PAGE);
}

static void check_read(const uint8_t *buf)
{
	for (uint32_t i = 0; i < 16 * PAGE; i++)
		assert_int_equal(buf[(15 - i / PAGE) * PAGE + i % PAGE], i / PAGE + 1);
}

/* The kernel moved less than asked (told here in its place): the rest is asked for, from the right
 * byte of the right piece. Also when the kernel wants an entry again, and when the ring is full. */
static void test_short_transfers_go_on(void **state)
{
	struct fixture *f = *state;
	static const int cut[] = { -EAGAIN, -EINTR, PAGE, 512, 3 * PAGE + 1024, 15 * PAGE + 512 };
	uint8_t *buf;
	static struct core_io io;

	start(f, MIB, 4);
	buf = pages(16);
	fill_file(f, buf);
	/* A command of NVMe moves all or nothing. */
	for (uint32_t i = 0; i < (nvme()->ring_flags ? 2 : COUNT(cut)); i++) {
		struct io_uring_cqe *cqe;
		uint64_t data, token;
		int res = cut[i];

		fill_io(&io, buf, 16, 0);
		assert_int_equal(nvme()->submit(f->d, &f->ring, &io), 0);
		io_uring_submit(&f->ring);
		assert_int_equal(io_uring_wait_cqe(&f->ring, &cqe), 0);
		assert_int_equal(cqe->res, nvme()->ring_flags ? 0 : io.bytes);
		data = cqe->user_data;
		io_uring_cqe_seen(&f->ring, cqe);
		memset(buf, 0, 16 * PAGE);
		/* What it claims to have read. */
		for (int k = 0; k < (cut[i] > 0 ? cut[i] : 0); k++)
			buf[(15 - k / PAGE) * PAGE + k % PAGE] = (uint8_t)(k / PAGE + 1);
		for (uint32_t k = 0; k < i % 2 * 4; k++) { /* a ring without room */
			struct io_uring_sqe *sqe = io_uring_get_sqe(&f->ring);

			io_uring_prep_nop(sqe);
			sqe->flags |= IOSQE_CQE_SKIP_SUCCESS;
		}
		assert_null(nvme()->complete(f->d, &f->ring, data, &res, &token));
		assert_int_equal(token, 0);
		assert_ptr_equal(finish_one(f), &io);
		assert_int_equal(io.res, io.bytes);
		check_read(buf);
	}
	free(buf);
}

/* An entry that the kernel puts off for ever ends as an error. */
static void test_retries_are_bounded(void **state)
{
	struct fixture *f = *state;
	uint8_t *buf;
	static struct core_io io;
	struct core_io *done = NULL;
	int turns = 0;

	start(f, MIB, 4);
	buf = pages(16);
	fill_io(&io, buf, 2, 0);
	assert_int_equal(nvme()->submit(f->d, &f->ring, &io), 0);
	while (!done) {
		struct io_uring_cqe *cqe;
		uint64_t token;
		int res = -EAGAIN;

		io_uring_submit(&f->ring);
		assert_int_equal(io_uring_wait_cqe(&f->ring, &cqe), 0);
		done = nvme()->complete(f->d, &f->ring, cqe->user_data, &res, &token);
		io_uring_cqe_seen(&f->ring, cqe);
		assert_true(++turns < 100);
	}
	assert_int_equal(done->res, -EAGAIN);
	free(buf);
}

/* Each operation has its own patience: what ones before it used up is none of its. */
static void test_retries_begin_anew(void **state)
{
	struct fixture *f = *state;
	uint8_t *buf;
	static struct core_io io;

	start(f, MIB, 4);
	buf = pages(16);
	for (int i = 0; i < 20; i++) {
		struct core_io *done = NULL;

		fill_io(&io, buf, 2, 0);
		assert_int_equal(nvme()->submit(f->d, &f->ring, &io), 0);
		for (int turns = 0; !done; turns++) {
			struct io_uring_cqe *cqe;
			uint64_t token;
			int res;

			io_uring_submit(&f->ring);
			assert_int_equal(io_uring_wait_cqe(&f->ring, &cqe), 0);
			res = turns < 3 ? -EAGAIN : cqe->res;
			done = nvme()->complete(f->d, &f->ring, cqe->user_data, &res, &token);
			io_uring_cqe_seen(&f->ring, cqe);
		}
		assert_int_equal(done->res, io.bytes);
	}
	free(buf);
}

static void test_short_file(void **state)
{
	struct fixture *f = *state;
	static const uint64_t cut[] = { 0, 8 * PAGE, 8 * PAGE + 512, 8 * PAGE + 100 };
	uint8_t *buf;
	static struct core_io io;

	needs_file(f);
	start(f, MIB, 8);
	buf = pages(16);
	for (uint32_t i = 0; i < COUNT(cut); i++) {
		assert_int_equal(truncate(f->path, MIB), 0);
		assert_int_equal(truncate(f->path, (off_t)cut[i]), 0);
		fill_io(&io, buf, 16, 0);
		assert_int_equal(nvme()->submit(f->d, &f->ring, &io), 0);
		assert_ptr_equal(finish_one(f), &io);
		assert_int_equal(io.res, -EIO);
		assert_int_equal(nvme()->pread(f->d, buf, 16 * PAGE, 0), -ENODATA);
	}
	assert_int_equal(nvme()->pwrite(f->d, buf, PAGE, MIB), -ENOSPC);
	free(buf);
}

/* More than one command may carry, in one piece and in many. */
static void test_large_transfers(void **state)
{
	struct fixture *f = *state;
	uint8_t *buf, *back;
	static struct core_io io;

	start(f, 4 * MIB, 8);
	buf = pages(512);
	back = pages(512);
	for (size_t i = 0; i < 2 * MIB; i += 8)
		*(uint64_t *)(buf + i) = rng_next(&f->rng);
	for (int many = 0; many < 2; many++) {
		for (int write = 1; write >= 0; write--) {
			fill_io(&io, write ? buf : back, 1, MIB / 2);
			io.piece_count = many ? CORE_SEGMENTS_IO : 1;
			io.bytes = 0;
			for (uint32_t i = 0; i < io.piece_count; i++) {
				io.piece[i].bytes = many ? 2 * MIB / CORE_SEGMENTS_IO : 2 * MIB;
				io.piece[i].addr = (write ? buf : back) +
						   io.piece[i].bytes * (i ^ (many ? 1u : 0u));
				io.bytes += io.piece[i].bytes;
			}
			io.write = write;
			assert_int_equal(nvme()->submit(f->d, &f->ring, &io), 0);
			assert_int_equal(finish_one(f)->res, 2 * MIB);
		}
		assert_memory_equal(buf, back, 2 * MIB);
		memset(back, 0, 2 * MIB);
	}
	free(buf);
	free(back);
}

/* An error is told, of a flush, too. A status of NVMe is one, unless it may pass: then it is asked
 * again. */
static void test_errors_are_told(void **state)
{
	struct fixture *f = *state;
	static const struct {
		int res, end; /* what the kernel says; 0: it goes on */
	} said[] = { { -ENODEV, -ENODEV }, { 0x0007, 0 }, { 0x4281, -EIO } };
	uint8_t *buf;
	static struct core_io io;

	start(f, MIB, 4);
	buf = pages(16);
	for (uint32_t i = 0; i < 2 * (nvme()->ring_flags ? COUNT(said) : 1); i++) {
		bool flush = i % 2;
		int res = said[i / 2].res, end = said[i / 2].end;
		struct io_uring_cqe *cqe;
		struct core_io *done;
		uint64_t token, data;

		fill_io(&io, buf, 1, 0);
		assert_int_equal(flush ? nvme()->submit_flush(f->d, &f->ring, 5) :
					 nvme()->submit(f->d, &f->ring, &io), 0);
		io_uring_submit(&f->ring);
		assert_int_equal(io_uring_wait_cqe(&f->ring, &cqe), 0);
		data = cqe->user_data;
		io_uring_cqe_seen(&f->ring, cqe);
		done = nvme()->complete(f->d, &f->ring, data, &res, &token);
		if (!end) {
			assert_null(done);
			assert_int_equal(token, 0);
			done = reap(f, &res, &token);
		}
		assert_int_equal(token, flush ? 5 : 0);
		assert_ptr_equal(done, flush ? NULL : &io);
		assert_int_equal(flush ? res : io.res, end || flush ? end : (int)PAGE);
	}
	free(buf);
}

/* A bad address is an answer, not a crash. */
static void test_kernel_error_is_passed_on(void **state)
{
	struct fixture *f = *state;
	static struct core_io io;

	start(f, MIB, 8);
	fill_io(&io, (uint8_t *)PAGE, 1, 0);
	assert_int_equal(nvme()->submit(f->d, &f->ring, &io), 0);
	assert_ptr_equal(finish_one(f), &io);
	assert_int_equal(io.res, -EFAULT);
}

/* ---- the ring ------------------------------------------------------------------------------- */

static void test_full_ring_says_again(void **state)
{
	struct fixture *f = *state;
	uint8_t *buf;
	static struct core_io io[5];

	start(f, MIB, 4);
	buf = pages(1);
	for (uint32_t i = 0; i < 5; i++) {
		fill_io(&io[i], buf, 1, 0);
		assert_int_equal(nvme()->submit(f->d, &f->ring, &io[i]), i < 4 ? 0 : -EAGAIN);
	}
	assert_int_equal(nvme()->submit_flush(f->d, &f->ring, 1), -EAGAIN);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(finish_one(f)->res, PAGE);
	assert_int_equal(nvme()->submit(f->d, &f->ring, &io[4]), 0);
	assert_int_equal(finish_one(f)->res, PAGE);
	free(buf);
}

/* More than the core can have under way is put off too, and nothing leaks. */
static void test_operations_are_bounded(void **state)
{
	struct fixture *f = *state;
	uint8_t *buf;
	struct core_io *io;

	start(f, MIB, 1024);
	buf = pages(1);
	io = calloc(1000, sizeof(*io));
	assert_non_null(io);
	for (int round = 0; round < 2; round++) {
		uint32_t n = 0;

		for (; n < 1000; n++) {
			fill_io(&io[n], buf, 1, n % 256 * PAGE);
			if (nvme()->submit(f->d, &f->ring, &io[n]))
				break;
		}
		assert_in_range(n, CORE_IO_MAX, CORE_IO_MAX + 100);
		assert_int_equal(nvme()->submit_flush(f->d, &f->ring, 1), -EAGAIN);
		while (n--)
			assert_int_equal(finish_one(f)->res, PAGE);
	}
	free(io);
	free(buf);
}

/* What an operation needs is given back by it: there are far more of them than places. */
static void test_operations_give_their_place_back(void **state)
{
	struct fixture *f = *state;
	uint8_t *buf;
	static struct core_io io;
	uint64_t token;
	int res;

	start(f, MIB, 4);
	buf = pages(16);
	fill_file(f, buf);
	for (uint32_t i = 1; i < 2 * CORE_IO_MAX; i++) {
		assert_int_equal(nvme()->submit_flush(f->d, &f->ring, i), 0);
		assert_null(reap(f, &res, &token));
		assert_int_equal(res, 0);
		assert_int_equal(token, i);
		fill_io(&io, buf, 1, 0);
		assert_int_equal(nvme()->submit(f->d, &f->ring, &io), 0);
		assert_ptr_equal(finish_one(f), &io);
	}
	free(buf);
}

static void test_flush_gives_its_token(void **state)
{
	struct fixture *f = *state;
	uint8_t *buf;
	static struct core_io io;
	uint64_t token, tokens = 0;
	int res;

	start(f, MIB, 8);
	buf = pages(1);
	assert_int_equal(nvme()->submit_flush(f->d, &f->ring, 7), 0);
	assert_null(reap(f, &res, &token));
	assert_int_equal(token, 7);
	fill_io(&io, buf, 1, 0);
	io.write = 1;
	assert_int_equal(nvme()->submit(f->d, &f->ring, &io), 0);
	assert_int_equal(finish_one(f)->res, PAGE);
	assert_int_equal(nvme()->submit_flush(f->d, &f->ring, UINT64_MAX), 0);
	assert_int_equal(nvme()->submit_flush(f->d, &f->ring, 0x10), 0);
	for (int i = 0; i < 2; i++) {
		assert_null(reap(f, &res, &token));
		assert_int_equal(res, 0);
		tokens ^= token;
	}
	assert_int_equal(tokens, UINT64_MAX ^ 0x10);
	free(buf);
}

/* The ring has a table of files already: the plain descriptor is used. Then another ring. */
static void test_foreign_table_and_second_ring(void **state)
{
	struct fixture *f = *state;
	uint8_t *buf;
	static struct core_io io;
	int zero = 0;

	start(f, MIB, 8);
	buf = pages(1);
	assert_int_equal(io_uring_register_files(&f->ring, &zero, 1), 0);
	fill_io(&io, buf, 1, 0);
	assert_int_equal(nvme()->submit(f->d, &f->ring, &io), 0);
	assert_int_equal(finish_one(f)->res, PAGE);
	io_uring_queue_exit(&f->ring);
	/* The same memory, but another ring: found at the next operation only if it fails, so a
	 * device is used with one ring; here a fresh device. */
	nvme()->close(f->d);
	assert_int_equal(try_open(f, 0, &f->d), 0);
	assert_int_equal(io_uring_queue_init(8, &f->ring, nvme()->ring_flags |
					     IORING_SETUP_SINGLE_ISSUER |
					     IORING_SETUP_DEFER_TASKRUN), 0);
	assert_int_equal(nvme()->submit(f->d, &f->ring, &io), 0);
	assert_int_equal(finish_one(f)->res, PAGE);
	free(buf);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_pieces),
		CASE(test_short_transfers_go_on),
		CASE(test_retries_are_bounded),
		CASE(test_retries_begin_anew),
		CASE(test_short_file),
		CASE(test_large_transfers),
		CASE(test_errors_are_told),
		CASE(test_kernel_error_is_passed_on),
		CASE(test_full_ring_says_again),
		CASE(test_operations_are_bounded),
		CASE(test_operations_give_their_place_back),
		CASE(test_flush_gives_its_token),
		CASE(test_foreign_table_and_second_ring),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
