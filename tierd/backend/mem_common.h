/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all memory tiers that lie in memfds have in common: one sparse, sealed region a context, in
 * huge pages where the kernel grants them. A backend adds where the memory comes from. Called only
 * by the files of this folder, and by memory.c for indexes, which lie in ordinary memory.
 */
#ifndef TIERD_BACKEND_MEM_COMMON_H
#define TIERD_BACKEND_MEM_COMMON_H

#include <stdio.h>

#include "fpga-sim/port/port.h"
#include "tierd/backend/backend_ops.h"

extern const struct mem_ops mem_cuda;      /* cuda.c: hbm */
extern const struct mem_ops mem_host;      /* host.c: hbm, emulated */
extern const struct mem_ops mem_cxl_module; /* cxl_module.c */
extern const struct mem_ops mem_cxl_numa;  /* cxl_numa.c */
extern const struct mem_ops mem_cxl_memfd; /* cxl_memfd.c: cxl, emulated */
extern const struct mem_ops mem_cxl_sim;   /* cxl_sim.c: cxl, simulated */

/*
 * A memfd of mode 0600 with the seals SHRINK, GROW and SEAL, mapped shared at an address aligned to
 * ABI_HUGE; bytes a multiple of 4096. Errors: -EINVAL, -ENOMEM, -EMFILE.
 */
int mem_create(struct mem_region *region, const char *label, uint64_t bytes);

/*
 * Map a region's descriptor, which the region then owns, for reading and writing at a multiple of
 * ABI_HUGE, and keep it out of core dumps. Errors: -ENOMEM, those of mmap.
 */
int mem_map(struct mem_region *region, int fd, uint64_t bytes);

/* The slots of mem_ops, for any such region. Ranges are checked: -EINVAL. */
int mem_open(const struct mem_ops **self, const struct backend_info *info, uint64_t bytes);
void mem_close(const struct mem_ops *self);
int mem_create_plain(const struct mem_ops *self, struct mem_region *region, const char *label,
		     uint64_t bytes);
int mem_share(const struct mem_region *region, uint64_t client);
/* The tier is ordinary memory. */
int mem_bind(const struct mem_ops *self, void *addr, uint64_t bytes);
int mem_bind_none(const struct mem_ops *self, void *addr, uint64_t bytes);
int mem_hint_none(const struct mem_ops *self, const struct core_copy *copy);
int mem_revoke(const struct mem_region *region, uint64_t client);
int mem_grant(const struct mem_region *region, uint64_t offset, uint64_t bytes);
int mem_lend(const struct mem_region *region, uint64_t offset, uint64_t bytes, int *fd,
	     uint32_t *count);
void mem_destroy(struct mem_region *region);
void mem_leave(struct mem_region *region);
int mem_prepare(const struct mem_region *region, uint64_t offset, uint64_t bytes);
int mem_punch(const struct mem_region *region, uint64_t offset, uint64_t bytes);
int64_t mem_resident(const struct mem_region *region);
void mem_copy(const struct mem_ops *self, struct core_copy *copy);

/*
 * Any process that maps the region can set the NUMA policy of its memory, read-only as it may be:
 * that of a shared mapping is the file's. The region's own, for all of it, and again for a part.
 */
int mem_policy_first(const struct mem_region *region);
bool mem_policy_again(const struct mem_region *region, void *at, uint64_t bytes);

/*
 * Pages of a mapping come from these NUMA nodes, by bit, and no others. flags: MPOL_MF_MOVE, or 0.
 * Errors: -EINVAL, none of them has memory; those of mbind.
 */
int mem_policy_bind(void *at, uint64_t bytes, uint64_t nodes, unsigned flags);

/* In whole areas of ABI_HUGE, or up to the region's end; inside it. */
bool mem_range_is_sane(const struct mem_region *region, uint64_t offset, uint64_t bytes);

/*
 * So many percent of the host's available memory, or of what is left below a limit of this process'
 * control group, in whole huge pages; 0 = it cannot be told.
 */
uint64_t mem_host_share(uint32_t percent);

/* ---- cxl_sim.c: what its flash was told so far, for tests ------------------------------------ */

struct sim_flash cxl_sim_flash(const struct mem_ops *self);

/* ---- cxl_numa.c, in pieces that a host without CXL can test ---------------------------------- */

#define CXL_NODES_MAX 64u /* they are named by the bits of a word */

struct cxl_node {
	uint64_t bytes; /* 0 = none, or none online */
	uint64_t free_bytes;
	bool has_cpus;
	bool allowed; /* by this process's cpuset */
	uint32_t read_mbs; /* by the firmware (HMAT), from the nearest processors; 0 = unknown */
	bool absent; /* the kernel knows no node of that number */
};

/*
 * What to use of these nodes, which are numbered by their index: those that are named, by bit;
 * where none is, the quickest of those without processors that are at least half as large as the
 * largest, by size where that is all that is known. info describes them. Errors: -ENODEV,
 * info->detail says of a named one why.
 */
int cxl_numa_choose(const struct cxl_node *node, uint32_t count, uint64_t named,
		    struct backend_info *info);
/* Has one of the nodes pages of the movable zone? By the lines of /proc/zoneinfo. */
bool cxl_numa_movable(FILE *zoneinfo, uint64_t nodes);
/* As mem_create, with all memory from these nodes. Errors: also -EINVAL, none has memory. */
int cxl_numa_create(struct mem_region *region, const char *label, uint64_t bytes, uint64_t nodes);

#endif
