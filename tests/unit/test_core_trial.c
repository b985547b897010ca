/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trial of LRU beside the real policy agrees, use by use, with an LRU of this file that has as
 * many blocks as the context has in CXL: while blocks are put, used there and on NVMe, fetched,
 * evicted and deleted.
 */
#include <errno.h>

#include "libtier/base/time.h"
#include "tests/lib/property.h"
#include "tests/unit/one_host.h"

#define CXL ABI_TIER_CXL
#define KEYS 48u
#define STEPS 600u

static struct rng rng;

/* Keys by their last use; 0 = the LRU does not have it. */
static struct {
	uint64_t used[KEYS], clock;
	uint64_t uses, reads, would_read;
} lru;

static bool in_cxl(uint32_t n)
{
	uint32_t slot = slot_of(n);

	return slot != ABI_SLOT_NONE && context()->meta[slot].there[CXL].ordered;
}

static void lru_touch(uint32_t n)
{
	lru.used[n] = ++lru.clock;
}

static void lru_shrink(void)
{
	for (;;) {
		uint32_t kept = 0, there = 0, oldest = KEYS;

		for (uint32_t n = 0; n < KEYS; n++) {
			there += in_cxl(n);
			kept += lru.used[n] > 0;
			if (lru.used[n] && (oldest == KEYS || lru.used[n] < lru.used[oldest]))
				oldest = n;
		}
		if (kept <= there)
			return;
		lru.used[oldest] = 0;
	}
}

static void use(uint32_t n)
{
	bool there = in_cxl(n);

	if (slot_of(n) == ABI_SLOT_NONE)
		return;
	lru.uses += there;
	lru.would_read += there && !lru.used[n];
	if (lru.used[n] || there)
		lru_touch(n);
	block_used(host.core, context(), slot_of(n), 1);
}

/* What a step made come: a put, or a fetch, which is a use, too. */
static void come(uint32_t n, bool was_there, bool fetched)
{
	if (!in_cxl(n))
		return;
	lru.reads += fetched && !was_there;
	lru.uses += fetched;
	lru.would_read += fetched && !lru.used[n];
	if (fetched || !lru.used[n])
		lru_touch(n);
}

static void step(void)
{
	const struct abi_sqe fetch = { .op = ABI_OP_FETCH, .tier = CXL };
	uint32_t n = (uint32_t)rng_below(&rng, KEYS), what = (uint32_t)rng_below(&rng, 20);
	bool known = slot_of(n) != ABI_SLOT_NONE, there = in_cxl(n);

	if (what < 12)
		use(n / (1 + n % 3)); /* some more often than others */
	else if (what < 16 && known)
		assert_true(host_request_keys(&host, 0, fetch, n, 1));
	else if (what < 16)
		assert_int_equal(one_host_put(n, 1, ABI_SQE_DURABLE), 0);
	else if (what < 19)
		evict_some(host.core, context(), CXL, context()->spec.geometry.block_bytes);
	else if (known && one_host_delete(n, 1) == 0)
		lru.used[n] = 0;
	assert_true(host_settle(&host, 100));
	if (what >= 12 && what < 16)
		come(n, there, known);
	lru_shrink();
}

static void test_a_trial_is_what_it_says(void **state)
{
	const struct core_trial *told = core_policy_tried(host.core);
	uint32_t id = host.context[0].id;

	(void)state;
	for (uint32_t n = 0; n < KEYS; n += 8)
		assert_int_equal(one_host_put(n, 8, ABI_SQE_DURABLE), 0);
	assert_true(host_settle(&host, 100));
	assert_int_equal(core_policy_try(host.core, id + 1, "lru", NS_PER_S), -ENOENT);
	assert_int_equal(core_policy_try(host.core, id, "magic", NS_PER_S), -EINVAL);
	assert_int_equal(core_policy_try(host.core, id, "lru", 3600 * NS_PER_S), 0);
	assert_true(core_goes_on(host.core));
	host_tick(&host, 1000);
	assert_true(told->on && told->begun);
	assert_int_equal(told->context, id);
	for (uint32_t n = 0; n < KEYS; n++)
		if (in_cxl(n))
			lru.used[n] = 1 + slot_of(n); /* it knows no other order */
	lru.clock = 2 * KEYS + context()->ix.slots_used;
	for (uint32_t i = 0; i < STEPS; i++) {
		step();
		assert_int_equal(told->uses, lru.uses);
		assert_int_equal(told->reads, lru.reads);
		assert_int_equal(told->would_read, lru.would_read);
	}
	assert_true(told->reads > 0 && told->reads < told->uses);
	assert_true(told->would_read > 0 && told->would_read < told->uses);
	assert_true(told->would_read != told->reads);
}

/* Figures stay when its time is over, its context or policy has changed; the next begins anew. */
static void test_a_trial_ends(void **state)
{
	const struct core_trial *told = core_policy_tried(host.core);
	uint32_t id = host.context[0].id;

	(void)state;
	assert_int_equal(one_host_put(0, 4, ABI_SQE_DURABLE), 0);
	assert_int_equal(core_policy_try(host.core, id, "lru", NS_PER_S), 0);
	host_tick(&host, 1000);
	use(0);
	assert_int_equal(core_policy_try(host.core, id, "lru", NS_PER_S), 0); /* anew */
	host_tick(&host, 1000);
	assert_int_equal(told->uses, 0);
	use(0);
	assert_int_equal(told->uses, 1);
	host_tick(&host, NS_PER_S);
	assert_true(!told->on && told->uses == 1 && !told->reads && told->blocks == 4);
	use(1);
	assert_int_equal(told->uses, 1);
	assert_int_equal(core_policy_try(host.core, id, "lru", NS_PER_S), 0);
	assert_true(told->on && !told->uses);
	assert_int_equal(core_policy_set(host.core, id, "lru", 1), 0);
	assert_false(told->on);
	assert_int_equal(core_policy_try(host.core, id, "reuse", NS_PER_S), -EBUSY);
	assert_true(host_settle(&host, 100));
	assert_int_equal(core_policy_try(host.core, id, "reuse", NS_PER_S), 0);
	host_tick(&host, 1000);
	host_context_remove(&host, 0);
	assert_true(host_settle(&host, 1000));
	assert_false(told->on);
}

/* Places of blocks that left serve again, however many come. */
static void test_a_trial_has_room_again(void **state)
{
	const struct core_trial *told = core_policy_tried(host.core);
	uint64_t most = context()->lanes.size[CXL].blocks_max;

	(void)state;
	assert_int_equal(core_policy_try(host.core, host.context[0].id, "lru", 3600 * NS_PER_S),
			 0);
	host_tick(&host, 1000);
	assert_true(told->on && told->begun);
	for (uint64_t i = 0; i < most; i++) {
		assert_int_equal(one_host_put(0, 2, 0), 0);
		assert_int_equal(one_host_delete(0, 2), 0);
		assert_true(host_settle(&host, 100));
	}
	assert_int_equal(one_host_put(0, 2, 0), 0);
	use(0);
	use(1);
	assert_int_equal(told->uses, 2);
	assert_int_equal(told->would_read, 0);
}

static int begin(void **state)
{
	struct disk_context spec;

	(void)state;
	memset(&lru, 0, sizeof(lru));
	rng = (struct rng){ 28 };
	host_spec(&spec, HOST_KIND_STORE, 0);
	one_host_boot(&spec, 1);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_a_trial_is_what_it_says, begin, one_host_off),
		cmocka_unit_test_setup_teardown(test_a_trial_ends, begin, one_host_off),
		cmocka_unit_test_setup_teardown(test_a_trial_has_room_again, begin, one_host_off),
	};

	return cmocka_run_group_tests(tests, one_host, NULL);
}
