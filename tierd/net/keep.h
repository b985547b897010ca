/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Standing grants, as pure state (proto.h): who reads single pages of another host's blocks names
 * the keys once, and then each page, or some, in one round trip. For whom a prefix's bytes are far
 * more than what is read of it: sparse attention.
 *
 * R8  A page that comes so is verified (N4), of an epoch and deletions that stand at that moment;
 *     its holder has said that the grant stood when it was read, and it was not over here by then.
 *
 * A standing grant keeps nothing: the holder's leases last for an answer. A block that leaves there
 * is a miss for its pages; an epoch, another life of the holder's tierd and the end of sharing end
 * it. So nothing of the holder's waits for a requester that stands still.
 */
#ifndef TIERD_NET_KEEP_H
#define TIERD_NET_KEEP_H

#include "tierd/net/proto.h"

/* ---- requester ------------------------------------------------------------------------------ */

/* PICKED: the answer is awaited; CAME: its pages came, and the holder's word is. */
enum keep_state { KEEP_FREE, KEEP_ASKED, KEEP_OPEN, KEEP_PICKED, KEEP_CAME };

struct keep {
	enum keep_state state;
	const struct shape *shape;
	uint64_t id; /* of what was asked last: KEEP and each PICK have their own */
	uint64_t epoch, deleted;
	uint64_t sent_ns, ends_ns;
	uint32_t asked, blocks;
	uint32_t count; /* pages that were picked */
	struct net_pick_page page[NET_FRAME_PAGES_MAX];
};

/* A KEEP of `asked` blocks, but for its context, class and keys. */
void keep_ask(struct keep *k, const struct shape *s, uint64_t wait_ns, struct net_ask *m,
	      uint64_t now_ns);
/* 0: it is open; -EPROTO: the connection cannot go on; else why there is none. */
int keep_granted(struct keep *k, const struct net_grant *m);
/* Is it open until then? */
bool keep_lasts(const struct keep *k, uint64_t until_ns);
/* A PICK of the `count` pages in `page`, behind it; wait_ns is the caller's. */
void keep_pick(struct keep *k, struct net_pick *m);
/* As keep_granted; an error that is not -EPROTO ends the grant. */
int keep_picked(struct keep *k, const struct net_picked *m);
/* The last word: 0, the pages without an error are good (R8). publishes: as pull_layers'. */
int keep_whole(struct keep *k, const struct net_word *m, bool publishes, uint64_t now_ns);

/* ---- holder --------------------------------------------------------------------------------- */

struct kept {
	bool open;
	const struct shape *shape;
	uint64_t id; /* of the last PICK */
	uint64_t epoch, ends_ns;
	uint32_t blocks;
};

/* Grant `blocks`, 0: out->error says why not. What there was is over. */
void kept_grant(struct kept *k, const struct net_ask *m, const struct shape *s, uint32_t blocks,
		struct net_grant *out, uint64_t now_ns);
/* 0; -ETIMEDOUT, -ESTALE: it is over, intact says whether it stood else; -EPROTO. */
int kept_pick(struct kept *k, const struct net_pick *m, bool intact, uint64_t now_ns);
/* The answer, where errors and CRCs are behind it. error: of all. */
void kept_picked(const struct kept *k, const struct net_pick *m, int error,
		 struct net_picked *out);
/* Behind the pages. */
void kept_whole(struct kept *k, bool intact, struct net_word *out, uint64_t now_ns);

/* ---- both ----------------------------------------------------------------------------------- */

/* What a picked page is; NULL: there is none such in that many blocks. */
const struct shape_page *keep_page(const struct shape *s, uint32_t blocks,
				   const struct net_pick_page *p);

#endif
