/* SPDX-License-Identifier: Apache-2.0 */
/* Pages found by words of an index: each state that a word, a block and a context can be in. */
#include <string.h>

#include "cuda/kernels/words.h"
#include "cuda/test/cases.h"
#include "libtier/abi/index.h"

namespace {

constexpr uint32_t BLOCKS = 40, PAGES = 5, CHUNKS = 4, EPOCH = 7, SALT = 0x5a5a0000;
constexpr uint64_t HBM = 0x7000000000, CXL = 0x5000000000; /* where the tiers are */

struct words_run {
	room memory;
	tier_device_view *view;
	abi_index_header *header;
	abi_block *block;
	abi_page *page;
	uint64_t *chunk[ABI_MEM_TIERS];
	msa_word *of;
	uint64_t want[BLOCKS * PAGES] = {};

	words_run();
	std::string run(uint32_t schedule);
	msa_word *page_of(uint32_t slot, uint32_t n) { return &of[slot * PAGES + n]; }
};

uint64_t address_of(uint32_t tier, uint32_t slot, uint32_t n)
{
	const uint64_t page = ((uint64_t)slot * 193 + n * 31) % (CHUNKS * TIER_VIEW_CHUNK / 8192);

	return page * 8192 + 512 * tier;
}

/* All blocks are committed; every third page is in HBM, those of even slots are in CXL. */
words_run::words_run()
{
	const uint64_t lines = 8192, descs = lines + BLOCKS * sizeof(abi_block);
	auto *index = memory.take<unsigned char>(descs + BLOCKS * PAGES * sizeof(abi_page));

	memset(index, 0, descs + BLOCKS * PAGES * sizeof(abi_page));
	view = memory.take<tier_device_view>(1);
	of = memory.take<msa_word>(BLOCKS * PAGES);
	header = (abi_index_header *)index;
	block = (abi_block *)(index + lines);
	page = (abi_page *)(index + descs);
	*view = {};
	view->index = (uint64_t)(uintptr_t)index;
	view->block_offset = lines;
	view->page_offset = descs;
	view->blocks = BLOCKS;
	view->pages = PAGES;
	view->salt = SALT;
	header->epoch = EPOCH;
	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++) {
		chunk[t] = memory.take<uint64_t>(CHUNKS);
		view->chunk[t] = (uint64_t)(uintptr_t)chunk[t];
		view->chunks[t] = CHUNKS;
		for (uint32_t i = 0; i < CHUNKS; i++) /* not side by side */
			chunk[t][i] = (t ? CXL : HBM) + (CHUNKS - i) * 3 * TIER_VIEW_CHUNK;
	}
	for (uint32_t i = 0; i < BLOCKS * PAGES; i++) {
		const uint32_t slot = i / PAGES, n = i % PAGES;

		block[slot].state = ABI_BLOCK_COMMITTED;
		block[slot].epoch = EPOCH;
		block[slot].generation = 100 + slot;
		of[i] = { slot, (100 + slot) ^ SALT, n };
		for (uint32_t t = ABI_MEM_TIERS; t-- > 0;) {
			const uint64_t at = address_of(t, slot, n);

			if (t ? slot % 2 != 0 : i % 3 != 0)
				continue;
			page[i].word[t] = abi_word(at, ABI_PAGE_READY, 9 + i);
			want[i] = chunk[t][at / TIER_VIEW_CHUNK] + at % TIER_VIEW_CHUNK;
		}
	}
}

std::string words_run::run(uint32_t schedule)
{
	msa_words p = { view, of, nullptr, BLOCKS * PAGES };
	std::string wrong;

	memory.freeze();
	p.page = memory.take<uint64_t>(p.count);
	wrong = launch("msa_words_find", { (p.count + WORDS_THREADS - 1) / WORDS_THREADS,
		       WORDS_THREADS, 0 }, schedule, p);
	for (uint32_t i = 0; i < p.count && wrong.empty(); i++)
		if (p.page[i] != want[i])
			wrong = say("slot %u page %u is at %lx, not at %lx", i / PAGES, i % PAGES,
				    (unsigned long)p.page[i], (unsigned long)want[i]);
	return wrong;
}

void nothing_of(words_run &r, uint32_t first, uint32_t count)
{
	memset(r.want + first, 0, count * sizeof(*r.want));
}

std::string all_there(uint32_t, uint32_t schedule)
{
	return words_run().run(schedule);
}

/* Words in each state, of each tier: only what is ready is there. */
std::string states_of_words(uint32_t state, uint32_t schedule)
{
	words_run r;

	for (uint32_t i = 0; i < BLOCKS * PAGES; i += 6) {
		const uint64_t word = r.page[i].word[ABI_TIER_CXL], at = abi_word_addr(word);

		r.page[i].word[ABI_TIER_HBM] =
			abi_word(address_of(0, i / PAGES, i % PAGES), state, 3);
		r.want[i] = word ? r.chunk[1][at / TIER_VIEW_CHUNK] + at % TIER_VIEW_CHUNK : 0;
	}
	return r.run(schedule);
}

std::string states_of_blocks(uint32_t state, uint32_t schedule)
{
	words_run r;

	r.block[6].state = state;
	nothing_of(r, 6 * PAGES, PAGES);
	return r.run(schedule);
}

/* A slot's next block, one of a former epoch, pages and slots that the context has not. */
std::string not_what_was_asked_for(uint32_t, uint32_t schedule)
{
	words_run r;

	r.block[4].generation++;
	r.block[8].epoch = EPOCH - 1;
	r.page_of(10, 0)->slot = BLOCKS;
	r.page_of(10, 1)->page = PAGES;
	r.page_of(10, 2)->generation ^= SALT;
	nothing_of(r, 4 * PAGES, PAGES);
	nothing_of(r, 8 * PAGES, PAGES);
	nothing_of(r, 10 * PAGES, 3);
	return r.run(schedule);
}

/* Chunks that the device does not have, in HBM: then CXL's copy is read; and beyond the last. */
std::string chunks_missing(uint32_t tiers, uint32_t schedule)
{
	words_run r;

	for (uint32_t t = 0; t < tiers; t++)
		r.chunk[t][1] = 0;
	r.view->chunks[0] = 3;
	for (uint32_t i = 0; i < BLOCKS * PAGES; i++) {
		r.want[i] = 0;
		for (uint32_t t = ABI_MEM_TIERS; t-- > 0;) {
			const uint64_t word = r.page[i].word[t], at = abi_word_addr(word);

			if (word && at / TIER_VIEW_CHUNK < r.view->chunks[t] &&
			    r.chunk[t][at / TIER_VIEW_CHUNK])
				r.want[i] = r.chunk[t][at / TIER_VIEW_CHUNK] + at % TIER_VIEW_CHUNK;
		}
	}
	return r.run(schedule);
}

std::string removed(uint32_t, uint32_t schedule)
{
	words_run r;

	r.header->closed = 1;
	nothing_of(r, 0, BLOCKS * PAGES);
	return r.run(schedule);
}

/* It was let go of: nothing is looked at, what lies there may be anything. */
std::string index_left(uint32_t, uint32_t schedule)
{
	words_run r;

	r.view->index = 0;
	nothing_of(r, 0, BLOCKS * PAGES);
	return r.run(schedule);
}

/* The daemon has moved the pages meanwhile: what the device has cached of the index is old. */
std::string words_have_changed(uint32_t, uint32_t schedule)
{
	words_run old, now;

	for (uint32_t i = 0; i < BLOCKS * PAGES; i++) {
		old.page[i].word[ABI_TIER_CXL] = abi_word(512 * i, ABI_PAGE_READY, 1);
		old.block[i / PAGES].generation = 1;
	}
	old.header->epoch = EPOCH - 1;
	memcpy(old.want, now.want, sizeof(now.want));
	memcpy(old.chunk[0], now.chunk[0], CHUNKS * sizeof(uint64_t));
	memcpy(old.chunk[1], now.chunk[1], CHUNKS * sizeof(uint64_t));
	emu::grow_old(old.header, now.header);
	return old.run(schedule);
}

/* A block leaves, and the slot's next one comes, amid the look-up: its page is never taken for the
 * former one's. loads | overtaken << 4: page 1, whose last word is looked at as the last of all. */
std::string changes_amid(uint32_t what, uint32_t schedule)
{
	words_run old, now;
	const uint32_t loads = what & 15, page = what >> 4;
	uint64_t *found = old.memory.take<uint64_t>(1);
	const msa_words p = { old.view, old.page_of(0, page), found, 1 };
	std::string wrong;

	now.block[0].generation++;
	now.page[page].word[ABI_TIER_HBM] = abi_word(512 * 99, ABI_PAGE_READY, 77);
	now.page[page].word[ABI_TIER_CXL] = abi_word(512 * 98, ABI_PAGE_READY, 77);
	emu::change_after(loads, [&] { emu::grow_old(old.header, now.header); }, page);
	wrong = launch("msa_words_find", { 1, WORDS_THREADS, 0 }, schedule, p);
	emu::change_after(0, nullptr);
	if (wrong.empty() && *found && *found != old.want[page])
		return say("the next block's page, at %lx", (unsigned long)*found);
	return wrong;
}

} // namespace

void words_cases(std::vector<cuda_case> &to)
{
	to.push_back({ "words: all blocks are there", all_there, 0 });
	for (uint32_t state : { ABI_PAGE_ABSENT, ABI_PAGE_RESERVED, ABI_PAGE_FILLING,
				ABI_PAGE_RETIRING })
		to.push_back({ say("words: HBM's in state %u", state), states_of_words, state });
	for (uint32_t state : { ABI_BLOCK_FREE, ABI_BLOCK_PENDING })
		to.push_back({ say("words: a block in state %u", state), states_of_blocks, state });
	to.push_back({ "words: not what was asked for", not_what_was_asked_for, 0 });
	for (uint32_t tiers : { 0u, 1u, 2u })
		to.push_back({ say("words: chunks of %u tiers are not there", tiers),
			       chunks_missing, tiers });
	to.push_back({ "words: the context was removed", removed, 0 });
	to.push_back({ "words: the index was let go of", index_left, 0 });
	to.push_back({ "words: the index has changed", words_have_changed, 0, true });
	for (uint32_t loads = 0; loads < 9; loads++)
		to.push_back({ say("words: they change before load %u", loads), changes_amid,
			       loads, true });
	for (uint32_t loads = 0; loads < 9; loads++)
		to.push_back({ say("words: they change before load %u, overtaken", loads),
			       changes_amid, loads | 1u << 4, true });
}
