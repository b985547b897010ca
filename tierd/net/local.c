/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Engines and tierctl of this host, on a UNIX socket: who they are is what the kernel says, and a
 * context that their credentials do not open looks as if it were not there (I4).
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "libtier/base/time.h"
#include "tierd/net/node.h"
#include "tierd/net/verbs.h"

#define LOCAL_IDLE_NS (10 * NS_PER_S)
#define LOCAL_ANSWER_NS (1 * NS_PER_S)
#define PULL_HOSTS 3u /* one after another: each fails, or has a part */

/* ---- locate, pull -------------------------------------------------------------------------- */

static const char *refusal(int error)
{
	switch (error) {
	case -ENOENT:
		return "this context is not shared, or not ours to see; tierctl context share NAME";
	case -ENOTCONN:
		return "tierd does not run here";
	default:
		return "tierd refuses; its log tells why";
	}
}

/* Is what would come here later than computing it takes? Then it is not fetched. */
static bool too_slow(const struct wanted *w, const struct placed *p, uint64_t *compute_ns)
{
	uint64_t tokens = tier_geometry_block_tokens(tier_context_geometry(w->share->c));

	*compute_ns = (p->usable - w->local) * tokens * w->want->token_ns;
	return w->want->token_ns && p->all_ns > *compute_ns;
}

static void found(struct net_placed *out, const struct placed *p)
{
	out->hosts = p->hosts;
	out->answered = p->answered;
	if (p->peer < 0)
		return;
	memcpy(out->host, p->name, sizeof(out->host));
	out->usable = p->usable;
	out->bytes = p->bytes;
	out->first_ns = p->first_ns;
	out->all_ns = p->all_ns;
}

static void pull(struct node *n, struct wanted *w, struct net_placed *out)
{
	for (uint32_t i = 0; i < PULL_HOSTS && time_now_ns() < w->want->deadline_ns; i++) {
		uint32_t had = w->local;
		struct placed p;

		locate(n, w, &p);
		out->hosts = i ? out->hosts : p.hosts;
		out->answered = i ? out->answered : p.answered;
		if (p.peer < 0)
			return;
		if (too_slow(w, &p, &out->compute_ns)) {
			out->status = TIER_DROPPED;
			return;
		}
		w->local = (uint32_t)pull_from(n, w, &p, out);
		out->usable = w->local;
		if (out->bytes)
			memcpy(out->host, p.name, sizeof(out->host));
		if (out->usable == w->want->count || out->status == TIER_DROPPED ||
		    (!p.lost && (p.only || out->usable == had)))
			return; /* else the rest may lie on another one */
	}
}

static void place(struct node *n, struct wanted *w, struct net_placed *out)
{
	struct placed p;

	out->local = out->usable = w->local;
	out->status = w->local == w->want->count ? TIER_READY : TIER_MISSED;
	if (w->local == w->want->count || !share_stands(n, w->share))
		return;
	if (w->want->header.type == NET_PULL) {
		pull(n, w, out);
		return;
	}
	locate(n, w, &p);
	found(out, &p);
	if (p.peer >= 0)
		too_slow(w, &p, &out->compute_ns);
}

/* What is asked for and what of it is here; false: out says why not. */
static bool want_begin(struct node *n, struct wanted *w, const struct ucred *who,
		       struct net_placed *out)
{
	int64_t local;

	w->keys = (const void *)(w->want + 1);
	w->begun_ns = time_now_ns();
	out->error = share_named(n, w->want->context, who, &w->share);
	if (out->error) {
		snprintf(out->text, sizeof(out->text), "%s", refusal(out->error));
		return false;
	}
	local = tier_match(w->share->c, w->keys, w->want->count, NULL);
	w->epoch = tier_context_epoch(w->share->c);
	w->deleted = share_deleted(n, w->share);
	w->local = local < 0 ? 0 : (uint32_t)local;
	return true;
}

static int answer(struct conn *c, const struct net_placed *out)
{
	return conn_send_message(c, &out->header, time_now_ns() + LOCAL_ANSWER_NS);
}

/* An engine that does not wait is answered first. */
static int answer_want(struct node *n, struct conn *c, const struct ucred *who,
		       struct net_placed *out)
{
	struct wanted w = { .want = (const void *)c->message };
	bool waits = !(w.want->flags & NET_WANT_GO_ON), begun = want_begin(n, &w, who, out);
	int rc = 0;

	if (begun && !waits) {
		out->local = out->usable = w.local;
		out->status = TIER_LATE;
		rc = answer(c, out);
	}
	if (begun && rc == 0)
		place(n, &w, out);
	if (begun)
		share_put(n, w.share);
	return begun && !waits ? rc : answer(c, out);
}

/* ---- a stream from afar (far.c) ----------------------------------------------------------- */

/* The first word: what will come. False: nothing does, and out says why. */
static bool far_begins(struct node *n, struct wanted *w, struct placed *p, struct net_placed *out)
{
	int rc;

	out->local = out->usable = w->local;
	out->status = w->local == w->want->count ? TIER_READY : TIER_MISSED;
	if (w->local == w->want->count || !share_stands(n, w->share))
		return false;
	locate(n, w, p);
	out->hosts = p->hosts;
	out->answered = p->answered;
	if (p->peer < 0)
		return false;
	if (too_slow(w, p, &out->compute_ns)) {
		out->status = TIER_DROPPED;
		return false;
	}
	rc = far_open(n, w, p->usable - w->local, &w->far);
	if (rc) {
		out->error = rc;
		snprintf(out->text, sizeof(out->text), "%s",
			 rc == -EBUSY ? "as many streams as pullers are open; close some" :
			 rc == -E2BIG ? "not one block fits; start tierd-net with more --streams" :
					"no memory for the stream");
		return false;
	}
	found(out, p);
	out->usable = w->local + w->far->blocks;
	out->status = TIER_LATE;
	return true;
}

/* All of it, and the verdict. */
static int far_comes(struct node *n, struct conn *c, struct wanted *w, struct placed *p,
		     struct net_placed *out)
{
	int rc = conn_send_fd(c, &out->header, w->far->fd, time_now_ns() + LOCAL_ANSWER_NS);

	if (rc)
		return rc;
	w->far->to = c;
	out->bytes = out->first_ns = out->all_ns = 0; /* from now on: what came */
	pull_from(n, w, p, out);
	out->usable = w->local + w->far->whole;
	if (out->usable == w->want->count)
		out->status = TIER_READY;
	else if (w->far->whole == w->far->blocks)
		out->status = TIER_MISSED;
	return answer(c, out);
}

/* Whatever comes of it, the connection ends with it. */
static int answer_stream(struct node *n, struct conn *c, const struct ucred *who,
			 struct net_placed *out)
{
	struct wanted w = { .want = (const void *)c->message };
	struct placed p;
	bool begun = want_begin(n, &w, who, out);
	int rc;

	if (begun && far_begins(n, &w, &p, out))
		rc = far_comes(n, c, &w, &p, out);
	else
		rc = answer(c, out);
	if (begun)
		share_put(n, w.share);
	if (!w.far)
		return rc ? rc : -ENOTCONN;
	if (rc == 0)
		far_wait_gone(w.far);
	far_close(n, w.far);
	return -ENOTCONN;
}

/* A standing grant (pick.c): the connection ends with it. */
static int answer_open(struct node *n, struct conn *c, const struct ucred *who,
		       struct net_placed *out)
{
	struct wanted w = { .want = (const void *)c->message };
	int rc;

	if (!want_begin(n, &w, who, out))
		return answer(c, out);
	rc = pick_serve(n, c, &w, out);
	share_put(n, w.share);
	return rc ? rc : -ENOTCONN;
}

/* Of all hosts that share the context. Who may write it may. */
static void answer_delete(struct node *n, const struct net_want *m, const struct ucred *who,
			  struct net_placed *out)
{
	struct share *s;

	out->error = share_named(n, m->context, who, &s);
	snprintf(out->text, sizeof(out->text), "%s", refusal(out->error));
	if (out->error)
		return;
	out->error = -EACCES;
	snprintf(out->text, sizeof(out->text), "only who may write the context may do that");
	if (share_writable(s, who))
		out->error = epochs_delete(n, s, m, out->text);
	if (!out->error)
		out->text[0] = '\0';
	share_put(n, s);
}

static int take_want(struct node *n, struct conn *c, const struct ucred *who)
{
	struct net_want *m = (void *)c->message;
	uint64_t most_ns = time_now_ns() + SERVE_WAIT_MAX_NS;
	struct net_placed out = {
		.header = { .magic = NET_MAGIC, .version = NET_VERSION, .type = NET_PLACED,
			    .length = sizeof(out) },
	};

	/* libtier asks for no more: who speaks for themselves holds no puller longer than that. */
	m->deadline_ns = m->deadline_ns < most_ns ? m->deadline_ns : most_ns;
	if (m->header.type == NET_STREAM)
		return answer_stream(n, c, who, &out);
	if (m->header.type == NET_OPEN)
		return answer_open(n, c, who, &out);
	if (m->header.type != NET_DELETE)
		return answer_want(n, c, who, &out);
	answer_delete(n, m, who, &out);
	return answer(c, &out);
}

/* ---- operators ----------------------------------------------------------------------------- */

static json_t *describe(struct node *n, const struct ucred *who)
{
	uint64_t seen;
	bool full;
	json_t *d = json_pack("{s:s, s:s, s:s, s:s, s:b}", "name", n->config.name, "listen",
			      n->config.listen, "fleet", n->config.fleet, "etcd", n->config.etcd,
			      "tls", n->config.tls[0] != '\0');

	{
		LOCK_SCOPE(&n->peers_lock);
		seen = n->etcd_seen_ns;
		full = n->full;
	}
	json_object_set_new(d, "incarnation",
			    json_sprintf("%016llx", (unsigned long long)n->self.incarnation));
	json_object_set_new(d, "etcd_age_ns",
			    seen ? json_integer((json_int_t)(time_now_ns() - seen)) : json_null());
	json_object_set_new(d, "full", json_boolean(full));
	json_object_set_new(d, "rdma", json_pack("{s:s, s:I}", "device",
					       n->rdma ? n->config.rdma : "", "pinned",
					       (json_int_t)verbs_pinned(n->rdma)));
	json_object_set_new(d, "contexts", share_list(n, who));
	json_object_set_new(d, "homes", home_list(n));
	json_object_set_new(d, "pool", pool_list(n));
	json_object_set_new(d, "peers", members_list(n));
	return d;
}

static int forget(struct node *n, const char *name, const struct ucred *who, char *text)
{
	int place = members_place(n, name);

	snprintf(text, SHARE_TEXT_BYTES, "%s", place < 0 ? "there is no such host" :
					       "only root and tierd's own user may do that");
	if (who->uid && who->uid != geteuid())
		return -EPERM;
	if (place < 0)
		return place;
	LOCK_SCOPE(&n->peers_lock);
	peers_forget(&n->peers, name);
	return 0;
}

/* Of all hosts that share the context. Its owner or an operator may. */
static int raise_epoch(struct node *n, const struct net_admin *m, const struct ucred *who,
		       char *text)
{
	char *end;
	uint64_t epoch = strtoull(m->word[1], &end, 10);
	struct share *s;
	int rc = share_named(n, m->word[0], who, &s);

	snprintf(text, SHARE_TEXT_BYTES, "%s", refusal(rc));
	if (rc)
		return rc;
	if (*end || epoch > EPOCH_MAX) {
		snprintf(text, SHARE_TEXT_BYTES, "an epoch is a number up to %llu",
			 (unsigned long long)EPOCH_MAX);
		share_put(n, s);
		return -EINVAL;
	}
	if (who->uid && who->uid != s->owner_uid && who->uid != geteuid()) {
		snprintf(text, SHARE_TEXT_BYTES, "only its owner may do that");
		rc = -EACCES;
	} else {
		rc = epochs_raise(n, s, &epoch, text);
	}
	share_put(n, s);
	return rc;
}

static int do_admin(struct node *n, const struct net_admin *m, const struct ucred *who,
		    char text[SHARE_TEXT_BYTES])
{
	if (strcmp(m->verb, "hosts") == 0)
		return 0;
	if (strcmp(m->verb, "share") == 0)
		return share_set(n, m,
				 strcmp(m->word[1], "strict") == 0 ? SHARE_STRICT : SHARE_PLAIN,
				 who, text);
	if (strcmp(m->verb, "unshare") == 0)
		return share_set(n, m, SHARE_NOT, who, text);
	if (strcmp(m->verb, "epoch") == 0)
		return raise_epoch(n, m, who, text);
	if (strcmp(m->verb, "forget") == 0)
		return forget(n, m->word[0], who, text);
	snprintf(text, SHARE_TEXT_BYTES, "there is no such verb");
	return -ENOSYS;
}

static int take_admin(struct node *n, struct conn *c, const struct ucred *who)
{
	char why[SHARE_TEXT_BYTES] = "", *text = NULL;
	struct net_text out = {
		.header = { .magic = NET_MAGIC, .version = NET_VERSION, .type = NET_TEXT },
	};
	struct iovec iov[2];
	json_t *d;
	int rc;

	out.error = do_admin(n, (const void *)c->message, who, why);
	d = out.error ? json_pack("{s:s}", "why", why) : describe(n, who);
	text = json_dumps(d, JSON_COMPACT);
	json_decref(d);
	out.bytes = text ? (uint32_t)strlen(text) : 0;
	if (out.bytes > NET_MESSAGE_MAX - sizeof(out))
		out.bytes = 0;
	out.header.length = (uint32_t)sizeof(out) + out.bytes;
	iov[0] = (struct iovec){ &out, sizeof(out) };
	iov[1] = (struct iovec){ text, out.bytes };
	rc = conn_send(c, iov, out.bytes ? 2 : 1, time_now_ns() + LOCAL_ANSWER_NS);
	free(text);
	return rc;
}

/* ---- the connection ------------------------------------------------------------------------ */

static int take(struct node *n, struct conn *c, const struct ucred *who)
{
	switch (conn_got(c)->type) {
	case NET_LOCATE:
	case NET_PULL:
	case NET_STREAM:
	case NET_OPEN:
	case NET_DELETE:
		return take_want(n, c, who);
	case NET_ADMIN:
		return take_admin(n, c, who);
	default:
		return -EPROTO;
	}
}

void *local_run(void *arg)
{
	struct visitor *v = arg;
	struct conn *c = NULL;
	int rc = conn_local(&c, v->fd, v->n->stop);

	while (rc == 0 && !node_stopped(v->n, 0)) {
		rc = conn_message(c, time_now_ns() + LOCAL_IDLE_NS);
		if (rc == 0)
			rc = take(v->n, c, &v->who);
	}
	conn_close(c);
	visitor_end(v);
	return NULL;
}
