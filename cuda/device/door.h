/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A door to a device for the kernels: their PTX in cuda/ptx is handed to whichever libcuda.so.1 the
 * loader finds, which makes code of it for the device that is there. No compiler is needed, and a
 * driver of CUDA 12.0 is enough: the text asks for PTX 8.0 and sm_90, of which newer devices are
 * heirs (`make cuda-static` assembles it so). On the stand-in for the driver the model of the
 * device runs what nvcc made, access by access.
 */
#ifndef CUDA_DEVICE_DOOR_H
#define CUDA_DEVICE_DOOR_H

#include <stdbool.h>

#include "cuda/device/launch.h"
#include "cuda/standin/standin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DOOR_KERNELS 16u
#define DOOR_MODULES 6u

struct door_kernel {
	const char *name;
	struct cuda_function *function;
	uint32_t shared_bytes; /* asked for so far */
};

struct door {
	struct cuda_driver cu;
	struct cuda_launches starts;
	struct cuda_context *context;
	struct cuda_stream *stream;
	struct cuda_module *module[DOOR_MODULES];
	struct door_kernel kernel[DOOR_KERNELS];
	standin_window_fn window; /* NULL: a real driver */
	char device[128];
	int32_t version, major, minor;
};

/*
 * The driver, its first device, a context and a stream; the kernels. model runs them on the
 * stand-in. Says on standard output whose device it is, or in a remark why there is none.
 * Errors: -ENODEV no driver or no device; -EOPNOTSUPP one that is too old; -EIO all else.
 */
int door_open(struct door *d, standin_run_fn model);
void door_close(struct door *d);

/* What the driver calls this answer; 0: none. In a thread of its own a context is made current. */
const char *door_error(const struct door *d, cuda_result result);

/* A kernel of cuda/ptx by its name; param is its one parameter. Errors: the driver's. */
cuda_result door_launch(struct door *d, const char *kernel, uint32_t blocks, uint32_t threads,
			uint32_t shared_bytes, const void *param);

/* Memory of the device, mapped as the daemon has it. */
struct door_memory {
	uint64_t handle, at;
	uint64_t seen; /* where kernels find it; at, but for the stand-in's */
	size_t bytes;  /* a multiple of 2 MiB */
};

cuda_result door_take(struct door *d, size_t bytes, struct door_memory *out);
void door_give_back(struct door *d, struct door_memory *m);

#ifdef __cplusplus
}
#endif

#endif
