/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reservations for outputs of unknown length: how much room is set aside, over time, beside
 * reserving every request's worst case; and how many requests met no eviction on the way of their
 * puts. The core alone in simulated time, memory only, its cache full all the while.
 *
 * A request arrives, puts its prompt's blocks unreserved (they are what has to leave), reserves
 * without saying how much, decodes a block of 16 tokens every 320 ms (50 tokens/s), and hands the
 * reservation back. At most 512 run at once, as in an engine: more wait for one to end; and hours
 * in which nobody runs are left out. Outputs are the trace's, arrivals too; or synthetic: lognormal
 * by role, a new mean each thousand requests, of one tenant or of three that differ fourfold. The
 * second seed was first drawn when all that the predictor has for parameters stood as it is.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/space/corehost.h"
#include "bench/trace/trace.h"

#define CXL (2048ull << 20)
#define SLAB (2u << 20)
#define PAGES 4u
#define BLOCK_TOKENS 16u
#define BLOCK_NS (320 * COREHOST_MS)
#define RUNNING_MAX 512u
#define IDLE_MS 10000u /* when nobody runs and nobody comes the rest of a pause is left out */
#define BLOCKS (CXL / PAGES / 65536) /* about what the tier takes */
#define OUTPUT_MAX (BLOCKS / 2 * BLOCK_TOKENS)
#define SYNTHETIC 6000u
#define SEEDS 2u

struct job {
	uint64_t arrival_ns;
	uint32_t prompt, output; /* tokens */
	uint32_t role;
	uint64_t salt;
};

struct running {
	bool used, broken, waiting;
	const struct job *job;
	uint32_t number; /* of the job: its keys */
	uint32_t done;   /* blocks put */
	uint64_t id, begin_ns, next_ns;
};

struct tally {
	uint64_t jobs, honoured;
	uint64_t waits; /* of a second, for a reservation */
	double set_aside;  /* block seconds: granted, from reservation to hand-back */
	double worst_case; /* the same if each had reserved the longest output */
	double used;       /* blocks drawn, from when they were */
};

/* ---- loads -------------------------------------------------------------------------------- */

static double gauss(uint64_t *random)
{
	double u = (bench_random_below(random, 1u << 30) + 1) / (double)(1u << 30);
	double v = bench_random_below(random, 1u << 30) / (double)(1u << 30);

	return sqrt(-2 * log(u)) * cos(2 * M_PI * v);
}

static const struct load {
	const char *name;
	uint64_t seed;
	uint32_t salts;
} loads[SEEDS] = {
	{ "three roles, drifting", 0x2545f4914f6cdd1dull, 1 },
	{ "three salts of three roles, another seed", 0x20261122a5a5c3c3ull, 3 },
};

/* Three roles of different lengths; each role's mean wanders every thousand requests. */
static uint32_t synthetic(struct job *job, uint32_t count, const struct load *l)
{
	static const double mean[3] = { 80, 350, 1100 }, spread[3] = { 0.4, 0.6, 0.3 };
	uint64_t random = l->seed, at = 0;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t role = bench_random_below(&random, 3);
		uint32_t salt = l->salts > 1 ? bench_random_below(&random, l->salts) : 1;
		double drift = 1 + 0.3 * sin((i / 1000) * 1.7 + role);
		double out = mean[role] * drift * exp(spread[role] * gauss(&random)) *
			     (1u << salt) / 2;

		at += (uint64_t)bench_random_below(&random, 600) * COREHOST_MS;
		job[i] = (struct job){ .arrival_ns = at,
				       .prompt = 256 + bench_random_below(&random, 8192),
				       .output = out < 1 ? 1 : out > 4096 ? 4096 : (uint32_t)out,
				       .role = role,
				       .salt = l->salts > 1 ? salt + 1 : 0 };
	}
	return count;
}

static int by_arrival(const void *a, const void *b)
{
	uint64_t left = ((const struct job *)a)->arrival_ns;
	uint64_t right = ((const struct job *)b)->arrival_ns;

	return left < right ? -1 : left > right;
}

/* In the order of arrival, whatever the file's: from the first on, in nanoseconds. */
static void from_first(struct job *job, uint32_t jobs)
{
	const uint64_t most = UINT64_MAX / 2 / COREHOST_MS;
	uint64_t first;

	qsort(job, jobs, sizeof(*job), by_arrival);
	first = job[0].arrival_ns;
	for (uint32_t i = 0; i < jobs; i++) {
		uint64_t ms = job[i].arrival_ns - first;

		job[i].arrival_ns = (ms < most ? ms : most) * COREHOST_MS;
	}
}

/* Errors: -E2BIG an answer that no tier like ours could keep, said on the way. */
static int traced(struct job *job, const struct trace *t)
{
	for (size_t i = 0; i < t->request_count; i++) {
		const struct trace_request *r = &t->request[i];

		if (r->output_tokens > OUTPUT_MAX) {
			bench_say("reserve: request %zu of the trace: an answer of %u tokens; half "
				  "of the model's tier takes %llu", i + 1, r->output_tokens,
				  (unsigned long long)OUTPUT_MAX);
			return -E2BIG;
		}
		job[i] = (struct job){ .arrival_ns = r->timestamp_ms,
				       .prompt = r->input_tokens,
				       .output = r->output_tokens };
	}
	from_first(job, (uint32_t)t->request_count);
	return 0;
}

/* ---- running ------------------------------------------------------------------------------ */

static uint32_t blocks_of(uint32_t tokens)
{
	return (tokens + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
}

static uint32_t longest_of(const struct job *job, uint32_t jobs)
{
	uint32_t longest = 0;

	for (uint32_t i = 0; i < jobs; i++)
		if (blocks_of(job[i].output) > longest)
			longest = blocks_of(job[i].output);
	return longest;
}

static void put_prompt(struct corehost *h, const struct running *r)
{
	struct corehost_block b = { .salt = r->job->salt };

	/* One block of ours for 512 tokens keeps the cache full; no more of them than fill it. */
	for (uint32_t k = 0; k < r->job->prompt / 512 + 1 && k < BLOCKS; k++) {
		b.key = ((uint64_t)r->number << 20) + 500000 + k;
		corehost_put(h, &b);
	}
}

static void begin(struct corehost *h, struct running *r, struct tally *sum)
{
	struct abi_reserve_args args = { .salt = r->job->salt,
					 .role = r->job->role,
					 .prompt_tokens = r->job->prompt };
	int error;

	if (!r->waiting)
		put_prompt(h, r);
	error = corehost_reserve(h, 0, &args, h->now_ns + 3600000 * COREHOST_MS, &r->id);
	/* what all are promised is too much now: it stands in line */
	r->waiting = error == -EDQUOT;
	sum->waits += r->waiting;
	r->broken = error && !r->waiting;
	r->begin_ns = h->now_ns;
	r->next_ns = h->now_ns + (r->waiting ? 1000 * COREHOST_MS : BLOCK_NS);
}

static void step(struct corehost *h, struct running *r)
{
	struct corehost_block b = { .reservation = r->id, .salt = r->job->salt };
	uint64_t before = core_metrics(h->core)->reserve_short;

	b.key = ((uint64_t)r->number << 20) + r->done++;
	if (corehost_put(h, &b) != 1 || core_metrics(h->core)->reserve_short != before)
		r->broken = true;
	r->next_ns += BLOCK_NS;
}

static void end(struct corehost *h, struct running *r, uint32_t longest, struct tally *sum)
{
	double seconds = (double)(h->now_ns - r->begin_ns) / 1e9;

	sum->jobs++;
	sum->worst_case += longest * seconds;
	if (r->id)
		corehost_hand_back(h, 0, r->id);
	sum->honoured += !r->broken;
	r->used = false;
}

static struct running *unused(struct running *list)
{
	for (uint32_t i = 0; i < RUNNING_MAX; i++)
		if (!list[i].used)
			return &list[i];
	return NULL;
}

/* Whoever is due next: an arrival (RUNNING_MAX) or a running request. */
static uint32_t next_due(const struct running *list, const struct job *job, uint64_t *when)
{
	uint32_t best = RUNNING_MAX;

	*when = job ? job->arrival_ns : UINT64_MAX;
	for (uint32_t i = 0; i < RUNNING_MAX; i++)
		if (list[i].used && list[i].next_ns < *when) {
			*when = list[i].next_ns;
			best = i;
		}
	return best;
}

/* Blocks that are promised or drawn now, by what the core says. */
static void account(const struct corehost *h, const struct running *list, double seconds,
		    struct tally *sum)
{
	struct core_context_stats st;
	uint64_t drawn = 0;

	core_context_stats(h->core, h->context[0].id, &st);
	for (uint32_t i = 0; i < RUNNING_MAX; i++)
		drawn += list[i].used ? list[i].done : 0;
	sum->used += (double)drawn * seconds;
	sum->set_aside += ((double)drawn + (double)st.tier[ABI_TIER_CXL].reserved /
						   (double)st.spec.geometry.block_bytes) *
			  seconds;
}

/* Nothing happens until then; where nobody runs that is cut short. Returns what was left out. */
static uint64_t wait_until(struct corehost *h, const struct running *list, uint64_t when, bool busy,
			   struct tally *sum)
{
	uint64_t pause = when > h->now_ns ? when - h->now_ns : 0, out = 0;

	if (!busy && pause > IDLE_MS * COREHOST_MS) {
		out = pause - IDLE_MS * COREHOST_MS;
		pause -= out;
	}
	if (pause) {
		account(h, list, (double)pause / 1e9, sum);
		corehost_advance(h, pause);
	}
	return out;
}

/* What is due: a request's next step. */
static void run_on(struct corehost *h, struct running *r, uint32_t longest, struct tally *sum)
{
	if (r->waiting)
		begin(h, r, sum);
	else if (r->done == blocks_of(r->job->output))
		end(h, r, longest, sum);
	else
		step(h, r);
}

static void play_all(struct corehost *h, struct running *list, const struct job *job, uint32_t jobs,
		     struct tally *sum)
{
	uint64_t offset = h->now_ns, when;
	uint32_t next = 0, longest = longest_of(job, jobs);

	for (;;) {
		struct running *r = unused(list);
		bool comes = next < jobs && r;
		struct job here = comes ? job[next] : (struct job){ 0 };
		uint32_t who;

		here.arrival_ns += offset;
		who = next_due(list, comes ? &here : NULL, &when);
		if (when == UINT64_MAX)
			return;
		offset -= wait_until(h, list, when, sum->jobs < next, sum);
		if (who < RUNNING_MAX) {
			run_on(h, &list[who], longest, sum);
			continue;
		}
		*r = (struct running){ .used = true, .job = &job[next], .number = next };
		next++;
		begin(h, r, sum);
	}
}

static int play(const struct job *job, uint32_t jobs, struct tally *sum)
{
	struct running *list = calloc(RUNNING_MAX, sizeof(*list));
	struct corehost h;
	int error;

	if (!list)
		return -ENOMEM;
	error = corehost_open(&h, CXL, SLAB);
	if (!error)
		error = corehost_context(&h, 0, PAGES, 16384);
	if (!error)
		play_all(&h, list, job, jobs, sum);
	if (!error && corehost_audit(&h))
		error = -EBADMSG;
	corehost_close(&h);
	free(list);
	return error;
}

/* ---- judging ------------------------------------------------------------------------------ */

static int judge(struct bench *b, const char *load, const struct job *job, uint32_t jobs)
{
	char name[2][BENCH_TEXT], against[BENCH_TEXT];
	const struct bench_figure room = { "reserve", name[0], "block-s", against,
					   { BENCH_RATIO_AT_MOST, 0.40 } };
	const struct bench_figure kept = { "reserve", name[1], "requests", "all requests",
					   { BENCH_RATIO_AT_LEAST, 0.99 } };
	struct tally sum = { .jobs = 0 };
	int error = play(job, jobs, &sum);

	if (error)
		return bench_failed("reserve", error);
	snprintf(name[0], BENCH_TEXT, "room set aside, %s (%.2f of it used)", load,
		 sum.used / sum.set_aside);
	snprintf(against, BENCH_TEXT, "each its worst case, %u blocks", longest_of(job, jobs));
	snprintf(name[1], BENCH_TEXT, "honoured without eviction, %s (waited %llu s)", load,
		 (unsigned long long)sum.waits);
	if (sum.worst_case <= 0)
		return bench_judge_missing(b->results, &room, "no request has an answer");
	error = bench_judge_exact(b->results, &room, sum.set_aside, sum.worst_case);
	return error ? error
		     : bench_judge_exact(b->results, &kept, (double)sum.honoured,
					 (double)sum.jobs);
}

int bench_reserve(struct bench *b)
{
	uint32_t jobs = b->quick ? SYNTHETIC / 4 : SYNTHETIC;
	struct trace *t = NULL;
	struct job *job;
	int error = bench_trace(&t, b, b->quick ? 1500 : 0);

	if (error)
		return error;
	job = calloc(t->request_count > jobs ? t->request_count : jobs, sizeof(*job));
	if (!job)
		error = -ENOMEM;
	for (uint32_t i = 0; i < SEEDS && !error; i++)
		error = judge(b, loads[i].name, job, synthetic(job, jobs, &loads[i]));
	if (!error)
		error = traced(job, t);
	if (!error)
		error = judge(b, "the trace", job, (uint32_t)t->request_count);
	free(job);
	trace_close(t);
	return error;
}
