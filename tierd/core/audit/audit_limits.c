/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The audit of limits: what the sums come to is within what each may have, of shared tables, of
 * quarantined memory, of the pools, and of what the store calls flushed. The limits are written
 * down here once more, in the words of docs/reliability.md: a limit that the core has forgotten is
 * not its own witness.
 */
#include <stdio.h>

#include "tierd/core/audit/audit_priv.h"

/* ---- tables that all share ---------------------------------------------------------------- */

/* A user may have three quarters of a table; some are never refused, but forget what is oldest. */
static uint64_t most_of_user(uint32_t kind)
{
	static const uint32_t entries[ACCOUNT_KINDS] = {
		[ACCOUNT_REQUESTS] = CORE_REQUESTS_MAX,
		[ACCOUNT_PUTS] = CORE_REQUESTS_MAX,
		[ACCOUNT_PINS] = CORE_PINS_MAX,
		[ACCOUNT_PIN_CHUNKS] = CORE_PIN_CHUNKS,
		[ACCOUNT_PLANS] = PLANS_MAX,
		[ACCOUNT_RESERVATIONS] = CORE_RESERVATIONS_MAX,
		[ACCOUNT_STREAMS] = CORE_STREAMS_MAX,
		[ACCOUNT_PARKED] = PARKED_MAX,
	};

	return entries[kind] ? entries[kind] - entries[kind] / 4 : UINT64_MAX;
}

/* 0 = none of its own. */
static uint64_t most_of_client(const struct core_config *config, uint32_t kind)
{
	switch (kind) {
	case ACCOUNT_REQUESTS:
		return config->client_requests;
	case ACCOUNT_PUTS:
		return config->client_puts;
	case ACCOUNT_PINS:
		return config->client_pins;
	case ACCOUNT_PIN_CHUNKS:
		return CORE_PIN_CHUNKS / 4;
	case ACCOUNT_PLANS:
		return PLANS_CLIENT_MAX;
	case ACCOUNT_PARKED:
		return PARKED_CLIENT_MAX;
	default:
		return 0;
	}
}

static void audit_entries(struct audit *a)
{
	const struct core *c = a->c;

	for (uint32_t i = 0; i < c->accounts.high; i++)
		for (uint32_t kind = 0; kind < ACCOUNT_KINDS; kind++)
			if (c->accounts.table[i].used[kind] > most_of_user(kind))
				audit_tell(a, "user %u has %u entries of shared table %u, more "
					   "than three quarters of it", c->accounts.table[i].uid,
					   c->accounts.table[i].used[kind], kind);
	for (uint32_t i = 0; i < c->clients_high; i++)
		for (uint32_t kind = 0; c->client[i].state == 1 && kind < ACCOUNT_KINDS; kind++) {
			uint64_t most = most_of_client(&c->config, kind);

			if (most && c->client[i].used[kind] > most)
				audit_tell(a, "client %u has %u entries of shared table %u, at "
					   "most %llu", i, c->client[i].used[kind], kind,
					   (unsigned long long)most);
		}
}

/* ---- quarantine --------------------------------------------------------------------------- */

/* What the user's leases kept at the last look, by what each of its clients kept. */
static uint64_t kept_by_user(const struct core *c, uint32_t account, uint32_t tier)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < c->clients_high; i++)
		if (c->client[i].state && c->client[i].account == account)
			bytes += c->client[i].held_last[tier];
	return bytes;
}

/* Whose leases keep too much, its own or all of its user's together, loses its connection. */
static void audit_quarantine(struct audit *a)
{
	const struct core *c = a->c;

	for (uint32_t t = 0; c->config.quarantine_percent && t < ABI_MEM_TIERS; t++) {
		uint64_t most = c->pool[t].capacity / 100 * c->config.quarantine_percent;

		for (uint32_t i = 0; i < c->clients_high; i++) {
			const struct client *k = &c->client[i];
			uint64_t user;

			if (k->state != 1 || k->over)
				continue;
			user = kept_by_user(c, k->account, t);
			if (k->held_last[t] > most || user > 4 * most)
				audit_tell(a, "client %u keeps %llu evicted bytes of tier %u, its "
					   "user %llu, at most %llu and four times that, and goes "
					   "on", i, (unsigned long long)k->held_last[t], t,
					   (unsigned long long)user, (unsigned long long)most);
		}
	}
}

/* ---- pools and the store ------------------------------------------------------------------ */

static void audit_pools_full(struct audit *a)
{
	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++) {
		const struct pool *pool = &a->c->pool[t];

		if (pool->used > pool->capacity)
			audit_tell(a, "%llu bytes of tier %u are charged, and it has %llu",
				   (unsigned long long)pool->used, t,
				   (unsigned long long)pool->capacity);
	}
}

/* D9: no record that is still to be written is below what the store calls flushed. */
static void audit_unwritten(struct audit *a, const struct run *run, const char *whose)
{
	uint64_t flushed = store_flushed_lsn(run->log->store);

	if (run->place.lsn <= flushed)
		audit_tell(a, "%s of drive %u: a run of lsn %llu is not written, and all up to "
			   "%llu is said to be flushed", whose, run->log->device,
			   (unsigned long long)run->place.lsn, (unsigned long long)flushed);
}

static void audit_flushed(struct audit *a, const struct drive *dv)
{
	for (uint32_t i = 0; i < CORE_RUNS_MAX; i++)
		if (dv->run[i].phase != RUN_FREE)
			audit_unwritten(a, &dv->run[i], "write-back");
	for (uint32_t i = 0; i < CLEAN_RUNS; i++)
		if (dv->cleaner.run[i].ctx)
			audit_unwritten(a, &dv->cleaner.run[i], "cleaner");
}

/* What the catalog names is what may hold blocks; what leaves begins no run (drain.c). */
static void audit_left(struct audit *a, const struct drive *dv)
{
	uint32_t named = 0;

	for (uint32_t i = 0; i < a->c->config.listed_count; i++)
		named += a->c->config.listed[i].store_id == dv->super.store_id;
	if (dv->unlisted && (named || !store_is_empty(dv->store)))
		audit_tell(a, "drive %u was drained, and %s", dv->device,
			   named ? "is in the catalog" : "something lies there");
	if (dv->unlisted && (!dv->leaving || clean_busy(dv) || drive_busy(dv)))
		audit_tell(a, "drive %u was drained, and is written to", dv->device);
	if (clean_busy(dv) && (dv->cleaner.to != dv && dv->cleaner.to->unlisted))
		audit_tell(a, "drive %u moves to one that was drained", dv->device);
}

void audit_limits(struct audit *a)
{
	audit_entries(a);
	audit_quarantine(a);
	audit_pools_full(a);
	for (uint32_t i = 0; i < a->c->drives; i++)
		audit_flushed(a, a->c->drive[i]);
	for (uint32_t i = 0; i < a->c->drives; i++)
		audit_left(a, a->c->drive[i]);
}
