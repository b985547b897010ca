/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups of descriptors that have memory; see descs.h. It knows numbers only: it reads and writes
 * no descriptor, and must never say of a group that was written that it was not.
 */
#include "tierd/core/unit/descs.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tierd/core/unit/table_new.h"

int descs_open(struct descs *d, uint64_t blocks_max, uint32_t pages_per_block)
{
	uint64_t groups = blocks_max * pages_per_block / DESCS_GROUP + 1;

	*d = (struct descs){ .per_slot = pages_per_block };
	assert(pages_per_block > 0);
	d->touched = table_new(groups / 64 + 1, sizeof(*d->touched));
	d->version = table_new(blocks_max, sizeof(*d->version));
	return d->touched && d->version ? 0 : -ENOMEM;
}

void descs_close(struct descs *d)
{
	free(d->touched);
	free(d->version);
	memset(d, 0, sizeof(*d));
}

/* The bits of one word that stand for groups [from, end). */
static uint64_t word_mask(uint64_t word, uint64_t from, uint64_t end)
{
	uint64_t mask = UINT64_MAX;

	if (from > word * 64)
		mask &= UINT64_MAX << (from - word * 64);
	if (end < (word + 1) * 64)
		mask &= UINT64_MAX >> ((word + 1) * 64 - end);
	return mask;
}

void descs_touch_range(struct descs *d, uint64_t group, uint64_t count)
{
	for (uint64_t w = group / 64; count && w <= (group + count - 1) / 64; w++) {
		uint64_t fresh = word_mask(w, group, group + count) & ~d->touched[w];

		d->touched[w] |= fresh;
		d->groups += (uint64_t)__builtin_popcountll(fresh);
	}
}

uint32_t descs_fresh(const struct descs *d, uint32_t slot, uint32_t page, uint32_t pages)
{
	uint64_t from = descs_group_of(d, slot, page), n = 0;
	uint64_t end = descs_group_of(d, slot, page + pages - 1) + 1;

	assert(pages > 0 && page + pages <= d->per_slot);
	for (uint64_t w = from / 64; w <= (end - 1) / 64; w++)
		n += (uint64_t)__builtin_popcountll(word_mask(w, from, end) & ~d->touched[w]);
	return (uint32_t)n;
}

/* The first group at or behind `from` that is touched, or is not; `end` if there is none below. */
static uint64_t next(const struct descs *d, uint64_t from, uint64_t end, bool touched)
{
	for (uint64_t w = from / 64; w * 64 < end; w++) {
		uint64_t bits = touched ? d->touched[w] : ~d->touched[w];

		bits &= word_mask(w, from, end);
		if (bits)
			return w * 64 + (uint64_t)__builtin_ctzll(bits);
	}
	return end;
}

bool descs_hole(const struct descs *d, uint64_t from, uint64_t end, uint64_t *group,
		uint64_t *count)
{
	*group = next(d, from, end, false);
	*count = *group < end ? next(d, *group, end, true) - *group : 0;
	return *count > 0;
}

uint64_t descs_inside(const struct descs *d, uint32_t slot, uint64_t *group, uint64_t *count)
{
	uint64_t first = (uint64_t)slot * d->per_slot;
	uint64_t from = (first + DESCS_GROUP - 1) / DESCS_GROUP;
	uint64_t end = (first + d->per_slot) / DESCS_GROUP, n = 0;

	*group = from;
	*count = end > from ? end - from : 0;
	for (uint64_t w = from / 64; *count && w <= (end - 1) / 64; w++)
		n += (uint64_t)__builtin_popcountll(word_mask(w, from, end) & d->touched[w]);
	return n;
}

void descs_forget(struct descs *d, uint64_t group, uint64_t count)
{
	for (uint64_t w = group / 64; count && w <= (group + count - 1) / 64; w++) {
		uint64_t gone = word_mask(w, group, group + count) & d->touched[w];

		d->touched[w] &= ~gone;
		assert(d->groups >= (uint64_t)__builtin_popcountll(gone));
		d->groups -= (uint64_t)__builtin_popcountll(gone);
	}
}
