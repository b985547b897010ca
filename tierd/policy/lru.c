/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Least recently used: the plainest order, which every other policy is measured against. One doubly
 * linked list through an array by slot, 8 bytes a block; every call but a walk is O(1). The core
 * calls it through policy_ops only.
 */
#include "tierd/core/policy_ops.h"

#include <assert.h>

/*
 * Nodes are numbered so that zero-filled memory is a valid state: 0 = on no list, 1 = the list's
 * head, s + 2 = slot s.
 */
#define NODE_NONE 0u
#define NODE_HEAD 1u
#define NODE_OF(slot) ((slot) + 2u)
#define SLOT_OF(node) ((node) - 2u)
#define NODES_EXTRA 2u

struct lru_link {
	uint32_t older, newer; /* nodes */
};

struct lru {
	uint64_t blocks_max;
	struct lru_link link[]; /* by node; link[0] is never used */
};

static size_t lru_state_bytes(uint64_t blocks_max)
{
	assert(blocks_max < ABI_SLOT_NONE - NODES_EXTRA);
	return sizeof(struct lru) + (blocks_max + NODES_EXTRA) * sizeof(struct lru_link);
}

static void lru_init(void *state, uint64_t blocks_max)
{
	struct lru *lru = state;

	lru->blocks_max = blocks_max;
	lru->link[NODE_HEAD] = (struct lru_link){ .older = NODE_HEAD, .newer = NODE_HEAD };
}

/* The newest is the head's older neighbour, the oldest its newer one: the list is a ring. */
static void link_newest(struct lru *lru, uint32_t node)
{
	struct lru_link *head = &lru->link[NODE_HEAD], *link = &lru->link[node];

	assert(link->older == NODE_NONE && link->newer == NODE_NONE);
	*link = (struct lru_link){ .older = head->older, .newer = NODE_HEAD };
	lru->link[head->older].newer = node;
	head->older = node;
}

static void unlink_node(struct lru *lru, uint32_t node)
{
	struct lru_link *link = &lru->link[node];

	assert(link->older != NODE_NONE && link->newer != NODE_NONE);
	assert(lru->link[link->older].newer == node);
	assert(lru->link[link->newer].older == node);
	lru->link[link->older].newer = link->newer;
	lru->link[link->newer].older = link->older;
	*link = (struct lru_link){ .older = NODE_NONE, .newer = NODE_NONE };
}

static void lru_insert(void *state, uint32_t slot, const struct policy_hint *hint)
{
	struct lru *lru = state;

	(void)hint;
	assert(slot < lru->blocks_max);
	link_newest(lru, NODE_OF(slot));
}

static void lru_touch(void *state, uint32_t slot, uint32_t weight, uint64_t now_ns)
{
	struct lru *lru = state;

	(void)now_ns;
	assert(slot < lru->blocks_max);
	if (weight == 0)
		return;
	unlink_node(lru, NODE_OF(slot));
	link_newest(lru, NODE_OF(slot));
}

static void lru_remove(void *state, uint32_t slot)
{
	struct lru *lru = state;

	assert(slot < lru->blocks_max);
	unlink_node(lru, NODE_OF(slot));
}

static uint32_t lru_victim(const void *state, uint32_t after)
{
	const struct lru *lru = state;
	uint32_t node = after == ABI_SLOT_NONE ? NODE_HEAD : NODE_OF(after);

	assert(after == ABI_SLOT_NONE || after < lru->blocks_max);
	node = lru->link[node].newer;
	assert(node != NODE_NONE);
	return node == NODE_HEAD ? ABI_SLOT_NONE : SLOT_OF(node);
}

extern const struct policy_ops policy_lru;
const struct policy_ops policy_lru = {
	.size = sizeof(struct policy_ops),
	.version = 1,
	.name = "lru",
	.help = "the block that was not leased for the longest time leaves first",
	.state_bytes = lru_state_bytes,
	.init = lru_init,
	.insert = lru_insert,
	.touch = lru_touch,
	.remove = lru_remove,
	.victim = lru_victim,
};
