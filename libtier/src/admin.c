/*
 * The operator's door: a question in JSON, an answer in JSON, as one document made of many packets.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libtier/base/time.h"
#include "libtier/src/attach.h"
#include "libtier/src/error.h"

#define REPLY_BYTES_MAX (256u << 20)

struct reply {
	char *text;
	size_t bytes;
	size_t room;
};

static int append(struct reply *r, const struct message *m)
{
	size_t bytes = m->header.length - sizeof(m->text);
	size_t room = r->room ? r->room : 4096;
	char *text;

	if (bytes > REPLY_BYTES_MAX - r->bytes - 1)
		return error_note(-E2BIG, "admin: the answer is larger than 256 MiB");
	while (room < r->bytes + bytes + 1)
		room *= 2;
	if (room > r->room) {
		text = realloc(r->text, room);
		if (!text)
			return error_note(-ENOMEM, "admin: out of memory");
		r->text = text;
		r->room = room;
	}
	memcpy(r->text + r->bytes, m->bytes + sizeof(m->text), bytes);
	r->bytes += bytes;
	r->text[r->bytes] = '\0';
	return 0;
}

static int ask(struct tier *t, struct wire_admin *question, size_t bytes, struct reply *r)
	REQUIRES(t->wire)
{
	uint64_t deadline_ns = time_now_ns() + CONNECTION_ANSWER_NS;
	int rc = attach_ask(t, &question->header, bytes, WIRE_TEXT);

	while (rc == 0) {
		bool more = t->message->text.more != 0;

		rc = append(r, t->message);
		message_drop(t->message);
		if (rc || !more)
			break;
		rc = socket_receive(&connection_attachment(t)->socket, t->message, WIRE_TEXT,
				    deadline_ns);
	}
	return rc;
}

int tier_admin(tier *t, const char *verb, const char *args, char **out)
{
	size_t args_bytes = args ? strlen(args) : 0;
	struct wire_admin *question CLEANUP_FREE = NULL;
	struct reply r = { 0 };
	int rc = connection_check(t);

	if (rc)
		return rc;
	if (!verb || !out)
		return error_note(-EINVAL, "tier_admin: verb or reply is NULL");
	*out = NULL;
	if (verb[0] == '\0' || strnlen(verb, sizeof(question->verb)) == sizeof(question->verb))
		return error_set(-EINVAL, "admin: the verb has not 1 to %zu characters",
				 sizeof(question->verb) - 1);
	if (args_bytes > WIRE_MESSAGE_MAX - sizeof(*question))
		return error_set(-EINVAL, "admin: the arguments are longer than %zu bytes",
				 WIRE_MESSAGE_MAX - sizeof(*question));
	question = calloc(1, sizeof(*question) + args_bytes);
	if (!question)
		return error_note(-ENOMEM, "admin: out of memory");
	question->header.type = WIRE_ADMIN;
	memcpy(question->verb, verb, strlen(verb));
	if (args_bytes > 0)
		memcpy(question + 1, args, args_bytes);
	LOCK_SCOPE(&t->wire);
	rc = attach_ensure_wired(t);
	if (rc == 0)
		rc = ask(t, question, sizeof(*question) + args_bytes, &r);
	if (rc) {
		free(r.text);
		return rc;
	}
	*out = r.text;
	return 0;
}
