/*
 * Waiting: no wake-up is lost, whenever the answer comes; a signal ends no wait; the rings keep the
 * order of their stores between two processors.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>

#include "tests/unit/step.h"
#include "tests/unit/test_libtier_world.h"

#include "libtier/src/connection.h"

#define LONG_NS (60 * NS_PER_S)

/* ---- an answer at any instruction ----------------------------------------------------------- */

#define PATIENCE_NS (6 * NS_PER_S)

static uint64_t asked; /* user_data of the entry that waits for its answer; atomic */
static uint64_t answered_ns;
static uint32_t wish; /* cq_wait, as it was looked at last */

static bool hook_keep(struct fake *f, const struct abi_sqe *e, struct abi_cqe *c, bool *silent)
{
	(void)f;
	(void)c;
	*silent = e->op == ABI_OP_FETCH;
	if (*silent)
		atomic_store_release_u64(&asked, e->user_data);
	return *silent;
}

/* What the daemon does, in the place of the waiting thread. */
static void answer(void *arg)
{
	struct world *w = arg;
	struct fake_client *k = &w->fake->client[0];
	struct abi_cqe *cq = (void *)((uint8_t *)k->region + k->region->cq_offset);
	const uint64_t one = 1;

	answered_ns = time_now_ns();
	cq[k->cq_tail % FAKE_CQ] = (struct abi_cqe){ .user_data = asked, .value = 1 };
	atomic_store_release_u32(&k->region->cq_tail, ++k->cq_tail);
	full_fence();
	wish = atomic_load_relaxed_u32(&k->region->cq_wait);
	if (wish && write(k->event, &one, sizeof(one)) != sizeof(one))
		return;
}

static struct tier_completion got;

static void wait_for_it(void *arg)
{
	struct world *w = arg;

	got.user_data = 0;
	tier_wait(w->t, &got, 1, 1, PATIENCE_NS);
}

static void ask(struct world *w, tier_block b)
{
	asked = 0;
	assert_int_equal(tier_fetch_start(w->c, &b, 1, ASK(TIER_CXL, .user_data = 8)), 0);
	while (!atomic_load_acquire_u64(&asked))
		sched_yield();
}

/* An answer before this instruction ends the wait. False: the thread slept before it. */
static bool ends_the_wait(struct world *w, tier_block b, uint32_t at)
{
	struct step s = { .at = { at }, .happens = { answer }, .arg = w };
	uint64_t begin = time_now_ns();

	ask(w, b);
	answered_ns = 0;
	step_run(&s, wait_for_it);
	if (!answered_ns || answered_ns - begin >= PATIENCE_NS)
		return false;
	assert_int_equal(got.user_data, 8);
	assert_true(time_now_ns() - answered_ns < PATIENCE_NS * 3 / 4); /* not in vain */
	return true;
}

#define CLOSELY 300u /* instructions before the sleep: from the last look without a wake-up on */

/* Up to the system call in which the thread sleeps; closely towards the end. */
static void test_an_answer_at_any_instruction(void **state)
{
	struct world *w = *state;
	tier_block b = world_block(w, 1);
	uint32_t at = 1, last = 1;

	if (!STEP_WORKS)
		skip();
	w->fake->hook = hook_keep;
	for (; ends_the_wait(w, b, at); at += 1 + at / 50)
		last = at;
	assert_true(last > CLOSELY);
	/* The thread looks around by the clock: it may sleep a little earlier this time. */
	for (at = last - CLOSELY; at <= last && ends_the_wait(w, b, at);)
		at += 4;
	w->fake->hook = NULL;
}

/* ---- the event descriptor ------------------------------------------------------------------- */

static bool is_ready(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

static int event_fd;
static bool polled;

static void make_descriptor(void *arg)
{
	struct world *w = arg;

	event_fd = tier_event_fd(w->t);
}

static void poll_nothing(void *arg)
{
	struct world *w = arg;

	got.user_data = 0;
	polled = tier_poll(w->t, &got, 1) == 1;
}

static void look_at_the_wish(void *arg)
{
	const struct world *w = arg;

	wish = atomic_load_relaxed_u32(&w->fake->client[0].region->cq_wait);
}

/* The call, with no wish from before it, and what happens before this instruction. False: none. */
static bool run_until(struct world *w, void (*call)(void *arg), uint32_t at,
		      void (*happens)(void *arg))
{
	struct step s = { .at = { at }, .happens = { happens }, .arg = w };

	atomic_store_relaxed_u32(&w->fake->client[0].region->cq_wait, 0);
	polled = false;
	step_run(&s, call);
	if (s.count < at)
		happens(w);
	return s.count >= at;
}

/* The first instruction behind the wish to be woken. */
static uint32_t find_the_wish(struct world *w, void (*call)(void *arg), uint32_t steps)
{
	uint32_t low = 1, high = steps;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		run_until(w, call, middle, look_at_the_wish);
		if (wish)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

/*
 * An answer before this instruction is taken, or the descriptor tells of it; one that comes before
 * the wish is taken, for behind that the ring is looked at once more. False: it was over.
 */
static bool is_told(struct world *w, tier_block b, void (*call)(void *arg), uint32_t at)
{
	bool in_time;

	ask(w, b);
	in_time = run_until(w, call, at, answer);
	if (!polled && (!wish || !is_ready(event_fd)))
		fail_msg("an answer before instruction %u is not told", at);
	if (!polled)
		assert_int_equal(tier_poll(w->t, &got, 1), 1);
	assert_int_equal(got.user_data, 8);
	while (is_ready(event_fd))
		assert_int_equal(tier_poll(w->t, &got, 1), 0);
	return in_time;
}

#define WISH_NEAR 4u /* instructions on either side of it, one by one */

static void at_any_instruction(struct world *w, void (*call)(void *arg))
{
	struct step whole = { .arg = w };
	tier_block b = world_block(w, 1);
	uint32_t steps, at = 1, before = 0, behind = 0;

	steps = step_run(&whole, call);
	assert_true(steps > 100);
	while (is_told(w, b, call, at))
		at += step_stride(steps);
	at = find_the_wish(w, call, steps) - WISH_NEAR;
	for (uint32_t i = 0; i < 2 * WISH_NEAR; i++) {
		is_told(w, b, call, at + i);
		before += !wish;
		behind += wish != 0;
	}
	assert_true(before && behind);
}

/* When the caller has taken all there is, and when its descriptor is not ready at all. */
static void test_the_event_descriptor_tells_of_an_answer_at_any_instruction(void **state)
{
	struct world *w = *state;

	if (!STEP_WORKS)
		skip();
	w->fake->hook = hook_keep;
	close(0); /* is one like any other */
	make_descriptor(w);
	assert_int_equal(event_fd, 0);
	at_any_instruction(w, poll_nothing);
	w->fake->hook = NULL;
	world_teardown(state);
	assert_int_equal(open("/dev/null", O_RDONLY), 0);
	world_setup(state);
}

/* While it is made: each time by another connection. */
static void test_a_new_event_descriptor_tells_of_an_answer(void **state)
{
	struct world *w = *state;
	struct step whole = { .arg = w };
	uint32_t steps;

	if (!STEP_WORKS)
		skip();
	steps = step_run(&whole, make_descriptor);
	for (uint32_t at = 1; at <= steps; at += 1 + steps / 60) {
		struct step s = { .at = { at }, .happens = { answer } };

		world_teardown(state);
		world_setup(state);
		s.arg = w = *state;
		w->fake->hook = hook_keep;
		ask(w, world_block(w, 1));
		step_run(&s, make_descriptor);
		if (s.count >= at && !is_ready(event_fd))
			fail_msg("an answer before instruction %u is not told", at);
		w->fake->hook = NULL;
		assert_int_equal(tier_poll(w->t, &got, 1), s.count >= at);
	}
}

/* ---- signals -------------------------------------------------------------------------------- */

static void nothing(int signal_number)
{
	(void)signal_number;
}

/* A signal every millisecond, for this thread, that restarts no system call. */
static timer_t begin_signals(void)
{
	struct sigevent e = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1 };
	struct itimerspec often = { { 0, NS_PER_MS }, { 0, NS_PER_MS } };
	struct sigaction a;
	timer_t timer;

	memset(&a, 0, sizeof(a));
	a.sa_handler = nothing;
	assert_int_equal(sigaction(SIGUSR1, &a, NULL), 0);
	e._sigev_un._tid = (pid_t)syscall(SYS_gettid);
	assert_int_equal(timer_create(CLOCK_MONOTONIC, &e, &timer), 0);
	assert_int_equal(timer_settime(timer, 0, &often, NULL), 0);
	return timer;
}

static bool hook_slow(struct fake *f, const struct abi_sqe *e, struct abi_cqe *c, bool *silent)
{
	(void)f;
	(void)e;
	(void)c;
	(void)silent;
	usleep(5000);
	return false;
}

static void test_signals_end_no_wait(void **state)
{
	struct world *w = *state;
	tier_block b = world_block(w, 1);
	struct tier_completion c;
	tier_context *again;
	timer_t timer;
	char *reply;
	tier *t;

	w->fake->delay_us = 5000;
	w->fake->hook = hook_slow;
	timer = begin_signals();
	for (uint32_t i = 0; i < 5; i++) {
		t = world_connect(w);
		tier_close(t);
		assert_int_equal(tier_context_open(w->t, "ctx", NULL, &again), 0);
		tier_context_close(again);
		assert_int_equal(tier_admin(w->t, "status", NULL, &reply), 0);
		free(reply);
		assert_int_equal(tier_fetch(w->c, &b, 1, NULL), 1);
		assert_int_equal(tier_fetch_start(w->c, &b, 1, ASK(TIER_CXL, .user_data = i)), 0);
		assert_int_equal(tier_wait(w->t, &c, 1, 1, LONG_NS), 1);
	}
	timer_delete(timer);
	w->fake->delay_us = 0;
	w->fake->hook = NULL;
}

/* ---- streams -------------------------------------------------------------------------------- */

/* What was released stays so: the daemon may have used the room anew. */
static void test_released_layers_stay_released(void **state)
{
	struct world *w = *state;
	tier_block b = world_block(w, 1);
	struct abi_stream *line = w->fake->client[0].lines;
	tier_stream *s;

	assert_int_equal(tier_stream_open(w->c, &b, 1, NULL, &s), 0);
	tier_stream_release(s, 5);
	assert_int_equal((uint32_t)line->released, 5);
	tier_stream_release(s, 2);
	assert_int_equal((uint32_t)line->released, 5);
	tier_stream_release(s, UINT32_MAX);
	assert_int_equal((uint32_t)line->released, ABI_STREAM_CLOSED - 1);
	tier_stream_close(s);
	for (uint32_t i = 0; i < 2 * FAKE_STREAMS; i++) {
		assert_int_equal(tier_stream_open(w->c, &b, 1, NULL, &s), 0);
		tier_stream_close(s);
	}
}

/* A daemon that takes streams and never answers them. */
static bool take_streams(struct fake *f, const struct abi_sqe *e, struct abi_cqe *c, bool *silent)
{
	struct abi_stream *line = &f->client[0].lines[e->stream % FAKE_STREAMS];

	(void)c;
	if (e->op != ABI_OP_STREAM)
		return false;
	line->layers = UINT16_MAX;
	line->usable = e->count;
	line->ready = 0;
	atomic_store_release_u32(&line->generation, e->generation);
	*silent = true;
	return true;
}

#define WATCHED_LAYERS 200u

struct watcher {
	tier_stream *s;
	uint32_t seen; /* atomic: layers that it has got */
	int64_t got;   /* the last answer */
};

static void *watch_layers(void *arg)
{
	struct watcher *k = arg;

	for (uint32_t i = 0; i < WATCHED_LAYERS; i++) {
		k->got = tier_stream_wait(k->s, i, time_now_ns() + LONG_NS);
		if (k->got != 1)
			break;
		atomic_store_release_u32(&k->seen, i + 1);
	}
	return NULL;
}

/* The wake-up for a layer comes by the descriptor that the other thread makes quiet. */
static void test_a_layer_and_the_event_descriptor(void **state)
{
	struct world *w = *state;
	tier_block b = world_block(w, 1);
	struct watcher k = { .seen = 0 };
	struct tier_completion c;
	struct abi_stream *line = w->fake->client[0].lines;
	const uint64_t one = 1;
	pthread_t thread;
	bool stuck = false;

	w->fake->hook = take_streams;
	assert_true(tier_event_fd(w->t) >= 0);
	assert_int_equal(tier_stream_open(w->c, &b, 1, NULL, &k.s), 0);
	while (!atomic_load_acquire_u32(&line->generation)) /* it is taken: no layer is ready */
		sched_yield();
	assert_int_equal(pthread_create(&thread, NULL, watch_layers, &k), 0);
	for (uint32_t i = 0; i < WATCHED_LAYERS && !stuck; i++) {
		uint64_t end;

		while (atomic_load_relaxed_u32(&line->wait) != i + 1)
			sched_yield();
		end = time_now_ns() + LONG_NS / 2;
		usleep(200); /* it sleeps by now, as a rule */
		atomic_store_release_u32(&line->ready, i + 1);
		assert_int_equal(write(w->fake->client[0].event, &one, sizeof(one)), sizeof(one));
		assert_int_equal(tier_poll(w->t, &c, 1), 0);
		while (atomic_load_acquire_u32(&k.seen) != i + 1 && time_now_ns() < end)
			sched_yield();
		stuck = atomic_load_acquire_u32(&k.seen) != i + 1;
	}
	pthread_join(thread, NULL);
	assert_int_equal(k.got, 1);
	assert_false(stuck); /* a layer was ready, and its waiter slept */
	w->fake->hook = NULL;
	tier_stream_close(k.s);
}

/* A daemon whose answer comes when the test says so; the stream has two layers. */
static bool take_and_keep(struct fake *f, const struct abi_sqe *e, struct abi_cqe *c, bool *silent)
{
	bool is_stream = take_streams(f, e, c, silent);

	if (is_stream)
		atomic_store_release_u64(&asked, e->user_data);
	return is_stream;
}

static void *wait_behind_the_last(void *arg)
{
	tier_stream *s = arg;

	return (void *)(intptr_t)tier_stream_wait(s, 2, time_now_ns() + LONG_NS);
}

/* All layers are read before the answer is there: who waits for the layer behind them gets it. */
static void test_the_answer_follows_the_last_layer(void **state)
{
	struct tier_stream_progress p = { .size = sizeof(p) };
	struct world *w = *state;
	tier_block b = world_block(w, 1);
	struct abi_stream *line = w->fake->client[0].lines;
	pthread_t thread;
	tier_stream *s;
	void *rc;

	asked = 0;
	w->fake->hook = take_and_keep;
	assert_int_equal(tier_stream_open(w->c, &b, 1, NULL, &s), 0);
	while (!atomic_load_acquire_u64(&asked))
		sched_yield();
	line->layers = 2;
	atomic_store_release_u32(&line->ready, 2);
	assert_int_equal(tier_stream_wait(s, 1, 0), 1);
	assert_int_equal(tier_stream_look(s, &p), 0);
	assert_int_equal(p.ready, 2);
	assert_int_equal(p.ended, 0);
	assert_int_equal(pthread_create(&thread, NULL, wait_behind_the_last, s), 0);
	while (atomic_load_relaxed_u32(&line->wait) != 3)
		sched_yield();
	answer(w);
	assert_int_equal(pthread_join(thread, &rc), 0);
	assert_int_equal((intptr_t)rc, -ENODATA);
	assert_int_equal(tier_stream_look(s, &p), 0);
	assert_int_equal(p.ended, 1);
	assert_int_equal(p.status, TIER_READY);
	assert_int_equal(p.whole, 1);
	w->fake->hook = NULL;
	tier_stream_close(s);
}

/* ---- two processors ------------------------------------------------------------------------- */

#define ROUNDS 1000000u
#define ROUNDS_NS NS_PER_S /* on a loaded machine: as many as there is time for */
#define ENTRIES 64u

/* The library's side and the daemon's, in lock-step rounds. */
struct duel {
	struct ring ring;
	union {
		struct abi_region_header header;
		uint8_t bytes[4096 + ENTRIES * sizeof(struct abi_sqe) +
			      ENTRIES * sizeof(struct abi_cqe)];
	} region __attribute__((aligned(64)));
	uint32_t round, done; /* atomic */
	bool stop;            /* with round */
	uint64_t seen;        /* what the daemon's side read */
	void (*daemon)(struct duel *d, uint32_t round);
};

static void meet(const uint32_t *word, uint32_t wanted)
{
	for (uint32_t i = 0; atomic_load_acquire_u32(word) != wanted; i++) {
		if (i % 16384 == 16383)
			sched_yield();
		cpu_relax();
	}
}

/* Two threads on one processor would take turns: the n-th that we may use, if there is one. */
static void stay_on(int n)
{
	cpu_set_t all, one;

	CPU_ZERO(&one);
	if (sched_getaffinity(0, sizeof(all), &all))
		return;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &all) && n-- == 0)
			CPU_SET(cpu, &one);
	if (CPU_COUNT(&one))
		pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
}

static void loiter(uint32_t n)
{
	for (volatile uint32_t i = 0; i < n; i++)
		;
}

static void *other_processor(void *arg)
{
	struct duel *d = arg;

	stay_on(1);
	for (uint32_t round = 1;; round++) {
		meet(&d->round, round);
		if (d->stop)
			return NULL;
		loiter(round * 7 % 60);
		d->daemon(d, round);
		atomic_store_release_u32(&d->done, round);
	}
}

/* Returns how often the two missed each other. */
static uint32_t fight(struct duel *d, void (*begin)(struct duel *d, uint32_t round),
		      uint64_t (*library)(struct duel *d, uint32_t round))
{
	uint64_t end = time_now_ns() + ROUNDS_NS;
	uint32_t missed = 0, round = 0;
	cpu_set_t before;
	pthread_t thread;

	d->region.header = (struct abi_region_header){
		.magic = ABI_REGION_MAGIC, .version = ABI_VERSION,
		.total_bytes = sizeof(d->region), .sq_entries = ENTRIES, .cq_entries = ENTRIES,
		.sq_offset = 4096, .cq_offset = 4096 + ENTRIES * sizeof(struct abi_sqe),
		.reader_offset = 4096,
	};
	assert_int_equal(ring_open(&d->ring, &d->region, sizeof(d->region)), 0);
	assert_int_equal(pthread_create(&thread, NULL, other_processor, d), 0);
	sched_getaffinity(0, sizeof(before), &before);
	stay_on(0);
	while (!missed && round < ROUNDS && (round % 64 || time_now_ns() < end)) {
		uint64_t mine;

		begin(d, ++round);
		atomic_store_release_u32(&d->round, round);
		loiter(round * 13 % 250);
		mine = library(d, round);
		meet(&d->done, round);
		missed += !mine && !d->seen;
	}
	d->stop = true;
	atomic_store_release_u32(&d->round, round + 1);
	pthread_join(thread, NULL);
	pthread_setaffinity_np(pthread_self(), sizeof(before), &before);
	return missed;
}

/* The daemon goes to sleep: it announces, then looks once more. */
static void daemon_parks(struct duel *d, uint32_t round)
{
	struct abi_region_header *h = d->ring.shared;

	atomic_store_relaxed_u32(&h->sq_wake, 1);
	full_fence();
	d->seen = atomic_load_acquire_u32(&h->sq_tail) == round;
}

static void begin_push(struct duel *d, uint32_t round)
{
	atomic_store_relaxed_u32(&d->ring.shared->sq_wake, 0);
	atomic_store_release_u32(&d->ring.shared->sq_head, round - 1);
}

static uint64_t push(struct duel *d, uint32_t round)
{
	struct abi_sqe e = { .user_data = round };

	assert_int_equal(ring_push(&d->ring, &e), 0);
	return ring_must_ring(&d->ring);
}

/* Either the daemon sees the entry, or the library sees that it sleeps. */
static void test_the_doorbell_is_not_missed(void **state)
{
	static struct duel d = { .daemon = daemon_parks };

	(void)state;
	assert_int_equal(fight(&d, begin_push, push), 0);
}

static void daemon_completes(struct duel *d, uint32_t round)
{
	struct abi_region_header *h = d->ring.shared;

	atomic_store_release_u32(&h->cq_tail, round);
	full_fence();
	d->seen = atomic_load_relaxed_u32(&h->cq_wait);
}

static void begin_wait(struct duel *d, uint32_t round)
{
	struct abi_cqe c;

	if (round > 1)
		assert_int_equal(ring_pop(&d->ring, &c), 1);
	ring_ask_wake(&d->ring, false);
}

static uint64_t wait_for_completion(struct duel *d, uint32_t round)
{
	(void)round;
	ring_ask_wake(&d->ring, true);
	return ring_ready(&d->ring);
}

/* Either the library sees the completion, or the daemon sees that it sleeps. */
static void test_the_wake_up_is_not_missed(void **state)
{
	static struct duel d = { .daemon = daemon_completes };

	(void)state;
	assert_int_equal(fight(&d, begin_wait, wait_for_completion), 0);
}

/* Takes whatever entry the tail tells of; it must be whole. */
static void daemon_takes(struct duel *d, uint32_t round)
{
	struct abi_region_header *h = d->ring.shared;

	for (uint32_t i = 0; i < 200 && atomic_load_acquire_u32(&h->sq_tail) != round; i++)
		;
	d->seen = true;
	if (atomic_load_acquire_u32(&h->sq_tail) == round)
		d->seen = d->ring.sqe[(round - 1) % ENTRIES].user_data == round;
}

static uint64_t push_and_no_more(struct duel *d, uint32_t round)
{
	push(d, round);
	return 0;
}

static void test_the_tail_tells_of_whole_entries(void **state)
{
	static struct duel d = { .daemon = daemon_takes };

	(void)state;
	assert_int_equal(fight(&d, begin_push, push_and_no_more), 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)
	const struct CMUnitTest tests[] = {
		T(test_an_answer_at_any_instruction),
		T(test_the_event_descriptor_tells_of_an_answer_at_any_instruction),
		T(test_a_new_event_descriptor_tells_of_an_answer),
		T(test_signals_end_no_wait),
		T(test_released_layers_stay_released),
		T(test_a_layer_and_the_event_descriptor),
		T(test_the_answer_follows_the_last_layer),
		cmocka_unit_test(test_the_doorbell_is_not_missed),
		cmocka_unit_test(test_the_wake_up_is_not_missed),
		cmocka_unit_test(test_the_tail_tells_of_whole_entries),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
