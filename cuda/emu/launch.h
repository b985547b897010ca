/* SPDX-License-Identifier: Apache-2.0 */
/* Launching on the model of the device; emu.cuh says what that is. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <functional>

namespace emu {

struct shape {
	uint32_t blocks, threads, shared_bytes;
};

/* Run a kernel's body for each thread. False: why() says what went wrong. */
bool launch(const shape &shape, uint32_t seed, std::function<void()> body);
const char *why();

/*
 * Memory of the device. Copies check their source by it, and translated PTX (emu/ptx) each access:
 * bounds, alignment, what may only be read. In shared memory PTX is also checked for races: between
 * warps since the last bar.sync, between lanes since the last of these or bar.warp.sync.
 */
void allow(const void *at, size_t bytes, bool write);
void forbid(const void *at);
/* Memory of the host that processors write meanwhile: what lies there is old, and loads for the
 * whole system see what is at `now`. Until it is forbidden. */
void grow_old(const void *at, const void *now);
/* Once: before the load for the whole system that comes after so many. overtaken: if that one is
 * relaxed, the load behind it is performed first, and what has changed is seen by it alone. */
void change_after(uint32_t loads, std::function<void()> change, bool overtaken = false);
unsigned char *global_at(uint64_t at, uint32_t bytes, bool write, int line = __builtin_LINE());
unsigned char *shared_at(uint64_t at, uint32_t bytes, bool write, int line = __builtin_LINE());
/* Of what has rules of its own: mbarriers, copies. */
unsigned char *shared_plain(uint64_t at);

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
