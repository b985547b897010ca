/*
 * Reading of size-carrying structs; see options.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "libtier/src/options.h"

#include <errno.h>
#include <string.h>

#include "libtier/src/error.h"

#define OPTIONS_BYTES_MAX 4096 /* a larger size is not a size: the struct was not initialised */

int options_read(void *own, size_t own_bytes, const void *from)
{
	const char *bytes = from;
	size_t size;

	memset(own, 0, own_bytes);
	if (!from)
		return 0;
	memcpy(&size, from, sizeof(size));
	if (size < sizeof(size) || size > OPTIONS_BYTES_MAX)
		return error_set(-EINVAL, "options: size is %zu; set it with sizeof", size);
	for (size_t i = own_bytes; i < size; i++)
		if (bytes[i] != 0)
			return error_set(-E2BIG, "options: byte %zu is of a newer version than "
						 "this library (%zu bytes)", i, own_bytes);
	memcpy(own, from, size < own_bytes ? size : own_bytes);
	return 0;
}
