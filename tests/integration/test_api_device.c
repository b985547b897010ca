/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A live daemon whose HBM is memory of a GPU, by the stand-in for its driver: blocks go there and
 * stay, also beside a kernel that keeps the device busy; readers on a processor read their pages
 * elsewhere, and a device that fails costs hits and nothing else.
 */
#include <inttypes.h>

#define BLOCKS 12u
#include "tests/integration/device_blocks.h"
#include "tests/integration/gpu_client.h"

/* fails: what the driver is told to do (standin.h), or NULL. */
static struct world *begin(const char *fails)
{
	static const char *const settings[] = { "hbm.backend=cuda", NULL };
	struct world *w;

	gpu_daemon(fails);
	w = world_begin(settings);
	gpu_daemon_runs();
	return w;
}

static int setup(void **state)
{
	*state = begin(NULL);
	return 0;
}

static int setup_bad_copies(void **state)
{
	*state = begin("engine:9:214");
	return 0;
}

/* Leased where a processor can read them, with the right bytes; returns how many. */
static uint32_t read_in_memory(struct world *w, const tier_block *block)
{
	struct tier_lease lease;
	uint32_t n = 0;

	for (uint32_t i = 0; i < BLOCKS * BLOCK_PAGES; i++) {
		int rc = tier_lease_page(w->r, w->c, block[i / BLOCK_PAGES], i % BLOCK_PAGES, 0,
					 &lease);

		if (rc == -ENODATA)
			continue;
		assert_int_equal(rc, 0);
		assert_int_equal(lease.tier, TIER_CXL);
		assert_int_equal(((const uint8_t *)lease.data)[77],
				 byte_of(i / BLOCK_PAGES, i % BLOCK_PAGES));
		tier_release(w->r, &lease);
		n++;
	}
	return n;
}

static uint64_t hbm_bytes(struct world *w)
{
	struct tier_completion c;
	uint64_t resident = 0;
	char *reply, *at;

	while (tier_wait(w->t, &c, 0, 1, 0) == 1)
		;
	assert_int_equal(tier_admin(w->t, "status", NULL, &reply), 0);
	assert_non_null(strstr(reply, "stand-in, no GPU"));
	at = strstr(reply, "\"used\"");
	assert_non_null(at);
	assert_int_equal(sscanf(at, "\"used\": %" SCNu64, &resident), 1);
	free(reply);
	return resident;
}

static void test_blocks_go_to_the_device(void **state)
{
	struct world *w = *state;
	tier_block block[BLOCKS];

	put_and_find(w, block);
	assert_int_equal(hbm_bytes(w), 0);
	assert_int_equal(tier_fetch(w->c, block, BLOCKS, ASK(TIER_HBM)), BLOCKS);
	assert_true(hbm_bytes(w) >= BLOCKS * BLOCK_BYTES);
	assert_int_equal(read_in_memory(w, block), BLOCKS * BLOCK_PAGES);
	admin(w, "drain", NULL);
	admin(w, "evict", "{\"context\":\"kv\",\"tier\":\"hbm\"}");
	assert_int_equal(tier_fetch(w->c, block, BLOCKS, ASK(TIER_HBM)), BLOCKS);
	assert_int_equal(read_in_memory(w, block), BLOCKS * BLOCK_PAGES);
}

static void test_a_device_that_fails(void **state)
{
	struct world *w = *state;
	tier_block block[BLOCKS];

	put_and_find(w, block);
	assert_true(tier_fetch(w->c, block, BLOCKS, ASK(TIER_HBM)) < (int)BLOCKS);
	assert_true(tier_fetch(w->c, block, BLOCKS, ASK(TIER_HBM)) < (int)BLOCKS);
	assert_int_equal(read_in_memory(w, block), BLOCKS * BLOCK_PAGES);
}

/* ---- beside a kernel ------------------------------------------------------------------------- */

/* Between test, client, and the kernel of the client. */
struct busy {
	uint32_t runs, end, ended;
};

BARE static void keep_busy(const void *param)
{
	struct busy *b;

	__builtin_memcpy(&b, param, sizeof(b));
	__atomic_store_n(&b->runs, 1, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&b->end, __ATOMIC_ACQUIRE))
		;
	__atomic_store_n(&b->ended, 1, __ATOMIC_RELEASE);
}

static void run_busy(struct busy *b)
{
	struct gpu g;

	gpu_begin(&g);
	CHECK(g.standin.launch(g.stream, keep_busy, &b, sizeof(b)) == 0);
	CHECK(g.cu.stream_wait(g.stream) == 0);
	g.cu.stream_destroy(g.stream);
	g.cu.context_release(0);
	_exit(0);
}

/* The daemon launches nothing, so that what kernels of others do does not hold its copies. */
static void test_copies_come_beside_a_busy_kernel(void **state)
{
	struct world *w = *state;
	struct busy *b = mmap(NULL, sizeof(*b), PROT_READ | PROT_WRITE,
			      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	tier_block block[BLOCKS];
	pid_t pid;

	assert_true(b != MAP_FAILED);
	put_and_find(w, block);
	pid = fork();
	if (pid == 0)
		run_busy(b);
	while (!__atomic_load_n(&b->runs, __ATOMIC_ACQUIRE))
		usleep(1000);
	assert_int_equal(tier_fetch(w->c, block, BLOCKS, ASK(TIER_HBM)), BLOCKS);
	assert_true(hbm_bytes(w) >= BLOCKS * BLOCK_BYTES);
	assert_int_equal(__atomic_load_n(&b->ended, __ATOMIC_ACQUIRE), 0);
	__atomic_store_n(&b->end, 1, __ATOMIC_RELEASE);
	child_passes(pid);
	print_message("# %u blocks came to HBM while a kernel of a client ran; MPS only on a "
		      "device\n", BLOCKS);
	munmap(b, sizeof(*b));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_blocks_go_to_the_device, setup, world_end),
		cmocka_unit_test_setup_teardown(test_copies_come_beside_a_busy_kernel, setup,
						world_end),
		cmocka_unit_test_setup_teardown(test_a_device_that_fails, setup_bad_copies,
						world_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
