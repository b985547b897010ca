/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Brings blocks from one holder: in parts, each a grant and a put of its own, two under way at a
 * time, so that one is being staged there while the other travels. Pages are received where tierd
 * takes them from (the staging arena), and are checked there; a part is put only when the holder
 * has said that its grant was whole (R1). What came by the deadline stays; nothing waits longer. A
 * stream from afar (far.c) is one part, received where the engine reads it, and put at the end.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "libtier/base/time.h"
#include "tierd/net/node.h"
#include "tierd/net/verbs.h"

#define PART_BYTES (4u << 20)
#define COMMIT_NS (5 * NS_PER_S) /* a put that tierd has is waited for so long at most */

struct part {
	struct pull pull;
	uint32_t first; /* its first block, in the wanted keys */
	tier_put *put;
};

struct job {
	struct node *n;
	struct wanted *w;
	struct placed *from;
	struct net_placed *out;
	struct puller *puller;
	struct conn *conn;
	struct part part[NET_GRANTS_MAX];
	uint32_t part_blocks, put_blocks; /* of one grant, of one put: differ in a stream */
	uint32_t next, end; /* blocks to be asked for */
	uint32_t puts;      /* under way at tierd */
	uint64_t serial;    /* the puller's, before our first one */
	uint64_t id;
	uint64_t had_bytes; /* that came from others, before */
	uint64_t pace_ns, pace_bytes; /* of the first frame: the pace is what came since */
	uint64_t moved_ns; /* when the peer last gave something */
	bool ours;        /* what went wrong was here */
	bool heard;       /* it has answered */
	bool peers_fault;
	bool path_lost;     /* what it told of before it knew is of no use */
	uint64_t read_bytes; /* by RDMA */
	struct iovec iov[NET_FRAME_PAGES_MAX];
};

/* ---- pullers ------------------------------------------------------------------------------- */

/* Does it bring, from one of our keys on, what we want or what comes before that? */
static bool brings(const struct puller *p, const struct wanted *w)
{
	for (uint32_t i = w->local + 1; i-- > 0;)
		if (memcmp(&p->from, &w->keys[i], sizeof(p->from)) == 0)
			return true;
	return false;
}

/*
 * A free one, unless another one brings the same already; *same: it does. The last one is for those
 * who wait for it.
 */
static struct puller *puller_free(struct node *n, const struct wanted *w, bool *same)
	REQUIRES(n->pullers_lock)
{
	uint32_t spare = w->want->klass == TIER_CLASS_DEMAND || n->config.pullers < 2 ? 0 : 1;
	struct puller *found = NULL;
	uint32_t unused = 0;

	for (uint32_t i = 0; i < n->config.pullers; i++) {
		struct puller *p = &n->puller[i];

		if (!p->busy) {
			found = p;
			unused++;
		} else if (!w->far && p->share == w->share && brings(p, w)) {
			*same = true;
		}
	}
	return *same || unused <= spare ? NULL : found;
}

static struct puller *puller_take(struct node *n, const struct wanted *w)
{
	struct timespec until = time_to_timespec(w->want->deadline_ns);
	int rc = 0;

	LOCK_SCOPE(&n->pullers_lock);
	while (rc != ETIMEDOUT) {
		bool same = false;
		struct puller *p = puller_free(n, w, &same);

		if (p) {
			p->busy = true;
			p->share = w->share;
			p->from = w->keys[w->local];
			return p;
		}
		rc = pthread_cond_timedwait(&n->puller_free, &n->pullers_lock.mutex, &until);
	}
	return NULL;
}

static void puller_give(struct node *n, struct puller *p)
{
	LOCK_SCOPE(&n->pullers_lock);
	p->busy = false;
	pthread_cond_broadcast(&n->puller_free);
}

/* A tierd that went away ends what it was asked. */
static void settled(struct node *n, struct puller *p, int got)
{
	LOCK_SCOPE(&n->pullers_lock);
	if (got < 0 || (uint32_t)got > p->unsettled)
		p->unsettled = 0;
	else
		p->unsettled -= (uint32_t)got;
}

void pull_settle(struct node *n)
{
	struct tier_completion done[NET_GRANTS_MAX];

	for (uint32_t i = 0; i < n->config.pullers; i++) {
		struct puller *p = &n->puller[i];
		bool mine;

		{
			LOCK_SCOPE(&n->pullers_lock);
			mine = !p->busy && p->unsettled;
			p->busy = p->busy || mine;
		}
		if (!mine)
			continue;
		settled(n, p, tier_wait(p->t, done, 1, NET_GRANTS_MAX, 0));
		puller_give(n, p);
	}
}

/* The context through the puller's own connection. */
static int puller_open(struct node *n, struct puller *p, const struct share *s, uint64_t until_ns)
{
	struct tier_completion done[NET_GRANTS_MAX];
	int rc;

	tier_check(p->t);
	/* What a pull did not wait for is of that context (share_refresh). */
	while (p->unsettled && time_now_ns() < until_ns)
		settled(n, p, tier_wait(p->t, done, 1, NET_GRANTS_MAX, until_ns - time_now_ns()));
	if (p->unsettled)
		return -ETIMEDOUT;
	if (p->c && p->number == s->number && strcmp(p->name, s->name) == 0)
		return 0;
	tier_context_close(p->c);
	p->c = NULL;
	rc = tier_context_open(p->t, s->name, NULL, &p->c);
	if (rc)
		return rc;
	memcpy(p->name, s->name, sizeof(p->name));
	LOCK_SCOPE(&n->pullers_lock);
	p->number = s->number;
	return 0;
}

/* ---- puts ---------------------------------------------------------------------------------- */

/* What tierd refused is not the peer's fault. */
static int ours(struct job *j, int rc)
{
	j->ours = rc != 0;
	if (rc)
		snprintf(j->out->text, sizeof(j->out->text), "%.150s", tier_error_text());
	return rc;
}

/* Answers of tierd to our puts; one that failed ends the prefix where it began, and match sees. */
static void reap(struct job *j, uint32_t left, uint64_t until_ns)
{
	struct tier_completion done[NET_GRANTS_MAX];

	while (j->puts > left) {
		uint64_t now = time_now_ns();
		int got = tier_wait(j->puller->t, done, 1, NET_GRANTS_MAX,
				    until_ns > now ? until_ns - now : 0);

		settled(j->n, j->puller, got);
		if (got <= 0)
			return;
		for (int i = 0; i < got; i++) /* others are of a pull that did not wait */
			j->puts -= done[i].user_data > j->serial && j->puts;
	}
}

/* The arena may be full of parts that tierd is still copying. */
static int put_begin(struct job *j, uint32_t first, uint32_t count, tier_put **put)
{
	struct tier_put_options o = { .size = sizeof(o), .salt = j->w->want->salt, .depth = first,
				      .deadline_ns = j->w->want->deadline_ns + COMMIT_NS };
	int rc;

	if (first)
		o.parent = &j->w->keys[first - 1];
	while ((rc = tier_put_begin(j->puller->c, &j->w->keys[first], count, &o, put)) ==
		       -ENOBUFS && j->puts)
		reap(j, j->puts - 1, j->w->want->deadline_ns);
	return ours(j, rc);
}

static int put_commit(struct job *j, tier_put **put)
{
	int rc = tier_put_commit(*put, ++j->puller->serial);

	if (rc) {
		settled(j->n, j->puller, 1);
		return ours(j, rc);
	}
	*put = NULL;
	j->puts++;
	return 0;
}

/* May what this pull asked for be put? Then one put is not settled. */
static bool publishes(struct job *j)
{
	return share_publishes(j->n, j->w->share, j->w->epoch, j->w->deleted, j->puller);
}

/* Blocks that lie where the engine reads them. */
static void copy_far(const struct job *j, tier_put *put, uint32_t first, uint32_t count)
{
	const struct shape *s = &j->w->share->shape;

	for (uint32_t i = 0; i < count * s->pages; i++) {
		const struct shape_page *p = &s->page[i % s->pages];
		void *to = tier_put_data(put, i / s->pages, p->part, p->layer, p->group);

		if (to)
			memcpy(to, far_page(j->w->far, first + i / s->pages, p), p->bytes);
	}
}

/* All of a stream, a piece of the arena after the other: then they are blocks of this host. */
static int put_far(struct job *j, struct part *part)
{
	int rc = 0;

	for (uint32_t at = 0, n; at < part->pull.blocks && rc == 0; at += n) {
		uint32_t left = part->pull.blocks - at;

		n = left < j->put_blocks ? left : j->put_blocks;
		rc = put_begin(j, part->first + at, n, &part->put);
		if (rc)
			break;
		copy_far(j, part->put, at, n);
		if (!publishes(j))
			return ours(j, -ESTALE);
		rc = put_commit(j, &part->put);
	}
	return rc;
}

/* ---- messages ------------------------------------------------------------------------------ */

static struct part *part_of(struct job *j, uint64_t id)
{
	for (uint32_t i = 0; i < NET_GRANTS_MAX; i++)
		if (j->part[i].pull.state != PULL_FREE && j->part[i].pull.id == id)
			return &j->part[i];
	return NULL;
}

static int ask(struct job *j, struct part *part)
{
	uint32_t left = j->end - j->next;
	struct net_ask m = { .deleted = j->w->deleted, .klass = j->w->want->klass };
	struct iovec iov[2];

	part->first = j->next;
	part->pull = (struct pull){ .id = ++j->id, .epoch = j->w->epoch,
				    .deadline_ns = j->w->want->deadline_ns,
				    .asked = left < j->part_blocks ? left : j->part_blocks };
	j->next += part->pull.asked;
	memcpy(m.context, j->w->share->agreed.digest, sizeof(m.context));
	pull_ask(&part->pull, &j->w->share->shape, &m, time_now_ns());
	iov[0] = (struct iovec){ &m, sizeof(m) };
	iov[1] = (struct iovec){ (void *)(uintptr_t)&j->w->keys[part->first],
				 part->pull.asked * NET_KEY_BYTES };
	return conn_send(j->conn, iov, 2, j->w->want->deadline_ns);
}

/* The prefix ends with this part, or before it: what was asked for beyond is of no use. */
static void end_at(struct job *j, uint32_t block)
{
	uint64_t block_tokens = tier_geometry_block_tokens(tier_context_geometry(j->w->share->c));

	j->end = block < j->end ? block : j->end;
	if (j->next > j->end)
		j->next = j->end;
	j->from->usable = j->end;
	j->from->bytes = (j->end - j->w->local) * j->w->share->shape.block_bytes;
	j->out->compute_ns = (j->end - j->w->local) * block_tokens * j->w->want->token_ns;
}

static int granted(struct job *j, struct part *part)
{
	int rc = pull_granted(&part->pull, (const void *)j->conn->message);

	if (rc)
		return rc;
	if (part->pull.state == PULL_OVER) {
		end_at(j, part->first);
		part->pull.state = PULL_FREE;
		return 0;
	}
	if (part->pull.blocks < part->pull.asked)
		end_at(j, part->first + part->pull.blocks);
	return 0;
}

/* What was read by RDMA, to its pages. */
static void scatter(const struct job *j, uint32_t count, const uint8_t *from)
{
	for (uint32_t i = 0; i < count; i++) {
		memcpy(j->iov[i].iov_base, from, j->iov[i].iov_len);
		from += j->iov[i].iov_len;
	}
}

/* crcs: of the pages; lies: the frame, NULL: it is in the pool, or comes behind the message. */
static int receive_frame(struct job *j, struct part *part, const struct net_pages *m,
			 const struct cursor *at, const uint8_t *crcs, const uint8_t *lies)
{
	const struct net_at *in_pool = m->header.type == NET_AT ? (const void *)m : NULL;
	const struct shape *s = &j->w->share->shape;
	uint32_t block;
	int rc = 0;

	for (uint32_t i = 0; i < m->count; i++) {
		const struct shape_page *p = shape_at(s, at->layer, at->at + i, &block);

		j->iov[i] = (struct iovec){
			j->w->far ? far_page(j->w->far, block, p) :
				    tier_put_data(part->put, block, p->part, p->layer, p->group),
			p->bytes };
		if (!j->iov[i].iov_base)
			return -EINVAL;
	}
	if (lies)
		scatter(j, m->count, lies);
	else
		rc = in_pool ? pool_receive(j->n, j->conn, &part->pull, in_pool, j->iov) :
			       conn_read(j->conn, j->iov, m->count, j->w->want->deadline_ns);
	j->ours = rc == -ESTALE; /* by what we know it is not the peer's place: the next time */
	for (uint32_t i = 0; i < m->count && rc == 0; i++) {
		const struct shape_page *p = shape_at(s, at->layer, at->at + i, &block);
		const tier_key *key = &j->w->keys[part->first + block];
		uint32_t crc;

		memcpy(&crc, crcs + i * sizeof(crc), sizeof(crc));
		if (page_crc(key->bytes, j->w->epoch, p, j->iov[i].iov_base) != crc)
			rc = -EBADMSG;
	}
	return rc;
}

/* It failed: what is missing comes by the connection, and no queue pair is tried for a while. */
static void path_failed(struct job *j, int error)
{
	verbs_close(j->conn->verbs);
	j->conn->verbs = NULL;
	{
		LOCK_SCOPE(&j->n->peers_lock);
		peer_path_failed(&j->n->peers.peer[j->from->peer], time_now_ns());
	}
	log_warn(&j->n->log, "RDMA failed, bytes go by TCP", j->from->name,
		 "it is tried again by itself", "errno=%d", -error);
}

/*
 * Read a frame that lies at the holder, and tell it. Its memory and its network may be slow, or
 * gone, while the rest of it answers: a quarter of what is left is for that. *lies: it is here;
 * NULL: it comes as PAGES.
 */
static int read_frame(struct job *j, const struct net_places *m, const uint8_t **lies)
{
	struct net_word word = {
		.header = { .magic = NET_MAGIC, .version = NET_VERSION, .type = NET_READ,
			    .length = sizeof(word) },
		.id = m->number,
	};
	uint64_t now = time_now_ns(), until_ns = j->w->want->deadline_ns;
	struct verbs *v = j->conn->verbs;

	until_ns = now < until_ns ? now + (until_ns - now) / 4 : now;
	word.error = v ? verbs_read(v, m, j->conn->stop, j->conn->fd, until_ns) : -EPROTO;
	if (word.error == -ECANCELED || word.error == -ENOTCONN || !v)
		return word.error;
	j->path_lost = word.error != 0;
	if (word.error)
		path_failed(j, word.error);
	else
		j->read_bytes += m->pages.bytes;
	*lies = word.error ? NULL : verbs_frame(v, 0);
	return conn_send_message(j->conn, &word.header, j->w->want->deadline_ns);
}

/* The frame of a PAGES, a PLACES or an AT. */
static int pages(struct job *j, struct part *part)
{
	const struct net_places *m = (const void *)j->conn->message; /* begins as a PAGES does */
	bool apart = m->pages.header.type == NET_PLACES;
	const struct net_at *in_pool = m->pages.header.type == NET_AT ? (const void *)m : NULL;
	const void *crcs = apart   ? (const void *)(m + 1) :
			   in_pool ? (const void *)(in_pool + 1) :
				     (const void *)(&m->pages + 1);
	const uint8_t *lies = NULL;
	struct pull before = part->pull;
	struct cursor at;
	int rc;

	if (apart && j->path_lost)
		return 0;
	rc = in_pool ? pull_at(&part->pull, in_pool, time_now_ns(), &at) :
		       pull_pages(&part->pull, &m->pages, &at);
	if (rc == 0 && !part->put && !j->w->far)
		rc = put_begin(j, part->first, part->pull.blocks, &part->put);
	if (rc == 0 && apart)
		rc = read_frame(j, m, &lies);
	if (rc == 0 && apart && !lies) {
		part->pull = before;
		return 0;
	}
	if (rc == 0)
		rc = receive_frame(j, part, &m->pages, &at, crcs, lies);
	if (rc)
		return rc;
	j->out->bytes += m->pages.bytes;
	if (!j->out->first_ns && part->pull.cursor.layer > 0)
		j->out->first_ns = time_now_ns() - j->w->begun_ns;
	if (!j->w->far)
		return 0;
	rc = far_announce(j->w->far, &part->pull,
			  share_would_publish(j->n, j->w->share, j->w->epoch, j->w->deleted));
	j->ours = rc != 0; /* the engine has gone */
	return rc;
}

/* END or a grant that lapsed: the prefix ends here. */
static void give_up(struct job *j, struct part *part)
{
	end_at(j, part->first);
	tier_put_abort(part->put);
	part->put = NULL;
	part->pull.state = PULL_FREE;
}

static int whole(struct job *j, struct part *part)
{
	int rc = pull_whole(&part->pull, (const void *)j->conn->message, time_now_ns());

	if (rc)
		return rc;
	/* A put after an epoch was raised would be one of the new epoch with bytes of the old. */
	if (part->pull.state != PULL_WHOLE || part->first >= j->end) {
		give_up(j, part);
		return 0;
	}
	if (j->w->far && share_would_publish(j->n, j->w->share, j->w->epoch, j->w->deleted)) {
		j->w->far->whole = part->pull.blocks;
		rc = put_far(j, part);
	} else if (!j->w->far && publishes(j)) {
		rc = put_commit(j, &part->put);
	} else {
		give_up(j, part);
	}
	part->pull.state = PULL_FREE;
	return rc;
}

static bool is_frame(uint16_t type)
{
	return type == NET_PAGES || type == NET_PLACES || type == NET_AT;
}

static int take(struct job *j)
{
	const struct net_word *m = (const void *)j->conn->message; /* all begin with an id */
	uint16_t type = m->header.type;
	struct part *part;
	int rc = -EPROTO;

	if ((type < NET_GRANT || type > NET_WHOLE) && !is_frame(type))
		return rc;
	part = part_of(j, m->id);
	if (!part)
		return rc;
	if (type == NET_GRANT)
		return granted(j, part);
	if (is_frame(type))
		return pages(j, part);
	if (type == NET_WHOLE)
		return whole(j, part);
	rc = pull_ended(&part->pull, m);
	if (rc == 0)
		give_up(j, part);
	return rc;
}

/* ---- the pull ------------------------------------------------------------------------------ */

static bool under_way(const struct job *j)
{
	for (uint32_t i = 0; i < NET_GRANTS_MAX; i++)
		if (j->part[i].pull.state != PULL_FREE)
			return true;
	return false;
}

static int ask_more(struct job *j)
{
	int rc = 0;

	for (uint32_t i = 0; i < NET_GRANTS_MAX && rc == 0; i++)
		if (j->part[i].pull.state == PULL_FREE && j->next < j->end)
			rc = ask(j, &j->part[i]);
	return rc;
}

/*
 * At the pace so far, is computing what is missing faster after all? A rate that nobody knew
 * before, or that fell, shows when a twentieth of that time has gone, and is known the next time.
 * What has come stays.
 */
static bool hopeless(struct job *j)
{
	uint64_t took = time_now_ns() - j->w->begun_ns, compute_ns = j->out->compute_ns;
	uint64_t bytes = j->out->bytes - j->had_bytes;
	double left = (double)j->from->bytes - (double)bytes, paced;

	if (!j->pace_ns && bytes) { /* what lies on NVMe takes its time to begin */
		j->pace_ns = took;
		j->pace_bytes = bytes;
	}
	paced = (double)(bytes - j->pace_bytes);
	if (!j->w->want->token_ns || paced <= 0 || took < compute_ns / 20)
		return false;
	return (double)took + (double)(took - j->pace_ns) * left / paced > (double)compute_ns;
}

/* A peer that gives nothing for half of the time that is left is given up: computing needs some. */
static uint64_t patience(const struct job *j)
{
	uint64_t now = time_now_ns(), until_ns = j->w->want->deadline_ns;

	if (!j->heard) /* what it has, it says at once */
		return answer_until(until_ns);
	return now < until_ns ? now + (until_ns - now) / 2 : until_ns;
}

static int run(struct job *j)
{
	int rc = ask_more(j);

	while (rc == 0 && under_way(j)) {
		rc = conn_message(j->conn, patience(j));
		if (rc) {
			j->peers_fault = true;
			break;
		}
		j->moved_ns = time_now_ns();
		j->heard = true;
		rc = take(j);
		j->peers_fault = rc && !j->ours;
		if (rc == 0 && hopeless(j)) {
			j->ours = true;
			j->peers_fault = false;
			return -ECANCELED;
		}
		if (rc == 0)
			rc = ask_more(j);
	}
	return rc;
}

/* A peer that still gave something is not lost: the deadline was short for so much. */
static bool lost(const struct job *j, int rc)
{
	uint64_t now = time_now_ns();

	if (!rc || !j->peers_fault)
		return false;
	return rc != -ETIMEDOUT || !j->heard || now - j->moved_ns > (now - j->w->begun_ns) / 2;
}

static void settle(struct job *j, int rc, uint64_t begun_ns)
{
	bool failed = lost(j, rc), asked = j->conn != NULL;
	struct peer *peer;

	for (uint32_t i = 0; i < NET_GRANTS_MAX; i++)
		tier_put_abort(j->part[i].put);
	if (j->conn && rc == 0) {
		if (j->conn->verbs)
			verbs_unlend(j->conn->verbs); /* W2 */
		members_give(j->n, (uint32_t)j->from->peer, j->conn);
	} else {
		conn_close(j->conn);
	}
	j->from->lost = failed;
	if (failed)
		members_failed(j->n, (uint32_t)j->from->peer, rc);
	LOCK_SCOPE(&j->n->peers_lock);
	peer = &j->n->peers.peer[j->from->peer];
	if (!failed && asked)
		peer_moved(peer, j->out->bytes - j->had_bytes, time_now_ns() - begun_ns);
	if (j->out->bytes > j->had_bytes)
		peer_read(peer, j->read_bytes, !j->path_lost);
	if (asked && j->out->bytes == j->had_bytes)
		peer->misses++;
}

static int set_up(struct job *j)
{
	uint64_t block = tier_geometry_block_bytes(tier_context_geometry(j->w->share->c));
	uint64_t most = j->n->config.staging_bytes / NET_GRANTS_MAX;
	uint64_t blocks = (most < PART_BYTES ? most : PART_BYTES) / block;
	int rc;

	if (block > most) {
		snprintf(j->out->text, sizeof(j->out->text), "a block of %llu bytes does not fit; "
			 "start tierd-net with --staging of twice that", (unsigned long long)block);
		return -E2BIG;
	}
	j->part_blocks = blocks < 1 ? 1 : blocks < NET_KEYS_MAX ? (uint32_t)blocks : NET_KEYS_MAX;
	j->next = j->w->local;
	j->end = j->from->usable;
	j->put_blocks = j->part_blocks;
	if (j->w->far) { /* one grant, so that the first layer of all comes first */
		j->part_blocks = j->w->far->blocks;
		end_at(j, j->w->local + j->part_blocks);
	}
	j->moved_ns = time_now_ns();
	j->serial = j->puller->serial;
	rc = puller_open(j->n, j->puller, j->w->share, j->w->want->deadline_ns);
	if (rc)
		snprintf(j->out->text, sizeof(j->out->text), "%.150s", tier_error_text());
	return rc;
}

/*
 * Our queue pair told to the holder, and its own to ours; or, given that it is to end, that there
 * is none any more. An error: the connection is of no use.
 */
static int path_ask(struct job *j, bool ends)
{
	struct net_path m = {
		.header = { .magic = NET_MAGIC, .version = NET_VERSION, .type = NET_PATH,
			    .length = sizeof(m) },
		.error = ends ? -ECANCELED : 0,
	};
	const struct net_path *theirs = (const void *)j->conn->message;
	uint64_t until_ns = answer_until(j->w->want->deadline_ns);
	int rc, error;

	verbs_close(j->conn->verbs);
	j->conn->verbs = NULL;
	if (!ends && (verbs_open(&j->conn->verbs, j->n->rdma, true, &m) ||
		      verbs_lend(j->conn->verbs)))
		return 0; /* the holder was not told: it sends pages */
	rc = conn_send_message(j->conn, &m.header, until_ns);
	if (rc == 0)
		rc = conn_expect(j->conn, NET_PATH, until_ns);
	if (rc || ends)
		return rc;
	error = theirs->error ? theirs->error : verbs_connect(j->conn->verbs, theirs);
	if (!error)
		return 0;
	path_failed(j, error);
	return theirs->error ? 0 : path_ask(j, true);
}

/* Pages by RDMA, where both can, and it did not fail a while ago. */
static int path_make(struct job *j)
{
	bool due, had = j->conn->verbs != NULL;

	{
		LOCK_SCOPE(&j->n->peers_lock);
		due = peer_path_due(&j->n->peers.peer[j->from->peer], time_now_ns());
	}
	if (had && (!due || verbs_lend(j->conn->verbs)))
		return path_ask(j, true);
	return !had && due && j->n->rdma && (j->conn->features & NET_RDMA) ? path_ask(j, false) : 0;
}

/* Connect, and bring it. */
static int bring(struct job *j)
{
	int rc = set_up(j);

	if (rc)
		return rc;
	rc = members_conn(j->n, (uint32_t)j->from->peer, answer_until(j->w->want->deadline_ns),
			  &j->conn);
	if (rc == 0)
		rc = path_make(j);
	j->peers_fault = rc != 0;
	return rc ? rc : run(j);
}

int64_t pull_from(struct node *n, struct wanted *w, struct placed *p, struct net_placed *out)
{
	struct job *j = calloc(1, sizeof(*j));
	uint64_t begun_ns = time_now_ns();
	int64_t usable;
	int rc;

	if (!j)
		return w->local;
	*j = (struct job){ .n = n, .w = w, .from = p, .out = out, .had_bytes = out->bytes };
	j->puller = puller_take(n, w);
	/* Another one may have brought it meanwhile. */
	usable = tier_match(w->share->c, w->keys, w->want->count, NULL);
	if (!w->far) /* its engine was told what comes */
		w->local = usable > w->local ? (uint32_t)usable : w->local;
	rc = !j->puller ? -ETIMEDOUT : w->local < p->usable ? bring(j) : 0;
	settle(j, rc, begun_ns);
	reap(j, 0, rc == -ETIMEDOUT ? time_now_ns() : w->want->deadline_ns);
	out->all_ns = time_now_ns() - w->begun_ns;
	usable = tier_match(w->share->c, w->keys, w->want->count, NULL);
	out->status = usable == w->want->count ? TIER_READY :
		      rc == -ECANCELED ? TIER_DROPPED :
		      rc == -ETIMEDOUT || j->puts ? TIER_LATE : TIER_MISSED;
	if (j->puller)
		puller_give(n, j->puller);
	free(j);
	return usable;
}
