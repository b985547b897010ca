/*
 * An open stream, for connection.c, which closes those that are left, and lease.c, whose last
 * leases count its pages; the rest of stream.c is public.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_SRC_STREAM_H
#define TIER_SRC_STREAM_H

#include "libtier/src/connection.h"

#define STREAM_MOVES_MAX 4u /* upgrades that one stream outlives */

struct tier_stream {
	/* constant */
	struct tier *t;
	struct tier_context *c;
	uint32_t number; /* of the line */
	uint32_t generation;
	uint32_t count; /* blocks */
	uint64_t deadline_ns;
	struct abi_sqe range; /* parts and layers asked for */
	/* atomic: struct abi_stream *; a daemon that takes over has another one, of this number */
	uint64_t line_word;
	uint64_t home_word; /* atomic: struct attachment *, kept mapped by its count of streams */
	/* set once, atomic: one entry a layer; NULL until tier_stream_last */
	uint64_t layer_word;
	/* tier.lock */
	struct list link;
	struct attachment *former[STREAM_MOVES_MAX]; /* kept mapped, too */
	uint32_t moves;
	struct request *rq;
	uint32_t waiters;
	bool unanswered; /* gave the daemon up: the line is lost to this attachment */
};

/*
 * Flags of a last lease and what the lease remembers of them:
 *   flags  generation:8 at 16 | line:6 at 8 | TIER_LEASE_*
 *   lease  1:1 at 31 | generation:8 at 22 | line:6 at 16 | layer of the model:16
 */
#define STREAM_FLAGS 0x00ff3f00u

/* What a last lease of the page remembers. */
uint32_t stream_leased(const struct map *m, uint32_t page, uint32_t flags);

/*
 * A daemon that takes over is asked for the stream of this request: it goes on at the layers that
 * were not released, and what was ready comes again. Errors: -ENOTCONN its last leases are counted,
 * or it was moved too often.
 */
int stream_move(struct tier *t, const struct request *rq) REQUIRES(t->lock);

/* It was given back: counts it for its layer, which may thereby be released. number: of the
 * attachment that it was leased in; what is of an older one counts for nobody's layer. */
void stream_used(struct tier *t, uint64_t number, uint32_t remembered);

#endif
