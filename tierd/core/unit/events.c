/* SPDX-License-Identifier: Apache-2.0 */
/* The one writer of a context's events (abi/index.h E1-E4). */
#include <assert.h>
#include <string.h>

#include "libtier/base/atomic.h"
#include "tierd/core/unit/index.h"

_Static_assert(sizeof(struct abi_event) % 64 == 0, "lines of a ring");

_Static_assert(ABI_KEY_BYTES == 32, "words of a key");

static void put_word(uint8_t *to, const uint8_t *from)
{
	uint64_t word;

	memcpy(&word, from, sizeof(word));
	atomic_store_relaxed_u64((uint64_t *)to, word);
}

/* Readers look at it meanwhile. */
static void put_key(uint8_t *to, const uint8_t *key)
{
	put_word(to, key);
	put_word(to + 8, key + 8);
	put_word(to + 16, key + 16);
	put_word(to + 24, key + 24);
}

/* Whose child it is costs a look at another line, so only who comes is told of. */
static const uint8_t *parent_key(const struct index *ix, const struct abi_block *b)
{
	static const uint8_t none[ABI_KEY_BYTES];

	if (b->parent < ix->slots_used && ix->block[b->parent].state != ABI_BLOCK_FREE)
		return ix->block[b->parent].key;
	return none;
}

/* Word by word from where it stands: what is put together in memory first is read back late. */
void index_event(struct index *ix, uint32_t kind, uint32_t slot)
{
	static const struct abi_block none;
	const struct abi_block *b = slot == ABI_SLOT_NONE ? &none : &ix->block[slot];
	uint64_t seq = ix->header->event_seq + 1;
	struct abi_event *to = &ix->event[seq % ABI_EVENTS];

	assert(slot == ABI_SLOT_NONE || slot < ix->slots_used);
	atomic_store_relaxed_u64(&to->seq, 0);
	release_fence(); /* who sees a word of the new event sees no old seq any more */
	atomic_store_relaxed_u32(&to->kind, kind);
	atomic_store_relaxed_u32(&to->tier, b->tier);
	atomic_store_relaxed_u32(&to->depth, b->depth);
	atomic_store_relaxed_u64(&to->epoch, ix->header->epoch);
	put_key(to->key, b->key);
	put_key(to->parent, kind == ABI_EVENT_STORED ? parent_key(ix, b) : none.key);
	atomic_store_release_u64(&to->seq, seq);
	atomic_store_release_u64(&ix->header->event_seq, seq);
}
