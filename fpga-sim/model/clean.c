/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cleaning in the golden model (device.h, docs/fpga.md): beyond a limit dirty lines are written to
 * flash ahead of their eviction, where they lie.
 */
#include "inside.h"

uint32_t cleaner_of(const struct device *d, uint32_t set, uint32_t way)
{
	for (uint32_t id = last_unit(d); d->cleaning && id < d->ids; id++) {
		const struct miss *m = &d->misses[id];

		if (m->stage != FREE && m->set == set && m->way == way)
			return id;
	}
	return d->ids;
}

static uint32_t free_cleaner(const struct device *d)
{
	uint32_t id = last_unit(d);

	while (id < d->ids && d->misses[id].stage != FREE)
		id++;
	return id;
}

/* The oldest dirty line of a set that nobody is cleaning. */
static uint32_t oldest_dirty(const struct device *d, uint32_t set)
{
	const struct set *s = &d->sets[set];
	uint32_t best = DEVICE_WAYS;

	for (uint32_t w = 0; w < DEVICE_WAYS; w++) {
		if ((s->valid & s->dirty) >> w & 1 && cleaner_of(d, set, w) == d->ids &&
		    (best == DEVICE_WAYS || s->age[w] < s->age[best]))
			best = w;
	}
	return best;
}

bool device_over(const struct device *d)
{
	return d->dirty > d->settings.dirty_most;
}

bool device_can_clean(const struct device *d)
{
	return device_over(d) && d->cleaning < d->shape.cleans;
}

uint32_t device_cleaning(const struct device *d)
{
	return d->cleaning;
}

uint32_t device_dirty(const struct device *d)
{
	return d->dirty;
}

bool device_reads(const struct device *d)
{
	return d->reading > 0;
}

void device_clean(struct device *d, bool waited, struct device_verdict *v)
{
	uint32_t set = d->clean_set, way = oldest_dirty(d, set), id = free_cleaner(d);
	struct miss *m = &d->misses[id];

	d->clean_set = (uint32_t)((set + 1ull) & ((1ull << d->shape.sets_log) - 1));
	*v = (struct device_verdict){ .what = DEVICE_PASSED, .set = set, .way = way, .id = id };
	if (way == DEVICE_WAYS || !device_can_clean(d) || (d->reading && !waited))
		return;
	v->what = DEVICE_CLEANS;
	v->line = (uint64_t)d->sets[set].tag[way] << d->shape.sets_log | set;
	*m = (struct miss){ .stage = WRITE_DUE, .set = set, .way = way, .line = v->line,
			    .victim = v->line, .given = m->given };
	d->dirty--;
	d->cleaning++;
}

void cleaning_ends(struct device *d, uint32_t id, bool came)
{
	struct miss *m = &d->misses[id];

	m->stage = FREE;
	d->dirty += !came;
	d->cleaning--;
	if (came)
		d->sets[m->set].dirty &= (uint16_t)~(1u << m->way);
	d->count.cleaned += came;
	d->count.broken_cleans += !came;
}
