/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stream windows of the golden model (device.h, docs/fpga.md): what the prefetch registers order,
 * units that are staged beside the cache, and the watermark.
 */
#include <assert.h>
#include <errno.h>

#include "inside.h"

static uint32_t unit_lines(const struct device *d)
{
	return 1u << d->shape.unit_log;
}

uint32_t unit_of(const struct device *d, uint64_t line)
{
	uint64_t bit = 1ull << (line & (unit_lines(d) - 1));

	for (uint32_t id = d->shape.mshrs; id < last_unit(d); id++) {
		const struct miss *m = &d->misses[id];

		if (m->stage != FREE && m->line >> d->shape.unit_log == line >> d->shape.unit_log &&
		    m->held & bit)
			return id;
	}
	return d->ids;
}

/* --- orders */

void device_prefetch(struct device *d, uint32_t window, const struct device_prefetch *p)
{
	struct window *w = &d->windows[window];
	uint32_t bits = d->shape.sets_log + d->shape.tag_bits - d->shape.unit_log;
	uint64_t unit_bytes = (uint64_t)d->line_bytes << d->shape.unit_log;

	if (w->open)
		return;
	*w = (struct window){ .asked = *p, .first = p->address / unit_bytes };
	w->refused = !p->length || !p->limit || w->first + p->length > 1ull << bits;
	w->open = !w->refused;
	w->begin_at = p->deadline > p->lead ? p->deadline - p->lead : 0;
	if (w->asked.limit > d->shape.units)
		w->asked.limit = d->shape.units;
}

static void close_at_end(struct device *d, uint32_t window)
{
	struct window *w = &d->windows[window];

	if ((w->stop || w->taken == w->asked.length) && w->freed == w->taken &&
	    d->probing != window)
		w->open = false;
}

void device_drain(struct device *d, uint32_t window)
{
	d->windows[window].stop = true;
	close_at_end(d, window);
}

void device_cancel(struct device *d, uint32_t window)
{
	d->windows[window].drop = true;
	device_drain(d, window);
}

void device_release(struct device *d, uint32_t window, uint32_t units)
{
	struct window *w = &d->windows[window];

	if (w->open && units > w->released)
		w->released = units;
}

/* --- what is decided */

static const struct miss *first_unit(const struct device *d, const struct window *w)
{
	return &d->misses[w->unit[w->freed % d->shape.units]];
}

static bool may_free(const struct device *d, const struct window *w)
{
	const struct miss *m = first_unit(d, w);

	if (!w->open || w->freed == w->taken || (m->stage != HERE && m->stage != BAD))
		return false;
	return w->drop || (w->freed < w->released && w->freed < w->mark);
}

static uint32_t free_unit(const struct device *d)
{
	uint32_t id = d->shape.mshrs;

	while (id < last_unit(d) && d->misses[id].stage != FREE)
		id++;
	return id;
}

static bool may_begin(const struct device *d, const struct window *w, uint64_t now)
{
	return w->open && !w->stop && w->taken < w->asked.length &&
	       w->taken - w->freed < w->asked.limit && free_unit(d) < last_unit(d) &&
	       d->staging[w->asked.class] < (d->settings.stage_most >> 8 * w->asked.class & 255) &&
	       now >= w->begin_at;
}

bool device_may(const struct device *d, uint32_t window, enum device_what what, uint64_t now)
{
	if (what == DEVICE_FREED)
		return may_free(d, &d->windows[window]);
	return d->probing == window ||
	       (d->probing == DEVICE_WINDOWS && may_begin(d, &d->windows[window], now));
}

/* Windows whose turn within the class is before this one's. */
static uint32_t before(const struct device *d, uint32_t window)
{
	return (window + DEVICE_WINDOWS - d->turn[d->windows[window].asked.class]) % DEVICE_WINDOWS;
}

static bool goes_first(const struct device *d, uint32_t a, uint32_t b)
{
	uint32_t class = d->windows[a].asked.class, other = d->windows[b].asked.class;

	return class != other ? class < other : before(d, a) < before(d, b);
}

int device_choose(const struct device *d, uint32_t *window, uint64_t now)
{
	uint32_t best = DEVICE_WINDOWS;

	for (uint32_t i = 0; i < DEVICE_WINDOWS; i++) {
		if (may_free(d, &d->windows[i])) {
			*window = i;
			return DEVICE_FREED;
		}
		if (may_begin(d, &d->windows[i], now) &&
		    (best == DEVICE_WINDOWS || goes_first(d, i, best)))
			best = i;
	}
	if (d->probing < DEVICE_WINDOWS)
		best = d->probing;
	*window = best;
	return best < DEVICE_WINDOWS ? DEVICE_HELD : -ENOENT;
}

static uint32_t begin_unit(struct device *d, uint32_t window)
{
	struct window *w = &d->windows[window];
	uint32_t id = free_unit(d);
	struct miss *m = &d->misses[id];

	assert(id < last_unit(d));
	*m = (struct miss){ .stage = PROBING, .window = window,
			    .line = (w->first + w->taken) << d->shape.unit_log,
			    .given = m->given };
	w->unit[w->taken++ % d->shape.units] = id;
	d->turn[w->asked.class] = (window + 1) % DEVICE_WINDOWS;
	d->probing = window;
	d->probed = 0;
	d->staging[w->asked.class]++;
	d->reading++;
	d->count.units_taken++;
	return id;
}

void device_probe(struct device *d, uint32_t window, struct device_verdict *v)
{
	struct window *w = &d->windows[window];
	uint32_t id = d->probing == window ? w->unit[(w->taken - 1) % d->shape.units] :
					     begin_unit(d, window);
	struct miss *m = &d->misses[id];
	const struct set *s;

	*v = (struct device_verdict){ .what = DEVICE_HELD, .id = id, .line = m->line + d->probed };
	v->set = (uint32_t)(v->line & ((1ull << d->shape.sets_log) - 1));
	s = &d->sets[v->set];
	if (find_tag(s, (uint16_t)(v->line >> d->shape.sets_log)) < DEVICE_WAYS ||
	    line_leaves(d, v->line) || unit_of(d, v->line) < d->ids) {
		v->what = DEVICE_SKIPPED;
		d->count.skips++;
	} else {
		m->held |= 1ull << d->probed;
	}
	if (++d->probed == unit_lines(d)) {
		m->stage = READ_DUE;
		d->probing = DEVICE_WINDOWS;
	}
}

void device_free(struct device *d, uint32_t window, struct device_verdict *v)
{
	struct window *w = &d->windows[window];
	uint32_t id = w->unit[w->freed % d->shape.units];

	*v = (struct device_verdict){ .what = DEVICE_FREED, .id = id, .line = d->misses[id].line };
	d->misses[id].stage = FREE;
	d->misses[id].held = 0;
	w->freed++;
	d->count.units_freed++;
	close_at_end(d, window);
}

void unit_ends(struct device *d, uint32_t id, bool came)
{
	struct miss *m = &d->misses[id];
	struct window *w = &d->windows[m->window];

	m->stage = came ? HERE : BAD;
	d->staging[w->asked.class]--;
	d->reading--;
	if (!came) {
		m->held = 0;
		w->failed = w->stop = true;
		d->count.units_broken++;
		return;
	}
	d->count.units_came++;
	/* those behind it may have come before; one that failed is never passed */
	while (w->mark < w->taken && w->mark >= w->freed) {
		m = &d->misses[w->unit[w->mark % d->shape.units]];
		if (m->stage != HERE)
			break;
		w->mark++;
	}
}

/* --- what others may see */

uint32_t device_mark(const struct device *d, uint32_t window)
{
	return d->windows[window].mark;
}

uint32_t device_state(struct device *d, uint32_t window, uint64_t now)
{
	struct window *w = &d->windows[window];
	bool all = !w->refused && w->asked.length && w->mark == w->asked.length;

	w->late = w->late || (w->open && !all && now > w->asked.deadline);
	return (w->open ? DEVICE_OPEN : 0) | (all ? DEVICE_ALL : 0) | (w->failed ? DEVICE_BAD : 0) |
	       (w->late ? DEVICE_LATE : 0) | (w->stop ? DEVICE_STOPPED : 0) |
	       (w->refused ? DEVICE_NOT_TAKEN : 0);
}

bool device_holds(const struct device *d, uint32_t unit, uint32_t index)
{
	const struct miss *m = &d->misses[d->shape.mshrs + unit];

	return m->stage == HERE && m->held >> index & 1;
}
