/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Emptying slabs (evacuate.c), as the rest of the core calls it. Part of state.h, which includes
 * it: one thread owns everything here.
 */
#ifndef TIERD_CORE_EVACUATE_H
#define TIERD_CORE_EVACUATE_H

#include <stdbool.h>
#include <stdint.h>

#include "libtier/abi/geometry.h"
#include "tierd/core/core.h"

struct context;

/* Slabs of one context that are being emptied (evacuate.c). */
#define EVACUATE_SLABS 8u

struct evacuation {
	struct context *ctx; /* NULL = none */
	uint32_t tier;
	bool compact;    /* for room in another class: pages move, none leaves */
	uint32_t slot, page; /* descriptors before it have been looked at in this walk */
	uint32_t walks;  /* that ended */
	uint32_t stuck;  /* pages that could neither move nor leave in this walk */
	uint32_t short_of[ABI_PARTS_MAX]; /* places of a class that pages did not find, likewise */
	uint32_t rounds; /* in which others left for pages that found no room */
	bool forced;     /* nothing else leaves: those pages do */
	bool gives;      /* for the pool: other slabs that become empty go in place of these */
	bool again;      /* others leave before pages move: then slabs are chosen anew */
	uint64_t goal;   /* it gives until the context has no more bytes than that */
	uint32_t copies; /* under way */
	uint64_t wait_ns; /* the next walk begins then */
	uint32_t slabs;
	uint64_t slab[EVACUATE_SLABS];
	struct core_copy *copy; /* collects */
};

void evacuate_begin(struct core *c, struct context *x, uint32_t tier, uint64_t bytes);
void evacuate_give(struct core *c, struct context *x, uint32_t tier, uint64_t bytes);
bool evacuate_hopeful(const struct core *c);
bool evacuate_goes_on(const struct core *c);
bool evacuate_compact(struct core *c, struct context *x, uint32_t tier);
void evacuate_step(struct core *c);
void evacuate_tick(struct core *c, struct context *x, uint32_t tier);
void evacuate_surplus(struct core *c, struct context *x, uint32_t tier, bool all);
void evacuate_punched(struct core *c, const struct core_range *range);
void evacuate_forget(struct core *c, const struct context *x);
uint64_t evacuate_copying(const struct core *c, const struct context *x, uint32_t tier);

#endif
