/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The audit's look into a space and a ledger: every counter of theirs, recounted from slab
 * states, bitmaps and accounts. It shares no arithmetic with the code that keeps them.
 */
#include <stdio.h>
#include <string.h>

#include "libtier/base/bitmap.h"
#include "tierd/core/audit/audit_priv.h"
#include "tierd/core/unit/space_priv.h"

struct slabs {
	uint64_t taken, taken_bits, punching, parked, returned, live, free, free_evacuated;
	uint64_t class_free[ABI_PARTS_MAX], class_live[ABI_PARTS_MAX];
	uint64_t class_going[ABI_PARTS_MAX];
	uint64_t lent, lent_wrong;
};

static void audit_units(const struct space *s, const struct slab *at, struct slabs *n)
{
	n->parked += at->going != 0;
	for (uint64_t u = 0; u * s->unit_bytes < s->slab_bytes; u++) {
		uint64_t left = s->slab_bytes - u * s->unit_bytes;

		if (at->gone >> u & 1)
			n->returned += left < s->unit_bytes ? left : s->unit_bytes;
	}
}

static void audit_slab(struct audit *a, const char *whose, const struct space *s, uint32_t number,
		       struct slabs *n)
{
	const struct slab *at = &s->slab[number];
	const struct space_class *c = &s->klass[at->klass];
	uint64_t live = bitmap_count(space_slab_bits(s, number), c->places);
	bool used = at->state == SLAB_TAKEN || at->state == SLAB_EVACUATED;
	uint64_t vacant = used ? c->places - live : 0;

	audit_compare(a, whose, "places of a slab", live, at->live);
	n->lent += at->lent;
	n->lent_wrong += at->lent && at->state != SLAB_TAKEN;
	n->taken += used || at->state == SLAB_PUNCHED;
	n->punching += at->state == SLAB_PUNCHED;
	n->taken_bits += bitmap_test(s->taken_bits, number);
	n->live += live * c->stride;
	n->free += vacant * c->stride;
	n->class_live[at->klass] += live;
	if (at->state == SLAB_EVACUATED) {
		n->free_evacuated += vacant * c->stride;
		n->class_going[at->klass] += live;
		audit_units(s, at, n);
	} else {
		n->class_free[at->klass] += vacant;
	}
}

void audit_space(struct audit *a, const char *whose, const struct space *s,
		 const uint64_t *reserved)
{
	struct slabs n = { .taken = 0 };

	for (uint32_t number = 0; number < s->slabs; number++) {
		audit_slab(a, whose, s, number, &n);
	}
	audit_compare(a, whose, "slabs taken", n.taken, s->taken);
	audit_compare(a, whose, "slabs in use", n.taken_bits, n.taken);
	audit_compare(a, whose, "slabs being punched", n.punching, s->punching);
	audit_compare(a, whose, "slabs parked", n.parked, s->parked);
	audit_compare(a, whose, "slabs in devices that are emptied or punched", n.lent_wrong, 0);
	a->lent += n.lent;
	audit_compare(a, whose, "bytes of parked units", n.returned, s->returned);
	audit_compare(a, whose, "bytes of live places", n.live, s->live);
	audit_compare(a, whose, "bytes of free places", n.free, s->free);
	audit_compare(a, whose, "bytes of evacuated places", n.free_evacuated, s->free_evacuated);
	for (uint32_t k = 0; k < s->classes; k++) {
		audit_compare(a, whose, "reserved places of a class", reserved ? reserved[k] : 0,
			      s->klass[k].reserved);
		audit_compare(a, whose, "free places of a class", n.class_free[k],
			      s->klass[k].free);
		audit_compare(a, whose, "live places of a class", n.class_live[k],
			      s->klass[k].live);
		audit_compare(a, whose, "evacuated places of a class", n.class_going[k],
			      s->klass[k].going);
	}
}

static bool account_agrees(const struct holding *k, const struct holding *n, uint32_t i)
{
	return n->uses == (i < LEDGER_FIRST ? n->uses : k->uses) && (k->open || !n->uses) &&
	       n->pending == k->pending &&
	       !memcmp(n->used, k->used, sizeof(n->used)) &&
	       !memcmp(n->pinned, k->pinned, sizeof(n->pinned));
}

static void account_tell(struct audit *a, const char *whose, const struct holding *k,
			 const struct holding *n, uint32_t i)
{
	char name[128];

	snprintf(name, sizeof(name), "%.80s account %u (key %llx)", whose, i,
		 (unsigned long long)k->key);
	if (!k->open && n->uses)
		audit_compare(a, name, "an account in use that is free", n->uses, 0);
	if (i >= LEDGER_FIRST)
		audit_compare(a, name, "uses", n->uses, k->uses);
	audit_compare(a, name, "pending blocks", n->pending, k->pending);
	for (uint32_t t = 0; t < ABI_TIER_COUNT; t++)
		audit_compare(a, name, "bytes charged", n->used[t], k->used[t]);
	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++)
		audit_compare(a, name, "bytes pinned", n->pinned[t], k->pinned[t]);
}

/* counted: the accounts' bytes and uses as the blocks show them; limits are taken from kept. */
void audit_ledger(struct audit *a, const char *whose, const struct ledger *kept,
		  const struct ledger *counted)
{
	uint64_t open = 0, plain[ABI_TIER_COUNT] = { 0 }, soft[ABI_TIER_COUNT] = { 0 };

	for (uint32_t i = 0; i < kept->count; i++) {
		const struct holding *k = &kept->account[i], *n = &counted->account[i];

		if (!account_agrees(k, n, i))
			account_tell(a, whose, k, n, i);
		open += k->open && i >= LEDGER_FIRST;
		for (uint32_t t = 0; t < ABI_TIER_COUNT; t++) {
			plain[t] += n->used[t] && !k->limit[t].soft;
			soft[t] += k->limit[t].soft;
		}
	}
	audit_compare(a, whose, "accounts", open, kept->open);
	for (uint32_t t = 0; t < ABI_TIER_COUNT; t++) {
		audit_compare(a, whose, "accounts without a share", plain[t], kept->plain[t]);
		audit_compare(a, whose, "sum of soft shares", soft[t], kept->soft_sum[t]);
	}
}
