/* SPDX-License-Identifier: Apache-2.0 */
/* Slots as a former daemon gave them; former.h says what for. Its index is only read. */
#include "tierd/core/unit/former.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "libtier/base/atomic.h"
#include "libtier/base/bitmap.h"

struct former {
	struct index ix; /* only read */
	uint64_t *kept;  /* bits: slots for blocks that did not come so far */
	uint64_t slots;
};

static bool same_shape(const struct abi_index_header *a, const struct abi_index_header *b)
{
	return a->magic == b->magic && a->version == b->version &&
	       a->pages_per_block == b->pages_per_block && a->blocks_max == b->blocks_max &&
	       a->buckets_max == b->buckets_max && a->overflow_max == b->overflow_max &&
	       a->bucket_offset == b->bucket_offset && a->overflow_offset == b->overflow_offset &&
	       a->block_offset == b->block_offset && a->bucket_count >= b->bucket_count &&
	       a->bucket_count <= a->buckets_max;
}

int former_open(struct former **out, struct index *ix, const void *memory, uint64_t slots)
{
	const struct abi_index_header *h = memory;
	char *base = (char *)(uintptr_t)memory;
	struct former *f;

	assert(!ix->slots_used);
	if (!same_shape(h, ix->header) || slots > h->blocks_max)
		return -EINVAL;
	f = calloc(1, sizeof(*f));
	if (f)
		f->kept = calloc(slots / 64 + 1, sizeof(uint64_t));
	if (!f || !f->kept) {
		free(f);
		return -ENOMEM;
	}
	f->slots = slots;
	f->ix = (struct index){
		.header = (struct abi_index_header *)base,
		.bucket = (struct abi_bucket *)(base + h->bucket_offset),
		.overflow = (struct abi_bucket *)(base + h->overflow_offset),
		.block = (struct abi_block *)(base + h->block_offset),
		.overflow_used = h->overflow_max,
	};
	for (uint32_t i = 0; i < slots; i++) {
		bitmap_set(f->kept, i);
		ix->block[i].generation = f->ix.block[i].generation;
	}
	ix->slots_used = slots;
	ix->header->life = h->life ? h->life : h->boot_token;
	*out = f;
	return 0;
}

uint32_t former_slot(struct former *f, struct index *ix, const uint8_t *key)
{
	uint32_t slot = f ? index_find(&f->ix, key) : ABI_SLOT_NONE;

	if (slot >= (f ? f->slots : 0) || !bitmap_test(f->kept, slot))
		return index_slot_alloc(ix);
	bitmap_clear(f->kept, slot);
	atomic_store_relaxed_u32(&ix->block[slot].parent, ABI_SLOT_NONE);
	return slot;
}

void former_close(struct former *f, struct index *ix)
{
	if (!f)
		return;
	for (uint32_t i = (uint32_t)f->slots; i-- > 0;)
		if (bitmap_test(f->kept, i))
			index_slot_free(ix, i);
	free(f->kept);
	free(f);
}
