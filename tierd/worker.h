/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copy threads: what takes more than a few microseconds of processor time (copies with their
 * checksums, verification of reads, populating and punching memory) happens here and never in the
 * loop. The loop thread owns the pool: it alone calls these functions.
 *
 *   worker_job -> fill in -> worker_submit ... worker_kick      a worker carries the job out
 *   worker_reap -> feed the completion to the core -> worker_put
 *
 * Jobs of a more urgent class are begun first; within a class in the order of submission. A job is
 * not interrupted, and a long copy takes a millisecond: what demand waits for and takes a tenth of
 * that (its reads verified, memory backed for them) is `brief`, and one more thread does only that.
 * Another one waits for the kernel in what nobody waits for (discards), which copies no bytes.
 *
 * Who wakes up on the processor of a copy thread would wait for the kernel's next tick (4 ms at 250
 * Hz; beside staging one demand read in a hundred did). So copy threads take turns as short as the
 * kernel knows (6.12 and later), and offer theirs after each job and every 128 KiB of a copy.
 */
#ifndef TIERD_WORKER_H
#define TIERD_WORKER_H

#include "libtier/base/list.h"
#include "tierd/backend/backend_ops.h"

/* All copies and reads that the core can have under way, and as many memory operations. */
#define WORKER_JOBS_MAX 2048u

enum job_kind {
	JOB_COPY,    /* ops->copy(copy), or ops->commit() of each item and its sum */
	JOB_VERIFY,  /* check each piece of a read: sets io->bad_mask */
	JOB_PREPARE, /* ops->prepare(region, range) */
	JOB_PUNCH,   /* ops->punch(region, range) */
	JOB_DISCARD, /* block->discard(device, range) */
};

struct job {
	enum job_kind kind;
	uint8_t klass; /* ABI_CLASS_* */
	bool brief;    /* demand waits for it, and it is short */
	bool patient;  /* nobody waits for it, and it may take long */
	uint64_t begun_ns;
	const struct mem_ops *ops;
	const struct mem_region *region;
	const struct drive_ops *drive;
	const struct drive *device;
	struct core_range range;
	struct core_copy *copy;
	struct core_io *io;
	int res; /* of PREPARE, PUNCH and DISCARD */
	/* the pool's */
	uint64_t number;
	struct list link;
	uint32_t next; /* in the stack of finished jobs: 1 + index */
};

struct worker_pool;

/*
 * So many copy threads, one for what is brief, one for what takes patience. wake_fd: an eventfd
 * that is written when a job ends while the loop sleeps. -ENOMEM, -EAGAIN.
 */
int worker_open(struct worker_pool **out, uint32_t threads, int wake_fd);

/* Finishes what was submitted, then ends the threads. */
void worker_close(struct worker_pool *p);

uint32_t worker_threads(const struct worker_pool *p); /* that copy */

/* A job to fill in, not a patient one; NULL when all are in use. */
struct job *worker_job(struct worker_pool *p);
uint32_t worker_jobs_free(const struct worker_pool *p);

/* Hand it over. Workers may begin at once; worker_kick wakes those that sleep. */
void worker_submit(struct worker_pool *p, struct job *job);
void worker_kick(struct worker_pool *p);

/* A finished job, or NULL. The caller gives it back with worker_put. */
struct job *worker_reap(struct worker_pool *p);
void worker_put(struct worker_pool *p, struct job *job);

/*
 * The loop is about to sleep: from now a finished job writes wake_fd. False = one has finished
 * already, do not sleep. worker_awake ends it.
 */
bool worker_sleep(struct worker_pool *p);
void worker_awake(struct worker_pool *p);

/*
 * Memory that jobs may refer to is given back only when every job submitted before has been put:
 * take the mark when it falls out of use, and wait until it has passed.
 */
uint64_t worker_mark(const struct worker_pool *p);
bool worker_passed(const struct worker_pool *p, uint64_t mark);

/*
 * Sets io->bad_mask, or io->res if its memory has gone: what the workers do for JOB_VERIFY, for
 * small reads done in place.
 */
void worker_verify(struct core_io *io);

/* Of a write that failed with -EFAULT: sets bad_mask for pieces whose memory has gone. */
void worker_find_gone(struct core_io *io);

/* Of a read that failed so: puts fresh pages where there is poison, for who reads there next. */
void worker_mend(struct core_io *io);

#endif
