/* SPDX-License-Identifier: Apache-2.0 */
/* One pass over all readers' slots (reclaim.c). */
#ifndef TIERD_CORE_PLACE_SCAN_H
#define TIERD_CORE_PLACE_SCAN_H

#include "tierd/core/core.h"

/*
 * A pass looks at every reader's slots once, a share in each turn, for all places that were fenced
 * before it began; the others wait for the next one.
 */
struct scan {
	uint32_t *table;   /* by hash of a place: 1 + entry (batch, index in it); 0 = none */
	uint32_t pass;     /* counts them */
	bool running;      /* slots are looked at, or what they showed is gone through */
	bool begun, over;  /* ... the first was, all were */
	bool asked;        /* an AC_SCAN is with the shell */
	uint32_t slots;    /* looked at in this turn */
	uint32_t client, reader, slot; /* where it goes on */
	struct core_batch *walk; /* ... over places, for the client's kernels: slot counts them */
	struct core_batch *fresh_head, *fresh_tail; /* fenced, and in no pass so far */
	struct core_batch *set; /* of the pass */
};

#endif
