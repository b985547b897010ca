/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A policy for tests of admission: LRU, which admits to NVMe what was used since it came. The
 * daemon has no such policy; a context is given it before its first block.
 */
#ifndef TIER_TESTS_LIB_TWICE_H
#define TIER_TESTS_LIB_TWICE_H

#include <string.h>

#include "tierd/core/state.h"

struct twice {
	uint64_t lru_bytes;
	uint8_t lru[]; /* then a byte for each slot: was it used? */
};

static inline uint8_t *twice_used(struct twice *t, uint32_t slot)
{
	return &t->lru[t->lru_bytes + slot];
}

static inline size_t twice_bytes(const struct policy_size *size)
{
	return sizeof(struct twice) + policy_find("lru")->state_bytes(size) + size->blocks_max;
}

static inline void twice_init(void *state, const struct policy_size *size)
{
	struct twice *t = state;

	t->lru_bytes = policy_find("lru")->state_bytes(size);
	policy_find("lru")->init(t->lru, size);
}

static inline size_t twice_state_used(const void *state, uint64_t slots)
{
	const struct twice *t = state;

	return sizeof(*t) + policy_find("lru")->state_used(t->lru, slots) + slots;
}

static inline void twice_insert(void *state, uint32_t slot, const struct policy_hint *hint)
{
	struct twice *t = state;

	*twice_used(t, slot) = false;
	policy_find("lru")->insert(t->lru, slot, hint);
}

static inline void twice_touch(void *state, uint32_t slot, uint32_t weight, uint64_t now_ns)
{
	struct twice *t = state;

	*twice_used(t, slot) |= weight > 0;
	policy_find("lru")->touch(t->lru, slot, weight, now_ns);
}

static inline void twice_remove(void *state, uint32_t slot, const uint8_t *key)
{
	policy_find("lru")->remove(((struct twice *)state)->lru, slot, key);
}

static inline uint32_t twice_victim(void *state, uint32_t after)
{
	return policy_find("lru")->victim(((struct twice *)state)->lru, after);
}

static inline bool twice_admit(void *state, uint32_t slot, uint64_t reach)
{
	(void)reach;
	return *twice_used(state, slot);
}

/* Give it to a context that has no block yet. False: no memory. */
static inline bool twice_use(struct context *x)
{
	static const struct policy_ops twice = {
		.size = sizeof(struct policy_ops),
		.version = 1,
		.name = "twice",
		.help = "LRU that admits what was used since it came",
		.state_bytes = twice_bytes,
		.init = twice_init,
		.state_used = twice_state_used,
		.insert = twice_insert,
		.touch = twice_touch,
		.remove = twice_remove,
		.victim = twice_victim,
		.admit = twice_admit,
		.elsewhere = policy_elsewhere,
		.expect = policy_expect,
	};
	struct policy_size size[ABI_MEM_TIERS];

	memcpy(size, x->lanes.size, sizeof(size));
	lanes_close(&x->lanes);
	memset(&x->lanes, 0, sizeof(x->lanes));
	return lanes_open(&x->lanes, &twice, size) == 0;
}

#endif
