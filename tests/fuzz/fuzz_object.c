/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The catalog of objects: a real one, patched, its sums made good again or not, cut off anywhere;
 * what the reader takes goes into the table of names, as at a start.
 *
 * Must hold: whatever the bytes, each record that is taken is one that a daemon could have written,
 * in rising order; and the table's accounts agree with its versions.
 */
#include "libtier/base/crc32c.h"
#include "tests/fuzz/fuzz.h"
#include "tierd/object/table.h"

#define STORE 0x5107eull
#define RECORDS 12u
#define CONTEXTS 3u

static uint8_t image[RECORDS * DISK_OBJECT_RECORD_MAX];
static size_t image_bytes;

/* Files of all types, with names of one to 255 bytes. */
void fuzz_open(void)
{
	static uint32_t crc[DISK_OBJECT_CHUNKS_MAX];
	static char name[ABI_OBJECT_NAME_BYTES], from[ABI_OBJECT_NAME_BYTES];

	for (uint32_t i = 0; i < RECORDS; i++) {
		struct object_record r = { .type = i ? 1 + i % 3 : DISK_OBJECT_HEADER,
					   .lsn = i + 1, .context = 1 + i % CONTEXTS,
					   .version = i + 1, .name = name, .from = from,
					   .crc = crc, .mode = 0644, .priority = i % 4 };

		memset(name, 'a' + (int)(i % 3), sizeof(name));
		memset(from, 'a' + (int)(i % 2), sizeof(from));
		r.name_bytes = i ? 1 + i * 97 % 255 : 0;
		r.from_bytes = r.type == DISK_OBJECT_MOVE ? 1 + i * 97 % 255 : 0;
		if (r.type == DISK_OBJECT_PUT || r.type == DISK_OBJECT_MOVE)
			object_record_cut(&r, i * 99999ull);
		image_bytes += object_record_encode(&r, STORE, image + image_bytes);
	}
}

/* Sums that fit again: what lies behind them is looked at, too. */
static void reseal(uint8_t *bytes, size_t count)
{
	for (size_t at = 0; at + sizeof(struct disk_object) <= count; at += DISK_OBJECT_ALIGN) {
		struct disk_object *d = (void *)(bytes + at);

		if (d->magic != DISK_OBJECT_MAGIC || d->bytes > count - at ||
		    d->bytes < sizeof(*d) || d->bytes % DISK_OBJECT_ALIGN)
			continue;
		d->crc = 0;
		d->crc = crc32c(0, d, d->bytes);
	}
}

static void check_name(const char *name, uint32_t bytes)
{
	FUZZ_CHECK(bytes > 0 && bytes < ABI_OBJECT_NAME_BYTES && !memchr(name, 0, bytes));
}

static void check_record(const struct object_record *r)
{
	struct object_record cut = { .size = 0 };
	uint32_t sum = 0;

	FUZZ_CHECK(r->type <= DISK_OBJECT_MOVE && r->priority < OBJECT_PRIORITIES);
	if (r->type != DISK_OBJECT_HEADER)
		check_name(r->name, r->name_bytes);
	if (r->type == DISK_OBJECT_MOVE)
		check_name(r->from, r->from_bytes);
	for (uint32_t i = 0; i < r->chunks; i++)
		sum += r->crc[i]; /* all of them are there */
	if (r->type != DISK_OBJECT_PUT && r->type != DISK_OBJECT_MOVE)
		return;
	object_record_cut(&cut, r->size);
	FUZZ_CHECK(cut.chunks == r->chunks && cut.shift == r->shift && sum == sum);
}

static void forget(struct object_table *t, struct object *x)
{
	if (!x)
		return;
	if (x->named)
		object_leave(t, x);
	object_free(x);
}

static void apply(struct object_table *t, const struct object_record *r)
{
	struct object *x;

	if (r->type == DISK_OBJECT_MOVE)
		forget(t, object_find(t, r->context, r->from, r->from_bytes));
	if (r->type == DISK_OBJECT_REMOVE)
		forget(t, object_find(t, r->context, r->name, r->name_bytes));
	if (r->type != DISK_OBJECT_PUT && r->type != DISK_OBJECT_MOVE)
		return;
	x = object_new(r);
	FUZZ_CHECK(x);
	forget(t, object_enter(t, object_account(t, r->context), x));
}

static void tell(void *arg, const char *what)
{
	(void)arg;
	fprintf(stderr, "%s\n", what);
}

void fuzz_one(struct fuzz_input *in)
{
	static const uint64_t most[OBJECT_TIERS] = { 1ull << 60, 1ull << 60 };
	static const uint64_t extra[OBJECT_TIERS] = { 0, 0 };
	uint8_t how = fuzz_u8(in);
	size_t cut = fuzz_u16(in) % (image_bytes + 1);
	struct object_scan s = { .store_id = STORE };
	struct object_table t;
	struct object_record r;
	uint64_t lsn = 0;
	/* Of its own length, so that a byte behind its end is noticed. */
	uint8_t *bytes;

	s.count = how & 1 ? cut : image_bytes;
	bytes = malloc(s.count + 1);
	FUZZ_CHECK(bytes);
	memcpy(bytes, image, s.count);
	if (s.count)
		fuzz_patch(in, bytes, s.count, how & 2 ? 8 : 1);
	if (how & 4)
		reseal(bytes, s.count);
	s.bytes = bytes;
	object_table_open(&t, most, how);
	while (object_scan_next(&s, &r)) {
		FUZZ_CHECK(s.at <= s.count && r.lsn > lsn);
		lsn = r.lsn;
		check_record(&r);
		if (r.size < 1ull << 50) /* a running daemon has a disk, and sums do not wrap */
			apply(&t, &r);
	}
	FUZZ_CHECK(s.at >= s.count && s.holes <= s.count);
	FUZZ_CHECK(object_audit(&t, extra, tell, NULL) == 0);
	object_table_close(&t);
	free(bytes);
}

/* ---- seeds -------------------------------------------------------------------------------- */

void fuzz_seeds(void)
{
	static struct fuzz_seed s;
	const uint32_t beyond = 1u << 20, longer = 1984;

	fuzz_put_u8(&s, 0);
	fuzz_seed_end(&s, "whole");
	fuzz_put_u8(&s, 1);
	fuzz_put_u16(&s, (uint16_t)(image_bytes - 70));
	fuzz_seed_end(&s, "cut-off");
	fuzz_put_u8(&s, 4);
	fuzz_put_u16(&s, 0);
	fuzz_put_patch(&s, offsetof(struct disk_object, bytes), &beyond, 4);
	fuzz_seed_end(&s, "beyond");
	fuzz_put_u8(&s, 5);
	fuzz_put_u16(&s, 600);
	fuzz_put_patch(&s, offsetof(struct disk_object, bytes), &longer, 4);
	fuzz_seed_end(&s, "longer-than-is-left");
	fuzz_put_u8(&s, 4);
	fuzz_put_u16(&s, 0);
	fuzz_put_patch(&s, offsetof(struct disk_object, chunks), &longer, 4);
	fuzz_seed_end(&s, "chunks");
}
