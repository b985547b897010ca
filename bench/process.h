/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs that a benchmark starts: each in a session of its own, ended with us, what it says in a
 * log whose end is printed when it fails.
 */
#ifndef TIER_BENCH_PROCESS_H
#define TIER_BENCH_PROCESS_H

#include <stdint.h>
#include <sys/types.h>

struct process_files {
	const char *log; /* standard error, and output unless `output` is set */
	int input;	 /* 0 = nothing to read */
	int output;	 /* 0 = the log */
};

/*
 * Start argv[0], found in $PATH when it has no slash. It gets SIGTERM when we end.
 * Errors: those of fork(2). That it cannot be executed shows when it is waited for (status 127).
 */
int process_start(pid_t *out, const char *const argv[], const struct process_files *files);

/*
 * SIGTERM, wait; SIGKILL after a minute. 0 when it ended well or pid is not above 0, else the end
 * of the log has been printed: -EIO, -ETIMEDOUT.
 */
int process_stop(pid_t pid, const char *name, const char *log);

/* Processor time so far of one thread-group, by the scheduler's own count. */
uint64_t process_cpu_ns(pid_t pid);

/* Bytes of memory that it holds: a share of what others map too (Pss). 0 = not known. */
uint64_t process_memory(pid_t pid);

/* Whether the name stands for a program, in $PATH or by its path. */
int process_there(const char *program);

/* Print the end of a log on standard error. */
void process_tell_log(const char *log);

/* Of a word that processes share, by a futex: wait until it is not `value`; set it, wake all. */
uint32_t process_wait(uint32_t *word, uint32_t value);
void process_set(uint32_t *word, uint32_t value);

/* Two milliseconds, between two looks. */
void process_moment(void);

#endif
