/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store in a folder of its own and a ring, for the tests of the nvme backend. TMPDIR must lie on
 * a file system with O_DIRECT, else what needs it is skipped. With TIER_TEST_DRIVE=PATH in the
 * environment the store is that device, whose bytes are lost, and what needs a file is skipped;
 * with TIER_TEST_BACKEND=passthrough it is used that way (tests/vm).
 */
#ifndef TIER_TESTS_BACKEND_NVME_H
#define TIER_TESTS_BACKEND_NVME_H

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/property.h"
#include "tests/lib/unit.h"
#include "tierd/backend/backend_ops.h"

#define MIB (1ull << 20)
#define PAGE 4096u

static inline const struct drive_ops *nvme(void)
{
	const struct drive_ops *ops = drive_backend(getenv("TIER_TEST_BACKEND"));

	assert_non_null(ops);
	return ops;
}

struct fixture {
	char folder[256];
	char path[300];
	const char *device; /* that is the store; NULL: a file is */
	struct drive *d;
	struct io_uring ring;
	bool has_ring;
	bool direct;
	uint64_t progress_calls, progress_done, progress_total;
	struct rng rng;
};

static inline uint32_t below(struct fixture *f, uint32_t n)
{
	return (uint32_t)rng_below(&f->rng, n);
}

static inline void on_progress(void *arg, uint64_t done, uint64_t total)
{
	struct fixture *f = arg;

	assert_true(done > f->progress_done && done <= total);
	f->progress_calls++;
	f->progress_done = done;
	f->progress_total = total;
}

static inline int make(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	const char *tmp = getenv("TMPDIR");
	struct drive_options options = { 0 };
	struct backend_info info;

	assert_non_null(f);
	snprintf(f->folder, sizeof(f->folder), "%s/nvme.XXXXXX", tmp ? tmp : "/var/tmp");
	assert_non_null(mkdtemp(f->folder));
	snprintf(f->path, sizeof(f->path), "%s/store", f->folder);
	f->device = getenv("TIER_TEST_DRIVE");
	if (f->device)
		snprintf(f->path, sizeof(f->path), "%s", f->device);
	options.path = f->path;
	assert_int_equal(nvme()->probe(&options, &info), 0);
	f->direct = !info.emulated;
	f->rng.state = 1;
	*state = f;
	return 0;
}

static inline int unmake(void **state)
{
	struct fixture *f = *state;

	if (f->has_ring)
		io_uring_queue_exit(&f->ring);
	nvme()->close(f->d);
	if (!f->device)
		unlink(f->path);
	assert_int_equal(rmdir(f->folder), 0); /* no test leaves anything else */
	free(f);
	return 0;
}

static inline int try_open(struct fixture *f, uint64_t bytes, struct drive **d)
{
	struct drive_options options = {
		.path = f->path,
		.bytes = f->device ? 0 : bytes,
		.progress = on_progress,
		.arg = f,
	};

	f->progress_calls = f->progress_done = 0;
	return nvme()->open(d, &options);
}

static inline void start(struct fixture *f, uint64_t bytes, unsigned entries)
{
	if (!f->direct)
		skip();
	assert_int_equal(try_open(f, bytes, &f->d), 0);
	assert_int_equal(io_uring_queue_init(entries, &f->ring, nvme()->ring_flags), 0);
	f->has_ring = true;
}

static inline void needs_file(const struct fixture *f)
{
	if (f->device)
		skip();
}

static inline void *pages(size_t count)
{
	void *p = aligned_alloc(PAGE, count * PAGE);

	assert_non_null(p);
	return p;
}

/* Wait for one completion and hand it in; the io, or NULL when it goes on or was a flush. */
static inline struct core_io *reap(struct fixture *f, int *res, uint64_t *token)
{
	struct io_uring_cqe *cqe;
	uint64_t data;

	assert_true(io_uring_submit(&f->ring) >= 0);
	assert_int_equal(io_uring_wait_cqe(&f->ring, &cqe), 0);
	data = cqe->user_data;
	*res = cqe->res;
	io_uring_cqe_seen(&f->ring, cqe);
	assert_true(data & DRIVE_TAG);
	return nvme()->complete(f->d, &f->ring, data, res, token);
}

static inline struct core_io *finish_one(struct fixture *f)
{
	struct core_io *io = NULL;
	uint64_t token;
	int res;

	while (!io)
		io = reap(f, &res, &token);
	return io;
}

static inline void fill_io(struct core_io *io, uint8_t *buf, uint32_t pieces, uint64_t offset)
{
	memset(io, 0, sizeof(*io));
	io->piece_count = pieces;
	for (uint32_t i = 0; i < pieces; i++) {
		/* Backwards, so that no two are neighbours. */
		io->piece[i].addr = buf + (pieces - 1 - i) * PAGE;
		io->piece[i].bytes = PAGE;
	}
	io->bytes = pieces * PAGE;
	io->offset = offset;
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, make, unmake)

#endif
