/* SPDX-License-Identifier: Apache-2.0 */
/* Pipelines of commands and their replies, the same for both protocols; see text.h. */
#include "bench/peers/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libtier/base/time.h"

#define START_NS (30 * NS_PER_S)

/* The line of a reply. -ENODATA: a miss. */
static int expect(struct peer *p, enum text_verb verb, char line[WIRE_LINE_BYTES])
{
	struct text *t = p->state;
	int error = wire_line(&t->wire, line);

	if (error)
		return error;
	if (t->miss[verb] && strncmp(line, t->miss[verb], strlen(t->miss[verb])) == 0)
		return -ENODATA;
	if (strncmp(line, t->good[verb], strlen(t->good[verb])) == 0)
		return 0;
	fprintf(stderr, "tierbench: %s answers \"%s\"\n", p->ops->name, line);
	return strstr(line, "memory") ? -ENOMEM : -EPROTO;
}

static int commands(struct peer *p, enum text_verb verb, uint32_t first, uint32_t count)
{
	struct text *t = p->state;
	char key[PEER_KEY_BYTES];
	int error = 0;

	for (uint32_t i = 0; i < count && !error; i++) {
		peer_key(key, first + i);
		error = t->command(&t->wire, verb, key, p->spec.block_bytes);
	}
	return error ? error : wire_flush(&t->wire);
}

int text_put(struct peer *p, uint32_t first, uint32_t count, const uint8_t *from)
{
	struct text *t = p->state;
	char key[PEER_KEY_BYTES], line[WIRE_LINE_BYTES];
	uint32_t bytes = p->spec.block_bytes;
	int error = 0;

	for (uint32_t i = 0; i < count && !error; i++) {
		peer_key(key, first + i);
		error = t->command(&t->wire, TEXT_SET, key, bytes);
		if (!error)
			error = wire_value(&t->wire, from + (size_t)i * bytes, bytes, "\r\n");
	}
	for (uint32_t i = 0; i < count && !error; i++)
		error = expect(p, TEXT_SET, line);
	return error;
}

/* All replies are taken, also after a miss: the next request finds its own. */
int text_get(struct peer *p, uint32_t first, uint32_t count, uint8_t *to)
{
	struct text *t = p->state;
	char line[WIRE_LINE_BYTES];
	uint32_t bytes = p->spec.block_bytes;
	int error = commands(p, TEXT_GET, first, count);
	bool missed = false;

	for (uint32_t i = 0; i < count && !error; i++) {
		error = expect(p, TEXT_GET, line);
		missed |= error == -ENODATA;
		if (error == -ENODATA)
			error = 0;
		else if (!error && strtoul(line + strlen(t->good[TEXT_GET]), NULL, 10) != bytes)
			error = -EPROTO;
		else if (!error)
			error = wire_bytes(&t->wire, to + (size_t)i * bytes, bytes);
	}
	return error ? error : missed ? -ENODATA : 0;
}

int text_find(struct peer *p, uint32_t first, uint32_t count)
{
	char line[WIRE_LINE_BYTES];
	int error = commands(p, TEXT_FIND, first, count), found = 0;
	bool missed = false;

	for (uint32_t i = 0; i < count && !error; i++) {
		error = expect(p, TEXT_FIND, line);
		missed |= error == -ENODATA;
		error = error == -ENODATA ? 0 : error;
		found += !missed;
	}
	return error ? error : found;
}

int text_remove(struct peer *p, uint32_t first, uint32_t count)
{
	char line[WIRE_LINE_BYTES];
	int error = commands(p, TEXT_REMOVE, first, count);

	for (uint32_t i = 0; i < count && !error; i++) {
		error = expect(p, TEXT_REMOVE, line);
		error = error == -ENODATA ? 0 : error;
	}
	return error;
}

int text_open(struct peer *p, const char *const argv[], const char *socket)
{
	struct text *t = p->state;
	int error;

	t->wire.fd = -1;
	snprintf(t->socket, sizeof(t->socket), "%s", socket);
	snprintf(t->log, sizeof(t->log), "%s/%s.log", p->spec.dir, p->ops->name);
	error = process_start(&p->pid[0], argv, &(struct process_files){ .log = t->log });
	if (!error)
		error = wire_open(&t->wire, socket, time_now_ns() + START_NS);
	if (error)
		process_tell_log(t->log);
	return error;
}

int text_join(struct peer *p)
{
	struct text *t = malloc(sizeof(*t));

	if (!t)
		return -ENOMEM;
	*t = *(const struct text *)p->state;
	p->state = t;
	return wire_open(&t->wire, t->socket, time_now_ns() + START_NS);
}

void text_close(struct peer *p)
{
	struct text *t = p->state;

	if (!t)
		return;
	wire_close(&t->wire);
	process_stop(p->pid[0], p->ops->name, t->log);
	p->pid[0] = 0;
	free(t);
	p->state = NULL;
}
