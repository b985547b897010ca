/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The allocator of the code under test, whose names are wrapped (ld --wrap): large arrays lie in
 * areas (tests/lib/areas.h), all else goes on to the sanitizer's allocator. Linked into every fuzz
 * target.
 *
 * An input may also let an allocation of the code under test fail (fuzz_alloc_left), libraries'
 * own excepted.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/fuzz/fuzz.h"
#include "tests/lib/areas.h"

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

uint32_t fuzz_alloc_left;

static bool fails(void)
{
	return fuzz_alloc_left && --fuzz_alloc_left == 0;
}

void *__wrap_calloc(size_t count, size_t bytes)
{
	void *at;

	if (fails())
		return NULL;
	at = areas_take(count, bytes);
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
	if (!areas_give(at))
		__real_free(at);
}
