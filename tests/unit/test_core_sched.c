/*
 * The scheduler by itself: operations are queued into a core, a device that takes one at a time (or
 * many) ends them, and the order in which they were issued is looked at.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/unit.h"
#include "tierd/core/state.h"

#define KIB 1024u
#define PAGE (64 * KIB)
#define ISSUED_MAX 4096u
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
	struct core_event e = { .kind = CORE_EV_IO_DONE };

	assert_true(d->ended < d->count);
	e.io = d->issued[d->ended++].io;
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

/* ---- order ---------------------------------------------------------------------------------- */

static void classes_go_in_order(void **state)
{
	struct device d;
	uint32_t want[] = { ABI_CLASS_DEMAND, ABI_CLASS_DEADLINE, ABI_CLASS_SPECULATIVE,
			    ABI_CLASS_WRITEBACK, ABI_CLASS_CLEANUP };

	(void)state;
	device_open(&d, &(struct core_config){ .device_depth = 1 });
	for (uint32_t k = ABI_CLASS_COUNT; k-- > 0;)
		queue(&d, k, k == 0 ? 1 : SCHED_DAEMON, 1, 0);
	tick(&d, 0);
	assert_int_equal(d.count, 1);
	end_all(&d, 100000);
	assert_int_equal(d.count, ABI_CLASS_COUNT);
	for (uint32_t i = 0; i < ABI_CLASS_COUNT; i++)
		assert_int_equal(issued(&d, i)->klass, want[i]);
	assert_int_equal(d.done, ABI_CLASS_COUNT);
	device_close(&d);
}

static void earliest_deadline_goes_first(void **state)
{
	struct device d;
	const struct core_io *io[3];

	(void)state;
	device_open(&d, &(struct core_config){ .device_depth = 1 });
	io[2] = queue(&d, ABI_CLASS_DEMAND, 1, 1, 0);
	io[1] = queue(&d, ABI_CLASS_DEMAND, 1, 1, d.now_ns + 900 * MS);
	io[0] = queue(&d, ABI_CLASS_DEMAND, 1, 1, d.now_ns + 300 * MS);
	tick(&d, 0);
	end_all(&d, 100000);
	for (uint32_t i = 0; i < 3; i++)
		assert_ptr_equal(issued(&d, i), io[i]);
	device_close(&d);
}

static void clients_take_turns(void **state)
{
	struct device d;
	uint32_t before = 0;
	const struct core_io *one;

	(void)state;
	device_open(&d, &(struct core_config){ .device_depth = 1 });
	for (uint32_t i = 0; i < 300; i++)
		queue(&d, ABI_CLASS_DEMAND, 1, 1, d.now_ns + 500 * MS);
	tick(&d, 0);
	for (uint32_t i = 0; i < 10; i++)
		end_one(&d, 100000);
	one = queue(&d, ABI_CLASS_DEMAND, 2, 1, d.now_ns + 900 * MS);
	before = d.count;
	while (issued(&d, d.count - 1) != one)
		end_one(&d, 100000);
	assert_in_range(d.count - before, 1, 8);
	device_close(&d);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(classes_go_in_order),
	cmocka_unit_test(earliest_deadline_goes_first),
	cmocka_unit_test(clients_take_turns),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
