/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tierd of one's own: started on a socket and a store in a directory, watched, stopped.
 * Benchmarks and the demo never talk to a daemon that somebody else uses.
 */
#ifndef TIER_BENCH_SERVICE_H
#define TIER_BENCH_SERVICE_H

#include <stdint.h>
#include <sys/types.h>

#include "bench/process.h"
#include "tier.h"

#define SERVICE_PATH_BYTES 1024u

struct service_options {
	const char *tierd;  /* the program */
	const char *dir;    /* for socket, store and log; must be there */
	uint64_t hbm_bytes; /* 0 = no such tier */
	uint64_t cxl_bytes;
	uint64_t nvme_bytes;	/* of a new store; 0 = memory only */
	const char *const *set; /* further "key=value", NULL at the end; may be NULL */
};

struct service {
	pid_t pid;
	char socket[SERVICE_PATH_BYTES];
	char store[SERVICE_PATH_BYTES];
	char log[SERVICE_PATH_BYTES];
	uint64_t started_ns; /* CLOCK_MONOTONIC: when it was started, */
	uint64_t ready_ns;   /* and when it answered */
};

/*
 * Start it and wait until it answers; it ends with us. What it says on standard error goes to the
 * log, whose end is printed when it does not come up. tick (may be NULL) is called while waiting.
 * Errors: -ENOENT no such program, -ECHILD it ended, -ETIMEDOUT.
 */
int service_start(struct service *s, const struct service_options *options, void (*tick)(void));

/* SIGTERM, wait; SIGKILL after a minute. 0 when it ended well, else -EIO, -ETIMEDOUT. */
int service_stop(struct service *s);

/* Processor time that all its threads have used. */
uint64_t service_cpu_ns(const struct service *s);

/* Print the end of its log. */
void service_tell_log(const struct service *s);

/* A new directory under base (NULL = $TMPDIR, else /tmp); free with service_dir_remove. */
int service_dir_make(char **out, const char *base);
/* Removes the directory with all that is in it, and frees its name. */
void service_dir_remove(char *dir);

/* Ask the daemon and give back a member of its answer as a number; path "tiers.1.used". */
int service_number(tier *t, const char *verb, const char *path, double *out);

/* One of the daemon's counters, by its name in `tierctl stat`. */
int service_metric(tier *t, const char *name, uint64_t *out);

#endif
