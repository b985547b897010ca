/* SPDX-License-Identifier: Apache-2.0 */
/* The whole context for each token; see whole.h. */
#include "bench/sparse/whole.h"

#include <errno.h>
#include <string.h>

#include "libtier/base/time.h"

#define PIECE 64u /* blocks of one stream: a layer of them is 16 MiB */
#define LEASES (DECODE_LAYERS * DECODE_LAYER_PAGES)
#define WAIT_NS (60 * NS_PER_S)

struct whole {
	struct decode *d;
	uint32_t step;
	struct tier_lease lease[LEASES]; /* of the chosen pages, by layers */
};

/* The chosen pages of a layer that lie in blocks [first, first + count). */
static int lease_chosen(struct whole *w, uint32_t layer, uint32_t first, uint32_t count)
{
	struct decode *d = w->d;
	int error = 0;

	for (uint32_t i = 0; i < DECODE_LAYER_PAGES && !error; i++) {
		uint32_t group = i / SELECT_TOP;
		uint32_t block = select_at(d->trace, w->step, d->reader, layer,
					   group)[i % SELECT_TOP];

		if (block - first < count)
			error = tier_lease_page(d->pool->r, d->pool->c, d->pool->block[block],
						layer * DECODE_GROUPS + group, TIER_LEASE_CXL,
						&w->lease[layer * DECODE_LAYER_PAGES + i]);
	}
	return error;
}

/* A layer of some blocks comes, and goes when what was chosen of it is leased. */
static int bring_piece(struct whole *w, uint32_t layer, uint32_t first, uint32_t count)
{
	const struct tier_range range = { .layer_first = (uint16_t)layer, .layer_count = 1 };
	const struct tier_stream_options o = { .size = sizeof(o), .tier = TIER_CXL,
					       .range = &range,
					       .deadline_ns = time_now_ns() + WAIT_NS };
	struct pool *p = w->d->pool;
	tier_stream *s;
	int64_t n = tier_stream_open(p->c, &p->block[first], count, &o, &s);

	if (n)
		return (int)n;
	n = tier_stream_wait(s, 0, 0);
	if (n == count)
		n = lease_chosen(w, layer, first, count);
	else
		n = n < 0 ? n : -ENODATA;
	tier_stream_close(s);
	return (int)n;
}

static int bring_layer(struct whole *w, uint32_t layer)
{
	uint32_t blocks = w->d->pool->spec.blocks;
	int error = 0;

	for (uint32_t first = 0; first < blocks && !error; first += PIECE) {
		uint32_t left = blocks - first;

		error = bring_piece(w, layer, first, left < PIECE ? left : PIECE);
	}
	return error;
}

static void compute_layer(struct whole *w, uint32_t layer)
{
	struct decode *d = w->d;
	struct tier_lease *lease = &w->lease[(size_t)layer * DECODE_LAYER_PAGES];

	memcpy(d->lease, lease, sizeof(d->lease));
	decode_compare(d, w->step, layer);
	tier_release_many(d->pool->r, lease, DECODE_LAYER_PAGES);
}

int whole_step(struct decode *d, uint32_t step, enum whole_way way)
{
	struct whole w = { .d = d, .step = step };
	int error = 0;

	for (uint32_t layer = 0; layer < DECODE_LAYERS && !error; layer++) {
		error = bring_layer(&w, layer);
		if (!error && way == WHOLE_LAYERWISE)
			compute_layer(&w, layer);
	}
	for (uint32_t layer = 0; layer < DECODE_LAYERS && way == WHOLE_BEFORE && !error; layer++)
		compute_layer(&w, layer);
	return error ? bench_failed("sparse: the whole context", error) : 0;
}
