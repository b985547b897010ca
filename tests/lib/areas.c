/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Areas (areas.h): mappings that are kept when they are given back, with zeros where something was
 * written. Which pages that were is the kernel's knowledge (mincore).
 */
#include "tests/lib/areas.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#define LARGE ((size_t)128 << 10)
#define AREAS 128u
#define PAGE ((size_t)4096)
#define PAGES_MAX 131072u          /* cleared page by page; larger ones are given back */
#define USED_MAX 2048u             /* ... and such of which more pages were used than this */
#define SPOIL_PAGES 512u           /* looked at together */
#define SCAN_MAX ((size_t)4 << 20) /* larger arrays of the core hold no pointers to the heap */
#define IDLE_LOOKS 24u		   /* a fault costs as much as so many looks at a page */

/* There under AddressSanitizer: pointers that lie in an area keep what they name from being told
 * as leaked. */
__attribute__((weak)) void __lsan_register_root_region(const void *at, size_t bytes);
__attribute__((weak)) void __lsan_unregister_root_region(const void *at, size_t bytes);

static struct area {
	uint8_t *base;
	size_t bytes; /* whole pages, without the guard */
	uint8_t *user;
	size_t idle; /* looks in vain at its pages, since they were last given back */
	bool used;
} area[AREAS];

/* Of all areas, so that most frees look no further. */
static uintptr_t lowest = UINTPTR_MAX, highest;

static bool area_make(struct area *a, size_t bytes)
{
	uint8_t *base = mmap(NULL, bytes + PAGE, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (base == MAP_FAILED)
		return false;
	if (mprotect(base + bytes, PAGE, PROT_NONE)) {
		munmap(base, bytes + PAGE);
		return false;
	}
	if (bytes <= SCAN_MAX && __lsan_register_root_region)
		__lsan_register_root_region(base, bytes);
	a->base = base;
	a->bytes = bytes;
	a->idle = 0;
	if ((uintptr_t)base < lowest)
		lowest = (uintptr_t)base;
	if ((uintptr_t)base + bytes > highest)
		highest = (uintptr_t)base + bytes;
	return true;
}

static void area_drop(struct area *a)
{
	if (a->bytes <= SCAN_MAX && __lsan_unregister_root_region)
		__lsan_unregister_root_region(a->base, a->bytes);
	munmap(a->base, a->bytes + PAGE);
	a->base = NULL;
}

/* One of this size that is not in use, else an empty entry, else one of another size. */
static struct area *area_for(size_t bytes)
{
	struct area *empty = NULL, *other = NULL;

	for (struct area *a = area; a < area + AREAS; a++) {
		if (!a->base)
			empty = a;
		else if (!a->used && a->bytes == bytes)
			return a;
		else if (!a->used)
			other = a;
	}
	if (!empty && other)
		area_drop(other);
	return empty ? empty : other;
}

/* Pages stay there once touched: those that were not since are only read. */
static bool is_zero(const uint8_t *page)
{
	return !page[0] && memcmp(page, page + 1, PAGE - 1) == 0;
}

static void area_return(struct area *a)
{
	madvise(a->base, a->bytes, MADV_DONTNEED);
	a->idle = 0;
}

/*
 * Zero what was touched: cheaper than giving it back and faulting it in again, unless most of what
 * is there has not been used for a while.
 */
static void area_clear(struct area *a)
{
	static unsigned char there[PAGES_MAX + 8];
	size_t pages = a->bytes / PAGE, used = 0, idle = 0;

	if (pages > PAGES_MAX || mincore(a->base, a->bytes, there)) {
		area_return(a);
		return;
	}
	for (size_t i = 0; i < pages && used <= USED_MAX;) {
		uint64_t eight;

		memcpy(&eight, there + i, sizeof(eight));
		if (!eight) {
			i += 8;
			continue;
		}
		if (there[i] & 1 && is_zero(a->base + i * PAGE)) {
			idle++;
		} else if (there[i] & 1) {
			used++;
			memset(a->base + i * PAGE, 0, PAGE);
		}
		i++;
	}
	a->idle += idle;
	if (used > USED_MAX || a->idle > IDLE_LOOKS * (used + idle))
		area_return(a);
}

void areas_spoil(void *at, size_t bytes, int value)
{
	uint8_t *from = (uint8_t *)(((uintptr_t)at + PAGE - 1) & ~(PAGE - 1));
	uint8_t *end = (uint8_t *)at + bytes;
	unsigned char there[SPOIL_PAGES];

	while (from + PAGE <= end) {
		size_t pages = (size_t)(end - from) / PAGE;

		pages = pages < SPOIL_PAGES ? pages : SPOIL_PAGES;
		if (mincore(from, pages * PAGE, there))
			memset(there, 1, pages);
		for (size_t i = 0; i < pages; i++, from += PAGE)
			if (there[i] & 1 && !is_zero(from))
				memset(from, value, PAGE);
	}
}

void *areas_take(size_t count, size_t bytes)
{
	size_t total, room;
	struct area *a;

	if (__builtin_mul_overflow(count, bytes, &total) || total < LARGE)
		return NULL;
	room = (total + PAGE - 1) & ~(PAGE - 1);
	a = area_for(room);
	if (!a || (!a->base && !area_make(a, room)))
		return NULL;
	a->used = true;
	/* The end meets the guard, as near as alignment lets it. */
	a->user = a->base + ((room - total) & ~(size_t)63);
	return a->user;
}

bool areas_give(void *at)
{
	bool far = (uintptr_t)at < lowest || (uintptr_t)at >= highest;

	for (struct area *a = area; !far && a < area + AREAS; a++)
		if (a->used && a->user == at) {
			area_clear(a);
			a->used = false;
			return true;
		}
	return false;
}
