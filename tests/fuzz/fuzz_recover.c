/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole recovery: a core wrote a store, the input damages any of its bytes (checksums made right
 * again or not), a new core recovers it, segments in any order. Then clients fetch, put and delete.
 *
 * Must hold: no assertion, all sums right, no device operation outside the device, and a block that
 * is served has the bytes that were once put under its key, whatever the disk says (I6).
 */
#include <errno.h>

#include "tests/fuzz/host.h"
#include "tests/fuzz/reseal.h"

#define RESEAL 1u
#define REVERSE 2u
#define TWICE 4u /* recover what the recovered core has written */
#define SHUFFLE_SHIFT 3 /* above: one of 32 orders of the segments */
#define KEYS 32u
#define PAGE 4096u
#define PAGES 4u /* of a block: HOST_KIND_STORE */
#define RUN 8u
#define TOKEN_EPOCH 2u

static struct {
	struct host host;
	uint8_t *image; /* HOST_NVME bytes */
	struct disk_catalog catalog;
	struct disk_context spec;
	uint64_t put;
	struct abi_cqe cqe;
} recover;

static void complete(void *arg, uint32_t client, const struct abi_cqe *cqe)
{
	(void)arg;
	(void)client;
	recover.cqe = *cqe;
}

/* ---- what clients do ------------------------------------------------------------------------ */

static void key_of(uint32_t n, uint8_t *key)
{
	memset(key, 0, ABI_KEY_BYTES);
	key[0] = (uint8_t)(n % 7 + 1);
	key[16] = (uint8_t)(n + 1);
}

/* The bytes of a page: its key's number and its own, all over. */
static uint64_t word_of(uint32_t n, uint32_t page)
{
	return (n * 64ull + page + 1) * 0x9e3779b97f4a7c15ull;
}

static int by_keys(uint8_t op, uint32_t first, uint32_t count)
{
	struct host *h = &recover.host;
	struct abi_sqe sqe = { .op = op, .context_id = h->context[0].id, .count = count,
			       .flags = ABI_SQE_KEYS, .arg_bytes = count * ABI_KEY_BYTES,
			       .tier = ABI_TIER_CXL };

	for (uint32_t i = 0; i < count; i++)
		key_of(first + i, h->client[0].staging + i * ABI_KEY_BYTES);
	recover.cqe.res = -EINPROGRESS;
	FUZZ_CHECK(host_request(h, 0, &sqe));
	host_settle(h, 10);
	return recover.cqe.res;
}

static void put(uint32_t first, uint32_t count, bool durable)
{
	struct host *h = &recover.host;
	uint8_t *staging = h->client[0].staging;
	struct abi_put_args args = { .count = count, .depth = first };
	struct abi_sqe sqe = { .op = ABI_OP_PUT_RESERVE, .context_id = h->context[0].id,
			       .flags = durable ? ABI_SQE_DURABLE : 0, .count = count };

	if (first)
		key_of(first - 1, args.parent);
	memcpy(staging, &args, sizeof(args));
	for (uint32_t i = 0; i < count; i++)
		key_of(first + i, staging + sizeof(args) + i * ABI_KEY_BYTES);
	sqe.arg_bytes = (uint32_t)sizeof(args) + count * ABI_KEY_BYTES;
	recover.cqe.res = -EINPROGRESS;
	FUZZ_CHECK(host_request(h, 0, &sqe));
	if (recover.cqe.res)
		return;
	for (uint32_t i = 0; i < count * PAGES * (PAGE / 8); i++) {
		uint64_t word = word_of(first + i / (PAGES * PAGE / 8), i / (PAGE / 8) % PAGES);

		memcpy(staging + i * 8ull, &word, 8);
	}
	sqe = (struct abi_sqe){ .op = ABI_OP_PUT_COMMIT, .handle = recover.cqe.value };
	FUZZ_CHECK(host_request(h, 0, &sqe));
	host_settle(h, 10);
}

/* ---- what readers see ----------------------------------------------------------------------- */

/* What of the page was put; behind that are zeros. */
static uint32_t own_bytes(const struct host_context *x, uint32_t page)
{
	const struct abi_geometry *g = (const void *)((const uint8_t *)x->index + 4096);
	uint32_t part = 0;

	while (part + 1 < g->part_count && page >= g->part[part + 1].page_base)
		part++;
	return g->part[part].page_bytes;
}

static void check_page(const struct core_location *at, uint32_t n, uint32_t page)
{
	const struct host_context *x = &recover.host.context[0];
	const struct abi_index_header *header = x->index;
	const struct abi_page *d = (const void *)((const uint8_t *)x->index + header->desc_offset);
	uint64_t word = d[at->slot * PAGES + page].word[ABI_TIER_CXL];
	const uint8_t *data = x->mem[ABI_TIER_CXL] + abi_word_addr(word);
	uint32_t own = own_bytes(x, page);

	if (abi_word_state(word) != ABI_PAGE_READY)
		return;
	FUZZ_CHECK(abi_word_addr(word) + PAGE <= x->mem_bytes[ABI_TIER_CXL]);
	word = word_of(n, page);
	FUZZ_CHECK(memcmp(data, &word, 8) == 0 && memcmp(data, data + 8, own - 8) == 0);
	for (uint32_t i = own; i < PAGE; i++)
		FUZZ_CHECK(data[i] == 0);
}

static void check_key(uint32_t n)
{
	const struct host_context *x = &recover.host.context[0];
	struct core_location at;
	uint8_t key[ABI_KEY_BYTES];

	key_of(n, key);
	if (core_locate(recover.host.core, x->id, key, &at))
		return;
	FUZZ_CHECK(at.nvme_offset % DISK_SECTOR == 0 && at.nvme_offset < HOST_NVME);
	for (uint32_t page = 0; at.block.state == ABI_BLOCK_COMMITTED && page < PAGES; page++)
		check_page(&at, n, page);
}

/* ---- recovery ------------------------------------------------------------------------------- */

/* The order in which the segments are fed. */
static void order_of(uint8_t flags, uint32_t order[HOST_SEGMENTS])
{
	uint32_t random = flags >> SHUFFLE_SHIFT;

	for (uint32_t i = 0; i < HOST_SEGMENTS; i++)
		order[i] = flags & REVERSE ? HOST_SEGMENTS - 1 - i : i;
	for (uint32_t i = HOST_SEGMENTS - 1; random && i > 0; i--) {
		uint32_t other, kept = order[i];

		random = random * 1664525u + 1013904223u;
		other = (random >> 16) % (i + 1);
		order[i] = order[other];
		order[other] = kept;
	}
}

static void read_back(uint8_t flags)
{
	struct host *h = &recover.host;
	struct core_recovery out;
	uint32_t order[HOST_SEGMENTS];

	order_of(flags, order);
	for (uint32_t i = 0; i < HOST_SEGMENTS; i++) {
		uint32_t segment = order[i];
		/* On the sanitizer's heap, where its end is seen. */
		uint8_t *summary = aligned_alloc(DISK_SECTOR, h->super.summary_bytes);
		uint64_t at = h->super.segment_offset + segment * h->super.segment_bytes;
		int rc;

		FUZZ_CHECK(summary);
		memcpy(summary, h->disk + at, h->super.summary_bytes);
		rc = core_recover_segment(h->core, 0, segment, summary, h->super.summary_bytes);
		FUZZ_CHECK(rc >= 0 || rc == -EBADMSG);
		free(summary);
	}
	FUZZ_CHECK(core_recover_finish(h->core, &out) == 0);
	FUZZ_CHECK(out.blocks <= recover.spec.blocks_max);
}

static void boot(uint8_t flags)
{
	struct host *h = &recover.host;

	host_boot(h, &recover.catalog);
	FUZZ_CHECK(host_context_make(h, 0, &recover.spec) == 0);
	read_back(flags);
	host_audit(h);
	host_client_open(h, 0);
	host_client_attach(h, 0);
}

static void live(void)
{
	for (uint32_t n = 0; n < KEYS; n += RUN) {
		by_keys(ABI_OP_FETCH, n, RUN);
		for (uint32_t i = n; i < n + RUN; i++)
			check_key(i);
	}
	put(KEYS - 4, RUN, true);
	put(3, 2, true); /* some of it is there already, maybe as a block of the cache log */
	by_keys(ABI_OP_DELETE, KEYS - 3, 2);
	host_audit(&recover.host);
	for (uint32_t n = 0; n < KEYS; n++)
		check_key(n);
}

static void reseal_all(struct host *h)
{
	for (uint32_t i = 0; i < h->super.segment_count; i++)
		reseal_summary(h->disk + h->super.segment_offset + i * h->super.segment_bytes,
			       h->super.summary_bytes);
}

static void take_catalog(void)
{
	struct host *h = &recover.host;
	const struct disk_super *p = &h->super;
	const struct disk_catalog *head, *best = NULL;
	const struct disk_context *list;

	for (uint32_t i = 0; i < 2; i++) {
		const uint8_t *slot = h->disk + p->catalog_offset + i * p->catalog_bytes;

		if (disk_catalog_open(slot, p->catalog_bytes, p->store_id, &head, &list) ||
		    (best && head->sequence < best->sequence))
			continue;
		best = head;
		recover.catalog = *head;
		recover.spec = list[0];
	}
	FUZZ_CHECK(best && best->count == 1);
}

void fuzz_open(void)
{
	struct host *h = &recover.host;
	struct disk_context spec;

	host_init(h);
	h->discard = true;
	h->ears.complete = complete;
	host_boot(h, NULL);
	host_spec(&spec, HOST_KIND_STORE, 0);
	FUZZ_CHECK(host_context_make(h, 0, &spec) == 0);
	host_client_open(h, 0);
	host_client_attach(h, 0);
	for (uint32_t n = 0; n < KEYS; n += RUN)
		put(n, RUN, n / RUN % 2);
	by_keys(ABI_OP_DELETE, 2, 3);
	put(1, 3, true); /* in the other log, behind their tombstone, and again */
	take_catalog();
	host_halt(h);
	recover.image = malloc(HOST_NVME);
	FUZZ_CHECK(recover.image);
	memcpy(recover.image, h->disk, HOST_NVME);
	boot(0);
	FUZZ_CHECK(by_keys(ABI_OP_FETCH, RUN, RUN) == 0); /* undamaged, it is all there */
	host_halt(h);
}

void fuzz_one(struct fuzz_input *in)
{
	struct host *h = &recover.host;
	uint8_t flags = fuzz_u8(in);

	memcpy(h->disk, recover.image, HOST_NVME);
	fuzz_patch(in, h->disk, HOST_NVME, 64);
	if (flags & RESEAL)
		reseal_all(h);
	boot(flags);
	live();
	if (flags & TWICE) {
		host_halt(h);
		boot(0);
		live();
	}
	FUZZ_CHECK(core_context_epoch(h->core, h->context[0].id, 0, TOKEN_EPOCH) == 0);
	host_empty(h);
	host_halt(h);
}

/* ---- seeds -------------------------------------------------------------------------------- */

/* The first record of segment i, as it lies there; its patch covers what is not reserved. */
static struct disk_record record_of(uint32_t i)
{
	const struct disk_super *super = &recover.host.super;
	struct disk_record r;

	memcpy(&r, recover.image + super->segment_offset + i * super->segment_bytes + DISK_SECTOR,
	       sizeof(r));
	return r;
}

static void put_record(struct fuzz_seed *s, uint32_t i, const struct disk_record *r)
{
	const struct disk_super *super = &recover.host.super;
	uint64_t at = super->segment_offset + i * super->segment_bytes + DISK_SECTOR;

	fuzz_put_patch(s, (uint16_t)(at / 64), r, offsetof(struct disk_record, reserved));
}

static void seed_members(void)
{
	static struct fuzz_seed s;
	struct disk_record r[3] = { record_of(0), record_of(1), record_of(2) };

	r[0].epoch++;
	r[1].lsn += 1000;
	r[2].context_uid += 7;
	fuzz_put_u8(&s, RESEAL | TWICE);
	for (uint32_t i = 0; i < 3; i++)
		put_record(&s, i, &r[i]);
	fuzz_seed_end(&s, "stale");
	for (uint32_t i = 0; i < 3; i++)
		r[i] = record_of(i);
	r[0].data_offset += 4096;
	r[1].parts = 3;
	r[2].segment_seq--;
	fuzz_put_u8(&s, RESEAL);
	for (uint32_t i = 0; i < 3; i++)
		put_record(&s, i, &r[i]);
	fuzz_seed_end(&s, "elsewhere");
	r[0] = record_of(0);
	r[0].block_count--;
	r[0].data_bytes -= 4 * PAGE;
	fuzz_put_u8(&s, RESEAL);
	put_record(&s, 0, &r[0]);
	put_record(&s, 1, &r[0]); /* of another segment: its sequence is wrong there */
	fuzz_seed_end(&s, "fewer");
	r[0] = record_of(0);
	r[0].absent = 2;
	r[0].data_bytes -= 4 * PAGE;
	fuzz_put_u8(&s, RESEAL);
	put_record(&s, 0, &r[0]);
	fuzz_seed_end(&s, "absent");
	r[0] = record_of(0);
	r[0].epoch = UINT64_MAX;
	fuzz_put_u8(&s, RESEAL);
	put_record(&s, 0, &r[0]);
	fuzz_seed_end(&s, "highest-epoch");
}

void fuzz_seeds(void)
{
	static struct fuzz_seed s;

	for (uint8_t flags = 0; flags < 16; flags++) {
		char name[16];

		snprintf(name, sizeof(name), "flags-%u", flags);
		fuzz_put_u8(&s, flags);
		fuzz_seed_end(&s, name);
	}
	/* rotten data, not sealed */
	fuzz_put_u8(&s, 0);
	for (uint16_t i = 0; i < 4; i++)
		fuzz_put_patch(&s, (uint16_t)((HOST_NVME / 64) - 40 - i * 300), "rotten", 6);
	fuzz_seed_end(&s, "rotten");
	seed_members();
}
