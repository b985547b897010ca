/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peers-clients: 1 to 8 clients of one server, each a process of its own. All at once store 32 MiB
 * each, then read the 32 MiB that another one stored, in requests of 8 blocks of 1 MiB; a figure is
 * the bytes of all, from when the first begins to when the last is done. Bytes are verified when
 * all are done. Who has no server (Mooncake in process, LMCache's memory) has one client only.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/peers/peer.h"

#define CLIENTS 8u
#define BLOCK_BYTES (1u << 20)
#define REQUEST_BLOCKS 8u
#define SLICE_BLOCKS 32u
#define BLOCKS (CLIENTS * SLICE_BLOCKS)
#define SET_BYTES ((uint64_t)BLOCKS * BLOCK_BYTES)
#define COUNTS 4u /* 1, 2, 4, 8 clients */
#define PEERS (sizeof(peers) / sizeof(peers[0]))

/* The first is ours. */
static const struct peer_ops *const peers[] = { &peer_tier,	   &peer_tmpfs,
						&peer_redis,	   &peer_memcached,
						&peer_mooncake_tcp, &peer_lmcache_server };

enum verb { PUT, GET, VERIFY, END };
#define FIGURES 2u /* of PUT and GET */

static const char *const verb_name[FIGURES] = { "put", "get, copied" };

/* By pipe to a client, and back. */
struct order {
	enum verb verb;
	uint32_t slice;
};

struct answer {
	int error;
	uint64_t begun_ns, ended_ns;
};

struct client {
	pid_t pid;
	int to, from;
};

struct crew {
	struct peer peer;
	char *dir;
	struct client client[CLIENTS];
	char why[BENCH_TEXT]; /* it is not measured; "" = it is */
	struct sample sample[COUNTS][FIGURES];
};

struct contest {
	struct bench *bench;
	int memory_fd;
	uint8_t *memory; /* the set, then what is read, a slice a client */
	struct crew crew[PEERS];
};

/* ---- a client ------------------------------------------------------------------------- */

static int obey(struct peer *p, struct order order, uint32_t number)
{
	uint8_t *slice = p->spec.memory + (size_t)order.slice * SLICE_BLOCKS * BLOCK_BYTES;
	uint8_t *mine = p->spec.memory + SET_BYTES + (size_t)number * SLICE_BLOCKS * BLOCK_BYTES;
	uint32_t first = order.slice * SLICE_BLOCKS;
	int error = 0;

	if (order.verb == VERIFY)
		return peer_verify(p, first, SLICE_BLOCKS, mine);
	for (uint32_t i = 0; i < SLICE_BLOCKS && !error; i += REQUEST_BLOCKS) {
		size_t at = (size_t)i * BLOCK_BYTES;

		error = order.verb == PUT
				? p->ops->put(p, first + i, REQUEST_BLOCKS, slice + at)
				: p->ops->get(p, first + i, REQUEST_BLOCKS, mine + at);
	}
	return error;
}

static void serve(struct peer *p, uint32_t number, int from, int to)
{
	struct answer answer = { .error = p->ops->join(p) };
	struct order order;

	while (write(to, &answer, sizeof(answer)) == sizeof(answer) &&
	       read(from, &order, sizeof(order)) == sizeof(order) && order.verb != END) {
		/* Bytes of the last read must not pass for those of this one. */
		if (order.verb == GET)
			memset(p->spec.memory + SET_BYTES +
				       (size_t)number * SLICE_BLOCKS * BLOCK_BYTES,
			       0x5a, (size_t)SLICE_BLOCKS * BLOCK_BYTES);
		answer.begun_ns = time_now_ns();
		answer.error = obey(p, order, number);
		answer.ended_ns = time_now_ns();
	}
	if (p->client > 0)
		p->ops->close(p);
}

static int hear(const struct client *c, struct answer *answer)
{
	return read(c->from, answer, sizeof(*answer)) == sizeof(*answer) ? answer->error : -EPIPE;
}

static int spawn(struct crew *crew, uint32_t number)
{
	struct client *c = &crew->client[number];
	int in[2], out[2] = { -1, -1 };

	if (pipe2(in, O_CLOEXEC))
		return -errno;
	c->to = in[1];
	if (pipe2(out, O_CLOEXEC)) {
		close(in[0]);
		return -errno;
	}
	c->from = out[0];
	fflush(NULL);
	c->pid = fork();
	if (c->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		serve(&crew->peer, number, in[0], out[1]);
		_exit(0);
	}
	close(in[0]);
	close(out[1]);
	return c->pid < 0 ? -errno : 0;
}

static void dismiss(struct crew *crew)
{
	const struct order end = { .verb = END };

	for (uint32_t i = 0; i < CLIENTS; i++) {
		struct client *c = &crew->client[i];

		if (c->pid > 0 && write(c->to, &end, sizeof(end)) != sizeof(end))
			kill(c->pid, SIGTERM);
	}
	for (uint32_t i = 0; i < CLIENTS; i++) {
		struct client *c = &crew->client[i];

		if (c->pid > 0)
			waitpid(c->pid, NULL, 0);
		if (c->to > 0)
			close(c->to);
		if (c->from > 0)
			close(c->from);
		*c = (struct client){ .pid = 0 };
	}
}

/* ---- rounds --------------------------------------------------------------------------- */

/* Client i gets slice i + shift. All are waited for, also after an error. */
static int all_of(struct crew *crew, uint32_t clients, enum verb verb, uint32_t shift,
		  uint64_t *ns)
{
	uint64_t begun = UINT64_MAX, ended = 0;
	int error = 0;

	for (uint32_t i = 0; i < clients; i++) {
		const struct order order = { verb, (i + shift) % clients };

		if (write(crew->client[i].to, &order, sizeof(order)) != sizeof(order))
			return -EPIPE;
	}
	for (uint32_t i = 0; i < clients; i++) {
		struct answer answer = { .error = 0 };
		int one = hear(&crew->client[i], &answer);

		if (one == -EPIPE)
			return one;
		error = error ? error : one;
		begun = answer.begun_ns < begun ? answer.begun_ns : begun;
		ended = answer.ended_ns > ended ? answer.ended_ns : ended;
	}
	*ns = ended - begun;
	return error;
}

static int round_of(struct crew *crew, uint32_t count)
{
	uint32_t clients = 1u << count;
	double bytes = (double)clients * SLICE_BLOCKS * BLOCK_BYTES;
	uint64_t put = 0, get = 0, unused;
	int error = all_of(crew, clients, PUT, 0, &put);

	if (!error)
		error = all_of(crew, clients, GET, 1, &get);
	if (!error)
		error = all_of(crew, clients, VERIFY, 1, &unused);
	if (!error)
		error = crew->peer.ops->remove(&crew->peer, 0, clients * SLICE_BLOCKS);
	if (error)
		return error;
	sample_add(&crew->sample[count][PUT], bytes / (double)put);
	sample_add(&crew->sample[count][GET], bytes / (double)get);
	return 0;
}

static void give_up(struct crew *crew, const struct peer_ops *ops, int error)
{
	peer_why(crew->why, ops, error);
	bench_say("peers-clients: not measured: %s", crew->why);
}

static int open_crew(struct contest *c, uint32_t i, const char *shm)
{
	struct crew *crew = &c->crew[i];
	int error = service_dir_make(&crew->dir, c->bench->dir);

	crew->peer = (struct peer){ .ops = peers[i],
				    .spec = { .bench = c->bench,
					      .dir = crew->dir,
					      .shm = shm,
					      .block_bytes = BLOCK_BYTES,
					      .blocks = BLOCKS,
					      .memory_bytes = 2 * SET_BYTES,
					      .memory_fd = c->memory_fd,
					      .memory = c->memory,
					      .memory_at_most = 2 * SET_BYTES } };
	if (!error)
		error = peer_open(&crew->peer);
	for (uint32_t k = 0; k < CLIENTS && !error; k++)
		error = spawn(crew, k);
	for (uint32_t k = 0; k < CLIENTS && !error; k++) {
		struct answer joined;

		error = hear(&crew->client[k], &joined);
	}
	return error;
}

static int open_all(struct contest *c, const char *shm)
{
	for (uint32_t i = 0; i < PEERS; i++) {
		int error = open_crew(c, i, shm);

		if (error && i == 0)
			return bench_failed("peers-clients", error);
		if (error)
			give_up(&c->crew[i], peers[i], error);
		else
			bench_note(c->bench->results, "peers-clients", "%s: %s",
				   c->crew[i].peer.label, c->crew[i].peer.settings);
	}
	return 0;
}

static void close_all(struct contest *c)
{
	for (uint32_t i = 0; i < PEERS; i++) {
		struct crew *crew = &c->crew[i];

		dismiss(crew);
		if (crew->peer.ops)
			crew->peer.ops->close(&crew->peer);
		service_dir_remove(crew->dir);
	}
}

/* Ours must not fail; a peer that does is left out, and that is said. */
static int rounds(struct contest *c)
{
	for (uint32_t round = 0; round < c->bench->rounds; round++)
		for (uint32_t at = 0; at < COUNTS * PEERS; at++) {
			uint32_t i = (at + round) % PEERS;
			struct crew *crew = &c->crew[i];
			int error = *crew->why ? 0 : round_of(crew, at / PEERS);

			if (error && i == 0)
				return bench_failed("peers-clients", error);
			if (error)
				give_up(crew, peers[i], error);
		}
	return 0;
}

static int judge(struct contest *c)
{
	int error = 0;

	for (uint32_t i = 1; i < PEERS && !error; i++) {
		const struct bench_figure missing = { "peers-clients", peers[i]->name, "", "",
						      { BENCH_RATIO_AT_LEAST, 1 } };

		if (*c->crew[i].why) {
			error = bench_judge_missing(c->bench->results, &missing, c->crew[i].why);
			continue;
		}
		for (uint32_t k = 0; k < COUNTS * FIGURES && !error; k++) {
			uint32_t f = k / COUNTS, count = k % COUNTS;
			char name[BENCH_TEXT];
			const struct bench_figure row = { "peers-clients", name, "GB/s",
							  c->crew[i].peer.label,
							  { BENCH_RATIO_AT_LEAST, 1 } };

			snprintf(name, sizeof(name), "%s, %u client%s", verb_name[f], 1u << count,
				 count ? "s" : "");
			error = bench_judge(c->bench->results, &row, &c->crew[0].sample[count][f],
					    &c->crew[i].sample[count][f]);
		}
	}
	return error;
}

int bench_peers_clients(struct bench *b)
{
	struct contest *c = calloc(1, sizeof(*c));
	char *shm = NULL;
	int error;

	if (!c)
		return -ENOMEM;
	c->bench = b;
	c->memory = peer_memory(&c->memory_fd, 2 * SET_BYTES);
	error = c->memory ? 0 : -ENOMEM;
	if (!error && b->shm)
		error = service_dir_make(&shm, b->shm);
	if (!error) {
		peer_fill(c->memory, BLOCKS, BLOCK_BYTES);
		error = open_all(c, shm);
	}
	if (!error)
		error = rounds(c);
	if (!error)
		error = judge(c);
	close_all(c);
	service_dir_remove(shm);
	if (c->memory)
		munmap(c->memory, 2 * SET_BYTES);
	if (c->memory_fd >= 0)
		close(c->memory_fd);
	free(c);
	return error;
}
