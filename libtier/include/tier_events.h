/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What becomes of a context's blocks, for who follows it: a router that sends prompts to where
 * their prefixes are, or an engine's own index. Events lie in the memory that the context's opener
 * has mapped anyway, so following costs the daemon nothing and it waits for no follower: who is
 * slower than 1,024 events is told that it has lost some, never silently, and begins with a
 * snapshot again.
 *
 *	tier_events_open(context, &events);
 *	snapshot: while ((n = tier_events_snapshot(events, e, 256)) > 0) add each;
 *	while ((n = tier_events_read(events, e, 256, 1000000000)) >= 0) apply each;
 *	if (n == -EOVERFLOW) forget all, goto snapshot;
 *
 * Applied in this order, STORED adds and REMOVED takes away, what is known is what tier_match finds
 * (hits of blocks that have all parts). A block may be told of twice. One handle, one thread at a
 * time; it ends before its context. Part of tier.h, which includes it.
 */
#ifndef TIER_EVENTS_H
#define TIER_EVENTS_H

typedef struct tier_events tier_events;

#define TIER_EVENT_STORED 1u  /* a block is there */
#define TIER_EVENT_MOVED 2u   /* it is in another tier now */
#define TIER_EVENT_REMOVED 3u /* it was evicted, deleted, or leaves with an old epoch */
#define TIER_EVENT_CLEARED 4u /* epoch raised, or context removed: nothing of before is there */

struct tier_event {
	uint64_t seq;    /* of the context, since the daemon's start; 0 in a snapshot */
	uint32_t kind;   /* TIER_EVENT_* */
	uint32_t tier;   /* TIER_HBM ... TIER_NVME: the fastest that has all of the block */
	uint32_t depth;  /* blocks before it in its prefix, as far as known */
	uint32_t reserved;
	uint64_t epoch;
	tier_key key;
	tier_key parent; /* STORED: of the block before it; all zero: none, or not known */
};

/* Follow a context from now on. Errors: -ENOTSUP a daemon without events, -ENOMEM, -EINVAL. */
int tier_events_open(tier_context *c, tier_events **out);

/* NULL is fine. */
void tier_events_close(tier_events *e);

/*
 * All blocks that are there, as STORED, some at each call; 0 = that was all, and tier_events_read
 * goes on from there. max is 128 at least. Errors: -EOVERFLOW the daemon was restarted meanwhile:
 * begin again; -ENOTCONN it is away: begin again later; -ENOENT the context is gone; -EINVAL. No
 * system call.
 */
int64_t tier_events_snapshot(tier_events *e, struct tier_event *out, uint32_t max);

/*
 * The next events, at most max; waits for the first one, looking each millisecond. 0 = none came.
 * Errors: -EOVERFLOW some were lost, or the daemon was restarted: forget what is known and take a
 * snapshot; -ENOENT the context was removed (CLEARED may come before, or not); -EINVAL. Without a
 * timeout no system call.
 */
int64_t tier_events_read(tier_events *e, struct tier_event *out, uint32_t max,
			 uint64_t timeout_ns);

#endif
