/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Belady's placement for a known sequence of accesses, decided ahead of time: which access must
 * load its block, and which block leaves for it (the one whose next use is furthest away). Pure
 * data: no clock, no memory of its own after init; plan.c feeds it and carries out what it says.
 *
 * Nodes are distinct blocks; access i names a node and knows the next access of the same node. The
 * cursor runs ahead of the reader; each step costs O(log blocks in the tier).
 */
#ifndef TIERD_CORE_BELADY_H
#define TIERD_CORE_BELADY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libtier/abi/ring.h"

#define BELADY_NEVER UINT32_MAX
#define BELADY_NONE UINT32_MAX

struct belady_access {
	uint32_t node;
	uint32_t next; /* access of the same node; BELADY_NEVER */
};

struct belady_node {
	struct abi_block_ref ref;
	uint32_t last; /* access of it that was added last */
	uint32_t seen; /* ... that the cursor passed last */
	uint32_t key;  /* in the tier: its next use as of the cursor */
	uint32_t heap; /* 1 + place in the heap; 0 = not in the tier */
};

/* Access `access` must load its node; `victim` leaves for it once access `after` is over. */
struct belady_op {
	uint32_t access, node;
	uint32_t victim; /* BELADY_NONE = there is room */
	uint32_t after;
};

struct belady {
	uint32_t max;       /* accesses, and so nodes */
	uint32_t count, nodes;
	uint32_t cursor;    /* accesses before it are decided */
	uint32_t capacity;  /* blocks of the tier */
	uint32_t cached;
	uint32_t hash_mask;
	struct belady_access *access;
	struct belady_node *node;
	uint32_t *hash; /* 1 + node */
	uint32_t *heap; /* nodes in the tier, furthest next use on top */
};

/* Bytes for so many accesses; init lays the arrays out in them (any content). */
size_t belady_bytes(uint32_t max);
void belady_init(struct belady *b, void *memory, uint32_t max, uint32_t capacity);

/* Append an access. Errors: -ENOBUFS more than max. */
int belady_add(struct belady *b, struct abi_block_ref ref);

/* Decide access number cursor. True: *op must be done. cursor < count. */
bool belady_step(struct belady *b, struct belady_op *op);

#endif
