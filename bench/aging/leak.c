/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A planted leak, preloaded into a daemon: with calls of malloc, so many bytes an hour are taken
 * and never given back. TIER_LEAK is "heap:BYTES" or "mmap:BYTES".
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define PIECE 4096u

static double wanted(void)
{
	static double bytes_an_hour = -1, from;
	const char *told = getenv("TIER_LEAK");
	struct timespec now;
	double seconds;

	clock_gettime(CLOCK_MONOTONIC, &now);
	seconds = (double)now.tv_sec + (double)now.tv_nsec / 1e9;
	if (bytes_an_hour < 0) {
		bytes_an_hour = told && strchr(told, ':') ? strtod(strchr(told, ':') + 1, NULL) : 0;
		from = seconds;
	}
	return bytes_an_hour / 3600 * (seconds - from);
}

void *malloc(size_t bytes)
{
	static void *(*next)(size_t);
	static __thread int inside;
	static double taken;
	const char *told = getenv("TIER_LEAK");

	if (!next)
		*(void **)&next = dlsym(RTLD_NEXT, "malloc");
	while (!inside && told && wanted() >= taken + PIECE) {
		void *lost;

		inside = 1;
		lost = told[0] == 'h' ? next(PIECE) :
					mmap(NULL, PIECE, PROT_READ | PROT_WRITE,
					     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (lost != MAP_FAILED && lost)
			memset(lost, 1, PIECE);
		taken += PIECE;
		inside = 0;
	}
	return next(bytes);
}
