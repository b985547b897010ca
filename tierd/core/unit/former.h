/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The index of a daemon that handed over, read while the next one fills its own: a block gets the
 * slot and generation that it had, so whoever found it before still names it. Slots of blocks that
 * do not come are free afterwards, with the generation that they had: the next block in one has a
 * higher one, as ever.
 */
#ifndef TIERD_CORE_UNIT_FORMER_H
#define TIERD_CORE_UNIT_FORMER_H

#include "tierd/core/unit/index.h"

struct former;

/*
 * Of an empty index, and of memory that was an index of the same shape, with so many slots used.
 * The memory stays mapped until former_close. Errors: -EINVAL it was none, -ENOMEM.
 */
int former_open(struct former **out, struct index *ix, const void *memory, uint64_t slots);

/* index_slot_alloc, for a block with this key. former: NULL is fine. */
uint32_t former_slot(struct former *former, struct index *ix, const uint8_t *key);

/* All blocks are there: the other slots are free. NULL is fine. */
void former_close(struct former *former, struct index *ix);

#endif
