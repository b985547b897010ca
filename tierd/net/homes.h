/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the anchors of prefixes are, in a fleet that is too large to ask everybody: each anchor has
 * a home, by rendezvous hashing over the members, and the home remembers who told it that they hold
 * it. Pure state, as proto.h: no clock, no socket, no allocation. All of it is a hint (R2): a home
 * that was lost, or that forgets, costs misses until the holders have told the next one.
 *
 * K1  Who holds an anchor tells its home when it comes and when it leaves, and all of them again in
 *     HOMES_AGAIN_S, and as soon as the members change. Where a run begins whose first blocks lie
 *     elsewhere, that block is told of like an anchor.
 * K2  A member that is gone moves its own anchors, a new one gets its own: nobody else's move.
 * K3  A home keeps HOMES_HOLDERS of an anchor, the newest, each for HOMES_LIFE_S after its last
 *     word. Where it has no room for all, anchors with many lose theirs to those with none. About
 *     itself alone a host is believed.
 * K4  A tag has the epoch in it: what is of an old one is found by nobody.
 */
#ifndef TIERD_NET_HOMES_H
#define TIERD_NET_HOMES_H

#include <stdbool.h>

#include "tierd/net/proto.h"

#define HOMES_HOLDERS NET_HOLDERS_MAX
#define HOMES_AGAIN_S 600u
#define HOMES_LIFE_S (2 * HOMES_AGAIN_S)
#define HOMES_ASKED_MAX 8u /* holders, of those that homes name for one look */
#define HOMES_WINDOW 16u /* slots that one tag may be in */
#define HOMES_ROOM 131072u /* slots of a home: four times what 900,000 blocks a host come to */

struct homes_slot {
	uint64_t tag; /* 0 = free */
	uint32_t host;
	uint32_t told_s;
};

struct homes {
	struct homes_slot *slot; /* room + HOMES_WINDOW of them, zero: the caller's */
	uint32_t room;           /* a power of two */
};

/* A host, as tags and members name it; never 0. */
uint32_t homes_host(const char *name);
/* An anchor of a context in an epoch; never 0. */
uint64_t homes_tag(const uint8_t context[32], uint64_t epoch, const uint8_t key[NET_KEY_BYTES]);
/* The place of a tag's home among the members; count > 0. Their order does not matter. */
uint32_t homes_of(const uint32_t *member, uint32_t count, uint64_t tag);

void homes_hold(struct homes *h, uint64_t tag, uint32_t host, uint32_t now_s);
void homes_drop(struct homes *h, uint64_t tag, uint32_t host);
/* Who holds it, the newest first, the rest 0; returns how many. */
uint32_t homes_find(const struct homes *h, uint64_t tag, uint32_t host[HOMES_HOLDERS]);

/* Forget who said nothing since then (K3); returns how many are left. */
uint32_t homes_forget(struct homes *h, uint32_t before_s);

/* A HOLD. */
void homes_take(struct homes *h, const struct net_hold *m, uint32_t from, uint32_t now_s);
/* A FIND; out becomes the answer, with room for as many items as m has. */
void homes_answer(const struct homes *h, const struct net_find *m, struct net_held *out);

/* ---- the members, as one host sees them: who is up, and itself ------------------------------ */

#define HOMES_OURSELVES PEERS_MAX /* in place of a peer's */

struct homes_view {
	uint64_t life[PEERS_MAX + 1];
	uint32_t host[PEERS_MAX + 1];
	uint32_t place[PEERS_MAX + 1]; /* in struct peers */
	uint32_t count;
	uint32_t lost; /* words to homes that were not heard since: as if the members had changed */
};

void homes_view(struct homes_view *v, const struct peers *p, const char *self);
/* The place of its home. */
uint32_t homes_place(const struct homes_view *v, uint64_t tag);
/*
 * Are they others, or other lives, than they were (K1)? Or was a word lost: who failed can be up
 * again before anybody looks.
 */
bool homes_changed(const struct homes_view *was, const struct homes_view *is);
/* Peers to ask, of those named for a prefix's anchors: who has the deepest first. Their places. */
uint32_t homes_whom(const struct homes_view *v, const struct net_holders *named, uint32_t count,
		    uint32_t place[HOMES_ASKED_MAX]);

#endif
