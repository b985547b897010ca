/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Peers whose client is a Python class: a child (mooncake_client.py, lmcache_client.py) that has
 * the run's memory mapped and takes the time itself.
 *
 * Mooncake Store moves bytes, without a GPU and RDMA, by TCP between processes, and by memcpy
 * within one: so both are measured, blocks in memory that the client lends the store (as one engine
 * on a host has them), and in memory that another process lends. LMCache's paths are its memory
 * within the engine, that with a disk behind it, and its server.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/micro/pool.h"
#include "bench/peers/peer.h"

#define LINE_BYTES 512
#define END_MOMENTS 5000 /* ten seconds */

/* Which Python, below where it is built; what it runs, below the sources. */
struct program {
	const char *env, *script, *how, *settings;
};

struct child {
	const struct program *program;
	FILE *to, *from;
	char log[SERVICE_PATH_BYTES];
};

/* Ask; the number of the answer. */
static int ask(struct peer *p, const char *question, uint64_t *ns)
{
	struct child *c = p->state;
	char line[LINE_BYTES];
	unsigned long long took;
	int number;

	if (fprintf(c->to, "%s\n", question) < 0 || fflush(c->to) ||
	    !fgets(line, sizeof(line), c->from)) {
		fprintf(stderr, "tierbench: the client of %s ended; the end of its log:\n",
			p->ops->name);
		process_tell_log(c->log);
		return -EPIPE;
	}
	if (sscanf(line, "ok %llu %d", &took, &number) == 2) {
		*ns = took;
		return number;
	}
	if (sscanf(line, "error %d", &number) != 1 || number <= 0)
		number = EPROTO;
	if (number != ENODATA) /* which is counted */
		fprintf(stderr, "tierbench: %s: %s", p->ops->name, line);
	return -number;
}

static int move(struct peer *p, const char *verb, uint32_t first, uint32_t count,
		const uint8_t *bytes)
{
	char question[LINE_BYTES];
	int n;

	snprintf(question, sizeof(question), "%s %u %u %zu", verb, first, count,
		 (size_t)(bytes - p->spec.memory));
	n = ask(p, question, &p->took_ns);
	return n < 0 ? n : 0;
}

static int child_put(struct peer *p, uint32_t first, uint32_t count, const uint8_t *from)
{
	return move(p, "put", first, count, from);
}

static int child_get(struct peer *p, uint32_t first, uint32_t count, uint8_t *to)
{
	return move(p, "get", first, count, to);
}

static int child_find(struct peer *p, uint32_t first, uint32_t count)
{
	char question[LINE_BYTES];

	snprintf(question, sizeof(question), "find %u %u", first, count);
	return ask(p, question, &p->took_ns);
}

static int child_remove(struct peer *p, uint32_t first, uint32_t count)
{
	char question[LINE_BYTES];
	int n;

	snprintf(question, sizeof(question), "remove %u %u", first, count);
	n = ask(p, question, &p->took_ns);
	return n < 0 ? n : 0;
}

static void child_close(struct peer *p)
{
	struct child *c = p->state;

	if (!c)
		return;
	/* The end of its input ends it; SIGTERM is for one that hangs. */
	if (c->to)
		fclose(c->to);
	if (c->from)
		fclose(c->from);
	for (int i = 0; i < END_MOMENTS && p->client > 0; i++) {
		if (waitpid(p->client, NULL, WNOHANG) == p->client)
			p->client = 0;
		else
			process_moment();
	}
	process_stop(p->client, p->ops->name, c->log);
	p->client = 0;
	free(c);
	p->state = NULL;
}

static int greet(struct peer *p)
{
	struct child *c = p->state;
	char line[LINE_BYTES], version[64];
	int a = 0, b = 0, error = 0;

	if (!fgets(line, sizeof(line), c->from) ||
	    sscanf(line, "ready %63[^;]; %d %d", version, &a, &b) < 1) {
		fprintf(stderr, "tierbench: %s did not come up; the end of its log:\n",
			p->ops->name);
		process_tell_log(c->log);
		return -EPIPE;
	}
	p->pid[0] = a;
	p->pid[1] = b;
	snprintf(p->label, sizeof(p->label), "%s %s", p->ops->name, version);
	for (uint32_t i = 0; i < p->spec.blocks && !error; i++) {
		char key[PEER_KEY_BYTES];

		peer_key(key, i);
		error = fprintf(c->to, "key %s\n", key) < 0 ? -EPIPE : 0;
	}
	return error;
}

/* The first client's child starts the servers and leaves their address in the peer's folder. */
static int start(struct peer *p, bool join)
{
	struct child *c = p->state;
	const struct program *program = c->program;
	char python[SERVICE_PATH_BYTES], script[SERVICE_PATH_BYTES], number[5][32];
	const char *const argv[] = { python, script, "--log", c->log, "--dir", p->spec.dir,
				     "--how", program->how, "--block", number[0], "--memory",
				     number[1], "--flash", number[2], "--shared-fd", number[3],
				     "--shared-bytes", number[4], join ? "--join" : NULL, NULL };
	int in[2] = { -1, -1 }, out[2] = { -1, -1 }, shared = -1, error = 0;

	snprintf(python, sizeof(python), "%s/%s/bin/python", p->spec.bench->built, program->env);
	snprintf(script, sizeof(script), "%s/bench/peers/%s", p->spec.bench->top, program->script);
	if (!process_there(python))
		return -ENOENT;
	/* Without close-on-exec: the child gets it. */
	shared = dup(p->spec.memory_fd);
	snprintf(number[0], 32, "%u", p->spec.block_bytes);
	snprintf(number[1], 32, "%llu", (unsigned long long)p->spec.memory_bytes);
	snprintf(number[2], 32, "%llu", (unsigned long long)p->spec.flash_bytes);
	snprintf(number[3], 32, "%d", shared);
	snprintf(number[4], 32, "%llu", (unsigned long long)p->spec.memory_at_most);
	if (shared < 0 || pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC))
		error = -errno;
	if (!error)
		error = process_start(&p->client, argv,
				      &(struct process_files){ c->log, in[0], out[1] });
	c->to = error ? NULL : fdopen(in[1], "w");
	c->from = error ? NULL : fdopen(out[0], "r");
	close(shared);
	close(in[0]);
	close(out[1]);
	return error ? error : c->to && c->from ? 0 : -ENOMEM;
}

static int begin(struct peer *p, const struct program *program, bool join)
{
	struct child *c = p->state = calloc(1, sizeof(*c));
	int error;

	if (!c)
		return -ENOMEM;
	c->program = program;
	snprintf(c->log, sizeof(c->log), "%s/client%d.log", p->spec.dir, join ? (int)getpid() : 0);
	error = start(p, join);
	return error ? error : greet(p);
}

static int open_with(struct peer *p, const struct program *program)
{
	snprintf(p->settings, sizeof(p->settings), "%s", program->settings);
	return begin(p, program, false);
}

static int child_join(struct peer *p)
{
	const struct child *first = p->state;

	return begin(p, first->program, true);
}

static int open_mooncake(struct peer *p)
{
	static const struct program program = {
		"peers", "mooncake_client.py", "own",
		"blocks in memory of the client itself, by memcpy; a master and P2PHANDSHAKE on "
		"loopback, registered buffers; batch_put_from, batch_get_into, batch_is_exist, by "
		"the child's clock" };

	return open_with(p, &program);
}

static int open_mooncake_tcp(struct peer *p)
{
	static const struct program program = {
		"peers", "mooncake_client.py", "tcp",
		"the same, blocks in memory of another process, by TCP" };

	return open_with(p, &program);
}

static int open_lmcache(struct peer *p)
{
	static const struct program program = {
		"engines/full", "lmcache_client.py", "memory",
		"local_cpu in the client itself, LRU; StorageManager's allocate, batched_put, "
		"batched_get, batched_contains, and the copy from and to the engine's memory, by "
		"the child's clock" };

	return open_with(p, &program);
}

static int open_lmcache_disk(struct peer *p)
{
	static const struct program program = {
		"engines/full", "lmcache_client.py", "disk",
		"local_cpu as above and local_disk with use_odirect, as its page cache would be "
		"memory beside; a put waits for room, looking each millisecond, ends when it is in "
		"memory, and is written later" };

	return open_with(p, &program);
}

static int open_lmcache_server(struct peer *p)
{
	static const struct program program = {
		"engines/full", "lmcache_client.py", "server",
		"lmcache.v1.server by TCP on loopback, naive serde; a put ends when it was sent" };

	return open_with(p, &program);
}

#define OPS(ops, text, how, open_one, join_one) \
	const struct peer_ops ops = { .name = (text), .install = (how), .open = (open_one), \
				      .join = (join_one), .put = child_put, .get = child_get, \
				      .find = child_find, .remove = child_remove, \
				      .close = child_close }
#define FULL "make engines FULL=1"

OPS(peer_mooncake, "Mooncake, in process", NULL, open_mooncake, NULL);
OPS(peer_mooncake_tcp, "Mooncake, TCP", NULL, open_mooncake_tcp, child_join);
OPS(peer_lmcache, "LMCache, memory", FULL, open_lmcache, NULL);
OPS(peer_lmcache_disk, "LMCache, disk", FULL, open_lmcache_disk, NULL);
OPS(peer_lmcache_server, "LMCache, server", FULL, open_lmcache_server, child_join);
