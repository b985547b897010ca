/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How often each byte of some memory is read: a client may change it between two reads, so what was
 * judged must not be read again (I3). The memory is not accessible; each access traps, is counted
 * by its instruction, and done with the trap flag set. Reads of one call of the C library (memcpy,
 * whose loads overlap) are one. x86-64 only, and without sanitizers, which read by themselves.
 */
#ifndef TIER_TESTS_READS_H
#define TIER_TESTS_READS_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "tests/lib/unit.h"
#include "tests/unit/step.h"

#if STEP_WORKS && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define READS_WORK 1
#else
#define READS_WORK 0
#endif

#define READS_CODES 3u /* addresses of code that are kept of each byte */

struct reads {
	uint8_t *base;
	size_t bytes;
	uint8_t *count;  /* of each byte: reads, */
	uint32_t *last;  /* ... the one that was counted last, */
	uintptr_t (*by)[READS_CODES]; /* ... and who read it, each once; 0 = no more */
	uint32_t reads;
	uintptr_t call_sp, call_return, call_code, call_at; /* of the library's call under way */
};

extern const char __executable_start[], etext[];

static inline void reads_protect(const struct reads *r, int protection)
{
	if (mprotect(r->base, r->bytes, protection))
		abort();
}

#if READS_WORK
static struct reads *reads_now;

static inline uint32_t reads_width_plain(uint8_t code, bool two_bytes, uint32_t usual)
{
	if (two_bytes)
		return (code & 0xf7) == 0xb6 ? 1 : (code & 0xf7) == 0xb7 ? 2 : usual;
	return code == 0x8a || code == 0x38 || code == 0x3a || code == 0x80 || code == 0x84 ||
		       code == 0xf6 ? 1 : usual;
}

/* Bytes that the instruction loads, of those that compilers and the C library use. */
static inline uint32_t reads_width(const uint8_t *code)
{
	uint32_t usual = 4, vector = 16;

	for (; *code == 0x66 || (*code & 0xfe) == 0xf2 || (*code & 0xf0) == 0x40; code++)
		usual = *code == 0x66 ? 2 : (*code & 0xf8) == 0x48 ? 8 : usual;
	if (*code == 0x0f) {
		code++;
	} else if (*code == 0xc5) {
		vector = code[1] & 4 ? 32 : 16;
		code += 2;
	} else if (*code == 0xc4) {
		vector = code[2] & 4 ? 32 : 16;
		code += 3;
	} else if (*code == 0x62) {
		vector = 16u << (code[3] >> 5 & 3);
		code += 4;
	} else {
		return reads_width_plain(*code, false, usual);
	}
	if (*code == 0x10 || *code == 0x28 || *code == 0x6f)
		return vector;
	return *code == 0x7e ? 8 : reads_width_plain(*code, true, usual);
}

/* Is it a further load of the library's call that was the last? */
static inline bool reads_go_on(struct reads *r, uintptr_t code, uintptr_t sp, uintptr_t at)
{
	uintptr_t back = *(const uintptr_t *)sp;

	if (code >= (uintptr_t)__executable_start && code < (uintptr_t)etext) {
		r->call_sp = 0;
		return false;
	}
	if (r->call_sp == sp && r->call_return == back &&
	    (r->call_code != code || r->call_at != at))
		return true;
	r->call_sp = sp;
	r->call_return = back;
	r->call_code = code;
	r->call_at = at;
	return false;
}

static inline void reads_count(struct reads *r, size_t at, size_t bytes, uintptr_t code)
{
	for (size_t i = at; i < r->bytes && i < at + bytes; i++) {
		if (r->last[i] == r->reads)
			continue;
		r->last[i] = r->reads;
		r->count[i] += r->count[i] < UINT8_MAX;
		for (uint32_t k = 0; k < READS_CODES && r->by[i][k] != code; k++)
			if (!r->by[i][k]) {
				r->by[i][k] = code;
				break;
			}
	}
}

/* "rep movsb" out of the memory, done at once: with the trap flag each byte would trap. */
static inline bool reads_string(struct reads *r, size_t at, greg_t *regs)
{
	const uint8_t *code = (const uint8_t *)regs[REG_RIP];
	const volatile uint8_t *from = (const uint8_t *)regs[REG_RSI];
	volatile uint8_t *to = (uint8_t *)regs[REG_RDI];

	if (code[0] != 0xf3 || code[1] != 0xa4 || (uintptr_t)from != (uintptr_t)r->base + at)
		return false;
	reads_count(r, at, (size_t)regs[REG_RCX], (uintptr_t)code);
	for (greg_t i = 0; i < regs[REG_RCX]; i++)
		to[i] = from[i];
	regs[REG_RSI] += regs[REG_RCX];
	regs[REG_RDI] += regs[REG_RCX];
	regs[REG_RCX] = 0;
	regs[REG_RIP] += 2;
	reads_protect(r, PROT_NONE);
	return true;
}

static inline void reads_access(int signal_number, siginfo_t *info, void *context)
{
	ucontext_t *u = context;
	struct reads *r = reads_now;
	uintptr_t code = (uintptr_t)u->uc_mcontext.gregs[REG_RIP];
	size_t at = (uintptr_t)info->si_addr - (uintptr_t)r->base;

	if (at >= r->bytes) {
		signal(signal_number, SIG_DFL); /* it is a fault of somebody's */
		return;
	}
	reads_protect(r, PROT_READ | PROT_WRITE);
	if (u->uc_mcontext.gregs[REG_ERR] & 2) { /* it writes */
		u->uc_mcontext.gregs[REG_EFL] |= STEP_TRAP;
		return;
	}
	if (!reads_go_on(r, code, (uintptr_t)u->uc_mcontext.gregs[REG_RSP], at))
		r->reads++;
	if (reads_string(r, at, u->uc_mcontext.gregs))
		return;
	reads_count(r, at, reads_width((const uint8_t *)code), code);
	u->uc_mcontext.gregs[REG_EFL] |= STEP_TRAP;
}

static inline void reads_done(int signal_number, siginfo_t *info, void *context)
{
	(void)signal_number;
	(void)info;
	reads_protect(reads_now, PROT_NONE);
	((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~STEP_TRAP;
}
#endif

/* Whole pages. */
static inline void reads_open(struct reads *r, void *base, size_t bytes)
{
	*r = (struct reads){ .base = base, .bytes = bytes };
	r->count = calloc(bytes, sizeof(*r->count));
	r->last = calloc(bytes, sizeof(*r->last));
	r->by = calloc(bytes, sizeof(*r->by));
	assert_true(r->count && r->last && r->by);
}

static inline void reads_close(struct reads *r)
{
	free(r->count);
	free(r->last);
	free(r->by);
}

/* Somebody has written there: what is read now is new. */
static inline void reads_forget(struct reads *r, size_t from, size_t bytes)
{
	for (size_t i = from; i < from + bytes; i++) {
		if (!r->count[i])
			continue;
		r->count[i] = 0;
		memset(r->by[i], 0, sizeof(r->by[i]));
	}
}

/* From now on they are counted. */
static inline void reads_begin(struct reads *r)
{
#if READS_WORK
	struct sigaction a;

	memset(&a, 0, sizeof(a));
	a.sa_flags = SA_SIGINFO;
	a.sa_sigaction = reads_access;
	sigaction(SIGSEGV, &a, NULL);
	a.sa_sigaction = reads_done;
	sigaction(SIGTRAP, &a, NULL);
	reads_now = r;
	r->call_sp = 0;
	reads_protect(r, PROT_NONE);
#else
	(void)r;
#endif
}

static inline void reads_end(struct reads *r)
{
#if READS_WORK
	reads_protect(r, PROT_READ | PROT_WRITE);
	signal(SIGSEGV, SIG_DFL);
	signal(SIGTRAP, SIG_DFL);
#else
	(void)r;
#endif
}

/* None of these bytes was read more often than so. */
static inline void reads_check(const struct reads *r, size_t from, size_t bytes, uint32_t most,
			       const char *what)
{
	for (size_t i = from; i < from + bytes; i++)
		if (r->count[i] > most)
			fail_msg("%s: byte %zu is read %u times, by code at etext%+td, %+td", what,
				 i - from, r->count[i], (intptr_t)(r->by[i][0] - (uintptr_t)etext),
				 (intptr_t)(r->by[i][1] - (uintptr_t)etext));
}

/* Of words that are looked at again and again: none was by more instructions than so. */
static inline void reads_check_codes(const struct reads *r, size_t from, size_t bytes,
				     uint32_t most, const char *what)
{
	for (size_t i = from; i < from + bytes; i++)
		if (most < READS_CODES && r->by[i][most])
			fail_msg("%s: byte %zu is read by code at etext%+td, %+td", what, i - from,
				 (intptr_t)(r->by[i][0] - (uintptr_t)etext),
				 (intptr_t)(r->by[i][most] - (uintptr_t)etext));
}

#endif
