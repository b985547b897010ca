/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Grants, seen from both ends; see proto.h. What the other end sends is judged here against what
 * must come next, so that a wrong, short, repeated or endless answer ends as an error (N1).
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "libtier/base/crc32c.h"
#include "tierd/net/proto.h"

void message_header(struct net_header *h, uint16_t type, size_t length)
{
	*h = (struct net_header){ .magic = NET_MAGIC, .version = NET_VERSION, .type = type };
	h->length = (uint32_t)length;
}

static uint64_t at_most(uint64_t wait_ns)
{
	return wait_ns < SERVE_WAIT_MAX_NS ? wait_ns : SERVE_WAIT_MAX_NS;
}

uint64_t grant_say(struct net_grant *out, const struct net_ask *m, const struct shape *s,
		   uint32_t blocks)
{
	assert(blocks <= m->count);
	message_header(&out->header, NET_GRANT, sizeof(*out));
	out->id = m->id;
	out->blocks = blocks;
	if (!blocks)
		return 0;
	out->layers = s->layers;
	out->bytes = blocks * s->block_bytes;
	out->duration_ns = at_most(m->wait_ns);
	return out->duration_ns;
}

int64_t grant_blocks(const struct net_grant *m, const struct shape *s, uint32_t asked)
{
	if (m->blocks > asked)
		return -EPROTO;
	if (m->error || !m->blocks)
		return 0;
	if (m->layers != s->layers || m->bytes != m->blocks * s->block_bytes)
		return -EPROTO;
	return m->blocks;
}

uint64_t grant_lasts(const struct net_grant *m)
{
	return at_most(m->duration_ns);
}

uint32_t page_crc(const uint8_t key[NET_KEY_BYTES], uint64_t epoch, const struct shape_page *page,
		  const void *bytes)
{
	uint32_t crc = crc32c(0, key, NET_KEY_BYTES);

	crc = crc32c(crc, &epoch, sizeof(epoch));
	crc = crc32c(crc, &page->page, sizeof(page->page));
	return crc32c(crc, bytes, page->bytes);
}

/* ---- cursor -------------------------------------------------------------------------------- */

/* A frame is of one layer: empty layers are passed over. */
static void skip_empty(struct cursor *c, const struct shape *s, uint32_t blocks)
{
	while (c->layer < s->layers && c->at == shape_layer_pages(s, c->layer) * blocks) {
		c->layer++;
		c->at = 0;
	}
}

uint32_t cursor_frame(struct cursor *c, const struct shape *s, uint32_t blocks, uint32_t *bytes)
{
	uint32_t count = 0, all, block;

	*bytes = 0;
	skip_empty(c, s, blocks);
	if (c->layer == s->layers)
		return 0;
	all = shape_layer_pages(s, c->layer) * blocks;
	while (c->at < all && count < NET_FRAME_PAGES_MAX && *bytes < NET_FRAME_BYTES) {
		*bytes += shape_at(s, c->layer, c->at, &block)->bytes;
		c->at++;
		count++;
	}
	skip_empty(c, s, blocks);
	return count;
}

static bool cursor_over(const struct cursor *c, const struct shape *s)
{
	return c->layer == s->layers;
}

/* ---- requester ----------------------------------------------------------------------------- */

void pull_ask(struct pull *p, const struct shape *s, struct net_ask *m, uint64_t now_ns)
{
	assert(p->state == PULL_FREE && p->asked > 0 && p->asked <= NET_KEYS_MAX);
	p->shape = s;
	p->sent_ns = now_ns;
	p->state = PULL_ASKED;
	p->cursor = (struct cursor){ 0 };
	p->copied = 0;
	p->error = 0;
	message_header(&m->header, NET_ASK, sizeof(*m) + p->asked * NET_KEY_BYTES);
	m->id = p->id;
	m->epoch = p->epoch;
	m->count = p->asked;
	m->wait_ns = p->deadline_ns > now_ns ? p->deadline_ns - now_ns : 0;
}

static void over(struct pull *p, int error)
{
	p->state = PULL_OVER;
	p->error = error;
}

int pull_granted(struct pull *p, const struct net_grant *m)
{
	int64_t blocks = p->state == PULL_ASKED && m->id == p->id ?
				 grant_blocks(m, p->shape, p->asked) : -EPROTO;

	if (blocks < 0)
		return -EPROTO;
	if (!blocks) {
		over(p, m->error ? m->error : -ENODATA);
		return 0;
	}
	p->blocks = (uint32_t)blocks;
	p->ends_ns = p->sent_ns + grant_lasts(m);
	p->state = PULL_PAGES;
	return 0;
}

int pull_pages(struct pull *p, const struct net_pages *m, struct cursor *at)
{
	uint32_t bytes, count;

	if (p->state != PULL_PAGES || m->id != p->id)
		return -EPROTO;
	skip_empty(&p->cursor, p->shape, p->blocks);
	*at = p->cursor;
	if (m->layer != at->layer || m->first != at->at)
		return -EPROTO;
	count = cursor_frame(&p->cursor, p->shape, p->blocks, &bytes);
	if (!count || count != m->count || bytes != m->bytes)
		return -EPROTO;
	if (cursor_over(&p->cursor, p->shape))
		p->state = PULL_CAME;
	return 0;
}

int pull_at(struct pull *p, const struct net_at *m, uint64_t now_ns, struct cursor *at)
{
	int rc = pull_pages(p, &m->pages, at);

	return rc || now_ns < p->ends_ns ? rc : -ETIMEDOUT;
}

void pull_copied(struct pull *p, struct net_word *m)
{
	*m = (struct net_word){ .id = p->id, .number = ++p->copied };
	message_header(&m->header, NET_COPIED, sizeof(*m));
}

int pull_ended(struct pull *p, const struct net_word *m)
{
	if (p->state != PULL_PAGES || m->id != p->id)
		return -EPROTO;
	over(p, m->error ? m->error : -ENODATA);
	return 0;
}

int pull_whole(struct pull *p, const struct net_word *m, uint64_t now_ns)
{
	if (p->state != PULL_CAME || m->id != p->id)
		return -EPROTO;
	if (m->error)
		over(p, m->error);
	else if (now_ns >= p->ends_ns)
		over(p, -ETIMEDOUT); /* the holder's word came, but its clock may run slow */
	else
		p->state = PULL_WHOLE;
	return 0;
}

uint32_t pull_layers(const struct pull *p, bool publishes, uint64_t now_ns)
{
	if (p->state != PULL_PAGES && p->state != PULL_CAME)
		return 0;
	return publishes && now_ns < p->ends_ns ? p->cursor.layer : 0;
}

/* ---- holder -------------------------------------------------------------------------------- */

void serve_grant(struct serve *s, const struct net_ask *m, const struct shape *shape,
		 struct net_grant *out, uint64_t now_ns)
{
	uint32_t blocks = s->blocks;
	uint64_t lasts_ns = grant_say(out, m, shape, blocks);

	assert(s->state == SERVE_FREE);
	if (!blocks)
		return;
	*s = (struct serve){ .state = SERVE_PAGES, .shape = shape, .id = m->id, .blocks = blocks,
			     .epoch = m->epoch, .began_ns = now_ns,
			     .ends_ns = now_ns + lasts_ns };
	skip_empty(&s->cursor, shape, blocks);
}

bool serve_frame(struct serve *s, struct net_pages *m, struct cursor *at)
{
	assert(s->state == SERVE_PAGES);
	*at = s->cursor;
	*m = (struct net_pages){ .id = s->id, .layer = at->layer, .first = at->at };
	m->count = cursor_frame(&s->cursor, s->shape, s->blocks, &m->bytes);
	message_header(&m->header, NET_PAGES, sizeof(*m) + m->count * sizeof(uint32_t));
	if (cursor_over(&s->cursor, s->shape))
		s->state = SERVE_SENT;
	return s->state == SERVE_PAGES;
}

void serve_at(struct serve *s, const struct net_pages *m, uint64_t offset, struct net_at *at)
{
	*at = (struct net_at){ .pages = *m, .offset = offset };
	message_header(&at->pages.header, NET_AT, sizeof(*at) + m->count * sizeof(uint32_t));
	s->told++;
}

int serve_copied(struct serve *s, const struct net_word *m)
{
	if (s->state == SERVE_FREE || s->copied == s->told || m->number != s->copied + 1)
		return -EPROTO;
	s->copied++;
	return 0;
}

void serve_kept(struct serve *s, bool kept)
{
	s->lapsed |= !kept;
}

bool serve_over(const struct serve *s)
{
	return s->state == SERVE_SENT && s->copied == s->told;
}

void serve_whole(struct serve *s, bool intact, struct net_word *out, uint64_t now_ns)
{
	assert(serve_over(s));
	*out = (struct net_word){ .id = s->id };
	message_header(&out->header, NET_WHOLE, sizeof(*out));
	if (!intact || s->lapsed)
		out->error = -ESTALE;
	else if (now_ns >= s->ends_ns)
		out->error = -ETIMEDOUT;
	s->state = SERVE_FREE;
}

void serve_end(struct serve *s, int error, struct net_word *out)
{
	assert(s->state == SERVE_PAGES || s->state == SERVE_SENT);
	*out = (struct net_word){ .id = s->id, .error = error };
	message_header(&out->header, NET_END, sizeof(*out));
	s->state = SERVE_FREE;
}

/* ---- window -------------------------------------------------------------------------------- */

uint32_t window_add(struct window *w, uint64_t id)
{
	uint32_t place = (w->first + w->count) % NET_PLACES_MAX;

	assert(!window_full(w));
	w->id[place] = id;
	w->count++;
	w->told++;
	return place;
}

uint32_t window_take(struct window *w)
{
	uint32_t place = w->first;

	assert(w->count);
	w->first = (w->first + 1) % NET_PLACES_MAX;
	w->count--;
	return place;
}

int window_read(const struct window *w, const struct net_word *m)
{
	return w->count && m->id == w->told - w->count + 1 ? 0 : -EPROTO;
}

bool window_has(const struct window *w, uint64_t id)
{
	for (uint32_t i = 0; i < w->count; i++)
		if (w->id[(w->first + i) % NET_PLACES_MAX] == id)
			return true;
	return false;
}

/* A hole under a registration leaves the old bytes to be read from outside, and pinned. */
enum lent_step lent_ends(enum lent_step done)
{
	switch (done) {
	case LENT_BEGIN: return LENT_DEREGISTER;
	case LENT_DEREGISTER: return LENT_GIVE_BACK;
	default: return LENT_END;
	}
}
