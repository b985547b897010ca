/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of figures have in common; figures.c says what it is. */
#ifndef CUDA_DEVICE_FIGURES_H
#define CUDA_DEVICE_FIGURES_H

#include <errno.h>
#include <signal.h>

#include "cuda/device/layer.h"

/* What runs kernels on the stand-in. */
const char *figures_model(const char *kernel, uint32_t blocks, uint32_t threads,
			  uint32_t shared_bytes, const void *param, size_t bytes);
/* Ends the program with a remark. */
void figures_must(const struct door *d, cuda_result told, const char *what);

/* kills.c: the one who gives memory, and a process that reads it until it is killed. */
void figures_kills(struct door *d, uint32_t tokens);
_Noreturn void figures_victim(int memory, int shared);

#endif
