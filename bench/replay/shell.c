/* SPDX-License-Identifier: Apache-2.0 */
/* The real core under a shell that is done at once; see shell.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench/policy/policy.h"
#include "bench/replay/shell.h"
#include "tests/lib/core_shell.h"
#include "tierd/core/state.h"

#define ARGS_BYTES ABI_ARG_BYTES_MAX /* the bytes of a put follow */
#define STORE_ID 0x7e57u
#define FETCH_BLOCKS 64u /* read in one piece */
#define MATCH_AHEAD 8u /* keys whose lines are brought before their look-up, as libtier has it */
#define TICK_NS 10000000u   /* its slow ticks */
#define WAIT_TICKS 1000u    /* for what is to be durable */
#define PACE_NS 20000000u   /* of prompts, if nothing is said: its slow tick comes */

struct shell {
	struct core *core;
	struct shell_options set;
	uint64_t staging_bytes;
	uint64_t now_ns;
	struct core_context_plan plan;
	struct core_context_memory memory;
	struct context *context;
	struct policy_ops policy;
	struct abi_reader *reader;
	uint8_t *staging;
	struct abi_cqe last; /* completion */
	uint64_t completions;
	uint64_t fetched_blocks, device_bytes;
	int error;
};

/* ---- a shell that is done at once ---------------------------------------------------------- */

static void feed(struct shell *s, struct core_event *e)
{
	e->now_ns = s->now_ns;
	core_event(s->core, e);
}

static void pump(struct shell *s)
{
	struct core_action a;
	struct core_event e;

	while (core_action_next(s->core, &a)) {
		if (a.kind == CORE_AC_COMPLETE) {
			s->last = a.complete.cqe;
			s->completions++;
		} else if (a.kind == CORE_AC_END) {
			s->error = a.end.error;
		} else if (core_shell_at_once(&a, &e)) {
			if (a.kind == CORE_AC_SCAN)
				core_scan(s->core);
			s->device_bytes += a.kind == CORE_AC_WRITE ? a.io->bytes : 0;
			feed(s, &e);
		}
	}
}

/* ---- life ---------------------------------------------------------------------------------- */

/* Addresses without memory behind them. */
static void *addresses(uint64_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return at == MAP_FAILED ? NULL : at;
}

static void *zeroes(uint64_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return at == MAP_FAILED ? NULL : at;
}

static void spec_make(struct disk_context *spec, const struct shell_options *set)
{
	struct abi_part *part = &spec->geometry.part[0];

	memset(spec, 0, sizeof(*spec));
	snprintf(spec->name, sizeof(spec->name), "replay");
	spec->mode = 0600;
	spec->kind = 1;
	spec->quota[ABI_TIER_CXL] = set->bytes;
	spec->quota[ABI_TIER_NVME] = set->nvme_quota;
	spec->geometry.block_tokens = set->block_tokens;
	spec->geometry.page_align = ABI_PAGE_ALIGN;
	spec->geometry.part_count = 1;
	spec->geometry.pages_per_block = 1;
	spec->geometry.block_bytes = set->page_bytes;
	snprintf(part->name, sizeof(part->name), "pages");
	part->kind = ABI_KIND_DENSE;
	part->hit_rule = ABI_HIT_EVERY;
	part->shard_rule = ABI_SHARD_GROUPS;
	part->layers = part->groups = 1;
	part->page_bytes = part->page_stride = set->page_bytes;
}

static int context_make(struct shell *s)
{
	struct disk_context spec;
	char why[128] = "";
	uint32_t id;
	int error;

	if (!bench_policy_find(s->set.policy, &s->policy)) {
		fprintf(stderr, "tierbench: replay: no policy \"%s\"\n", s->set.policy);
		return -EINVAL;
	}
	spec_make(&spec, &s->set);
	error = core_context_plan(s->core, &spec, &s->plan, why, sizeof(why));
	if (error) {
		fprintf(stderr, "tierbench: replay: %s\n", why);
		return error;
	}
	s->memory.index = zeroes(s->plan.index_bytes);
	s->memory.mem[ABI_TIER_CXL] = addresses(s->plan.mem_bytes[ABI_TIER_CXL]);
	if (!s->memory.index || !s->memory.mem[ABI_TIER_CXL])
		return -ENOMEM;
	error = core_context_create(s->core, &spec, &s->memory, 1, &id);
	if (error)
		return error;
	s->context = core_context(s->core, id);
	return bench_policy_use(s->context, &s->policy);
}

static int client_make(struct shell *s)
{
	struct core_event e = { .kind = CORE_EV_CLIENT_OPEN };
	struct core_context_view view;
	int error;

	s->reader = zeroes(sizeof(*s->reader));
	s->staging = addresses(s->staging_bytes);
	if (!s->reader || !s->staging || mprotect(s->staging, ARGS_BYTES, PROT_READ | PROT_WRITE))
		return -ENOMEM;
	e.open = (struct core_client_open){
		.staging = s->staging,
		.staging_bytes = s->staging_bytes,
		.readers = s->reader,
		.readers_max = 1,
	};
	feed(s, &e);
	pump(s);
	error = core_context_find(s->core, "replay", 0, 0, &view);
	return error ? error : core_context_attach(s->core, 0, &view);
}

int shell_open(struct shell **out, const struct shell_options *options)
{
	struct core_config config = {
		.boot_token = 1,
		.capacity = { 0, options->bytes, options->nvme_bytes },
		.next_uid = 1,
		.admit_all = options->admit_all,
	};
	struct shell *s = calloc(1, sizeof(*s));
	int error = 0;

	if (!s)
		return -ENOMEM;
	s->set = *options;
	if (!s->set.pace_ns)
		s->set.pace_ns = PACE_NS;
	s->now_ns = 1;
	s->staging_bytes = ARGS_BYTES + (uint64_t)options->put_blocks * options->page_bytes;
	if (options->nvme_bytes)
		error = store_super_plan(&config.super, options->nvme_bytes,
					 options->nvme_segment, STORE_ID);
	if (options->nvme_bytes && !error)
		disk_super_seal(&config.super);
	if (!error)
		error = core_open(&s->core, &config);
	if (!error)
		error = context_make(s);
	if (!error)
		error = client_make(s);
	if (error)
		shell_close(s);
	else
		*out = s;
	return error;
}

void shell_close(struct shell *s)
{
	if (!s)
		return;
	core_close(s->core);
	if (s->memory.index)
		munmap(s->memory.index, s->plan.index_bytes);
	if (s->memory.mem[ABI_TIER_CXL])
		munmap(s->memory.mem[ABI_TIER_CXL], s->plan.mem_bytes[ABI_TIER_CXL]);
	if (s->reader)
		munmap(s->reader, sizeof(*s->reader));
	if (s->staging)
		munmap(s->staging, s->staging_bytes);
	free(s);
}

void shell_counts(const struct shell *s, struct shell_counts *out)
{
	struct core_context_stats st;

	core_context_stats(s->core, s->context->id, &st);
	*out = (struct shell_counts){
		.put_blocks = s->core->metrics.blocks_committed,
		.dropped_blocks = s->core->metrics.dropped_blocks,
		.access_lost = s->core->metrics.access_lost,
		.fetched_blocks = s->fetched_blocks,
		.device_bytes = s->device_bytes,
		.stored_bytes = st.tier[ABI_TIER_NVME].live,
	};
}

/* ---- the client ---------------------------------------------------------------------------- */

static void wait_tick(struct shell *s)
{
	struct core_event e = { .kind = CORE_EV_TICK };

	s->now_ns += TICK_NS;
	feed(s, &e);
	pump(s);
}

/*
 * Those behind a block that left follow it, later where the put in between still has them; what
 * they held is room when their batch has been scanned.
 */
static void settle(struct shell *s)
{
	while (s->core->dropped.parents_leaving.count || s->core->dropped.waiting.count ||
	       s->context->retiring[ABI_TIER_CXL])
		wait_tick(s);
}

static int ask(struct shell *s, const struct abi_sqe *sqe)
{
	struct core_event e = { .kind = CORE_EV_REQUEST };
	uint64_t before = s->completions;

	e.request.sqe = *sqe;
	feed(s, &e);
	pump(s);
	for (uint32_t n = 0; s->set.durable && s->completions == before && n < WAIT_TICKS; n++)
		wait_tick(s);
	if (s->error || s->completions == before)
		return s->error ? s->error : -ETIMEDOUT; /* nothing is left that could answer */
	return s->last.res;
}

static void fetch(struct shell *s, uint32_t count)
{
	struct abi_sqe sqe = {
		.op = ABI_OP_FETCH,
		.klass = ABI_CLASS_DEMAND,
		.context_id = s->context->id,
		.arg_bytes = count * (uint32_t)sizeof(struct abi_block_ref),
		.count = count,
		.tier = ABI_TIER_CXL,
	};

	ask(s, &sqe);
}

/* As shell_read; what needs to be fetched goes from where its first such block is. */
static uint32_t read_piece(struct shell *s, const uint8_t (*key)[32], uint32_t count)
{
	struct abi_block_ref *ref = (struct abi_block_ref *)s->staging;
	const struct index *ix = &s->context->ix;
	uint32_t n = 0, absent = 0;

	for (uint32_t i = 0; i < count && i < MATCH_AHEAD; i++)
		index_prefetch(ix, key[i]);
	for (; n < count; n++) {
		uint32_t slot = index_find(ix, key[n]);

		if (n + MATCH_AHEAD < count)
			index_prefetch(ix, key[n + MATCH_AHEAD]);
		if (slot == ABI_SLOT_NONE || index_block(ix, slot)->state != ABI_BLOCK_COMMITTED)
			break;
		ref[n] = (struct abi_block_ref){ slot, index_block(ix, slot)->generation };
		absent += page_state(index_page(ix, slot, 0), ABI_TIER_CXL) != ABI_PAGE_READY;
	}
	if (absent)
		fetch(s, n);
	s->fetched_blocks += absent;
	for (uint32_t i = 0; i < n; i++)
		s->reader->access[s->reader->access_tail++ % ABI_ACCESS_LOG] =
			abi_access(s->context->id, ref[i].slot, 1);
	return n;
}

uint32_t shell_read(struct shell *s, const uint8_t (*key)[32], uint32_t count)
{
	struct core_event e = { .kind = CORE_EV_TICK };

	s->now_ns += s->set.pace_ns;
	feed(s, &e);
	pump(s);
	for (uint32_t at = 0; at < count; at += FETCH_BLOCKS) {
		uint32_t n = count - at < FETCH_BLOCKS ? count - at : FETCH_BLOCKS;
		uint32_t there = read_piece(s, key + at, n);

		if (there < n)
			return at + there;
	}
	return count;
}

int shell_put(struct shell *s, const uint8_t (*key)[32], uint32_t first, uint32_t count)
{
	struct abi_put_args *args = (struct abi_put_args *)s->staging;
	struct abi_sqe sqe = {
		.op = ABI_OP_PUT_RESERVE,
		.klass = ABI_CLASS_DEMAND,
		.context_id = s->context->id,
		.arg_bytes = (uint32_t)(sizeof(*args) + (size_t)count * ABI_KEY_BYTES),
		.count = count,
	};
	int error;

	if (!count || count > s->set.put_blocks)
		return -EINVAL;
	sqe.flags = s->set.durable ? ABI_SQE_DURABLE : 0;
	memset(args, 0, sizeof(*args));
	args->count = count;
	args->depth = first;
	if (first)
		memcpy(args->parent, key[first - 1], ABI_KEY_BYTES);
	memcpy(args + 1, key[first], (size_t)count * ABI_KEY_BYTES);
	error = ask(s, &sqe);
	if (error)
		return error;
	sqe.op = ABI_OP_PUT_COMMIT;
	sqe.handle = s->last.value;
	sqe.arg_offset = ARGS_BYTES;
	sqe.arg_bytes = sqe.count = 0;
	error = ask(s, &sqe);
	settle(s);
	return error == -ENOSPC ? 0 : error;
}

int shell_delete(struct shell *s, const uint8_t (*key)[32], uint32_t count)
{
	struct abi_sqe sqe = {
		.op = ABI_OP_DELETE,
		.klass = ABI_CLASS_DEMAND,
		.flags = ABI_SQE_DURABLE | ABI_SQE_KEYS,
		.context_id = s->context->id,
		.arg_bytes = count * ABI_KEY_BYTES,
		.count = count,
	};

	memcpy(s->staging, key, sqe.arg_bytes);
	return ask(s, &sqe);
}
