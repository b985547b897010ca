/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The peer of everything that misses caches: a chain of pointers through memory in random order,
 * one dependent load a step. It lies in a memfd, as tier's memory does, over the same span, with
 * the same number of lines touched, and mapped by huge pages when tier's is.
 */
#ifndef TIER_BENCH_MICRO_CHASE_H
#define TIER_BENCH_MICRO_CHASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct chase {
	uint8_t *memory;
	uint64_t span;	/* bytes */
	uint64_t lines; /* on the chain, evenly spread over the span */
	const void *at;
	double huge; /* share of the span mapped by huge pages */
};

/*
 * Map a memfd at a multiple of 2 MiB, and if asked collapse it into huge pages as the daemon does
 * with a tier's memory. It may get none: look at huge_share. NULL = no room. munmap it.
 */
void *chase_map(int fd, uint64_t span, bool huge);

/* Errors: -ENOMEM, or from memfd_create. Takes a while for large spans. */
int chase_open(struct chase *c, uint64_t span, uint64_t lines, bool huge);
void chase_close(struct chase *c);

/* Nanoseconds a step, over so many steps from where the last run ended. */
double chase_run(struct chase *c, uint64_t steps);

/* "a chain of 1.5 M lines over 1.06 GiB, 98 % huge pages" */
void chase_describe(const struct chase *c, char *text, size_t bytes);

#endif
