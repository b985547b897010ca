/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What most blocks are without at most times: holds, pins, pages on their way, marks of foresight.
 * A block that has any of it has an entry here, named by its block_meta; one that has none has
 * none. There are as many places as blocks, so an entry can always be had; memory is touched only
 * up to the most entries that were ever in use at a time.
 *
 * Life of an entry
 *   1. block_use_make: the block's entry, all nought when it had none. Valid until it is settled.
 *   2. Counters move.
 *   3. block_use_settle, after any of them may have become nought: all are = the place is free.
 *   4. block_use_drop, when its slot is: what is left (pins of a block that went) is forgotten.
 */
#ifndef TIERD_CORE_BLOCK_USE_H
#define TIERD_CORE_BLOCK_USE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "libtier/abi/common.h"

/* 64 bytes, without holes: block_use_is_nought looks at words. */
struct block_use {
	uint32_t hold : 28;  /* requests and runs that need it to stay where it is */
	uint32_t urgent : 4; /* who waits for what brings it to a tier, 2 bits each: block_await */
	uint32_t writers;    /* puts that have it reserved, likewise */
	uint32_t moving;     /* memory words neither ABSENT nor READY */
	union {
		struct { /* pending: */
			uint32_t missing;    /* pages not READY yet */
			uint32_t expires_ms; /* dropped then */
		};
		struct { /* committed: */
			uint32_t count : 20;  /* of conversations that are away, each mention */
			uint32_t layers : 12; /* most that they keep; 0 = none does */
		} leads[ABI_MEM_TIERS];
		struct { /* dropped: */
			uint32_t retired; /* pages before it are not READY any more */
			uint32_t nothing;
		};
	};
	uint32_t staged[ABI_MEM_TIERS];     /* of ABI_UNIT: brought ahead, not read (stage.c) */
	uint32_t streamed[ABI_MEM_TIERS];   /* of its READY pages, the stream pool's */
	union {
		uint32_t streams; /* of the holds, those of streams: a list may name it often */
		uint32_t free;    /* of a free place: the next one */
	};
	uint16_t pins[ABI_MEM_TIERS];       /* of the whole block */
	uint16_t lead_pins[ABI_MEM_TIERS];  /* of its first layers (pin.c), */
	uint16_t lead_layers[ABI_MEM_TIERS]; /* so many while lead_pins is not 0 */
	uint16_t planned[ABI_MEM_TIERS];    /* plans, conversations' returns that want it now */
	uint32_t begun; /* pending: of context.begun */
	uint32_t reserved;
} __attribute__((aligned(8)));
_Static_assert(sizeof(struct block_use) == 64, "without holes");

struct block_uses {
	struct block_use *entry; /* [0] is always nought: that of blocks without */
	uint32_t high;           /* places that were ever in use: [1, high] */
	uint32_t free;           /* of these, the first free one, 0 = none */
	uint32_t count;          /* in use */
	uint32_t most;
};

/* Errors: -ENOMEM. */
int block_uses_open(struct block_uses *u, uint32_t blocks_max);
void block_uses_close(struct block_uses *u);

/*
 * A free place, all nought. There is one: no more than blocks_max may be taken at a time. And one
 * back, all nought again: its two callers, in state.h, have just seen to that.
 */
uint32_t block_uses_take(struct block_uses *u);
void block_uses_give(struct block_uses *u, uint32_t i);

static inline bool block_use_is_nought(const struct block_use *use)
{
	uint32_t word;

	/* One by one: a wider load has to wait for the counter that was just stored. */
	for (size_t at = 0; at < sizeof(*use); at += sizeof(word)) {
		memcpy(&word, (const char *)use + at, sizeof(word));
		if (word)
			return false;
	}
	return true;
}

/* Is it pinned, whole or its first layers, in any tier? Then it stays in the service. */
static inline bool block_use_is_pinned(const struct block_use *use)
{
	uint32_t pins = 0;

	for (uint32_t tier = 0; tier < ABI_MEM_TIERS; tier++)
		pins += use->pins[tier] + use->lead_pins[tier];
	return pins > 0;
}

static inline size_t block_uses_bytes(const struct block_uses *u)
{
	return (u->high + (size_t)1) * sizeof(*u->entry);
}

#endif
