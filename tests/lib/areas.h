/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Zeroed memory for large, mostly untouched arrays, used again and again in one process: what the
 * core takes when it opens. Fresh mappings cost a fault for each page touched, and a sanitizer
 * writes the shadow of all 150 MB twice; here an array costs what was touched of it. Each ends at a
 * guard page. For programs that open hundreds of cores (tests/sim, tests/fuzz), which wrap calloc
 * and free with it (ld --wrap). One thread.
 */
#ifndef TIER_TESTS_AREAS_H
#define TIER_TESTS_AREAS_H

#include <stdbool.h>
#include <stddef.h>

/* count * bytes zeroed bytes; NULL: too small for an area, or none is left. */
void *areas_take(size_t count, size_t bytes);

/* False: it is no area's. */
bool areas_give(void *at);

/* Fill whole pages, but for those that are zero: they stay untouched. */
void areas_spoil(void *at, size_t bytes, int value);

#endif
