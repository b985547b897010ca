/* SPDX-License-Identifier: Apache-2.0 */
/* Each instruction of gpu.cuh once, by one warp: what goes in and comes out. */
#ifndef CUDA_KERNELS_WRAPPERS_H
#define CUDA_KERNELS_WRAPPERS_H

#include <stdint.h>

#define WRAPPERS_IN 16u
#define WRAPPERS_OUT 12u
#define WRAPPERS_BYTES 512u /* that a bulk copy brings */

struct msa_wrappers {
	const uint32_t *in;   /* [WRAPPERS_IN][32]: a word a lane */
	const uint32_t *bulk; /* [WRAPPERS_BYTES / 4], in units of 16 bytes */
	uint32_t *out;        /* [WRAPPERS_OUT][32] */
};

#endif
