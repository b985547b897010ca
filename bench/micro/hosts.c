/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A prefix that another host holds, brought here by tier_pull, over bare TCP and TLS: two hosts on
 * this one, joined by its loopback. Beside it in turns: a bare socket with a checksum, the same
 * through OpenSSL, Redis through a UNIX socket, which it is allowed although a UNIX socket reaches
 * no other host, and Mooncake Store by TCP. Ours ends with blocks that tierd has, verified; theirs
 * in a buffer.
 *
 * Also: what it costs to find out that computing would have been faster.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/micro/hosts_wire.h"
#include "bench/micro/pool.h"
#include "bench/peers/peer.h"
#include "libtier/base/cleanup.h"

#define BLOCKS 16u /* of 1 MiB */
#define SAMPLES 8u
#define MEMORY_BYTES (32u << 20)
#define MEET_NS (30 * NS_PER_S)
#define DEADLINE_NS (20 * NS_PER_S)
#define CONTEXT "hosts"

static const uint32_t sizes[] = { 1, 16 }; /* MiB */
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

enum way { BARE, BARE_TLS, OURS, OURS_TLS, REDIS, MOONCAKE, WAYS };
#define PEERS (WAYS - REDIS)

/* Two hosts; B asks. */
struct pair {
	struct pool a, b;
	pid_t net[2];
	char log[2][1024];
};

struct hosts {
	struct bench *bench;
	char *dir;
	struct hosts_wire wire;
	struct pair pair[2]; /* bare, TLS */
	struct peer peer[PEERS];
	bool has[PEERS];
	char peer_dir[PEERS][1024];
	int memory_fd;
	uint8_t *memory; /* that of children, too */
	tier_key key[BLOCKS];
	struct sample ms[SIZES][WAYS], first[SIZES], refused;
};

/* ---- setting up ---------------------------------------------------------------------------- */

/* A port that nobody listens on now. */
static int free_port(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t bytes = sizeof(at);
	int fd CLEANUP_CLOSE = socket(AF_INET, SOCK_STREAM, 0);

	if (bind(fd, (struct sockaddr *)&at, sizeof(at)) ||
	    getsockname(fd, (struct sockaddr *)&at, &bytes))
		return -errno;
	return ntohs(at.sin_port);
}

static int net_start(struct hosts *h, struct pair *p, int i, const int port[2], bool tls)
{
	struct pool *pool = i ? &p->b : &p->a;
	char own[64], peer[64], folder[1024], state[1024], program[1024];
	const char *const argv[] = { program, "--name", i ? "B" : "A", "--listen", own, "--peer",
				     peer, "--socket", pool->service.socket, "--state", state,
				     "--pullers", "1", tls ? "--tls" : "--no-tls",
				     tls ? folder : NULL, NULL };
	FILE *f;

	snprintf(own, sizeof(own), "127.0.0.1:%d", port[i]);
	snprintf(peer, sizeof(peer), "%s=127.0.0.1:%d", i ? "A" : "B", port[!i]);
	snprintf(folder, sizeof(folder), "%s/certs/%s", h->dir, i ? "B" : "A");
	snprintf(state, sizeof(state), "%s/shared", pool->dir);
	snprintf(program, sizeof(program), "%s-net", h->bench->tierd);
	snprintf(p->log[i], sizeof(p->log[i]), "%s/net.log", pool->dir);
	f = fopen(state, "w");
	if (!f || fprintf(f, CONTEXT "\n") < 0 || fclose(f))
		return -errno;
	return process_start(&p->net[i], argv, &(struct process_files){ .log = p->log[i] });
}

/* Until B knows what A has. */
static int meet(struct hosts *h, struct pair *p)
{
	uint64_t until_ns = time_now_ns() + MEET_NS;

	while (tier_locate(p->b.c, h->key, BLOCKS, NULL, NULL) != BLOCKS) {
		if (time_now_ns() > until_ns) {
			fprintf(stderr, "the two hosts do not meet: %s\n", tier_error_text());
			process_tell_log(p->log[1]);
			return -ETIMEDOUT;
		}
		process_moment();
	}
	return 0;
}

static int pair_open(struct hosts *h, struct pair *p, bool tls)
{
	struct pool_spec spec = { .name = CONTEXT, .pages_per_block = 16, .layers = 16,
				  .page_bytes = HOSTS_PAGE, .blocks = BLOCKS,
				  .blocks_max = 8 * BLOCKS, .cxl_bytes = 256 << 20,
				  .fill_pages = true };
	int port[2] = { free_port(), free_port() };
	int error = pool_open(&p->a, h->bench, &spec);

	spec.blocks = 0;
	if (!error)
		error = pool_open(&p->b, h->bench, &spec);
	for (int i = 0; i < 2 && !error; i++)
		error = net_start(h, p, i, port, tls);
	return error ? error : meet(h, p);
}

static void pair_close(struct pair *p)
{
	for (int i = 0; i < 2; i++)
		process_stop(p->net[i], "tierd-net", p->log[i]);
	pool_close(&p->b);
	pool_close(&p->a);
}

static int make_certificates(struct hosts *h, char folder[1024])
{
	char program[1024], log[1024];
	const char *const argv[] = { program, folder, "A", "B", NULL };
	int status = 0, error;
	pid_t pid;

	snprintf(program, sizeof(program), "%s/bench/hosts/certs", h->bench->top);
	snprintf(folder, 1024, "%s/certs", h->dir);
	snprintf(log, sizeof(log), "%s/certs.log", h->dir);
	error = process_start(&pid, argv, &(struct process_files){ .log = log });
	if (!error && (waitpid(pid, &status, 0) != pid || status))
		error = -EIO;
	return error ? bench_failed("certificates (is openssl there?)", error) : 0;
}

/* A peer that is not there is said to be missing; one that does not work is an error. */
static int peer_start(struct hosts *h, uint32_t i)
{
	static const struct peer_ops *const ops[PEERS] = { &peer_redis, &peer_mooncake_tcp };
	struct peer *p = &h->peer[i];
	int error;

	snprintf(h->peer_dir[i], sizeof(h->peer_dir[i]), "%s/peer%u", h->dir, i);
	*p = (struct peer){
		.ops = ops[i],
		.spec = { .bench = h->bench, .dir = h->peer_dir[i], .block_bytes = HOSTS_FRAME,
			  .blocks = BLOCKS, .memory_bytes = 256 << 20, .memory_fd = h->memory_fd,
			  .memory = h->memory, .memory_at_most = MEMORY_BYTES },
	};
	if (mkdir(p->spec.dir, 0700))
		return -errno;
	error = peer_open(p);
	h->has[i] = error == 0;
	if (error == -ENOENT || error == -ECANCELED)
		return 0;
	return error ? error : p->ops->put(p, 0, BLOCKS, h->memory);
}

/* ---- one of each --------------------------------------------------------------------------- */

static int pull(struct hosts *h, struct pair *p, uint32_t blocks, struct tier_hosts *came)
{
	struct tier_hosts_options o = { .size = sizeof(o),
					.deadline_ns = time_now_ns() + DEADLINE_NS };
	int64_t n = tier_pull(p->b.c, h->key, blocks, &o, came);

	return n == blocks ? 0 : n < 0 ? (int)n : -ENODATA;
}

static int forget(struct hosts *h, struct pair *p)
{
	int64_t n = tier_delete(p->b.c, h->key, BLOCKS);

	return n < 0 ? (int)n : 0;
}

/* *took_ns: by its client's clock, where that is another process. */
static int peer_get(struct hosts *h, uint32_t i, uint32_t mib, uint64_t *took_ns)
{
	struct peer *p = &h->peer[i];
	int error = p->ops->get(p, 0, mib, h->memory);

	*took_ns = p->took_ns;
	p->took_ns = 0;
	return error;
}

static bool is_there(const struct hosts *h, enum way way)
{
	return way < REDIS || h->has[way - REDIS];
}

static int one(struct hosts *h, enum way way, uint32_t mib, double *ms, double *first)
{
	struct tier_hosts came = { .size = sizeof(came) };
	struct pair *p = &h->pair[way == OURS_TLS];
	uint64_t from = time_now_ns(), took_ns = 0;
	int error;

	if (way == BARE || way == BARE_TLS)
		error = hosts_wire_get(&h->wire, way == BARE_TLS, h->memory, mib << 20);
	else if (way >= REDIS)
		error = peer_get(h, way - REDIS, mib, &took_ns);
	else
		error = pull(h, p, mib, &came);
	*ms = (double)(took_ns ? took_ns : time_now_ns() - from) / NS_PER_MS;
	if (!error && (way == OURS || way == OURS_TLS)) {
		*first = (double)came.first_ns / (double)came.all_ns;
		error = forget(h, p);
	}
	return error;
}

/* Told that computing takes a fifth of what fetching does, how long does it take to say no? */
static int refuse(struct hosts *h, double fetch_ms, double *part)
{
	struct tier_hosts_options o = { .size = sizeof(o),
					.deadline_ns = time_now_ns() + DEADLINE_NS };
	struct tier_hosts came = { .size = sizeof(came) };
	uint64_t from = time_now_ns();
	double compute_ns = fetch_ms * NS_PER_MS / 5;
	int64_t n;

	o.token_ns = 1 + (uint64_t)(compute_ns / (BLOCKS * 128));
	n = tier_pull(h->pair[0].b.c, h->key, BLOCKS, &o, &came);
	if (n < 0)
		return (int)n;
	*part = (double)(time_now_ns() - from) / compute_ns;
	return forget(h, &h->pair[0]);
}

/* ---- rounds -------------------------------------------------------------------------------- */

static int round_of(struct hosts *h, uint32_t size)
{
	double ms[WAYS][SAMPLES], first[SAMPLES], part = 0;
	int error = 0;

	for (uint32_t i = 0; i < SAMPLES && !error; i++)
		for (uint32_t k = 0; k < WAYS && !error; k++) {
			enum way way = (k + i) % WAYS;

			if (is_there(h, way))
				error = one(h, way, sizes[size], &ms[way][i], &first[i]);
			if (error)
				fprintf(stderr, "way %u: %s\n", way, tier_error_text());
		}
	for (uint32_t way = 0; way < WAYS && !error; way++)
		if (is_there(h, way))
			sample_add(&h->ms[size][way], sample_quantile(ms[way], SAMPLES, 0.5));
	if (error)
		return error;
	sample_add(&h->first[size], sample_quantile(first, SAMPLES, 0.5));
	if (sizes[size] < BLOCKS)
		return 0;
	error = refuse(h, sample_quantile(ms[OURS], SAMPLES, 0.5), &part);
	sample_add(&h->refused, part);
	return error;
}

/* Ours against a peer, in times: the goal is for rates, so its limit is turned round. */
static int judge(struct hosts *h, uint32_t size, enum way ours, enum way peer, double rate)
{
	static const char *const name[] = { "a bare socket with CRC32C",
					    "the same through OpenSSL", "bare TCP", "TLS",
					    "Redis", "Mooncake" };
	char figure[BENCH_TEXT];
	const char *against = peer < REDIS || !is_there(h, peer) ? name[peer] :
							      h->peer[peer - REDIS].label;
	struct bench_figure f = { "hosts", figure, "ms", against,
				  { BENCH_RATIO_AT_MOST, 1 / rate } };

	snprintf(figure, sizeof(figure), "%u MiB from another host, %s", sizes[size], name[ours]);
	if (!is_there(h, peer))
		return bench_judge_missing(h->bench->results, &f, "not here: make setup-peers");
	return bench_judge(h->bench->results, &f, &h->ms[size][ours], &h->ms[size][peer]);
}

static int judge_all(struct hosts *h)
{
	static const struct bench_figure
		first = { "hosts", "16 MiB: its first layer's share of the time", "", "",
			  { BENCH_VALUE_AT_MOST, 0.2 } },
		refused = { "hosts", "16 MiB not fetched: time to say so, of computing it", "", "",
			    { BENCH_VALUE_AT_MOST, 0.05 } };
	static const struct sample none;
	int error = 0;

	for (uint32_t i = 0; i < SIZES && !error; i++) {
		error = judge(h, i, OURS, BARE, 0.85);
		if (!error)
			error = judge(h, i, OURS_TLS, BARE_TLS, 0.85);
		for (enum way peer = REDIS; peer < WAYS && !error; peer++)
			error = judge(h, i, OURS, peer, sizes[i] > 1 ? 1.3 : 1.0);
	}
	if (!error)
		error = bench_judge(h->bench->results, &first, &h->first[SIZES - 1], &none);
	return error ? error : bench_judge(h->bench->results, &refused, &h->refused, &none);
}

static int measure(struct hosts *h)
{
	int error = 0;

	for (uint32_t round = 0; round < h->bench->rounds && !error; round++)
		for (uint32_t size = 0; size < SIZES && !error; size++)
			error = round_of(h, size);
	return error ? bench_failed("hosts", error) : judge_all(h);
}

int bench_hosts(struct bench *b)
{
	struct hosts *h = calloc(1, sizeof(*h));
	char folder[1024];
	int error = h ? service_dir_make(&h->dir, b->dir) : -ENOMEM;

	if (error) {
		free(h);
		return error;
	}
	h->bench = b;
	h->memory = peer_memory(&h->memory_fd, MEMORY_BYTES);
	for (uint32_t i = 0; i < BLOCKS; i++)
		pool_key(&h->key[i], i);
	error = h->memory ? make_certificates(h, folder) : -ENOMEM;
	if (!error)
		error = hosts_wire_open(&h->wire, folder);
	for (int i = 0; i < 2 && !error; i++)
		error = pair_open(h, &h->pair[i], i);
	for (uint32_t i = 0; i < PEERS && !error; i++)
		error = peer_start(h, i);
	if (!error)
		error = measure(h);
	for (uint32_t i = 0; i < PEERS; i++)
		if (h->peer[i].ops)
			h->peer[i].ops->close(&h->peer[i]);
	for (int i = 0; i < 2; i++)
		pair_close(&h->pair[i]);
	hosts_wire_close(&h->wire);
	service_dir_remove(h->dir);
	if (h->memory)
		munmap(h->memory, MEMORY_BYTES);
	close(h->memory_fd);
	free(h);
	return error;
}
