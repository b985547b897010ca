/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of tierd-net: between hosts (TCP, inside TLS 1.3) and with engines of its own host (UNIX
 * socket). A stream of messages, little-endian, each with its length; bytes of pages follow a PAGES
 * message and are none of it. net_check() is the one decoder: both ends read nothing before it.
 *
 *   requester                          holder
 *   HELLO                  ->  <-      HELLO          name and incarnation, each way
 *   PROBE (anchors)        ->  <-      FOUND          how many from the first are there: R2
 *   ASK (keys, wait)       ->  <-      GRANT          so many blocks, for so long
 *                              <-      PAGES, bytes   layer by layer: CRCs, then the pages
 *                              <-      WHOLE          at last: it stood until then, or not (R1)
 *                              <-      END            instead: the grant ends early, and why
 *                              <-      AT             in place of PAGES, where both have one pool
 *   COPIED                 ->                         they were, from there; WHOLE comes behind
 *   KEEP (keys, wait)      ->  <-      GRANT          a standing grant: its pages are asked for
 *   PICK (pages)           ->  <-      PICKED, bytes  singly, until it ends or the requester hangs
 *                              <-      WHOLE          up: it stood until then (R1)
 *
 *   requester                          holder           where both have RDMA (tierd/net/verbs.h)
 *   PATH (queue pair)      ->  <-      PATH           its queue pair, or why there is none
 *                              <-      PLACES         in place of PAGES: CRCs, where the pages lie
 *   READ                   ->                         they were read; or not, and why
 *
 *   any host                           an anchor's home (tierd/net/homes.h)
 *   HOLD (tags)            ->  <-      HELD           nothing: it was taken
 *   FIND (tags)            ->  <-      HELD           who told it that they hold each
 *
 *   any host                           a memory box (tierd/net/box.h)
 *   OFFER (keys)           ->  <-      TAKEN          it will be asked for, or why not
 *
 *   engine, tierctl                    tierd-net
 *   LOCATE | PULL (keys)   ->  <-      PLACED
 *   STREAM (keys)          ->  <-      PLACED, LAYER ..., PLACED   (below)
 *   OPEN (keys)            ->  <-      PLACED         with the memory that picks come to (below)
 *   PICK (pages)           ->  <-      PICKED         what came lies there
 *   DELETE (keys)          ->  <-      PLACED         on all hosts
 *   ADMIN (verb, words)    ->  <-      TEXT           one JSON document
 *
 * N1  Nothing is sent unasked: the holder sends pages of a grant only, and a requester that gets
 *     any other message than the next one ends the connection.
 * N2  Times are durations between hosts, whose clocks differ, and points of CLOCK_MONOTONIC within
 *     one. A grant lasts from when its ASK was sent, as the requester counts.
 * N3  At most NET_GRANTS_MAX grants are open on a connection; their pages come in turn.
 * N4  A page's CRC32C begins with its key, epoch and number: another page's bytes do not verify.
 * N5  PLACES come only after a PATH that both made, each is answered by a READ, in order, and lies
 *     there until then; NET_PLACES_MAX at most do. After a READ that says why not, what has not
 *     been read comes as PAGES, and a PLACES that was on its way is not answered.
 * N6  A connection has one standing grant; another KEEP ends it. Its next PICK comes after the
 *     WHOLE of the one before. It keeps no page in memory and no block in the store: what has left
 *     is told of page by page.
 */
#ifndef TIER_ABI_NET_H
#define TIER_ABI_NET_H

#include <stddef.h>

#include "libtier/abi/common.h"

#define NET_MAGIC 0x54454e54u /* "TNET" */
#define NET_VERSION 3u
#define NET_MESSAGE_MAX 262144u
#define NET_NAME_BYTES 64u
#define NET_KEYS_MAX 2044u   /* of one ASK: what one put may bring */
#define NET_ANCHORS_MAX 512u /* of one PROBE */
#define NET_LOCAL_KEYS_MAX 8000u
#define NET_FRAME_PAGES_MAX 256u
#define NET_FRAME_BYTES 1048576u /* a frame ends with the page that reaches it */
#define NET_GRANTS_MAX 2u
#define NET_PLACES_MAX 4u
#define NET_KEY_BYTES 32u
#define NET_HOLDERS_MAX 8u
#define NET_TAGS_MAX 4096u /* of one HOLD or FIND */
#define NET_OFFER_KEYS 64u
#define NET_NAMES_MAX 16u /* of one ADMIN */
#define NET_PICK_BYTES 4194304u /* of all pages of one PICK */

#define NET_HELLO 1u
#define NET_PROBE 2u
#define NET_FOUND 3u
#define NET_ASK 4u
#define NET_GRANT 5u
#define NET_PAGES 6u
#define NET_END 7u
#define NET_WHOLE 8u
#define NET_HOLD 9u
#define NET_FIND 10u
#define NET_HELD 11u
#define NET_OFFER 12u
#define NET_TAKEN 13u
#define NET_PATH 14u
#define NET_PLACES 15u
#define NET_LOCATE 16u
#define NET_PULL 17u
#define NET_PLACED 18u
#define NET_ADMIN 19u
#define NET_TEXT 20u
#define NET_DELETE 21u
#define NET_STREAM 22u
#define NET_LAYER 23u
#define NET_READ 24u
#define NET_AT 32u
#define NET_COPIED 33u
#define NET_KEEP 34u
#define NET_PICK 35u
#define NET_PICKED 36u
#define NET_OPEN 37u

struct net_header {
	uint32_t magic;
	uint16_t version; /* NET_VERSION */
	uint16_t type;
	uint32_t length; /* of the whole message, without pages */
	uint32_t reserved;
}; /* 16 bytes */

#define NET_RDMA 1u /* PATH may be asked for */

struct net_hello {
	struct net_header header;
	uint64_t incarnation; /* new at each start of tierd-net */
	uint64_t features;    /* NET_RDMA */
	char name[NET_NAME_BYTES];
	uint64_t pool; /* what this host has mapped (tierd/net/pool.h); 0 = none */
	uint8_t reserved[24];
}; /* 128 bytes */

struct net_probe {
	struct net_header header;
	uint64_t id;
	uint64_t epoch;
	uint8_t context[32]; /* digest of name, fingerprint and geometry */
	uint32_t count;
	uint32_t reserved;
	/* count keys */
}; /* 72 bytes */

struct net_found {
	struct net_header header;
	uint64_t id;
	int32_t error;  /* -ENOENT not shared here, -ESTALE another epoch */
	uint32_t found; /* from the first */
	uint32_t cold;  /* of these, on NVMe alone */
	uint32_t reserved;
	uint64_t stage_bytes_per_s; /* what reading from there came to; 0 = not known */
}; /* 48 bytes */

/* ASK, KEEP; a KEEP has NET_LOCAL_KEYS_MAX keys at most. */
struct net_ask {
	struct net_header header;
	uint64_t id;
	uint64_t epoch;
	uint64_t deleted; /* deletions that the requester has done: the holder has as many */
	uint8_t context[32];
	uint64_t wait_ns; /* what is left until the requester's deadline */
	uint32_t klass;   /* TIER_CLASS_* */
	uint32_t count;
	/* count keys, in prefix order */
}; /* 88 bytes */

struct net_grant {
	struct net_header header;
	uint64_t id;
	int32_t error; /* as FOUND's; -EBUSY too much is granted */
	uint32_t blocks;
	uint32_t layers;
	uint32_t reserved;
	uint64_t duration_ns;
	uint64_t bytes; /* of all pages */
}; /* 56 bytes */

struct net_pages {
	struct net_header header;
	uint64_t id;
	uint32_t layer;
	uint32_t first; /* within the layer: block * its pages a block + page */
	uint32_t count;
	uint32_t bytes; /* of all pages, which follow the message */
	/* count CRCs, 4 bytes each */
}; /* 40 bytes */

/* How a queue pair is reached; qpn 0: there is none. */
struct net_path {
	struct net_header header;
	int32_t error;
	uint32_t qpn;
	uint32_t psn;
	uint16_t lid;
	uint8_t mtu; /* as verbs number them: 1 (256) to 5 (4096) */
	uint8_t reserved;
	uint8_t gid[16];
}; /* 48 bytes */

/* The pages lie one behind the other; rkey and address are good until the READ. */
struct net_places {
	struct net_pages pages; /* its header is the message's */
	uint64_t address;
	uint32_t rkey;
	uint32_t number; /* of those of this connection: 1, 2 ... */
	/* count CRCs, 4 bytes each */
}; /* 56 bytes */

/* A frame whose pages lie in the pool, one after another, from there on. */
struct net_at {
	struct net_pages pages;
	uint64_t offset;
	/* pages.count CRCs, 4 bytes each */
}; /* 48 bytes */

/* Single pages of a standing grant: NET_FRAME_PAGES_MAX and NET_PICK_BYTES at most. */
struct net_pick {
	struct net_header header;
	uint64_t id;      /* its own: PICKED and WHOLE have it */
	uint64_t wait_ns; /* as ASK's; an engine's is a point in time (N2) */
	uint32_t count;
	uint32_t reserved;
	/* count net_pick_page */
}; /* 40 bytes */

struct net_pick_page {
	uint32_t block; /* of the grant; OPEN: behind the first `local` */
	uint32_t page;  /* tier_geometry_page */
}; /* 8 bytes */

/* Pages without an error follow it, in the order of PICK; an engine's lie in its memory. */
struct net_picked {
	struct net_header header;
	uint64_t id;
	int32_t error;  /* of all: count and bytes are 0, and no WHOLE comes */
	uint32_t count; /* PICK's */
	uint32_t bytes; /* of the pages that follow */
	uint32_t reserved;
	/* count net_picked_page */
}; /* 40 bytes */

struct net_picked_page {
	int32_t error; /* -ENODATA it is not there, -ETIMEDOUT it came too late */
	uint32_t crc;
}; /* 8 bytes */

/* What the sender holds, or has not any more; none: it is there. */
struct net_hold {
	struct net_header header;
	uint64_t id;
	uint32_t count;
	uint32_t reserved;
	/* count net_holding */
}; /* 32 bytes */

struct net_holding {
	uint64_t tag;  /* of an anchor: key, context and epoch */
	uint32_t gone; /* 0, 1: it is not there any more */
	uint32_t reserved;
}; /* 16 bytes */

struct net_find {
	struct net_header header;
	uint64_t id;
	uint32_t count;
	uint32_t reserved;
	/* count tags, 8 bytes each */
}; /* 32 bytes */

struct net_held {
	struct net_header header;
	uint64_t id;
	uint32_t count; /* 0 after HOLD */
	uint32_t reserved;
	/* count net_holders, in the order of FIND */
}; /* 32 bytes */

struct net_holders {
	uint32_t host[NET_HOLDERS_MAX]; /* digests of names, the newest first; 0 = no more */
}; /* 32 bytes */

/* Blocks that the sender has just stored; the receiver may ask for them. */
struct net_offer {
	struct net_header header;
	uint64_t id;
	uint64_t epoch;
	uint8_t context[32];
	uint32_t depth; /* of the first */
	uint32_t count;
	uint8_t parent[NET_KEY_BYTES]; /* of the first; all zero: none, or not known */
	/* count keys, each the child of the one before */
}; /* 104 bytes */

/*
 * END, WHOLE. READ: id is the PLACES' number, error 0 or why it could not be read. TAKEN: 0,
 * -EBUSY too much is taken, -EACCES this is no box, -ENOENT, -ESTALE. LAYER: id is how many are
 * ready, error 0. COPIED: error 0.
 */
struct net_word {
	struct net_header header;
	uint64_t id;
	int32_t error; /* WHOLE: 0, or -ESTALE, -ETIMEDOUT: it did not stand */
	uint32_t number; /* COPIED: of the grant's AT so far; else 0 */
}; /* 32 bytes */

#define NET_WANT_GO_ON 1u /* PULL: answer when it has begun; the engine does not wait for it */

/* LOCATE, PULL, STREAM, OPEN, DELETE */
struct net_want {
	struct net_header header;
	char context[NET_NAME_BYTES];
	uint64_t deadline_ns; /* CLOCK_MONOTONIC */
	uint64_t token_ns;    /* what computing a token costs; 0 = not told, fetch always */
	uint64_t salt;
	uint32_t klass;
	uint32_t count;
	uint32_t flags; /* NET_WANT_* */
	uint8_t reserved[12];
	/* count keys, from the sequence's start */
}; /* 128 bytes */

struct net_placed {
	struct net_header header;
	int32_t error;
	uint32_t status;     /* PULL: TIER_READY ... */
	uint32_t local;      /* blocks, from the first, that were here */
	uint32_t usable;     /* that are here now; LOCATE: that one host has, or these */
	uint32_t hosts;      /* that were asked */
	uint32_t answered;
	uint64_t bytes;      /* that came; LOCATE: that would */
	uint64_t first_ns;   /* until the first layer was there, or could be */
	uint64_t all_ns;     /* until all was, or could be */
	uint64_t compute_ns; /* what computing them would take, by token_ns */
	char host[NET_NAME_BYTES];
	char text[152]; /* why not more; NUL-terminated */
}; /* 288 bytes */

/*
 * Life of a stream from afar. The first PLACED says what will come: blocks [local, usable), none:
 * nothing does. With it comes a descriptor, to be mapped for reading alone, of a net_far in
 * NET_FAR_LINE bytes and behind it the blocks, each page at the place that a put has for it.
 * `ready` never falls; each LAYER wakes who waits for it. The last PLACED is the verdict: what
 * comes after its `usable` must not be used (R7). Then the engine hangs up, a minute later at most:
 * from then on the line says `gone`, and the bytes are zeros.
 *
 * A PLACED that answers OPEN comes with a descriptor of NET_PICK_BYTES, to be mapped for reading
 * alone: the pages of each PICKED lie there, one behind the other, until the next PICK.
 */
#define NET_FAR_LINE 4096u

struct net_far {
	uint32_t blocks; /* that come, once a layer is ready */
	uint32_t ready;  /* layers, from the first, of which all pages are there and verified */
	uint32_t gone;   /* 1: the bytes are there no more */
	uint32_t reserved;
}; /* 16 bytes */

struct net_admin {
	struct net_header header;
	char verb[32];
	char word[2][NET_NAME_BYTES];
	/* share: names of hosts, NET_NAME_BYTES each, as many as the length has; none: all hosts */
}; /* 176 bytes */

struct net_text {
	struct net_header header;
	int32_t error;
	uint32_t bytes;
	/* bytes of text, no NUL */
}; /* 24 bytes */

/*
 * Is what `have` bytes at `bytes` begin with a message? Returns its length when all of it is there
 * and right; 0: more bytes are needed (as many as the header tells, if that is there); -EPROTO: it
 * is none, and nothing behind it can be trusted. Reads no byte beyond have.
 */
int64_t net_check(const void *bytes, size_t have);

/* What a message of this type has before its items, and the bytes of one; 0: no such type. */
struct net_form {
	uint32_t fixed, item, items_max;
};
struct net_form net_form(uint16_t type);

#endif
