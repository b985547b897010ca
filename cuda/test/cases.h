/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cases of cuda-test: a kernel's inputs, a run under a schedule, the golden model's answer
 * beside it. One file a kernel holds its cases; main.cc runs them.
 */
#ifndef CUDA_TEST_CASES_H
#define CUDA_TEST_CASES_H

#include <stddef.h>
#include <stdint.h>

#include <string>
#include <vector>

#include "cuda/emu/launch.h"

/* Empty: as it should be; else what is wrong. */
struct cuda_case {
	std::string name;
	std::string (*run)(uint32_t argument, uint32_t schedule);
	uint32_t argument;
	bool of_model = false; /* it needs what only the model of the device does */
};

void decode_cases(std::vector<cuda_case> &to);
void index_cases(std::vector<cuda_case> &to);
void era_cases(std::vector<cuda_case> &to);
void layout_cases(std::vector<cuda_case> &to);
void words_cases(std::vector<cuda_case> &to);
void whole_cases(std::vector<cuda_case> &to); /* when asked for alone */
void wrappers_cases(std::vector<cuda_case> &to);

/* Which make of the kernels runs: C++ of their source, or what nvcc made of it (emu/ptx), both on
 * the model; or the latter on a device (device.cc). */
enum door_kind { DOOR_SOURCE, DOOR_PTX, DOOR_DEVICE, DOORS };
extern door_kind open_door;

/* Run a kernel of kernels.def. Empty: it came to its end; else what was wrong. */
std::string launch_bytes(const char *kernel, const emu::shape &shape, uint32_t schedule,
			 const void *p, size_t bytes);
/* On the model, by one of its two doors. */
std::string run_by(door_kind door, const char *kernel, const emu::shape &shape, uint32_t schedule,
		   const void *p, size_t bytes);

/* device.cc: 0, or why there is no device. Its memory; all of it goes with the last room. */
int device_begin();
bool device_stands_in();
unsigned char *device_take(size_t bytes);
void device_give_back(unsigned char *at, size_t bytes);
/* NULL until then. */
extern std::string (*on_device)(const char *kernel, const emu::shape &shape, const void *p);
template <class P>
std::string launch(const char *kernel, const emu::shape &shape, uint32_t schedule, const P &p)
{
	return launch_bytes(kernel, shape, schedule, &p, sizeof(p));
}

/*
 * Memory of the device for one run: what lies behind its last byte faults, and so does a write once
 * it is frozen, on the model. All of it goes when the room does.
 */
class room {
public:
	~room();
	template <class T> T *take(size_t count) { return (T *)take_bytes(count * sizeof(T)); }
	void freeze(); /* what was taken so far */

private:
	struct piece { unsigned char *map; size_t bytes; unsigned char *first; };
	std::vector<piece> pieces;
	void *take_bytes(size_t bytes);
};

std::string say(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
