/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See model.h. The device serves in order of arrival, reads and writes through one queue; copies to
 * HBM and into CXL share one channel.
 */
#include "bench/model/model.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/lib/core_shell.h"
#include "tierd/core/unit/store.h"

#define ARG_PIECE 65536u
#define FENCE_NS 2000u
#define MODEL_STAGING_ARGS (64u << 20)

/* ---- events ------------------------------------------------------------------------------- */

static bool earlier(const struct model_event *a, const struct model_event *b)
{
	return a->at_ns < b->at_ns || (a->at_ns == b->at_ns && a->seq < b->seq);
}

static void push(struct model *m, struct model_event *e)
{
	uint32_t at = m->events;

	if (m->events == m->room) {
		uint32_t room = m->room ? m->room * 2 : 1024;
		struct model_event *heap = realloc(m->heap, room * sizeof(*heap));

		if (!heap) {
			m->failed = true;
			return;
		}
		m->heap = heap;
		m->room = room;
	}
	e->seq = ++m->seq;
	for (m->events++; at && earlier(e, &m->heap[(at - 1) / 2]); at = (at - 1) / 2)
		m->heap[at] = m->heap[(at - 1) / 2];
	m->heap[at] = *e;
}

static struct model_event pop(struct model *m)
{
	struct model_event first = m->heap[0], last = m->heap[--m->events];
	uint32_t at = 0, child;

	while ((child = 2 * at + 1) < m->events) {
		if (child + 1 < m->events && earlier(&m->heap[child + 1], &m->heap[child]))
			child++;
		if (!earlier(&m->heap[child], &last))
			break;
		m->heap[at] = m->heap[child];
		at = child;
	}
	m->heap[at] = last;
	return first;
}

void model_at(struct model *m, uint64_t at_ns, model_fn *call, void *arg)
{
	struct model_event e = { .at_ns = at_ns, .call = call, .arg = arg };

	push(m, &e);
}

/* ---- the core's actions ------------------------------------------------------------------- */

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static void completed(struct model *m, const struct abi_cqe *cqe)
{
	struct model_ask ask = m->ask[cqe->user_data % MODEL_ASKS];

	m->ask[cqe->user_data % MODEL_ASKS].piece = 0;
	if (ask.done)
		ask.done(m, ask.arg, cqe);
}

static void device(struct model *m, struct model_event *e)
{
	struct core_io *io = e->action.io;
	double gbps = io->write ? m->spec.write_gbps : m->spec.read_gbps;

	m->device_free_ns = later(m->device_free_ns, m->now_ns) +
			    (uint64_t)((double)io->bytes / gbps);
	m->moved_bytes += io->bytes;
	e->at_ns = m->device_free_ns + m->spec.latency_ns;
}

static void copy(struct model *m, struct model_event *e)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < e->action.copy->count; i++)
		bytes += e->action.copy->item[i].bytes;
	m->copy_most = later(m->copy_most, bytes);
	m->channel_free_ns = later(m->channel_free_ns, m->now_ns) +
			  (uint64_t)((double)bytes / m->spec.copy_gbps);
	e->at_ns = m->channel_free_ns;
}

static void take_actions(struct model *m)
{
	struct model_event e = { .at_ns = 0 };

	while (core_action_next(m->core, &e.action)) {
		e.at_ns = m->now_ns + FENCE_NS;
		switch (e.action.kind) {
		case CORE_AC_COMPLETE:
			completed(m, &e.action.complete.cqe);
			continue;
		case CORE_AC_PREPARE:
		case CORE_AC_REPLY:
			continue;
		case CORE_AC_END:
			m->failed = true;
			continue;
		case CORE_AC_READ:
		case CORE_AC_WRITE:
			if (m->spec.drive) {
				m->moved_bytes += e.action.io->bytes;
				m->spec.drive->submit(m->spec.drive->arg, m->now_ns, e.action.io);
				continue;
			}
			device(m, &e);
			break;
		case CORE_AC_COPY:
			copy(m, &e);
			break;
		case CORE_AC_SYNC:
			e.at_ns = later(m->device_free_ns, m->now_ns) + m->spec.latency_ns;
			break;
		default:
			break;
		}
		push(m, &e);
	}
}

static void feed(struct model *m, struct core_event *e)
{
	e->now_ns = m->now_ns;
	core_event(m->core, e);
	take_actions(m);
}

static void act(struct model *m, const struct core_action *a)
{
	struct core_event e;

	if (!core_shell_at_once(a, &e)) {
		m->failed = true;
		return;
	}
	if (a->kind == CORE_AC_COPY)
		m->copy_end_ns = m->now_ns;
	else if (a->kind == CORE_AC_READ)
		m->read_end_ns = m->now_ns;
	else if (a->kind == CORE_AC_SCAN)
		core_scan(m->core);
	feed(m, &e);
}

static uint64_t due_by(const struct model *m, uint64_t next_ns, uint64_t until_ns)
{
	if (m->events && m->heap[0].at_ns < next_ns)
		next_ns = m->heap[0].at_ns;
	return next_ns < until_ns ? next_ns : until_ns;
}

/* The drive's next operation that is done by then. */
static bool from_drive(struct model *m, uint64_t until_ns)
{
	const struct model_drive *drive = m->spec.drive;
	struct core_action a = { .kind = CORE_AC_READ };
	uint64_t at_ns;

	if (!drive)
		return false;
	a.io = drive->run(drive->arg, until_ns, &at_ns);
	if (!a.io)
		return false;
	m->now_ns = later(m->now_ns, at_ns);
	act(m, &a);
	return true;
}

void model_run(struct model *m, uint64_t until_ns)
{
	struct core_event first = { .kind = CORE_EV_TICK };

	feed(m, &first); /* calls that are no events want one */
	while (!m->failed && m->now_ns < until_ns) {
		struct core_event tick = { .kind = CORE_EV_TICK };
		uint64_t next = core_next_tick(m->core);
		struct model_event e;

		next = later(next, m->now_ns + 1000);
		if (from_drive(m, due_by(m, next, until_ns)))
			continue;
		if (m->events && m->heap[0].at_ns <= next && m->heap[0].at_ns <= until_ns) {
			e = pop(m);
			m->now_ns = later(m->now_ns, e.at_ns);
			if (e.action.kind)
				act(m, &e.action);
			else
				e.call(m, e.arg, NULL);
			continue;
		}
		if (next > until_ns) {
			m->now_ns = until_ns == UINT64_MAX ? m->now_ns : until_ns;
			break;
		}
		m->now_ns = next;
		feed(m, &tick);
	}
}

/* ---- asking ------------------------------------------------------------------------------- */

void model_ask(struct model *m, const struct abi_sqe *sqe, const void *args, model_fn *done,
	       void *arg)
{
	struct core_event e = { .kind = CORE_EV_REQUEST };
	uint32_t i = 0;

	while (i < MODEL_ASKS && m->ask[i].piece)
		i++;
	if (i == MODEL_ASKS || sqe->arg_bytes > ARG_PIECE) {
		m->failed = true;
		return;
	}
	m->ask[i] = (struct model_ask){ .done = done, .arg = arg, .piece = 1 };
	e.request.sqe = *sqe;
	e.request.sqe.user_data = i;
	e.request.sqe.context_id = m->context_id;
	if (sqe->arg_bytes) {
		e.request.sqe.arg_offset = (uint64_t)i * ARG_PIECE;
		memcpy(m->staging + (size_t)i * ARG_PIECE, args, sqe->arg_bytes);
	}
	feed(m, &e);
}

static void key_of(uint32_t n, uint8_t *key)
{
	uint64_t word = n + 1;

	memset(key, 0, ABI_KEY_BYTES);
	memcpy(key, &word, sizeof(word));
	word *= 0x9e3779b97f4a7c15ull;
	memcpy(key + 8, &word, sizeof(word));
}

static void reserved(struct model *m, void *arg, const struct abi_cqe *cqe)
{
	struct abi_sqe sqe = { .op = ABI_OP_PUT_COMMIT, .handle = cqe->value };

	(void)arg;
	if (cqe->res) {
		m->failed = true;
		return;
	}
	sqe.arg_offset = MODEL_STAGING_ARGS;
	sqe.deadline_ns = m->now_ns + 3600000000000ull;
	model_ask(m, &sqe, NULL, NULL, NULL);
}

void model_put(struct model *m, uint32_t first, uint32_t count)
{
	uint8_t buf[sizeof(struct abi_put_args) + 64 * ABI_KEY_BYTES];
	struct abi_put_args *args = (struct abi_put_args *)buf;

	while (count) {
		uint32_t n = count < 64 ? count : 64;
		struct abi_sqe sqe = { .op = ABI_OP_PUT_RESERVE, .count = n };

		memset(args, 0, sizeof(*args));
		args->count = n;
		args->depth = first;
		for (uint32_t i = 0; i < n; i++)
			key_of(first + i, buf + sizeof(*args) + i * ABI_KEY_BYTES);
		sqe.arg_bytes = (uint32_t)sizeof(*args) + n * ABI_KEY_BYTES;
		sqe.deadline_ns = m->now_ns + 3600000000000ull;
		model_ask(m, &sqe, buf, reserved, NULL);
		first += n;
		count -= n;
	}
}

int model_store(struct model *m, uint32_t first, uint32_t count)
{
	uint64_t end = m->now_ns + 36000000000000ull;

	for (uint32_t at = 0; at < count; at += 64) {
		uint32_t n = count - at < 64 ? count - at : 64;
		struct core_stats st;

		model_put(m, first + at, n);
		do {
			model_run(m, m->now_ns + 20000000);
			core_stats(m->core, &st);
		} while (!m->failed && m->now_ns < end &&
			 (st.tier[ABI_TIER_CXL].dirty || st.copies));
	}
	return m->failed || m->now_ns >= end ? -EIO : 0;
}

bool model_block(struct model *m, uint32_t n, struct abi_block_ref *ref)
{
	struct core_location at;
	uint8_t key[ABI_KEY_BYTES];

	key_of(n, key);
	if (core_locate(m->core, m->context_id, key, &at) ||
	    at.block.state != ABI_BLOCK_COMMITTED)
		return false;
	*ref = (struct abi_block_ref){ at.slot, at.block.generation };
	return true;
}

bool model_there(struct model *m, struct abi_block_ref ref, uint32_t layer, uint32_t tier)
{
	const struct abi_index_header *h = (const struct abi_index_header *)m->index;
	const struct abi_page *page = (const struct abi_page *)(m->index + h->desc_offset);

	return abi_word_state(page[(uint64_t)ref.slot * m->spec.layers + layer].word[tier]) ==
	       ABI_PAGE_READY;
}

void model_read(struct model *m, struct abi_block_ref ref, uint32_t pages)
{
	struct abi_reader *r = m->reader;

	r->access[r->access_tail++ % ABI_ACCESS_LOG] = abi_access(m->context_id, ref.slot, pages);
}

uint64_t model_block_bytes(const struct model *m)
{
	return (uint64_t)m->spec.layers * m->spec.page_bytes;
}

/* ---- open, close -------------------------------------------------------------------------- */

static void *addresses(uint64_t bytes, int prot)
{
	void *p = mmap(NULL, bytes, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static void context_spec(const struct model_spec *spec, struct disk_context *d)
{
	struct abi_geometry *g = &d->geometry;
	struct abi_part *p = &g->part[0];

	memset(d, 0, sizeof(*d));
	memcpy(d->name, "model", 6);
	if (spec->policy)
		memcpy(d->policy, spec->policy, strlen(spec->policy));
	d->mode = 0600;
	d->kind = 1;
	g->block_tokens = 128;
	g->page_align = 4096;
	g->part_count = 1;
	memcpy(p->name, "kv", 3);
	p->kind = ABI_KIND_DENSE;
	p->hit_rule = ABI_HIT_EVERY;
	p->shard_rule = ABI_SHARD_REPLICATED;
	p->layers = spec->layers;
	p->groups = 1;
	p->page_bytes = p->page_stride = spec->page_bytes;
	g->pages_per_block = spec->layers;
	g->block_bytes = (uint64_t)spec->layers * spec->page_bytes;
}

static int context_open(struct model *m)
{
	struct core_context_plan plan;
	struct core_context_memory memory = { .index = NULL };
	struct core_context_view view;
	struct disk_context spec;
	char why[128];
	int err;

	context_spec(&m->spec, &spec);
	err = core_context_plan(m->core, &spec, &plan, why, sizeof(why));
	if (err)
		return err;
	memory.index = m->index = addresses(plan.index_bytes, PROT_READ | PROT_WRITE);
	m->index_bytes = plan.index_bytes;
	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++)
		if (plan.mem_bytes[t])
			memory.mem[t] = addresses(plan.mem_bytes[t], PROT_NONE);
	if (!memory.index || !memory.mem[ABI_TIER_CXL])
		return -ENOMEM;
	err = core_context_create(m->core, &spec, &memory, 1, &m->context_id);
	model_run(m, m->now_ns + 1000000000);
	if (!err)
		err = core_context_find(m->core, "model", 0, 0, &view);
	return err ? err : core_context_attach(m->core, 0, &view);
}

static int client_open(struct model *m)
{
	struct core_event e = { .kind = CORE_EV_CLIENT_OPEN };

	m->staging = addresses(MODEL_STAGING, PROT_READ | PROT_WRITE);
	m->reader = calloc(1, sizeof(*m->reader));
	m->stream = calloc(MODEL_STREAMS, sizeof(*m->stream));
	if (!m->staging || !m->reader || !m->stream)
		return -ENOMEM;
	e.open = (struct core_client_open){
		.operator_ = true,
		.staging = m->staging,
		.staging_bytes = MODEL_STAGING,
		.readers = m->reader,
		.readers_max = 1,
		.streams = m->stream,
		.streams_max = MODEL_STREAMS,
	};
	feed(m, &e);
	return 0;
}

int model_open(struct model **out, const struct model_spec *spec)
{
	struct core_config config = {
		.boot_token = 1ull << 40,
		.capacity = { spec->hbm_bytes, spec->cxl_bytes, spec->nvme_bytes },
		.direct = spec->direct,
		.admit_all = true, /* what is stored is not what is measured */
	};
	struct model *m = calloc(1, sizeof(*m));
	int err = m ? 0 : -ENOMEM;

	*out = m;
	if (!err && spec->nvme_bytes)
		err = store_super_plan(&config.super, spec->nvme_bytes, 1ull << 30, 0x7e57);
	if (err)
		return err;
	if (spec->nvme_bytes)
		disk_super_seal(&config.super);
	m->spec = *spec;
	m->now_ns = 1000000000;
	err = core_open(&m->core, &config);
	if (!err)
		err = client_open(m);
	return err ? err : context_open(m);
}

void model_close(struct model *m)
{
	if (!m)
		return;
	core_close(m->core);
	if (m->staging)
		munmap(m->staging, MODEL_STAGING);
	if (m->index)
		munmap(m->index, m->index_bytes);
	free(m->reader);
	free(m->stream);
	free(m->heap);
	free(m);
}
