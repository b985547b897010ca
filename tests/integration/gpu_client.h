/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client with a GPU, by the stand-in for its driver: in a child, since a process that was forked
 * from one with a CUDA context has none of it.
 */
#ifndef TIER_TESTS_GPU_CLIENT_H
#define TIER_TESTS_GPU_CLIENT_H

#include <tier_device.h>
#include <tier_kernel.h>

#include "tests/integration/child.h"
#include "tests/lib/standin.h"

/* Of a kernel: it runs in the device's process, which has no C library. */
#define BARE __attribute__((no_sanitize("address", "thread", "undefined"), noinline))

struct gpu {
	struct standin_calls standin;
	struct cuda_driver cu;
	struct cuda_context *context;
	struct cuda_stream *stream;
	tier *t;
	tier_context *c;
	tier_reader *r;
	uint64_t *done; /* where the stream's kernels count */
	tier_device *d;
};

/* A context of the driver, and a stream of kernels. */
HELPER void gpu_begin(struct gpu *g)
{
	g->standin = standin_load();
	CHECK(cuda_driver_load(&g->cu, NULL) == 0 && g->cu.init(0) == 0);
	CHECK(g->cu.context_retain(&g->context, 0) == 0 && g->cu.context_set(g->context) == 0);
	CHECK(g->cu.stream_create(&g->stream, CUDA_STREAM_NON_BLOCKING, 0) == 0);
}

HELPER void gpu_connect(struct gpu *g, const struct daemon *d, const char *name)
{
	const struct tier_connect_options o = { .size = sizeof(o), .socket = d->socket,
						.staging_bytes = 4u << 20, .name = "gpu" };

	CHECK(tier_connect(&g->t, &o) == 0);
	CHECK(tier_context_open(g->t, name, NULL, &g->c) == 0);
	CHECK(tier_reader_open(g->t, &g->r) == 0);
	CHECK(tier_era_open(g->r, &g->done) == 0);
}

HELPER void gpu_open(struct gpu *g, const struct daemon *d, const char *name)
{
	gpu_connect(g, d, name);
	CHECK(tier_device_open(g->c, g->r, &g->d) == 0);
}

/* All kernels so far have ended, by themselves or by an error of the device. */
HELPER void gpu_ended(struct gpu *g)
{
	*g->done += 1;
}

HELPER void gpu_end(struct gpu *g)
{
	tier_close(g->t);
	g->cu.stream_destroy(g->stream);
	g->cu.context_release(0);
}

/* What the device has at an address that it may only read. */
HELPER const uint8_t *gpu_window(const struct gpu *g, const struct tier_device_page *p)
{
	const uint8_t *at = g->standin.window(p->address, p->bytes, false);

	CHECK(at);
	CHECK(p->tier != TIER_HBM || !g->standin.window(p->address, 1, true));
	return at;
}

HELPER uint32_t gpu_left(const struct gpu *g)
{
	struct standin_left l;

	g->standin.left(&l);
	return l.contexts + l.handles + l.ranges + l.reservations + l.streams + l.events +
	       l.registered;
}

/* A daemon with HBM of the stand-in's; fails, left: as standin.h has them, may be NULL. */
HELPER void gpu_daemon(const char *fails)
{
	const char *build = getenv("BUILD");
	char path[512];

	snprintf(path, sizeof(path), "%s/../cuda", build ? build : "build/plain");
	setenv("LD_LIBRARY_PATH", path, 1);
	if (fails)
		setenv("STANDIN_FAIL", fails, 1);
}

HELPER void gpu_daemon_runs(void)
{
	unsetenv("LD_LIBRARY_PATH");
	unsetenv("STANDIN_FAIL");
}

/* Fork, run, and see it succeed. */
HELPER void child_passes(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		fail_msg("a child ended with %x", (unsigned)status);
}

#endif
