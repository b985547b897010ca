/* SPDX-License-Identifier: Apache-2.0 */
/* Parent of the engine processes; see replay.h. */
#include "bench/trace/replay.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/service.h"
#include "libtier/base/atomic.h"
#include "libtier/base/cleanup.h"

#define SAMPLE_NS (100 * NS_PER_MS) /* doubled each time the samples are full */
#define BAR_CHARS 32

/* Shared by the parent and the engines. */
struct shared {
	uint64_t next; /* request of the trace that is taken next */
	uint64_t stop; /* an engine failed: the others end too */
	struct engine_stats stats[REPLAY_ENGINES_MAX];
};

/* ---- an engine process --------------------------------------------------------------------- */

static void engine_failed(struct engine_stats *s, int error)
{
	snprintf(s->error_text, sizeof(s->error_text), "%s", tier_error_text());
	s->error = error;
}

static int engine_loop(struct engine *e, const struct replay *r, struct shared *shared)
{
	while (!atomic_load_relaxed_u64(&shared->stop)) {
		uint64_t next = atomic_add_relaxed_u64(&shared->next, 1);
		int error;

		if (next >= r->trace->request_count)
			break;
		error = engine_serve(e, r->trace, &r->trace->request[next]);
		if (error)
			return error;
	}
	return tier_drain(e->t);
}

static int engine_process(const struct replay *r, struct shared *shared, uint32_t number)
{
	struct engine_stats *s = &shared->stats[number];
	struct engine *e = NULL;
	int error = engine_open(&e, &r->set, s, number);

	if (!error)
		error = engine_loop(e, r, shared);
	if (error) {
		engine_failed(s, error);
		atomic_store_relaxed_u64(&shared->stop, 1);
	}
	engine_close(e);
	atomic_store_release_u64(&s->ended, 1);
	return error ? 1 : 0;
}

/* ---- progress ------------------------------------------------------------------------------ */

void progress_draw(struct progress *p, double share, const char *note)
{
	uint64_t now = time_now_ns();
	int full = (int)(share * BAR_CHARS), tenth = (int)(share * 10);
	double seconds;

	if (!p->begin_ns)
		p->begin_ns = now;
	seconds = (double)(now - p->begin_ns) / (double)NS_PER_S;
	if (isatty(STDERR_FILENO)) {
		if (share < 1 && now - p->drawn_ns < 100 * NS_PER_MS)
			return;
		p->drawn_ns = now;
		fprintf(stderr, "\r\033[K%s [", p->what);
		for (int i = 0; i < BAR_CHARS; i++)
			fputs(i < full ? "█" : "·", stderr);
		fprintf(stderr, "] %3d%%  %4.0f s  %s", (int)(share * 100), seconds, note);
	} else if (tenth > p->tenth) {
		p->tenth = tenth;
		fprintf(stderr, "%s %3d%%  %4.0f s  %s\n", p->what, (int)(share * 100), seconds,
			note);
	}
	fflush(stderr);
}

void progress_end(struct progress *p)
{
	if (isatty(STDERR_FILENO) && p->drawn_ns)
		fputc('\n', stderr);
	*p = (struct progress){ 0 };
}

/* ---- samples ------------------------------------------------------------------------------- */

static uint64_t object_number(const json_t *object, const char *name)
{
	double value = json_number_value(json_object_get(object, name));

	return value > 0 ? (uint64_t)value : 0;
}

/* The daemon's own view of its tiers; what it does not tell stays 0. */
static void sample_tiers(tier *t, struct replay_sample *s)
{
	char *reply CLEANUP_FREE = NULL;
	json_t *all, *tiers;
	size_t i;
	json_t *one;

	if (!t || tier_admin(t, "status", NULL, &reply))
		return;
	all = json_loads(reply, 0, NULL);
	tiers = json_object_get(all, "tiers");
	json_array_foreach(tiers, i, one)
	{
		static const char *const names[] = { "hbm", "cxl", "nvme", "remote" };
		const char *name = json_string_value(json_object_get(one, "tier"));

		for (uint32_t k = 0; name && k < TIER_COUNT; k++) {
			if (strcmp(name, names[k]) != 0)
				continue;
			s->used[k] = object_number(one, "used");
			s->live[k] = object_number(one, "live");
			if (k == TIER_CXL)
				s->dirty = object_number(one, "dirty");
		}
	}
	json_decref(all);
}

/* Every second one is enough. */
static void thin_out(struct replay *r)
{
	r->sample_count /= 2;
	for (uint32_t i = 0; i < r->sample_count; i++)
		r->sample[i] = r->sample[2 * i];
	r->sample_ns *= 2;
}

static void sample_take(struct replay *r, const struct shared *shared, tier *t, uint64_t begin_ns)
{
	struct replay_sample *s;

	if (r->sample_count == REPLAY_SAMPLES_MAX)
		thin_out(r);
	s = &r->sample[r->sample_count++];
	*s = (struct replay_sample){ .seconds = (double)(time_now_ns() - begin_ns) / 1e9 };
	for (uint32_t i = 0; i < r->engines; i++) {
		const struct engine_stats *e = &shared->stats[i];

		s->requests += atomic_load_relaxed_u64(&e->requests);
		s->blocks += atomic_load_relaxed_u64(&e->blocks);
		s->blocks_put += atomic_load_relaxed_u64(&e->put_blocks);
		s->put_bytes += atomic_load_relaxed_u64(&e->put_bytes);
		for (uint32_t k = 0; k < TIER_COUNT; k++) {
			s->hit_tier[k] += atomic_load_relaxed_u64(&e->hit_tier[k]);
			s->tier_bytes[k] += atomic_load_relaxed_u64(&e->read[k].bytes);
		}
	}
	sample_tiers(t, s);
}

/* ---- the sum ------------------------------------------------------------------------------- */

static void add_stats(struct engine_stats *to, const struct engine_stats *from)
{
	to->requests += from->requests;
	to->blocks += from->blocks;
	to->blocks_hit += from->blocks_hit;
	to->blocks_lost += from->blocks_lost;
	to->tokens += from->tokens;
	to->tokens_saved += from->tokens_saved;
	to->put_blocks += from->put_blocks;
	to->put_bytes += from->put_bytes;
	to->put_ns += from->put_ns;
	to->put_exists += from->put_exists;
	to->put_dropped += from->put_dropped;
	to->put_failed += from->put_failed;
	to->put_error = from->put_error ? from->put_error : to->put_error;
	to->fetch_ns += from->fetch_ns;
	to->fetch_bytes += from->fetch_bytes;
	to->fetches_late += from->fetches_late;
	to->streams += from->streams;
	to->streams_ready += from->streams_ready;
	to->streams_late += from->streams_late;
	to->streams_missed += from->streams_missed;
	to->streams_failed += from->streams_failed;
	to->streams_ended_early += from->streams_ended_early;
	to->layers += from->layers;
	to->layers_there += from->layers_there;
	to->layer_wait_ns += from->layer_wait_ns;
	to->verified_pages += from->verified_pages;
	to->verified_bytes += from->verified_bytes;
	to->bad_pages += from->bad_pages;
	to->decode_lists += from->decode_lists;
	to->decode_pages += from->decode_pages;
	to->decode_gone += from->decode_gone;
	to->pins += from->pins;
	to->pins_refused += from->pins_refused;
	for (uint32_t k = 0; k < TIER_COUNT; k++) {
		to->hit_tier[k] += from->hit_tier[k];
		to->read[k].pages += from->read[k].pages;
		to->read[k].bytes += from->read[k].bytes;
		to->read[k].ns += from->read[k].ns;
	}
	hist_merge(&to->lease_one, &from->lease_one);
	hist_merge(&to->lease_list, &from->lease_list);
}

static void sum_up(struct replay *r, const struct shared *shared)
{
	memset(&r->total, 0, sizeof(r->total));
	for (uint32_t i = 0; i < r->engines; i++) {
		const struct engine_stats *s = &shared->stats[i];

		add_stats(&r->total, s);
		if (s->error && !r->error) {
			r->error = (int)s->error;
			snprintf(r->error_text, sizeof(r->error_text), "engine %u: %.230s", i,
				 s->error_text);
		}
	}
}

/* ---- parent -------------------------------------------------------------------------------- */

/* How many of the engines still run. One that died without a word is an error. */
static uint32_t running(struct replay *r, struct shared *shared, pid_t *pid)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < r->engines; i++) {
		int status;

		if (pid[i] <= 0)
			continue;
		if (waitpid(pid[i], &status, WNOHANG) == 0) {
			count++;
			continue;
		}
		pid[i] = 0;
		if (atomic_load_acquire_u64(&shared->stats[i].ended))
			continue;
		r->error = -ECHILD;
		snprintf(r->error_text, sizeof(r->error_text), "engine %u died: %s %d", i,
			 WIFSIGNALED(status) ? "signal" : "exit status",
			 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
		atomic_store_relaxed_u64(&shared->stop, 1);
	}
	return count;
}

static void note_of(const struct replay_sample *s, char *note, size_t bytes)
{
	uint64_t hits = s->hit_tier[TIER_HBM] + s->hit_tier[TIER_CXL] + s->hit_tier[TIER_NVME];

	snprintf(note, bytes, "%llu requests, hit %.1f%% of blocks",
		 (unsigned long long)s->requests,
		 s->blocks ? 100.0 * (double)hits / (double)s->blocks : 0.0);
}

static void watch(struct replay *r, struct shared *shared, pid_t *pid)
{
	const struct tier_connect_options options = {
		.size = sizeof(options),
		.socket = r->set.socket,
		.name = "replay-watch",
		.staging_bytes = 1 << 20,
	};
	const struct timespec pause = { .tv_nsec = 20000000 };
	struct progress bar = { .what = "  replay" };
	uint64_t begin_ns = time_now_ns(), next_ns = begin_ns;
	tier *t = NULL;
	char note[96];

	if (tier_connect(&t, &options))
		t = NULL;
	while (running(r, shared, pid)) {
		if (time_now_ns() >= next_ns) {
			sample_take(r, shared, t, begin_ns);
			next_ns = time_now_ns() + r->sample_ns;
			note_of(&r->sample[r->sample_count - 1], note, sizeof(note));
			progress_draw(&bar,
				      (double)r->sample[r->sample_count - 1].requests /
					      (double)r->trace->request_count,
				      note);
		}
		nanosleep(&pause, NULL);
	}
	r->seconds = (double)(time_now_ns() - begin_ns) / 1e9;
	sample_take(r, shared, t, begin_ns);
	note_of(&r->sample[r->sample_count - 1], note, sizeof(note));
	progress_draw(&bar,
		      (double)r->sample[r->sample_count - 1].requests /
			      (double)r->trace->request_count,
		      note);
	progress_end(&bar);
	tier_close(t);
}

static void start_engines(struct replay *r, struct shared *shared, pid_t *pid)
{
	pid_t parent = getpid();

	fflush(NULL);
	for (uint32_t i = 0; i < r->engines; i++) {
		pid[i] = fork();
		if (pid[i] == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			if (getppid() != parent)
				_exit(1);
			_exit(engine_process(r, shared, i));
		}
		if (pid[i] > 0)
			continue;
		r->error = -errno;
		snprintf(r->error_text, sizeof(r->error_text), "fork: %s", strerror(errno));
		atomic_store_relaxed_u64(&shared->stop, 1);
		return;
	}
}

int replay_run(struct replay *r)
{
	pid_t pid[REPLAY_ENGINES_MAX] = { 0 };
	struct shared *shared;

	if (!r->engines || r->engines > REPLAY_ENGINES_MAX)
		return -EINVAL;
	r->sample_ns = SAMPLE_NS;
	r->sample = calloc(REPLAY_SAMPLES_MAX, sizeof(*r->sample));
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (!r->sample || shared == MAP_FAILED) {
		replay_free(r);
		return -ENOMEM;
	}
	start_engines(r, shared, pid);
	watch(r, shared, pid);
	sum_up(r, shared);
	munmap(shared, sizeof(*shared));
	return r->error;
}

void replay_free(struct replay *r)
{
	free(r->sample);
	r->sample = NULL;
	r->sample_count = 0;
}
