/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One turn of the loop: the time that all its events carry, and the TICK that goes before the
 * first of them. Whoever feeds the core does it through here.
 */
#ifndef TIERD_FRONT_TURN_H
#define TIERD_FRONT_TURN_H

#include "libtier/base/time.h"
#include "tierd/core/core.h"

struct turn {
	struct core *core;
	uint64_t now_ns;
	uint64_t clock_ns; /* the last look at the clock: now_ns, turn_mark, an event's end */
	bool ticked;
	uint32_t fed; /* events but the TICK: was anything going on? */
	uint64_t event_ns_most; /* the longest of all */
};

/* Something that may take long came after the last event, and is none. */
static inline void turn_mark(struct turn *t)
{
	t->clock_ns = time_now_ns();
}

static inline void turn_event(struct turn *t, const struct core_event *event)
{
	uint64_t begun = t->clock_ns, took;

	core_event(t->core, event);
	t->clock_ns = time_now_ns();
	took = t->clock_ns - begun;
	t->event_ns_most = took > t->event_ns_most ? took : t->event_ns_most;
}

/* Tell the core the time, once a turn; right after the clock was looked at. */
static inline void turn_tick_next(struct turn *t)
{
	struct core_event tick = { .kind = CORE_EV_TICK, .now_ns = t->now_ns };

	if (t->ticked)
		return;
	t->ticked = true;
	turn_event(t, &tick);
}

/* The same at any time: before the core's control functions are called. */
static inline void turn_tick(struct turn *t)
{
	turn_mark(t);
	turn_tick_next(t);
}

/* And the wall clock: that it goes on is nothing going on. */
static inline void turn_clock(struct turn *t, uint64_t wall_ms)
{
	struct core_event clock = { .kind = CORE_EV_CLOCK, .now_ns = t->now_ns,
				    .wall_ms = wall_ms };

	turn_tick(t);
	turn_event(t, &clock);
}

/* An event right after the clock was looked at, if the turn had its TICK. */
static inline void turn_next(struct turn *t, struct core_event *event)
{
	if (!t->ticked)
		turn_tick(t);
	event->now_ns = t->now_ns;
	t->fed++;
	turn_event(t, event);
}

static inline void turn_feed(struct turn *t, struct core_event *event)
{
	turn_mark(t);
	turn_next(t, event);
}

#endif
