/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts: each value lies where its layout says, in pages and back; nothing else is written. */
#include <string.h>

#include "cuda/kernels/msa.h"
#include "cuda/ref/layout.h"
#include "cuda/test/cases.h"

namespace {

constexpr uint32_t PAGE_VALUES = 2 * MSA_TOKENS * MSA_DIM, UNTOUCHED = 0xffff;
const char *const kind_name[MSA_LAYOUTS] = { "NHD", "HND", "page first", "paged" };

struct layout_run {
	room memory;
	msa_engine engine;
	msa_layout p;
	uint32_t blocks;
	uint16_t *values, *pages;
	uint64_t *page;

	layout_run(enum msa_layout_kind kind, uint32_t heads, uint32_t tokens, uint32_t page_tokens,
		   bool in);
	std::string run(bool in, uint32_t schedule);
	std::string compare(bool in);
};

/* Pages of an engine have such numbers, and are so far behind its first one. */
#define FAR (1u << 24)

/* The engine has room for some more tokens; its pages lie the other way round. */
layout_run::layout_run(enum msa_layout_kind kind, uint32_t heads, uint32_t tokens,
		       uint32_t page_tokens, bool in)
{
	const uint32_t room_for = (tokens + page_tokens - 1) / page_tokens * page_tokens +
				  page_tokens;
	uint32_t seed = tokens * 7 + heads, *table = nullptr, *far = nullptr;
	msa_steps steps;

	blocks = (tokens + MSA_TOKENS - 1) / MSA_TOKENS;
	if (kind == MSA_PAGED) {
		table = memory.take<uint32_t>(room_for / page_tokens);
		far = memory.take<uint32_t>(room_for / page_tokens);
		for (uint32_t i = 0; i < room_for / page_tokens; i++) {
			table[i] = room_for / page_tokens - 1 - i;
			far[i] = FAR + table[i];
		}
	}
	engine = { kind, room_for, heads, kind == MSA_PAGE_FIRST ? 3u : 1u,
		   kind == MSA_PAGE_FIRST ? 1u : 0u, page_tokens, table };
	page = memory.take<uint64_t>(blocks * heads);
	values = memory.take<uint16_t>(msa_engine_values(&engine));
	pages = memory.take<uint16_t>((uint64_t)blocks * heads * PAGE_VALUES);
	for (uint32_t i = 0; i < blocks * heads; i++)
		page[i] = (uint64_t)(uintptr_t)(pages + (uint64_t)i * PAGE_VALUES);
	if (blocks * heads > 2)
		page[1] = 0; /* one that nobody wants */
	for (uint64_t i = 0; in && i < msa_engine_values(&engine); i++)
		values[i] = (uint16_t)msa_random(&seed);
	for (uint64_t i = 0; !in && i < (uint64_t)blocks * heads * PAGE_VALUES; i++)
		pages[i] = (uint16_t)msa_random(&seed);
	msa_engine_steps(&engine, &steps);
	p = {};
	p.engine = (uint64_t)(uintptr_t)values + steps.first - (far ? FAR * steps.page : 0);
	p.table = far;
	p.page = page;
	p.v_step = steps.v;
	p.page_step = steps.page;
	p.token_step = steps.token;
	p.head_step = steps.head;
	p.page_tokens = steps.page_tokens;
	p.heads = heads;
	p.tokens = tokens;
}

std::string layout_run::run(bool in, uint32_t schedule)
{
	emu::allow(in ? values : pages, in ? msa_engine_values(&engine) * 2
					   : (uint64_t)blocks * p.heads * PAGE_VALUES * 2, false);
	return launch(in ? "msa_layout_in" : "msa_layout_out",
		      { blocks * p.heads * 2, MSA_THREADS, 0 }, schedule, p);
}

/* All values of what was written: those that were to be, and the others. */
std::string layout_run::compare(bool in)
{
	const uint64_t all = in ? (uint64_t)blocks * p.heads * PAGE_VALUES
				: msa_engine_values(&engine);
	std::vector<uint16_t> want(all, (uint16_t)UNTOUCHED);

	for (uint32_t i = 0; i < p.tokens * p.heads * 2 * MSA_DIM; i++) {
		const uint32_t d = i % MSA_DIM, v = i / MSA_DIM % 2;
		const uint32_t head = i / MSA_DIM / 2 % p.heads, token = i / MSA_DIM / 2 / p.heads;
		const uint32_t number = token / MSA_TOKENS * p.heads + head;
		const uint64_t here = (uint64_t)number * PAGE_VALUES + v * MSA_TOKENS * MSA_DIM +
				      token % MSA_TOKENS * MSA_DIM + d;
		const uint64_t there = msa_engine_at(&engine, v, token, head) + d;

		if (page[number])
			want[in ? here : there] = in ? values[there] : pages[here];
	}
	for (uint64_t i = 0; i < all; i++)
		if ((in ? pages : values)[i] != want[i])
			return say("value %lu is %04x, not %04x", (unsigned long)i,
				   (in ? pages : values)[i], want[i]);
	return "";
}

/* kind | in << 4 | number << 8 */
std::string move(uint32_t what, uint32_t schedule)
{
	static const struct { uint32_t heads, tokens, page_tokens; } shapes[] = {
		{ 1, 128, 16 }, { 3, 300, 16 }, { 2, 129, 48 }, { 4, 1, 128 }, { 1, 256, 1 },
	};
	const auto &shape = shapes[what >> 8];
	const bool in = what >> 4 & 1;
	layout_run r((enum msa_layout_kind)(what & 15), shape.heads, shape.tokens,
		     shape.page_tokens, in);
	std::string wrong = r.run(in, schedule);

	return wrong.empty() ? r.compare(in) : wrong;
}

} // namespace

void layout_cases(std::vector<cuda_case> &to)
{
	for (uint32_t kind = 0; kind < MSA_LAYOUTS; kind++)
		for (uint32_t in = 0; in < 2; in++)
			for (uint32_t shape = 0; shape < 5; shape++)
				to.push_back({ say("layout: %s, %s pages, shape %u",
						   kind_name[kind], in ? "into" : "from", shape),
					       move, kind | in << 4 | shape << 8 });
}
