/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators' questions: verb and JSON in, one JSON document out, in as many TEXT messages as it
 * takes. A document longer than the socket's buffer waits for the client to read; meanwhile no
 * other question of its is taken.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "tierd/front/front_priv.h"

#define TEXT_BYTES 32768u /* of one message */
#define UNREAD_MAX (8ull << 20) /* bytes of answers that an ordinary user leaves unread */

/* ---- answers ------------------------------------------------------------------------------- */

void admin_continue(struct front *f, struct turn *t, struct connection *s)
{
	while (s->text) {
		size_t left = s->text_bytes - s->text_sent;
		size_t piece = left < TEXT_BYTES ? left : TEXT_BYTES;
		size_t bytes = sizeof(struct wire_text) + piece;
		struct wire_text *m;
		int rc;

		m = (void *)control_message(f, WIRE_TEXT, bytes, s->text_seq);
		m->more = piece < left;
		memcpy(m + 1, s->text + s->text_sent, piece);
		rc = grant_send(s, m, bytes, NULL, 0);
		if (rc == -EAGAIN) {
			watch_socket(f, s, EPOLLOUT);
			return;
		}
		if (rc) {
			connection_end(f, t, s, 0, "hung up");
			return;
		}
		s->text_sent += piece;
		if (piece == left) {
			free(s->text);
			s->text = NULL;
		}
	}
	watch_socket(f, s, EPOLLIN);
}

/* The connection owns the text from here. */
static void begin(struct front *f, struct turn *t, struct connection *s, char *text, uint32_t seq)
{
	s->text = text;
	s->text_bytes = strlen(text);
	s->text_sent = 0;
	s->text_seq = seq;
	admin_continue(f, t, s);
}

void admin_answered(struct front *f, struct turn *t, struct connection *s, const struct pending *p,
		    uint64_t value)
{
	char *text = obs_done(p->deed, value);

	if (text)
		begin(f, t, s, text, p->seq);
	else
		control_error(f, t, s, -ENOMEM, "out of memory for the answer");
}

/* ---- questions ----------------------------------------------------------------------------- */

static struct obs_connection *connections(const struct front *f, uint32_t *count)
{
	struct obs_connection *list = calloc(f->config.clients_max, sizeof(*list));

	*count = 0;
	for (uint32_t i = 0; list && i < f->config.clients_max; i++) {
		const struct connection *s = &f->connection[i];
		struct obs_connection *o = &list[*count];

		if (s->state == CONNECTION_FREE)
			continue;
		*o = (struct obs_connection){
			.id = s->id, .uid = s->uid, .gid = s->gid, .pid = s->pid,
			.open = s->state == CONNECTION_OPEN, .operator_ = s->operator_,
			.staging_bytes = s->staging.bytes,
			.region_bytes = s->region.bytes, .taken = s->taken,
			.posted = s->posted, .since_ns = s->since_ns,
		};
		memcpy(o->name, s->name, sizeof(o->name));
		(*count)++;
	}
	return list;
}

/* Bytes of answers that wait to be read: of this user, or of all (NULL). */
static uint64_t unread(const struct front *f, const uint32_t *uid)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < f->config.clients_max; i++) {
		const struct connection *s = &f->connection[i];

		bytes += s->text && (!uid || s->uid == *uid) ? s->text_bytes : 0;
	}
	return bytes;
}

static const char *deed_refused(enum obs_deed_kind kind, int rc)
{
	if (kind == OBS_DEED_QUOTA && rc == -E2BIG)
		return "hard is more than the context was made for; make it anew with a larger "
		       "quota";
	if (kind == OBS_DEED_QUOTA && rc == -ENOSPC)
		return "the soft shares of all contexts would exceed the tier, or the context has "
		       "no account free for the salt; tierctl quota show tells who holds what";
	if (kind == OBS_DEED_QUOTA && rc == -ENOENT)
		return "no such context or client, or the connection has no account of its own";
	if (kind == OBS_DEED_QUOTA)
		return "hard must leave room for two blocks and not be below soft, in a tier that "
		       "the context uses";
	if (kind == OBS_DEED_POLICY && rc == -EBUSY)
		return "blocks still go over to the policy that was set before; ask again";
	if (kind == OBS_DEED_POLICY && (rc == -ENOSPC || rc == -EDQUOT))
		return "there is no room for both policies' tables until its blocks have gone over "
		       "(index.size; a user's contexts have three quarters of it)";
	if (kind == OBS_DEED_DRIVE && rc == -EINVAL)
		return "that is the store's first drive: it has the catalog and stays; to replace "
		       "it, copy all of it while no daemon runs";
	if (kind == OBS_DEED_DRIVE && rc == -ENOENT)
		return "the catalog names no such drive: it was taken out";
	if (kind == OBS_DEED_DRIVE && rc == -ENODEV)
		return "that drive is missing: bring it back and start again, or forget it with "
		       "all that lies on it";
	if (kind == OBS_DEED_EVICT && rc == -EINVAL)
		return "the context does not use that tier; tierctl context show tells which";
	return "the core cannot do that now; ask again";
}

/* Answered before it is done: connections end with it. */
static void upgrade(struct front *f, struct turn *t, struct connection *s, uint32_t seq)
{
	char why[FRONT_WHY_BYTES] = "";
	int rc = f->config.ops->upgrade(f->config.shell, why);
	char *text = rc ? NULL : obs_done(OBS_DEED_UPGRADE, 0);

	if (text)
		begin(f, t, s, text, seq);
	else
		control_error(f, t, s, rc ? rc : -ENOMEM, why);
}

static void do_deed(struct front *f, struct turn *t, struct connection *s,
		    const struct obs_deed *deed)
{
	struct pending *p = control_pending(f, s, PENDING_ADMIN);
	int rc;

	if (!p) {
		control_error(f, t, s, -EBUSY, "too many questions are under way; ask again");
		return;
	}
	p->deed = deed->kind;
	if (deed->kind == OBS_DEED_EVICT)
		rc = core_evict(f->config.core, deed->context_id, deed->tier, deed->bytes,
				p->token);
	else if (deed->kind == OBS_DEED_POLICY)
		rc = core_policy_set(f->config.core, deed->context_id, deed->policy, p->token);
	else if (deed->kind == OBS_DEED_QUOTA)
		rc = core_quota_set(f->config.core, &deed->quota, p->token);
	else if (deed->kind == OBS_DEED_DRIVE)
		rc = core_drive_set(f->config.core, deed->store_id, deed->drive, p->token);
	else
		rc = core_drain(f->config.core, p->token);
	if (rc) {
		control_forget(p);
		control_error(f, t, s, rc, deed_refused(deed->kind, rc));
		return;
	}
	s->asking = true;
	watch_socket(f, s, 0);
}

void admin_ask(struct front *f, struct turn *t, struct connection *s)
{
	struct wire_admin *m = &f->in.admin;
	struct obs_question question = { .operator_ = s->operator_, .uid = s->uid,
					 .now_ns = t->now_ns,
					 .answer_bytes = unread(f, NULL) };
	struct obs_connection *list = connections(f, &question.connections);
	char why[OBS_WHY_BYTES] = "out of memory for the answer";
	struct obs_deed deed = { .kind = OBS_DEED_NONE };
	char verb[sizeof(m->verb)];
	char *json = NULL;
	int rc = -ENOMEM;

	memcpy(verb, m->verb, sizeof(verb));
	verb[sizeof(verb) - 1] = '\0';
	f->in.bytes[m->header.length] = '\0'; /* there is room for one byte more */
	question.verb = verb;
	question.args = (const char *)(m + 1);
	question.connection = list;
	if (list && !s->operator_ && unread(f, &s->uid) > UNREAD_MAX) {
		rc = -EBUSY;
		snprintf(why, sizeof(why), "connections of user %u have %llu MiB of answers that "
			 "they do not read", s->uid, UNREAD_MAX >> 20);
	} else if (list) {
		rc = obs_answer(f->config.obs, &question, &json, &deed, why);
	}
	free(list);
	if (rc == -EINPROGRESS && deed.kind == OBS_DEED_UPGRADE)
		upgrade(f, t, s, m->header.seq);
	else if (rc == -EINPROGRESS)
		do_deed(f, t, s, &deed);
	else if (rc)
		control_error(f, t, s, rc, why);
	else
		begin(f, t, s, json, m->header.seq);
}
