/*
 * Waiting; see wait.h. Wake-ups cannot be lost: a sleeper asks the daemon for one (cq_wait), then
 * looks once more, then sleeps on the level-triggered eventfd.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "libtier/src/wait.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "libtier/base/time.h"
#include "libtier/src/attach.h"
#include "libtier/src/error.h"
#include "libtier/src/submit.h"

/* A busy daemon answers sooner than a sleep and a wake-up take. */
#define SPIN_NS (8 * NS_PER_US)
#define SPIN_LOOK 32u /* pauses between two looks at the clock */

#define POLLED 3

static void event_signal(int fd)
{
	const uint64_t one = 1;

	/* Full means signalled. */
	if (write(fd, &one, sizeof(one)) != sizeof(one))
		return;
}

static void event_clear(int fd)
{
	uint64_t count;

	/* Empty means cleared. */
	if (read(fd, &count, sizeof(count)) != sizeof(count))
		return;
}

/* ---- sleeping -------------------------------------------------------------------------------- */

/* Without the lock, inside a: is a completion there within a few microseconds? */
static bool spin(const struct attachment *a, uint32_t head)
{
	uint64_t end = time_now_ns() + SPIN_NS;

	do {
		for (uint32_t i = 0; i < SPIN_LOOK; i++) {
			if (atomic_load_acquire_u32(&a->ring.shared->cq_tail) != head)
				return true;
			cpu_relax();
		}
	} while (time_now_ns() < end);
	return false;
}

/* Without the lock, inside a: sleep on the descriptors. Has the daemon hung up? */
static bool sleep_on(struct tier *t, const struct attachment *a, uint64_t until_ns)
{
	struct pollfd p[POLLED] = {
		{ .fd = a->event, .events = POLLIN },
		{ .fd = a->socket.fd, .events = POLLRDHUP },
		{ .fd = t->wake, .events = POLLIN },
	};
	uint64_t now = time_now_ns();
	struct timespec left = time_to_timespec(until_ns > now ? until_ns - now : 0);

	if (ppoll(p, POLLED, &left, NULL) <= 0)
		return false;
	if (p[0].revents & POLLIN)
		event_clear(a->event);
	if (p[2].revents & POLLIN)
		event_clear(t->wake);
	return p[1].revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL);
}

/* Does a caller sleep on a descriptor that the daemon is to make readable? */
static bool watched(struct tier *t) REQUIRES(t->lock)
{
	list_each(at, &t->queues)
		if (list_entry(at, struct tier_queue, link)->event_fd >= 0)
			return true;
	return false;
}

/* The one thread that looks after the descriptors for all. */
static void poll_for_all(struct tier *t, struct attachment *a, uint64_t until_ns)
	REQUIRES(t->lock)
{
	uint32_t head = a->ring.cq_head;
	bool hung_up = false;

	t->polling = true;
	atomic_add_u32(&a->users, 1);
	lock_release(&t->lock);
	if (!spin(a, head)) {
		ring_ask_wake(&a->ring, true);
		if (atomic_load_acquire_u32(&a->ring.shared->cq_tail) == head)
			hung_up = sleep_on(t, a, until_ns);
	}
	lock_acquire(&t->lock);
	atomic_sub_u32(&a->users, 1);
	t->polling = false;
	/* The caller's event descriptor needs the daemon's wake-ups for good. */
	if (a == connection_attachment(t) && !a->dead)
		ring_ask_wake(&a->ring, watched(t));
	if (hung_up)
		attach_fail(t, a);
	pthread_cond_broadcast(&t->moved);
}

void wait_step(struct tier *t, uint64_t until_ns)
{
	struct attachment *a = connection_attachment(t);
	struct timespec until;

	if (a->dead && t->handover_ns) {
		attach_follow(t);
		return;
	}
	if (!t->polling && !a->dead) {
		poll_for_all(t, a, until_ns);
		return;
	}
	until = time_to_timespec(until_ns);
	pthread_cond_timedwait(&t->moved, &t->lock.mutex, &until);
}

void wait_handover(struct tier *t)
{
	while (connection_attachment(t)->dead && t->handover_ns)
		attach_follow(t);
}

void wait_moved(struct tier *t)
{
	pthread_cond_broadcast(&t->moved);
	if (t->polling)
		event_signal(t->wake);
	list_each(at, &t->queues) {
		struct tier_queue *q = list_entry(at, struct tier_queue, link);

		if (q->event_fd >= 0 && q->done.count > 0 && !q->notified) {
			event_signal(q->notify);
			q->notified = true;
		}
	}
}

/* ---- the caller's completions ---------------------------------------------------------------- */

static void watch(const struct tier_queue *q, int fd, uint32_t events)
{
	struct epoll_event e = { .events = events, .data.fd = fd };

	epoll_ctl(q->event_fd, EPOLL_CTL_ADD, fd, &e);
}

void wait_event_forget(struct tier *t, struct attachment *a)
{
	list_each(at, &t->queues) {
		struct tier_queue *q = list_entry(at, struct tier_queue, link);

		if (q->event_fd < 0)
			continue;
		epoll_ctl(q->event_fd, EPOLL_CTL_DEL, a->event, NULL);
		epoll_ctl(q->event_fd, EPOLL_CTL_DEL, a->socket.fd, NULL);
	}
}

static void follow(const struct tier_queue *q, struct attachment *a)
{
	watch(q, a->event, EPOLLIN);
	watch(q, a->socket.fd, EPOLLRDHUP);
	ring_ask_wake(&a->ring, true);
}

void wait_event_follow(struct tier *t, struct attachment *a)
{
	list_each(at, &t->queues) {
		struct tier_queue *q = list_entry(at, struct tier_queue, link);

		if (q->event_fd >= 0)
			follow(q, a);
	}
}

int queue_event_fd(struct tier_queue *q)
{
	struct tier *t = q->t;

	LOCK_SCOPE(&t->lock);
	if (q->event_fd >= 0)
		return q->event_fd;
	q->event_fd = epoll_create1(EPOLL_CLOEXEC);
	if (q->event_fd < 0)
		return error_set(-errno, "event descriptor: %s", strerror(errno));
	watch(q, q->notify, EPOLLIN);
	if (!connection_attachment(t)->dead)
		follow(q, connection_attachment(t));
	submit_collect(t);
	wait_moved(t);
	return q->event_fd;
}

/* The caller has taken all there is: make its descriptor quiet, and notice a dead daemon. */
static void quiet_event(struct tier *t, struct tier_queue *q) REQUIRES(t->lock)
{
	struct attachment *a = connection_attachment(t);
	struct epoll_event e[POLLED];
	int n = epoll_wait(q->event_fd, e, POLLED, 0);

	for (int i = 0; i < n; i++) {
		if (e[i].data.fd == q->notify || e[i].data.fd == a->event)
			event_clear(e[i].data.fd);
		/* It also told of a layer, maybe, and the thread that sleeps on it did not wake. */
		if (e[i].data.fd == a->event && t->polling)
			event_signal(t->wake);
		if (!a->dead && e[i].data.fd == a->socket.fd)
			attach_fail(t, a);
	}
	q->notified = false;
	/* The wish stands from before; anew, it names our processor. Then look once more. */
	if (!a->dead)
		ring_ask_wake(&a->ring, true);
	submit_collect(t);
}

static void take_now(struct tier *t, struct tier_queue *q, struct taken *taken)
	REQUIRES(t->lock)
{
	submit_collect(t);
	submit_take_done(t, q, taken);
	if (taken->count < taken->max && q->event_fd >= 0) {
		quiet_event(t, q);
		submit_take_done(t, q, taken);
	}
}

/* Until min are there, or it is too late, or none will come. */
static int wait_for(struct tier *t, struct tier_queue *q, uint32_t min, uint64_t until)
	REQUIRES(t->lock)
{
	for (;;) {
		submit_collect(t);
		if (q->done.count >= min || time_now_ns() >= until)
			return 0;
		if (connection_attachment(t)->dead && !t->handover_ns) {
			if (q->done.count > 0)
				return 0;
			return error_note(-ENOTCONN, "the daemon is away; tier_check re-attaches");
		}
		wait_step(t, until);
	}
}

static int take(struct tier *t, struct tier_queue *q, const struct queue_wait *w,
		struct taken *taken)
{
	uint64_t now = w->min > 0 ? time_now_ns() : 0;
	uint64_t until = w->timeout_ns > UINT64_MAX - now ? UINT64_MAX : now + w->timeout_ns;
	int rc;

	LOCK_SCOPE(&t->lock);
	rc = w->min > 0 ? wait_for(t, q, w->min, until) : 0;
	if (rc == 0)
		take_now(t, q, taken);
	/* The descriptor of a caller who sleeps on it tells nothing more until then. */
	wait_handover(t);
	return rc;
}

int queue_take(struct tier_queue *q, struct tier_completion *out, const struct queue_wait *w)
{
	struct taken taken = { .out = out, .max = w->max };
	int rc;

	if (!out || w->max == 0 || w->min > w->max)
		return error_note(-EINVAL, "completions: out is NULL, max is 0 or less than min");
	rc = take(q->t, q, w, &taken);
	if (rc)
		return rc;
	if (taken.loads.count > 0)
		load_copy(q->t, &taken.loads, out);
	return (int)taken.count;
}

int tier_event_fd(tier *t)
{
	int rc = connection_check(t);

	return rc ? rc : queue_event_fd(&t->own);
}

int tier_poll(tier *t, struct tier_completion *out, uint32_t max)
{
	int rc = connection_check(t);

	return rc ? rc : queue_take(&t->own, out, &(struct queue_wait){ .max = max });
}

int tier_wait(tier *t, struct tier_completion *out, uint32_t min, uint32_t max,
	      uint64_t timeout_ns)
{
	const struct queue_wait w = { min, max, timeout_ns };
	int rc = connection_check(t);

	return rc ? rc : queue_take(&t->own, out, &w);
}
