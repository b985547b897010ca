/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Patterns of requests; see synth.h. A request is a path of block ids from the prompt's start; a
 * conversation keeps its path and appends to it. Conversations wait in a heap for their next turn,
 * ordered by time, as users of a service would.
 */
#include "bench/replay/synth.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define PATH_MAX_BLOCKS 256u
#define TALKS_MAX 65536u
#define SYSTEMS 16u
#define SYSTEM_BLOCKS_MAX 48u
#define DOCUMENTS 4096u
#define DOCUMENT_BLOCKS_MAX 64u

struct talk {
	double due; /* seconds */
	uint32_t blocks;
	uint32_t turns_left;
	double pace; /* median seconds between turns */
	uint64_t path[PATH_MAX_BLOCKS];
};

struct maker {
	struct trace *t;
	size_t references, requests_room, ids_room;
	uint64_t random;
	uint64_t next_id;
	double now;
	struct talk *talk;
	uint32_t *heap; /* of talks, earliest first */
	uint32_t talks;
	int error;
};

static uint64_t random_next(struct maker *m)
{
	uint64_t z = m->random += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static double random_unit(struct maker *m)
{
	return ((double)(random_next(m) >> 11) + 0.5) / 9007199254740992.0;
}

static uint32_t random_between(struct maker *m, uint32_t low, uint32_t high)
{
	return low + (uint32_t)(random_next(m) % (high - low + 1));
}

/* Log-normal, by Box and Muller. */
static double random_lognormal(struct maker *m, double median, double sigma)
{
	double a = random_unit(m), b = random_unit(m);

	return median * exp(sigma * sqrt(-2 * log(a)) * cos(6.283185307179586 * b));
}

/* A rank below n with weight 1/(rank + 1): drawn from the continuous law. */
static uint32_t random_zipf(struct maker *m, uint32_t n)
{
	uint32_t rank = (uint32_t)(exp(random_unit(m) * log((double)n + 1)) - 1);

	return rank < n ? rank : n - 1;
}

/* ---- the trace ----------------------------------------------------------------------------- */

static int room(void **array, size_t *have, size_t want, size_t element)
{
	size_t more = *have ? *have : 4096;
	void *bigger;

	if (want <= *have)
		return 0;
	while (more < want)
		more *= 2;
	bigger = reallocarray(*array, more, element);
	if (!bigger)
		return -ENOMEM;
	*array = bigger;
	*have = more;
	return 0;
}

static void emit(struct maker *m, const uint64_t *path, uint32_t blocks)
{
	struct trace *t = m->t;
	void *request = t->request, *id = t->id;

	if (!m->error)
		m->error = room(&request, &m->requests_room, t->request_count + 1,
				sizeof(*t->request));
	t->request = request;
	if (!m->error)
		m->error = room(&id, &m->ids_room, t->id_count + blocks, sizeof(*t->id));
	t->id = id;
	if (m->error)
		return;
	t->request[t->request_count++] = (struct trace_request){
		.timestamp_ms = (uint64_t)(m->now * 1000),
		.input_tokens = blocks * TRACE_BLOCK_TOKENS,
		.output_tokens = 256,
		.id_first = t->id_count,
		.id_count = blocks,
	};
	memcpy(t->id + t->id_count, path, blocks * sizeof(*path));
	t->id_count += blocks;
}

static bool enough(const struct maker *m)
{
	return m->error || m->t->id_count >= m->references;
}

static uint32_t append(struct maker *m, uint64_t *path, uint32_t blocks, uint32_t more)
{
	while (more-- && blocks < PATH_MAX_BLOCKS)
		path[blocks++] = m->next_id++;
	return blocks;
}

/* Ids of prompt number n of a family: fixed by name, not drawn. */
static uint32_t prefix(uint64_t *path, uint64_t family, uint32_t n, uint32_t blocks)
{
	for (uint32_t i = 0; i < blocks; i++)
		path[i] = family << 40 | (uint64_t)n << 8 | i;
	return blocks;
}

static uint32_t fixed_length(uint32_t n, uint32_t low, uint32_t high)
{
	return low + (uint32_t)(n * UINT64_C(2654435761) >> 7) % (high - low + 1);
}

/* ---- conversations ------------------------------------------------------------------------- */

static void heap_swap(struct maker *m, uint32_t a, uint32_t b)
{
	uint32_t keep = m->heap[a];

	m->heap[a] = m->heap[b];
	m->heap[b] = keep;
}

static bool earlier(const struct maker *m, uint32_t a, uint32_t b)
{
	return m->talk[m->heap[a]].due < m->talk[m->heap[b]].due;
}

static void heap_down(struct maker *m, uint32_t at)
{
	for (;;) {
		uint32_t child = 2 * at + 1;

		if (child >= m->talks)
			return;
		if (child + 1 < m->talks && earlier(m, child + 1, child))
			child++;
		if (!earlier(m, child, at))
			return;
		heap_swap(m, child, at);
		at = child;
	}
}

static struct talk *talk_new(struct maker *m)
{
	uint32_t at = m->talks;

	if (at == TALKS_MAX)
		return NULL;
	m->talks++;
	m->talk[m->heap[at]].due = m->now;
	while (at && earlier(m, at, (at - 1) / 2)) {
		heap_swap(m, at, (at - 1) / 2);
		at = (at - 1) / 2;
	}
	return &m->talk[m->heap[at]];
}

/* The earliest talk has had a turn: its next, or its end. */
static void talk_turned(struct maker *m)
{
	struct talk *k = &m->talk[m->heap[0]];

	if (--k->turns_left == 0)
		heap_swap(m, 0, --m->talks);
	else
		k->due = m->now + random_lognormal(m, k->pace, 0.9);
	heap_down(m, 0);
}

struct manner {
	double arrivals;	 /* new conversations a second */
	uint32_t systems;	 /* system prompts, by Zipf; each 1 ... system_blocks */
	uint32_t system_blocks;
	double turns;		 /* mean, geometric */
	double pace;		 /* median seconds between turns */
	double first, more;	 /* median blocks of the first prompt, of a later turn */
	double spread;		 /* sigma of both, log-normal */
	bool partial;		 /* the last block is not full: the next turn replaces it */
};

static uint32_t blocks_like(struct maker *m, double median, double spread)
{
	double n = random_lognormal(m, median, spread);

	return n < 1 ? 1 : n > PATH_MAX_BLOCKS ? PATH_MAX_BLOCKS : (uint32_t)n;
}

static void talk_begin(struct maker *m, const struct manner *how)
{
	struct talk *k = talk_new(m);
	uint32_t n;

	if (!k)
		return;
	n = random_zipf(m, how->systems);
	k->blocks = prefix(k->path, 1, n, fixed_length(n, 1, how->system_blocks));
	k->blocks = append(m, k->path, k->blocks, blocks_like(m, how->first, how->spread));
	k->turns_left = 1;
	while (random_unit(m) > 1 / how->turns)
		k->turns_left++;
	k->pace = random_lognormal(m, how->pace, 0.5);
}

static void conversations(struct maker *m, const struct manner *how)
{
	double arrival = 0;

	while (!enough(m)) {
		struct talk *k = m->talks ? &m->talk[m->heap[0]] : NULL;
		uint64_t kept;

		if (!k || arrival < k->due) {
			m->now = arrival;
			talk_begin(m, how);
			arrival -= log(random_unit(m)) / how->arrivals;
			continue;
		}
		m->now = k->due;
		emit(m, k->path, k->blocks);
		kept = k->blocks - (how->partial && k->blocks > 1);
		k->blocks = append(m, k->path, (uint32_t)kept,
				   blocks_like(m, how->more, how->spread));
		talk_turned(m);
	}
}

/* Chat: think times around a minute, few turns, prompts of all lengths, a shared first block. */
static void make_chat(struct maker *m)
{
	conversations(m, &(struct manner){ .arrivals = 2, .systems = 4, .system_blocks = 2,
					   .turns = 2, .pace = 60, .first = 8, .more = 3,
					   .spread = 1.1, .partial = true });
}

/* Agents: many quick turns that each add little. */
static void make_agents(struct maker *m)
{
	conversations(m, &(struct manner){ .arrivals = 0.2, .systems = 8, .system_blocks = 24,
					   .turns = 25, .pace = 8, .first = 4, .more = 1.5,
					   .spread = 0.7, .partial = true });
}

/* Long system prompts that many users share, one turn each. */
static void make_shared(struct maker *m)
{
	conversations(m, &(struct manner){ .arrivals = 5, .systems = 512, .system_blocks = 48,
					   .turns = 1.1, .pace = 30, .first = 3, .more = 2,
					   .spread = 0.8 });
}

/* ---- documents ----------------------------------------------------------------------------- */

static void ask_document(struct maker *m, uint64_t family, uint32_t n)
{
	uint64_t path[PATH_MAX_BLOCKS];
	uint32_t blocks = prefix(path, family, n, fixed_length(n, 4, DOCUMENT_BLOCKS_MAX));

	emit(m, path, append(m, path, blocks, 1));
	m->now += 0.2;
}

/* Questions about documents of a popularity that stays. */
static void make_zipf(struct maker *m)
{
	while (!enough(m))
		ask_document(m, 2, random_zipf(m, DOCUMENTS));
}

/* The same, but the popular ones change eight times. */
static void make_shift(struct maker *m)
{
	while (!enough(m)) {
		uint64_t era = m->t->id_count * 8 / m->references;

		ask_document(m, 2, (random_zipf(m, DOCUMENTS) + (uint32_t)era * 509) % DOCUMENTS);
	}
}

/* Documents in turn, again and again: the worst that can happen to LRU. */
static void make_loop(struct maker *m)
{
	for (uint32_t n = 0; !enough(m); n = (n + 1) % 512)
		ask_document(m, 3, n);
}

/* A steady set of documents while others pass by once. */
static void make_scan(struct maker *m)
{
	uint64_t path[PATH_MAX_BLOCKS];

	while (!enough(m)) {
		ask_document(m, 4, random_zipf(m, 256));
		emit(m, path, append(m, path, 0, random_between(m, 16, 96)));
	}
}

/* ---- made to be hard ----------------------------------------------------------------------- */

/* As ask_document, but nothing is appended, and all are of 12 blocks. */
static void ask_again(struct maker *m, uint64_t family, uint32_t n)
{
	uint64_t path[PATH_MAX_BLOCKS];

	emit(m, path, prefix(path, family, n, 12));
	m->now += 0.2;
}

static void ask_once(struct maker *m, uint32_t blocks)
{
	uint64_t path[PATH_MAX_BLOCKS];

	emit(m, path, append(m, path, 0, blocks));
	m->now += 0.2;
}

/* A loop with others in between that come once: just under some tier it is LRU's best case. */
static void make_once(struct maker *m)
{
	uint32_t documents = 100 * random_between(m, 1, 6);
	double once = random_unit(m) / 2;

	for (uint32_t n = 0; !enough(m); n = (n + 1) % documents) {
		ask_again(m, 5, n);
		if (random_unit(m) < once)
			ask_once(m, random_between(m, 1, 24));
	}
}

/* All documents once a round, in an order that is new each time. */
static void make_rounds(struct maker *m)
{
	uint32_t documents = 40 * random_between(m, 3, 10), *order = m->heap;

	while (!enough(m))
		for (uint32_t n = documents; n > 0 && !enough(m); n--) {
			heap_swap(m, n - 1, (uint32_t)(random_next(m) % n));
			ask_again(m, 6, order[n - 1]);
		}
}

/* What is asked for is one of those asked for last, by a Pareto law: LRU knows all there is. */
static void make_stack(struct maker *m)
{
	uint32_t count = 0, made = 0, *stack = m->heap;
	double tail = 0.4 + random_unit(m) / 2;

	while (!enough(m)) {
		double far = 3 * pow(random_unit(m), -1 / tail);
		uint32_t n = made, at = count;

		if (far < count) {
			at = count - 1 - (uint32_t)far;
			n = stack[at];
			memmove(stack + at, stack + at + 1, (count - 1 - at) * sizeof(*stack));
			count--;
		} else {
			made++;
		}
		count -= count == TALKS_MAX;
		stack[count++] = n;
		ask_again(m, 7, n);
	}
}

/* A loop, then Zipf, then what comes once, and again, with other documents each time. */
static void make_phases(struct maker *m)
{
	uint32_t phases = 3 * random_between(m, 2, 6), last = phases, documents = 0;

	for (uint32_t n = 0; !enough(m); n++) {
		uint32_t phase = (uint32_t)(m->t->id_count * phases / m->references);

		if (phase != last)
			documents = 40u << random_between(m, 0, 3);
		last = phase;
		if (phase % 3 == 0)
			ask_again(m, 8 + phase, n % documents);
		else if (phase % 3 == 1)
			ask_again(m, 8 + phase, random_zipf(m, documents));
		else
			ask_once(m, random_between(m, 4, 12));
	}
}

/* What is put is asked for again after 60 others; then only what is new is; and so on. */
static void make_turn(struct maker *m)
{
	for (uint32_t n = 0; !enough(m); n++) {
		ask_again(m, 100, n);
		if (m->t->id_count / 6000 % 2 == 0)
			ask_again(m, 100, n > 60 ? n - 60 : n);
		else if (random_unit(m) < 0.5)
			ask_again(m, 100, n - random_between(m, 0, n < 20 ? n : 20));
	}
}

/* ---- by name ------------------------------------------------------------------------------- */

static const struct pattern {
	struct synth public;
	void (*make)(struct maker *m);
} patterns[] = {
	{ { "chat", "conversations with think times, a short shared prompt" }, make_chat },
	{ { "agents", "agents: many quick turns that add little" }, make_agents },
	{ { "shared", "long system prompts shared by many, one turn each" }, make_shared },
	{ { "zipf", "questions about documents, Zipf" }, make_zipf },
	{ { "shift", "the same, the popular ones change" }, make_shift },
	{ { "loop", "documents in turn, again and again" }, make_loop },
	{ { "scan", "a steady set while others pass by once" }, make_scan },
	{ { "once", "a loop with others in between that come once" }, make_once },
	{ { "rounds", "documents in rounds, each in another order" }, make_rounds },
	{ { "stack", "documents asked for last, by a Pareto law" }, make_stack },
	{ { "phases", "a loop, Zipf, what comes once; and again" }, make_phases },
	{ { "turn", "what was useful turns useless, and back" }, make_turn },
};

const struct synth *synth_at(uint32_t i)
{
	return i < sizeof(patterns) / sizeof(patterns[0]) ? &patterns[i].public : NULL;
}

static int make(struct maker *m, const struct pattern *p)
{
	m->t = calloc(1, sizeof(*m->t));
	m->talk = calloc(TALKS_MAX, sizeof(*m->talk));
	m->heap = calloc(TALKS_MAX, sizeof(*m->heap));
	if (!m->t || !m->talk || !m->heap)
		return -ENOMEM;
	for (uint32_t i = 0; i < TALKS_MAX; i++)
		m->heap[i] = i;
	m->t->block_tokens = TRACE_BLOCK_TOKENS;
	p->make(m);
	return m->error ? m->error : trace_count(m->t);
}

int synth_make(struct trace **out, const char *name, uint64_t seed, size_t references)
{
	struct maker m = { .references = references, .random = seed, .next_id = 1 };
	const struct pattern *p = NULL;
	int error;

	*out = NULL;
	for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++)
		if (strcmp(patterns[i].public.name, name) == 0)
			p = &patterns[i];
	if (!p)
		return -ENOENT;
	error = make(&m, p);
	free(m.talk);
	free(m.heap);
	if (error)
		trace_close(m.t);
	else
		*out = m.t;
	return error;
}
