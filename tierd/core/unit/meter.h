/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The meter: how many items one event of the core has looked at. An item is a page, a block, a key,
 * a reference, or a reader's slot: what a client can make many of. Whatever walks along such things
 * charges the meter, and goes on in a later event once it says so: nobody's request, end or death
 * keeps the loop from others for longer.
 *
 * Of its 4,096 items half are for walks, half for one piece that was begun before these were over:
 *
 *   walk         walks go on, and pieces are begun, while it has been fewer: METER_WALK, unless a
 *                test has less, in which no walk may count on ending at once
 *   METER_PIECE  what is no walk (all keys of a put or of a fetch) is so many at most
 *   meter_logs   entries of access logs, which are heard before it is decided who leaves
 *   meter_park   parked prefetches are looked at while it has been fewer, and
 *   meter_ahead  plans decided, and slabs emptied: what comes after these has the rest
 */
#ifndef TIERD_CORE_METER_H
#define TIERD_CORE_METER_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#include "tierd/core/core.h" /* CORE_ITEMS_MAX */

#define METER_WALK (CORE_ITEMS_MAX / 2)
#define METER_PIECE (CORE_ITEMS_MAX / 2)

struct meter {
	uint32_t walk;  /* see above */
	uint32_t items; /* of the event under way */
	uint32_t logs;  /* of these, entries of access logs */
};

/*
 * A walk through a table, of those that are to end: where it is, and whether it met one that did
 * not end at once. Then it begins anew.
 */
struct meter_pass {
	uint32_t at;
	bool met;
};

static inline void meter_begin(struct meter *m)
{
	m->items = m->logs = 0;
}

static inline void meter_charge(struct meter *m, uint32_t items)
{
	m->items += items;
}

/* Entries of a table of ours that are looked at one after the other: eight are an item. */
static inline void meter_charge_table(struct meter *m, uint32_t entries)
{
	m->items += (entries + 7) / 8;
}

/* Words of pages side by side that are written, and nothing else is done: 128 are an item. */
static inline void meter_charge_words(struct meter *m, uint32_t words)
{
	m->items += (words + 127) / 128;
}

/* Has the event done its share? A walk then leaves the rest to the next one. */
static inline bool meter_spent(const struct meter *m)
{
	return m->items >= m->walk;
}

static inline uint32_t meter_logs(const struct meter *m)
{
	return m->walk / 4;
}

static inline uint32_t meter_park(const struct meter *m)
{
	return m->walk / 2;
}

static inline uint32_t meter_ahead(const struct meter *m)
{
	return m->walk / 4 * 3;
}

/* Nothing was found. -EBUSY: not so far, the event has done its share. */
static inline int meter_else(const struct meter *m, int error)
{
	return meter_spent(m) ? -EBUSY : error;
}

/* The walk is at the table's end. Did it meet none? */
static inline bool meter_pass_over(struct meter_pass *pass)
{
	bool met = pass->met;

	*pass = (struct meter_pass){ 0 };
	return !met;
}

#endif
