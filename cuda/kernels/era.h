/* SPDX-License-Identifier: Apache-2.0 */
/* The last node of a graph that reads pages in place: it counts the launch (docs/cuda.md). */
#ifndef CUDA_KERNELS_ERA_H
#define CUDA_KERNELS_ERA_H

#include <stdint.h>

struct msa_era {
	uint64_t *done; /* as tier_era_open gave it, registered with the device */
};

/* msa_era_end: grid 1, 32 threads. */

#endif
