/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A memory box: a host without engines that keeps what others compute, so that what they lose comes
 * back. Pure state, as proto.h: runs of blocks that a host offers, and the offers that a box has
 * taken and not yet asked for.
 *
 * B1  A push is an offer (R3): keys alone. The box asks for what it lacks, by a pull like any
 *     other, so R1 to R6 hold of it, and refuses what is more than it can ask for soon.
 * B2  A block is offered when it is stored, and all of them again when the box is in another life.
 *     An offer that was refused or lost costs the copy, and nothing else.
 * B3  No host takes all of a box: each has a quarter of its room for offers at most.
 */
#ifndef TIERD_NET_BOX_H
#define TIERD_NET_BOX_H

#include "tierd/net/proto.h"

#define BOX_OFFERS 64u
#define BOX_OFFERS_EACH (BOX_OFFERS / 4)

/* An OFFER as it travels: blocks of one prefix, each the child of the one before. */
struct offer {
	struct net_offer m;
	uint8_t key[NET_OFFER_KEYS][NET_KEY_BYTES];
};

/* May this block be added behind those that are there? parent all zero: none. */
bool offer_fits(const struct offer *o, const struct net_offer *of, const uint8_t *parent);
/* Add it; o is empty or it fits. of: context, epoch and depth of it. */
void offer_add(struct offer *o, const struct net_offer *of, const uint8_t *parent,
	       const uint8_t *key);

struct box_taken {
	uint32_t from; /* homes_host */
	struct offer offer;
};

struct box {
	struct box_taken taken[BOX_OFFERS]; /* a ring: the caller's, zero */
	uint32_t first, count;
};

/* An OFFER of `from`: 0 it is taken, or was already; -EBUSY. */
int box_take(struct box *b, const struct net_offer *m, uint32_t from);
/* The oldest one, which is the caller's then; false: there is none. */
bool box_next(struct box *b, struct box_taken *out);

#endif
