/* SPDX-License-Identifier: Apache-2.0 */
/* Choices of sparse attention; see select.h. */
#include "bench/sparse/select.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "libtier/base/cleanup.h"

#define DRAFT_RIGHT 0.987
#define BLOCKS_MAX 65536u

/* Returning: of a step's choices, these shares were last chosen so many distinct blocks ago. */
static const struct {
	uint32_t from;
	double share;
} returning[] = { { 64, 0.067 }, { 32, 0.067 }, { 16, 0.166 }, { 0, 1 } };
#define BANDS 4u

/* Drifting: weights of the parts, and after how many steps they have changed. */
#define FIXED 0.5
#define FAST 0.36
#define SLOW_STEPS 150.0
#define FAST_STEPS 1.0

struct stream {
	struct select_spec spec;
	double churn; /* of its layer; 1 on average */
	uint64_t random;
	uint32_t *stack;	    /* returning: blocks, the one chosen last first */
	float *fixed, *slow, *fast; /* drifting */
	double spare;		    /* of normal(); NAN = none */
};

static double uniform(uint64_t *random)
{
	return ((double)(bench_random(random) >> 11) + 0.5) / 9007199254740992.0;
}

/* Marsaglia's polar method. */
static double normal(struct stream *s)
{
	double u, v, r, spare = s->spare;

	s->spare = NAN;
	if (!isnan(spare))
		return spare;
	do {
		u = 2 * uniform(&s->random) - 1;
		v = 2 * uniform(&s->random) - 1;
		r = u * u + v * v;
	} while (r >= 1 || r == 0);
	r = sqrt(-2 * log(r) / r);
	s->spare = v * r;
	return u * r;
}

/*
 * Layers' churn falls evenly, in ratios, from the first to the last, and is 1 on average. The
 * spreads are those at which misses at a fifth of the context spread 36 times.
 */
static double layer_churn(const struct select_spec *spec, uint32_t layer)
{
	double spread = spec->kind == SELECT_RETURNING ? 46 : 36, sum = 0;

	if (spec->layers < 2)
		return 1;
	for (uint32_t i = 0; i < spec->layers; i++)
		sum += pow(spread, -(double)i / (spec->layers - 1));
	return pow(spread, -(double)layer / (spec->layers - 1)) * spec->layers / sum;
}

/* ---- returning ----------------------------------------------------------------------------- */

static uint32_t draw_depth(struct stream *s, uint32_t band)
{
	uint32_t from = returning[band].from, to = band ? returning[band - 1].from : s->spec.blocks;

	if (!band) /* all that lies deep: evenly in its logarithm */
		return (uint32_t)(from * pow((double)to / from, uniform(&s->random)));
	return from + bench_random_below(&s->random, to - from);
}

static uint32_t draw_band(struct stream *s)
{
	double u = uniform(&s->random);

	for (uint32_t i = 0; i + 1 < BANDS; i++) {
		double share = returning[i].share * s->churn;

		if (u < share)
			return i;
		u -= share;
	}
	return BANDS - 1;
}

/* How many of each band, then different depths: else bands that are mostly taken lose. */
static void choose_returning(struct stream *s, uint16_t out[SELECT_TOP])
{
	uint32_t count[BANDS] = { 0 }, depth[SELECT_TOP], n = 0, moved = 0;

	for (uint32_t i = 0; i < SELECT_TOP; i++)
		count[draw_band(s)]++;
	for (uint32_t band = 0; band < BANDS; band++)
		while (count[band]) {
			uint32_t d = draw_depth(s, band), i = 0;

			while (i < n && depth[i] != d)
				i++;
			if (i < n)
				continue;
			depth[n++] = d;
			count[band]--;
		}
	for (uint32_t i = 0; i < n; i++) {
		out[i] = (uint16_t)s->stack[depth[i]];
		s->stack[depth[i]] = UINT32_MAX;
	}
	for (uint32_t i = s->spec.blocks; i-- > 0;) /* the others keep their order, behind them */
		if (s->stack[i] == UINT32_MAX)
			moved++;
		else
			s->stack[i + moved] = s->stack[i];
	for (uint32_t i = 0; i < n; i++) {
		uint32_t k = bench_random_below(&s->random, i + 1);

		s->stack[i] = s->stack[k];
		s->stack[k] = out[i];
	}
}

/* ---- drifting ------------------------------------------------------------------------------ */

static void choose_drifting(struct stream *s, uint16_t out[SELECT_TOP])
{
	double slow = exp(-s->churn / SLOW_STEPS), fast = exp(-1 / FAST_STEPS);
	double slow_new = sqrt(1 - slow * slow), fast_new = sqrt(1 - fast * fast);
	double best[SELECT_TOP];
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->spec.blocks; i++) {
		double score;
		uint32_t k;

		s->slow[i] = (float)(slow * s->slow[i] + slow_new * normal(s));
		s->fast[i] = (float)(fast * s->fast[i] + fast_new * normal(s));
		score = FIXED * s->fixed[i] + s->slow[i] +
			FAST * pow(s->churn, 0.4) * s->fast[i];
		if (n == SELECT_TOP && score <= best[n - 1])
			continue;
		for (k = n < SELECT_TOP ? n++ : n - 1; k && best[k - 1] < score; k--) {
			best[k] = best[k - 1];
			out[k] = out[k - 1];
		}
		best[k] = score;
		out[k] = (uint16_t)i;
	}
}

/* ---- streams ------------------------------------------------------------------------------- */

static void stream_free(struct stream *s)
{
	free(s->stack);
	free(s->fixed);
	free(s->slow);
	free(s->fast);
}

static int stream_make(struct stream *s, const struct select_spec *spec, uint64_t number,
		       uint32_t layer)
{
	uint32_t n = spec->blocks;

	*s = (struct stream){ .spec = *spec, .churn = layer_churn(spec, layer),
			      .spare = NAN };
	s->random = (spec->seed + 1) * UINT64_C(0x9e3779b97f4a7c15) ^
		    (number + 1) * UINT64_C(0xd1342543de82ef95);
	for (int i = 0; i < 16; i++)
		bench_random(&s->random);
	if (spec->kind == SELECT_RETURNING) {
		s->stack = calloc(n, sizeof(*s->stack));
		for (uint32_t i = 0; s->stack && i < n; i++) {
			uint32_t k = bench_random_below(&s->random, i + 1);

			s->stack[i] = s->stack[k];
			s->stack[k] = i;
		}
		return s->stack ? 0 : -ENOMEM;
	}
	s->fixed = calloc(n, sizeof(float));
	s->slow = calloc(n, sizeof(float));
	s->fast = calloc(n, sizeof(float));
	if (!s->fixed || !s->slow || !s->fast) {
		stream_free(s);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < n; i++) {
		s->fixed[i] = (float)normal(s);
		s->slow[i] = (float)normal(s);
		s->fast[i] = (float)normal(s);
	}
	return 0;
}

static void stream_choose(struct stream *s, uint16_t out[SELECT_TOP])
{
	if (s->spec.kind == SELECT_RETURNING)
		choose_returning(s, out);
	else
		choose_drifting(s, out);
}

/* The reader's own choices make way for the common ones that it does not have. */
static void mix(struct stream *own, const uint16_t common[SELECT_TOP], double shared,
		uint16_t out[SELECT_TOP])
{
	for (uint32_t i = 0; i < SELECT_TOP; i++) {
		uint32_t k = 0;

		while (k < SELECT_TOP && out[k] != common[i])
			k++;
		if (k == SELECT_TOP && uniform(&own->random) < shared)
			out[i] = common[i];
	}
	for (uint32_t i = 1; i < SELECT_TOP; i++) /* one that stood further on came twice */
		for (uint32_t k = 0; k < i; k++)
			if (out[k] == out[i]) {
				out[i] = (uint16_t)bench_random_below(&own->random,
								      own->spec.blocks);
				k = UINT32_MAX; /* again from 0 */
			}
}

/* A column of the trace: one layer and group, all steps and readers. */
static int make_column(struct selection_trace *t, uint32_t layer, uint32_t group)
{
	const struct select_spec *spec = &t->spec;
	uint32_t streams = spec->readers + (spec->readers > 1);
	struct stream *s CLEANUP_FREE = calloc(streams, sizeof(*s));
	int error = s ? 0 : -ENOMEM;

	for (uint32_t i = 0; i < streams && !error; i++)
		error = stream_make(&s[i], spec,
				    ((uint64_t)i * spec->layers + layer) * spec->groups + group,
				    layer);
	for (uint32_t step = 0; step < spec->steps && !error; step++) {
		uint16_t common[SELECT_TOP];

		if (spec->readers > 1)
			stream_choose(&s[spec->readers], common);
		for (uint32_t r = 0; r < spec->readers; r++) {
			uint16_t *out = (uint16_t *)select_at(t, step, r, layer, group);

			stream_choose(&s[r], out);
			if (spec->readers > 1)
				mix(&s[r], common, spec->shared, out);
		}
	}
	for (uint32_t i = 0; s && i < streams; i++)
		stream_free(&s[i]);
	return error;
}

int select_make(struct selection_trace *out, const struct select_spec *spec)
{
	uint64_t sets = (uint64_t)spec->steps * spec->readers * spec->layers * spec->groups;
	int error = 0;

	*out = (struct selection_trace){ .spec = *spec };
	if (spec->blocks < 256 || spec->blocks > BLOCKS_MAX)
		return -EINVAL;
	out->block = calloc(sets, SELECT_TOP * sizeof(*out->block));
	if (!out->block)
		return -ENOMEM;
	for (uint32_t layer = 0; layer < spec->layers && !error; layer++)
		for (uint32_t group = 0; group < spec->groups && !error; group++)
			error = make_column(out, layer, group);
	if (error)
		select_free(out);
	return error;
}

void select_free(struct selection_trace *s)
{
	free(s->block);
	s->block = NULL;
}

void select_draft(const struct selection_trace *s, uint32_t step, uint32_t reader, uint32_t layer,
		  uint32_t group, uint16_t out[SELECT_TOP])
{
	const uint16_t *real = select_at(s, step, reader, layer, group);
	uint64_t random = (uint64_t)(real - s->block) * UINT64_C(0x9e3779b97f4a7c15) + 1;

	for (uint32_t i = 0; i < SELECT_TOP; i++)
		out[i] = uniform(&random) < DRAFT_RIGHT
				 ? real[i]
				 : (uint16_t)bench_random_below(&random, s->spec.blocks);
}

const char *select_name(enum select_kind kind)
{
	return kind == SELECT_RETURNING ? "returning" : "drifting";
}
