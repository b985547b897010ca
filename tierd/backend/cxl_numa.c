/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CXL memory as the kernel shows it once it is online: NUMA nodes with memory and no processors,
 * one or, where the configuration names them, several under one tier. The policy is set on the
 * memfd's pages (MPOL_BIND on a shared mapping), so whichever process touches one first, it comes
 * from these nodes; when they are full, an allocation fails rather than spill into DRAM.
 */
#include <errno.h>
#include <numa.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libtier/base/cleanup.h"
#include "libtier/base/units.h"
#include "tierd/backend/mem_common.h"

/* A tier that is open. */
struct numa {
	struct mem_ops ops; /* first: what the slots get is this */
	uint64_t nodes;
};

/* Of what is free on a node: the kernel keeps some for itself. */
#define SHARE_PERCENT 90

static bool may_use(const struct cxl_node *node)
{
	return !node->has_cpus && node->allowed && node->bytes;
}

static bool is_better(const struct cxl_node *node, const struct cxl_node *than)
{
	return node->read_mbs != than->read_mbs ? node->read_mbs > than->read_mbs :
						  node->bytes > than->bytes;
}

/* "2,3" */
static void print_nodes(char *text, size_t bytes, uint64_t nodes)
{
	size_t at = 0;

	for (uint32_t i = 0; i < CXL_NODES_MAX && at < bytes; i++)
		if (nodes >> i & 1)
			at += (size_t)snprintf(text + at, bytes - at, "%s%u", at ? "," : "", i);
}

static void describe(const struct cxl_node *node, uint64_t nodes, struct backend_info *info)
{
	uint64_t free_bytes = 0, bytes = 0;
	uint32_t slowest = UINT32_MAX;
	char list[48], size[UNITS_TEXT_BYTES];
	bool several = nodes & (nodes - 1);
	size_t n;

	*info = (struct backend_info){ .name = "numa", .nodes = nodes };
	for (uint32_t i = 0; i < CXL_NODES_MAX; i++) {
		if (!(nodes >> i & 1))
			continue;
		bytes += node[i].bytes;
		free_bytes += node[i].free_bytes / 100 * SHARE_PERCENT / ABI_HUGE * ABI_HUGE;
		slowest = node[i].read_mbs < slowest ? node[i].read_mbs : slowest;
		info->emulated |= node[i].has_cpus;
	}
	print_nodes(list, sizeof(list), nodes);
	snprintf(info->detail, sizeof(info->detail), "%s node%s %s, %s",
		 info->emulated ? "ordinary memory of" : "CPU-less", several ? "s" : "", list,
		 units_print_bytes(size, bytes));
	n = strlen(info->detail);
	if (slowest)
		snprintf(info->detail + n, sizeof(info->detail) - n,
			 ", %sread at %.1f GB/s by HMAT", several ? "each " : "", slowest / 1e3);
	info->capacity_auto = free_bytes;
	info->capacity_most = bytes;
}

/* Why the node cannot be used, or NULL. */
static const char *refusal(const struct cxl_node *node)
{
	if (node->absent)
		return "there is no such node";
	if (!node->bytes)
		return "it has no memory that is online";
	return node->allowed ? NULL : "the daemon's cpuset does not allow it";
}

static int choose_named(const struct cxl_node *node, uint32_t count, uint64_t named,
			struct backend_info *info)
{
	const struct cxl_node none = { .absent = true };

	for (uint32_t i = 0; i < CXL_NODES_MAX; i++) {
		const char *why = named >> i & 1 ? refusal(i < count ? &node[i] : &none) : NULL;

		if (!why)
			continue;
		snprintf(info->detail, sizeof(info->detail), "node %u: %s", i, why);
		return -ENODEV;
	}
	describe(node, named, info);
	return 0;
}

/* The others like it are for the operator to name: some machines show a GPU's memory so. */
static void tell_unused(uint64_t unused, struct backend_info *info)
{
	size_t n = strlen(info->detail);
	char list[48];

	if (!unused)
		return;
	print_nodes(list, sizeof(list), unused);
	snprintf(info->detail + n, sizeof(info->detail) - n, "; unused: %s (cxl.node)", list);
}

int cxl_numa_choose(const struct cxl_node *node, uint32_t count, uint64_t named,
		    struct backend_info *info)
{
	uint64_t most = 0, alike = 0;
	int best = -ENODEV;

	if (named)
		return choose_named(node, count, named, info);
	for (uint32_t i = 0; i < count; i++)
		if (may_use(&node[i]) && node[i].bytes > most)
			most = node[i].bytes;
	for (uint32_t i = 0; i < count; i++) {
		if (!may_use(&node[i]) || node[i].bytes < most / 2)
			continue;
		alike |= 1ull << i;
		if (best < 0 || is_better(&node[i], &node[best]))
			best = (int)i;
	}
	if (best < 0)
		return best;
	describe(node, 1ull << best, info);
	tell_unused(alike & ~info->nodes, info);
	return 0;
}

/* Every kernel that reads the table has it there. */
static uint32_t read_mbs(uint32_t node)
{
	char path[96];
	FILE *f CLEANUP_FCLOSE = NULL;
	unsigned mbs = 0;

	snprintf(path, sizeof(path),
		 "/sys/devices/system/node/node%u/access0/initiators/read_bandwidth", node);
	f = fopen(path, "re");
	return f && fscanf(f, "%u", &mbs) == 1 ? mbs : 0;
}

static int numa_probe(uint64_t named, struct backend_info *info)
{
	struct cxl_node node[CXL_NODES_MAX];
	struct bitmask *cpus;
	uint32_t count;

	if (numa_available() < 0)
		return -ENODEV;
	cpus = numa_allocate_cpumask();
	if (!cpus)
		return -ENOMEM;
	count = (uint32_t)numa_max_node() + 1;
	if (count > CXL_NODES_MAX)
		count = CXL_NODES_MAX;
	for (uint32_t i = 0; i < count; i++) {
		long long free_bytes = 0, bytes = numa_node_size64((int)i, &free_bytes);

		numa_bitmask_clearall(cpus);
		node[i] = (struct cxl_node){
			.bytes = bytes > 0 ? (uint64_t)bytes : 0,
			.free_bytes = (uint64_t)free_bytes,
			/* If they cannot be told, the node is not taken for one without. */
			.has_cpus = numa_node_to_cpus((int)i, cpus) ||
				    numa_bitmask_weight(cpus) > 0,
			.allowed = numa_bitmask_isbitset(numa_all_nodes_ptr, i),
			.read_mbs = read_mbs(i),
			.absent = bytes < 0,
		};
	}
	numa_free_cpumask(cpus);
	return cxl_numa_choose(node, count, named, info);
}

static int numa_open(const struct mem_ops **self, const struct backend_info *info, uint64_t bytes)
{
	struct numa *numa = malloc(sizeof(*numa));

	(void)bytes;
	if (!numa)
		return -ENOMEM;
	*numa = (struct numa){ .ops = mem_cxl_numa, .nodes = info->nodes };
	*self = &numa->ops;
	return 0;
}

static struct numa *numa_of(const struct mem_ops *self)
{
	return (struct numa *)(uintptr_t)self;
}

static void numa_close(const struct mem_ops *self)
{
	free(numa_of(self));
}

int cxl_numa_create(struct mem_region *region, const char *label, uint64_t bytes, uint64_t nodes)
{
	int rc = nodes ? mem_create(region, label, bytes) : -EINVAL;

	if (rc)
		return rc;
	region->nodes = nodes;
	rc = mem_policy_first(region);
	if (rc)
		mem_destroy(region);
	return rc;
}

static int numa_create(const struct mem_ops *self, struct mem_region *region, const char *label,
		       uint64_t bytes)
{
	return cxl_numa_create(region, label, bytes, numa_of(self)->nodes);
}

static int tier_bind(const struct mem_ops *self, void *addr, uint64_t bytes)
{
	return mem_policy_bind(addr, bytes, numa_of(self)->nodes, 0);
}

bool cxl_numa_movable(FILE *zoneinfo, uint64_t nodes)
{
	char line[256], zone[32];
	unsigned long long pages;
	int at = -1;

	zone[0] = '\0';
	while (fgets(line, sizeof(line), zoneinfo)) {
		if (sscanf(line, "Node %d, zone %31s", &at, zone) == 2)
			continue;
		if (at >= 0 && at < 64 && nodes >> at & 1 && !strcmp(zone, "Movable") &&
		    sscanf(line, " managed %llu", &pages) == 1 && pages)
			return true;
	}
	return false;
}

/* The kernel moves pages of the movable zone elsewhere before it pins them: into DRAM. */
static int numa_lend(const struct mem_region *region, uint64_t offset, uint64_t bytes, int *fd,
		     uint32_t *count)
{
	FILE *zoneinfo = fopen("/proc/zoneinfo", "re");
	bool movable = !zoneinfo || cxl_numa_movable(zoneinfo, region->nodes);

	if (zoneinfo)
		fclose(zoneinfo);
	*count = 0;
	return movable ? -EOPNOTSUPP : mem_lend(region, offset, bytes, fd, count);
}

const struct mem_ops mem_cxl_numa = {
	.name = "numa",
	.probe = numa_probe,
	.open = numa_open,
	.close = numa_close,
	.create = numa_create,
	.share = mem_share,
	.revoke = mem_revoke,
	.lend = numa_lend,
	.grant = mem_grant,
	.commit = mem_grant,
	.destroy = mem_destroy,
	.leave = mem_leave,
	.prepare = mem_prepare,
	.punch = mem_punch,
	.resident = mem_resident,
	.bind = tier_bind,
	.hint = mem_hint_none,
	.copy = mem_copy,
};
