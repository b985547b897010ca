/*
 * A context as a GPU sees it (tier_device.h): which of its slabs are mapped or registered, and what
 * the stream may still read of them. One thread uses it, its reader's.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_SRC_DEVICE_H
#define TIER_SRC_DEVICE_H

#include <tier_device.h>

#include "libtier/base/cuda_driver.h"
#include "libtier/src/connection.h"

struct device_slab {
	uint64_t address; /* on the device; 0 = not mapped */
	uint64_t era;     /* the last launch that was given an address in it */
	uint64_t asked;   /* in this call it was asked for, in vain */
	void *host;       /* ... as the process has it, where it is registered; NULL: HBM, */
	uint32_t pieces;  /* ... which is so many mappings */
	bool leaves;      /* it is wanted back: no launch gets an address in it */
};

/* The memory tiers, then the index, which is one slab. */
#define DEVICE_INDEX ABI_MEM_TIERS
#define DEVICE_LEVELS (ABI_MEM_TIERS + 1)

struct device_tier {
	struct device_slab *slab; /* NULL: the first one is not there yet */
	uint64_t slab_bytes, slabs;
	uint64_t base; /* HBM: the reserved addresses of all slabs; 0 = none */
	bool refused;  /* this device cannot have any */
};

struct tier_device {
	struct list link; /* tier.lock */
	tier_context *c;
	tier_reader *r;
	struct cuda_driver cu;
	int32_t ordinal; /* of the device */
	bool read_only;  /* it registers memory that the process may not write */
	uint64_t number; /* of the attachment */
	uint64_t calls;
	uint64_t wanted; /* abi_region_header.slabs_wanted, when it was looked at */
	uint32_t leaving; /* slabs that are to go, and may be read yet */
	struct device_tier tier[DEVICE_LEVELS];
	struct tier_device_view *view; /* registered; NULL: nobody has asked for it */
	uint64_t view_bytes, view_address;
};

#endif
