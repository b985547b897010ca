/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The third door of cuda-test: a device by its driver, or what stands in for one. The memory of a
 * case is managed, so that it has one address for case and kernel; where a driver has none, it is
 * registered host memory. What lies behind its end is the business of compute-sanitizer.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "cuda/device/door.h"
#include "cuda/test/cases.h"

namespace {

door *there;
bool unmanaged; /* the driver has none */

const char *run_by_model(const char *kernel, uint32_t blocks, uint32_t threads,
			 uint32_t shared_bytes, const void *param, size_t bytes)
{
	static std::string wrong;

	wrong = run_by(DOOR_PTX, kernel, { blocks, threads, shared_bytes }, 0, param, bytes);
	return wrong.empty() ? nullptr : wrong.c_str();
}

/* After a bad answer the context is of no use. */
[[noreturn]] void lost(const char *what, cuda_result told)
{
	printf("# %s: the driver answers %d (%s)\nBail out! the device is lost\n", what, told,
	       door_error(there, told));
	exit(1);
}

std::string run_there(const char *kernel, const emu::shape &s, const void *p)
{
	cuda_result told = door_launch(there, kernel, s.blocks, s.threads, s.shared_bytes, p);

	if (!told)
		told = there->cu.stream_wait(there->stream);
	if (told)
		lost(kernel, told);
	return "";
}

void *take_registered(size_t bytes)
{
	void *at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	cuda_result told = at == MAP_FAILED ? CUDA_OUT_OF_MEMORY
					    : there->cu.host_register(at, bytes, 0);

	if (told)
		lost("registered memory", told);
	return at;
}

} // namespace

int device_begin()
{
	int32_t same = 0;
	uint64_t at;
	int rc;

	there = new door();
	rc = door_open(there, run_by_model);
	if (rc)
		return rc;
	on_device = run_there;
	unmanaged = there->starts.managed(&at, 1, CUDA_MANAGED_GLOBAL) != 0;
	if (!unmanaged)
		return 0;
	printf("# no managed memory: kernels read registered host memory\n");
	there->cu.device_attribute(&same, CUDA_ATTRIBUTE_HOST_POINTER, 0);
	if (!same)
		printf("# ... which has another address on the device: no case can be run\n");
	return same ? 0 : -1;
}

bool device_stands_in()
{
	return there && there->window;
}

/* Each by itself, or nobody would see a kernel read behind its end. */
unsigned char *device_take(size_t bytes)
{
	uint64_t at;
	cuda_result told;

	if (unmanaged)
		return (unsigned char *)take_registered(bytes);
	told = there->starts.managed(&at, bytes, CUDA_MANAGED_GLOBAL);
	if (told)
		lost("managed memory", told);
	return (unsigned char *)(uintptr_t)at;
}

void device_give_back(unsigned char *at, size_t bytes)
{
	cuda_result told = unmanaged ? there->cu.host_unregister(at)
				     : there->starts.managed_end((uint64_t)(uintptr_t)at);

	if (told)
		lost("memory given back", told);
	if (unmanaged)
		munmap(at, bytes);
}
