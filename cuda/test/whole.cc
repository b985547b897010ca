/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A decode at 2^20 tokens as a graph has it: all blocks are scored, 16 chosen, and these attended
 * to, against the golden model at each step. It takes most of a minute: `--only whole` runs it.
 */
#include <string.h>

#include "cuda/kernels/msa.h"
#include "cuda/test/cases.h"

namespace {

constexpr uint32_t BLOCKS = 8192, PAGES = 64; /* of K and V, which blocks share */
constexpr uint64_t PAGE_VALUES = MSA_PAGE_BYTES / 2, KEY_VALUES = MSA_TOKENS * MSA_DIM;

struct whole_run {
	room memory;
	uint16_t *q, *keys, *kv;
	uint32_t *position, *table;
	uint64_t *key_page, *page;

	explicit whole_run(uint32_t seed);
	uint16_t *page_of(uint32_t block) { return kv + block % PAGES * PAGE_VALUES; }
	std::string run(uint32_t schedule);
	std::string compare(const msa_index &index, const msa_decode &decode);
};

whole_run::whole_run(uint32_t seed)
{
	q = memory.take<uint16_t>(MSA_DIM);
	keys = memory.take<uint16_t>(BLOCKS * KEY_VALUES);
	kv = memory.take<uint16_t>(PAGES * PAGE_VALUES);
	position = memory.take<uint32_t>(1);
	table = memory.take<uint32_t>(1);
	key_page = memory.take<uint64_t>(BLOCKS);
	page = memory.take<uint64_t>(BLOCKS);
	msa_fill(q, 1, MSA_EXACT_Q, &seed);
	msa_fill(keys, BLOCKS * MSA_TOKENS, MSA_EXACT, &seed);
	msa_fill(kv, PAGES * 2 * MSA_TOKENS, MSA_EXACT, &seed);
	position[0] = BLOCKS * MSA_TOKENS - 30;
	table[0] = 0;
	for (uint32_t b = 0; b < BLOCKS; b++) {
		key_page[b] = (uint64_t)(uintptr_t)(keys + b * KEY_VALUES);
		page[b] = (uint64_t)(uintptr_t)page_of(b);
	}
}

std::string whole_run::compare(const msa_index &index, const msa_decode &decode)
{
	int32_t chosen[MSA_TOP];
	float want[MSA_DIM];
	msa_state all, one;

	for (uint32_t b = 0; b < BLOCKS; b++)
		if (index.score[b] != msa_score(q, keys + b * KEY_VALUES, msa_seen(position[0], b)))
			return say("the score of block %u is %g", b, (double)index.score[b]);
	msa_choose(index.score, position[0] / MSA_TOKENS, chosen);
	if (memcmp(chosen, index.chosen, sizeof(chosen)) != 0)
		return "another choice than the golden model's";
	msa_init(&all);
	for (int32_t block : chosen) {
		msa_attend(&one, q, page_of((uint32_t)block), msa_seen(position[0], block), 1);
		msa_merge(&all, &one);
	}
	msa_normalise(&all, want);
	return memcmp(want, decode.out, sizeof(want)) ? "other bits than the golden model's" : "";
}

std::string whole_run::run(uint32_t schedule)
{
	const uint32_t ctas = BLOCKS / MSA_SPAN_MOST;
	msa_index i = {};
	msa_decode d = {};
	std::string wrong;

	memory.freeze();
	i.q = d.q = q;
	i.position = d.position = position;
	i.table = d.table = table;
	i.page = key_page;
	d.page = page;
	i.blocks = d.blocks = BLOCKS;
	i.requests = i.rows = d.queries = d.rows = 1;
	i.span = MSA_SPAN_MOST;
	d.scale_log2 = 1;
	i.score = memory.take<float>(BLOCKS);
	d.chosen = i.chosen = memory.take<int32_t>(MSA_TOP);
	d.part = memory.take<float>(MSA_TOP * MSA_ROWS * MSA_DIM);
	d.state = memory.take<float>(MSA_TOP * MSA_ROWS * 2);
	d.out = memory.take<float>(MSA_DIM);
	wrong = launch("msa_index_score_bf16", { ctas, MSA_THREADS, MSA_SCORE_SHARED(2) }, schedule,
		       i);
	if (wrong.empty())
		wrong = launch("msa_index_choose", { 1, MSA_THREADS, MSA_CHOOSE_SHARED(BLOCKS) },
			       schedule, i);
	if (wrong.empty())
		wrong = launch("msa_decode_part", { MSA_TOP, MSA_THREADS, MSA_DECODE_SHARED },
			       schedule, d);
	if (wrong.empty())
		wrong = launch("msa_decode_merge", { 1, MSA_THREADS, 0 }, schedule, d);
	return wrong.empty() ? compare(i, d) : wrong;
}

std::string decode_of_all(uint32_t, uint32_t schedule)
{
	return whole_run(2000).run(schedule);
}

} // namespace

void whole_cases(std::vector<cuda_case> &to)
{
	to.push_back({ "whole: decode at 2^20 tokens", decode_of_all, 0 });
}
