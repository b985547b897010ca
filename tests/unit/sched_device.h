/*
 * A core, and a device that ends what the core issues when a test says so, in the order of issue.
 * Included by tests of the scheduler only.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_TESTS_SCHED_DEVICE_H
#define TIER_TESTS_SCHED_DEVICE_H

#include <string.h>

#include "tests/lib/unit.h"
#include "tierd/core/state.h"

#define KIB 1024u
#define PAGE (64 * KIB)
#define ISSUED_MAX 16384u
#define START_NS (1000 * MS)

/* What the device has; the oldest is first. */
struct device {
	struct core *c;
	uint64_t now_ns;
	struct core_action issued[ISSUED_MAX];
	uint32_t count, ended; /* [ended, count) are under way */
	uint32_t done;         /* calls of done */
	int32_t last;          /* result of the last one */
};

static struct device *device; /* done has no argument of ours */

static void on_done(struct core *c, struct core_io *io)
{
	device->done++;
	device->last = io->res;
	core_io_put(c, io);
}

static void collect(struct device *d)
{
	struct core_action a;

	while (core_action_next(d->c, &a)) {
		assert_in_range(a.kind, CORE_AC_READ, CORE_AC_WRITE);
		assert_in_range(d->count, 0, ISSUED_MAX - 1);
		d->issued[d->count++] = a;
	}
}

static void event(struct device *d, struct core_event *e)
{
	e->now_ns = d->now_ns;
	core_event(d->c, e);
	collect(d);
}

static void tick(struct device *d, uint64_t ns)
{
	struct core_event e = { .kind = CORE_EV_TICK };

	d->now_ns += ns;
	event(d, &e);
}

/* The oldest operation under way ends after so long. */
static struct core_io *end_one(struct device *d, uint64_t ns)
{
	struct core_event e = { .kind = CORE_EV_IO_DONE, .io = d->issued[d->ended++].io };

	assert_true(d->ended <= d->count);
	e.io->res = (int32_t)e.io->bytes;
	d->now_ns += ns;
	event(d, &e);
	return e.io;
}

static void end_all(struct device *d, uint64_t ns)
{
	while (d->ended < d->count)
		end_one(d, ns);
}

static void device_open(struct device *d, const struct core_config *more)
{
	struct core_config config = *more;

	memset(d, 0, sizeof(*d));
	config.boot_token = 1;
	config.capacity[ABI_TIER_CXL] = 64 << 20;
	assert_int_equal(core_open(&d->c, &config), 0);
	d->now_ns = START_NS;
	device = d;
	tick(d, 0);
}

static void device_close(struct device *d)
{
	core_close(d->c);
	device = NULL;
}

static uint8_t memory[PAGE];

/* Queue an operation of `pages` pages; owner and offset tell it apart. */
static struct core_io *queue(struct device *d, uint32_t klass, uint32_t client, uint32_t pages,
			     uint64_t deadline_ns)
{
	static uint64_t at;
	struct core_io *io = core_io_get(d->c, klass, client);

	assert_non_null(io);
	io->write = klass >= ABI_CLASS_WRITEBACK;
	io->offset = at += 16 * PAGE;
	io->deadline_ns = deadline_ns;
	for (uint32_t i = 0; i < pages; i++)
		io->piece[i] = (struct core_io_piece){ .addr = memory, .bytes = PAGE };
	io->piece_count = pages;
	io->bytes = (uint64_t)pages * PAGE;
	io->priv.done = on_done;
	io->priv.owner = d;
	sched_io(d->c, io);
	return io;
}

static const struct core_io *issued(const struct device *d, uint32_t i)
{
	assert_true(i < d->count);
	return d->issued[i].io;
}

#endif
