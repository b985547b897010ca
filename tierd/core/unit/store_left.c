/* SPDX-License-Identifier: Apache-2.0 */
/* The store of a drive that is drained: what is still in it, and when it is nobody's any more. */
#include <assert.h>
#include <errno.h>

#include "tierd/core/unit/store_priv.h"

void store_seal(struct store *s)
{
	for (uint32_t i = 0; i < STORE_STREAMS; i++) {
		if (s->open[i] == ABI_SLOT_NONE)
			continue;
		assert(s->segment[s->open[i]].state == STORE_OPEN);
		s->segment[s->open[i]].state = STORE_SEALED;
		s->open[i] = ABI_SLOT_NONE;
	}
}

int64_t store_next_live(const struct store *s, uint32_t segment)
{
	assert(segment < s->segment_count);
	for (uint32_t n = 1; n <= s->segment_count; n++) {
		uint32_t i = (segment + n) % s->segment_count;
		const struct store_segment *g = &s->segment[i];

		if (g->state == STORE_SEALED && g->live && !g->pending && !g->reads && !g->held)
			return i;
	}
	return -ENOENT;
}

bool store_is_empty(const struct store *s)
{
	for (uint32_t i = 0; i < s->segment_count; i++) {
		const struct store_segment *g = &s->segment[i];

		if (g->live || g->pending || g->reads || g->held)
			return false;
	}
	return true;
}

void store_left(struct store *s)
{
	assert(store_is_empty(s) && s->set != &s->own);
	for (uint32_t i = 0; i < s->segment_count; i++) {
		s->segment[i].lsn_on_disk = 0;
		s->segment[i].suspect = false;
	}
}

uint32_t store_segment_log(const struct store *s, uint32_t segment)
{
	assert(segment < s->segment_count && has_life(&s->segment[segment]));
	return s->segment[segment].log;
}
