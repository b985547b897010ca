/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the guest programs that ask the kernel module tier_mem have in common: requests, touches
 * that may end in a signal, and an end with status 1 where something does not hold.
 */
#ifndef TIER_TESTS_VM_KMOD_H
#define TIER_TESTS_VM_KMOD_H

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "libtier/abi/tier_mem.h"

#define CHUNK ((size_t)TIER_MEM_CHUNK)

static int device;      /* /dev/tier_mem */
static uint32_t slots;  /* of each region */
static _Thread_local sigjmp_buf back; /* out of a touch */
static int bus_code;                  /* of the last SIGBUS */

static inline void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

static inline void fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	printf("module: ");
	vprintf(format, args);
	printf("\n");
	exit(1);
}

/* A line that tests/vm/run collects. */
static inline void figure(double us, const char *what)
{
	printf("figure: %.0f us of %s\n", us, what);
}

static inline double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* ---- touches that may fail ------------------------------------------------------------------ */

static inline void caught(int signal, siginfo_t *info, void *context)
{
	(void)context;
	bus_code = info->si_code;
	siglongjmp(back, signal);
}

/* 0, or the signal that it got. */
static inline int load(const volatile uint64_t *at)
{
	int signal = sigsetjmp(back, 1);

	if (!signal)
		(void)*at;
	return signal;
}

static inline int store(volatile uint64_t *at, uint64_t value)
{
	int signal = sigsetjmp(back, 1);

	if (!signal)
		*at = value;
	return signal;
}

/* A child that ends with us: what it has mapped must not outlive a test that fails. */
static inline pid_t spawn(void)
{
	pid_t pid = fork();

	if (pid < 0)
		fail("fork: %s", strerror(errno));
	if (pid == 0)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return pid;
}

/* ---- requests ------------------------------------------------------------------------------- */

static inline struct tier_mem_status status(void)
{
	struct tier_mem_status s;

	if (ioctl(device, TIER_MEM_STATUS, &s))
		fail("STATUS: %s", strerror(errno));
	return s;
}

static inline int create(void)
{
	struct tier_mem_create args = { .bytes = slots * CHUNK, .label = "tier_mem:test" };
	int fd = ioctl(device, TIER_MEM_CREATE, &args);

	if (fd < 0)
		fail("CREATE: %s", strerror(errno));
	return fd;
}

static inline int64_t ask(int fd, unsigned long what, uint32_t first, uint32_t count,
		   struct tier_mem_slots *out)
{
	struct tier_mem_slots args = { .first = first, .count = count };
	int rc = ioctl(fd, what, &args);

	if (out)
		*out = args;
	return rc < 0 ? -errno : rc;
}

static inline void must(int fd, unsigned long what, uint32_t first, uint32_t count)
{
	int64_t rc = ask(fd, what, first, count, NULL);

	if (rc)
		fail("request %lx of slots %u + %u: %s", what, first, count, strerror((int)-rc));
}

static inline int share(int fd, uint64_t client)
{
	struct tier_mem_client args = { .client = client };
	int rc = ioctl(fd, TIER_MEM_SHARE, &args);

	if (rc < 0)
		fail("SHARE: %s", strerror(errno));
	return rc;
}

static inline struct tier_mem_client revoke_client(int fd, uint64_t client)
{
	struct tier_mem_client args = { .client = client };

	if (ioctl(fd, TIER_MEM_REVOKE, &args))
		fail("REVOKE: %s", strerror(errno));
	return args;
}

static inline uint8_t *map(int fd, int protection)
{
	uint8_t *at = mmap(NULL, slots * CHUNK, protection, MAP_SHARED, fd, 0);

	if (at == MAP_FAILED)
		fail("mmap: %s", strerror(errno));
	return at;
}

static inline uint64_t *word(uint8_t *base, uint32_t slot)
{
	return (uint64_t *)(base + slot * CHUNK);
}

static inline void expect(bool holds, const char *what)
{
	if (!holds)
		fail("broken: %s", what);
	printf("%s\n", what);
}

/* To be called first; arguments of main: SLOTS. */
static inline void begin(int argc, char **argv)
{
	struct sigaction action = { .sa_sigaction = caught, .sa_flags = SA_SIGINFO };

	setlinebuf(stdout);
	sigaction(SIGBUS, &action, NULL);
	sigaction(SIGSEGV, &action, NULL);
	device = open(TIER_MEM_DEVICE, O_RDWR | O_CLOEXEC);
	if (device < 0)
		fail("%s: %s", TIER_MEM_DEVICE, strerror(errno));
	slots = argc > 1 ? (uint32_t)atoi(argv[1]) : 4;
}

/* To be called last. */
static inline void pool_is_whole(void)
{
	struct tier_mem_status s = status();

	printf("pool %" PRIu64 " chunks, %" PRIu64 " free, %" PRIu64 " held, %" PRIu64
	       " retired\n", s.total, s.free, s.held, s.retired);
	if (s.free + s.retired != s.total || s.regions)
		fail("the pool is not whole");
}

#endif
