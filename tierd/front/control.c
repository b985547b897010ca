/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages on the socket: received once into our own buffer, judged (W2), handed to whoever
 * answers them. One question of a client is open at a time (W1): while it waits for a REPLY or for
 * the rest of a long answer, its socket is watched for hang-up only.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "tierd/front/front_priv.h"

/* ---- answers ------------------------------------------------------------------------------- */

struct wire_header *control_message(struct front *f, uint16_t type, size_t bytes, uint32_t seq)
{
	struct wire_header *h = (struct wire_header *)f->out;

	memset(f->out, 0, bytes);
	*h = (struct wire_header){ WIRE_MAGIC, ABI_VERSION, type, (uint32_t)bytes, seq };
	return h;
}

void control_grant(struct front *f, struct turn *t, struct connection *s, const int *fd,
		   uint32_t count)
{
	const struct wire_header *h = (const struct wire_header *)f->out;
	int rc = grant_send(s, f->out, h->length, fd, count);

	if (rc == -EPIPE || rc == -ECONNRESET)
		connection_end(f, t, s, 0, "hung up");
	else if (rc)
		connection_end(f, t, s, rc, "an answer could not be sent; does it read them?");
}

void control_send(struct front *f, struct turn *t, struct connection *s)
{
	control_grant(f, t, s, NULL, 0);
}

void control_error(struct front *f, struct turn *t, struct connection *s, int error,
		   const char *why)
{
	struct wire_error *m;

	m = (void *)control_message(f, WIRE_ERROR, sizeof(*m), f->in.header.seq);
	m->error = error;
	snprintf(m->text, sizeof(m->text), "%s", why);
	control_send(f, t, s);
}

/* ---- questions that wait for a REPLY ------------------------------------------------------- */

#define TOKEN_FRONT (1ull << 63) /* tokens of the front have it, the shell's own have not */

struct pending *control_pending(struct front *f, const struct connection *s, enum pending_kind kind)
{
	for (uint32_t i = 0; i < f->pending_max; i++) {
		struct pending *p = &f->pending[i];

		if (p->kind != PENDING_FREE)
			continue;
		f->token++;
		*p = (struct pending){
			.kind = kind,
			.connection = s->id,
			.generation = s->generation,
			.seq = f->in.header.seq,
			.token = TOKEN_FRONT | f->token << 16 | i,
		};
		return p;
	}
	return NULL;
}

void control_forget(struct pending *p)
{
	p->kind = PENDING_FREE;
}

static void reply_done(struct front *f, struct turn *t, struct connection *s,
		       const struct pending *p, uint64_t value)
{
	struct wire_done *m;

	m = (void *)control_message(f, WIRE_DONE, sizeof(*m), p->seq);
	m->value = value;
	control_send(f, t, s);
}

static const char *failure(enum pending_kind kind)
{
	switch (kind) {
	case PENDING_CREATE:
		return "the context could not be entered into the catalog; see the daemon's log";
	case PENDING_REMOVE:
		return "the context could not be removed from the catalog; see the daemon's log";
	case PENDING_EPOCH:
		return "the new epoch could not be made durable; see the daemon's log";
	default:
		return "the daemon could not do it; see its log";
	}
}

static void reply_connection(struct front *f, struct turn *t, struct connection *s,
			     const struct pending *p, int32_t res, uint64_t value)
{
	s->asking = false;
	watch_socket(f, s, EPOLLIN);
	/* What texts about errors speak of. */
	f->in.header.seq = p->seq;
	memcpy(f->in.ctx.name, p->name, sizeof(p->name));
	if (res)
		control_error(f, t, s, res, failure(p->kind));
	else if (p->kind == PENDING_CREATE)
		context_created(f, t, s, p->context_id);
	else if (p->kind == PENDING_ADMIN)
		admin_answered(f, t, s, p, value);
	else
		reply_done(f, t, s, p, value);
}

/* No catalog names the context any more: its objects go. */
static void reply_removed(struct front *f, const struct pending *p, int32_t res)
{
	struct core_context_stats stats;

	if (p->kind == PENDING_REMOVE && res == 0 && p->context_uid && f->config.objects)
		objects_context_gone(f->config.objects, p->context_uid);
	if (p->kind == PENDING_EPOCH && p->context_uid && f->config.objects &&
	    core_context_stats(f->config.core, p->context_id, &stats) == 0 &&
	    stats.spec.uid == p->context_uid)
		objects_context_changed(f->config.objects, p->context_uid, stats.spec.epoch);
}

/* Memory of a context that the core did not keep. */
static void reply_memory(struct front *f, const struct pending *p, int32_t res)
{
	struct core_context_stats stats;

	if (p->kind == PENDING_CREATE && res != 0 &&
	    core_context_stats(f->config.core, p->context_id, &stats))
		f->config.ops->context_gone(f->config.shell, p->context_id);
}

bool front_reply(struct front *f, struct turn *t, uint64_t token, int32_t res, uint64_t value)
{
	uint32_t i = token & 0xffff;
	struct pending p;
	struct connection *s;

	if (token == CONTROL_TOKEN_GONE) {
		f->config.ops->context_gone(f->config.shell, (uint32_t)value);
		return true;
	}
	if (!(token & TOKEN_FRONT) || i >= f->pending_max || f->pending[i].token != token)
		return false;
	p = f->pending[i];
	if (p.kind == PENDING_FREE)
		return false;
	control_forget(&f->pending[i]);
	reply_memory(f, &p, res);
	reply_removed(f, &p, res);
	s = connection_find(f, p.connection, p.generation);
	if (s && s->state == CONNECTION_OPEN)
		reply_connection(f, t, s, &p, res, value);
	if (p.kind == PENDING_CREATE)
		context_retry(f, t);
	return true;
}

/* ---- HELLO --------------------------------------------------------------------------------- */

static const char *begin_failure(int error)
{
	switch (error) {
	case -EUSERS:
		return "connect: all connections are taken; end other clients or raise clients.max";
	case -ENOMEM:
		return "connect: the daemon has no memory for another client";
	default:
		return "connect: the daemon has no descriptors for another client; raise the "
		       "limit of open files";
	}
}

static void hello(struct front *f, struct turn *t, struct connection *lobby)
{
	struct wire_hello question = f->in.hello;
	char why[FRONT_WHY_BYTES];
	struct wire_welcome *m;
	struct connection *s;
	int fd[4], rc = 0;

	if (!lobby->operator_)
		rc = core_user_may_connect(f->config.core, lobby->uid, why, sizeof(why));
	if (rc) {
		control_error(f, t, lobby, rc, why);
		connection_end(f, t, lobby, rc, "");
		return;
	}
	rc = connection_begin(f, t, lobby, &question, &s);
	if (rc) {
		control_error(f, t, lobby, rc, begin_failure(rc));
		connection_end(f, t, lobby, rc, "");
		return;
	}
	m = (void *)control_message(f, WIRE_WELCOME, sizeof(*m), question.header.seq);
	m->boot_token = f->config.boot_token;
	m->staging_bytes = s->staging.bytes;
	m->client_id = s->id;
	m->flags = (s->uid == f->config.obs->uid ? 0 : WIRE_ISOLATED) | WIRE_OWNERS | WIRE_USAGE |
		   WIRE_SLABS | (f->config.places ? WIRE_PLACES : 0);
	fd[0] = s->region.fd;
	fd[1] = s->staging.fd;
	fd[2] = s->doorbell;
	fd[3] = s->event;
	control_grant(f, t, s, fd, 4);
}

/* ---- judging ------------------------------------------------------------------------------- */

struct message_kind {
	uint16_t type;
	bool greets; /* the first message, and only that */
	size_t least, most;
	void (*answer)(struct front *f, struct turn *t, struct connection *s);
};

#define OBJECT_BYTES sizeof(struct wire_object)

static const struct message_kind kinds[] = {
	{ WIRE_HELLO, true, sizeof(struct wire_hello), sizeof(struct wire_hello), hello },
	{ WIRE_CTX_CREATE, false, sizeof(struct wire_ctx), sizeof(struct wire_ctx),
	  context_create },
	{ WIRE_CTX_OPEN, false, sizeof(struct wire_ctx), sizeof(struct wire_ctx), context_open },
	{ WIRE_CTX_REMOVE, false, sizeof(struct wire_ctx), sizeof(struct wire_ctx),
	  context_remove },
	{ WIRE_CTX_EPOCH, false, sizeof(struct wire_ctx), sizeof(struct wire_ctx),
	  context_epoch },
	{ WIRE_CTX_USAGE, false, sizeof(struct wire_ctx), sizeof(struct wire_ctx),
	  context_usage },
	{ WIRE_SLAB_TAKE, false, sizeof(struct wire_slab), sizeof(struct wire_slab), slab_take },
	{ WIRE_SLAB_LEAVE, false, sizeof(struct wire_slab), sizeof(struct wire_slab),
	  slab_leave },
	{ WIRE_PLACE, false, sizeof(struct wire_place), sizeof(struct wire_place), place_take },
	{ WIRE_OBJ_OPEN, false, OBJECT_BYTES, OBJECT_BYTES, object_ask },
	{ WIRE_OBJ_CREATE, false, OBJECT_BYTES, OBJECT_BYTES, object_ask },
	{ WIRE_OBJ_COMMIT, false, OBJECT_BYTES, OBJECT_BYTES, object_ask },
	{ WIRE_OBJ_ABORT, false, OBJECT_BYTES, OBJECT_BYTES, object_ask },
	{ WIRE_OBJ_STAT, false, OBJECT_BYTES, OBJECT_BYTES, object_ask },
	{ WIRE_OBJ_LIST, false, OBJECT_BYTES, OBJECT_BYTES, object_ask },
	{ WIRE_OBJ_REMOVE, false, OBJECT_BYTES, OBJECT_BYTES, object_ask },
	{ WIRE_OBJ_RENAME, false, OBJECT_BYTES, OBJECT_BYTES, object_ask },
	{ WIRE_OBJ_SYNC, false, OBJECT_BYTES, OBJECT_BYTES, object_ask },
	{ WIRE_OBJ_SET, false, OBJECT_BYTES, OBJECT_BYTES, object_ask },
	{ WIRE_OBJ_INDEX, false, OBJECT_BYTES, OBJECT_BYTES, object_ask },
	{ WIRE_OBJ_HINT, false, OBJECT_BYTES, OBJECT_BYTES, object_hint },
	{ WIRE_OBJ_HOLD, false, sizeof(struct wire_object_hold), sizeof(struct wire_object_hold),
	  object_promise },
	{ WIRE_ADMIN, false, sizeof(struct wire_admin), WIRE_MESSAGE_MAX, admin_ask },
};

bool control_zero(const void *bytes, size_t count)
{
	const uint8_t *at = bytes;
	uint8_t any = 0;

	for (size_t i = 0; i < count; i++)
		any |= at[i];
	return any == 0;
}

static bool about_context(uint16_t type)
{
	return (type >= WIRE_CTX_CREATE && type <= WIRE_CTX_EPOCH) || type == WIRE_CTX_USAGE;
}

/* NULL: the message is well formed. Else the reason why it is not (W2). */
static const char *judge(const struct front *f, const struct connection *s, size_t bytes,
			 const struct message_kind **kind)
{
	const struct wire_header *h = &f->in.header;
	size_t count = sizeof(kinds) / sizeof(kinds[0]);

	*kind = NULL;
	if (bytes < sizeof(*h) || bytes > WIRE_MESSAGE_MAX || h->magic != WIRE_MAGIC)
		return "not a message of tier's protocol";
	if (h->version != ABI_VERSION)
		return "client and daemon speak different versions; update the older one";
	if (h->length != bytes)
		return "the message's length is not what was sent";
	for (size_t i = 0; i < count; i++)
		if (kinds[i].type == h->type)
			*kind = &kinds[i];
	if (!*kind)
		return "a message of an unknown type";
	if (bytes < (*kind)->least || bytes > (*kind)->most)
		return "a message of a wrong length";
	if ((*kind)->greets != (s->state == CONNECTION_GREETING))
		return (*kind)->greets ? "HELLO comes first and once" : "HELLO comes first";
	if (h->type == WIRE_HELLO &&
	    !control_zero(f->in.hello.reserved, sizeof(f->in.hello.reserved)))
		return "reserved bytes are not zero";
	if (about_context(h->type) &&
	    !control_zero(f->in.ctx.reserved, sizeof(f->in.ctx.reserved)))
		return "reserved bytes are not zero";
	if (((*kind)->answer == object_ask || (*kind)->answer == object_hint) &&
	    !control_zero(f->in.object.reserved, sizeof(f->in.object.reserved)))
		return "reserved bytes are not zero";
	return NULL;
}

void control_receive(struct front *f, struct turn *t, struct connection *s)
{
	const struct message_kind *kind;
	const char *wrong;
	ssize_t n;

	if (s->asking || s->text)
		return;
	/* No control buffer: descriptors that a client sends are closed by the kernel. */
	n = recv(s->sock, f->in.bytes, WIRE_MESSAGE_MAX, MSG_DONTWAIT | MSG_TRUNC);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		connection_end(f, t, s, 0, "hung up");
		return;
	}
	if ((size_t)n < sizeof(f->in.header))
		memset(f->in.bytes + n, 0, sizeof(f->in.header) - (size_t)n);
	wrong = judge(f, s, (size_t)n, &kind);
	/* Who may read a context is to be seen reading. */
	if (!wrong && about_context(kind->type)) {
		int rc = grant_settle(s);

		wrong = rc ? grant_unsettled(rc) : NULL;
	}
	if (!wrong) {
		turn_tick(t); /* the core's control functions look at its clock */
		kind->answer(f, t, s);
		return;
	}
	control_error(f, t, s, -EPROTO, wrong);
	connection_end(f, t, s, -EPROTO, wrong);
}
