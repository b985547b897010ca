/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Indexes of names in shared memory, one a context that somebody asked it for
 * (libtier/abi/object.h, N1 to N5). It is filled a part a turn, and written with each change of a
 * name, before who made the change is answered. One that is too small is GONE, and a larger one is
 * begun. Its memory is charged to the context in CXL.
 */
#ifndef TIERD_OBJECT_INDEX_H
#define TIERD_OBJECT_INDEX_H

#include "tierd/object/object_priv.h"

/* A descriptor of the context's index. Errors: -ENOSPC, -EDQUOT, -EFBIG, -EMFILE, -ENOMEM. */
int index_share(struct objects *o, struct object_account *a, uint64_t *bytes);
/* What the index says of a name is what there is; to be called behind each change of it. */
void index_update(struct objects *o, struct object_account *a, const char *name, uint32_t bytes);
/* All of its names have changed, or it is the end. */
void index_drop(struct objects *o, struct object_account *a);
/* Of all contexts. */
void indexes_end(struct objects *o);
/* Fill what is being filled. True: there is more to do. */
bool index_turn(struct objects *o);
/* What its readers were told that it is there stays in memory for a while. */
void index_hold(struct objects *o, const struct object_account *a,
		const struct wire_object_hold *m);
/* What is charged for indexes. */
uint64_t index_charged(const struct objects *o);

#endif
