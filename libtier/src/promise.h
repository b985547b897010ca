/*
 * Pins and reservations over a handover; see promise.c.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_SRC_PROMISE_H
#define TIER_SRC_PROMISE_H

#include "libtier/src/connection.h"

/* The daemon said yes to this request, whose arguments these are; others than pins and reservations
 * are passed over. */
void promise_keep(struct tier *t, const struct request *rq, const void *args, uint64_t id)
	REQUIRES(t->lock);

/* The present daemon's number for it: 0 = it gave none, so far. One that is not kept stays. */
uint64_t promise_now(struct tier *t, uint8_t op, uint64_t id) REQUIRES(t->lock);

/* The caller ends it. Returns what the daemon is to be told: 0 = nothing. */
uint64_t promise_end(struct tier *t, uint8_t op, uint64_t id) EXCLUDES(t->lock);

/* Another daemon has taken over: ask it for all of them. */
void promise_ask_again(struct tier *t) REQUIRES(t->lock);
void promise_answered(struct tier *t, struct promise *p, const struct abi_cqe *c)
	REQUIRES(t->lock);

/* Those of a context that is closed; NULL: all. */
void promise_forget(struct tier *t, const struct tier_context *c) REQUIRES(t->lock);

#endif
