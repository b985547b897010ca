/* SPDX-License-Identifier: Apache-2.0 */
/* What control groups leave of memory: the tightest of a group and those above it. */
#include "tierd/backend/mem_limit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/lib/unit.h"

static char root[256];

static void put(const char *name, const char *text)
{
	char path[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", root, name);
	f = fopen(path, "w");
	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

static uint64_t room(void)
{
	char group[512];

	snprintf(group, sizeof(group), "%s/group", root);
	return mem_limit_room(group, root);
}

static int setup(void **state)
{
	const char *base = getenv("TMPDIR");
	char path[512];

	(void)state;
	snprintf(root, sizeof(root), "%s/limit.XXXXXX", base ? base : "/tmp");
	assert_non_null(mkdtemp(root));
	snprintf(path, sizeof(path), "%s/pod", root);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/pod/box", root);
	assert_int_equal(mkdir(path, 0700), 0);
	return 0;
}

static int teardown(void **state)
{
	char command[512];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf '%s'", root);
	return system(command);
}

static void test_no_limit(void **state)
{
	(void)state;
	assert_true(room() == UINT64_MAX); /* no file of groups */
	put("group", "4:memory:/pod\n1:cpu:/pod\n");
	assert_true(room() == UINT64_MAX); /* none of version 2 */
	put("group", "4:memory:/pod\n0::/pod/box\n");
	assert_true(room() == UINT64_MAX); /* nothing says a limit */
	put("pod/box/memory.max", "max\n");
	put("pod/box/memory.current", "4096\n");
	assert_true(room() == UINT64_MAX);
}

static void test_the_tightest_counts(void **state)
{
	(void)state;
	put("group", "0::/pod/box\n");
	put("pod/box/memory.max", "1000000\n");
	put("pod/box/memory.current", "400000\n");
	assert_true(room() == 600000);
	put("pod/memory.max", "900000\n");
	put("pod/memory.current", "800000\n");
	assert_true(room() == 100000);
	put("pod/memory.current", "950000\n");
	assert_true(room() == 0);
	put("pod/memory.max", "max\n");
	assert_true(room() == 600000);
}

/* In a container of its own name space the group is the root. */
static void test_the_root_itself(void **state)
{
	(void)state;
	put("group", "0::/\n");
	put("memory.max", "70000\n");
	put("memory.current", "20000\n");
	assert_true(room() == 50000);
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		EACH(test_no_limit),
		EACH(test_the_tightest_counts),
		EACH(test_the_root_itself),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
