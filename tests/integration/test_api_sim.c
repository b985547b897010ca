/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The service on a simulated CXL-hybrid device (docs/fpga.md): one trace of puts, write-back,
 * evictions, fetches from NVMe and deletions, through ordinary memory, the golden model and, where
 * it was built, the RTL in a process of its own: the same answers and the same bytes. Readers get
 * them from HBM, for no processor reads the device's memory.
 */
#include <inttypes.h>

#define BLOCKS 48u
#include "tests/integration/device_blocks.h"
#include "tests/lib/rtl.h"

#define ANSWERS 64u

/* What a client of the trace was told. */
struct answers {
	int64_t said[ANSWERS];
	uint32_t count;
	uint64_t bytes; /* a sum over all that it read, in order */
};

static void note(struct answers *a, int64_t said)
{
	assert_true(a->count < ANSWERS);
	a->said[a->count++] = said;
}

/* All that lies in memory, page by page; in HBM if `hbm`. */
static void read_blocks(struct world *w, struct answers *a, const tier_block *block, bool hbm)
{
	struct tier_lease lease;

	for (uint32_t i = 0; i < BLOCKS * BLOCK_PAGES; i++) {
		const uint8_t *at;

		if (tier_lease_page(w->r, w->c, block[i / BLOCK_PAGES], i % BLOCK_PAGES, 0, &lease))
			fail_msg("page %u: %s", i, tier_error_text());
		if (hbm)
			assert_int_equal(lease.tier, TIER_HBM);
		at = lease.data;
		for (uint32_t k = 0; k < 4096; k++)
			a->bytes = (a->bytes ^ at[k]) * 0x100000001b3u;
		assert_int_equal(at[77], byte_of(i / BLOCK_PAGES, i % BLOCK_PAGES));
		tier_release(w->r, &lease);
	}
}

static void trace(struct world *w, struct answers *a, bool hbm)
{
	tier_block block[BLOCKS];
	tier_key key[BLOCKS];

	for (uint32_t turn = 0; turn < 3; turn++) {
		struct tier_found found[BLOCKS];

		put_and_find(w, block);
		note(a, tier_fetch(w->c, block, BLOCKS, ASK(TIER_HBM)));
		read_blocks(w, a, block, hbm);
		admin(w, "drain", NULL);
		admin(w, "evict", "{\"context\":\"kv\",\"tier\":\"hbm\"}");
		note(a, tier_fetch(w->c, block, BLOCKS, ASK(TIER_HBM)));
		read_blocks(w, a, block, hbm);
		/* from NVMe */
		admin(w, "evict", "{\"context\":\"kv\",\"tier\":\"hbm\"}");
		admin(w, "evict", "{\"context\":\"kv\",\"tier\":\"cxl\"}");
		note(a, tier_fetch(w->c, block, BLOCKS, ASK(TIER_HBM)));
		read_blocks(w, a, block, hbm);
		keys_of(key, 0);
		note(a, tier_delete(w->c, key, BLOCKS));
		note(a, tier_match(w->c, key, BLOCKS, found));
	}
}

/* What is on NVMe is found again, though the device's memory is handed to nobody. */
static void start_anew(struct world *w, struct answers *a, bool hbm)
{
	uint64_t end = time_now_ns() + LONG_NS;
	tier_block block[BLOCKS];

	put_and_find(w, block);
	admin(w, "drain", NULL);
	tier_check(w->t);
	admin(w, "upgrade", NULL);
	while (tier_check(w->t) != 1) {
		assert_true(time_now_ns() < end);
		usleep(1000);
	}
	find_blocks(w->c, 0, block);
	note(a, tier_fetch(w->c, block, BLOCKS, ASK(TIER_HBM)));
	read_blocks(w, a, block, hbm);
}

/* What `tierctl status` has of the tier; the backend's words. */
static void check_status(struct world *w, const char *words)
{
	char *reply;

	assert_int_equal(tier_admin(w->t, "status", NULL, &reply), 0);
	if (!strstr(reply, words))
		fail_msg("no \"%s\" in %s", words, reply);
	free(reply);
}

static void run(struct answers *a, const char *backend, const char *words)
{
	char name[64];
	const char *const settings[] = { name, "hbm.size=16MiB", "workers=2", NULL };
	struct world *w;

	*a = (struct answers){ .count = 0 };
	snprintf(name, sizeof(name), "cxl.backend=%s", backend);
	w = world_begin(settings);
	check_status(w, words);
	trace(w, a, strcmp(backend, "memfd") != 0);
	start_anew(w, a, strcmp(backend, "memfd") != 0);
	check_status(w, words);
	world_end((void **)&w);
}

static void compare(const struct answers *a, const struct answers *b)
{
	assert_int_equal(a->count, b->count);
	assert_memory_equal(a->said, b->said, a->count * sizeof(a->said[0]));
	assert_int_equal(a->bytes, b->bytes);
}

static void test_the_device_is_memory(void **state)
{
	struct answers memory, model, rtl;
	struct rtl_process process;

	(void)state;
	run(&memory, "memfd", "plain host DRAM");
	run(&model, "sim", "SIMULATED CXL-hybrid device: golden model in process");
	compare(&memory, &model);
	if (!rtl_begin(&process))
		return;
	run(&rtl, "sim", "SIMULATED CXL-hybrid device: RTL behind /dev/shm/");
	rtl_end(&process);
	compare(&memory, &rtl);
}

/* Nobody could read what it has. */
static void test_without_hbm(void **state)
{
	static const char *const settings[] = { "cxl.backend=sim", "hbm.size=0", NULL };
	struct daemon d = { .pid = 0 };
	int out, status;

	(void)state;
	daemon_folder(&d);
	d.pid = daemon_spawn(&d, settings, &out);
	close(out);
	status = daemon_wait(&d);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 0);
	assert_true(daemon_logged(&d, "HBM has to be host memory"));
	daemon_remove(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_device_is_memory),
		cmocka_unit_test(test_without_hbm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
