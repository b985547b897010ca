/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same replay through a daemon: one client that waits for every answer before it goes on, so
 * that the daemon sees what the core alone sees, in the same order. Every block that hits is leased
 * and its bytes compared with what must be in it.
 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "bench/bench.h"
#include "bench/replay/replay.h"
#include "bench/trace/gen.h"
#include "libtier/base/time.h"

#define WAIT_NS (60 * NS_PER_S)
#define LEASES 256u
#define SETTLE_NS (2 * NS_PER_MS) /* between looks while blocks are on their way out */
#define RETIRING "tiers.1.retiring" /* bytes, of the tier CXL */

struct lockstep {
	struct service service;
	tier *t;
	tier_context *c;
	tier_reader *r;
	const struct prepared *p;
	tier_key *key; /* of the present request */
	struct tier_found *found;
	uint32_t room;
};

static int context_make(struct lockstep *l, const char *policy, uint64_t bytes)
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
		.block_tokens = TRACE_BLOCK_TOKENS,
		.part_count = 1,
		.part = &part,
	};
	const struct tier_context_options options = {
		.size = sizeof(options),
		.policy = policy,
		.quota = { [TIER_HBM] = TIER_QUOTA_NONE,
			   [TIER_CXL] = bytes,
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

static int lockstep_open(struct lockstep *l, const char *policy, uint64_t capacity,
			 const struct service_options *service)
{
	/* Copies end as they began, also of a put that waits for room between; nothing is late. */
	static const char *const in_order[] = { "workers=1", "request.deadline=60s",
						"put.deadline=60s", NULL };
	struct service_options start = *service;
	struct tier_connect_options options = {
		.size = sizeof(options),
		.name = "replay",
		.staging_bytes = (uint64_t)REPLAY_PUT_BLOCKS * REPLAY_PAGE_BYTES * 2,
	};
	int error;

	start.cxl_bytes = capacity * REPLAY_PAGE_BYTES;
	start.set = in_order;
	error = service_start(&l->service, &start, NULL);
	options.socket = l->service.socket;
	if (!error)
		error = tier_connect(&l->t, &options);
	if (!error)
		error = context_make(l, policy, start.cxl_bytes);
	return error ? error : tier_reader_open(l->t, &l->r);
}

static void lockstep_close(struct lockstep *l)
{
	tier_reader_close(l->r);
	tier_context_close(l->c);
	tier_close(l->t);
	if (l->service.pid > 0)
		service_stop(&l->service);
	free(l->key);
	free(l->found);
}

static int take(struct lockstep *l, const struct trace_request *r)
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
		l->key[i] = l->p->key[l->p->number[r->id_first + i]];
	return 0;
}

/* Lease, compare, release; what has gone since the match ends the prefix. */
static int64_t read_prefix(struct lockstep *l, uint32_t count, struct outcome *out)
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
				out->bad_pages++;
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
static int settle(struct lockstep *l)
{
	const struct timespec pause = { .tv_nsec = SETTLE_NS };
	uint64_t until_ns = time_now_ns() + WAIT_NS;

	for (;;) {
		double parting, retiring = 0;
		int error = service_number(l->t, "status", "parting", &parting);

		if (!error && parting == 0)
			error = service_number(l->t, "status", RETIRING, &retiring);
		if (error || (parting == 0 && retiring == 0))
			return error;
		if (time_now_ns() >= until_ns)
			return -ETIMEDOUT;
		nanosleep(&pause, NULL);
	}
}

static int put_piece(struct lockstep *l, uint32_t first, uint32_t count)
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
	return settle(l);
}

static int serve(struct lockstep *l, struct outcome *out, const struct trace_request *r)
{
	int64_t hit = take(l, r);
	int error = 0;

	if (!hit)
		hit = tier_match(l->c, l->key, r->id_count, l->found);
	if (hit > 0)
		hit = read_prefix(l, (uint32_t)hit, out);
	if (hit < 0)
		return (int)hit;
	outcome_add(out, r, (uint64_t)hit);
	for (uint32_t at = (uint32_t)hit; at < r->id_count && !error; at += REPLAY_PUT_BLOCKS) {
		uint32_t left = r->id_count - at;

		error = put_piece(l, at, left < REPLAY_PUT_BLOCKS ? left : REPLAY_PUT_BLOCKS);
	}
	return error;
}

int replay_real(struct outcome *out, const struct prepared *p, const char *policy,
		uint64_t capacity, const struct service_options *service)
{
	struct lockstep l = { .p = p };
	uint64_t begin_ns;
	int error = lockstep_open(&l, policy, capacity, service);

	*out = (struct outcome){ 0 };
	begin_ns = time_now_ns();
	for (size_t q = 0; q < p->trace->request_count && !error; q++)
		error = serve(&l, out, &p->trace->request[q]);
	out->seconds = (double)(time_now_ns() - begin_ns) / 1e9;
	if (!error)
		error = service_metric(l.t, "blocks_committed", &out->put_blocks);
	if (!error)
		error = service_metric(l.t, "dropped_blocks", &out->dropped_blocks);
	if (error)
		bench_failed("replay", error);
	lockstep_close(&l);
	return error;
}
