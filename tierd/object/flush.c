/* SPDX-License-Identifier: Apache-2.0 */
/* Flushes of several files side by side; see flush.h. */
#include "tierd/object/flush.h"

#include <errno.h>
#include <unistd.h>

void flush_open(struct flush *f)
{
	f->ready = io_uring_queue_init(FLUSH_MAX, &f->ring, 0) == 0;
}

void flush_close(struct flush *f)
{
	if (f->ready)
		io_uring_queue_exit(&f->ring);
	f->ready = false;
}

static int one_by_one(const int *fd, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (fdatasync(fd[i]))
			return -errno;
	return 0;
}

/* False: the kernel did not take all of them. */
static bool submit(struct flush *f, const int *fd, uint32_t count)
{
	int taken = 0, rc;

	for (uint32_t i = 0; i < count; i++) {
		struct io_uring_sqe *e = io_uring_get_sqe(&f->ring);

		if (!e)
			return false;
		io_uring_prep_fsync(e, fd[i], IORING_FSYNC_DATASYNC);
	}
	while (taken < (int)count) {
		rc = io_uring_submit(&f->ring);
		if (rc < 0 && rc != -EINTR && rc != -EAGAIN)
			return false;
		taken += rc > 0 ? rc : 0;
	}
	return true;
}

int flush_all(struct flush *f, const int *fd, uint32_t count)
{
	int first = 0;

	if (!f->ready || count < 2)
		return one_by_one(fd, count);
	if (!submit(f, fd, count)) { /* for good: what it did take may end whenever it likes */
		flush_close(f);
		return one_by_one(fd, count);
	}
	for (uint32_t i = 0; i < count; i++) {
		struct io_uring_cqe *e;
		int rc;

		do
			rc = io_uring_wait_cqe(&f->ring, &e);
		while (rc == -EINTR);
		if (rc == 0) {
			rc = e->res;
			io_uring_cqe_seen(&f->ring, e);
		}
		first = first ? first : rc;
	}
	return first;
}
