/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Accounts (ledger.h). Memory is fixed: a key that finds no account free is counted as "other", so
 * nobody can make the table grow by inventing keys. Keys are clients' words and only compared.
 */
#include "tierd/core/unit/ledger.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int ledger_open(struct ledger *l, uint32_t count)
{
	assert(count >= 4 && count <= LEDGER_MAX && !(count & (count - 1)));
	memset(l, 0, sizeof(*l));
	l->account = calloc(count, sizeof(*l->account));
	l->chain = calloc(count, sizeof(*l->chain));
	if (!l->account || !l->chain) {
		ledger_close(l);
		return -ENOMEM;
	}
	l->count = count;
	l->account[LEDGER_NONE].open = l->account[LEDGER_OTHER].open = true;
	for (uint32_t i = count; i-- > LEDGER_FIRST;) {
		l->account[i].next = l->free;
		l->free = (uint16_t)i;
	}
	return 0;
}

void ledger_close(struct ledger *l)
{
	free(l->account);
	free(l->chain);
	memset(l, 0, sizeof(*l));
}

static uint16_t *chain_of(const struct ledger *l, uint64_t key)
{
	return &l->chain[(key * 0x9e3779b97f4a7c15ull >> 32) & (l->count - 1)];
}

uint32_t ledger_find(const struct ledger *l, uint64_t key)
{
	uint32_t i = *chain_of(l, key);

	while (i && l->account[i].key != key)
		i = l->account[i].next;
	return i;
}

static uint32_t account_new(struct ledger *l, uint64_t key)
{
	uint32_t i = l->free;
	struct holding *a = &l->account[i];
	uint16_t *chain = chain_of(l, key);

	if (!i)
		return LEDGER_NONE;
	assert(!a->open);
	l->free = a->next;
	*a = (struct holding){ .key = key, .open = true, .next = *chain };
	*chain = (uint16_t)i;
	l->open++;
	return i;
}

/* Free the account when nothing names it. */
static void account_settle(struct ledger *l, uint32_t i)
{
	struct holding *a = &l->account[i];
	uint16_t *link = chain_of(l, a->key);

	if (i < LEDGER_FIRST || a->uses || a->limited)
		return;
	for (uint32_t t = 0; t < ABI_TIER_COUNT; t++)
		if (a->used[t])
			return;
	while (*link != i) {
		assert(*link);
		link = &l->account[*link].next;
	}
	*link = a->next;
	*a = (struct holding){ .next = l->free };
	l->free = (uint16_t)i;
	assert(l->open > 0);
	l->open--;
}

uint32_t ledger_take(struct ledger *l, uint64_t key)
{
	uint32_t i = ledger_find(l, key);

	if (!i)
		i = account_new(l, key);
	if (!i) {
		l->overflowed++;
		i = LEDGER_OTHER;
	}
	l->account[i].uses++;
	return i;
}

void ledger_drop(struct ledger *l, uint32_t i)
{
	assert(i < l->count && l->account[i].open);
	assert(l->account[i].uses > 0);
	l->account[i].uses--;
	account_settle(l, i);
}

/* ---- limits ------------------------------------------------------------------------------- */

static void limits_changed(struct ledger *l, uint32_t i)
{
	struct holding *a = &l->account[i];

	a->limited = false;
	for (uint32_t t = 0; t < ABI_TIER_COUNT; t++)
		a->limited |= a->limit[t].soft || a->limit[t].hard;
	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++)
		a->limited |= a->pin_limit[t] != 0;
	account_settle(l, i);
}

void ledger_limit_at(struct ledger *l, uint32_t i, uint32_t tier, struct ledger_limit limit)
{
	struct holding *a = &l->account[i];

	assert(a->open && tier < ABI_TIER_COUNT);
	if (a->used[tier] && !a->limit[tier].soft)
		l->plain[tier]--;
	l->soft_sum[tier] += limit.soft - a->limit[tier].soft;
	a->limit[tier] = limit;
	if (a->used[tier] && !limit.soft)
		l->plain[tier]++;
	limits_changed(l, i);
}

/* The key's account, a new one if a limit is to stand in it; *i 0 = none. Errors: -ENOSPC. */
static int limit_account(struct ledger *l, uint64_t key, bool wanted, uint32_t *i)
{
	*i = ledger_find(l, key);
	if (!*i && wanted)
		*i = account_new(l, key);
	return wanted && !*i ? -ENOSPC : 0;
}

int ledger_limit(struct ledger *l, uint64_t key, uint32_t tier, struct ledger_limit limit)
{
	uint32_t i;
	int err = limit_account(l, key, limit.soft || limit.hard, &i);

	if (i)
		ledger_limit_at(l, i, tier, limit);
	return err;
}

/* ---- pins --------------------------------------------------------------------------------- */

void ledger_limit_pins_at(struct ledger *l, uint32_t i, uint32_t tier, uint64_t bytes)
{
	assert(l->account[i].open && tier < ABI_MEM_TIERS);
	l->account[i].pin_limit[tier] = bytes;
	limits_changed(l, i);
}

int ledger_limit_pins(struct ledger *l, uint64_t key, uint32_t tier, uint64_t bytes)
{
	uint32_t i;
	int err = limit_account(l, key, bytes > 0, &i);

	if (i)
		ledger_limit_pins_at(l, i, tier, bytes);
	return err;
}

void ledger_pin(struct ledger *l, uint32_t i, uint32_t tier, uint64_t bytes)
{
	assert(i < l->count && l->account[i].open && tier < ABI_MEM_TIERS);
	l->account[i].pinned[tier] += bytes;
}

void ledger_unpin(struct ledger *l, uint32_t i, uint32_t tier, uint64_t bytes)
{
	assert(i < l->count && l->account[i].open && tier < ABI_MEM_TIERS);
	assert(l->account[i].pinned[tier] >= bytes);
	l->account[i].pinned[tier] -= bytes;
}

/* ---- shares ------------------------------------------------------------------------------- */

uint64_t ledger_share(const struct ledger *l, uint32_t i, uint32_t tier, uint64_t soft,
		      uint64_t whole)
{
	const struct holding *a = &l->account[i];
	uint32_t plain = l->plain[tier];

	assert(i < l->count && a->open);
	if (a->limit[tier].soft)
		return a->limit[tier].soft;
	if (soft)
		return soft;
	if (!a->used[tier])
		plain++; /* it would be one of them */
	if (l->soft_sum[tier] >= whole)
		return 0;
	whole -= l->soft_sum[tier];
	return plain == 1 ? whole : whole / plain; /* mostly one, and dividing takes long */
}

/* ---- bytes -------------------------------------------------------------------------------- */

void ledger_emptied(struct ledger *l, uint32_t i, uint32_t tier)
{
	const struct holding *a = &l->account[i];

	assert(!a->used[tier]);
	if (!a->limit[tier].soft)
		l->plain[tier]--;
	account_settle(l, i);
}
