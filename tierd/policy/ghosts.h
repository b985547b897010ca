/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ghosts: what a policy remembers of blocks that left. A ring of fixed size in the order of their
 * leaving, found by a tag of the key through a hash table behind it; the oldest makes way for the
 * newest. No pointers inside: it lives in a policy's state.
 */
#ifndef TIERD_POLICY_GHOSTS_H
#define TIERD_POLICY_GHOSTS_H

#include <stddef.h>
#include <stdint.h>

struct ghost {
	uint32_t tag;  /* of the key; 0 = none here */
	uint32_t next; /* of its hash bucket: place + 1; 0 = none */
	uint16_t time; /* the policy's own clock */
	uint8_t kind, uses;
};

struct ghosts {
	uint32_t count; /* places of the ring */
	uint32_t mask;	/* of the buckets, which follow the ring */
	uint32_t at;	/* the place that is filled next: the oldest */
	uint32_t reserved;
	struct ghost ring[];
};

/* Bytes for `count` ghosts; set up zero-filled memory of that size. */
size_t ghosts_bytes(uint64_t count);
void ghosts_init(struct ghosts *g, uint64_t count);

/* A tag of a key, never 0. Keys are digests: any of their bits do. */
uint32_t ghosts_tag(const uint8_t *key);

/* The newest ghost with the tag, valid until one is added or dropped; NULL = not remembered. */
struct ghost *ghosts_find(struct ghosts *g, uint32_t tag);

/* How many were added since, itself included: 1 = the newest. */
uint32_t ghosts_age(const struct ghosts *g, const struct ghost *ghost);

/* Remember one more; *forgotten is what it pushes out (tag 0 = nothing). */
void ghosts_add(struct ghosts *g, const struct ghost *ghost, struct ghost *forgotten);

void ghosts_drop(struct ghosts *g, struct ghost *ghost);

#endif
