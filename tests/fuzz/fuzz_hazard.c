/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hazard words and access logs: the input scribbles over the reader areas of two clients that have
 * contexts open and of one that has none, then evicts, deletes, lets time pass and clients die,
 * with fences, scans and frees carried out in any order.
 *
 * Must hold: a scan marks exactly the places that words of entitled clients name (host.c compares),
 * senseless words cost nobody anything, and all memory comes back when the clients are dead.
 */
#include "tests/fuzz/host.h"

#define MSEC 1000000ull
#define BLOCKS 10u

enum command { EVICT, CARRY, TICK, NAME, CLEAR, DELETE, DEATH, STORM, COMMANDS };

static struct {
	struct host host;
	uint64_t put;
} hazard;

static void complete(void *arg, uint32_t client, const struct abi_cqe *cqe)
{
	(void)arg;
	(void)client;
	if (cqe->user_data == 1)
		hazard.put = cqe->value;
}

static void keys(uint8_t *at, uint32_t count)
{
	memset(at, 0, count * ABI_KEY_BYTES);
	for (uint32_t i = 0; i < count; i++)
		at[i * ABI_KEY_BYTES] = at[i * ABI_KEY_BYTES + 16] = (uint8_t)(i + 1);
}

/* BLOCKS blocks in context i, the first half in HBM as well. */
static void fill(uint32_t i)
{
	struct host *h = &hazard.host;
	uint8_t *staging = h->client[0].staging;
	struct abi_put_args args = { .count = BLOCKS };
	struct abi_sqe sqe = { .op = ABI_OP_PUT_RESERVE, .context_id = h->context[i].id,
			       .user_data = 1, .count = BLOCKS };

	memcpy(staging, &args, sizeof(args));
	keys(staging + sizeof(args), BLOCKS);
	sqe.arg_bytes = sizeof(args) + BLOCKS * ABI_KEY_BYTES;
	FUZZ_CHECK(host_request(h, 0, &sqe));
	sqe = (struct abi_sqe){ .op = ABI_OP_PUT_COMMIT, .handle = hazard.put };
	FUZZ_CHECK(host_request(h, 0, &sqe));
	keys(staging, BLOCKS / 2);
	sqe = (struct abi_sqe){ .op = ABI_OP_FETCH, .context_id = h->context[i].id,
				.count = BLOCKS / 2, .flags = ABI_SQE_KEYS,
				.arg_bytes = BLOCKS / 2 * ABI_KEY_BYTES, .tier = ABI_TIER_HBM };
	FUZZ_CHECK(host_request(h, 0, &sqe));
	host_settle(h, 20);
}

/* ---- commands ----------------------------------------------------------------------------- */

/* The word of the n-th descriptor of a block in use, as a reader would name it. */
static uint64_t place_of(const struct host_context *x, uint32_t n, uint32_t tier)
{
	const struct abi_index_header *header = x->index;
	const uint8_t *base = x->index;
	const struct abi_page *page = (const void *)(base + header->desc_offset);

	n %= (BLOCKS + 2) * header->pages_per_block;
	return abi_place(x->id, tier, page[n].word[tier]);
}

static void do_name(struct fuzz_input *in)
{
	uint8_t how = fuzz_u8(in), n = fuzz_u8(in);
	uint32_t slot = fuzz_u16(in) % ABI_HAZARD_SLOTS;
	const struct host_context *x = &hazard.host.context[how & 1];
	struct abi_reader *r = &hazard.host.client[how % HOST_CLIENTS].readers[how >> 7];

	if (!x->made)
		return;
	r->slot[slot] = place_of(x, n, how >> 3 & 1);
	if (how & 16) /* almost */
		r->slot[slot] ^= 1ull << (n & 63);
	if (how & 32)
		r->high_water = slot + (how >> 6 & 1);
}

static void do_storm(struct fuzz_input *in)
{
	uint8_t how = fuzz_u8(in), count = fuzz_u8(in);
	struct abi_reader *r = &hazard.host.client[how & 1].readers[0];
	const struct host_context *x = &hazard.host.context[how >> 1 & 1];

	for (uint32_t i = 0; i < count; i++)
		r->access[r->access_tail++ % ABI_ACCESS_LOG] =
			abi_access(x->id, i % (1u + (how >> 2)), how * 256u);
}

static void do_delete(struct fuzz_input *in)
{
	struct host *h = &hazard.host;
	uint8_t how = fuzz_u8(in);
	struct abi_sqe sqe = { .op = ABI_OP_DELETE, .context_id = h->context[how & 1].id,
			       .count = 1 + how / 2 % BLOCKS, .flags = ABI_SQE_KEYS };

	keys(h->client[0].staging, sqe.count);
	sqe.arg_bytes = sqe.count * ABI_KEY_BYTES;
	host_request(h, 0, &sqe);
}

static void do_death(struct fuzz_input *in)
{
	uint8_t how = fuzz_u8(in);

	host_client_gone(&hazard.host, how % HOST_CLIENTS);
	if (how & 128)
		host_client_dead(&hazard.host, how % HOST_CLIENTS);
}

static void do_command(struct fuzz_input *in)
{
	struct host *h = &hazard.host;
	enum command command = fuzz_u8(in) % COMMANDS;

	switch (command) {
	case EVICT:
		core_evict(h->core, h->context[fuzz_u8(in) & 1].id, fuzz_u8(in) & 1,
			   fuzz_u16(in) * 512ull, 3);
		host_tick(h, 0);
		break;
	case CARRY:
		host_carry(h, h->bag_count ? fuzz_u8(in) % h->bag_count : 0);
		break;
	case TICK:
		host_tick(h, fuzz_u8(in) * MSEC / 8);
		break;
	case NAME:
		do_name(in);
		break;
	case CLEAR:
		memset(h->client[fuzz_u8(in) & 1].readers[0].slot, 0, sizeof(uint64_t) * 64);
		break;
	case DELETE:
		do_delete(in);
		break;
	case DEATH:
		do_death(in);
		break;
	default:
		do_storm(in);
	}
}

/* ---- the run ------------------------------------------------------------------------------ */

void fuzz_open(void)
{
	host_init(&hazard.host);
	hazard.host.ears.complete = complete;
}

static void begin(void)
{
	struct host *h = &hazard.host;
	struct disk_context spec;

	host_boot(h, NULL);
	for (uint32_t i = 0; i < 2; i++) {
		host_spec(&spec, i, i);
		FUZZ_CHECK(host_context_make(h, i, &spec) == 0);
	}
	for (uint32_t i = 0; i < HOST_CLIENTS; i++)
		host_client_open(h, i);
	host_client_attach(h, 0);
	host_client_attach(h, 1);
	fill(0);
	fill(1);
}

void fuzz_one(struct fuzz_input *in)
{
	struct host *h = &hazard.host;

	begin();
	for (uint32_t i = 0; i < HOST_CLIENTS; i++)
		fuzz_patch(in, h->client[i].readers, HOST_READERS * sizeof(struct abi_reader), 8);
	h->held = true;
	for (uint32_t n = 1; in->left; n++) {
		do_command(in);
		if (n % 16 == 0)
			host_audit(h);
	}
	host_carry_all(h);
	host_audit(h);
	host_empty(h);
	host_halt(h);
}

/* ---- seeds -------------------------------------------------------------------------------- */

static void put_patches(struct fuzz_seed *s, uint32_t client)
{
	uint32_t high = 8;
	uint64_t word = abi_access(0, 3, 9);

	fuzz_put_patch(s, 0, &high, sizeof(high));
	fuzz_put_patch(s, offsetof(struct abi_reader, access) / 8, &word, sizeof(word));
	fuzz_put_patch(s, 2 + client, &word, sizeof(word));
	fuzz_put_u16(s, 0);
	fuzz_put_u8(s, 0);
}

void fuzz_seeds(void)
{
	static const uint8_t evict[] = { EVICT, 0, 1, 0xff, 0xff, EVICT, 1, 1, 0xff, 0xff,
					 EVICT, 1, 0, 0xff, 0xff };
	static const uint8_t turn[] = { TICK, 16, CARRY, 0, CARRY, 0, CARRY, 0 };
	static const uint8_t words[] = { NAME, 0x28, 4, 3, 0, NAME, 0x29, 5, 4, 0,
					 NAME, 0x21, 2, 1, 0, NAME, 0x3a, 40, 9, 0 };
	static const uint8_t rest[] = { STORM, 0x17, 90, DELETE, 9, DEATH, 0x80, TICK, 80 };
	static struct fuzz_seed s;

	for (uint32_t i = 0; i < HOST_CLIENTS; i++)
		put_patches(&s, i);
	fuzz_put(&s, evict, sizeof(evict));
	fuzz_put(&s, turn, sizeof(turn));
	fuzz_put(&s, turn, sizeof(turn));
	fuzz_seed_end(&s, "patches-evict");
	for (uint32_t i = 0; i < HOST_CLIENTS; i++)
		fuzz_put(&s, "\0\0", 3);
	fuzz_put(&s, words, sizeof(words));
	fuzz_put(&s, evict, sizeof(evict));
	fuzz_put(&s, turn, sizeof(turn));
	fuzz_put(&s, rest, sizeof(rest));
	fuzz_put(&s, turn, sizeof(turn));
	fuzz_seed_end(&s, "words-evict-death");
}
