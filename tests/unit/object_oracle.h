/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is true of objects whose names several clients change at a time: of each name the states
 * that it came to have, and which of them who asks may see; a clock of ours. For
 * test_object_clients.c.
 */
#ifndef TIER_TESTS_OBJECT_ORACLE_H
#define TIER_TESTS_OBJECT_ORACLE_H

#include <stdatomic.h>

#include "tests/unit/object_daemon.h"
#include "tierd/object/table.h"

#define PLAIN 5u /* names that anybody changes; those behind are written by shared uploads */
#define NAMES 7u
#define EXTRA NAMES /* for what is tried when all is quiet */
#define CLIENTS 6u
#define KEPT 3u
#define STATES 256u
#define PHASES 4u
#define STEPS 120u
#define CXL (512u << 10)
#define NVME (800u << 10)
#define CONTENT_MAX (160u << 10)
#define EMPTY 1u /* the put without bytes */
#define WAIT_NS (1000 * NS_PER_S)
#define TTL_MS 1000000u
#define JUMP_NS (2000 * NS_PER_S)

enum fate { UNKNOWN, DONE, NOT_DONE, UNSURE /* done, if a restart finds it */ };

/* What a name came to have: 0 nothing, else the number of a put. */
struct state {
	uint32_t content;
	enum fate fate;
	uint64_t asked, answered; /* ticks; 0 = not */
	uint32_t asked_event, answered_event, durable; /* events; UINT32_MAX = not */
	bool ttl;
	uint64_t lapsed; /* the tick at which time had passed; 0 = not */
	bool for_sure;   /* it was committed before */
};

struct name {
	struct state state[STATES];
	uint32_t states;
	bool renaming, shared;
	uint32_t found; /* bytes, when all was quiet; UINT32_MAX: none */
	uint32_t priority;
	bool resident;
};

struct question {
	bool on;
	struct wire_object m;
	uint32_t seq, context, name, other;
	uint64_t begun;
	struct state *a, *b;
};

static struct world {
	struct rng rng;
	uint32_t seed, content, phase_event, flips;
	uint64_t tick, jumped, boot;
	struct {
		uint32_t failed[DISK_CALLS];
		bool power;
	} cut; /* how the last phase went and ended */
	struct context {
		uint64_t epoch, quota[OBJECT_TIERS], quota_tick;
		struct name name[NAMES];
	} context[DAEMON_CONTEXTS];
	struct client {
		uint32_t generation;
		uint64_t ttl_ms; /* of who looks */
		uint32_t flags;  /* ... */
		struct question q;
		struct {
			uint64_t id, boot, epoch;
			uint32_t context, name, content;
			int fd;
			uint8_t *map;
			bool shared, exclusive, ttl;
		} up;
		struct {
			int fd;
			uint32_t content;
		} kept[KEPT];
	} client[CLIENTS + 1]; /* the last one looks when all is quiet */
} w;

/* ---- the clock ----------------------------------------------------------------------------- */

static _Atomic uint64_t skew_ns;

int clock_gettime(clockid_t clock, struct timespec *t)
{
	int rc = (int)syscall(SYS_clock_gettime, clock, t);

	if (clock == CLOCK_MONOTONIC || clock == CLOCK_REALTIME)
		*t = time_to_timespec((uint64_t)t->tv_sec * NS_PER_S + (uint64_t)t->tv_nsec +
				      skew_ns);
	return rc;
}

/* As our clock has it. */
int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock, const struct timespec *due)
{
	uint64_t at = (uint64_t)due->tv_sec * NS_PER_S + (uint64_t)due->tv_nsec;
	const struct timespec t = time_to_timespec(at > skew_ns ? at - skew_ns : 0);

	return pthread_cond_clockwait(cond, lock, CLOCK_MONOTONIC, &t);
}

/* ---- what is true -------------------------------------------------------------------------- */

#define WRONG(...)                                                                        \
	do {                                                                              \
		print_error(__VA_ARGS__);                                                 \
		fail_msg("SEED=%u: start %u; before it calls failed %u %u %u %u %u times, " \
			 "then power %d", w.seed, (unsigned)w.boot, w.cut.failed[0],      \
			 w.cut.failed[1], w.cut.failed[2], w.cut.failed[3], w.cut.failed[4], \
			 w.cut.power);                                                    \
	} while (0)

static size_t size_of(uint32_t content)
{
	struct rng rng = { content * 77ull };
	uint64_t kind = rng_below(&rng, 10);

	if (content == EMPTY)
		return 0;
	return kind < 3 ? (size_t[]){ 4, 4096, 4097 }[kind] : 4 + rng_below(&rng, CONTENT_MAX);
}

/* Bytes that no other put has; but now and then there are none. */
static uint32_t new_content(void)
{
	return rng_below(&w.rng, 10) ? ++w.content : EMPTY;
}

/* What docs say: whole pages, and 8 KiB. */
static uint64_t charge_of_bytes(uint64_t bytes)
{
	return (bytes + 4095) / 4096 * 4096 + 8192;
}

static uint64_t charge_of(uint32_t content)
{
	return charge_of_bytes(size_of(content));
}

static struct state *begin(struct name *n, uint32_t content, bool ttl)
{
	struct state *s = &n->state[n->states++];

	assert_true(n->states < STATES);
	*s = (struct state){ .content = content, .asked = ++w.tick, .asked_event = disk.events,
			     .answered_event = UINT32_MAX, .durable = UINT32_MAX, .ttl = ttl };
	return s;
}

static void end(struct state *s, enum fate fate, bool lazy)
{
	s->fate = fate;
	s->answered = ++w.tick;
	s->answered_event = disk.events;
	if (fate == DONE && !lazy)
		s->durable = disk.events;
}

/* Another one was done behind it: the name had that, or what came later. */
static bool superseded(const struct name *n, const struct state *s, uint64_t begun)
{
	for (uint32_t i = 0; i < n->states && s->answered; i++)
		if (n->state[i].fate == DONE && n->state[i].answered < begun &&
		    s->answered < n->state[i].asked)
			return true;
	return false;
}

/* May who began to ask then, and has the answer now, have found this? */
static bool allowed(const struct name *n, uint32_t content, uint64_t begun)
{
	for (uint32_t i = 0; i < n->states; i++) {
		const struct state *s = &n->state[i];

		if (s->fate == NOT_DONE || s->fate == UNSURE || superseded(n, s, begun))
			continue;
		if (content ? s->content == content && !(s->for_sure && s->lapsed < begun) :
			      !s->content || s->lapsed)
			return true;
	}
	return false;
}

/* The only thing that it can have, or UINT32_MAX. */
static uint32_t certain(const struct name *n)
{
	uint32_t content = UINT32_MAX;

	for (uint32_t i = 0; i < n->states; i++) {
		const struct state *s = &n->state[i];

		if (s->fate == NOT_DONE || s->fate == UNSURE || superseded(n, s, w.tick + 1))
			continue;
		if (s->fate == UNKNOWN || s->lapsed || content != UINT32_MAX)
			return UINT32_MAX;
		content = s->content;
	}
	return content;
}

/* May a start find this, behind a crash at this event? */
static bool survives(const struct name *n, uint32_t content, uint32_t crash)
{
	for (uint32_t i = 0; i < n->states; i++) {
		const struct state *s = &n->state[i];
		bool gone = s->asked_event > crash ||
			    (s->fate == NOT_DONE && s->answered_event <= crash);

		for (uint32_t k = 0; k < n->states && s->answered && !gone; k++)
			gone = n->state[k].durable <= crash && s->answered < n->state[k].asked;
		if (!gone && (content ? s->content == content && !s->for_sure :
					!s->content || s->lapsed))
			return true;
	}
	return false;
}

/* Which put these bytes are of, among those of the name. UINT32_MAX: of none. */
static uint32_t content_of(const struct name *n, int fd)
{
	static uint8_t got[CONTENT_MAX + 4096], want[CONTENT_MAX + 4096];
	ssize_t bytes = syscall(SYS_pread64, fd, got, sizeof(got), 0);

	for (uint32_t i = n->states; i-- > 0;) {
		uint32_t content = n->state[i].content;

		if (!content || size_of(content) != (size_t)bytes)
			continue;
		daemon_bytes(content, want, (size_t)bytes);
		if (memcmp(got, want, (size_t)bytes) == 0)
			return content;
	}
	return UINT32_MAX;
}

static void look_at_kept(int fd, uint32_t content)
{
	static struct name one;

	one.states = 1;
	one.state[0].content = content;
	if (content_of(&one, fd) != content)
		WRONG("what was open, %u, has other bytes\n", content);
}

#endif
