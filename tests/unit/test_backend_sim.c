/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated device below the seam to hardware: one trace of copies, hints, prepares and punches
 * through ordinary memory, the golden model and the RTL: the same answers, bytes and sums, and from
 * the last two the same commands to flash, in the same order. More chunks than ways, so that lines
 * are evicted; pieces of odd sizes at odd places, which the host reads and merges.
 */
#include <errno.h>
#include <string.h>

#include "tests/lib/rtl.h"
#include "tierd/backend/mem_common.h"

#define TIER_BYTES (64ull << 20)
#define REGION (36ull << 20) /* 18 chunks of one and the same half of the sets, of 16 ways */
#define STEPS 400u
#define PIECE (40u << 10)

struct outcome {
	uint64_t sum; /* over answers, bytes and checksums, in order */
	struct sim_flash flash;
};

struct walk {
	const struct mem_ops *ops;
	struct mem_region region;
	struct outcome *out;
	uint64_t rng;
	uint8_t bytes[4 * PIECE];
};

static uint64_t next(struct walk *w, uint64_t below)
{
	w->rng = w->rng * 6364136223846793005u + 1442695040888963407u;
	return (w->rng >> 33) % below;
}

static void add(struct walk *w, uint64_t value)
{
	w->out->sum = (w->out->sum ^ value) * 0x100000001b3u;
}

static void copy(struct walk *w, bool in)
{
	struct core_copy c = { .count = 1 + (uint32_t)next(w, 4), .checksum = true, .res = 1,
			       .src_tier = in ? ABI_TIER_COUNT : ABI_TIER_CXL,
			       .dst_tier = in ? ABI_TIER_CXL : ABI_TIER_HBM };

	for (uint32_t i = 0; i < c.count; i++) {
		uint64_t step = next(w, 4) ? 4096 : 1, n = 1 + next(w, PIECE / step) * step;
		uint8_t *at = (uint8_t *)w->region.addr + next(w, (REGION - PIECE) / step) * step;
		uint8_t *own = w->bytes + (size_t)i * PIECE;

		n = n > PIECE ? PIECE : n;
		memset(own, (int)next(w, 256), n);
		c.item[i] = (struct core_copy_item){ .dst = in ? at : own, .src = in ? own : at,
						     .bytes = (uint32_t)n, .seed = i,
						     .pad = in ? (uint32_t)next(w, n) : 0 };
	}
	if (!in && next(w, 2))
		w->ops->hint(w->ops, &c);
	w->ops->copy(w->ops, &c);
	add(w, (uint64_t)c.res);
	for (uint32_t i = 0; i < c.count; i++) {
		add(w, c.item[i].crc);
		for (uint32_t k = 0; k < c.item[i].bytes; k++)
			add(w, w->bytes[(size_t)i * PIECE + k]);
	}
}

static void walk(const struct mem_ops *ops, struct outcome *out)
{
	static struct walk w;

	*out = (struct outcome){ .sum = 1 };
	w = (struct walk){ .ops = ops, .out = out, .rng = 7 };
	assert_int_equal(w.ops->open(&w.ops, NULL, TIER_BYTES), 0);
	assert_int_equal(w.ops->create(w.ops, &w.region, "tier-test", REGION), 0);
	for (uint32_t i = 0; i < STEPS; i++) {
		uint64_t what = next(&w, 40), area = next(&w, REGION / ABI_HUGE) * ABI_HUGE;

		if (what == 0)
			add(&w, (uint64_t)w.ops->punch(&w.region, area, ABI_HUGE));
		else if (what == 1)
			add(&w, w.ops->prepare(&w.region, area, ABI_HUGE) < 0);
		else
			copy(&w, what < 22);
	}
	if (ops == &mem_cxl_sim)
		out->flash = cxl_sim_flash(w.ops);
	w.ops->destroy(&w.region);
	w.ops->close(w.ops);
}

static void test_one_trace_through_all(void **state)
{
	struct outcome memory, model, rtl;
	struct rtl_process process;

	(void)state;
	walk(&mem_cxl_memfd, &memory);
	walk(&mem_cxl_sim, &model);
	assert_int_equal(model.sum, memory.sum);
	assert_true(model.flash.writes > 0); /* dirty lines left */
	assert_true(model.flash.units > 0);  /* hints were taken */
	print_message("flash: %lu reads, %lu of them for windows, %lu writes\n",
		      (unsigned long)model.flash.reads, (unsigned long)model.flash.units,
		      (unsigned long)model.flash.writes);
	if (!rtl_begin(&process))
		return;
	walk(&mem_cxl_sim, &rtl);
	rtl_end(&process);
	assert_int_equal(rtl.sum, memory.sum);
	assert_memory_equal(&rtl.flash, &model.flash, sizeof(rtl.flash));
}

/* A device that ends: copies fail, nothing waits for ever. */
static void test_a_device_that_ends(void **state)
{
	const struct mem_ops *ops = &mem_cxl_sim;
	struct core_copy c = { .count = 1, .dst_tier = ABI_TIER_CXL };
	struct rtl_process process;
	struct mem_region region;
	uint8_t byte = 1;

	(void)state;
	if (!rtl_begin(&process))
		skip();
	assert_int_equal(ops->open(&ops, NULL, TIER_BYTES), 0);
	assert_int_equal(ops->create(ops, &region, "tier-test", ABI_HUGE), 0);
	rtl_end(&process);
	c.item[0] = (struct core_copy_item){ .dst = region.addr, .src = &byte, .bytes = 1 };
	ops->copy(ops, &c);
	assert_int_equal(c.res, -EIO);
	ops->destroy(&region);
	ops->close(ops);
}

/* What is no ring of ours is refused. */
static void test_no_ring(void **state)
{
	const struct mem_ops *ops = &mem_cxl_sim;

	(void)state;
	setenv("TIER_SIM_RING", "/nowhere/ring", 1);
	assert_int_equal(ops->open(&ops, NULL, TIER_BYTES), -ENOENT);
	setenv("TIER_SIM_RING", "/proc/self/status", 1);
	assert_int_not_equal(ops->open(&ops, NULL, TIER_BYTES), 0);
	unsetenv("TIER_SIM_RING");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_trace_through_all),
		cmocka_unit_test(test_a_device_that_ends),
		cmocka_unit_test(test_no_ring),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
