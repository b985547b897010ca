/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Large arrays under AddressSanitizer: its allocator writes all of an array's shadow when it gives
 * it out and when it takes it back, a page fault for each 32 KiB of the array. The core's come to
 * 448 MB, and most is never touched. Here their shadow is asked for in huge pages before it is
 * written; what the sanitizer sees and finds stays the same. Linked with ld --wrap.
 */
#ifdef __SANITIZE_ADDRESS__

#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LARGE ((size_t)8 << 20) /* its shadow is half a huge page */
#define HUGE ((uintptr_t)2 << 20)
#define PAGE ((size_t)4096)

/* The sanitizer's own; gcc brings no header for them. */
void __asan_get_shadow_mapping(size_t *scale, size_t *offset);
int __sanitizer_get_ownership(const volatile void *at);
size_t __sanitizer_get_allocated_size(const volatile void *at);
/* Weak: this file is linked into all tests, and a program may have names of its own for these. */
void *__real_calloc(size_t count, size_t bytes) __attribute__((weak));
void __real_free(void *at) __attribute__((weak));
void *__wrap_calloc(size_t count, size_t bytes) __attribute__((weak));
void __wrap_free(void *at) __attribute__((weak));

/* A wish: where it cannot be had, pages are small. */
static void want_huge(uintptr_t at, size_t bytes)
{
	size_t scale, offset;
	uintptr_t from, end;

	__asan_get_shadow_mapping(&scale, &offset);
	from = ((at >> scale) + offset) & ~(HUGE - 1);
	end = (((at + bytes) >> scale) + offset + HUGE - 1) & ~(HUGE - 1);
	madvise((void *)from, end - from, MADV_HUGEPAGE);
}

/* The allocator maps a large array, most likely where a mapping of this size would come now. */
void *__wrap_calloc(size_t count, size_t bytes)
{
	size_t all, room;
	long probe;

	if (!__builtin_mul_overflow(count, bytes, &all) && all >= LARGE && all < SIZE_MAX / 2) {
		room = ((all + PAGE - 1) & ~(PAGE - 1)) + 2 * PAGE;
		/* not by names that a test may count, or let fail (tests/nth) */
		probe = syscall(SYS_mmap, NULL, room, PROT_NONE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (probe != -1) {
			syscall(SYS_munmap, probe, room);
			want_huge((uintptr_t)probe, room);
		}
	}
	return __real_calloc(count, bytes);
}

void __wrap_free(void *at)
{
	/* what the allocator has mapped for itself begins at such an address */
	if (at && (uintptr_t)at % (PAGE / 2) == 0 && __sanitizer_get_ownership(at)) {
		size_t bytes = __sanitizer_get_allocated_size(at);

		if (bytes >= LARGE)
			want_huge((uintptr_t)at, bytes);
	}
	__real_free(at);
}

#else
typedef int nothing_here; /* a file of C has a declaration */
#endif
