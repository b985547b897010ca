/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Super block and catalog, as a start of the daemon reads them: bytes that real code wrote and the
 * input patched, then the contexts that the catalog names are planned and made in a core.
 *
 * Must hold: numbers of an accepted super block fit each other without overflow, a refusal says
 * why, and whatever catalog is accepted, planning and making its contexts ends in a word, not a
 * crash.
 */
#include <errno.h>

#include "libtier/abi/geometry_check.h"
#include "tests/fuzz/host.h"
#include "tests/fuzz/reseal.h"

#define RESEAL 1u
#define CUT 2u
#define CONTEXTS 3u
#define LIMITS 3u
#define CATALOG                                                                                    \
	(sizeof(struct disk_catalog) + CONTEXTS * sizeof(struct disk_context) + DISK_SECTOR)
#define SLOTS_MAX 4096u /* contexts with more blocks are only planned: memory is bounded here */

struct image {
	struct disk_super super;
	uint8_t catalog[CATALOG];
};

static struct {
	struct host host;
	struct image image;
} super;

void fuzz_open(void)
{
	struct disk_context list[CONTEXTS];
	struct disk_limit limit[LIMITS] = { { 1, 0, { 0, 4096 }, { 0, 8192, 0 } },
					    { 1, 7, { 0 }, { 1, 1, 1 } },
					    { 5, 7, { 3 }, { 0 } } }; /* of no context */
	struct disk_catalog head = { .sequence = 4, .next_uid = 9, .count = CONTEXTS,
				     .limit_count = LIMITS };

	host_init(&super.host);
	super.image.super = super.host.super;
	head.store_id = super.host.super.store_id;
	for (uint32_t i = 0; i < CONTEXTS; i++) {
		host_spec(&list[i], i % 2, i);
		list[i].uid = i + 1;
		list[i].epoch = 1;
	}
	FUZZ_CHECK(disk_catalog_seal(super.image.catalog, CATALOG, &head, list, limit) == CATALOG);
}

/* Everything in 128 bits, where nothing overflows. */
static void check_super(const struct disk_super *p)
{
	unsigned __int128 end = p->segment_offset +
				(unsigned __int128)p->segment_count * p->segment_bytes;
	unsigned __int128 catalog = (unsigned __int128)2 * p->catalog_bytes;

	FUZZ_CHECK(end <= INT64_MAX);
	FUZZ_CHECK(p->catalog_offset >= 2 * DISK_SECTOR);
	FUZZ_CHECK(p->catalog_offset + catalog <= p->segment_offset);
	FUZZ_CHECK(p->summary_bytes < p->segment_bytes && p->summary_bytes >= 2 * DISK_SECTOR);
	FUZZ_CHECK((p->segment_offset | p->segment_bytes | p->summary_bytes | p->catalog_offset |
		    p->catalog_bytes) % DISK_SECTOR == 0);
	FUZZ_CHECK(p->segment_count >= 2);
}

static void try_super(const struct disk_super *sector)
{
	char why[128] = "";
	struct disk_super out;
	struct store *s;
	int rc = disk_super_open(sector, &out);

	FUZZ_CHECK(rc == 0 || rc == -EBADMSG || rc == -EPROTO);
	if (rc)
		return;
	rc = store_super_check(&out, why, sizeof(why));
	FUZZ_CHECK(rc == 0 || (rc == -EINVAL && why[0]));
	if (rc)
		return;
	check_super(&out);
	if (out.segment_count <= SLOTS_MAX) {
		FUZZ_CHECK(store_open(&s, &out) == 0);
		store_close(s);
	}
}

static void try_context(const struct disk_context *spec, uint32_t i)
{
	struct core_context_plan plan;
	struct core_context_view view;
	struct disk_context planned = *spec;
	char why[256] = "";
	int rc = abi_geometry_check(&spec->geometry, why, sizeof(why));

	FUZZ_CHECK(rc == 0 || why[0]);
	if (rc)
		return;
	rc = core_context_plan(super.host.core, &planned, &plan, why, sizeof(why));
	FUZZ_CHECK(rc == 0 || why[0]);
	if (rc || planned.blocks_max > SLOTS_MAX || plan.index_bytes > 32u << 20)
		return;
	rc = host_context_make(&super.host, i, spec);
	if (rc == 0)
		FUZZ_CHECK(core_context_find(super.host.core, spec->name, 0, 0, &view) == 0);
}

static void try_catalog(const uint8_t *buf, size_t bytes)
{
	const struct disk_catalog *head;
	const struct disk_context *list;
	int rc = disk_catalog_open(buf, bytes, super.host.super.store_id, &head, &list);

	FUZZ_CHECK(rc == 0 || rc == -EBADMSG || rc == -EPROTO);
	if (rc)
		return;
	FUZZ_CHECK(disk_catalog_bytes(head->count, head->limit_count) <= bytes);
	host_boot(&super.host, head);
	for (uint32_t i = 0; i < head->count; i++)
		try_context(&list[i], i);
	for (uint32_t i = 0; i < head->limit_count; i++) {
		rc = core_limit_restore(super.host.core, &disk_catalog_limits(head)[i]);
		FUZZ_CHECK(rc == 0 || rc == -ENOSPC);
	}
	host_audit(&super.host);
	host_client_open(&super.host, 0);
	host_client_attach(&super.host, 0);
	host_empty(&super.host);
	host_halt(&super.host);
}

void fuzz_one(struct fuzz_input *in)
{
	uint8_t flags = fuzz_u8(in);
	size_t bytes = flags & CUT ? fuzz_u16(in) % (CATALOG + 1) : CATALOG;
	struct image *image = malloc(sizeof(*image));
	uint8_t *catalog = aligned_alloc(DISK_SECTOR, bytes + (-bytes & (DISK_SECTOR - 1)));

	FUZZ_CHECK(image && catalog);
	memcpy(image, &super.image, sizeof(*image));
	fuzz_patch(in, image, sizeof(*image), 1);
	if (flags & RESEAL) {
		reseal_super(&image->super);
		reseal_catalog((struct disk_catalog *)image->catalog, CATALOG);
	}
	memcpy(catalog, image->catalog, bytes);
	try_super(&image->super);
	try_catalog(catalog, bytes);
	free(image);
	free(catalog);
}

/* ---- seeds -------------------------------------------------------------------------------- */

static void put_member(struct fuzz_seed *s, size_t offset, uint64_t value, uint8_t bytes)
{
	fuzz_put_patch(s, (uint16_t)offset, &value, bytes);
}

#define CATALOG_AT offsetof(struct image, catalog)
#define CONTEXT(i, member)                                                                         \
	(CATALOG_AT + sizeof(struct disk_catalog) +                                                \
	 (i) * sizeof(struct disk_context) + offsetof(struct disk_context, member))

void fuzz_seeds(void)
{
	static struct fuzz_seed s;

	fuzz_put_u8(&s, 0);
	fuzz_seed_end(&s, "as-written");
	fuzz_put_u8(&s, RESEAL);
	put_member(&s, offsetof(struct image, super.segment_count), 2, 8);
	put_member(&s, offsetof(struct image, super.segment_offset), 1ull << 40, 8);
	put_member(&s, offsetof(struct image, super.summary_bytes), 8192, 8);
	put_member(&s, CATALOG_AT + offsetof(struct disk_catalog, count), 2, 4);
	fuzz_seed_end(&s, "numbers");
	fuzz_put_u8(&s, RESEAL);
	put_member(&s, CONTEXT(0, quota), 0, 8);
	put_member(&s, CONTEXT(0, blocks_max), 0, 8);
	put_member(&s, CONTEXT(1, policy), 'l' | 'r' << 8 | 'u' << 16, 4);
	put_member(&s, CONTEXT(1, geometry.page_align), 1024, 4);
	put_member(&s, CONTEXT(2, geometry.part[0].layers), 2, 4);
	put_member(&s, CONTEXT(2, geometry.pages_per_block), 6, 4);
	fuzz_seed_end(&s, "contexts");
	fuzz_put_u8(&s, RESEAL);
	put_member(&s, CATALOG_AT + offsetof(struct disk_catalog, limit_count), 64, 4);
	put_member(&s, CONTEXT(CONTEXTS, uid), 2, 8);
	fuzz_seed_end(&s, "limits");
	fuzz_put_u8(&s, CUT);
	fuzz_put_u16(&s, sizeof(struct disk_catalog) + 100);
	fuzz_seed_end(&s, "cut");
}
