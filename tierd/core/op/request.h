/* SPDX-License-Identifier: Apache-2.0 */
/* A request: where it is in its life (request.c), and what its operation keeps of it. */
#ifndef TIERD_CORE_OP_REQUEST_H
#define TIERD_CORE_OP_REQUEST_H

#include "tierd/core/core.h"

struct context;
struct core;
struct put;
struct stream;

enum request_phase {
	REQUEST_FREE = 0,
	REQUEST_RUN,     /* step() when woken */
	REQUEST_PARKED,  /* parked: a prefetch that is not due (park.c) */
	REQUEST_SPACE,   /* waits for room in a memory tier */
	REQUEST_WRITTEN, /* a durable put: waits for write-back */
	REQUEST_SYNC,    /* waits for a flush */
	REQUEST_ORDER,   /* drain, cancel: waits for other requests */
};

struct request {
	enum request_phase phase;
	uint32_t client;
	uint32_t account;
	struct abi_sqe sqe;
	uint64_t seq; /* order of arrival */
	uint64_t since_ns, deadline_ns;
	struct context *ctx;
	uint8_t *arg; /* CORE_ARG_BYTES_MAX, its own copy */
	bool cancelled, late;
	bool wanted;          /* migrate: write-back was told of the block at the cursor */
	bool queued;          /* in the queue of its phase */
	bool answered;        /* the completion was sent */
	uint32_t connection;  /* of its client: numbers are used again */
	uint32_t outstanding; /* ios and copies under way for it */
	uint32_t cursor;      /* first item not known to be done */
	uint32_t total;
	uint32_t held;        /* fetch: refs [released, held) carry a hold */
	uint32_t released;
	bool holding;         /* ... some are still to be held */
	bool ending;          /* ... nothing is looked for any more: what came is counted */
	uint32_t usable;      /* ending: blocks or pages that are there, before the one at ... */
	uint32_t counting;    /* ... this page of the next block, or page of the list */
	uint32_t stripe;      /* fetch: so many blocks come whole before the next ones */
	uint32_t built;       /* fetch: items before it are there or on their way */
	uint32_t counted;     /* fetch: items before it were looked at once */
	bool room;            /* ... waits for places, not for others' pages */
	uint32_t joined;      /* fetch: items before it raised what others had queued for them */
	uint32_t losses;      /* ... when the scheduler had lost so many */
	bool leaving;         /* ... one of these pages was on its way out: all look again */
	int32_t error;        /* first error; ends it when outstanding is 0 */
	uint32_t status;
	uint8_t path_bad;     /* fetch: PATH_* that failed it */
	bool foreseen;        /* what it brings is staged until a reader comes */
	bool parked;          /* in core.parked */
	uint64_t use_ns;      /* parked: to be there then */
	/* Of the core's own requests: */
	bool charged;         /* to its account's requests */
	void (*ended)(struct core *c, struct request *r, uint64_t value);
	void *owner; /* for whom it is; NULL = nobody any more */
	uint64_t pin;              /* pin, prefetch: that which keeps what came, */
	uint32_t protected_blocks; /* ... and so many blocks */
	bool guard;                /* one of our own: pinned when it came, */
	uint32_t guard_client, guard_layers; /* ... for whom, how much of it, */
	uint64_t guard_ns;         /* ... until then */
	uint32_t moved;       /* migrate: blocks that are where they should be */
	uint64_t read_bytes, copy_bytes;   /* prefetch: to be moved, by the last look */
	uint64_t begun_ns, transfer_ns;    /* ... when it was due, how long it should take */
	uint64_t room_ns;                  /* ... and room for it before that */
	uint64_t behind_bytes; /* ... read when it is used, at a time that was announced */
	struct put *put;
	struct stream *stream;
	bool syncing; /* what is written is known: REQUEST_SYNC until flushes cover it, */
	uint64_t sync_seq[CORE_DRIVES_MAX]; /* ... of each device up to here */
	uint64_t tomb_seq; /* delete: needs the tombstones up to here */
	uint64_t epoch;    /* put-reserve that waits for slots: in which it was asked for */
	bool given;        /* ... idle descriptors were given up for it, once */
	struct request *next; /* in the queue of its phase */
};

struct requests {
	struct request *table, *free;
	uint32_t *orders; /* of each client: those in REQUEST_ORDER */
	uint32_t count, high; /* [0, high) may be in use */
	uint64_t seq;
	uint64_t next_deadline_ns;
};

/* The prompt that a client puts, perhaps in several puts each of which goes on where one ended. */
struct prompt {
	uint32_t context_id;
	uint32_t tail; /* slot of its last block so far */
	uint32_t brought; /* new blocks so far */
	bool joined;      /* its last one was new, too */
};

struct client_puts {
	struct put *first;
	struct prompt prompt;
};

struct puts {
	struct put *table, *free;
	struct client_puts *of; /* [CORE_CLIENTS_MAX] */
	struct put *orphans; /* committing, their client has gone */
	struct put *freeing; /* let go by nobody's step: put_work */
	uint64_t seq;
	uint32_t expire_context; /* whose incomplete blocks are looked at next */
	uint32_t lent; /* places that clients may write, or could until a copy job that flies */
};

/* Who waits for his step, in order of arrival (book/wait.c). */
struct queues {
	struct request *run_head, *run_tail;
	struct request *walk_head, *walk_tail; /* went on for an event's share, and will */
	struct request *space_head, *space_tail;
};

#endif
