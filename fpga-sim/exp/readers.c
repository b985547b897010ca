/* SPDX-License-Identifier: Apache-2.0 */
/* The host and the drive of the experiments (readers.h). */
#include "readers.h"

#include <string.h>

#define PIECES_LOG 7u /* a piece that lies in one place is 1/128 of a way of all sets: 16 MiB */

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

/* A number of `bits` bits for each other one. */
static uint64_t shuffle(uint64_t x, uint32_t bits)
{
	uint64_t mask = (1ull << bits) - 1;

	for (uint32_t i = 0; i < 3; i++) {
		x = (x * 0x9e3779b97f4a7c15u + i) & mask;
		x ^= x >> (bits / 2 + 1);
	}
	return x & mask;
}

uint64_t readers_place(const struct exp_setting *set, uint64_t line)
{
	uint32_t piece_log = set->sets_log - PIECES_LOG;
	uint32_t bits = set->tag_bits + PIECES_LOG - 1; /* the lower half of flash */

	if (set->list)
		return set->list[line];
	if (!set->scattered)
		return line;
	return shuffle(line >> piece_log, bits) << piece_log | (line & ((1ull << piece_log) - 1));
}

bool readers_dirty(const struct exp_setting *set, uint64_t line)
{
	return mix(line) % 1000 < set->dirty;
}

uint64_t readers_random(struct readers *r)
{
	uint64_t lines = 1ull << (r->set->sets_log + r->set->tag_bits);

	r->rng = r->rng * 6364136223846793005u + 1442695040888963407u;
	return lines - 1 - mix(r->rng) % r->set->random_lines;
}

void readers_begin(struct readers *r, const struct exp_setting *set, uint64_t from, uint64_t to)
{
	uint64_t rng = r->rng + from + 1;
	uint32_t ahead_under = r->ahead_under;

	memset(r, 0, sizeof(*r));
	r->set = set;
	r->ahead_under = ahead_under;
	r->begin = r->next = from;
	r->end = to;
	r->allowed = set->windows ? from : to;
	r->rng = rng;
	for (uint32_t i = 0; i < READERS; i++)
		r->idle[r->idle_count++] = (uint16_t)(READERS - 1 - i);
}

static void make_ready(struct readers *r, uint16_t i)
{
	r->ready[(r->ready_head + r->ready_count++) % READERS] = i;
}

/* Readers without a line take one, as far as is allowed. */
static void take_lines(struct readers *r)
{
	while (r->idle_count > 0 && r->next < r->end && r->next < r->allowed) {
		uint16_t i = r->idle[--r->idle_count];

		r->reader[i] = (struct reader){ .line = r->next++ };
		make_ready(r, i);
	}
}

static bool wants_ahead(const struct readers *r)
{
	return r->ahead_next < r->ahead_count && r->ahead_under < r->ahead_most;
}

static bool wants_random(const struct readers *r, uint64_t now)
{
	if (r->set->demand_cycles)
		return (double)now >= r->demand_at && r->under_way < READERS / 4 &&
		       r->done < (r->end - r->begin) << r->set->line_log;
	return r->set->random > 0 && r->under_way < READERS / 4 &&
	       r->random_asked * (1000 - r->set->random) <= (r->done + 1) * r->set->random;
}

bool readers_next(struct readers *r, uint64_t now, struct exp_request *q)
{
	uint64_t flits = 1ull << r->set->line_log;
	struct reader *one;
	uint16_t i;

	take_lines(r);
	if ((double)now < r->link_at ||
	    (r->ready_count == 0 && !wants_random(r, now) && !wants_ahead(r)))
		return false;
	r->link_at = ((double)now - r->link_at > 1 ? (double)now : r->link_at) +
		     r->set->link_cycles;
	if (wants_random(r, now)) {
		uint64_t line = readers_random(r);

		*q = (struct exp_request){ .reader = READER_RANDOM, .flits = 1,
					   .flit = line << r->set->line_log | now % flits };
		r->under_way++;
		r->random_asked++;
		/* half to one and a half of the interval, on average all of it */
		r->demand_at = (double)now + r->set->demand_cycles *
						     (0.5 + (double)(mix(line + now) % 1000) / 1e3);
		return true;
	}
	if (r->ready_count == 0) {
		*q = (struct exp_request){ .reader = READER_AHEAD, .flits = 1,
					   .flit = r->ahead[r->ahead_next++] << r->set->line_log };
		r->ahead_under++;
		return true;
	}
	i = r->ready[r->ready_head];
	one = &r->reader[i];
	r->ready_head = (r->ready_head + 1) % READERS;
	r->ready_count--;
	q->flit = readers_place(r->set, one->line) << r->set->line_log | one->asked;
	q->write = one->asked == flits - 1 && readers_dirty(r->set, one->line);
	q->reader = i;
	q->flits = 1;
	one->asked++;
	if (one->asked < flits && one->asked - one->answered < READER_FLITS)
		make_ready(r, i);
	return true;
}

uint64_t readers_when(const struct readers *r)
{
	double at = r->link_at;
	bool any = r->ready_count > 0 || wants_ahead(r) || wants_random(r, UINT64_MAX) ||
		   (r->idle_count > 0 && r->next < r->end && r->next < r->allowed);

	/* nothing but demand: then its time */
	if (any && r->set->demand_cycles && r->ready_count == 0 && !wants_ahead(r) &&
	    !(r->idle_count > 0 && r->next < r->end && r->next < r->allowed) && r->demand_at > at)
		at = r->demand_at;
	return any ? (uint64_t)at + ((double)(uint64_t)at < at) : UINT64_MAX;
}

static void count_unit(struct readers *r, uint64_t line)
{
	uint32_t log = r->set->unit_log + r->set->line_log;
	uint64_t unit = (line - r->begin) >> r->set->unit_log;

	r->unit_flits[unit % READER_UNITS]++;
	while (r->unit_flits[r->unit_done % READER_UNITS] >> log) {
		r->unit_flits[r->unit_done % READER_UNITS] = 0;
		r->unit_done++;
	}
}

void readers_answer(struct readers *r, uint16_t i)
{
	uint32_t flits = 1u << r->set->line_log;
	struct reader *one;
	bool full;

	if (i == READER_AHEAD) {
		r->ahead_under--;
		return;
	}
	if (i == READER_RANDOM) {
		r->under_way--;
		return;
	}
	one = &r->reader[i];
	full = one->asked - one->answered == READER_FLITS;
	one->answered++;
	r->done++;
	count_unit(r, one->line);
	if (one->answered == flits)
		r->idle[r->idle_count++] = i;
	else if (one->asked < flits && full)
		make_ready(r, i);
}

void readers_delay(struct readers *r, uint64_t cycles)
{
	uint64_t step = cycles / READER_DELAY;

	r->delay[step < READER_DELAYS ? step : READER_DELAYS]++;
}

uint32_t readers_within(const struct readers *r, uint32_t per_mille)
{
	uint64_t all = 0, many = 0;
	uint32_t i = 0;

	for (uint32_t k = 0; k <= READER_DELAYS; k++)
		all += r->delay[k];
	for (; i < READER_DELAYS && (many += r->delay[i]) * 1000 < all * per_mille; i++)
		;
	return (i + 1) * READER_DELAY;
}

void readers_ahead(struct readers *r, const uint64_t *lines, uint32_t count, uint32_t most)
{
	r->ahead = lines;
	r->ahead_count = count;
	r->ahead_next = 0;
	r->ahead_most = most;
}

void readers_allow(struct readers *r, uint64_t lines)
{
	if (r->begin + lines > r->allowed)
		r->allowed = r->begin + lines;
}

bool readers_end(const struct readers *r)
{
	return r->done == (r->end - r->begin) << r->set->line_log && r->under_way == 0;
}

uint64_t drive_due(struct exp_drive *d, const struct exp_setting *set, uint64_t now,
		   uint32_t lines)
{
	if (d->busy < (double)now)
		d->busy = (double)now;
	d->busy += lines * set->flash_cycles;
	return (uint64_t)(d->busy + set->flash_latency);
}
