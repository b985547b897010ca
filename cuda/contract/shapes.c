/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our declarations of the driver's interface against its own header, where that is installed:
 * sizes, places and values, at compile time. `make cuda-static` compiles it.
 */
#include <stddef.h>

#include <cuda.h>

/* The header's own constants have other names, so both can be included. */
#include "cuda/device/launch.h"
#include "libtier/base/cuda_driver.h"

#define SAME_SIZE(a, b) _Static_assert(sizeof(a) == sizeof(b), #a)
#define SAME_PLACE(a, x, b, y) _Static_assert(offsetof(a, x) == offsetof(b, y), #x)
#define SAME_VALUE(a, b) _Static_assert((long)(a) == (long)(b), #a)

SAME_SIZE(struct cuda_location, CUmemLocation);
SAME_SIZE(struct cuda_allocation, CUmemAllocationProp);
SAME_PLACE(struct cuda_allocation, handle_types, CUmemAllocationProp, requestedHandleTypes);
SAME_PLACE(struct cuda_allocation, location, CUmemAllocationProp, location);
SAME_PLACE(struct cuda_allocation, windows, CUmemAllocationProp, win32HandleMetaData);
SAME_PLACE(struct cuda_allocation, rdma, CUmemAllocationProp, allocFlags.gpuDirectRDMACapable);
SAME_SIZE(struct cuda_access, CUmemAccessDesc);
SAME_PLACE(struct cuda_access, flags, CUmemAccessDesc, flags);
SAME_SIZE(struct cuda_copy_attributes, CUmemcpyAttributes);
SAME_PLACE(struct cuda_copy_attributes, src_hint, CUmemcpyAttributes, srcLocHint);
SAME_PLACE(struct cuda_copy_attributes, dst_hint, CUmemcpyAttributes, dstLocHint);
SAME_SIZE(uint64_t, CUdeviceptr);
SAME_SIZE(uint64_t, CUmemGenericAllocationHandle);

SAME_VALUE(CUDA_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
SAME_VALUE(CUDA_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME_VALUE(CUDA_NOT_INITIALIZED, CUDA_ERROR_NOT_INITIALIZED);
SAME_VALUE(CUDA_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME_VALUE(CUDA_INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE);
SAME_VALUE(CUDA_INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT);
SAME_VALUE(CUDA_ECC_UNCORRECTABLE, CUDA_ERROR_ECC_UNCORRECTABLE);
SAME_VALUE(CUDA_INVALID_HANDLE, CUDA_ERROR_INVALID_HANDLE);
SAME_VALUE(CUDA_NOT_FOUND, CUDA_ERROR_NOT_FOUND);
SAME_VALUE(CUDA_NOT_READY, CUDA_ERROR_NOT_READY);
SAME_VALUE(CUDA_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS);
SAME_VALUE(CUDA_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED);
SAME_VALUE(CUDA_ATTRIBUTE_VIRTUAL_MEMORY,
	   CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
SAME_VALUE(CUDA_ATTRIBUTE_HANDLE_FD,
	   CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
SAME_VALUE(CUDA_ATTRIBUTE_REGISTER_READ_ONLY,
	   CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED);
SAME_VALUE(CUDA_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED);
SAME_VALUE(CUDA_AT_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
SAME_VALUE(CUDA_HANDLE_FD, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
SAME_VALUE(CUDA_GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
SAME_VALUE(CUDA_ACCESS_READ, CU_MEM_ACCESS_FLAGS_PROT_READ);
SAME_VALUE(CUDA_ACCESS_READ_WRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
SAME_VALUE(CUDA_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME_VALUE(CUDA_EVENT_BLOCKING_WAIT, CU_EVENT_BLOCKING_SYNC);
SAME_VALUE(CUDA_EVENT_NO_TIMING, CU_EVENT_DISABLE_TIMING);
SAME_VALUE(CUDA_REGISTER_READ_ONLY, CU_MEMHOSTREGISTER_READ_ONLY);
SAME_VALUE(CUDA_COPY_IN_STREAM_ORDER, CU_MEMCPY_SRC_ACCESS_ORDER_STREAM);

SAME_VALUE(CUDA_UNSUPPORTED_PTX, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
SAME_VALUE(CUDA_FUNCTION_DYNAMIC_SHARED, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME_VALUE(CUDA_MANAGED_GLOBAL, CU_MEM_ATTACH_GLOBAL);
SAME_VALUE(CUDA_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED);
SAME_VALUE(CUDA_ATTRIBUTE_MULTIPROCESSORS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME_VALUE(CUDA_ATTRIBUTE_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME_VALUE(CUDA_ATTRIBUTE_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME_VALUE(CUDA_ATTRIBUTE_HOST_POINTER,
	   CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM);

/* Theirs are what launch.def takes them for, where each handle is a pointer. */
#define SAME_CALL(theirs, ...)                                                                     \
	_Static_assert(__builtin_types_compatible_p(__typeof__(theirs), CUresult __VA_ARGS__),     \
		       #theirs)
SAME_CALL(cuModuleLoadData, (CUmodule *, const void *));
SAME_CALL(cuModuleGetFunction, (CUfunction *, CUmodule, const char *));
SAME_CALL(cuFuncSetAttribute, (CUfunction, CUfunction_attribute, int));
SAME_CALL(cuLaunchKernel, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
				   unsigned, unsigned, CUstream, void **, void **));
SAME_CALL(cuMemAllocManaged, (CUdeviceptr *, size_t, unsigned));
SAME_CALL(cuMemFree, (CUdeviceptr));
SAME_CALL(cuStreamBeginCapture, (CUstream, CUstreamCaptureMode));
SAME_CALL(cuStreamEndCapture, (CUstream, CUgraph *));
SAME_CALL(cuGraphInstantiateWithFlags, (CUgraphExec *, CUgraph, unsigned long long));
SAME_CALL(cuGraphLaunch, (CUgraphExec, CUstream));
