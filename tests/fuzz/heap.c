/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Large, mostly untouched arrays are what the core takes when it opens, and what makes opening one
 * under AddressSanitizer cost 25 ms: the shadow of 150 MB is written twice. Here calloc and free of
 * the code under test are wrapped (ld --wrap): what is LARGE lies in mappings of its own, which are
 * kept and used again, ends at a guard page, and costs what is touched of it. All else goes on to
 * the sanitizer's allocator. Linked into every fuzz target.
 *
 * An input may also let an allocation of the code under test fail (fuzz_alloc_left), libraries'
 * own excepted.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/fuzz/fuzz.h"

#define LARGE ((size_t)128 << 10)
#define AREAS 64u
#define PAGE ((size_t)4096)
#define AREA_PAGES_MAX 32768u      /* cleared page by page; larger ones are given back */
#define SCAN_MAX ((size_t)4 << 20) /* larger arrays of the core hold no pointers to the heap */

void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_realloc(void *at, size_t bytes);
void *__wrap_aligned_alloc(size_t align, size_t bytes);
void __wrap_free(void *at);
void *__real_calloc(size_t count, size_t bytes);
void *__real_malloc(size_t bytes);
void *__real_realloc(void *at, size_t bytes);
void *__real_aligned_alloc(size_t align, size_t bytes);
void __real_free(void *at);
void __lsan_register_root_region(const void *at, size_t bytes);

uint32_t fuzz_alloc_left;

static bool fails(void)
{
	return fuzz_alloc_left && --fuzz_alloc_left == 0;
}

static struct area {
	uint8_t *base;
	size_t bytes; /* whole pages, without the guard */
	uint8_t *user;
	bool used;
} area[AREAS];

/* Of all areas, so that most frees look no further. */
static uintptr_t lowest = UINTPTR_MAX, highest;

static bool area_make(struct area *a, size_t bytes)
{
	uint8_t *base = mmap(NULL, bytes + PAGE, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (base == MAP_FAILED || mprotect(base + bytes, PAGE, PROT_NONE))
		return false;
	if (bytes <= SCAN_MAX)
		__lsan_register_root_region(base, bytes);
	a->base = base;
	a->bytes = bytes;
	if ((uintptr_t)base < lowest)
		lowest = (uintptr_t)base;
	if ((uintptr_t)base + bytes > highest)
		highest = (uintptr_t)base + bytes;
	return true;
}

static void *area_take(size_t bytes)
{
	size_t room = (bytes + PAGE - 1) & ~(PAGE - 1);

	for (struct area *a = area; a < area + AREAS; a++) {
		if (a->used || (a->base && a->bytes != room))
			continue;
		if (!a->base && !area_make(a, room))
			return NULL;
		a->used = true;
		/* The end meets the guard, as near as alignment lets it. */
		a->user = a->base + ((room - bytes) & ~(size_t)63);
		return a->user;
	}
	return NULL;
}

/* Zero what was touched: cheaper than giving it back and faulting it in again. */
static void area_clear(struct area *a)
{
	static unsigned char there[AREA_PAGES_MAX];
	size_t pages = a->bytes / PAGE;

	if (pages > AREA_PAGES_MAX || mincore(a->base, a->bytes, there)) {
		madvise(a->base, a->bytes, MADV_DONTNEED);
		return;
	}
	for (size_t i = 0; i < pages; i++)
		if (there[i] & 1)
			memset(a->base + i * PAGE, 0, PAGE);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
	size_t total;
	void *at;

	if (fails())
		return NULL;
	if (__builtin_mul_overflow(count, bytes, &total) || total < LARGE)
		return __real_calloc(count, bytes);
	at = area_take(total);
	return at ? at : __real_calloc(count, bytes);
}

void *__wrap_malloc(size_t bytes)
{
	return fails() ? NULL : __real_malloc(bytes);
}

/* What lies in an area is never resized. */
void *__wrap_realloc(void *at, size_t bytes)
{
	return fails() ? NULL : __real_realloc(at, bytes);
}

void *__wrap_aligned_alloc(size_t align, size_t bytes)
{
	return fails() ? NULL : __real_aligned_alloc(align, bytes);
}

void __wrap_free(void *at)
{
	bool far = (uintptr_t)at < lowest || (uintptr_t)at >= highest;

	for (struct area *a = area; !far && a < area + AREAS; a++)
		if (a->used && a->user == at) {
			area_clear(a);
			a->used = false;
			return;
		}
	__real_free(at);
}
