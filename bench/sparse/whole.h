/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What pages on demand are measured against: the whole context comes back for each token, before
 * the step or layer by layer. Memory has no room for it at once, so it comes by pieces, and stays
 * as far as pages are chosen, under leases. The outputs are computed from these.
 */
#ifndef TIER_BENCH_SPARSE_WHOLE_H
#define TIER_BENCH_SPARSE_WHOLE_H

#include "bench/sparse/decode.h"

enum whole_way { WHOLE_BEFORE, WHOLE_LAYERWISE, WHOLE_WAYS };

/* One step of the trace: d->outputs and d->wrong count. Errors: the library's; said. */
int whole_step(struct decode *d, uint32_t step, enum whole_way way);

#endif
