/*
 * What property tests share: a seeded generator, so that a run can be repeated, and the check that
 * a call ends in a failed assertion. Included by unit tests of the core.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_TESTS_PROPERTY_H
#define TIER_TESTS_PROPERTY_H

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* splitmix64 (Steele, Lea, Flood 2014): every seed is a good one. */
struct rng {
	uint64_t state;
};

static inline uint64_t rng_next(struct rng *rng)
{
	uint64_t z = rng->state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

/* 0 … below - 1 */
static inline uint64_t rng_below(struct rng *rng, uint64_t below)
{
	return (uint64_t)((unsigned __int128)rng_next(rng) * below >> 64);
}

/* Does the call abort? It runs in a child, whose complaint is not shown. */
static inline bool aborts(void (*call)(void *arg), void *arg)
{
	int status = 0;
	pid_t child = fork();

	if (child == 0) {
		struct rlimit none = { 0, 0 };
		int quiet = open("/dev/null", O_WRONLY | O_CLOEXEC);

		setrlimit(RLIMIT_CORE, &none);
		signal(SIGABRT, SIG_DFL);
		dup2(quiet, STDERR_FILENO);
		call(arg);
		_exit(0);
	}
	return child > 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status) &&
	       WTERMSIG(status) == SIGABRT;
}

#endif
