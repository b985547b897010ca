/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the operator's settings become in the core, and what of it the status shows. Here rather
 * than in a step of startup.c, so that a test can ask of every key where it went.
 */
#ifndef TIERD_SETTINGS_H
#define TIERD_SETTINGS_H

#include "tierd/backend/mem_limit.h"
#include "tierd/config.h"
#include "tierd/core/core.h"
#include "tierd/obs/obs.h"

/* Fills in what the settings decide; capacities are there already, shares are of them. */
void settings_of_core(const struct config *config, struct core_config *c);

/* The limits that the status shows. */
struct obs_limits settings_shown(const struct config *config, const struct core_config *c);

/* Bytes that tables of contexts may take beside tiers of these sizes: index.size. */
#define SETTINGS_TABLES_MIN (64ull << 20)
uint64_t settings_tables(const struct config *config, const uint64_t bytes[ABI_MEM_TIERS],
			 const struct mem_limit *limit);

/* Why memory tiers of some sizes cannot be. */
struct settings_unfit {
	char where[256];  /* the key, and who set it */
	char advice[384]; /* how much there is, and what to do */
};

/*
 * Do memory tiers of these bytes (0 = none) fit together into what there is? One in so many bytes
 * of it is not for tiers: indexes, staging and tables want memory, too, and a tier that takes their
 * part ends the daemon when it is full, not when it starts. Errors: -ENOMEM.
 */
#define SETTINGS_MEMORY_SPARE 16u
int settings_fit(const struct config *config, const uint64_t bytes[ABI_MEM_TIERS],
		 const struct mem_limit *limit, struct settings_unfit *out);

#endif
