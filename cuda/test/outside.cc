/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of the model of the device, run for C programs; see outside.h. */
#include "cuda/test/outside.h"

#include "cuda/test/cases.h"

void outside_allow(const void *at, size_t bytes, bool write)
{
	emu::allow(at, bytes, write);
}

const char *outside_run(const outside_launch *l, const void *param, size_t bytes)
{
	static std::string wrong;

	wrong = run_by(l->ptx ? DOOR_PTX : DOOR_SOURCE, l->kernel,
		       { l->blocks, l->threads, l->shared_bytes }, l->schedule, param, bytes);
	return wrong.empty() ? nullptr : wrong.c_str();
}
