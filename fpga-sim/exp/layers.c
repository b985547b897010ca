/* SPDX-License-Identifier: Apache-2.0 */
/* The layers of a sparse decode (layers.h), and their steps in the model. */
#include "layers.h"

int layers_make(struct layers *l, uint32_t layers, uint32_t blocks, uint32_t steps)
{
	const struct select_spec spec = { .kind = SELECT_RETURNING, .blocks = blocks,
					  .layers = layers, .groups = 1, .readers = 1,
					  .steps = steps + 1, .seed = 20261124 };

	return select_make(&l->trace, &spec);
}

void layers_free(struct layers *l)
{
	select_free(&l->trace);
}

void layers_lines(struct layers *l, uint32_t line_log)
{
	l->line_log = line_log;
	l->lines = 1u << (LAYERS_BLOCK_LOG - line_log);
	l->count = SELECT_TOP * l->lines;
}

static void places(const struct layers *l, uint32_t layer, const uint16_t *block, uint64_t *line)
{
	uint64_t first = (uint64_t)layer * l->trace.spec.blocks;

	for (uint32_t i = 0; i < SELECT_TOP; i++) {
		for (uint32_t k = 0; k < l->lines; k++)
			*line++ = (first + block[i]) * l->lines + k;
	}
}

void layers_at(struct layers *l, uint32_t step, uint32_t layer)
{
	uint16_t draft[SELECT_TOP];

	places(l, layer, select_at(&l->trace, step, 0, layer, 0), l->now);
	select_draft(&l->trace, step + 1, 0, layer, 0, draft);
	places(l, layer, draft, l->next);
}

uint32_t layers_compute(const struct point_rates *r)
{
	return (uint32_t)(LAYERS_STEP_US / LAYERS * r->clock_mhz);
}

static void warm(struct layers *l, const struct layers_run *run, struct clock *c)
{
	uint64_t all = (uint64_t)l->trace.spec.layers * l->trace.spec.blocks * l->lines;

	for (uint64_t i = 0; run->fill && i < all; i++)
		clock_touch(c, i, false);
	for (uint32_t step = 0; step < run->warm; step++) {
		for (uint32_t layer = 0; layer < l->trace.spec.layers; layer++) {
			layers_at(l, step, layer);
			for (uint32_t i = 0; i < l->count; i++)
				clock_touch(c, l->now[i], false);
		}
	}
}

int layers_by_clock(struct layers *l, const struct layers_run *run, const struct point *p,
		    const struct point_rates *r, uint32_t sets_log, uint64_t *cycles)
{
	struct exp_setting set = point_setting(p, r, sets_log);
	struct clock *c;
	int rc;

	set.list = l->now;
	layers_lines(l, set.line_log);
	rc = clock_open(&c, &set, p->mshrs, p->slots);
	if (rc)
		return rc;
	warm(l, run, c);
	*cycles = 0;
	for (uint32_t step = run->warm; step < run->warm + run->timed; step++) {
		for (uint32_t layer = 0; layer < l->trace.spec.layers; layer++) {
			layers_at(l, step, layer);
			*cycles += clock_layer(c, 0, l->count, l->next, run->ahead ? l->count : 0,
					       layers_compute(r)).cycles;
		}
	}
	clock_close(c);
	return 0;
}
