/*
 * Submitting requests and taking their completions, for the files that make requests (ask.c, put.c,
 * put_copy.c, admin) and for wait.c. Separate from request.h because it needs connection.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_SRC_SUBMIT_H
#define TIER_SRC_SUBMIT_H

#include "libtier/base/time.h"
#include "libtier/src/connection.h"

/* A daemon that is alive answers LATE at the deadline; this much longer we wait for that answer. */
#define SUBMIT_GRACE_NS (100 * NS_PER_MS)
#define SUBMIT_DEFAULT_NS (10 * NS_PER_S) /* the daemon's own defaults are shorter */
#define SUBMIT_LONG_NS (30 * NS_PER_S)    /* what ends in a flush, and drain */

/* Until when to wait for a request with this deadline (0 = the daemon's default). */
uint64_t submit_until(uint64_t deadline_ns, uint64_t default_ns);

/* user_data is the caller's: its top bit must be 0. -EINVAL. */
int submit_check_user_data(uint64_t user_data);

/*
 * Build the entry, copy its arguments into the arena, publish it, wake the daemon. Errors:
 * -EAGAIN ring, table or arena full, -ENOTCONN, -ENOENT the daemon lost the context.
 */
int submit_entry(struct tier *t, const struct submission *s, struct request **out)
	REQUIRES(t->lock);

/* The same for a call that does not wait, attaching anew first if need be. */
int submit_start(struct tier *t, const struct submission *s) EXCLUDES(t->wire, t->lock);

/*
 * The same and wait for its completion until until_ns. 0: *out is filled, its result can still be
 * an error. Errors: -EAGAIN no room came, -ENOTCONN, -ETIMEDOUT.
 */
int submit_call(struct tier *t, const struct submission *s, uint64_t until_ns,
		struct tier_completion *out) EXCLUDES(t->wire, t->lock);

/* Wait for a request that submit_entry gave with owner REQUEST_WAITER; it is freed either way. */
int submit_wait(struct tier *t, struct request *rq, uint64_t until_ns, struct tier_completion *out)
	REQUIRES(t->lock);

/* Done with an entry of owner REQUEST_WAITER, answered or not. */
void submit_forget(struct tier *t, struct request *rq) REQUIRES(t->lock);

/* Wake a daemon that sleeps: something for it is in the region. */
void submit_doorbell(struct attachment *a);

/* Read the completion ring; requests change to done, what they held is free. */
void submit_collect(struct tier *t) REQUIRES(t->lock);

/* What this attachment's ring holds, without a look at how the attachment is. */
void submit_answers(struct tier *t, struct attachment *a) REQUIRES(t->lock);

/* Every request under way ends with this error. */
void request_fail_all(struct tier *t, int error) REQUIRES(t->lock);

/* again.c: the daemon of `from` has handed over; what it did not answer is asked of the present
 * one, in the same order. */
void again_all(struct tier *t, struct attachment *from) REQUIRES(t->lock);
/* The commit of a put that the former daemon knew, as submit_entry. */
int again_commit(struct tier *t, const struct submission *s, struct attachment *from,
			 struct request **out) REQUIRES(t->lock);
/* A pin or a reservation, in the order of the others. False: it cannot be asked. */
bool again_promise(struct tier *t, struct tier_context *c, const struct abi_sqe *sqe,
		   const void *args, uint32_t bytes, struct promise *p) REQUIRES(t->lock);
/* Put into the ring what waits for room there. */
void again_push(struct tier *t) REQUIRES(t->lock);
/* No request speaks of the context any more. */
void again_forget_context(struct tier *t, const struct tier_context *c) REQUIRES(t->lock);

/* request.c for again.c */
struct request *again_take(struct tier *t, const struct submission *s) REQUIRES(t->lock);
void again_give(struct tier *t, struct request *rq) REQUIRES(t->lock);
void again_wait(struct tier *t, struct request *rq) REQUIRES(t->lock);
void again_finish(struct tier *t, struct request *rq, const struct abi_cqe *c) REQUIRES(t->lock);

/* Completions on their way to the caller. */
struct taken {
	struct tier_completion *out;
	uint32_t count, max;
	struct done_list loads; /* of these: pieces are still to be copied, without the lock */
};

/* Take completions of a queue, as many as there are and fit. */
void submit_take_done(struct tier *t, struct tier_queue *q, struct taken *taken)
	REQUIRES(t->lock);

/* The loads have been copied. */
void submit_copied(struct tier *t, struct done_list *loads) REQUIRES(t->lock);

/* What a queue held that was closed goes to the others. */
void submit_hand_on(struct tier *t, struct done_list *from) REQUIRES(t->lock);

/* Copy what these loads ask for; their completions, from out on, say how many came. */
void load_copy(struct tier *t, const struct done_list *loads, struct tier_completion *out)
	EXCLUDES(t->copy, t->lock);

/* A completion without a request: for a put whose daemon is gone. -EAGAIN: no entry is free. */
int submit_complete(struct tier *t, const struct tier_completion *completion) REQUIRES(t->lock);

/* Tells the caller what the daemon's answer means; returns the answer's error. */
int submit_explain(const char *what, const struct tier_completion *completion);

#endif
