/* SPDX-License-Identifier: Apache-2.0 */
/*
 * States of a page in one memory tier, and the only functions that change a descriptor's word.
 *
 *   from \ to     absent  reserved  filling  ready  retiring
 *   absent           .       R         .       .       .
 *   reserved         x       .         F       .       .
 *   filling          x       .         .       P       .
 *   ready            .       .         .       M       U
 *   retiring         x       .         .       .       .
 *
 *   R place allocated   F bytes are on their way   P publish (release)   U unpublish: version + 1
 *   M to another place, whose bytes are there (release): version + 1; the old place is retired
 *   x place freed; or found leased after the fence: then it is its batch's alone (reclaim.c)
 *
 * Each function asserts its row (one table in page.c) before and after the store.
 *
 * Publication is the only store that readers acquire: whoever sees READY sees the bytes. All others
 * are relaxed; what has to come after an unpublished word is ordered by the fence of the retire
 * batch (abi/hazard.h, H1). All are inline: each page of each block takes five of these steps.
 */
#ifndef TIERD_CORE_PAGE_H
#define TIERD_CORE_PAGE_H

#include <assert.h>
#include <stdbool.h>

#include "libtier/abi/index.h"
#include "libtier/base/atomic.h"

extern const uint8_t page_next_states[ABI_PAGE_STATES];

/* Is the transition in the table? */
static inline bool page_may(uint32_t from, uint32_t to)
{
	return from < ABI_PAGE_STATES && to < ABI_PAGE_STATES &&
	       (page_next_states[from] >> to & 1);
}

static inline uint32_t page_state(const struct abi_page *page, uint32_t tier)
{
	return abi_word_state(page->word[tier]);
}

/* May the page ever be filled again in this tier? False once its version is the last one (X4). */
static inline bool page_usable(const struct abi_page *page, uint32_t tier)
{
	assert(tier < ABI_MEM_TIERS);
	return abi_word_version(page->word[tier]) < ABI_VERSION_MAX;
}

/* May it move, and be retired after that? */
static inline bool page_movable(const struct abi_page *page, uint32_t tier)
{
	assert(tier < ABI_MEM_TIERS);
	return abi_word_version(page->word[tier]) + 1 < ABI_VERSION_MAX;
}

static inline uint64_t page_addr(const struct abi_page *page, uint32_t tier)
{
	return abi_word_addr(page->word[tier]);
}

/* The word that the page leaves; asserts that it may go to this state. */
static inline uint64_t page_leave(const struct abi_page *page, uint32_t tier, uint32_t to)
{
	assert(tier < ABI_MEM_TIERS);
	assert(page_may(page_state(page, tier), to));
	return page->word[tier];
}

/* Asserts that what was left and what was stored belong together. */
static inline void page_arrive(const struct abi_page *page, uint32_t tier, uint64_t left,
			       uint32_t to)
{
	uint64_t word = page->word[tier];

	assert(abi_word_state(word) == to); /* to which it may go: page_leave */
	assert(abi_word_version(word) - abi_word_version(left) ==
	       (abi_word_state(left) == ABI_PAGE_READY)); /* X4: whatever follows READY */
}

/* A step that keeps place and version and that no reader depends on. */
static inline void page_step(struct abi_page *page, uint32_t tier, uint32_t to)
{
	uint64_t left = page_leave(page, tier, to);

	atomic_store_relaxed_u64(&page->word[tier],
				 abi_word(abi_word_addr(left), to, abi_word_version(left)));
	page_arrive(page, tier, left, to);
}

/* Its descriptor says zero: given up since (descs.h), it begins beyond all versions it had. */
static inline void page_renew(struct abi_page *page, uint32_t tier, uint32_t version)
{
	assert(tier < ABI_MEM_TIERS && version < ABI_VERSION_MAX && !page->word[tier]);
	if (version)
		atomic_store_relaxed_u64(&page->word[tier],
					 abi_word(0, ABI_PAGE_ABSENT, version));
}

/* absent -> reserved */
static inline void page_reserve(struct abi_page *page, uint32_t tier, uint64_t addr)
{
	uint64_t left = page_leave(page, tier, ABI_PAGE_RESERVED);

	assert(page_usable(page, tier));
	assert(addr % ABI_UNIT == 0 && addr >> ABI_UNIT_SHIFT <= ABI_ADDR_MASK);
	assert(abi_word_addr(left) == 0);
	atomic_store_relaxed_u64(&page->word[tier],
				 abi_word(addr, ABI_PAGE_RESERVED, abi_word_version(left)));
	page_arrive(page, tier, left, ABI_PAGE_RESERVED);
}

/* reserved -> filling */
static inline void page_fill(struct abi_page *page, uint32_t tier)
{
	page_step(page, tier, ABI_PAGE_FILLING);
}

/* filling -> ready */
static inline void page_publish(struct abi_page *page, uint32_t tier)
{
	uint64_t left = page_leave(page, tier, ABI_PAGE_READY);

	assert(abi_word_state(left) == ABI_PAGE_FILLING && page_usable(page, tier));
	/* The page's bytes and its CRC before the word that offers them. */
	atomic_store_release_u64(&page->word[tier],
				 abi_word(abi_word_addr(left), ABI_PAGE_READY,
					  abi_word_version(left)));
	page_arrive(page, tier, left, ABI_PAGE_READY);
}

/* ready -> ready, version + 1; `addr`: the new place */
static inline void page_move(struct abi_page *page, uint32_t tier, uint64_t addr)
{
	uint64_t left = page_leave(page, tier, ABI_PAGE_READY);

	assert(abi_word_state(left) == ABI_PAGE_READY && page_movable(page, tier));
	assert(addr % ABI_UNIT == 0 && addr >> ABI_UNIT_SHIFT <= ABI_ADDR_MASK);
	/* The bytes at the new place before the word that offers them. */
	atomic_store_release_u64(&page->word[tier],
				 abi_word(addr, ABI_PAGE_READY, abi_word_version(left) + 1));
	page_arrive(page, tier, left, ABI_PAGE_READY);
}

/* ready -> retiring, version + 1 */
static inline void page_retire(struct abi_page *page, uint32_t tier)
{
	uint64_t left = page_leave(page, tier, ABI_PAGE_RETIRING);

	assert(page_usable(page, tier));
	atomic_store_relaxed_u64(&page->word[tier],
				 abi_word(abi_word_addr(left), ABI_PAGE_RETIRING,
					  abi_word_version(left) + 1));
	page_arrive(page, tier, left, ABI_PAGE_RETIRING);
}

/* any but ready, absent -> absent */
static inline void page_free(struct abi_page *page, uint32_t tier)
{
	uint64_t left = page_leave(page, tier, ABI_PAGE_ABSENT);

	/* The version stays: it must differ between any two publications of the word (X4). */
	atomic_store_relaxed_u64(&page->word[tier],
				 abi_word(0, ABI_PAGE_ABSENT, abi_word_version(left)));
	page_arrive(page, tier, left, ABI_PAGE_ABSENT);
}

#endif
