/* SPDX-License-Identifier: Apache-2.0 */
/* The one writer of a context's events (abi/index.h E1-E4). */
#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "libtier/base/atomic.h"
#include "tierd/core/unit/index.h"

#define WORDS (offsetof(struct abi_event, reserved1) / sizeof(uint64_t)) /* behind them is zero */
_Static_assert(sizeof(struct abi_event) % 64 == 0, "lines of a ring");

/* Whose child it is costs a look at another line, so only who comes is told of. */
static void parent_key(const struct index *ix, const struct abi_block *b, uint8_t *out)
{
	if (b->parent < ix->slots_used && ix->block[b->parent].state != ABI_BLOCK_FREE)
		memcpy(out, ix->block[b->parent].key, ABI_KEY_BYTES);
	else
		memset(out, 0, ABI_KEY_BYTES);
}

void index_event(struct index *ix, uint32_t kind, uint32_t slot)
{
	static const struct abi_block none;
	const struct abi_block *b = slot == ABI_SLOT_NONE ? &none : &ix->block[slot];
	union {
		struct abi_event e;
		uint64_t word[WORDS];
	} from;
	uint64_t *to;

	assert(slot == ABI_SLOT_NONE || slot < ix->slots_used);
	from.e.seq = ix->header->event_seq + 1;
	from.e.kind = kind;
	from.e.tier = b->tier;
	from.e.depth = b->depth;
	from.e.reserved0 = 0;
	from.e.epoch = ix->header->epoch;
	memcpy(from.e.key, b->key, ABI_KEY_BYTES);
	if (kind == ABI_EVENT_STORED)
		parent_key(ix, b, from.e.parent);
	else
		memset(from.e.parent, 0, ABI_KEY_BYTES);
	to = (uint64_t *)&ix->event[from.e.seq % ABI_EVENTS];
	atomic_store_relaxed_u64(to, 0);
	release_fence(); /* who sees a word of the new event sees no old seq any more */
	for (uint32_t i = 1; i < WORDS; i++)
		atomic_store_relaxed_u64(to + i, from.word[i]);
	atomic_store_release_u64(to, from.e.seq);
	atomic_store_release_u64(&ix->header->event_seq, from.e.seq);
}
