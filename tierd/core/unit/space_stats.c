/* SPDX-License-Identifier: Apache-2.0 */
/* What a space holds, and how much more of a mix of pages it could (space.h). */
#include <assert.h>
#include <stddef.h>

#include "libtier/abi/index.h"
#include "libtier/base/bitmap.h"
#include "tierd/core/unit/space_priv.h"

void space_stats(const struct space *s, struct space_stats *out)
{
	uint64_t least = UINT64_MAX, reserved = 0;

	for (uint32_t k = 0; k < s->classes; k++) {
		if (space_class_bytes(s, k) < least)
			least = space_class_bytes(s, k);
		reserved += s->klass[k].reserved * s->klass[k].stride;
	}
	assert(s->free >= s->free_evacuated + reserved);
	*out = (struct space_stats){
		.charged = s->taken * s->slab_bytes - s->returned,
		.live = s->live,
		.free = s->free,
		.reserved = reserved,
		.available = s->free - s->free_evacuated - reserved +
			     space_slabs_left(s) * least,
		.punching = s->punching * least,
	};
	assert(out->live <= out->charged);
}

uint64_t space_held(const struct space *s)
{
	assert(s->taken >= s->punching);
	return (s->taken - s->punching) * s->slab_bytes - s->returned;
}

uint64_t space_returned(const struct space *s)
{
	return s->returned;
}

uint64_t space_fit(const struct space *s, const uint32_t *need, uint64_t pool_slabs)
{
	uint64_t low = 0, high = s->slabs * (s->slab_bytes / ABI_UNIT) + 1;

	/* The largest n for which every class finds n times its need. */
	while (high - low > 1) {
		uint64_t n = low + (high - low) / 2, spare = pool_slabs, wanted = 0;

		for (uint32_t k = 0; k < s->classes; k++) {
			const struct space_class *c = &s->klass[k];
			uint64_t empty = c->heap[HEAP_EMPTY].count;
			uint64_t own = c->free - c->reserved;

			/* Promised places are taken from slabs in use first. */
			own = own > empty * c->places ? own - empty * c->places : 0;
			spare += empty;
			if (n * need[k] > own)
				wanted += (n * need[k] - own + c->places - 1) / c->places;
		}
		if (wanted <= spare)
			low = n;
		else
			high = n;
	}
	return low;
}

uint64_t space_own_bytes(const struct pool *pool, uint64_t bytes, uint64_t quota,
			 const uint32_t *stride, uint32_t classes)
{
	uint64_t most = bytes < quota ? bytes : quota, size, slabs, words, fills = classes;
	uint32_t smallest = UINT32_MAX;

	most = most < pool->capacity ? most : pool->capacity;
	size = space_least(pool, most, stride, classes) / classes;
	slabs = most / size;
	for (uint32_t i = 0; i < classes; i++) {
		smallest = stride[i] < smallest ? stride[i] : smallest;
		fills += size / stride[i];
	}
	words = BITMAP_WORDS(size / smallest);
	words += BITMAP_WORDS(words) + (uint64_t)HEAPS * classes;
	return sizeof(struct space) + classes * sizeof(struct space_class) + fills +
	       (BITMAP_WORDS(slabs) + slabs * words) * sizeof(uint64_t) +
	       slabs * sizeof(struct slab);
}
