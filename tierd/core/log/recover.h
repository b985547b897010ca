/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What recovery keeps from the first segment's records to the last tombstone (recover.c), and
 * nobody after it. A part of state.h, which includes it.
 */
#ifndef TIERD_CORE_RECOVER_H
#define TIERD_CORE_RECOVER_H

#include "tierd/core/core.h"

struct recover_note;

struct recover {
	uint64_t *lsn[ABI_CONTEXTS_MAX]; /* by slot: of its record */
	struct recover_note *note;	 /* for the end */
	uint32_t notes, notes_max;
	uint8_t *late; /* runs that found no slot */
	uint64_t late_bytes, late_max;
	struct core_recovery found;
};

/* Of core_recover_finish: what only the log knows. */
int recover_finish(struct core *c, struct core_recovery *out);
/* Frees what a recovery that did not come to its end had taken. */
void recover_close(struct core *c);

#endif
