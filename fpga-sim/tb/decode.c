/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Experiment e in the RTL: as many layers of the model's decode (exp/layers.h) as the device is
 * smaller, each with its blocks and its computing.
 */
#include <stdio.h>
#include <stdlib.h>

#include "experiment.h"
#include "layers.h"

#define MODEL_SETS 13u /* of the device that all layers are for (exp/decode.c) */
#define BLOCKS_LEAST 256u /* of a layer */
#define WARM 100u
#define TIMED 8u

static bool goes_on(struct bench *b, uint32_t count)
{
	const struct readers *r = b->readers;

	return b->differences == 0 && (r->ahead_next < count || r->ahead_under > 0);
}

/* A flit of each line is read, as fast as drives that take no time allow. */
static void touch(struct bench *b, const struct exp_setting *fast, const uint64_t *line,
		  uint32_t count)
{
	readers_begin(b->readers, fast, 0, 0);
	b->readers->link_at = (double)b->cycle;
	readers_ahead(b->readers, line, count, b->shape.mshrs);
	while (goes_on(b, count))
		bench_cycle(b);
}

/* In pieces of a layer's lines. */
static void fill(struct bench *b, const struct exp_setting *fast, struct layers *l)
{
	uint64_t all = (uint64_t)l->trace.spec.layers * l->trace.spec.blocks * l->lines;

	for (uint64_t at = 0; at < all; at += l->count) {
		for (uint32_t i = 0; i < l->count; i++)
			l->now[i] = at + i;
		touch(b, fast, l->now, l->count);
	}
}

/* As clock_layer. */
static uint64_t layer(struct bench *b, const struct exp_setting *set, const struct layers *l,
		      bool ahead, uint32_t compute)
{
	uint64_t begin = b->cycle, end = UINT64_MAX;

	readers_begin(b->readers, set, 0, l->count);
	b->readers->link_at = (double)begin;
	readers_ahead(b->readers, l->next, ahead ? l->count : 0,
		      b->shape.mshrs - b->shape.mshrs / 4);
	while (b->cycle < end && b->differences == 0) {
		bench_cycle(b);
		if (end == UINT64_MAX && readers_end(b->readers))
			end = b->cycle + compute;
	}
	return b->cycle - begin;
}

static void run(struct bench *b, struct experiment *x, struct layers *l, bool ahead)
{
	struct exp_setting fast = x->set;

	x->set.list = l->now;
	fast.flash_cycles = 1;
	fast.flash_latency = 1;
	fill(b, &fast, l);
	for (uint32_t step = 0; step < WARM + TIMED; step++) {
		for (uint32_t k = 0; k < l->trace.spec.layers; k++) {
			layers_at(l, step, k);
			if (step < WARM)
				touch(b, &fast, l->now, l->count);
			else
				x->rtl += layer(b, &x->set, l, ahead, layers_compute(&x->rates));
		}
	}
}

int experiment_decode(struct bench *b, struct experiment *x, uint32_t percent, bool ahead)
{
	struct layers_run same = { .warm = WARM, .timed = TIMED, .fill = true, .ahead = ahead };
	struct point p = { .mshrs = b->shape.mshrs, .slots = b->slots,
			   .line_log = b->shape.line_log };
	uint64_t in_dram = 100ull << x->sets_log; /* blocks of 64 KiB, x 100 */
	uint32_t layers = LAYERS >> (MODEL_SETS - x->sets_log);
	struct layers *l = calloc(1, sizeof(*l));
	uint32_t blocks;
	double us;
	int rc;

	if (!l)
		return -1;
	layers = layers ? layers : 1;
	if (in_dram / percent / layers < BLOCKS_LEAST)
		layers = (uint32_t)(in_dram / percent / BLOCKS_LEAST);
	blocks = (uint32_t)(in_dram / percent / layers);
	rc = layers_make(l, layers, blocks, WARM + TIMED);
	if (!rc)
		rc = layers_by_clock(l, &same, &p, &x->rates, x->sets_log, &x->model);
	if (!rc)
		run(b, x, l, ahead);
	us = x->rates.clock_mhz * TIMED * layers;
	snprintf(x->rtl_says, sizeof(x->rtl_says), "%u layers of %u blocks, %.2f us each", layers,
		 blocks, (double)x->rtl / us);
	snprintf(x->model_says, sizeof(x->model_says), "%.2f us", (double)x->model / us);
	layers_free(l);
	free(l);
	return rc;
}
