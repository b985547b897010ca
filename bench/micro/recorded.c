/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recorded: the production trace, played by 1 to 255 clients, each a process with every n-th of its
 * requests. An event is a request's time, its blocks, and the earlier request that it depends on:
 * the one with which it shares the longest prefix, which had to be stored before it could hit.
 *
 * In order: each client goes on when its last request is done and when what the next depends on is.
 * By the clock: requests arrive as they were recorded, as much faster as makes the rate half of
 * what was reached in order, whoever is late; a request takes from then until it is done.
 * A request matches its prefix, reads and verifies what hits, and puts the rest (bench/trace).
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/trace/engine.h"
#include "libtier/base/atomic.h"
#include "libtier/base/time.h"

#define CLIENTS_MAX 255u
#define REQUESTS 1500u
#define REQUESTS_QUICK 400u
#define NOTHING UINT32_MAX /* it depends on no request */

struct shared {
	uint32_t ready;		 /* how many clients are, or have failed to be */
	uint32_t begun;		 /* 1: from begin_ns on */
	uint32_t failed;	 /* atomic */
	uint32_t done[REQUESTS]; /* 1 each; all, when a client fails */
	uint64_t begin_ns;
	uint64_t ended_ns[CLIENTS_MAX];
	struct hist took[CLIENTS_MAX];
	struct engine_stats stats[CLIENTS_MAX];
};

struct part {
	struct bench *bench;
	struct trace *trace;
	uint32_t *on; /* which request each depends on */
	struct service service;
	struct shared *shared;
	pid_t pid[CLIENTS_MAX];
	double speed; /* of the clock, in nanoseconds a recorded millisecond; 0 = in order */
};

struct outcome {
	double rate, service_us;
	uint64_t bad;
	struct hist took;
};

/* ---- what depends on what ------------------------------------------------------------- */

static uint32_t shared_prefix(const struct trace *t, uint32_t a, uint32_t b)
{
	const uint64_t *x = &t->id[t->request[a].id_first], *y = &t->id[t->request[b].id_first];
	uint32_t n = 0;

	while (n < t->request[a].id_count && n < t->request[b].id_count && x[n] == y[n])
		n++;
	return n;
}

/* Of equally long ones the earliest: it is the one that stored them. */
static uint32_t depends_on(const struct trace *t, uint32_t request)
{
	uint32_t best = NOTHING, longest = 0;

	for (uint32_t i = 0; i < request; i++) {
		uint32_t n = shared_prefix(t, i, request);

		if (n > longest) {
			longest = n;
			best = i;
		}
	}
	return best;
}

/* ---- a client ------------------------------------------------------------------------- */

/* When the request may begin; 0 = another client failed. */
static uint64_t wait_for(struct part *p, uint32_t request)
{
	struct shared *s = p->shared;
	uint32_t on = p->on[request];
	uint64_t at, now;

	if (!p->speed) {
		if (on != NOTHING)
			process_wait(&s->done[on], 0);
		return atomic_load_acquire_u32(&s->failed) ? 0 : time_now_ns();
	}
	at = s->begin_ns + (uint64_t)((double)(p->trace->request[request].timestamp_ms -
					       p->trace->request[0].timestamp_ms) *
				      p->speed);
	now = time_now_ns();
	if (now < at) {
		const struct timespec pause = time_to_timespec(at - now);

		nanosleep(&pause, NULL);
	}
	return at;
}

static int play(struct part *p, struct engine *e, uint32_t number, uint32_t clients)
{
	struct shared *s = p->shared;

	for (uint32_t i = number; i < p->trace->request_count; i += clients) {
		uint64_t from = wait_for(p, i);
		int error = from ? engine_serve(e, p->trace, &p->trace->request[i]) : -ECANCELED;

		if (error)
			return error;
		hist_record(&s->took[number], time_now_ns() - from);
		process_set(&s->done[i], 1);
	}
	s->ended_ns[number] = time_now_ns();
	return 0;
}

static int client(struct part *p, uint32_t number, uint32_t clients)
{
	const struct engine_settings set = {
		.socket = p->service.socket,
		.context = "recorded",
		.layers = 1,
		.groups = 1,
		.page_bytes = 4096,
		.sidecar_bytes = 4096,
		.top = 1,
		.staging_bytes = 4 << 20,
		.tick = p->bench->tick,
	};
	struct shared *s = p->shared;
	struct engine *e = NULL;
	int error = engine_open(&e, &set, &s->stats[number], number);

	process_set(&s->ready, number + 1);
	if (!error) {
		process_wait(&s->begun, 0);
		error = play(p, e, number, clients);
	}
	if (error) {
		if (error != -ECANCELED) /* what ended it is told by another one */
			bench_failed("recorded: a client", error);
		atomic_store_release_u32(&s->failed, 1);
		for (uint32_t i = 0; i < REQUESTS; i++)
			process_set(&s->done[i], 1);
	}
	engine_close(e);
	return error != 0;
}

/* ---- a run ---------------------------------------------------------------------------- */

/* One after the other: an engine that starts is not what is measured. */
static int start_clients(struct part *p, uint32_t clients)
{
	struct shared *s = p->shared;

	fflush(NULL);
	for (uint32_t i = 0; i < clients; i++) {
		hist_init(&s->took[i]);
		p->pid[i] = fork();
		if (p->pid[i] == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			_exit(client(p, i, clients));
		}
		if (p->pid[i] < 0)
			return -errno;
		process_wait(&s->ready, i);
	}
	return atomic_load_acquire_u32(&s->failed) ? -ECHILD : 0;
}

static int end_clients(struct part *p, uint32_t clients, bool kill_them)
{
	int error = 0;

	for (uint32_t i = 0; i < clients; i++) {
		int status = 0;

		if (p->pid[i] <= 0)
			continue;
		if (kill_them)
			kill(p->pid[i], SIGKILL);
		waitpid(p->pid[i], &status, 0);
		p->pid[i] = 0;
		if (status)
			error = -ECHILD;
	}
	return error;
}

static int play_all(struct part *p, uint32_t clients, struct outcome *o)
{
	struct shared *s = p->shared;
	uint64_t cpu, ended = 0, requests = p->trace->request_count;
	int error;

	memset(s, 0, sizeof(*s));
	error = start_clients(p, clients);
	cpu = service_cpu_ns(&p->service);
	s->begin_ns = time_now_ns();
	process_set(&s->begun, 1);
	if (end_clients(p, clients, error != 0) && !error)
		error = -ECHILD;
	if (error)
		return error;
	cpu = service_cpu_ns(&p->service) - cpu;
	hist_init(&o->took);
	for (uint32_t i = 0; i < clients; i++) {
		hist_merge(&o->took, &s->took[i]);
		ended = s->ended_ns[i] > ended ? s->ended_ns[i] : ended;
		o->bad += s->stats[i].bad_pages;
	}
	o->rate = (double)requests / ((double)(ended - s->begin_ns) / 1e9);
	o->service_us = (double)cpu / (double)requests / 1e3;
	return o->bad ? bench_failed("recorded: WRONG BYTES were read", -EBADMSG) : 0;
}

/* A daemon of its own: no run begins with what the one before has stored. */
static int run(struct part *p, uint32_t clients, struct outcome *o)
{
	struct service_options options = { .tierd = p->bench->tierd,
					   .cxl_bytes = 64u << 20,
					   .nvme_bytes = 1024u << 20 };
	char *dir = NULL;
	int error = service_dir_make(&dir, p->bench->dir), stopped;

	*o = (struct outcome){ .rate = 0 };
	options.dir = dir;
	if (!error)
		error = service_start(&p->service, &options, NULL);
	if (!error) {
		error = play_all(p, clients, o);
		stopped = service_stop(&p->service);
		error = error ? error : stopped;
	}
	service_dir_remove(dir);
	return error;
}

static int note(struct part *p, uint32_t clients, const struct outcome *o, const char *how)
{
	static const struct bench_plot rate = { "recorded", "clients", "requests/s" },
				       cpu = { "recorded", "clients", "daemon, us a request" },
				       took = { "recorded", "clients", "ms" };
	struct bench_results *all = p->bench->results;
	int error = bench_point(all, &rate, how, clients, o->rate);

	if (!error)
		error = bench_point(all, &cpu, how, clients, o->service_us);
	if (!error)
		error = bench_points_of(all, &took, how, clients, &o->took, 1e6);
	return error ? error
		     : bench_note(all, "recorded",
				  "%3u clients, %s: %.0f requests/s, the daemon %.0f us a "
				  "request; a request takes ms at p50, p99, p99.9: %.3g, "
				  "%.3g, %.3g",
				  clients, how, o->rate, o->service_us,
				  (double)hist_quantile(&o->took, 0.5) / 1e6,
				  (double)hist_quantile(&o->took, 0.99) / 1e6,
				  (double)hist_quantile(&o->took, 0.999) / 1e6);
}

static int curve(struct part *p)
{
	static const uint32_t all[] = { 1, 2, 4, 8, 16, 32, 64, 128, CLIENTS_MAX };
	const struct trace *t = p->trace;
	uint64_t recorded_ms =
		t->request[t->request_count - 1].timestamp_ms - t->request[0].timestamp_ms;
	int error = 0;

	for (uint32_t i = 0; i < sizeof(all) / sizeof(*all) && !error; i++) {
		struct outcome o;

		if (p->bench->quick && i % 2)
			continue;
		p->speed = 0;
		error = run(p, all[i], &o);
		if (!error)
			error = note(p, all[i], &o, "in order");
		p->speed = 2e9 * (double)t->request_count / o.rate / (double)recorded_ms;
		if (!error)
			error = run(p, all[i], &o);
		if (!error)
			error = note(p, all[i], &o, "by the clock");
	}
	return error;
}

int bench_recorded(struct bench *b)
{
	struct part p = { .bench = b };
	int error = bench_trace(&p.trace, b, b->quick ? REQUESTS_QUICK : REQUESTS);

	if (error)
		return error;
	p.on = calloc(p.trace->request_count, sizeof(*p.on));
	p.shared = mmap(NULL, sizeof(*p.shared), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	error = !p.on || p.shared == MAP_FAILED ? -ENOMEM : 0;
	for (uint32_t i = 0; i < p.trace->request_count && !error; i++)
		p.on[i] = depends_on(p.trace, i);
	if (!error)
		error = curve(&p);
	if (p.shared != MAP_FAILED)
		munmap(p.shared, sizeof(*p.shared));
	free(p.on);
	trace_close(p.trace);
	return error;
}
