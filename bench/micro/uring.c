/* SPDX-License-Identifier: Apache-2.0 */
/* Plain reads by io_uring; see uring.h. */
#include "bench/micro/uring.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/micro/chase.h"
#include "libtier/base/time.h"

#define DEPTH_MAX 64u

static int map(struct uring_job *job)
{
	int fd = memfd_create("uring", MFD_CLOEXEC), error = 0;

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)job->memory_bytes))
		error = -errno;
	else
		job->memory = chase_map(fd, job->memory_bytes, true);
	close(fd);
	return error ? error : job->memory ? 0 : -ENOMEM;
}

int uring_open(struct uring_job *job, const char *file, uint64_t memory_bytes)
{
	struct io_uring_params p = { .flags = IORING_SETUP_SINGLE_ISSUER |
					      IORING_SETUP_DEFER_TASKRUN };
	struct stat st;
	int error;

	*job = (struct uring_job){ .memory_bytes = memory_bytes,
				   .seed = UINT64_C(0x9e3779b97f4a7c15) };
	job->fd = open(file, O_RDONLY | O_DIRECT | O_CLOEXEC);
	if (job->fd < 0)
		return -errno;
	if (fstat(job->fd, &st)) {
		error = -errno;
		close(job->fd);
		return error;
	}
	job->file_bytes = (uint64_t)st.st_size;
	error = map(job);
	if (!error)
		error = io_uring_queue_init_params(DEPTH_MAX, &job->ring, &p);
	if (error) {
		if (job->memory)
			munmap(job->memory, job->memory_bytes);
		close(job->fd);
	}
	return error;
}

void uring_close(struct uring_job *job)
{
	io_uring_queue_exit(&job->ring);
	munmap(job->memory, job->memory_bytes);
	close(job->fd);
}

static void ask(struct uring_job *job)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&job->ring); /* as many as the depth */
	uint64_t blocks = job->file_bytes / job->block_bytes;

	job->at = job->random ? bench_random_below(&job->seed, (uint32_t)blocks)
			      : (job->at + 1) % blocks;
	job->place = (job->place + 1) % (job->memory_bytes / job->block_bytes);
	io_uring_prep_read(sqe, job->fd, job->memory + job->place * job->block_bytes,
			   job->block_bytes, job->at * job->block_bytes);
}

/* What has come; an error of one of them. */
static int take(struct uring_job *job, uint32_t *came)
{
	struct io_uring_cqe *cqe;
	int error = 0;

	for (*came = 0; !io_uring_peek_cqe(&job->ring, &cqe); ++*came) {
		if (cqe->res != (int)job->block_bytes)
			error = cqe->res < 0 ? cqe->res : -EIO;
		io_uring_cqe_seen(&job->ring, cqe);
	}
	return error;
}

int uring_run(struct uring_job *job, double *gbps)
{
	uint64_t from = time_now_ns(), bytes = 0;
	uint32_t under_way = 0, came;
	bool more = true;
	int error = 0;

	while (more || under_way) {
		int rc;

		for (; more && under_way < job->depth; under_way++)
			ask(job);
		rc = io_uring_submit_and_wait(&job->ring, 1);
		if (rc < 0 && rc != -EINTR)
			return rc;
		rc = take(job, &came);
		error = error ? error : rc;
		under_way -= came;
		bytes += (uint64_t)came * job->block_bytes;
		more = !error && time_now_ns() - from < job->ms * NS_PER_MS;
	}
	*gbps = (double)bytes / (double)(time_now_ns() - from);
	return error;
}

int uring_best(struct uring_job *job)
{
	double most = 0, rate = 0;
	uint32_t best = 4;

	for (job->depth = best; job->depth <= DEPTH_MAX; job->depth *= 2) {
		int error = uring_run(job, &rate);

		if (error)
			return error;
		if (rate <= most)
			continue;
		most = rate;
		best = job->depth;
	}
	job->depth = best;
	return 0;
}
