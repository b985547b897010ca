/* SPDX-License-Identifier: Apache-2.0 */
/* Caches of one stream of choices; see cache.h. */
#include "bench/sparse/cache.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "libtier/base/cleanup.h"

#define NEVER UINT32_MAX

struct cache {
	bool *in;
	uint32_t *list; /* who is in */
	uint32_t *used; /* step of the last use */
	uint32_t *next; /* of each (step, choice): the step of its next use */
	uint32_t *then; /* of each block, now */
	uint32_t count;
};

static void cache_free(struct cache *c)
{
	free(c->in);
	free(c->list);
	free(c->used);
	free(c->next);
	free(c->then);
}

static const uint16_t *chosen(const struct cache_stream *s, uint32_t step)
{
	return select_at(s->trace, step, s->reader, s->layer, s->group);
}

static int cache_make(struct cache *c, const struct cache_stream *s)
{
	uint32_t blocks = s->trace->spec.blocks, steps = s->trace->spec.steps;

	*c = (struct cache){
		.in = calloc(blocks, sizeof(*c->in)),
		.list = calloc(blocks, sizeof(*c->list)),
		.used = calloc(blocks, sizeof(*c->used)),
		.next = calloc((size_t)steps * SELECT_TOP, sizeof(*c->next)),
		.then = malloc(blocks * sizeof(*c->then)),
	};
	if (!c->in || !c->list || !c->used || !c->next || !c->then) {
		cache_free(c);
		return -ENOMEM;
	}
	memset(c->then, 0xff, blocks * sizeof(*c->then));
	for (uint32_t step = steps; step-- > 0;)
		for (uint32_t i = 0; i < SELECT_TOP; i++) {
			uint32_t b = chosen(s, step)[i];

			c->next[(size_t)step * SELECT_TOP + i] = c->then[b];
			c->then[b] = step;
		}
	return 0;
}

/* Does a leave before b? Who is not needed within the known steps goes by age. */
static bool leaves_before(const struct cache *c, uint32_t a, uint32_t b, uint32_t known)
{
	uint32_t next_a = c->then[a] <= known ? c->then[a] : NEVER;
	uint32_t next_b = c->then[b] <= known ? c->then[b] : NEVER;

	return next_a != next_b ? next_a > next_b : c->used[a] < c->used[b];
}

static void let_one_go(struct cache *c, uint32_t known)
{
	uint32_t worst = 0;

	for (uint32_t i = 1; i < c->count; i++)
		if (leaves_before(c, c->list[i], c->list[worst], known))
			worst = i;
	c->in[c->list[worst]] = false;
	c->list[worst] = c->list[--c->count];
}

int cache_misses(const struct cache_stream *s, uint32_t capacity, uint32_t ahead, uint64_t *misses,
		 uint64_t *looks)
{
	uint32_t steps = s->trace->spec.steps, warm = steps / 4;
	struct cache c;
	int error = cache_make(&c, s);

	for (uint32_t step = 0; step < steps && !error; step++) {
		for (uint32_t i = 0; i < SELECT_TOP; i++) {
			uint32_t b = chosen(s, step)[i];

			if (!c.in[b] && step >= warm)
				++*misses;
			if (!c.in[b])
				c.list[c.count++] = b;
			c.in[b] = true;
			c.used[b] = step;
			c.then[b] = c.next[(size_t)step * SELECT_TOP + i];
		}
		if (step >= warm)
			*looks += SELECT_TOP;
		while (c.count > capacity)
			let_one_go(&c, ahead > NEVER - 1 - step ? NEVER - 1 : step + ahead);
	}
	if (!error)
		cache_free(&c);
	return error;
}
