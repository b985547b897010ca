/*
 * Other users, for tests of what one may do to another: root can become them, but not in every
 * container. Included by tests that skip where it cannot.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_TESTS_USERS_H
#define TIER_TESTS_USERS_H

#include <grp.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#define USERS_PROBE 4321u

/* A child tries: capabilities, seccomp and name spaces have a say in it. */
static inline bool users_can_be_others(void)
{
	int status = 0;
	pid_t pid;

	if (geteuid() != 0)
		return false;
	pid = fork();
	if (pid == 0)
		_exit(setgroups(0, NULL) || setgid(USERS_PROBE) || setuid(USERS_PROBE));
	return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

#endif
