/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The module of objects as the daemon runs it, on a recorded folder (crash_disk.h), for the tests
 * of it: questions, answers, and bytes that tell which put they are of.
 */
#ifndef TIER_TESTS_OBJECT_DAEMON_H
#define TIER_TESTS_OBJECT_DAEMON_H

#include <poll.h>
#include <sys/eventfd.h>
#include <time.h>

#include "tests/lib/unit.h"
#include "libtier/base/time.h"
#include "tests/unit/crash_disk.h"
#include "tierd/object/object.h"

#define DAEMON_CONTEXTS 2u
/* Of one user: he has no share beside others, and who leaves first is the first of all. */
static struct objects_context daemon_context[DAEMON_CONTEXTS] = { { 7, 0, 70 }, { 8, 0, 70 } };

static struct {
	struct objects *o;
	struct log log;
	int wake;
	struct list answers; /* to others than was asked for last */
	uint32_t seq;
} tierd;

static void daemon_start(uint64_t cxl, uint64_t nvme, uint64_t seed, uint64_t wait_ns)
{
	const struct objects_config config = {
		.path = disk.path, .store_id = 99, .buffered = true, .most = { cxl, nvme },
		.seed = seed, .wait_ns = wait_ns, .wake_fd = tierd.wake, .log = &tierd.log,
		.context = daemon_context, .contexts = DAEMON_CONTEXTS,
	};

	if (objects_open(&tierd.o, &config))
		fail_msg("objects_open");
}

static void daemon_stop(void)
{
	objects_close(tierd.o);
	tierd.o = NULL;
}

/* A folder of its own, in memory where that can be had. */
static void daemon_world(const char *name, enum log_level level)
{
	memset(&tierd, 0, sizeof(tierd));
	list_init(&tierd.answers);
	tierd.log.level = level;
	tierd.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	disk_open(access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm", name);
}

static void daemon_world_end(void)
{
	static struct disk_image none;

	disk_become(&none, false);
	disk_close();
	close(tierd.wake);
}

/* Returns the question's number. */
static uint32_t daemon_ask(struct object_ask *a)
{
	a->who.seq = ++tierd.seq;
	assert_int_equal(objects_ask(tierd.o, a), 0);
	return a->who.seq;
}

/* The answer to a question, if it is there; the caller gives it back. */
static struct object_answer *daemon_take(uint32_t seq)
{
	struct object_answer *a;

	while ((a = objects_answer(tierd.o)))
		list_push_back(&tierd.answers, &a->link);
	list_each(at, &tierd.answers) {
		a = list_entry(at, struct object_answer, link);
		if (a->who.seq != seq)
			continue;
		list_remove(&a->link);
		return a;
	}
	return NULL;
}

/* A turn, and up to a millisecond of sleep if nothing is done then. */
static void daemon_turn(bool sleep)
{
	struct pollfd p = { tierd.wake, POLLIN, 0 };
	uint64_t woken;

	objects_turn(tierd.o, time_now_ns());
	if (poll(&p, 1, sleep) > 0 && read(tierd.wake, &woken, sizeof(woken)) < 0)
		fail_msg("the eventfd cannot be read");
}

static struct object_answer *daemon_answer(uint32_t seq)
{
	for (uint32_t i = 0; i < 20000; i++) {
		struct object_answer *a;

		objects_turn(tierd.o, time_now_ns());
		a = daemon_take(seq);
		if (a)
			return a;
		daemon_turn(true);
	}
	fail_msg("no answer");
	return NULL;
}

/* Waits for the answer: its error, what it tells, its descriptor. */
static int daemon_answered(uint32_t seq, struct wire_object_info *info, int *fd)
{
	struct object_answer *a = daemon_answer(seq);
	int rc = a->error;

	if (info)
		*info = a->info;
	if (fd) {
		*fd = a->fd;
		a->fd = -1;
	}
	objects_answered(a);
	return rc;
}

/* What is wrong with the accounts is printed. */
static void daemon_tell(void *arg, const char *what)
{
	(void)arg;
	print_error("%s\n", what);
}

/* The n bytes of a put's number. */
static void daemon_bytes(uint32_t content, uint8_t *out, size_t n)
{
	struct rng rng = { content };

	for (size_t i = 0; i < n; i++)
		out[i] = (uint8_t)rng_next(&rng);
}

#endif
