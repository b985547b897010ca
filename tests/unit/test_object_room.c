/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one user's objects may have beside others', and how much one turn looks at or gives up for
 * them: on a table of versions without a catalog behind it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/unit.h"
#include "tierd/object/memfile.h"
#include "tierd/object/object_priv.h"

#define ONE 7u   /* contexts */
#define OTHER 8u
#define MANY 10000u
#define SMALL 512u

static struct objects objects;
static uint64_t version;

static void begin(uint64_t cxl)
{
	const uint64_t most[OBJECT_TIERS] = { cxl, 1ull << 40 };

	memset(&objects, 0, sizeof(objects));
	object_table_open(&objects.table, most, 1);
	list_init(&objects.uploads);
	list_init(&objects.tasks);
	list_init(&objects.indexes);
	objects.resident_most = 4096;
}

static struct object_account *account(uint64_t context, uint32_t uid)
{
	struct object_account *a = object_account(&objects.table, context);

	assert_non_null(a);
	assert_int_equal(object_own(&objects.table, a, uid), 0);
	return a;
}

static struct object *enter(struct object_account *a, uint32_t n, uint64_t size)
{
	char name[32];
	struct object_record r = { .context = a->context, .version = ++version, .name = name,
				   .size = size };

	r.name_bytes = (uint32_t)snprintf(name, sizeof(name), "n-%06u", n);
	return object_new(&r);
}

/* In memory, and nobody has it open. */
static struct object *bring(struct object_account *a, uint32_t n, uint64_t size)
{
	struct object *x = enter(a, n, size);

	assert_null(object_enter(&objects.table, a, x));
	object_coming(&objects.table, x);
	object_came(&objects.table, x, memfile_make(NULL));
	return x;
}

static void tell(void *arg, const char *what)
{
	(void)arg;
	print_error("%s\n", what);
}

static void end(void)
{
	static const uint64_t none[OBJECT_TIERS];
	struct object *x;

	assert_int_equal(object_audit(&objects.table, none, tell, NULL), 0);
	while ((x = object_victim(&objects.table, NULL)))
		close(object_drop(&objects.table, x));
	object_table_close(&objects.table);
}

/* All are of an epoch that is over: a turn looks at so many, and none is told. */
static void test_a_list_that_tells_nothing(void **state)
{
	static uint8_t out[WIRE_MESSAGE_MAX];
	struct wire_object_names *names = (void *)out;
	struct wire_object m = { .flags = 0 };
	const struct object_ask ask = { .context = ONE, .epoch = 1, .owner = 1, .message = &m,
					.quota = { UINT64_MAX, UINT64_MAX } };
	char looked[ABI_OBJECT_NAME_BYTES];
	uint32_t turns = 0;

	(void)state;
	begin(1 << 20);
	for (uint32_t i = 0; i < MANY; i++)
		object_enter(&objects.table, account(ONE, 1), enter(account(ONE, 1), i, 1));
	while (!objects_list(&objects, &ask, names, looked)) {
		assert_true(strcmp(looked, m.other) > 0);
		memset(m.other, 0, sizeof(m.other));
		strcpy(m.other, looked);
		turns++;
	}
	assert_in_range(turns, MANY / 4096, MANY / 4096 + 1);
	assert_int_equal(names->count, 0);
	assert_int_equal(names->more, 0);
	end();
}

/* Room for one that is large is made by turns, and comes. */
static void test_many_leave_by_turns(void **state)
{
	struct object_account *a;
	uint32_t turns = 0;
	uint64_t cxl = 2000 * object_charge(SMALL);
	int rc;

	(void)state;
	begin(cxl);
	a = account(ONE, 1);
	for (uint32_t i = 0; i < 2000; i++)
		bring(a, i, SMALL);
	do {
		uint64_t before = objects.table.resident;

		rc = make_room(&objects, a, 0, cxl);
		assert_in_range(before - objects.table.resident, 1, 256);
		assert_true(rc == 0 || (rc == -EAGAIN && objects.goes_on));
		objects.goes_on = false;
		turns++;
	} while (rc);
	assert_in_range(turns, 2000 / 256, 2000 / 256 + 1);
	end();
}

/* What is open cannot leave: a user has his share of it, and another finds room among his own. */
static void test_a_user_has_a_share(void **state)
{
	uint64_t charge = object_charge(SMALL), cxl = 80 * charge;
	struct object_account *a, *b;
	int opened[80], n = 0;

	(void)state;
	begin(cxl);
	a = account(ONE, 1);
	assert_true(object_user_room(&objects.table, a, cxl)); /* alone he has all */
	b = account(OTHER, 2);
	while (make_room(&objects, a, 0, charge) == 0) {
		opened[n] = memfile_share(bring(a, (uint32_t)n, SMALL)->fd, O_RDONLY);
		assert_true(opened[n++] >= 0);
	}
	assert_int_equal(n, 60);
	assert_int_equal(make_room(&objects, a, 0, charge), -EUSERS);
	for (uint32_t i = 0; i < 50; i++) {
		assert_int_equal(make_room(&objects, b, 0, charge), 0);
		bring(b, i, SMALL);
	}
	assert_int_equal(a->resident, 60);
	assert_int_equal(b->resident, 20);
	while (n)
		close(opened[--n]);
	end();
}

/* More than a question looks at come first, all open: another's own are found behind them. */
static void test_own_ones_leave_behind_what_others_hold(void **state)
{
	uint64_t charge = object_charge(SMALL), cxl = 400 * charge;
	struct object_account *a, *b;
	int opened[300];

	(void)state;
	begin(cxl);
	a = account(ONE, 1);
	b = account(OTHER, 2);
	for (uint32_t i = 0; i < COUNT(opened); i++) {
		assert_int_equal(make_room(&objects, a, 0, charge), 0);
		opened[i] = memfile_share(bring(a, i, SMALL)->fd, O_RDONLY);
		assert_true(opened[i] >= 0);
	}
	for (uint32_t i = 0; i < 200; i++) {
		assert_int_equal(make_room(&objects, b, 0, charge), 0);
		bring(b, i, SMALL);
	}
	assert_int_equal(b->resident, 100);
	for (uint32_t i = 0; i < COUNT(opened); i++)
		close(opened[i]);
	end();
}

/* Names, descriptors and uploads: three quarters, also of who is alone. */
static void test_tables_have_shares(void **state)
{
	struct object_account *a, *operators;
	static struct upload u[OBJECTS_UPLOADS_MAX / 4 * 3];
	struct task t = { .uid = 0, .limited = true };

	(void)state;
	begin(1 << 30);
	a = account(ONE, 1);
	operators = account(OTHER, OBJECT_NO_USER);
	a->user->objects = OBJECTS_MAX / 4 * 3 - 1;
	assert_true(name_room(a));
	a->user->objects++;
	assert_false(name_room(a));
	assert_true(name_room(operators));
	a->user->objects = 0;
	a->user->resident = 3072;
	assert_int_equal(make_room(&objects, a, 0, 1), -EUSERS);
	assert_int_equal(make_room(&objects, operators, 0, 1), 0);
	a->user->resident = 0;
	for (size_t i = 0; i < COUNT(u); i++)
		list_push_back(&objects.uploads, &u[i].link);
	objects.upload_count = COUNT(u);
	assert_int_equal(upload_room(&objects, &t), -EUSERS);
	t.uid = 1;
	assert_int_equal(upload_room(&objects, &t), 0);
	objects.upload_count = OBJECTS_UPLOADS_MAX;
	assert_int_equal(upload_room(&objects, &t), -EMFILE);
	end();
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_list_that_tells_nothing),
		cmocka_unit_test(test_many_leave_by_turns),
		cmocka_unit_test(test_a_user_has_a_share),
		cmocka_unit_test(test_own_ones_leave_behind_what_others_hold),
		cmocka_unit_test(test_tables_have_shares),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
