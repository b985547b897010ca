/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kill loop: a daemon with its store on a real file, worker processes that load it, and
 *
 *   crash [--kills N]            SIGKILL of the daemon N times at random moments: under load, while
 *                                it recovers, while it stops; of clients too; some are stopped
 *   crash --storm [--seconds N]  no kills: contexts come and go, slabs change hands, everything
 *                                is evicted and fetched, and every page that is read is verified
 *
 * Ends with 0 when every promise held. --seed repeats the choices, not the machine's timing.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libtier/base/atomic.h"
#include "libtier/base/time.h"
#include "tests/integration/crash.h"

#define READY_MS 240000
#define HANG_NS (120 * NS_PER_S) /* of one operation: far beyond every deadline in it */
#define CHECK_NS (240 * NS_PER_S)
#define CHURNERS 2u
#define FOLDER_BYTES 128

struct run {
	struct crash_board *board;
	uint64_t random, seed;
	uint32_t kills, seconds;
	bool storm;
	char folder[FOLDER_BYTES];
	char log[FOLDER_BYTES + 16];
	pid_t daemon;
	pid_t worker[CRASH_WORKERS];
	pid_t churner[CHURNERS];
	uint32_t killed, killed_early, killed_late, clients_killed, clients_stopped;
	uint64_t start_ns_max;
};

static void say_log(const struct run *r)
{
	char line[512];
	FILE *f = fopen(r->log, "r");

	if (!f)
		return;
	fseek(f, -4096, SEEK_END);
	while (fgets(line, sizeof(line), f))
		fprintf(stderr, "  log: %s", line);
	fclose(f);
}

static void fail(struct run *r, const char *what)
{
	say_log(r);
	for (uint32_t i = 0; i < CRASH_WORKERS; i++) {
		const struct crash_worker *w = &r->board->worker[i];

		fprintf(stderr, "  worker %u: %llu done, %llu refused, in %s\n", i,
			(unsigned long long)w->done, (unsigned long long)w->refused,
			w->since_ns ? crash_op_name(w->op) : "nothing");
	}
	fprintf(stderr, "  seed %llu, after %u kills\n", (unsigned long long)r->seed, r->killed);
	crash_fail("%s", what);
}

static void nap_ms(uint32_t ms)
{
	struct timespec t = time_to_timespec(ms * NS_PER_MS);

	while (nanosleep(&t, &t) && errno == EINTR)
		;
}

/* ---- children ------------------------------------------------------------------------------ */

static pid_t child(struct run *r)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid < 0)
		fail(r, "fork");
	return pid;
}

static void must_live(struct run *r, pid_t pid, const char *what)
{
	if (pid && waitpid(pid, NULL, WNOHANG) == pid)
		fail(r, what);
}

/* Workers live, and none sits in one operation for ever. */
static void watch(struct run *r)
{
	uint64_t now = time_now_ns();

	must_live(r, r->daemon, "the daemon ended by itself");
	for (uint32_t i = 0; i < CRASH_WORKERS; i++)
		must_live(r, r->worker[i], "a worker ended");
	for (uint32_t i = 0; i < CHURNERS; i++)
		must_live(r, r->churner[i], "a worker of the storm ended");
	if (atomic_load_acquire_u64(&r->board->failed))
		fail(r, "a forked child could use its parent's connection");
	for (uint32_t i = 0; i < CRASH_WORKERS; i++) {
		uint64_t since = atomic_load_acquire_u64(&r->board->worker[i].since_ns);

		if (since && since + HANG_NS < now)
			fail(r, "a worker hangs in one operation");
	}
}

/* Wait for a child that must end well, watching the others. */
static void must_end(struct run *r, pid_t pid, const char *what)
{
	uint64_t give_up = time_now_ns() + CHECK_NS;
	int status;

	while (time_now_ns() < give_up) {
		pid_t got = waitpid(pid, &status, WNOHANG);

		if (got == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0)
			return;
		if (got == pid)
			fail(r, what);
		nap_ms(2);
		watch(r);
	}
	fail(r, what);
}

static void check(struct run *r, bool idle)
{
	pid_t pid = child(r);

	if (pid == 0) {
		if (idle)
			crash_check_idle(r->board, r->storm);
		else
			crash_check(r->board);
		fflush(stdout);
		_exit(0);
	}
	must_end(r, pid, idle ? "something is left of clients that have gone" :
				"a promise was broken");
}

/* ---- the daemon ---------------------------------------------------------------------------- */

/* A program of the same build: it lies beside this one. */
static void beside_us(char path[PATH_MAX], const char *name)
{
	ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 1);
	char *slash;

	path[length < 0 ? 0 : length] = '\0';
	slash = strrchr(path, '/');
	if (!slash || slash + 1 + strlen(name) >= path + PATH_MAX)
		crash_fail("no %s beside this program", name);
	strcpy(slash + 1, name);
}

static void become_daemon(struct run *r, int out)
{
	char program[PATH_MAX], store[FOLDER_BYTES + 32], socket[160];
	int log = open(r->log, O_WRONLY | O_CREAT | O_APPEND, 0644);
	const char *argv[] = { program, "--foreground", "--set", socket, "--set", store,
			 "--set", "hbm.size=4MiB", "--set", r->storm ? "cxl.size=16MiB" :
								       "cxl.size=12MiB",
			 "--set", "nvme.size=192MiB", "--set", "nvme.buffered=yes",
			 "--set", "nvme.discard=on",
			 "--set", "put.deadline=1s", NULL };

	beside_us(program, "tierd");
	snprintf(store, sizeof(store), "store.path=%s/store", r->folder);
	snprintf(socket, sizeof(socket), "socket=%s", r->board->socket);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(out, STDOUT_FILENO);
	dup2(log, STDERR_FILENO);
	execv(program, (char *const *)(uintptr_t)argv);
	_exit(127);
}

/* Start it; returns the pipe on which it says that it is ready. */
static int launch(struct run *r)
{
	int pipes[2];

	atomic_store_release_u64(&r->board->boots, r->board->boots + 1);
	if (pipe2(pipes, O_CLOEXEC))
		fail(r, "pipe");
	r->daemon = child(r);
	if (r->daemon == 0)
		become_daemon(r, pipes[1]);
	close(pipes[1]);
	return pipes[0];
}

static void start(struct run *r)
{
	uint64_t begun = time_now_ns();
	int out = launch(r);
	struct pollfd p = { .fd = out, .events = POLLIN };
	char line[256] = "";

	if (poll(&p, 1, READY_MS) != 1 || read(out, line, sizeof(line) - 1) <= 0 ||
	    !strstr(line, "ready on"))
		fail(r, "the daemon does not start");
	close(out);
	if (time_now_ns() - begun > r->start_ns_max)
		r->start_ns_max = time_now_ns() - begun;
}

static void reap_daemon(struct run *r)
{
	waitpid(r->daemon, NULL, 0);
	r->daemon = 0;
}

static void kill_daemon(struct run *r)
{
	/* Some die while they stop: between the drain and the end. */
	if (crash_below(&r->random, 8) == 0) {
		kill(r->daemon, SIGTERM);
		usleep(crash_below(&r->random, 20000));
		r->killed_late++;
	}
	kill(r->daemon, SIGKILL);
	reap_daemon(r);
	r->killed++;
	/* Some die again while they recover. */
	while (r->killed < r->kills && crash_below(&r->random, 4) == 0) {
		int out = launch(r);

		usleep(crash_below(&r->random, 60000));
		kill(r->daemon, SIGKILL);
		reap_daemon(r);
		close(out);
		r->killed++;
		r->killed_early++;
	}
}

static void stop_daemon(struct run *r)
{
	uint64_t give_up = time_now_ns() + CHECK_NS;
	int status = 0;

	kill(r->daemon, SIGTERM);
	while (waitpid(r->daemon, &status, WNOHANG) == 0 && time_now_ns() < give_up)
		nap_ms(5);
	if (!WIFEXITED(status) || WEXITSTATUS(status) || time_now_ns() >= give_up)
		fail(r, "the daemon does not end well");
	r->daemon = 0;
}

/* ---- clients ------------------------------------------------------------------------------- */

static void begin_workers(struct run *r)
{
	for (uint32_t i = 0; i < CRASH_WORKERS; i++) {
		r->worker[i] = child(r);
		if (r->worker[i] == 0)
			crash_work(r->board, i, r->seed * 7919 + i);
	}
	for (uint32_t i = 0; r->storm && i < CHURNERS; i++) {
		r->churner[i] = child(r);
		if (r->churner[i] == 0)
			crash_churn(r->board, r->seed * 104729 + i);
	}
}

static void end_workers(struct run *r)
{
	pid_t all[CRASH_WORKERS + CHURNERS];

	memcpy(all, r->worker, sizeof(r->worker));
	memcpy(all + CRASH_WORKERS, r->churner, sizeof(r->churner));
	memset(r->worker, 0, sizeof(r->worker)); /* they may end now */
	memset(r->churner, 0, sizeof(r->churner));
	atomic_store_release_u64(&r->board->stop, 1);
	for (uint32_t i = 0; i < CRASH_WORKERS + CHURNERS; i++)
		if (all[i])
			must_end(r, all[i], "a worker does not end");
}

/* A client with everything held is killed at a random moment of its life. */
static void kill_client(struct run *r)
{
	pid_t pid = child(r);

	if (pid == 0)
		crash_doomed(r->board, crash_random(&r->random));
	usleep(crash_below(&r->random, 40000));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	r->clients_killed++;
}

/* One worker stands still, wherever it is, while the others go on. */
static void stop_client(struct run *r)
{
	pid_t pid = r->worker[crash_below(&r->random, CRASH_WORKERS)];

	kill(pid, SIGSTOP);
	nap_ms(50 + crash_below(&r->random, 250));
	kill(pid, SIGCONT);
	r->clients_stopped++;
}

/* After a restart every worker must get something done, without anybody's help. */
static void all_go_on(struct run *r)
{
	uint64_t give_up = time_now_ns() + HANG_NS, before[CRASH_WORKERS];

	for (uint32_t i = 0; i < CRASH_WORKERS; i++)
		before[i] = atomic_load_relaxed_u64(&r->board->worker[i].done);
	for (uint32_t i = 0; i < CRASH_WORKERS; i++) {
		while (atomic_load_relaxed_u64(&r->board->worker[i].done) == before[i]) {
			if (time_now_ns() > give_up)
				fail(r, "a worker does not go on after a restart");
			nap_ms(1);
			watch(r);
		}
	}
}

/* ---- the loops ----------------------------------------------------------------------------- */

static void kill_loop(struct run *r)
{
	uint64_t told = time_now_ns();

	while (r->killed < r->kills) {
		if (crash_below(&r->random, 3) == 0)
			kill_client(r);
		if (crash_below(&r->random, 4) == 0)
			stop_client(r);
		usleep(crash_below(&r->random, 250000));
		watch(r);
		kill_daemon(r);
		usleep(crash_below(&r->random, 30000));
		start(r);
		check(r, false);
		all_go_on(r);
		if (time_now_ns() - told < 10 * NS_PER_S)
			continue;
		told = time_now_ns();
		printf("# %u of %u kills\n", r->killed, r->kills);
		fflush(stdout);
	}
}

static void storm_loop(struct run *r)
{
	uint64_t end = time_now_ns() + r->seconds * NS_PER_S;

	while (time_now_ns() < end) {
		nap_ms(200);
		watch(r);
		if (crash_below(&r->random, 10) == 0)
			kill_client(r);
		if (crash_below(&r->random, 20) == 0)
			stop_client(r);
	}
}

static void report(const struct run *r)
{
	struct crash_worker sum = { .since_ns = 0 };

	for (uint32_t i = 0; i < CRASH_WORKERS; i++) {
		const struct crash_worker *w = &r->board->worker[i];

		sum.done += w->done;
		sum.refused += w->refused;
		sum.refused_away += w->refused_away;
		sum.pages += w->pages;
		sum.durable_acks += w->durable_acks;
		sum.deletes += w->deletes;
		sum.epochs += w->epochs;
		sum.reattached += w->reattached;
		sum.stale += w->stale;
		if (w->longest_ns > sum.longest_ns) {
			sum.longest_ns = w->longest_ns;
			sum.longest_op = w->longest_op;
		}
	}
	printf("# daemon killed %u times (%u while it recovered, %u while it stopped); clients "
	       "killed %u, stopped %u\n", r->killed, r->killed_early, r->killed_late,
	       r->clients_killed, r->clients_stopped);
	printf("# %llu operations; refused %llu, and %llu with no daemon there; %llu pages "
	       "verified, %llu blocks acknowledged durable, %llu deleted, %llu epochs\n",
	       (unsigned long long)sum.done, (unsigned long long)sum.refused,
	       (unsigned long long)sum.refused_away, (unsigned long long)sum.pages,
	       (unsigned long long)sum.durable_acks, (unsigned long long)sum.deletes,
	       (unsigned long long)sum.epochs);
	printf("# after starts %llu durable and %llu deleted or unborn keys were as promised, %llu "
	       "blocks were found as prefixes\n",
	       (unsigned long long)r->board->judged[CRASH_DURABLE],
	       (unsigned long long)r->board->judged[CRASH_NEVER],
	       (unsigned long long)r->board->matched);
	printf("# re-attached %llu times, %llu reads over a dead daemon's last state; longest "
	       "operation %s, %.0f ms; slowest start %.0f ms\n",
	       (unsigned long long)sum.reattached, (unsigned long long)sum.stale,
	       crash_op_name(sum.longest_op), (double)sum.longest_ns / 1e6,
	       (double)r->start_ns_max / 1e6);
	if (r->storm)
		printf("# %llu contexts came and went, %llu of their pages verified\n",
		       (unsigned long long)r->board->churned,
		       (unsigned long long)r->board->churn_pages);
}

static void prepare(struct run *r)
{
	const char *tmp = getenv("TMPDIR");

	setlinebuf(stdout);
	r->random = r->seed * 2654435761u + 1;
	r->board = mmap(NULL, sizeof(*r->board), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (r->board == MAP_FAILED)
		crash_fail("no shared memory");
	snprintf(r->folder, sizeof(r->folder), "%.80s/tier-crash-XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(r->folder))
		crash_fail("no folder %s", r->folder);
	snprintf(r->log, sizeof(r->log), "%s/log", r->folder);
	snprintf(r->board->socket, sizeof(r->board->socket), "%.90s/s", r->folder);
	printf("# seed %llu\n", (unsigned long long)r->seed);
}

static void tidy_up(const struct run *r)
{
	char path[FOLDER_BYTES + 16];

	snprintf(path, sizeof(path), "%s/store", r->folder);
	unlink(path);
	unlink(r->log);
	unlink(r->board->socket);
	rmdir(r->folder);
}

static uint64_t count_of(const char *text)
{
	char *end;
	uint64_t n = strtoull(text, &end, 10);

	if (*end || end == text) {
		fprintf(stderr, "crash: %s is not a number\n", text);
		exit(2);
	}
	return n;
}

int main(int argc, char **argv)
{
	static const struct option options[] = { { "kills", 1, NULL, 'k' },
						 { "seconds", 1, NULL, 's' },
						 { "seed", 1, NULL, 'r' },
						 { "storm", 0, NULL, 'x' },
						 { 0 } };
	struct run r = { .kills = 24, .seconds = 60, .seed = time_now_ns() };
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 'k')
			r.kills = (uint32_t)count_of(optarg);
		else if (c == 's')
			r.seconds = (uint32_t)count_of(optarg);
		else if (c == 'r')
			r.seed = count_of(optarg);
		else if (c == 'x')
			r.storm = true;
		else
			return 2;
	}
	prepare(&r);
	start(&r);
	begin_workers(&r);
	all_go_on(&r);
	if (r.storm)
		storm_loop(&r);
	else
		kill_loop(&r);
	end_workers(&r);
	check(&r, true);
	stop_daemon(&r);
	start(&r);
	check(&r, false);
	stop_daemon(&r);
	report(&r);
	tidy_up(&r);
	return 0;
}
