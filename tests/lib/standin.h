/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stand-in for the CUDA driver (cuda/standin), loaded before the code under test looks for one:
 * by its name the loader then finds this one, also where a real driver is installed.
 */
#ifndef TESTS_LIB_STANDIN_H
#define TESTS_LIB_STANDIN_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda/standin/standin.h"

struct standin_calls {
	standin_fail_fn fail_at;
	standin_calls_fn calls;
	standin_left_fn left;
	standin_launch_fn launch;
	standin_window_fn window;
};

/* Ends the test where it is not built. */
static inline struct standin_calls standin_load(void)
{
	const char *build = getenv("BUILD");
	struct standin_calls s;
	char path[512];
	void *library;

	snprintf(path, sizeof(path), "%s/../cuda/libcuda.so.1", build ? build : "build/plain");
	library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	if (!library) {
		fprintf(stderr, "no stand-in for the CUDA driver: %s (BUILD=build/plain?)\n",
			dlerror());
		exit(1);
	}
	*(void **)&s.fail_at = dlsym(library, "standin_fail");
	*(void **)&s.calls = dlsym(library, "standin_calls");
	*(void **)&s.left = dlsym(library, "standin_left");
	*(void **)&s.launch = dlsym(library, "standin_launch");
	*(void **)&s.window = dlsym(library, "standin_window");
	return s;
}

#endif
