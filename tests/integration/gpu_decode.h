/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A context of pages that the decode kernel reads; that kernel on the model of the device, and the
 * golden model. BLOCKS is defined before this.
 */
#ifndef TIER_TESTS_GPU_DECODE_H
#define TIER_TESTS_GPU_DECODE_H

#include "cuda/kernels/msa.h"
#include "cuda/kernels/words.h"
#include "cuda/test/outside.h"
#include "tests/integration/device_blocks.h"
#include "tests/integration/gpu_client.h"

#define ROWS 4u
#define KV_TOKENS (MSA_PAGE_BYTES / (MSA_DIM * 2))

struct decode {
	struct world *w;
	tier_context *c;
	uint16_t *kv; /* [BLOCKS][KV_TOKENS][MSA_DIM] */
	tier_block block[BLOCKS];
};

HELPER void put_kv(struct decode *x)
{
	const struct tier_part part = { .name = "kv", .kind = TIER_KIND_SPARSE, .layers = 1,
					.groups = 1, .page_bytes = MSA_PAGE_BYTES };
	const struct tier_geometry_options o = { .size = sizeof(o), .part_count = 1,
						 .part = &part };
	const struct tier_context_options c = { .size = sizeof(c), .mode = 0644 };
	tier_geometry *g;
	uint32_t seed = 7;

	if (tier_geometry_new(&g, &o))
		fail_msg("%s", tier_error_text());
	if (tier_context_create(x->w->t, "msa", g, &c, &x->c))
		fail_msg("%s", tier_error_text());
	tier_geometry_free(g);
	x->kv = malloc(BLOCKS * MSA_PAGE_BYTES);
	assert_non_null(x->kv);
	msa_fill(x->kv, (uint64_t)BLOCKS * KV_TOKENS, MSA_EXACT, &seed);
	put_blocks(x->c, 0, x->kv, x->block);
}

struct scratch {
	float part[MSA_TOP * MSA_ROWS * MSA_DIM], state[MSA_TOP * MSA_ROWS * 2];
	float out[ROWS * MSA_DIM];
	uint16_t q[ROWS * MSA_DIM];
	int32_t chosen[MSA_TOP];
	uint32_t position, table;
	uint64_t page[BLOCKS];
};

HELPER void expect(const struct decode *x, const struct scratch *s, uint32_t row, float *out)
{
	struct msa_state all, one;

	msa_init(&all);
	for (uint32_t i = 0; i < MSA_TOP; i++) {
		const uint32_t block = (uint32_t)s->chosen[i];

		msa_attend(&one, s->q + row * MSA_DIM,
			   x->kv + (uint64_t)block * KV_TOKENS * MSA_DIM,
			   msa_seen(s->position, block), 1);
		msa_merge(&all, &one);
	}
	msa_normalise(&all, out);
}

#ifdef __x86_64__
HELPER void run(const struct outside_launch *l, const void *p, size_t bytes)
{
	const char *wrong = outside_run(l, p, bytes);

	if (wrong)
		fprintf(stderr, "%s\n", wrong);
	CHECK(!wrong);
}

HELPER void find_pages(const struct tier_device_view *v, const struct tier_page *of,
		       struct scratch *s, uint32_t schedule, bool ptx)
{
	const struct msa_words p = { v, (const struct msa_word *)of, s->page, BLOCKS };
	const struct outside_launch l = { "msa_words_find", 1, WORDS_THREADS, 0, schedule, ptx };

	run(&l, &p, sizeof(p));
}

HELPER void decode(struct scratch *s, uint32_t schedule, bool ptx)
{
	const struct msa_decode p = {
		.q = s->q, .chosen = s->chosen, .position = &s->position, .table = &s->table,
		.page = s->page, .part = s->part, .state = s->state, .out = s->out,
		.queries = 1, .rows = ROWS, .blocks = BLOCKS, .scale_log2 = 1,
	};
	const struct outside_launch part = { "msa_decode_part", MSA_TOP, MSA_THREADS,
					     MSA_DECODE_SHARED, schedule, ptx };
	const struct outside_launch merge = { "msa_decode_merge", 1, MSA_THREADS, 0, schedule,
					      ptx };

	run(&part, &p, sizeof(p));
	run(&merge, &p, sizeof(p));
}
#else
HELPER void decode(struct scratch *s, uint32_t schedule, bool ptx)
{
	exit(77); /* the model of the device is of x86-64 */
}
HELPER void find_pages(const struct tier_device_view *v, const struct tier_page *of,
		       struct scratch *s, uint32_t schedule, bool ptx)
{
	exit(77);
}
#define outside_allow(at, bytes, write) ((void)(at))
#endif

HELPER void fill_query(struct scratch *s)
{
	uint32_t seed = 9;

	memset(s, 0, sizeof(*s));
	msa_fill(s->q, ROWS, MSA_EXACT_Q, &seed);
	s->position = BLOCKS * MSA_TOKENS - 1 - 17;
	s->chosen[0] = BLOCKS - 1;
	for (uint32_t i = 1; i < MSA_TOP; i++)
		s->chosen[i] = (int32_t)(i * 7 % (BLOCKS - 1));
}

#endif
