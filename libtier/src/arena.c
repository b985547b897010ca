/*
 * First fit over a list of free extents, sorted by address so that neighbours merge; see arena.h.
 *
 * With n allocations there are at most n + 1 free extents, which bounds the nodes. The list stays
 * short: requests take and give back single extents at the high end.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "libtier/src/arena.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

static uint64_t round_up(uint64_t bytes)
{
	return (bytes + ARENA_ALIGN - 1) & ~(uint64_t)(ARENA_ALIGN - 1);
}

static uint32_t node_take(struct arena *a)
{
	uint32_t node = a->unused;

	if (node != ARENA_NONE)
		a->unused = a->extent[node].next;
	return node;
}

static void node_drop(struct arena *a, uint32_t node)
{
	a->extent[node].next = a->unused;
	a->unused = node;
}

int arena_init(struct arena *a, uint64_t bytes, uint32_t allocations_max)
{
	*a = (struct arena){
		.extent_count = allocations_max + 1,
		.first = ARENA_NONE,
		.unused = ARENA_NONE,
		.bytes = bytes & ~(uint64_t)(ARENA_ALIGN - 1),
	};
	a->extent = calloc(a->extent_count, sizeof(*a->extent));
	if (!a->extent)
		return -ENOMEM;
	for (uint32_t i = a->extent_count; i-- > 0;)
		node_drop(a, i);
	if (a->bytes > 0) {
		a->first = node_take(a);
		a->extent[a->first] = (struct arena_extent){ .bytes = a->bytes,
							     .next = ARENA_NONE };
	}
	return 0;
}

void arena_fini(struct arena *a)
{
	free(a->extent);
	*a = (struct arena){ .first = ARENA_NONE, .unused = ARENA_NONE };
}

/* Where the link to a node is kept: in the list's head or in the node before. */
static uint32_t *link_after(struct arena *a, uint32_t node)
{
	return node == ARENA_NONE ? &a->first : &a->extent[node].next;
}

/* The node before the extent to take from, in *before. -ENOBUFS: none fits. */
static int find_fit(struct arena *a, uint64_t bytes, enum arena_end end, uint32_t *before)
{
	uint32_t last = ARENA_NONE;
	int rc = -ENOBUFS;

	for (uint32_t at = a->first; at != ARENA_NONE; at = a->extent[at].next) {
		if (a->extent[at].bytes >= bytes) {
			*before = last;
			rc = 0;
			if (end == ARENA_LOW)
				break;
		}
		last = at;
	}
	return rc;
}

int arena_alloc(struct arena *a, uint64_t bytes, enum arena_end end, uint64_t *start)
{
	struct arena_extent *extent;
	uint32_t before = ARENA_NONE;
	uint32_t *link;

	if (bytes == 0 || bytes > a->bytes)
		return -ENOBUFS;
	bytes = round_up(bytes);
	/* n allocations leave at most n + 1 free extents: there is a node for each that returns. */
	if (a->allocations + 1 >= a->extent_count || find_fit(a, bytes, end, &before))
		return -ENOBUFS;
	link = link_after(a, before);
	extent = &a->extent[*link];
	if (end == ARENA_LOW) {
		*start = extent->start;
		extent->start += bytes;
	} else {
		*start = extent->start + extent->bytes - bytes;
	}
	extent->bytes -= bytes;
	if (extent->bytes == 0) {
		uint32_t empty = *link;

		*link = extent->next;
		node_drop(a, empty);
	}
	a->used_bytes += bytes;
	a->allocations++;
	return 0;
}

/* Joins node with the one after it when they touch. */
static void merge(struct arena *a, uint32_t node)
{
	struct arena_extent *extent;
	uint32_t next;

	if (node == ARENA_NONE)
		return;
	extent = &a->extent[node];
	next = extent->next;
	if (next == ARENA_NONE)
		return;
	assert(extent->start + extent->bytes <= a->extent[next].start);
	if (extent->start + extent->bytes != a->extent[next].start)
		return;
	extent->bytes += a->extent[next].bytes;
	extent->next = a->extent[next].next;
	node_drop(a, next);
}

void arena_free(struct arena *a, uint64_t start, uint64_t bytes)
{
	uint32_t before = ARENA_NONE;
	uint32_t node;
	uint32_t *link;

	bytes = round_up(bytes);
	assert(start % ARENA_ALIGN == 0 && bytes > 0 && start + bytes <= a->bytes);
	for (uint32_t at = a->first; at != ARENA_NONE && a->extent[at].start < start;
	     at = a->extent[at].next)
		before = at;
	assert(before == ARENA_NONE ||
	       a->extent[before].start + a->extent[before].bytes <= start);
	node = node_take(a);
	assert(node != ARENA_NONE);
	link = link_after(a, before);
	a->extent[node] = (struct arena_extent){ .start = start, .bytes = bytes, .next = *link };
	*link = node;
	a->used_bytes -= bytes;
	a->allocations--;
	merge(a, node);
	merge(a, before);
}

uint64_t arena_longest(const struct arena *a)
{
	uint64_t longest = 0;

	for (uint32_t at = a->first; at != ARENA_NONE; at = a->extent[at].next)
		if (a->extent[at].bytes > longest)
			longest = a->extent[at].bytes;
	return longest;
}
