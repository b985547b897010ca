/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The front against a real core, one turn at a time and with a clock of the test's own: time-outs,
 * parking and the last look before it, when a connection's memory may go, and who gets a wake-up.
 * The peer is this process itself.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "libtier/base/atomic.h"
#include "libtier/base/time.h"
#include "tests/unit/front_turns.h"
#include "tests/unit/step.h"
#include "tierd/front/front_priv.h"

#define BESIDE_DONE 1u
#define BESIDE_LOST 2u

/* ---- the peer ------------------------------------------------------------------------------ */

static void push(struct peer *p)
{
	struct abi_sqe *sq = (void *)((uint8_t *)p->region + p->region->sq_offset);
	uint32_t tail = p->region->sq_tail;

	sq[tail & (p->region->sq_entries - 1)] = (struct abi_sqe){ .user_data = tail };
	atomic_store_release_u32(&p->region->sq_tail, tail + 1);
}

static void ring_bell(struct peer *p)
{
	uint64_t one = 1;

	assert_int_equal(write(p->fd[2], &one, sizeof(one)), 8);
}

static bool hung_up(int sock)
{
	struct pollfd p = { .fd = sock, .events = POLLRDHUP };

	return poll(&p, 1, 0) == 1 && (p.revents & (POLLRDHUP | POLLHUP));
}

static struct abi_reader *reader(struct peer *p)
{
	return (void *)((uint8_t *)p->region + p->region->reader_offset);
}

/* Connections that the core believes to be open. */
static uint32_t open_in_core(void)
{
	struct core_stats stats;

	core_stats(fx.core, &stats);
	return stats.clients;
}

/* ---- cases --------------------------------------------------------------------------------- */

static void test_a_silent_peer_is_hung_up_on(void **state)
{
	int sock = dial();

	(void)state;
	turn(0);
	assert_true(front_next(fx.front) <= 5000 * MS);
	turn(4900 * MS);
	assert_false(hung_up(sock));
	turn(200 * MS);
	assert_true(hung_up(sock));
	assert_int_equal(open_in_core(), 0);
	assert_true(front_next(fx.front) == UINT64_MAX);
	close(sock);
}

static void test_parking(void **state)
{
	struct peer p;

	(void)state;
	greet(&p);
	/* New connections are parked: nobody looks before the bell. */
	assert_int_equal(p.region->sq_wake, 1);
	push(&p);
	assert_int_equal(turn(0), 0);
	assert_int_equal(fx.hopeful, 0);
	ring_bell(&p);
	assert_int_equal(turn(0), 1);
	assert_int_equal(p.region->cq_tail, ABI_RING_BEGIN + 1);
	assert_int_equal(p.region->sq_head, ABI_RING_BEGIN + 1);
	assert_int_equal(p.region->sq_wake, 0);
	/* Watched: no bell needed, for as long as it is active. */
	for (int i = 0; i < 20; i++) {
		p.region->cq_head = p.region->cq_tail;
		push(&p);
		assert_int_equal(turn(MS * 9 / 10), 1);
	}
	assert_int_equal(fx.hopeful, 1);
	turn(MS / 2);
	assert_int_equal(p.region->sq_wake, 0);
	assert_int_equal(fx.hopeful, 1);
	turn(MS / 2);
	assert_int_equal(p.region->sq_wake, 1);
	assert_int_equal(fx.hopeful, 0);
	/* A bell without an entry does no harm. */
	ring_bell(&p);
	assert_int_equal(turn(0), 0);
	assert_int_equal(fx.hopeful, 1);
	leave(&p);
	turn(0);
}

/* Who asks without end gets no more of a turn than the others, and everyone gets one. */
static void test_turns_are_shared(void **state)
{
	struct peer p[10];

	(void)state;
	for (uint32_t i = 0; i < COUNT(p); i++)
		greet_with(&p[i], (struct wire_hello){ .sq_entries = 256 });
	for (uint32_t i = 0; i < COUNT(p); i++) {
		for (uint32_t k = 0; k < 200; k++)
			push(&p[i]);
		ring_bell(&p[i]);
	}
	assert_int_equal(turn(0), 512);
	for (uint32_t i = 0; i < COUNT(p); i++)
		assert_int_equal(p[i].region->cq_tail - ABI_RING_BEGIN, i < 8 ? 64 : 0);
	/* Another one comes first each time: those at the end do not wait for ever. */
	for (uint32_t k = 0; k < 2; k++)
		turn(0);
	for (uint32_t i = 0; i < COUNT(p); i++)
		assert_true(p[i].region->cq_tail - ABI_RING_BEGIN >= 64);
	for (uint32_t i = 0; i < COUNT(p); i++)
		leave(&p[i]);
	turn(0);
}

/* Callers that there is no descriptor for are hung up on, or the loop would spin over them. */
static void test_no_descriptor_for_a_caller(void **state)
{
	struct rlimit before, now;
	struct peer p;
	int sock[2], next;

	(void)state;
	for (int round = 0; round < 2; round++) {
		sock[0] = dial();
		sock[1] = dial();
		next = dup(0);
		close(next);
		assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
		now = before;
		now.rlim_cur = (rlim_t)next;
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
		turn(0);
		turn(0);
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
		for (int i = 0; i < 2; i++) {
			assert_true(hung_up(sock[i]));
			close(sock[i]);
		}
	}
	greet(&p);
	leave(&p);
	turn(0);
}

static void test_completions_wake_who_waits(void **state)
{
	struct peer p;
	uint64_t count;

	(void)state;
	greet(&p);
	push(&p);
	ring_bell(&p);
	turn(0);
	assert_int_equal(read(p.fd[3], &count, 8), -1);
	assert_int_equal(errno, EAGAIN);
	p.region->cq_wait = 1;
	for (int i = 0; i < 3; i++)
		push(&p);
	assert_int_equal(turn(0), 3);
	assert_int_equal(read(p.fd[3], &count, 8), 8);
	assert_int_equal(count, 1); /* one for all of a turn */
	leave(&p);
	turn(0);
}

/* Who slept elsewhere, or does not sleep, is not in the loop's way. */
static void test_who_slept_here_is_told(void **state)
{
	static const struct {
		int from_here;
		bool told;
	} waits[] = { { 0, true }, { 1, false }, { -1, false } };
	cpu_set_t all, one;
	struct peer p;
	int here;

	(void)state;
	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	here = sched_getcpu();
	CPU_ZERO(&one);
	CPU_SET(here, &one);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
	greet(&p);
	ring_bell(&p);
	turn(0);
	for (size_t i = 0; i < COUNT(waits); i++) {
		p.region->cq_wait = (uint32_t)(1 + here + waits[i].from_here);
		push(&p);
		turn(0);
		assert_int_equal(front_woke_here(fx.front), waits[i].told);
		assert_false(front_woke_here(fx.front));
	}
	leave(&p);
	turn(0);
	assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
}

/* However many there are: each of them. */
static void test_many_are_woken(void **state)
{
	struct peer p[CLIENTS];
	uint64_t count;

	(void)state;
	for (uint32_t i = 0; i < CLIENTS; i++) {
		greet(&p[i]);
		p[i].region->cq_wait = 1;
		ring_bell(&p[i]);
	}
	turn(0);
	turn(0); /* bells are heard in batches, too */
	for (uint32_t i = 0; i < CLIENTS; i++)
		push(&p[i]);
	assert_int_equal(turn(0), CLIENTS);
	for (uint32_t i = 0; i < CLIENTS; i++) {
		assert_int_equal(p[i].region->cq_tail, ABI_RING_BEGIN + 1);
		assert_int_equal(read(p[i].fd[3], &count, 8), 8);
	}
	for (uint32_t i = 0; i < CLIENTS; i++)
		leave(&p[i]);
	turn(0);
	turn(0);
}

/* Whatever was asked for: each area of the region has its own bytes. */
static void test_areas_lie_apart(void **state)
{
	static const uint32_t entries[] = { 1, 8, 64, 100, 256, 1000, 4096, 1u << 20 };
	static const uint32_t readers[] = { 1, 7, 64, 100000 };
	struct peer p;

	(void)state;
	for (uint32_t i = 0; i < COUNT(entries) * COUNT(readers); i++) {
		const struct abi_region_header *h;

		greet_with(&p, (struct wire_hello){ .sq_entries = entries[i % COUNT(entries)],
						    .readers = readers[i / COUNT(entries)] });
		h = p.region;
		assert_true(h->cq_entries >= h->sq_entries);
		assert_true(h->sq_offset >= sizeof(*h));
		assert_true(h->cq_offset >= h->sq_offset + h->sq_entries * sizeof(struct abi_sqe));
		assert_true(h->reader_offset >=
			    h->cq_offset + h->cq_entries * sizeof(struct abi_cqe));
		assert_true(h->stream_offset >=
			    h->reader_offset + h->readers_max * sizeof(struct abi_reader));
		assert_true(h->total_bytes >=
			    h->stream_offset + h->streams_max * sizeof(struct abi_stream));
		assert_true(p.bytes >= h->total_bytes);
		leave(&p);
		turn(0);
	}
}

/* R2, and that the loop is told to look again although nothing will tell it. */
static void test_a_full_completion_ring(void **state)
{
	struct peer p;

	(void)state;
	greet(&p);
	ring_bell(&p);
	for (uint32_t i = 0; i < p.region->cq_entries; i++) {
		push(&p);
		assert_int_equal(turn(0), 1);
	}
	assert_true(front_next(fx.front) == UINT64_MAX);
	push(&p);
	assert_int_equal(turn(0), 0);
	assert_int_equal(fx.hopeful, 0);
	assert_true(front_next(fx.front) <= 2 * MS);
	turn(10 * MS);
	assert_int_equal(p.region->sq_wake, 0); /* it has entries: never parked */
	p.region->cq_head = ABI_RING_BEGIN + 1;
	assert_int_equal(turn(0), 1);
	assert_int_equal(p.region->cq_tail, ABI_RING_BEGIN + p.region->cq_entries + 1);
	turn(0);
	assert_true(front_next(fx.front) == UINT64_MAX);
	leave(&p);
	turn(0);
}

/* A connection that said goodbye counts as dead when it hangs up; its memory stays while jobs
 * may refer to it, and its number with it. */
static void test_memory_waits_for_jobs(void **state)
{
	struct peer p[CLIENTS], q;

	(void)state;
	for (uint32_t i = 0; i < CLIENTS; i++)
		greet(&p[i]);
	assert_int_equal(open_in_core(), CLIENTS);
	fx.shell.passed = fx.shell.mark; /* a job is under way from here */
	leave(&p[2]);
	turn(0);
	assert_int_equal(open_in_core(), CLIENTS - 1);
	assert_true(front_next(fx.front) <= 20 * MS);
	/* All numbers are still taken. */
	q.sock = dial();
	turn(0);
	{
		struct wire_hello hello = { .header = { WIRE_MAGIC, ABI_VERSION, WIRE_HELLO,
							sizeof(hello), 1 } };
		struct wire_error error;

		assert_true(send(q.sock, &hello, sizeof(hello), 0) > 0);
		turn(0);
		assert_int_equal(recv(q.sock, &error, sizeof(error), MSG_DONTWAIT),
				 (ssize_t)sizeof(error));
		assert_int_equal(error.error, -EUSERS);
		assert_true(hung_up(q.sock));
		close(q.sock);
	}
	fx.shell.passed = fx.shell.mark; /* it is over */
	turn(0);
	greet(&q);
	assert_int_equal(q.client, p[2].client);
	leave(&q);
	for (uint32_t i = 0; i < CLIENTS; i++)
		if (i != 2)
			leave(&p[i]);
	turn(0);
	turn(0);
	assert_int_equal(open_in_core(), 0);
}

/* Who wants more than there is for one is given what there is for one. */
static void test_wishes_are_bounded(void **state)
{
	const struct wire_hello all = { .staging_bytes = UINT64_MAX, .sq_entries = UINT32_MAX,
					.readers = UINT32_MAX };
	struct peer p;
	struct stat st;

	(void)state;
	greet_with(&p, all);
	assert_int_equal(fstat(p.fd[1], &st), 0);
	assert_int_equal(st.st_size, STAGING_MAX);
	assert_int_equal(p.region->staging_bytes, STAGING_MAX);
	assert_int_equal(p.region->readers_max, ABI_READERS_MAX);
	assert_int_equal(p.region->sq_entries, 16384);
	assert_int_equal(p.region->cq_entries, 2 * 16384);
	leave(&p);
	turn(0);
}

/* Without a goodbye a reader may be about to be opened: the process must end first (R4). */
static void test_who_says_no_goodbye_is_not_dead(void **state)
{
	struct peer p;

	(void)state;
	greet(&p);
	close(p.sock);
	turn(0);
	turn(1000 * MS);
	assert_int_equal(open_in_core(), 0);
	assert_int_equal(fx.shell.mark, 0);
	/* A goodbye that comes too late is none. */
	p.region->goodbye = 1;
	turn(1000 * MS);
	assert_int_equal(fx.shell.mark, 0);
	munmap(p.region, p.bytes);
	for (int i = 0; i < 4; i++)
		close(p.fd[i]);
}

/* ---- the last look ------------------------------------------------------------------------- */

static struct turn polled;

static void poll_rings(void *arg)
{
	(void)arg;
	front_poll(fx.front, &polled, ACTIVE_NS);
}

/* What the client does, in the place of the loop. */
static void push_and_ring(void *arg)
{
	struct peer *p = arg;
	uint64_t one = 1;

	push(p);
	full_fence();
	if (atomic_load_relaxed_u32(&p->region->sq_wake) && write(p->fd[2], &one, 8) != 8)
		p->client = UINT32_MAX;
}

/* An entry that comes at any instruction of the look that parks its client is taken. */
static void test_an_entry_at_any_instruction(void **state)
{
	struct peer p;
	struct step s = { .arg = &p };
	uint32_t steps;

	(void)state;
	if (!STEP_WORKS)
		skip();
	greet(&p);
	ring_bell(&p);
	turn(0);
	polled = (struct turn){ .core = fx.core, .now_ns = fx.now_ns += 2 * MS };
	steps = step_run(&s, poll_rings);
	assert_int_equal(p.region->sq_wake, 1);
	for (uint32_t at = 1; at <= steps; at += step_stride(steps)) {
		s = (struct step){ .at = { at }, .happens = { push_and_ring }, .arg = &p };
		ring_bell(&p);
		turn(0);
		assert_int_equal(p.region->sq_wake, 0);
		polled = (struct turn){ .core = fx.core, .now_ns = fx.now_ns += 2 * MS };
		step_run(&s, poll_rings);
		turn(0);
		assert_int_equal(p.region->sq_head, p.region->sq_tail);
		assert_int_equal(p.region->cq_tail, p.region->sq_tail);
		p.region->cq_head = p.region->cq_tail;
	}
	leave(&p);
	turn(0);
}

#define BESIDE_ROUNDS 100000u
#define BESIDE_NS (2000 * MS)

/* A client on another processor: pushes, rings when it must, looks at what comes back. */
static void *client_beside(void *arg)
{
	struct peer *p = arg;
	const struct abi_cqe *cq = (void *)((uint8_t *)p->region + p->region->cq_offset);
	uint64_t end = time_now_ns() + BESIDE_NS;

	for (uint32_t i = 0; i < BESIDE_ROUNDS && time_now_ns() < end; i++) {
		uint64_t patience = time_now_ns() + 60000 * MS;
		uint32_t at = ABI_RING_BEGIN + i;

		for (volatile uint32_t k = 0; k < i * 7 % 3000; k++)
			;
		push(p);
		full_fence();
		if (atomic_load_relaxed_u32(&p->region->sq_wake))
			ring_bell(p);
		while (atomic_load_acquire_u32(&p->region->cq_tail) == at)
			if (time_now_ns() > patience)
				goto lost;
		if (cq[at & (p->region->cq_entries - 1)].user_data != at)
			goto lost;
		atomic_store_release_u32(&p->region->cq_head, at + 1);
	}
	atomic_store_release_u32(&fx.beside, BESIDE_DONE);
	return NULL;
lost:
	atomic_store_release_u32(&fx.beside, BESIDE_LOST);
	return NULL;
}

/* The loop parks the client whenever it finds nothing: at that moment entries come. */
static void test_parking_beside_a_client(void **state)
{
	struct peer p;
	pthread_t thread;

	(void)state;
	greet(&p);
	assert_int_equal(pthread_create(&thread, NULL, client_beside, &p), 0);
	while (!atomic_load_acquire_u32(&fx.beside))
		turn(2 * MS);
	pthread_join(thread, NULL);
	assert_int_equal(fx.beside, BESIDE_DONE);
	leave(&p);
	turn(0);
}

/* With a reader open, or a hazard word set, leases end with the process only. */
static void test_leases_outlive_the_socket(void **state)
{
	struct peer owned, held;

	(void)state;
	greet(&owned);
	greet(&held);
	owned.region->goodbye = held.region->goodbye = 1;
	reader(&owned)->owned = 1;
	reader(&held)[1].high_water = 10;
	reader(&held)[1].slot[9] = ABI_HAZARD_VALID;
	leave(&owned);
	leave(&held);
	turn(0);
	turn(1000 * MS);
	assert_int_equal(open_in_core(), 0);
	assert_int_equal(fx.shell.mark, 0); /* taken when a connection is dead */
	/* This process is the peer, so they never end here. */
}

/* However high a client says that its words go: only those that there are can be looked at. */
static void test_high_water_beyond_the_slots(void **state)
{
	struct peer p;

	(void)state;
	greet_with(&p, (struct wire_hello){ .sq_entries = 8, .readers = ABI_READERS_MAX });
	for (uint32_t i = 0; i < ABI_READERS_MAX; i++) {
		reader(&p)[i].high_water = UINT32_MAX;
		memset(reader(&p)[i].access, 0xff, sizeof(reader(&p)[i].access));
	}
	leave(&p);
	turn(0);
	turn(1000 * MS);
	assert_int_not_equal(fx.shell.mark, 0); /* no word was set: it counts as dead */
}

static void test_ended_by_the_daemon(void **state)
{
	struct turn t = { .core = fx.core };
	struct peer p;

	(void)state;
	greet(&p);
	t.now_ns = fx.now_ns;
	front_end(fx.front, &t, p.client, -EDQUOT, "too much");
	assert_int_equal(p.region->closed, 1);
	assert_int_equal(p.region->connection_error, EDQUOT);
	assert_true(hung_up(p.sock));
	/* It may still be reading: not dead. */
	turn(0);
	assert_int_equal(fx.shell.mark, 0);
	assert_int_equal(fx.shell.asked, 1); /* what it was granted is taken back, once */
	assert_int_not_equal(fx.shell.revoked, 0);
	front_end(fx.front, &t, 999, -EDQUOT, "nobody");
	leave(&p);
	turn(0);
}

/* What a device has pinned is asked for again, until it is free or the process is dead. */
static void test_pinned_memory_is_asked_for_again(void **state)
{
	struct turn t = { .core = fx.core };
	struct peer p;

	(void)state;
	greet(&p);
	t.now_ns = fx.now_ns;
	fx.shell.asked = 0;
	fx.shell.pinned = 1;
	front_end(fx.front, &t, p.client, -EPROTO, "it lies");
	assert_int_equal(fx.shell.asked, 0); /* for leases alone */
	front_end(fx.front, &t, p.client, -EDQUOT, "gone, and too much");
	assert_int_equal(fx.shell.asked, 1);
	assert_true(front_next(fx.front) < 50 * MS);
	turn(50 * MS);
	turn(MS);
	assert_int_equal(fx.shell.asked, 2);
	fx.shell.pinned = 0;
	turn(50 * MS);
	turn(50 * MS);
	assert_int_equal(fx.shell.asked, 3);
	leave(&p);
	turn(0);
}

static void test_closing_takes_nothing_more(void **state)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	struct peer p;
	int lobby, sock;

	(void)state;
	greet(&p);
	lobby = dial();
	turn(0);
	front_unlisten(fx.front);
	assert_true(hung_up(lobby));
	push(&p);
	ring_bell(&p);
	assert_int_equal(turn(0), 0);
	assert_int_equal(fx.hopeful, 0);
	sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	snprintf(at.sun_path, sizeof(at.sun_path), "%s", fx.path);
	assert_int_equal(connect(sock, (struct sockaddr *)&at, sizeof(at)), -1);
	close(sock);
	close(lobby);
	leave(&p);
	turn(0);
}

/* Who was accepted is welcomed, so as to learn that another daemon comes; not who says nothing. */
static void test_handing_over_tells_who_was_accepted(void **state)
{
	struct wire_hello hello = { .header = { WIRE_MAGIC, ABI_VERSION, WIRE_HELLO, sizeof(hello),
						1 }, .sq_entries = 8 };
	struct turn t = { .core = fx.core };
	struct peer p = { .sock = dial() };
	int silent = dial(), late, fd;

	(void)state;
	turn(0);
	fd = front_leave_socket(fx.front);
	late = dial();
	assert_false(front_answered(fx.front));
	assert_int_equal(send(p.sock, &hello, sizeof(hello), 0), (ssize_t)sizeof(hello));
	turn(0);
	take_welcome(&p);
	assert_int_equal(p.region->closed, 0);
	t.now_ns = fx.now_ns;
	front_end_all(fx.front, &t, -ESHUTDOWN);
	assert_int_equal(p.region->closed, ABI_CLOSED_HANDOVER);
	assert_true(hung_up(silent));
	assert_true(front_answered(fx.front));
	assert_false(hung_up(late)); /* the next daemon's */
	close(silent);
	close(late);
	close(fd);
	assert_int_equal(unlink(fx.path), 0);
	leave(&p);
	turn(0);
}

/* ---- the recount --------------------------------------------------------------------------- */

static void take(void *told, const char *what)
{
	snprintf(told, FRONT_WHY_BYTES, "%s", what);
}

static void wrong_by_one(uint32_t *counter, const char *expected)
{
	char told[FRONT_WHY_BYTES] = "";

	++*counter;
	assert_int_equal(front_audit(fx.front, take, told), 1);
	assert_non_null(strstr(told, expected));
	--*counter;
	assert_int_equal(front_audit(fx.front, take, told), 0);
}

/* An error in any counter of the front is found, and named. */
static void test_every_counter_is_recounted(void **state)
{
	struct front *f = fx.front;
	char told[FRONT_WHY_BYTES];
	struct peer p;
	int silent;

	(void)state;
	greet(&p);
	push(&p);
	ring_bell(&p);
	turn(MS);
	silent = dial();
	turn(0);
	wrong_by_one(&f->greeting, "without a greeting");
	wrong_by_one(&f->dead, "memory is still there");
	wrong_by_one(&f->full, "full completion ring");
	wrong_by_one(&f->revoking, "memory is pinned");
	wrong_by_one(&f->waiting, "wait for a context");
	wrong_by_one(&f->connection[p.client].in_flight, "in flight");
	f->connection[p.client].state = CONNECTION_GONE;
	assert_int_equal(front_audit(f, take, told), 1);
	assert_non_null(strstr(told, "the core knows"));
	f->connection[p.client].state = CONNECTION_OPEN;
	close(silent);
	leave(&p);
	turn(MS);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_a_silent_peer_is_hung_up_on, setup, teardown),
		cmocka_unit_test_setup_teardown(test_parking, setup, teardown),
		cmocka_unit_test_setup_teardown(test_turns_are_shared, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_descriptor_for_a_caller, setup, teardown),
		cmocka_unit_test_setup_teardown(test_completions_wake_who_waits, setup, teardown),
		cmocka_unit_test_setup_teardown(test_who_slept_here_is_told, setup, teardown),
		cmocka_unit_test_setup_teardown(test_many_are_woken, setup, teardown),
		cmocka_unit_test_setup_teardown(test_areas_lie_apart, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_full_completion_ring, setup, teardown),
		cmocka_unit_test_setup_teardown(test_memory_waits_for_jobs, setup, teardown),
		cmocka_unit_test_setup_teardown(test_leases_outlive_the_socket, setup, teardown),
		cmocka_unit_test_setup_teardown(test_high_water_beyond_the_slots, setup, teardown),
		cmocka_unit_test_setup_teardown(test_wishes_are_bounded, setup, teardown),
		cmocka_unit_test_setup_teardown(test_who_says_no_goodbye_is_not_dead, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_an_entry_at_any_instruction, setup, teardown),
		cmocka_unit_test_setup_teardown(test_parking_beside_a_client, setup, teardown),
		cmocka_unit_test_setup_teardown(test_ended_by_the_daemon, setup, teardown),
		cmocka_unit_test_setup_teardown(test_pinned_memory_is_asked_for_again, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_closing_takes_nothing_more, setup, teardown),
		cmocka_unit_test_setup_teardown(test_handing_over_tells_who_was_accepted, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_every_counter_is_recounted, setup, teardown),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("front connection", tests, NULL, NULL);
}
