/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backing fresh memory before the device writes into it. A read into memory that is not there yet
 * would have the kernel allocate 4 KiB pages one by one and pin them, so that they could not become
 * huge any more: 16 pieces for the device where one would do, at half of its bandwidth, for as long
 * as the slab lives. So a read into an area that a worker is still backing waits here, some
 * tenths of a millisecond. So does a punch: carried out first it would free nothing, and memory
 * that nobody holds would be backed behind it. Owned by the loop; called by dispatch.c.
 */
#ifndef TIERD_PREPARE_H
#define TIERD_PREPARE_H

#include <stdbool.h>

#include "tierd/backend/backend_ops.h"

#define PREPARE_AREA ABI_HUGE /* one job's; reads into the others of a slab need not wait */
#define PREPARE_AREAS_MAX 256u
#define PREPARE_HELD_MAX CORE_DEPTH_MAX /* the core has no more under way */
#define PREPARE_PUNCHES_MAX 64u

struct job;

struct prepare {
	const uint8_t *area[PREPARE_AREAS_MAX]; /* being backed, PREPARE_AREA bytes each */
	uint32_t areas;
	struct core_io *held[PREPARE_HELD_MAX]; /* in order */
	uint32_t held_count;
	struct job *punch[PREPARE_PUNCHES_MAX]; /* held, in any order */
	uint32_t punches;
};

/* An area will be backed by a job. False: there are too many; reads will not wait for it. */
bool prepare_begin(struct prepare *p, const void *area);

/* The job is over. */
void prepare_end(struct prepare *p, const void *area);

/* Must the read wait? Then it is kept. */
bool prepare_hold(struct prepare *p, struct core_io *io);

/* The next one that need not wait any more; NULL = none. */
struct core_io *prepare_release(struct prepare *p);

/* Must the punch wait? Then it is kept; where too many are, it goes, and holes.c gives back. */
bool prepare_hold_punch(struct prepare *p, struct job *job);
struct job *prepare_release_punch(struct prepare *p);

#endif
