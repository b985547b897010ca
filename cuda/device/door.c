/* SPDX-License-Identifier: Apache-2.0 */
/* Loading the kernels' PTX into a driver, and starting them; see door.h. */
#include "cuda/device/door.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FOLDER "cuda/ptx"
#define TEXT_MAX (1u << 20)
#define CHUNK ((size_t)2 << 20)
#define NEEDS_MAJOR 9

static const char *const modules[DOOR_MODULES] = { "decode", "index",  "layout",
						   "era",    "words", "wrappers" };

static const struct {
	const char *name;
	size_t offset;
} starts[] = {
#define ENTRY(field, name, version, parameters) { name, offsetof(struct cuda_launches, field) },
#include "cuda/device/launch.def"
#undef ENTRY
};

typedef cuda_result (*look_up_fn)(const char *name, void **call, int32_t version, uint64_t flags,
				  int32_t *status);

/* ---- the driver ------------------------------------------------------------------------------ */

static int look_up_starts(struct door *d, standin_run_fn model)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	look_up_fn look_up = NULL;
	standin_kernels_fn take_model = NULL;

	*(void **)&look_up = dlsym(library, "cuGetProcAddress_v2");
	*(void **)&take_model = dlsym(library, "standin_kernels");
	*(void **)&d->window = dlsym(library, "standin_window");
	if (take_model)
		take_model(model);
	for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++) {
		void **call = (void **)((char *)&d->starts + starts[i].offset);

		if (look_up(starts[i].name, call, 12000, 0, NULL) == 0 && *call)
			continue;
		printf("# the driver has no %s\n", starts[i].name);
		return -EIO;
	}
	return 0;
}

static int find_device(struct door *d)
{
	const char *missing = NULL;
	int32_t count = 0;
	cuda_result told;
	int rc = cuda_driver_load(&d->cu, &missing);

	if (rc) {
		printf("# no driver: libcuda.so.1 %s %s\n",
		       missing ? "does not know" : "is not there", missing ? missing : "");
		return -ENODEV;
	}
	told = d->cu.init(0);
	if (told == 0)
		told = d->cu.device_count(&count);
	if (told || !count) {
		printf("# no device: the driver answers %d (%s)\n", told, door_error(d, told));
		return -ENODEV;
	}
	d->cu.version(&d->version);
	d->cu.device_name(d->device, sizeof(d->device), 0);
	d->cu.device_attribute(&d->major, CUDA_ATTRIBUTE_MAJOR, 0);
	d->cu.device_attribute(&d->minor, CUDA_ATTRIBUTE_MINOR, 0);
	printf("# device: %s, sm_%d%d; driver of CUDA %d.%d\n", d->device, d->major, d->minor,
	       d->version / 1000, d->version % 1000 / 10);
	if (d->major < NEEDS_MAJOR) {
		printf("# the kernels need sm_90 or newer\n");
		return -EOPNOTSUPP;
	}
	return 0;
}

const char *door_error(const struct door *d, cuda_result result)
{
	const char *name = NULL;

	return d->cu.error_name(result, &name) == 0 && name ? name : "an error without a name";
}

static int failed(const struct door *d, cuda_result result, const char *what, const char *of)
{
	printf("# %s %s: the driver answers %d (%s)\n", what, of, result, door_error(d, result));
	return -EIO;
}

/* ---- the kernels ----------------------------------------------------------------------------- */

/* What the kernels need of PTX and of a device; nvcc wrote what it had. Blanks end a short line. */
static void ask_for_less(char *text)
{
	static const char *const asked[][2] = { { "\n.version ", "8.0" },
						{ "\n.target ", "sm_90" } };

	for (size_t i = 0; i < 2; i++) {
		char *at = strstr(text, asked[i][0]), *end;

		if (!at)
			continue;
		at += strlen(asked[i][0]);
		end = strchr(at, '\n');
		memset(at, ' ', (size_t)(end - at));
		memcpy(at, asked[i][1], strlen(asked[i][1]));
	}
}

static int load_module(struct door *d, uint32_t i)
{
	char path[64], *text = calloc(1, TEXT_MAX);
	cuda_result told;
	size_t bytes;
	FILE *f;

	snprintf(path, sizeof(path), FOLDER "/%s.ptx", modules[i]);
	f = fopen(path, "r");
	if (!f || !text) {
		printf("# %s: %s\n", path, strerror(errno));
		if (f)
			fclose(f);
		free(text);
		return -EIO;
	}
	bytes = fread(text, 1, TEXT_MAX - 1, f);
	fclose(f);
	if (bytes)
		ask_for_less(text);
	told = d->starts.module_load(&d->module[i], text);
	free(text);
	return told ? failed(d, told, "loading", path) : 0;
}

static cuda_result find_kernel(struct door *d, const char *name, struct door_kernel **out)
{
	cuda_result told = CUDA_NOT_FOUND;

	for (uint32_t i = 0; i < DOOR_KERNELS; i++) {
		struct door_kernel *k = &d->kernel[i];

		*out = k;
		if (k->name && strcmp(k->name, name) != 0)
			continue;
		if (k->name)
			return 0;
		for (uint32_t m = 0; m < DOOR_MODULES && told == CUDA_NOT_FOUND; m++)
			told = d->starts.function(&k->function, d->module[m], name);
		if (told == 0)
			*k = (struct door_kernel){ name, k->function, CUDA_SHARED_DEFAULT };
		return told;
	}
	return CUDA_OUT_OF_MEMORY;
}

int door_open(struct door *d, standin_run_fn model)
{
	cuda_result told;
	int rc;

	memset(d, 0, sizeof(*d));
	rc = find_device(d);
	if (rc == 0)
		rc = look_up_starts(d, model);
	if (rc)
		return rc;
	told = d->cu.context_retain(&d->context, 0);
	if (told)
		return failed(d, told, "a context of", d->device);
	told = d->cu.context_set(d->context);
	if (told == 0)
		told = d->cu.stream_create(&d->stream, CUDA_STREAM_NON_BLOCKING, 0);
	if (told)
		rc = failed(d, told, "a stream of", d->device);
	for (uint32_t i = 0; i < DOOR_MODULES && rc == 0; i++)
		rc = load_module(d, i);
	if (rc)
		door_close(d);
	return rc;
}

void door_close(struct door *d)
{
	if (d->stream)
		d->cu.stream_destroy(d->stream);
	if (d->context)
		d->cu.context_release(0);
	d->stream = NULL;
	d->context = NULL;
}

cuda_result door_launch(struct door *d, const char *kernel, uint32_t blocks, uint32_t threads,
			uint32_t shared_bytes, const void *param)
{
	/* The driver takes a copy of what this points to; it does not say const. */
	void *parameters[] = { (void *)(uintptr_t)param };
	struct door_kernel *k;
	cuda_result told = find_kernel(d, kernel, &k);

	if (told == 0 && shared_bytes > k->shared_bytes) {
		told = d->starts.function_set(k->function, CUDA_FUNCTION_DYNAMIC_SHARED,
					      (int32_t)shared_bytes);
		k->shared_bytes = shared_bytes;
	}
	return told ? told : d->starts.launch(k->function, blocks, 1, 1, threads, 1, 1,
					      shared_bytes, d->stream, parameters, NULL);
}

/* ---- memory ---------------------------------------------------------------------------------- */

cuda_result door_take(struct door *d, size_t bytes, struct door_memory *out)
{
	const struct cuda_location here = { .type = CUDA_AT_DEVICE };
	const struct cuda_allocation kind = { .type = CUDA_PINNED, .handle_types = CUDA_HANDLE_FD,
					      .location = here };
	const struct cuda_access both = { here, CUDA_ACCESS_READ_WRITE };
	cuda_result told;

	*out = (struct door_memory){ .bytes = (bytes + CHUNK - 1) / CHUNK * CHUNK };
	told = d->cu.create(&out->handle, out->bytes, &kind, 0);
	if (told == 0)
		told = d->cu.reserve(&out->at, out->bytes, CHUNK, 0, 0);
	if (told == 0)
		told = d->cu.map(out->at, out->bytes, 0, out->handle, 0);
	if (told == 0)
		told = d->cu.set_access(out->at, out->bytes, &both, 1);
	out->seen = d->window && told == 0
			    ? (uintptr_t)d->window(out->at, out->bytes, true) : out->at;
	return told;
}

void door_give_back(struct door *d, struct door_memory *m)
{
	d->cu.unmap(m->at, m->bytes);
	d->cu.release(m->handle);
	d->cu.unreserve(m->at, m->bytes);
	m->seen = 0;
}
