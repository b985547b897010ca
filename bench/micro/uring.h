/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads of a file by io_uring into as much memory as a tier has, each place in turn, and nothing
 * else: no checksum, no index. fio reads into the same few buffers again and again, which stay in
 * the processor's cache; where the device below is a processor that copies, that can make fio
 * faster than anything that keeps what it reads. This says how much.
 */
#ifndef TIER_BENCH_MICRO_URING_H
#define TIER_BENCH_MICRO_URING_H

#include <liburing.h>
#include <stdbool.h>
#include <stdint.h>

struct uring_job {
	int fd;
	uint64_t file_bytes;
	uint8_t *memory; /* in huge pages where they can be had */
	uint64_t memory_bytes;
	bool random; /* else sequential */
	uint32_t block_bytes, depth;
	uint32_t ms; /* how long */
	struct io_uring ring;
	uint64_t at, place, seed; /* where in the file, in memory; random numbers */
};

/* Errors: of open, memfd_create and io_uring; -ENOMEM. */
int uring_open(struct uring_job *job, const char *file, uint64_t memory_bytes);
void uring_close(struct uring_job *job);

/* GB/s of one run. Errors: of the reads. */
int uring_run(struct uring_job *job, double *gbps);

/* The depth (4 ... 64) at which it is fastest. */
int uring_best(struct uring_job *job);

#endif
