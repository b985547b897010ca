/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA driver, loaded where there is one: its calls and the few shapes that they take, declared
 * here, so that one binary is built and runs on machines without CUDA. Values and layouts are the
 * driver's interface; cuda/contract/shapes.c compares them with its header where that is installed.
 */
#ifndef TIER_BASE_CUDA_DRIVER_H
#define TIER_BASE_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

typedef int32_t cuda_result; /* 0 or one of the driver's errors */

enum cuda_error {
	CUDA_INVALID_VALUE = 1,
	CUDA_OUT_OF_MEMORY = 2,
	CUDA_NOT_INITIALIZED = 3,
	CUDA_NO_DEVICE = 100,
	CUDA_INVALID_DEVICE = 101,
	CUDA_INVALID_CONTEXT = 201,
	CUDA_ECC_UNCORRECTABLE = 214,
	CUDA_INVALID_HANDLE = 400,
	CUDA_NOT_FOUND = 500,
	CUDA_NOT_READY = 600,
	CUDA_ILLEGAL_ADDRESS = 700,
	CUDA_NOT_SUPPORTED = 801,
};

#define CUDA_ATTRIBUTE_VIRTUAL_MEMORY 102
#define CUDA_ATTRIBUTE_HANDLE_FD 103
#define CUDA_ATTRIBUTE_REGISTER_READ_ONLY 113
#define CUDA_PINNED 1
#define CUDA_AT_DEVICE 1
#define CUDA_HANDLE_FD 1
#define CUDA_GRANULARITY_MINIMUM 0
#define CUDA_ACCESS_READ 1
#define CUDA_ACCESS_READ_WRITE 3
#define CUDA_STREAM_NON_BLOCKING 1u
#define CUDA_EVENT_BLOCKING_WAIT 1u
#define CUDA_EVENT_NO_TIMING 2u
#define CUDA_REGISTER_READ_ONLY 8u
#define CUDA_COPY_IN_STREAM_ORDER 1

struct cuda_location {
	int32_t type;
	int32_t id;
};

struct cuda_allocation {
	int32_t type;
	int32_t handle_types;
	struct cuda_location location;
	void *windows;
	uint8_t compression, rdma;
	uint16_t usage;
	uint8_t reserved[4];
};

struct cuda_access {
	struct cuda_location location;
	int32_t flags;
};

struct cuda_copy_attributes {
	int32_t order;
	struct cuda_location src_hint, dst_hint;
	uint32_t flags;
};

struct cuda_context;
struct cuda_stream;
struct cuda_event;

/* Each field is a call of the driver's; documented by its vendor under the name in the list. */
struct cuda_driver {
#define ENTRY(field, name, version, parameters) cuda_result(*field) parameters;
#include "libtier/base/cuda_driver.def"
#undef ENTRY
};

/*
 * Load libcuda.so.1 for the life of the process, and look up all calls; copy_batch is NULL where
 * the driver is too old for it. missing, which may be NULL: the first call that it does not know.
 * Errors: -ENODEV no driver here, -ENOSYS it lacks a call.
 */
int cuda_driver_load(struct cuda_driver *out, const char **missing);

/* -ENOMEM, -EINVAL, -ENODEV, -EOPNOTSUPP, -EAGAIN: not ready; -EIO: all that ends a context. */
int cuda_errno(cuda_result result);

#endif
