/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The RTL of the CXL-hybrid device in a process of its own (fpga-sim/tb/serve.c), for the backend
 * that finds its ring in the environment. Where it was not built (no verilator) tests go without.
 */
#ifndef TIER_TESTS_RTL_H
#define TIER_TESTS_RTL_H

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/unit.h"

#define RTL_WAITS 6000 /* of 10 ms each */

struct rtl_process {
	pid_t pid;
	char ring[64];
};

/* False: it was not built. */
static inline bool rtl_begin(struct rtl_process *p)
{
	const char *build = getenv("BUILD");
	char program[256];

	snprintf(program, sizeof(program), "%s/../fpga/bench", build ? build : "build/plain");
	snprintf(p->ring, sizeof(p->ring), "/dev/shm/tier-rtl.%d", (int)getpid());
	if (access(program, X_OK)) {
		print_message("the RTL is skipped: there is no %s (make fpga-test)\n", program);
		return false;
	}
	p->pid = fork();
	assert_true(p->pid >= 0);
	if (p->pid == 0) {
		execl(program, program, "--serve", p->ring, (char *)NULL);
		_exit(127);
	}
	for (uint32_t i = 0; access(p->ring, F_OK); i++) {
		assert_true(i < RTL_WAITS);
		usleep(10000);
	}
	setenv("TIER_SIM_RING", p->ring, 1);
	return true;
}

/* It has seen no difference between RTL and model. */
static inline void rtl_end(struct rtl_process *p)
{
	int status;

	unsetenv("TIER_SIM_RING");
	assert_int_equal(kill(p->pid, SIGTERM), 0);
	assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

#endif
