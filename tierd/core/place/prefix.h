/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which block comes behind which (prefix.c). A block knows the one before it and one behind it; the
 * others behind the same one are its siblings, linked beside, for most blocks have none.
 */
#ifndef TIERD_CORE_PREFIX_H
#define TIERD_CORE_PREFIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct core;
struct context;

#define SIBLING_BITS 14u /* of an entry's name, in each half of block_meta.there */

/* The neighbours of a block that has siblings: slots, ABI_SLOT_NONE = none. */
struct sibling {
	uint32_t prev, next;
};

struct siblings {
	struct sibling *entry; /* [0] is that of blocks without */
	uint32_t high;         /* entries [1, high] were ever in use */
	uint32_t free;         /* of these, the first free one, linked by next; 0 = none */
	uint32_t count;        /* in use */
	uint32_t most;
};

/* Errors: -ENOMEM. */
int siblings_open(struct siblings *k, uint32_t blocks_max);
void siblings_close(struct siblings *k);

static inline size_t siblings_bytes(const struct siblings *k)
{
	return (k->high + (size_t)1) * sizeof(*k->entry);
}

/* The block before it, while that lives; ABI_SLOT_NONE = none known. And another one behind it. */
uint32_t block_parent(const struct context *x, uint32_t slot);
uint32_t prefix_sibling(const struct context *x, uint32_t slot);

/* `parent` (ABI_SLOT_NONE = not known) is before it, unless it has one that lives. */
void prefix_join(struct context *x, uint32_t slot, uint32_t parent);
void prefix_leave(struct context *x, uint32_t slot);

/* It will leave soon: what that takes is brought. */
void prefix_prefetch(const struct context *x, uint32_t slot);

/* Are its blocks found as prefixes? May the block not be kept without the one before it? */
bool prefix_rules(const struct context *x);
bool prefix_binds(const struct context *x, uint32_t slot);

/* It has left the index: those behind it follow. */
void prefix_dropped(struct core *c, struct context *x, uint32_t slot);

/* prefix_drop.c */
void prefix_step(struct core *c);
void prefix_tick(struct core *c);
uint64_t prefix_next(const struct core *c);

#endif
