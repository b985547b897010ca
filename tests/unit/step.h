/*
 * Running a piece of code an instruction at a time, with something else happening between any two
 * of them: what another processor could do at that moment, done by a signal handler in its place.
 * So a test can try every interleaving of a reader's instructions, as compiled, with one action of
 * the daemon. x86-64 only: the processor's trap flag is used. Included by tests of libtier only.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_TESTS_STEP_H
#define TIER_TESTS_STEP_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <ucontext.h>

#if defined(__x86_64__)
#define STEP_WORKS 1
#else
#define STEP_WORKS 0
#endif

#define STEP_TRAP 0x100 /* the processor's trap flag */
#define STEP_TRAPS 25000u /* of one test: half a second or so */

/* What happens, and before which instruction; behind the last one nothing is counted any more. */
struct step {
	uint32_t at[2];                /* 0 = not at all; both 0: all are counted */
	void (*happens[2])(void *arg); /* in signal context: no allocation, no library call */
	void *arg;
	uint32_t count; /* instructions so far */
};

static struct step *step_now;

static inline void step_trap(int signal_number, siginfo_t *info, void *context)
{
	struct step *s = step_now;
	bool more = !s->at[0];

	(void)signal_number;
	(void)info;
	s->count++;
	for (uint32_t i = 0; i < 2; i++) {
		if (s->count == s->at[i])
			s->happens[i](s->arg);
		more = more || s->count < s->at[i];
	}
#if STEP_WORKS
	if (!more)
		((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~STEP_TRAP;
#else
	(void)context;
#endif
}

/*
 * How far from place to place in a piece of so many instructions: each place costs as many traps as
 * there are instructions before it, and with sanitizers there are many.
 */
static inline uint32_t step_stride(uint32_t steps)
{
	return 1 + steps * steps / 2 / STEP_TRAPS;
}

/* The trap flag, past the red zone. */
static inline void step_set(bool on)
{
#if STEP_WORKS
	if (on)
		__asm__ volatile("lea -128(%%rsp), %%rsp; pushfq; orq $0x100, (%%rsp); popfq;"
				 "lea 128(%%rsp), %%rsp" ::: "cc", "memory");
	else
		__asm__ volatile("lea -128(%%rsp), %%rsp; pushfq; andq $~0x100, (%%rsp); popfq;"
				 "lea 128(%%rsp), %%rsp" ::: "cc", "memory");
#else
	(void)on;
#endif
}

/* Runs piece(arg) under s; returns how many instructions were counted. */
static inline uint32_t step_run(struct step *s, void (*piece)(void *arg))
{
	struct sigaction trap, before;

	memset(&trap, 0, sizeof(trap));
	trap.sa_sigaction = step_trap;
	trap.sa_flags = SA_SIGINFO;
	sigaction(SIGTRAP, &trap, &before);
	s->count = 0;
	step_now = s;
	step_set(true);
	piece(s->arg);
	step_set(false);
	sigaction(SIGTRAP, &before, NULL);
	return s->count;
}

#endif
