/*
 * Memory of tiers that may be taken away while somebody reads it (tier_taken.h). One table for the
 * process, because a signal's handler is the process's.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_SRC_TAKEN_H
#define TIER_SRC_TAKEN_H

#include <stdbool.h>
#include <stdint.h>

/*
 * From now on a SIGBUS in [base, base + bytes) sets *usable to 0 and is over. Memory without a
 * `usable` is written by us: stores go on into memory of ours, and nowhere. Returns the entry for
 * the others. Errors: -ENFILE more memory is mapped than there can be contexts; negative errno.
 */
int taken_watch(const void *base, uint64_t bytes, uint64_t *usable);

/* After that: are these bytes, which lie in it, none of what was taken? */
bool taken_intact(int entry, uint64_t offset, uint64_t bytes);

/* Nobody reads there any more. A negative entry is fine. */
void taken_forget(int entry);

#endif
