/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mooncake Store, by its Python class in a child (mooncake_client.py), which has the run's memory
 * mapped and registered and takes the time itself. Without a GPU and RDMA it moves bytes by TCP
 * between processes, and by memcpy within one: so both are measured, blocks in memory that the
 * client lends the store (as one engine on a host has them), and in memory that another process
 * lends.
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

struct mooncake {
	FILE *to, *from;
	char log[SERVICE_PATH_BYTES];
};

/* Ask; the number of the answer. */
static int ask(struct peer *p, const char *question, uint64_t *ns)
{
	struct mooncake *m = p->state;
	char line[LINE_BYTES];
	unsigned long long took;
	int number;

	if (fprintf(m->to, "%s\n", question) < 0 || fflush(m->to) ||
	    !fgets(line, sizeof(line), m->from)) {
		fprintf(stderr, "tierbench: Mooncake's client ended; the end of its log:\n");
		process_tell_log(m->log);
		return -EPIPE;
	}
	if (sscanf(line, "ok %llu %d", &took, &number) == 2) {
		*ns = took;
		return number;
	}
	fprintf(stderr, "tierbench: Mooncake: %s", line);
	return sscanf(line, "error %d", &number) == 1 && number > 0 ? -number : -EPROTO;
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

static int mooncake_put(struct peer *p, uint32_t first, uint32_t count, const uint8_t *from)
{
	return move(p, "put", first, count, from);
}

static int mooncake_get(struct peer *p, uint32_t first, uint32_t count, uint8_t *to)
{
	return move(p, "get", first, count, to);
}

static int mooncake_find(struct peer *p, uint32_t first, uint32_t count)
{
	char question[LINE_BYTES];

	snprintf(question, sizeof(question), "find %u %u", first, count);
	return ask(p, question, &p->took_ns);
}

static int mooncake_remove(struct peer *p, uint32_t first, uint32_t count)
{
	char question[LINE_BYTES];
	int n;

	snprintf(question, sizeof(question), "remove %u %u", first, count);
	n = ask(p, question, &p->took_ns);
	return n < 0 ? n : 0;
}

static void mooncake_close(struct peer *p)
{
	struct mooncake *m = p->state;

	if (!m)
		return;
	/* The end of its input ends it; SIGTERM is for one that hangs. */
	if (m->to)
		fclose(m->to);
	if (m->from)
		fclose(m->from);
	for (int i = 0; i < END_MOMENTS && p->client > 0; i++) {
		if (waitpid(p->client, NULL, WNOHANG) == p->client)
			p->client = 0;
		else
			process_moment();
	}
	process_stop(p->client, "Mooncake's client", m->log);
	p->client = 0;
	free(m);
	p->state = NULL;
}

static int greet(struct peer *p)
{
	struct mooncake *m = p->state;
	char line[LINE_BYTES], version[64];
	int a = 0, b = 0, error = 0;

	if (!fgets(line, sizeof(line), m->from) ||
	    sscanf(line, "ready %63[^;]; %d %d", version, &a, &b) < 2) {
		fprintf(stderr, "tierbench: Mooncake did not come up; the end of its log:\n");
		process_tell_log(m->log);
		return -EPIPE;
	}
	p->pid[0] = a;
	p->pid[1] = b;
	snprintf(p->label, sizeof(p->label), "%s %s", p->ops->name, version);
	for (uint32_t i = 0; i < p->spec.blocks && !error; i++) {
		char key[PEER_KEY_BYTES];

		peer_key(key, i);
		error = fprintf(m->to, "key %s\n", key) < 0 ? -EPIPE : 0;
	}
	return error;
}

static int start(struct peer *p, bool tcp)
{
	struct mooncake *m = p->state;
	char python[SERVICE_PATH_BYTES], script[SERVICE_PATH_BYTES], number[4][32];
	const char *const argv[] = { python,
				     script,
				     "--log",
				     m->log,
				     "--block",
				     number[0],
				     "--segment",
				     number[1],
				     "--memory-fd",
				     number[2],
				     "--memory-bytes",
				     number[3],
				     tcp ? "--tcp" : NULL,
				     NULL };
	int in[2] = { -1, -1 }, out[2] = { -1, -1 }, memory = -1, error = 0;

	snprintf(python, sizeof(python), "%s/peers/bin/python", p->spec.bench->built);
	snprintf(script, sizeof(script), "%s/bench/peers/mooncake_client.py", p->spec.bench->top);
	if (!process_there(python))
		return -ENOENT;
	/* Without close-on-exec: the child gets it. */
	memory = dup(p->spec.memory_fd);
	snprintf(number[0], 32, "%u", p->spec.block_bytes);
	snprintf(number[1], 32, "%llu", (unsigned long long)p->spec.memory_bytes);
	snprintf(number[2], 32, "%d", memory);
	snprintf(number[3], 32, "%llu", (unsigned long long)p->spec.memory_at_most);
	if (memory < 0 || pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC))
		error = -errno;
	if (!error)
		error = process_start(&p->client, argv,
				      &(struct process_files){ m->log, in[0], out[1] });
	m->to = error ? NULL : fdopen(in[1], "w");
	m->from = error ? NULL : fdopen(out[0], "r");
	close(memory);
	close(in[0]);
	close(out[1]);
	return error ? error : m->to && m->from ? 0 : -ENOMEM;
}

static int open_either(struct peer *p, bool tcp)
{
	struct mooncake *m = p->state = calloc(1, sizeof(*m));
	int error;

	if (!m)
		return -ENOMEM;
	snprintf(m->log, sizeof(m->log), "%s/mooncake.log", p->spec.dir);
	snprintf(p->settings, sizeof(p->settings),
		 "blocks in memory of %s; a master and P2PHANDSHAKE on loopback, registered "
		 "buffers; batch_put_from, batch_get_into, batch_is_exist, by the child's clock",
		 tcp ? "another process, by TCP" : "the client itself, by memcpy");
	error = start(p, tcp);
	return error ? error : greet(p);
}

static int open_own(struct peer *p)
{
	return open_either(p, false);
}

static int open_tcp(struct peer *p)
{
	return open_either(p, true);
}

const struct peer_ops peer_mooncake = {
	.name = "Mooncake, in process",
	.open = open_own,
	.put = mooncake_put,
	.get = mooncake_get,
	.find = mooncake_find,
	.remove = mooncake_remove,
	.close = mooncake_close,
};

const struct peer_ops peer_mooncake_tcp = {
	.name = "Mooncake, TCP",
	.open = open_tcp,
	.put = mooncake_put,
	.get = mooncake_get,
	.find = mooncake_find,
	.remove = mooncake_remove,
	.close = mooncake_close,
};
