/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The other half of `tierctl check`: core_audit recounts what the core counts from its descriptors,
 * this asks the kernel. Of each memory region its extents: bytes where nothing is charged are
 * foreign, pages that somebody may read and that lie in a hole are missing; of the store's file the
 * blocks that are not allocated (where dead segments are not discarded there should be none); and
 * which of them this process has open for writing, and mapped. It changes nothing.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libtier/base/bitmap.h"
#include "libtier/base/cleanup.h"
#include "tierd/shell.h"

#define LOOKS 3u         /* at a region whose sums differ, before that is told */
#define LOOK_WAIT_US 2000

struct recount {
	struct shell *s;
	struct obs_recount *out;
	obs_tell tell;
	void *arg;
	uint64_t wrong;
};

static void say(struct recount *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(struct recount *r, const char *format, ...)
{
	char text[256];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	r->wrong++;
	r->tell(r->arg, text);
}

/* ---- memory ------------------------------------------------------------------------------- */

static uint64_t count_set(const uint64_t *map, uint64_t from, uint64_t end)
{
	uint64_t n = 0;

	while (from < end && (from = bitmap_find_set(map, end, from)) < end) {
		n++;
		from++;
	}
	return n;
}

static uint64_t uncharged(const struct core_ground *g, uint64_t from, uint64_t end)
{
	uint64_t bytes = 0;

	while (from < end) {
		uint64_t next = (from / ABI_HUGE + 1) * ABI_HUGE;

		next = next < end ? next : end;
		if (!bitmap_test(g->charged, from / ABI_HUGE))
			bytes += next - from;
		from = next;
	}
	return bytes;
}

/* One walk over the extents that the kernel tells of. Errors: negative errno of lseek. */
static int walk(const struct mem_region *region, const struct core_ground *g,
		struct obs_ground *sum)
{
	uint64_t at = 0;

	while (at < region->bytes) {
		off_t data = lseek(region->fd, (off_t)at, SEEK_DATA), hole;

		if (data < 0 && errno != ENXIO)
			return -errno;
		if (data < 0 || (uint64_t)data > region->bytes)
			data = (off_t)region->bytes;
		sum->missing += ABI_PAGE_ALIGN *
				count_set(g->written, at / ABI_PAGE_ALIGN,
					  (uint64_t)data / ABI_PAGE_ALIGN);
		hole = (uint64_t)data == region->bytes ? data
						       : lseek(region->fd, data, SEEK_HOLE);
		if (hole < 0)
			return -errno;
		sum->found += (uint64_t)(hole - data);
		sum->foreign += uncharged(g, (uint64_t)data, (uint64_t)hole);
		at = (uint64_t)hole;
	}
	return 0;
}

/* Sums that do not agree may be of a moment; what the kernel is doing is over soon. */
static int look(struct recount *r, const struct mem_region *region, const struct mem_ops *ops,
		const struct core_ground *g, struct obs_ground *sum)
{
	for (uint32_t i = 0; i < LOOKS; i++) {
		int64_t before = ops->resident(region), after;
		int err;

		sum->found = sum->foreign = sum->missing = 0;
		/* Of memory without a file there is no second word. */
		if (region->fd < 0 && before >= 0) {
			sum->found = sum->resident = (uint64_t)before;
			return 0;
		}
		err = walk(region, g, sum);
		if (err)
			return err;
		after = ops->resident(region);
		if (before < 0 || after < 0)
			return (int)(before < 0 ? before : after);
		sum->resident = (uint64_t)after;
		if (r->out->busy || (before == after && sum->found == sum->resident))
			return 0;
		usleep(LOOK_WAIT_US);
	}
	return 0;
}

static void judge(struct recount *r, const char *name, uint32_t tier, const struct obs_ground *sum)
{
	const char *in = obs_tier_name[tier];

	if (sum->missing)
		say(r, "context %s: %" PRIu64 " bytes in %s that readers may read are a hole in "
		    "its memory", name, sum->missing, in);
	if (r->out->busy)
		return;
	if (sum->foreign)
		say(r, "context %s: the host holds %" PRIu64 " bytes in %s that nothing is charged "
		    "for (a reader's touch of a hole is given back within 0.1 s)", name,
		    sum->foreign, in);
	if (sum->found != sum->resident)
		say(r, "context %s: the host holds %" PRIu64 " bytes in %s, and shows %" PRIu64,
		    name, sum->resident, in, sum->found);
}

static void count_tier(struct recount *r, const struct context_memory *made, const char *name,
		       uint32_t tier)
{
	const struct mem_region *region = &made->mem[tier];
	uint64_t units = region->bytes / ABI_HUGE, pages = region->bytes / ABI_PAGE_ALIGN;
	uint64_t *charged CLEANUP_FREE = calloc(BITMAP_WORDS(units + 1), sizeof(*charged));
	uint64_t *written CLEANUP_FREE = calloc(BITMAP_WORDS(pages + 1), sizeof(*written));
	const struct core_ground g = { charged, written };
	struct obs_ground sum = { .found = 0 }, *all = &r->out->tier[tier];
	int err;

	if (!charged || !written) {
		say(r, "context %s: no memory to recount its memory with", name);
		return;
	}
	core_ground(r->s->core, made->id, tier, &g);
	sum.charged = bitmap_count(charged, units) * ABI_HUGE;
	sum.written = bitmap_count(written, pages) * ABI_PAGE_ALIGN;
	err = look(r, region, r->s->mem[tier], &g, &sum);
	if (err)
		say(r, "context %s: its memory in %s cannot be looked at: %s", name,
		    obs_tier_name[tier], strerror(-err));
	else
		judge(r, name, tier, &sum);
	all->charged += sum.charged;
	all->written += sum.written;
	all->resident += sum.resident;
	all->found += sum.found;
	all->foreign += sum.foreign;
	all->missing += sum.missing;
}

static void count_memory(struct recount *r)
{
	const struct context_memory *made;

	for (uint32_t i = 0; (made = memory_next(r->s->memory, &i)); i++) {
		int64_t index = mem_index->resident(&made->index);
		struct core_context_stats stats;

		r->out->index_resident += index > 0 ? (uint64_t)index : 0;
		if (core_context_stats(r->s->core, made->id, &stats))
			continue; /* the core has let go of it; it is retired soon */
		for (uint32_t t = 0; t < ABI_MEM_TIERS; t++)
			if (made->mem[t].bytes)
				count_tier(r, made, stats.spec.name, t);
	}
}

/* ---- descriptors and mappings ------------------------------------------------------------- */

static bool is_ours(const char *path)
{
	static const char *const label[] = { "/memfd:tier-index-", "/memfd:tier-hbm-",
					     "/memfd:tier-cxl-", "/tier_mem:tier-" };

	for (size_t i = 0; i < sizeof(label) / sizeof(label[0]); i++)
		if (!strncmp(path, label[i], strlen(label[i])))
			return true;
	return false;
}

/* Those on their way to clients are open for reading only. */
static uint32_t count_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	uint32_t n = 0;

	for (const struct dirent *e; dir && (e = readdir(dir));) {
		char path[PATH_MAX];
		ssize_t bytes = readlinkat(dirfd(dir), e->d_name, path, sizeof(path) - 1);

		if (bytes <= 0)
			continue;
		path[bytes] = 0;
		n += is_ours(path) &&
		     (fcntl(atoi(e->d_name), F_GETFL) & O_ACCMODE) == O_RDWR;
	}
	if (dir)
		closedir(dir);
	return n;
}

static uint64_t count_mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[PATH_MAX + 128];
	uint64_t bytes = 0;

	while (maps && fgets(line, sizeof(line), maps)) {
		uint64_t begin, end;
		int path = 0;

		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %*s %*s %*s %n", &begin, &end,
			   &path) == 2 && path && is_ours(line + path))
			bytes += end - begin;
	}
	if (maps)
		fclose(maps);
	return bytes;
}

static void count_handles(struct recount *r)
{
	struct obs_recount *out = r->out;

	out->regions = memory_regions(r->s->memory, &out->region_bytes);
	out->descriptors = count_descriptors();
	out->mapped = count_mappings();
	if (out->descriptors != out->regions)
		say(r, "%u memory regions of contexts, and %u descriptors open for writing",
		    out->regions, out->descriptors);
	if (out->mapped != out->region_bytes)
		say(r, "contexts have %" PRIu64 " bytes of address space, and %" PRIu64
		    " are mapped", out->region_bytes, out->mapped);
}

/* ---- the store ---------------------------------------------------------------------------- */

static void count_store(struct recount *r)
{
	struct shell *s = r->s;
	struct drive_backing b;
	int err;

	if (!s->drives)
		return;
	err = s->drive_ops->backing(s->drive[0].device, &b);
	if (err) {
		say(r, "the store cannot be looked at: %s", strerror(-err));
		return;
	}
	r->out->store = true;
	r->out->store_bytes = s->drive_ops->bytes(s->drive[0].device);
	r->out->store_length = b.bytes;
	r->out->store_allocated = b.allocated;
	r->out->store_holes = b.holes;
	if (b.bytes < r->out->store_bytes)
		say(r, "the store was cut to %" PRIu64 " of %" PRIu64 " bytes while it is open",
		    b.bytes, r->out->store_bytes);
	if (b.holes && !s->core_config.discard)
		say(r, "the store has %" PRIu64 " bytes of holes, the first at %" PRIu64
		    ": unless it was discarded what lay there is lost, and a write may find no "
		    "room", b.holes, b.hole);
}

uint64_t recount_host(struct shell *s, struct obs_recount *out, obs_tell tell, void *arg)
{
	struct recount r = { .s = s, .out = out, .tell = tell, .arg = arg };

	memset(out, 0, sizeof(*out));
	out->busy = !worker_passed(s->workers, worker_mark(s->workers));
	count_memory(&r);
	count_handles(&r);
	count_store(&r);
	if (s->objects)
		r.wrong += objects_audit(s->objects, tell, arg);
	return r.wrong + front_audit(s->front, tell, arg);
}
