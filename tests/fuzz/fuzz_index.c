/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a client does with an index that is not what it should be: an image that a real core made
 * (crowded buckets with overflow lines, blocks in both memory tiers, one pending), patched by the
 * input, is mapped by libtier; then keys are matched and pages leased, by key, by block and in
 * lists, and events followed.
 *
 * Must hold: the map is refused with a word, or everything read lies inside it; a lease lies inside
 * the tier's memory; after release no hazard word stays.
 */
#include <errno.h>
#include <sys/mman.h>
#include <tier.h>
#include <unistd.h>

#include "libtier/src/error.h"
#include "libtier/src/reader.h"
#include "tests/fuzz/host.h"

#define KEYS 30u
#define BLOCKS 24u /* put; the other keys are not there */
#define LIST 40u

static struct {
	struct host host;
	uint64_t put;
	struct wire_ctx_info info;
	uint8_t *image; /* info.index_bytes */
	int fd[1 + ABI_MEM_TIERS];
	tier_key key[KEYS];
	struct abi_reader area;
	struct tier t;
	struct attachment a;
	struct tier_context c;
	struct tier_reader r;
} index_;

static const uint32_t alive = 1;

/* ---- the real thing ------------------------------------------------------------------------- */

static void complete(void *arg, uint32_t client, const struct abi_cqe *cqe)
{
	(void)arg;
	(void)client;
	index_.put = cqe->value;
}

/* count keys from first in a request's arguments; all of a third fall into one bucket */
static void ask(uint8_t op, uint32_t first, uint32_t count, uint32_t tier)
{
	struct host *h = &index_.host;
	uint8_t *staging = h->client[0].staging;
	struct abi_put_args args = { .count = count };
	struct abi_sqe sqe = { .op = op, .context_id = h->context[0].id, .count = count,
			       .tier = (uint8_t)tier };

	if (op == ABI_OP_PUT_RESERVE) {
		memcpy(staging, &args, sizeof(args));
		memcpy(staging + sizeof(args), &index_.key[first], count * ABI_KEY_BYTES);
		sqe.arg_bytes = (uint32_t)sizeof(args) + count * ABI_KEY_BYTES;
	} else {
		memcpy(staging, &index_.key[first], count * ABI_KEY_BYTES);
		sqe.arg_bytes = count * ABI_KEY_BYTES;
		sqe.flags = ABI_SQE_KEYS;
	}
	FUZZ_CHECK(host_request(h, 0, &sqe));
	host_settle(h, 3);
}

/* The index without the room that rounds it up to a huge page: its end is then an end. */
static void cut_image(const void *index)
{
	const struct abi_index_header *h = index;
	uint64_t bytes;

	bytes = h->desc_offset + h->blocks_max * h->pages_per_block * sizeof(struct abi_page);
	bytes = (bytes + 4095) & ~4095ull;
	index_.image = malloc(bytes);
	FUZZ_CHECK(index_.image);
	memcpy(index_.image, index, bytes);
	((struct abi_index_header *)index_.image)->total_bytes = bytes;
	index_.info.index_bytes = bytes;
}

static void make_image(void)
{
	struct host *h = &index_.host;
	struct abi_sqe sqe = { .op = ABI_OP_PUT_COMMIT };
	struct disk_context spec;
	struct core_context_view view;

	host_boot(h, NULL);
	host_spec(&spec, HOST_KIND_MEMORY, 0);
	FUZZ_CHECK(host_context_make(h, 0, &spec) == 0);
	host_client_open(h, 0);
	host_client_attach(h, 0);
	ask(ABI_OP_PUT_RESERVE, 0, BLOCKS, 0);
	sqe.handle = index_.put;
	FUZZ_CHECK(host_request(h, 0, &sqe));
	ask(ABI_OP_FETCH, 0, BLOCKS / 2, ABI_TIER_HBM);
	ask(ABI_OP_PUT_RESERVE, BLOCKS, 1, 0); /* stays pending */
	FUZZ_CHECK(!core_context_find(h->core, spec.name, HOST_OWNER, HOST_OWNER, &view));
	index_.info = (struct wire_ctx_info){ .context_id = view.id, .writable = 1, .uid = 1,
					      .index_bytes = 0 };
	memcpy(index_.info.mem_bytes, view.mem_bytes, sizeof(view.mem_bytes));
	cut_image(h->context[0].index);
}

static void make_handles(void)
{
	struct tier_reader *r = &index_.r;

	index_.a.number = 1;
	index_.a.readers = &index_.area;
	index_.a.readers_max = 1;
	index_.t.alive = index_.c.alive = r->alive = &alive;
	index_.t.attachment_word = (uintptr_t)&index_.a;
	list_init(&index_.a.maps);
	index_.c.t = r->t = &index_.t;
	r->area = &index_.area;
	r->number = 1;
	r->free_count = ABI_HAZARD_SLOTS;
	for (uint32_t i = 0; i < ABI_HAZARD_SLOTS; i++)
		r->free[i] = (uint16_t)(ABI_HAZARD_SLOTS - 1 - i);
}

void fuzz_open(void)
{
	host_init(&index_.host);
	index_.host.ears.complete = complete;
	for (uint32_t i = 0; i < KEYS; i++) {
		memset(&index_.key[i], i % 3 ? 0 : (int)i, sizeof(index_.key[i]));
		index_.key[i].bytes[0] |= 1;
		index_.key[i].bytes[20] = (uint8_t)i;
	}
	make_image();
	make_handles();
	for (uint32_t i = 0; i < 1 + ABI_MEM_TIERS; i++) {
		uint64_t bytes = i ? index_.info.mem_bytes[i - 1] : index_.info.index_bytes;

		index_.fd[i] = memfd_create("index", MFD_CLOEXEC);
		FUZZ_CHECK(index_.fd[i] >= 0 && ftruncate(index_.fd[i], (off_t)bytes) == 0);
	}
}

/* ---- looking -------------------------------------------------------------------------------- */

/* The tables onto the sanitizer's heap: what lies behind the map is then out of bounds. */
static uint8_t *move_tables(struct map *m)
{
	uint8_t *copy = malloc(m->index_bytes), *from = m->index_base;

	FUZZ_CHECK(copy);
	memcpy(copy, from, m->index_bytes);
#define MOVE(pointer) ((pointer) = (const void *)(copy + ((const uint8_t *)(pointer) - from)))
	MOVE(m->header);
	MOVE(m->bucket);
	MOVE(m->overflow);
	MOVE(m->block);
	MOVE(m->page);
	if (m->event)
		MOVE(m->event);
#undef MOVE
	return copy;
}

static void check_lease(const struct map *m, struct tier_lease *lease)
{
	volatile uint8_t byte;
	uint64_t offset;

	if (!lease->data) {
		FUZZ_CHECK(lease->error < 0);
		return;
	}
	FUZZ_CHECK(lease->tier < ABI_MEM_TIERS && lease->bytes > 0);
	offset = (uint64_t)((const uint8_t *)lease->data - m->mem[lease->tier]);
	FUZZ_CHECK(offset < m->mem_bytes[lease->tier] &&
		   lease->bytes <= m->mem_bytes[lease->tier] - offset);
	byte = *(const uint8_t *)lease->data;
	byte = ((const uint8_t *)lease->data)[lease->bytes - 1];
	(void)byte;
}

static void lease_keys(const struct map *m, struct fuzz_input *in)
{
	struct tier_lease lease;

	for (uint32_t i = 0; i < KEYS; i++) {
		uint32_t page = i % (m->pages_per_block + 1);

		tier_lease_key(&index_.r, &index_.c, &index_.key[i], page, fuzz_u8(in) & 1, &lease);
		check_lease(m, &lease);
		tier_release(&index_.r, &lease);
	}
}

static void lease_selection(const struct map *m, struct fuzz_input *in, const tier_block *block)
{
	const struct tier_selection selection = { .blocks = block, .count = LIST,
						  .page = fuzz_u8(in) & 7,
						  .flags = TIER_LEASE_CXL };
	struct tier_lease lease[LIST];
	int count = tier_lease_blocks(&index_.r, &index_.c, &selection, lease);

	for (uint32_t i = 0; count >= 0 && i < LIST; i++) {
		FUZZ_CHECK(!lease[i].data || lease[i].tier == TIER_CXL);
		check_lease(m, &lease[i]);
	}
	if (count >= 0)
		tier_release_many(&index_.r, lease, LIST);
}

/* Copies, in room for the pages of the geometry as it was made, and not a byte more. */
static void gather(const struct map *m, const struct tier_page *page)
{
	struct tier_into into = { .stride = 1024 };
	int copied;

	for (uint32_t i = 0; i < m->part_count; i++)
		if (m->part[i].page_bytes > into.stride)
			return; /* refused page by page: nothing to see */
	into.dst = malloc(LIST * into.stride);
	FUZZ_CHECK(into.dst);
	copied = tier_gather(&index_.r, &index_.c, page, LIST, &into);
	FUZZ_CHECK(copied >= 0 && copied <= (int)LIST);
	free(into.dst);
}

static void lease_lists(const struct map *m, struct fuzz_input *in,
			const struct tier_found *found)
{
	struct tier_lease lease[LIST];
	struct tier_page page[LIST];
	tier_block block[LIST];
	int count;

	for (uint32_t i = 0; i < LIST; i++) {
		block[i] = found[i % KEYS].block;
		if (i >= KEYS)
			fuzz_take(in, &block[i], sizeof(block[i]));
		page[i] = (struct tier_page){ block[i], fuzz_u8(in) % (m->pages_per_block + 1) };
		lease[i] = (struct tier_lease){ .error = -1 };
	}
	count = tier_lease_pages(&index_.r, &index_.c, page, LIST, 0, lease);
	FUZZ_CHECK(count >= 0 && count <= (int)LIST);
	for (uint32_t i = 0; i < LIST; i++) {
		check_lease(m, &lease[i]);
		count -= lease[i].data != NULL;
	}
	FUZZ_CHECK(count == 0);
	tier_release_many(&index_.r, lease, LIST);
	lease_selection(m, in, block);
	gather(m, page);
}

/* All of the table, and of the ring: a few calls, however long the image says that they are. */
static void follow(const struct map *m)
{
	struct tier_event event[256];
	tier_events *e;
	int64_t n = 1;

	if (tier_events_open(&index_.c, &e))
		return;
	for (uint32_t calls = 0; calls < 4 && n > 0; calls++) {
		n = tier_events_snapshot(e, event, 256);
		FUZZ_CHECK(n <= 256 && (n >= 0 || tier_error_text()[0]));
		for (int64_t i = 0; i < n; i++)
			FUZZ_CHECK(event[i].tier < TIER_COUNT && event[i].epoch == map_epoch(m));
	}
	n = tier_events_read(e, event, 256, 0);
	FUZZ_CHECK(n <= 256 && (n >= 0 || n == -EOVERFLOW || n == -ENOENT));
	for (int64_t i = 0; i < n; i++)
		FUZZ_CHECK(event[i].tier < TIER_COUNT);
	tier_events_close(e);
}

static void look(const struct map *m, struct fuzz_input *in)
{
	struct tier_found found[KEYS];
	int64_t usable = tier_match(&index_.c, index_.key, KEYS, found);

	FUZZ_CHECK(usable >= 0 && usable <= KEYS);
	for (uint32_t i = 0; i < KEYS; i++) {
		FUZZ_CHECK(found[i].state <= TIER_HIT && found[i].tier < TIER_COUNT);
		FUZZ_CHECK(found[i].state == TIER_MISS || found[i].block.slot < m->blocks_max);
		FUZZ_CHECK((int64_t)i >= usable || found[i].state == TIER_HIT);
	}
	lease_keys(m, in);
	lease_lists(m, in, found);
	follow(m);
	FUZZ_CHECK(index_.r.free_count == ABI_HAZARD_SLOTS);
	for (uint32_t i = 0; i < ABI_HAZARD_SLOTS; i++)
		FUZZ_CHECK(index_.area.slot[i] == 0);
}

void fuzz_one(struct fuzz_input *in)
{
	struct wire_ctx_info info = index_.info;
	struct map_source source = { .info = &info, .fd = index_.fd, .boot_token = 0x70cea,
				     .number = 1 };
	uint8_t *image = malloc(info.index_bytes), *copy;
	struct map *m = NULL;
	int rc;

	FUZZ_CHECK(image);
	memcpy(image, index_.image, info.index_bytes);
	fuzz_patch(in, &info, sizeof(info), 1);
	fuzz_patch(in, image, index_.info.index_bytes, 4);
	FUZZ_CHECK(pwrite(index_.fd[0], image, index_.info.index_bytes, 0) > 0);
	free(image);
	rc = map_open(&m, &source);
	FUZZ_CHECK(rc == 0 || (rc < 0 && tier_error_text()[0]));
	if (rc)
		return;
	copy = move_tables(m);
	index_.c.map_word = (uintptr_t)m;
	index_.c.geometry.abi = m->geometry;
	look(m, in);
	map_close(m);
	free(copy);
}

/* ---- seeds -------------------------------------------------------------------------------- */

static void put_none(struct fuzz_seed *s)
{
	fuzz_put_u16(s, 0);
	fuzz_put_u8(s, 0);
}

static void put_member(struct fuzz_seed *s, uint64_t offset, uint64_t value, uint8_t bytes)
{
	fuzz_put_patch(s, (uint16_t)(offset / 4), &value, bytes);
}

void fuzz_seeds(void)
{
	const struct abi_index_header *h = (const struct abi_index_header *)index_.image;
	static struct fuzz_seed s;
	uint64_t word = abi_word(h->mem_bytes[1] - 512, ABI_PAGE_READY, 3);

	put_none(&s);
	fuzz_seed_end(&s, "as-made");
	put_none(&s);
	put_member(&s, offsetof(struct abi_index_header, bucket_count), 5, 8);
	put_member(&s, offsetof(struct abi_index_header, overflow_max), 3, 8);
	put_member(&s, offsetof(struct abi_index_header, blocks_max), 30, 8);
	put_none(&s);
	fuzz_seed_end(&s, "header");
	put_none(&s);
	for (uint32_t i = 0; i < 3; i++) { /* buckets: sequence, overflow, first slot */
		put_member(&s, h->bucket_offset + i * 64, 2 + i, 4);
		put_member(&s, h->bucket_offset + i * 64 + 4, 1 + i, 4);
		put_member(&s, h->bucket_offset + i * 64 + 8, 39 + i, 4);
	}
	put_member(&s, h->overflow_offset + 4, 1, 4); /* a chain that bites its tail */
	fuzz_seed_end(&s, "buckets");
	put_none(&s);
	for (uint32_t i = 0; i < 8; i++) { /* words that lead to the end of a tier */
		uint64_t page = h->desc_offset + i * 5 * sizeof(struct abi_page);

		put_member(&s, page + 8 * (i & 1), word, 8);
	}
	put_member(&s, h->block_offset + 64 + 32, 2, 4);
	put_member(&s, 4096 + offsetof(struct abi_geometry, part[0].page_bytes), 512, 4);
	fuzz_seed_end(&s, "words");
}
