/* SPDX-License-Identifier: Apache-2.0 */
/* Loading the CUDA driver; see cuda_driver.h. */
#include "libtier/base/cuda_driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

/* What the driver's own look-up is called; it has known versions since CUDA 12. */
#define LOOK_UP "cuGetProcAddress_v2"

typedef cuda_result (*look_up_fn)(const char *name, void **call, int32_t version, uint64_t flags,
				  int32_t *status);

struct entry {
	const char *name;
	int32_t version;
	size_t offset; /* in struct cuda_driver */
};

static const struct entry entries[] = {
#define ENTRY(field, name, version, parameters) \
	{ name, version, offsetof(struct cuda_driver, field) },
#include "libtier/base/cuda_driver.def"
#undef ENTRY
};

/* Its form of CUDA 12.8 takes other parameters: what is not this form is not called at all. */
static bool is_optional(const struct entry *e)
{
	return e->offset == offsetof(struct cuda_driver, copy_batch);
}

int cuda_driver_load(struct cuda_driver *out, const char **missing)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	look_up_fn look_up = NULL;

	memset(out, 0, sizeof(*out));
	if (missing)
		*missing = NULL;
	if (!library)
		return -ENODEV;
	*(void **)&look_up = dlsym(library, LOOK_UP);
	if (!look_up && missing)
		*missing = LOOK_UP;
	if (!look_up)
		return -ENOSYS;
	for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
		const struct entry *e = &entries[i];
		void **call = (void **)((char *)out + e->offset);

		if (look_up(e->name, call, e->version, 0, NULL) == 0 && *call)
			continue;
		*call = NULL;
		if (is_optional(e))
			continue;
		if (missing)
			*missing = e->name;
		return -ENOSYS;
	}
	return 0;
}

int cuda_errno(cuda_result result)
{
	switch (result) {
	case 0:
		return 0;
	case CUDA_OUT_OF_MEMORY:
		return -ENOMEM;
	case CUDA_INVALID_VALUE:
		return -EINVAL;
	case CUDA_NO_DEVICE:
	case CUDA_INVALID_DEVICE:
		return -ENODEV;
	case CUDA_NOT_SUPPORTED:
		return -EOPNOTSUPP;
	case CUDA_NOT_READY:
		return -EAGAIN;
	default:
		return -EIO;
	}
}
