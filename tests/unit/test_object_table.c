/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of objects against a list, and the records of its catalog: what is read back, what a
 * torn, rotten or foreign one costs.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/property.h"
#include "tests/lib/unit.h"
#include "tierd/object/table.h"

#define NAMES 300u
#define CONTEXTS 3u
#define STEPS 20000u
#define STORE 77u

/* ---- the table ----------------------------------------------------------------------------- */

struct model {
	struct object_table t;
	uint64_t version[CONTEXTS][NAMES]; /* 0 = not there */
	uint64_t last;
	struct rng rng;
};

/* Of different lengths, some the beginning of others. */
static uint32_t name_of(uint32_t n, char out[32])
{
	return (uint32_t)snprintf(out, 32, n % 3 ? "a/%u" : "%u.bin", n * 7919 % 1000);
}

static struct object *make(struct model *m, uint32_t context, uint32_t n)
{
	static uint32_t crc[DISK_OBJECT_CHUNKS_MAX];
	char name[32];
	struct object_record r = { .context = context + 1, .version = ++m->last, .crc = crc,
				   .priority = n % OBJECT_PRIORITIES, .name = name,
				   .name_bytes = name_of(n, name) };

	object_record_cut(&r, rng_below(&m->rng, 1 << 20));
	return object_new(&r);
}

static void tell(void *arg, const char *what)
{
	(void)arg;
	print_error("%s\n", what);
}

static void let_go(struct model *m, struct object *x)
{
	if (x->state == OBJECT_RESIDENT && rng_below(&m->rng, 2)) {
		object_hold(&m->t, x);
		return;
	}
	if (x->state == OBJECT_RESIDENT)
		object_drop(&m->t, x);
	object_free(x);
}

static void enter(struct model *m, uint32_t context, uint32_t n)
{
	struct object *x = make(m, context, n), *former;

	former = object_enter(&m->t, object_account(&m->t, context + 1), x);
	assert_int_equal(former ? former->version : 0, m->version[context][n]);
	m->version[context][n] = x->version;
	if (former)
		let_go(m, former);
	if (rng_below(&m->rng, 2)) {
		object_coming(&m->t, x);
		object_came(&m->t, x, rng_below(&m->rng, 4) ? 7 : -1);
	}
}

static struct object *find(const struct model *m, uint32_t context, uint32_t n)
{
	char name[32];
	uint32_t bytes = name_of(n, name);

	return object_find(&m->t, context + 1, name, bytes);
}

static void step(struct model *m)
{
	uint32_t context = (uint32_t)rng_below(&m->rng, CONTEXTS);
	uint32_t n = (uint32_t)rng_below(&m->rng, NAMES);
	struct object *x;

	switch (rng_below(&m->rng, 5)) {
	case 0:
	case 1:
		enter(m, context, n);
		break;
	case 2:
		x = find(m, context, n);
		assert_int_equal(x ? x->version : 0, m->version[context][n]);
		if (!x)
			break;
		object_leave(&m->t, x);
		m->version[context][n] = 0;
		let_go(m, x);
		break;
	case 3:
		x = object_victim(&m->t, NULL);
		if (x)
			object_drop(&m->t, x);
		break;
	default:
		if (list_empty(&m->t.held))
			break;
		x = list_entry(m->t.held.next, struct object, link);
		object_drop(&m->t, x);
		object_free(x);
	}
}

/* Each name once, in the order of bytes, and none of another context. */
static void walk(const struct model *m)
{
	for (uint32_t c = 0; c < CONTEXTS; c++) {
		const struct object *x = object_next(&m->t, c + 1, "", 0, true), *before = NULL;
		uint32_t count = 0, want = 0;

		for (; x; x = object_next(&m->t, c + 1, x->name, x->name_bytes, false)) {
			assert_int_equal(x->context, c + 1);
			if (before)
				assert_true(strncmp(before->name, x->name,
						    before->name_bytes) <= 0);
			before = x;
			count++;
		}
		for (uint32_t n = 0; n < NAMES; n++)
			want += m->version[c][n] != 0;
		assert_int_equal(count, want);
	}
}

static void test_random_changes_agree_with_a_list(void **state)
{
	static const uint64_t most[OBJECT_TIERS] = { UINT64_MAX, UINT64_MAX };
	static const uint64_t extra[OBJECT_TIERS] = { 0, 0 };
	struct model *m = calloc(1, sizeof(*m));

	(void)state;
	m->rng.state = 41;
	object_table_open(&m->t, most, 5);
	/* Names share bytes; of equal ones the last is meant. */
	for (uint32_t i = 0; i < NAMES; i++)
		for (uint32_t k = 0; k < i; k++) {
			char a[32], b[32];

			name_of(i, a);
			name_of(k, b);
			assert_string_not_equal(a, b);
		}
	for (uint32_t i = 0; i < STEPS; i++) {
		step(m);
		if (i % 500)
			continue;
		walk(m);
		assert_int_equal(object_audit(&m->t, extra, tell, NULL), 0);
	}
	object_table_close(&m->t);
	free(m);
}

static uint32_t depth(const struct object *x)
{
	uint32_t l = x ? depth(x->left) : 0, r = x ? depth(x->right) : 0;

	return x ? 1 + (l > r ? l : r) : 0;
}

/* Names that come in order make no list of it. */
static void test_the_tree_is_shallow(void **state)
{
	static const uint64_t most[OBJECT_TIERS] = { UINT64_MAX, UINT64_MAX };
	struct object_table t;

	(void)state;
	object_table_open(&t, most, 12345);
	for (uint32_t i = 0; i < 20000; i++) {
		char name[16];
		struct object_record r = { .context = 1, .version = i + 1, .name = name };

		r.name_bytes = (uint32_t)snprintf(name, sizeof(name), "%08u", i);
		assert_null(object_enter(&t, object_account(&t, 1), object_new(&r)));
	}
	assert_in_range(depth(t.root), 14, 60); /* log2 of 20,000 is 14.3 */
	object_table_close(&t);
}

static void test_quotas_and_the_tier_bound_it(void **state)
{
	static const uint64_t most[OBJECT_TIERS] = { 1 << 20, 1 << 20 };
	struct object_account *a, *b;
	struct object_table t;

	(void)state;
	object_table_open(&t, most, 1);
	a = object_account(&t, 1);
	b = object_account(&t, 2);
	a->quota[OBJECT_CXL] = 1 << 18;
	assert_int_equal(object_room(&t, a, OBJECT_CXL, 1 << 18), 0);
	assert_int_equal(object_room(&t, a, OBJECT_CXL, (1 << 18) + 1), -EDQUOT);
	assert_int_equal(object_room(&t, b, OBJECT_CXL, UINT64_MAX), -ENOSPC);
	object_take(&t, b, OBJECT_CXL, (1 << 20) - 4096);
	assert_int_equal(object_room(&t, a, OBJECT_CXL, 4096), 0);
	assert_int_equal(object_room(&t, a, OBJECT_CXL, 4097), -ENOSPC);
	assert_int_equal(object_room(&t, b, OBJECT_NVME, 1 << 20), 0);
	object_give(&t, b, OBJECT_CXL, (1 << 20) - 4096);
	object_account_done(&t, a);
	object_account_done(&t, b);
	object_table_close(&t);
}

/* ---- records ------------------------------------------------------------------------------- */

static uint8_t catalog[64 * DISK_OBJECT_RECORD_MAX];

static size_t write_some(uint32_t count, size_t *place)
{
	static uint32_t crc[DISK_OBJECT_CHUNKS_MAX];
	size_t at = 0;

	for (uint32_t i = 0; i < count; i++) {
		char name[300];
		struct object_record r = { .type = DISK_OBJECT_PUT, .lsn = i + 1, .context = 9,
					   .version = 100 + i, .name = name, .crc = crc };

		memset(name, 'a' + (int)(i % 26), sizeof(name));
		r.name_bytes = 1 + i * 5 % 255;
		object_record_cut(&r, i * 123457ull);
		for (uint32_t k = 0; k < r.chunks; k++)
			crc[k] = i * k;
		if (place)
			place[i] = at;
		at += object_record_encode(&r, STORE, catalog + at);
	}
	return at;
}

static uint32_t read_all(size_t bytes, struct object_scan *s)
{
	struct object_record r;
	uint32_t n = 0;

	*s = (struct object_scan){ .bytes = catalog, .count = bytes, .store_id = STORE };
	for (; object_scan_next(s, &r); n++) {
		uint64_t i = r.lsn - 1;

		assert_int_equal(r.version, 100 + i);
		assert_int_equal(r.size, i * 123457);
		assert_int_equal(r.name_bytes, 1 + i * 5 % 255);
		assert_int_equal(r.name[r.name_bytes - 1], 'a' + i % 26);
		for (uint32_t k = 0; k < r.chunks; k++)
			assert_int_equal(r.crc[k], i * k);
	}
	return n;
}

static void test_records_come_back(void **state)
{
	struct object_scan s;
	size_t bytes = write_some(60, NULL);

	(void)state;
	assert_int_equal(read_all(bytes, &s), 60);
	assert_int_equal(s.holes, 0);
	assert_int_equal(s.at, bytes);
}

/* Cut off at any byte: what was whole before is there. */
static void test_a_torn_end_costs_its_record(void **state)
{
	size_t place[20], bytes = write_some(20, place);
	struct object_scan s;

	(void)state;
	for (size_t cut = 0; cut < bytes; cut += 61) {
		uint32_t whole = 0;

		while (whole < 19 && place[whole + 1] <= cut)
			whole++;
		assert_int_equal(read_all(cut, &s), cut < place[1] ? 0 : whole);
	}
}

/* One bit anywhere: its record is a hole, those behind it are read. */
static void test_rot_costs_its_record(void **state)
{
	size_t place[20], bytes = write_some(20, place);
	struct rng rng = { 9 };
	struct object_scan s;

	(void)state;
	for (uint32_t i = 0; i < 500; i++) {
		size_t at = rng_below(&rng, bytes);

		catalog[at] ^= (uint8_t)(1 << i % 8);
		assert_int_equal(read_all(bytes, &s), 19);
		assert_true(s.holes > 0);
		catalog[at] ^= (uint8_t)(1 << i % 8);
	}
}

static void test_records_of_another_store_or_of_before_are_void(void **state)
{
	size_t place[20], bytes = write_some(20, place);
	struct object_record r;
	struct object_scan s = { .bytes = catalog, .count = bytes, .store_id = STORE + 1 };

	(void)state;
	assert_false(object_scan_next(&s, &r));
	assert_true(s.foreign);
	/* an old one again */
	memmove(catalog + place[10], catalog + place[2], place[3] - place[2]);
	assert_int_equal(read_all(bytes, &s), 19);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random_changes_agree_with_a_list),
		cmocka_unit_test(test_the_tree_is_shallow),
		cmocka_unit_test(test_quotas_and_the_tier_bound_it),
		cmocka_unit_test(test_records_come_back),
		cmocka_unit_test(test_a_torn_end_costs_its_record),
		cmocka_unit_test(test_rot_costs_its_record),
		cmocka_unit_test(test_records_of_another_store_or_of_before_are_void),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
