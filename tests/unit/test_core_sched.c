/*
 * The scheduler by itself: operations are queued into a core, a device that takes one at a time (or
 * many) ends them, and the order in which they were issued is looked at.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "tests/unit/sched_device.h"

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


/* ---- background beside demand --------------------------------------------------------------- */

static uint32_t under_way(const struct device *d, bool background, uint64_t *bytes)
{
	uint32_t n = 0;

	*bytes = 0;
	for (uint32_t i = d->ended; i < d->count; i++)
		if ((d->issued[i].io->klass != ABI_CLASS_DEMAND) == background) {
			n++;
			*bytes += d->issued[i].io->bytes;
		}
	return n;
}

static void background_goes_in_small_units(void **state)
{
	struct device d;
	const struct core_io *whole;
	uint64_t bytes, moved = 0;
	uint32_t pieces = 0;

	(void)state;
	device_open(&d, &(struct core_config){ .starve_ns = 1000 * MS });
	queue(&d, ABI_CLASS_DEMAND, 1, 1, 0);
	tick(&d, 0);
	end_all(&d, 100000);
	whole = queue(&d, ABI_CLASS_DEADLINE, 1, 16, 0);
	tick(&d, 0);
	while (d.done < 2) {
		assert_int_equal(under_way(&d, true, &bytes), 1);
		assert_in_range(bytes, PAGE, SCHED_UNIT_BUSY);
		assert_int_equal(issued(&d, d.ended)->offset, whole->offset + moved);
		moved += bytes;
		pieces += issued(&d, d.ended)->piece_count;
		end_one(&d, 100000);
	}
	assert_int_equal(pieces, 16);
	assert_int_equal(d.last, 16 * PAGE);
	device_close(&d);
}

static void background_alone_fills_the_device(void **state)
{
	struct device d;
	uint64_t bytes;

	(void)state;
	device_open(&d, &(struct core_config){ .device_depth = 24 });
	for (uint32_t i = 0; i < 8; i++)
		queue(&d, ABI_CLASS_SPECULATIVE, 1, 16, 0);
	tick(&d, 0);
	assert_in_range(under_way(&d, true, &bytes), 4, 24);
	assert_in_range(bytes, 2 << 20, 8 << 20);
	end_all(&d, 300000);
	assert_int_equal(d.done, 8);
	device_close(&d);
}

/* Large demand reads do not pile up on the device: one of another client waits behind few. */
static void demand_on_the_device_is_bounded(void **state)
{
	struct device d;
	uint64_t ns;

	(void)state;
	device_open(&d, &(struct core_config){ .device_depth = 64 });
	for (uint32_t i = 0; i < 32; i++)
		queue(&d, ABI_CLASS_DEMAND, 1, 16, 0);
	queue(&d, ABI_CLASS_DEMAND, 2, 1, 0);
	tick(&d, 0);
	ns = sched_under_way_ns(d.c);
	assert_in_range(ns, SCHED_BUDGET_DEMAND_NS, SCHED_BUDGET_DEMAND_NS + 2 * MS);
	assert_in_range(d.count, 2, 16);
	end_all(&d, 1 * MS);
	assert_int_equal(d.done, 33);
	/* Small ones are held back by their number alone. */
	for (uint32_t i = 0; i < 70; i++)
		queue(&d, ABI_CLASS_DEMAND, 1, 1, 0);
	tick(&d, 0);
	assert_int_equal(d.count - d.ended, 64);
	end_all(&d, 100000);
	device_close(&d);
}

/* A unit that fails takes the rest with it: done is called once, when nothing moves any more. */
static void failed_unit_ends_the_whole(void **state)
{
	struct device d;
	struct core_event e = { .kind = CORE_EV_IO_DONE };

	(void)state;
	device_open(&d, &(struct core_config){ .device_depth = 2 });
	queue(&d, ABI_CLASS_DEADLINE, 1, 64, 0);
	tick(&d, 0);
	assert_int_equal(d.count, 2);
	e.io = d.issued[d.ended++].io;
	e.io->res = -EIO;
	event(&d, &e);
	assert_int_equal(d.done, 0);
	end_one(&d, 100000);
	assert_int_equal(d.done, 1);
	assert_int_equal(d.last, -EIO);
	assert_int_equal(d.count, 2);
	device_close(&d);
}

static uint64_t seen_mask;

static void on_done_mask(struct core *c, struct core_io *io)
{
	seen_mask = io->bad_mask;
	on_done(c, io);
}

/* What did not verify in a unit did not verify in the whole, at its place. */
static void bad_pieces_keep_their_place(void **state)
{
	struct device d;
	struct core_io *whole, *unit;

	(void)state;
	device_open(&d, &(struct core_config){ .device_depth = 1 });
	queue(&d, ABI_CLASS_DEMAND, 1, 1, 0);
	tick(&d, 0);
	whole = queue(&d, ABI_CLASS_DEADLINE, 1, 6, 0);
	whole->priv.done = on_done_mask;
	end_one(&d, 100000);
	for (uint32_t i = 0; i < 3; i++) { /* units of two pages */
		unit = d.issued[d.ended].io;
		assert_int_equal(unit->piece_count, 2);
		unit->bad_mask = i == 0 ? 0 : 1 << (i - 1);
		end_one(&d, 100000);
	}
	assert_int_equal(d.done, 2);
	assert_int_equal(seen_mask, 1 << 2 | 1 << 5);
	device_close(&d);
}

static void landed_makes_room(void **state)
{
	struct device d;
	struct core_event e = { .kind = CORE_EV_IO_LANDED };

	(void)state;
	device_open(&d, &(struct core_config){ .device_depth = 1 });
	queue(&d, ABI_CLASS_DEMAND, 1, 1, 0);
	queue(&d, ABI_CLASS_DEMAND, 1, 1, 0);
	tick(&d, 0);
	assert_int_equal(d.count, 1);
	e.io = d.issued[0].io;
	e.io->res = PAGE;
	event(&d, &e);
	assert_int_equal(d.count, 2);
	assert_int_equal(d.done, 0);
	end_all(&d, 100000);
	assert_int_equal(d.done, 2);
	device_close(&d);
}

/* Demand without end, and background that is due: what it gets in a second. */
static uint64_t background_in_a_second(struct device *d, uint32_t klass, uint32_t *units)
{
	uint64_t bytes = 0, end = d->now_ns + 1000 * MS;

	*units = 0;
	for (uint32_t at = 0; d->now_ns < end;) {
		struct sched_channel_stats l;

		sched_channel_stats(d->c, SCHED_READ, &l);
		for (uint32_t k = l.queued[ABI_CLASS_DEMAND]; k < 4; k++)
			queue(d, ABI_CLASS_DEMAND, k, 1, 0);
		sched_channel_stats(d->c, klass >= ABI_CLASS_WRITEBACK ? SCHED_WRITE : SCHED_READ,
				    &l);
		if (!l.queued[klass])
			queue(d, klass, SCHED_DAEMON, 16, 0);
		tick(d, 0);
		for (uint32_t k = 0; k < 4 && d->ended < d->count; k++)
			end_one(d, 80000);
		for (; at < d->count; at++)
			if (issued(d, at)->klass == klass) {
				bytes += issued(d, at)->bytes;
				(*units)++;
			}
		if (d->ended > ISSUED_MAX / 2) { /* room for the next ones */
			memmove(d->issued, d->issued + d->ended,
				(d->count - d->ended) * sizeof(d->issued[0]));
			at -= d->ended;
			d->count -= d->ended;
			d->ended = 0;
		}
	}
	return bytes;
}

static void nothing_starves(void **state)
{
	(void)state;
	for (uint32_t klass = ABI_CLASS_DEADLINE; klass < ABI_CLASS_COUNT; klass++)
		for (uint32_t yield = 0; yield < 2; yield++) {
			struct device d;
			uint32_t units;

			device_open(&d, &(struct core_config){ .device_depth = 2, .yield = yield,
							       .starve_ns = 10 * MS,
							       .writeback_percent = 1 });
			background_in_a_second(&d, klass, &units);
			/* one in 10 ms, less what an operation takes */
			assert_in_range(units, 85, 120);
			device_close(&d);
		}
}

static void write_back_gets_its_share(void **state)
{
	struct device d;
	uint32_t units;
	uint64_t bytes;

	(void)state;
	device_open(&d, &(struct core_config){ .device_depth = 1, .starve_ns = 1000 * MS,
					       .writeback_percent = 25 });
	bytes = background_in_a_second(&d, ABI_CLASS_WRITEBACK, &units);
	/* A unit is two pages, so about twice as long as a demand read: 1 to 6, of 12,500. */
	assert_in_range(units, 12500 / 8, 12500 / 5);
	assert_in_range(bytes / units, PAGE, SCHED_UNIT_BUSY);
	device_close(&d);
}

/* Keep so many of a class queued while n operations end: reads take 250 us, writes 600 us. */
static void stream(struct device *d, uint32_t n, const uint32_t keep[ABI_CLASS_COUNT],
		   uint64_t moved[2])
{
	moved[0] = moved[1] = 0;
	for (uint32_t i = 0; i < n; i++) {
		for (uint32_t klass = 0; klass < ABI_CLASS_COUNT; klass++) {
			struct sched_channel_stats l;

			sched_channel_stats(d->c, klass >= ABI_CLASS_WRITEBACK ? SCHED_WRITE
									    : SCHED_READ, &l);
			for (uint32_t k = l.queued[klass]; k < keep[klass]; k++)
				queue(d, klass, SCHED_DAEMON, 8, 0);
		}
		tick(d, 0);
		moved[end_one(d, d->issued[d->ended].io->write ? 600000 : 250000)->write]++;
	}
}

/* Writes that take longer than reads are not passed by them for ever. */
static void write_back_gets_its_share_of_staging(void **state)
{
	struct device d;
	uint64_t n[2];
	const uint32_t reads[ABI_CLASS_COUNT] = { [ABI_CLASS_DEADLINE] = 8 };
	const uint32_t writes[ABI_CLASS_COUNT] = { [ABI_CLASS_WRITEBACK] = 8 };
	const uint32_t both[ABI_CLASS_COUNT] = { [ABI_CLASS_DEADLINE] = 8,
						 [ABI_CLASS_WRITEBACK] = 8 };

	(void)state;
	device_open(&d, &(struct core_config){ .starve_ns = 1000 * MS, .writeback_percent = 20 });
	stream(&d, 600, reads, n); /* alone first: what either costs */
	end_all(&d, 250000);
	stream(&d, 300, writes, n);
	stream(&d, 2000, both, n);
	/* a fifth of the time: 600 w = (600 w + 250 r) / 5 */
	assert_in_range(1000 * n[1] / n[0], 85, 125);
	device_close(&d);
}

/*
 * Reads that end before a write is issued that came when so many were queued, and so many more
 * between its end and that of the next one: as a durable run has its data and its record.
 */
static uint32_t reads_before_two_writes(bool waited)
{
	struct device d;
	uint32_t before, reads = 0;

	device_open(&d, &(struct core_config){ .starve_ns = 1000 * MS, .writeback_percent = 10 });
	for (uint32_t i = 0; i < 48; i++)
		queue(&d, ABI_CLASS_DEADLINE, 1, 8, 0);
	tick(&d, 0);
	for (uint32_t write = 0; write < 2; write++) {
		queue(&d, ABI_CLASS_WRITEBACK, SCHED_DAEMON, 4, 0)->priv.node.waited = waited;
		before = d.done;
		tick(&d, 0);
		while (!end_one(&d, 250000)->write)
			assert_in_range(d.done, before, 48);
		reads += d.done - before - 1;
	}
	end_all(&d, 250000);
	device_close(&d);
	return reads;
}

/* Behind what is under way when it comes, and no more: 2.5 ms of reads, and one to make room. */
static void what_is_waited_for_passes_staging(void **state)
{
	(void)state;
	assert_in_range(reads_before_two_writes(true), 2, 12);
	assert_in_range(reads_before_two_writes(false), 14, 48); /* owed first */
}

static void background_yields(void **state)
{
	struct device d;

	(void)state;
	device_open(&d, &(struct core_config){ .yield = true, .starve_ns = 100 * MS });
	queue(&d, ABI_CLASS_DEMAND, 1, 1, 0);
	tick(&d, 0);
	queue(&d, ABI_CLASS_DEADLINE, 1, 1, 0);
	tick(&d, 100000);
	assert_int_equal(d.count, 1);
	end_one(&d, 100000);
	assert_int_equal(d.count, 1);
	assert_in_range(core_next_tick(d.c), d.now_ns + 1, d.now_ns + SCHED_YIELD_NS);
	tick(&d, SCHED_YIELD_NS - 1);
	assert_int_equal(d.count, 1);
	tick(&d, 1);
	assert_int_equal(d.count, 2);
	end_all(&d, 100000);
	device_close(&d);
}

/* One demand read, after there was none for so long. */
static void demand_after(struct device *d, uint64_t gap_ns)
{
	const struct core_io *io;

	tick(d, gap_ns);
	io = queue(d, ABI_CLASS_DEMAND, 1, 1, 0);
	tick(d, 0);
	while (end_one(d, 100000) != io)
		;
}

/* Regular demand leaves gaps: background fills their first part, and is gone by the next one. */
static void gaps_are_filled(void **state)
{
	(void)state;
	for (uint32_t yield = 0; yield < 2; yield++) {
		struct device d;
		uint64_t bytes;

		device_open(&d, &(struct core_config){ .yield = yield, .starve_ns = 100 * MS });
		for (uint32_t i = 0; i < 4; i++)
			demand_after(&d, 2 * MS);
		for (uint32_t i = 0; i < 32; i++)
			queue(&d, ABI_CLASS_DEADLINE, 1, 16, 0);
		tick(&d, 0);
		assert_in_range(under_way(&d, true, &bytes), 2, 8);
		assert_in_range(bytes, 2 * SCHED_UNIT_BUSY, 8 * SCHED_UNIT_BUSY);
		/* in the last quarter it is as ever: one unit, or none where it yields */
		for (uint64_t end = d.now_ns + 3 * MS / 2; d.now_ns < end;)
			if (d.ended < d.count)
				end_one(&d, 100000);
			else
				tick(&d, 100000);
		assert_int_equal(under_way(&d, true, &bytes), !yield);
		/* one that comes too soon is remembered: the next gap is nobody's */
		demand_after(&d, MS / 10);
		demand_after(&d, MS / 10);
		assert_int_equal(under_way(&d, true, &bytes), !yield);
		sched_withdraw(d.c, 1, NULL);
		end_all(&d, 0);
		device_close(&d);
	}
}

/* The end of a gap holds back who may starve, but not who has: the device would be idle. */
static void gaps_end_starves_nobody(void **state)
{
	(void)state;
	for (uint32_t waited = 0; waited < 2; waited++) {
		struct device d;

		device_open(&d, &(struct core_config){ .yield = true, .device_depth = 1,
						       .starve_ns = waited ? 5 * MS : 7 * MS });
		for (uint32_t i = 0; i < 4; i++)
			demand_after(&d, 8 * MS);
		queue(&d, ABI_CLASS_DEADLINE, 1, 4, 0);
		tick(&d, 0);
		assert_int_equal(d.count - d.ended, 1);
		/* of the gap's first 6 ms 0.1 are left: a unit takes longer */
		end_one(&d, 59 * MS / 10);
		assert_int_equal(d.count - d.ended, waited);
		tick(&d, 11 * MS / 10);
		assert_int_equal(d.count - d.ended, 1);
		end_one(&d, 0);
		assert_int_equal(d.done, 5);
		device_close(&d);
	}
}

static bool queue_low(const struct device *d)
{
	struct sched_channel_stats st;

	sched_channel_stats(d->c, SCHED_READ, &st);
	return st.queued[ABI_CLASS_DEADLINE] < 20;
}

/* The device works until so long from now: 50 us an operation. */
static void work_for(struct device *d, uint64_t ns)
{
	for (uint64_t end = d->now_ns + ns; d->now_ns < end;)
		if (d->ended < d->count)
			end_one(d, 50000);
		else
			tick(d, end - d->now_ns < 50000 ? end - d->now_ns : 50000);
}

/* Eight reads one after the other, then none for long: that is where background goes. */
static void bursts_leave_pauses(void **state)
{
	struct device d;
	uint64_t bytes;

	(void)state;
	device_open(&d, &(struct core_config){ .starve_ns = 100 * MS });
	for (uint32_t i = 0; i < 80; i++)
		demand_after(&d, i % 8 ? MS / 50 : 16 * MS);
	for (uint32_t i = 0; i < 40; i++)
		queue(&d, ABI_CLASS_DEADLINE, 1, 16, 0);
	tick(&d, 0);
	assert_int_equal(under_way(&d, true, &bytes), 0);
	tick(&d, MS);
	assert_in_range(under_way(&d, true, &bytes), 2, 8);
	work_for(&d, 14 * MS);
	assert_in_range(under_way(&d, true, &bytes), 0, 1);
	demand_after(&d, MS);
	end_all(&d, 0);
	for (uint32_t i = 1; i < 8; i++) {
		demand_after(&d, MS / 50);
		assert_int_equal(under_way(&d, true, &bytes), 0);
	}
	/* demand that leaves no pause any more is no burst: one unit goes beside it */
	for (uint32_t i = 0; i < 200; i++)
		demand_after(&d, MS / 50);
	queue(&d, ABI_CLASS_DEADLINE, 1, 16, 0);
	demand_after(&d, MS / 50);
	assert_int_equal(under_way(&d, true, &bytes), 1);
	sched_withdraw(d.c, 1, NULL);
	end_all(&d, 0);
	device_close(&d);
}

/* Of gaps without order background has part, little is met at a time; if it yields, seldom. */
static void random_gaps_are_shared(void **state)
{
	uint32_t met[2] = { 0, 0 }, much = 0;
	uint64_t bytes = 0;

	(void)state;
	for (uint64_t round = 0; round < 20; round++) {
		uint64_t x = 7 + round / 2;
		bool yield = round % 2;
		struct device d;

		device_open(&d, &(struct core_config){ .yield = yield, .starve_ns = 100 * MS });
		for (uint32_t i = 0; i < 400; i++) {
			x = x * 6364136223846793005u + 1442695040888963407u;
			work_for(&d, (uint64_t)(-log((double)((x >> 40) + 1) / 0x1p24) * 2 * MS));
			met[yield] += i >= 200 && under_way(&d, true, &bytes) > !yield;
			much += i >= 200 && !yield && bytes > 4 * SCHED_UNIT_BUSY;
			demand_after(&d, 0);
			while (i >= 190 && queue_low(&d))
				queue(&d, ABI_CLASS_DEADLINE, 1, 16, 0);
		}
		sched_withdraw(d.c, 1, NULL);
		end_all(&d, 0);
		device_close(&d);
	}
	assert_in_range(met[0], 2000 / 20, 2000 / 2);
	assert_in_range(much, 0, 2000 / 20);
	assert_in_range(met[1], 2000 / 200, 2000 * 4 / 100);
}

/* ---- early ends ----------------------------------------------------------------------------- */

static void late_work_never_reaches_the_device(void **state)
{
	struct device d;

	(void)state;
	device_open(&d, &(struct core_config){ .device_depth = 1 });
	queue(&d, ABI_CLASS_DEMAND, 1, 1, 0);
	queue(&d, ABI_CLASS_DEADLINE, 1, 1, d.now_ns + 5 * MS);
	tick(&d, 0);
	assert_in_range(core_next_tick(d.c), d.now_ns, d.now_ns + 5 * MS);
	tick(&d, 5 * MS);
	assert_int_equal(d.done, 1);
	assert_int_equal(d.last, -ETIME);
	end_all(&d, 100000);
	assert_int_equal(d.count, 1);
	assert_int_equal(core_metrics(d.c)->expired, 1);
	device_close(&d);
}

static void withdrawn_ends_at_once(void **state)
{
	struct device d;
	struct core_io *other;

	(void)state;
	device_open(&d, &(struct core_config){ .device_depth = 1 });
	for (uint32_t i = 0; i < 4; i++)
		queue(&d, ABI_CLASS_DEMAND, 1, 1, 0);
	other = queue(&d, ABI_CLASS_DEMAND, 1, 1, 0);
	other->priv.owner = NULL;
	tick(&d, 0);
	sched_withdraw(d.c, 2, NULL);
	assert_int_equal(d.done, 0);
	sched_withdraw(d.c, 1, &d); /* one of them is under way */
	assert_int_equal(d.done, 3);
	assert_int_equal(d.last, -ECANCELED);
	end_all(&d, 100000);
	assert_int_equal(d.count, 2);
	assert_ptr_equal(issued(&d, 1), other);
	device_close(&d);
}

static void raised_read_goes_as_demand(void **state)
{
	struct core_io *raised;
	struct device d;
	uint64_t at;

	(void)state;
	device_open(&d, &(struct core_config){ .device_depth = 1 });
	queue(&d, ABI_CLASS_DEMAND, 1, 1, 0);
	for (uint32_t i = 0; i < 8; i++)
		queue(&d, ABI_CLASS_SPECULATIVE, 1, 1, d.now_ns + 100 * MS);
	raised = queue(&d, ABI_CLASS_SPECULATIVE, 1, 4, d.now_ns + 100 * MS);
	tick(&d, 0);
	at = raised->offset / DISK_SECTOR; /* a place, of the first drive */
	assert_false(sched_raise(d.c, at - PAGE / DISK_SECTOR, ABI_CLASS_DEMAND, 0));
	assert_false(sched_raise(d.c, at, ABI_CLASS_SPECULATIVE, 0));
	assert_true(sched_raise(d.c, at + 3 * PAGE / DISK_SECTOR, ABI_CLASS_DEMAND, 0));
	assert_false(sched_raise(d.c, at, ABI_CLASS_DEMAND, 0));
	sched_withdraw(d.c, 1, NULL); /* but somebody waits for that one */
	assert_int_equal(d.done, 8);
	tick(&d, 200 * MS); /* and without a deadline */
	assert_int_equal(d.done, 8);
	end_one(&d, 100000);
	assert_ptr_equal(issued(&d, 1), raised);
	end_all(&d, 100000);
	assert_int_equal(d.last, 4 * PAGE);
	device_close(&d);
}

static void pool_keeps_room_for_others(void **state)
{
	struct device d;
	uint32_t n = 0;

	(void)state;
	device_open(&d, &(struct core_config){ 0 });
	while (core_io_get(d.c, ABI_CLASS_SPECULATIVE, 1))
		n++;
	assert_in_range(n, 8, SCHED_BACKGROUND_IOS);
	while (core_io_get(d.c, ABI_CLASS_DEMAND, 2))
		n++;
	assert_in_range(n, CORE_IO_MAX / 2, CORE_IO_MAX * 3 / 4);
	for (uint32_t i = 0; i < 8; i++) {
		assert_non_null(core_io_get(d.c, ABI_CLASS_DEMAND, 3));
		assert_non_null(core_io_get(d.c, ABI_CLASS_WRITEBACK, SCHED_DAEMON));
	}
	device_close(&d);
}

/* ---- estimates ------------------------------------------------------------------------------ */

static void estimates_come_from_what_was_measured(void **state)
{
	struct device d;
	struct sched_channel_stats l;
	uint64_t idle, behind;

	(void)state;
	device_open(&d, &(struct core_config){ .device_depth = 24 });
	for (uint32_t i = 0; i < 2000; i++) { /* 2 GB/s: a page in 32 us */
		queue(&d, ABI_CLASS_DEMAND, 1, 1, 0);
		tick(&d, 0);
		if (d.count - d.ended > 16)
			end_one(&d, 32768);
	}
	end_all(&d, 32768);
	for (uint32_t i = 0; i < 100; i++) { /* alone: 100 us; says nothing of the bandwidth */
		queue(&d, ABI_CLASS_DEMAND, 1, 1, 0);
		tick(&d, 0);
		end_one(&d, 100000);
		tick(&d, 50 * MS);
	}
	sched_channel_stats(d.c, SCHED_READ, &l);
	assert_in_range(l.bandwidth, 1900000000, 2100000000);
	assert_in_range(l.latency_ns, 60000, 75000);
	assert_in_range(l.idle_permille, 900, 1000);
	idle = sched_ready_ns(d.c, SCHED_READ, PAGE, ABI_CLASS_DEMAND, 0);
	assert_in_range(idle, 90000, 110000);
	for (uint32_t i = 0; i < 40; i++)
		queue(&d, ABI_CLASS_DEMAND, 1, 1, d.now_ns + 100 * MS);
	tick(&d, 0);
	behind = sched_ready_ns(d.c, SCHED_READ, PAGE, ABI_CLASS_DEMAND, 0);
	assert_in_range(behind - idle, 36 * 32768, 44 * 32768);
	/* With an earlier deadline it would pass the 16 that wait. */
	behind = sched_ready_ns(d.c, SCHED_READ, PAGE, ABI_CLASS_DEMAND, d.now_ns + MS);
	assert_in_range(behind - idle, 22 * 32768, 26 * 32768);
	/* A prefetch goes beside demand at the pace of its units. */
	assert_true(sched_ready_ns(d.c, SCHED_READ, 16 * PAGE, ABI_CLASS_DEADLINE, 0) >
		    sched_ready_ns(d.c, SCHED_READ, 16 * PAGE, ABI_CLASS_DEMAND, 0));
	for (uint32_t i = 0; i < 16; i++) /* what is under way does not end */
		tick(&d, 50 * MS);
	sched_channel_stats(d.c, SCHED_READ, &l);
	assert_in_range(l.idle_permille, 0, 200);
	device_close(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(classes_go_in_order),
		cmocka_unit_test(earliest_deadline_goes_first),
		cmocka_unit_test(clients_take_turns),
		cmocka_unit_test(background_goes_in_small_units),
		cmocka_unit_test(background_alone_fills_the_device),
		cmocka_unit_test(demand_on_the_device_is_bounded),
		cmocka_unit_test(failed_unit_ends_the_whole),
		cmocka_unit_test(bad_pieces_keep_their_place),
		cmocka_unit_test(landed_makes_room),
		cmocka_unit_test(nothing_starves),
		cmocka_unit_test(write_back_gets_its_share),
		cmocka_unit_test(write_back_gets_its_share_of_staging),
		cmocka_unit_test(what_is_waited_for_passes_staging),
		cmocka_unit_test(background_yields),
		cmocka_unit_test(gaps_are_filled),
		cmocka_unit_test(gaps_end_starves_nobody),
		cmocka_unit_test(bursts_leave_pauses),
		cmocka_unit_test(random_gaps_are_shared),
		cmocka_unit_test(late_work_never_reaches_the_device),
		cmocka_unit_test(withdrawn_ends_at_once),
		cmocka_unit_test(raised_read_goes_as_demand),
		cmocka_unit_test(pool_keeps_room_for_others),
		cmocka_unit_test(estimates_come_from_what_was_measured),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
