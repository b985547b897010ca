/*
 * The inside of a connection and of an open context: what the library's files share.
 *
 * Threads and locks, in the order in which they may be taken:
 *   0. tier.copy   the reader that copies what was loaded (scatter.c)
 *   1. tier.wire   questions on the socket, attaching; held while waiting for the daemon
 *   2. tier.lock   rings, requests, arena, lists; never held while waiting
 * Look-ups and leases take neither: they find the attachment and the maps through the two words
 * that re-attaching replaces, and say that they are inside (attachment.users, tier_reader.active)
 * so that nothing is unmapped under them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_SRC_CONNECTION_H
#define TIER_SRC_CONNECTION_H

#include <stdbool.h>
#include <tier.h>

#include "libtier/base/atomic.h"
#include "libtier/base/list.h"
#include "libtier/base/lock.h"
#include "libtier/src/arena.h"
#include "libtier/src/geometry.h"
#include "libtier/src/map.h"
#include "libtier/src/request.h"
#include "libtier/src/ring.h"
#include "libtier/src/socket.h"

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

#define CONNECTION_PATH_BYTES 108u
#define CONNECTION_STAGING_DEFAULT (64ull << 20)
#define CONNECTION_REQUESTS_DEFAULT 1024u
#define CONNECTION_REQUESTS_MAX 16384u
#define CONNECTION_READERS_DEFAULT 16u

/* How long we wait for the daemon where the caller named no deadline. */
#define CONNECTION_CONNECT_NS (5 * NS_PER_S)
#define CONNECTION_REATTACH_NS (1 * NS_PER_S)
#define CONNECTION_BACKOFF_NS (100 * NS_PER_MS)
#define CONNECTION_ANSWER_NS (30 * NS_PER_S)
/* For a daemon that takes over; one that dies instead hangs up. */
#define CONNECTION_HANDOVER_NS (10 * NS_PER_S)

/* What readers did; of a closed reader kept in its connection. */
struct reader_counts {
	uint64_t leases;
	uint64_t not_ready;
	uint64_t stale;
	uint64_t retries;
};

/*
 * One life of the connection: a socket and what came through it. A new one is made when the daemon
 * was restarted or ended the connection. The struct itself is never freed before tier_close, so
 * that a late look at `users` is harmless; what it holds goes when nobody is inside
 * (attach_reclaim).
 */
struct attachment {
	uint64_t number; /* 1, 2, ... within a connection; constant */
	uint32_t users;  /* atomic: calls without a reader, inside */
	uint32_t readers_max;
	struct abi_reader *readers; /* constant */
	/* the rest: tier.lock */
	struct list link; /* in tier.old or tier.spare */
	struct list maps;
	bool dead;      /* the daemon hung up or broke the protocol: no request goes or comes */
	uint32_t puts;  /* puts that write into the staging arena */
	uint32_t streams;         /* open ones, which look at their line in the region */
	uint64_t stream_used;     /* bit i: line i of the region is a stream's */
	uint32_t stream_serial;   /* generations given */
	uint32_t streams_max;     /* lines that there are; constant */
	uint64_t stream_word[ABI_STREAMS_MAX]; /* atomic: struct tier_stream *, of a line */
	struct abi_stream *lines; /* constant */
	uint64_t boot_token;
	bool owners;    /* this daemon tells whose contexts are; constant */
	bool usage;     /* ... and who holds what of them */
	bool slabs;     /* it lends slabs to devices; constant */
	bool places;    /* it grants places of puts; constant */
	struct socket socket; /* used under tier.wire; its fd also polled */
	int doorbell;
	int event; /* completion eventfd */
	struct ring ring;
	struct arena arena;
	uint8_t *staging;
	uint64_t staging_bytes;
	void *region;
	uint64_t region_bytes;
};

/* Completions of the caller's, and who waits for them; the connection has one of its own. */
struct tier_queue {
	struct tier *t;
	struct list link;     /* in tier.queues; constant for the connection's own */
	uint64_t mask, value; /* bits of user_data that bring a completion here; constant */
	/* the rest: tier.lock */
	struct done_list done;
	int event_fd;  /* epoll over event, socket, notify; -1 until asked for */
	int notify;    /* eventfd: what another call took for us is in our list */
	bool notified; /* it is signalled */
};

struct tier {
	/* constant after connect */
	const uint32_t *alive; /* 1; 0 in a forked child (MADV_WIPEONFORK) */
	char path[CONNECTION_PATH_BYTES];
	char name[32];
	uint64_t staging_bytes;
	uint32_t request_entries;
	uint32_t readers_wanted;
	int wake; /* eventfd of ours: wakes the thread that polls for all (wait.c) */

	uint64_t attachment_word; /* atomic: struct attachment *; replaced under wire and lock */
	uint64_t lookups;         /* atomic, relaxed: accounts */
	uint64_t lookup_hits;

	struct lock copy;
	struct tier_reader *copier GUARDED_BY(copy); /* of loads; NULL until there is one */

	struct lock wire;
	struct message *message GUARDED_BY(wire); /* the answer being read */
	uint64_t retry_ns GUARDED_BY(wire);       /* no attempt to attach before */

	struct lock lock;
	pthread_cond_t moved; /* with lock: a request completed, room was made */
	struct requests requests GUARDED_BY(lock);
	struct list contexts GUARDED_BY(lock); /* changed under wire, too */
	struct list readers GUARDED_BY(lock);
	struct list puts GUARDED_BY(lock);
	struct list promises GUARDED_BY(lock);
	struct list streams GUARDED_BY(lock);
	struct list objects GUARDED_BY(lock);
	struct list devices GUARDED_BY(lock);
	struct list old GUARDED_BY(lock);   /* attachments with somebody inside, maybe */
	struct list spare GUARDED_BY(lock); /* empty ones */
	uint64_t readers_used GUARDED_BY(lock); /* bit i: area i is owned */
	struct reader_counts reader_counts GUARDED_BY(lock);
	uint64_t last_number GUARDED_BY(lock);    /* attachments made */
	uint64_t last_shared GUARDED_BY(lock);    /* maps that several handles have */
	uint64_t checked_number GUARDED_BY(lock); /* what tier_check last told */
	uint64_t reattached GUARDED_BY(lock);
	/* The daemon hands over: until when the next one is awaited, and nothing fails; 0 = no. */
	uint64_t handover_ns GUARDED_BY(lock);
	uint64_t unbroken GUARDED_BY(lock); /* attachments from this number on were handed over */
	bool polling GUARDED_BY(lock); /* a thread sleeps on the descriptors for all */
	struct tier_queue own;               /* what fits no other queue */
	struct list queues GUARDED_BY(lock); /* the others, oldest first, then own */
	int hosts_fd GUARDED_BY(lock);  /* an idle connection to tierd-net; -1 = none */
};

struct tier_context {
	uint64_t map_word; /* atomic: struct map *; replaced under wire and lock */
	struct tier *t;
	const uint32_t *alive;
	struct tier_geometry geometry; /* constant */
	struct list link;              /* tier.lock */
	char name[ABI_NAME_BYTES];
	uint8_t fingerprint[32];
	struct wire_ctx *create; /* how to make it anew; NULL when it was only opened */
	uint32_t owner;          /* atomic: uid, if the daemon said */
	bool owned;              /* ... it did; constant */
	uint64_t shares;         /* shared of the map that it had first; 0 = its own; constant */
};

static inline struct attachment *connection_attachment(const struct tier *t)
{
	return (struct attachment *)(uintptr_t)atomic_load_acquire_u64(&t->attachment_word);
}

static inline struct map *context_map(const struct tier_context *c)
{
	return (struct map *)(uintptr_t)atomic_load_acquire_u64(&c->map_word);
}

/* Close its descriptors. */
void queue_fini(struct tier_queue *q);

/* The queue in which a completion comes. */
static inline struct tier_queue *queue_of(struct tier *t, uint64_t user_data) REQUIRES(t->lock)
{
	list_each(at, &t->queues) {
		struct tier_queue *q = list_entry(at, struct tier_queue, link);

		if ((user_data & q->mask) == q->value)
			return q;
	}
	return &t->own;
}

/* Are we a forked child of the process that connected? */
static inline bool connection_orphaned(const uint32_t *alive)
{
	return unlikely(atomic_load_relaxed_u32(alive) == 0);
}

/* The handle is NULL or belongs to the parent: -EINVAL, -EOWNERDEAD, else 0. */
int connection_check(const struct tier *t);
int context_check(const struct tier_context *c);

/*
 * The context's map, for a call without a reader; nothing of it is unmapped until context_leave.
 * NULL: it is being replaced at this moment, which is a miss.
 */
const struct map *context_enter(struct tier_context *c, struct attachment **a);
void context_leave(struct attachment *a);

#endif
