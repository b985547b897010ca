/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The audit of the tables that stand beside a context's blocks: each entry is some block's, no two
 * blocks share one of block_use, and each tenant counts the blocks that name it. And of what links
 * blocks of a prefix: parent and children name each other, and none stays behind one that left. And
 * of descriptors: which have memory, which are announced.
 */
#include <stdlib.h>
#include <string.h>

#include "tierd/core/audit/audit_priv.h"

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
		if (e->lane >= LANES || (e->account && e->lane != e->account % LANES))
			audit_tell(a, "context %s: block %u: its lane is another salt's",
				   x->spec.name, slot);
	}
	for (uint32_t i = 1; i <= t->high; i++)
		audit_compare(a, audit_whose(a, x), "blocks of a salt", blocks[i],
			      t->entry[i].blocks);
	if (t->entry[0].salt || t->entry[0].account || t->entry[0].lane || t->entry[0].blocks)
		audit_tell(a, "context %s: the public salt has changed", x->spec.name);
}

/* ---- prefixes ----------------------------------------------------------------------------- */

static const struct sibling *sibling_of(const struct context *x, uint32_t slot)
{
	uint32_t name = block_sibling(&x->meta[slot]);

	return name <= x->siblings.high ? &x->siblings.entry[name] : NULL;
}

/* Returns the children that can be reached from the block. */
static uint64_t audit_children(struct audit *a, const struct context *x, uint32_t slot)
{
	uint32_t before = ABI_SLOT_NONE, child = index_block(&x->ix, slot)->child;
	uint64_t n = 0;

	for (; child != ABI_SLOT_NONE; n++) {
		const struct sibling *k = child < x->ix.slots_used ? sibling_of(x, child) : NULL;

		if (!k || n > x->ix.slots_used || k->prev != before ||
		    index_block(&x->ix, child)->parent != slot ||
		    index_block(&x->ix, child)->state == ABI_BLOCK_FREE) {
			audit_tell(a, "context %s: block %u is not a child of block %u",
				   x->spec.name, child, slot);
			return n;
		}
		before = child;
		child = k->next;
	}
	return n;
}

static void audit_prefixes(struct audit *a, const struct context *x)
{
	uint64_t behind = 0, reached = 0, named = 0, free = 0;

	for (uint32_t slot = 0; slot < x->ix.slots_used; slot++) {
		const struct abi_block *b = index_block(&x->ix, slot);
		bool lives = b->state != ABI_BLOCK_FREE;

		named += sibling_of(x, slot) != &x->siblings.entry[0];
		behind += lives && b->parent != ABI_SLOT_NONE;
		if (lives || x->meta[slot].flags & BLOCK_LEAVING)
			reached += audit_children(a, x, slot);
	}
	for (uint32_t i = x->siblings.free; i && free <= x->siblings.high;
	     i = x->siblings.entry[i].next)
		free++;
	audit_compare(a, audit_whose(a, x), "blocks behind others", behind, reached);
	audit_compare(a, audit_whose(a, x), "blocks with siblings", named, x->siblings.count);
	audit_compare(a, audit_whose(a, x), "places of siblings", named + free, x->siblings.high);
}

/* ---- the index ---------------------------------------------------------------------------- */

static void audit_index(struct audit *a, const struct context *x)
{
	const struct index *ix = &x->ix;
	uint64_t entries = 0, lines = 0, free = 0, lines_free = 0;
	uint32_t slot = ix->free_head;

	for (uint64_t i = 0; i < ix->header->bucket_count; i++) {
		const struct abi_bucket *line = &ix->bucket[i];

		for (uint32_t n = 0; n < ABI_CHAIN_MAX; n++) {
			for (uint32_t k = 0; k < ABI_BUCKET_SLOTS; k++)
				entries += line->slot[k] != ABI_SLOT_NONE;
			if (!line->overflow || line->overflow > ix->overflow_used)
				break;
			line = &ix->overflow[line->overflow - 1];
			lines++;
		}
	}
	for (uint32_t i = ix->overflow_free; i && lines_free <= ix->overflow_used;
	     i = ix->overflow[i - 1].seq)
		lines_free++;
	for (; slot < ix->slots_used && free <= ix->slots_used; slot = ix->block[slot].parent)
		free++;
	audit_compare(a, audit_whose(a, x), "entries of the index", entries, ix->entries);
	audit_compare(a, audit_whose(a, x), "overflow lines of the index", lines + lines_free,
		      ix->overflow_used);
	audit_compare(a, audit_whose(a, x), "free slots of the index", free, ix->slots_free);
}

/* ---- descriptors -------------------------------------------------------------------------- */

static void audit_descs(struct audit *a, const struct context *x)
{
	uint64_t end = x->ix.slots_used * x->ix.pages_per_block, groups = 0, begun = 0;

	for (uint64_t group = 0; group * DESCS_GROUP < end; group++) {
		uint64_t first = group * DESCS_GROUP;

		if (!descs_touched(&x->descs, group))
			continue;
		groups++;
		for (uint64_t i = first; i < first + DESCS_GROUP && i < end; i++)
			for (uint32_t t = 0; t < ABI_MEM_TIERS; t++)
				if (abi_word_version(x->ix.page[i].word[t]) >
				    x->descs.version[i / x->ix.pages_per_block])
					audit_tell(a, "context %s: descriptor %llu has a version "
						   "beyond its slot's", x->spec.name,
						   (unsigned long long)i);
	}
	for (uint32_t slot = 0; slot < x->ix.slots_used; slot++) {
		uint32_t one = block_use(x, slot)->begun;

		begun += one;
		if (one && index_block(&x->ix, slot)->state != ABI_BLOCK_PENDING)
			audit_tell(a, "context %s: block %u announces descriptors and is not "
				   "pending", x->spec.name, slot);
	}
	audit_compare(a, audit_whose(a, x), "groups of descriptors", groups, x->descs.groups);
	audit_compare(a, audit_whose(a, x), "groups that are announced", begun, x->begun);
}

/* What was touched, and what may come to be, is charged. */
static void audit_charge(struct audit *a, const struct context *x)
{
	uint64_t touched = tables_of(x), most = tables_most(x);

	if (touched > most || most > x->table_bytes)
		audit_tell(a, "context %s: its tables have %llu bytes, may come to %llu, and are "
			   "charged %llu", x->spec.name, (unsigned long long)touched,
			   (unsigned long long)most, (unsigned long long)x->table_bytes);
}

void audit_tables(struct audit *a, const struct context *x)
{
	uint8_t *seen = calloc(x->uses.high + (size_t)1, sizeof(*seen));
	uint32_t *blocks = calloc(x->tenants.high + (size_t)1, sizeof(*blocks));

	if (seen && blocks) {
		audit_uses(a, x, seen);
		audit_tenants(a, x, blocks);
		audit_prefixes(a, x);
		audit_index(a, x);
		audit_descs(a, x);
		audit_charge(a, x);
	} else {
		audit_tell(a, "out of memory for the recount");
	}
	free(seen);
	free(blocks);
}
