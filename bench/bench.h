/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a workload of tierbench gets, and the table of workloads. Each starts its own daemon in its
 * own directory, measures its figures in rounds beside their peers, and leaves rows.
 */
#ifndef TIER_BENCH_BENCH_H
#define TIER_BENCH_BENCH_H

#include <stdbool.h>

#include "bench/result.h"
#include "bench/service.h"
#include "bench/tick.h"

struct bench {
	const char *tierd; /* the program */
	const char *dir;   /* parent of the temporary directories; NULL = $TMPDIR */
	const char *shm;   /* the same on tmpfs; NULL = there is none */
	const char *top;   /* the source tree */
	const char *built; /* where it is built: `make setup-peers` leaves its programs there */
	const char *trace; /* bench/data/... */
	bool quick;
	bool real; /* replay: also through a daemon */
	uint32_t rounds;
	struct tick tick;
	struct bench_results *results;
};

struct bench_workload {
	const char *name;
	const char *help;
	/* 0, or a negative errno when it could not be run; a figure that is short is no error. */
	int (*run)(struct bench *b);
};

int bench_lease(struct bench *b);
int bench_match(struct bench *b);
int bench_ring(struct bench *b);
int bench_gather(struct bench *b);
int bench_commit(struct bench *b);
int bench_nvme(struct bench *b);
int bench_demand(struct bench *b);
int bench_durable(struct bench *b);
int bench_index(struct bench *b);
int bench_recover(struct bench *b);
int bench_upgrade(struct bench *b);
int bench_live(struct bench *b);
int bench_clean(struct bench *b);
int bench_byteseconds(struct bench *b);
int bench_plan(struct bench *b);
int bench_turns(struct bench *b);
int bench_replay(struct bench *b);
int bench_scale(struct bench *b);
int bench_recorded(struct bench *b);
int bench_stream(struct bench *b);
int bench_sparse(struct bench *b);
int bench_scan(struct bench *b);
int bench_quota(struct bench *b);
int bench_reserve(struct bench *b);
int bench_churn(struct bench *b);
int bench_peers(struct bench *b);
int bench_peers_clients(struct bench *b);
int bench_peers_flash(struct bench *b);
int bench_peers_restart(struct bench *b);
int bench_hosts(struct bench *b);
int bench_homes(struct bench *b);
int bench_beside(struct bench *b);
int bench_fleet(struct bench *b);
int bench_objects(struct bench *b);
/* tierbench objects-calls WHAT FOLDER: bench_objects runs it as a program that knows no tier. */
int bench_objects_calls(int argc, char **argv);

/* Say what is being done, on standard error. */
void bench_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

struct trace;

/* The trace, its first requests (0 = all). Errors: trace_open's, said. */
int bench_trace(struct trace **out, const struct bench *b, size_t requests_max);

/* Pass on a failure of the library with its text. */
int bench_failed(const char *what, int error);

/* Bytes of memory that can be had now without swapping. */
uint64_t bench_memory_available(void);

/* A cheap random sequence of one's own. */
static inline uint64_t bench_random(uint64_t *x)
{
	*x ^= *x << 13;
	*x ^= *x >> 7;
	*x ^= *x << 17;
	return *x;
}

static inline uint32_t bench_random_below(uint64_t *x, uint32_t below)
{
	return (uint32_t)((bench_random(x) >> 32) * below >> 32);
}

#endif
