/* SPDX-License-Identifier: Apache-2.0 */
/* From configuration keys to the core; see settings.h. */
#include "tierd/settings.h"

#include <errno.h>
#include <stdio.h>

static void set_shares(const struct config *config, struct core_config *c)
{
	for (uint32_t t = 0; t < CONFIG_TIERS; t++) {
		uint64_t all = c->capacity[t];

		c->salt_limit[t].soft = units_resolve(&config->salt_soft[t], all, 0);
		c->salt_limit[t].hard = units_resolve(&config->salt_hard[t], all, 0);
		c->client_limit[t].soft = units_resolve(&config->client_soft[t], all, 0);
		c->client_limit[t].hard = units_resolve(&config->client_hard[t], all, 0);
	}
	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++) {
		c->salt_pins[t] = units_resolve(&config->salt_pinned[t], c->capacity[t], 0);
		c->client_pins_bytes[t] =
			units_resolve(&config->client_pinned[t], c->capacity[t], 0);
	}
}

void settings_of_core(const struct config *config, struct core_config *c)
{
	set_shares(config, c);
	c->dirty_percent = config->dirty_percent;
	c->pin_percent = config->pin_percent;
	c->quarantine_percent = config->quarantine_percent;
	c->client_requests = config->client_requests;
	c->client_puts = config->client_puts;
	c->client_pins = config->client_pins;
	c->user_connections = config->user_connections;
	if (c->user_connections == 0)
		c->user_connections = (config->clients_max * 3 + 3) / 4;
	c->request_deadline_ns = config->request_deadline;
	c->put_deadline_ns = config->put_deadline;
	c->writeback_age_ns = config->writeback_age;
	c->device_depth = config->nvme_depth;
	c->writeback_percent = config->writeback_percent;
	c->starve_ns = config->background_starve;
	c->yield = config->background_yield;
	c->admit_all = config->nvme_admit_all;
	c->stream_share = config->stream_share;
	c->stream_hold_ns = config->stream_hold;
	c->stream_again_ns = config->stream_again;
}

struct obs_limits settings_shown(const struct config *config, const struct core_config *c)
{
	return (struct obs_limits){
		.clients = config->clients_max,
		.user_connections = c->user_connections,
		.user_contexts = config->user_contexts,
		.staging_bytes = config->staging_max,
		.requests = c->client_requests,
		.puts = c->client_puts,
		.pins = c->client_pins,
		.pin_percent = c->pin_percent,
		.quarantine_percent = c->quarantine_percent,
		.table_bytes = c->table_bytes,
	};
}

/* An eighth of all, or half of what the tiers leave, if that is less. */
uint64_t settings_tables(const struct config *config, const uint64_t bytes[ABI_MEM_TIERS],
			 const struct mem_limit *limit)
{
	uint64_t tiers = bytes[ABI_TIER_HBM] + bytes[ABI_TIER_CXL];
	uint64_t left = limit->most > tiers ? limit->most - tiers : 0, most = limit->most / 8;

	most = left / 2 < most ? left / 2 : most;
	most = most < SETTINGS_TABLES_MIN ? SETTINGS_TABLES_MIN : most;
	return units_resolve(&config->index_size, limit->most, most);
}

/* Whom to name of two that do not fit together: whose size somebody chose; of these the larger. */
static const char *blamed(const struct config *config, const uint64_t bytes[ABI_MEM_TIERS])
{
	bool hbm = config->hbm_size.kind != UNITS_AUTO, cxl = config->cxl_size.kind != UNITS_AUTO;

	if (hbm == cxl)
		hbm = bytes[ABI_TIER_HBM] > bytes[ABI_TIER_CXL];
	return hbm ? "hbm.size" : "cxl.size";
}

int settings_fit(const struct config *config, const uint64_t bytes[ABI_MEM_TIERS],
		 const struct mem_limit *limit, struct settings_unfit *out)
{
	uint64_t hbm = bytes[ABI_TIER_HBM], cxl = bytes[ABI_TIER_CXL];
	uint64_t room = limit->most - limit->most / SETTINGS_MEMORY_SPARE;
	bool group = limit->says[0] == '/';
	char wanted[UNITS_TEXT_BYTES], most[UNITS_TEXT_BYTES], all[UNITS_TEXT_BYTES];

	if (hbm <= room && cxl <= room - hbm)
		return 0;
	config_where(config, blamed(config, bytes), out->where, sizeof(out->where));
	snprintf(out->advice, sizeof(out->advice),
		 "%s %s wanted, and %s of the %s that %s %s can be used: write a smaller size%s",
		 units_print_bytes(wanted, hbm + cxl), hbm && cxl ? "for both tiers are" : "are",
		 units_print_bytes(most, room), units_print_bytes(all, limit->most), limit->says,
		 group ? "allows" : "has", group ? " or auto, or raise that limit" : " or auto");
	return -ENOMEM;
}
