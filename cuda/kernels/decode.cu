/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decode over chosen blocks, in two phases. msa_decode_part: a CTA takes one chosen block of one
 * query; K and V come by bulk copies, each to its own mbarrier, so that scores are computed while V
 * is on its way. msa_decode_merge: the parts of a query in the order of its slots, always the same,
 * so that a run's bits do not depend on which CTA was first. kernels/msa.h has the rules.
 */
#include "cuda/kernels/msa.cuh"

#define WARP_TOKENS (MSA_TOKENS / WARPS)
#define TILE_BYTES (MSA_TOKENS * MSA_DIM * 2)

/* Tokens of the block that the query sees. */
DEV uint32_t tokens_seen(const msa_decode &p, uint32_t query, int32_t block)
{
	if (block < 0)
		return PLANTED(empty_slot_read) ? MSA_TOKENS : 0;
	return seen_from(p.position[query], block);
}

/* A part without scores: sum is 0 for the empty one, NaN for one that must show. */
DEV void put_bare_state(const msa_decode &p, float sum)
{
	float *state = p.state + (uint64_t)blockIdx.x * MSA_ROWS * 2;

	if (threadIdx.x < p.rows) {
		state[threadIdx.x * 2] = PLANTED(empty_state_zero) ? 0 : -INFINITY;
		state[threadIdx.x * 2 + 1] = sum;
	}
}

DEV void begin_loads(uint64_t bar[2], unsigned char *shared, const unsigned char *page)
{
	if (threadIdx.x == 0) {
		mbar_init(&bar[0], 1);
		mbar_init(&bar[1], PLANTED(mbar_count) ? 2 : 1);
		if (!PLANTED(no_mbar_fence))
			mbar_fence_init();
	}
	if (!PLANTED(no_sync_after_init))
		block_sync();
	if (threadIdx.x != 0)
		return;
	mbar_expect(&bar[0], PLANTED(expect_too_little) ? TILE_BYTES / 2 : TILE_BYTES);
	bulk_load(shared, page, PLANTED(load_too_little) ? TILE_BYTES - 16 : TILE_BYTES, &bar[0]);
	mbar_expect(&bar[1], TILE_BYTES);
	bulk_load(shared + TILE_BYTES, page + (PLANTED(v_is_k) ? 0 : TILE_BYTES), TILE_BYTES,
		  &bar[PLANTED(v_bar_of_k) ? 0 : 1]);
}

/* Rows that the query has not are nought. */
DEV uint32_t load_q(const msa_decode &p, uint32_t query, uint32_t row, uint32_t column)
{
	const uint16_t *q = p.q + ((uint64_t)query * p.rows + row) * MSA_DIM + column;

	return row < p.rows || PLANTED(q_rows_unguarded) ? *(const uint32_t *)q : 0;
}

/* s[n]: this warp's tokens 8n..8n+7 against all rows. K[MSA_TOKENS][MSA_DIM] in shared memory. */
DEV void compute_scores(const msa_decode &p, uint32_t query, const lane &at, const uint16_t *k,
			float s[WARP_TOKENS / 8][4])
{
	const uint32_t row8 = PLANTED(q_row_7) ? 7 : 8;

	UNROLL
	for (uint32_t step = 0; step < MSA_DIM; step += 16) {
		const uint32_t column = step + at.pair * 2;
		const uint32_t a[4] = { load_q(p, query, at.row, column),
					load_q(p, query, at.row + row8, column),
					load_q(p, query, at.row, column + 8),
					load_q(p, query, at.row + row8, column + 8) };

		UNROLL
		for (uint32_t n = 0; n < WARP_TOKENS / 8; n++) {
			const uint32_t token = at.warp * WARP_TOKENS + n * 8 + at.row;
			const uint16_t *from = k + token * MSA_DIM + column;
			const uint32_t b[2] = { *(const uint32_t *)from,
						*(const uint32_t *)(from + 8) };

			mma_16816(s[n], a, b);
		}
	}
}

/* Scale, hide what the query does not see; m: maximum of this warp's tokens, by row and row + 8. */
DEV void mask_scores(const msa_decode &p, const lane &at, uint32_t seen,
		     float s[WARP_TOKENS / 8][4], float m[2])
{
	m[0] = m[1] = -INFINITY;
	for (uint32_t n = 0; n < WARP_TOKENS / 8; n++) {
		for (uint32_t i = 0; i < 4; i++) {
			const uint32_t token = at.warp * WARP_TOKENS + n * 8 + at.pair * 2 +
					       (PLANTED(mask_by_even) ? 0 : i & 1);

			s[n][i] = token < seen || PLANTED(no_mask) ? s[n][i] * p.scale_log2
								   : -INFINITY;
			m[i / 2] = fmaxf(m[i / 2], s[n][i]);
		}
	}
	for (uint32_t i = 0; i < 2; i++)
		m[i] = PLANTED(half_quad_max) ? fmaxf(m[i], shuffle_xor_float(m[i], 1))
					      : quad_max(m[i]);
}

/* Of all warps. red[WARPS][MSA_ROWS][2]: maximum, sum. */
DEV void share_maximum(const lane &at, float *red, float m[2])
{
	for (uint32_t i = 0; i < 2; i++)
		if (at.pair == 0)
			red[(at.warp * MSA_ROWS + at.row + i * 8) * 2] = m[i];
	if (!PLANTED(no_sync_maximum))
		block_sync();
	for (uint32_t i = 0; i < 2; i++)
		for (uint32_t w = 0; w < WARPS - (PLANTED(maximum_of_three) ? 1 : 0); w++)
			m[i] = fmaxf(m[i], red[(w * MSA_ROWS + at.row + i * 8) * 2]);
}

/* Scores become probabilities, not yet divided; their sums go to red. */
DEV void exponentiate(const lane &at, float *red, const float m[2], float s[WARP_TOKENS / 8][4])
{
	float sum[2] = {};

	for (uint32_t n = 0; n < WARP_TOKENS / 8; n++) {
		for (uint32_t i = 0; i < 4; i++) {
			/* Nothing but -inf: less -inf it would be NaN. */
			const float base = m[i / 2] == -INFINITY && !PLANTED(inf_less_inf)
						   ? 0 : m[i / 2];

			s[n][i] = exp2_approx(s[n][i] - base);
			sum[i / 2] += s[n][i];
		}
	}
	for (uint32_t i = 0; i < 2; i++) {
		sum[i] = quad_sum(sum[i]);
		if (at.pair == (PLANTED(sum_by_wrong_lane) ? at.row : 0))
			red[(at.warp * MSA_ROWS + at.row + i * 8) * 2 + 1] = sum[i];
	}
}

/* What the query does not see of V may be anything, and nought times NaN is NaN. */
DEV void clear_unseen(uint16_t *v, uint32_t seen)
{
	if (seen == MSA_TOKENS || PLANTED(unseen_not_cleared))
		return;
	for (uint32_t i = seen * MSA_DIM / 2 + threadIdx.x; i < MSA_TOKENS * MSA_DIM / 2;
	     i += MSA_THREADS)
		((uint32_t *)v)[i] = 0;
	if (!PLANTED(no_sync_cleared))
		block_sync();
}

/* acc: this warp's tokens' share, columns 8n..8n+7. The scores' fragments are those of a factor. */
DEV void weigh_values(const lane &at, const uint16_t *v, const float s[WARP_TOKENS / 8][4],
		      float acc[MSA_DIM / 8][4])
{
	UNROLL
	for (uint32_t k = 0; k < WARP_TOKENS / 16; k++) {
		const uint32_t a[4] = { pack_bf16(s[2 * k][0], s[2 * k][1]),
					pack_bf16(s[2 * k][2], s[2 * k][3]),
					pack_bf16(s[2 * k + 1][0], s[2 * k + 1][1]),
					pack_bf16(s[2 * k + 1][2], s[2 * k + 1][3]) };
		const uint32_t token = at.warp * WARP_TOKENS + k * 16 + at.pair * 2;

		UNROLL
		for (uint32_t n = 0; n < MSA_DIM / 8; n++) {
			const uint16_t *from = v + token * MSA_DIM + n * 8 + at.row;
			const uint32_t b[2] = {
				from[0] | (uint32_t)from[MSA_DIM] << 16,
				from[8 * MSA_DIM] |
					(uint32_t)from[(PLANTED(v_row_8) ? 8 : 9) * MSA_DIM] << 16
			};

			mma_16816(acc[n], a, b);
		}
	}
}

/* Each warp's share to shares[WARPS][MSA_ROWS][MSA_DIM]; their sum, in order, to the part. */
DEV void put_part(const msa_decode &p, const lane &at, float *shares, const float *red,
		  const float acc[MSA_DIM / 8][4])
{
	float *part = p.part + (uint64_t)blockIdx.x * MSA_ROWS * MSA_DIM;
	float *state = p.state + (uint64_t)blockIdx.x * MSA_ROWS * 2;

	UNROLL
	for (uint32_t n = 0; n < MSA_DIM / 8; n++)
		for (uint32_t i = 0; i < 4; i++)
			shares[(at.warp * MSA_ROWS + at.row + i / 2 * 8) * MSA_DIM + n * 8 +
			       at.pair * 2 + (i & 1)] = acc[n][i];
	if (!PLANTED(no_sync_shares))
		block_sync();
	for (uint32_t i = threadIdx.x; i < p.rows * MSA_DIM; i += MSA_THREADS) {
		float sum = 0;

		for (uint32_t w = 0; w < WARPS; w++)
			sum += shares[w * MSA_ROWS * MSA_DIM + i];
		part[i] = sum;
	}
	if (threadIdx.x < p.rows) {
		float m = -INFINITY, sum = 0;

		for (uint32_t w = 0; w < WARPS; w++) {
			m = fmaxf(m, red[(w * MSA_ROWS + threadIdx.x) * 2]);
			sum += red[(w * MSA_ROWS + threadIdx.x) * 2 + 1];
		}
		state[threadIdx.x * 2] = m;
		state[threadIdx.x * 2 + 1] = sum;
	}
}

KERNEL void __launch_bounds__(MSA_THREADS) msa_decode_part(const GRID_CONSTANT msa_decode p)
{
	DYN_SHARED(shared);
	__shared__ uint64_t bar[2];
	const uint32_t query = blockIdx.x / MSA_TOP;
	const int32_t block = p.chosen[blockIdx.x];
	const uint32_t seen = tokens_seen(p, query, block);
	const lane at = lane_here();
	/* K's room holds the warps' shares once all have their scores. */
	uint16_t *k = (uint16_t *)shared, *v = (uint16_t *)(shared + TILE_BYTES);
	float *shares = (float *)shared, *red = (float *)(shared + MSA_PAGE_BYTES);
	float s[WARP_TOKENS / 8][4] = {}, acc[MSA_DIM / 8][4] = {}, m[2];
	uint64_t page = 0;

	if (seen == 0) {
		put_bare_state(p, block == MSA_LOST && !PLANTED(lost_as_empty)
					  ? as_float(0x7fc00000) : 0);
		return;
	}
	if ((uint32_t)block < p.blocks) {
		const uint32_t table = p.table[PLANTED(decode_first_table) ? 0 : query];
		const uint64_t *word = &p.page[(uint64_t)table * p.blocks + (uint32_t)block];

		page = PLANTED(decode_old_word) ? *word : load_for_system(word);
	}
	if (!page) {
		put_bare_state(p, PLANTED(missing_page_hidden) ? 0 : as_float(0x7fc00000));
		return;
	}
	begin_loads(bar, shared, (const unsigned char *)(uintptr_t)page);
	if (!PLANTED(no_wait_k))
		mbar_wait(&bar[0], PLANTED(wait_parity) ? 1 : 0);
	compute_scores(p, query, at, k, s);
	mask_scores(p, at, seen, s, m);
	share_maximum(at, red, m);
	exponentiate(at, red, m, s);
	if (PLANTED(diverge) && threadIdx.x % 32 == 7)
		warp_sync();
	if (!PLANTED(no_wait_v))
		mbar_wait(&bar[PLANTED(wait_k_twice) ? 0 : 1], 0);
	clear_unseen(v, seen);
	weigh_values(at, v, s, acc);
	put_part(p, at, shares, red, acc);
}

KERNEL void __launch_bounds__(MSA_THREADS) msa_decode_merge(const GRID_CONSTANT msa_decode p)
{
	const uint64_t first = (uint64_t)blockIdx.x * MSA_TOP;

	for (uint32_t row = 0; row < p.rows; row++) {
		float most = -INFINITY, sum = 0, acc = 0;

		for (uint32_t slot = 0; slot < MSA_TOP; slot++)
			most = fmaxf(most, p.state[((first + slot) * MSA_ROWS + row) * 2]);
		most = most == -INFINITY ? 0 : most;
		for (uint32_t slot = 0; slot < MSA_TOP; slot++) {
			const uint64_t at = (first + slot) * MSA_ROWS + row;
			const float l = p.state[at * 2 + 1];
			const float w = PLANTED(no_rescale) ? 1
							    : exp2_approx(p.state[at * 2] - most);

			if (l == 0 && !PLANTED(empty_part_read))
				continue; /* its part was not written */
			sum += PLANTED(sum_unweighted) ? l : w * l;
			acc += w * p.part[at * MSA_DIM + threadIdx.x];
		}
		p.out[((uint64_t)blockIdx.x * p.rows + row) * MSA_DIM + threadIdx.x] =
			sum == 0 && !PLANTED(divide_by_nought) ? 0 : acc / sum;
	}
}
