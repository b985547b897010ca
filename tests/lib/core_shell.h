/* SPDX-License-Identifier: Apache-2.0 */
/* What shells of the core in tests and benches share: how an action is answered. */
#ifndef TIER_TESTS_CORE_SHELL_H
#define TIER_TESTS_CORE_SHELL_H

#include "tierd/core/core.h"

/*
 * The event that says that the action is done, of a flush or a discard: well. False: it is none
 * that wants one. A scan is the caller's.
 */
bool core_shell_done(const struct core_action *a, struct core_event *e);

/* The same for a shell that moves no byte: what was to move came whole. */
bool core_shell_at_once(const struct core_action *a, struct core_event *e);

#endif
