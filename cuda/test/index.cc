/* SPDX-License-Identifier: Apache-2.0 */
/* The index against the golden model: scores and choices, exact inputs bit by bit. */
#include <math.h>
#include <string.h>

#include "cuda/kernels/msa.h"
#include "cuda/test/cases.h"

namespace {

constexpr float INFINITE = INFINITY;

/* Of a random score: 128 products below 1, each sum rounded. */
constexpr double RANDOM_BOUND = 128.0 * 128.0 / (1 << 24);

struct index_shape {
	uint32_t requests, rows, blocks, span;
	bool e4m3, exact;
};

struct index_run {
	room memory;
	index_shape shape;
	msa_index p;
	uint16_t *q;
	unsigned char *keys;
	uint32_t *position, *table;
	uint64_t *page;
	float *scale;

	index_run(const index_shape &shape, uint32_t seed);
	uint32_t bytes() const { return MSA_TOKENS * MSA_DIM * (shape.e4m3 ? 1u : 2u); }
	unsigned char *keys_of(uint32_t block) { return keys + (uint64_t)block * bytes(); }
	uint16_t *bf16_of(uint32_t block) { return (uint16_t *)keys_of(block); }
	uint32_t rows_all() const { return shape.requests * shape.rows; }
	float want(uint32_t row, uint32_t block);
	std::string run(uint32_t schedule);
	std::string compare();
	std::string compare_choice(uint32_t row, const float *score);
};

/* The rows of a request are tokens ahead: each sees one more, the last one of the first request
 * all. Each request stands where no other does, and has a table of its own, in which keys lie
 * another way. */
index_run::index_run(const index_shape &of, uint32_t seed) : shape(of)
{
	const uint64_t tokens = (uint64_t)of.blocks * MSA_TOKENS;
	const enum msa_input kind = of.exact ? MSA_EXACT : MSA_RANDOM;

	q = memory.take<uint16_t>((uint64_t)rows_all() * MSA_DIM);
	keys = memory.take<unsigned char>((uint64_t)of.blocks * bytes());
	position = memory.take<uint32_t>(rows_all());
	table = memory.take<uint32_t>(of.requests);
	page = memory.take<uint64_t>((1ull + of.requests) * of.blocks);
	scale = memory.take<float>((1ull + of.requests) * of.blocks);
	msa_fill(q, rows_all(), of.exact ? MSA_EXACT_Q : MSA_RANDOM, &seed);
	if (of.e4m3)
		msa_fill_e4m3(keys, tokens, kind, &seed);
	else
		msa_fill((uint16_t *)keys, tokens, kind, &seed);
	for (uint32_t b = 0; b < of.blocks; b++) {
		page[b] = 0; /* a table that nobody uses */
		scale[b] = NAN;
		for (uint32_t r = 0; r < of.requests; r++) {
			const uint32_t at = (1 + r) * of.blocks + b;

			page[at] = (uint64_t)(uintptr_t)keys_of((b + r) % of.blocks);
			scale[at] = of.exact ? (float)(1 << msa_random(&seed) % 3)
					     : 0.5f + (float)(msa_random(&seed) % 64) / 128;
		}
	}
	for (uint32_t i = 0; i < rows_all(); i++) {
		const uint32_t behind = i / of.rows * (MSA_TOKENS + 3);

		position[i] = (uint32_t)tokens - 1 - (of.rows - 1 - i % of.rows);
		position[i] -= behind <= position[i] ? behind : 0;
	}
	for (uint32_t i = 0; i < of.requests; i++)
		table[i] = 1 + i;
	p = {};
	p.q = q;
	p.position = position;
	p.table = table;
	p.page = page;
	p.scale = scale;
	p.requests = of.requests;
	p.rows = of.rows;
	p.blocks = of.blocks;
	p.span = of.span;
}

float index_run::want(uint32_t row, uint32_t block)
{
	const uint32_t seen = msa_seen(position[row], block);
	const uint64_t at = (uint64_t)table[row / shape.rows] * shape.blocks + block;
	const uint16_t *from = q + (uint64_t)row * MSA_DIM;

	if (!seen)
		return -INFINITE;
	if (!page[at])
		return NAN;
	return shape.e4m3 ? msa_score_e4m3(from, (const uint8_t *)page[at], scale[at], seen)
			  : msa_score(from, (const uint16_t *)page[at], seen);
}

std::string index_run::run(uint32_t schedule)
{
	const uint32_t spans = (shape.blocks + shape.span - 1) / shape.span;
	std::string wrong;

	memory.freeze();
	p.score = memory.take<float>((uint64_t)rows_all() * shape.blocks);
	p.chosen = memory.take<int32_t>((uint64_t)rows_all() * MSA_TOP);
	wrong = launch(shape.e4m3 ? "msa_index_score_e4m3" : "msa_index_score_bf16",
		       { shape.requests * spans, MSA_THREADS,
			 MSA_SCORE_SHARED(shape.e4m3 ? 1 : 2) }, schedule, p);
	return !wrong.empty() ? wrong
			      : launch("msa_index_choose", { rows_all(), MSA_THREADS,
				       MSA_CHOOSE_SHARED(shape.blocks) }, schedule, p);
}

std::string index_run::compare_choice(uint32_t row, const float *score)
{
	const int32_t *got = p.chosen + (uint64_t)row * MSA_TOP;
	int32_t right[MSA_TOP];

	msa_choose(score, position[row] / MSA_TOKENS, right);
	for (uint32_t i = 0; i < MSA_TOP; i++)
		if (got[i] != right[i])
			return say("row %u: chosen[%u] is %d, the golden model has %d", row, i,
				   got[i], right[i]);
	return "";
}

std::string index_run::compare()
{
	for (uint32_t row = 0; row < rows_all(); row++) {
		const float *got = p.score + (uint64_t)row * shape.blocks;

		for (uint32_t b = 0; b < shape.blocks; b++) {
			const float right = want(row, b);
			const double bound = shape.exact ? 0 : RANDOM_BOUND;

			if (isnan(right) ? isnan(got[b]) : got[b] == right ||
							   fabs(got[b] - right) <= bound)
				continue;
			return say("row %u block %u: score %.9g, the golden model has %.9g", row,
				   b, (double)got[b], (double)right);
		}
		std::string wrong = compare_choice(row, got);

		if (!wrong.empty())
			return wrong;
	}
	return "";
}

std::string run_and_compare(index_run &r, uint32_t schedule)
{
	std::string wrong = r.run(schedule);

	return wrong.empty() ? r.compare() : wrong;
}

/* ---- cases ----------------------------------------------------------------------------------- */

std::string exact_rows(uint32_t rows, uint32_t schedule)
{
	index_run r({ 1, rows, 21, 8, rows % 2 == 0, true }, 1000 + rows);

	return run_and_compare(r, schedule);
}

std::string exact_blocks(uint32_t blocks, uint32_t schedule)
{
	index_run r({ 1, 2, blocks, MSA_SPAN_MOST, false, true }, 1100 + blocks);

	return run_and_compare(r, schedule);
}

std::string exact_spans(uint32_t span, uint32_t schedule)
{
	index_run r({ 2, 3, 13, span, true, true }, 1200 + span);

	return run_and_compare(r, schedule);
}

/* Rows that stand far from each other, the first block's in its first token; in either order. */
std::string exact_positions(uint32_t seen, uint32_t schedule)
{
	index_run r({ 1, 5, 6, 4, seen % 2 == 0, true }, 1300 + seen);

	for (uint32_t row = 0; row < 5; row++)
		r.position[seen % 4 < 2 ? row : 4 - row] =
			row * MSA_TOKENS + (row ? seen - 1 : 0);
	return run_and_compare(r, schedule);
}

std::string random_inputs(uint32_t e4m3, uint32_t schedule)
{
	index_run r({ 1, 16, 20, 8, e4m3 != 0, false }, 1400);

	return run_and_compare(r, schedule);
}

/* Keys of one row's own block, of blocks that nobody sees, and of one that is needed. */
std::string keys_missing(uint32_t block, uint32_t schedule)
{
	index_run r({ 1, 2, 20, 8, false, true }, 1500);

	r.position[0] = 9 * MSA_TOKENS + 5;
	r.position[1] = 11 * MSA_TOKENS + 77;
	r.page[r.shape.blocks + block] = 0;
	return run_and_compare(r, schedule);
}

/* The table is the host's, which has moved the keys. */
std::string words_have_changed(uint32_t, uint32_t schedule)
{
	index_run r({ 1, 2, 7, 4, false, true }, 1960);
	uint64_t *now = r.memory.take<uint64_t>(2 * 7);
	std::string wrong;

	memcpy(now, r.page, 2 * 7 * sizeof(*now));
	for (uint32_t b = 0; b < 7; b++)
		r.page[7 + b] = now[7 + 6 - b];
	emu::grow_old(r.page, now);
	wrong = r.run(schedule);
	r.page = now;
	return wrong.empty() ? r.compare() : wrong;
}

/* One damaged key neither wins its block a place nor loses it one. */
std::string keys_of_nan(uint32_t e4m3, uint32_t schedule)
{
	index_run r({ 1, 3, 18, 8, e4m3 != 0, true }, 1600);

	for (uint32_t t = 0; t < MSA_TOKENS; t += 3)
		memset(r.keys_of(4) + t * (r.bytes() / MSA_TOKENS) + 6, 0xff, 2);
	memset(r.keys_of(5), 0xff, r.bytes());
	return run_and_compare(r, schedule);
}

std::string unseen_is_nan(uint32_t seen, uint32_t schedule)
{
	index_run r({ 1, 4, 3, 4, false, true }, 1700);

	for (uint32_t row = 0; row < 4; row++)
		r.position[row] = 2 * MSA_TOKENS + seen - 1;
	/* Not only NaN: what is there is better than all that is seen. */
	for (uint32_t i = seen * MSA_DIM; i < MSA_TOKENS * MSA_DIM; i++)
		r.bf16_of(2)[i] = i / MSA_DIM % 2 ? 0xffff : msa_to_bf16(i % 2 ? 64.0f : -64.0f);
	return run_and_compare(r, schedule);
}

/* Each code at 16 columns, one a row; q looks at the row's. */
std::string every_e4m3_code(uint32_t, uint32_t schedule)
{
	index_run r({ 1, 16, 17, 8, true, true }, 1800);

	for (uint32_t row = 0; row < 16; row++) {
		memset(r.q + row * MSA_DIM, 0, MSA_DIM * 2);
		r.q[row * MSA_DIM + row * 7] = msa_to_bf16(1);
		r.position[row] = 17 * MSA_TOKENS - 1;
	}
	for (uint32_t i = 0; i < 16 * MSA_TOKENS * MSA_DIM; i++) {
		const uint32_t column = i % MSA_DIM, block = i / MSA_DIM / MSA_TOKENS;

		r.keys[i] = column % 7 == 0 && column / 7 < 16 ? (uint8_t)(block * 16 + column / 7)
							       : 0;
		/* NaN of one column would make all rows' tokens NaN. */
		if ((r.keys[i] & 0x7f) == 0x7f && i / MSA_DIM % MSA_TOKENS)
			r.keys[i] = 0x01;
	}
	return run_and_compare(r, schedule);
}

/* ---- the choice alone ------------------------------------------------------------------------ */

/* score(block) as the case has it. */
std::string choose(uint32_t blocks, uint32_t position, uint32_t schedule,
		   float (*score)(uint32_t block))
{
	index_run r({ 1, 1, 1, 4, false, true }, 1900);
	float *scores = r.memory.take<float>(blocks);
	std::string wrong;

	r.position[0] = position;
	for (uint32_t b = 0; b < blocks; b++)
		scores[b] = score(b);
	r.memory.freeze();
	r.p.blocks = blocks;
	r.p.score = scores;
	r.p.chosen = r.memory.take<int32_t>(MSA_TOP);
	wrong = launch("msa_index_choose", { 1, MSA_THREADS, MSA_CHOOSE_SHARED(blocks) }, schedule,
		       r.p);
	return wrong.empty() ? r.compare_choice(0, scores) : wrong;
}

float by_hash(uint32_t b) { return (float)((b * 2654435761u) >> 8) / 65536.0f - 100.0f; }
float all_equal(uint32_t) { return -3; }
float nothing_but_infinity(uint32_t) { return -INFINITE; }
float few(uint32_t b) { return b % 50 == 7 ? (float)b : -INFINITE; }
float noughts(uint32_t b) { return b % 2 ? 0.0f : -0.0f; }
float infinite(uint32_t b) { return b % 90 == 3 ? INFINITE : -(float)b; }
float one_lost(uint32_t b) { return b == 129 ? NAN : (float)b; }
float the_last(uint32_t b) { return (float)b; }
float in_one_warp(uint32_t b) { return b % 128 / 32 == 3 ? (float)(b % 7) : -1000.0f; }

std::string choose_from(uint32_t number, uint32_t schedule)
{
	static float (*const scores[])(uint32_t) = { by_hash, all_equal, nothing_but_infinity, few,
						     noughts, infinite, one_lost, the_last,
						     in_one_warp };

	return choose(700, 650 * MSA_TOKENS + 3, schedule, scores[number]);
}

std::string choose_among(uint32_t blocks, uint32_t schedule)
{
	return choose(blocks, blocks * MSA_TOKENS - 1, schedule, by_hash);
}

/* Where a row stands is beyond its table: nothing can be said. */
std::string beyond_table(uint32_t, uint32_t schedule)
{
	index_run r({ 1, 1, 4, 4, false, true }, 1950);
	std::string wrong;

	r.position[0] = 4 * MSA_TOKENS;
	wrong = r.run(schedule);
	for (uint32_t i = 0; i < MSA_TOP && wrong.empty(); i++)
		if (r.p.chosen[i] != MSA_LOST)
			wrong = say("chosen[%u] is %d", i, r.p.chosen[i]);
	return wrong;
}

} // namespace

void index_cases(std::vector<cuda_case> &to)
{
	static const char *const what[] = { "by hash", "all equal", "nothing but -inf", "few",
					    "-0 and 0", "infinite ones", "one lost", "rising",
					    "all in one warp" };

	for (uint32_t rows = 1; rows <= MSA_ROWS; rows++)
		to.push_back({ say("index: exact, 21 blocks of %s, %u rows",
				   rows % 2 ? "bf16" : "e4m3", rows), exact_rows, rows });
	for (uint32_t blocks : { 1u, 2u, 3u, 4u, 5u, 15u, 16u, 17u, 18u, 33u, 130u })
		to.push_back({ say("index: exact, %u blocks", blocks), exact_blocks, blocks });
	for (uint32_t span : { 1u, 3u, 4u, 5u, 12u, 13u, 14u })
		to.push_back({ say("index: exact, spans of %u", span), exact_spans, span });
	for (uint32_t seen : { 1u, 2u, 31u, 32u, 33u, 64u, 97u, 127u, 128u })
		to.push_back({ say("index: exact, rows apart, %u tokens of their blocks", seen),
			       exact_positions, seen });
	to.push_back({ "index: random, bf16", random_inputs, 0 });
	to.push_back({ "index: random, e4m3", random_inputs, 1 });
	for (uint32_t block : { 3u, 8u, 9u, 10u, 11u, 12u, 19u })
		to.push_back({ say("index: keys of block %u are not there", block), keys_missing,
			       block });
	to.push_back({ "index: words have changed", words_have_changed, 0, true });
	to.push_back({ "index: NaN in keys, bf16", keys_of_nan, 0 });
	to.push_back({ "index: NaN in keys, e4m3", keys_of_nan, 1 });
	for (uint32_t seen : { 1u, 50u, 127u })
		to.push_back({ say("index: better keys and NaN behind token %u", seen),
			       unseen_is_nan, seen });
	to.push_back({ "index: every code of e4m3", every_e4m3_code, 0 });
	for (uint32_t i = 0; i < sizeof(what) / sizeof(what[0]); i++)
		to.push_back({ say("index: choice, scores %s", what[i]), choose_from, i });
	for (uint32_t blocks : { 1u, 2u, 15u, 16u, 17u, 127u, 128u, 129u, 8192u })
		to.push_back({ say("index: choice among %u blocks", blocks), choose_among,
			       blocks });
	to.push_back({ "index: a position beyond the table", beyond_table, 0 });
}
