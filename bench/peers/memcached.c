/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memcached with extstore, by its meta commands over a UNIX socket. What its documentation advises
 * for large values: -I above the largest (values are chunked then), a write buffer of extstore
 * larger than the largest item, no more threads than processors.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/peers/text.h"

#define MIB (1u << 20)

static int command(struct wire *w, enum text_verb verb, const char *key, uint32_t bytes)
{
	switch (verb) {
	case TEXT_SET:
		return wire_text(w, "ms %s %u\r\n", key, bytes);
	case TEXT_GET:
		return wire_text(w, "mg %s v\r\n", key);
	case TEXT_FIND:
		return wire_text(w, "mg %s\r\n", key);
	default:
		return wire_text(w, "md %s\r\n", key);
	}
}

static int version(struct peer *p)
{
	struct wire *w = &((struct text *)p->state)->wire;
	char line[WIRE_LINE_BYTES] = "";
	int error = wire_text(w, "version\r\n");

	if (!error)
		error = wire_flush(w);
	if (!error)
		error = wire_line(w, line);
	if (!error)
		snprintf(p->label, sizeof(p->label), "memcached %.20s",
			 strncmp(line, "VERSION ", 8) == 0 ? line + 8 : "");
	return error;
}

/*
 * extstore takes items that are smaller than its write buffer, which is smaller than its page; the
 * path comes last.
 */
static void extstore(const struct peer *p, char *text, size_t bytes)
{
	unsigned item = p->spec.block_bytes / MIB + 1;
	unsigned buffer = item < 4 ? 4 : item + 3, page = buffer < 32 ? 64 : 2 * buffer;

	snprintf(text, bytes, "ext_page_size=%u,ext_wbuf_size=%u,ext_path=%s/extstore:%lluM", page,
		 buffer, p->spec.dir, (unsigned long long)p->spec.flash_bytes / MIB);
}

static int memcached_open(struct peer *p)
{
	static const struct text dialect = {
		.command = command,
		.good = { "HD", "VA ", "HD", "HD" },
		.miss = { NULL, "EN", "EN", "NF" },
	};
	struct text *t = p->state = malloc(sizeof(*t));
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	char socket[SERVICE_PATH_BYTES], memory[32], threads[32], item[32],
		ext[2 * SERVICE_PATH_BYTES];
	const char *argv[] = { "memcached", "-s", socket, "-m", memory, "-t", threads, "-I",
			       item,	    "-R", "256",  "-u", "root", "-o", ext,     NULL };
	int error;

	if (!t)
		return -ENOMEM;
	*t = dialect;
	snprintf(socket, sizeof(socket), "%s/memcached", p->spec.dir);
	snprintf(memory, sizeof(memory), "%llu", (unsigned long long)p->spec.memory_bytes / MIB);
	snprintf(threads, sizeof(threads), "%ld", cores < 4 ? cores : 4);
	snprintf(item, sizeof(item), "%um", p->spec.block_bytes / MIB + 1);
	extstore(p, ext, sizeof(ext));
	if (!p->spec.flash_bytes)
		argv[13] = NULL;
	snprintf(p->settings, sizeof(p->settings),
		 "UNIX socket; -t %s -I above the block -R 256; %s%s; pipelined mg, ms, md",
		 threads, argv[13] ? "-o " : "all fits memory: no extstore", argv[13] ? ext : "");
	error = text_open(p, argv, socket);
	return error ? error : version(p);
}

const struct peer_ops peer_memcached = {
	.name = "memcached",
	.needs = "memcached",
	.open = memcached_open,
	.join = text_join,
	.put = text_put,
	.get = text_get,
	.find = text_find,
	.remove = text_remove,
	.close = text_close,
};
