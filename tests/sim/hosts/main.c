/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line of the simulated fleet.
 *
 *   sim-hosts [--hosts N]        500 seeds, as TAP (N: 2 to 8; else by the seed)
 *   sim-hosts --seed N [--trace] one seed; says what it did, shrinks it when it fails
 *   sim-hosts --long             fresh seeds until told to stop
 *   options: --seeds N, --from N, --moves N, --no-report; --pool: they have a CXL pool; --rdma:
 *   pages go by RDMA; --keep: single pages are read under standing grants, too
 *
 * Exit: 0 all held, 1 a check failed, 2 usage.
 */
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/sim/hosts/fleet.h"
#include "tests/sim/world.h"

struct options {
	uint64_t seed, from, seeds;
	uint32_t moves, hosts;
	bool one, trace, endless, quiet, pool, rdma, keep;
};

static volatile sig_atomic_t stopped;
static char dying[64];

static void stop(int number)
{
	(void)number;
	stopped = 1;
}

static void die(int number)
{
	(void)number;
	(void)!write(STDOUT_FILENO, dying, strlen(dying));
}

/* One fleet in four has a network that only delays, one in four one that is often
 * slow; in one in four tierds are. */
static struct faults faults_of(const struct options *o, uint64_t seed)
{
	bool calm = seed % 4 == 0;

	return (struct faults){
		.pool = o->pool,
		.rdma = o->rdma,
		.keep = o->keep,
		.hosts = o->hosts ? o->hosts : 2 + (uint32_t)(seed / 4 % 5),
		.lost_ppm = calm ? 0 : 10000,
		.twice_ppm = calm ? 0 : 5000,
		.order_ppm = calm ? 0 : 10000,
		.slow_ppm = calm ? 0 : seed % 4 == 1 ? 20000 : 3000,
		.damaged_ppm = calm ? 0 : 20000,
		.work_us = seed % 4 == 2 ? 400000 : 5000,
	};
}

/* Leave out chunks, halves first, as long as the run still fails. */
static uint32_t shrink(uint64_t *moves, uint32_t n, const struct faults *f, uint64_t seed)
{
	uint64_t *rest = malloc(n * sizeof(*rest));
	struct fleet_result r;

	for (uint32_t chunk = n / 2; rest && chunk; chunk /= 2)
		for (uint32_t at = 0; at + chunk <= n && !stopped;) {
			memcpy(rest, moves, at * sizeof(*rest));
			memcpy(rest + at, moves + at + chunk, (n - at - chunk) * sizeof(*rest));
			if (!fleet_run(rest, n - chunk, f, false, seed, &r)) {
				at += chunk;
				continue;
			}
			n -= chunk;
			memcpy(moves, rest, n * sizeof(*rest));
		}
	free(rest);
	return n;
}

static void tell(uint64_t seed, const struct fleet_result *r)
{
	printf("seed %llu: %llu events, %llu turns, %llu pulls, %llu blocks, %llu epochs, "
	       "%llu deletions: %s\n", (unsigned long long)seed, (unsigned long long)r->events,
	       (unsigned long long)r->turns, (unsigned long long)r->pulls,
	       (unsigned long long)r->blocks, (unsigned long long)r->raises,
	       (unsigned long long)r->deletions, r->failure[0] ? r->failure : "held");
	if (r->pooled)
		printf("%llu frames by the pool\n", (unsigned long long)r->pooled);
	if (r->read)
		printf("%llu frames by RDMA\n", (unsigned long long)r->read);
	if (r->picked)
		printf("%llu single pages\n", (unsigned long long)r->picked);
}

static bool run_seed(const struct options *o, uint64_t seed, struct fleet_result *r)
{
	static uint64_t moves[MOVES_MAX];
	struct faults f = faults_of(o, seed);
	uint64_t state = seed;
	uint32_t n = o->moves;

	snprintf(dying, sizeof(dying), "not ok 1 - seed %llu: an assertion failed\n",
		 (unsigned long long)seed);
	for (uint32_t i = 0; i < n; i++)
		moves[i] = random_next(&state);
	if (!fleet_run(moves, n, &f, o->trace, seed, r)) {
		if (o->one)
			tell(seed, r);
		return true;
	}
	if (o->quiet)
		return false;
	printf("# seed %llu fails at move %llu: %s\n", (unsigned long long)seed,
	       (unsigned long long)r->move, r->failure);
	n = shrink(moves, n, &f, seed);
	printf("# shrunk to %u moves:\n", n);
	fleet_run(moves, n, &f, true, seed, r);
	printf("# %s\n", r->failure);
	return false;
}

static int run_many(const struct options *o)
{
	struct fleet_result r;
	time_t begun = time(NULL), said = begun;
	uint64_t n = 0;

	for (; !stopped && (o->endless || n < o->seeds); n++) {
		if (!run_seed(o, o->from + n, &r)) {
			printf("not ok 1 - seed %llu (of %llu run): %s\n1..1\n",
			       (unsigned long long)(o->from + n), (unsigned long long)n + 1,
			       r.failure);
			return 1;
		}
		if (o->endless && time(NULL) > said + 5) {
			said = time(NULL);
			printf("%llu seeds, all held\n", (unsigned long long)n + 1);
			fflush(stdout);
		}
	}
	printf("ok 1 - %llu seeds from %llu on held, in %llu s\n1..1\n", (unsigned long long)n,
	       (unsigned long long)o->from, (unsigned long long)(time(NULL) - begun));
	return 0;
}

static bool parse(int argc, char **argv, struct options *o)
{
	static const struct option table[] = {
		{ "seed", required_argument, NULL, 's' },
		{ "seeds", required_argument, NULL, 'n' },
		{ "from", required_argument, NULL, 'f' },
		{ "moves", required_argument, NULL, 'm' },
		{ "hosts", required_argument, NULL, 'h' },
		{ "trace", no_argument, NULL, 't' },
		{ "long", no_argument, NULL, 'l' },
		{ "no-report", no_argument, NULL, 'q' },
		{ "pool", no_argument, NULL, 'p' },
		{ "rdma", no_argument, NULL, 'r' },
		{ "keep", no_argument, NULL, 'k' },
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
		o->hosts = c == 'h' ? (uint32_t)value : o->hosts;
		o->trace |= c == 't';
		o->quiet |= c == 'q';
		o->pool |= c == 'p';
		o->rdma |= c == 'r';
		o->keep |= c == 'k';
		o->endless |= c == 'l';
		if (c == '?')
			return false;
	}
	if (o->endless)
		o->from = (uint64_t)time(NULL) << 20;
	return optind == argc && o->moves && o->moves <= MOVES_MAX &&
	       (!o->hosts || (o->hosts >= 2 && o->hosts <= HOSTS_MAX));
}

int main(int argc, char **argv)
{
	struct options o = { .from = 1, .seeds = 500, .moves = 600 };
	struct fleet_result r;

	if (!parse(argc, argv, &o)) {
		fprintf(stderr, "usage: sim-hosts [--hosts N] [--seed N [--trace]] [--seeds N] "
				"[--from N] [--moves N] [--long] [--no-report] [--pool] "
				"[--rdma] [--keep]\n");
		return 2;
	}
	signal(SIGINT, stop);
	signal(SIGTERM, stop);
	signal(SIGABRT, die);
	return o.one ? !run_seed(&o, o.seed, &r) : run_many(&o);
}
