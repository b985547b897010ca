/* SPDX-License-Identifier: Apache-2.0 */
/* What a replay counts, and traces made ready; see replay.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/replay/replay.h"

#define FLOPS_TOKEN (2 * 8.03e9)
#define FLOPS_PAIR (4.0 * 32 * 4096) /* of a token and one before it */
#define SLAB_BYTES (2u << 20)
#define SLABS_MIN 3u /* a context takes no less */
#define STORE_BYTES_MIN (16u << 20) /* some segments for each log, and room to clean them */

double replay_flops(uint64_t tokens)
{
	return (double)tokens * (FLOPS_TOKEN + FLOPS_PAIR * (double)tokens / 2);
}

void outcome_add(struct outcome *o, const struct trace *t, const struct trace_request *r,
		 uint64_t hit)
{
	uint64_t all = trace_tokens(t, r, r->id_count), saved = trace_tokens(t, r, hit);

	if (o->hit)
		o->hit[o->requests] = (uint32_t)hit;
	o->requests++;
	o->blocks += r->id_count;
	o->blocks_hit += hit;
	o->tokens += all;
	o->tokens_hit += saved;
	o->flops += replay_flops(all);
	o->flops_hit += replay_flops(saved);
}

void outcome_sum(struct outcome *o, const struct outcome *other)
{
	o->requests += other->requests;
	o->blocks += other->blocks;
	o->blocks_hit += other->blocks_hit;
	o->tokens += other->tokens;
	o->tokens_hit += other->tokens_hit;
	o->flops += other->flops;
	o->flops_hit += other->flops_hit;
	o->bad_pages += other->bad_pages;
}

const uint32_t replay_percent[REPLAY_SIZES] = { 1, 5, 10, 25 };

void replay_size_text(char text[REPLAY_SIZE_TEXT], uint32_t percent, uint64_t capacity,
		      uint64_t distinct)
{
	double is = distinct ? 100.0 * (double)capacity / (double)distinct : percent;

	if (is > percent * 0.95 && is < percent * 1.05)
		snprintf(text, REPLAY_SIZE_TEXT, "%u %%", percent);
	else
		snprintf(text, REPLAY_SIZE_TEXT, "%u %% (%llu blocks, %.1f %%)", percent,
			 (unsigned long long)capacity, is);
}

uint64_t replay_capacity(uint64_t blocks)
{
	uint64_t slab = SLAB_BYTES / REPLAY_PAGE_BYTES;
	uint64_t slabs = (blocks + slab / 2) / slab;

	return (slabs < SLABS_MIN ? SLABS_MIN : slabs) * slab;
}

uint64_t replay_store(uint64_t blocks)
{
	uint64_t least = STORE_BYTES_MIN / REPLAY_PAGE_BYTES;

	return blocks < least ? least : blocks;
}

/* ---- numbers ------------------------------------------------------------------------------- */

struct table {
	uint64_t *id; /* + 1; 0 = free */
	uint32_t *number;
	size_t mask;
};

static size_t table_place(const struct table *t, uint64_t id)
{
	size_t i = (size_t)(id * UINT64_C(0x9e3779b97f4a7c15) >> 20) & t->mask;

	while (t->id[i] && t->id[i] != id + 1)
		i = (i + 1) & t->mask;
	return i;
}

static int number_all(struct prepared *p, struct table *t)
{
	for (size_t i = 0; i < p->trace->id_count; i++) {
		uint64_t id = p->trace->id[i];
		size_t at = table_place(t, id);

		if (!t->id[at]) {
			int error = trace_key(&p->key[p->count], id);

			if (error)
				return error;
			t->id[at] = id + 1;
			t->number[at] = p->count++;
		}
		p->number[i] = t->number[at];
	}
	return 0;
}

int prepare(struct prepared *p, const struct trace *trace)
{
	struct table t = { .mask = 1023 };
	int error = -ENOMEM;

	while (t.mask < 2 * trace->id_count)
		t.mask = 2 * t.mask + 1;
	*p = (struct prepared){ .trace = trace };
	t.id = calloc(t.mask + 1, sizeof(*t.id));
	t.number = calloc(t.mask + 1, sizeof(*t.number));
	p->number = calloc(trace->id_count + 1, sizeof(*p->number));
	p->key = calloc(trace->distinct + 1, sizeof(*p->key));
	if (t.id && t.number && p->number && p->key)
		error = number_all(p, &t);
	free(t.id);
	free(t.number);
	if (error)
		prepared_free(p);
	return error;
}

void prepared_free(struct prepared *p)
{
	free(p->number);
	free(p->key);
	*p = (struct prepared){ 0 };
}
