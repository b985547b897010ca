/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop: one thread owns the core, the rings and the io_uring.
 *
 *   turn: look at completions -> give the device its next reads, then verify what came -> look at
 *         rings, finished jobs -> feed the core -> carry its actions out -> wake clients and
 *         workers -> submit
 *
 * While anything goes on it turns without system calls: rings are memory, completions are memory.
 * A client is parked ACTIVE_NS after its last request, or after LULL_NS where the device is busy
 * for longer than a wake-up matters: turning for nothing takes time from the engines' threads, and
 * in a virtual machine from the thread that is the device. With all parked the loop sleeps in the
 * kernel after LULL_NS of nothing. It wakes for one of: the front's epoll set, a worker's, a
 * signal, the device, the core's next tick.
 * Who waits for the processor on which the loop turns waits until it sleeps. So the loop gives way,
 * for WAY_NS: after LULL_NS of nothing while a device or worker has something of ours, whose
 * kernel thread may be the one; and, once after each sleep or wait of these, to a client that slept
 * there when it was woken.
 * The three descriptors are one-shot polls in the ring, armed again before the next sleep: a poll
 * looks at the state when it is armed, so nothing is lost in between.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <poll.h>
#include <unistd.h>

#include "libtier/base/atomic.h"
#include "libtier/base/time.h"
#include "tierd/shell.h"
#include "tierd/startup.h"

#define RING_ENTRIES 1024u
#define RING_COMPLETIONS 4096u
#define REAP_BATCH 4u /* the device has its next ones while the others are looked at */
#define TICK_NS (200 * NS_PER_US)   /* between ticks while the loop turns without events */
#define SHORT_NS (50 * NS_PER_US)   /* not worth a sleep */
#define ACTIVE_NS (1 * NS_PER_MS)   /* a ring is looked at after its last request, */
#define LONG_NS (2 * NS_PER_MS)     /* or LULL_NS, where the device has so much to do */
#define LULL_NS (30 * NS_PER_US)    /* without events until the loop gives way or sleeps */
#define WAY_NS (30 * NS_PER_US)     /* what a client takes to wake up and look */
#define SLEEP_MAX_NS (1 * NS_PER_S)
#define DRAIN_NS (60 * NS_PER_S)    /* for what is dirty at the end */
#define ANSWER_NS (20 * NS_PER_MS)  /* for requests under way: later ones are asked again */
#define SETTLE_NS (5 * NS_PER_S)    /* for what is under way at the end */

/* user_data of our own entries; the drive's have a bit of DRIVE_TAG set. */
static uint64_t source_tag(uint32_t source)
{
	return (uint64_t)(source + 1) << 2;
}

/* ---- life ---------------------------------------------------------------------------------- */

int loop_open(struct shell *s)
{
	static const unsigned flags[] = {
		IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
		IORING_SETUP_COOP_TASKRUN,
	};
	static const char *const how[] = { "deferred task work", "cooperative task work" };
	const struct drive_ops *drive = drive_backend(s->config.nvme_backend);
	struct loop *l = &s->loop;
	int rc = -EINVAL;

	for (uint32_t i = 0; i < LOOP_SOURCES; i++)
		l->fd[i] = -1;
	for (size_t i = 0; rc == -EINVAL && i < sizeof(flags) / sizeof(flags[0]); i++) {
		struct io_uring_params p = { .cq_entries = RING_COMPLETIONS };

		p.flags = flags[i] | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_CQSIZE |
			  IORING_SETUP_SUBMIT_ALL | (drive ? drive->ring_flags : 0);
		rc = io_uring_queue_init_params(RING_ENTRIES, &l->ring, &p);
		if (rc == 0)
			obs_fact(&s->obs, "io_uring", "%s", how[i]);
	}
	if (rc) {
		log_error(&s->log, "no io_uring", strerror(-rc),
			  rc == -EPERM	? "allow it: sysctl kernel.io_uring_disabled, seccomp" :
			  rc == -ENOMEM ? "raise the limit of locked memory: ulimit -l" :
					  "Linux 6.1 or newer is needed", "errno=%d", -rc);
		return rc;
	}
	l->open = true;
	l->fd[LOOP_WORKERS] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (l->fd[LOOP_WORKERS] >= 0)
		return 0;
	rc = -errno;
	loop_close(s);
	return rc;
}

void loop_close(struct shell *s)
{
	struct loop *l = &s->loop;

	if (l->open)
		io_uring_queue_exit(&l->ring);
	l->open = false;
	for (uint32_t i = LOOP_WORKERS; i < LOOP_SOURCES; i++)
		if (l->fd[i] >= 0)
			close(l->fd[i]);
}

int loop_signals(struct shell *s)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGUSR2);
	if (sigprocmask(SIG_BLOCK, &set, NULL))
		return -errno;
	s->loop.fd[LOOP_SIGNAL] = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return s->loop.fd[LOOP_SIGNAL] < 0 ? -errno : 0;
}

/* ---- completions --------------------------------------------------------------------------- */

static uint32_t reap(struct shell *s)
{
	struct loop *l = &s->loop;
	struct io_uring_cqe *cqe[REAP_BATCH];
	struct {
		uint64_t data;
		int res;
	} copy[REAP_BATCH];
	uint32_t count = io_uring_peek_batch_cqe(&l->ring, cqe, REAP_BATCH);

	/* Copied first: handling one may submit, and the kernel may need the room. */
	for (uint32_t i = 0; i < count; i++) {
		copy[i].data = cqe[i]->user_data;
		copy[i].res = cqe[i]->res;
	}
	io_uring_cq_advance(&l->ring, count);
	for (uint32_t i = 0; i < count; i++) {
		if (copy[i].data & (DRIVE_TAG | DRIVE_TAG_FLUSH)) {
			dispatch_completion(s, copy[i].data, copy[i].res);
			continue;
		}
		for (uint32_t k = 0; k < LOOP_SOURCES; k++)
			if (copy[i].data == source_tag(k)) {
				l->armed[k] = false;
				l->ready[k] = true;
			}
	}
	return count;
}

static void arm(struct loop *l)
{
	for (uint32_t k = 0; k < LOOP_SOURCES; k++) {
		struct io_uring_sqe *sqe;

		if (l->armed[k] || l->fd[k] < 0)
			continue;
		sqe = io_uring_get_sqe(&l->ring);
		if (!sqe)
			return; /* full of this turn's entries: next turn */
		io_uring_prep_poll_add(sqe, l->fd[k], POLLIN);
		io_uring_sqe_set_data64(sqe, source_tag(k));
		l->armed[k] = true;
	}
}

/* ---- the end ------------------------------------------------------------------------------- */

static void settle(struct shell *s)
{
	struct loop *l = &s->loop;

	front_end_all(s->front, &l->turn, -ESHUTDOWN);
	l->phase = LOOP_SETTLE;
	l->phase_end_ns = l->turn.now_ns + SETTLE_NS;
}

/* Who connects queues up where a next daemon may come. */
static void unlisten(struct shell *s)
{
	if (notify_keeps())
		s->handover.socket = front_leave_socket(s->front);
	else
		front_unlisten(s->front);
}

static void take_signal(struct shell *s)
{
	struct loop *l = &s->loop;
	struct signalfd_siginfo info;

	uint32_t before = l->signals;

	while (read(l->fd[LOOP_SIGNAL], &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		if (info.ssi_signo == SIGHUP)
			startup_reload(s);
		else if (info.ssi_signo == SIGUSR2 && notify_keeps())
			l->restart = true;
		else
			l->signals++;
	}
	if (l->signals == before || l->phase > LOOP_DRAIN)
		return;
	if (l->phase == LOOP_RUN) {
		notify_stopping();
		unlisten(s);
	}
	if (l->signals > 1) {
		log_warn(&s->log, "second signal: not waiting for write-back", NULL, NULL, "");
		settle(s);
		return;
	}
	log_info(&s->log, "stopping: writing what is dirty", NULL, "");
	turn_tick(&l->turn);
	l->phase = LOOP_DRAIN;
	l->phase_end_ns = l->turn.now_ns + DRAIN_NS;
	if (core_drain(s->core, SHELL_TOKEN_DRAIN))
		settle(s);
}

static bool settled(const struct shell *s)
{
	return dispatch_idle(s) && (!s->objects || objects_idle(s->objects));
}

/* What can be asked again may be; a deletion ends here, as long as its device may take. */
static bool answered_enough(const struct shell *s)
{
	return !core_deleting(s->core) ||
	       s->loop.turn.now_ns >= s->loop.phase_end_ns + SETTLE_NS;
}

/* DRAIN or ANSWER -> SETTLE -> END */
static void advance(struct shell *s)
{
	struct loop *l = &s->loop;
	bool late = l->turn.now_ns >= l->phase_end_ns;

	if (l->phase == LOOP_DRAIN && (l->drained || late)) {
		if (!l->drained)
			log_warn(&s->log, "stopping with blocks not written", NULL,
				 "look at the store's device", "");
		settle(s);
	} else if (l->phase == LOOP_ANSWER &&
		   (front_answered(s->front) || (late && answered_enough(s)))) {
		settle(s);
	} else if (l->phase == LOOP_SETTLE && (late || settled(s))) {
		l->phase = LOOP_END;
	}
}

/* What is dirty is handed over, too. */
static bool leaves_dirty(const struct loop *l)
{
	return l->upgrade || l->restart;
}

/* What is under way is answered first, where that is soon: clients ask the rest of the next one. */
static void hand_over(struct shell *s)
{
	struct loop *l = &s->loop;

	log_info(&s->log, "upgrade: handing over to",
		 l->upgrade ? s->handover.program : "the service manager", "");
	if (l->restart)
		notify_stopping();
	notify_status("handing over");
	s->handover.socket = front_leave_socket(s->front);
	l->phase = LOOP_ANSWER;
	l->phase_end_ns = l->turn.now_ns + ANSWER_NS;
}

/* ---- turns --------------------------------------------------------------------------------- */

/* Returns whether there was anything. */
static bool take_sources(struct shell *s)
{
	struct loop *l = &s->loop;
	bool any = l->ready[LOOP_FRONT] || l->ready[LOOP_WORKERS] || l->ready[LOOP_SIGNAL];
	uint64_t count;

	if (l->ready[LOOP_FRONT])
		front_events(s->front, &l->turn);
	if (l->ready[LOOP_WORKERS])
		while (read(l->fd[LOOP_WORKERS], &count, sizeof(count)) < 0 && errno == EINTR)
			;
	if (l->ready[LOOP_SIGNAL])
		take_signal(s);
	memset(l->ready, 0, sizeof(l->ready));
	return any;
}

/* Returns true when the loop may sleep: nothing happened and nobody is about to ask. */
static bool turn(struct shell *s)
{
	struct loop *l = &s->loop;
	struct turn *t = &l->turn;
	uint64_t now = t->clock_ns, awake, took; /* the last turn or sleep ended just now */
	uint32_t hopeful, did;
	bool woken;

	*t = (struct turn){ .core = s->core, .now_ns = now, .clock_ns = now };
	if (l->tick_wanted || now - l->ticked_ns >= TICK_NS)
		turn_tick_next(t);
	s->obs.turns++;
	s->dispatch.verify_bytes = 0;
	front_tick(s->front, t);
	s->holes.punched += memory_reap(s->memory, s->workers);
	holes_turn(s, t->now_ns);
	exporter_turn(s, t->now_ns);
	trace_turn(&s->trace, s->core, t->now_ns);
	if (t->now_ns - l->clock_ns >= NS_PER_S) {
		l->clock_ns = t->now_ns;
		turn_clock(t, time_wall_ms());
	}
	did = reap(s);
	did += dispatch_landed(s);
	woken = take_sources(s);
	did += dispatch_jobs(s);
	if (s->objects) {
		objects_turn(s->objects, t->now_ns);
		front_objects(s->front, t);
	}
	if (woken || did || s->objects || s->holes.looked_ns == now)
		turn_mark(t); /* that may have taken long */
	awake = core_device_ns(s->core) < LONG_NS ? ACTIVE_NS : LULL_NS;
	hopeful = front_poll(s->front, t, awake);
	/* Nothing new begins. */
	if (!leaves_dirty(l) || l->phase < LOOP_SETTLE)
		did += dispatch_actions(s);
	front_flush(s->front);
	if (leaves_dirty(l) && l->phase == LOOP_RUN)
		hand_over(s);
	if (l->phase != LOOP_RUN)
		advance(s);
	if (t->ticked)
		l->ticked_ns = t->now_ns;
	l->tick_wanted = t->fed > 0 || did > 0 || core_goes_on(s->core);
	if (l->tick_wanted)
		l->busy_ns = t->now_ns;
	arm(l);
	if (io_uring_sq_ready(&l->ring)) /* and what has completed meanwhile shows */
		io_uring_submit_and_get_events(&l->ring);
	turn_mark(t);
	took = t->clock_ns - now;
	if (t->event_ns_most > s->obs.event_ns_most)
		s->obs.event_ns_most = t->event_ns_most;
	s->obs.turn_ns_most = took > s->obs.turn_ns_most ? took : s->obs.turn_ns_most;
	return hopeful == 0 && t->now_ns - l->busy_ns >= LULL_NS;
}

/* At most so long; false: a job has ended meanwhile. */
static bool sleep_for(struct shell *s, uint64_t ns)
{
	struct loop *l = &s->loop;
	struct __kernel_timespec ts = { .tv_sec = (int64_t)(ns / NS_PER_S),
					.tv_nsec = (long long)(ns % NS_PER_S) };
	struct io_uring_cqe *cqe;

	if (!worker_sleep(s->workers))
		return false;
	io_uring_submit_and_wait_timeout(&l->ring, &cqe, 1, &ts, NULL);
	worker_awake(s->workers);
	turn_mark(&l->turn);
	l->tick_wanted = true;
	return true;
}

/*
 * Who is next may be on this processor: whom the loop woke, or who does what it waits for.
 * sched_yield(2) yields nothing to other control groups, so it will not do.
 */
static void give_way(struct shell *s)
{
	struct loop *l = &s->loop;
	bool woke = front_woke_here(s->front) && l->slept;
	bool waits = l->turn.now_ns - l->busy_ns >= LULL_NS && !dispatch_idle(s);

	if (!woke && !waits) {
		cpu_relax();
	} else if (sleep_for(s, WAY_NS)) {
		l->slept = waits;
		s->obs.gave_way++;
	}
}

static void nap(struct shell *s)
{
	struct loop *l = &s->loop;
	uint64_t now = l->turn.now_ns, next = core_next_tick(s->core);
	uint64_t left = next > now ? next - now : 0;

	if (left > front_next(s->front))
		left = front_next(s->front);
	if (s->objects && left > objects_wanted(s->objects))
		left = objects_wanted(s->objects);
	if (left > SLEEP_MAX_NS)
		left = SLEEP_MAX_NS;
	if (l->phase != LOOP_RUN && left > ACTIVE_NS)
		left = ACTIVE_NS;
	if (left < SHORT_NS || !sleep_for(s, left)) {
		l->tick_wanted = left < SHORT_NS;
		cpu_relax();
		return;
	}
	l->slept = true;
	s->obs.sleeps++;
}

int loop_run(struct shell *s)
{
	struct loop *l = &s->loop;

	l->fd[LOOP_FRONT] = front_fd(s->front);
	turn_mark(&l->turn);
	l->busy_ns = l->turn.clock_ns;
	while (l->phase != LOOP_END) {
		if (turn(s))
			nap(s);
		else if (l->tick_wanted)
			cpu_relax();
		else
			give_way(s);
	}
	return dispatch_idle(s) ? 0 : -ETIMEDOUT;
}
