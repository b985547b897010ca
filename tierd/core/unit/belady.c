/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See belady.h. The heap is a binary one by next use; a hash with linear probing finds nodes by
 * block. Everything lies in one piece of memory that the caller owns.
 */
#include "tierd/core/unit/belady.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

static uint32_t hash_slots(uint32_t max)
{
	uint32_t slots = 16;

	while (slots < 2 * max)
		slots *= 2;
	return slots;
}

size_t belady_bytes(uint32_t max)
{
	return (size_t)max * (sizeof(struct belady_access) + sizeof(struct belady_node) +
			      sizeof(uint32_t)) +
	       hash_slots(max) * sizeof(uint32_t);
}

void belady_init(struct belady *b, void *memory, uint32_t max, uint32_t capacity)
{
	assert(max && capacity);
	memset(b, 0, sizeof(*b));
	b->max = max;
	b->capacity = capacity;
	b->hash_mask = hash_slots(max) - 1;
	b->access = memory;
	b->node = (struct belady_node *)(b->access + max);
	b->heap = (uint32_t *)(b->node + max);
	b->hash = b->heap + max;
	memset(b->hash, 0, hash_slots(max) * sizeof(uint32_t));
}

/* ---- heap --------------------------------------------------------------------------------- */

/*
 * Whose next use is further leaves first. Of those that are not used again whoever was read first:
 * it has left when its place is needed, while one loaded ahead has to be read before it may go.
 */
static bool goes_before(const struct belady *b, uint32_t x, uint32_t y)
{
	const struct belady_node *nx = &b->node[x], *ny = &b->node[y];

	return nx->key != ny->key ? nx->key > ny->key : nx->seen < ny->seen;
}

static void place(struct belady *b, uint32_t at, uint32_t node)
{
	b->heap[at] = node;
	b->node[node].heap = at + 1;
}

static void sift_up(struct belady *b, uint32_t at)
{
	uint32_t node = b->heap[at];

	while (at && goes_before(b, node, b->heap[(at - 1) / 2])) {
		place(b, at, b->heap[(at - 1) / 2]);
		at = (at - 1) / 2;
	}
	place(b, at, node);
}

static void sift_down(struct belady *b, uint32_t at)
{
	uint32_t node = b->heap[at], child;

	while ((child = 2 * at + 1) < b->cached) {
		if (child + 1 < b->cached &&
		    goes_before(b, b->heap[child + 1], b->heap[child]))
			child++;
		if (!goes_before(b, b->heap[child], node))
			break;
		place(b, at, b->heap[child]);
		at = child;
	}
	place(b, at, node);
}

static void enter(struct belady *b, uint32_t node, uint32_t key)
{
	assert(!b->node[node].heap && b->cached < b->capacity);
	b->node[node].key = key;
	place(b, b->cached, node);
	sift_up(b, b->cached++);
}

static uint32_t leave(struct belady *b)
{
	uint32_t node = b->heap[0];

	assert(b->cached);
	b->node[node].heap = 0;
	if (--b->cached) {
		place(b, 0, b->heap[b->cached]);
		sift_down(b, 0);
	}
	return node;
}

/* ---- the sequence ------------------------------------------------------------------------- */

static uint32_t find(struct belady *b, struct abi_block_ref ref)
{
	uint64_t word = (uint64_t)ref.slot << 32 | ref.generation;
	uint32_t at = (uint32_t)(word * 0x9e3779b97f4a7c15ull >> 32) & b->hash_mask;

	for (; b->hash[at]; at = (at + 1) & b->hash_mask) {
		const struct belady_node *n = &b->node[b->hash[at] - 1];

		if (n->ref.slot == ref.slot && n->ref.generation == ref.generation)
			return b->hash[at] - 1;
	}
	b->node[b->nodes] = (struct belady_node){ .ref = ref, .last = BELADY_NEVER };
	b->hash[at] = ++b->nodes;
	return b->nodes - 1;
}

int belady_add(struct belady *b, struct abi_block_ref ref)
{
	struct belady_node *n;
	uint32_t node, i = b->count;

	if (i == b->max)
		return -ENOBUFS;
	node = find(b, ref);
	n = &b->node[node];
	b->access[i] = (struct belady_access){ node, BELADY_NEVER };
	if (n->last != BELADY_NEVER)
		b->access[n->last].next = i;
	if (n->heap && n->key == BELADY_NEVER) { /* decided when nothing was known of this one */
		n->key = i;
		sift_down(b, n->heap - 1);
	}
	n->last = i;
	b->count++;
	return 0;
}

bool belady_step(struct belady *b, struct belady_op *op)
{
	uint32_t i = b->cursor++, node = b->access[i].node;
	struct belady_node *n = &b->node[node];

	assert(i < b->count && node < b->nodes);
	if (n->heap) {
		assert(n->key == i);
		n->key = b->access[i].next;
		n->seen = i;
		sift_up(b, n->heap - 1);
		return false;
	}
	*op = (struct belady_op){ .access = i, .node = node, .victim = BELADY_NONE };
	if (b->cached == b->capacity) {
		op->victim = leave(b);
		op->after = b->node[op->victim].seen;
	}
	n->seen = i;
	enter(b, node, b->access[i].next);
	return true;
}
