/* SPDX-License-Identifier: Apache-2.0 */
/* The least that anybody who does not know when users return can have them wait; see ideal.c. */
#ifndef TIER_BENCH_MODEL_IDEAL_H
#define TIER_BENCH_MODEL_IDEAL_H

#include "bench/model/talk.h"

/*
 * The p95 of what talk_run's users wait for, from the return to the last layer, with cxl_bytes for
 * leads; mode, policy and leave do not count. Errors: -ENOMEM.
 */
int ideal_run(const struct talk_spec *spec, double *p95_ns);

#endif
