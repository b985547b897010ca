/* SPDX-License-Identifier: Apache-2.0 */
/* A daemon full of blocks; see pool.h. */
#include "bench/micro/pool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bench/trace/gen.h"
#include "libtier/base/cleanup.h"
#include "libtier/base/units.h"

#define PUT_BYTES (4u << 20) /* of one put */
#define PUT_BLOCKS_MAX 1024u
#define PUT_NS (60 * NS_PER_S)
#define PUTS_AHEAD 8u
#define FIND_BATCH 8192u
#define WAIT_NS (30 * NS_PER_S)

void pool_key(tier_key *out, uint32_t i)
{
	for (uint32_t k = 0; k < 4; k++) {
		uint64_t z = (uint64_t)(i * 4 + k + 1) * UINT64_C(0x9e3779b97f4a7c15);

		z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
		z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
		z ^= z >> 31;
		memcpy(out->bytes + 8 * k, &z, 8);
	}
}

/* ---- filling ------------------------------------------------------------------------------- */

struct filling {
	uint32_t ahead; /* puts that were committed and not completed */
	uint64_t stored;
};

static int take_completions(struct pool *p, struct filling *f, uint32_t min)
{
	struct tier_completion got[PUTS_AHEAD];
	int n = tier_wait(p->t, got, min, PUTS_AHEAD, WAIT_NS);

	if (n < 0)
		return bench_failed("put", n);
	if ((uint32_t)n < min)
		return bench_failed("put: no completion in 30 s", -ETIMEDOUT);
	for (int i = 0; i < n; i++) {
		if (got[i].result)
			return bench_failed("put", got[i].result);
		f->stored += got[i].value;
		f->ahead--;
	}
	return 0;
}

static uint32_t groups_of(const struct pool *p)
{
	return p->spec.pages_per_block / (p->spec.layers ? p->spec.layers : 1);
}

static void write_pages(const struct pool *p, tier_put *put, uint32_t first, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		tier_key key;

		pool_key(&key, first + i);
		for (uint32_t k = 0; k < p->spec.pages_per_block; k++) {
			uint64_t word = pool_word(first + i, k);
			uint8_t *page = tier_put_data(put, i, 0, k / groups_of(p),
						      k % groups_of(p));

			if (p->spec.fill) {
				p->spec.fill(page, first + i, k);
				continue;
			}
			if (p->spec.fill_pages)
				gen_page(page, p->spec.page_bytes, &key, k);
			memcpy(page, &word, sizeof(word));
		}
	}
}

static int put_some(struct pool *p, struct filling *f, uint32_t first, uint32_t count)
{
	/* Several large puts are under way, and none is timed: a slow device may take long, and so
	 * may a host that stalls. */
	const struct tier_put_options options = {
		.size = sizeof(options),
		.flags = p->spec.nvme_bytes ? TIER_PUT_DURABLE : 0,
		.deadline_ns = time_now_ns() + PUT_NS,
	};
	tier_key key[PUT_BLOCKS_MAX];
	tier_put *put;
	int error;

	for (uint32_t i = 0; i < count; i++)
		pool_key(&key[i], first + i);
	for (;;) {
		error = tier_put_begin(p->c, key, count, &options, &put);
		if ((error != -EAGAIN && error != -ENOBUFS) || !f->ahead)
			break;
		error = take_completions(p, f, 1);
		if (error)
			return error;
	}
	if (error)
		return bench_failed("tier_put_begin", error);
	write_pages(p, put, first, count);
	while ((error = tier_put_commit(put, first + 1)) == -EAGAIN && f->ahead)
		if ((error = take_completions(p, f, 1)))
			break;
	if (error) {
		tier_put_abort(put);
		return bench_failed("tier_put_commit", error);
	}
	f->ahead++;
	return f->ahead == PUTS_AHEAD ? take_completions(p, f, 1) : 0;
}

static uint32_t put_blocks(const struct pool *p)
{
	uint64_t stride = p->spec.page_align ? p->spec.page_align : 4096;
	uint64_t block =
		(p->spec.page_bytes + stride - 1) / stride * stride * p->spec.pages_per_block;
	uint32_t piece = block < PUT_BYTES ? (uint32_t)(PUT_BYTES / block) : 1;

	piece = p->spec.put_blocks ? p->spec.put_blocks : piece;
	return piece < PUT_BLOCKS_MAX ? piece : PUT_BLOCKS_MAX;
}

int pool_rewrite(struct pool *p, const uint32_t *first, uint32_t count)
{
	uint32_t piece = put_blocks(p);
	tier_key *key CLEANUP_FREE = calloc((size_t)count * piece, sizeof(*key));
	struct filling f = { 0 };
	int64_t gone;
	int error = 0;

	if (!key)
		return -ENOMEM;
	for (uint32_t i = 0; i < count * piece; i++)
		pool_key(&key[i], first[i / piece] + i % piece);
	gone = tier_delete(p->c, key, count * piece);
	if (gone < 0)
		return bench_failed("tier_delete", (int)gone);
	for (uint32_t i = 0; i < count && !error; i++)
		error = put_some(p, &f, first[i], piece);
	while (f.ahead && !error)
		error = take_completions(p, &f, 1);
	return error;
}

static int fill(struct pool *p)
{
	uint32_t piece = put_blocks(p);
	uint64_t from = time_now_ns();
	struct filling f = { 0 };
	int error = 0;

	for (uint32_t at = 0; at < p->spec.blocks && !error; at += piece)
		error = put_some(p, &f, at,
				 p->spec.blocks - at < piece ? p->spec.blocks - at : piece);
	while (f.ahead && !error)
		error = take_completions(p, &f, 1);
	if (!error && f.stored != p->spec.blocks)
		fprintf(stderr, "%s: %llu of %u blocks were stored\n", p->spec.name,
			(unsigned long long)f.stored, p->spec.blocks);
	if (!error && p->spec.blocks)
		bench_say("%s: %u blocks of %u pages put in %.1f s", p->spec.name, p->spec.blocks,
			  p->spec.pages_per_block, (double)(time_now_ns() - from) / 1e9);
	return error;
}

int pool_find(struct pool *p)
{
	tier_key *key CLEANUP_FREE = calloc(FIND_BATCH, sizeof(*key));
	struct tier_found *found CLEANUP_FREE = calloc(FIND_BATCH, sizeof(*found));

	if (!p->block)
		p->block = calloc(p->spec.blocks + 1, sizeof(*p->block));
	if (!key || !found || !p->block)
		return -ENOMEM;
	for (uint32_t at = 0; at < p->spec.blocks; at += FIND_BATCH) {
		uint32_t count =
			p->spec.blocks - at < FIND_BATCH ? p->spec.blocks - at : FIND_BATCH;
		int64_t n;

		for (uint32_t i = 0; i < count; i++)
			pool_key(&key[i], at + i);
		n = tier_match(p->c, key, count, found);
		if (n != count) {
			fprintf(stderr, "%s: block %lld is not there\n", p->spec.name,
				(long long)at + n);
			return -ENODATA;
		}
		for (uint32_t i = 0; i < count; i++)
			p->block[at + i] = found[i].block;
	}
	return 0;
}

/* ---- life ---------------------------------------------------------------------------------- */

static int connect_to(struct pool *p)
{
	const struct tier_connect_options options = {
		.size = sizeof(options),
		.socket = p->service.socket,
		.name = "tierbench",
		.staging_bytes = 256u << 20,
	};
	int error = tier_connect(&p->t, &options);

	return error ? bench_failed("tier_connect", error) : 0;
}

static int make_context(struct pool *p)
{
	const struct tier_part part = {
		.name = "pages",
		.kind = TIER_KIND_SPARSE,
		.preferred_tier = TIER_CXL,
		.layers = p->spec.layers ? p->spec.layers : 1,
		.groups = groups_of(p),
		.page_bytes = p->spec.page_bytes,
	};
	const struct tier_geometry_options shape = {
		.size = sizeof(shape),
		.page_align = p->spec.page_align,
		.part_count = 1,
		.part = &part,
	};
	struct tier_context_options options = {
		.size = sizeof(options),
		/* What is deleted and put again overlaps for a moment. */
		.blocks_max = p->spec.blocks + (p->spec.put_blocks ? p->spec.blocks / 4 : 0),
		.policy = p->spec.policy,
	};
	tier_geometry *g;
	int error = tier_geometry_new(&g, &shape);

	if (p->spec.blocks_max)
		options.blocks_max = p->spec.blocks_max;
	if (!p->spec.nvme_bytes)
		options.quota[TIER_NVME] = TIER_QUOTA_NONE;
	if (!p->spec.hbm_bytes)
		options.quota[TIER_HBM] = TIER_QUOTA_NONE;
	if (error)
		return bench_failed("tier_geometry_new", error);
	error = tier_context_create(p->t, p->spec.name, g, &options, &p->c);
	tier_geometry_free(g);
	return error ? bench_failed("tier_context_create", error) : 0;
}

static uint64_t bytes_needed(const struct pool_spec *spec)
{
	uint64_t align = spec->page_align ? spec->page_align : 4096;
	uint64_t page = (spec->page_bytes + align - 1) / align * align;
	uint64_t all = page * spec->pages_per_block * spec->blocks;

	return all + all / 16 + (256u << 20);
}

static int start(struct pool *p)
{
	const struct pool_spec *spec = &p->spec;
	const struct service_options options = {
		.tierd = p->bench->tierd,
		.dir = p->dir,
		.hbm_bytes = spec->hbm_bytes,
		.cxl_bytes = spec->cxl_bytes ? spec->cxl_bytes : bytes_needed(spec),
		.nvme_bytes = spec->nvme_bytes,
		.set = spec->set,
	};

	return service_start(&p->service, &options, NULL);
}

int pool_open(struct pool *p, struct bench *b, const struct pool_spec *spec)
{
	int error;

	*p = (struct pool){ .bench = b, .spec = *spec };
	error = service_dir_make(&p->dir, b->dir);
	if (error)
		return error;
	error = start(p);
	if (!error)
		error = connect_to(p);
	if (!error)
		error = make_context(p);
	if (!error && (error = tier_reader_open(p->t, &p->r)))
		bench_failed("tier_reader_open", error);
	if (!error)
		error = pool_memory(p, &p->empty);
	if (!error)
		error = fill(p);
	if (!error)
		error = pool_find(p);
	if (error) {
		service_tell_log(&p->service);
		pool_close(p);
	}
	return error;
}

static int attach(struct pool *p)
{
	int error = connect_to(p);

	if (!error)
		error = tier_context_open(p->t, p->spec.name, NULL, &p->c);
	if (!error)
		error = tier_reader_open(p->t, &p->r);
	if (!error && !p->block)
		error = pool_find(p);
	if (error)
		pool_detach(p);
	return error;
}

int pool_attach(struct pool *p, const struct pool *from)
{
	*p = (struct pool){ .bench = from->bench, .spec = from->spec, .service = from->service };
	return attach(p);
}

int pool_join(struct pool *p, const struct pool *from)
{
	*p = (struct pool){ .bench = from->bench, .spec = from->spec, .service = from->service,
			    .block = from->block };
	return attach(p);
}

int pool_restart(struct pool *p)
{
	int error;

	pool_detach(p);
	error = service_stop(&p->service);
	if (!error)
		error = start(p);
	return error ? error : attach(p);
}

void pool_detach(struct pool *p)
{
	tier_reader_close(p->r);
	tier_context_close(p->c);
	tier_close(p->t);
	free(p->block);
	p->r = NULL;
	p->c = NULL;
	p->t = NULL;
	p->block = NULL;
}

void pool_close(struct pool *p)
{
	pool_detach(p);
	service_stop(&p->service);
	service_dir_remove(p->dir);
	p->dir = NULL;
}

/* ---- looking at memory --------------------------------------------------------------------- */

int pool_index_bytes(struct pool *p, uint64_t *bytes)
{
	double value = 0;
	int error = service_number(p->t, "status", "index_bytes", &value);

	*bytes = (uint64_t)value;
	return error ? bench_failed("status: index_bytes", error) : 0;
}

int pool_memory(const struct pool *p, struct pool_memory *out)
{
	char path[64], line[512];
	unsigned long long from, to, kib;
	bool inside = false, mapped = false;
	FILE *f CLEANUP_FCLOSE = NULL;

	snprintf(path, sizeof(path), "/proc/%d/smaps", (int)p->service.pid);
	f = fopen(path, "re");
	*out = (struct pool_memory){ 0 };
	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%llx-%llx ", &from, &to) == 2) {
			inside = strstr(line, "/memfd:tier-index-") != NULL;
			mapped |= inside;
		} else if (inside && sscanf(line, "Rss: %llu kB", &kib) == 1) {
			out->index += kib << 10;
		} else if (sscanf(line, "Anonymous: %llu kB", &kib) == 1) {
			out->private += kib << 10;
		}
	}
	return mapped ? 0 : bench_failed(path, -ENOENT);
}

double huge_share(const char *name)
{
	FILE *f CLEANUP_FCLOSE = fopen("/proc/self/smaps", "re");
	unsigned long long from, to, kib;
	double rss = 0, huge = 0;
	bool inside = false;
	char line[512];

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%llx-%llx ", &from, &to) == 2) {
			const char *path = strchr(line, '/');

			inside = path && strncmp(path, name, strlen(name)) == 0;
		} else if (inside && sscanf(line, "Rss: %llu kB", &kib) == 1) {
			rss += (double)kib;
		} else if (inside && (sscanf(line, "ShmemPmdMapped: %llu kB", &kib) == 1 ||
				      sscanf(line, "FilePmdMapped: %llu kB", &kib) == 1)) {
			huge += (double)kib;
		}
	}
	return rss > 0 ? huge / rss : -1;
}
