/*
 * Sleeping for completions. Several threads may wait: one of them sleeps on the descriptors (the
 * completion eventfd, the socket, our wake-up), the others on a condition; whoever reads the
 * completion ring hands each completion to its owner and wakes the rest.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_SRC_WAIT_H
#define TIER_SRC_WAIT_H

#include "libtier/src/connection.h"

/*
 * Sleep until something may have moved, or until_ns; the caller looks itself what. The lock is
 * given up meanwhile. A daemon that died in the meantime has been noticed (attach_fail).
 */
void wait_step(struct tier *t, uint64_t until_ns) REQUIRES(t->lock);

/* A daemon that hands over is waited for; the lock is given up meanwhile. */
void wait_handover(struct tier *t) REQUIRES(t->lock);

/* Requests completed: wake those who wait, and the caller's event descriptor. */
void wait_moved(struct tier *t) REQUIRES(t->lock);

/* How many completions of a queue to wait for, to take at most, and how long. */
struct queue_wait {
	uint32_t min; /* 0: what is there */
	uint32_t max;
	uint64_t timeout_ns;
};

/* tier_wait, tier_poll and tier_event_fd of any queue. */
int queue_take(struct tier_queue *q, struct tier_completion *out, const struct queue_wait *w)
	EXCLUDES(q->t->copy, q->t->lock);
int queue_event_fd(struct tier_queue *q) EXCLUDES(q->t->lock);

/* The event descriptors leave a dead attachment, follow a new one. */
void wait_event_forget(struct tier *t, struct attachment *a) REQUIRES(t->lock);
void wait_event_follow(struct tier *t, struct attachment *a) REQUIRES(t->lock);

#endif
