/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels by name: as C++ made of their source. */
#include <string.h>

#include "cuda/kernels/msa.h"
#include "cuda/test/cases.h"

#define KERNEL(name, parameter) extern "C" void name(parameter p);
#include "cuda/test/kernels.def"
#undef KERNEL

namespace {

struct entry {
	const char *name;
	size_t bytes;
	void (*source)(const void *p);
};

const entry entries[] = {
#define KERNEL(name, parameter)                                                                    \
	{ #name, sizeof(parameter), [](const void *p) { name(*(const parameter *)p); } },
#include "cuda/test/kernels.def"
#undef KERNEL
};

} // namespace

std::string launch_bytes(const char *kernel, const emu::shape &shape, uint32_t schedule,
			 const void *p, size_t bytes)
{
	for (const entry &e : entries) {
		if (strcmp(e.name, kernel) != 0 || e.bytes != bytes)
			continue;
		return emu::launch(shape, schedule, [&e, p] { e.source(p); })
			       ? "" : say("%s: ", kernel) + emu::why();
	}
	return say("%s: no kernel is called that and takes %zu bytes", kernel, bytes);
}
