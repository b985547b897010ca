/*
 * Opening contexts, for attach.c and connection.c; the rest of context.c is public.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_SRC_CONTEXT_H
#define TIER_SRC_CONTEXT_H

#include "libtier/src/connection.h"

/*
 * The question that a name and options make, without a geometry. Errors: -EINVAL, -E2BIG, those of
 * options_read.
 */
int context_question(struct wire_ctx *q, const char *name,
		     const struct tier_context_options *options);

/*
 * A map of the context as attachment a, which need not be the present one, has it; *out is NULL
 * when the daemon has it no longer or has another one of that name. Errors: -ENOTCONN, -ETIMEDOUT,
 * -EPROTO, -ENOMEM: the attachment is of no use.
 */
int context_reopen(struct tier *t, struct tier_context *c, struct attachment *a,
		   uint64_t deadline_ns, struct map **out) REQUIRES(t->wire);

/* Is it a map of this handle: made for it, or shared with one that was there before? */
bool context_has(const struct tier_context *c, const struct map *m);

#endif
