/*
 * The inside of tier_geometry, for the files that send it or compute page numbers with it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_SRC_GEOMETRY_H
#define TIER_SRC_GEOMETRY_H

#include <tier.h>

#include "libtier/abi/geometry.h"

struct tier_geometry {
	struct abi_geometry abi; /* has passed abi_geometry_check */
};

/* Part of a page; page < pages_per_block. */
uint32_t geometry_part_of(const struct abi_geometry *g, uint32_t page);

/* Groups [*first, *first + *count) of part that shard of shards carries (0 of 0: all). */
void geometry_shard(const struct abi_part *part, uint32_t shard, uint32_t shards, uint32_t *first,
		    uint32_t *count);

#endif
