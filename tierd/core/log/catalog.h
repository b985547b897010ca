/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What outlives the daemon of contexts, epochs and limits is written as a whole, to either of two
 * slots in turn (catalog.c): whose answers wait for it, and what scratch it takes. A part of
 * state.h.
 */
#ifndef TIERD_CORE_CATALOG_H
#define TIERD_CORE_CATALOG_H

#include "tierd/core/core.h"

/* An answer that the shell waits for. */
struct token {
	uint64_t token;
	uint64_t value;
	int32_t res;
};

struct core_catalog {
	uint64_t sequence; /* of the last write */
	uint8_t *buf;
	struct disk_context *list; /* scratch, max of them */
	struct disk_limit *limits; /* likewise, of the rest of the slot */
	uint32_t max;
	bool dirty, running, suspect; /* suspect: a flush failed during its write */
	uint64_t sync; /* the flush its last write needs */
	uint64_t voids, voids_listing, voids_listed; /* epochs and removals; written, flushed */
	struct token token[CORE_TOKENS_MAX]; /* [0, flying) are in the write under way */
	uint32_t tokens, flying;
};

#endif
