/* SPDX-License-Identifier: Apache-2.0 */
/* What control groups leave of memory: the tightest of a group and those above it. */
#include "tierd/backend/mem_limit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/lib/unit.h"

#define HOST 2000000u /* bytes */

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

static struct mem_limit limit(void)
{
	struct mem_limit found;
	char group[512];

	snprintf(group, sizeof(group), "%s/group", root);
	mem_limit_read(&found, HOST, group, root);
	return found;
}

static uint64_t room(void)
{
	return limit().room;
}

/* All of it, whatever is used of it now, and the file that says so. */
static void expect_most(uint64_t most, const char *file)
{
	struct mem_limit found = limit();
	char says[512] = "the host";

	if (file)
		snprintf(says, sizeof(says), "%s/%s", root, file);
	assert_true(found.most == most);
	assert_string_equal(found.says, says);
}

static void folder(const char *name)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/%s", root, name);
	assert_int_equal(mkdir(path, 0700), 0);
}

static int setup(void **state)
{
	const char *base = getenv("TMPDIR");

	(void)state;
	snprintf(root, sizeof(root), "%s/limit.XXXXXX", base ? base : "/tmp");
	assert_non_null(mkdtemp(root));
	folder("pod");
	folder("pod/box");
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
	put("group", "4:memory:/pod\n1:cpu:/pod\nmemory\n5:memory\n");
	assert_true(room() == UINT64_MAX); /* no folder of version 1, lines of none */
	put("group", "4:memory:/pod\n0::/pod/box\n");
	assert_true(room() == UINT64_MAX); /* nothing says a limit */
	put("pod/box/memory.max", "max\n");
	put("pod/box/memory.current", "4096\n");
	assert_true(room() == UINT64_MAX);
	expect_most(HOST, NULL);
	put("pod/memory.max", "2000001\n"); /* more than there is */
	expect_most(HOST, NULL);
}

static void test_the_tightest_counts(void **state)
{
	(void)state;
	put("group", "0::/pod/box\n");
	put("pod/box/memory.max", "1000000\n");
	put("pod/box/memory.current", "400000\n");
	assert_true(room() == 600000);
	expect_most(1000000, "pod/box/memory.max");
	put("pod/memory.max", "900000\n");
	put("pod/memory.current", "800000\n");
	assert_true(room() == 100000);
	expect_most(900000, "pod/memory.max");
	put("pod/memory.current", "950000\n");
	assert_true(room() == 0);
	put("pod/memory.max", "1100000\n");
	assert_true(room() == 150000);
	expect_most(1000000, "pod/box/memory.max");
	put("pod/memory.max", "max\n");
	assert_true(room() == 600000);
}

/* A limit counts also where nothing says how much is used. */
static void test_a_limit_without_its_use(void **state)
{
	(void)state;
	put("group", "0::/pod/box\n");
	put("pod/memory.max", "5000\n");
	assert_true(room() == UINT64_MAX);
	expect_most(5000, "pod/memory.max");
}

/* In a container of its own name space the group is the root. */
static void test_the_root_itself(void **state)
{
	(void)state;
	put("group", "0::/\n");
	put("memory.max", "70000\n");
	put("memory.current", "20000\n");
	assert_true(room() == 50000);
	expect_most(70000, "memory.max");
}

/* Files that somebody read long ago make room; memfds and tmpfs do not, though they are files. */
static void test_what_is_in_the_cache_is_room(void **state)
{
	(void)state;
	put("group", "0::/pod/box\n");
	put("pod/box/memory.max", "1000000\n");
	put("pod/box/memory.current", "900000\n");
	put("pod/box/memory.stat", "anon 400000\nfile 500000\nshmem 80000\n"
				   "inactive_anon 1\nactive_anon 2\n"
				   "inactive_file 300000\nactive_file 120000\nslab 7\n");
	assert_true(room() == 100000 + 420000);
	put("pod/memory.max", "1000000\n"); /* each group by its own */
	put("pod/memory.current", "950000\n");
	assert_true(room() == 50000);
	put("pod/memory.stat", "inactive_file 960000\n"); /* more than there was a moment ago */
	assert_true(room() == 100000 + 420000);
	put("pod/box/memory.stat", "inactive_file 960000\n");
	assert_true(room() == 1000000);
}

/* Groups of version 1, which have a folder for each controller; of hybrids the tighter counts. */
static void test_the_first_version(void **state)
{
	(void)state;
	put("group", "4:cpu,cpuacct:/pod\n3:memoryless:/pod\n2:hugetlb,memory:/pod/box\n0::/pod\n");
	folder("memory");
	folder("memory/pod");
	put("memory/memory.limit_in_bytes", "9223372036854771712\n"); /* its way to say none */
	put("memory/memory.usage_in_bytes", "5000000\n");
	expect_most(HOST, NULL);
	/* The process' own folder may be out of sight: a container sees its own as the first. */
	put("memory/pod/memory.limit_in_bytes", "800000\n");
	put("memory/pod/memory.usage_in_bytes", "700000\n");
	put("memory/pod/memory.stat", "cache 500000\ninactive_file 1\nactive_file 1\n"
				      "total_inactive_file 200000\ntotal_active_file 30000\n");
	assert_true(room() == 100000 + 230000);
	expect_most(800000, "memory/pod/memory.limit_in_bytes");
	put("pod/memory.max", "700000\n");
	put("pod/memory.current", "600000\n");
	assert_true(room() == 100000);
	expect_most(700000, "pod/memory.max");
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		EACH(test_no_limit),
		EACH(test_the_tightest_counts),
		EACH(test_a_limit_without_its_use),
		EACH(test_the_root_itself),
		EACH(test_what_is_in_the_cache_is_room),
		EACH(test_the_first_version),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
