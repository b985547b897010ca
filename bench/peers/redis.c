/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Redis, by RESP over a UNIX socket. What its documentation on latency and benchmarks advises: a
 * UNIX socket on one host, pipelining, no persistence for a cache, io-threads from four processors
 * on. Where blocks are to outlive it: the append-only file, flushed each second.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/peers/text.h"

#define IO_THREADS_CORES 4

static int command(struct wire *w, enum text_verb verb, const char *key, uint32_t bytes)
{
	static const char *const name[] = {
		[TEXT_GET] = "$3\r\nGET", [TEXT_FIND] = "$6\r\nEXISTS", [TEXT_REMOVE] = "$3\r\nDEL"
	};

	if (verb == TEXT_SET)
		return wire_text(w, "*3\r\n$3\r\nSET\r\n$64\r\n%s\r\n$%u\r\n", key, bytes);
	return wire_text(w, "*2\r\n%s\r\n$64\r\n%s\r\n", name[verb], key);
}

static int version(struct peer *p)
{
	struct wire *w = &((struct text *)p->state)->wire;
	char line[WIRE_LINE_BYTES];
	int error = wire_text(w, "*2\r\n$4\r\nINFO\r\n$6\r\nserver\r\n");

	if (!error)
		error = wire_flush(w);
	do {
		if (!error)
			error = wire_line(w, line);
		if (!error && strncmp(line, "redis_version:", 14) == 0)
			snprintf(p->label, sizeof(p->label), "Redis %.20s", line + 14);
	} while (!error && *line);
	return error;
}

/* It connects before it has read its append-only file. */
static int loaded(struct peer *p)
{
	struct wire *w = &((struct text *)p->state)->wire;
	char line[WIRE_LINE_BYTES];
	int error;

	for (;;) {
		error = wire_text(w, "*1\r\n$4\r\nPING\r\n");
		if (!error)
			error = wire_flush(w);
		if (!error)
			error = wire_line(w, line);
		if (error || strncmp(line, "-LOADING", 8) != 0)
			return error;
		process_moment();
	}
}

static int redis_open(struct peer *p)
{
	static const struct text dialect = {
		.command = command,
		.good = { "+OK", "$", ":1", ":1" },
		.miss = { NULL, "$-1", ":0", ":0" },
	};
	struct text *t = p->state = malloc(sizeof(*t));
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	char socket[SERVICE_PATH_BYTES], memory[32], threads[32];
	const char *keep = p->spec.flash_bytes ? "yes" : "no";
	const char *const argv[] = { "redis-server",
				     "--port",
				     "0",
				     "--unixsocket",
				     socket,
				     "--dir",
				     p->spec.dir,
				     "--save",
				     "",
				     "--appendonly",
				     keep,
				     "--maxmemory",
				     memory,
				     "--maxmemory-policy",
				     "allkeys-lru",
				     "--io-threads",
				     threads,
				     NULL };
	int error;

	if (!t)
		return -ENOMEM;
	*t = dialect;
	snprintf(socket, sizeof(socket), "%s/redis", p->spec.dir);
	snprintf(memory, sizeof(memory), "%llu", (unsigned long long)p->spec.memory_bytes);
	snprintf(threads, sizeof(threads), "%ld", cores < IO_THREADS_CORES ? 1 : cores / 2);
	snprintf(p->settings, sizeof(p->settings),
		 "UNIX socket; no save, %s; maxmemory-policy allkeys-lru; "
		 "io-threads %s; pipelined GET, SET, EXISTS, DEL",
		 p->spec.flash_bytes ? "append-only file, appendfsync everysec"
				     : "no append-only file",
		 threads);
	error = text_open(p, argv, socket);
	if (!error)
		error = version(p);
	return error ? error : loaded(p);
}

const struct peer_ops peer_redis = {
	.name = "Redis",
	.needs = "redis-server",
	.open = redis_open,
	.join = text_join,
	.put = text_put,
	.get = text_get,
	.find = text_find,
	.remove = text_remove,
	.close = text_close,
};
