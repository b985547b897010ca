/* SPDX-License-Identifier: Apache-2.0 */
/*
 * etcd's JSON gateway, a call at a time; one thread at a time. Keys are below /tier/FLEET/. A call
 * that etcd does not answer in a second has failed, whatever becomes of it.
 */
#ifndef TIERD_NET_ETCD_H
#define TIERD_NET_ETCD_H

#include "tierd/net/node.h"

struct etcd;

int etcd_open(struct etcd **out, struct node *n);
/* Gives our lease back, and with it all that is under it. NULL is fine. */
void etcd_close(struct etcd *e);

/*
 * All below a key, or of that those from `from` to before `to`: an array of { "name": what follows
 * it, "value": document, "mod": revision, "lease": true if it is under ours }, or NULL when etcd is
 * away. To be released with json_decref.
 */
json_t *etcd_range(struct etcd *e, const char *below);
json_t *etcd_between(struct etcd *e, const char *below, const char *from, const char *to);

/* Parts of a transaction. Takes value over. leased: it goes when our lease is over. */
json_t *etcd_to_put(const struct etcd *e, const char *key, json_t *value, bool leased);
json_t *etcd_to_delete(const struct etcd *e, const char *below, const char *before); /* NULL: it */
/*
 * What `parts` (an array, taken over) says, if the key's revision is *mod (0: it is not there).
 * *mod becomes the new one. -ESTALE: it is another one; -EAGAIN: etcd is away, or refuses.
 */
int etcd_change(struct etcd *e, const char *key, int64_t *mod, json_t *parts);

/* Our lease. -ESTALE: there is none, or it is over; -EAGAIN. */
int etcd_keep(struct etcd *e);
int etcd_lease(struct etcd *e);

/* ---- members.c, epochs.c ------------------------------------------------------------------- */

/* Who else is there; and of our own record its revision, and whether it is as it should be. */
int etcd_members(struct etcd *e, struct node *n, struct agree_answer *out);
/* Write it. */
int etcd_enter(struct etcd *e, const struct node *n, int64_t *mod);

/* pool.c: POOL_READ, POOL_CLAIM. */
int pool_agree(struct etcd *e, struct node *n, const struct agree_call *c,
	       struct agree_answer *out);

/* A turn of agree.h: false: etcd is away. */
bool epochs_turn(struct etcd *e, struct node *n);

#endif
