/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels by name, by either door; a mistake in assembly is in PTX of its own. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cuda/kernels/era.h"
#include "cuda/kernels/msa.h"
#include "cuda/kernels/words.h"
#include "cuda/kernels/wrappers.h"
#include "cuda/test/cases.h"

#define PTX(name)                                                                                  \
	extern "C" const uint32_t ptx_##name##_shared;                                             \
	extern "C" void ptx_##name(const unsigned char *param);
#define KERNEL(name, parameter) extern "C" void name(parameter p); PTX(name)
#include "cuda/test/kernels.def"
#undef KERNEL

#define PLANT(name, cases, what)
#define ASM_PLANT(name, what) PTX(msa_wrappers_all_##name)
#include "cuda/emu/plants.def"

door_kind open_door;
std::string (*on_device)(const char *kernel, const emu::shape &shape, const void *p);

namespace {

/* Translated PTX, and the bytes of its shared objects, which lie behind what is asked for. */
struct ptx {
	void (*run)(const unsigned char *param);
	const uint32_t *shared;
};

struct entry {
	const char *name;
	size_t bytes;
	void (*source)(const void *p);
	ptx made;
};

const entry entries[] = {
#define KERNEL(name, parameter)                                                                    \
	{ #name, sizeof(parameter), [](const void *p) { name(*(const parameter *)p); },            \
	  { ptx_##name, &ptx_##name##_shared } },
#include "cuda/test/kernels.def"
#undef KERNEL
};

/* Of wrappers.cu. */
const struct {
	emu::plant plant;
	ptx made;
} planted[] = {
#define ASM_PLANT(name, what)                                                                      \
	{ emu::PLANT_##name,                                                                       \
	  { ptx_msa_wrappers_all_##name, &ptx_msa_wrappers_all_##name##_shared } },
#include "cuda/emu/plants.def"
};

bool run_ptx(ptx made, emu::shape shape, uint32_t schedule, const void *p)
{
	for (const auto &with : planted)
		if (with.plant == emu::planted)
			made = with.made;
	shape.shared_bytes = (shape.shared_bytes + 15) / 16 * 16 + *made.shared;
	return emu::launch(shape, schedule, [made, p] { made.run((const unsigned char *)p); });
}

} // namespace

std::string say(const char *format, ...)
{
	char text[600];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	return text;
}

std::string run_by(door_kind door, const char *kernel, const emu::shape &shape, uint32_t schedule,
		   const void *p, size_t bytes)
{
	for (const entry &e : entries) {
		if (strcmp(e.name, kernel) != 0 || e.bytes != bytes)
			continue;
		const bool good = door == DOOR_PTX
			? run_ptx(e.made, shape, schedule, p)
			: emu::launch(shape, schedule, [&e, p] { e.source(p); });

		return good ? "" : say("%s: ", kernel) + emu::why();
	}
	return say("%s: no kernel is called that and takes %zu bytes", kernel, bytes);
}

std::string launch_bytes(const char *kernel, const emu::shape &shape, uint32_t schedule,
			 const void *p, size_t bytes)
{
	return open_door == DOOR_DEVICE ? on_device(kernel, shape, p)
					: run_by(open_door, kernel, shape, schedule, p, bytes);
}
