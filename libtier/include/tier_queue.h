/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Completions in several queues of one connection, each with a descriptor of its own: for who has
 * several threads that wait, or must answer on several descriptors. Part of tier.h, which includes
 * it.
 */
#ifndef TIER_QUEUE_H
#define TIER_QUEUE_H

typedef struct tier_queue tier_queue;

/*
 * From now on what completes with a user_data that has `value` in the bits of `mask` comes in this
 * queue, and no more from tier_poll and tier_wait; of several queues that it fits, in the one that
 * was opened first. Errors: -EINVAL value has bits that mask has not, or mask has the top bit,
 * -EMFILE, -ENOMEM. Any thread.
 */
int tier_queue_open(tier *t, uint64_t mask, uint64_t value, tier_queue **out);

/*
 * What it still holds, or what completes later, comes from tier_poll. Closed with the connection.
 * NULL is fine. No other thread may be inside a call with it.
 */
void tier_queue_close(tier_queue *q);

/* As tier_poll, tier_wait, tier_event_fd. Any thread. */
int tier_queue_poll(tier_queue *q, struct tier_completion *out, uint32_t max);
int tier_queue_wait(tier_queue *q, struct tier_completion *out, uint32_t min, uint32_t max,
		    uint64_t timeout_ns);
int tier_queue_fd(tier_queue *q);

#endif
