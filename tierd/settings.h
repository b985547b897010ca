/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the operator's settings become in the core, and what of it the status shows. Here rather
 * than in a step of startup.c, so that a test can ask of every key where it went.
 */
#ifndef TIERD_SETTINGS_H
#define TIERD_SETTINGS_H

#include "tierd/config.h"
#include "tierd/core/core.h"
#include "tierd/obs/obs.h"

/* Fills in what the settings decide; capacities are there already, shares are of them. */
void settings_of_core(const struct config *config, struct core_config *c);

/* The limits that the status shows. */
struct obs_limits settings_shown(const struct config *config, const struct core_config *c);

#endif
