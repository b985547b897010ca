/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The protocol between hosts as pure state: messages and times come in as arguments, verdicts and
 * messages to send go out. No clock, no socket, no libtier, no allocation: a simulator can run any
 * number of hosts of it. Who calls it (pull.c, holder.c, members.c) moves the bytes.
 *
 * R1  A remote hit is verified: key, epoch and CRC of every page, and the holder's word WHOLE.
 * R2  What is known of others is a hint: stale is a miss.
 * R3  No coherence, no remote write: blocks are immutable, receivers pull.
 * R4  A lost or slow peer is LATE or a miss by the deadline, then on probation.
 * R7  A layer that an engine reads before the rest has come is verified, of an epoch and deletions
 *     that stand at that moment, and in time; whether it may be used is said at the end (R1).
 */
#ifndef TIERD_NET_PROTO_H
#define TIERD_NET_PROTO_H

#include <stdbool.h>

#include "libtier/abi/net.h"

/* ---- shape: a context's pages in the order in which they travel ----------------------------- */

struct shape_page {
	uint32_t page; /* tier_geometry_page */
	uint32_t bytes;
	uint16_t part, layer; /* within the part, as group */
	uint32_t group;
};

/* Layers are the model's, counted from the first that any part has. */
struct shape {
	uint32_t layers;
	uint32_t layer_first; /* the model's number of our layer 0 */
	uint32_t pages;       /* a block */
	uint64_t block_bytes; /* without padding */
	uint32_t *first;      /* layers + 1: a layer's pages in `page` */
	struct shape_page *page;
	uint32_t *by_number; /* where in `page` the page of each number is */
};

static inline uint32_t shape_layer_pages(const struct shape *s, uint32_t layer)
{
	return s->first[layer + 1] - s->first[layer];
}

/* The page that stands at `at` of a layer, and of which block. */
static inline const struct shape_page *shape_at(const struct shape *s, uint32_t layer, uint32_t at,
						uint32_t *block)
{
	uint32_t pages = shape_layer_pages(s, layer);

	*block = at / pages;
	return &s->page[s->first[layer] + at % pages];
}

/* N4: a page's CRC begins with what the page is. */
uint32_t page_crc(const uint8_t key[NET_KEY_BYTES], uint64_t epoch, const struct shape_page *page,
		  const void *bytes);

/* ---- cursor: where a grant's pages are ------------------------------------------------------ */

struct cursor {
	uint32_t layer, at; /* the next page; layer == shape.layers: all are through */
};

/* How many pages the next frame has, and their bytes; moves the cursor behind it. 0: it is over. */
uint32_t cursor_frame(struct cursor *c, const struct shape *s, uint32_t blocks, uint32_t *bytes);

/* ---- of both kinds of grant: all pages, or single ones (keep.h) ------------------------------ */

#define SERVE_WAIT_MAX_NS (60ull * 1000 * 1000 * 1000) /* a grant's longest life */

void message_header(struct net_header *h, uint16_t type, size_t length);
/* GRANT of so many blocks; 0: it has an error. Returns how long it lasts. */
uint64_t grant_say(struct net_grant *out, const struct net_ask *m, const struct shape *s,
		   uint32_t blocks);
/* What it is of, where `asked` blocks were asked for; 0: none. -EPROTO: the answer cannot be. */
int64_t grant_blocks(const struct net_grant *m, const struct shape *s, uint32_t asked);
/* Counted from before it was asked for, it is over here before it is over there (N2). */
uint64_t grant_lasts(const struct net_grant *m);

/* ---- requester: one pull of some blocks from one holder ------------------------------------- */

/* CAME: all pages did, and what is awaited is the holder's word. */
enum pull_state { PULL_FREE, PULL_ASKED, PULL_PAGES, PULL_CAME, PULL_WHOLE, PULL_OVER };

struct pull {
	enum pull_state state;
	const struct shape *shape;
	uint64_t id, epoch;
	uint64_t deadline_ns;
	uint64_t sent_ns; /* when ASK went */
	uint64_t ends_ns; /* the grant's */
	uint32_t asked, blocks;
	uint32_t copied; /* frames, from the pool */
	struct cursor cursor;
	int error; /* OVER: why; -ENODATA the holder has none of it */
};

/* Begin; `m` becomes the ASK but for its context and keys. */
void pull_ask(struct pull *p, const struct shape *s, struct net_ask *m, uint64_t now_ns);
/* Each takes the next message of its kind. 0, or why the connection cannot go on (N1). */
int pull_granted(struct pull *p, const struct net_grant *m);
/* *at: the frame's first page and layer. */
int pull_pages(struct pull *p, const struct net_pages *m, struct cursor *at);
/* The same of a frame in the pool: what is there is kept until the grant ends, and no longer. */
int pull_at(struct pull *p, const struct net_at *m, uint64_t now_ns, struct cursor *at);
void pull_copied(struct pull *p, struct net_word *m);
int pull_ended(struct pull *p, const struct net_word *m);
int pull_whole(struct pull *p, const struct net_word *m, uint64_t now_ns);
/*
 * Layers, from the first, that may be read before the rest has come (R7): all their pages came, and
 * each was verified. publishes: agreed_publishes() of what was asked for. Whoever announces them
 * keeps what was announced: it can be less later.
 */
uint32_t pull_layers(const struct pull *p, bool publishes, uint64_t now_ns);

/* ---- holder: one grant ---------------------------------------------------------------------- */

enum serve_state { SERVE_FREE, SERVE_PAGES, SERVE_SENT };

struct serve {
	enum serve_state state;
	const struct shape *shape;
	uint64_t id, epoch;
	uint64_t began_ns, ends_ns;
	uint32_t blocks;
	uint32_t told, copied; /* frames that lie, or lay, in the pool (pool.h) */
	bool lapsed;     /* one of them was not kept */
	struct cursor cursor;
};

/* Grant `blocks` of what was asked for (0: refuse with error); `out` becomes the answer. */
void serve_grant(struct serve *s, const struct net_ask *m, const struct shape *shape,
		 struct net_grant *out, uint64_t now_ns);
/* The next frame: `m` but for its CRCs; *at: where it begins. False: all are sent. */
bool serve_frame(struct serve *s, struct net_pages *m, struct cursor *at);
/* The frame becomes `at`: its pages lie at that offset of the pool. */
void serve_at(struct serve *s, const struct net_pages *m, uint64_t offset, struct net_at *at);
/* COPIED, of the oldest one that is not. */
int serve_copied(struct serve *s, const struct net_word *m);
/* Then: pool_kept() of it. */
void serve_kept(struct serve *s, bool kept);
/* All are sent, and copied: the last word is due. */
bool serve_over(const struct serve *s);
/* Then. intact: what was granted stood until now. `out` becomes WHOLE. */
void serve_whole(struct serve *s, bool intact, struct net_word *out, uint64_t now_ns);
void serve_end(struct serve *s, int error, struct net_word *out);

/* ---- window: frames of one connection that lie to be read (N5) ------------------------------ */

struct window {
	uint32_t told;         /* in this connection's life */
	uint32_t first, count; /* the place of the oldest one, and how many lie there */
	uint64_t id[NET_PLACES_MAX]; /* whose, by place */
};

static inline bool window_full(const struct window *w)
{
	return w->count == NET_PLACES_MAX;
}

/* A frame of this grant: its place; its number is `told`. */
uint32_t window_add(struct window *w, uint64_t id);
/* The oldest one's place, which is free again. */
uint32_t window_take(struct window *w);
/* A READ: it must be of the oldest one's number. 0 or -EPROTO. */
int window_read(const struct window *w, const struct net_word *m);
/* Does one of this grant still lie there? */
bool window_has(const struct window *w, uint64_t id);

/* ---- memory that is registered for such frames (verbs.h, W1) -------------------------------- */

/* How it ends: what is done, and what comes next. */
enum lent_step { LENT_BEGIN, LENT_DEREGISTER, LENT_GIVE_BACK, LENT_END };
enum lent_step lent_ends(enum lent_step done);

/* ---- peers: whom to ask --------------------------------------------------------------------- */

#define PEERS_MAX 64u
#define PROBATION_FIRST_NS (1000ull * 1000 * 1000)
#define PROBATION_MAX_NS (30ull * 1000 * 1000 * 1000)

enum peer_state { PEER_FREE, PEER_NEW, PEER_UP, PEER_PROBATION };

struct peer {
	enum peer_state state;
	char name[NET_NAME_BYTES];
	char address[NET_NAME_BYTES]; /* host:port */
	uint64_t incarnation;         /* 0 = not known */
	bool fixed;                   /* from the command line: etcd does not take it away */
	uint32_t failures;            /* in a row */
	uint64_t retry_ns;            /* PROBATION: looked at again then */
	char why[64];
	/* accounts */
	uint64_t bytes_in, bytes_out, pulls, misses, failed;
	uint64_t bytes_per_s; /* of pulls, moving average; 0 = none yet */
	uint64_t answer_ns;   /* of probes, likewise */
	uint64_t stage_bytes_per_s;
	/* RDMA: the last pull had a queue pair; one that failed is tried again from then on. */
	bool path;
	uint32_t path_failures;
	uint64_t path_retry_ns;
	uint64_t read_in, read_out; /* bytes that came, and went, so */
};

struct peers {
	struct peer peer[PEERS_MAX];
};

/* NULL: there is none, or no room. */
struct peer *peers_find(struct peers *p, const char *name);
struct peer *peers_add(struct peers *p, const char *name, const char *address);
/* A member as etcd has it: known, moved or restarted. */
void peers_member(struct peers *p, const struct peer *member, uint64_t now_ns);
void peers_forget(struct peers *p, const char *name);
/* May a request ask it? Only when it was met since it last failed (R4). */
bool peer_asked(const struct peer *p);
/* Is it time for a look that no request waits for? */
bool peer_due(const struct peer *p, uint64_t now_ns);
void peer_failed(struct peer *p, uint64_t now_ns, const char *why);
/* It said HELLO. -ESTALE: an incarnation that was replaced. */
int peer_met(struct peer *p, uint64_t incarnation);
void peer_moved(struct peer *p, uint64_t bytes, uint64_t took_ns);
void peer_answered(struct peer *p, uint64_t took_ns);
/* So many bytes of a pull came by a queue pair, still good or not; it failed; may one be tried? */
void peer_read(struct peer *p, uint64_t bytes, bool good);
void peer_path_failed(struct peer *p, uint64_t now_ns);
bool peer_path_due(const struct peer *p, uint64_t now_ns);

/* When could n bytes be here, of which cold_bytes come from its NVMe? */
uint64_t peer_estimate(const struct peer *p, uint64_t bytes, uint64_t cold_bytes);

/* ---- anchors -------------------------------------------------------------------------------- */

/* Is a block at this depth one whose holders tell its home (homes.h)? */
bool anchor(uint32_t depth);
/* Depths at which a prefix of `count` blocks is looked for beyond `from`; returns how many. */
uint32_t anchors(uint32_t from, uint32_t count, uint32_t depth[NET_ANCHORS_MAX]);

#endif
