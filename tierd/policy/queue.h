/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queues of blocks for policies: doubly linked rings through one array by slot, 8 bytes a block, so
 * that a block is on one queue at a time and every call is O(1). The array's first nodes are the
 * heads of QUEUES rings; zero-filled memory means "on no queue".
 */
#ifndef TIERD_POLICY_QUEUE_H
#define TIERD_POLICY_QUEUE_H

#include <assert.h>
#include <stdbool.h>

#include "tierd/core/unit/policy_ops.h"

#define QUEUES 2u
#define QUEUE_NONE 0u
#define QUEUE_EXTRA (QUEUES + 1u) /* nodes before slot 0's: node 0 is never used */
#define QUEUE_NODE(slot) ((slot) + QUEUE_EXTRA)

struct queue_link {
	uint32_t older, newer; /* nodes */
};

static inline size_t queue_bytes(uint64_t blocks_max)
{
	assert(blocks_max < ABI_SLOT_NONE - QUEUE_EXTRA);
	return (size_t)(blocks_max + QUEUE_EXTRA) * sizeof(struct queue_link);
}

static inline void queue_init(struct queue_link *link)
{
	for (uint32_t head = 1; head <= QUEUES; head++)
		link[head] = (struct queue_link){ .older = head, .newer = head };
}

static inline bool queue_has(const struct queue_link *link, uint32_t slot)
{
	return link[QUEUE_NODE(slot)].older != QUEUE_NONE;
}

/* Numbered from 0. The newest is the head's older neighbour, the oldest its newer one. */
static inline void queue_push(struct queue_link *link, uint32_t queue, uint32_t slot)
{
	uint32_t node = QUEUE_NODE(slot), head = queue + 1;

	assert(link[node].older == QUEUE_NONE && link[node].newer == QUEUE_NONE);
	link[node] = (struct queue_link){ .older = link[head].older, .newer = head };
	link[link[head].older].newer = node;
	link[head].older = node;
}

static inline void queue_pull(struct queue_link *link, uint32_t slot)
{
	uint32_t node = QUEUE_NODE(slot);

	assert(link[node].older != QUEUE_NONE && link[node].newer != QUEUE_NONE);
	assert(link[link[node].older].newer == node);
	assert(link[link[node].newer].older == node);
	link[link[node].older].newer = link[node].newer;
	link[link[node].newer].older = link[node].older;
	link[node] = (struct queue_link){ .older = QUEUE_NONE, .newer = QUEUE_NONE };
}

static inline uint32_t queue_slot(uint32_t node)
{
	return node < QUEUE_EXTRA ? ABI_SLOT_NONE : node - QUEUE_EXTRA;
}

/* The oldest of a queue; the one that came after slot. ABI_SLOT_NONE = none. */
static inline uint32_t queue_oldest(const struct queue_link *link, uint32_t queue)
{
	return queue_slot(link[queue + 1].newer);
}

static inline uint32_t queue_next(const struct queue_link *link, uint32_t slot)
{
	assert(link[QUEUE_NODE(slot)].newer != QUEUE_NONE);
	return queue_slot(link[QUEUE_NODE(slot)].newer);
}

#endif
