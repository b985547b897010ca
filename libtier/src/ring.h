/*
 * The two rings of a client region (libtier/abi/ring.h): put an entry in, take a completion out.
 * Only the mechanics: who waits, who wakes and what an entry means is request.c's and wait.c's.
 * The caller holds the connection's lock.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_SRC_RING_H
#define TIER_SRC_RING_H

#include <stdbool.h>

#include "libtier/abi/ring.h"

struct ring {
	struct abi_region_header *shared;
	struct abi_sqe *sqe;
	const struct abi_cqe *cqe;
	uint32_t sq_entries;
	uint32_t cq_entries;
	/* Ours: their copies in shared memory are only written. */
	uint32_t sq_tail;
	uint32_t cq_head;
};

/*
 * Find the rings in a mapped region of bytes. Errors: -EPROTO the header does not fit, the text
 * says where.
 */
int ring_open(struct ring *r, void *region, uint64_t bytes);

/* Errors: -EAGAIN full, -EPROTO the daemon's head is beyond our tail (R3). */
int ring_push(struct ring *r, const struct abi_sqe *entry);

/* After pushing: does the daemon sleep, so that its doorbell must be rung? */
bool ring_must_ring(const struct ring *r);

/* 1: *entry is the next completion; 0: none there; -EPROTO (R3). */
int ring_pop(struct ring *r, struct abi_cqe *entry);

/* Is there something to pop? */
bool ring_ready(const struct ring *r);

/*
 * Ask for a wake-up (or no longer). After asking, look with ring_ready once more before sleeping:
 * a completion may have come in between, without a wake-up.
 */
void ring_ask_wake(struct ring *r, bool on);

/* Has the daemon ended the connection? */
bool ring_closed(const struct ring *r);

/* ... and another one takes over: what it did not answer may be asked again. */
bool ring_handed_over(const struct ring *r);

#endif
