/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierd-net: what its files share. A process of its own beside tierd, a client of it through
 * libtier; tierd knows nothing of it. It speaks with the tierd-nets of other hosts (conn.h) by a
 * pure protocol (proto.h): here is the shell around that.
 *
 *   main.c       options, start, end
 *   members.c    peers: looks at new ones and at those on probation; who is there by etcd
 *   epochs.c     epochs and deletions of shared contexts, by etcd; etcd.c its calls
 *   share.c      contexts that are shared, their shapes, and who may ask for them
 *   holder.c     serves other hosts: probes, grants
 *   keep.c       standing grants, given: single pages; pick.c the same, asked for
 *   tell.c       homes: tells them, and is one
 *   box.c        a memory box: offers to it, and is one
 *   pool.c       a CXL pool: pages that go by it and not by the socket
 *   requester.c  asks other hosts: locate.c where (find.c: whom), pull.c the bytes
 *   far.c        layers that an engine reads while the rest comes
 *   local.c      engines and tierctl of this host
 *
 * Threads: one a connection, one for members, one for homes, one for a box. Locks, in the order in
 * which they may be taken: shares, peers, pool, pullers, homes, box; none is held while waiting for
 * anybody but the local tierd.
 */
#ifndef TIERD_NET_NODE_H
#define TIERD_NET_NODE_H

#include <jansson.h>
#include <sys/socket.h>
#include <tier.h>

#include "libtier/base/lock.h"
#include "libtier/base/log.h"
#include "tierd/net/agree.h"
#include "tierd/net/box.h"
#include "tierd/net/conn.h"
#include "tierd/net/homes.h"
#include "tierd/net/keep.h"
#include "tierd/net/pool.h"

#define NODE_SHARES_MAX AGREE_SHARES_MAX
#define NODE_PULLERS_MAX 8u
#define NODE_POOLED_MAX 4u /* idle connections to a peer */
#define NODE_LOCAL_MAX 64u /* connections of engines that are served, a thread each */
#define NODE_REMOTE_MAX (PEERS_MAX * NODE_POOLED_MAX) /* of hosts: all that they may keep */
#define NODE_SENDING_MAX 64u /* of these have a grant, and a reader of tierd's */
#define NODE_STANDING_MAX 16u /* of these, standing grants: the others are left for pulls */
#define NODE_PICKERS_MAX 8u   /* standing grants that engines here have */
#define NODE_SAME_MAX 32u    /* connections of one user, or one address before its HELLO */
#define NODE_PATH_BYTES 256u
#define EPOCH_MAX UINT32_MAX /* tierd takes none beyond */

/* A context that is shared. What it points to stays as long as it is held. */
struct share {
	uint32_t holders; /* node.shares */
	struct agreed agreed; /* node.shares; its digest never changes */
	char name[NET_NAME_BYTES];
	uint64_t number;  /* tierd's, never used again: tells a context from its successor */
	uint32_t owner_uid, owner_gid, mode;
	uint64_t looked_ns; /* node.shares: when tierd said so */
	tier_context *c;  /* through node.t */
	struct shape shape;
	/* Hosts, by their certificates, that it is shared with; none: all. It never changes. */
	uint32_t names;
	char with[NET_NAMES_MAX][NET_NAME_BYTES];
};

struct puller {
	tier *t;
	bool busy; /* node.pullers */
	const struct share *share; /* node.pullers: what is being brought, from this key on */
	tier_key from;
	uint64_t serial; /* user_data of the last put */
	uint32_t unsettled; /* node.pullers: puts that tierd has not answered */
	char name[NET_NAME_BYTES];
	uint64_t number; /* of the context that c is */
	tier_context *c;
};

struct node_config {
	char name[NET_NAME_BYTES];
	char listen[NET_NAME_BYTES];
	char advertise[NET_NAME_BYTES]; /* what others connect to */
	char socket[NODE_PATH_BYTES];   /* tierd's; ours is that + ".net" */
	char state[NODE_PATH_BYTES];    /* names of shared contexts, a line each; "" = not kept */
	char etcd[NODE_PATH_BYTES];     /* URL; "" = none */
	char fleet[NET_NAME_BYTES];
	char box[NET_NAME_BYTES];       /* the memory box of the fleet; ourselves: we are it */
	char tls[NODE_PATH_BYTES];      /* folder; "" = bare, which must be said */
	uint64_t lease_ns;
	uint64_t staging_bytes;
	char rdma[NET_NAME_BYTES]; /* a device; "" = none */
	uint64_t rdma_bytes;    /* of memory that is registered, all together */
	uint64_t streams_bytes; /* for streams from afar, all together */
	char pool[NODE_PATH_BYTES]; /* the device of a CXL pool; "" = none */
	uint64_t pool_extent_bytes; /* of one that is formatted */
	uint64_t pool_grant_ns;     /* the longest grant that goes by it */
	uint32_t pullers;
	uint32_t ask_all; /* fleets of up to so many other hosts have no homes */
};

struct node {
	struct node_config config;
	struct log log;
	struct conn_self self;
	tier *t;
	struct verbs_device *rdma; /* NULL = no peer reads by itself */
	int stop; /* eventfd: readable once we end */

	struct lock shares;
	struct share *share[NODE_SHARES_MAX] GUARDED_BY(shares);
	struct agree agree GUARDED_BY(shares);

	struct lock peers_lock;
	struct peers peers GUARDED_BY(peers_lock);
	uint64_t etcd_seen_ns GUARDED_BY(peers_lock); /* when it last answered; 0 = never */
	uint32_t members GUARDED_BY(peers_lock);      /* others that etcd has */
	bool full GUARDED_BY(peers_lock);             /* these are so many that we are none */
	uint64_t stage_bytes_per_s GUARDED_BY(peers_lock); /* of our own NVMe, for others */
	uint32_t standing GUARDED_BY(peers_lock); /* grants that we gave */

	struct lock pool;
	struct conn *idle[PEERS_MAX][NODE_POOLED_MAX] GUARDED_BY(pool); /* by peer's place */
	struct visitor *visitors GUARDED_BY(pool);

	struct lock pullers_lock;
	pthread_cond_t puller_free; /* with pullers_lock; CLOCK_MONOTONIC */
	struct puller puller[NODE_PULLERS_MAX] GUARDED_BY(pullers_lock);
	uint32_t fars GUARDED_BY(pullers_lock); /* streams from afar */
	uint32_t pickers GUARDED_BY(pullers_lock); /* engines' standing grants */

	struct lock homes_lock;
	struct homes homes GUARDED_BY(homes_lock);
	/* Tags that we were asked for: in all, in this second, in the one before. */
	uint64_t probes GUARDED_BY(homes_lock);
	uint32_t probes_now GUARDED_BY(homes_lock), probes_last GUARDED_BY(homes_lock);
	uint32_t probes_s GUARDED_BY(homes_lock);

	struct lock box_lock;
	struct box box GUARDED_BY(box_lock);

	struct pool_map *cxl; /* pool.c; NULL = none. Set at start */
};

/* ---- share.c ------------------------------------------------------------------------------- */

/* Mark a context as shared, with those named, or no longer; text tells what is wrong. */
enum share_how { SHARE_NOT, SHARE_PLAIN, SHARE_STRICT };
int share_set(struct node *n, const struct net_admin *m, enum share_how how,
	      const struct ucred *who, char *text);
#define SHARE_TEXT_BYTES 152u
/* Those of the state file. */
void share_load(struct node *n);
/*
 * Held until share_put. By name, as an engine of these credentials sees it; by digest, as this host
 * sees it (NULL: we do): to who is not named, what is shared by name is not there.
 */
int share_named(struct node *n, const char *name, const struct ucred *who, struct share **out);
struct share *share_digest(struct node *n, const uint8_t digest[32], const char *host);
/* Is it shared with this host? And is it still shared at all? */
bool share_with(const struct share *s, const char *host);
bool share_lasts(struct node *n, const struct share *s);
void share_put(struct node *n, struct share *s);
/* Is it still shared, the same one, and may it be served at this moment (R5, R6)? */
bool share_stands(struct node *n, struct share *s);
/* The context that a host's question means, held, where blocks may be granted: share_grants(). */
int share_asked(struct node *n, const char *host, const uint8_t digest[32], uint64_t epoch,
		uint64_t deleted, struct share **out);
/*
 * Has what was granted stood until now: shared, of that epoch, in that life of the tierd behind us
 * (node_reattached)?
 */
bool share_intact(struct node *n, struct share *s, uint64_t epoch, uint64_t reattached);
/* May blocks of this epoch be granted to who has done so many deletions? 0 or -ESTALE. */
int share_grants(struct node *n, struct share *s, uint64_t epoch, uint64_t deleted);
/* May what was asked for under these be published? Then p has one more put that is not settled. */
bool share_publishes(struct node *n, struct share *s, uint64_t epoch, uint64_t deleted,
		     struct puller *p);
/* The same, and nothing is put yet. */
bool share_would_publish(struct node *n, struct share *s, uint64_t epoch, uint64_t deleted);
/* The deletions that are done here. */
uint64_t share_deleted(struct node *n, const struct share *s);
/* Its owner, root, and who may write it. */
bool share_writable(const struct share *s, const struct ucred *who);
/* What agree.h wants set before each call. */
void share_refresh(struct node *n, struct share *s) REQUIRES(n->shares);
/* The one in place i of NODE_SHARES_MAX, held, or NULL. */
struct share *share_at(struct node *n, uint32_t i);
/* Those that these credentials open. */
json_t *share_list(struct node *n, const struct ucred *who);

/* ---- members.c, epochs.c ------------------------------------------------------------------- */

void *members_run(void *node);
/* A connection to the peer in place i, from the pool or a new one. It is given back, or closed. */
int members_conn(struct node *n, uint32_t i, uint64_t deadline_ns, struct conn **out);
/* One from the pool, or NULL. */
struct conn *members_idle(struct node *n, uint32_t i);
/* Do it for these peers, each in a thread of its own; returns when all are done. */
typedef void members_body(struct node *n, uint32_t place, void *arg);
void members_side_by_side(struct node *n, const uint32_t *place, uint32_t count,
			  members_body *body, void *arg);
void members_give(struct node *n, uint32_t i, struct conn *c);
/* Is it to the peer's present life, of our present certificates, and may the peer be asked (R4)? */
bool members_current(struct node *n, uint32_t i, const struct conn *c);
/* It failed a request: probation. */
void members_failed(struct node *n, uint32_t i, int error);
/* An exchange with it ended so: 0, its connection (NULL = none) is given back; else it failed. */
void members_done(struct node *n, uint32_t i, struct conn *c, int error);
/* The place of a known peer, or negative: who connects to us must be one. */
int members_place(struct node *n, const char *name);
json_t *members_list(struct node *n);
bool node_stopped(const struct node *n, uint64_t wait_ns);
/* In which life is the tierd behind us? */
uint64_t node_reattached(const struct node *n);

/*
 * epochs.c, on all hosts: raise the epoch (0: by one), delete keys. R5: 0 once all have applied it
 * or their lease is over; -EAGAIN: by until_ns not all have.
 */
int epochs_raise(struct node *n, struct share *s, uint64_t *epoch, char *text);
int epochs_delete(struct node *n, struct share *s, const struct net_want *m, char *text);

/* ---- tell.c -------------------------------------------------------------------------------- */

void *tell_run(void *node);
/* Is the fleet so large that homes are told and asked? */
bool homes_used(struct node *n);
/* We are a home: what a host says; the answer to a question, to be freed, NULL: no memory. */
void home_take(struct node *n, const struct net_hold *m, const char *from);
struct net_held *home_answer(struct node *n, const struct net_find *m);
json_t *home_list(struct node *n);

/* ---- box.c --------------------------------------------------------------------------------- */

/* Is there a box, another host than this one? Is it in another life than it was? */
bool box_used(const struct node *n);
bool box_is_another(struct node *n, uint64_t *life);
/* What became of a block; what is gathered, now. */
void box_event(struct node *n, struct offer *o, const struct share *s, const struct tier_event *e);
void box_offer(struct node *n, struct offer *o);
/* We are a box: an OFFER; the thread that asks for what was taken. */
int box_taken(struct node *n, const struct net_offer *m, const char *from);
void *box_run(void *node);

/* ---- pool.c -------------------------------------------------------------------------------- */

/* Format a device (it says what is wrong); map --pool, at start. */
int pool_make(const char *path, uint64_t extent_bytes);
int pool_open(struct node *n);
json_t *pool_list(struct node *n);
/* What HELLO says: its number while etcd tells whose its extents are, else 0. */
uint64_t pool_id(const struct node *n, bool told);

/* A frame whose pages a holder has before it. */
struct pool_frame {
	struct serve *serve;
	uint64_t *grant; /* 0, or its number here */
	const struct net_pages *m;
	const uint32_t *crc;
	const struct iovec *page;
	uint64_t until_ns;
};
/* By the pool; -EAGAIN: nothing was said, it goes by the socket. */
int pool_send(struct node *n, struct conn *c, const struct pool_frame *f);
/* COPIED: was what it was about kept until now? */
bool pool_was_kept(struct node *n, uint64_t grant);
/* A frame that pull_at() took, copied from there, and COPIED. -ESTALE: it is not the peer's. */
int pool_receive(struct node *n, struct conn *c, struct pull *p, const struct net_at *m,
		 const struct iovec *to);

/* ---- holder.c, local.c --------------------------------------------------------------------- */

/* A connection that is served, a thread each. */
struct visitor {
	struct node *n;
	struct visitor *next; /* node.pool */
	int fd;
	bool local;
	bool known;       /* node.pool: root, our own user or a member: no NODE_SAME_MAX */
	struct ucred who; /* local: as the kernel says */
	uint8_t from[16]; /* remote: its address */
};
/* main.c: the last thing that a thread does. */
void visitor_end(struct visitor *v);
/* Threads' bodies: serve a connection to its end. */
void *holder_run(void *visitor);
void *local_run(void *visitor);

/* A host's pages never come before one that an engine here waits for. */
static inline uint32_t class_of_hosts(uint32_t klass)
{
	return klass == TIER_CLASS_DEMAND ? TIER_CLASS_DEADLINE : klass;
}

/* ---- keep.c -------------------------------------------------------------------------------- */

/* A standing grant of a connection. */
struct standing;
/* KEEP: *s is the new one, or NULL; the one before is over. PICK. Errors: as conn_send; -EPROTO. */
int keep_begin(struct node *n, struct conn *c, uint32_t place, struct standing **s);
int keep_pages(struct standing *s);
uint64_t keep_until(const struct standing *s); /* NULL: 0 */
void keep_end(struct standing *s);

/* ---- locate.c, find.c, pull.c -------------------------------------------------------------- */

/* Who has most of the keys beyond `local`. */
struct placed {
	int peer; /* its place; negative: nobody has more */
	char name[NET_NAME_BYTES];
	uint32_t usable; /* blocks, from the first */
	uint32_t cold;   /* of these beyond local, on its NVMe alone */
	uint32_t hosts, answered;
	bool only; /* there is no other host to ask */
	uint64_t bytes, first_ns, all_ns;
	bool lost; /* it failed while it sent: somebody else may have the rest */
};

struct wanted {
	struct share *share;
	const struct net_want *want;
	const tier_key *keys;
	uint32_t local; /* blocks that are here */
	uint64_t epoch, deleted;
	uint64_t begun_ns;
	struct far *far; /* its layers are read as they come; NULL = they are not */
};

void locate(struct node *n, const struct wanted *w, struct placed *out);
/* Peers that homes name as holders of the keys at these depths: their places. */
uint32_t find_holders(struct node *n, const struct wanted *w, const uint32_t *depth,
		      uint32_t count, uint64_t until_ns, uint32_t place[HOMES_ASKED_MAX]);
/* How long the word of a peer whether it has something is waited for. */
uint64_t answer_until(uint64_t deadline_ns);
/*
 * Brings blocks [local, at most usable), adds to what PLACED says, and returns blocks usable now.
 * Who wants what another one is bringing waits for that first.
 */
/* Puts that a pull did not wait for: are they answered? Then deletions may be done. */
void pull_settle(struct node *n);
int64_t pull_from(struct node *n, struct wanted *w, struct placed *p, struct net_placed *out);

/* ---- pick.c -------------------------------------------------------------------------------- */

/* OPEN, to its end: the connection ends with it. */
int pick_serve(struct node *n, struct conn *c, struct wanted *w, struct net_placed *out);

/* ---- far.c --------------------------------------------------------------------------------- */

/* A stream from afar: so many blocks behind those that are here. */
struct far {
	struct node *n;
	struct conn *to; /* the engine; the caller's */
	int fd;          /* for it, to read alone */
	struct net_far *line;
	uint64_t bytes, block_bytes;
	uint32_t blocks;
	uint32_t whole; /* of these, when its holder said so: the verdict */
	struct {
		uint64_t offset;
		uint32_t groups, stride;
	} part[ABI_PARTS_MAX];
};

/* Memory that is ours to write, and a descriptor for an engine that may read it alone. */
int far_memory(uint64_t bytes, void **out, int *for_reading);
/*
 * Memory for at most so many blocks behind those that are here. -EBUSY: there are as many streams
 * as pullers; -E2BIG: not one block fits (--streams).
 */
int far_open(struct node *n, const struct wanted *w, uint32_t blocks, struct far **out);
void far_close(struct node *n, struct far *f);
void far_wait_gone(struct far *f);
void *far_page(const struct far *f, uint32_t block, const struct shape_page *p);
/* Tell the engine what it may read now. An error: it hung up. */
int far_announce(struct far *f, const struct pull *p, bool publishes);

#endif
