/*
 * An index of names in shared memory (libtier/abi/object.h, N1 to N5): the daemon writes it,
 * clients read it without a system call. Pure: memory is the caller's.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_BASE_NAMES_H
#define TIER_BASE_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#include "libtier/abi/object.h"

/* Memory of an index of so many slots, a power of two of ABI_NAMES_SLOTS_MAX at most. */
static inline size_t names_bytes(uint32_t slots)
{
	return sizeof(struct abi_names) + slots * sizeof(struct abi_names_slot);
}

/* What a name's slot is found by. */
void names_key(const struct abi_names *n, const char *name, uint32_t bytes, uint64_t key[2]);

/* ---- the one who writes ---- */

/* Zeroed memory becomes an index that is FILLING. */
void names_begin(struct abi_names *n, uint32_t slots, uint64_t generation, uint64_t seed);
void names_state(struct abi_names *n, uint32_t state);
/* The name's slot: where it is, or else where it goes (*new, *dead: it was a dead one). */
uint32_t names_place(const struct abi_names *n, const uint64_t key[2], bool *new, bool *dead);
/* What the slot says from now on; its sequence word is ignored. */
void names_put(struct abi_names *n, uint32_t slot, const struct abi_names_slot *what);

/* ---- those who read ---- */

/* Is this an index that the memory has room for? Its slots, or 0. */
uint32_t names_judge(const struct abi_names *n, uint64_t bytes);
/*
 * Look a name up: 0 and *what, *slot; -ENOENT: there is none; -EAGAIN: it cannot be told, ask the
 * daemon; -ESTALE: the index is gone, too. slots: as judged.
 */
int names_look(const struct abi_names *n, uint32_t slots, const char *name, uint32_t bytes,
	       struct abi_names_slot *what, uint32_t *slot);

#endif
