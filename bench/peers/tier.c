/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our own daemon behind the calls of a peer. Puts are written into staging memory piece by piece,
 * so that the daemon takes one while the next is written; gets look keys up and copy, or lease.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bench/micro/pool.h"
#include "bench/peers/peer.h"

#define PIECE_BYTES (8u << 20)
#define LIST_MAX 256u
#define WAIT_NS (60 * NS_PER_S)

struct own {
	struct pool pool;
	uint32_t pages; /* a block */
};

/* ---- put ------------------------------------------------------------------------------------ */

static int put_piece(struct peer *p, uint32_t first, uint32_t count, const uint8_t *from)
{
	const struct tier_put_options options = {
		.size = sizeof(options),
		.flags = p->spec.flash_bytes ? TIER_PUT_DURABLE : 0,
		.deadline_ns = time_now_ns() + WAIT_NS,
	};
	struct own *o = p->state;
	tier_key key[LIST_MAX];
	tier_put *put;
	int error;

	for (uint32_t i = 0; i < count; i++)
		pool_key(&key[i], first + i);
	error = tier_put_begin(o->pool.c, key, count, &options, &put);
	if (error)
		return error;
	for (uint32_t i = 0; i < count * o->pages; i++)
		memcpy(tier_put_data(put, i / o->pages, 0, 0, i % o->pages),
		       from + (size_t)i * PEER_PAGE_BYTES, PEER_PAGE_BYTES);
	error = tier_put_commit(put, 1);
	if (error)
		tier_put_abort(put);
	return error;
}

static int taken(struct own *o, uint32_t *blocks)
{
	struct tier_completion got;
	int n = tier_wait(o->pool.t, &got, 1, 1, WAIT_NS);

	if (n <= 0)
		return n ? n : -ETIMEDOUT;
	*blocks += (uint32_t)got.value;
	return got.result;
}

static int own_put(struct peer *p, uint32_t first, uint32_t count, const uint8_t *from)
{
	struct own *o = p->state;
	uint32_t piece = p->spec.block_bytes < PIECE_BYTES ? PIECE_BYTES / p->spec.block_bytes : 1;
	uint32_t ahead = 0, stored = 0;
	int error = 0;

	for (uint32_t at = 0; at < count && !error;) {
		uint32_t n = count - at < piece ? count - at : piece;

		error = put_piece(p, first + at, n, from + (size_t)at * p->spec.block_bytes);
		if (!error) {
			at += n;
			ahead++;
		} else if ((error == -EAGAIN || error == -ENOBUFS) && ahead) {
			error = taken(o, &stored);
			ahead--;
		}
	}
	while (ahead--) {
		int one = taken(o, &stored);

		error = error ? error : one;
	}
	if (error)
		return bench_failed("put", error);
	return stored == count ? 0 : bench_failed("put: a block was dropped", -ENOSPC);
}

/* ---- get ------------------------------------------------------------------------------------ */

/* Look up to LIST_MAX keys up; how many are there, from the first. */
static int look_up(struct peer *p, uint32_t first, uint32_t count, struct tier_found *found)
{
	struct own *o = p->state;
	tier_key key[LIST_MAX];

	if (!count || count > LIST_MAX)
		return -E2BIG;
	for (uint32_t i = 0; i < count; i++)
		pool_key(&key[i], first + i);
	return (int)tier_match(o->pool.c, key, count, found);
}

struct pages {
	struct tier_page page[LIST_MAX];
	uint32_t count;
};

static void list_pages(struct pages *out, const struct own *o, const struct tier_found *found,
		       uint32_t from, uint32_t of)
{
	out->count = of - from < LIST_MAX ? of - from : LIST_MAX;
	for (uint32_t i = 0; i < out->count; i++)
		out->page[i] = (struct tier_page){ .block = found[(from + i) / o->pages].block,
						   .page = (from + i) % o->pages };
}

/* What is not in memory comes from flash first, all of the request at once. */
static int fetch(struct peer *p, const struct tier_found *found, uint32_t count)
{
	struct own *o = p->state;
	tier_block block[LIST_MAX];
	uint32_t cold = 0;
	int64_t n;

	for (uint32_t i = 0; i < count; i++) {
		block[i] = found[i].block;
		cold += found[i].tier == TIER_NVME;
	}
	if (!cold)
		return 0;
	n = tier_fetch(o->pool.c, block, count, NULL);
	return n == count ? 0 : n < 0 ? (int)n : -ENODATA;
}

static int own_get(struct peer *p, uint32_t first, uint32_t count, uint8_t *to)
{
	struct own *o = p->state;
	struct tier_found found[LIST_MAX];
	struct pages list;
	int error, n = look_up(p, first, count, found);

	if (n < 0 || (uint32_t)n < count)
		return n < 0 ? n : -ENODATA;
	error = fetch(p, found, count);
	for (uint32_t at = 0; at < count * o->pages && !error; at += list.count) {
		const struct tier_into into = { .dst = to + (size_t)at * PEER_PAGE_BYTES };
		int64_t copied;

		list_pages(&list, o, found, at, count * o->pages);
		copied = tier_gather(o->pool.r, o->pool.c, list.page, list.count, &into);
		error = copied == list.count ? 0 : copied < 0 ? (int)copied : -ENODATA;
	}
	return error;
}

static int own_visit(struct peer *p, uint32_t first, uint32_t count, peer_reader *read, void *arg)
{
	struct own *o = p->state;
	struct tier_lease lease[LIST_MAX];
	struct tier_found found[LIST_MAX];
	struct pages list;
	int error, n = look_up(p, first, count, found);

	if (n < 0 || (uint32_t)n < count)
		return n < 0 ? n : -ENODATA;
	error = fetch(p, found, count);
	for (uint32_t at = 0; at < count * o->pages && !error; at += list.count) {
		int64_t got;

		list_pages(&list, o, found, at, count * o->pages);
		got = tier_lease_pages(o->pool.r, o->pool.c, list.page, list.count, 0, lease);
		if (got < 0)
			return (int)got;
		error = got == list.count ? 0 : -ENODATA;
		for (uint32_t i = 0; i < list.count && !error; i++)
			error = read(arg, first + (at + i) / o->pages, (at + i) % o->pages,
				     lease[i].data);
		tier_release_many(o->pool.r, lease, list.count);
	}
	return error;
}

static int own_find(struct peer *p, uint32_t first, uint32_t count)
{
	struct tier_found found[LIST_MAX];

	return look_up(p, first, count, found);
}

static int own_remove(struct peer *p, uint32_t first, uint32_t count)
{
	struct own *o = p->state;
	int64_t n = 0;

	for (uint32_t at = 0; at < count && n >= 0; at += LIST_MAX) {
		uint32_t some = count - at < LIST_MAX ? count - at : LIST_MAX;
		tier_key key[LIST_MAX];

		for (uint32_t i = 0; i < some; i++)
			pool_key(&key[i], first + at + i);
		n = tier_delete(o->pool.c, key, some);
	}
	return n < 0 ? bench_failed("tier_delete", (int)n) : 0;
}

/* ---- life ----------------------------------------------------------------------------------- */

static void own_close(struct peer *p)
{
	struct own *o = p->state;

	if (!o)
		return;
	pool_close(&o->pool);
	free(o);
	p->state = NULL;
}

static int own_open(struct peer *p)
{
	struct own *o = calloc(1, sizeof(*o));
	const struct pool_spec spec = {
		.name = "peers",
		.pages_per_block = p->spec.block_bytes / PEER_PAGE_BYTES,
		.page_bytes = PEER_PAGE_BYTES,
		/* What is deleted and put again overlaps for a moment. */
		.blocks_max = p->spec.blocks * 2,
		.cxl_bytes = p->spec.memory_bytes,
		.nvme_bytes = p->spec.flash_bytes,
	};
	int error;

	if (!o)
		return -ENOMEM;
	o->pages = spec.pages_per_block;
	error = pool_open(&o->pool, p->spec.bench, &spec);
	if (error) {
		free(o);
		return error;
	}
	p->state = o;
	p->pid[0] = o->pool.service.pid;
	snprintf(p->label, sizeof(p->label), "tier %s", tier_version());
	snprintf(p->settings, sizeof(p->settings),
		 "tierd as it is installed, CXL tier in memory%s; staging 256 MiB, puts in pieces "
		 "of 8 MiB; tier_gather where bytes are copied, leases where read in place",
		 p->spec.flash_bytes ? ", puts durable" : ", no NVMe tier");
	return 0;
}

static int own_join(struct peer *p)
{
	const struct own *o = p->state;
	struct own *mine = calloc(1, sizeof(*mine));
	int error;

	if (!mine)
		return -ENOMEM;
	mine->pages = o->pages;
	error = pool_attach(&mine->pool, &o->pool);
	p->state = mine;
	return error;
}

static int own_restart(struct peer *p, uint64_t *began_ns)
{
	struct own *o = p->state;
	int error = pool_restart(&o->pool);

	p->pid[0] = o->pool.service.pid;
	*began_ns = o->pool.service.started_ns;
	return error;
}

const struct peer_ops peer_tier = {
	.name = "tier",
	.open = own_open,
	.join = own_join,
	.put = own_put,
	.get = own_get,
	.visit = own_visit,
	.find = own_find,
	.remove = own_remove,
	.close = own_close,
	.restart = own_restart,
};
