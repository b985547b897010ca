/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Geometry: what one block of a context is made of. The same bytes travel on the socket, lie in
 * the index header and in the store's catalog.
 *
 *   block  = for each part, for each layer, for each group: one page
 *   page number of (part p, layer l, group g) = p.page_base + l * p.groups + g
 *
 * Invariants
 *   G1  page_base(p) is the sum of layers*groups of the parts before p; the total is
 *       pages_per_block.
 *   G2  page_stride >= page_bytes, a multiple of the context's page_align.
 *   G3  block_bytes is the sum of layers*groups*page_stride.
 *   G4  names are unique, NUL-terminated, [a-z0-9._-]+.
 *   G5  layer_first + layers <= ABI_LAYERS_MAX: a layer of the model has a 16-bit number.
 */
#ifndef TIER_ABI_GEOMETRY_H
#define TIER_ABI_GEOMETRY_H

#include "libtier/abi/common.h"

#define ABI_PART_NAME_BYTES 24u
#define ABI_PAGES_PER_BLOCK_MAX (1u << 16)
#define ABI_PAGE_BYTES_MAX (16u << 20)
#define ABI_LAYERS_MAX (1u << 16)

/* abi_part.kind */
#define ABI_KIND_DENSE 1u   /* all of it is read at every step */
#define ABI_KIND_SPARSE 2u  /* a selection of pages is read */
#define ABI_KIND_FOLLOWS 3u /* sparse, by the selection of layer kind_arg */
#define ABI_KIND_WINDOW 4u  /* the last kind_arg tokens are read */
#define ABI_KIND_STATE 5u   /* recurrent state */
#define ABI_KIND_INDEX 6u   /* the sidecar: index keys */

/* abi_part.hit_rule */
#define ABI_HIT_EVERY 1u /* every block of the prefix must have the part */
#define ABI_HIT_LAST 2u  /* the last hit_arg blocks must have it */

/* abi_part.shard_rule */
#define ABI_SHARD_GROUPS 1u     /* rank k of n holds groups [k*G/n, (k+1)*G/n) */
#define ABI_SHARD_REPLICATED 2u /* every rank holds all of it; stored once */

/* abi_layout.order: one letter a dimension, outermost first; zero-filled. 'K' is the K/V pair. */
#define ABI_LAYOUT_OPAQUE 0u
#define ABI_LAYOUT_STRIDED 1u
struct abi_layout {
	uint16_t form;    /* ABI_LAYOUT_* */
	uint16_t element; /* bits an element; 0 for opaque */
	uint8_t order[8]; /* of the letters L B H N C K */
	uint32_t reserved;
	uint64_t stride[6]; /* bytes, for each letter of order */
}; /* 64 bytes */

struct abi_part {
	char name[ABI_PART_NAME_BYTES];
	uint16_t kind;
	uint16_t hit_rule;
	uint16_t shard_rule;
	uint16_t preferred_tier;
	uint32_t kind_arg;
	uint32_t hit_arg;
	uint32_t layers;
	uint32_t groups;
	uint32_t page_bytes;  /* what the engine writes */
	uint32_t page_stride; /* what it takes in every tier: padded */
	uint32_t page_base;   /* G1 */
	uint32_t layer_first; /* the model's number of this part's layer 0 */
	struct abi_layout layout;
	uint8_t reserved[64];
}; /* 192 bytes */

struct abi_geometry {
	uint32_t part_count;
	uint32_t block_tokens;
	uint32_t pages_per_block; /* G1 */
	uint32_t page_align;      /* ABI_PAGE_ALIGN, or 512..2048 in a memory-only context */
	uint64_t block_bytes;     /* G3 */
	uint8_t reserved[40];
	struct abi_part part[ABI_PARTS_MAX];
}; /* 64 + 16*192 = 3136 bytes */

#endif
