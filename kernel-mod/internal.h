/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * tier_mem inside: chunks in a pool, regions with slots, descriptors of regions. Arrows point one
 * way: main -> region -> pool <- source; a source that leaves asks region to let go of its chunks,
 * and what dmabuf exports is a descriptor of region.
 *
 * One mutex, tm_lock, covers the pool, all slots and all descriptors; names that begin with __ want
 * it held. Faults do not take it: they read a slot, lock its folio and look again. So whoever takes
 * a chunk or a right away does, in this order:
 *
 *   1. change the slot or the descriptor,
 *   2. lock and unlock the folio: a fault that saw the old state has mapped it by now, since the
 *      core keeps the folio locked until the entry is in,
 *   3. unmap_mapping_range().
 *
 * tm_srcu keeps chunks of a source that leaves while a fault looks at them. Zeroing, which takes
 * long, happens without the lock on a chunk that is in no slot yet.
 */
#ifndef TIER_MEM_INTERNAL_H
#define TIER_MEM_INTERNAL_H

#include <linux/fs.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/srcu.h>
#include <linux/version.h>

#include "../libtier/abi/tier_mem.h"

#define TM_KERNEL_FROM(major, minor) (KERNEL_VERSION(major, minor, 0) <= LINUX_VERSION_CODE)

#define TM_ORDER 9
#define TM_PAGES 512u
#define TM_SHIFT (PAGE_SHIFT + TM_ORDER)

struct tm_source;
struct dev_pagemap;

enum tm_state {
	TM_FREE,	/* in the free list */
	TM_USED,	/* in a slot, or taken and on the way there */
	TM_HELD,	/* in the list of those that somebody still holds */
	TM_RETIRED,	/* poisoned, in no list */
	TM_GONE,	/* its source leaves, in no list */
};

struct tm_chunk {
	struct list_head link;
	struct folio *folio;	/* order 9; one reference is ours */
	struct tm_source *source;
	struct tm_region *region; /* whose slot it is in; NULL: in none */
	enum tm_state state;
	bool poisoned;
	bool suspect;		/* held at a revocation, and at every look since */
};

/* Memory of one kind: a DAX device, or ordinary pages. */
struct tm_source {
	struct dev_pagemap *pgmap; /* NULL: ordinary memory */
	bool leaving;		/* no chunk of it goes into a slot any more */
	unsigned long count;
	struct tm_chunk chunk[];
};

/* A slot that lost its chunk: neither empty nor full until it is punched. */
#define TM_LOST ((struct tm_chunk *)ERR_PTR(-EIO))

struct tm_region {
	struct list_head link;	/* in tm_regions */
	struct list_head descs;	/* that are open */
	struct kref ref;	/* one a descriptor */
	struct inode *inode;	/* all descriptors' */
	u32 slots;
	bool dead;		/* revoked as a whole */
	bool left;		/* the owner's end is not theirs */
	char label[TIER_MEM_LABEL_BYTES];
	struct tm_chunk *slot[];
};

enum tm_role { TM_OWNER, TM_READER, TM_WRITER };

struct tm_desc {
	struct list_head link; /* in its region's */
	struct tm_region *region;
	enum tm_role role;
	u64 client;	 /* a reader's */
	u32 first, count; /* slots that it may touch */
	bool revoked;
	struct file *of; /* a dma-buf's: the descriptor whose rights it has; it is in no list */
};

static inline bool tm_is_revoked(const struct tm_desc *d)
{
	return READ_ONCE((d->of ? (const struct tm_desc *)d->of->private_data : d)->revoked);
}

extern struct mutex tm_lock;
extern struct srcu_struct tm_srcu;

/* pool.c */
extern struct tier_mem_status tm_status; /* counters, under tm_lock */
void tm_pool_add(struct tm_source *source);
void __tm_pool_leave(struct tm_source *source);
bool __tm_pool_left(struct tm_source *source);
struct tm_chunk *__tm_chunk_take(void);
void __tm_chunk_give(struct tm_chunk *chunk);
void __tm_chunk_poison(struct tm_chunk *chunk);
void tm_chunk_zero(struct tm_chunk *chunk);
void tm_pool_exit(void);

/* source.c */
int tm_sources_init(void);
void tm_sources_exit(void);

/* region.c */
int tm_region_create(const struct tier_mem_create *args);
void __tm_region_lose(const struct tm_source *source);
void __tm_region_poisoned(const struct tm_chunk *chunk);
int tm_mmap(struct file *file, struct vm_area_struct *vma);
struct file *tm_desc_part(struct file *file, const struct tier_mem_slots *slots);

/* dmabuf.c */
int tm_dmabuf_export(struct file *file, const struct tier_mem_slots *slots);

#endif
