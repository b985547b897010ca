/* SPDX-License-Identifier: Apache-2.0 */
/* Launching on the model of the device; emu.cuh says what that is. */
#pragma once
#include <stdint.h>

#include <functional>

namespace emu {

struct shape {
	uint32_t blocks, threads, shared_bytes;
};

/* Run a kernel's body for each thread. False: why() says what went wrong. */
bool launch(const shape &shape, uint32_t seed, std::function<void()> body);
const char *why();

/* The mistake that kernels make in this launch. */
enum plant {
	PLANT_none,
#define PLANT(name, cases, what) PLANT_##name,
#include "cuda/emu/plants.def"
#undef PLANT
	PLANTS
};
extern plant planted;

} // namespace emu
