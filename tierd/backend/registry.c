/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which backends there are, best first by tier. Called at start-up only.
 */
#include <stdio.h>
#include <string.h>

#include "tierd/backend/mem_common.h"
#include "tierd/backend/nvme.h"

static const struct mem_ops *const hbm[] = { &mem_cuda, &mem_host, NULL };
/* memfd is there always: what stands behind it is found by its name only. */
static const struct mem_ops *const cxl[] = { &mem_cxl_module, &mem_cxl_numa, &mem_cxl_memfd,
					     &mem_cxl_sim, NULL };
static const struct mem_ops *const *const by_tier[ABI_MEM_TIERS] = {
	[ABI_TIER_HBM] = hbm,
	[ABI_TIER_CXL] = cxl,
};

const struct mem_ops *const mem_index = &mem_cxl_memfd;

static bool is_auto(const char *name)
{
	return !name || !*name || !strcmp(name, "auto");
}

const struct mem_ops *mem_backend(uint32_t tier, const char *name, uint64_t nodes,
				  struct backend_info *info)
{
	struct backend_info found = { .detail = "" };

	if (tier >= ABI_MEM_TIERS)
		return NULL;
	for (const struct mem_ops *const *ops = by_tier[tier]; *ops; ops++) {
		if (!is_auto(name) && strcmp(name, (*ops)->name) != 0)
			continue;
		if (nodes && *ops != &mem_cxl_numa)
			continue;
		if ((*ops)->probe(nodes, &found))
			continue;
		if (info)
			*info = found;
		return *ops;
	}
	if (info)
		*info = found;
	return NULL;
}

void mem_backend_names(uint32_t tier, char *text, size_t bytes)
{
	size_t at = 0;

	text[0] = '\0';
	for (const struct mem_ops *const *ops = by_tier[tier]; *ops && at < bytes; ops++)
		at += (size_t)snprintf(text + at, bytes - at, "%s%s", at ? ", " : "", (*ops)->name);
}

const struct drive_ops *drive_backend(const char *name)
{
	if (is_auto(name) || !strcmp(name, drive_nvme.name))
		return &drive_nvme;
	return strcmp(name, drive_nvme_pass.name) ? NULL : &drive_nvme_pass;
}
