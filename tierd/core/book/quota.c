/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quotas: which account each byte is charged to, and who gives first when room is short (I7).
 *
 *   a context    hard: space.c refuses the slab; soft: others take only what lies above it
 *   a salt       of one context; the public salt is the context's own account
 *   a client     what its connection put, as long as the blocks live
 *
 * Soft shares lend what is idle: they count only when somebody makes room. A salt without a share
 * of its own has an equal part of its context (max-min fairness over the active ones), a context an
 * equal part of the tier. Nothing here moves a page; evict.c asks for ranks.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "tierd/core/state.h"

#define OWNERS 2048u /* connections with blocks, those that ended included; more count as "other" */

int quota_open(struct core *c)
{
	return ledger_open(&c->owners, OWNERS);
}

/* ---- accounts of a block ------------------------------------------------------------------ */

void quota_client_open(struct core *c, struct client *k, uint32_t client)
{
	k->owner = ledger_take(&c->owners, (uint64_t)k->connection << 32 | client);
}

/* What it put stays, and stays charged to it until it leaves. */
void quota_client_gone(struct core *c, struct client *k)
{
	ledger_drop(&c->owners, k->owner);
	k->owner = LEDGER_NONE;
}

/* Is the connection open that this account is of? Whoever has no account of his own lives. */
bool quota_client_lives(const struct core *c, uint32_t owner)
{
	uint64_t key = c->owners.account[owner].key;
	const struct client *k;

	if (owner < LEDGER_FIRST)
		return true;
	assert((uint32_t)key < CORE_CLIENTS_MAX);
	k = &c->client[(uint32_t)key];
	return k->state == 1 && k->connection == key >> 32;
}

void quota_unname(struct core *c, struct context *x, uint32_t slot)
{
	struct block_meta *m = &x->meta[slot];

	if (m->tenant != TENANT_NONE) {
		if (block_account(x, slot) != LEDGER_NONE)
			ledger_drop(&x->salts, block_account(x, slot));
		tenant_drop(&x->tenants, m->tenant);
	}
	if (m->owner != LEDGER_NONE)
		ledger_drop(&c->owners, m->owner);
	m->tenant = TENANT_NONE;
	m->owner = LEDGER_NONE;
	x->kept_blocks -= m->keep != 0;
	m->keep = 0;
}

/* The lane of blocks that an account of salts and one of clients pay for from now on. */
static uint32_t lane_for(const struct core *c, uint32_t account, uint32_t owner)
{
	for (uint32_t tier = 0; tier < ABI_MEM_TIERS && account == LEDGER_NONE; tier++)
		if (quota_of_clients(c, tier) && quota_limit(c, NULL, owner, tier).soft)
			return owner % LANES;
	return account % LANES;
}

/* Who pays for the block from now on; before its first byte. */
void quota_name(struct core *c, struct context *x, uint32_t slot, uint64_t salt, uint32_t owner)
{
	struct block_meta *m = &x->meta[slot];
	uint32_t account = LEDGER_NONE, lane;

	assert(!block_words(x, slot) && m->persist != PERSIST_CLEAN);
	quota_unname(c, x, slot);
	if (salt)
		account = ledger_take(&x->salts, salt);
	lane = lane_for(c, account, owner);
	if (account != LEDGER_NONE || lane)
		m->tenant = tenant_take(&x->tenants, salt, account, lane) & 0x3fffffffu;
	if (owner != LEDGER_NONE) {
		ledger_use(&c->owners, owner);
		m->owner = (uint16_t)owner;
	}
}

void quota_add(struct core *c, struct context *x, uint32_t slot, uint32_t tier, uint64_t bytes)
{
	ledger_add(&x->salts, block_account(x, slot), tier, bytes);
	ledger_add(&c->owners, x->meta[slot].owner, tier, bytes);
}

void quota_sub(struct core *c, struct context *x, uint32_t slot, uint32_t tier, uint64_t bytes)
{
	ledger_sub(&x->salts, block_account(x, slot), tier, bytes);
	ledger_sub(&c->owners, x->meta[slot].owner, tier, bytes);
}

/* ---- limits of accounts ------------------------------------------------------------------- */

/* Defaults are for those with a key: the public salt is its context, and nobody has no limit. */
static struct core_limit default_of(const struct core_limit *limit, uint32_t account)
{
	return account == LEDGER_NONE ? (struct core_limit){ 0, 0 } : *limit;
}

/* In force for an account of a context's salts, or of clients (x NULL); 0 = none. */
struct core_limit quota_limit(const struct core *c, const struct context *x, uint32_t account,
			      uint32_t tier)
{
	const struct ledger *l = x ? &x->salts : &c->owners;
	struct core_limit d = default_of(x ? &c->config.salt_limit[tier]
					   : &c->config.client_limit[tier], account);
	const struct ledger_limit *own = &l->account[account].limit[tier];

	if (x)
		d.soft = ledger_share(l, account, tier, d.soft, x->plan.quota[tier]);
	else if (own->soft)
		d.soft = own->soft;
	if (own->hard)
		d.hard = own->hard;
	return d;
}

/* What pins of an account may claim, by a limit of its own or the default; 0 = none. */
uint64_t quota_pins(const struct core *c, const struct context *x, uint32_t account, uint32_t tier)
{
	const struct ledger *l = x ? &x->salts : &c->owners;
	uint64_t all = x ? c->config.salt_pins[tier] : c->config.client_pins_bytes[tier];
	uint64_t own = l->account[account].pin_limit[tier];

	if (!own && account != LEDGER_NONE)
		own = all;
	return own;
}

/*
 * By how many bytes an account (of clients: x NULL) is over its soft share; negative: so many are
 * left to it. INT64_MIN: it has nothing to give, or no share: clients share what they cache unless
 * somebody set one.
 */
int64_t quota_over(const struct core *c, const struct context *x, uint32_t account, uint32_t tier)
{
	const struct ledger *l = x ? &x->salts : &c->owners;
	uint64_t used = l->account[account].used[tier], soft;

	if (!used)
		return INT64_MIN;
	soft = quota_limit(c, x, account, tier).soft;
	return x || soft ? (int64_t)used - (int64_t)soft : INT64_MIN;
}

uint32_t quota_rank(const struct core *c, const struct context *x, uint32_t slot, uint32_t tier)
{
	const struct block_meta *m = &x->meta[slot];
	uint32_t priority = m->keep & KEEP_PRIORITY;

	bool over = quota_over(c, x, block_account(x, slot), tier) > 0 ||
		    quota_over(c, NULL, m->owner, tier) > 0;

	if (m->keep & KEEP_TTL && (int32_t)((uint32_t)(c->now_ns / MS) - x->lapse_ms[slot]) >= 0)
		return RANK_LAPSED;
	/* A tenant over its share gives first, and of its own what it values least. */
	if (priority == ABI_PRIORITY_LOW)
		return over ? RANK_LAPSED : RANK_LOW;
	if (priority == ABI_PRIORITY_HIGH)
		return over ? RANK_LOW : RANK_KEEP;
	return over ? RANK_OVER : RANK_NORMAL;
}

/* Is the block of this rank or one that gives before it? Mostly without asking for shares. */
bool quota_within(const struct core *c, const struct context *x, uint32_t slot, uint32_t tier,
		  uint32_t rank)
{
	bool high = (x->meta[slot].keep & KEEP_PRIORITY) == ABI_PRIORITY_HIGH;

	assert(rank < RANKS);
	return (rank >= RANK_NORMAL && !high) || quota_rank(c, x, slot, tier) <= rank;
}

/* Can any block of the context have the rank? One account alone is never over its fair share. */
bool quota_ranked(const struct core *c, const struct context *x, uint32_t tier, uint32_t rank)
{
	if (rank != RANK_OVER)
		return rank == RANK_NORMAL || x->kept_blocks;
	if (quota_of_clients(c, tier))
		return true;
	return x->salts.plain[tier] > 1 || x->salts.soft_sum[tier] ||
	       c->config.salt_limit[tier].soft;
}

/* Bytes that the block's accounts may still take in the tier. */
uint64_t quota_left(const struct core *c, const struct context *x, uint32_t slot, uint32_t tier)
{
	const struct block_meta *m = &x->meta[slot];
	uint32_t account = block_account(x, slot);
	uint64_t salt = ledger_room(&x->salts, account, tier,
				    default_of(&c->config.salt_limit[tier], account).hard);
	uint64_t owner = ledger_room(&c->owners, m->owner, tier,
				     default_of(&c->config.client_limit[tier], m->owner).hard);

	return salt < owner ? salt : owner;
}

/* The same for all accounts of some blocks of one salt: several connections may have put them. */
uint64_t quota_left_of(const struct core *c, const struct context *x, const uint32_t *slot,
		       uint32_t count, uint32_t tier)
{
	uint64_t least = UINT64_MAX;

	assert(count);
	for (uint32_t i = 0; i < count; i++) {
		uint64_t left;

		if (i && x->meta[slot[i]].owner == x->meta[slot[i - 1]].owner)
			continue;
		left = quota_left(c, x, slot[i], tier);
		least = left < least ? left : least;
	}
	return least;
}

/* The one of the block's accounts that is nearer to its hard limit. */
struct holding *quota_short(struct core *c, struct context *x, uint32_t slot, uint32_t tier)
{
	const struct block_meta *m = &x->meta[slot];
	uint32_t account = block_account(x, slot);
	uint64_t salt = ledger_room(&x->salts, account, tier,
				    default_of(&c->config.salt_limit[tier], account).hard);

	return salt == quota_left(c, x, slot, tier) ? &x->salts.account[account]
						     : &c->owners.account[m->owner];
}

/* Is the block charged to the account? */
bool quota_of(const struct core *c, const struct context *x, uint32_t slot, const struct holding *a)
{
	const struct block_meta *m = &x->meta[slot];

	return a == &x->salts.account[block_account(x, slot)] || a == &c->owners.account[m->owner];
}

/* ---- shares of contexts ------------------------------------------------------------------- */

/* Has it a part of the tier? */
bool quota_shares(const struct context *x, uint32_t tier)
{
	return x && !x->closing && x->plan.quota[tier];
}

/* Less is of no use: a slab for each size of page, for blocks have all of them. */
uint64_t quota_least(const struct context *x, uint32_t tier)
{
	return x->space[tier] ? x->classes * space_slab_bytes(x->space[tier]) : 0;
}

/* What soft quotas leave of the tier, in equal parts for those without one. */
static uint64_t plain_share(const struct core *c, uint32_t tier)
{
	uint64_t rest = c->config.capacity[tier], plain = 0;

	for (uint32_t i = 0; i < c->contexts_high; i++) {
		const struct context *y = c->context[i];

		if (!quota_shares(y, tier))
			continue;
		plain += !y->spec.soft[tier];
		rest -= y->spec.soft[tier] < rest ? y->spec.soft[tier] : rest;
	}
	return rest / (plain ? plain : 1);
}

/*
 * What the context can count on: its soft quota, or that equal part; and what is of use, in a
 * memory tier of few slabs.
 */
static uint64_t share_of(const struct context *x, uint32_t tier, uint64_t plain)
{
	uint64_t share = x->spec.soft[tier] ? x->spec.soft[tier] : plain;

	if (tier < ABI_MEM_TIERS && share < quota_least(x, tier))
		share = quota_least(x, tier);
	return share < x->plan.quota[tier] ? share : x->plan.quota[tier];
}

uint64_t quota_share(const struct core *c, const struct context *x, uint32_t tier)
{
	return share_of(x, tier, x->spec.soft[tier] ? 0 : plain_share(c, tier));
}

static uint64_t charged(const struct context *x, uint32_t tier)
{
	struct space_stats st;

	space_stats(x->space[tier], &st);
	return st.charged;
}

/* Bytes of the context's that readers keep after they were evicted: of all, nobody says whose. */
static uint64_t leased(const struct core *c, const struct context *x, uint32_t tier)
{
	return c->reclaim.quarantined[tier] < x->retiring[tier] ? c->reclaim.quarantined[tier]
								: x->retiring[tier];
}

/* Could the context give a slab, of what puts are not promised, nor pins and leases keep? */
static bool can_give(const struct core *c, const struct context *y, uint32_t tier)
{
	struct space_stats st;

	space_stats(y->space[tier], &st);
	return st.charged >= st.reserved + y->pinned[tier] + leased(c, y, tier) +
				     space_slab_bytes(y->space[tier]);
}

/* Who is most over what others leave him, and the one of those that can give. */
struct donors {
	struct context *most, *able;
};

/* Over their shares, or over what is of use to them (all); by a slab at least. */
static struct donors most_over(const struct core *c, const struct context *x, uint32_t tier,
			       bool all)
{
	struct donors g = { NULL, NULL };
	uint64_t over = 0, able = 0, plain = all ? 0 : plain_share(c, tier);

	for (uint32_t i = 0; i < c->contexts_high; i++) {
		struct context *y = c->context[i];
		uint64_t has, share;

		if (!y || y == x || !y->space[tier])
			continue;
		has = charged(y, tier);
		share = all ? quota_least(y, tier) : share_of(y, tier, plain);
		if (y->closing)
			share = 0;
		if (has <= share || has - share <= able)
			continue;
		if (has - share < space_slab_bytes(y->space[tier]) && (all || charged(x, tier)))
			continue;
		if (has - share > over) {
			over = has - share;
			g.most = y;
		}
		if (can_give(c, y, tier)) {
			able = has - share;
			g.able = y;
		}
	}
	assert(able <= over);
	return g;
}

/*
 * Who must give memory to x, which is below its share: the one that is most over its own, by a
 * slab at least: else two contexts would pass one back and forth for ever. One that has too few
 * slabs for a single block is given one by who has most, also when nobody is over his share:
 * shares are bytes, and what they leave may be less than the slabs that these bytes need.
 * Whoever has all of his promised or pinned is passed over, unless nobody else is: pins also count
 * what is not in the tier.
 */
struct context *quota_donor(const struct core *c, const struct context *x, uint32_t tier)
{
	struct donors fair = { NULL, NULL }, all = { NULL, NULL };

	if (charged(x, tier) < quota_share(c, x, tier))
		fair = most_over(c, x, tier, false);
	if (!fair.able && charged(x, tier) < quota_least(x, tier) &&
	    charged(x, tier) < x->plan.quota[tier])
		all = most_over(c, x, tier, true);
	if (fair.able || all.able)
		return fair.able ? fair.able : all.able;
	return fair.most ? fair.most : all.most;
}

static uint64_t percent(uint64_t part, uint64_t whole, uint32_t at)
{
	uint64_t p = whole ? part * 100 / whole : 0;

	return (p < 255 ? p : 255) << 8 * at;
}

/* Bytes of the tier that stay where they are, whoever needs room, or are promised (I7). */
static uint64_t promised(const struct core *c, uint32_t tier)
{
	return c->pins.bytes[tier] + c->reclaim.quarantined[tier] + c->streamed[tier] +
	       (tier == ABI_TIER_CXL ? c->reserve.most_bytes : 0);
}

/* Does enough of the tier stay for what comes and goes when so many bytes more are promised? */
bool quota_may_promise(const struct core *c, uint32_t tier, uint64_t bytes)
{
	assert(tier < ABI_MEM_TIERS);
	return promised(c, tier) + bytes <= c->pool[tier].capacity / 100 * QUOTA_PROMISES_PERCENT;
}

/* Bytes that are held of a tier, or of a quota in it. */
struct held {
	uint64_t pinned, leased, dirty, reserved, used; /* used: with the others */
	uint64_t removed; /* of leased: what contexts have that are not there any more */
};

/* In percent of the whole (abi/ring.h, ABI_HELD_*). */
static uint64_t held_shares(struct held h, uint64_t whole, uint32_t tier)
{
	return percent(h.pinned, whole, ABI_HELD_PINNED) |
	       percent(h.leased, whole, ABI_HELD_LEASED) |
	       percent(h.dirty, whole, ABI_HELD_DIRTY) |
	       percent(h.reserved, whole, ABI_HELD_RESERVED) |
	       percent(h.used, whole, ABI_HELD_USED) |
	       percent(h.removed, whole, ABI_HELD_REMOVED) |
	       (uint64_t)(1 + tier) << 8 * ABI_HELD_TIER;
}

/*
 * A context that was removed: all that it is still charged for stays for its readers alone, what
 * they lease and what lies beside it.
 */
static void held_by_removed(struct held *h, const struct context *x, uint32_t tier)
{
	struct space_stats st;

	if (!x->closing || !x->space[tier])
		return;
	space_stats(x->space[tier], &st);
	h->removed += st.charged;
	if (st.charged > x->retiring[tier])
		h->leased += st.charged - x->retiring[tier];
}

/* What all contexts together hold of the tier. */
static uint64_t held_by_all(const struct core *c, uint32_t tier)
{
	const struct pool *pool = &c->pool[tier];
	uint64_t most = tier == ABI_TIER_CXL ? c->reserve.most_bytes : 0;
	struct held h = {
		.pinned = c->pins.bytes[tier],
		.leased = c->reclaim.quarantined[tier],
		.reserved = most > pool->reserved ? most : pool->reserved,
		.used = pool->used,
	};

	assert(tier < ABI_MEM_TIERS);
	for (uint32_t i = 0; i < c->contexts_high; i++) {
		const struct context *x = c->context[i];

		if (!x)
			continue;
		h.dirty += tier == ABI_TIER_CXL ? x->dirty_bytes : 0;
		held_by_removed(&h, x, tier);
	}
	return held_shares(h, pool->capacity, tier) |
	       (uint64_t)ABI_LIMIT_HOST << 8 * ABI_HELD_LIMIT;
}

/* What the context holds of its quota. */
uint64_t quota_held(const struct core *c, const struct context *x, uint32_t tier)
{
	struct held h = { .used = x->nvme_bytes + x->record_bytes };
	struct space_stats st;

	if (tier != ABI_TIER_NVME) {
		if (tier >= ABI_MEM_TIERS || !x->space[tier])
			return 0;
		space_stats(x->space[tier], &st);
		h = (struct held){
			.pinned = x->pinned[tier],
			.leased = leased(c, x, tier),
			.dirty = tier == ABI_TIER_CXL ? x->dirty_bytes : 0,
			.reserved = st.reserved,
			.used = st.charged,
		};
	}
	return held_shares(h, x->plan.quota[tier], tier);
}

/* For an answer of -ENOSPC: what holds the tier. That is not a context that may have more of it. */
uint64_t quota_holders(const struct core *c, const struct context *x, uint32_t tier)
{
	if (tier < ABI_MEM_TIERS && x->space[tier] && space_may_take(x->space[tier]))
		return held_by_all(c, tier);
	return quota_held(c, x, tier);
}

