/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Constants that every shared format of tier agrees on: magics, versions, tiers, limits.
 *
 * libtier/abi is a specification that happens to compile. Nothing here may contain a pointer, an
 * enum, a size_t or a hole; check.c proves sizes and offsets. All integers are little-endian.
 * Reserved bytes are zero when written and must be zero when read.
 */
#ifndef TIER_ABI_COMMON_H
#define TIER_ABI_COMMON_H

#include <stdint.h>

#define ABI_VERSION 1u      /* of shared memory and wire together; disk.h has its own */
#define ABI_KEY_BYTES 32u
#define ABI_UNIT_SHIFT 9u   /* memory addresses in descriptors count units of 512 bytes */
#define ABI_UNIT (1u << ABI_UNIT_SHIFT)
#define ABI_PAGE_ALIGN 4096u /* pages are padded to this, unless the context is memory-only */
#define ABI_HUGE (2u << 20) /* the unit in which memory is given to contexts and taken back */

/* Tiers, fastest first. The first ABI_MEM_TIERS are memory: they have a word per page. */
#define ABI_TIER_HBM 0u
#define ABI_TIER_CXL 1u
#define ABI_MEM_TIERS 2u
#define ABI_TIER_NVME 2u
#define ABI_TIER_REMOTE 3u
#define ABI_TIER_COUNT 4u

#define ABI_CONTEXTS_MAX 16384u
/*
 * A context's id: index:16 (below ABI_CONTEXTS_MAX, used again after a removal) and above it a
 * generation, so that a request with an old id finds nothing. Hazard words and access logs carry
 * the index alone.
 */
#define ABI_CONTEXT_INDEX(id) ((id) & 0xffffu)
#define ABI_NAME_BYTES 64u      /* context names, with their NUL */
#define ABI_PARTS_MAX 16u       /* in this version; the formats carry 32-bit counts */
#define ABI_SLOT_NONE 0xffffffffu

/* Request classes, most urgent first (design P6). */
#define ABI_CLASS_DEMAND 0u
#define ABI_CLASS_DEADLINE 1u
#define ABI_CLASS_SPECULATIVE 2u
#define ABI_CLASS_WRITEBACK 3u
#define ABI_CLASS_CLEANUP 4u
#define ABI_CLASS_COUNT 5u

#endif
