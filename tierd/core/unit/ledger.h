/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ledger: who holds how many bytes of each tier, in a bounded number of accounts, each with a
 * soft share and a hard limit. A context has one of its salts, the core one of its clients.
 *
 * Account 0 is for what has no key of its own (the public salt; no client), account 1 for every key
 * that found no account free: "other", one tenant for all of them. The rest are found by key and
 * given back when nothing names them any more.
 *
 * Life of an account
 *   1. ledger_take finds the key's account, or makes one; what it returns stays valid while the
 *      uses that were taken are not dropped, or limits are set.
 *   2. ledger_add, ledger_sub count bytes.
 *   3. ledger_drop; without uses, bytes and limits the account is free.
 */
#ifndef TIERD_CORE_LEDGER_H
#define TIERD_CORE_LEDGER_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "libtier/abi/common.h"

#define LEDGER_NONE 0u  /* account of no key */
#define LEDGER_OTHER 1u /* of all keys beyond the table */
#define LEDGER_FIRST 2u
#define LEDGER_MAX 65536u

/* Bytes; 0 = not set. Over `soft`: gives first when room is short. `hard` is never exceeded. */
struct ledger_limit {
	uint64_t soft;
	uint64_t hard;
};

struct holding {
	uint64_t key;
	uint64_t used[ABI_TIER_COUNT];
	struct ledger_limit limit[ABI_TIER_COUNT];
	uint64_t pinned[ABI_MEM_TIERS];    /* bytes that pins keep; of a client: claim */
	uint64_t pin_limit[ABI_MEM_TIERS]; /* ... at most; 0 = not set */
	uint32_t uses; /* blocks, chunks of pins and conversations that name it */
	uint32_t pending; /* of these, blocks that are not whole */
	uint32_t cursor[ABI_MEM_TIERS]; /* evict.c: where its walk goes on, 1 + slot */
	uint16_t next; /* in its chain, or in the free list; 0 = last */
	bool open;     /* has a key; accounts 0 and 1 always are */
	bool limited;  /* some limit is its own */
};

struct ledger {
	struct holding *account;
	uint16_t *chain; /* by hash of the key: first account, 0 = none */
	uint32_t count;  /* of accounts, and of chains: a power of two */
	uint32_t open;   /* accounts with a key of their own */
	uint16_t free;   /* first of the free list; 0 = none */
	/* Of accounts that hold bytes in the tier: those without a soft share of their own; and the
	 * sum of all shares that are set. */
	uint32_t plain[ABI_TIER_COUNT];
	uint64_t soft_sum[ABI_TIER_COUNT];
	uint64_t overflowed; /* times that a key found no account */
};

/* count: a power of two from 4 to LEDGER_MAX. Errors: -ENOMEM. */
int ledger_open(struct ledger *l, uint32_t count);
void ledger_close(struct ledger *l);

/* The key's account, with one use more; LEDGER_OTHER when the table is full. */
uint32_t ledger_take(struct ledger *l, uint64_t key);
void ledger_drop(struct ledger *l, uint32_t i);

/* The key's account; LEDGER_NONE when it has none. */
uint32_t ledger_find(const struct ledger *l, uint64_t key);

/*
 * Set an account's limit in one tier; both 0 = back to the default. Errors: -ENOSPC no account is
 * free for the key.
 */
int ledger_limit(struct ledger *l, uint64_t key, uint32_t tier, struct ledger_limit limit);
/* The same for LEDGER_NONE or LEDGER_OTHER, by number. */
void ledger_limit_at(struct ledger *l, uint32_t i, uint32_t tier, struct ledger_limit limit);

/* What pins may claim: the same, and Errors. A pin holds a use of its accounts. */
int ledger_limit_pins(struct ledger *l, uint64_t key, uint32_t tier, uint64_t bytes);
void ledger_limit_pins_at(struct ledger *l, uint32_t i, uint32_t tier, uint64_t bytes);
void ledger_pin(struct ledger *l, uint32_t i, uint32_t tier, uint64_t bytes);
void ledger_unpin(struct ledger *l, uint32_t i, uint32_t tier, uint64_t bytes);

/* It holds nothing of the tier any more. */
void ledger_emptied(struct ledger *l, uint32_t i, uint32_t tier);

/*
 * The account's soft share: its own, else `soft`, else an equal part of what `whole` leaves to all
 * active accounts without one.
 */
uint64_t ledger_share(const struct ledger *l, uint32_t i, uint32_t tier, uint64_t soft,
		      uint64_t whole);

/* Bytes, inline: they move with each page. */
static inline void ledger_add(struct ledger *l, uint32_t i, uint32_t tier, uint64_t bytes)
{
	struct holding *a = &l->account[i];

	assert(i < l->count && a->open);
	if (!a->used[tier] && bytes && !a->limit[tier].soft)
		l->plain[tier]++;
	a->used[tier] += bytes;
}

static inline void ledger_sub(struct ledger *l, uint32_t i, uint32_t tier, uint64_t bytes)
{
	struct holding *a = &l->account[i];

	assert(i < l->count && a->open);
	assert(a->used[tier] >= bytes);
	a->used[tier] -= bytes;
	if (!a->used[tier] && bytes)
		ledger_emptied(l, i, tier);
}

/* One use more of an account that is in use. */
static inline void ledger_use(struct ledger *l, uint32_t i)
{
	assert(i < l->count && l->account[i].open);
	l->account[i].uses++;
}

/* Bytes that the account may still take: its own hard limit, else `hard`, 0 = none. */
static inline uint64_t ledger_room(const struct ledger *l, uint32_t i, uint32_t tier,
				   uint64_t hard)
{
	const struct holding *a = &l->account[i];

	assert(i < l->count && a->open);
	if (a->limit[tier].hard)
		hard = a->limit[tier].hard;
	if (!hard)
		return UINT64_MAX;
	return a->used[tier] < hard ? hard - a->used[tier] : 0;
}

#endif
