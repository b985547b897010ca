/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which page descriptors of an index have memory behind them. A slot has one for each page of its
 * block, 2 MiB for the largest geometry, and a block may need one of them: so they count, and are
 * looked at, by groups of one 4 KiB page, and a group that nothing was ever written into is never
 * read either. Shared memory is allocated by reading, too.
 *
 *   a page of the slot gets a place   its group is touched (descs_touch): from now on it counts
 *   the slot is free, and its context is short of memory: groups that no other slot shares are
 *   offered (descs_idle), the shell takes their memory, and they are as new (descs_forget)
 *
 * Memory that was taken comes back as zeros, versions too. So the highest version that any page of
 * a slot has had is kept here, and a descriptor that says zero begins above it (abi/index.h X4).
 */
#ifndef TIERD_CORE_DESCS_H
#define TIERD_CORE_DESCS_H

#include <stdbool.h>
#include <stdint.h>

#include "libtier/abi/index.h"

#define DESCS_GROUP_BYTES ABI_PAGE_ALIGN
#define DESCS_GROUP (DESCS_GROUP_BYTES / sizeof(struct abi_page))

struct descs {
	uint64_t *touched;  /* bit a group */
	uint32_t *version;  /* by slot */
	uint32_t per_slot;  /* descriptors */
	uint64_t groups;    /* touched */
	uint32_t idle_next; /* descs_idle goes on there */
};

/* Errors: -ENOMEM. Close it in any case. */
int descs_open(struct descs *d, uint64_t blocks_max, uint32_t pages_per_block);
void descs_close(struct descs *d);

static inline uint64_t descs_group_of(const struct descs *d, uint32_t slot, uint32_t page)
{
	return ((uint64_t)slot * d->per_slot + page) / DESCS_GROUP;
}

static inline bool descs_touched(const struct descs *d, uint64_t group)
{
	return d->touched[group / 64] >> group % 64 & 1;
}

/* May the page's descriptor be read? One that may not says nothing: absent everywhere. */
static inline bool descs_there(const struct descs *d, uint32_t slot, uint32_t page)
{
	return descs_touched(d, descs_group_of(d, slot, page));
}

/* The first page of the slot behind those that share this one's group, or how many it has. */
static inline uint32_t descs_behind(const struct descs *d, uint32_t slot, uint32_t page)
{
	uint64_t first = (uint64_t)slot * d->per_slot;
	uint64_t next = ((first + page) / DESCS_GROUP + 1) * DESCS_GROUP - first;

	return next < d->per_slot ? (uint32_t)next : d->per_slot;
}

/* The page's descriptor is about to be written. True: none of its group was before. */
static inline bool descs_touch(struct descs *d, uint32_t slot, uint32_t page)
{
	uint64_t group = descs_group_of(d, slot, page);

	if (descs_touched(d, group))
		return false;
	d->touched[group / 64] |= 1ull << group % 64;
	d->groups++;
	return true;
}

/* All of a range of groups is backed now, used or not. */
void descs_touch_range(struct descs *d, uint64_t group, uint64_t count);

/* Groups of so many pages of a slot, from one on, that are not touched. */
uint32_t descs_fresh(const struct descs *d, uint32_t slot, uint32_t page, uint32_t pages);

/* Does one look show that all of the slot's groups are touched? Mostly it does. */
static inline bool descs_backed(const struct descs *d, uint32_t slot)
{
	uint64_t from = descs_group_of(d, slot, 0);
	uint64_t last = descs_group_of(d, slot, d->per_slot - 1);
	uint64_t bits = UINT64_MAX >> (63 - (last - from) % 64) << from % 64;

	return from / 64 == last / 64 && !(~d->touched[from / 64] & bits);
}

/* One soon will: the memory where that is kept is brought. */
static inline void descs_prefetch(const struct descs *d, uint32_t slot)
{
	__builtin_prefetch(&d->version[slot], 1);
}

/* A page of the slot has this version now. */
static inline void descs_version(struct descs *d, uint32_t slot, uint32_t version)
{
	if (d->version[slot] < version)
		d->version[slot] = version;
}

/* Groups [*group, *group + *count) at or behind `from`, below `end`, that are not touched. */
bool descs_hole(const struct descs *d, uint64_t from, uint64_t end, uint64_t *group,
		uint64_t *count);

/*
 * Touched groups that lie in the windows of a run of slots from `slot` on, whole: what may be
 * forgotten when these are free. Returns how many there are; none = nothing there.
 */
uint64_t descs_inside(const struct descs *d, uint32_t slot, uint64_t *group, uint64_t *count);

/* Their memory was taken. */
void descs_forget(struct descs *d, uint64_t group, uint64_t count);

/* Bytes of shared memory behind them; and of our own for that, when so many slots were used. */
static inline uint64_t descs_bytes(const struct descs *d)
{
	return d->groups * DESCS_GROUP_BYTES;
}

static inline uint64_t descs_own_bytes(const struct descs *d, uint64_t slots)
{
	return slots * sizeof(*d->version) + slots * d->per_slot / DESCS_GROUP / 8;
}

#endif
