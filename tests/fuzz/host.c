/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The small host of host.h: actions, the device, clients and contexts. It trusts the core no more
 * than a test should: each action is looked at before it is carried out.
 */
#include "tests/fuzz/host.h"

#include <errno.h>
#include <sys/mman.h>

#include "libtier/base/crc32c.h"
#include "tests/lib/core_shell.h"
#include "tierd/core/state.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#endif

#define CONTEXTS_BYTES (ABI_CONTEXTS_MAX * sizeof(struct context *))

#define TOKEN_REMOVE 0x100u /* + context */
#define MSEC 1000000ull
#define HOUR (3600000ull * MSEC)
#define GUARD 4096u
#define WHY 256u
#define WALKS 20000u /* turns that settling may take for them */
#define INDEX_MAX (64ull << 20) /* of a host's memory: larger ones are refused, as mmap would */

/* ---- memory ------------------------------------------------------------------------------- */

void host_init(struct host *h)
{
	memset(h, 0, sizeof(*h));
	h->super = (struct disk_super){
		.features = DISK_FEATURES,
		.store_id = 0x5eed,
		.catalog_offset = 2 * DISK_SECTOR,
		.catalog_bytes = HOST_CATALOG,
		.segment_offset = 2 * DISK_SECTOR + 2 * HOST_CATALOG,
		.segment_bytes = HOST_SEGMENT,
		.segment_count = HOST_SEGMENTS,
		.summary_bytes = HOST_SUMMARY,
	};
	FUZZ_CHECK(store_super_check(&h->super, NULL, 0) == 0);
	disk_super_seal(&h->super);
	h->disk = calloc(1, HOST_NVME);
	h->disk_bytes = HOST_NVME;
	h->staging_bytes = HOST_STAGING;
	h->bag = calloc(HOST_BAG, sizeof(*h->bag));
	FUZZ_CHECK(h->disk && h->bag);
	for (uint32_t i = 0; i < HOST_CLIENTS; i++) {
		struct host_client *k = &h->client[i];

		/* On the sanitizer's heap, whose ends are guarded to the byte. */
		k->staging = aligned_alloc(4096, HOST_STAGING);
		k->readers = malloc(HOST_READERS * sizeof(*k->readers));
		k->lines = malloc(HOST_LINES * sizeof(*k->lines));
		FUZZ_CHECK(k->staging && k->readers && k->lines);
	}
}

/* Sparse memory that ends at a page nobody may touch; kept for the next context of the number. */
static void memory_size(struct host_context *x, uint32_t tier, uint64_t bytes)
{
	uint8_t *base;

	if (x->mem_bytes[tier] == bytes)
		return;
	if (x->mem[tier])
		munmap(x->mem[tier], x->mem_bytes[tier] + GUARD);
	x->mem[tier] = NULL;
	x->mem_bytes[tier] = bytes;
	if (!bytes)
		return;
	base = mmap(NULL, bytes + GUARD, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	FUZZ_CHECK(base != MAP_FAILED && mprotect(base + bytes, GUARD, PROT_NONE) == 0);
	x->mem[tier] = base;
}

static bool in_memory(const struct host *h, const uint8_t *at, uint64_t bytes)
{
	for (uint32_t i = 0; i < HOST_CONTEXTS; i++)
		for (uint32_t t = 0; t < ABI_MEM_TIERS; t++) {
			const struct host_context *x = &h->context[i];

			if (x->made && at >= x->mem[t] && at < x->mem[t] + x->mem_bytes[t])
				return bytes <= (uint64_t)(x->mem[t] + x->mem_bytes[t] - at);
		}
	return false;
}

/* ---- actions ------------------------------------------------------------------------------ */

static enum host_fault fault_take(struct host *h)
{
	enum host_fault fault = h->fault;

	h->fault = HOST_WELL;
	return fault;
}

static void do_copy(struct host *h, struct core_copy *copy)
{
	bool fails = fault_take(h) == HOST_FAILS;

	FUZZ_CHECK(copy->count <= CORE_SEGMENTS_IO);
	for (uint32_t i = 0; i < copy->count; i++) {
		struct core_copy_item *it = &copy->item[i];

		FUZZ_CHECK(in_memory(h, it->dst, it->bytes));
		FUZZ_CHECK(copy->src_tier == ABI_TIER_COUNT || in_memory(h, it->src, it->bytes));
		FUZZ_CHECK(!copy->in_place == !!it->src);
		FUZZ_CHECK(it->pad < it->bytes);
		if (!copy->in_place)
			memcpy(it->dst, it->src, it->bytes - it->pad);
		memset((uint8_t *)it->dst + it->bytes - it->pad, 0, it->pad);
		if (copy->checksum)
			it->crc = crc32c(it->seed, it->dst, it->bytes);
	}
	copy->res = fails ? -EIO : 0;
}

static bool is_within(const uint8_t *buf, uint64_t buf_bytes, const uint8_t *at, uint64_t bytes)
{
	return buf && at >= buf && at + bytes <= buf + buf_bytes;
}

/* The prover and the cleaner read into memory of the core's own. */
static bool in_core(const struct host *h, const uint8_t *at, uint64_t bytes)
{
	bool in = is_within(h->core->drive[0]->prover.buf, h->core->drive[0]->prover.buf_bytes, at,
			    bytes);

	for (uint32_t i = 0; i < CLEAN_CHUNKS && !in; i++)
		in = is_within(h->core->drive[0]->cleaner.chunk[i].data, CORE_IO_BYTES_MAX, at,
			       bytes);
	return in;
}

static void do_piece(struct host *h, struct core_io *io, uint32_t i, uint8_t *disk)
{
	struct core_io_piece *p = &io->piece[i];

	if (io->write) {
		memcpy(disk, p->addr, p->bytes);
		return;
	}
	FUZZ_CHECK(in_memory(h, p->addr, p->bytes) || in_core(h, p->addr, p->bytes));
	memcpy(p->addr, disk, p->bytes);
	if (io->verify && crc32c(p->seed, p->addr, p->bytes) != p->crc)
		io->bad_mask |= 1ull << i;
}

/* A write that cannot read its memory, as the shell tells it. */
static bool is_gone(const struct host *h, struct core_io *io)
{
	io->bad_mask = 0;
	for (uint32_t i = 0; h->gone && io->write && i < io->piece_count; i++)
		if (io->piece[i].addr == h->gone)
			io->bad_mask |= 1ull << i;
	if (io->bad_mask)
		io->res = -EFAULT;
	return io->bad_mask != 0;
}

static void do_io(struct host *h, struct core_io *io)
{
	enum host_fault fault = fault_take(h);
	uint64_t bytes = 0;

	FUZZ_CHECK(io->piece_count > 0 && io->piece_count <= CORE_SEGMENTS_IO);
	for (uint32_t i = 0; i < io->piece_count; i++)
		bytes += io->piece[i].bytes;
	FUZZ_CHECK(bytes == io->bytes && bytes % DISK_SECTOR == 0);
	FUZZ_CHECK(io->offset % DISK_SECTOR == 0 && io->offset >= 2 * DISK_SECTOR);
	FUZZ_CHECK(io->offset <= h->disk_bytes && bytes <= h->disk_bytes - io->offset);
	io->res = fault == HOST_FAILS ? -EIO : (int32_t)bytes;
	if (is_gone(h, io) || fault == HOST_FAILS)
		return;
	bytes = io->offset;
	for (uint32_t i = 0; i < io->piece_count; i++) {
		do_piece(h, io, i, h->disk + bytes);
		bytes += io->piece[i].bytes;
	}
	if (fault == HOST_SHORT)
		io->res -= 512;
	if (fault == HOST_ROTTEN && !io->write)
		io->bad_mask |= 1;
}

/*
 * The scan as the protocol states it, one place at a time: the core's must not miss a word. Returns
 * 1 or 0, or -1 when it cannot be told: a context that is being removed may share its index with a
 * newer one, and what kernels keep depends on when the place was retired.
 */
static int is_named(const struct host *h, uint64_t place)
{
	uint32_t index = place >> (ABI_ADDR_BITS + 3) & 0xffff, found = 0, attached = 0;
	int kernels = 0;

	for (uint32_t i = 0; i < HOST_CONTEXTS; i++)
		if (h->context[i].made && ABI_CONTEXT_INDEX(h->context[i].id) == index) {
			attached = h->context[i].attached;
			found++;
		}
	if (found != 1)
		return -1;
	for (uint32_t i = 0; i < HOST_CLIENTS * HOST_READERS; i++) {
		const struct host_client *k = &h->client[i / HOST_READERS];
		const struct abi_reader *r = &k->readers[i % HOST_READERS];
		bool counts = k->state && attached >> (i / HOST_READERS) & 1;

		for (uint32_t s = 0; counts && s < r->high_water && s < ABI_HAZARD_SLOTS; s++)
			if (r->slot[s] == place)
				return 1;
		if (counts && r->era_done < r->era_begin)
			kernels = -1;
	}
	return kernels;
}

static void do_scan(struct host *h)
{
	const struct scan *s = &h->core->reclaim.scan;
	bool whole = !s->begun; /* nothing has changed since its first slot */

	core_scan(h->core);
	FUZZ_CHECK(s->begun);
	for (const struct core_batch *b = s->set; whole && s->over && !h->blind && b; b = b->next)
		for (uint32_t i = 0; i < b->count; i++) {
			int named = is_named(h, b->place[i]);

			FUZZ_CHECK(b->count <= CORE_RETIRE_BATCH);
			FUZZ_CHECK(named < 0 || named == (b->held[i] == s->pass));
		}
}

static void do_punch(struct host *h, const struct core_range *range)
{
	struct host_context *x = host_context_of(h, range->context_id);
	uint64_t at = range->offset;

	FUZZ_CHECK(x && range->tier < ABI_MEM_TIERS && at % ABI_HUGE == 0);
	FUZZ_CHECK(at <= x->mem_bytes[range->tier] &&
		   range->bytes <= x->mem_bytes[range->tier] - at);
	madvise(x->mem[range->tier] + at, range->bytes, MADV_DONTNEED);
}

/* What is read there from now on is nobody's. */
static void do_discard(struct host *h, const struct core_range *range)
{
	uint64_t in = (range->offset - h->super.segment_offset) % h->super.segment_bytes;

	FUZZ_CHECK(range->tier == ABI_TIER_NVME && range->offset >= h->super.segment_offset);
	FUZZ_CHECK(in >= h->super.summary_bytes && range->bytes <= h->super.segment_bytes - in);
	FUZZ_CHECK(range->offset <= h->disk_bytes && range->bytes <= h->disk_bytes - range->offset);
	memset(h->disk + range->offset, 0xdd, range->bytes);
}

static void carry(struct host *h, const struct core_action *a)
{
	struct core_event e;

	FUZZ_CHECK(core_shell_done(a, &e));
	if (a->kind == CORE_AC_COPY) {
		do_copy(h, a->copy);
	} else if (e.kind == CORE_EV_IO_DONE) {
		FUZZ_CHECK(a->io->write == (a->kind == CORE_AC_WRITE));
		do_io(h, a->io);
	} else if (a->kind == CORE_AC_SYNC) {
		e.sync.res = fault_take(h) == HOST_FAILS ? -EIO : 0;
	} else if (a->kind == CORE_AC_DISCARD) {
		do_discard(h, &a->range);
		e.discard.res = h->discard_res ? h->discard_res :
				fault_take(h) == HOST_FAILS ? -EIO : 0;
	} else if (a->kind == CORE_AC_SCAN) {
		do_scan(h);
	} else if (a->kind == CORE_AC_PUNCH) {
		do_punch(h, &a->range);
	}
	host_event(h, &e);
}

static void replied(struct host *h, const struct core_action *a)
{
	if (a->reply.token / TOKEN_REMOVE == 1 && a->reply.token % TOKEN_REMOVE < HOST_CONTEXTS)
		host_context_free(h, (uint32_t)(a->reply.token % TOKEN_REMOVE));
	else if (h->ears.reply)
		h->ears.reply(h->ears.arg, a->reply.token, a->reply.res, a->reply.value);
}

static void collect(struct host *h)
{
	struct core_action a;

	while (core_action_next(h->core, &a)) {
		if (a.kind == CORE_AC_COMPLETE) {
			h->answer = a.complete.cqe;
			if (h->ears.complete)
				h->ears.complete(h->ears.arg, a.complete.client, &a.complete.cqe);
		} else if (a.kind == CORE_AC_REPLY) {
			replied(h, &a);
		} else if (a.kind == CORE_AC_END && h->ears.end) {
			h->ears.end(h->ears.arg, a.end.client, a.end.error, a.end.why);
		} else if (a.kind == CORE_AC_WAKE && h->ears.wake) {
			h->ears.wake(h->ears.arg, a.wake);
		} else if (a.kind == CORE_AC_PREPARE && h->ears.prepare) {
			h->ears.prepare(h->ears.arg, &a.range);
		} else if (a.kind < CORE_AC_PREPARE || a.kind == CORE_AC_PUNCH ||
			   a.kind == CORE_AC_DISCARD) {
			FUZZ_CHECK(h->bag_count < HOST_BAG);
			h->bag[h->bag_count++] = a;
		}
	}
}

void host_carry(struct host *h, uint32_t i)
{
	struct core_action a;

	if (i >= h->bag_count)
		return;
	a = h->bag[i];
	h->bag[i] = h->bag[--h->bag_count];
	carry(h, &a);
}

/* In the order in which they came: what a carried action brings goes behind those there are. */
void host_carry_all(struct host *h)
{
	bool held = h->held;

	h->held = true;
	while (h->bag_count) {
		struct core_action a = h->bag[0];

		memmove(h->bag, h->bag + 1, --h->bag_count * sizeof(a));
		carry(h, &a);
	}
	h->held = held;
}

void host_look(struct host *h)
{
	collect(h);
	if (!h->held)
		host_carry_all(h);
}

void host_event(struct host *h, struct core_event *e)
{
	h->now_ns += 1000;
	e->now_ns = h->now_ns;
	core_event(h->core, e);
	FUZZ_CHECK(h->core->meter.items <= CORE_ITEMS_MAX);
	host_look(h);
}

void host_tick(struct host *h, uint64_t ns)
{
	struct core_event e = { .kind = CORE_EV_TICK };

	h->now_ns += ns;
	host_event(h, &e);
}

bool host_request(struct host *h, uint32_t client, const struct abi_sqe *sqe)
{
	struct core_event e = { .kind = CORE_EV_REQUEST };

	if (h->client[client].state != 1 || !core_accepts(h->core, client))
		return false;
	e.request.client = client;
	e.request.sqe = *sqe;
	host_event(h, &e);
	return true;
}

void host_key(uint32_t n, uint8_t key[ABI_KEY_BYTES])
{
	memset(key, 0, ABI_KEY_BYTES);
	memcpy(key, &n, sizeof(n));
	key[9] = (uint8_t)(n * 7 + 1);
}

int host_reserve(struct host *h, const struct abi_put_args *args, uint32_t first, uint16_t flags)
{
	uint8_t *at = h->client[0].staging;
	struct abi_sqe sqe = { .op = ABI_OP_PUT_RESERVE, .flags = flags, .count = args->count };

	memcpy(at, args, sizeof(*args));
	for (uint32_t i = 0; i < args->count; i++)
		host_key(first + i, at + sizeof(*args) + (size_t)i * ABI_KEY_BYTES);
	sqe.context_id = h->context[0].id;
	sqe.arg_bytes = (uint32_t)(sizeof(*args) + (size_t)args->count * ABI_KEY_BYTES);
	return host_request(h, 0, &sqe) ? h->answer.res : -EBUSY;
}

bool host_commit(struct host *h, uint16_t flags)
{
	const struct abi_sqe sqe = { .op = ABI_OP_PUT_COMMIT, .flags = flags,
				     .handle = h->answer.value, .arg_offset = HOST_PUT_DATA };

	return host_request(h, 0, &sqe);
}

bool host_request_keys(struct host *h, uint32_t client, struct abi_sqe sqe, uint32_t first,
		       uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		host_key(first + i, h->client[client].staging + (size_t)i * ABI_KEY_BYTES);
	sqe.flags |= ABI_SQE_KEYS;
	sqe.context_id = h->context[0].id;
	sqe.count = count;
	sqe.arg_bytes = count * ABI_KEY_BYTES;
	return host_request(h, client, &sqe);
}

bool host_settle(struct host *h, uint32_t rounds)
{
	/* Walks go on a share each turn: all that clients can have at most ends in so many. */
	for (uint32_t i = 0, walks = 0; i < rounds && walks < WALKS; i++) {
		uint64_t next, least = MSEC << (i / 8 < 10 ? i / 8 : 10);

		host_carry_all(h);
		for (; core_goes_on(h->core) && walks < WALKS; walks++) {
			host_tick(h, 0);
			host_carry_all(h);
		}
		next = core_next_tick(h->core);
		if (next == UINT64_MAX || next > h->now_ns + HOUR)
			return true;
		host_tick(h, next > h->now_ns + least ? next - h->now_ns : least);
	}
	return false;
}

/* ---- life --------------------------------------------------------------------------------- */

void host_boot(struct host *h, const struct disk_catalog *catalog)
{
	struct core_config config = {
		.boot_token = 0x70cea,
		.capacity = { HOST_HBM, h->cxl_bytes ? h->cxl_bytes : HOST_CXL, h->disk_bytes },
		.table_bytes = h->table_bytes,
		.walk_items = h->walk_items,
		.place_bytes = ABI_UNIT,
		.super = h->super,
		.next_uid = catalog ? catalog->next_uid : 1,
		.catalog_sequence = catalog ? catalog->sequence : 0,
		.writeback_age_ns = 2 * MSEC,
		.request_deadline_ns = 500 * MSEC,
		.put_deadline_ns = 1000 * MSEC,
		.direct = true,
		.discard = h->discard,
	};

	h->now_ns = 1000 * MSEC;
	h->bag_count = 0;
	h->held = false;
	h->fault = HOST_WELL;
	FUZZ_CHECK(core_open(&h->core, &config) == 0);
}

void host_halt(struct host *h)
{
	ASAN_UNPOISON_MEMORY_REGION(h->core->context, CONTEXTS_BYTES);
	core_close(h->core);
	h->core = NULL;
	h->bag_count = 0;
	for (uint32_t i = 0; i < HOST_CONTEXTS; i++)
		host_context_free(h, i);
	for (uint32_t i = 0; i < HOST_CLIENTS; i++)
		h->client[i].state = 0;
}

static void tell_sum(void *arg, const char *what)
{
	(void)arg;
	fprintf(stderr, "audit: %s\n", what);
}

/* What operators may ask at any time. */
static void look_around(const struct core *c)
{
	struct core_context_stats context;
	struct core_request_view request;
	struct core_pin_view pin;
	uint32_t n = 0;

	for (int64_t id = core_context_next(c, UINT32_MAX); id >= 0;
	     id = core_context_next(c, (uint32_t)id)) {
		FUZZ_CHECK(core_context_stats(c, (uint32_t)id, &context) == 0);
		FUZZ_CHECK(context.blocks_pending <= context.blocks + context.spec.blocks_max);
		FUZZ_CHECK(n++ < HOST_CONTEXTS + 1);
	}
	for (n = 0; core_request_view(c, n, &request) == 0; n++)
		FUZZ_CHECK(n < CORE_REQUESTS_MAX && request.op < ABI_OP_COUNT);
	for (n = 0; core_pin_view(c, n, &pin) == 0; n++)
		FUZZ_CHECK(n < CORE_PINS_MAX && pin.tier < ABI_MEM_TIERS);
}

void host_audit(struct host *h)
{
	FUZZ_CHECK(core_audit(h->core, tell_sum, NULL) == 0);
	look_around(h->core);
}

void host_empty(struct host *h)
{
	struct core_stats stats;

	h->held = false;
	h->fault = HOST_WELL;
	host_carry_all(h);
	for (uint32_t i = 0; i < HOST_CLIENTS; i++) {
		host_client_gone(h, i);
		host_client_dead(h, i);
	}
	for (uint32_t i = 0; i < HOST_CONTEXTS; i++)
		host_context_remove(h, i);
	FUZZ_CHECK(host_settle(h, 400));
	host_audit(h);
	core_stats(h->core, &stats);
	for (uint32_t i = 0; i < HOST_CONTEXTS; i++)
		FUZZ_CHECK(!h->context[i].made); /* each removal was answered */
	FUZZ_CHECK(stats.contexts == 0 && stats.requests == 0 && stats.ios == 0);
	FUZZ_CHECK(stats.copies == 0 && stats.pins == 0 && stats.blocks == 0);
	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++)
		FUZZ_CHECK(stats.tier[t].used == 0 && stats.tier[t].quarantined == 0);
	FUZZ_CHECK(stats.tier[ABI_TIER_NVME].live == 0);
}

/* ---- contexts ----------------------------------------------------------------------------- */

static void part(struct abi_geometry *g, const char *name, uint32_t kind, uint32_t groups,
		 uint32_t bytes)
{
	struct abi_part *p = &g->part[g->part_count++];

	snprintf(p->name, sizeof(p->name), "%s", name);
	p->kind = (uint16_t)kind;
	p->hit_rule = kind == ABI_KIND_STATE ? ABI_HIT_LAST : ABI_HIT_EVERY;
	p->hit_arg = kind == ABI_KIND_STATE;
	p->shard_rule = kind == ABI_KIND_SPARSE ? ABI_SHARD_GROUPS : ABI_SHARD_REPLICATED;
	p->preferred_tier = ABI_TIER_CXL;
	p->layers = 1;
	p->groups = groups;
	p->page_bytes = bytes;
	p->page_stride = (bytes + g->page_align - 1) / g->page_align * g->page_align;
	p->page_base = g->pages_per_block;
	g->pages_per_block += groups;
	g->block_bytes += (uint64_t)groups * p->page_stride;
}

void host_spec(struct disk_context *spec, uint32_t kind, uint32_t i)
{
	static const uint32_t blocks[] = { 200, 40, 130 };
	static const uint32_t bytes[][3] = { { 4096, 4000, 4096 }, { 500, 1024, 512 },
					     { 12288, 4096, 12000 } };
	bool memory = kind == HOST_KIND_MEMORY;
	struct abi_geometry *g = &spec->geometry;

	memset(spec, 0, sizeof(*spec));
	snprintf(spec->name, sizeof(spec->name), "context-%u", i);
	spec->owner_uid = HOST_OWNER;
	spec->owner_gid = HOST_OWNER;
	spec->mode = 0600;
	spec->kind = 1;
	spec->blocks_max = blocks[kind];
	spec->quota[ABI_TIER_HBM] = 2 * ABI_HUGE;
	spec->quota[ABI_TIER_CXL] = kind == HOST_KIND_LARGE ? (4u << 20) + (96u << 10) :
							      3 * ABI_HUGE;
	spec->quota[ABI_TIER_NVME] = memory ? UINT64_MAX : 1 << 20;
	g->block_tokens = 128;
	g->page_align = memory ? 512 : 4096;
	part(g, "kv", ABI_KIND_SPARSE, 2, bytes[kind][0]);
	part(g, "index", ABI_KIND_INDEX, 1, bytes[kind][1]);
	part(g, "state", ABI_KIND_STATE, 1, bytes[kind][2]);
}

/* A loop that goes one context too far would read a null pointer, but for the last that can be. */
static int create(struct core *c, const struct disk_context *spec,
		  const struct core_context_memory *memory, uint64_t token, uint32_t *id)
{
	int rc;

	ASAN_UNPOISON_MEMORY_REGION(c->context, CONTEXTS_BYTES);
	rc = core_context_create(c, spec, memory, token, id);
	ASAN_POISON_MEMORY_REGION(&c->context[c->contexts_high],
				  (ABI_CONTEXTS_MAX - c->contexts_high) * sizeof(c->context[0]));
	return rc;
}

int host_context_create(struct host *h, uint32_t i, const struct disk_context *spec,
			uint64_t token, char *why)
{
	struct host_context *x = &h->context[i];
	struct core_context_memory memory = { .at = 0 };
	struct core_context_plan plan;
	int rc;

	FUZZ_CHECK(!x->made);
	x->spec = *spec;
	rc = core_context_plan(h->core, &x->spec, &plan, why, WHY);
	if (rc) {
		FUZZ_CHECK(why[0]);
		return rc;
	}
	if (plan.index_bytes > INDEX_MAX)
		return -ENOMEM;
	memory.index = x->index = calloc(1, plan.index_bytes);
	if (!x->index)
		return -ENOMEM;
	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++) {
		memory_size(x, t, plan.mem_bytes[t]);
		memory.mem[t] = x->mem[t];
	}
	x->made = true;
	rc = create(h->core, spec, &memory, token, &x->id);
	if (rc)
		host_context_free(h, i);
	return rc;
}

int host_context_make(struct host *h, uint32_t i, const struct disk_context *spec)
{
	char why[WHY] = "";
	int rc = host_context_create(h, i, spec, 1, why);

	if (rc == 0)
		host_tick(h, 0);
	return rc;
}

void host_context_remove(struct host *h, uint32_t i)
{
	struct host_context *x = &h->context[i];

	if (!x->made || x->removing)
		return;
	x->removing = true;
	FUZZ_CHECK(core_context_remove(h->core, x->id, 0, TOKEN_REMOVE + i) == 0 || h->blind);
	host_tick(h, 0);
}

void host_context_free(struct host *h, uint32_t i)
{
	struct host_context *x = &h->context[i];

	free(x->index);
	x->index = NULL;
	x->made = x->removing = false;
	x->attached = 0;
}

struct host_context *host_context_of(struct host *h, uint32_t id)
{
	for (uint32_t i = 0; i < HOST_CONTEXTS; i++)
		if (h->context[i].made && h->context[i].id == id)
			return &h->context[i];
	return NULL;
}

/* ---- clients ------------------------------------------------------------------------------ */

void host_client_open(struct host *h, uint32_t i)
{
	struct host_client *k = &h->client[i];
	struct core_event e = { .kind = CORE_EV_CLIENT_OPEN };

	if (k->state || !core_client_over(h->core, i))
		return;
	memset(k->readers, 0, HOST_READERS * sizeof(*k->readers));
	memset(k->lines, 0, HOST_LINES * sizeof(*k->lines));
	memset(k->staging, 0, h->staging_bytes);
	e.open = (struct core_client_open){
		.client = i,
		.uid = h->uid ? h->uid : HOST_OWNER,
		.gid = HOST_OWNER,
		.staging = k->staging,
		.staging_bytes = h->staging_bytes,
		.readers = k->readers,
		.readers_max = HOST_READERS,
		.streams = k->lines,
		.streams_max = HOST_LINES,
	};
	k->state = 1;
	host_event(h, &e);
}

void host_client_attach(struct host *h, uint32_t i)
{
	for (uint32_t n = 0; h->client[i].state == 1 && n < HOST_CONTEXTS; n++) {
		struct host_context *x = &h->context[n];
		struct core_context_view view;

		if (!x->made || x->removing ||
		    core_context_find(h->core, x->spec.name, HOST_OWNER, HOST_OWNER, &view))
			continue;
		FUZZ_CHECK(view.id == x->id);
		if (core_context_attach(h->core, i, &view) == 0)
			x->attached |= 1u << i;
	}
}

void host_client_gone(struct host *h, uint32_t i)
{
	struct core_event e = { .kind = CORE_EV_CLIENT_GONE, .client = i };

	if (h->client[i].state != 1)
		return;
	h->client[i].state = 2;
	host_event(h, &e);
}

void host_client_dead(struct host *h, uint32_t i)
{
	struct core_event e = { .kind = CORE_EV_CLIENT_DEAD, .client = i };

	if (h->client[i].state != 2)
		return;
	/* The shell lets staging go only when no job reads it; so do we. */
	for (uint32_t n = h->bag_count; n-- > 0;)
		if (n < h->bag_count && h->bag[n].kind == CORE_AC_COPY &&
		    h->bag[n].copy->src_tier == ABI_TIER_COUNT)
			host_carry(h, n);
	h->client[i].state = 0;
	for (uint32_t n = 0; n < HOST_CONTEXTS; n++)
		h->context[n].attached &= ~(1u << i);
	host_event(h, &e);
}
