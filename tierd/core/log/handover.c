/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handover (abi/handover.h): what a context has in CXL is written down by the daemon that ends, and
 * taken by the next one behind recovery. Both walk all blocks in one call: nobody is served then.
 *
 * The list's sum was checked, so what it says is what a daemon wrote; it is judged all the same,
 * because that one's books and what recovery found need not agree: a deletion whose tombstone was
 * not written is undone by recovery, say. Where they differ recovery is right, and the memory is
 * given back as a place that old clients may read.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "tierd/core/state.h"

#define CXL ABI_TIER_CXL

/* ---- leaving ------------------------------------------------------------------------------ */

/* Where the list grows; without memory it is only measured. */
struct pen {
	uint8_t *at; /* NULL = measure */
	uint64_t bytes;
};

static void *pen_take(struct pen *p, size_t bytes)
{
	void *at = p->at ? p->at + p->bytes : NULL;

	p->bytes += bytes;
	return at;
}

static bool is_ready(const struct context *x, uint32_t slot, uint32_t page)
{
	return descs_there(&x->descs, slot, page) &&
	       page_state(index_page(&x->ix, slot, page), CXL) == ABI_PAGE_READY;
}

static void page_write(struct context *x, uint32_t slot, uint32_t page, bool place, struct pen *p)
{
	struct abi_page *d = index_page(&x->ix, slot, page);
	struct handover_page *to = pen_take(p, sizeof(*to));

	if (!to)
		return;
	assert(space_is_live(x->space[CXL], page_addr(d, CXL)));
	*to = (struct handover_page){ page_addr(d, CXL), page, place ? 0 : d->crc };
	page_retire(d, CXL); /* Y3 */
}

static void block_write(struct core *c, struct context *x, uint32_t slot, struct pen *p)
{
	struct handover_block *to = pen_take(p, sizeof(*to));
	const struct abi_block *b = index_block(&x->ix, slot);
	uint32_t parent = block_parent(x, slot), pages = 0;

	for (uint32_t i = 0; i < x->ix.pages_per_block; i++) {
		if (!is_ready(x, slot, i))
			continue;
		page_write(x, slot, i, false, p);
		pages++;
	}
	assert(pages == x->meta[slot].there[CXL].pages || !to);
	if (!to)
		return;
	*to = (struct handover_block){
		.salt = block_salt(x, slot),
		.depth = b->depth,
		.parts = b->parts,
		.keep = retain_word(c, x, slot),
		.flags = x->meta[slot].flags & BLOCK_DURABLE ? HANDOVER_DURABLE : 0,
		.pages = pages,
	};
	memcpy(to->key, b->key, ABI_KEY_BYTES);
	if (parent != ABI_SLOT_NONE)
		memcpy(to->parent, index_block(&x->ix, parent)->key, ABI_KEY_BYTES);
}

static bool is_left(const struct context *x, uint32_t slot)
{
	const struct abi_block *b = index_block(&x->ix, slot);

	return b->state == ABI_BLOCK_COMMITTED && b->epoch == (uint32_t)x->spec.epoch &&
	       x->meta[slot].there[CXL].pages;
}

/* Of dropped blocks and of such as no look-up finds: READY, and perhaps leased before. */
static uint32_t lost_write(struct context *x, uint32_t slot, struct pen *p)
{
	uint32_t n = 0;

	for (uint32_t i = 0; x->meta[slot].there[CXL].pages && i < x->ix.pages_per_block; i++) {
		if (!is_ready(x, slot, i))
			continue;
		page_write(x, slot, i, true, p);
		n++;
	}
	return n;
}

/* What waits for a scan, or was found leased by one. */
static uint32_t retired_write(const struct core *c, const struct context *x, struct pen *p)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < CORE_BATCHES_MAX; i++) {
		const struct core_batch *b = &c->reclaim.batch[i];

		for (uint32_t k = 0; k < b->count; k++) {
			uint64_t place = b->place[k];
			struct handover_page *to;

			if ((place >> (ABI_ADDR_BITS + 3) & 0xffff) != x->index ||
			    (place >> ABI_ADDR_BITS & 7) != CXL)
				continue;
			to = pen_take(p, sizeof(*to));
			n++;
			if (to)
				*to = (struct handover_page){
					.offset = (place & ABI_ADDR_MASK) << ABI_UNIT_SHIFT,
					.page = b->page[k],
				};
		}
	}
	return n;
}

/*
 * Of a slab that is being emptied some units were given back, and who takes it needs all of it. If
 * the tier has not so much, contexts with such slabs leave nothing.
 */
static bool takes_too_much(const struct core *c, const struct context *x)
{
	uint64_t need = c->pool[CXL].used;

	for (uint32_t i = 0; i < c->contexts_high; i++)
		if (c->context[i] && c->context[i]->space[CXL])
			need += space_returned(c->context[i]->space[CXL]);
	return need > c->pool[CXL].capacity && space_returned(x->space[CXL]);
}

uint64_t core_handover_leave(struct core *c, uint32_t id, void *memory)
{
	struct pen pen = { .at = memory };
	struct handover_context *to = pen_take(&pen, sizeof(*to));
	struct context *x = core_context(c, id);
	uint64_t blocks = 0;
	uint32_t places;

	if (!x || x->closing || !x->space[CXL] || takes_too_much(c, x))
		return 0;
	for (uint32_t slot = 0; slot < x->ix.slots_used; slot++) {
		if (!is_left(x, slot))
			continue;
		block_write(c, x, slot, &pen);
		blocks++;
	}
	places = retired_write(c, x, &pen); /* first: what follows is not in the batches */
	for (uint32_t slot = 0; slot < x->ix.slots_used; slot++)
		if (!is_left(x, slot))
			places += lost_write(x, slot, &pen);
	if (to)
		*to = (struct handover_context){
			.id = x->id,
			.places = places,
			.blocks = blocks,
			.bytes = pen.bytes,
			.mem_bytes = x->plan.mem_bytes[CXL],
			.slab_bytes = space_slab_bytes(x->space[CXL]),
			.slots = x->ix.slots_used,
			.spec = x->spec,
		};
	return pen.bytes;
}

/* ---- taking ------------------------------------------------------------------------------- */

static uint32_t class_of_page(const struct context *x, uint32_t page)
{
	return x->part_class[x->page_part[page]];
}

static int place_leave(struct core *c, struct context *x, const struct handover_page *page,
		       uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (page[i].page >= x->ix.pages_per_block ||
		    !retire_left(c, x, page[i].page, CXL, page[i].offset))
			return -ENOSPC;
	return 0;
}

static bool pages_fit(const struct context *x, const struct handover_block *b,
		      const struct handover_page *page)
{
	for (uint32_t i = 0; i < b->pages; i++)
		if (page[i].page >= x->ix.pages_per_block ||
		    (i && page[i].page <= page[i - 1].page) ||
		    !(b->parts >> x->page_part[page[i].page] & 1))
			return false;
	return b->pages && b->parts && !(b->parts & ~parts_mask(x));
}

/* Does what recovery found of the key say the same of these pages? */
static bool is_same(const struct context *x, uint32_t slot, const struct handover_block *b,
		    const struct handover_page *page)
{
	const struct abi_block *found = index_block(&x->ix, slot);

	if (found->state != ABI_BLOCK_COMMITTED || found->parts != b->parts ||
	    found->depth != b->depth)
		return false;
	for (uint32_t i = 0; i < b->pages; i++) {
		const struct abi_page *d = index_page(&x->ix, slot, page[i].page);

		if (!d->nvme || d->crc != page[i].crc || page_state(d, CXL) != ABI_PAGE_ABSENT)
			return false;
	}
	return true;
}

/* As recovery makes one, but for its copy on NVMe. */
static uint32_t block_make(struct core *c, struct context *x, const struct handover_block *b)
{
	uint32_t slot = block_new(x, b->key);
	struct abi_block *at;

	if (slot == ABI_SLOT_NONE)
		return slot;
	at = index_block(&x->ix, slot);
	at->parts = b->parts;
	at->depth = b->depth;
	if (!block_enter(c, x, slot))
		return ABI_SLOT_NONE;
	quota_name(c, x, slot, b->salt, LEDGER_NONE);
	tables_lane(x, block_lane(x, slot));
	x->meta[slot].flags = b->flags & HANDOVER_DURABLE ? BLOCK_DURABLE : 0;
	if (disk_keep_lapses(b->keep))
		retain_say(c, x, slot, disk_keep_priority(b->keep),
			   1 + disk_keep_units(b->keep) * DISK_KEEP_UNIT_MS);
	else if (b->keep)
		retain_say(c, x, slot, disk_keep_priority(b->keep), 0);
	prefix_join(x, slot, index_find(&x->ix, b->parent));
	x->meta[slot].joined = block_parent(x, slot) != ABI_SLOT_NONE;
	assert(x->meta[slot].persist == PERSIST_NONE);
	return slot;
}

static int pages_take(struct core *c, struct context *x, uint32_t slot,
		      const struct handover_page *page, uint32_t count)
{
	assert(index_block(&x->ix, slot)->state == ABI_BLOCK_COMMITTED && count);
	for (uint32_t i = 0; i < count; i++) {
		struct abi_page *d;

		if (space_claim(x->space[CXL], class_of_page(x, page[i].page), page[i].offset))
			return -EBADMSG;
		block_page_taken(c, x, slot, page[i].page, CXL, page[i].offset);
		d = index_page(&x->ix, slot, page[i].page);
		d->crc = page[i].crc;
		page_publish(d, CXL);
		block_resident(c, x, slot, page[i].page, CXL);
	}
	return 0;
}

static int block_take(struct core *c, struct context *x, const struct handover_block *b,
		      const struct handover_page *page, struct core_handover *out)
{
	uint32_t slot = index_find(&x->ix, b->key);
	bool fresh = slot == ABI_SLOT_NONE, good;
	int err;

	if (!pages_fit(x, b, page))
		return -EBADMSG;
	/* One that only memory has must be whole there. */
	good = fresh ? store_block_pages(&x->spec.geometry, b->parts) == b->pages :
		       is_same(x, slot, b, page);
	if (fresh && good)
		slot = block_make(c, x, b);
	if (!good || slot == ABI_SLOT_NONE) {
		out->refused++;
		return place_leave(c, x, page, b->pages);
	}
	err = pages_take(c, x, slot, page, b->pages);
	if (err)
		return err;
	if (fresh)
		writeback_enqueue(c, x, slot);
	out->dirty += fresh;
	out->blocks++;
	out->pages += b->pages;
	return 0;
}

/* All are there: one that stood behind another does so again, or goes, as recovery has it. */
static void block_settle(struct core *c, struct context *x, const struct handover_block *b)
{
	static const uint8_t none[ABI_KEY_BYTES];
	uint32_t slot = index_find(&x->ix, b->key);

	if (slot == ABI_SLOT_NONE || block_parent(x, slot) != ABI_SLOT_NONE ||
	    !memcmp(b->parent, none, sizeof(none)))
		return;
	prefix_join(x, slot, index_find(&x->ix, b->parent));
	x->meta[slot].joined = block_parent(x, slot) != ABI_SLOT_NONE;
	if (x->meta[slot].joined || !prefix_binds(x, slot))
		return;
	meter_begin(&c->meter);
	block_drop(c, x, slot);
}

static uint64_t bytes_left(const struct handover_context *list, const void *at)
{
	return list->bytes - (uint64_t)((const uint8_t *)at - (const uint8_t *)list);
}

/* The block behind this one; NULL: the list ends before. */
static const struct handover_block *block_next(const struct handover_context *list,
					       const struct handover_block *b)
{
	uint64_t bytes = sizeof(*b) + b->pages * sizeof(struct handover_page);

	assert((const uint8_t *)b > (const uint8_t *)list);
	return bytes <= bytes_left(list, b) ? (const void *)((const uint8_t *)b + bytes) : NULL;
}

int core_handover_take(struct core *c, uint32_t id, const struct handover_context *list,
		       struct core_handover *out)
{
	const struct handover_block *first = (const void *)(list + 1), *b = first, *next = b;
	struct context *x = core_context(c, id);
	int err = 0;

	assert(x && x->space[CXL] && x->index == ABI_CONTEXT_INDEX(list->id));
	meter_begin(&c->meter);
	for (uint64_t i = 0; i < list->blocks && !err; i++, b = next) {
		next = bytes_left(list, b) >= sizeof(*b) ? block_next(list, b) : NULL;
		err = next ? block_take(c, x, b, (const void *)(b + 1), out) : -EBADMSG;
	}
	if (!err && list->places * sizeof(struct handover_page) != bytes_left(list, b))
		err = -EBADMSG;
	if (!err)
		err = place_leave(c, x, (const void *)b, list->places);
	for (uint64_t i = 0; i < list->blocks && !err; i++, first = block_next(list, first))
		block_settle(c, x, first);
	former_close(x->left, &x->ix);
	x->left = NULL;
	tables_come_back(c, x);
	out->bytes += x->space[CXL] ? space_held(x->space[CXL]) : 0;
	return err;
}
