/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ghosts: what a policy remembers of blocks that left, 8 bytes each. A table of lines, each a cache
 * line of places in the order of leaving; a key's tag names its line, and there the oldest makes
 * way for the newest. So a look-up touches one cache line, and nothing points anywhere. Lines fill
 * unevenly: of the last n that left, n half of the places, one in twenty is forgotten already. It
 * lives in a policy's state.
 */
#ifndef TIERD_POLICY_GHOSTS_H
#define TIERD_POLICY_GHOSTS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define GHOSTS_LINE 8u
#define GHOSTS_ALIGN 64u /* of the memory, so that a line is one cache line */

struct ghost {
	uint32_t tag;  /* of the key; 0 = none here */
	uint32_t note; /* the policy's own */
};

struct ghosts {
	uint32_t lines;
	uint32_t added; /* so far: counts on for ever */
	uint32_t reserved[14];
	struct ghost place[][GHOSTS_LINE]; /* newest first */
};

/* The first aligned address from `at` on. */
static inline struct ghosts *ghosts_at(void *at)
{
	return (struct ghosts *)(((uintptr_t)at + GHOSTS_ALIGN - 1) &
				 ~(uintptr_t)(GHOSTS_ALIGN - 1));
}

/* Bytes for `count` ghosts; set up zero-filled memory of that size. */
size_t ghosts_bytes(uint64_t count);
void ghosts_init(struct ghosts *g, uint64_t count);

/* A tag of a key, never 0. Keys are digests: any of their bits do. */
static inline uint32_t ghosts_tag(const uint8_t *key)
{
	uint32_t tag;

	memcpy(&tag, key, sizeof(tag));
	return tag ? tag : 1;
}

/* The number of the tag's line. */
static inline uint32_t ghosts_line(const struct ghosts *g, uint32_t tag)
{
	uint32_t hash = (tag ^ tag >> 16) * 0x85ebca6bu;

	hash = (hash ^ hash >> 13) * 0xc2b2ae35u; /* keys of careless engines are regular */
	return (uint32_t)((uint64_t)hash * g->lines >> 32);
}

/* Soon it will be looked for, or added: its line is brought. */
static inline void ghosts_prefetch(const struct ghosts *g, uint32_t tag)
{
	__builtin_prefetch(g->place[ghosts_line(g, tag)], 1);
}

/* The ghost with the tag, valid until one is added or dropped; NULL = not remembered. */
struct ghost *ghosts_find(struct ghosts *g, uint32_t tag);

/* Remember one more; *forgotten is what makes way: its own tag's, the oldest (tag 0 = nothing). */
void ghosts_add(struct ghosts *g, const struct ghost *ghost, struct ghost *forgotten);

void ghosts_drop(struct ghosts *g, struct ghost *ghost);

#endif
