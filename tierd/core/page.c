/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transitions of a page's word, as one table that is asserted on both sides of every store.
 * Publication is the only store that readers acquire: whoever sees READY sees the bytes. All others
 * are relaxed; what has to come after an unpublished word is ordered by the fence of the retire
 * batch (abi/hazard.h, H1).
 */
#include "tierd/core/page.h"

#include <assert.h>

#include "libtier/base/atomic.h"

#define TO(state) (1u << ABI_PAGE_##state)

static const uint8_t next_states[ABI_PAGE_STATES] = {
	[ABI_PAGE_ABSENT] = TO(RESERVED),
	[ABI_PAGE_RESERVED] = TO(FILLING) | TO(ABSENT),
	[ABI_PAGE_FILLING] = TO(READY) | TO(ABSENT),
	[ABI_PAGE_READY] = TO(READY) | TO(RETIRING),
	[ABI_PAGE_RETIRING] = TO(ABSENT),
};

bool page_may(uint32_t from, uint32_t to)
{
	return from < ABI_PAGE_STATES && to < ABI_PAGE_STATES && (next_states[from] >> to & 1);
}

bool page_usable(const struct abi_page *page, uint32_t tier)
{
	assert(tier < ABI_MEM_TIERS);
	return abi_word_version(page->word[tier]) < ABI_VERSION_MAX;
}

bool page_movable(const struct abi_page *page, uint32_t tier)
{
	assert(tier < ABI_MEM_TIERS);
	return abi_word_version(page->word[tier]) + 1 < ABI_VERSION_MAX;
}

/* The word that the page leaves; asserts that it may go to this state. */
static uint64_t leave(const struct abi_page *page, uint32_t tier, uint32_t to)
{
	assert(tier < ABI_MEM_TIERS);
	assert(page_may(page_state(page, tier), to));
	return page->word[tier];
}

/* Asserts that what was left and what was stored belong together. */
static void arrive(const struct abi_page *page, uint32_t tier, uint64_t left)
{
	uint64_t word = page->word[tier];

	assert(page_may(abi_word_state(left), abi_word_state(word)));
	assert(abi_word_version(word) - abi_word_version(left) ==
	       (abi_word_state(left) == ABI_PAGE_READY)); /* X4: whatever follows READY */
}

/* A step that keeps place and version and that no reader depends on. */
static void step(struct abi_page *page, uint32_t tier, uint32_t to)
{
	uint64_t left = leave(page, tier, to);

	atomic_store_relaxed_u64(&page->word[tier],
				 abi_word(abi_word_addr(left), to, abi_word_version(left)));
	arrive(page, tier, left);
}

void page_reserve(struct abi_page *page, uint32_t tier, uint64_t addr)
{
	uint64_t left = leave(page, tier, ABI_PAGE_RESERVED);

	assert(page_usable(page, tier));
	assert(addr % ABI_UNIT == 0 && addr >> ABI_UNIT_SHIFT <= ABI_ADDR_MASK);
	assert(abi_word_addr(left) == 0);
	atomic_store_relaxed_u64(&page->word[tier],
				 abi_word(addr, ABI_PAGE_RESERVED, abi_word_version(left)));
	arrive(page, tier, left);
}

void page_fill(struct abi_page *page, uint32_t tier)
{
	step(page, tier, ABI_PAGE_FILLING);
}

void page_publish(struct abi_page *page, uint32_t tier)
{
	uint64_t left = leave(page, tier, ABI_PAGE_READY);

	assert(abi_word_state(left) == ABI_PAGE_FILLING && page_usable(page, tier));
	/* The page's bytes and its CRC before the word that offers them. */
	atomic_store_release_u64(&page->word[tier],
				 abi_word(abi_word_addr(left), ABI_PAGE_READY,
					  abi_word_version(left)));
	arrive(page, tier, left);
}

void page_move(struct abi_page *page, uint32_t tier, uint64_t addr)
{
	uint64_t left = leave(page, tier, ABI_PAGE_READY);

	assert(abi_word_state(left) == ABI_PAGE_READY && page_movable(page, tier));
	assert(addr % ABI_UNIT == 0 && addr >> ABI_UNIT_SHIFT <= ABI_ADDR_MASK);
	/* The bytes at the new place before the word that offers them. */
	atomic_store_release_u64(&page->word[tier],
				 abi_word(addr, ABI_PAGE_READY, abi_word_version(left) + 1));
	arrive(page, tier, left);
}

void page_retire(struct abi_page *page, uint32_t tier)
{
	uint64_t left = leave(page, tier, ABI_PAGE_RETIRING);

	assert(page_usable(page, tier));
	atomic_store_relaxed_u64(&page->word[tier],
				 abi_word(abi_word_addr(left), ABI_PAGE_RETIRING,
					  abi_word_version(left) + 1));
	arrive(page, tier, left);
}

void page_free(struct abi_page *page, uint32_t tier)
{
	uint64_t left = leave(page, tier, ABI_PAGE_ABSENT);

	/* The version stays: it must differ between any two publications of the word (X4). */
	atomic_store_relaxed_u64(&page->word[tier],
				 abi_word(0, ABI_PAGE_ABSENT, abi_word_version(left)));
	arrive(page, tier, left);
}
