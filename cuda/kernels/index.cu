/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The index: which blocks a query attends to. msa_index_score_*: each warp takes every fourth block
 * of its CTA's span and has a ring of stages of its own, so that copies go on while it computes and
 * no warp waits for another. msa_index_choose: the exact best of a row, first each warp's, then of
 * these. kernels/msa.h has the rules.
 */
#include "cuda/kernels/msa.cuh"

#define PART_TOKENS 32u /* of a stage */
#define PARTS (MSA_TOKENS / PART_TOKENS)
#define RUNS (MSA_DIM / 32) /* of columns that a row's four lanes load at a time, 8 each */
#define CHOSEN (MSA_TOP - 1) /* beside the local block */
#define OWN_MOST (MSA_SPAN_MOST / WARPS)

template <bool E4M3> struct keys {
	static constexpr uint32_t token_bytes = MSA_DIM * (E4M3 ? 1 : 2);
	static constexpr uint32_t part_bytes = PART_TOKENS * token_bytes;
};

/* A warp's blocks: own[j] is block first + j * WARPS; 0 = not there, or seen by nobody. */
struct share {
	uint64_t *own;
	uint64_t *bar;
	unsigned char *stage;
	uint32_t count, first;
};

/* The part that is loaded or used next. */
struct cursor {
	uint32_t j, part, stage, phase;
};

DEV void advance(cursor &c)
{
	if (++c.part == PARTS) {
		c.part = 0;
		c.j++;
	}
	if (++c.stage == MSA_STAGES) {
		c.stage = 0;
		c.phase ^= 1;
	}
}

DEV bool find_next(const share &w, cursor &c)
{
	while (c.j < w.count && !w.own[c.j])
		c.j++;
	return c.j < w.count;
}

template <bool E4M3> DEV void load_next(const share &w, cursor &c)
{
	constexpr uint32_t bytes = keys<E4M3>::part_bytes;

	if (!find_next(w, c))
		return;
	if (threadIdx.x % 32 == 0) {
		mbar_expect(&w.bar[c.stage], bytes);
		bulk_load(w.stage + c.stage * bytes,
			  (const unsigned char *)(uintptr_t)w.own[c.j] + c.part * bytes,
			  PLANTED(part_too_short) ? bytes - 16 : bytes, &w.bar[c.stage]);
	}
	advance(c);
}

/* Addresses are read once: copies and their use must agree on what is there. */
DEV void begin_share(const msa_index &p, share &w, uint32_t request)
{
	const uint32_t l = threadIdx.x % 32;
	uint32_t last = 0;

	for (uint32_t row = 0; row < p.rows; row++)
		last = p.position[request * p.rows + row] > last || PLANTED(index_last_row)
			       ? p.position[request * p.rows + row] : last;
	if (l < w.count) {
		const uint32_t block = w.first + l * WARPS;
		const uint32_t table = p.table[PLANTED(index_first_table) ? 0 : request];
		const uint64_t *word = &p.page[(uint64_t)table * p.blocks + block];

		w.own[l] = block > last / MSA_TOKENS ? 0
			   : PLANTED(index_old_word) ? *word : load_for_system(word);
	}
	if (l == 0) {
		for (uint32_t i = 0; i < MSA_STAGES; i++)
			mbar_init(&w.bar[i], 1);
		mbar_fence_init();
	}
	warp_sync();
}

/* Columns 32j + 8 * pair and seven more of the lane's two rows: sums do not ask for an order, so a
 * fragment's columns are those that lie side by side. */
DEV void load_rows(const msa_index &p, const lane &at, uint32_t request, uint32_t q[RUNS][8])
{
	for (uint32_t half = 0; half < 2; half++) {
		const uint32_t row = at.row + half * 8;
		const uint16_t *from = p.q + ((uint64_t)request * p.rows + row) * MSA_DIM;

		for (uint32_t j = 0; j < RUNS; j++) {
			words4 w = {};

			if (row < p.rows || PLANTED(index_rows_unguarded))
				w = *(const words4 *)(from + j * 32 + at.pair * 8);
			for (uint32_t i = 0; i < 4; i++)
				q[j][half * 4 + i] = w.x[i];
		}
	}
}

/* Eight columns of a key as four words of bf16. */
template <bool E4M3> DEV words4 load_key(const unsigned char *from)
{
	if constexpr (!E4M3) {
		return *(const words4 *)from;
	} else {
		const words2 raw = *(const words2 *)from;
		words4 out;

		UNROLL
		for (uint32_t i = 0; i < 4; i++) {
			const uint32_t two = raw.x[i / 2] >> (i & 1) * 16 & 0xffff;
			const uint32_t half = e4m3_to_f16(two);
			const float low = f16_to_float(half & 0xffff);
			const float high = f16_to_float(half >> 16);

			out.x[i] = PLANTED(e4m3_swapped) ? pack_bf16(high, low)
							 : pack_bf16(low, high);
		}
		return out;
	}
}

/* m: maximum by row and row + 8 of the part's tokens, as far as they are seen. */
template <bool E4M3>
DEV void score_part(const lane &at, const unsigned char *k, const uint32_t q[RUNS][8],
		    uint32_t first, const uint32_t seen[2], float m[2])
{
	UNROLL
	for (uint32_t n = 0; n < PART_TOKENS / 8; n++) {
		const unsigned char *key = k + (n * 8 + at.row) * keys<E4M3>::token_bytes;
		float s[4] = {};

		UNROLL
		for (uint32_t j = 0; j < RUNS; j++) {
			const uint32_t column = j * 32 + at.pair * 8;
			const words4 b = load_key<E4M3>(key + column * (E4M3 ? 1 : 2));

			UNROLL
			for (uint32_t i = 0; i < 2; i++) {
				const uint32_t a[4] = { q[j][2 * i], q[j][4 + 2 * i],
							q[j][2 * i + 1], q[j][4 + 2 * i + 1] };
				const uint32_t swap = PLANTED(key_words) ? 1 : 0;
				const uint32_t of[2] = { b.x[2 * i + swap], b.x[2 * i + 1 - swap] };

				mma_16816(s, a, of);
			}
		}
		for (uint32_t i = 0; i < 4; i++) {
			const uint32_t token = first + n * 8 + at.pair * 2 + (i & 1);

			if (token >= seen[i / 2] && !PLANTED(index_no_mask))
				continue;
			/* A key that gives no number counts for nothing. */
			m[i / 2] = fmaxf(m[i / 2], s[i]);
			if (PLANTED(index_nan_wins) && s[i] != s[i])
				m[i / 2] = INFINITY;
		}
	}
}

DEV void put_scores(const msa_index &p, const lane &at, uint32_t request, uint32_t block,
		    const float m[2])
{
	for (uint32_t i = 0; i < 2; i++) {
		const uint32_t row = at.row + i * 8;

		if (at.pair == 0 && row < p.rows)
			p.score[((uint64_t)request * p.rows + row) * p.blocks + block] = m[i];
	}
}

/* Of one block, whose parts come in order. */
template <bool E4M3>
DEV void score_block(const share &w, const lane &at, const uint32_t q[RUNS][8],
		     const uint32_t seen[2], cursor &load, cursor &use, float m[2])
{
	for (uint32_t part = 0; part < PARTS; part++) {
		if (!PLANTED(no_wait_part))
			mbar_wait(&w.bar[use.stage], use.phase);
		if (PLANTED(load_too_soon))
			load_next<E4M3>(w, load);
		score_part<E4M3>(at, w.stage + use.stage * keys<E4M3>::part_bytes, q,
				 part * PART_TOKENS, seen, m);
		advance(use);
		/* The last mma took what every lane had loaded of the stage. */
		load_next<E4M3>(w, load);
	}
	for (uint32_t i = 0; i < 2; i++)
		m[i] = PLANTED(index_half_quad) ? fmaxf(m[i], shuffle_xor_float(m[i], 1))
						: quad_max(m[i]);
}

template <bool E4M3>
DEV void score_span(const msa_index &p, uint64_t *own, uint64_t *bar, unsigned char *shared)
{
	const uint32_t spans = (p.blocks + p.span - 1) / p.span;
	const uint32_t request = blockIdx.x / spans, begin = blockIdx.x % spans * p.span;
	const uint32_t end = begin + p.span < p.blocks ? begin + p.span : p.blocks;
	const lane at = lane_here();
	const uint32_t first = begin + at.warp;
	share w = { own + at.warp * OWN_MOST, bar + at.warp * MSA_STAGES,
		    shared + at.warp * MSA_STAGES * keys<E4M3>::part_bytes,
		    first < end ? (end - first + WARPS - 1) / WARPS : 0, first };
	cursor load = {}, use = {};
	uint32_t q[RUNS][8], position[2];

	begin_share(p, w, request);
	load_rows(p, at, request, q);
	for (uint32_t i = 0; i < 2; i++)
		position[i] = p.position[(PLANTED(index_first_position) ? 0 : request) * p.rows +
					 (at.row + i * 8) % p.rows];
	for (uint32_t i = 0; i < MSA_STAGES; i++)
		load_next<E4M3>(w, load);
	for (uint32_t j = 0; j < w.count; j++) {
		const uint32_t block = first + j * WARPS;
		float m[2] = { -INFINITY, -INFINITY };
		uint32_t seen[2];

		for (uint32_t i = 0; i < 2; i++)
			seen[i] = seen_from(position[i], (int32_t)block);
		if (w.own[j]) {
			use.j = j;
			score_block<E4M3>(w, at, q, seen, load, use, m);
			if (E4M3 && !PLANTED(scale_left_out)) {
				const uint32_t table =
					p.table[PLANTED(index_first_scale) ? 0 : request];
				const float scale = p.scale[(uint64_t)table * p.blocks + block];

				m[0] *= scale;
				m[1] *= scale;
			}
		}
		for (uint32_t i = 0; i < 2; i++)
			if (!w.own[j] && seen[i] && !PLANTED(missing_keys_hidden))
				m[i] = as_float(0x7fc00000);
		put_scores(p, at, request, block, m);
	}
}

KERNEL void __launch_bounds__(MSA_THREADS) msa_index_score_bf16(const GRID_CONSTANT msa_index p)
{
	DYN_SHARED(shared);
	__shared__ uint64_t own[WARPS * OWN_MOST], bar[WARPS * MSA_STAGES];

	score_span<false>(p, own, bar, shared);
}

KERNEL void __launch_bounds__(MSA_THREADS) msa_index_score_e4m3(const GRID_CONSTANT msa_index p)
{
	DYN_SHARED(shared);
	__shared__ uint64_t own[WARPS * OWN_MOST], bar[WARPS * MSA_STAGES];

	score_span<true>(p, own, bar, shared);
}

/* ---- the choice ------------------------------------------------------------------------------ */

#define LOST_KEY UINT64_MAX

/* The greater comes first, no two are equal; 0: not chosen; LOST_KEY: keys of it are not there. */
DEV uint64_t rank_key(float score, uint32_t block)
{
	/* -0 is no less than 0. */
	const uint32_t bits = as_bits(PLANTED(sign_of_nought) ? score : score + 0.0f);
	const uint32_t order = bits >> 31 ? ~bits : bits | 0x80000000u;

	if (score != score)
		return PLANTED(lost_not_told) ? 0 : LOST_KEY;
	if (score == -INFINITY && !PLANTED(nothing_chosen_too))
		return 0;
	return (uint64_t)order << 32 | (PLANTED(ties_by_last) ? block : ~block);
}

DEV uint64_t warp_most(uint64_t key)
{
	for (uint32_t lanes = 1; lanes < (PLANTED(half_warp_most) ? 16u : 32u); lanes *= 2) {
		const uint64_t other = (uint64_t)shuffle_xor((uint32_t)(key >> 32), lanes) << 32 |
				       shuffle_xor((uint32_t)key, lanes);

		key = other > key ? other : key;
	}
	return key;
}

/* The greatest of key[from], key[from + step]...; one of that value counts no more. */
DEV uint64_t most_but(uint64_t *key, uint32_t n, uint32_t from, uint32_t step, uint64_t value)
{
	uint64_t most = 0;

	for (uint32_t i = from; i < n; i += step) {
		if (key[i] == value && !PLANTED(chosen_twice))
			key[i] = 0;
		most = key[i] > most ? key[i] : most;
	}
	return most;
}

/* The best of a warp's keys by rank; each lane looks at its own and writes to no other. */
DEV void best_of_warp(uint64_t *key, uint32_t n, uint32_t from, uint32_t step, uint64_t *out)
{
	uint64_t mine = most_but(key, n, from, step, 0);

	for (uint32_t rank = 0; rank < CHOSEN; rank++) {
		const uint64_t best = warp_most(mine);

		if (threadIdx.x % 32 == 0)
			out[rank] = best;
		if (best && mine == best)
			mine = most_but(key, n, from, step, best);
	}
}

KERNEL void __launch_bounds__(MSA_THREADS) msa_index_choose(const GRID_CONSTANT msa_index p)
{
	DYN_SHARED(shared);
	__shared__ uint64_t best[(WARPS + 1) * CHOSEN];
	const uint32_t local = p.position[blockIdx.x] / MSA_TOKENS, warp = threadIdx.x / 32;
	const uint32_t n = (local < p.blocks ? local : p.blocks) + (PLANTED(local_twice) ? 1 : 0);
	const float *score = p.score + (uint64_t)blockIdx.x * p.blocks;
	uint64_t *key = (uint64_t *)shared, *last = best + WARPS * CHOSEN;
	int32_t chosen = (int32_t)local;
	uint64_t mine;

	for (uint32_t i = threadIdx.x; i < n; i += MSA_THREADS)
		key[i] = rank_key(score[i], i);
	best_of_warp(key, n, threadIdx.x, MSA_THREADS, best + warp * CHOSEN);
	if (!PLANTED(no_sync_best))
		block_sync();
	if (warp)
		return;
	best_of_warp(best, (WARPS - (PLANTED(best_of_three) ? 1 : 0)) * CHOSEN, threadIdx.x, 32,
		     last);
	warp_sync();
	if (threadIdx.x >= MSA_TOP)
		return;
	mine = threadIdx.x ? last[threadIdx.x - 1] : 0;
	if (threadIdx.x || PLANTED(local_not_forced))
		chosen = mine ? (int32_t)~(uint32_t)mine : -1;
	if (last[0] == LOST_KEY || local >= p.blocks)
		chosen = MSA_LOST;
	p.chosen[(uint64_t)blockIdx.x * MSA_TOP + threadIdx.x] = chosen;
}
