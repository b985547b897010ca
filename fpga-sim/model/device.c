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

#include "device.h"

struct set {
	uint16_t tag[DEVICE_WAYS];
	uint8_t age[DEVICE_WAYS];
	uint16_t valid, dirty; /* a bit a way; dirty and not valid: pending */
	uint8_t pad[12];
};
_Static_assert(sizeof(struct set) == 64, "a set is one cache line");

enum stage { FREE, WRITE_DUE, WRITE_GIVEN, READ_DUE, READ_GIVEN, CAME, GAVE_UP };

struct mshr {
	enum stage stage;
	uint32_t set, way, tries;
	uint64_t line, victim;
	bool dirty; /* the victim is */
	uint32_t given; /* commands, ever */
};

struct device {
	struct device_shape shape;
	struct device_store store;
	struct device_counters count;
	struct device_settings settings;
	struct set *sets;
	struct mshr *mshrs;
	uint8_t *dram;    /* of all places; NULL without a store */
	uint64_t *poison; /* poison_words of each place */
	uint64_t dram_bytes;
	uint32_t line_bytes, poison_words, mshr_bits;
};

static uint64_t set_count(const struct device *d)
{
	return 1ull << d->shape.sets_log;
}

static int take_memory(struct device *d)
{
	uint64_t places = set_count(d) * DEVICE_WAYS;

	d->sets = aligned_alloc(64, set_count(d) * sizeof(*d->sets));
	d->mshrs = calloc(d->shape.mshrs, sizeof(*d->mshrs));
	if (!d->sets || !d->mshrs)
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
	    shape->tag_bits < 1 || shape->sets_log > 32 || shape->line_log > 16)
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
	d->mshr_bits = 1;
	while (1u << d->mshr_bits < shape->mshrs)
		d->mshr_bits++;
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
	free(d->mshrs);
	free(d->sets);
	free(d);
}

/* --- bytes */

static uint8_t *place_bytes(struct device *d, uint64_t place)
{
	return d->dram + place * d->line_bytes;
}

static void flit_access(struct device *d, const struct device_request *r, struct device_verdict *v)
{
	uint64_t flit = r->address / DEVICE_FLIT & ((1ull << d->shape.line_log) - 1);
	uint64_t place = (uint64_t)v->set * DEVICE_WAYS + v->way;
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

static void move_line(struct device *d, const struct mshr *m, bool write)
{
	uint64_t place = (uint64_t)m->set * DEVICE_WAYS + m->way;
	uint64_t *words, *own = &d->poison[place * d->poison_words];
	uint8_t *bytes;

	if (!d->dram)
		return;
	bytes = d->store.line(d->store.arg, write ? m->victim : m->line, &words);
	if (write) {
		memcpy(bytes, place_bytes(d, place), d->line_bytes);
		memcpy(words, own, d->poison_words * sizeof(*own));
	} else {
		memcpy(place_bytes(d, place), bytes, d->line_bytes);
		memcpy(own, words, d->poison_words * sizeof(*own));
	}
}

/* --- look-ups */

static bool pending(const struct set *s, uint32_t way)
{
	return (~s->valid & s->dirty) >> way & 1;
}

/* The way that has the tag and is not empty, or DEVICE_WAYS. */
static uint32_t find_tag(const struct set *s, uint16_t tag)
{
	for (uint32_t w = 0; w < DEVICE_WAYS; w++) {
		if (s->tag[w] == tag && (s->valid | s->dirty) >> w & 1)
			return w;
	}
	return DEVICE_WAYS;
}

static uint32_t find_victim(const struct set *s)
{
	uint32_t best = DEVICE_WAYS;

	for (uint32_t w = 0; w < DEVICE_WAYS; w++) {
		if (!((s->valid | s->dirty) >> w & 1))
			return w;
		if (!pending(s, w) && (best == DEVICE_WAYS || s->age[w] < s->age[best]))
			best = w;
	}
	return best;
}

/* The first register that is free; and whether one writes this line to flash. */
static uint32_t find_mshr(const struct device *d, uint64_t line, bool *leaves)
{
	uint32_t best = d->shape.mshrs;

	*leaves = false;
	for (uint32_t i = 0; i < d->shape.mshrs; i++) {
		const struct mshr *m = &d->mshrs[i];

		if (m->stage == FREE && best == d->shape.mshrs)
			best = i;
		if (m->stage != FREE && m->dirty && m->victim == line)
			*leaves = true;
	}
	return best;
}

static uint32_t mshr_of(const struct device *d, uint64_t line)
{
	uint32_t i = 0;

	while (i < d->shape.mshrs && (d->mshrs[i].stage == FREE || d->mshrs[i].line != line))
		i++;
	assert(i < d->shape.mshrs);
	return i;
}

static void take_way(struct device *d, struct set *s, struct device_verdict *v)
{
	struct mshr *m = &d->mshrs[v->mshr];
	uint32_t bit = 1u << v->way;

	v->evicts = s->valid & bit;
	v->dirty = v->evicts && s->dirty & bit;
	v->victim = v->evicts ? (uint64_t)s->tag[v->way] << d->shape.sets_log | v->set : 0;
	*m = (struct mshr){ .stage = v->dirty ? WRITE_DUE : READ_DUE, .set = v->set, .way = v->way,
			    .line = v->line, .victim = v->victim, .dirty = v->dirty,
			    .given = m->given };
	for (uint32_t w = 0; w < DEVICE_WAYS; w++)
		s->age[w] -= s->age[w] != 0;
	s->tag[v->way] = (uint16_t)(v->line >> d->shape.sets_log);
	s->age[v->way] = DEVICE_AGE_MAX;
	s->valid &= (uint16_t)~bit;
	s->dirty |= (uint16_t)bit;
	d->count.misses++;
	d->count.evictions += v->evicts;
	d->count.dirty_evictions += v->dirty;
}

static void look_up(struct device *d, const struct device_request *r, struct device_verdict *v)
{
	struct set *s = &d->sets[v->set];
	bool leaves;

	v->way = find_tag(s, (uint16_t)(v->line >> d->shape.sets_log));
	if (v->way < DEVICE_WAYS && !pending(s, v->way)) {
		v->what = DEVICE_HIT;
		s->age[v->way] = DEVICE_AGE_MAX;
		s->dirty |= (uint16_t)(r->write << v->way);
		flit_access(d, r, v);
		d->count.hits++;
		d->count.writes += r->write;
		d->count.reads += !r->write;
		return;
	}
	if (v->way < DEVICE_WAYS) {
		v->what = DEVICE_JOIN;
		v->mshr = mshr_of(d, v->line);
		d->count.joins++;
		return;
	}
	v->way = find_victim(s);
	v->mshr = find_mshr(d, v->line, &leaves);
	if (v->mshr == d->shape.mshrs || v->way == DEVICE_WAYS || leaves) {
		v->what = DEVICE_RETRY;
		d->count.retries++;
		return;
	}
	v->what = DEVICE_MISS;
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

void device_fill(struct device *d, uint32_t mshr, struct device_verdict *v)
{
	struct mshr *m = &d->mshrs[mshr];
	struct set *s = &d->sets[m->set];
	uint32_t bit = 1u << m->way;
	bool came = m->stage == CAME;

	assert(came || m->stage == GAVE_UP);
	assert(pending(s, m->way));
	*v = (struct device_verdict){ .what = came ? DEVICE_FILLED : DEVICE_BROKEN, .mshr = mshr,
				      .line = m->line, .set = m->set, .way = m->way };
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
}

/* --- flash */

static uint32_t number(const struct device *d, uint32_t mshr, uint32_t given)
{
	return (given << d->mshr_bits | mshr) & 0xffff;
}

bool device_next(const struct device *d, uint32_t mshr, struct device_command *c)
{
	const struct mshr *m;

	if (mshr >= d->shape.mshrs)
		return false;
	m = &d->mshrs[mshr];
	if (m->stage != WRITE_DUE && m->stage != READ_DUE)
		return false;
	c->write = m->stage == WRITE_DUE;
	c->line = c->write ? m->victim : m->line;
	c->place = (uint64_t)m->set * DEVICE_WAYS + m->way;
	c->cid = number(d, mshr, m->given + 1);
	return true;
}

void device_give(struct device *d, uint32_t mshr)
{
	struct mshr *m = &d->mshrs[mshr];

	assert(m->stage == WRITE_DUE || m->stage == READ_DUE);
	d->count.flash_writes += m->stage == WRITE_DUE;
	d->count.flash_reads += m->stage == READ_DUE;
	m->stage = m->stage == WRITE_DUE ? WRITE_GIVEN : READ_GIVEN;
	m->tries++;
	m->given++;
}

enum device_end device_answer(struct device *d, uint32_t cid, bool error)
{
	uint32_t mshr = cid & ((1u << d->mshr_bits) - 1);
	struct mshr *m = mshr < d->shape.mshrs ? &d->mshrs[mshr] : NULL;
	bool write = m && m->stage == WRITE_GIVEN;

	if (!m || (!write && m->stage != READ_GIVEN) || number(d, mshr, m->given) != cid) {
		d->count.strays++;
		return DEVICE_STRAY;
	}
	d->count.flash_errors += error;
	if (error && m->tries < d->settings.flash_tries) {
		m->stage = write ? WRITE_DUE : READ_DUE;
		return DEVICE_GOES_ON;
	}
	m->tries = 0;
	if (!error)
		move_line(d, m, write);
	if (write) {
		d->count.lost_lines += error;
		m->stage = READ_DUE;
		return DEVICE_GOES_ON;
	}
	m->stage = error ? GAVE_UP : CAME;
	return error ? DEVICE_GAVE_UP : DEVICE_CAME;
}

bool device_at_end(const struct device *d, uint32_t mshr, bool *failed)
{
	if (mshr >= d->shape.mshrs)
		return false;
	*failed = d->mshrs[mshr].stage == GAVE_UP;
	return d->mshrs[mshr].stage == CAME || *failed;
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
