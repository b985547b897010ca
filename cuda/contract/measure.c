/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the driver's calls cost that the backend and its clients make, by whichever libcuda.so.1
 * the loader finds: `figure NAME VALUE` lines for cuda/gpu-check. On the stand-in the figures are
 * its own and say nothing of a GPU. Exit status 77 where there is no driver or device.
 *
 * usage: measure [MIB [copies|slabs]]    bytes that a copy moves (1024); one of both alone
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libtier/base/time.h"
#include "libtier/base/cuda_driver.h"

#define CHUNK ((size_t)2 << 20)
#define ROUNDS 5u
#define ATTACHES 200u

static const struct cuda_location here = { .type = CUDA_AT_DEVICE };

struct measure {
	struct cuda_driver cu;
	struct cuda_stream *stream;
	uint64_t handle[2], at[2]; /* two pieces of device memory */
	unsigned char *host;
	size_t bytes;
};

static void must(cuda_result result, const char *what)
{
	if (!result)
		return;
	printf("# %s: the driver answers %d\n", what, result);
	exit(1);
}

static void map(struct measure *m, uint64_t handle, size_t bytes, uint64_t *at)
{
	const struct cuda_access both = { here, CUDA_ACCESS_READ_WRITE };

	must(m->cu.reserve(at, bytes, CHUNK, 0, 0), "addresses");
	must(m->cu.map(*at, bytes, 0, handle, 0), "map");
	must(m->cu.set_access(*at, bytes, &both, 1), "access");
}

static void unmap(struct measure *m, size_t bytes, uint64_t at)
{
	must(m->cu.unmap(at, bytes), "unmap");
	must(m->cu.unreserve(at, bytes), "addresses back");
}

static struct cuda_allocation kind(void)
{
	return (struct cuda_allocation){ .type = CUDA_PINNED, .handle_types = CUDA_HANDLE_FD,
					 .location = here };
}

static void begin(struct measure *m)
{
	const struct cuda_allocation what = kind();
	struct cuda_context *context;
	int32_t count = 0;
	char name[128] = "";

	if (cuda_driver_load(&m->cu, NULL) || m->cu.init(0) || m->cu.device_count(&count) ||
	    !count) {
		printf("# no CUDA driver, or no device\n");
		exit(77);
	}
	m->cu.device_name(name, sizeof(name), 0);
	printf("# device: %s\n", name);
	must(m->cu.context_retain(&context, 0), "context");
	must(m->cu.context_set(context), "current");
	must(m->cu.stream_create(&m->stream, CUDA_STREAM_NON_BLOCKING, 0), "stream");
	for (uint32_t i = 0; i < 2; i++) {
		must(m->cu.create(&m->handle[i], m->bytes, &what, 0), "memory");
		map(m, m->handle[i], m->bytes, &m->at[i]);
	}
	m->host = mmap(NULL, m->bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (m->host == MAP_FAILED)
		exit(1);
}

/* GB/s of the best of some copies. */
static double copy_rate(struct measure *m, uint64_t dst, uint64_t src)
{
	uint64_t best = UINT64_MAX;

	for (uint32_t i = 0; i < ROUNDS; i++) {
		uint64_t since = time_now_ns(), took;

		must(m->cu.copy(dst, src, m->bytes, m->stream), "copy");
		must(m->cu.stream_wait(m->stream), "wait");
		took = time_now_ns() - since;
		best = took < best ? took : best;
	}
	return (double)m->bytes / (double)best;
}

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/*
 * A client's first use of a chunk: it has the descriptor, as it came from the daemon. Busy: copies
 * are under way on another stream all the time.
 */
static void measure_attach(struct measure *m, bool busy)
{
	const struct cuda_access read = { here, CUDA_ACCESS_READ };
	const struct cuda_allocation what = kind();
	const char *name = busy ? "attach_busy" : "attach";
	uint64_t took[ATTACHES], chunk, other, at;
	int fd = -1;

	must(m->cu.create(&chunk, CHUNK, &what, 0), "chunk");
	must(m->cu.export_fd(&fd, chunk, CUDA_HANDLE_FD, 0), "export");
	must(m->cu.reserve(&at, CHUNK, CHUNK, 0, 0), "addresses");
	for (uint32_t i = 0; i < ATTACHES; i++) {
		uint64_t since;

		if (busy)
			must(m->cu.copy(m->at[1], m->at[0], CHUNK, m->stream), "copy");
		since = time_now_ns();
		must(m->cu.import_fd(&other, (void *)(intptr_t)fd, CUDA_HANDLE_FD), "import");
		must(m->cu.map(at, CHUNK, 0, other, 0), "map");
		must(m->cu.set_access(at, CHUNK, &read, 1), "access");
		took[i] = time_now_ns() - since;
		must(m->cu.unmap(at, CHUNK), "unmap");
		must(m->cu.release(other), "release");
	}
	must(m->cu.stream_wait(m->stream), "wait");
	must(m->cu.unreserve(at, CHUNK), "addresses back");
	close(fd);
	must(m->cu.release(chunk), "release");
	qsort(took, ATTACHES, sizeof(took[0]), by_size);
	printf("figure %s_p50_us %.1f\n", name, (double)took[ATTACHES / 2] / 1000);
	printf("figure %s_p99_us %.1f\n", name, (double)took[ATTACHES * 99 / 100] / 1000);
}

static void measure_copies(struct measure *m)
{
	uint64_t since;

	printf("figure copy_within_gbs %.2f\n", copy_rate(m, m->at[1], m->at[0]));
	printf("figure copy_in_pageable_gbs %.2f\n",
	       copy_rate(m, m->at[0], (uintptr_t)m->host));
	since = time_now_ns();
	must(m->cu.host_register(m->host, m->bytes, 0), "register");
	printf("figure register_ms %.2f\n", (double)(time_now_ns() - since) / 1e6);
	printf("figure copy_in_gbs %.2f\n", copy_rate(m, m->at[0], (uintptr_t)m->host));
	printf("figure copy_out_gbs %.2f\n", copy_rate(m, (uintptr_t)m->host, m->at[0]));
	must(m->cu.host_unregister(m->host), "unregister");
}

int main(int argc, char **argv)
{
	struct measure m = { .bytes = (size_t)(argc > 1 ? atoi(argv[1]) : 1024) << 20 };
	const char *only = argc > 2 ? argv[2] : "";

	if (!m.bytes || m.bytes % CHUNK) {
		fprintf(stderr, "usage: measure [MIB [copies|slabs]], an even number\n");
		return 2;
	}
	begin(&m);
	if (strcmp(only, "slabs") != 0)
		measure_copies(&m);
	if (strcmp(only, "copies") != 0) {
		measure_attach(&m, false);
		measure_attach(&m, true);
	}
	for (uint32_t i = 0; i < 2; i++) {
		unmap(&m, m.bytes, m.at[i]);
		must(m.cu.release(m.handle[i]), "release");
	}
	must(m.cu.stream_destroy(m.stream), "stream");
	must(m.cu.context_release(0), "context");
	return 0;
}
