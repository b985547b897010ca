/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policies that this binary has, by name. A new one is a file beside this one and a line in
 * the list below; nothing else names it. The core and the operator's tools ask here.
 */
#include "tierd/core/unit/policy_ops.h"

#include <assert.h>
#include <string.h>

extern const struct policy_ops policy_reuse, policy_lru;

static const struct policy_ops *const policies[] = { &policy_reuse, &policy_lru };

/* Names of other days: contexts on disk, settings and engines may have them still. */
static const char *const retired[] = { "reuse-hits", "fifo", "s3fifo", "arc" };

bool policy_retired(const char *name)
{
	for (uint32_t i = 0; i < sizeof(retired) / sizeof(retired[0]); i++)
		if (strcmp(retired[i], name) == 0)
			return true;
	return false;
}

const struct policy_ops *policy_at(uint32_t i)
{
	if (i >= sizeof(policies) / sizeof(policies[0]))
		return NULL;
	assert(policies[i]->size == sizeof(struct policy_ops));
	return policies[i];
}

bool policy_admit_all(void *state, uint32_t slot, uint64_t reach)
{
	(void)state, (void)slot, (void)reach;
	return true;
}

void policy_elsewhere(void *state, const uint8_t *key)
{
	(void)state, (void)key;
}

uint32_t policy_expect(const void *state, uint32_t slot, const uint8_t *key)
{
	(void)state, (void)slot, (void)key;
	return ABI_SLOT_NONE;
}

const struct policy_ops *policy_find(const char *name)
{
	const struct policy_ops *ops = NULL;

	for (uint32_t i = 0; (ops = policy_at(i)) != NULL; i++)
		if (strcmp(ops->name, name) == 0)
			break;
	return ops;
}
