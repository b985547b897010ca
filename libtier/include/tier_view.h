/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kernels that find pages by themselves read (tier_device.h): where the index is on the
 * device, and where each chunk of the memory tiers is. It lies in memory of the host that the
 * process changes while kernels run: `index` and chunks are loaded for the whole system, as are the
 * words of the index (cuda/kernels/words.cu does all of it). For kernels: no C library is needed.
 */
#ifndef TIER_VIEW_H
#define TIER_VIEW_H

#include <stdint.h>

#define TIER_VIEW_CHUNK (2ull << 20)

struct tier_device_view {
	uint64_t index;    /* address of the index; 0 = not now: no page is found */
	/* Constant. By tier, TIER_HBM and TIER_CXL: */
	uint64_t chunk[2]; /* address of a word each 2 MiB of it: where they are; 0 = not there */
	uint64_t chunks[2];
	uint64_t block_offset; /* in the index: a line of 64 bytes a slot, */
	uint64_t page_offset;  /* ... descriptors of 32 bytes, `pages` a slot */
	uint32_t blocks, pages;
	uint32_t salt; /* folded into tier_block.generation */
	uint32_t reserved;
};

#endif
