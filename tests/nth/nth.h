/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Failing allocations: the n-th malloc, calloc, realloc, reallocarray, aligned_alloc or
 * posix_memalign after nth_arm fails, in whatever library it is made, and so do mmap,
 * memfd_create, eventfd, epoll_create1, signalfd and pthread_create, for which the kernel takes
 * memory; with `sticky` all later ones fail, too. nth.c takes the place of these names in the
 * program that links it, and in any program that loads it with LD_PRELOAD (then NTH_FAIL=n and
 * NTH_STICKY=1 arm it at load). With NTH_FAIL or NTH_TELL in the environment what fails is told on
 * standard error.
 *
 * How a test uses it: for n = 1, 2, ... arm, call, disarm, look at the answer, until nth_hits()
 * says that nothing failed any more.
 */
#ifndef TIER_TESTS_NTH_H
#define TIER_TESTS_NTH_H

#include <stdbool.h>
#include <stdint.h>

void nth_arm(uint32_t n, bool sticky);

/* Allocations succeed from here. Returns how many have failed since nth_arm. */
uint32_t nth_disarm(void);

/* Memory that nobody refers to any more; 0 where no leak checker is linked in. */
int nth_leaks(void);

#endif
