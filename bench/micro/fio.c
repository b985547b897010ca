/* SPDX-License-Identifier: Apache-2.0 */
/* Running fio as a child and reading its JSON; see fio.h. */
#include "bench/micro/fio.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/micro/chase.h"
#include "libtier/base/cleanup.h"

#define DEPTH_MAX 64u
#define MEMORY_BYTES ((uint64_t)80 << 20) /* 64 blocks of 1 MiB, and what fio adds */
#define ARGUMENT_BYTES 1100

int fio_memory(void)
{
	int fd = memfd_create("fio", MFD_CLOEXEC);
	void *at;

	if (fd < 0 || ftruncate(fd, (off_t)MEMORY_BYTES))
		return -errno;
	at = chase_map(fd, MEMORY_BYTES, true);
	if (!at)
		return -ENOMEM;
	munmap(at, MEMORY_BYTES);
	return fd;
}

/* In the child. */
static void become(const struct fio_job *job, int out)
{
	char file[ARGUMENT_BYTES], depth[64], block[64], runtime[64], memory[64];
	int buffers = dup(job->memory); /* without close-on-exec */

	snprintf(file, sizeof(file), "--filename=%s", job->file);
	snprintf(depth, sizeof(depth), "--iodepth=%u", job->depth);
	snprintf(block, sizeof(block), "--bs=%u", job->block_bytes);
	snprintf(runtime, sizeof(runtime), "--runtime=%ums", job->ms);
	snprintf(memory, sizeof(memory), "--mem=mmapshared:/proc/self/fd/%d", buffers);
	if (buffers < 0 || dup2(out, 1) < 0)
		_exit(126);
	/* A ':' in a path would mean two files. */
	if (strchr(job->file, ':'))
		_exit(125);
	execlp("fio", "fio", "--name=peer", "--readonly", "--ioengine=io_uring", "--direct=1",
	       "--time_based", "--randrepeat=0", "--norandommap", "--output-format=json",
	       job->random ? "--rw=randread" : "--rw=read", file, depth, block, runtime, memory,
	       NULL);
	_exit(127);
}

static int run(const struct fio_job *job, FILE *output)
{
	pid_t pid;
	int status;

	fflush(NULL);
	pid = fork();
	if (pid == 0)
		become(job, fileno(output));
	if (pid < 0)
		return -errno;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		return WIFEXITED(status) && WEXITSTATUS(status) == 127 ? -ENOENT : -EIO;
	return 0;
}

int fio_run(const struct fio_job *job, double *gbps)
{
	FILE *output CLEANUP_FCLOSE = tmpfile();
	const json_t *bandwidth;
	json_t *all;
	int error;

	if (!output)
		return -errno;
	error = run(job, output);
	if (error)
		return error;
	rewind(output);
	all = json_loadf(output, JSON_DISABLE_EOF_CHECK, NULL);
	bandwidth = json_object_get(
		json_object_get(json_array_get(json_object_get(all, "jobs"), 0), "read"),
		"bw_bytes");
	error = json_is_number(bandwidth) ? 0 : -EPROTO;
	*gbps = json_number_value(bandwidth) / 1e9;
	json_decref(all);
	return error;
}

bool fio_there(void)
{
	int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC), status = 0;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		dup2(nothing, 1);
		execlp("fio", "fio", "--version", NULL);
		_exit(127);
	}
	if (nothing >= 0)
		close(nothing);
	return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

int fio_best(struct fio_job *job, const uint32_t *block_bytes, uint32_t sizes, double *gbps)
{
	struct fio_job best = *job, at = *job;
	double most = 0;

	for (uint32_t s = 0; s < sizes; s++)
		for (at.depth = 1; at.depth <= DEPTH_MAX; at.depth *= 2) {
			double rate;
			int error;

			at.block_bytes = block_bytes[s];
			error = fio_run(&at, &rate);
			if (error)
				return error;
			if (rate <= most)
				continue;
			most = rate;
			best = at;
		}
	*job = best;
	*gbps = most;
	return 0;
}
