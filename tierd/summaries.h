/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The summaries of a drive, one after the other, read ahead side by side: taking what a summary
 * says costs about as much as reading it, and a device answers several reads in the time of one.
 * For start-up only, by one thread.
 */
#ifndef TIERD_SUMMARIES_H
#define TIERD_SUMMARIES_H

#include "tierd/backend/backend_ops.h"
#include "tierd/core/unit/store.h"

struct summaries;

/* Begins to read. Errors: -ENOMEM, of pthread_create. */
int summaries_open(struct summaries **out, const struct drive_ops *ops, struct drive *device,
		   const struct disk_super *super);
/*
 * The next segment's, valid until the next call; segments come in order, each once. *unread: 0, or
 * why it could not be read whole; sectors that could not are zeros.
 */
void *summaries_next(struct summaries *sm, int *unread);
/* NULL is fine. Waits for reads under way. */
void summaries_close(struct summaries *sm);

#endif
