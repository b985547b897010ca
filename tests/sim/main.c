/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulator's command line.
 *
 *   sim                      10,000 seeds, as TAP
 *   sim --seed N [--trace]   one seed; says what it did, shrinks it when it fails
 *   sim --long               until told to stop, from a fresh seed on; seeds per second
 *   options: --seeds N, --from N, --moves N, --no-report; --tight: all worlds have little memory,
 *   not one in eight (what some planted bugs need to be met soon); --wide: unusual worlds (wide.c);
 *   --drives 2: a store of two drives
 *
 * Exit: 0 all held, 1 a check failed, 2 usage.
 */
#include <errno.h>
#include <getopt.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "tests/sim/world.h"
#include <stdio.h>

struct options {
	uint64_t seed, from, seeds;
	uint32_t moves, drives;
	bool one, trace, endless, quiet, tight, wide;
};

static volatile sig_atomic_t stopped;

static char dying[64]; /* what is said when an assertion fails: which seed it was */

/* Ends with the seed at hand, or with what was shrunk so far. A second SIGINT ends at once; a
 * second SIGTERM changes nothing: timeout(1) sends it to its command and again to the group. */
static void stop(int number)
{
	stopped = 1;
	if (number == SIGINT)
		signal(SIGINT, SIG_DFL);
}

static void die(int signal)
{
	(void)signal;
	(void)!write(STDOUT_FILENO, dying, strlen(dying));
}

/* ---- a core that does not come back ------------------------------------------------------- */

#define SPIN_S 3 /* of processor time in one event: they take less than a ms each */

static struct {
	struct world_result *volatile result; /* of the world that runs */
	volatile uint64_t events;             /* at the last look */
	volatile int seconds;                 /* since that many */
	sigjmp_buf out;
} watch;

/* Each second of processor time; a machine that is busy elsewhere makes it come later. */
static void look(int signal)
{
	struct world_result *r = watch.result;

	(void)signal;
	if (!r || r->events != watch.events) {
		watch.events = r ? r->events : 0;
		watch.seconds = 0;
	} else if (++watch.seconds >= SPIN_S) {
		siglongjmp(watch.out, 1);
	}
}

static void watch_begin(void)
{
	const struct itimerval each = { { 1, 0 }, { 1, 0 } };

	signal(SIGPROF, look);
	setitimer(ITIMER_PROF, &each, NULL);
}

/* world_run; a core that spins for ever is a failure like others. Its world is left as it is. */
static int run_watched(const struct move *moves, uint32_t n, const struct world_faults *f,
		       bool trace, struct world_result *r)
{
	int rc;

	if (sigsetjmp(watch.out, 1)) {
		watch.result = NULL;
		snprintf(r->failure, sizeof(r->failure),
			 "I8: the core spins: event %llu does not end",
			 (unsigned long long)r->events);
		return -EDEADLK;
	}
	watch.seconds = 0;
	watch.result = r;
	rc = world_run(moves, n, f, trace, r);
	watch.result = NULL;
	return rc;
}

/* ---- seeds -------------------------------------------------------------------------------- */

static struct world_faults faults_of(const struct options *o, uint64_t seed)
{
	/* One world in four is without device faults, one in four without crashes; in one in eight
	 * flushes fail often. */
	struct world_faults f = {
		.read_ppm = seed % 4 ? 5000 : 0,
		.write_ppm = seed % 4 ? 5000 : 0,
		.flush_ppm = seed % 8 == 6 ? 150000 : seed % 4 ? 20000 : 0,
		.direct_ppm = seed % 4 ? 100000 : 0,
		.catalog_ppm = seed % 4 ? 50000 : 0,
		.voids = seed % 16 == 5 || seed % 16 == 12,
		.crash_ppm = seed % 4 == 1 ? 0 : 800,
		.death_ppm = 1500,
		.device_ppm = seed % 4 ? 1000 : 0,
		.small_store = seed % 3 == 0,
		.wide = o->wide ? world_shape(seed) : 0,
		.drives = o->drives,
	};

	if (seed % 8 != 2 && !o->tight)
		return f;
	/* One in eight begins with little memory that one context fills, and stays up for long. */
	f.tight = true;
	f.flat = 1 + seed / 8 % 3;
	f.fill[seed / 24 % 2] = 128 + seed * 37 % 128;
	f.fill[!(seed / 24 % 2)] = seed / 48 % 3 * 24;
	f.crash_ppm = seed / 8 % 4 == 3 ? 200 : 0;
	return f;
}

static bool fails(const struct move *moves, uint32_t n, const struct world_faults *f,
		  struct world_result *r)
{
	return run_watched(moves, n, f, false, r) != 0;
}

/* Leave out chunks, halves first, as long as the run still fails (Zeller's ddmin, greedy). */
static uint32_t shrink(struct move *moves, uint32_t n, const struct world_faults *f)
{
	struct move *rest = malloc(n * sizeof(*rest));
	struct world_result r;

	for (uint32_t chunk = n / 2; rest && chunk; chunk /= 2)
		for (uint32_t at = 0; at + chunk <= n && !stopped;) {
			memcpy(rest, moves, at * sizeof(*rest));
			memcpy(rest + at, moves + at + chunk, (n - at - chunk) * sizeof(*rest));
			if (!fails(rest, n - chunk, f, &r)) {
				at += chunk;
				continue;
			}
			n -= chunk;
			memcpy(moves, rest, n * sizeof(*rest));
		}
	free(rest);
	return n;
}

static void report(uint64_t seed, struct move *moves, uint32_t n, const struct world_faults *f)
{
	struct world_result r;
	uint32_t left;

	int rc = run_watched(moves, n, f, false, &r);

	printf("# seed %llu fails at move %llu: %s\n", (unsigned long long)seed,
	       (unsigned long long)r.move, r.failure);
	if (rc == -EDEADLK) { /* each try would take as long, and keep its memory */
		run_watched(moves, (uint32_t)r.move + 1, f, true, &r);
		printf("\n# %s\n", r.failure);
		return;
	}
	left = shrink(moves, (uint32_t)r.move + 1, f);
	printf("# shrunk from %llu to %u moves:\n", (unsigned long long)r.move + 1, left);
	run_watched(moves, left, f, true, &r);
	printf("# %s\n", r.failure);
}

static void tell(uint64_t seed, const struct world_result *r)
{
	printf("seed %llu: %llu events, %llu commits, %llu fetches, %llu streams (%llu layers "
	       "released), %llu leases, %llu pins, "
	       "%llu deletions, %llu epochs, %llu deaths, %llu crashes, %llu pauses; "
	       "%llu pages evicted, %llu found leased, %llu pages moved, "
	       "%llu moves given up, %llu bytes parked, %llu reservations, %llu pages drawn, "
	       "%llu runs, %llu segments dropped, %llu refused; "
	       "%llu parked, %llu blocks loaded for plans, %llu conversations staged, "
	       "%llu bytes brought ahead were used, %llu not; "
	       "%llu cleaned (%llu blocks, %llu tombstones), %llu discarded, "
	       "%llu bytes reinserted, %llu blocks "
	       "proved, %llu flushes failed; %llu bytes read into HBM, %llu copied there, %llu "
	       "times the other path, %llu blocks repaired; %llu slabs lent, %llu of them "
	       "left when asked for, %llu pages put in place; "
	       "%llu drives drained, %llu added: %s\n",
	       (unsigned long long)seed, (unsigned long long)r->events,
	       (unsigned long long)r->commits, (unsigned long long)r->fetches,
	       (unsigned long long)r->streams, (unsigned long long)r->layers,
	       (unsigned long long)r->leases, (unsigned long long)r->pins,
	       (unsigned long long)r->deletes, (unsigned long long)r->epochs,
	       (unsigned long long)r->deaths, (unsigned long long)r->crashes,
	       (unsigned long long)r->quiets, (unsigned long long)r->evicted,
	       (unsigned long long)r->quarantined, (unsigned long long)r->moved_pages,
	       (unsigned long long)r->moves_failed, (unsigned long long)r->parked,
	       (unsigned long long)r->reservations, (unsigned long long)r->drawn,
	       (unsigned long long)r->runs,
	       (unsigned long long)r->segments_dropped, (unsigned long long)r->refused,
	       (unsigned long long)r->parked_prefetches,
	       (unsigned long long)r->plan_loads, (unsigned long long)r->staged_conversations,
	       (unsigned long long)r->staged_used, (unsigned long long)r->staged_wasted,
	       (unsigned long long)r->cleaned,
	       (unsigned long long)r->moved, (unsigned long long)r->carried,
	       (unsigned long long)r->discards, (unsigned long long)r->reinserted,
	       (unsigned long long)r->proved,
	       (unsigned long long)r->flushes_failed, (unsigned long long)r->direct,
	       (unsigned long long)r->copied, (unsigned long long)r->path_failed,
	       (unsigned long long)r->repaired, (unsigned long long)r->loans,
	       (unsigned long long)r->recalled, (unsigned long long)r->placed,
	       (unsigned long long)r->drained,
	       (unsigned long long)r->drives_added, r->failure[0] ? r->failure : "held");
}

static bool run_seed(const struct options *o, uint64_t seed, struct move *moves,
		     struct world_result *r)
{
	struct world_faults f = faults_of(o, seed);

	snprintf(dying, sizeof(dying), "not ok 1 - seed %llu: an assertion failed\n",
		 (unsigned long long)seed);
	world_moves(moves, o->moves, seed, &f);
	if (!run_watched(moves, o->moves, &f, o->trace, r)) {
		if (o->one)
			tell(seed, r);
		return true;
	}
	if (!o->quiet)
		report(seed, moves, o->moves, &f);
	return false;
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int run_many(const struct options *o, struct move *moves)
{
	double begin = seconds(), said = begin;
	struct world_result r;
	uint64_t n = 0;

	for (; !stopped && (o->endless || n < o->seeds); n++) {
		if (!run_seed(o, o->from + n, moves, &r)) {
			printf("not ok 1 - seed %llu (of %llu run): %s\n1..1\n",
			       (unsigned long long)(o->from + n), (unsigned long long)n + 1,
			       r.failure);
			return 1;
		}
		if (o->endless && seconds() - said > 5) {
			said = seconds();
			printf("%llu seeds, %.0f a second, all held\n", (unsigned long long)n + 1,
			       (double)(n + 1) / (said - begin));
			fflush(stdout);
		}
	}
	printf("ok 1 - %llu seeds from %llu on held, %.0f a second\n1..1\n", (unsigned long long)n,
	       (unsigned long long)o->from, (double)n / (seconds() - begin));
	return 0;
}

static int parse(int argc, char **argv, struct options *o)
{
	static const struct option table[] = {
		{ "seed", required_argument, NULL, 's' }, { "seeds", required_argument, NULL, 'n' },
		{ "from", required_argument, NULL, 'f' }, { "moves", required_argument, NULL, 'm' },
		{ "trace", no_argument, NULL, 't' },	  { "long", no_argument, NULL, 'l' },
		{ "no-report", no_argument, NULL, 'q' },  { "tight", no_argument, NULL, 'w' },
		{ "wide", no_argument, NULL, 'b' },	  { "drives", required_argument, NULL,
			'd' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", table, NULL)) != -1) {
		uint64_t value = optarg ? strtoull(optarg, NULL, 0) : 0;

		o->seed = c == 's' ? value : o->seed;
		o->one |= c == 's';
		o->seeds = c == 'n' ? value : o->seeds;
		o->from = c == 'f' ? value : o->from;
		o->moves = c == 'm' ? (uint32_t)value : o->moves;
		o->trace |= c == 't';
		o->quiet |= c == 'q';
		o->tight |= c == 'w';
		o->wide |= c == 'b';
		o->drives = c == 'd' ? (uint32_t)value : o->drives;
		if (c == 'l') {
			o->endless = true;
			o->from = (uint64_t)time(NULL) << 20;
		}
		if (c == '?')
			return -EINVAL;
	}
	return optind == argc && o->moves && o->drives <= 2 ? 0 : -EINVAL;
}

int main(int argc, char **argv)
{
	struct options o = { .from = 1, .seeds = 10000, .moves = 2000 };
	struct world_result r;
	struct move *moves;
	int rc;

	if (parse(argc, argv, &o)) {
		fprintf(stderr, "usage: sim [--seed N [--trace]] [--seeds N] [--from N] "
				"[--moves N] [--long] [--no-report] [--tight] [--wide]\n");
		return 2;
	}
	signal(SIGINT, stop);
	signal(SIGTERM, stop);
	signal(SIGABRT, die);
	watch_begin();
	moves = malloc(o.moves * sizeof(*moves));
	if (!moves)
		return 2;
	rc = o.one ? !run_seed(&o, o.seed, moves, &r) : run_many(&o, moves);
	free(moves);
	return rc;
}
