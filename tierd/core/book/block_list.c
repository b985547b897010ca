/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one list that a block is in (pending -> dirty -> its segment's, or that of those who leave),
 * linked through its private state across contexts; and what a block amounts to: pages, bytes, the
 * segment of the store that it is in. Nothing here changes a block.
 */
#include <assert.h>
#include <string.h>

#include "tierd/core/state.h"

void block_list_init(struct block_list *list)
{
	memset(list, 0, sizeof(*list));
	list->head = list->tail = ABI_SLOT_NONE;
}

void block_link(struct core *c, struct block_list *list, struct context *x, uint32_t slot)
{
	struct block_meta *m = &x->meta[slot];

	m->prev = list->tail;
	m->prev_ctx = list->tail_ctx;
	m->next = ABI_SLOT_NONE;
	if (list->tail == ABI_SLOT_NONE) {
		list->head = slot;
		list->head_ctx = (uint16_t)x->index;
	} else {
		struct block_meta *t = &c->context[list->tail_ctx]->meta[list->tail];

		t->next = slot;
		t->next_ctx = x->index & 0x3fffu;
	}
	list->tail = slot;
	list->tail_ctx = (uint16_t)x->index;
	list->count++;
}

void block_link_first(struct core *c, struct block_list *list, struct context *x, uint32_t slot)
{
	struct block_meta *m = &x->meta[slot], *h;

	if (list->head == ABI_SLOT_NONE) {
		block_link(c, list, x, slot);
		return;
	}
	h = &c->context[list->head_ctx]->meta[list->head];
	h->prev = slot;
	h->prev_ctx = x->index & 0x3fffu;
	m->prev = ABI_SLOT_NONE;
	m->next = list->head;
	m->next_ctx = list->head_ctx & 0x3fffu;
	list->head = slot;
	list->head_ctx = (uint16_t)x->index;
	list->count++;
}

void block_unlink(struct core *c, struct block_list *list, struct context *x, uint32_t slot)
{
	struct block_meta *m = &x->meta[slot];

	assert(list->count > 0);
	if (m->prev == ABI_SLOT_NONE) {
		list->head = m->next;
		list->head_ctx = m->next_ctx;
	} else {
		struct block_meta *p = &c->context[m->prev_ctx]->meta[m->prev];

		p->next = m->next;
		p->next_ctx = m->next_ctx;
	}
	if (m->next == ABI_SLOT_NONE) {
		list->tail = m->prev;
		list->tail_ctx = m->prev_ctx;
	} else {
		struct block_meta *n = &c->context[m->next_ctx]->meta[m->next];

		n->prev = m->prev;
		n->prev_ctx = m->prev_ctx;
	}
	m->prev = m->next = ABI_SLOT_NONE;
	list->count--;
}

/* The first one goes behind all others: the next walk begins with one that this did not look at. */
void block_list_turn(struct core *c, struct block_list *list)
{
	struct context *x = c->context[list->head_ctx];
	uint32_t slot = list->head;

	block_unlink(c, list, x, slot);
	block_link(c, list, x, slot);
}

uint64_t parts_mask(const struct context *x)
{
	return (1ull << x->spec.geometry.part_count) - 1;
}

uint32_t block_pages(const struct context *x, uint32_t slot)
{
	return store_block_pages(&x->spec.geometry, index_block(&x->ix, slot)->parts);
}

uint64_t block_bytes(const struct context *x, uint32_t slot)
{
	return store_block_bytes(&x->spec.geometry, index_block(&x->ix, slot)->parts);
}

/* Its first page's word: where all of it lies, on one device, in one segment. */
uint64_t block_word(const struct context *x, uint32_t slot)
{
	uint32_t parts = index_block(&x->ix, slot)->parts;

	assert(parts);
	return index_page(&x->ix, slot,
			  x->spec.geometry.part[__builtin_ctz(parts)].page_base)->nvme;
}

struct drive *block_drive(const struct core *c, const struct context *x, uint32_t slot)
{
	return c->drive[abi_nvme_device(block_word(x, slot))];
}

uint32_t block_segment(const struct core *c, const struct context *x, uint32_t slot)
{
	uint64_t word = block_word(x, slot);

	return store_segment_of(c->drive[abi_nvme_device(word)]->store, abi_nvme_offset(word));
}

/* Does it lie in that segment of that device? */
bool block_lies(const struct core *c, const struct context *x, uint32_t slot,
		const struct drive *dv, uint32_t segment)
{
	return block_drive(c, x, slot) == dv && block_segment(c, x, slot) == segment;
}

bool block_alive(const struct context *x, struct abi_block_ref ref)
{
	const struct abi_block *b;

	if (ref.slot >= x->ix.slots_used)
		return false;
	b = index_block(&x->ix, ref.slot);
	return b->generation == ref.generation && b->state != ABI_BLOCK_FREE &&
	       b->epoch == (uint32_t)x->spec.epoch;
}

/* ---- dirty blocks: a list for each log, see log/dirty.c ----------------------------------- */

uint32_t dirty_log(const struct context *x, uint32_t slot)
{
	return x->meta[slot].flags & BLOCK_DURABLE ? DISK_LOG_DURABLE : DISK_LOG_CACHE;
}

/* Out of its list; what it is from now on is the caller's. */
void writeback_unqueue(struct core *c, struct context *x, uint32_t slot)
{
	struct dirty *d = &x->dirty[dirty_log(x, slot)];

	assert(block_queued(&x->meta[slot]));
	block_unlink(c, &d->list, x, slot);
	d->due -= d->due > 0;
	x->dirty_bytes -= block_bytes(x, slot);
}
