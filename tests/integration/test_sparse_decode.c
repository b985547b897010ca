/*
 * Sparse decode over tiers (bench/sparse/decode.c) computes the same bits as from memory: when the
 * daemon is killed between steps, when somebody else makes blocks leave under the reader, and from
 * HBM (memory here), CXL and NVMe in one step. A wrong page shows, so that equal outputs mean
 * something.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "bench/sparse/decode.h"
#include "tests/integration/child.h"
#include "tests/integration/front_client.h"

#define BLOCKS 256u
#define STEPS 12u
#define KILL_EVERY 3u
#define PUT_BLOCKS 8u
#define OUTPUTS (STEPS * DECODE_GROUPS)

struct world {
	struct daemon d;
	struct pool pool;
	struct selection_trace trace;
	struct decode decode;
};

/* A quarter of the context fits the memory tier, a sixth an HBM that is memory, too. */
static const char *const settings[] = { "hbm.size=10MiB", "cxl.size=16MiB", "nvme.size=128MiB",
					/* what the reader holds of a layer, 4 MiB, may all leave */
					"quarantine.percent=80",
					"put.deadline=60s", NULL };

static void user_open(const struct daemon *d, struct pool *p)
{
	const struct tier_connect_options o = { .size = sizeof(o), .socket = d->socket,
						.staging_bytes = 8u << 20 };
	const struct tier_part part = { .name = "pages", .kind = TIER_KIND_SPARSE, .layers = 1,
					.groups = DECODE_GROUPS, .page_bytes = DECODE_PAGE_BYTES };
	const struct tier_geometry_options shape = { .size = sizeof(shape), .part_count = 1,
						     .part = &part };
	const struct tier_context_options options = { .size = sizeof(options),
						      .blocks_max = BLOCKS };
	tier_geometry *g;

	CHECK(tier_connect(&p->t, &o) == 0);
	CHECK(tier_geometry_new(&g, &shape) == 0);
	CHECK(tier_context_create(p->t, "sparse", g, &options, &p->c) == 0);
	CHECK(tier_reader_open(p->t, &p->r) == 0);
	tier_geometry_free(g);
}

static void find(struct pool *p)
{
	struct tier_found found[BLOCKS];
	tier_key key[BLOCKS];

	for (uint32_t i = 0; i < BLOCKS; i++)
		pool_key(&key[i], i);
	CHECK(tier_match(p->c, key, BLOCKS, found) == BLOCKS);
	for (uint32_t i = 0; i < BLOCKS; i++)
		p->block[i] = found[i].block;
}

static void put_all(struct pool *p)
{
	const size_t block = DECODE_GROUPS * DECODE_PAGE_BYTES;
	const struct tier_put_options o = { .size = sizeof(o), .flags = TIER_PUT_DURABLE };
	uint8_t *data = malloc(PUT_BLOCKS * block);

	assert_non_null(data);
	for (uint32_t at = 0; at < BLOCKS; at += PUT_BLOCKS) {
		tier_key key[PUT_BLOCKS];

		for (uint32_t i = 0; i < PUT_BLOCKS; i++) {
			pool_key(&key[i], at + i);
			for (uint32_t k = 0; k < DECODE_GROUPS; k++)
				decode_fill_page(data + i * block + k * DECODE_PAGE_BYTES, at + i,
						 k);
		}
		assert_int_equal(tier_put_copy(p->c, key, PUT_BLOCKS, data, &o), PUT_BLOCKS);
	}
	free(data);
}

static int setup(void **state)
{
	const struct select_spec spec = { .kind = SELECT_DRIFTING, .blocks = BLOCKS, .layers = 1,
					  .groups = DECODE_GROUPS, .readers = 1, .steps = STEPS,
					  .seed = (uint64_t)time_now_ns() };
	struct world *w = calloc(1, sizeof(*w));

	printf("# choices from seed %llu\n", (unsigned long long)spec.seed);
	assert_int_equal(select_make(&w->trace, &spec), 0);
	daemon_folder(&w->d);
	daemon_start(&w->d, settings);
	user_open(&w->d, &w->pool);
	w->pool.block = calloc(BLOCKS, sizeof(*w->pool.block));
	put_all(&w->pool);
	find(&w->pool);
	w->decode = (struct decode){ .pool = &w->pool, .trace = &w->trace, .compute = true,
				     .block_layers = 1 };
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	tier_close(w->pool.t);
	daemon_stop(&w->d);
	daemon_remove(&w->d);
	select_free(&w->trace);
	free(w->pool.block);
	free(w);
	return 0;
}

/* The next step; adds to the sums. */
static void step(struct world *w, uint32_t n, uint64_t sum[3])
{
	assert_int_equal(decode_steps(&w->decode, n, n + 1), 0);
	sum[0] += w->decode.outputs;
	sum[1] += w->decode.wrong;
	sum[2] += w->decode.surprises;
}

static void test_killed_between_steps(void **state)
{
	struct world *w = *state;
	uint64_t sum[3] = { 0 };

	for (uint32_t n = 0; n < STEPS; n++) {
		step(w, n, sum);
		if (n % KILL_EVERY != KILL_EVERY - 1)
			continue;
		assert_int_equal(kill(w->d.pid, SIGKILL), 0);
		daemon_wait(&w->d);
		daemon_start(&w->d, settings);
		assert_int_equal(tier_check(w->pool.t), 1);
		w->decode.asked = 0; /* they ended with the daemon */
		find(&w->pool);
	}
	assert_int_equal(sum[0], OUTPUTS);
	assert_int_equal(sum[1], 0);
}

/* Brings blocks and sends blocks away, all at random, until it is ended. */
static void disturb(const struct daemon *d)
{
	const struct tier_ask down = { .size = sizeof(down), .tier = TIER_NVME };
	const struct tier_ask up = { .size = sizeof(up), .tier = TIER_CXL };
	struct pool p = { .block = calloc(BLOCKS, sizeof(tier_block)) };
	uint64_t random = (uint64_t)getpid();

	user_open(d, &p);
	find(&p);
	for (uint32_t n = 0;; n++) {
		struct tier_completion done[16];
		int64_t rc;

		rc = tier_fetch(p.c, &p.block[bench_random_below(&random, BLOCKS - 8)], 8, &up);
		CHECK(rc >= 0 || rc == -ENOSPC || rc == -ETIMEDOUT);
		rc = tier_migrate(p.c, &p.block[bench_random_below(&random, BLOCKS - 64)], 64,
				  &down);
		CHECK(rc == 0 || rc == -EAGAIN);
		CHECK(tier_poll(p.t, done, 16) >= 0);
	}
}

static void test_evicted_under_the_reader(void **state)
{
	struct world *w = *state;
	uint64_t sum[3] = { 0 };
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0)
		disturb(&w->d);
	w->decode.look = DECODE_DRAFT;
	for (uint32_t n = 0; n < STEPS; n++)
		step(w, n, sum);
	assert_int_equal(waitpid(pid, NULL, WNOHANG), 0); /* it went on to the end */
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	printf("# %llu pages had left\n", (unsigned long long)sum[2]);
	assert_int_equal(sum[0], OUTPUTS);
	assert_int_equal(sum[1], 0);
	assert_true(sum[2] > 0);
}

/* What was asked for is read from HBM, the rest from CXL, or from NVMe when it is needed. */
static void test_read_from_three_tiers(void **state)
{
	struct world *w = *state;
	uint64_t sum[3] = { 0 }, from_hbm = 0;

	w->decode.look = DECODE_DRAFT;
	w->decode.hbm = w->decode.settle = true;
	for (uint32_t n = 0; n < STEPS; n++) {
		step(w, n, sum);
		from_hbm += w->decode.from_hbm;
	}
	printf("# %llu pages from HBM, %llu had to be read\n", (unsigned long long)from_hbm,
	       (unsigned long long)sum[2]);
	assert_int_equal(sum[0], OUTPUTS);
	assert_int_equal(sum[1], 0);
	assert_true(from_hbm > 0 && from_hbm < STEPS * DECODE_LAYER_PAGES);
	assert_true(sum[2] > 0);
}

static void test_another_page_shows(void **state)
{
	struct world *w = *state;
	uint64_t sum[3] = { 0 };
	uint32_t chosen = select_at(&w->trace, 0, 0, 0, 0)[0];

	w->pool.block[chosen] = w->pool.block[(chosen + 1) % BLOCKS];
	step(w, 0, sum);
	assert_int_equal(sum[0], DECODE_GROUPS);
	assert_true(sum[1] >= 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_killed_between_steps, setup, teardown),
		cmocka_unit_test_setup_teardown(test_evicted_under_the_reader, setup, teardown),
		cmocka_unit_test_setup_teardown(test_read_from_three_tiers, setup, teardown),
		cmocka_unit_test_setup_teardown(test_another_page_shows, setup, teardown),
	};

	return cmocka_run_group_tests_name("sparse decode", tests, NULL, NULL);
}
