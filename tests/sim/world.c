/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The world's life: clients that put, fetch, pin, delete and lease at random; the bag of actions;
 * crashes and recovery. The device is in device.c. See world.h for what is promised.
 */
#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/world_priv.h"

void world_fail(struct world *w, const char *format, ...)
{
	va_list ap;

	if (w->result->failure[0])
		return;
	va_start(ap, format);
	vsnprintf(w->result->failure, sizeof(w->result->failure), format, ap);
	va_end(ap);
}

uint64_t world_random(struct world *w)
{
	/* splitmix64: small, seedable, good enough to choose */
	uint64_t z = w->random += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

uint32_t world_below(struct world *w, uint32_t n)
{
	return (uint32_t)(world_random(w) % n);
}

static bool chance(struct world *w, uint32_t ppm)
{
	return world_below(w, 1000000) < ppm;
}

/* ---- content ------------------------------------------------------------------------------ */

void world_key(uint32_t n, uint8_t key[ABI_KEY_BYTES])
{
	uint64_t v = (n + 1) * 0x9e3779b97f4a7c15ull;

	for (uint32_t i = 0; i < 4; i++, v = v * 0xd1342543de82ef95ull + 1)
		memcpy(key + i * 8, &v, 8);
}

static uint64_t page_word(uint32_t n, uint32_t page, uint32_t i)
{
	return (n * 0x100000001b3ull ^ page) * 0x9e3779b97f4a7c15ull + i * 0x2545f4914f6cdd1dull;
}

static void page_content(uint32_t n, uint32_t page, void *dst, uint32_t bytes)
{
	uint64_t *to = dst;

	for (uint32_t i = 0; i < bytes / 8; i++)
		to[i] = page_word(n, page, i);
}

static bool page_is(uint32_t n, uint32_t page, const void *src, uint32_t bytes)
{
	const uint64_t *from = src;

	for (uint32_t i = 0; i < bytes / 8; i++)
		if (from[i] != page_word(n, page, i))
			return false;
	return true;
}

/* ---- geometry, context -------------------------------------------------------------------- */

static void part(struct abi_geometry *g, const char *name, uint32_t kind, uint32_t layers,
		 uint32_t groups)
{
	struct abi_part *p = &g->part[g->part_count++];

	snprintf(p->name, sizeof(p->name), "%s", name);
	p->kind = (uint16_t)kind;
	p->hit_rule = ABI_HIT_EVERY;
	p->shard_rule = kind == ABI_KIND_INDEX ? ABI_SHARD_REPLICATED : ABI_SHARD_GROUPS;
	p->layers = layers;
	p->groups = groups;
	p->page_bytes = p->page_stride = 4096;
	p->page_base = g->pages_per_block;
	g->pages_per_block += layers * groups;
	g->block_bytes += (uint64_t)layers * groups * 4096;
}

static void context_spec(struct disk_context *spec)
{
	memset(spec, 0, sizeof(*spec));
	snprintf(spec->name, sizeof(spec->name), "world");
	spec->mode = 0600;
	spec->kind = 1;
	spec->geometry.block_tokens = 128;
	spec->geometry.page_align = 4096;
	part(&spec->geometry, "kv", ABI_KIND_SPARSE, 2, 2);
	part(&spec->geometry, "index", ABI_KIND_INDEX, 2, 1);
}

static void context_make(struct world *w, const struct disk_context *from)
{
	struct disk_context spec = *from;
	struct core_context_plan plan;
	struct core_context_memory memory = { .index = NULL };
	char why[128] = "";
	int err = core_context_plan(w->core, &spec, &plan, why, sizeof(why));

	assert(!err);
	memory.index = calloc(1, plan.index_bytes);
	w->index = memory.index;
	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++) {
		memory.mem[t] = plan.mem_bytes[t] ? calloc(1, plan.mem_bytes[t]) : NULL;
		w->mem[t] = memory.mem[t];
	}
	err = core_context_create(w->core, &spec, &memory, 1, &w->context_id);
	assert(!err);
	w->geometry = spec.geometry;
}

/* ---- events ------------------------------------------------------------------------------- */

static void collect(struct world *w);

void world_event(struct world *w, struct core_event *e)
{
	w->now_ns += 1 + world_below(w, 20000);
	e->now_ns = w->now_ns;
	core_event(w->core, e);
	w->result->events++;
	collect(w);
}

static void completed(struct world *w, uint32_t client, const struct abi_cqe *cqe)
{
	struct world_client *k = &w->client[client];
	struct world_put *p = &k->put;

	if (cqe->user_data == 1) { /* reserve */
		p->handle = cqe->value;
		p->stage = cqe->res ? 0 : 2;
	} else if (cqe->user_data == 2) { /* commit */
		if (!cqe->res && cqe->status == ABI_STATUS_READY) {
			w->result->commits++;
			if (p->durable && cqe->value == p->count)
				for (uint32_t i = 0; i < p->count; i++)
					w->durable[p->first + i] = true;
		}
		p->stage = 0;
	} else if (cqe->user_data == 3) {
		k->fetching = false;
		w->result->fetches++;
	} else if (cqe->user_data == 4 && !cqe->res) {
		k->pin = cqe->value;
	} else if (cqe->user_data == 5) {
		k->deleting = false;
	}
}

static void collect(struct world *w)
{
	struct core_action a;

	while (core_action_next(w->core, &a)) {
		if (a.kind == CORE_AC_COMPLETE) {
			completed(w, a.complete.client, &a.complete.cqe);
			continue;
		}
		if (a.kind == CORE_AC_REPLY || a.kind == CORE_AC_PREPARE)
			continue;
		if (a.kind == CORE_AC_END) {
			world_fail(w, "session ended: %s", a.end.why);
			continue;
		}
		assert(w->bag_count < WORLD_BAG);
		w->bag[w->bag_count++] = a;
	}
}

static void do_copy(struct world *w, struct core_copy *copy)
{
	struct core_event e = { .kind = CORE_EV_COPY_DONE, .copy = copy };

	for (uint32_t i = 0; i < copy->count; i++) {
		struct core_copy_item *it = &copy->item[i];

		memcpy(it->dst, it->src, it->bytes);
		if (copy->checksum)
			it->crc = crc32c(it->seed, it->dst, it->bytes);
	}
	copy->res = 0;
	world_event(w, &e);
}

static void do_action(struct world *w, const struct core_action *a)
{
	struct core_event e = { .kind = CORE_EV_TICK };

	switch (a->kind) {
	case CORE_AC_COPY:
		do_copy(w, a->copy);
		return;
	case CORE_AC_READ:
	case CORE_AC_WRITE:
		device_io(w, a->io);
		e.kind = CORE_EV_IO_DONE;
		e.io = a->io;
		break;
	case CORE_AC_SYNC:
		device_flush(w);
		e.kind = CORE_EV_SYNC_DONE;
		e.sync.token = a->sync_token;
		e.sync.res = 0;
		break;
	case CORE_AC_FENCE:
		e.kind = CORE_EV_FENCE_DONE;
		e.batch = a->batch;
		break;
	case CORE_AC_SCAN:
		core_scan(w->core, a->batch);
		e.kind = CORE_EV_SCAN_DONE;
		e.batch = a->batch;
		break;
	case CORE_AC_PUNCH:
		memset(w->mem[a->range.tier] + a->range.offset, 0xdd, a->range.bytes);
		e.kind = CORE_EV_PUNCH_DONE;
		e.range = a->range;
		break;
	default:
		world_fail(w, "unknown action %d", (int)a->kind);
		return;
	}
	world_event(w, &e);
}

static void step_bag(struct world *w)
{
	struct core_action a;
	uint32_t i;

	if (!w->bag_count)
		return;
	i = world_below(w, w->bag_count);
	a = w->bag[i];
	w->bag[i] = w->bag[--w->bag_count];
	do_action(w, &a);
}

/* ---- clients ------------------------------------------------------------------------------ */

static void submit(struct world *w, uint32_t client, struct abi_sqe *sqe)
{
	struct core_event e = { .kind = CORE_EV_REQUEST };

	if (!core_accepts(w->core, client))
		return;
	sqe->context_id = w->context_id;
	e.request.client = client;
	e.request.sqe = *sqe;
	world_event(w, &e);
}

static void put_reserve(struct world *w, uint32_t client)
{
	struct world_client *k = &w->client[client];
	struct abi_put_args *args = (struct abi_put_args *)(k->staging + STAGING_ARGS);
	struct abi_sqe sqe = { .op = ABI_OP_PUT_RESERVE, .user_data = 1 };

	k->put.count = 1 + world_below(w, 8);
	k->put.first = world_below(w, WORLD_KEYS - 8);
	k->put.durable = chance(w, 300000);
	memset(args, 0, sizeof(*args));
	args->count = k->put.count;
	args->depth = k->put.first;
	if (k->put.first)
		world_key(k->put.first - 1, args->parent);
	for (uint32_t i = 0; i < k->put.count; i++)
		world_key(k->put.first + i, (uint8_t *)(args + 1) + i * ABI_KEY_BYTES);
	sqe.arg_offset = STAGING_ARGS;
	sqe.count = args->count;
	sqe.arg_bytes = (uint32_t)sizeof(*args) + args->count * ABI_KEY_BYTES;
	sqe.flags = k->put.durable ? ABI_SQE_DURABLE : 0;
	k->put.stage = 1;
	submit(w, client, &sqe);
}

static void put_commit(struct world *w, uint32_t client)
{
	struct world_client *k = &w->client[client];
	struct abi_sqe sqe = { .op = ABI_OP_PUT_COMMIT, .user_data = 2, .handle = k->put.handle };
	uint8_t *to = k->staging;

	if (chance(w, 50000)) {
		sqe.op = ABI_OP_PUT_ABORT;
		submit(w, client, &sqe);
		return;
	}
	for (uint32_t i = 0; i < k->put.count; i++)
		for (uint32_t page = 0; page < w->geometry.pages_per_block; page++, to += 4096)
			page_content(k->put.first + i, page, to, 4096);
	k->put.stage = 3;
	submit(w, client, &sqe);
}

static void keys_request(struct world *w, uint32_t client, uint8_t op, uint64_t user_data)
{
	struct world_client *k = &w->client[client];
	uint32_t n = 1 + world_below(w, 8), first = world_below(w, WORLD_KEYS - 8);
	uint32_t at = STAGING_ARGS + 4096 * (uint32_t)user_data;
	struct abi_sqe sqe = { .op = op, .user_data = user_data, .flags = ABI_SQE_KEYS };

	for (uint32_t i = 0; i < n; i++) {
		world_key(first + i, k->staging + at + i * ABI_KEY_BYTES);
		if (op == ABI_OP_DELETE)
			w->durable[first + i] = false;
	}
	sqe.arg_offset = at;
	sqe.count = n;
	sqe.arg_bytes = n * ABI_KEY_BYTES;
	sqe.tier = chance(w, 300000) ? ABI_TIER_HBM : ABI_TIER_CXL;
	if (op == ABI_OP_PIN)
		sqe.deadline_ns = w->now_ns + world_below(w, 100000000);
	submit(w, client, &sqe);
}

static void unpin(struct world *w, uint32_t client)
{
	struct abi_sqe sqe = { .op = ABI_OP_UNPIN, .handle = w->client[client].pin };

	w->client[client].pin = 0;
	submit(w, client, &sqe);
}

static void step_client(struct world *w)
{
	uint32_t i = world_below(w, WORLD_CLIENTS);
	struct world_client *k = &w->client[i];

	switch (world_below(w, 8)) {
	case 0:
	case 1:
	case 2:
		if (k->put.stage == 0)
			put_reserve(w, i);
		else if (k->put.stage == 2)
			put_commit(w, i);
		return;
	case 3:
	case 4:
		if (!k->fetching) {
			k->fetching = true;
			keys_request(w, i, ABI_OP_FETCH, 3);
		}
		return;
	case 5:
		if (k->pin)
			unpin(w, i);
		else if (chance(w, 200000))
			keys_request(w, i, ABI_OP_PIN, 4);
		return;
	case 6:
		if (!k->deleting && chance(w, 20000)) {
			k->deleting = true;
			keys_request(w, i, ABI_OP_DELETE, 5);
		}
		return;
	default:
		return;
	}
}

/* ---- readers ------------------------------------------------------------------------------ */

static const struct abi_block *world_find(struct world *w, uint32_t n, uint32_t *slot)
{
	uint8_t key[ABI_KEY_BYTES];
	struct core_location at;

	world_key(n, key);
	if (core_locate(w->core, w->context_id, key, &at))
		return NULL;
	*slot = at.slot;
	return (const struct abi_block *)(w->index + w->index_header->block_offset) + at.slot;
}

static const struct abi_page *world_page(struct world *w, uint32_t slot, uint32_t page)
{
	return (const struct abi_page *)(w->index + w->index_header->desc_offset) +
	       (uint64_t)slot * w->geometry.pages_per_block + page;
}

static void lease(struct world *w, struct world_lease *l)
{
	uint32_t slot, n = world_below(w, WORLD_KEYS);
	uint32_t tier = world_below(w, ABI_MEM_TIERS);
	const struct abi_block *b = world_find(w, n, &slot);
	struct abi_reader *r = w->client[world_below(w, WORLD_CLIENTS)].reader;
	uint64_t word;

	if (!b || b->state != ABI_BLOCK_COMMITTED)
		return;
	l->page = world_below(w, w->geometry.pages_per_block);
	word = world_page(w, slot, l->page)->word[tier];
	if (abi_word_state(word) != ABI_PAGE_READY)
		return;
	l->slot = &r->slot[l - w->lease];
	*l->slot = abi_place(w->context_id, tier, word);
	r->high_water = WORLD_LEASES;
	if (chance(w, 300000)) /* the log is lossy: often the policy learns nothing */
		r->access[r->access_tail++ % ABI_ACCESS_LOG] = abi_access(w->context_id, slot, 1);
	l->data = w->mem[tier] + abi_word_addr(word);
	l->n = n;
	w->result->leases++;
}

static void step_lease(struct world *w)
{
	struct world_lease *l = &w->lease[world_below(w, WORLD_LEASES)];

	if (!l->data) {
		lease(w, l);
		return;
	}
	if (!page_is(l->n, l->page, l->data, 4096))
		world_fail(w, "bytes of key %u page %u changed under a lease", l->n, l->page);
	if (chance(w, 30000)) {
		*l->slot = 0;
		l->data = NULL;
	}
}

/* ---- life --------------------------------------------------------------------------------- */

static void clients_open(struct world *w)
{
	for (uint32_t i = 0; i < WORLD_CLIENTS; i++) {
		struct world_client *k = &w->client[i];
		struct core_event e = { .kind = CORE_EV_CLIENT_OPEN };
		struct core_context_view view;

		memset(&k->put, 0, sizeof(k->put));
		k->fetching = k->deleting = false;
		k->pin = 0;
		memset(k->reader, 0, sizeof(*k->reader));
		e.open = (struct core_client_open){
			.client = i,
			.staging = k->staging,
			.staging_bytes = STAGING_BYTES,
			.readers = k->reader,
			.readers_max = 1,
		};
		world_event(w, &e);
		if (core_context_find(w->core, "world", 0, 0, &view))
			world_fail(w, "the context is not found");
		else
			core_context_attach(w->core, i, &view);
	}
}

static void boot(struct world *w)
{
	struct core_config config = {
		.boot_token = 1,
		.capacity = { w->options->hbm_bytes, w->options->cxl_bytes,
			      w->options->nvme_bytes },
		.super = w->super,
		.writeback_age_ns = 2000000,
	};
	const struct disk_catalog *head;
	const struct disk_context *list;
	bool old = device_catalog(w, &head, &list);
	int err;

	if (old) {
		config.next_uid = head->next_uid;
		config.catalog_sequence = head->sequence;
	}
	err = core_open(&w->core, &config);
	assert(!err);
	w->bag_count = 0;
	if (old && head->count) {
		context_make(w, &list[0]);
	} else {
		struct disk_context spec;

		context_spec(&spec);
		context_make(w, &spec);
	}
	w->index_header = (const struct abi_index_header *)w->index;
	device_recover(w);
	collect(w);
	clients_open(w);
}

static void check_durable(struct world *w)
{
	uint32_t slot;

	for (uint32_t n = 0; n < WORLD_KEYS; n++)
		if (w->durable[n] && !world_find(w, n, &slot))
			world_fail(w, "durable key %u is gone after a crash", n);
}

static void shut(struct world *w)
{
	const struct core_metrics *m = core_metrics(w->core);

	w->result->evicted += m->evicted_cxl + m->evicted_hbm;
	w->result->segments_dropped += m->segments_dropped;
	w->result->quarantined += m->quarantined;
	w->result->runs += m->runs_written;
	core_close(w->core);
	w->core = NULL;
	free(w->index);
	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++)
		free(w->mem[t]);
	memset(w->lease, 0, sizeof(w->lease));
}

static void crash(struct world *w)
{
	w->result->crashes++;
	shut(w);
	device_crash(w);
	boot(w);
	check_durable(w);
}

static void audit_tell(void *arg, const char *what)
{
	world_fail(arg, "audit: %s", what);
}

static void step(struct world *w, uint64_t i)
{
	struct core_event e = { .kind = CORE_EV_TICK };
	uint32_t dice = world_below(w, 100);

	if (dice < 45)
		step_bag(w);
	else if (dice < 70)
		step_client(w);
	else if (dice < 95)
		step_lease(w);
	else
		world_event(w, &e);
	if (i % 512 == 0)
		core_audit(w->core, audit_tell, w);
	if (chance(w, 60))
		crash(w);
}

int world_run(const struct world_options *options, struct world_result *result)
{
	struct world *w = calloc(1, sizeof(*w));

	memset(result, 0, sizeof(*result));
	if (!w)
		return -ENOMEM;
	w->options = options;
	w->result = result;
	w->random = options->seed;
	w->bag = calloc(WORLD_BAG, sizeof(*w->bag));
	for (uint32_t i = 0; i < WORLD_CLIENTS; i++) {
		w->client[i].staging = calloc(1, STAGING_BYTES);
		w->client[i].reader = calloc(1, sizeof(struct abi_reader));
	}
	device_open(w);
	boot(w);
	for (uint64_t i = 0; i < options->steps && !result->failure[0]; i++)
		step(w, i);
	shut(w);
	device_close(w);
	for (uint32_t i = 0; i < WORLD_CLIENTS; i++) {
		free(w->client[i].staging);
		free(w->client[i].reader);
	}
	free(w->bag);
	free(w);
	return result->failure[0] ? -EILSEQ : 0;
}
