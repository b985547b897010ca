/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits that an operator sets or the catalog restores: soft shares and hard quotas of contexts,
 * salts and clients, and budgets of pins. What they mean for who gives first is in book/quota.c.
 */
#include <errno.h>

#include "tierd/core/state.h"

static int context_limit(struct core *c, struct context *x, const struct core_quota *q,
			 uint64_t token)
{
	uint64_t sum = q->limit.soft, hard = q->limit.hard, most = x->plan.most[q->tier];
	uint64_t least = q->tier == ABI_TIER_NVME ? 1 : 2 * ABI_HUGE;

	for (uint32_t i = 0; i < c->contexts_high; i++)
		if (c->context[i] != x && quota_shares(c->context[i], q->tier))
			sum += c->context[i]->spec.soft[q->tier];
	if (!most)
		return -EINVAL;
	if (hard > most)
		return -E2BIG;
	if (q->tier == ABI_TIER_CXL)
		least += 2 * x->spec.geometry.block_bytes; /* as core_context_plan has it */
	if (q->tier < ABI_MEM_TIERS && hard < most && least < quota_least(x, q->tier))
		least = quota_least(x, q->tier);
	if (hard && hard < least)
		return -EINVAL;
	if (q->limit.soft && sum > c->config.capacity[q->tier])
		return -ENOSPC;
	if (q->tier < ABI_MEM_TIERS)
		x->spec.pins[q->tier] = q->pins;
	x->spec.soft[q->tier] = q->limit.soft;
	x->spec.hard[q->tier] = hard;
	x->plan.quota[q->tier] = hard ? hard : most;
	if (q->tier < ABI_MEM_TIERS)
		space_limit(x->space[q->tier], x->plan.quota[q->tier]);
	catalog_write(c, token, 0);
	return 0;
}

static int client_limit(struct core *c, const struct core_quota *q)
{
	const struct client *k;

	if (q->key >= CORE_CLIENTS_MAX)
		return -ENOENT;
	k = &c->client[q->key];
	if (k->state != 1 || k->owner < LEDGER_FIRST)
		return -ENOENT;
	ledger_limit_at(&c->owners, k->owner, q->tier,
			(struct ledger_limit){ q->limit.soft, q->limit.hard });
	if (q->tier < ABI_MEM_TIERS)
		ledger_limit_pins_at(&c->owners, k->owner, q->tier, q->pins);
	return 0;
}

static bool has_pin_limit(const struct holding *a, uint64_t key)
{
	uint64_t any = 0;

	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++)
		any |= a->pin_limit[t];
	return any && a->key == key;
}

static int salt_pins(struct context *x, uint64_t key, uint32_t tier, uint64_t bytes)
{
	if (key)
		return ledger_limit_pins(&x->salts, key, tier, bytes);
	ledger_limit_pins_at(&x->salts, LEDGER_NONE, tier, bytes);
	return 0;
}

/* Durable with its answer, like a context's. */
static int salt_limit(struct core *c, struct context *x, const struct core_quota *q, uint64_t token)
{
	struct ledger_limit limit = { q->limit.soft, q->limit.hard };
	const struct holding *a = &x->salts.account[ledger_find(&x->salts, q->key)];
	uint32_t more = !(a->limited && a->key == q->key) + (q->pins && !has_pin_limit(a, q->key));
	int err = 0;

	if (more && !catalog_room(c, 0, more))
		return -ENOSPC;
	if (q->tier < ABI_MEM_TIERS)
		err = salt_pins(x, q->key, q->tier, q->pins);
	if (!err && q->key)
		err = ledger_limit(&x->salts, q->key, q->tier, limit);
	else if (!err)
		ledger_limit_at(&x->salts, LEDGER_NONE, q->tier, limit);
	if (!err)
		catalog_write(c, token, 0);
	return err;
}

int core_limit_restore(struct core *c, const struct disk_limit *limit)
{
	struct context *x = core_context_by_uid(c, limit->context_uid & ~DISK_LIMIT_PINS);
	bool pins = limit->context_uid & DISK_LIMIT_PINS;
	int err = 0;

	if (!x)
		return aside_is(c, limit->context_uid & ~DISK_LIMIT_PINS) ? aside_limit(c, limit) :
									    0;
	for (uint32_t t = 0; t < ABI_MEM_TIERS && !err && pins; t++)
		err = salt_pins(x, limit->salt, t, limit->hard[t]);
	if (pins)
		return err;
	for (uint32_t t = 0; t < ABI_TIER_COUNT && !err; t++) {
		struct ledger_limit own = { limit->soft[t], limit->hard[t] };

		if (limit->salt)
			err = ledger_limit(&x->salts, limit->salt, t, own);
		else
			ledger_limit_at(&x->salts, LEDGER_NONE, t, own);
	}
	return err;
}

int core_quota_set(struct core *c, const struct core_quota *q, uint64_t token)
{
	struct context *x = NULL;
	int err;

	if (q->tier > ABI_TIER_NVME || (q->limit.hard && q->limit.soft > q->limit.hard))
		return -EINVAL;
	if (q->pins && q->tier >= ABI_MEM_TIERS)
		return -EINVAL; /* nothing is pinned there */
	if (q->who != CORE_HOLDER_CLIENT) {
		x = core_context(c, q->context_id);
		if (!x || x->closing)
			return -ENOENT;
	}
	if (q->who == CORE_HOLDER_CONTEXT)
		return context_limit(c, x, q, token);
	if (q->who == CORE_HOLDER_SALT)
		return salt_limit(c, x, q, token);
	err = client_limit(c, q);
	if (!err)
		core_reply(c, token, 0, 0);
	return err;
}
