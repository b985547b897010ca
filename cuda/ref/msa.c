/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sparse attention as it is defined; see msa.h. Sums are in double, so that what is compared with a
 * kernel in floats is the better of the two.
 */
#include "cuda/ref/msa.h"

#include <math.h>
#include <string.h>

float msa_from_bf16(uint16_t x)
{
	uint32_t bits = (uint32_t)x << 16;
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}

uint16_t msa_to_bf16(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	if (isnan(x))
		return 0x7fff;
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float msa_from_e4m3(uint8_t x)
{
	int exponent = x >> 3 & 15, rest = x & 7;
	float most = exponent ? ldexpf((float)(8 + rest), exponent - 10) : ldexpf((float)rest, -9);

	if ((x & 0x7f) == 0x7f)
		most = NAN;
	return x & 0x80 ? -most : most;
}

uint32_t msa_seen(uint64_t position, int64_t block)
{
	int64_t behind = (int64_t)position + 1 - block * (int64_t)MSA_TOKENS;

	if (block < 0 || behind <= 0)
		return 0;
	return behind < (int64_t)MSA_TOKENS ? (uint32_t)behind : MSA_TOKENS;
}

static double dot(const uint16_t *a, const uint16_t *b)
{
	double sum = 0;

	for (uint32_t i = 0; i < MSA_DIM; i++)
		sum += (double)msa_from_bf16(a[i]) * (double)msa_from_bf16(b[i]);
	return sum;
}

float msa_score(const uint16_t *q, const uint16_t *k, uint32_t seen)
{
	float most = -INFINITY;

	for (uint32_t t = 0; t < seen; t++)
		most = fmaxf(most, (float)dot(q, k + (uint64_t)t * MSA_DIM));
	return most;
}

float msa_score_e4m3(const uint16_t *q, const uint8_t *k, float scale, uint32_t seen)
{
	float most = -INFINITY;

	for (uint32_t t = 0; t < seen; t++, k += MSA_DIM) {
		double sum = 0;

		for (uint32_t i = 0; i < MSA_DIM; i++)
			sum += (double)msa_from_bf16(q[i]) * (double)msa_from_e4m3(k[i]);
		most = fmaxf(most, (float)sum);
	}
	return most * scale;
}

/* Does block a, of this score, come before b? */
static int is_before(const float *score, int32_t a, int32_t b)
{
	return b < 0 || score[a] > score[b] || (score[a] == score[b] && a < b);
}

void msa_choose(const float *score, uint32_t local, int32_t chosen[MSA_TOP])
{
	chosen[0] = (int32_t)local;
	for (uint32_t i = 1; i < MSA_TOP; i++)
		chosen[i] = -1;
	for (int32_t block = 0; block < (int32_t)local; block++) {
		uint32_t at = MSA_TOP;

		if (isnan(score[block])) {
			for (uint32_t i = 0; i < MSA_TOP; i++)
				chosen[i] = MSA_LOST;
			return;
		}
		if (score[block] == -INFINITY)
			continue;
		while (at > 1 && is_before(score, block, chosen[at - 1]))
			at--;
		if (at == MSA_TOP)
			continue;
		memmove(&chosen[at + 1], &chosen[at], (MSA_TOP - 1 - at) * sizeof(chosen[0]));
		chosen[at] = block;
	}
}

void msa_init(struct msa_state *s)
{
	*s = (struct msa_state){ .most = -INFINITY };
}

/* Less -inf, -inf would be NaN. */
static double base_of(double most)
{
	return most == -INFINITY ? 0 : most;
}

void msa_attend(struct msa_state *s, const uint16_t *q, const uint16_t *kv, uint32_t seen,
		double scale_log2)
{
	const uint16_t *v = kv + (uint64_t)MSA_TOKENS * MSA_DIM;
	double score[MSA_TOKENS];

	msa_init(s);
	for (uint32_t t = 0; t < seen; t++) {
		score[t] = dot(q, kv + (uint64_t)t * MSA_DIM) * scale_log2;
		s->most = fmax(s->most, score[t]);
	}
	for (uint32_t t = 0; t < seen; t++) {
		double weight = exp2(score[t] - base_of(s->most));

		s->sum += weight;
		for (uint32_t d = 0; d < MSA_DIM; d++)
			s->out[d] += weight * (double)msa_from_bf16(v[(uint64_t)t * MSA_DIM + d]);
	}
}

void msa_attend_missing(struct msa_state *s)
{
	msa_init(s);
	s->sum = NAN;
}

void msa_merge(struct msa_state *into, const struct msa_state *part)
{
	double most = fmax(into->most, part->most);
	double old = exp2(into->most - base_of(most)), new = exp2(part->most - base_of(most));

	into->most = most;
	into->sum = into->sum * old + part->sum * new;
	for (uint32_t d = 0; d < MSA_DIM; d++)
		into->out[d] = into->out[d] * old + part->out[d] * new;
}

void msa_normalise(const struct msa_state *s, float out[MSA_DIM])
{
	for (uint32_t d = 0; d < MSA_DIM; d++)
		out[d] = s->sum == 0 ? 0 : (float)s->out[d] / (float)s->sum;
}

uint32_t msa_random(uint32_t *seed)
{
	*seed = *seed * 1664525u + 1013904223u;
	return *seed >> 8;
}

static float random_value(uint32_t *seed)
{
	return (float)((int32_t)(msa_random(seed) % 2001) - 1000) / 1000.0f;
}

void msa_fill(uint16_t *to, uint64_t rows, enum msa_input kind, uint32_t *seed)
{
	for (uint64_t row = 0; row < rows; row++, to += MSA_DIM) {
		memset(to, 0, MSA_DIM * sizeof(*to));
		for (uint32_t i = 0; i < 4 && kind == MSA_EXACT_Q; i++)
			to[i * (MSA_DIM / 4) + msa_random(seed) % (MSA_DIM / 4)] =
				msa_to_bf16(msa_random(seed) % 2 ? 1.0f : -1.0f);
		for (uint32_t i = 0; i < MSA_DIM && kind != MSA_EXACT_Q; i++)
			to[i] = msa_to_bf16(kind == MSA_RANDOM ? random_value(seed)
							       : (float)(msa_random(seed) % 3) - 1);
	}
}

void msa_fill_e4m3(uint8_t *to, uint64_t rows, enum msa_input kind, uint32_t *seed)
{
	static const uint8_t exact[] = { 0xb8, 0x00, 0x38 }; /* -1, 0, 1 */

	/* Random ones below 1: the exponent is less than its bias. */
	for (uint64_t i = 0; i < rows * MSA_DIM; i++)
		to[i] = kind == MSA_RANDOM ? (uint8_t)(msa_random(seed) & 0xbf)
					   : exact[msa_random(seed) % 3];
}
