/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel for a C program, run by the model of the device on memory that the program names. */
#ifndef CUDA_TEST_OUTSIDE_H
#define CUDA_TEST_OUTSIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct outside_launch {
	const char *kernel; /* of kernels.def */
	uint32_t blocks, threads, shared_bytes;
	uint32_t schedule;
	bool ptx; /* what nvcc made of it, not the source */
};

/* What the kernel may touch from now on. */
void outside_allow(const void *at, size_t bytes, bool write);
/* NULL, or what is wrong: until the next call. */
const char *outside_run(const struct outside_launch *launch, const void *param, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
