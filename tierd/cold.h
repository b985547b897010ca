/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory for the daemon's cold tables (core.h, struct core_cold) that is not DRAM: memkind, loaded
 * when meta.memory names a kind of it, gives what lies on the node of the highest capacity, or on
 * CXL memory that is onlined.
 */
#ifndef TIERD_COLD_H
#define TIERD_COLD_H

#include <stddef.h>
#include <stdint.h>

#include "tierd/core/core.h"

struct cold; /* the loop's */

/*
 * kind: "capacity" or "dax-kmem". Errors: -ENOENT there is no such word, -ENOSYS no library or one
 * without the kind, -ENODEV this host has no such memory, -ENOMEM.
 */
int cold_open(struct cold **out, const char *kind);
void cold_close(struct cold *d); /* after the core; NULL is fine */
struct core_cold cold_memory(struct cold *d);
/* Bytes that it has given, for as long as d is open. */
const uint64_t *cold_bytes(const struct cold *d);

#endif
