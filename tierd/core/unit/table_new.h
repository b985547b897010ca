/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for a context's tables, with a mapping of its own (CORE_TABLE_BYTES). */
#ifndef TIERD_CORE_TABLE_NEW_H
#define TIERD_CORE_TABLE_NEW_H

#include <stdlib.h>

#include "tierd/core/core.h"

/* Zeroed; NULL: no memory. free() it. */
static inline void *table_new(uint64_t count, size_t bytes)
{
	uint64_t least = (CORE_TABLE_BYTES + bytes - 1) / bytes;

	return calloc(count < least ? least : count, bytes);
}

#endif
