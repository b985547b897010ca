/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The offline optimum; see replay.h. A heap of (next use, depth) with entries that may be out of
 * date: a block's present entry is the one that agrees with when[].
 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "bench/replay/replay.h"
#include "libtier/base/cleanup.h"

#define NEVER UINT32_MAX

struct entry {
	uint32_t next, depth, number;
};

struct heap {
	struct entry *entry;
	size_t count;
};

static bool leaves_before(const struct entry *a, const struct entry *b)
{
	return a->next > b->next || (a->next == b->next && a->depth > b->depth);
}

static void swap(struct heap *h, size_t a, size_t b)
{
	struct entry keep = h->entry[a];

	h->entry[a] = h->entry[b];
	h->entry[b] = keep;
}

static void heap_push(struct heap *h, struct entry e)
{
	size_t at = h->count++;

	h->entry[at] = e;
	for (; at && leaves_before(&h->entry[at], &h->entry[(at - 1) / 2]); at = (at - 1) / 2)
		swap(h, at, (at - 1) / 2);
}

static struct entry heap_pop(struct heap *h)
{
	struct entry top = h->entry[0];
	size_t at = 0;

	h->entry[0] = h->entry[--h->count];
	for (;;) {
		size_t child = 2 * at + 1;

		if (child >= h->count)
			return top;
		if (child + 1 < h->count &&
		    leaves_before(&h->entry[child + 1], &h->entry[child]))
			child++;
		if (!leaves_before(&h->entry[child], &h->entry[at]))
			return top;
		swap(h, at, child);
		at = child;
	}
}

/* Of each reference: the request that uses the block next. */
static int next_uses(uint32_t *next, const struct prepared *p)
{
	uint32_t *last CLEANUP_FREE = calloc(p->count + 1, sizeof(*last));

	if (!last)
		return -ENOMEM;
	for (uint32_t i = 0; i < p->count; i++)
		last[i] = NEVER;
	for (size_t q = p->trace->request_count; q-- > 0;) {
		const struct trace_request *r = &p->trace->request[q];

		for (uint64_t i = r->id_first; i < r->id_first + r->id_count; i++)
			next[i] = last[p->number[i]];
		for (uint64_t i = r->id_first; i < r->id_first + r->id_count; i++)
			last[p->number[i]] = (uint32_t)q;
	}
	return 0;
}

struct belady {
	const struct prepared *p;
	const uint32_t *next;
	uint64_t *when; /* by number: next use + 1; 0 = not there */
	struct heap heap;
	uint64_t stored;
};

static uint64_t prefix_there(const struct belady *b, const struct trace_request *r)
{
	uint64_t hit = 0;

	while (hit < r->id_count && b->when[b->p->number[r->id_first + hit]])
		hit++;
	return hit;
}

static void belady_request(struct belady *b, const struct trace_request *r, uint64_t capacity)
{
	for (uint32_t i = 0; i < r->id_count; i++) {
		uint32_t number = b->p->number[r->id_first + i], next = b->next[r->id_first + i];

		b->stored += !b->when[number];
		b->when[number] = (uint64_t)next + 1;
		heap_push(&b->heap, (struct entry){ next, i, number });
	}
	while (b->stored > capacity) {
		struct entry e = heap_pop(&b->heap);

		if (b->when[e.number] != (uint64_t)e.next + 1)
			continue;
		b->when[e.number] = 0;
		b->stored--;
	}
}

int replay_optimum(struct outcome *out, const struct prepared *p, uint64_t capacity)
{
	uint32_t *next CLEANUP_FREE = calloc(p->trace->id_count + 1, sizeof(*next));
	uint64_t *when CLEANUP_FREE = calloc(p->count + 1, sizeof(*when));
	struct entry *entry CLEANUP_FREE = calloc(p->trace->id_count + 1, sizeof(*entry));
	struct belady b = { .p = p, .next = next, .when = when, .heap.entry = entry };
	int error = next && when && entry ? next_uses(next, p) : -ENOMEM;

	*out = (struct outcome){ 0 };
	for (size_t q = 0; q < p->trace->request_count && !error; q++) {
		const struct trace_request *r = &p->trace->request[q];

		outcome_add(out, p->trace, r, prefix_there(&b, r));
		belady_request(&b, r, capacity);
	}
	return error;
}
