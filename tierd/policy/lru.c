/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plain order that every other policy is measured against: least recently used. One queue. The
 * core calls it through policy_ops only.
 */
#include "tierd/policy/queue.h"

struct lru {
	uint64_t blocks_max;
	struct queue_link link[];
};

static size_t lru_state_bytes(const struct policy_size *size)
{
	return sizeof(struct lru) + queue_bytes(size->blocks_max);
}

static size_t lru_state_used(const void *state, uint64_t slots)
{
	(void)state;
	return sizeof(struct lru) + queue_bytes(slots);
}

static void lru_init(void *state, const struct policy_size *size)
{
	struct lru *lru = state;

	lru->blocks_max = size->blocks_max;
	queue_init(lru->link);
}

static void lru_insert(void *state, uint32_t slot, const struct policy_hint *hint)
{
	struct lru *lru = state;

	(void)hint;
	assert(slot < lru->blocks_max);
	queue_push(lru->link, 0, slot);
}

static void lru_touch(void *state, uint32_t slot, uint32_t weight, uint64_t now_ns)
{
	struct lru *lru = state;

	(void)now_ns;
	assert(slot < lru->blocks_max);
	if (weight == 0)
		return;
	queue_pull(lru->link, slot);
	queue_push(lru->link, 0, slot);
}

static void lru_remove(void *state, uint32_t slot, const uint8_t *key)
{
	struct lru *lru = state;

	(void)key;
	assert(slot < lru->blocks_max);
	queue_pull(lru->link, slot);
}

static uint32_t lru_victim(void *state, uint32_t after)
{
	const struct lru *lru = state;

	if (after == ABI_SLOT_NONE)
		return queue_oldest(lru->link, 0);
	assert(after < lru->blocks_max);
	return queue_next(lru->link, after);
}

/* Its neighbours change when it moves; of the two the newer one is the next to leave. */
static uint32_t lru_expect(const void *state, uint32_t slot, const uint8_t *key)
{
	const struct lru *lru = state;
	const struct queue_link *link;

	(void)key;
	if (slot == ABI_SLOT_NONE)
		return slot;
	link = &lru->link[QUEUE_NODE(slot)];
	__builtin_prefetch(&lru->link[link->newer], 1);
	return queue_slot(link->newer);
}

extern const struct policy_ops policy_lru;
const struct policy_ops policy_lru = {
	.size = sizeof(struct policy_ops),
	.version = 1,
	.name = "lru",
	.help = "the block that was not leased for the longest time leaves first",
	.state_bytes = lru_state_bytes,
	.init = lru_init,
	.state_used = lru_state_used,
	.insert = lru_insert,
	.touch = lru_touch,
	.remove = lru_remove,
	.victim = lru_victim,
	.admit = policy_admit_all,
	.elsewhere = policy_elsewhere,
	.expect = lru_expect,
};
