/* SPDX-License-Identifier: Apache-2.0 */
/* The prompts of a trace as a load for the core alone. Used by quota and churn. */
#ifndef TIER_BENCH_SPACE_PROMPT_H
#define TIER_BENCH_SPACE_PROMPT_H

#include "bench/space/corehost.h"
#include "bench/trace/trace.h"

struct prompt_served {
	uint32_t hit;	  /* blocks that were there, from the start without a gap */
	uint32_t refused; /* puts: 1 and nothing behind it is put, or 0 */
};

/*
 * Use what is there of the prompt of r, and put the rest. as: whose blocks they are; their keys are
 * the ids, mixed with as->key. Errors: the core's, but for what finds no room.
 */
int prompt_serve(struct corehost *h, const struct corehost_block *as, const struct trace *t,
		 const struct trace_request *r, struct prompt_served *out);

#endif
