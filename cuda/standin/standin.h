/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for the CUDA driver, libcuda.so.1, for tests alone: it has the rules of the driver
 * that our code relies on (cuda/contract checks them, on the real one too) and none of its speed.
 *
 *   memory    an allocation is a memfd, so that a handle can be exported and imported; processors
 *             cannot touch what is mapped of it: the addresses are PROT_NONE.
 *   device    a process that shares the client's memory but not its life (clone, CLONE_VM): what
 *             was begun goes on after the client was killed, as on a GPU.
 *   failure   any call can be told to fail (standin_fail); an error of work under way is sticky.
 *
 * Tests load it before the code under test does: the loader then knows the name. A program of its
 * own finds it by LD_LIBRARY_PATH; STANDIN_FAIL="cuMemCreate:3:2,..." makes the third call answer
 * 2, STANDIN_US is what a copy takes, STANDIN_CUDA the version that it says it is (13000),
 * STANDIN_LEFT a file that says at the end how often it failed so, and what was not given back.
 */
#ifndef CUDA_STANDIN_STANDIN_H
#define CUDA_STANDIN_STANDIN_H

#include "libtier/base/cuda_driver.h"

#define STANDIN_DEVICE_BYTES (1ull << 30)
#define STANDIN_GRANULE ((size_t)2 << 20)

/* What there is and was not given back. */
struct standin_left {
	uint32_t contexts, handles, ranges, reservations, streams, events, registered;
};

/* The n-th call of that name from now (1 = the next) answers so. "engine": of the copies. */
typedef void (*standin_fail_fn)(const char *name, uint32_t nth, cuda_result answer);
/* Calls of that name so far. */
typedef uint32_t (*standin_calls_fn)(const char *name);
typedef void (*standin_left_fn)(struct standin_left *out);

/*
 * Where a kernel of the process finds what the device has mapped at that address; NULL: nothing, or
 * not for that. It goes with the mapping.
 */
typedef void *(*standin_window_fn)(uint64_t at, size_t bytes, int32_t write);

/*
 * In place of a launch: the device calls kernel with a copy of param (STANDIN_PARAM_BYTES at most),
 * in its turn on the stream. It runs in the device's process, beside the client's life and death:
 * it may read and write what the client has mapped, make system calls, and nothing else.
 */
#define STANDIN_PARAM_BYTES 128u
typedef cuda_result (*standin_launch_fn)(struct cuda_stream *stream, void (*kernel)(const void *),
					 const void *param, size_t bytes);

/*
 * What runs kernels that are launched as the driver has it (cuda/device/launch.def), by name, when
 * the launch is asked for. NULL, or what is wrong: then the device is lost.
 */
typedef const char *(*standin_run_fn)(const char *kernel, uint32_t blocks, uint32_t threads,
				      uint32_t shared_bytes, const void *param, size_t bytes);
typedef void (*standin_kernels_fn)(standin_run_fn run);

#endif
