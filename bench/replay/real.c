/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same replay through a daemon. In lock-step one client waits for every answer, and for all
 * that follows from it, before it goes on, so that the daemon sees what the core alone sees, in the
 * same order. Free running, clients take requests from one list and wait for their own answers
 * only. Every block that hits is leased and its bytes compared with what must be in it.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "bench/bench.h"
#include "bench/replay/replay.h"
#include "bench/trace/gen.h"
#include "libtier/base/atomic.h"
#include "libtier/base/time.h"

#define WAIT_NS (60 * NS_PER_S)
#define LEASES 256u
#define SETTLE_NS (2 * NS_PER_MS) /* between looks while blocks are on their way out */
#define RETIRING "tiers.1.retiring" /* bytes, of the tier CXL */

/* What the clients share. */
struct replayed {
	struct service service;
	const struct prepared *p;
	const char *policy;
	uint64_t bytes; /* of the tier */
	bool lockstep;
	uint64_t next; /* request that nobody has taken */
};

struct client {
	struct replayed *all;
	pthread_t thread;
	tier *t;
	tier_context *c;
	tier_reader *r;
	tier_key *key; /* of the present request */
	struct tier_found *found;
	uint32_t room;
	struct outcome out;
	int error;
};

/* The first makes it, the others find it. */
static int context_make(struct client *l)
{
	const struct tier_part part = {
		.name = "pages",
		.kind = TIER_KIND_DENSE,
		.preferred_tier = TIER_CXL,
		.layers = 1,
		.groups = 1,
		.page_bytes = REPLAY_PAGE_BYTES,
	};
	const struct tier_geometry_options shape = {
		.size = sizeof(shape),
		.block_tokens = l->all->p->trace->block_tokens,
		.part_count = 1,
		.part = &part,
	};
	const struct tier_context_options options = {
		.size = sizeof(options),
		.policy = l->all->policy,
		.quota = { [TIER_HBM] = TIER_QUOTA_NONE,
			   [TIER_CXL] = l->all->bytes,
			   [TIER_NVME] = TIER_QUOTA_NONE },
	};
	tier_geometry *g;
	int error = tier_geometry_new(&g, &shape);

	if (error)
		return error;
	error = tier_context_create(l->t, "replay", g, &options, &l->c);
	tier_geometry_free(g);
	return error;
}

static int client_open(struct client *l, struct replayed *all)
{
	struct tier_connect_options options = {
		.size = sizeof(options),
		.name = "replay",
		.socket = all->service.socket,
		.staging_bytes = (uint64_t)REPLAY_PUT_BLOCKS * REPLAY_PAGE_BYTES * 2,
	};
	int error;

	l->all = all;
	error = tier_connect(&l->t, &options);
	if (!error)
		error = context_make(l);
	return error ? error : tier_reader_open(l->t, &l->r);
}

static void client_close(struct client *l)
{
	tier_reader_close(l->r);
	tier_context_close(l->c);
	tier_close(l->t);
	free(l->key);
	free(l->found);
}

static int daemon_start(struct replayed *all, const struct service_options *service)
{
	/* Copies end as they began, also of a put that waits for room between; nothing is late. */
	static const char *const in_order[] = { "workers=1", "request.deadline=60s",
						"put.deadline=60s", NULL };
	struct service_options start = *service;

	start.cxl_bytes = all->bytes;
	start.set = all->lockstep ? in_order : in_order + 1;
	return service_start(&all->service, &start, NULL);
}

static int take(struct client *l, const struct trace_request *r)
{
	if (r->id_count > l->room) {
		free(l->key);
		free(l->found);
		l->key = calloc(r->id_count, sizeof(*l->key));
		l->found = calloc(r->id_count, sizeof(*l->found));
		l->room = l->key && l->found ? r->id_count : 0;
		if (!l->room)
			return -ENOMEM;
	}
	for (uint32_t i = 0; i < r->id_count; i++)
		l->key[i] = l->all->p->key[l->all->p->number[r->id_first + i]];
	return 0;
}

/* Lease, compare, release; what has gone since the match ends the prefix. */
static int64_t read_prefix(struct client *l, uint32_t count)
{
	struct tier_page page[LEASES];
	struct tier_lease lease[LEASES];

	for (uint32_t at = 0; at < count; at += LEASES) {
		uint32_t n = count - at < LEASES ? count - at : LEASES;
		int leased;

		for (uint32_t i = 0; i < n; i++)
			page[i] = (struct tier_page){ .block = l->found[at + i].block };
		leased = tier_lease_pages(l->r, l->c, page, n, 0, lease);
		if (leased < 0)
			return leased;
		for (uint32_t i = 0; i < n; i++) {
			if (!lease[i].data) {
				tier_release_many(l->r, lease, n);
				return at + i;
			}
			if (gen_verify(lease[i].data, lease[i].bytes, &l->key[at + i], 0, NULL))
				l->out.bad_pages++;
		}
		tier_release_many(l->r, lease, n);
	}
	return count;
}

/*
 * Where a block leaves, those behind it follow, by the millisecond, or by 100 where a put still had
 * them; and what they held is room a millisecond later. The next put would find more or less of it
 * by chance. The core alone is through with that before it sees the next request; so is the daemon.
 */
static int settle(struct client *l)
{
	const struct timespec pause = { .tv_nsec = SETTLE_NS };
	uint64_t until_ns = time_now_ns() + WAIT_NS;

	for (;;) {
		double leaving, retiring = 0;
		int error = service_number(l->t, "status", "leaving", &leaving);

		if (!error && leaving == 0)
			error = service_number(l->t, "status", RETIRING, &retiring);
		if (error || (leaving == 0 && retiring == 0))
			return error;
		if (time_now_ns() >= until_ns)
			return -ETIMEDOUT;
		nanosleep(&pause, NULL);
	}
}

static int put_piece(struct client *l, uint32_t first, uint32_t count)
{
	const struct tier_put_options options = {
		.size = sizeof(options),
		.depth = first,
		.parent = first ? &l->key[first - 1] : NULL,
	};
	struct tier_completion got;
	tier_put *put;
	int n, error = tier_put_begin(l->c, &l->key[first], count, &options, &put);

	if (error)
		return error;
	for (uint32_t i = 0; i < count; i++)
		gen_page(tier_put_data(put, i, 0, 0, 0), REPLAY_PAGE_BYTES, &l->key[first + i], 0);
	error = tier_put_commit(put, first);
	if (error)
		return error;
	n = tier_wait(l->t, &got, 1, 1, WAIT_NS);
	if (n != 1)
		return n < 0 ? n : -ETIMEDOUT;
	if (got.result && got.result != -ENOSPC)
		return got.result;
	return l->all->lockstep ? settle(l) : 0;
}

static int serve(struct client *l, const struct trace_request *r)
{
	int64_t hit = take(l, r);
	int error = 0;

	if (!hit)
		hit = tier_match(l->c, l->key, r->id_count, l->found);
	if (hit > 0)
		hit = read_prefix(l, (uint32_t)hit);
	if (hit < 0)
		return (int)hit;
	outcome_add(&l->out, l->all->p->trace, r, (uint64_t)hit);
	for (uint32_t at = (uint32_t)hit; at < r->id_count && !error; at += REPLAY_PUT_BLOCKS) {
		uint32_t left = r->id_count - at;

		error = put_piece(l, at, left < REPLAY_PUT_BLOCKS ? left : REPLAY_PUT_BLOCKS);
	}
	return error;
}

static void *serve_all(void *arg)
{
	struct client *l = arg;
	const struct trace *t = l->all->p->trace;
	uint64_t q;

	while (!l->error && (q = atomic_add_relaxed_u64(&l->all->next, 1)) < t->request_count)
		l->error = serve(l, &t->request[q]);
	return NULL;
}

/* The first client is ours. */
static int serve_by(struct client *client, uint32_t clients)
{
	uint32_t started = 1;
	int error = 0;

	for (; started < clients && !error; started += !error)
		error = -pthread_create(&client[started].thread, NULL, serve_all, &client[started]);
	if (!error)
		serve_all(&client[0]);
	for (uint32_t i = 1; i < started; i++)
		pthread_join(client[i].thread, NULL);
	for (uint32_t i = 0; i < clients && !error; i++)
		error = client[i].error;
	return error;
}

int replay_real(struct outcome *out, const struct prepared *p, const char *policy,
		const struct replay_through *how)
{
	struct replayed all = { .p = p,
				.policy = policy,
				.bytes = how->capacity * REPLAY_PAGE_BYTES,
				.lockstep = !how->free_clients };
	struct client client[REPLAY_CLIENTS_MAX] = { 0 };
	uint32_t clients = how->free_clients ? how->free_clients : 1, opened = 0;
	uint64_t begin_ns;
	int error = daemon_start(&all, how->service);

	while (opened < clients && !error)
		error = client_open(&client[opened++], &all);
	client[0].out.hit = out->hit;
	begin_ns = time_now_ns();
	if (!error)
		error = serve_by(client, clients);
	for (uint32_t i = 1; i < opened; i++)
		outcome_sum(&client[0].out, &client[i].out);
	*out = client[0].out;
	out->seconds = (double)(time_now_ns() - begin_ns) / 1e9;
	if (!error)
		error = service_metric(client[0].t, "blocks_committed", &out->put_blocks);
	if (!error)
		error = service_metric(client[0].t, "dropped_blocks", &out->dropped_blocks);
	if (error)
		bench_failed("replay", error);
	while (opened)
		client_close(&client[--opened]);
	if (all.service.pid > 0)
		service_stop(&all.service);
	return error;
}
