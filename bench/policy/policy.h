/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policies that replay compares the daemon's with: the daemon does not have them. By name, the
 * daemon's first.
 */
#ifndef TIER_BENCH_POLICY_POLICY_H
#define TIER_BENCH_POLICY_POLICY_H

#include "tierd/core/unit/policy_ops.h"

struct context;

/* The i-th, copied; false after the last. By name; false = no such policy. */
bool bench_policy_at(uint32_t i, struct policy_ops *out);
bool bench_policy_find(const char *name, struct policy_ops *out);

/* Have a context that has no block yet use this one, which must outlive it. Errors: -ENOMEM. */
int bench_policy_use(struct context *x, const struct policy_ops *ops);

#endif
