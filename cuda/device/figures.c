/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kernels cost, and what kernels and copies cost each other, by whichever libcuda.so.1 the
 * loader finds: `figure NAME VALUE` lines for cuda/gpu-check. On the stand-in the figures are its
 * own and say nothing of a GPU. Exit status 77 where there is no driver or device.
 *
 * usage: figures WHAT TOKENS    of a sparse layer of so many tokens (2^20; fewer in small):
 *        layer    the whole of it, and its main branch alone
 *        slabs    a slab is mapped while graphs run
 *        beside   another process copies, as the daemon does, while graphs run (beside-mps: under
 *                 MPS, which whoever calls has started)
 *        host     bulk copies bring pages from registered host memory
 *        kills    processes that read exported memory are killed under their kernels
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda/device/figures.h"
#include "cuda/test/outside.h"
#include "libtier/base/time.h"

#define CHUNK ((size_t)2 << 20)
#define ATTACHES 50u
#define BESIDE_MS 1000u

const char *figures_model(const char *kernel, uint32_t blocks, uint32_t threads,
			  uint32_t shared_bytes, const void *param, size_t bytes)
{
	const struct outside_launch l = { .kernel = kernel, .blocks = blocks, .threads = threads,
					  .shared_bytes = shared_bytes, .ptx = true };

	return outside_run(&l, param, bytes);
}

void figures_must(const struct door *d, cuda_result told, const char *what)
{
	if (!told)
		return;
	printf("# %s: the driver answers %d (%s)\n", what, told, door_error(d, told));
	exit(1);
}

#define must figures_must

/* How often: on the stand-in there is nothing to be measured. */
struct counts {
	uint32_t layers; /* in a graph */
	uint32_t attaches;
	uint32_t graphs; /* launched between two of these */
};

static struct counts counts_of(const struct door *d)
{
	return d->window ? (struct counts){ 1, 2, 1 } : (struct counts){ 8, ATTACHES, 4 };
}

/* ---- the layer ------------------------------------------------------------------------------- */

/* Bytes a second that a copy within the device reads and writes. */
static double copy_rate(struct door *d, uint64_t dst, uint64_t src, size_t bytes)
{
	uint64_t best = UINT64_MAX;

	for (uint32_t i = 0; i < 5; i++) {
		uint64_t since = time_now_ns(), took;

		must(d, d->cu.copy(dst, src, bytes, d->stream), "copy");
		must(d, d->cu.stream_wait(d->stream), "wait");
		took = time_now_ns() - since;
		best = took < best ? took : best;
	}
	return (double)bytes / (double)best * 1e9;
}

static void check_out(struct layer *l, float *out)
{
	must(l->d, layer_out(l, out), "the answer");
	for (uint32_t i = 0; i < LAYER_OUT; i++) {
		if (out[i] == out[i])
			continue;
		printf("# the answer has a NaN at %u\n", i);
		exit(1);
	}
}

static void time_layer(struct door *d, uint32_t tokens)
{
	float out[LAYER_OUT];
	const uint32_t count = counts_of(d).layers;
	struct cuda_run *layers, *mains;
	struct layer l;
	uint64_t ns;
	double bytes, rate, copy;

	must(d, layer_open(&l, d, tokens), "a layer");
	must(d, layer_graph(&l, count, &layers), "a graph of layers");
	must(d, layer_time(d, layers, &ns), "layers");
	check_out(&l, out);
	bytes = (double)l.blocks * MSA_TOKENS * MSA_DIM * 2 + (double)LAYER_MAIN_BYTES;
	rate = bytes * count / (double)ns * 1e9;
	copy = 2 * copy_rate(d, l.keys[1].at, l.keys[0].at, l.keys[0].bytes);
	printf("figure layer_us %.2f\n", (double)ns / 1e3 / count);
	printf("figure layer_gbs %.1f\n", rate / 1e9);
	printf("figure layer_of_copy %.3f\n", rate / copy);
	must(d, layer_main_graph(&l, &mains), "a graph of main branches");
	must(d, layer_time(d, mains, &ns), "main branches");
	printf("figure main_us %.2f\n", (double)ns / 1e3 / l.repeats);
	layer_close(&l);
}

/* ---- a slab is mapped while graphs run ------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* As a client's library does at the first use of a slab, and at its end; ns of the former. */
static uint64_t attach(struct door *d, int fd, uint64_t at)
{
	const struct cuda_access read = { { .type = CUDA_AT_DEVICE }, CUDA_ACCESS_READ };
	const uint64_t since = time_now_ns();
	uint64_t handle, took;

	must(d, d->cu.import_fd(&handle, (void *)(intptr_t)fd, CUDA_HANDLE_FD), "import");
	must(d, d->cu.map(at, CHUNK, 0, handle, 0), "map");
	must(d, d->cu.set_access(at, CHUNK, &read, 1), "access");
	took = time_now_ns() - since;
	must(d, d->cu.unmap(at, CHUNK), "unmap");
	must(d, d->cu.release(handle), "release");
	return took;
}

/* ns of as many graphs; took: NULL, or where the time of each attach goes. */
static uint64_t run_graphs(struct door *d, struct cuda_run *run, int fd, uint64_t at,
			   uint64_t *took)
{
	const struct counts c = counts_of(d);
	const uint64_t since = time_now_ns();

	for (uint32_t i = 0; i < c.attaches; i++) {
		for (uint32_t n = 0; n < c.graphs; n++)
			must(d, d->starts.graph_launch(run, d->stream), "launch");
		if (took)
			took[i] = attach(d, fd, at);
	}
	must(d, d->cu.stream_wait(d->stream), "wait");
	return time_now_ns() - since;
}

static void time_slabs(struct door *d, uint32_t tokens)
{
	const uint32_t count = counts_of(d).attaches;
	struct door_memory chunk;
	struct cuda_run *run;
	struct layer l;
	uint64_t at, took[ATTACHES], alone, beside;
	int fd = -1;

	must(d, layer_open(&l, d, tokens), "a layer");
	must(d, layer_main_graph(&l, &run), "a graph");
	must(d, door_take(d, CHUNK, &chunk), "a slab");
	must(d, d->cu.export_fd(&fd, chunk.handle, CUDA_HANDLE_FD, 0), "export");
	must(d, d->cu.reserve(&at, CHUNK, CHUNK, 0, 0), "addresses");
	attach(d, fd, at);
	alone = run_graphs(d, run, fd, at, NULL);
	beside = run_graphs(d, run, fd, at, took);
	qsort(took, count, sizeof(took[0]), by_size);
	printf("figure attach_graph_p50_us %.1f\n", (double)took[count / 2] / 1e3);
	printf("figure attach_graph_most_us %.1f\n", (double)took[count - 1] / 1e3);
	printf("figure graph_beside_slabs %.3f\n", (double)alone / (double)beside);
	close(fd);
	layer_close(&l);
}

/* ---- another process copies while graphs run ------------------------------------------------- */

/* Between the two; steps of the client, and what the daemon wants of it. */
struct beside {
	uint32_t ready, wanted, end; /* wanted: graphs from now on */
	uint64_t graphs;
};

static void wait_for(const uint32_t *word)
{
	while (!__atomic_load_n(word, __ATOMIC_ACQUIRE)) {
		if (getppid() == 1 || waitpid(-1, NULL, WNOHANG) > 0) {
			printf("# the other process is gone\n");
			exit(1);
		}
		usleep(1000);
	}
}

static void set(uint32_t *word)
{
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
}

_Noreturn static void be_busy(struct beside *b, uint32_t tokens)
{
	struct cuda_run *run;
	struct counts c;
	struct layer l;
	struct door d;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (door_open(&d, figures_model))
		exit(1);
	must(&d, layer_open(&l, &d, tokens), "a layer");
	c = counts_of(&d);
	must(&d, layer_graph(&l, c.layers, &run), "a graph");
	set(&b->ready);
	wait_for(&b->wanted);
	while (!__atomic_load_n(&b->end, __ATOMIC_ACQUIRE)) {
		for (uint32_t i = 0; i < c.graphs; i++)
			must(&d, d.starts.graph_launch(run, d.stream), "launch");
		must(&d, d.cu.stream_wait(d.stream), "wait");
		__atomic_add_fetch(&b->graphs, c.graphs, __ATOMIC_ACQ_REL);
	}
	exit(0);
}

/* Graphs a second that the client runs meanwhile: beside copies, or beside nothing. */
static double graph_rate(const struct beside *b, struct door *d, const struct door_memory *m,
			 const void *host, double *copies)
{
	const uint64_t since = time_now_ns();
	const uint64_t before = __atomic_load_n(&b->graphs, __ATOMIC_ACQUIRE);
	uint64_t took, now, n = 0;

	do {
		if (copies) {
			must(d, d->cu.copy(m->at, (uintptr_t)host, m->bytes, d->stream), "copy");
			must(d, d->cu.stream_wait(d->stream), "wait");
			n++;
		} else {
			usleep(1000);
		}
		took = time_now_ns() - since;
		now = __atomic_load_n(&b->graphs, __ATOMIC_ACQUIRE) - before;
	} while (took < BESIDE_MS * NS_PER_MS || (!copies && !now));
	if (copies)
		*copies = (double)(n * m->bytes) / (double)took;
	return (double)now / (double)took * 1e9;
}

/* The daemon's part: it is forked from before either has a context. */
static void time_beside(uint32_t tokens, const char *under)
{
	struct beside *b = mmap(NULL, sizeof(*b), PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	const size_t bytes = 32 * CHUNK;
	pid_t pid = b == MAP_FAILED ? -1 : fork();
	double alone, beside, quiet, disturbed;
	struct door_memory m;
	struct door d;
	void *host;
	int rc;

	if (pid < 0)
		exit(1);
	if (pid == 0)
		be_busy(b, tokens);
	rc = door_open(&d, figures_model);
	if (rc)
		exit(rc == -EIO ? 1 : 77);
	wait_for(&b->ready);
	host = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(&d, door_take(&d, bytes, &m), "memory");
	must(&d, d.cu.host_register(host, bytes, 0), "register");
	alone = copy_rate(&d, m.at, (uintptr_t)host, bytes) / 1e9;
	set(&b->wanted);
	quiet = graph_rate(b, &d, &m, host, NULL);
	disturbed = graph_rate(b, &d, &m, host, &beside);
	set(&b->end);
	waitpid(pid, NULL, 0);
	printf("figure copy_alone%s_gbs %.2f\n", under, alone);
	printf("figure copy_beside_kernel%s %.3f\n", under, beside / alone);
	printf("figure kernel_beside_copy%s %.3f\n", under, disturbed / quiet);
}

/* ---- bulk copies from registered host memory ------------------------------------------------- */

/* As a client's library has CXL: it may read it alone, where the device can live with that. */
static uint64_t register_pages(struct layer *l, uint64_t *at)
{
	const struct door *d = l->d;
	int fd = memfd_create("pages", MFD_CLOEXEC);
	int32_t can = 0;
	void *mine, *shown;

	d->cu.device_attribute(&can, CUDA_ATTRIBUTE_REGISTER_READ_ONLY, 0);
	if (fd < 0 || ftruncate(fd, (off_t)l->page_bytes))
		exit(1);
	mine = mmap(NULL, l->page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	shown = mmap(NULL, l->page_bytes, PROT_READ | (can ? 0 : PROT_WRITE), MAP_SHARED, fd, 0);
	if (mine == MAP_FAILED || shown == MAP_FAILED)
		exit(1);
	layer_fill_pages(l, mine);
	printf("# host memory is registered %s\n", can ? "for reading" : "for writing, too");
	must(d, d->cu.host_register(shown, l->page_bytes, can ? CUDA_REGISTER_READ_ONLY : 0),
	     "register");
	must(d, d->cu.host_address(at, shown, 0), "its address");
	outside_allow((const void *)(uintptr_t)*at, l->page_bytes, false);
	return (uintptr_t)shown;
}

static void time_host(struct door *d, uint32_t tokens)
{
	float device_has[LAYER_OUT], host_has[LAYER_OUT];
	struct cuda_run *run;
	struct layer l;
	uint64_t at, host, ns;
	double rate, copy;

	must(d, layer_open(&l, d, tokens), "a layer");
	must(d, layer_main_graph(&l, &run), "a graph");
	must(d, layer_time(d, run, &ns), "pages of the device");
	check_out(&l, device_has);
	host = register_pages(&l, &at);
	must(d, layer_pages_at(&l, at), "pages of the host");
	must(d, layer_main_graph(&l, &run), "a graph");
	must(d, layer_time(d, run, &ns), "pages of the host");
	check_out(&l, host_has);
	if (memcmp(device_has, host_has, sizeof(host_has)) != 0) {
		printf("# other bits than those of pages on the device\n");
		exit(1);
	}
	rate = (double)l.page_bytes / (double)ns;
	copy = copy_rate(d, l.pages.at, host, l.page_bytes) / 1e9;
	printf("figure bulk_host_gbs %.2f\n", rate);
	printf("figure bulk_host_of_copy %.3f\n", rate / copy);
	layer_close(&l);
}

/* ---------------------------------------------------------------------------------------------- */

static int run(const char *what, uint32_t tokens)
{
	static const struct {
		const char *name;
		void (*run)(struct door *d, uint32_t tokens);
	} list[] = { { "layer", time_layer }, { "slabs", time_slabs }, { "host", time_host },
		     { "kills", figures_kills } };
	struct door d;
	int rc;

	if (!strcmp(what, "beside") || !strcmp(what, "beside-mps")) {
		time_beside(tokens, strcmp(what, "beside") ? "_mps" : "");
		return 0;
	}
	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
		if (strcmp(what, list[i].name) != 0)
			continue;
		rc = door_open(&d, figures_model);
		if (rc)
			return rc == -EIO ? 1 : 77;
		list[i].run(&d, tokens);
		door_close(&d);
		return 0;
	}
	fprintf(stderr, "usage: figures layer|slabs|beside|beside-mps|host|kills TOKENS\n");
	return 2;
}

int main(int argc, char **argv)
{
	int tokens = argc == 3 ? atoi(argv[2]) : 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 4 && !strcmp(argv[1], "victim"))
		figures_victim(atoi(argv[2]), atoi(argv[3]));
	if (tokens < (int)(2 * MSA_TOP * MSA_TOKENS) || tokens % (int)(MSA_TOP * MSA_TOKENS)) {
		fprintf(stderr, "figures: TOKENS is a multiple of %u, two of them at least\n",
			MSA_TOP * MSA_TOKENS);
		return 2;
	}
	return run(argv[1], (uint32_t)tokens);
}
