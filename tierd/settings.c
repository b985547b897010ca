/* SPDX-License-Identifier: Apache-2.0 */
/* From configuration keys to the core; see settings.h. */
#include "tierd/settings.h"

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
	c->user_sessions = config->user_sessions;
	if (c->user_sessions == 0)
		c->user_sessions = (config->clients_max * 3 + 3) / 4;
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
		.user_sessions = c->user_sessions,
		.user_contexts = config->user_contexts,
		.staging_bytes = config->staging_max,
		.requests = c->client_requests,
		.puts = c->client_puts,
		.pins = c->client_pins,
		.pin_percent = c->pin_percent,
		.quarantine_percent = c->quarantine_percent,
	};
}
