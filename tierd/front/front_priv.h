/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the front: connections and what its files do for each other. All of it belongs to the loop
 * thread.
 *
 *   FREE -> GREETING -> OPEN -> GONE -> DEAD -> FREE
 *             |                   |      the core was told DEAD; jobs may still refer to staging
 *             |                   the core was told GONE; hazard words still count
 *             connected, no HELLO yet: in a slot of the lobby, behind those of clients, which the
 *             core does not know; HELLO moves it to a client's slot, the time-out frees it
 */
#ifndef TIERD_FRONT_FRONT_PRIV_H
#define TIERD_FRONT_FRONT_PRIV_H

#include "libtier/base/list.h"
#include "tierd/front/front.h"

#define CONNECTION_STAGING_DEFAULT (64ull << 20)
#define CONNECTION_SQ_DEFAULT 1024u
#define CONNECTION_SQ_MIN 8u
#define CONNECTION_SQ_MAX 16384u
#define CONNECTION_READERS_DEFAULT 16u
#define CONNECTION_GREETING_NS 5000000000ull /* from connect to HELLO */
#define CONNECTION_TAKE_MAX 64u              /* entries of one client a turn */
#define FRONT_FULL_NS 2000000ull /* how often a full completion ring is looked at again */
#define FRONT_REVOKE_NS 20000000ull /* how often pinned memory is looked at again */
#define FRONT_LOBBY 64u          /* connections without a HELLO yet */
_Static_assert(CORE_CLIENTS_MAX + FRONT_LOBBY < CORE_TOKENS_MAX, "each asks one thing at a time");

enum connection_state {
	CONNECTION_FREE = 0,
	CONNECTION_GREETING,
	CONNECTION_OPEN,
	CONNECTION_GONE,
	CONNECTION_DEAD,
};

/*
 * A memfd of ours, handed to the client, which could punch holes into it while we read: a page
 * fault of ours would wait for that. So until the client has sealed it (R5), private zeros lie at
 * addr in its place; grant_settle lays it there.
 */
struct shared {
	int fd;
	void *addr;
	uint64_t bytes;
	void *apart; /* where it is mapped until then; NULL: nowhere, or settled */
};

struct connection {
	enum connection_state state;
	uint32_t id;
	uint32_t generation; /* of the slot: tells late events and replies apart */
	/* who */
	int sock;
	int pidfd;
	uint32_t uid, gid;
	int32_t pid;
	bool operator_;
	char name[32];
	uint64_t since_ns;
	/* shared with the client */
	struct shared region;
	struct shared staging;
	bool settled; /* sealed, and mapped */
	bool device;  /* it said WIRE_HELLO_DEVICE */
	int doorbell; /* eventfd the client writes: watched edge-triggered, never read by us */
	int event;    /* eventfd we signal */
	struct abi_region_header *header;
	const struct abi_sqe *sq;
	struct abi_cqe *cq;
	const struct abi_reader *readers;
	struct abi_stream *streams;
	uint32_t sq_entries, cq_entries, readers_max;
	/* rings: our own copies of what we wrote */
	uint32_t sq_head, cq_tail;
	uint32_t in_flight; /* taken, not completed */
	uint64_t taken, posted;
	uint64_t active_ns;      /* last time the ring had something */
	bool watched;            /* in front.watched, else parked with sq_wake set */
	bool full;               /* R2 holds it back */
	struct list watched_link;
	bool owes_wake;          /* in front.posted */
	bool must_wake;          /* ... whatever cq_wait says: a stream moved */
	struct list posted_link;
	/* control: one question at a time (W1) */
	bool asking;  /* waits for a REPLY */
	struct wire_object *listing; /* a list of names that goes on */
	struct wire_ctx *again; /* a create that waits for another one of the same name */
	uint32_t events; /* of the socket, in the epoll set */
	uint32_t text_seq;
	char *text;   /* the rest of a long answer */
	size_t text_bytes, text_sent;
	bool former;   /* GONE: of the former daemon; takes no new lease (handover.c) */
	bool revoking; /* GONE: some device may still read what was taken back */
	uint64_t mark; /* DEAD: jobs that may refer to staging */
};

/* A question whose answer comes with a REPLY; outlives its connection. */
enum pending_kind {
	PENDING_FREE = 0,
	PENDING_CREATE,
	PENDING_REMOVE,
	PENDING_EPOCH,
	PENDING_ADMIN,
};

struct pending {
	enum pending_kind kind;
	uint32_t connection, generation;
	uint32_t seq;
	uint32_t context_id;
	uint64_t token;
	enum obs_deed_kind deed;
	char name[ABI_NAME_BYTES]; /* of the context */
	uint64_t context_uid; /* REMOVE: of one that holds objects; else 0 */
};

/* One request a class is timed at a time. */
struct sample {
	bool running;
	uint32_t client;
	uint64_t user_data, since_ns;
};

struct front {
	struct front_config config;
	int epoll;
	int listener;      /* -1 = not listening */
	char bound[108];   /* path to unlink */
	bool closing;      /* front_unlisten or front_leave_socket was called */
	bool handing;      /* front_leave_socket was: another daemon comes */
	bool woke_here;    /* front_woke_here will say so */
	bool peer_pidfd;
	struct connection *connection; /* [clients_max] */
	uint32_t slots; /* clients_max + FRONT_LOBBY */
	uint32_t next_slot;
	struct list watched;
	struct list posted;
	uint32_t greeting, dead, full, waiting, revoking; /* connections in these states */
	uint32_t listings, next_listing;
	uint64_t revoke_next_ns;
	uint64_t recalls; /* the core's count, of which clients were told */
	uint32_t former; /* connections */
	uint64_t former_next_ns;
	int spare_fd; /* given up for a moment when descriptors run out */
	struct pending *pending;
	uint32_t pending_max;
	uint64_t token; /* counts questions that wait */
	/* wake-ups (ring_out.c) */
	uint64_t aio; /* aio_context_t; 0 = none */
	int aio_fd;
	uint8_t aio_byte;
	struct sample sample[ABI_CLASS_COUNT];
	struct hist latency[ABI_CLASS_COUNT];
	union {
		struct wire_header header;
		struct wire_hello hello;
		struct wire_ctx ctx;
		struct wire_slab slab;
		struct wire_place place;
		struct wire_admin admin;
		struct wire_object object;
		struct wire_object_hold hold;
		uint8_t bytes[WIRE_MESSAGE_MAX + 1];
	} in; /* the message being judged */
	uint8_t out[WIRE_MESSAGE_MAX];
};

/* watch.c: the epoll set. A watch carries what it is, the slot and its generation. */
enum watch_kind { WATCH_LISTEN = 1, WATCH_SOCKET, WATCH_PROCESS, WATCH_DOORBELL };
int watch_add(struct front *f, const struct connection *s, enum watch_kind kind, int fd,
	      uint32_t events);
void watch_change(struct front *f, const struct connection *s, enum watch_kind kind, int fd,
		  uint32_t events);
void watch_remove(struct front *f, int fd);
/* Listen to the socket for these events only (0: hang-up alone). */
void watch_socket(struct front *f, struct connection *s, uint32_t events);

/* listen.c */
bool listen_has_pidfd(void);
void listen_accept(struct front *f, struct turn *t);
void listen_stop(struct front *f);

/* connection.c */
struct connection *connection_find(struct front *f, uint32_t id, uint32_t generation);

/* By which its descriptors of memory are revoked; no other connection ever has it. */
static inline uint64_t connection_tag(const struct connection *s)
{
	return (uint64_t)s->generation << 32 | s->id;
}
/* A slot of the lobby; when all are taken the oldest connection goes. */
struct connection *connection_greet(struct front *f, struct turn *t);
/*
 * HELLO was good: move from the lobby to a client's slot, make the shared memory, tell the core.
 * The lobby's connection is gone on success. Errors: -EUSERS, -ENOMEM, -EMFILE.
 */
int connection_begin(struct front *f, struct turn *t, struct connection *lobby,
		     const struct wire_hello *hello, struct connection **out);
/* error 0: the client hung up. */
void connection_end(struct front *f, struct turn *t, struct connection *s, int error,
		    const char *why);
void connection_process_dead(struct front *f, struct turn *t, struct connection *s);
void connection_reap(struct front *f);
/* A client's slot, all its numbers clear but its own; NULL = there is none. */
struct connection *connection_slot(struct front *f);
/* GONE -> DEAD */
void connection_dead(struct front *f, struct turn *t, struct connection *s);
/* Do its readers hold nothing at this moment? */
bool connection_holds_nothing(const struct connection *s);
void connection_free(struct front *f, struct connection *s);

/* grant.c */
int grant_shared(struct shared *out, const char *label, uint64_t bytes, int protection);
/* Gives both back; what takes long does so in a thread of its own. */
void grant_release(struct connection *s);
/* From now on we see what the client writes. Errors: -EPROTO it sealed not both; -ENOMEM. */
int grant_settle(struct connection *s);
/* What the client is told then. */
const char *grant_unsettled(int error);
/* Lay the region out; sizes are the connection's. */
int grant_region(struct front *f, struct connection *s);
/* Send a message with descriptors. Errors: -EAGAIN the client does not read, -EPIPE ... */
int grant_send(struct connection *s, const void *message, size_t bytes, const int *fd,
	       uint32_t count);

/* ring_in.c */
void ring_watch(struct front *f, struct connection *s, uint64_t now_ns);
void ring_unwatch(struct front *f, struct connection *s);

/* ring_out.c */
int ring_out_open(struct front *f);
void ring_out_close(struct front *f);
void ring_out_signal(struct front *f, const int *fd, uint32_t count);

/* control.c */
void control_receive(struct front *f, struct turn *t, struct connection *s);
struct wire_header *control_message(struct front *f, uint16_t type, size_t bytes, uint32_t seq);
/* Send the message, with descriptors or without; when that fails the connection ends. */
void control_grant(struct front *f, struct turn *t, struct connection *s, const int *fd,
		   uint32_t count);
void control_send(struct front *f, struct turn *t, struct connection *s);
void control_error(struct front *f, struct turn *t, struct connection *s, int error,
		   const char *why);
/* The REPLY that says: a removed context's memory may go. Of no question. */
#define CONTROL_TOKEN_GONE UINT64_MAX
/* A place to wait for a REPLY; NULL when too many are under way. */
struct pending *control_pending(struct front *f, const struct connection *s,
				enum pending_kind kind);
void control_forget(struct pending *p);
bool control_zero(const void *bytes, size_t count);

/* context.c: the messages about contexts */
void context_create(struct front *f, struct turn *t, struct connection *s);
void context_open(struct front *f, struct turn *t, struct connection *s);
void context_remove(struct front *f, struct turn *t, struct connection *s);
void context_epoch(struct front *f, struct turn *t, struct connection *s);
void context_usage(struct front *f, struct turn *t, struct connection *s);
/* A create is over: those who wait for one look again. */
void context_retry(struct front *f, struct turn *t);
void context_created(struct front *f, struct turn *t, struct connection *s, uint32_t id);

/* slab.c: slabs for devices */
void slab_take(struct front *f, struct turn *t, struct connection *s);
void slab_leave(struct front *f, struct turn *t, struct connection *s);
/* Clients see in their regions that some are wanted back. */
void slab_tick(struct front *f);

/* place.c: places of puts */
void place_take(struct front *f, struct turn *t, struct connection *s);

/* object.c: the messages about objects */
void object_ask(struct front *f, struct turn *t, struct connection *s);
void object_hint(struct front *f, struct turn *t, struct connection *s);
void object_promise(struct front *f, struct turn *t, struct connection *s);
void object_connection_gone(struct front *f, const struct connection *s);
void object_process_dead(struct front *f, const struct connection *s);
/* Of a context that holds objects, what is not the client's to say. */
void object_context_spec(struct disk_context *spec);

/* handover.c: those of the former daemon that hold no lease any more are over. */
void handover_look(struct front *f, struct turn *t);

/* admin.c */
void admin_ask(struct front *f, struct turn *t, struct connection *s);
void admin_answered(struct front *f, struct turn *t, struct connection *s, const struct pending *p,
		    uint64_t value);
/* The socket takes more: go on with a long answer. */
void admin_continue(struct front *f, struct turn *t, struct connection *s);

#endif
