/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where pages are, by the index as it is now: the daemon moves them, also between two launches of
 * one graph. All words are loaded for the whole system. What is found stays where it is until the
 * launch has ended (libtier/abi/hazard.h H4), so nothing is looked at twice but the block's
 * generation: it comes last, and says whose words these were.
 */
#include "cuda/kernels/gpu.cuh"
#include "cuda/kernels/words.h"
#include "libtier/abi/index.h"

DEV const uint64_t *at_address(uint64_t address)
{
	return (const uint64_t *)(uintptr_t)address;
}

/* Two halves of one word. */
DEV uint64_t pair_of(uint32_t low, uint32_t high)
{
	return (uint64_t)high << 32 | low;
}

/* Does the block of this line answer now? Its epoch is the context's, which was not removed. */
DEV bool is_committed(uint64_t index, uint64_t line)
{
	const uint64_t epoch =
		load_first_for_system(at_address(index + offsetof(abi_index_header, epoch)));
	const uint64_t closed =
		load_first_for_system(at_address(index + offsetof(abi_index_header, closed)));
	const uint64_t state =
		load_first_for_system(at_address(line + offsetof(abi_block, state)));

	if (PLANTED(words_any_state))
		return !closed;
	return state == pair_of(ABI_BLOCK_COMMITTED, PLANTED(words_any_epoch)
							     ? (uint32_t)(state >> 32)
							     : (uint32_t)epoch) &&
	       (!closed || PLANTED(words_of_closed));
}

/* As abi_word_addr and abi_word_state, which are the host's. */
DEV uint64_t word_address(uint64_t word)
{
	return (word & ABI_ADDR_MASK) << ABI_UNIT_SHIFT;
}

DEV uint32_t word_state(uint64_t word)
{
	return word >> ABI_ADDR_BITS & ((1u << ABI_STATE_BITS) - 1);
}

/* Where the device has what the word names; 0: nowhere. */
DEV uint64_t place_of(const tier_device_view *v, uint32_t tier, uint64_t word)
{
	const uint64_t address = word_address(word), chunk = address / TIER_VIEW_CHUNK;
	uint64_t begin;

	if ((word_state(word) != ABI_PAGE_READY && !PLANTED(words_retiring)) ||
	    (chunk >= v->chunks[tier] && !PLANTED(words_beyond)))
		return 0;
	begin = load_for_system(at_address(v->chunk[tier]) + chunk);
	if (!begin && !PLANTED(words_no_chunk))
		return 0;
	return begin + address % TIER_VIEW_CHUNK;
}

DEV uint64_t find_page(const tier_device_view *v, const msa_word &of)
{
	const uint64_t index = load_for_system(&v->index);
	const uint64_t line = index + v->block_offset + of.slot * sizeof(abi_block);
	const uint64_t desc = index + v->page_offset +
			      ((uint64_t)of.slot * v->pages + of.page) * sizeof(abi_page);
	const uint64_t *generation = at_address(line + offsetof(abi_block, generation));
	uint64_t word[ABI_MEM_TIERS], found;
	uint32_t whose = 0;

	if (!index || of.slot >= v->blocks || of.page >= v->pages || !is_committed(index, line))
		return 0;
	if (PLANTED(words_whose_first))
		whose = (uint32_t)load_for_system(generation);
	for (uint32_t tier = 0; tier < ABI_MEM_TIERS; tier++)
		word[tier] = PLANTED(words_old) ? at_address(desc)[tier]
			   : PLANTED(words_relaxed)
				   ? load_for_system(at_address(desc) + tier)
				   : load_first_for_system(at_address(desc) + tier);
	if (!PLANTED(words_whose_first))
		whose = (uint32_t)load_for_system(generation);
	if (whose != (of.generation ^ v->salt) && !PLANTED(words_of_another))
		return 0;
	found = place_of(v, ABI_TIER_HBM, word[ABI_TIER_HBM]);
	return found ? found : place_of(v, ABI_TIER_CXL, word[ABI_TIER_CXL]);
}

KERNEL void __launch_bounds__(WORDS_THREADS) msa_words_find(const GRID_CONSTANT msa_words p)
{
	const uint32_t i = blockIdx.x * WORDS_THREADS + threadIdx.x;

	if (i < p.count)
		p.page[i] = find_page(p.view, p.of[i]);
}
