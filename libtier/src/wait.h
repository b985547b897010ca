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

/* Requests completed: wake those who wait, and the caller's event descriptor. */
void wait_moved(struct tier *t) REQUIRES(t->lock);

/* The event descriptor leaves a dead attachment, follows a new one. */
void wait_event_forget(struct tier *t, struct attachment *a) REQUIRES(t->lock);
void wait_event_follow(struct tier *t, struct attachment *a) REQUIRES(t->lock);

#endif
