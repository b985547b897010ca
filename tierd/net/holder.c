/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Serves another host on one connection: probes, grants, and as a home of anchors. Pages are sent
 * under leases, straight from where they lie; for those in memory tierd is not asked at all. What
 * lies on NVMe is brought by a stream of tierd's, layer by layer: it keeps each layer until we are
 * done with it, and pushes nothing of this host's own out of memory. Where the peer reads by RDMA,
 * pages are copied to where it may read, and their leases end at once.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "libtier/base/cleanup.h"
#include "libtier/base/time.h"
#include "tierd/net/node.h"
#include "tierd/net/verbs.h"

#define HELLO_NS (2 * NS_PER_S)
#define ANSWER_NS (5 * NS_PER_S)
#define IDLE_NS (120 * NS_PER_S)

struct grant {
	struct serve serve;
	struct share *share;
	tier_stream *stream;
	tier_block *block;
	tier_key *key;
	uint64_t reattached; /* the connection's count when it began */
	uint64_t begun_ns, until_ns;
	uint32_t blocks, klass;
	uint32_t stream_from; /* the stream's first layer */
	uint64_t in_pool;     /* its number there */
	bool cold; /* all of it was on NVMe: it tells how fast that is */
	bool placed; /* its frames lie in the window, to be read from there */
	int error;   /* it ends early, behind what lies there */
};

struct holder {
	struct node *n;
	struct conn *c;
	int place; /* the peer's */
	tier_reader *reader; /* while there is a grant */
	struct grant grant[NET_GRANTS_MAX]; /* in the order in which they were asked for */
	struct frame {
		struct net_pages m;
		uint32_t crc[NET_FRAME_PAGES_MAX];
	} frame;
	struct standing *standing; /* NULL = it has none */
	struct window window;
	struct frame placed[NET_PLACES_MAX]; /* what lies there */
	struct tier_page page[NET_FRAME_PAGES_MAX];
	struct tier_lease lease[NET_FRAME_PAGES_MAX];
	struct iovec iov[NET_FRAME_PAGES_MAX + 1];
	struct tier_found found[NET_KEYS_MAX];
};

/* ---- probes -------------------------------------------------------------------------------- */

static uint32_t match(struct holder *h, struct share *s, const void *keys, uint32_t count,
		      uint32_t *cold)
{
	int64_t usable = tier_match(s->c, keys, count, h->found);

	*cold = 0;
	for (int64_t i = 0; i < usable; i++)
		*cold += h->found[i].tier == TIER_NVME;
	return usable < 0 ? 0 : (uint32_t)usable;
}

static int answer_probe(struct holder *h, const struct net_probe *m)
{
	struct net_found out = {
		.header = { .magic = NET_MAGIC, .version = NET_VERSION, .type = NET_FOUND,
			    .length = sizeof(out) },
		.id = m->id,
	};
	struct share *s;

	out.error = share_asked(h->n, h->c->peer, m->context, m->epoch, 0, &s);
	if (!out.error) {
		out.found = match(h, s, m + 1, m->count, &out.cold);
		share_put(h->n, s);
	}
	{
		LOCK_SCOPE(&h->n->peers_lock);
		out.stage_bytes_per_s = h->n->stage_bytes_per_s;
	}
	return conn_send_message(h->c, &out.header, time_now_ns() + ANSWER_NS);
}

/* ---- as a home (homes.h) ------------------------------------------------------------------- */

static int answer_hold(struct holder *h, const struct net_hold *m)
{
	const struct net_held out = {
		.header = { .magic = NET_MAGIC, .version = NET_VERSION, .type = NET_HELD,
			    .length = sizeof(out) },
		.id = m->id,
	};

	home_take(h->n, m, h->c->peer);
	return conn_send_message(h->c, &out.header, time_now_ns() + ANSWER_NS);
}

static int answer_find(struct holder *h, const struct net_find *m)
{
	struct net_held *out CLEANUP_FREE = home_answer(h->n, m);

	return out ? conn_send_message(h->c, &out->header, time_now_ns() + ANSWER_NS) : -ENOMEM;
}

/* ---- as a box (box.h) ---------------------------------------------------------------------- */

static int answer_offer(struct holder *h, const struct net_offer *m)
{
	struct net_word out = {
		.header = { .magic = NET_MAGIC, .version = NET_VERSION, .type = NET_TAKEN,
			    .length = sizeof(out) },
		.id = m->id,
	};
	struct share *s;

	out.error = share_asked(h->n, h->c->peer, m->context, m->epoch, 0, &s);
	if (!out.error) {
		out.error = box_taken(h->n, m, h->c->peer);
		share_put(h->n, s);
	}
	return conn_send_message(h->c, &out.header, time_now_ns() + ANSWER_NS);
}

/* ---- grants -------------------------------------------------------------------------------- */

static void grant_end(struct holder *h, struct grant *g)
{
	bool others = false;

	tier_stream_close(g->stream);
	free(g->block);
	free(g->key);
	if (g->share)
		share_put(h->n, g->share);
	*g = (struct grant){ 0 };
	for (uint32_t i = 0; i < NET_GRANTS_MAX; i++)
		others |= h->grant[i].serve.state != SERVE_FREE;
	if (others)
		return;
	tier_reader_close(h->reader);
	h->reader = NULL;
	if (h->c->verbs)
		verbs_unlend(h->c->verbs); /* W2 */
}

/* Bring what is not in memory, from a layer on. */
static int stream_open(struct grant *g, uint32_t layer)
{
	const struct shape *s = &g->share->shape;
	const struct tier_range range = { .layer_first = (uint16_t)(s->layer_first + layer),
					  .layer_count = (uint16_t)(s->layers - layer) };
	struct tier_stream_options o = { .size = sizeof(o), .tier = TIER_CXL,
					 .mode = TIER_MODE_STREAM, .klass = g->klass,
					 .range = &range, .deadline_ns = g->until_ns };
	int rc = tier_stream_open(g->share->c, g->block, g->blocks, &o, &g->stream);

	g->stream_from = layer;
	return rc == -EAGAIN ? -EBUSY : rc;
}

/* What is there of the keys; what of it is on NVMe begins to come. */
static int grant_begin(struct holder *h, struct grant *g, const struct net_ask *m)
{
	uint32_t cold;
	int rc = share_asked(h->n, h->c->peer, m->context, m->epoch, m->deleted, &g->share);

	if (rc)
		return rc;
	g->blocks = match(h, g->share, m + 1, m->count, &cold);
	if (!g->blocks)
		return -ENODATA;
	rc = h->reader ? 0 : tier_reader_open(h->n->t, &h->reader);
	if (rc)
		return rc == -EAGAIN ? -EBUSY : rc;
	g->block = calloc(g->blocks, sizeof(*g->block));
	g->key = calloc(g->blocks, sizeof(*g->key));
	if (!g->block || !g->key)
		return -ENOMEM;
	memcpy(g->key, m + 1, g->blocks * sizeof(*g->key));
	for (uint32_t i = 0; i < g->blocks; i++)
		g->block[i] = h->found[i].block;
	g->begun_ns = time_now_ns();
	g->until_ns = g->begun_ns +
		      (m->wait_ns < SERVE_WAIT_MAX_NS ? m->wait_ns : SERVE_WAIT_MAX_NS);
	g->klass = class_of_hosts(m->klass);
	g->reattached = node_reattached(h->n);
	g->cold = cold == g->blocks;
	return cold ? stream_open(g, 0) : 0;
}

/* Can the peer read frames of this shape by itself? */
static bool places_fit(struct holder *h, const struct shape *s)
{
	uint32_t most = 0;

	for (uint32_t i = 0; i < s->pages; i++)
		most = s->page[i].bytes > most ? s->page[i].bytes : most;
	return h->c->verbs && (uint64_t)NET_FRAME_BYTES + most <= VERBS_FRAME_BYTES &&
	       verbs_lend(h->c->verbs) == 0;
}

static int answer_ask(struct holder *h, const struct net_ask *m)
{
	struct net_grant out = { .error = 0 };
	struct grant *g = NULL;

	for (uint32_t i = 0; i < NET_GRANTS_MAX && !g; i++)
		if (h->grant[i].serve.state == SERVE_FREE)
			g = &h->grant[i];
	if (!g)
		return -EPROTO; /* N3 */
	out.error = grant_begin(h, g, m);
	g->serve.blocks = out.error ? 0 : g->blocks;
	serve_grant(&g->serve, m, g->share ? &g->share->shape : NULL, &out, time_now_ns());
	if (g->serve.state == SERVE_FREE)
		grant_end(h, g);
	else
		g->placed = places_fit(h, &g->share->shape);
	return conn_send_message(h->c, &out.header, time_now_ns() + ANSWER_NS);
}

static bool intact(struct holder *h, const struct grant *g)
{
	return share_intact(h->n, g->share, g->serve.epoch, g->reattached);
}

/* ---- pages --------------------------------------------------------------------------------- */

/* Lease the frame's pages where they lie. All of them, or why not. */
static int lease(struct holder *h, struct grant *g, const struct cursor *at)
{
	uint32_t count = h->frame.m.count, block;
	int got;

	for (uint32_t i = 0; i < count; i++) {
		h->page[i].page = shape_at(&g->share->shape, at->layer, at->at + i, &block)->page;
		h->page[i].block = g->block[block];
	}
	/* Who reads it puts it: kept longer here too, it would lie twice in the fleet. */
	got = tier_lease_pages(h->reader, g->share->c, h->page, count,
			       TIER_LEASE_CXL | TIER_LEASE_NO_USE, h->lease);
	if (got == (int)count)
		return 0;
	if (got > 0)
		tier_release_many(h->reader, h->lease, count);
	return got < 0 ? got : -ENODATA;
}

/* From memory without a word to tierd; what is not there, or has left meanwhile, by its stream. */
static int bring(struct holder *h, struct grant *g, const struct cursor *at)
{
	int64_t there;
	int rc = g->stream ? -ENODATA : lease(h, g, at);

	if (rc == 0)
		return 0;
	rc = g->stream ? 0 : stream_open(g, at->layer);
	if (rc)
		return rc;
	there = tier_stream_wait(g->stream, at->layer - g->stream_from, g->until_ns);
	if (there < g->blocks)
		return there < 0 ? (int)there : -ENODATA;
	return lease(h, g, at);
}

/* Tell the peer where a frame lies. */
static int tell_place(struct holder *h, struct grant *g, uint32_t place)
{
	struct net_places m = { .pages = h->frame.m, .number = h->window.told };
	struct iovec iov[] = { { &m, sizeof(m) }, { h->frame.crc, m.pages.count * 4 } };

	h->placed[place] = h->frame;
	m.pages.header.type = NET_PLACES;
	m.pages.header.length = (uint32_t)(iov[0].iov_len + iov[1].iov_len);
	verbs_tell(h->c->verbs, place, &m);
	return conn_send(h->c, iov, 2, g->until_ns);
}

static int send_leased(struct holder *h, struct grant *g, const struct cursor *at)
{
	const struct pool_frame f = { .serve = &g->serve, .grant = &g->in_pool, .m = &h->frame.m,
				      .crc = h->frame.crc, .page = h->iov + 1,
				      .until_ns = g->until_ns };
	uint32_t count = h->frame.m.count, block, place = 0;
	uint8_t *to = NULL;
	int rc = 0;

	if (g->placed) {
		place = window_add(&h->window, g->serve.id);
		to = verbs_frame(h->c->verbs, place);
	}
	for (uint32_t i = 0; i < count; i++) {
		const struct shape_page *p =
			shape_at(&g->share->shape, at->layer, at->at + i, &block);
		void *data = (void *)(uintptr_t)h->lease[i].data;

		if (to) {
			data = memcpy(to, data, p->bytes);
			to += p->bytes;
		}
		h->frame.crc[i] = page_crc(g->key[block].bytes, g->serve.epoch, p, data);
		h->iov[i + 1] = (struct iovec){ data, p->bytes };
	}
	h->iov[0] = (struct iovec){ &h->frame, h->frame.m.header.length };
	for (uint32_t i = 0; i < count && !rc; i++)
		rc = tier_lease_check(&h->lease[i]);
	if (!rc && g->placed)
		rc = tell_place(h, g, place);
	else if (!rc) /* what lies in the pool all can read who have it */
		rc = g->share->names ? -EAGAIN : pool_send(h->n, h->c, &f);
	if (rc == -EAGAIN)
		rc = conn_send(h->c, h->iov, count + 1, g->until_ns);
	tier_release_many(h->reader, h->lease, count);
	return rc;
}

static void count_out(struct holder *h, const struct grant *g, uint64_t bytes, bool over)
{
	uint64_t took = time_now_ns() - g->begun_ns;

	LOCK_SCOPE(&h->n->peers_lock);
	h->n->peers.peer[h->place].bytes_out += bytes;
	if (over && g->cold && took)
		h->n->stage_bytes_per_s = (uint64_t)((double)g->serve.blocks *
						     (double)g->share->shape.block_bytes * 1e9 /
						     (double)took);
}

/* Behind the last page, and behind the last that lies to be read, here or in the pool: WHOLE; or
 * END. */
static int last_word(struct holder *h, struct grant *g)
{
	struct net_word word;

	if (window_has(&h->window, g->serve.id) || (!g->error && !serve_over(&g->serve)))
		return 0;
	if (g->error)
		serve_end(&g->serve, g->error, &word);
	else
		serve_whole(&g->serve, intact(h, g), &word, time_now_ns());
	grant_end(h, g);
	return conn_send_message(h->c, &word.header, time_now_ns() + ANSWER_NS);
}

/* Of a grant that has ended meanwhile: nothing. */
static int take_copied(struct holder *h, const struct net_word *m)
{
	for (uint32_t i = 0; i < NET_GRANTS_MAX; i++) {
		struct grant *g = &h->grant[i];
		int rc;

		if (g->serve.state == SERVE_FREE || g->serve.id != m->id)
			continue;
		rc = serve_copied(&g->serve, m);
		if (rc)
			return rc;
		serve_kept(&g->serve, pool_was_kept(h->n, g->in_pool));
		return last_word(h, g);
	}
	return 0;
}

/* The next frame of a grant, and the last word behind the last. */
static int send_frame(struct holder *h, struct grant *g)
{
	struct cursor at;
	bool more = serve_frame(&g->serve, &h->frame.m, &at);
	int rc = share_lasts(h->n, g->share) ? bring(h, g, &at) : -ENOENT;

	if (members_place(h->n, h->c->peer) != h->place)
		return -EACCES; /* struck out meanwhile */
	if (rc) {
		g->error = rc;
		return last_word(h, g);
	}
	rc = send_leased(h, g, &at);
	if (rc)
		return rc;
	count_out(h, g, h->frame.m.bytes, !more);
	if (!more)
		return last_word(h, g);
	if (g->stream && g->serve.cursor.layer > at.layer)
		tier_stream_release(g->stream, g->serve.cursor.layer - g->stream_from);
	return 0;
}

/* ---- what the peer reads itself ------------------------------------------------------------ */

/* A queue pair for this connection; one that there was is over. */
static int answer_path(struct holder *h, const struct net_path *theirs)
{
	struct net_path out = {
		.header = { .magic = NET_MAGIC, .version = NET_VERSION, .type = NET_PATH,
			    .length = sizeof(out) },
	};
	struct verbs *v = NULL;

	for (uint32_t i = 0; i < NET_GRANTS_MAX; i++)
		if (h->grant[i].serve.state != SERVE_FREE)
			return -EPROTO;
	verbs_close(h->c->verbs);
	h->c->verbs = NULL;
	out.error = h->n->rdma && !theirs->error ?
			    verbs_open(&v, h->n->rdma, false, &out) : -EOPNOTSUPP;
	if (!out.error)
		out.error = verbs_connect(v, theirs);
	if (out.error)
		verbs_close(v);
	else
		h->c->verbs = v;
	return conn_send_message(h->c, &out.header, time_now_ns() + ANSWER_NS);
}

/* It could not read this frame: that one and those behind it by the connection, as all from now. */
static int by_connection(struct holder *h, uint32_t place)
{
	struct iovec iov[2];
	int rc = 0;

	for (;; place = window_take(&h->window)) {
		struct frame *f = &h->placed[place];

		iov[0] = (struct iovec){ f, f->m.header.length };
		iov[1] = (struct iovec){ verbs_frame(h->c->verbs, place), f->m.bytes };
		rc = rc ? rc : conn_send(h->c, iov, 2, time_now_ns() + ANSWER_NS);
		if (!h->window.count)
			break;
	}
	verbs_close(h->c->verbs);
	h->c->verbs = NULL;
	for (uint32_t i = 0; i < NET_GRANTS_MAX; i++)
		h->grant[i].placed = false;
	return rc;
}

static int answer_read(struct holder *h, const struct net_word *m)
{
	int rc = window_read(&h->window, m);
	uint32_t place;

	if (rc)
		return rc;
	place = window_take(&h->window);
	if (m->error) {
		rc = by_connection(h, place);
	} else {
		LOCK_SCOPE(&h->n->peers_lock);
		h->n->peers.peer[h->place].read_out += h->placed[place].m.bytes;
	}
	for (uint32_t i = 0; i < NET_GRANTS_MAX && rc == 0; i++)
		if (h->grant[i].serve.state != SERVE_FREE)
			rc = last_word(h, &h->grant[i]);
	return rc;
}

/* ---- the connection ------------------------------------------------------------------------ */

static int answer(struct holder *h)
{
	const void *m = h->c->message;

	if (members_place(h->n, h->c->peer) != h->place)
		return -EACCES; /* it was a member when it came */
	switch (conn_got(h->c)->type) {
	case NET_PROBE:
		return answer_probe(h, m);
	case NET_ASK:
		return answer_ask(h, m);
	case NET_KEEP:
		return keep_begin(h->n, h->c, (uint32_t)h->place, &h->standing);
	case NET_PICK:
		return keep_pages(h->standing);
	case NET_HOLD:
		return answer_hold(h, m);
	case NET_FIND:
		return answer_find(h, m);
	case NET_OFFER:
		return answer_offer(h, m);
	case NET_PATH:
		return answer_path(h, m);
	case NET_READ:
		return answer_read(h, m);
	case NET_COPIED:
		return take_copied(h, m);
	default:
		return -EPROTO;
	}
}

/* The grant whose pages are due: the older one. */
static struct grant *sending(struct holder *h)
{
	struct grant *first = NULL;

	for (uint32_t i = 0; i < NET_GRANTS_MAX; i++) {
		struct grant *g = &h->grant[i];

		if (g->serve.state == SERVE_PAGES && !g->error &&
		    !(g->placed && window_full(&h->window)) &&
		    (!first || g->begun_ns < first->begun_ns))
			first = g;
	}
	return first;
}

/* While frames lie there to be read, or single pages may be asked for, until the grant is over. */
static uint64_t patience(const struct holder *h)
{
	uint64_t until_ns = keep_until(h->standing);

	for (uint32_t i = 0; i < NET_GRANTS_MAX; i++)
		if (h->grant[i].serve.state != SERVE_FREE && h->grant[i].until_ns > until_ns)
			until_ns = h->grant[i].until_ns;
	return until_ns ? until_ns : time_now_ns() + IDLE_NS;
}

static void serve(struct holder *h)
{
	int rc = 0;

	while (rc == 0) {
		struct grant *g = sending(h);

		if (g && !conn_readable(h->c)) {
			rc = send_frame(h, g);
			continue;
		}
		if (node_stopped(h->n, 0))
			break;
		rc = conn_message(h->c, g ? time_now_ns() + ANSWER_NS : patience(h));
		if (rc == 0)
			rc = answer(h);
	}
	for (uint32_t i = 0; i < NET_GRANTS_MAX; i++)
		grant_end(h, &h->grant[i]);
	keep_end(h->standing);
	if (rc && rc != -ENOTCONN && rc != -ETIMEDOUT && rc != -ECANCELED)
		log_warn(&h->n->log, "a peer's connection ends", h->c->peer,
			 "are all hosts of one version?", "errno=%d", -rc);
}

static void welcome(struct holder *h, struct visitor *v)
{
	{
		LOCK_SCOPE(&h->n->pool);
		v->known = true;
	}
	serve(h);
}

void *holder_run(void *arg)
{
	struct visitor *v = arg;
	struct holder *h = calloc(1, sizeof(*h));
	int rc = -ENOMEM;

	if (h) {
		h->n = v->n;
		rc = conn_accept(&h->c, &v->n->self, v->fd, time_now_ns() + HELLO_NS);
	} else {
		close(v->fd);
	}
	if (rc == 0) {
		h->place = members_place(h->n, h->c->peer);
		if (h->place < 0)
			log_warn(&h->n->log, "a host that is no member was sent away", h->c->peer,
				 "tell this host of it (--peer, etcd)", "");
		else
			welcome(h, v);
		conn_close(h->c);
	} else if (rc != -ENOTCONN) {
		log_warn(&v->n->log, "a connection was refused", NULL,
			 "are its certificate and its version right?", "errno=%d", -rc);
	}
	free(h);
	visitor_end(v);
	return NULL;
}
