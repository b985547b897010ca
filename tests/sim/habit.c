/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What clients do because of what they did before, as engines do it: pin what they have just
 * fetched into HBM, delete what they once put whether it is still there or not, and put again,
 * durably, what a new epoch has voided. By chance alone these pairs are rare.
 */
#include "tests/sim/world_priv.h"

/* The keys of a fetch that has brought them all to HBM: they will be pinned, perhaps. */
void habit_fetched(struct world *w, uint32_t client, const struct ask *a,
		   const struct abi_cqe *cqe)
{
	struct world_client *k = &w->client[client];

	if (cqe->res || cqe->status != ABI_STATUS_READY || a->shard != ABI_TIER_HBM)
		return;
	k->fetched_context = a->context;
	k->fetched_first = a->first;
	k->fetched = a->count;
}

/* Keys that were put in this epoch and have left the service, as far as there are some. */
void habit_gone(struct world *w, struct ask *a)
{
	const struct world_context *x = &w->context[0];
	uint32_t n = world_below(w, WORLD_KEYS - WORLD_RUN), slot;

	for (uint32_t i = 0; i < 96; i++, n = (n + 1) % (WORLD_KEYS - WORLD_RUN)) {
		const struct world_key *key = &x->now.key[n];

		if (key->deleted || !(key->put_epochs >> x->epoch % 64 & 1) ||
		    model_find(w, 0, n, &slot))
			continue;
		a->context = 0;
		a->first = n;
		a->count = 1 + world_below(w, WORLD_RUN);
		a->chosen = true;
		return;
	}
}

static void chosen(struct ask *a, uint32_t context, uint32_t first, uint32_t count)
{
	a->context = context;
	a->first = first;
	a->count = count;
	a->chosen = true;
}

/* What the client asks for next, with keys; 0 = nothing of this kind. */
uint8_t habit_next(struct world *w, uint32_t client, struct ask *a)
{
	struct world_client *k = &w->client[client];

	if (k->fetched && world_chance(w, 300000)) {
		chosen(a, k->fetched_context, k->fetched_first, k->fetched);
		k->fetched = 0;
		return ABI_OP_PIN;
	}
	if (w->anew && world_chance(w, 300000)) {
		chosen(a, 0, world_below(w, WORLD_KEYS / WORLD_RUN - 1) * WORLD_RUN,
		       1 + world_below(w, WORLD_RUN));
		w->anew = false;
		return ABI_OP_PUT_RESERVE;
	}
	if (w->faults->small_store && world_chance(w, 15000))
		habit_gone(w, a);
	return a->chosen ? ABI_OP_DELETE : 0;
}

/* What was gone was deleted; the disk may still have it. */
void habit_deleted(struct world *w, const struct ask *a)
{
	if (a->chosen && w->faults->crash_ppm && !w->fair && world_chance(w, 200000))
		w->crash_due = true;
}

/* A durable put was answered in an epoch that is not, so far: a crash now tells much. */
void habit_committed(struct world *w, const struct world_context *x)
{
	if (x->now.epoch < x->epoch && w->faults->crash_ppm && !w->fair &&
	    world_chance(w, 500000))
		w->crash_due = true;
}
