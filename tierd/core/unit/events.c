/* SPDX-License-Identifier: Apache-2.0 */
/* The one writer of a context's events (abi/index.h E1-E4). */
#include <assert.h>
#include <string.h>

#include "libtier/base/atomic.h"
#include "tierd/core/unit/index.h"

#define WORDS (sizeof(struct abi_event) / sizeof(uint64_t))
_Static_assert(ABI_EVENTS % 2 == 0 && sizeof(struct abi_event) % 64 == 0, "lines of a ring");

static void describe(const struct index *ix, uint32_t slot, struct abi_event *e)
{
	const struct abi_block *b = &ix->block[slot];

	assert(slot < ix->slots_used);
	e->tier = b->tier;
	e->depth = b->depth;
	memcpy(e->key, b->key, ABI_KEY_BYTES);
	if (b->parent < ix->slots_used && ix->block[b->parent].state != ABI_BLOCK_FREE)
		memcpy(e->parent, ix->block[b->parent].key, ABI_KEY_BYTES);
}

void index_event(struct index *ix, uint32_t kind, uint32_t slot)
{
	struct abi_event e = { .seq = ix->header->event_seq + 1, .kind = kind,
			       .epoch = ix->header->epoch };
	uint64_t word[WORDS], *to = (uint64_t *)&ix->event[e.seq % ABI_EVENTS];

	if (slot != ABI_SLOT_NONE)
		describe(ix, slot, &e);
	memcpy(word, &e, sizeof(word));
	atomic_store_relaxed_u64(to, 0);
	release_fence(); /* who sees a word of the new event sees no old seq any more */
	for (uint32_t i = 1; i < WORDS; i++)
		atomic_store_relaxed_u64(to + i, word[i]);
	atomic_store_release_u64(to, e.seq);
	atomic_store_release_u64(&ix->header->event_seq, e.seq);
}
