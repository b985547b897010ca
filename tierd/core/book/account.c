/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Accounts: what clients hold of tables that all share, each with a limit of its own, and what the
 * connections of one user hold together: at most three quarters of any table, so that nobody uses
 * up what others need (conversations are forgotten instead, of who has most: conversation.c). A
 * user is a uid with connections, or with something that a connection left under way.
 *
 * Leases cannot be refused (no call of ours is in them). What they keep of evicted pages is counted
 * by the scans instead: from one look at the quarantine to the next each held place is seen once.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tierd/core/state.h"

static const uint32_t table[ACCOUNT_KINDS] = {
	[ACCOUNT_REQUESTS] = CORE_REQUESTS_MAX,
	[ACCOUNT_PUTS] = CORE_REQUESTS_MAX,
	[ACCOUNT_PINS] = CORE_PINS_MAX,
	[ACCOUNT_PIN_CHUNKS] = CORE_PIN_CHUNKS,
	[ACCOUNT_PLANS] = PLANS_MAX,
	[ACCOUNT_RESERVATIONS] = CORE_RESERVATIONS_MAX,
	[ACCOUNT_STREAMS] = CORE_STREAMS_MAX,
	[ACCOUNT_PARKED] = PARKED_MAX,
	[ACCOUNT_CONVERSATIONS] = CONVERSATIONS_MAX,
	[ACCOUNT_REFS] = CONVERSATION_CHUNKS,
	[ACCOUNT_LENDS] = CORE_LENDS_MAX,
};

static uint32_t user_most(enum account_kind kind)
{
	return table[kind] / 4 * 3;
}

static uint32_t client_most(const struct core *c, enum account_kind kind)
{
	uint32_t set[ACCOUNT_KINDS] = {
		[ACCOUNT_REQUESTS] = c->config.client_requests,
		[ACCOUNT_PUTS] = c->config.client_puts,
		[ACCOUNT_PINS] = c->config.client_pins,
		[ACCOUNT_PIN_CHUNKS] = CORE_PIN_CHUNKS / 4,
		[ACCOUNT_PLANS] = PLANS_CLIENT_MAX,
		[ACCOUNT_PARKED] = PARKED_CLIENT_MAX,
		[ACCOUNT_CONVERSATIONS] = CONVERSATIONS_CLIENT_MAX,
		[ACCOUNT_LENDS] = CORE_LENDS_CLIENT_MAX,
	};

	return set[kind] ? set[kind] : table[kind];
}

/* ---- users --------------------------------------------------------------------------------- */

static bool is_idle(const struct account *a)
{
	for (uint32_t kind = 0; kind < ACCOUNT_KINDS; kind++)
		if (a->used[kind])
			return false;
	return a->connections == 0;
}

static struct account *account_of(struct core *c, uint32_t uid)
{
	for (uint32_t i = 0; i < c->accounts.high; i++)
		if (c->accounts.table[i].uid == uid && !is_idle(&c->accounts.table[i]))
			return &c->accounts.table[i];
	return NULL;
}

void account_open(struct core *c, struct client *k)
{
	struct account *a = account_of(c, k->open.uid);

	for (uint32_t i = 0; !a && i < CORE_ACCOUNTS_MAX; i++) {
		if (!is_idle(&c->accounts.table[i]))
			continue;
		a = &c->accounts.table[i];
		*a = (struct account){ .uid = k->open.uid };
		if (c->accounts.high <= i)
			c->accounts.high = i + 1;
	}
	assert(a); /* there are more than connections, requests and puts together */
	c->accounts.users += !a->connections++;
	k->account = (uint32_t)(a - c->accounts.table);
	memset(k->used, 0, sizeof(k->used));
	memset(k->held, 0, sizeof(k->held));
	memset(k->held_last, 0, sizeof(k->held_last));
	k->over = false;
}

void account_close(struct core *c, struct client *k)
{
	struct account *a = &c->accounts.table[k->account];

	assert(a->connections > 0 && c->accounts.users > 0);
	if (!--a->connections && --c->accounts.users == 1)
		request_wake_space(c); /* who is left may have all windows of streams */
	while (c->accounts.high && is_idle(&c->accounts.table[c->accounts.high - 1]))
		c->accounts.high--;
}

/* ---- tables -------------------------------------------------------------------------------- */

bool account_user_may(const struct core *c, uint32_t account, enum account_kind kind)
{
	assert(account < CORE_ACCOUNTS_MAX);
	return c->accounts.table[account].used[kind] < user_most(kind);
}

bool account_may(const struct core *c, const struct client *k, enum account_kind kind)
{
	return k->used[kind] < client_most(c, kind) && account_user_may(c, k->account, kind);
}

/* Who has as many entries as may be, how many, of how many: for the answer (ABI_FULL_*). */
uint64_t account_lack(const struct core *c, const struct client *k, enum account_kind kind)
{
	uint64_t whose = ABI_LIMIT_HOST, used = table[kind], most = table[kind];

	if (k->used[kind] >= client_most(c, kind)) {
		whose = ABI_LIMIT_CLIENT;
		used = most = k->used[kind];
	} else if (c->accounts.table[k->account].used[kind] >= user_most(kind)) {
		whose = ABI_LIMIT_USER;
		used = c->accounts.table[k->account].used[kind];
	}
	assert(used <= most && most <= UINT16_MAX);
	return whose << 8 * ABI_HELD_LIMIT | most << ABI_FULL_MOST | used << ABI_FULL_USED;
}

/* The user who has most of them: who comes later gets what this one misses least. */
uint32_t account_fullest(const struct core *c, enum account_kind kind)
{
	uint32_t found = 0;

	for (uint32_t i = 1; i < c->accounts.high; i++)
		if (c->accounts.table[i].used[kind] > c->accounts.table[found].used[kind])
			found = i;
	return found;
}

/* For a user, in no connection's name. */
void account_take_for(struct core *c, uint32_t account, enum account_kind kind)
{
	assert(account < CORE_ACCOUNTS_MAX);
	assert(c->accounts.table[account].used[kind] < table[kind]);
	c->accounts.table[account].used[kind]++;
}

void account_take(struct core *c, struct client *k, enum account_kind kind)
{
	account_take_for(c, k->account, kind);
	k->used[kind]++;
}

/* k: the connection that took it, NULL when that has ended meanwhile, or none did. */
void account_give(struct core *c, uint32_t account, struct client *k, enum account_kind kind)
{
	struct account *a = &c->accounts.table[account];

	assert(account < CORE_ACCOUNTS_MAX && a->used[kind] > 0);
	a->used[kind]--;
	if (!k)
		return;
	assert(k->account == account && k->used[kind] > 0);
	k->used[kind]--;
}

/* ---- quarantine ---------------------------------------------------------------------------- */

static uint64_t held_most(const struct core *c, uint32_t tier)
{
	return c->pool[tier].capacity / 100 * c->config.quarantine_percent;
}

static void end_connection(struct core *c, uint32_t client, const char *why)
{
	struct core_action *a = core_push(c, CORE_AC_END);

	a->end.client = client;
	a->end.error = -EDQUOT;
	a->end.why = why;
	c->client[client].over = true;
	c->metrics.clients_over++;
}

/* A scan has seen that a client's leases keep so many more bytes. */
void account_hold(struct core *c, uint32_t client, uint32_t tier, uint64_t bytes)
{
	c->client[client].held[tier] += bytes;
}

/*
 * A round of scans is over. A client over its budget loses its connection: its pins, requests and
 * puts; its pages stay where they are until its process is dead, or they are taken back from it,
 * also if it has gone before. When a user is over, all of its connections go: one by one they would
 * go on to gather.
 */
void account_round(struct core *c)
{
	for (uint32_t i = 0; i < c->accounts.high; i++)
		memset(c->accounts.table[i].held, 0, sizeof(c->accounts.table[i].held));
	for (uint32_t i = 0; i < c->clients_high; i++) {
		struct client *k = &c->client[i];

		memcpy(k->held_last, k->held, sizeof(k->held));
		memset(k->held, 0, sizeof(k->held));
		for (uint32_t t = 0; k->state && t < ABI_MEM_TIERS; t++)
			c->accounts.table[k->account].held[t] += k->held_last[t];
	}
	if (!c->config.quarantine_percent)
		return;
	for (uint32_t i = 0; i < c->clients_high; i++) {
		struct client *k = &c->client[i];

		for (uint32_t t = 0; (k->state == 1 || k->state == 2) && !k->over &&
				     t < ABI_MEM_TIERS; t++) {
			if (k->held_last[t] > held_most(c, t))
				end_connection(c, i, "its leases keep more evicted memory than "
						  "quarantine.percent of a tier; release them, or "
						  "raise it");
			else if (c->accounts.table[k->account].held[t] > 4 * held_most(c, t))
				end_connection(c, i,
					       "its user's leases keep more evicted memory than "
					       "four times quarantine.percent of a tier");
		}
	}
}

/* Somebody was told that a limit is reached. */
void account_refused(struct core *c)
{
	c->metrics.limit_refusals++;
}

/* ---- the front's questions ----------------------------------------------------------------- */

int core_user_may_connect(struct core *c, uint32_t uid, char *why, size_t why_bytes)
{
	const struct account *a = account_of(c, uid);

	if (!a)
		return 0;
	if (c->config.user_connections && a->connections >= c->config.user_connections) {
		snprintf(why, why_bytes, "connect: user %u has %u connections, its limit "
			 "(user.connections); end some of its clients (one that left readers open "
			 "counts until its process ends), or raise it", uid, a->connections);
		account_refused(c);
		return -EUSERS;
	}
	for (uint32_t t = 0; c->config.quarantine_percent && t < ABI_MEM_TIERS; t++) {
		if (a->held[t] <= 4 * held_most(c, t))
			continue;
		snprintf(why, why_bytes, "connect: leases of user %u keep %" PRIu64 " bytes of "
			 "evicted memory (quarantine.percent); end the processes that hold them",
			 uid, a->held[t]);
		account_refused(c);
		return -EDQUOT;
	}
	return 0;
}

uint32_t core_user_contexts(const struct core *c, uint32_t uid)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < c->contexts_high; i++)
		count += c->context[i] && c->context[i]->spec.owner_uid == uid;
	for (uint32_t i = 0; i < c->aside.count; i++)
		count += c->aside.context[i].owner_uid == uid;
	return count;
}

int core_client_view(const struct core *c, uint32_t client, struct core_client_view *out)
{
	const struct client *k = client < c->clients_high ? &c->client[client] : NULL;

	if (!k || !k->state)
		return -ENOENT;
	out->requests = k->used[ACCOUNT_REQUESTS];
	out->puts = k->used[ACCOUNT_PUTS];
	out->pins = k->used[ACCOUNT_PINS];
	out->pending = k->state == 1 && k->owner >= LEDGER_FIRST ?
			       c->owners.account[k->owner].pending : 0;
	memcpy(out->quarantined, k->held_last, sizeof(out->quarantined));
	return 0;
}
