/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the anchors of prefixes are, in a fleet that is too large to ask everybody: each anchor has
 * a home, by rendezvous hashing over the members, and the home remembers who told it that they hold
 * it. Pure state, as proto.h: no clock, no socket, no allocation. All of it is a hint (R2): a home
 * that was lost, or that forgets, costs misses until the holders have told the next one.
 *
 * K1  Who holds an anchor tells its home when it comes and when it leaves, all of them again in
 *     HOMES_AGAIN_S, and those whose home is another one as soon as the members change.
 * K2  A member that is gone moves its own anchors, a new one gets its own: nobody else's move.
 * K3  A home keeps HOMES_HOLDERS of an anchor, the newest; who found that one has it not any more
 *     tells the home.
 * K4  A tag has the epoch in it: what is of an old one is found by nobody.
 */
#ifndef TIERD_NET_HOMES_H
#define TIERD_NET_HOMES_H

#include <stdbool.h>

#include "libtier/abi/net.h"

#define HOMES_HOLDERS NET_HOLDERS_MAX
#define HOMES_AGAIN_S 600u
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

/* A HOLD; what it says of others than `from` can only be that they have it not. */
void homes_take(struct homes *h, const struct net_hold *m, uint32_t from, uint32_t now_s);
/* A FIND; out becomes the answer, with room for as many items as m has. */
void homes_answer(const struct homes *h, const struct net_find *m, struct net_held *out);

#endif
