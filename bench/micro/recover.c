/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A full NVMe tier is opened again: how long the daemon reads its summaries, and how long an engine
 * waits from the daemon's start to its first hit. The store here is small; seconds per TiB are
 * computed from it, which is fair because summaries are the same share of a store of any size.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "bench/micro/pool.h"
#include "libtier/abi/disk.h"
#include "libtier/base/cleanup.h"
#include "libtier/base/units.h"

#define PAGE_BYTES (64u << 10)
#define PAGES_PER_BLOCK 16u
#define BLOCK_BYTES ((uint64_t)PAGE_BYTES * PAGES_PER_BLOCK)
#define TIB ((double)(1ull << 40))
#define FIRST_NS (60 * NS_PER_S)

struct reopening {
	struct pool *p;
	struct service_options options;
	struct disk_super super;
	uint64_t random;
	struct sample seconds, plain; /* per TiB of store */
	struct sample first, ready;   /* ms since the daemon was started */
	double blocks;
};

/* The same bytes, read one after the other by nobody in particular: the device's own limit. */
static int read_plainly(struct reopening *r, double *seconds)
{
	const struct disk_super *s = &r->super;
	void *buf CLEANUP_FREE = aligned_alloc(DISK_SECTOR, s->summary_bytes);
	int fd CLEANUP_CLOSE = open(r->p->service.store, O_RDONLY | O_DIRECT | O_CLOEXEC);
	uint64_t from = time_now_ns();

	if (!buf || fd < 0)
		return buf ? -errno : -ENOMEM;
	for (uint64_t i = 0; i < s->segment_count; i++) {
		off_t at = (off_t)(s->segment_offset + i * s->segment_bytes);

		if (pread(fd, buf, s->summary_bytes, at) != (ssize_t)s->summary_bytes)
			return -EIO;
	}
	*seconds = (double)(time_now_ns() - from) / 1e9;
	return 0;
}

static int read_super(struct reopening *r)
{
	int fd CLEANUP_CLOSE = open(r->p->service.store, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || pread(fd, &r->super, sizeof(r->super), 0) != (ssize_t)sizeof(r->super))
		return -EIO;
	return r->super.magic == DISK_SUPER_MAGIC ? 0 : -EBADMSG;
}

/* Connect, look one block up, read a page of it from NVMe, look at its first word. */
static int first_hit(struct reopening *r, tier **t, double *ms)
{
	const struct tier_connect_options options = { .size = sizeof(options),
						      .socket = r->p->service.socket,
						      .name = "tierbench",
						      .staging_bytes = 1 << 20 };
	uint32_t at = bench_random_below(&r->random, r->p->spec.blocks);
	struct tier_lease lease = { .data = NULL };
	struct tier_found found;
	struct tier_page page;
	tier_context *c;
	tier_reader *reader;
	tier_key key;
	int error = tier_connect(t, &options);

	if (!error)
		error = tier_context_open(*t, r->p->spec.name, NULL, &c);
	if (!error)
		error = tier_reader_open(*t, &reader);
	if (error)
		return error;
	pool_key(&key, at);
	if (tier_match(c, &key, 1, &found) != 1)
		return -ENODATA;
	page = (struct tier_page){ found.block, 3 };
	if (tier_read_pages(reader, c, &page, 1, time_now_ns() + FIRST_NS, &lease) != 1)
		return -ENODATA;
	*ms = (double)(time_now_ns() - r->p->service.started_ns) / 1e6;
	if (*(const uint64_t *)lease.data != pool_word(at, 3))
		error = -EBADMSG;
	tier_release(reader, &lease);
	return error;
}

/* One start of a daemon over the full store, and its end. */
static int reopen(struct reopening *r)
{
	double tib = (double)(r->super.segment_count * r->super.segment_bytes) / TIB;
	double plain = 0, ns = 0, ms = 0;
	tier *t = NULL;
	int error = read_plainly(r, &plain), stop;

	if (!error)
		error = service_start(&r->p->service, &r->options, NULL);
	if (error)
		return error;
	error = first_hit(r, &t, &ms);
	if (!error)
		error = service_number(t, "status", "recovery.ns", &ns);
	if (!error)
		error = service_number(t, "status", "recovery.blocks", &r->blocks);
	tier_close(t);
	stop = service_stop(&r->p->service);
	if (error || stop)
		return error ? error : stop;
	sample_add(&r->seconds, ns / 1e9 / tib);
	sample_add(&r->plain, plain / tib);
	sample_add(&r->first, ms);
	sample_add(&r->ready,
		   (double)(r->p->service.ready_ns - r->p->service.started_ns) / 1e6);
	return 0;
}

static int tell(struct reopening *r, struct bench_results *results)
{
	uint64_t store = r->super.segment_count * r->super.segment_bytes;
	uint64_t read = r->super.segment_count * r->super.summary_bytes;
	char a[UNITS_TEXT_BYTES], b[UNITS_TEXT_BYTES], name[BENCH_TEXT];
	const struct bench_figure bytes = { "recover", "bytes read of the bytes stored", "B/B",
					    "all of them", { BENCH_RATIO_AT_MOST, 0.02 } };
	const struct bench_figure seconds = { "recover", name, "s/TiB",
					      "the same summaries read by pread, O_DIRECT",
					      { BENCH_RATIO_AT_MOST, 2 } };
	const struct bench_figure first = { "recover", "first hit after the daemon's start", "ms",
					    "until the daemon answers",
					    { BENCH_RATIO_AT_MOST, 2 } };
	int error;

	snprintf(name, sizeof(name), "recovery, from %s of summaries of a store of %s",
		 units_print_bytes(a, read), units_print_bytes(b, store));
	error = bench_judge_exact(results, &bytes, (double)read / (double)store, 1);
	if (!error)
		error = bench_judge(results, &seconds, &r->seconds, &r->plain);
	if (!error)
		error = bench_judge(results, &first, &r->first, &r->ready);
	bench_say("recover: %.0f blocks of %llu KiB came back; a TiB is extrapolated from %s",
		  r->blocks, (unsigned long long)(BLOCK_BYTES >> 10), units_print_bytes(b, store));
	return error;
}

static int measure(struct bench *b, struct pool *p)
{
	struct reopening r = {
		.p = p,
		.options = { .tierd = b->tierd, .dir = p->dir, .cxl_bytes = p->spec.cxl_bytes,
			     .nvme_bytes = p->spec.nvme_bytes },
		.random = 88172645463325252ull,
	};
	int error;

	pool_detach(p);
	error = service_stop(&p->service);
	if (!error)
		error = read_super(&r);
	for (uint32_t i = 0; i < b->rounds && !error; i++)
		error = reopen(&r);
	if (!error && (uint32_t)r.blocks != p->spec.blocks)
		bench_say("recover: %.0f of %u blocks came back", r.blocks, p->spec.blocks);
	return error ? bench_failed("recover", error) : tell(&r, b->results);
}

int bench_recover(struct bench *b)
{
	/* Small stores have small segments, which waste space; those of a large one are larger. */
	static const char *const set[] = { "nvme.segment=64MiB", NULL };
	const struct pool_spec spec = {
		.name = "recover",
		.pages_per_block = PAGES_PER_BLOCK,
		.page_bytes = PAGE_BYTES,
		.blocks = b->quick ? 800 : 3300,
		.cxl_bytes = (b->quick ? 256ull : 512ull) << 20,
		.nvme_bytes = (b->quick ? 1024ull : 4096ull) << 20,
		.set = set,
	};
	struct pool p;
	int error = pool_open(&p, b, &spec);

	if (error)
		return error;
	error = measure(b, &p);
	pool_close(&p);
	return error;
}
