/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Standing grants that this host's engines have at others (keep.h): an engine says OPEN once, and
 * then PICK for each list of pages. These are received in memory that it has mapped for reading
 * alone, and verified there; they are no blocks of this host. The grant is asked for again, of
 * whoever has the blocks then, when it is over, its holder is lost, or there was a deletion.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libtier/base/time.h"
#include "tierd/net/node.h"

#define KEEP_NS (10 * NS_PER_S) /* of a grant: who stands still has it no longer */
#define IDLE_NS (60 * NS_PER_S) /* for an engine that reads nothing */
#define TELL_NS (1 * NS_PER_S)

struct picker {
	struct node *n;
	struct wanted *w;
	struct net_want *want; /* w's, kept: its message is overwritten */
	struct conn *c;        /* to the holder; NULL = none */
	uint32_t place;        /* the holder's */
	struct keep keep;
	uint32_t blocks; /* that the engine was told of */
	int fd;
	uint8_t *window;
	struct {
		struct net_pick m;
		struct net_pick_page page[NET_FRAME_PAGES_MAX];
	} ask;
	struct {
		struct net_picked m;
		struct net_picked_page page[NET_FRAME_PAGES_MAX];
	} out; /* to the engine */
	uint32_t from[NET_FRAME_PAGES_MAX]; /* which of the engine's each of the PICK's is */
	struct net_picked_page got[NET_FRAME_PAGES_MAX];
	struct iovec iov[NET_FRAME_PAGES_MAX];
};

static void let_go(struct picker *p)
{
	conn_close(p->c);
	p->c = NULL;
	p->keep.state = KEEP_FREE;
}

/* The holder failed: probation. What it would have sent is a miss. */
static int lost(struct picker *p, int error)
{
	if (error != -ECANCELED)
		members_failed(p->n, p->place, error);
	let_go(p);
	return error == -ETIMEDOUT ? error : -ENODATA;
}

/* ---- the grant ----------------------------------------------------------------------------- */

/* Who has most of it now, connected. */
static int connect_to(struct picker *p, struct placed *who, uint64_t until_ns)
{
	int rc;

	p->want->deadline_ns = until_ns;
	locate(p->n, p->w, who);
	if (who->peer < 0)
		return -ENODATA;
	p->place = (uint32_t)who->peer;
	rc = members_conn(p->n, p->place, answer_until(until_ns), &p->c);
	return rc ? lost(p, rc) : 0;
}

static int ask(struct picker *p, uint64_t until_ns)
{
	struct net_ask m = { .klass = p->want->klass };
	struct iovec iov[2] = { { &m, sizeof(m) } };
	int rc;

	p->keep.epoch = p->w->epoch;
	p->keep.deleted = share_deleted(p->n, p->w->share);
	p->keep.asked = p->want->count - p->w->local;
	memcpy(m.context, p->w->share->agreed.digest, sizeof(m.context));
	keep_ask(&p->keep, &p->w->share->shape, KEEP_NS, &m, time_now_ns());
	iov[1] = (struct iovec){ (void *)(uintptr_t)&p->w->keys[p->w->local],
				 p->keep.asked * NET_KEY_BYTES };
	until_ns = answer_until(until_ns);
	rc = conn_send(p->c, iov, 2, until_ns);
	if (rc == 0)
		rc = conn_expect(p->c, NET_GRANT, until_ns);
	if (rc)
		return lost(p, rc);
	rc = keep_granted(&p->keep, (const void *)p->c->message);
	if (rc == -EPROTO)
		return lost(p, rc);
	if (rc)
		let_go(p); /* it is in order, and another one may have it */
	return rc ? -ENODATA : 0;
}

/*
 * The grant, until then: the one that there is, or a new one. -ESTALE: of the context there will be
 * none any more; -ENODATA: nobody has it now.
 */
static int keep_up(struct picker *p, struct placed *who, uint64_t until_ns)
{
	uint64_t soon = time_now_ns() + KEEP_NS / 2;
	int rc = 0;

	if (!share_stands(p->n, p->w->share))
		return share_lasts(p->n, p->w->share) ? -ENODATA : -ESTALE;
	if (tier_context_epoch(p->w->share->c) != p->w->epoch)
		return -ESTALE;
	if (p->c && (conn_readable(p->c) || !members_current(p->n, p->place, p->c)))
		let_go(p);
	if (p->c && keep_lasts(&p->keep, until_ns < soon ? until_ns : soon) &&
	    p->keep.deleted == share_deleted(p->n, p->w->share))
		return 0;
	if (!p->c)
		rc = connect_to(p, who, until_ns);
	return rc ? rc : ask(p, until_ns);
}

/* ---- pages --------------------------------------------------------------------------------- */

/* The engine's pages that the holder may have. False: it asks for what there is not. */
static bool choose(struct picker *p, const struct net_pick *m)
{
	const struct net_pick_page *page = (const void *)(m + 1);
	const struct shape *s = &p->w->share->shape;
	uint64_t bytes = 0;

	p->keep.count = 0;
	for (uint32_t i = 0; i < m->count; i++) {
		const struct shape_page *one = keep_page(s, p->blocks, &page[i]);

		if (!one)
			return false;
		bytes += one->bytes;
		p->out.page[i] = (struct net_picked_page){ .error = -ENODATA };
		if (page[i].block >= p->keep.blocks)
			continue;
		p->from[p->keep.count] = i;
		p->ask.page[p->keep.count] = p->keep.page[p->keep.count] = page[i];
		p->keep.count++;
	}
	return bytes <= NET_PICK_BYTES;
}

/* The pages behind a PICKED, verified, one behind the other; nothing of them is good so far. */
static int receive(struct picker *p, uint64_t until_ns)
{
	const struct shape *s = &p->w->share->shape;
	uint8_t *to = p->window;
	uint32_t pages = 0;
	int rc;

	memcpy(p->got, p->c->message + sizeof(struct net_picked),
	       p->keep.count * sizeof(p->got[0]));
	for (uint32_t i = 0; i < p->keep.count; i++) {
		uint32_t bytes = keep_page(s, p->keep.blocks, &p->keep.page[i])->bytes;

		if (p->got[i].error)
			continue;
		p->iov[pages++] = (struct iovec){ to, bytes };
		to += bytes;
	}
	rc = pages ? conn_read(p->c, p->iov, pages, until_ns) : 0;
	to = p->window;
	for (uint32_t i = 0; i < p->keep.count && rc == 0; i++) {
		const struct net_pick_page *page = &p->keep.page[i];
		const struct shape_page *one = keep_page(s, p->keep.blocks, page);

		if (p->got[i].error)
			continue;
		if (page_crc(p->w->keys[p->w->local + page->block].bytes, p->keep.epoch, one,
			     to) != p->got[i].crc)
			rc = -EBADMSG;
		to += one->bytes;
	}
	return rc;
}

/* One PICK and its answer. 0; -EPROTO and the like: the connection is of no use. */
static int exchange(struct picker *p, uint64_t until_ns, int *over)
{
	uint64_t now = time_now_ns();
	struct iovec iov[2] = { { &p->ask.m, sizeof(p->ask.m) },
				{ p->ask.page, p->keep.count * sizeof(p->ask.page[0]) } };
	int rc;

	keep_pick(&p->keep, &p->ask.m);
	p->ask.m.wait_ns = until_ns > now ? until_ns - now : 0;
	rc = conn_send(p->c, iov, 2, until_ns);
	if (rc == 0)
		rc = conn_expect(p->c, NET_PICKED, until_ns);
	if (rc)
		return rc;
	*over = keep_picked(&p->keep, (const void *)p->c->message);
	if (*over)
		return *over == -EPROTO ? *over : 0;
	rc = receive(p, until_ns);
	if (rc == 0)
		rc = conn_expect(p->c, NET_WHOLE, until_ns);
	if (rc)
		return rc;
	*over = keep_whole(&p->keep, (const void *)p->c->message,
			   share_would_publish(p->n, p->w->share, p->keep.epoch, p->keep.deleted),
			   time_now_ns());
	return *over == -EPROTO ? *over : 0;
}

/* What came, to the engine's list. */
static void took(struct picker *p)
{
	uint32_t bytes = 0;

	for (uint32_t i = 0; i < p->keep.count; i++) {
		int32_t error = p->got[i].error;

		p->out.page[p->from[i]].error = !error || error == -ETIMEDOUT ? error : -ENODATA;
		if (!error)
			bytes += keep_page(&p->w->share->shape, p->keep.blocks,
					   &p->keep.page[i])->bytes;
	}
	p->out.m.bytes = bytes;
	LOCK_SCOPE(&p->n->peers_lock);
	p->n->peers.peer[p->place].bytes_in += bytes;
}

/* A grant that turns out to be over is asked for once more. *rc: of all pages. */
static bool pick(struct picker *p, const struct net_pick *m, int *rc)
{
	uint64_t now = time_now_ns(), until_ns = m->wait_ns;
	struct placed who;

	until_ns = until_ns < now + SERVE_WAIT_MAX_NS ? until_ns : now + SERVE_WAIT_MAX_NS;
	until_ns = until_ns > now ? now + (until_ns - now) / 2 : now; /* computing needs some */
	for (uint32_t tries = 0; tries < 2; tries++) {
		int over = 0;

		*rc = keep_up(p, &who, until_ns);
		if (!choose(p, m))
			return false;
		if (*rc || !p->keep.count)
			return true;
		*rc = exchange(p, until_ns, &over);
		if (*rc) {
			*rc = lost(p, *rc);
			return true;
		}
		*rc = over ? -ENODATA : 0;
		if (!over) {
			took(p);
			return true;
		}
	}
	return true;
}

static int answer_pick(struct picker *p, struct conn *to)
{
	const struct net_pick *m = (const void *)to->message;
	struct iovec iov;
	int rc;

	if (m->header.type != NET_PICK)
		return -EPROTO;
	p->out.m = (struct net_picked){
		.header = { .magic = NET_MAGIC, .version = NET_VERSION, .type = NET_PICKED },
		.id = m->id,
	};
	if (!pick(p, m, &rc))
		return -EPROTO;
	p->out.m.error = rc;
	p->out.m.count = rc ? 0 : m->count;
	iov = (struct iovec){ &p->out, sizeof(p->out.m) + p->out.m.count * sizeof(p->out.page[0]) };
	p->out.m.header.length = (uint32_t)iov.iov_len;
	return conn_send(to, &iov, 1, time_now_ns() + TELL_NS);
}

/* ---- an engine's ----------------------------------------------------------------------------- */

static bool enter(struct node *n)
{
	LOCK_SCOPE(&n->pullers_lock);
	if (n->pickers >= NODE_PICKERS_MAX)
		return false;
	n->pickers++;
	return true;
}

static void picker_free(struct picker *p)
{
	let_go(p);
	if (p->window)
		munmap(p->window, NET_PICK_BYTES);
	if (p->fd >= 0)
		close(p->fd);
	free(p->want);
	LOCK_SCOPE(&p->n->pullers_lock);
	p->n->pickers--;
	free(p);
}

static int picker_new(struct node *n, struct wanted *w, struct picker **out)
{
	struct picker *p;
	void *at = NULL;
	int rc;

	if (!enter(n))
		return -EBUSY;
	p = calloc(1, sizeof(*p));
	if (!p) {
		LOCK_SCOPE(&n->pullers_lock);
		n->pickers--;
		return -ENOMEM;
	}
	*p = (struct picker){ .n = n, .w = w, .fd = -1 };
	p->want = malloc(w->want->header.length);
	rc = p->want ? far_memory(NET_PICK_BYTES, &at, &p->fd) : -ENOMEM;
	p->window = at;
	if (rc) {
		picker_free(p);
		return rc;
	}
	memcpy(p->want, w->want, w->want->header.length);
	w->want = p->want;
	w->keys = (const void *)(p->want + 1);
	*out = p;
	return 0;
}

/* The first word: what can be picked. */
static int begin(struct picker *p, struct conn *c, struct net_placed *out)
{
	struct placed who = { .peer = -ENOENT };
	uint64_t until_ns = p->want->deadline_ns;
	int rc = p->w->local < p->want->count ? keep_up(p, &who, until_ns) : -ENODATA;

	out->hosts = who.hosts;
	out->answered = who.answered;
	if (rc == -ETIMEDOUT)
		out->status = TIER_LATE;
	if (rc)
		return conn_send_message(c, &out->header, time_now_ns() + TELL_NS);
	p->blocks = p->keep.blocks;
	memcpy(out->host, who.name, sizeof(out->host));
	out->usable = p->w->local + p->blocks;
	out->bytes = p->blocks * p->w->share->shape.block_bytes;
	out->status = out->usable == p->want->count ? TIER_READY : TIER_MISSED;
	return conn_send_fd(c, &out->header, p->fd, time_now_ns() + TELL_NS);
}

int pick_serve(struct node *n, struct conn *c, struct wanted *w, struct net_placed *out)
{
	struct picker *p = NULL;
	int rc = picker_new(n, w, &p);

	out->local = out->usable = w->local;
	out->status = w->local == w->want->count ? TIER_READY : TIER_MISSED;
	if (rc) {
		out->error = rc;
		snprintf(out->text, sizeof(out->text), "%s",
			 rc == -EBUSY ? "as many standing grants as may be are open; close some" :
					"no memory for the grant");
		return conn_send_message(c, &out->header, time_now_ns() + TELL_NS);
	}
	rc = begin(p, c, out);
	while (rc == 0 && p->blocks) {
		rc = conn_message(c, time_now_ns() + IDLE_NS);
		if (rc == 0)
			rc = answer_pick(p, c);
	}
	picker_free(p);
	return rc;
}
