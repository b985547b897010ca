/* SPDX-License-Identifier: Apache-2.0 */
/* Decode against the golden model: exact inputs bit by bit, random ones within a bound. */
#include <math.h>
#include <string.h>

#include "cuda/kernels/msa.h"
#include "cuda/test/cases.h"

namespace {

constexpr uint32_t PAGE_VALUES = 2 * MSA_TOKENS * MSA_DIM;
constexpr float INFINITE = INFINITY;

/*
 * Of a random run, by which a value may differ: weights are rounded to bf16 (2^-9 each), and V lies
 * within (-1, 1), so no sum of weighted values is off by more than that; twice it, for the rest.
 */
constexpr double RANDOM_BOUND = 2.0 / 512;

struct decode_run {
	room memory;
	msa_decode p;
	uint16_t *q, *kv;
	int32_t *chosen;
	uint32_t *position, *table;
	uint64_t *page;
	float scale_log2;

	decode_run(uint32_t queries, uint32_t rows, uint32_t blocks, bool exact, uint32_t seed);
	uint16_t *page_of(uint32_t block) { return kv + (uint64_t)block * PAGE_VALUES; }
	std::string run(uint32_t schedule);
	std::string compare(bool exact);
	void expect(uint32_t query, uint32_t row, float *out);
};

/* Each query stands in a block of its own, has a table of its own, in which pages lie another way,
 * and chooses by a stride, its own block first. */
decode_run::decode_run(uint32_t queries, uint32_t rows, uint32_t blocks, bool exact, uint32_t seed)
{
	q = memory.take<uint16_t>((uint64_t)queries * rows * MSA_DIM);
	kv = memory.take<uint16_t>((uint64_t)blocks * PAGE_VALUES);
	chosen = memory.take<int32_t>((uint64_t)queries * MSA_TOP);
	position = memory.take<uint32_t>(queries);
	table = memory.take<uint32_t>(queries);
	page = memory.take<uint64_t>((uint64_t)(1 + queries) * blocks);
	msa_fill(q, (uint64_t)queries * rows, exact ? MSA_EXACT_Q : MSA_RANDOM, &seed);
	msa_fill(kv, (uint64_t)blocks * 2 * MSA_TOKENS, exact ? MSA_EXACT : MSA_RANDOM, &seed);
	for (uint32_t b = 0; b < blocks; b++) {
		page[b] = 0; /* a table that nobody uses */
		for (uint32_t i = 0; i < queries; i++)
			page[(1 + i) * blocks + b] = (uint64_t)(uintptr_t)page_of((b + i) % blocks);
	}
	for (uint32_t i = 0; i < queries; i++) {
		const uint32_t local = blocks - 1 - i % blocks;

		position[i] = local * MSA_TOKENS + 76 - i % 2;
		table[i] = 1 + i;
		for (uint32_t s = 0; s < MSA_TOP; s++)
			chosen[i * MSA_TOP + s] =
				s <= local ? (int32_t)((local + s * 7) % (local + 1)) : -1;
	}
	scale_log2 = exact ? 1.0f : 1.44269504f / sqrtf(MSA_DIM);
	p = {};
	p.q = q;
	p.chosen = chosen;
	p.position = position;
	p.table = table;
	p.page = page;
	p.queries = queries;
	p.rows = rows;
	p.blocks = blocks;
	p.scale_log2 = scale_log2;
}

std::string decode_run::run(uint32_t schedule)
{
	const uint64_t parts = (uint64_t)p.queries * MSA_TOP * MSA_ROWS;
	std::string wrong;

	memory.freeze();
	p.part = memory.take<float>(parts * MSA_DIM);
	p.state = memory.take<float>(parts * 2);
	p.out = memory.take<float>((uint64_t)p.queries * p.rows * MSA_DIM);
	wrong = launch("msa_decode_part", { p.queries * MSA_TOP, MSA_THREADS, MSA_DECODE_SHARED },
		       schedule, p);
	return !wrong.empty() ? wrong : launch("msa_decode_merge", { p.queries, MSA_THREADS, 0 },
					       schedule, p);
}

void decode_run::expect(uint32_t query, uint32_t row, float *out)
{
	const uint16_t *from = q + ((uint64_t)query * p.rows + row) * MSA_DIM;
	msa_state all, one;

	msa_init(&all);
	for (uint32_t s = 0; s < MSA_TOP; s++) {
		const int32_t block = chosen[query * MSA_TOP + s];
		const uint32_t seen = msa_seen(position[query], block);
		const uint64_t at = block >= 0 && (uint32_t)block < p.blocks
			? page[table[query] * p.blocks + (uint32_t)block] : 0;

		if (!seen && block != MSA_LOST)
			continue;
		if (at)
			msa_attend(&one, from, (const uint16_t *)at, seen, scale_log2);
		else
			msa_attend_missing(&one);
		msa_merge(&all, &one);
	}
	msa_normalise(&all, out);
}

std::string decode_run::compare(bool exact)
{
	float want[MSA_DIM];

	for (uint32_t i = 0; i < p.queries * p.rows; i++) {
		expect(i / p.rows, i % p.rows, want);
		for (uint32_t d = 0; d < MSA_DIM; d++) {
			const float got = p.out[(uint64_t)i * MSA_DIM + d];

			if (isnan(want[d]) ? isnan(got) :
			    exact ? got == want[d] : fabs(got - want[d]) <= RANDOM_BOUND)
				continue;
			return say("query %u row %u column %u: %.9g, the golden model has %.9g",
				   i / p.rows, i % p.rows, d, (double)got, (double)want[d]);
		}
	}
	return "";
}

std::string run_and_compare(decode_run &r, uint32_t schedule, bool exact)
{
	std::string wrong = r.run(schedule);

	return wrong.empty() ? r.compare(exact) : wrong;
}

/* ---- cases ----------------------------------------------------------------------------------- */

std::string exact_rows(uint32_t rows, uint32_t schedule)
{
	decode_run r(1, rows, 19, true, 100 + rows);

	return run_and_compare(r, schedule, true);
}

std::string exact_positions(uint32_t seen, uint32_t schedule)
{
	decode_run r(1, 4, 2, true, 200 + seen);

	r.position[0] = MSA_TOKENS + seen - 1;
	return run_and_compare(r, schedule, true);
}

std::string several_queries(uint32_t queries, uint32_t schedule)
{
	decode_run r(queries, 3, 5, true, 300 + queries);

	return run_and_compare(r, schedule, true);
}

std::string random_inputs(uint32_t rows, uint32_t schedule)
{
	decode_run r(1, rows, 6, false, 400 + rows);

	return run_and_compare(r, schedule, false);
}

/* The same bits under every schedule, whatever the inputs. */
std::string same_bits(uint32_t seed, uint32_t schedule)
{
	decode_run a(1, 16, 3, false, seed), b(1, 16, 3, false, seed);
	std::string wrong = a.run(0);

	if (wrong.empty())
		wrong = b.run(schedule + 1);
	if (wrong.empty() && memcmp(a.p.out, b.p.out, 16 * MSA_DIM * sizeof(float)) != 0)
		wrong = "other bits than under schedule 0";
	return wrong;
}

std::string nothing_chosen(uint32_t, uint32_t schedule)
{
	decode_run r(2, 16, 2, true, 500);

	for (uint32_t s = 0; s < MSA_TOP; s++)
		r.chosen[s] = -1;
	return run_and_compare(r, schedule, true);
}

/* What was to be chosen is not known: one of the queries is NaN. */
std::string choice_lost(uint32_t, uint32_t schedule)
{
	decode_run r(2, 3, 2, true, 508);

	for (uint32_t s = 0; s < MSA_TOP; s++)
		r.chosen[s] = MSA_LOST;
	return run_and_compare(r, schedule, true);
}

/* Chosen, but behind the position. */
std::string future_chosen(uint32_t, uint32_t schedule)
{
	decode_run r(1, 16, 4, true, 501);

	r.position[0] = MSA_TOKENS - 1;
	return run_and_compare(r, schedule, true);
}

/* Pages are filled up over time: what lies behind the last token is anything. */
std::string unseen_is_nan(uint32_t seen, uint32_t schedule)
{
	decode_run r(1, 7, 1, true, 502);
	uint16_t *k = r.page_of(0), *v = k + MSA_TOKENS * MSA_DIM;

	r.position[0] = seen - 1;
	memset(k + seen * MSA_DIM, 0xff, (MSA_TOKENS - seen) * MSA_DIM * 2);
	memset(v + seen * MSA_DIM, 0xff, (MSA_TOKENS - seen) * MSA_DIM * 2);
	return run_and_compare(r, schedule, true);
}

std::string nan_in_k(uint32_t, uint32_t schedule)
{
	decode_run r(2, 5, 3, true, 503);

	r.page_of(1)[17 * MSA_DIM + 3] = 0x7fc0;
	return run_and_compare(r, schedule, true);
}

std::string nan_in_v(uint32_t, uint32_t schedule)
{
	decode_run r(2, 5, 3, true, 504);

	r.page_of(1)[(MSA_TOKENS + 17) * MSA_DIM + 3] = 0x7fc0;
	return run_and_compare(r, schedule, true);
}

/* A whole block of -inf weighs nothing; where nothing else is seen the answer is nought. */
std::string scores_of_minus_infinity(uint32_t all, uint32_t schedule)
{
	decode_run r(1, 2, all ? 1 : 3, true, 505);
	uint16_t *k = r.page_of(all ? 0 : 1);

	for (uint32_t row = 0; row < 2; row++)
		r.q[row * MSA_DIM] = msa_to_bf16(1);
	for (uint32_t t = 0; t < MSA_TOKENS; t++)
		k[t * MSA_DIM] = msa_to_bf16(-INFINITE);
	return run_and_compare(r, schedule, true);
}

/* Scores so far below nought that nothing is left of their powers unless the maximum goes first. */
std::string far_below_nought(uint32_t, uint32_t schedule)
{
	decode_run r(1, 2, 1, true, 507);

	for (uint32_t i = 0; i < 2 * MSA_DIM; i++)
		r.q[i] = msa_to_bf16(1);
	for (uint32_t i = 0; i < MSA_TOKENS * MSA_DIM; i++)
		r.kv[i] = msa_to_bf16(-1);
	r.p.scale_log2 = r.scale_log2 = 2;
	return run_and_compare(r, schedule, true);
}

/* The table is the host's, which has moved the pages: what the device has cached of it is old. */
std::string words_have_changed(uint32_t, uint32_t schedule)
{
	decode_run r(1, 3, 3, true, 509);
	uint64_t *now = r.memory.take<uint64_t>(2 * 3);
	std::string wrong;

	memcpy(now, r.page, 2 * 3 * sizeof(*now));
	r.page[3] = now[4];
	r.page[4] = 0;
	emu::grow_old(r.page, now);
	wrong = r.run(schedule);
	r.page = now;
	return wrong.empty() ? r.compare(true) : wrong;
}

std::string page_missing(uint32_t beyond, uint32_t schedule)
{
	decode_run r(2, 3, 3, true, 506);

	if (beyond)
		r.p.blocks = 2; /* the tables are that narrow */
	if (beyond)
		r.table[0] = r.table[1] = 0;
	r.page[beyond ? 0 : r.p.blocks + 1] = beyond ? r.page[3] : 0;
	r.page[1] = beyond ? r.page[4] : r.page[1];
	return run_and_compare(r, schedule, true);
}

} // namespace

void decode_cases(std::vector<cuda_case> &to)
{
	for (uint32_t rows = 1; rows <= MSA_ROWS; rows++)
		to.push_back({ say("decode: exact, 19 blocks, %u rows", rows), exact_rows, rows });
	for (uint32_t seen : { 1u, 2u, 31u, 32u, 33u, 63u, 64u, 97u, 126u, 127u, 128u })
		to.push_back({ say("decode: exact, %u tokens of the last block", seen),
			       exact_positions, seen });
	for (uint32_t n : { 2u, 3u, 7u })
		to.push_back({ say("decode: exact, %u queries", n), several_queries, n });
	for (uint32_t rows : { 1u, 9u, 16u })
		to.push_back({ say("decode: random, %u rows", rows), random_inputs, rows });
	to.push_back({ "decode: random, the same bits under another schedule", same_bits, 77 });
	to.push_back({ "decode: nothing chosen", nothing_chosen, 0 });
	to.push_back({ "decode: the choice is lost", choice_lost, 0 });
	to.push_back({ "decode: chosen blocks behind the position", future_chosen, 0 });
	for (uint32_t seen : { 1u, 50u, 127u })
		to.push_back({ say("decode: NaN behind token %u", seen), unseen_is_nan, seen });
	to.push_back({ "decode: NaN in K", nan_in_k, 0 });
	to.push_back({ "decode: NaN in V", nan_in_v, 0 });
	to.push_back({ "decode: a block of -inf", scores_of_minus_infinity, 0 });
	to.push_back({ "decode: nothing but -inf", scores_of_minus_infinity, 1 });
	to.push_back({ "decode: scores far below nought", far_below_nought, 0 });
	to.push_back({ "decode: words have changed", words_have_changed, 0, true });
	to.push_back({ "decode: a page is not there", page_missing, 0 });
	to.push_back({ "decode: a block beyond the table", page_missing, 1 });
}
