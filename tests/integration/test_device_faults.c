/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each call of the GPU's driver fails once, at each time that a live daemon makes it, while a
 * client stores, fetches and reads: the daemon starts or says why not, what is read is right, and
 * nothing of the device is left behind. The driver is the stand-in (cuda/standin).
 *
 * FAULTS=n: up to which time of a call (1); `make cuda-fault` has more.
 */
#include <inttypes.h>

#define BLOCKS 8u
#include "tests/integration/device_blocks.h"

#define ILLEGAL_ADDRESS 700

static const char *const names[] = {
#define ENTRY(field, name, version, parameters) name,
#include "libtier/base/cuda_driver.def"
#undef ENTRY
	"engine",
};

struct totals {
	uint32_t runs, failed, unstarted, pages, leaks;
};

/* Every page, from memory; one that is not there is a miss. */
static uint32_t read_all(struct world *w, const tier_block *block)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < BLOCKS * BLOCK_PAGES; i++) {
		struct tier_page page = { block[i / BLOCK_PAGES], i % BLOCK_PAGES };
		const uint8_t want = byte_of(i / BLOCK_PAGES, page.page);
		struct tier_lease lease;

		if (tier_read_pages(w->r, w->c, &page, 1, time_now_ns() + 5 * NS_PER_S,
				    &lease) != 1)
			continue;
		for (uint32_t k = 0; k < 4096; k += 511)
			assert_int_equal(((const uint8_t *)lease.data)[k], want);
		tier_release(w->r, &lease);
		n++;
	}
	return n;
}

static uint32_t use(struct world *w)
{
	tier_block block[BLOCKS];
	char *reply = NULL;
	uint32_t n;

	put_and_find(w, block);
	tier_fetch(w->c, block, BLOCKS, ASK(TIER_HBM));
	n = read_all(w, block);
	if (tier_admin(w->t, "evict", "{\"context\":\"kv\",\"tier\":\"hbm\"}", &reply) == 0)
		free(reply);
	tier_fetch(w->c, block, BLOCKS, ASK(TIER_HBM));
	return n + read_all(w, block);
}

/* These give something back; what they were asked for stays if they fail. */
static bool gives_back(const char *name)
{
	static const char *const releases[] = { "cuMemUnmap", "cuMemRelease", "cuMemAddressFree",
						"cuStreamDestroy", "cuEventDestroy",
						"cuDevicePrimaryCtxRelease", "cuCtxSetCurrent" };

	for (uint32_t i = 0; i < COUNT(releases); i++)
		if (!strcmp(name, releases[i]))
			return true;
	return false;
}

/* What such a call keeps is no leak of the daemon's: a sanitizer must not say so. */
static void allow_leaks(bool allow)
{
	static char usual[256];
	char options[300];
	const char *set = getenv("ASAN_OPTIONS");

	if (!usual[0])
		snprintf(usual, sizeof(usual), "%s", set ? set : "abort_on_error=0");
	snprintf(options, sizeof(options), "%s:detect_leaks=%d", usual, !allow);
	setenv("ASAN_OPTIONS", options, 1);
}

/* Whether it could be told to fail so often. */
static bool look_at_report(const char *path, const char *name, struct totals *sum)
{
	unsigned int failed = 0, left = 0;
	FILE *f = fopen(path, "r");

	assert_non_null(f); /* the daemon came to an ordinary end */
	assert_int_equal(fscanf(f, "failed=%u left=%u", &failed, &left), 2);
	fclose(f);
	unlink(path);
	if (left && !gives_back(name)) {
		print_message("# %s: %u left\n", name, left);
		sum->leaks++;
	}
	sum->failed += failed;
	return failed > 0 || !strcmp(name, "engine");
}

static bool fail_once(const char *name, uint32_t nth, struct totals *sum)
{
	static const char *const settings[] = { "hbm.backend=cuda", NULL };
	struct world *w = calloc(1, sizeof(*w));
	char fails[80], path[200], line[256] = "";
	int out, status;
	void *state = w;
	bool reached;

	assert_non_null(w);
	daemon_folder(&w->d);
	snprintf(path, sizeof(path), "%s/left", w->d.folder);
	snprintf(fails, sizeof(fails), "%s:%u:%d", name, nth, ILLEGAL_ADDRESS);
	allow_leaks(gives_back(name));
	setenv("STANDIN_FAIL", fails, 1);
	setenv("STANDIN_LEFT", path, 1);
	w->d.pid = daemon_spawn(&w->d, settings, &out);
	sum->runs++;
	assert_int_equal(tier_geometry_preset(&w->g, "tiny"), 0);
	if (read(out, line, sizeof(line) - 1) > 0 && strstr(line, "ready on")) {
		world_open(w);
		sum->pages += use(w);
		tier_close(w->t);
		daemon_stop(&w->d);
	} else {
		status = daemon_wait(&w->d);
		if (!WIFEXITED(status))
			fail_msg("%s: tierd ended with %x", fails, (unsigned)status);
		sum->unstarted++;
	}
	close(out);
	reached = look_at_report(path, name, sum);
	tier_geometry_free(w->g);
	daemon_remove(&w->d);
	free(state);
	return reached;
}

static void test_each_call_fails_once(void **state)
{
	const char *build = getenv("BUILD"), *text = getenv("FAULTS");
	const uint32_t most = text && atoi(text) > 0 ? (uint32_t)atoi(text) : 1;
	struct totals sum = { .runs = 0 };
	char path[512];

	(void)state;
	snprintf(path, sizeof(path), "%s/../cuda", build ? build : "build/plain");
	setenv("LD_LIBRARY_PATH", path, 1);
	for (uint32_t i = 0; i < COUNT(names); i++)
		for (uint32_t nth = 1; nth <= most && fail_once(names[i], nth, &sum); nth++)
			;
	print_message("# %zu entry points, %u daemons, %u calls failed, %u did not start; "
		      "%u pages read, 0 wrong; %u leaks\n", COUNT(names), sum.runs, sum.failed,
		      sum.unstarted, sum.pages, sum.leaks);
	assert_int_equal(sum.leaks, 0);
	assert_true(sum.failed >= 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_each_call_fails_once) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
