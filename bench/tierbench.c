/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierbench: one driver for all figures that the project is judged by, each measured beside its
 * peer in the same run. `tierbench demo` is the replay behind `make demo`.
 */
#include <errno.h>
#include <getopt.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/demo.h"
#include "libtier/base/cleanup.h"
#include "libtier/base/units.h"

static const struct bench_workload workloads[] = {
	{ "lease", "lease + read + release of random pages, alone, in lists, by two clients",
	  bench_lease },
	{ "match", "look-up of keys, flat from 10^4 to 10^7 blocks", bench_match },
	{ "ring", "round trip of a request, an idle daemon", bench_ring },
	{ "scale", "1 to 255 clients that ask as fast as they are answered", bench_scale },
	{ "recorded", "the trace's requests by 1 to 255 clients, in order and by the clock",
	  bench_recorded },
	{ "gather", "random 64 KiB pages copied from CXL, beside memcpy", bench_gather },
	{ "commit", "a put's copy, beside the checksum alone where the bytes lie", bench_commit },
	{ "nvme", "random and streaming reads from NVMe, beside fio", bench_nvme },
	{ "demand", "demand reads beside staging and write-back, also when those yield",
	  bench_demand },
	{ "durable", "a durable put beside others, against the same bytes written and flushed",
	  bench_durable },
	{ "clean", "overwriting a store that is 70, 85, 95% full; reads after that", bench_clean },
	{ "byteseconds", "model: fast memory held for returns of users, late against at once",
	  bench_byteseconds },
	{ "plan", "known accesses, beside offline Belady; two paths into HBM", bench_plan },
	{ "turns", "ITME's turn sweep, model and real, beside conventional offload", bench_turns },
	{ "stream", "a prefix from NVMe layer by layer, beside fio", bench_stream },
	{ "sparse", "sparse decode: a few pages a step of what is mostly on NVMe", bench_sparse },
	{ "scan", "a hot set beside a stream of ten times the CXL tier", bench_scan },
	{ "index", "index memory, write amplification on the trace", bench_index },
	{ "recover", "opening a full store again: seconds per TiB, first hit", bench_recover },
	{ "upgrade", "the daemon started anew under a client: longest answer, pages kept",
	  bench_upgrade },
	{ "live", "a swap of policies, one more client, on a context of 10^6 pages",
	  bench_live },
	{ "replay", "hits of every eviction policy on the trace, beside the optimum",
	  bench_replay },
	{ "quota", "hits that a steady tenant loses beside a scan", bench_quota },
	{ "reserve", "room reserved for outputs, beside reserving the worst case", bench_reserve },
	{ "churn", "usable space over a simulated day; memory handed on under leases",
	  bench_churn },
	{ "hosts", "a prefix from another host, beside a socket, OpenSSL, Redis", bench_hosts },
	{ "beside", "model: single pages from NVMe while two hosts pull", bench_beside },
	{ "homes", "model: who holds what, in a fleet of 1,000 hosts", bench_homes },
	{ "fleet", "model: what 4 to 16 hosts find together on the trace, beside one",
	  bench_fleet },
	{ "objects", "files under tier run beside plain ones; weights of 3.3 times the memory",
	  bench_objects },
	{ "peers", "the same blocks in Redis, memcached, Mooncake Store, LMCache, files",
	  bench_peers },
	{ "peers-clients", "1 to 8 clients of each of these that has a server",
	  bench_peers_clients },
	{ "peers-flash", "twice what memory holds: extstore, LMCache's disk, files by O_DIRECT",
	  bench_peers_flash },
	{ "peers-restart", "the first hit after a restart: Redis' file, extstore, LMCache's disk",
	  bench_peers_restart },
};

#define SHMEM_HUGE "/sys/kernel/mm/transparent_hugepage/shmem_enabled"
#define TRACE "bench/data/mooncake-conversation.jsonl.gz"
#define WORKLOADS (sizeof(workloads) / sizeof(workloads[0]))

static int usage(void)
{
	fputs("usage: tierbench [options] [WORKLOAD...]\n"
	      "       tierbench demo --help\n\n"
	      "Measures tier beside the limits of this machine. Workloads (default: all):\n",
	      stdout);
	for (size_t i = 0; i < WORKLOADS; i++)
		printf("  %-11s %s\n", workloads[i].name, workloads[i].help);
	fputs("\n  --only 'NAME ...'  these workloads\n"
	      "  --json FILE        write one row a figure\n"
	      "  --dir DIR          where stores and sockets lie meanwhile ($TMPDIR, /tmp)\n"
	      "  --quick            smaller sizes: no 10^7, less data\n"
	      "  --rounds N         rounds of each figure, at least 7 (default 9)\n"
	      "  --tierd FILE       the daemon (default: beside this program)\n"
	      "  --trace FILE       the request trace (default: the project's); replay: also\n"
	      "                     synth:NAME[:SEED], a made-up one (a wrong NAME lists them)\n"
	      "  --real             replay: also through a daemon, every byte verified\n",
	      stdout);
	return 0;
}

/* getopt has said what it did not like. */
static int misused(void)
{
	fputs("tierbench: see tierbench --help\n", stderr);
	return 2;
}

/* A file beside this program, or in the source tree that it was built in. */
static char *beside(const char *name)
{
	char path[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
	char *out, *slash;

	if (length < 0)
		return NULL;
	path[length] = '\0';
	slash = strrchr(path, '/');
	if (!slash)
		return NULL;
	*slash = '\0';
	return asprintf(&out, "%s/%s", path, name) < 0 ? NULL : out;
}

static bool within(const char *folder, const char *name)
{
	char path[PATH_MAX];

	return snprintf(path, sizeof(path), "%s/%s", folder, name) < (int)sizeof(path) &&
	       access(path, R_OK) == 0;
}

struct selection {
	bool wanted[WORKLOADS];
	bool any;
};

static int want(struct selection *s, const char *names)
{
	while (*names) {
		size_t length = strcspn(names, " ,"), i;

		for (i = 0; i < WORKLOADS && length; i++)
			if (strlen(workloads[i].name) == length &&
			    memcmp(workloads[i].name, names, length) == 0)
				break;
		if (i == WORKLOADS) {
			fprintf(stderr,
				"tierbench: no workload \"%.*s\"; tierbench --help lists "
				"them\n",
				(int)length, names);
			return -EINVAL;
		}
		if (length)
			s->wanted[i] = s->any = true;
		names += length + (names[length] != '\0');
	}
	return 0;
}

struct arguments {
	struct bench bench;
	struct selection selection;
	const char *json;
	char *tierd, *top, *built, *trace;
};

static int take_rounds(struct arguments *a, const char *text)
{
	char *end;
	long n = strtol(text, &end, 10);

	if (*end || n < (long)SAMPLE_ROUNDS_MIN || n > (long)SAMPLE_ROUNDS_MAX) {
		fprintf(stderr, "tierbench: --rounds %s: write a number from %u to %u\n", text,
			SAMPLE_ROUNDS_MIN, SAMPLE_ROUNDS_MAX);
		return -EINVAL;
	}
	a->bench.rounds = (uint32_t)n;
	return 0;
}

/* The figures are written at the end of a long run: that they cannot be is said before it. */
static int take_json(struct arguments *a, const char *path)
{
	char *copy = strdup(path);
	int error = !copy ? -ENOMEM : access(dirname(copy), W_OK) ? -errno : 0;

	free(copy);
	if (error)
		fprintf(stderr, "tierbench: --json %s: %s\n", path, strerror(-error));
	a->json = path;
	return error;
}

/* Returns 0, or the exit status + 1. */
static int take_arguments(struct arguments *a, int argc, char **argv)
{
	static const struct option options[] = {
		{ "only", 1, NULL, 'o' },   { "json", 1, NULL, 'j' },  { "dir", 1, NULL, 'd' },
		{ "quick", 0, NULL, 'q' },  { "tierd", 1, NULL, 't' }, { "trace", 1, NULL, 'r' },
		{ "rounds", 1, NULL, 'n' }, { "real", 0, NULL, 'R' },  { "help", 0, NULL, 'h' },
		{ 0 },
	};

	int c, error = 0;

	while (!error && (c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 'o')
			error = want(&a->selection, optarg);
		else if (c == 'j')
			error = take_json(a, optarg);
		else if (c == 'd')
			a->bench.dir = optarg;
		else if (c == 'q')
			a->bench.quick = true;
		else if (c == 'R')
			a->bench.real = true;
		else if (c == 't')
			a->bench.tierd = optarg;
		else if (c == 'r')
			a->bench.trace = optarg;
		else if (c == 'n')
			error = take_rounds(a, optarg);
		else
			return 1 + (c == 'h' ? usage() : misused());
	}
	for (; optind < argc && !error; optind++)
		error = want(&a->selection, argv[optind]);
	return error ? 1 + 2 : 0;
}

static void head(void)
{
	FILE *load CLEANUP_FCLOSE = fopen("/proc/loadavg", "re");
	FILE *huge CLEANUP_FCLOSE = fopen(SHMEM_HUGE, "re");
	char date[32], shmem[128] = "unknown", text[UNITS_TEXT_BYTES];
	time_t now = time(NULL);
	struct utsname u;
	struct tm tm;
	double busy = 0;

	gmtime_r(&now, &tm);
	strftime(date, sizeof(date), "%Y-%m-%d %H:%M UTC", &tm);
	if (uname(&u))
		memset(&u, 0, sizeof(u));
	if (huge && fgets(shmem, sizeof(shmem), huge))
		shmem[strcspn(shmem, "\n")] = '\0';
	printf("tierbench %s, %s, Linux %s %s, %ld cores, %s available; shmem huge pages: %s\n",
	       tier_version(), date, u.release, u.machine, sysconf(_SC_NPROCESSORS_ONLN),
	       units_print_bytes(text, bench_memory_available()), shmem);
	if (load && fscanf(load, "%lf", &busy) == 1 && busy > 0.5)
		printf("the machine is not idle (load %.2f): expect wide intervals\n", busy);
	printf("medians; 95 %% intervals of what the goal is about; rounds beside their peers\n\n");
	bench_print_head(stdout);
	fflush(stdout);
}

static int run(struct arguments *a)
{
	struct bench_results results = { 0 };
	int status = 0, error;

	a->bench.results = &results;
	tick_calibrate(&a->bench.tick);
	head();
	for (size_t i = 0; i < WORKLOADS; i++) {
		if (a->selection.any && !a->selection.wanted[i])
			continue;
		if (workloads[i].run(&a->bench)) {
			fprintf(stderr, "tierbench: %s could not be measured\n", workloads[i].name);
			status = 1;
		}
	}
	error = a->json ? bench_write_json(&results, a->json) : 0;
	if (error)
		fprintf(stderr, "tierbench: %s: %s\n", a->json, strerror(-error));
	bench_results_free(&results);
	return status || error;
}

/*
 * The work is done in a child, in a directory that is removed whatever becomes of it: a run that is
 * interrupted leaves neither daemon nor store behind. Returns the exit status.
 */
static int supervise(struct arguments *a)
{
	sigset_t set, old;
	char *dir, *shm;
	int error = service_dir_make(&dir, a->bench.dir), got, status = 1 << 8;
	pid_t pid;

	if (error) {
		fprintf(stderr, "tierbench: a temporary directory: %s\n", strerror(-error));
		return 1;
	}
	a->bench.dir = dir;
	a->bench.shm = service_dir_make(&shm, "/dev/shm") ? NULL : shm;
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, &old);
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		sigprocmask(SIG_SETMASK, &old, NULL);
		exit(run(a));
	}
	while (pid > 0 && waitpid(pid, &status, WNOHANG) == 0)
		if (sigwait(&set, &got) == 0 && got != SIGCHLD)
			kill(pid, SIGTERM);
	service_dir_remove(dir);
	service_dir_remove(shm);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(int argc, char **argv)
{
	struct arguments a = { .bench.rounds = 9 };
	int status;

	if (argc > 1 && strcmp(argv[1], "demo") == 0)
		return demo_main(argc - 1, argv + 1);
	if (argc > 1 && strcmp(argv[1], "objects-calls") == 0)
		return bench_objects_calls(argc - 1, argv + 1);
	status = take_arguments(&a, argc, argv);
	if (status)
		return status - 1;
	a.tierd = beside("tierd");
	a.top = beside("../..");
	a.built = beside("..");
	if (a.top && !within(a.top, TRACE)) {
		free(a.top);
		a.top = strdup("."); /* from the top folder */
	}
	if (!a.top || !a.built || !a.tierd || asprintf(&a.trace, "%s/%s", a.top, TRACE) < 0)
		return 1;
	a.bench.top = a.top;
	a.bench.built = a.built;
	if (!a.bench.tierd)
		a.bench.tierd = a.tierd;
	if (!a.bench.trace)
		a.bench.trace = a.trace;
	status = supervise(&a);
	free(a.tierd);
	free(a.top);
	free(a.built);
	free(a.trace);
	return status;
}
