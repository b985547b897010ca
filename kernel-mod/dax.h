/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the kernel's DAX bus exports and does not publish: drivers/dax/{bus,dax-private}.h, for each
 * version that was compared. Another version does not build.
 */
#ifndef TIER_MEM_DAX_H
#define TIER_MEM_DAX_H

#include <linux/device.h>
#include <linux/idr.h>
#include <linux/range.h>
#include "internal.h"

#if TM_KERNEL_FROM(6, 12) && !TM_KERNEL_FROM(6, 13)
#define DAX_TYPE_NONE 0x7e /* of a device: none has it, so only what new_id names is ours */
#elif TM_KERNEL_FROM(6, 1) && !TM_KERNEL_FROM(6, 2)
#define DAX_TYPE_NONE 0 /* match_always: no */
#else
#error "struct dev_dax of this kernel is not known: compare drivers/dax/{bus,dax-private}.h"
#endif

struct dev_dax_range {
	unsigned long pgoff;
	struct range range;
	void *mapping;
};

struct dev_dax {
	void *region;
	void *dax_dev;
	unsigned int align;
	int target_node;
	bool dyn_id;
	int id;
	struct ida ida;
	struct device dev;
	struct dev_pagemap *pgmap;
#if TM_KERNEL_FROM(6, 12)
	bool memmap_on_memory;
#endif
	int nr_range;
	struct dev_dax_range *ranges;
};

struct dax_device_driver {
	struct device_driver drv;
	struct list_head ids;
	int type;
	int (*probe)(struct dev_dax *dev);
	void (*remove)(struct dev_dax *dev);
};

int __dax_driver_register(struct dax_device_driver *driver, struct module *module,
			  const char *name);
void dax_driver_unregister(struct dax_device_driver *driver);

#endif
