/* SPDX-License-Identifier: Apache-2.0 */
/* A CXL pool: whose its extents are, and what lies in ours; see pool.h. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "libtier/base/crc32c.h"
#include "tierd/net/pool.h"

/* ---- the header ------------------------------------------------------------------------------ */

static uint32_t header_crc(const struct pool_header *h)
{
	return crc32c(0, h, offsetof(struct pool_header, crc));
}

void pool_format(struct pool_header *h, uint64_t id, uint64_t bytes, uint64_t extent_bytes,
		 uint64_t place_bytes)
{
	uint64_t extents = bytes > POOL_FIRST ? (bytes - POOL_FIRST) / extent_bytes : 0;

	*h = (struct pool_header){ .magic = POOL_MAGIC, .version = POOL_VERSION, .id = id,
				   .bytes = bytes, .extent_bytes = extent_bytes,
				   .place_bytes = place_bytes };
	h->extents = extents < POOL_EXTENTS_MAX ? (uint32_t)extents : POOL_EXTENTS_MAX;
	h->crc = header_crc(h);
}

const char *pool_judge(const struct pool_header *h, uint64_t bytes)
{
	if (h->magic != POOL_MAGIC)
		return "it is not formatted as a pool";
	if (h->version != POOL_VERSION)
		return "it is a pool of another version";
	if (h->crc != header_crc(h))
		return "its header is damaged";
	if (h->bytes != bytes)
		return "its header is of a device of another size";
	if (!h->id || !h->extents || h->extents > POOL_EXTENTS_MAX || !h->place_bytes ||
	    h->place_bytes % POOL_LINE || h->extent_bytes < h->place_bytes ||
	    h->extent_bytes % POOL_LINE || bytes < POOL_FIRST ||
	    h->extent_bytes > (bytes - POOL_FIRST) / h->extents)
		return "its header has sizes that cannot be";
	return NULL;
}

/* ---- owners ---------------------------------------------------------------------------------- */

static uint64_t longer(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

void pool_begin(struct pool *p)
{
	p->read = p->tried = false;
}

void pool_lost(struct pool *p)
{
	p->entered = 0;
}

static bool stands(const struct pool *p, const struct pool_extent *x)
{
	return x->incarnation == p->incarnation && p->entered && x->entered == p->entered;
}

static uint32_t owned(const struct pool *p)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < p->header.extents; i++)
		n += stands(p, &p->extent[i]);
	return n;
}

/* One that was ours before our record under member/ was written anew, or that nobody has. */
static bool claimable(const struct pool *p, uint32_t i, bool before)
{
	const struct pool_extent *x = &p->extent[i];

	if (stands(p, x) || (x->incarnation && !x->dead))
		return false;
	return !before || x->incarnation == p->incarnation;
}

bool pool_next(struct pool *p, int64_t entered, struct agree_call *c)
{
	uint32_t n = p->header.extents;

	c->what = AGREE_POOL_READ;
	if (!p->read) {
		c->mod = entered;
		return true;
	}
	if (p->tried || !p->entered || owned(p) >= POOL_OWNED_MAX)
		return false;
	for (uint32_t k = 0; k < 2 * n; k++) {
		uint32_t i = (p->first + k) % n;

		if (!claimable(p, i, k < n))
			continue;
		c->what = AGREE_POOL_CLAIM;
		c->first = i;
		c->mod = p->extent[i].mod;
		c->epoch = (uint64_t)entered;
		c->last = longer(p->extent[i].rest_ns, p->rest_ns);
		return true;
	}
	return false;
}

/* Ours from now on; stored to when what another one may have there is over (X2). */
static void ours(struct pool_extent *x, uint64_t rest_ns, uint64_t now_ns)
{
	x->from_ns = now_ns + rest_ns + rest_ns / 32;
}

static bool member_stands(const struct pool_seen *seen, const struct pool_record *r)
{
	for (uint32_t i = 0; i < seen->members; i++)
		if (seen->member[i].incarnation == r->incarnation &&
		    seen->member[i].mod == r->entered)
			return true;
	return false;
}

static void took_record(struct pool *p, const struct pool_seen *seen, const struct pool_record *r)
{
	struct pool_extent *x = &p->extent[r->extent];
	uint64_t rest = r->rest_ns < POOL_REST_MAX_NS ? r->rest_ns : POOL_REST_MAX_NS;

	/* A claim of ours that nobody answered may be done later. */
	if (r->mod != x->mod)
		ours(x, longer(longer(x->rest_ns, rest), p->rest_ns), seen->now_ns);
	x->incarnation = r->incarnation;
	x->entered = r->entered;
	x->rest_ns = rest;
	x->mod = r->mod;
	x->dead = !member_stands(seen, r);
}

static void took_all(struct pool *p, const struct agree_call *c, const struct pool_seen *seen)
{
	for (uint32_t i = 0; i < p->header.extents; i++) {
		bool there = false;

		for (uint32_t k = 0; k < seen->records && !there; k++)
			there = seen->record[k].extent == i;
		if (!there)
			p->extent[i] = (struct pool_extent){ 0 };
	}
	for (uint32_t k = 0; k < seen->records; k++)
		if (seen->record[k].extent < p->header.extents)
			took_record(p, seen, &seen->record[k]);
	/* What we claimed under a record of ours that has gone is lost. */
	p->entered = 0;
	for (uint32_t i = 0; i < seen->members; i++)
		if (seen->member[i].incarnation == p->incarnation && seen->member[i].mod == c->mod)
			p->entered = c->mod;
	p->read = true;
}

void pool_answered(struct pool *p, const struct agree_call *c, const struct agree_answer *r)
{
	struct pool_extent *x;

	if (r->error) {
		p->tried = true;
		return;
	}
	if (c->what == AGREE_POOL_READ) {
		took_all(p, c, r->pool);
		return;
	}
	x = &p->extent[c->first];
	/* What is still our own from before is not emptied: its places have their times (X4). */
	if (x->incarnation != p->incarnation || !x->from_ns)
		ours(x, c->last, r->pool->now_ns);
	x->incarnation = p->incarnation;
	x->entered = (int64_t)c->epoch;
	x->rest_ns = c->last; /* of all who had it */
	x->mod = r->mod;
	x->dead = false;
}

/* ---- steps ----------------------------------------------------------------------------------- */

enum pool_step pool_holder(enum pool_step done)
{
	switch (done) {
	case POOL_BEGIN:
		return POOL_STORE;
	case POOL_STORE:
		return POOL_FLUSH;
	case POOL_FLUSH:
		return POOL_TELL;
	default:
		return POOL_END;
	}
}

enum pool_step pool_reader(enum pool_step done)
{
	switch (done) {
	case POOL_BEGIN:
		return POOL_DROP;
	case POOL_DROP:
		return POOL_LOAD;
	default:
		return POOL_END;
	}
}

/* ---- places ---------------------------------------------------------------------------------- */

static uint64_t start_of(const struct pool *p, uint32_t extent)
{
	return POOL_FIRST + extent * p->header.extent_bytes;
}

static bool usable(const struct pool *p, uint32_t i, uint64_t now_ns, uint64_t lease_ns)
{
	const struct pool_extent *x = &p->extent[i];

	return stands(p, x) && now_ns >= x->from_ns && now_ns < lease_ns;
}

bool pool_ours(const struct pool *p, uint64_t offset, uint64_t now_ns, uint64_t lease_ns)
{
	return usable(p, (uint32_t)((offset - POOL_FIRST) / p->header.extent_bytes), now_ns,
		      lease_ns);
}

/* Its grant is over for its reader, too. */
static bool lapsed(const struct pool_place *at, uint64_t now_ns)
{
	return now_ns >= at->until_ns;
}

static bool taken(const struct pool *p, uint64_t offset, uint64_t now_ns)
{
	for (uint32_t i = 0; i < POOL_PLACES_MAX; i++)
		if (p->place[i].offset == offset && !lapsed(&p->place[i], now_ns))
			return true;
	return false;
}

static uint64_t free_place(const struct pool *p, uint64_t now_ns, uint64_t lease_ns)
{
	for (uint32_t i = 0; i < p->header.extents; i++) {
		uint64_t at = start_of(p, i), end = at + p->header.extent_bytes;

		if (!usable(p, i, now_ns, lease_ns))
			continue;
		for (; at + p->header.place_bytes <= end; at += p->header.place_bytes)
			if (!taken(p, at, now_ns))
				return at;
	}
	return 0;
}

uint64_t pool_take(struct pool *p, const struct serve *s, uint64_t grant, uint32_t bytes,
		   uint64_t now_ns, uint64_t lease_ns)
{
	uint64_t lasts_ns = s->ends_ns - s->began_ns, offset;
	struct pool_place *to = NULL;

	if (bytes > p->header.place_bytes || lasts_ns > p->grant_ns || now_ns >= s->ends_ns)
		return 0;
	for (uint32_t i = 0; i < POOL_PLACES_MAX && !to; i++)
		if (lapsed(&p->place[i], now_ns))
			to = &p->place[i];
	offset = to ? free_place(p, now_ns, lease_ns) : 0;
	if (offset)
		*to = (struct pool_place){ .offset = offset, .grant = grant, .order = ++p->orders,
					   .until_ns = s->ends_ns + lasts_ns / 32 + 1 };
	return offset;
}

void pool_undo(struct pool *p, uint64_t offset)
{
	for (uint32_t i = 0; i < POOL_PLACES_MAX; i++)
		if (p->place[i].offset == offset)
			p->place[i] = (struct pool_place){ 0 };
}

bool pool_kept(struct pool *p, uint64_t grant, uint64_t now_ns, uint64_t lease_ns)
{
	struct pool_place *oldest = NULL;
	bool kept;

	for (uint32_t i = 0; i < POOL_PLACES_MAX; i++) {
		struct pool_place *at = &p->place[i];

		if (at->offset && at->grant == grant && (!oldest || at->order < oldest->order))
			oldest = at;
	}
	if (!oldest)
		return false;
	kept = !lapsed(oldest, now_ns) && pool_ours(p, oldest->offset, now_ns, lease_ns);
	*oldest = (struct pool_place){ 0 };
	return kept;
}

int pool_within(const struct pool *p, uint64_t incarnation, uint64_t offset, uint32_t bytes)
{
	uint64_t within;
	uint32_t i;

	if (offset < POOL_FIRST || offset % POOL_LINE)
		return -ESTALE;
	if ((offset - POOL_FIRST) / p->header.extent_bytes >= p->header.extents)
		return -ESTALE;
	i = (uint32_t)((offset - POOL_FIRST) / p->header.extent_bytes);
	within = offset - start_of(p, i);
	if (bytes > p->header.extent_bytes - within)
		return -ESTALE;
	return p->extent[i].incarnation == incarnation && incarnation ? 0 : -ESTALE;
}
