/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fio with io_uring as the measure of what the device gives: reads of a file that is fully written,
 * O_DIRECT, never a write (--readonly).
 */
#ifndef TIER_BENCH_MICRO_FIO_H
#define TIER_BENCH_MICRO_FIO_H

#include <stdbool.h>
#include <stdint.h>

struct fio_job {
	const char *file;
	bool random; /* else sequential */
	uint32_t block_bytes;
	uint32_t depth;
	uint32_t ms; /* how long */
	int memory;  /* memfd for its buffers, of fio_memory */
};

/*
 * A memfd for fio's buffers, in huge pages where they can be had, as ours are: with buffers
 * scattered over small pages a virtual disk ran at half its rate, since each page takes an entry of
 * its queue. Negative errno; close it with close().
 */
int fio_memory(void);

/* Is there a fio? */
bool fio_there(void);

/* GB/s of one run. Errors: -ENOENT, -EIO with fio's words on standard error. */
int fio_run(const struct fio_job *job, double *gbps);

/* The depth (1 ... 64), and among these block sizes the size, at which the job is fastest. */
int fio_best(struct fio_job *job, const uint32_t *block_bytes, uint32_t sizes, double *gbps);

#endif
