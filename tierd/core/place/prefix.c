/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prefix order: no block is kept when the one before it is gone, for nobody finds it then.
 *
 *   put, recovery   a block is linked behind its parent: child -> parent, parent -> one child,
 *                   siblings in a list beside (prefix.h)
 *   block_drop      the parent leaves the index; with children, it keeps its slot (parents_leaving)
 *   prefix_drop.c   the children leave, each perhaps with children of its own
 *   held, pinned, pending: later, their parent in core.waiting until then. Durable: never, they
 *                   are promised by themselves
 *
 * Depths grow by one along each link, so links make no ring whatever clients say. A block whose
 * parent was not there when it was put has none, and is a beginning of its own.
 */
#include "tierd/core/place/prefix.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "tierd/core/state.h"

/* ---- siblings ----------------------------------------------------------------------------- */

int siblings_open(struct siblings *k, uint32_t blocks_max)
{
	uint32_t most = (1u << (ABI_MEM_TIERS * SIBLING_BITS)) - 1;

	/* One more than can be used, so that two are free as long as two may be needed. */
	*k = (struct siblings){ .most = blocks_max < most ? blocks_max + 1 : most };
	k->entry = table_new((size_t)k->most + 1, sizeof(*k->entry));
	if (!k->entry)
		return -ENOMEM;
	k->entry[0] = (struct sibling){ ABI_SLOT_NONE, ABI_SLOT_NONE };
	return 0;
}

void siblings_close(struct siblings *k)
{
	free(k->entry);
	*k = (struct siblings){ 0 };
}

static void name_set(struct block_meta *m, uint32_t name)
{
	m->there[0].sibling = name & ((1u << SIBLING_BITS) - 1);
	m->there[1].sibling = name >> SIBLING_BITS & ((1u << SIBLING_BITS) - 1);
}

static struct sibling *sibling_of(const struct context *x, uint32_t slot)
{
	return &x->siblings.entry[block_sibling(&x->meta[slot])];
}

/* The block's own entry; there is room for one. */
static struct sibling *sibling_make(struct context *x, uint32_t slot)
{
	struct siblings *k = &x->siblings;
	uint32_t name = block_sibling(&x->meta[slot]);

	if (name)
		return &k->entry[name];
	assert(k->count < k->most);
	k->count++;
	name = k->free;
	if (name)
		k->free = k->entry[name].next;
	else
		name = ++k->high;
	k->entry[name] = (struct sibling){ ABI_SLOT_NONE, ABI_SLOT_NONE };
	name_set(&x->meta[slot], name);
	return &k->entry[name];
}

/* It has no siblings (any more). */
static void sibling_drop(struct context *x, uint32_t slot)
{
	struct siblings *k = &x->siblings;
	uint32_t name = block_sibling(&x->meta[slot]);

	if (!name)
		return;
	assert(k->count > 0);
	k->count--;
	k->entry[name].next = k->free;
	k->free = name;
	name_set(&x->meta[slot], 0);
}

static void sibling_settle(struct context *x, uint32_t slot)
{
	const struct sibling *e = sibling_of(x, slot);

	if (e->prev == ABI_SLOT_NONE && e->next == ABI_SLOT_NONE)
		sibling_drop(x, slot);
}

uint32_t prefix_sibling(const struct context *x, uint32_t slot)
{
	return sibling_of(x, slot)->next;
}

/* ---- links -------------------------------------------------------------------------------- */

uint32_t block_parent(const struct context *x, uint32_t slot)
{
	uint32_t parent = index_block(&x->ix, slot)->parent;

	if (parent == ABI_SLOT_NONE || index_block(&x->ix, parent)->state == ABI_BLOCK_FREE)
		return ABI_SLOT_NONE;
	return parent;
}

/* May it stand behind that one? Not what a client says of another depth, or of an old epoch. */
static bool fits(const struct context *x, uint32_t slot, uint32_t parent)
{
	const struct abi_block *b = index_block(&x->ix, slot), *p;

	if (parent >= x->ix.slots_used || parent == slot)
		return false;
	p = index_block(&x->ix, parent);
	return p->state != ABI_BLOCK_FREE && p->depth + 1 == b->depth && p->epoch == b->epoch &&
	       (p->child == ABI_SLOT_NONE || x->siblings.count + 2 <= x->siblings.most);
}

void prefix_join(struct context *x, uint32_t slot, uint32_t parent)
{
	struct abi_block *b = index_block(&x->ix, slot), *p;

	if (block_parent(x, slot) != ABI_SLOT_NONE || !fits(x, slot, parent))
		return;
	prefix_leave(x, slot);
	p = index_block(&x->ix, parent);
	b->parent = parent;
	if (p->child != ABI_SLOT_NONE) {
		sibling_make(x, slot)->next = p->child;
		sibling_make(x, p->child)->prev = slot;
	}
	p->child = slot;
}

void prefix_prefetch(const struct context *x, uint32_t slot)
{
	uint32_t parent = index_block(&x->ix, slot)->parent;

	if (parent != ABI_SLOT_NONE)
		__builtin_prefetch(index_block(&x->ix, parent), 1);
}

void prefix_leave(struct context *x, uint32_t slot)
{
	struct abi_block *b = index_block(&x->ix, slot);
	struct sibling e;

	if (b->parent == ABI_SLOT_NONE)
		return;
	e = *sibling_of(x, slot);
	x->part_at = x->part_at == slot ? e.next : x->part_at;
	sibling_drop(x, slot);
	if (e.prev != ABI_SLOT_NONE) {
		assert(sibling_of(x, e.prev)->next == slot);
		sibling_of(x, e.prev)->next = e.next;
		sibling_settle(x, e.prev);
	} else {
		assert(index_block(&x->ix, b->parent)->child == slot);
		index_block(&x->ix, b->parent)->child = e.next;
	}
	if (e.next != ABI_SLOT_NONE) {
		assert(sibling_of(x, e.next)->prev == slot);
		sibling_of(x, e.next)->prev = e.prev;
		sibling_settle(x, e.next);
	}
	b->parent = ABI_SLOT_NONE;
}

/* ---- leaving ------------------------------------------------------------------------------ */

/* Without a part that every block of a prefix must have, blocks are found one by one. */
bool prefix_rules(const struct context *x)
{
	const struct abi_geometry *g = context_geometry(x);

	for (uint32_t i = 0; i < g->part_count; i++)
		if (g->part[i].hit_rule == ABI_HIT_EVERY)
			return true;
	return false;
}

/* Must the block go when its parent does? Not what was promised by itself. */
bool prefix_binds(const struct context *x, uint32_t slot)
{
	return !(x->meta[slot].flags & BLOCK_DURABLE) && prefix_rules(x);
}

void prefix_dropped(struct core *c, struct context *x, uint32_t slot)
{
	prefix_leave(x, slot);
	if (index_block(&x->ix, slot)->child == ABI_SLOT_NONE)
		return;
	x->meta[slot].flags |= BLOCK_LEAVING;
	block_link(c, &c->dropped.parents_leaving, x, slot);
}
