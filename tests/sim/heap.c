/* SPDX-License-Identifier: Apache-2.0 */
/*
 * calloc and free of the simulator and the core in it (ld --wrap): a world opens several cores, and
 * taking their large arrays anew cost as much time as all that is done with them.
 */
#include <stddef.h>

#include "tests/lib/areas.h"

void *__wrap_calloc(size_t count, size_t bytes);
void __wrap_free(void *at);
void *__real_calloc(size_t count, size_t bytes);
void __real_free(void *at);

void *__wrap_calloc(size_t count, size_t bytes)
{
	void *at = areas_take(count, bytes);

	return at ? at : __real_calloc(count, bytes);
}

void __wrap_free(void *at)
{
	if (!areas_give(at))
		__real_free(at);
}
