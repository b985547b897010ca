/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CXL memory as the kernel shows it once it is online: a NUMA node with memory and no processors.
 * The policy is set on the memfd's pages (MPOL_BIND on a shared mapping), so whichever process
 * touches one first, it comes from that node; when the node is full, an allocation fails rather
 * than spill into DRAM.
 */
#include <errno.h>
#include <numa.h>
#include <numaif.h>
#include <stdio.h>
#include <string.h>

#include "libtier/base/cleanup.h"
#include "libtier/base/units.h"
#include "tierd/backend/mem_common.h"

#ifndef MPOL_F_STATIC_NODES /* of the kernel's ABI; not in every numaif.h */
#define MPOL_F_STATIC_NODES (1 << 15)
#endif

/* Of what is free on the node: the kernel keeps some for itself. */
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

int cxl_numa_choose(const struct cxl_node *node, uint32_t count)
{
	int best = -ENODEV;
	uint64_t most = 0;

	for (uint32_t i = 0; i < count; i++)
		if (may_use(&node[i]) && node[i].bytes > most)
			most = node[i].bytes;
	/* Interleaving over several is for a config to ask. */
	for (uint32_t i = 0; i < count; i++)
		if (may_use(&node[i]) && node[i].bytes >= most / 2 &&
		    (best < 0 || is_better(&node[i], &node[best])))
			best = (int)i;
	return best;
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

int cxl_numa_find(struct cxl_node *found)
{
	struct cxl_node node[CXL_NODES_MAX];
	struct bitmask *cpus;
	uint32_t count;
	int best;

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
		};
	}
	numa_free_cpumask(cpus);
	best = cxl_numa_choose(node, count);
	if (best >= 0)
		*found = node[best];
	return best;
}

static int cxl_numa_bind(void *addr, uint64_t bytes, int node)
{
	struct bitmask *nodes;
	int rc = 0;

	if (node < 0 || numa_available() < 0 || node > numa_max_node())
		return -EINVAL;
	nodes = numa_allocate_nodemask();
	if (!nodes)
		return -ENOMEM;
	numa_bitmask_setbit(nodes, (unsigned)node);
	/* STATIC_NODES: a later cpuset change must not move the tier to other nodes. */
	if (mbind(addr, bytes, MPOL_BIND | MPOL_F_STATIC_NODES, nodes->maskp, nodes->size + 1, 0))
		rc = -errno;
	numa_free_nodemask(nodes);
	return rc;
}

void cxl_numa_describe(int node, const struct cxl_node *found, struct backend_info *info)
{
	char text[UNITS_TEXT_BYTES];

	*info = (struct backend_info){ .name = "numa" };
	snprintf(info->detail, sizeof(info->detail), "CPU-less node %d, %s", node,
		 units_print_bytes(text, found->bytes));
	if (found->read_mbs) {
		size_t n = strlen(info->detail);

		snprintf(info->detail + n, sizeof(info->detail) - n, ", read at %.1f GB/s by HMAT",
			 found->read_mbs / 1e3);
	}
	info->capacity_auto = found->free_bytes / 100 * SHARE_PERCENT / ABI_HUGE * ABI_HUGE;
	info->capacity_most = found->bytes;
}

static int numa_probe(struct backend_info *info)
{
	struct cxl_node found;
	int node = cxl_numa_find(&found);

	if (node < 0)
		return -ENODEV;
	cxl_numa_describe(node, &found, info);
	return 0;
}

int cxl_numa_create(struct mem_region *region, const char *label, uint64_t bytes, int node)
{
	int rc = mem_create(region, label, bytes);

	if (rc)
		return rc;
	region->node = node + 1;
	rc = cxl_numa_bind(region->addr, region->bytes, node);
	if (rc)
		mem_destroy(region);
	return rc;
}

static int numa_create(const struct mem_ops *self, struct mem_region *region, const char *label,
		       uint64_t bytes)
{
	struct cxl_node found;
	int node = cxl_numa_find(&found);

	(void)self;
	/* It may have been taken offline since the probe. */
	return node < 0 ? -ENODEV : cxl_numa_create(region, label, bytes, node);
}

static int tier_bind(const struct mem_ops *self, void *addr, uint64_t bytes)
{
	struct cxl_node found;
	int node = cxl_numa_find(&found);

	(void)self;
	return node < 0 ? -ENODEV : cxl_numa_bind(addr, bytes, node);
}

bool cxl_numa_movable(FILE *zoneinfo, int node)
{
	char line[256], zone[32];
	unsigned long long pages;
	int at = -1;

	zone[0] = '\0';
	while (fgets(line, sizeof(line), zoneinfo)) {
		if (sscanf(line, "Node %d, zone %31s", &at, zone) == 2)
			continue;
		if (at == node && !strcmp(zone, "Movable") &&
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
	bool movable = !zoneinfo || cxl_numa_movable(zoneinfo, region->node - 1);

	if (zoneinfo)
		fclose(zoneinfo);
	*count = 0;
	return movable ? -EOPNOTSUPP : mem_lend(region, offset, bytes, fd, count);
}

const struct mem_ops mem_cxl_numa = {
	.name = "numa",
	.probe = numa_probe,
	.open = mem_open,
	.close = mem_close,
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
