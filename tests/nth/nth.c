/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names of nth.h, counted. What is not to fail goes on to the sanitizer's
 * allocator where there is one, else to the C library's own.
 */
#include "tests/nth/nth.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Where the real ones are. */
extern void *__interceptor_malloc(size_t bytes) __attribute__((weak));
extern void *__interceptor_calloc(size_t count, size_t bytes) __attribute__((weak));
extern void *__interceptor_realloc(void *at, size_t bytes) __attribute__((weak));
extern void *__interceptor_aligned_alloc(size_t align, size_t bytes) __attribute__((weak));
extern int __interceptor_posix_memalign(void **out, size_t align, size_t bytes)
	__attribute__((weak));
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *at, size_t bytes);
extern void *__libc_memalign(size_t align, size_t bytes);
extern int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

static struct {
	uint32_t left; /* allocations until the one that fails; 0 = none does */
	uint32_t hits;
	bool sticky;
	bool told; /* say what fails */
} nth;

void nth_arm(uint32_t n, bool sticky)
{
	nth.hits = 0;
	nth.sticky = sticky;
	__atomic_store_n(&nth.left, n, __ATOMIC_SEQ_CST);
}

uint32_t nth_disarm(void)
{
	__atomic_store_n(&nth.left, 0, __ATOMIC_SEQ_CST);
	return nth.hits;
}

int nth_leaks(void)
{
	return __lsan_do_recoverable_leak_check ? __lsan_do_recoverable_leak_check() : 0;
}

static void tell(size_t bytes, void *caller)
{
	char line[256];
	Dl_info at = { .dli_fname = "?" };
	int length;

	dladdr(caller, &at);
	length = snprintf(line, sizeof(line), "nth: an allocation of %zu bytes fails at %s+0x%zx\n",
			  bytes, at.dli_fname, (size_t)((char *)caller - (char *)at.dli_fbase));
	if (write(STDERR_FILENO, line, (size_t)length) < 0)
		return;
}

/* Is it this one's turn? */
static bool fails(size_t bytes, void *caller)
{
	uint32_t left = __atomic_load_n(&nth.left, __ATOMIC_SEQ_CST);

	while (left > 1 && !__atomic_compare_exchange_n(&nth.left, &left, left - 1, false,
							 __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
	if (left != 1)
		return false;
	if (!nth.sticky)
		__atomic_store_n(&nth.left, 0, __ATOMIC_SEQ_CST);
	__atomic_add_fetch(&nth.hits, 1, __ATOMIC_SEQ_CST);
	if (nth.told)
		tell(bytes, caller);
	errno = ENOMEM;
	return true;
}
#define FAILS(bytes) fails(bytes, __builtin_return_address(0))

/* ---- large arrays -------------------------------------------------------------------------- */

/*
 * In a daemon that is started hundreds of times (NTH_FAIL), what the core takes at its start lies
 * in mappings of its own: a sanitizer writes the shadow of its 460 MB twice, which is three
 * quarters of the time that a start takes. Each ends at a page that nobody may touch, and what is
 * given back is unmapped. Other tests have these arrays under the sanitizer itself.
 */
#define LARGE ((size_t)1 << 20)
#define LARGES 64u
#define PAGE ((size_t)4096)
#define SCAN_MAX ((size_t)4 << 20) /* larger arrays of the core hold no pointers to the heap */

extern void __lsan_register_root_region(const void *at, size_t bytes) __attribute__((weak));
extern void __lsan_unregister_root_region(const void *at, size_t bytes) __attribute__((weak));
extern void __interceptor_free(void *at) __attribute__((weak));
extern void __libc_free(void *at);

static struct {
	bool wanted;
	struct large {
		uint8_t *at; /* atomic; NULL = free, (void *)1 = being made */
		size_t bytes;
	} large[LARGES];
} arrays;

/* NULL: not one of these, or there is no room for it. */
static void *large_take(size_t bytes)
{
	size_t room = (bytes + PAGE - 1) & ~(PAGE - 1);
	uint8_t *base;

	for (struct large *l = arrays.large; l < arrays.large + LARGES; l++) {
		uint8_t *none = NULL;

		if (!__atomic_compare_exchange_n(&l->at, &none, (uint8_t *)1, false,
						 __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			continue;
		base = (uint8_t *)syscall(SYS_mmap, NULL, room + PAGE, PROT_READ | PROT_WRITE,
					  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (base == MAP_FAILED || mprotect(base + room, PAGE, PROT_NONE)) {
			__atomic_store_n(&l->at, NULL, __ATOMIC_SEQ_CST);
			return NULL;
		}
		if (room <= SCAN_MAX && __lsan_register_root_region)
			__lsan_register_root_region(base, room);
		l->bytes = room;
		/* The end meets the guard, as near as alignment lets it. */
		base += (room - bytes) & ~(size_t)63;
		__atomic_store_n(&l->at, base, __ATOMIC_SEQ_CST);
		return base;
	}
	return NULL;
}

static bool large_give(uint8_t *at)
{
	for (struct large *l = arrays.large; arrays.wanted && l < arrays.large + LARGES; l++) {
		uint8_t *base = (uint8_t *)((uintptr_t)at & ~(uintptr_t)(PAGE - 1));

		if (__atomic_load_n(&l->at, __ATOMIC_SEQ_CST) != at)
			continue;
		if (l->bytes <= SCAN_MAX && __lsan_unregister_root_region)
			__lsan_unregister_root_region(base, l->bytes);
		munmap(base, l->bytes + PAGE);
		__atomic_store_n(&l->at, NULL, __ATOMIC_SEQ_CST);
		return true;
	}
	return false;
}

void free(void *at)
{
	if (at && large_give(at))
		return;
	if (__interceptor_free)
		__interceptor_free(at);
	else
		__libc_free(at);
}

/* ---- allocations --------------------------------------------------------------------------- */

void *malloc(size_t bytes)
{
	if (FAILS(bytes))
		return NULL;
	return __interceptor_malloc ? __interceptor_malloc(bytes) : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
	size_t all;
	void *at;

	if (FAILS(count * bytes))
		return NULL;
	if (arrays.wanted && !__builtin_mul_overflow(count, bytes, &all) && all >= LARGE) {
		at = large_take(all);
		if (at)
			return at;
	}
	return __interceptor_calloc ? __interceptor_calloc(count, bytes) :
				      __libc_calloc(count, bytes);
}

void *realloc(void *at, size_t bytes)
{
	if (FAILS(bytes))
		return NULL;
	return __interceptor_realloc ? __interceptor_realloc(at, bytes) : __libc_realloc(at, bytes);
}

void *reallocarray(void *at, size_t count, size_t bytes)
{
	size_t all;

	if (__builtin_mul_overflow(count, bytes, &all)) {
		errno = ENOMEM;
		return NULL;
	}
	if (FAILS(all))
		return NULL;
	return __interceptor_realloc ? __interceptor_realloc(at, all) : __libc_realloc(at, all);
}

void *aligned_alloc(size_t align, size_t bytes)
{
	if (FAILS(bytes))
		return NULL;
	return __interceptor_aligned_alloc ? __interceptor_aligned_alloc(align, bytes) :
					     __libc_memalign(align, bytes);
}

int posix_memalign(void **out, size_t align, size_t bytes)
{
	if (FAILS(bytes))
		return ENOMEM;
	if (__interceptor_posix_memalign)
		return __interceptor_posix_memalign(out, align, bytes);
	*out = __libc_memalign(align, bytes);
	return *out ? 0 : ENOMEM;
}

/* ---- what the kernel gives: straight from it, since no sanitizer has a stake in these -------- */

void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	if (FAILS(bytes))
		return MAP_FAILED;
	return (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
}

int memfd_create(const char *name, unsigned int flags)
{
	return FAILS(0) ? -1 : (int)syscall(SYS_memfd_create, name, flags);
}

int eventfd(unsigned int value, int flags)
{
	return FAILS(0) ? -1 : (int)syscall(SYS_eventfd2, value, flags);
}

int epoll_create1(int flags)
{
	return FAILS(0) ? -1 : (int)syscall(SYS_epoll_create1, flags);
}

int signalfd(int fd, const sigset_t *set, int flags)
{
	return FAILS(0) ? -1 : (int)syscall(SYS_signalfd4, fd, set, _NSIG / 8, flags);
}

int pthread_create(pthread_t *out, const pthread_attr_t *attributes, void *(*run)(void *),
		   void *arg)
{
	int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) =
		dlsym(RTLD_NEXT, "pthread_create");

	return FAILS(0) ? EAGAIN : real(out, attributes, run, arg);
}

__attribute__((constructor)) static void arm_by_environment(void)
{
	const char *n = getenv("NTH_FAIL");

	nth.told = n || getenv("NTH_TELL");
	arrays.wanted = n;
	if (n)
		nth_arm((uint32_t)strtoul(n, NULL, 10), getenv("NTH_STICKY") != NULL);
}
