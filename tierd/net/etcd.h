/* SPDX-License-Identifier: Apache-2.0 */
/*
 * etcd's JSON gateway, a call at a time; one thread at a time. Keys are below /tier/FLEET/. A call
 * that etcd does not answer in a second has failed, whatever became of it.
 */
#ifndef TIERD_NET_ETCD_H
#define TIERD_NET_ETCD_H

#include "tierd/net/node.h"

struct etcd;

int etcd_open(struct etcd **out, struct node *n);
/* Gives our lease back, and with it all that is under it. NULL is fine. */
void etcd_close(struct etcd *e);

/*
 * All below a key: an array of { "name": what follows it, "value": document, "mod": revision }, or
 * NULL when etcd is away. To be released with json_decref.
 */
json_t *etcd_range(struct etcd *e, const char *below);
/* Takes value over. leased: it goes when our lease is over. */
bool etcd_put(struct etcd *e, const char *key, json_t *value, bool leased);
/* Put if nobody has since revision `mod` (0: if it is not there); false also when somebody had. */
bool etcd_put_if(struct etcd *e, const char *key, json_t *value, int64_t mod);
bool etcd_delete(struct etcd *e, const char *key);

/* Our lease: get one or keep it. *fresh: it is a new one, what was under the last has gone. */
bool etcd_lease(struct etcd *e, bool *fresh);

/* ---- members.c, epochs.c ------------------------------------------------------------------- */

/* Our record, and who else is there; false: etcd is away. */
bool etcd_members(struct etcd *e, struct node *n, bool fresh);

/*
 * Epochs of what we share: raises ours to what etcd has, and etcd's to what we have, and says there
 * which one we have applied; a context is not served before that was done once.
 */
bool epochs_turn(struct etcd *e, struct node *n, bool fresh);

#endif
