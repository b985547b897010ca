/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hbm tier in the memory of a GPU. All of it is taken when the tier is opened, in chunks of
 * ABI_HUGE that are mapped once, one behind another, into the device's address space: nothing is
 * mapped or taken later, while engines measure how much memory is free or run their graphs. Regions
 * are those of mem_chunks.h; copies translate, so that a place without a chunk is refused here and
 * never reaches the device.
 *
 * Chunks are exported to clients of the context's owner, who could write them and may keep them
 * whatever they say. So one that passes to a context of another uid is emptied, and if it was ever
 * exported it is given back to the driver and made anew.
 *
 * Bytes move by copy engines alone, in one stream a direction; we launch no kernels. An error that
 * the driver reports of work under way ends its context for good: from then on every copy and every
 * area fails with -EIO, what was asked for is a miss, and the daemon lives.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libtier/base/atomic.h"
#include "libtier/base/crc32c.h"
#include "libtier/base/cuda_driver.h"
#include "tierd/backend/mem_chunks.h"

#define DEVICE 0
#define SHARE_PERCENT 6
#define NO_OWNER UINT32_MAX
#define LOOK_CHUNKS 64u /* unused ones that are looked at for one that needs no emptying */
#define EVENTS 32u /* copies that can be waited for at a time without waiting for a whole stream */
#define PIECES 64u /* handed to the driver at a time */

enum channel { CHANNEL_IN, CHANNEL_OUT, CHANNEL_WITHIN, CHANNELS };

struct cuda_pool {
	struct mem_chunks common; /* first: what the slots get is this */
	struct cuda_driver cu;
	struct cuda_context *context;
	uint64_t base; /* address of the first chunk */
	uint32_t chunks;
	uint32_t made;      /* of them, while it is opened */
	uint64_t *handle;   /* [chunks]; 0 = it could not be made anew, and is tried again */
	uint32_t *owner;    /* [chunks] uid whose bytes it holds; NO_OWNER. Of who has the chunk */
	uint8_t *exported;  /* [chunks] likewise */
	uint8_t *zeros;     /* ABI_HUGE of them */
	struct cuda_stream *stream[CHANNELS];
	uint32_t failed;    /* atomic: the context is of no use any more */
	uint32_t no_batch;  /* atomic: the driver refused one */
	struct cuda_event *event[EVENTS] GUARDED_BY(common.lock); /* a stack */
	uint32_t events GUARDED_BY(common.lock);
};

static struct cuda_pool *pool_of(const struct mem_ops *self)
{
	return (struct cuda_pool *)(uintptr_t)self;
}

static struct cuda_pool *pool_of_region(const struct mem_region *region)
{
	return pool_of(&region->own->chunks->ops);
}

/*
 * The driver makes threads of its own, which inherit what is blocked here: a signal that the daemon
 * reads from a descriptor must not find a thread that would let it end the process.
 */
static void block_signals(sigset_t *before)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, before);
}

static void unblock_signals(const sigset_t *before)
{
	pthread_sigmask(SIG_SETMASK, before, NULL);
}

/* What came of work under way; the first bad answer ends the pool. */
static int judge(struct cuda_pool *pool, cuda_result result)
{
	int rc = cuda_errno(result);

	if (rc == -EIO)
		atomic_store_release_u32(&pool->failed, 1);
	return rc;
}

static bool has_failed(const struct cuda_pool *pool)
{
	return atomic_load_acquire_u32(&pool->failed) != 0;
}

/* ---- the pool ------------------------------------------------------------------------------ */

static struct cuda_location here(void)
{
	return (struct cuda_location){ .type = CUDA_AT_DEVICE, .id = DEVICE };
}

static struct cuda_allocation chunk_kind(void)
{
	return (struct cuda_allocation){ .type = CUDA_PINNED, .handle_types = CUDA_HANDLE_FD,
					 .location = here() };
}

static int begin_context(struct cuda_pool *pool)
{
	const struct cuda_allocation kind = chunk_kind();
	sigset_t before;
	size_t granularity;
	int rc;

	block_signals(&before);
	rc = cuda_errno(pool->cu.init(0));
	if (rc == 0)
		rc = cuda_errno(pool->cu.context_retain(&pool->context, DEVICE));
	unblock_signals(&before);
	if (rc)
		return rc;
	rc = cuda_errno(pool->cu.context_set(pool->context));
	if (rc == 0)
		rc = cuda_errno(pool->cu.granularity(&granularity, &kind,
						     CUDA_GRANULARITY_MINIMUM));
	return rc == 0 && ABI_HUGE % granularity ? -EOPNOTSUPP : rc;
}

static int begin_streams(struct cuda_pool *pool)
{
	int rc = 0;

	for (uint32_t i = 0; i < CHANNELS && rc == 0; i++)
		rc = cuda_errno(pool->cu.stream_create(&pool->stream[i], CUDA_STREAM_NON_BLOCKING,
						       0));
	for (; pool->events < EVENTS && rc == 0; pool->events += rc == 0)
		rc = cuda_errno(pool->cu.event_create(&pool->event[pool->events],
						      CUDA_EVENT_BLOCKING_WAIT |
						      CUDA_EVENT_NO_TIMING));
	return rc;
}

static int make_chunk(struct cuda_pool *pool, uint32_t i)
{
	const struct cuda_allocation kind = chunk_kind();
	int rc = cuda_errno(pool->cu.create(&pool->handle[i], ABI_HUGE, &kind, 0));

	if (rc)
		return rc;
	rc = cuda_errno(pool->cu.map(pool->base + i * (uint64_t)ABI_HUGE, ABI_HUGE, 0,
				     pool->handle[i], 0));
	if (rc) {
		pool->cu.release(pool->handle[i]);
		pool->handle[i] = 0;
	}
	return rc;
}

static int begin_chunks(struct cuda_pool *pool)
{
	const struct cuda_access access = { .location = here(), .flags = CUDA_ACCESS_READ_WRITE };
	uint64_t bytes = pool->chunks * (uint64_t)ABI_HUGE;
	int rc = cuda_errno(pool->cu.reserve(&pool->base, bytes, ABI_HUGE, 0, 0));

	for (; rc == 0 && pool->made < pool->chunks; pool->made += rc == 0)
		rc = make_chunk(pool, pool->made);
	if (rc == 0)
		rc = mem_chunks_fill(&pool->common, pool->chunks);
	return rc ? rc : cuda_errno(pool->cu.set_access(pool->base, bytes, &access, 1));
}

/* Also of what was opened in part. Whatever the driver says, the rest goes too. */
static void cuda_close(const struct mem_ops *self)
{
	struct cuda_pool *pool = pool_of(self);

	if (pool->context)
		pool->cu.context_set(pool->context);
	for (uint32_t i = 0; i < CHANNELS; i++)
		if (pool->stream[i])
			pool->cu.stream_destroy(pool->stream[i]);
	while (pool->events)
		pool->cu.event_destroy(pool->event[--pool->events]);
	while (pool->made) {
		if (!pool->handle[--pool->made])
			continue;
		pool->cu.unmap(pool->base + pool->made * (uint64_t)ABI_HUGE, ABI_HUGE);
		pool->cu.release(pool->handle[pool->made]);
	}
	if (pool->base)
		pool->cu.unreserve(pool->base, pool->chunks * (uint64_t)ABI_HUGE);
	if (pool->context)
		pool->cu.context_release(DEVICE);
	mem_chunks_end(&pool->common);
	free(pool->handle);
	free(pool->owner);
	free(pool->exported);
	free(pool->zeros);
	free(pool);
}

static int begin_tables(struct cuda_pool *pool, uint64_t chunks)
{
	pool->handle = calloc(chunks, sizeof(*pool->handle));
	pool->owner = malloc(chunks * sizeof(*pool->owner));
	pool->exported = calloc(chunks, sizeof(*pool->exported));
	pool->zeros = calloc(1, ABI_HUGE);
	if (!pool->handle || !pool->owner || !pool->exported || !pool->zeros)
		return -ENOMEM;
	for (uint64_t i = 0; i < chunks; i++)
		pool->owner[i] = NO_OWNER;
	return 0;
}

/* Until the stream is through with what it was given so far. */
static int wait_for_end(struct cuda_pool *pool, struct cuda_stream *stream)
{
	struct cuda_event *event = NULL;
	int rc;

	lock_acquire(&pool->common.lock);
	if (pool->events)
		event = pool->event[--pool->events];
	lock_release(&pool->common.lock);
	if (!event)
		return judge(pool, pool->cu.stream_wait(stream));
	rc = judge(pool, pool->cu.event_record(event, stream));
	rc = rc ? judge(pool, pool->cu.stream_wait(stream))
		: judge(pool, pool->cu.event_wait(event));
	LOCK_SCOPE(&pool->common.lock);
	pool->event[pool->events++] = event;
	return rc;
}

/* Rather one whose bytes are nobody else's. */
static uint32_t choose_chunk(const struct mem_chunks *m, uint32_t owner)
{
	const struct cuda_pool *pool = (const struct cuda_pool *)m;

	for (uint32_t n = 0; n < LOOK_CHUNKS && n < m->unused_count; n++) {
		uint32_t at = m->unused_count - 1 - n;
		uint32_t whose = pool->owner[m->unused[at]];

		if (whose == owner || whose == NO_OWNER)
			return at;
	}
	return m->unused_count - 1;
}

static int make_anew(struct cuda_pool *pool, uint32_t chunk)
{
	const struct cuda_access access = { .location = here(), .flags = CUDA_ACCESS_READ_WRITE };
	uint64_t at = pool->base + chunk * (uint64_t)ABI_HUGE;
	int rc = 0;

	if (pool->handle[chunk]) {
		rc = judge(pool, pool->cu.unmap(at, ABI_HUGE));
		if (rc == 0)
			rc = judge(pool, pool->cu.release(pool->handle[chunk]));
		pool->handle[chunk] = rc ? pool->handle[chunk] : 0;
	}
	if (rc == 0)
		rc = make_chunk(pool, chunk);
	return rc ? rc : judge(pool, pool->cu.set_access(at, ABI_HUGE, &access, 1));
}

/* The chunk is going to hold this user's bytes: no other user's are to be seen in it, or by it. */
static int empty_chunk(struct mem_chunks *m, uint32_t chunk, uint32_t owner)
{
	struct cuda_pool *pool = (struct cuda_pool *)m;
	struct cuda_stream *stream = pool->stream[CHANNEL_IN];
	int rc;

	if (pool->owner[chunk] == owner || pool->owner[chunk] == NO_OWNER) {
		pool->owner[chunk] = owner;
		return 0;
	}
	rc = judge(pool, pool->cu.context_set(pool->context));
	if (rc == 0 && (pool->exported[chunk] || !pool->handle[chunk]))
		rc = make_anew(pool, chunk);
	if (rc == 0)
		rc = judge(pool, pool->cu.copy(pool->base + chunk * (uint64_t)ABI_HUGE,
					       (uintptr_t)pool->zeros, ABI_HUGE, stream));
	if (rc == 0)
		rc = wait_for_end(pool, stream);
	if (rc == 0) {
		pool->exported[chunk] = 0;
		pool->owner[chunk] = owner;
	}
	return rc;
}

static int cuda_open(const struct mem_ops **self, const struct backend_info *info, uint64_t bytes)
{
	uint64_t chunks = bytes / ABI_HUGE;
	struct cuda_pool *pool;
	int rc;

	(void)info;
	if (chunks == 0 || bytes % ABI_HUGE || chunks >= MEM_NO_CHUNK)
		return -EINVAL;
	pool = calloc(1, sizeof(*pool));
	if (!pool)
		return -ENOMEM;
	rc = mem_chunks_begin(&pool->common, &mem_cuda);
	if (rc) {
		free(pool);
		return rc;
	}
	pool->common.choose = choose_chunk;
	pool->common.empty = empty_chunk;
	pool->chunks = (uint32_t)chunks;
	rc = begin_tables(pool, chunks);
	if (rc == 0)
		rc = cuda_driver_load(&pool->cu, NULL);
	if (rc == 0)
		rc = begin_context(pool);
	if (rc == 0)
		rc = begin_streams(pool);
	if (rc == 0)
		rc = begin_chunks(pool);
	if (rc) {
		cuda_close(&pool->common.ops);
		return rc;
	}
	*self = &pool->common.ops;
	return 0;
}

static int look_at_device(const struct cuda_driver *cu, struct backend_info *info)
{
	int32_t device, memory = 0, shares = 0;
	char name[64] = "";
	size_t bytes = 0;
	int rc = cuda_errno(cu->device(&device, DEVICE));

	if (rc == 0)
		rc = cuda_errno(cu->device_attribute(&memory, CUDA_ATTRIBUTE_VIRTUAL_MEMORY,
						     device));
	if (rc == 0)
		rc = cuda_errno(cu->device_attribute(&shares, CUDA_ATTRIBUTE_HANDLE_FD, device));
	if (rc == 0)
		rc = cuda_errno(cu->device_name(name, sizeof(name), device));
	if (rc == 0)
		rc = cuda_errno(cu->device_memory(&bytes, device));
	if (rc)
		return rc;
	if (!memory || !shares || bytes < ABI_HUGE)
		return -ENODEV;
	*info = (struct backend_info){
		.name = "cuda",
		.device = true,
		.capacity_auto = bytes / 100 * SHARE_PERCENT / ABI_HUGE * ABI_HUGE,
		.capacity_most = bytes / ABI_HUGE * ABI_HUGE,
	};
	snprintf(info->detail, sizeof(info->detail), "%s, %.1f GiB", name,
		 (double)bytes / (double)(1ull << 30));
	return 0;
}

/* The driver stays loaded; a context, which costs memory of the device, is made by open. */
static int cuda_probe(uint64_t nodes, struct backend_info *info)
{
	struct cuda_driver cu;
	sigset_t before;
	int rc = cuda_driver_load(&cu, NULL);

	(void)nodes;
	block_signals(&before);
	if (rc == 0)
		rc = cuda_errno(cu.init(0));
	unblock_signals(&before);
	if (rc == 0)
		rc = look_at_device(&cu, info);
	return rc ? -ENODEV : 0;
}

/* ---- regions ------------------------------------------------------------------------------- */

static int cuda_prepare(const struct mem_region *region, uint64_t offset, uint64_t bytes)
{
	if (!mem_range_is_sane(region, offset, bytes))
		return -EINVAL;
	if (has_failed(pool_of_region(region)))
		return -EIO;
	return mem_chunks_prepare(region, offset, bytes);
}

/* The chunk of an area that has one, from now on exported. */
static int lend_chunk(struct cuda_pool *pool, struct mem_private *own, uint64_t area)
{
	uint32_t chunk;
	int fd = -1, rc;

	{
		LOCK_SCOPE(&pool->common.lock);
		chunk = own->chunk[area];
	}
	if (chunk == MEM_NO_CHUNK)
		return -EAGAIN;
	pool->exported[chunk] = 1;
	rc = judge(pool, pool->cu.export_fd(&fd, pool->handle[chunk], CUDA_HANDLE_FD, 0));
	if (rc)
		return rc;
	return fcntl(fd, F_SETFD, FD_CLOEXEC) ? -errno : fd;
}

static int cuda_lend(const struct mem_region *region, uint64_t offset, uint64_t bytes, int *fd,
		     uint32_t *count)
{
	struct cuda_pool *pool = pool_of_region(region);
	uint32_t areas = (uint32_t)(bytes / ABI_HUGE), made = 0;
	int rc;

	if (!mem_range_is_sane(region, offset, bytes) || bytes % ABI_HUGE)
		return -EINVAL;
	if (has_failed(pool))
		return -EIO;
	if (areas > *count)
		return -EFBIG;
	rc = judge(pool, pool->cu.context_set(pool->context));
	for (; rc >= 0 && made < areas; made += rc >= 0) {
		rc = lend_chunk(pool, region->own, offset / ABI_HUGE + made);
		if (rc >= 0)
			fd[made] = rc;
	}
	while (rc < 0 && made)
		close(fd[--made]);
	*count = made;
	return rc < 0 ? rc : 0;
}

/* ---- copies -------------------------------------------------------------------------------- */

/* Pieces on their way to the driver. */
struct transfer {
	struct cuda_pool *pool;
	struct cuda_stream *stream;
	size_t count;
	uint64_t dst[PIECES], src[PIECES];
	size_t bytes[PIECES];
};

/* Where the byte at `at` of a region lies on the device, and how many follow in its chunk. */
static int translate(struct cuda_pool *pool, const uint8_t *at, uint64_t *device, uint64_t *left)
{
	const struct mem_private *own;
	uint64_t offset;
	uint32_t chunk;

	LOCK_SCOPE(&pool->common.lock);
	own = mem_chunks_at(&pool->common, at);
	if (!own)
		return -EFAULT;
	offset = (uint64_t)(at - own->addr);
	chunk = own->chunk[offset / ABI_HUGE];
	if (chunk == MEM_NO_CHUNK)
		return -ENOMEM; /* prepare found none, or it was punched */
	*left = ABI_HUGE - offset % ABI_HUGE;
	*device = pool->base + chunk * (uint64_t)ABI_HUGE + offset % ABI_HUGE;
	return 0;
}

/* Hand over what there is: as a batch, which a driver may not know or may refuse. */
static int submit(struct transfer *t)
{
	struct cuda_copy_attributes how = { .order = CUDA_COPY_IN_STREAM_ORDER };
	struct cuda_pool *pool = t->pool;
	size_t count = t->count, first = 0;
	int rc = 0;

	t->count = 0;
	if (count > 1 && pool->cu.copy_batch && !atomic_load_relaxed_u32(&pool->no_batch)) {
		rc = judge(pool, pool->cu.copy_batch(t->dst, t->src, t->bytes, count, &how, &first,
						     1, t->stream));
		if (rc == 0 || rc == -EIO)
			return rc;
		atomic_store_relaxed_u32(&pool->no_batch, 1);
		rc = 0;
	}
	for (size_t i = 0; i < count && rc == 0; i++)
		rc = judge(pool, pool->cu.copy(t->dst[i], t->src[i], t->bytes[i], t->stream));
	return rc;
}

/* One item, cut where a chunk ends. */
static int add_item(struct transfer *t, const struct core_copy *copy,
		    const struct core_copy_item *item)
{
	int rc = 0;

	for (uint64_t done = 0, n; done < item->bytes && rc == 0; done += n) {
		const uint8_t *dst = (const uint8_t *)item->dst + done;
		const uint8_t *src = (const uint8_t *)item->src + done;
		uint64_t to = (uintptr_t)dst, from = (uintptr_t)src, left = UINT64_MAX;

		n = item->bytes - done;
		if (copy->dst_tier == ABI_TIER_HBM)
			rc = translate(t->pool, dst, &to, &left);
		n = left < n ? left : n;
		left = UINT64_MAX;
		if (copy->src_tier == ABI_TIER_HBM && rc == 0)
			rc = translate(t->pool, src, &from, &left);
		n = left < n ? left : n;
		if (rc)
			break;
		t->dst[t->count] = to;
		t->src[t->count] = from;
		t->bytes[t->count++] = n;
		if (t->count == PIECES)
			rc = submit(t);
	}
	return rc;
}

static enum channel channel_of(const struct core_copy *copy)
{
	if (copy->dst_tier != ABI_TIER_HBM)
		return CHANNEL_OUT;
	return copy->src_tier == ABI_TIER_HBM ? CHANNEL_WITHIN : CHANNEL_IN;
}

static int carry_out(struct cuda_pool *pool, const struct core_copy *copy)
{
	struct transfer t = { .pool = pool, .stream = pool->stream[channel_of(copy)] };
	int rc, end;

	if (has_failed(pool))
		return -EIO;
	rc = judge(pool, pool->cu.context_set(pool->context));
	for (uint32_t i = 0; i < copy->count && rc == 0; i++)
		rc = add_item(&t, copy, &copy->item[i]);
	if (rc == 0)
		rc = submit(&t);
	/* Also after an error: what was begun uses memory that the caller gives to others. */
	end = wait_for_end(pool, t.stream);
	return rc ? rc : end;
}

/*
 * The sum is that of what was stored, so it can be had only where a processor can read it; the core
 * asks for it nowhere else.
 */
static void cuda_copy(const struct mem_ops *self, struct core_copy *copy)
{
	assert(copy->src_tier == ABI_TIER_HBM || copy->dst_tier == ABI_TIER_HBM);
	copy->res = copy->checksum && copy->dst_tier == ABI_TIER_HBM
			    ? -EOPNOTSUPP
			    : carry_out(pool_of(self), copy);
	for (uint32_t i = 0; i < copy->count && copy->checksum && copy->res == 0; i++) {
		struct core_copy_item *item = &copy->item[i];

		item->crc = crc32c(item->seed, item->dst, item->bytes);
	}
}

const struct mem_ops mem_cuda = {
	.name = "cuda",
	.probe = cuda_probe,
	.open = cuda_open,
	.close = cuda_close,
	.create = mem_chunks_create,
	.share = mem_chunks_share,
	.revoke = mem_revoke,
	.lend = cuda_lend,
	.grant = mem_grant,
	.commit = mem_grant,
	.destroy = mem_chunks_destroy,
	.leave = mem_chunks_destroy,
	.prepare = cuda_prepare,
	.punch = mem_chunks_punch,
	.resident = mem_chunks_resident,
	.bind = mem_bind_none,
	.hint = mem_hint_none,
	.copy = cuda_copy,
};
