/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of policies that replay compares; see policy.h. Two are the daemon's but for one call:
 * "reuse-hits" is told that every block begins its prompt, so that a use at any depth is worth as
 * much; "fifo" is LRU that is told of no use.
 */
#include "bench/policy/policy.h"

#include <string.h>

#include "tierd/core/state.h"

extern const struct policy_ops policy_reuse, policy_lru, policy_s3fifo, policy_arc;

static void flat_insert(void *state, uint32_t slot, const struct policy_hint *hint)
{
	struct policy_hint flat = *hint;

	flat.position = 0;
	policy_reuse.insert(state, slot, &flat);
}

static void no_touch(void *state, uint32_t slot, uint32_t weight, uint64_t now_ns)
{
	(void)state, (void)slot, (void)weight, (void)now_ns;
}

static const struct entry {
	const struct policy_ops *ops;
	const char *name; /* NULL = its own */
	void (*insert)(void *state, uint32_t slot, const struct policy_hint *hint);
	void (*touch)(void *state, uint32_t slot, uint32_t weight, uint64_t now_ns);
} list[] = {
	{ &policy_reuse, NULL, NULL, NULL },
	{ &policy_reuse, "reuse-hits", flat_insert, NULL },
	{ &policy_lru, NULL, NULL, NULL },
	{ &policy_lru, "fifo", NULL, no_touch },
	{ &policy_s3fifo, NULL, NULL, NULL },
	{ &policy_arc, NULL, NULL, NULL },
};

bool bench_policy_at(uint32_t i, struct policy_ops *out)
{
	const struct entry *e = &list[i];

	if (i >= sizeof(list) / sizeof(list[0]))
		return false;
	*out = *e->ops;
	out->name = e->name ? e->name : out->name;
	out->insert = e->insert ? e->insert : out->insert;
	out->touch = e->touch ? e->touch : out->touch;
	return true;
}

bool bench_policy_find(const char *name, struct policy_ops *out)
{
	for (uint32_t i = 0; bench_policy_at(i, out); i++)
		if (strcmp(out->name, name) == 0)
			return true;
	return false;
}

int bench_policy_use(struct context *x, const struct policy_ops *ops)
{
	struct policy_size size[ABI_MEM_TIERS];

	memcpy(size, x->lanes.size, sizeof(size));
	lanes_close(&x->lanes);
	memset(&x->lanes, 0, sizeof(x->lanes));
	return lanes_open(&x->lanes, ops, size);
}
