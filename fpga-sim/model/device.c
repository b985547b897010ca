/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device's decisions, as docs/fpga.md has them (device.h). Sets are 64 bytes each, one line of
 * the processor's cache: what this costs is one miss of that for each look-up.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "inside.h"

static uint64_t set_count(const struct device *d)
{
	return 1ull << d->shape.sets_log;
}

static int take_memory(struct device *d)
{
	uint64_t staged = (uint64_t)d->shape.units << d->shape.unit_log, places;

	d->stage_place = set_count(d) * DEVICE_WAYS;
	while (d->stage_place < staged)
		d->stage_place *= 2;
	places = d->stage_place + staged;
	d->sets = aligned_alloc(64, set_count(d) * sizeof(*d->sets));
	d->misses = calloc(d->ids, sizeof(*d->misses));
	if (!d->sets || !d->misses)
		return -ENOMEM;
	memset(d->sets, 0, set_count(d) * sizeof(*d->sets));
	if (!d->store.line)
		return 0;
	d->dram_bytes = places * d->line_bytes;
	d->poison = calloc(places * d->poison_words, sizeof(*d->poison));
	d->dram = mmap(NULL, d->dram_bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (d->dram == MAP_FAILED)
		d->dram = NULL;
	return d->dram && d->poison ? 0 : -ENOMEM;
}

int device_open(struct device **out, const struct device_shape *shape,
		const struct device_store *store)
{
	struct device *d;
	int rc;

	if (shape->mshrs < 1 || shape->mshrs > DEVICE_MSHRS_MAX || shape->tag_bits > 16 ||
	    shape->tag_bits < 1 || shape->sets_log > 32 || shape->line_log > 16 ||
	    shape->units < 1 || shape->units > DEVICE_UNITS_MAX ||
	    shape->cleans < 1 || shape->cleans > DEVICE_CLEANS_MAX ||
	    shape->units & (shape->units - 1) || shape->unit_log < 1 || shape->unit_log > 6)
		return -EINVAL;
	d = calloc(1, sizeof(*d));
	if (!d)
		return -ENOMEM;
	d->shape = *shape;
	if (store)
		d->store = *store;
	d->line_bytes = DEVICE_FLIT << shape->line_log;
	d->poison_words = shape->line_log > 6 ? 1u << (shape->line_log - 6) : 1;
#define DEVICE_SETTING(name, offset, reset) d->settings.name = reset;
	DEVICE_SETTINGS(DEVICE_SETTING)
#undef DEVICE_SETTING
	d->ids = shape->mshrs + shape->units + shape->cleans;
	d->id_bits = 1;
	while (1u << d->id_bits < d->ids)
		d->id_bits++;
	d->probing = DEVICE_WINDOWS;
	rc = take_memory(d);
	if (rc) {
		device_close(d);
		return rc;
	}
	*out = d;
	return 0;
}

void device_close(struct device *d)
{
	if (!d)
		return;
	if (d->dram)
		munmap(d->dram, d->dram_bytes);
	free(d->poison);
	free(d->misses);
	free(d->sets);
	free(d);
}

/* --- bytes */

static uint8_t *place_bytes(struct device *d, uint64_t place)
{
	return d->dram + place * d->line_bytes;
}

static uint64_t staged_place(const struct device *d, uint32_t id, uint64_t line)
{
	uint64_t index = line & ((1ull << d->shape.unit_log) - 1);

	return d->stage_place + ((uint64_t)(id - d->shape.mshrs) << d->shape.unit_log) + index;
}

static void flit_access(struct device *d, const struct device_request *r, struct device_verdict *v)
{
	uint64_t flit = r->address / DEVICE_FLIT & ((1ull << d->shape.line_log) - 1);
	uint64_t place = v->what == DEVICE_STAGED ? staged_place(d, v->id, v->line) :
						    (uint64_t)v->set * DEVICE_WAYS + v->way;
	uint8_t *bytes;
	uint64_t *word, bit = 1ull << flit % 64;

	if (!d->dram)
		return;
	bytes = place_bytes(d, place) + flit * DEVICE_FLIT;
	word = &d->poison[place * d->poison_words + flit / 64];
	if (!r->write) {
		memcpy(v->data, bytes, DEVICE_FLIT);
		v->poison = *word & bit;
		return;
	}
	memcpy(bytes, r->data, DEVICE_FLIT);
	*word = r->poison ? *word | bit : *word & ~bit;
}

static void move_line(struct device *d, uint64_t place, uint64_t line, bool write)
{
	uint64_t *words, *own = &d->poison[place * d->poison_words];
	uint8_t *bytes = d->store.line(d->store.arg, line, &words);

	if (write) {
		memcpy(bytes, place_bytes(d, place), d->line_bytes);
		memcpy(words, own, d->poison_words * sizeof(*own));
	} else {
		memcpy(place_bytes(d, place), bytes, d->line_bytes);
		memcpy(own, words, d->poison_words * sizeof(*own));
	}
}

/* What the command of a miss register or of a unit moves. */
static struct device_command command_of(const struct device *d, uint32_t id, bool write)
{
	const struct miss *m = &d->misses[id];

	if (is_unit(d, id))
		return (struct device_command){ .line = m->line, .lines = 1u << d->shape.unit_log,
						.place = staged_place(d, id, m->line) };
	return (struct device_command){ .write = write, .line = write ? m->victim : m->line,
					.place = (uint64_t)m->set * DEVICE_WAYS + m->way,
					.lines = 1 };
}

static void move(struct device *d, uint32_t id, bool write)
{
	struct device_command c = command_of(d, id, write);

	for (uint32_t i = 0; d->dram && i < c.lines; i++)
		move_line(d, c.place + i, c.line + i, write);
}

/* --- look-ups */

static bool pending(const struct set *s, uint32_t way)
{
	return (~s->valid & s->dirty) >> way & 1;
}

uint32_t find_tag(const struct set *s, uint16_t tag)
{
	for (uint32_t w = 0; w < DEVICE_WAYS; w++) {
		if (s->tag[w] == tag && (s->valid | s->dirty) >> w & 1)
			return w;
	}
	return DEVICE_WAYS;
}

static uint32_t find_victim(const struct device *d, const struct set *s)
{
	uint32_t best = DEVICE_WAYS, set = (uint32_t)(s - d->sets);

	for (uint32_t w = 0; w < DEVICE_WAYS; w++) {
		if (!((s->valid | s->dirty) >> w & 1))
			return w;
		if (!pending(s, w) && (best == DEVICE_WAYS || s->age[w] < s->age[best]) &&
		    cleaner_of(d, set, w) == d->ids)
			best = w;
	}
	return best;
}

bool line_leaves(const struct device *d, uint64_t line)
{
	for (uint32_t i = 0; i < d->shape.mshrs; i++) {
		const struct miss *m = &d->misses[i];

		if (m->stage != FREE && m->dirty && m->victim == line)
			return true;
	}
	return false;
}

static uint32_t free_mshr(const struct device *d)
{
	uint32_t i = 0;

	while (i < d->shape.mshrs && d->misses[i].stage != FREE)
		i++;
	return i;
}

static uint32_t mshr_of(const struct device *d, uint64_t line)
{
	uint32_t i = 0;

	while (i < d->shape.mshrs && (d->misses[i].stage == FREE || d->misses[i].line != line))
		i++;
	assert(i < d->shape.mshrs);
	return i;
}

static void take_way(struct device *d, struct set *s, struct device_verdict *v)
{
	struct miss *m = &d->misses[v->id];
	uint32_t bit = 1u << v->way;

	v->evicts = s->valid & bit;
	v->dirty = v->evicts && s->dirty & bit;
	v->victim = v->evicts ? (uint64_t)s->tag[v->way] << d->shape.sets_log | v->set : 0;
	*m = (struct miss){ .stage = v->dirty ? WRITE_DUE : READ_DUE, .set = v->set, .way = v->way,
			    .line = v->line, .victim = v->victim, .dirty = v->dirty,
			    .given = m->given };
	for (uint32_t w = 0; w < DEVICE_WAYS; w++)
		s->age[w] -= s->age[w] != 0;
	s->tag[v->way] = (uint16_t)(v->line >> d->shape.sets_log);
	s->age[v->way] = DEVICE_AGE_MAX;
	s->valid &= (uint16_t)~bit;
	s->dirty |= (uint16_t)bit;
	d->dirty -= v->dirty;
	d->reading++;
	d->count.misses++;
	d->count.evictions += v->evicts;
	d->count.dirty_evictions += v->dirty;
}

static void hit(struct device *d, const struct device_request *r, struct device_verdict *v)
{
	struct set *s = &d->sets[v->set];

	v->what = DEVICE_HIT;
	s->age[v->way] = DEVICE_AGE_MAX;
	d->dirty += r->write && !(s->dirty >> v->way & 1);
	s->dirty |= (uint16_t)(r->write << v->way);
	flit_access(d, r, v);
	d->count.hits++;
	d->count.writes += r->write;
	d->count.reads += !r->write;
}

/* The line is in a unit, or on its way there. */
static void read_unit(struct device *d, const struct device_request *r, struct device_verdict *v)
{
	if (d->misses[v->id].stage != HERE) {
		v->what = DEVICE_JOIN;
		d->count.joins++;
		return;
	}
	v->what = DEVICE_STAGED;
	flit_access(d, r, v);
	d->count.staged_reads++;
	d->count.reads++;
}

static void look_up(struct device *d, const struct device_request *r, struct device_verdict *v)
{
	struct set *s = &d->sets[v->set];
	uint32_t unit;

	v->way = find_tag(s, (uint16_t)(v->line >> d->shape.sets_log));
	if (v->way < DEVICE_WAYS && r->write) {
		v->id = cleaner_of(d, v->set, v->way);
		if (v->id < d->ids) { /* it is read by the drive: no write until that is over */
			v->what = DEVICE_JOIN;
			d->count.joins++;
			return;
		}
	}
	if (v->way < DEVICE_WAYS && !pending(s, v->way)) {
		hit(d, r, v);
		return;
	}
	if (v->way < DEVICE_WAYS) {
		v->what = DEVICE_JOIN;
		v->id = mshr_of(d, v->line);
		d->count.joins++;
		return;
	}
	v->id = unit = unit_of(d, v->line);
	if (unit < d->ids && !r->write) {
		read_unit(d, r, v);
		return;
	}
	v->way = find_victim(d, s);
	v->id = free_mshr(d);
	if (v->id == d->shape.mshrs || v->way == DEVICE_WAYS || line_leaves(d, v->line)) {
		v->what = DEVICE_RETRY;
		d->count.retries++;
		return;
	}
	v->what = DEVICE_MISS;
	v->drops = unit < d->ids;
	if (v->drops) {
		d->misses[unit].held &= ~(1ull << (v->line & ((1u << d->shape.unit_log) - 1)));
		d->count.drops++;
	}
	take_way(d, s, v);
}

static void refuse(struct device *d, const struct device_request *r, struct device_verdict *v)
{
	v->error = true;
	v->poison = !r->write;
	d->count.refusals++;
}

void device_request(struct device *d, const struct device_request *r, struct device_verdict *v)
{
	*v = (struct device_verdict){ .what = DEVICE_REFUSED };
	if (r->address % DEVICE_FLIT || r->address >= device_capacity(d)) {
		refuse(d, r, v);
		return;
	}
	v->line = r->address / d->line_bytes;
	v->set = (uint32_t)(v->line & (set_count(d) - 1));
	look_up(d, r, v);
}

void device_fail(struct device *d, const struct device_request *r, struct device_verdict *v)
{
	*v = (struct device_verdict){ .what = DEVICE_FAILED };
	refuse(d, r, v);
}

static void end_miss(struct device *d, struct miss *m, bool came)
{
	struct set *s = &d->sets[m->set];
	uint32_t bit = 1u << m->way;

	assert(pending(s, m->way));
	s->dirty &= (uint16_t)~bit;
	if (came) {
		s->valid |= (uint16_t)bit;
		d->count.fills++;
	} else {
		s->tag[m->way] = 0;
		s->age[m->way] = 0;
		d->count.broken_fills++;
	}
	m->stage = FREE;
	d->reading--;
}

void device_fill(struct device *d, uint32_t id, struct device_verdict *v)
{
	struct miss *m = &d->misses[id];
	bool came = m->stage == CAME;

	assert(came || m->stage == GAVE_UP);
	*v = (struct device_verdict){ .what = came ? DEVICE_FILLED : DEVICE_BROKEN, .id = id,
				      .line = m->line, .set = m->set, .way = m->way };
	if (is_unit(d, id))
		unit_ends(d, id, came);
	else if (is_cleaner(d, id))
		cleaning_ends(d, id, came);
	else
		end_miss(d, m, came);
}

/* --- flash */

static uint32_t number(const struct device *d, uint32_t id, uint32_t given)
{
	return (given << d->id_bits | id) & 0xffff;
}

bool device_next(const struct device *d, uint32_t id, struct device_command *c)
{
	const struct miss *m;

	if (id >= d->ids)
		return false;
	m = &d->misses[id];
	if (m->stage != WRITE_DUE && m->stage != READ_DUE && m->abort != ABORT_DUE)
		return false;
	*c = command_of(d, id, m->stage == WRITE_DUE);
	c->abort = m->abort == ABORT_DUE;
	c->cid = number(d, id, m->given + 1);
	return true;
}

void device_give(struct device *d, uint32_t id)
{
	struct miss *m = &d->misses[id];

	if (m->abort == ABORT_DUE) {
		m->abort = ABORT_GIVEN;
		m->given++;
		d->count.timeouts++;
		return;
	}
	assert(m->stage == WRITE_DUE || m->stage == READ_DUE);
	d->count.flash_writes += m->stage == WRITE_DUE;
	d->count.flash_reads += m->stage == READ_DUE;
	m->stage = m->stage == WRITE_DUE ? WRITE_GIVEN : READ_GIVEN;
	m->tries++;
	m->given++;
}

int device_expire(struct device *d, uint32_t id)
{
	struct miss *m = id < d->ids ? &d->misses[id] : NULL;

	if (!m || (m->stage != WRITE_GIVEN && m->stage != READ_GIVEN) || m->abort != NO_ABORT)
		return -EINVAL;
	m->abort = ABORT_DUE;
	return 0;
}

enum device_end device_answer(struct device *d, uint32_t cid, bool error)
{
	uint32_t id = cid & ((1u << d->id_bits) - 1);
	struct miss *m = id < d->ids ? &d->misses[id] : NULL;
	bool write = m && m->stage == WRITE_GIVEN;

	if (!m || (!write && m->stage != READ_GIVEN) || m->abort == ABORT_DUE ||
	    number(d, id, m->given) != cid) {
		d->count.strays++;
		return DEVICE_STRAY;
	}
	d->count.flash_errors += error;
	m->abort = NO_ABORT;
	if (error && m->tries < d->settings.flash_tries) {
		m->stage = write ? WRITE_DUE : READ_DUE;
		return DEVICE_GOES_ON;
	}
	m->tries = 0;
	if (!error)
		move(d, id, write);
	if (write && !is_cleaner(d, id)) {
		d->count.lost_lines += error;
		m->stage = READ_DUE;
		return DEVICE_GOES_ON;
	}
	m->stage = error ? GAVE_UP : CAME;
	return error ? DEVICE_GAVE_UP : DEVICE_CAME;
}

bool device_at_end(const struct device *d, uint32_t id, bool *failed)
{
	if (id >= d->ids)
		return false;
	*failed = d->misses[id].stage == GAVE_UP;
	return d->misses[id].stage == CAME || *failed;
}

/* --- what others may see */

uint32_t device_way(const struct device *d, uint32_t set, uint32_t way)
{
	const struct set *s = &d->sets[set];

	return (s->valid >> way & 1u) | (s->dirty >> way & 1u) << 1 | (uint32_t)s->age[way] << 2 |
	       (uint32_t)s->tag[way] << 6;
}

const uint8_t *device_place(const struct device *d, uint64_t place, const uint64_t **poison)
{
	if (!d->dram)
		return NULL;
	*poison = &d->poison[place * d->poison_words];
	return d->dram + place * d->line_bytes;
}

uint32_t device_ids(const struct device *d)
{
	return d->ids;
}

uint64_t device_capacity(const struct device *d)
{
	return (uint64_t)d->line_bytes << (d->shape.sets_log + d->shape.tag_bits);
}

struct device_counters *device_counters(struct device *d)
{
	return &d->count;
}

struct device_settings *device_settings(struct device *d)
{
	return &d->settings;
}
