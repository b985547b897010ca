/* SPDX-License-Identifier: Apache-2.0 */
/* The core alone, in simulated time; see corehost.h. */
#include "bench/space/corehost.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/lib/core_shell.h"

#define STAGING_BYTES (8u << 20)
#define ARGS_OFFSET (STAGING_BYTES - 65536u)
#define WAIT_NS (3000 * COREHOST_MS) /* longer than any request of the core's */

static void feed(struct corehost *h, struct core_event *e)
{
	e->now_ns = h->now_ns;
	core_event(h->core, e);
}

static void answer(struct corehost *h, const struct core_action *a)
{
	struct core_event e;

	if (!core_shell_at_once(a, &e))
		return; /* hints, and replies that nobody waits for */
	if (a->kind == CORE_AC_SCAN)
		core_scan(h->core);
	feed(h, &e);
}

static void copy_begin(struct corehost *h, const struct core_action *a)
{
	struct corehost_channel *l = &h->channel;
	uint64_t bytes = 0, begin_ns = l->idle_ns > h->now_ns ? l->idle_ns : h->now_ns;

	for (uint32_t i = 0; i < a->copy->count; i++)
		bytes += a->copy->item[i].bytes;
	h->copied += a->copy->src_tier == a->copy->dst_tier ? bytes : 0;
	if (!l->bytes_per_s) {
		answer(h, a);
		return;
	}
	assert(l->tail - l->head < COREHOST_COPIES);
	l->idle_ns = begin_ns + bytes * 1000 * COREHOST_MS / l->bytes_per_s;
	l->queue[l->tail % COREHOST_COPIES].copy = *a;
	l->queue[l->tail++ % COREHOST_COPIES].done_ns = l->idle_ns;
}

static void look(struct corehost *h)
{
	struct core_action a;

	while (core_action_next(h->core, &a)) {
		if (a.kind == CORE_AC_COMPLETE) {
			h->answered = true;
			h->answer = a.complete.cqe;
		} else if (a.kind == CORE_AC_COPY) {
			copy_begin(h, &a);
		} else {
			h->punched += a.kind == CORE_AC_PUNCH ? a.range.bytes : 0;
			answer(h, &a);
		}
	}
}

/* On to what comes next, `until` at the latest: a tick, or the end of a copy. */
static void step(struct corehost *h, uint64_t until)
{
	struct corehost_channel *l = &h->channel;
	struct core_event e = { .kind = CORE_EV_TICK };
	uint64_t tick = core_next_tick(h->core);
	uint64_t next = tick > h->now_ns + COREHOST_MS / 4 ? tick : h->now_ns + COREHOST_MS / 4;
	bool copied = l->head != l->tail && l->queue[l->head % COREHOST_COPIES].done_ns <= next;

	if (copied)
		next = l->queue[l->head % COREHOST_COPIES].done_ns;
	copied = copied && next <= until;
	h->now_ns = next < until ? next : until;
	if (copied)
		answer(h, &l->queue[l->head++ % COREHOST_COPIES].copy);
	feed(h, &e);
	look(h);
}

void corehost_advance(struct corehost *h, uint64_t ns)
{
	uint64_t until = h->now_ns + ns;

	while (h->now_ns < until)
		step(h, until);
}

void corehost_bandwidth(struct corehost *h, uint64_t bytes_per_s)
{
	h->channel.bytes_per_s = bytes_per_s;
}

/* Feed an entry and let time pass until it is answered. */
static int64_t ask(struct corehost *h, uint32_t client, const struct abi_sqe *sqe)
{
	struct core_event e = { .kind = CORE_EV_REQUEST, .request.client = client };
	uint64_t until = h->now_ns + WAIT_NS;

	h->answered = false;
	e.request.sqe = *sqe;
	feed(h, &e);
	look(h);
	while (!h->answered && h->now_ns < until)
		step(h, h->now_ns + COREHOST_MS / 4);
	if (!h->answered)
		return -ETIME;
	return h->answer.res ? h->answer.res : (int64_t)h->answer.value;
}

/* ---- life --------------------------------------------------------------------------------- */

int corehost_open(struct corehost *h, uint64_t cxl, uint64_t slab)
{
	struct core_config config = {
		.boot_token = 1,
		.capacity = { 0, cxl },
		.slab_bytes = { 0, slab },
	};
	int error;

	memset(h, 0, sizeof(*h));
	h->now_ns = COREHOST_MS;
	error = core_open(&h->core, &config);
	return error ? error : corehost_client(h, 0);
}

int corehost_client(struct corehost *h, uint32_t client)
{
	struct core_event e = { .kind = CORE_EV_CLIENT_OPEN };

	h->staging[client] = calloc(1, STAGING_BYTES);
	h->reader[client] = calloc(1, sizeof(*h->reader[client]));
	if (!h->staging[client] || !h->reader[client])
		return -ENOMEM;
	e.open = (struct core_client_open){ .client = client,
					    .staging = h->staging[client],
					    .staging_bytes = STAGING_BYTES,
					    .readers = h->reader[client],
					    .readers_max = 1 };
	feed(h, &e);
	return 0;
}

int corehost_share(struct corehost *h, enum core_holder who, const struct corehost_block *b,
		   uint64_t soft)
{
	const struct core_quota quota = {
		.who = who,
		.context_id = h->context[b->context].id,
		.key = who == CORE_HOLDER_SALT ? b->salt : b->client,
		.tier = ABI_TIER_CXL,
		.limit = { .soft = soft },
	};
	int error = core_quota_set(h->core, &quota, 0);

	look(h);
	return error;
}

void corehost_close(struct corehost *h)
{
	core_close(h->core);
	for (uint32_t i = 0; i < COREHOST_CONTEXTS; i++) {
		if (h->context[i].index)
			munmap(h->context[i].index, h->context[i].index_bytes);
		if (h->context[i].mem)
			munmap(h->context[i].mem, h->context[i].mem_bytes);
	}
	for (uint32_t i = 0; i < COREHOST_CLIENTS; i++) {
		free(h->staging[i]);
		free(h->reader[i]);
	}
	memset(h, 0, sizeof(*h));
}

static void part(struct abi_geometry *g, const char *name, uint32_t pages, uint32_t bytes)
{
	struct abi_part *p = &g->part[g->part_count++];

	snprintf(p->name, sizeof(p->name), "%s", name);
	p->kind = pages > 1 ? ABI_KIND_SPARSE : ABI_KIND_STATE;
	p->hit_rule = pages > 1 ? ABI_HIT_EVERY : ABI_HIT_LAST;
	p->hit_arg = pages > 1 ? 0 : 1;
	p->shard_rule = ABI_SHARD_REPLICATED;
	p->layers = pages;
	p->groups = 1;
	p->page_bytes = p->page_stride = bytes;
	p->page_base = g->pages_per_block;
	g->pages_per_block += pages;
	g->block_bytes += (uint64_t)pages * bytes;
}

static void *reserve_memory(uint64_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return at == MAP_FAILED ? NULL : at;
}

int corehost_context(struct corehost *h, uint32_t i, uint32_t pages, uint32_t side_bytes)
{
	struct corehost_context *x = &h->context[i];
	struct core_context_memory memory = { .index = NULL };
	struct core_context_plan plan;
	struct core_context_view view;
	struct disk_context spec;
	char why[128];
	int error;

	memset(&spec, 0, sizeof(spec));
	snprintf(spec.name, sizeof(spec.name), "context-%u", i);
	spec.mode = 0600;
	spec.kind = 1;
	spec.geometry.block_tokens = 16;
	spec.geometry.page_align = ABI_PAGE_ALIGN;
	part(&spec.geometry, "kv", pages, 65536);
	part(&spec.geometry, "side", 1, side_bytes);
	error = core_context_plan(h->core, &spec, &plan, why, sizeof(why));
	if (error)
		return error;
	memory.index = x->index = reserve_memory(x->index_bytes = plan.index_bytes);
	memory.mem[ABI_TIER_CXL] = x->mem =
		reserve_memory(x->mem_bytes = plan.mem_bytes[ABI_TIER_CXL]);
	if (!x->index || !x->mem)
		return -ENOMEM;
	error = core_context_create(h->core, &spec, &memory, 0, &x->id);
	look(h);
	if (!error)
		error = core_context_find(h->core, spec.name, 0, 0, &view);
	for (uint32_t k = 0; k < COREHOST_CLIENTS && !error; k++)
		if (h->staging[k])
			error = core_context_attach(h->core, k, &view);
	return error;
}

/* ---- blocks ------------------------------------------------------------------------------- */

static void key_of(uint64_t key, uint8_t out[ABI_KEY_BYTES])
{
	uint64_t v = (key + 1) * 0x9e3779b97f4a7c15ull;

	for (uint32_t i = 0; i < 4; i++, v = (v ^ v >> 31) * 0xd1342543de82ef95ull + 1)
		memcpy(out + (size_t)i * 8, &v, 8);
}

int64_t corehost_put(struct corehost *h, const struct corehost_block *b)
{
	struct abi_put_args *args =
		(struct abi_put_args *)(h->staging[b->client] + ARGS_OFFSET);
	struct abi_sqe sqe = { .op = ABI_OP_PUT_RESERVE, .count = 1, .arg_offset = ARGS_OFFSET };
	int64_t handle;

	memset(args, 0, sizeof(*args));
	args->count = 1;
	args->salt = b->salt;
	args->parts = b->parts;
	args->priority = b->priority;
	args->ttl_ms = b->ttl_ms;
	args->depth = b->depth;
	if (b->depth)
		key_of(b->before, args->parent);
	key_of(b->key, (uint8_t *)(args + 1));
	sqe.context_id = h->context[b->context].id;
	sqe.arg_bytes = sizeof(*args) + ABI_KEY_BYTES;
	sqe.handle = b->reservation;
	handle = ask(h, b->client, &sqe);
	if (handle < 0)
		return handle;
	sqe = (struct abi_sqe){ .op = ABI_OP_PUT_COMMIT, .handle = (uint64_t)handle };
	return ask(h, b->client, &sqe);
}

bool corehost_get(struct corehost *h, const struct corehost_block *b)
{
	struct core_location at;
	uint8_t key[ABI_KEY_BYTES];
	struct abi_reader *r = h->reader[b->client];
	uint32_t id = h->context[b->context].id;

	key_of(b->key, key);
	if (core_locate(h->core, id, key, &at) || at.block.state != ABI_BLOCK_COMMITTED)
		return false;
	r->access[r->access_tail++ % ABI_ACCESS_LOG] = abi_access(id, at.slot, 1);
	return true;
}

int corehost_lease(struct corehost *h, const struct corehost_block *b)
{
	const struct corehost_context *x = &h->context[b->context];
	const struct abi_index_header *header = x->index;
	const struct abi_page *page;
	struct core_location at;
	uint8_t key[ABI_KEY_BYTES];
	uint32_t i = 0;

	key_of(b->key, key);
	if (core_locate(h->core, x->id, key, &at))
		return -ENOENT;
	page = (const struct abi_page *)((const uint8_t *)x->index + header->desc_offset) +
	       (uint64_t)at.slot * header->pages_per_block;
	if (abi_word_state(page->word[ABI_TIER_CXL]) != ABI_PAGE_READY)
		return -ENODATA;
	while (i < COREHOST_LEASES && h->reader[0]->slot[i])
		i++;
	if (i == COREHOST_LEASES)
		return -EAGAIN;
	h->reader[0]->slot[i] = abi_place(x->id, ABI_TIER_CXL, page->word[ABI_TIER_CXL]);
	if (h->reader[0]->high_water <= i)
		h->reader[0]->high_water = i + 1;
	h->leases++;
	return (int)i;
}

void corehost_release(struct corehost *h, int lease)
{
	h->reader[0]->slot[lease] = 0;
	h->leases--;
}

/* ---- reservations ------------------------------------------------------------------------- */

int corehost_reserve(struct corehost *h, uint32_t context, const struct abi_reserve_args *args,
		     uint64_t deadline_ns, uint64_t *id)
{
	struct abi_sqe sqe = { .op = ABI_OP_RESERVE, .count = 1, .arg_offset = ARGS_OFFSET,
			       .arg_bytes = sizeof(*args), .deadline_ns = deadline_ns };
	int64_t rc;

	memcpy(h->staging[0] + ARGS_OFFSET, args, sizeof(*args));
	sqe.context_id = h->context[context].id;
	rc = ask(h, 0, &sqe);
	*id = rc > 0 ? (uint64_t)rc : 0;
	return rc < 0 ? (int)rc : 0;
}

int64_t corehost_hand_back(struct corehost *h, uint32_t context, uint64_t id)
{
	struct abi_sqe sqe = { .op = ABI_OP_RESERVE, .handle = id };

	sqe.context_id = h->context[context].id;
	return ask(h, 0, &sqe);
}

static void tell(void *arg, const char *what)
{
	if (!*(uint64_t *)arg)
		fprintf(stderr, "audit: %s\n", what);
	*(uint64_t *)arg += 1;
}

uint64_t corehost_audit(const struct corehost *h)
{
	uint64_t told = 0;

	return core_audit(h->core, tell, &told);
}
