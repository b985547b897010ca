/*
 * CXL memory that is NUMA nodes: which of them are taken, what is said of those that cannot be, and
 * that memory comes from them. That several share a region is shown in a guest (tests/vm).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <numa.h>
#include <numaif.h>
#include <stdio.h>
#include <string.h>

#include "tests/lib/unit.h"
#include "tierd/backend/mem_common.h"

#define BYTES (16ull * ABI_HUGE)

static void test_numa_choice(void **state)
{
	const uint64_t gib = 1ull << 30;
	const struct cxl_node node[] = {
		{ .bytes = 64 * gib, .has_cpus = true, .allowed = true },
		{ .bytes = 0, .allowed = true },          /* offline */
		{ .bytes = 512 * gib, .allowed = false }, /* not in our cpuset */
		{ .bytes = 16 * gib, .allowed = true },
		{ .bytes = 32 * gib, .free_bytes = 30 * gib, .allowed = true },
		{ .bytes = 32 * gib, .allowed = true },
	};
	const struct cxl_node unlike[] = {
		{ .bytes = 32 * gib, .allowed = true, .read_mbs = 9000 },
		{ .bytes = 20 * gib, .allowed = true, .read_mbs = 28000 },
		{ .bytes = 15 * gib, .allowed = true, .read_mbs = 60000 },
	};
	struct backend_info info;

	(void)state;
	assert_int_equal(cxl_numa_choose(node, COUNT(node), 0, &info), 0);
	assert_int_equal(info.nodes, 1 << 4);
	assert_string_equal(info.name, "numa");
	assert_string_equal(info.detail, "CPU-less node 4, 32.0 GiB; unused: 3,5 (cxl.node)");
	assert_false(info.emulated);
	assert_in_range(info.capacity_auto, 26 * gib, 28 * gib);
	assert_int_equal(info.capacity_auto % ABI_HUGE, 0);
	assert_int_equal(info.capacity_most, 32 * gib);
	assert_int_equal(cxl_numa_choose(node, 4, 0, &info), 0);
	assert_string_equal(info.detail, "CPU-less node 3, 16.0 GiB");
	assert_int_equal(cxl_numa_choose(node, 3, 0, &info), -ENODEV);
	assert_int_equal(cxl_numa_choose(node, 0, 0, &info), -ENODEV);
	assert_int_equal(cxl_numa_choose(unlike, COUNT(unlike), 0, &info), 0);
	assert_int_equal(info.nodes, 1 << 1);
	assert_string_equal(info.detail, "CPU-less node 1, 20.0 GiB, read at 28.0 GB/s by HMAT; "
					 "unused: 0 (cxl.node)");
}

/* Several only where they are named; each of them must do. */
static void test_numa_named(void **state)
{
	const uint64_t gib = 1ull << 30;
	const struct cxl_node node[] = {
		{ .bytes = 64 * gib, .free_bytes = gib, .has_cpus = true, .allowed = true },
		{ .allowed = true },
		{ .bytes = 32 * gib, .free_bytes = 20 * gib, .allowed = true, .read_mbs = 30000 },
		{ .bytes = 16 * gib, .free_bytes = 10 * gib, .allowed = true, .read_mbs = 20000 },
		{ .bytes = 16 * gib },
		{ .absent = true },
	};
	static const struct {
		uint64_t named;
		const char *why;
	} refused[] = { { 1 << 2 | 1 << 1, "node 1: it has no memory that is online" },
			{ 1 << 4, "node 4: the daemon's cpuset does not allow it" },
			{ 1 << 2 | 1 << 5, "node 5: there is no such node" },
			{ 1ull << 63, "node 63: there is no such node" } };
	struct backend_info info;

	(void)state;
	assert_int_equal(cxl_numa_choose(node, COUNT(node), 1 << 2 | 1 << 3, &info), 0);
	assert_int_equal(info.nodes, 1 << 2 | 1 << 3);
	assert_string_equal(info.detail,
			    "CPU-less nodes 2,3, 48.0 GiB, each read at 20.0 GB/s by HMAT");
	assert_false(info.emulated);
	assert_in_range(info.capacity_auto, 27 * gib - 2 * ABI_HUGE, 27 * gib);
	assert_int_equal(info.capacity_auto % ABI_HUGE, 0);
	assert_int_equal(info.capacity_most, 48 * gib);
	assert_int_equal(cxl_numa_choose(node, COUNT(node), 1 << 0 | 1 << 3, &info), 0);
	assert_string_equal(info.detail, "ordinary memory of nodes 0,3, 80.0 GiB");
	assert_true(info.emulated);
	for (uint32_t i = 0; i < COUNT(refused); i++) {
		assert_int_equal(cxl_numa_choose(node, COUNT(node), refused[i].named, &info),
				 -ENODEV);
		assert_string_equal(info.detail, refused[i].why);
	}
}

/* The kernel would move what it pins there: one node of several is enough. */
static void test_numa_movable(void **state)
{
	char text[] = "Node 1, zone   Normal\n        managed  7\n"
		      "Node 2, zone  Movable\n        managed  0\n"
		      "Node 3, zone  Movable\n  pages free 1\n        managed  9\n";
	FILE *zones = fmemopen(text, strlen(text), "r");

	(void)state;
	assert_non_null(zones);
	assert_false(cxl_numa_movable(zones, 1 << 1 | 1 << 2));
	rewind(zones);
	assert_true(cxl_numa_movable(zones, 1 << 2 | 1 << 3));
	fclose(zones);
}

/* Binding works on any node; that several share a region shows where there are several. */
static void test_numa(void **state)
{
	struct mem_region region;
	struct backend_info info;
	const struct mem_ops *ops;
	int where = -1, node = numa_available() < 0 ? -1 : numa_max_node();

	(void)state;
	if (node < 0)
		skip();
	ops = mem_backend(ABI_TIER_CXL, "auto", 1ull << node, &info);
	assert_ptr_equal(ops, &mem_cxl_numa);
	assert_int_equal(info.nodes, 1ull << node);
	assert_true(info.capacity_most > 0 && info.capacity_auto <= info.capacity_most);
	assert_null(mem_backend(ABI_TIER_CXL, "memfd", 1ull << node, NULL)); /* takes no nodes */
	assert_null(mem_backend(ABI_TIER_CXL, "auto", 1ull << 63, &info));
	assert_string_equal(info.detail, "node 63: there is no such node");
	info.nodes = 1ull << node | 1ull << 63; /* one of them went since it was looked at */
	assert_int_equal(ops->open(&ops, &info, BYTES), 0);
	assert_int_equal(ops->create(ops, &region, "tier-test", BYTES), 0);
	assert_int_equal(region.nodes, info.nodes);
	assert_int_equal(mem_prepare(&region, 0, 2 * ABI_HUGE), 0);
	for (uint64_t at = 0; at < 2 * ABI_HUGE; at += ABI_HUGE / 4) {
		assert_int_equal(get_mempolicy(&where, NULL, 0, (uint8_t *)region.addr + at,
					       MPOL_F_NODE | MPOL_F_ADDR), 0);
		assert_int_equal(where, node);
	}
	ops->destroy(&region);
	ops->close(ops);
	assert_int_equal(cxl_numa_create(&region, "tier-test", BYTES, 0), -EINVAL);
	assert_int_equal(cxl_numa_create(&region, "tier-test", BYTES, 1ull << 63), -EINVAL);
	assert_int_equal(cxl_numa_create(&region, "tier-test", 1, 1ull << node), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_numa_choice),
		cmocka_unit_test(test_numa_named),
		cmocka_unit_test(test_numa_movable),
		cmocka_unit_test(test_numa),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
