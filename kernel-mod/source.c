// SPDX-License-Identifier: GPL-2.0-only
/*
 * Where chunks come from: DAX devices, taken by a driver of their bus, and ordinary pages as a test
 * bed of the same code. A DAX device is given to us by name:
 *
 *   echo dax0.0 >/sys/bus/dax/drivers/tier_mem/new_id
 *
 * Its memory is not onlined, so nobody else can have it.
 */
#include <linux/delay.h>
#include <linux/memremap.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "dax.h"

#define RANGES_MAX 64
#define WAIT_MS 10
#define TELL_MS 5000

static unsigned int ram_chunks;
module_param(ram_chunks, uint, 0444);
MODULE_PARM_DESC(ram_chunks, "chunks of 2 MiB of ordinary memory, for tests (default 0)");

static struct tm_source *ram;

static struct tm_source *source_new(unsigned long count)
{
	struct tm_source *source = kvzalloc(struct_size(source, chunk, count), GFP_KERNEL);

	if (source)
		source->count = count;
	return source;
}

/*
 * Nobody has a chunk of it afterwards. Takes as long as somebody holds one: a driver's remove
 * cannot refuse, and the memory is gone when it returns.
 */
static void source_end(struct tm_source *source, const char *name)
{
	unsigned int waited = 0;
	bool gone;

	mutex_lock(&tm_lock);
	__tm_pool_leave(source);
	__tm_region_lose(source);
	mutex_unlock(&tm_lock);
	synchronize_srcu(&tm_srcu);
	for (;;) {
		mutex_lock(&tm_lock);
		gone = __tm_pool_left(source);
		mutex_unlock(&tm_lock);
		if (gone)
			return;
		msleep(WAIT_MS);
		waited += WAIT_MS;
		if (waited % TELL_MS == 0)
			pr_warn("tier_mem: %s: chunks are still held (pinned for a device?)\n",
				name);
	}
}

/* ---- DAX devices --------------------------------------------------------------------------- */

/* A wrong guess of the layout above ends here: its ranges would not be free resources. */
static int check_ranges(struct dev_dax *dev, unsigned long *count)
{
	int i;

	if (dev->nr_range < 1 || dev->nr_range > RANGES_MAX)
		return -EINVAL;
	*count = 0;
	for (i = 0; i < dev->nr_range; i++) {
		const struct range *range = &dev->ranges[i].range;

		if (range->end <= range->start ||
		    (range->start | range_len(range)) % TIER_MEM_CHUNK)
			return -EINVAL;
		if (!devm_request_mem_region(&dev->dev, range->start, range_len(range),
					     "tier_mem"))
			return -EBUSY;
		*count += range_len(range) / TIER_MEM_CHUNK;
	}
	return 0;
}

static struct tm_chunk *chunk_of(const struct tm_source *source, unsigned long pfn)
{
	unsigned long i;

	for (i = 0; i < source->count; i++)
		if (folio_pfn(source->chunk[i].folio) == (pfn & ~(TM_PAGES - 1ul)))
			return (struct tm_chunk *)&source->chunk[i];
	return NULL;
}

/* Nobody is killed here: who touches the chunk gets SIGBUS, as an error of memory. */
static int tm_memory_failure(struct dev_pagemap *pgmap, unsigned long pfn, unsigned long pages,
			     int flags)
{
	struct tm_chunk *chunk;

	mutex_lock(&tm_lock);
	for (; pages; pages--, pfn++) {
		chunk = chunk_of(pgmap->owner, pfn);
		if (!chunk || chunk->poisoned)
			continue;
		__tm_chunk_poison(chunk);
		__tm_region_poisoned(chunk);
	}
	mutex_unlock(&tm_lock);
	return 0;
}

static const struct dev_pagemap_ops tm_pagemap_ops = {
	.memory_failure = tm_memory_failure,
};

static struct dev_pagemap *map_ranges(struct dev_dax *dev, struct tm_source *source)
{
	struct dev_pagemap *pgmap;
	void *base;
	int i;

	pgmap = kzalloc(struct_size(pgmap, ranges, dev->nr_range), GFP_KERNEL);
	if (!pgmap)
		return ERR_PTR(-ENOMEM);
	pgmap->type = MEMORY_DEVICE_GENERIC;
	pgmap->vmemmap_shift = TM_ORDER;
	pgmap->ops = &tm_pagemap_ops;
	pgmap->owner = source;
	pgmap->nr_range = dev->nr_range;
	for (i = 0; i < dev->nr_range; i++)
		pgmap->ranges[i] = dev->ranges[i].range;
	/* Not the devm one, which would book the pages on the caller's node. */
	base = memremap_pages(pgmap, dev->target_node);
	if (IS_ERR(base)) {
		kfree(pgmap);
		return ERR_CAST(base);
	}
	return pgmap;
}

static int tm_dax_probe(struct dev_dax *dev)
{
	struct tm_source *source;
	unsigned long count, n = 0;
	int i, err = check_ranges(dev, &count);

	if (err) {
		dev_err(&dev->dev, "tier_mem: its ranges cannot be used: %d\n", err);
		return err;
	}
	source = source_new(count);
	if (!source)
		return -ENOMEM;
	source->pgmap = map_ranges(dev, source);
	if (IS_ERR(source->pgmap)) {
		err = PTR_ERR(source->pgmap);
		kvfree(source);
		return err;
	}
	for (i = 0; i < dev->nr_range; i++) {
		u64 at = dev->ranges[i].range.start;

		for (; at < dev->ranges[i].range.end; at += TIER_MEM_CHUNK)
			source->chunk[n++].folio = page_folio(pfn_to_page(PHYS_PFN(at)));
	}
	dev_set_drvdata(&dev->dev, source);
	tm_pool_add(source);
	dev_info(&dev->dev, "tier_mem: %lu chunks of 2 MiB\n", count);
	return 0;
}

static void tm_dax_remove(struct dev_dax *dev)
{
	struct tm_source *source = dev_get_drvdata(&dev->dev);

	source_end(source, dev_name(&dev->dev));
	memunmap_pages(source->pgmap);
	kfree(source->pgmap);
	kvfree(source);
}

static struct dax_device_driver tm_dax_driver = {
	.drv.name = "tier_mem",
	.type = DAX_TYPE_NONE,
	.probe = tm_dax_probe,
	.remove = tm_dax_remove,
};

/* ---- ordinary memory ----------------------------------------------------------------------- */

static void ram_free(struct tm_source *source)
{
	unsigned long i;

	for (i = 0; i < source->count && source->chunk[i].folio; i++)
		folio_put(source->chunk[i].folio);
	kvfree(source);
}

static int ram_begin(void)
{
	struct tm_source *source = source_new(ram_chunks);
	unsigned long i;

	if (!source)
		return -ENOMEM;
	for (i = 0; i < ram_chunks; i++) {
		struct page *page = alloc_pages(GFP_KERNEL | __GFP_COMP | __GFP_NOWARN, TM_ORDER);

		if (!page) {
			ram_free(source);
			return -ENOMEM;
		}
		source->chunk[i].folio = page_folio(page);
	}
	tm_pool_add(source);
	ram = source;
	return 0;
}

static void ram_end(void)
{
	if (!ram)
		return;
	source_end(ram, "ordinary memory");
	ram_free(ram);
}

int tm_sources_init(void)
{
	int err = ram_chunks ? ram_begin() : 0;

	if (err)
		return err;
	err = __dax_driver_register(&tm_dax_driver, THIS_MODULE, KBUILD_MODNAME);
	if (err)
		ram_end();
	return err;
}

void tm_sources_exit(void)
{
	dax_driver_unregister(&tm_dax_driver);
	ram_end();
}
