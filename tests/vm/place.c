/* SPDX-License-Identifier: Apache-2.0 */
/*
 * place COMMITS: a client of a daemon with cxl.backend=module puts blocks of 2 MiB where they stay.
 *     COMMITS of them under a child that stores into the place on two threads: it gets SIGBUS, and
 *     no byte that readers see changes afterwards. Then a place that a device has pinned, one whose
 *     put is aborted, one whose put expires while it is written, one whose writer is killed, and
 *     how long a large put takes in place and copied.
 */
#include <linux/io_uring.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "tests/vm/kmod.h"
#include "tier.h"

#define CONTEXT "place"
#define LOOKS 5
#define LOOK_NS 200000
#define TIMED 16u
#define LARGE (8 * CHUNK) /* of a block that is timed */

static tier *t;
static tier_context *c;
static tier_reader *r;

static void need(int64_t rc, const char *what)
{
	if (rc < 0)
		fail("%s: %s (%s)", what, tier_strerror((int)rc), tier_error_text());
}

static void attach(size_t block_bytes, size_t page_bytes, const char *name)
{
	const struct tier_part part = { .name = "kv", .kind = TIER_KIND_DENSE, .layers = 1,
					.groups = (uint32_t)(block_bytes / page_bytes),
					.page_bytes = (uint32_t)page_bytes };
	const struct tier_geometry_options geometry = { .size = sizeof(geometry), .part_count = 1,
							.part = &part };
	const struct tier_context_options options = {
		.size = sizeof(options), .blocks_max = 4096,
		.quota = { [TIER_HBM] = TIER_QUOTA_NONE, [TIER_NVME] = TIER_QUOTA_NONE },
	};
	tier_geometry *g;

	need(tier_connect(&t, NULL), "connect");
	need(tier_geometry_new(&g, &geometry), "geometry");
	need(tier_context_create(t, name, g, &options, &c), "context");
	need(tier_reader_open(t, &r), "reader");
	tier_geometry_free(g);
}

static tier_key key_of(uint32_t n)
{
	tier_key key;

	tier_key_opaque(&key, &n, sizeof(n), NULL);
	return key;
}

/* Whose mapping is it? */
static bool is_in_tier(const void *at)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[512];
	bool found = false;

	while (f && fgets(line, sizeof(line), f)) {
		uintptr_t first, end;

		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &first, &end) == 2 &&
		    (uintptr_t)at >= first && (uintptr_t)at < end)
			found = strstr(line, "tier_mem:") != NULL;
	}
	if (f)
		fclose(f);
	return found;
}

static uint8_t *begin_put(uint32_t n, uint64_t deadline_ns, tier_put **put)
{
	struct tier_put_options options = { .size = sizeof(options), .deadline_ns = deadline_ns };
	tier_key key = key_of(n);
	uint8_t *at;

	need(tier_put_begin(c, &key, 1, &options, put), "put");
	at = tier_put_data(*put, 0, 0, 0, 0);
	if (!at || !is_in_tier(at))
		fail("broken: the page of put %u is not written in the tier", n);
	return at;
}

static int commit(tier_put *put)
{
	struct tier_completion end;

	need(tier_put_commit(put, 1), "commit");
	if (tier_wait(t, &end, 1, 1, 60000000000u) != 1)
		fail("the commit does not end");
	return end.result;
}

static void drop(uint32_t n)
{
	tier_key key = key_of(n);

	need(tier_delete(c, &key, 1), "delete");
}

static const uint64_t *lease(uint32_t n, struct tier_lease *l)
{
	tier_key key = key_of(n);

	need(tier_lease_key(r, c, &key, 0, 0, l), "lease");
	return l->data;
}

/* ---- under a writer -------------------------------------------------------------------------- */

static void *keep_storing(void *at)
{
	for (volatile uint64_t *w = at;;)
		(*w)++;
	return NULL;
}

static pid_t writer(uint64_t *at)
{
	pid_t pid = spawn();
	pthread_t thread;

	if (pid)
		return pid;
	signal(SIGBUS, SIG_DFL);
	if (pthread_create(&thread, NULL, keep_storing, at + 1) == 0)
		keep_storing(at);
	_exit(2);
}

/* Before the commit ends it is what it stays. */
static void one_commit(uint32_t n)
{
	tier_put *put;
	volatile uint64_t *at = (void *)begin_put(n, 0, &put);
	const volatile uint64_t *seen;
	struct tier_lease l;
	uint64_t was[2];
	pid_t pid;
	int how = 0;

	at[0] = at[1] = at[CHUNK / 8 - 1] = n;
	pid = writer((uint64_t *)(uintptr_t)at);
	while (at[0] == n || at[1] == n)
		nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
	if (commit(put))
		fail("a put under a writer fails");
	seen = lease(n, &l);
	was[0] = seen[0];
	was[1] = seen[1];
	for (uint32_t i = 0; i < LOOKS; i++) {
		nanosleep(&(struct timespec){ .tv_nsec = LOOK_NS }, NULL);
		if (seen[0] != was[0] || seen[1] != was[1] || seen[CHUNK / 8 - 1] != n) {
			kill(pid, SIGKILL);
			fail("broken: a byte changed after commit %u", n);
		}
	}
	waitpid(pid, &how, 0);
	if (!WIFSIGNALED(how) || WTERMSIG(how) != SIGBUS)
		fail("broken: the writer goes on after commit %u", n);
	tier_release(r, &l);
	drop(n);
}

/* ---- ends ------------------------------------------------------------------------------------ */

static int pin(void *at, size_t bytes)
{
	struct io_uring_params params = { 0 };
	struct iovec iov = { .iov_base = at, .iov_len = bytes };
	int ring = (int)syscall(SYS_io_uring_setup, 1, &params);

	if (ring < 0 || syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, &iov, 1))
		fail("a buffer cannot be registered: %s", strerror(errno));
	return ring;
}

static void pinned(uint32_t n)
{
	uint64_t busy = status().busy, held = status().held;
	tier_put *put;
	uint8_t *at = begin_put(n, 0, &put);
	const uint8_t *seen;
	struct tier_lease l;
	int ring = pin(at, 65536);

	memset(at, 0x5a, CHUNK);
	if (commit(put))
		fail("a put whose place is pinned fails");
	seen = (const uint8_t *)lease(n, &l);
	for (size_t i = 0; i < CHUNK; i++)
		if (seen[i] != 0x5a)
			fail("broken: byte %zu of a pinned put is lost", i);
	expect(status().busy == busy + 1 && status().held == held + 1,
	       "what a device has pinned is copied, and its memory held back");
	close(ring);
	for (int i = 0; i < 500 && status().held != held; i++)
		nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
	expect(status().held == held, "until it lets go");
	tier_release(r, &l);
	drop(n);
}

static void not_committed(uint32_t n)
{
	struct timespec now;
	tier_put *put;
	uint8_t *at = begin_put(n, 0, &put);
	int rc;

	at[0] = 1;
	tier_put_abort(put);
	clock_gettime(CLOCK_MONOTONIC, &now);
	at = begin_put(n, (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec + 300000000u,
		       &put);
	for (int i = 0; i < 1000; i++) { /* in vain from its end on, and without a signal */
		at[0]++;
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	}
	rc = commit(put);
	expect(rc == -ETIMEDOUT || rc == -ENOENT,
	       "a put that expired while it was written is none");
}

static void killed(uint32_t n)
{
	int ready[2], how;
	pid_t pid;
	char byte;

	if (pipe(ready))
		fail("pipe: %s", strerror(errno));
	pid = spawn();
	if (!pid) {
		tier_put *put;

		attach(CHUNK, CHUNK, CONTEXT);
		begin_put(n, 0, &put)[0] = 7;
		if (write(ready[1], "x", 1) == 1)
			pause();
		_exit(1);
	}
	if (read(ready[0], &byte, 1) != 1)
		fail("a writer does not begin");
	kill(pid, SIGKILL);
	waitpid(pid, &how, 0);
	close(ready[0]);
	close(ready[1]);
}

/* ---- what it takes --------------------------------------------------------------------------- */

/* Microseconds of a put in one call, of a block in pages of that size. */
static double timed(const void *data, size_t page_bytes, const char *name)
{
	struct tier_put_options options = { .size = sizeof(options) };
	double best = 1e12;

	attach(LARGE, page_bytes, name);
	for (uint32_t n = 0; n < TIMED; n++) {
		tier_key key = key_of(900000 + n);
		double begun = now_us(), took;

		need(tier_put_copy(c, &key, 1, data, &options), "put");
		took = now_us() - begun;
		best = took < best ? took : best;
		drop(900000 + n);
	}
	tier_close(t);
	return best;
}

int main(int argc, char **argv)
{
	uint32_t count = argc > 1 ? (uint32_t)atoi(argv[1]) : 10;
	char *data = malloc(LARGE);
	double in_place, copied;

	begin(0, NULL);
	signal(SIGBUS, SIG_DFL);
	signal(SIGSEGV, SIG_DFL);
	attach(CHUNK, CHUNK, CONTEXT);
	for (uint32_t n = 1; n <= count; n++)
		one_commit(n);
	printf("%u puts under a writer on two threads: no byte changes after its commit\n", count);
	pinned(100001);
	not_committed(100002);
	killed(100003);
	if (!data)
		return 1;
	tier_close(t);
	memset(data, 0x33, LARGE);
	in_place = timed(data, CHUNK, CONTEXT "-large");
	copied = timed(data, CHUNK / 2, CONTEXT "-copied");
	free(data);
	figure(in_place, "a put of 16 MiB in pages of 2 MiB, in place");
	figure(copied, "one in pages of 1 MiB, which is copied");
	return 0;
}
