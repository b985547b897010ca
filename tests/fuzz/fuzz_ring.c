/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ring entries: the input is a list of commands to clients of a real core. Some entries are what a
 * client library would write, some are 64 arbitrary bytes; arguments lie in staging, where commands
 * scribble; actions are carried out at once or one by one in any order; devices fail, clients die,
 * owners raise epochs and remove contexts in between.
 *
 * Must hold: no assertion, no stray byte, each request answered exactly once, all sums right, and
 * nothing left when everybody has gone.
 */
#include "tests/fuzz/host.h"

#define MSEC 1000000ull
#define ASKS 512u
#define HANDLES 16u
#define ARGS (HOST_STAGING - (64u << 10)) /* well-formed arguments lie here, data before */

enum command { RAW, RESERVE, COMMIT, FETCH, PAGES, PIN, DELETE, BY_HANDLE, SCRIBBLE, CARRY, HOLD,
	       TICK, FAULT, DEATH, OWNER, HAZARD, ACCESS, COMMANDS,
	       AHEAD = 30, /* apart, so that the bytes of older inputs mean what they meant */
	       STREAM };

struct ask {
	uint32_t client; /* + 1; 0 = none, or its client has gone */
	uint32_t op;
	uint32_t answers;
	uint64_t deadline_ns;
};

static struct {
	struct host host;
	struct ask ask[ASKS];
	uint32_t asks;
	uint64_t handle[HANDLES]; /* of puts, pins, plans and reservations */
	uint32_t handles;
	bool ended[HOST_CLIENTS];
} ring;

static const uint32_t kind_of[] = { HOST_KIND_LARGE, HOST_KIND_MEMORY };

/* ---- answers ------------------------------------------------------------------------------ */

static void complete(void *arg, uint32_t client, const struct abi_cqe *cqe)
{
	struct ask *a = &ring.ask[cqe->user_data];

	(void)arg;
	FUZZ_CHECK(cqe->user_data < ring.asks && a->client == client + 1);
	FUZZ_CHECK(a->answers++ == 0);
	FUZZ_CHECK(cqe->res <= 0 && cqe->res > -4096);
	if (cqe->res == 0 && cqe->value &&
	    (a->op == ABI_OP_PUT_RESERVE || a->op == ABI_OP_PIN || a->op == ABI_OP_PLAN ||
	     a->op == ABI_OP_RESERVE))
		ring.handle[ring.handles++ % HANDLES] = cqe->value;
}

static void end(void *arg, uint32_t client, int32_t error, const char *why)
{
	(void)arg;
	FUZZ_CHECK(client < HOST_CLIENTS && error < 0 && why && why[0]);
	ring.ended[client] = true;
}

static void ask(uint32_t client, struct abi_sqe *sqe)
{
	if (ring.asks == ASKS || ring.host.client[client].state != 1)
		return;
	sqe->user_data = ring.asks;
	ring.ask[ring.asks] = (struct ask){ client + 1, sqe->op, 0, sqe->deadline_ns };
	ring.asks++;
	if (!host_request(&ring.host, client, sqe))
		ring.ask[--ring.asks].client = 0;
}

/* No answer is owed to a client that has gone. */
static void forget(uint32_t client)
{
	for (uint32_t i = 0; i < ring.asks; i++)
		if (ring.ask[i].client == client + 1)
			ring.ask[i].client = 0;
}

static void leave(uint32_t client)
{
	forget(client);
	host_client_gone(&ring.host, client);
}

/* ---- entries a client library would write -------------------------------------------------- */

static void key_of(uint32_t n, uint8_t key[ABI_KEY_BYTES])
{
	memset(key, 0, ABI_KEY_BYTES);
	for (uint32_t i = 0; i < 8; i++) /* some collide in their bucket */
		key[i] = (uint8_t)(n % 5 + 1);
	memcpy(key + 16, &n, sizeof(n));
}

/* Common members: context, class, deadline, where the arguments are. */
static struct abi_sqe entry(struct fuzz_input *in, uint8_t op, uint32_t count)
{
	uint8_t a = fuzz_u8(in), when = fuzz_u8(in);
	const struct host_context *x = &ring.host.context[a % 2];
	struct abi_sqe sqe = { .op = op, .klass = a >> 1 & 7, .count = count };

	if (sqe.klass >= ABI_CLASS_COUNT)
		sqe.klass = 0;
	sqe.context_id = a >> 5 == 7 ? a : x->id;
	sqe.arg_offset = a >> 5 == 6 ? HOST_STAGING - 64 * (when & 7u) : ARGS;
	sqe.deadline_ns = when ? ring.host.now_ns + when * MSEC : 0;
	sqe.flags = a & 16 ? ABI_SQE_DURABLE : 0;
	return sqe;
}

static void do_reserve(struct fuzz_input *in, uint32_t client)
{
	uint32_t first = fuzz_u8(in), count = 1 + fuzz_u8(in) % 20;
	struct abi_sqe sqe = entry(in, ABI_OP_PUT_RESERVE, count);
	uint8_t *at = ring.host.client[client].staging + ARGS;
	uint8_t shards = fuzz_u8(in);
	struct abi_put_args args = {
		.salt = fuzz_u8(in),
		.parts = fuzz_u8(in) & 7,
		.count = count,
		.depth = first,
		.shard = shards >> 4 & 3,
		.shards = shards & 3,
	};

	if (first)
		key_of(first - 1, args.parent);
	memcpy(at, &args, sizeof(args));
	for (uint32_t i = 0; i < count; i++)
		key_of(first + i, at + sizeof(args) + i * ABI_KEY_BYTES);
	sqe.arg_bytes = (uint32_t)sizeof(args) + count * ABI_KEY_BYTES;
	ask(client, &sqe);
}

static void do_by_handle(struct fuzz_input *in, uint32_t client, uint8_t op)
{
	struct abi_sqe sqe = entry(in, op, 0);

	sqe.flags = 0;
	sqe.handle = ring.handle[fuzz_u8(in) % HANDLES];
	sqe.arg_offset = fuzz_u8(in) * 512ull;
	if (op == ABI_OP_CANCEL)
		sqe.handle = fuzz_u8(in) % ASKS;
	ask(client, &sqe);
}

/* Blocks by key, or by a reference that may be right. */
static void do_blocks(struct fuzz_input *in, uint32_t client, uint8_t op)
{
	uint32_t first = fuzz_u8(in), count = 1 + fuzz_u8(in) % 40;
	struct abi_sqe sqe = entry(in, op, count);
	uint8_t *at = ring.host.client[client].staging + ARGS;
	uint8_t how = fuzz_u8(in);
	bool keys = op == ABI_OP_DELETE || how & 1;

	for (uint32_t i = 0; i < count; i++) {
		struct abi_block_ref ref = { first + i, 1 + (how >> 4) };

		if (keys)
			key_of(first + i, at + i * ABI_KEY_BYTES);
		else
			memcpy(at + i * sizeof(ref), &ref, sizeof(ref));
	}
	sqe.flags |= keys ? ABI_SQE_KEYS : 0;
	sqe.arg_bytes = count * (uint32_t)(keys ? ABI_KEY_BYTES : sizeof(struct abi_block_ref));
	sqe.tier = how >> 1 & 1;
	sqe.part_first = how >> 2 & 3;
	sqe.part_count = how >> 3 & 1;
	ask(client, &sqe);
}

/* A turn of one of four conversations, with any times. */
static void do_conversation(struct fuzz_input *in, uint32_t client)
{
	uint32_t first = fuzz_u8(in), count = 1 + fuzz_u8(in) % 40;
	struct abi_sqe sqe = entry(in, ABI_OP_CONVERSATION, count);
	uint8_t *at = ring.host.client[client].staging + ARGS;
	uint8_t how = fuzz_u8(in), when = fuzz_u8(in);
	struct abi_conversation_args args = { .salt = how & 3, .layer_ns = fuzz_u64(in) };

	args.return_ns = when & 128 ? fuzz_u64(in) : ring.host.now_ns + when * MSEC;
	memcpy(at, &args, sizeof(args));
	for (uint32_t i = 0; i < count; i++) {
		struct abi_block_ref ref = { first + i, 1 + (how >> 6) };

		memcpy(at + sizeof(args) + i * sizeof(ref), &ref, sizeof(ref));
	}
	sqe.flags = 0;
	sqe.mode = ABI_CONVERSATION_TURN_END + how % 3;
	sqe.handle = how >> 2 & 3;
	sqe.tier = how >> 4 & 1;
	sqe.part_first = when & 3;
	sqe.part_count = when >> 2 & 3;
	sqe.count = sqe.mode == ABI_CONVERSATION_TURN_END ? count : 0;
	sqe.arg_bytes = sqe.count ? (uint32_t)(sizeof(args) + count * sizeof(struct abi_block_ref))
				  : 0;
	ask(client, &sqe);
}

/* A plan of any budget and pace, more of one, or its end; its position is anywhere, anything. */
static void do_plan(struct fuzz_input *in, uint32_t client)
{
	uint32_t first = fuzz_u8(in), count = 1 + fuzz_u8(in) % 40;
	struct abi_sqe sqe = entry(in, ABI_OP_PLAN, count);
	uint8_t *at = ring.host.client[client].staging + ARGS;
	uint8_t how = fuzz_u8(in), step = fuzz_u8(in);
	struct abi_plan_args args = { .position_offset = step * 2ull,
				      .budget_bytes = fuzz_u16(in) * 4096ull };
	size_t head = how % 3 == 0 ? sizeof(args) : 0;

	args.access_ns = how & 64 ? fuzz_u64(in) : step;
	args.start_ns = how & 128 ? ring.host.now_ns : 0;
	memcpy(at, &args, sizeof(args));
	memset(ring.host.client[client].staging + args.position_offset, how >> 3, 1);
	for (uint32_t i = 0; i < count; i++) {
		struct abi_access access = { { first + i * step % 11, 1 }, i * step, 0 };

		memcpy(at + head + i * sizeof(access), &access, sizeof(access));
	}
	sqe.flags = 0;
	sqe.mode = ABI_PLAN_BEGIN + how % 3;
	sqe.tier = how >> 3 & 1;
	sqe.handle = ring.handle[how >> 4];
	sqe.count = sqe.mode == ABI_PLAN_END ? 0 : count;
	sqe.arg_bytes = sqe.count ? (uint32_t)(head + count * sizeof(struct abi_access)) : 0;
	ask(client, &sqe);
}

/* Room for puts to come, or back. */
static void do_room(struct fuzz_input *in, uint32_t client)
{
	struct abi_sqe sqe = entry(in, ABI_OP_RESERVE, 1);
	uint8_t how = fuzz_u8(in);
	struct abi_reserve_args args = { .expected = fuzz_u8(in), .p95 = fuzz_u16(in),
					 .step = fuzz_u8(in), .role = how & 3,
					 .prompt_tokens = fuzz_u16(in) };

	memcpy(ring.host.client[client].staging + ARGS, &args, sizeof(args));
	sqe.flags = 0;
	sqe.handle = how & 4 ? ring.handle[how >> 4] : 0;
	sqe.arg_bytes = sqe.handle ? 0 : sizeof(args);
	ask(client, &sqe);
}

static void do_ahead(struct fuzz_input *in, uint32_t client)
{
	switch (fuzz_u8(in) % 5) {
	case 0:
		do_blocks(in, client, ABI_OP_PREFETCH);
		break;
	case 1:
		do_blocks(in, client, ABI_OP_MIGRATE);
		break;
	case 2:
		do_conversation(in, client);
		break;
	case 3:
		do_plan(in, client);
		break;
	default:
		do_room(in, client);
	}
}

/* A stream of any tier on any line; or the client's word on one, about layers or nonsense. */
static void do_stream(struct fuzz_input *in, uint32_t client)
{
	uint32_t first = fuzz_u8(in), count = 1 + fuzz_u8(in) % 40;
	struct abi_sqe sqe = entry(in, ABI_OP_STREAM, count);
	uint8_t *at = ring.host.client[client].staging + ARGS;
	uint8_t how = fuzz_u8(in), word = fuzz_u8(in);
	struct abi_stream *line = &ring.host.client[client].lines[how % HOST_LINES];

	if (word & 1) {
		line->released = word & 2 ? fuzz_u64(in) : abi_stream_released(word >> 5, first);
		line->wait = count;
		return;
	}
	for (uint32_t i = 0; i < count; i++)
		key_of(first + i, at + i * ABI_KEY_BYTES);
	sqe.flags |= ABI_SQE_KEYS;
	sqe.arg_bytes = count * ABI_KEY_BYTES;
	sqe.stream = how % (HOST_LINES + 1);
	sqe.tier = how & 128 ? how : how >> 2 & 1;
	sqe.mode = how >> 3 & 3;
	sqe.generation = word >> 5;
	sqe.handle = (word >> 1 & 15) * 4096ull * count;
	line->released = abi_stream_released(sqe.generation, 0);
	ask(client, &sqe);
}

static void do_pages(struct fuzz_input *in, uint32_t client)
{
	uint32_t first = fuzz_u8(in), count = 1 + fuzz_u8(in) % 80;
	struct abi_sqe sqe = entry(in, ABI_OP_FETCH_PAGES, count);
	uint8_t *at = ring.host.client[client].staging + ARGS;
	uint8_t how = fuzz_u8(in);

	for (uint32_t i = 0; i < count; i++) {
		struct abi_page_ref ref = { first + i / 4, 1 + (how >> 4), i % (4 + (how >> 3 & 1)),
					    how >> 2 & 1 };

		memcpy(at + i * sizeof(ref), &ref, sizeof(ref));
	}
	sqe.arg_bytes = count * (uint32_t)sizeof(struct abi_page_ref);
	sqe.tier = how & 1;
	ask(client, &sqe);
}

/* ---- everything else ----------------------------------------------------------------------- */

static void do_raw(struct fuzz_input *in, uint32_t client)
{
	struct abi_sqe sqe;

	fuzz_take(in, &sqe, sizeof(sqe));
	ask(client, &sqe);
}

static void do_scribble(struct fuzz_input *in, uint32_t client)
{
	uint32_t offset = ARGS + fuzz_u16(in) % 4096u, bytes = fuzz_u8(in);

	fuzz_take(in, ring.host.client[client].staging + offset, bytes);
}

static void do_owner(struct fuzz_input *in)
{
	struct host *h = &ring.host;
	uint8_t what = fuzz_u8(in);
	uint32_t i = what & 1;
	struct host_context *x = &h->context[i];
	struct disk_context spec;

	host_spec(&spec, kind_of[i], i);
	if (!x->made) {
		host_context_make(h, i, &spec);
	} else if (what >> 4 == 0) {
		host_context_remove(h, i);
	} else if (!x->removing && what >> 4 < 4) {
		core_context_epoch(h->core, x->id, what >> 4 == 1 ? fuzz_u64(in) : 0, 2);
	} else if (!x->removing) {
		core_evict(h->core, x->id, what >> 1 & 1, fuzz_u16(in) * 4096ull, 3);
	}
	if (what >> 4 == 15)
		core_drain(h->core, 4);
	host_tick(h, 0);
	for (uint32_t k = 0; k < HOST_CLIENTS; k++)
		host_client_attach(h, k);
}

static void do_death(struct fuzz_input *in, uint32_t client)
{
	uint8_t how = fuzz_u8(in);

	leave(client);
	if (how & 1)
		host_client_dead(&ring.host, client);
	if (how & 2) {
		host_client_open(&ring.host, client);
		host_client_attach(&ring.host, client);
	}
}

/* A word in a reader's slots: of a place that exists, or any. */
static void do_hazard(struct fuzz_input *in, uint32_t client)
{
	uint8_t how = fuzz_u8(in);
	struct abi_reader *r = &ring.host.client[client].readers[how & 1];
	const struct host_context *x = &ring.host.context[how >> 1 & 1];
	uint32_t slot = fuzz_u16(in) % ABI_HAZARD_SLOTS;
	const struct abi_index_header *header = x->index;
	uint64_t raw = fuzz_u64(in);

	if (!x->made || how & 4) {
		r->slot[slot] = raw;
	} else {
		const struct abi_page *page = (const void *)((const uint8_t *)x->index +
							     header->desc_offset);
		uint64_t n = raw % (header->blocks_max * header->pages_per_block);
		uint32_t tier = how >> 3 & 1;

		r->slot[slot] = abi_place(x->id, tier, page[n].word[tier]);
	}
	r->high_water = how & 32 ? (uint32_t)(raw >> 20) : slot + 1;
}

static void do_access(struct fuzz_input *in, uint32_t client)
{
	struct abi_reader *r = &ring.host.client[client].readers[0];
	uint8_t count = fuzz_u8(in);
	uint64_t word = fuzz_u64(in);

	for (uint32_t i = 0; i < count; i++)
		r->access[r->access_tail++ % ABI_ACCESS_LOG] = word + i * 0x10001ull;
	if (count == 255)
		r->access_tail = word;
}

static void do_ask(struct fuzz_input *in, enum command command, uint32_t client)
{
	static const uint8_t handles[] = { ABI_OP_PUT_ABORT, ABI_OP_UNPIN, ABI_OP_CANCEL,
					   ABI_OP_DRAIN };

	switch (command) {
	case RAW:
		do_raw(in, client);
		break;
	case RESERVE:
		do_reserve(in, client);
		break;
	case COMMIT:
		do_by_handle(in, client, ABI_OP_PUT_COMMIT);
		break;
	case FETCH:
		do_blocks(in, client, ABI_OP_FETCH);
		break;
	case PAGES:
		do_pages(in, client);
		break;
	case PIN:
		do_blocks(in, client, ABI_OP_PIN);
		break;
	case DELETE:
		do_blocks(in, client, ABI_OP_DELETE);
		break;
	case AHEAD:
		do_ahead(in, client);
		break;
	case STREAM:
		do_stream(in, client);
		break;
	default:
		do_by_handle(in, client, handles[fuzz_u8(in) % sizeof(handles)]);
	}
}

static void do_world(struct fuzz_input *in, enum command command, uint32_t client)
{
	struct host *h = &ring.host;

	switch (command) {
	case SCRIBBLE:
		do_scribble(in, client);
		break;
	case CARRY:
		host_carry(h, h->bag_count ? fuzz_u8(in) % h->bag_count : 0);
		break;
	case HOLD:
		h->held = !h->held;
		if (!h->held)
			host_carry_all(h);
		break;
	case TICK:
		host_tick(h, fuzz_u8(in) * (MSEC / 2));
		break;
	case FAULT:
		h->fault = fuzz_u8(in) & 3;
		break;
	case DEATH:
		do_death(in, client);
		break;
	case OWNER:
		do_owner(in);
		break;
	case HAZARD:
		do_hazard(in, client);
		break;
	default:
		do_access(in, client);
	}
}

/* ---- the run ------------------------------------------------------------------------------ */

static void begin(void)
{
	struct host *h = &ring.host;
	struct disk_context spec;

	h->discard = true;
	host_boot(h, NULL);
	ring.asks = ring.handles = 0;
	memset(ring.handle, 0, sizeof(ring.handle));
	for (uint32_t i = 0; i < 2; i++) {
		host_spec(&spec, kind_of[i], i);
		FUZZ_CHECK(host_context_make(h, i, &spec) == 0);
	}
	for (uint32_t i = 0; i < 2; i++) {
		host_client_open(h, i);
		host_client_attach(h, i);
	}
}

/* Orders wait for others, who may have asked for a deadline beyond the end. */
static bool is_owed(const struct ask *a)
{
	return a->client && a->deadline_ns < ring.host.now_ns && a->op != ABI_OP_DRAIN &&
	       a->op != ABI_OP_CANCEL;
}

/* Everyone waits for his answers; then all go. */
static void finish(void)
{
	struct host *h = &ring.host;

	h->held = false;
	h->fault = HOST_WELL;
	for (uint32_t i = 0; i < 8; i++) {
		host_carry_all(h);
		host_tick(h, 300 * MSEC);
	}
	for (uint32_t i = 0; i < ring.asks; i++) {
		if (!is_owed(&ring.ask[i]) || ring.ask[i].answers == 1)
			continue;
		fprintf(stderr, "request %u: op %u, %u answers, client %u\n", i, ring.ask[i].op,
			ring.ask[i].answers, ring.ask[i].client - 1);
		FUZZ_CHECK(!"each request is answered once, by its deadline");
	}
	host_audit(h);
	ring.asks = 0;
	host_empty(h);
	host_halt(h);
}

void fuzz_open(void)
{
	host_init(&ring.host);
	ring.host.ears = (struct host_ears){ .complete = complete, .end = end };
}

void fuzz_one(struct fuzz_input *in)
{
	begin();
	for (uint32_t n = 1; in->left; n++) {
		uint8_t byte = fuzz_u8(in);
		enum command command = byte % 32 < AHEAD ? byte % 32 % COMMANDS : byte % 32;
		uint32_t client = byte >> 5 & 1;

		if (command <= BY_HANDLE || command >= AHEAD)
			do_ask(in, command, client);
		else
			do_world(in, command, client);
		for (uint32_t i = 0; i < HOST_CLIENTS; i++)
			if (ring.ended[i]) {
				ring.ended[i] = false;
				leave(i);
			}
		if (n % 16 == 0)
			host_audit(&ring.host);
	}
	finish();
}

/* ---- seeds -------------------------------------------------------------------------------- */

static void seed(struct fuzz_seed *s, enum command command, uint32_t client, const char *bytes,
		 size_t count)
{
	fuzz_put_u8(s, (uint8_t)(command | client << 5));
	fuzz_put(s, bytes, count);
}
#define SEED(s, command, client, bytes) seed(s, command, client, bytes, sizeof(bytes) - 1)

static void seed_requests(void)
{
	static struct fuzz_seed s;

	/* put, commit, fetch to HBM, pin, unpin; arguments as do_reserve and others take them */
	SEED(&s, RESERVE, 0, "\x01\x07\x00\x00\x00\x00\x00");
	SEED(&s, COMMIT, 0, "\x00\x00\x00\x00");
	SEED(&s, FETCH, 0, "\x01\x07\x00\x00\x01");
	SEED(&s, PIN, 1, "\x01\x07\x00\x00\x01");
	SEED(&s, BY_HANDLE, 1, "\x01\x00\x00\x01\x00\x00");
	fuzz_seed_end(&s, "put-fetch-pin");
	/* two shards of a durable put, one of them late, then deletion */
	SEED(&s, RESERVE, 0, "\x10\x13\x10\x00\x02\x05\x00");
	SEED(&s, RESERVE, 1, "\x10\x13\x10\x00\x12\x05\x00");
	SEED(&s, COMMIT, 0, "\x00\x00\x00\x00");
	SEED(&s, TICK, 0, "\xff");
	SEED(&s, COMMIT, 1, "\x00\x00\x01\x00");
	SEED(&s, DELETE, 1, "\x10\x13\x00\x00\x01");
	fuzz_seed_end(&s, "shards-delete");
	/* a tombstone, and deletions of what is not there */
	SEED(&s, RESERVE, 0, "\x00\x03\x00\x00\x00\x00\x00");
	SEED(&s, COMMIT, 0, "\x00\x00\x00\x00");
	SEED(&s, TICK, 0, "\x40");
	for (uint8_t i = 0; i < 6; i++) {
		SEED(&s, DELETE, 0, "\x02\x04\x00\x14\x01");
		SEED(&s, TICK, 0, "\x04");
	}
	fuzz_seed_end(&s, "deletes");
}

/* Blocks that were put, written back and evicted: the device alone has them. */
static void seed_evicted(struct fuzz_seed *s)
{
	SEED(s, RESERVE, 0, "\x00\x07\x00\x00\x00\x00\x00");
	SEED(s, COMMIT, 0, "\x00\x00\x00\x00");
	SEED(s, TICK, 0, "\x20");
	SEED(s, OWNER, 0, "\x72\xff\xff");
	SEED(s, TICK, 0, "\x20");
}

static void seed_world(void)
{
	static struct fuzz_seed s;

	/* held actions, a leased page, eviction, a client's death */
	SEED(&s, RESERVE, 0, "\x00\x0f\x00\x00\x00\x00\x00");
	SEED(&s, COMMIT, 0, "\x00\x00\x00\x00");
	SEED(&s, TICK, 0, "\x20");
	SEED(&s, HAZARD, 0, "\x08\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00");
	SEED(&s, HOLD, 0, "");
	SEED(&s, OWNER, 0, "\x72\xff\xff");
	SEED(&s, CARRY, 0, "\x00");
	SEED(&s, DEATH, 0, "\x03");
	SEED(&s, FAULT, 0, "\x01");
	SEED(&s, HOLD, 0, "");
	SEED(&s, OWNER, 0, "\x00");
	fuzz_seed_end(&s, "evict-death-remove");
	/* read again from the device, one read of it rotten */
	seed_evicted(&s);
	SEED(&s, FETCH, 0, "\x00\x05\x00\x00\x03");
	SEED(&s, FAULT, 0, "\x03");
	SEED(&s, PAGES, 1, "\x00\x1f\x00\x00\x01");
	fuzz_seed_end(&s, "evict-fetch");
	/* ... or streamed, to CXL and to a tier that is none; layers are released */
	seed_evicted(&s);
	SEED(&s, STREAM, 0, "\x00\x05\x00\x00\x04\x20");
	SEED(&s, STREAM, 0, "\x01\x00\x00\x00\x00\x21");
	SEED(&s, TICK, 0, "\x20");
	SEED(&s, STREAM, 1, "\x00\x05\x00\x00\x81\x40");
	fuzz_seed_end(&s, "stream");
	/* ... or foreseen: a turn that ends, a plan, a prefetch; time passes, the user returns */
	seed_evicted(&s);
	SEED(&s, AHEAD, 0, "\x02\x00\x07\x00\x00\x12\x10\0\0\0\0\0\0\0\0");
	SEED(&s, AHEAD, 0, "\x03\x00\x07\x00\x00\x09\x04\x40\x00");
	SEED(&s, AHEAD, 0, "\x00\x00\x05\x00\x20\x01");
	SEED(&s, TICK, 0, "\x40");
	SEED(&s, AHEAD, 0, "\x02\x00\x07\x00\x00\x13\x10\0\0\0\0\0\0\0\0");
	SEED(&s, AHEAD, 0, "\x04\x00\x00\x00\x04\x08\x00\x01\x10\x00");
	fuzz_seed_end(&s, "ahead");
}

void fuzz_seeds(void)
{
	static struct fuzz_seed s;
	struct abi_sqe sqe = { .op = ABI_OP_NOP };

	seed_requests();
	seed_world();
	/* more than fits: eviction, waiting, the log's segments dropped */
	for (uint8_t i = 0; i < 10; i++) {
		const char reserve[] = { (char)(i * 20), 19, 0, 0, 0, 0, 0 };
		const char commit[] = { 0, 0, (char)i, 0 };

		seed(&s, RESERVE, 0, reserve, sizeof(reserve));
		seed(&s, COMMIT, 0, commit, sizeof(commit));
		SEED(&s, TICK, 0, "\x10");
	}
	SEED(&s, FETCH, 0, "\x00\x27\x00\x00\x01");
	SEED(&s, PIN, 0, "\x20\x27\x00\x00\x01");
	fuzz_seed_end(&s, "pressure");
	for (uint8_t op = 0; op < ABI_OP_COUNT; op++) {
		sqe.op = op;
		sqe.count = 1;
		sqe.arg_bytes = ABI_KEY_BYTES;
		sqe.flags = ABI_SQE_KEYS;
		fuzz_put_u8(&s, RAW);
		fuzz_put(&s, &sqe, sizeof(sqe));
	}
	fuzz_seed_end(&s, "every-op");
}
