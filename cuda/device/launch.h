/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes and values of launch.def; cuda/contract/shapes.c has them beside the driver's header. */
#ifndef CUDA_DEVICE_LAUNCH_H
#define CUDA_DEVICE_LAUNCH_H

#include "libtier/base/cuda_driver.h"

#define CUDA_UNSUPPORTED_PTX 222
#define CUDA_FUNCTION_DYNAMIC_SHARED 8 /* an attribute: bytes at most */
#define CUDA_SHARED_DEFAULT 49152u     /* what may be asked for without it */
#define CUDA_MANAGED_GLOBAL 1u
#define CUDA_CAPTURE_RELAXED 2
#define CUDA_ATTRIBUTE_MULTIPROCESSORS 16
#define CUDA_ATTRIBUTE_MAJOR 75
#define CUDA_ATTRIBUTE_MINOR 76
#define CUDA_ATTRIBUTE_HOST_POINTER 91 /* registered memory has the processor's address */

struct cuda_module;
struct cuda_function;
struct cuda_graph;
struct cuda_run;

struct cuda_launches {
#define ENTRY(field, name, version, parameters) cuda_result(*field) parameters;
#include "cuda/device/launch.def"
#undef ENTRY
};

#endif
