/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The audit of the tables that stand beside a context's blocks: each entry is some block's, no two
 * blocks share one of block_use, and each tenant counts the blocks that name it.
 */
#include <stdlib.h>
#include <string.h>

#include "tierd/core/audit_priv.h"

static bool is_nought(const struct block_use *use)
{
	static const struct block_use nought;

	return !memcmp(use, &nought, sizeof(nought));
}

static void audit_uses(struct audit *a, const struct context *x, uint8_t *seen)
{
	const struct block_uses *u = &x->uses;
	uint64_t count = 0, free = 0;

	for (uint32_t slot = 0; slot < x->ix.slots_used; slot++) {
		uint32_t i = x->meta[slot].use;

		if (!i)
			continue;
		count++;
		if (i > u->high || seen[i]++ || is_nought(&u->entry[i]))
			audit_tell(a, "context %s: block %u: its entry %u of what is in use is %s",
				   x->spec.name, slot, i,
				   i > u->high ? "beyond all"
				   : seen[i] > 1 ? "another's" : "empty");
	}
	for (uint32_t i = u->free; i && free <= u->high; i = u->entry[i].free)
		free++;
	audit_compare(a, audit_whose(a, x), "blocks in use", count, u->count);
	audit_compare(a, audit_whose(a, x), "places for what is in use", count + free, u->high);
	if (!is_nought(&u->entry[0]))
		audit_tell(a, "context %s: what is in use of no block is counted", x->spec.name);
}

static void audit_tenants(struct audit *a, const struct context *x, uint32_t *blocks)
{
	const struct tenants *t = &x->tenants;

	for (uint32_t slot = 0; slot < x->ix.slots_used; slot++) {
		uint32_t i = x->meta[slot].tenant;
		const struct tenant *e = &t->entry[i];

		if (i > t->high || (i && !e->blocks)) {
			audit_tell(a, "context %s: block %u: nobody's salt", x->spec.name, slot);
			continue;
		}
		blocks[i]++;
		if (i && e->account != LEDGER_OTHER && x->salts.account[e->account].key != e->salt)
			audit_tell(a, "context %s: block %u: its salt is not its account's",
				   x->spec.name, slot);
	}
	for (uint32_t i = 1; i <= t->high; i++)
		audit_compare(a, audit_whose(a, x), "blocks of a salt", blocks[i],
			      t->entry[i].blocks);
	if (t->entry[0].salt || t->entry[0].account || t->entry[0].blocks)
		audit_tell(a, "context %s: the public salt has changed", x->spec.name);
}

void audit_tables(struct audit *a, const struct context *x)
{
	uint8_t *seen = calloc(x->uses.high + (size_t)1, sizeof(*seen));
	uint32_t *blocks = calloc(x->tenants.high + (size_t)1, sizeof(*blocks));

	if (seen && blocks) {
		audit_uses(a, x, seen);
		audit_tenants(a, x, blocks);
	} else {
		audit_tell(a, "out of memory for the recount");
	}
	free(seen);
	free(blocks);
}
