/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels of the stand-in: a module is PTX in text, its kernels are run by whatever the program has
 * named (standin_kernels_fn), in the thread that launches, when all before it in the stream has
 * ended. So a launch has ended when the call comes back; graphs are lists of launches.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cuda/device/launch.h"
#include "cuda/standin/inside.h"

#define NAME_BYTES 64u
#define NODES_MAX 256u
#define PARAM_BYTES 256u

struct cuda_function {
	char name[NAME_BYTES];
	size_t bytes;    /* of its one parameter */
	uint32_t shared; /* that may be asked for */
	struct cuda_function *next;
};

struct cuda_module {
	struct cuda_function *functions;
};

struct node {
	const struct cuda_function *function;
	uint32_t blocks, threads, shared_bytes;
	unsigned char param[PARAM_BYTES] __attribute__((aligned(16)));
};

/* Captured, and made ready to run: the same here. They stay until the process ends. */
struct cuda_graph {
	uint32_t count;
	struct node node[NODES_MAX];
};

struct managed {
	void *at;
	size_t bytes;
	struct managed *next;
};

static struct managed *all_managed;
/* One launch at a time: the model of the device is of one thread. */
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static standin_run_fn run_kernel;
static struct cuda_stream *captured;
static struct cuda_graph *capture;

#define PUBLIC __attribute__((visibility("default")))
PUBLIC void standin_kernels(standin_run_fn run);

void standin_kernels(standin_run_fn run)
{
	run_kernel = run;
}

/* ---- modules ------------------------------------------------------------------------------- */

/* As drivers have it: CUDA 12.n knows PTX 8.n. */
static bool is_too_new(const char *text, int32_t version)
{
	const char *at = strstr(text, ".version ");
	int major = 0, minor = 0;

	if (!at || sscanf(at, ".version %d.%d", &major, &minor) != 2)
		return true;
	return major * 10 + minor > (version / 1000 - 4) * 10 + version % 1000 / 10;
}

static struct cuda_function *read_entry(const char *at)
{
	struct cuda_function *f = calloc(1, sizeof(*f));
	const char *bytes = strchr(at, '[');
	size_t n = 0;

	if (!f || !bytes) {
		free(f);
		return NULL;
	}
	while (n + 1 < NAME_BYTES && (isalnum((unsigned char)at[n]) || at[n] == '_')) {
		f->name[n] = at[n];
		n++;
	}
	f->bytes = (size_t)atoi(bytes + 1);
	f->shared = CUDA_SHARED_DEFAULT;
	return f;
}

static cuda_result do_module_load(struct cuda_module **module, const void *image)
{
	static const char entry[] = ".visible .entry ";
	struct cuda_module *m;
	int32_t version = 0;
	cuda_result told = enter_launch();

	if (told)
		return told;
	do_version(&version);
	if (is_too_new(image, version))
		return CUDA_UNSUPPORTED_PTX;
	m = calloc(1, sizeof(*m));
	if (!m)
		return CUDA_OUT_OF_MEMORY;
	for (const char *at = image; (at = strstr(at, entry)); at++) {
		struct cuda_function *f = read_entry(at + strlen(entry));

		if (!f)
			return CUDA_OUT_OF_MEMORY;
		f->next = m->functions;
		m->functions = f;
	}
	*module = m;
	return 0;
}

static cuda_result do_function(struct cuda_function **function, struct cuda_module *module,
			       const char *name)
{
	cuda_result told = enter_launch();

	if (told)
		return told;
	for (struct cuda_function *f = module->functions; f; f = f->next) {
		if (strcmp(f->name, name) != 0)
			continue;
		*function = f;
		return 0;
	}
	return CUDA_NOT_FOUND;
}

static cuda_result do_function_set(struct cuda_function *function, int32_t attribute, int32_t value)
{
	cuda_result told = enter_launch();

	if (told)
		return told;
	if (attribute != CUDA_FUNCTION_DYNAMIC_SHARED || value < 0 || value > 227 << 10)
		return CUDA_INVALID_VALUE;
	function->shared = (uint32_t)value;
	return 0;
}

/* ---- launches ------------------------------------------------------------------------------ */

static cuda_result run_node(const struct node *n)
{
	const char *wrong;

	pthread_mutex_lock(&turn);
	wrong = run_kernel(n->function->name, n->blocks, n->threads, n->shared_bytes, n->param,
			   n->function->bytes);
	if (wrong)
		fprintf(stderr, "# the model of the device: %s\n", wrong);
	pthread_mutex_unlock(&turn);
	if (wrong)
		fail_for_good(CUDA_ILLEGAL_ADDRESS);
	return wrong ? CUDA_ILLEGAL_ADDRESS : 0;
}

/* How many parameters a call of the driver has is not ours to choose. */
#define CALL(name, parameters) cuda_result name parameters

static CALL(do_launch, (struct cuda_function *function, uint32_t grid_x, uint32_t grid_y,
			uint32_t grid_z, uint32_t block_x, uint32_t block_y, uint32_t block_z,
			uint32_t shared_bytes, struct cuda_stream *stream, void **parameters,
			void **extra))
{
	struct node n = { .function = function, .blocks = grid_x, .threads = block_x,
			  .shared_bytes = shared_bytes };
	cuda_result told = enter_launch();

	if (told)
		return told;
	if (!run_kernel)
		return CUDA_NOT_SUPPORTED;
	if (!is_stream(stream))
		return CUDA_INVALID_HANDLE;
	if (!grid_x || !block_x || grid_y != 1 || grid_z != 1 || block_y != 1 || block_z != 1 ||
	    extra || shared_bytes > function->shared || function->bytes > sizeof(n.param))
		return CUDA_INVALID_VALUE;
	memcpy(n.param, parameters[0], function->bytes);
	if (captured != stream) {
		told = device_wait_stream(stream);
		return told ? told : run_node(&n);
	}
	if (capture->count == NODES_MAX)
		return CUDA_OUT_OF_MEMORY;
	capture->node[capture->count++] = n;
	return 0;
}

static cuda_result do_managed(uint64_t *at, size_t bytes, uint32_t flags)
{
	cuda_result told = enter_launch();
	struct managed *m;

	if (told)
		return told;
	if (!bytes || flags != CUDA_MANAGED_GLOBAL)
		return CUDA_INVALID_VALUE;
	m = malloc(sizeof(*m));
	if (!m)
		return CUDA_OUT_OF_MEMORY;
	*m = (struct managed){ mmap(NULL, bytes, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), bytes, all_managed };
	all_managed = m;
	*at = (uint64_t)(uintptr_t)m->at;
	return m->at == MAP_FAILED ? CUDA_OUT_OF_MEMORY : 0;
}

static cuda_result do_managed_end(uint64_t at)
{
	cuda_result told = enter_launch();

	if (told)
		return told;
	for (struct managed **link = &all_managed; *link; link = &(*link)->next) {
		struct managed *m = *link;

		if (m->at != (void *)(uintptr_t)at)
			continue;
		*link = m->next;
		munmap(m->at, m->bytes);
		free(m);
		return 0;
	}
	return CUDA_INVALID_VALUE;
}

static cuda_result do_capture_begin(struct cuda_stream *stream, int32_t mode)
{
	cuda_result told = enter_launch();

	if (told)
		return told;
	if (captured || mode < 0 || mode > CUDA_CAPTURE_RELAXED)
		return CUDA_INVALID_VALUE;
	capture = calloc(1, sizeof(*capture));
	captured = capture ? stream : NULL;
	return capture ? 0 : CUDA_OUT_OF_MEMORY;
}

static cuda_result do_capture_end(struct cuda_stream *stream, struct cuda_graph **graph)
{
	cuda_result told = enter_launch();

	if (told)
		return told;
	if (captured != stream)
		return CUDA_INVALID_VALUE;
	*graph = capture;
	captured = NULL;
	return 0;
}

static cuda_result do_graph_make(struct cuda_run **run, struct cuda_graph *graph, uint64_t flags)
{
	*run = (struct cuda_run *)graph;
	return flags ? CUDA_INVALID_VALUE : enter_launch();
}

static cuda_result do_graph_launch(struct cuda_run *run, struct cuda_stream *stream)
{
	const struct cuda_graph *g = (const struct cuda_graph *)run;
	cuda_result told = enter_launch();

	if (told == 0)
		told = device_wait_stream(stream);
	for (uint32_t i = 0; i < g->count && told == 0; i++)
		told = run_node(&g->node[i]);
	return told;
}

void *launch_call(const char *name)
{
	static const struct cuda_launches calls = {
		.module_load = do_module_load,
		.function = do_function,
		.function_set = do_function_set,
		.launch = do_launch,
		.managed = do_managed,
		.managed_end = do_managed_end,
		.capture_begin = do_capture_begin,
		.capture_end = do_capture_end,
		.graph_make = do_graph_make,
		.graph_launch = do_graph_launch,
	};
	static const char *const names[] = {
#define ENTRY(field, name, version, parameters) name,
#include "cuda/device/launch.def"
#undef ENTRY
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(names[i], name))
			return ((void *const *)&calls)[i];
	return NULL;
}
