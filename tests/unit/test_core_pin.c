/*
 * Limits of pins: of a context, of a salt and of a client, beside the budget of all. What is over
 * one stays unprotected or, when nothing fits, is refused with whose limit it was. What several
 * hold is charged once.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <string.h>

#include "tests/lib/unit.h"
#include "tests/unit/one_host.h"
#include "tierd/core/state.h"

#define KEYS 24u /* the first half of salt 7, the others of salt 8 */

static uint64_t salt_of(uint32_t n)
{
	return n < KEYS / 2 ? 7 : 8;
}

static void put(uint32_t n)
{
	const struct abi_put_args args = { .count = 1, .salt = salt_of(n) };

	assert_int_equal(host_reserve(&host, &args, n, 0), 0);
	assert_true(host_commit(&host, 0));
	assert_int_equal(host.answer.value, 1);
}

/* Returns blocks protected, or the refusal; its id stays in the host's answer. */
static int64_t pin(uint32_t client, uint32_t first, uint32_t count)
{
	const struct abi_sqe sqe = { .op = ABI_OP_PIN, .tier = ABI_TIER_CXL };

	assert_true(host_request_keys(&host, client, sqe, first, count));
	host_audit(&host);
	return host.answer.res ? host.answer.res : (int64_t)host.answer.aux;
}

static void unpin(uint32_t client, uint64_t id)
{
	struct abi_sqe sqe = { .op = ABI_OP_UNPIN, .handle = id };

	sqe.context_id = host.context[0].id;
	assert_true(host_request(&host, client, &sqe));
	assert_int_equal(host.answer.res, 0);
	host_audit(&host);
}

static uint8_t whose(void)
{
	return (uint8_t)(host.answer.aux >> 8 * ABI_HELD_LIMIT);
}

static uint64_t block(void)
{
	return core_context(host.core, host.context[0].id)->spec.geometry.block_bytes;
}

static void set(enum core_holder who, uint64_t key, uint64_t pins)
{
	const struct core_quota q = { .who = who, .context_id = host.context[0].id, .key = key,
				      .tier = ABI_TIER_CXL, .pins = pins };

	assert_int_equal(core_quota_set(host.core, &q, 1), 0);
	host_look(&host);
}

static int begin_anew(void **state)
{
	struct disk_context spec;

	(void)state;
	host_spec(&spec, HOST_KIND_STORE, 0);
	spec.geometry.part[0].layers = 2;
	spec.geometry.part[0].groups = 1;
	one_host_boot(&spec, 2);
	for (uint32_t n = 0; n < KEYS; n++)
		put(n);
	return 0;
}

static int begin(void **state)
{
	one_host(state);
	return begin_anew(state);
}

static int again(void **state)
{
	one_host_off(state);
	return begin_anew(state);
}

/* Of what all share its connections together get three quarters, the other user the rest. */
static void test_a_user_takes_no_table_whole(void **state)
{
	struct client *k = &host.core->client[0];

	(void)state;
	for (uint32_t i = 0; i < CORE_REQUESTS_MAX / 4 * 3; i++) {
		assert_true(account_may(host.core, k, ACCOUNT_PUTS));
		account_take(host.core, k, ACCOUNT_PUTS);
	}
	assert_false(account_may(host.core, k, ACCOUNT_PUTS));
	for (uint32_t i = 0; i < CORE_REQUESTS_MAX / 4 * 3; i++)
		account_give(host.core, k->account, k, ACCOUNT_PUTS);
}

/* What a pin holds is a list of pieces, and all of them are let go. */
static void test_a_pin_of_many_is_let_go_whole(void **state)
{
	(void)state;
	for (uint32_t n = KEYS; n <= CORE_PIN_CHUNK_REFS; n++)
		put(n);
	assert_int_equal(pin(0, 0, CORE_PIN_CHUNK_REFS + 1), CORE_PIN_CHUNK_REFS + 1);
	unpin(0, host.answer.value);
	for (uint32_t n = 0; n <= CORE_PIN_CHUNK_REFS; n++)
		assert_false(block_use_is_pinned(block_use(context(), slot_of(n))));
}

/* A pin's id is good in another process of the same user, and for an operator. */
static void test_other_users_do_not_unpin(void **state)
{
	struct core_client_open *other = &host.core->client[1].open;
	struct abi_sqe sqe = { .op = ABI_OP_UNPIN, .context_id = host.context[0].id };
	uint64_t first, second;

	(void)state;
	host_client_open(&host, 1);
	host_client_attach(&host, 1);
	assert_int_equal(pin(0, 0, 2), 2);
	first = host.answer.value;
	assert_int_equal(pin(0, 2, 2), 2);
	second = host.answer.value;
	other->uid = HOST_OWNER + 1;
	sqe.handle = first;
	assert_true(host_request(&host, 1, &sqe));
	assert_int_equal(host.answer.res, -ENOENT);
	other->operator_ = true;
	unpin(1, first);
	other->operator_ = false;
	other->uid = HOST_OWNER;
	unpin(1, second);
}

static void test_a_salt_pins_no_more_than_its_limit(void **state)
{
	uint64_t id;

	(void)state;
	set(CORE_HOLDER_SALT, 7, 3 * block() + 1);
	assert_int_equal(pin(0, 0, 8), 3); /* the rest is not protected */
	assert_int_equal(host.answer.status, ABI_STATUS_DROPPED);
	id = host.answer.value;
	assert_int_equal(pin(1, 5, 2), -EDQUOT); /* whoever pins */
	assert_int_equal(whose(), ABI_LIMIT_SALT);
	assert_int_equal(pin(0, KEYS / 2, 4), 4); /* others may */
	unpin(0, host.answer.value);
	unpin(0, id);
	assert_int_equal(pin(0, 0, 2), 2);
	unpin(0, host.answer.value);
	/* Over both salts: those of the first up to its limit, and then no further. */
	assert_int_equal(pin(0, KEYS / 2 - 2, 6), 6);
	unpin(0, host.answer.value);
	set(CORE_HOLDER_SALT, 7, 0);
	assert_int_equal(pin(0, 0, 8), 8);
	unpin(0, host.answer.value);
}

static void test_a_client_pins_no_more_than_its_limit(void **state)
{
	uint64_t id;

	(void)state;
	set(CORE_HOLDER_CLIENT, 0, 2 * block());
	assert_int_equal(pin(0, 0, 4), 2);
	id = host.answer.value;
	assert_int_equal(pin(0, 8, 1), -EDQUOT);
	assert_int_equal(whose(), ABI_LIMIT_CLIENT);
	assert_int_equal(pin(1, 8, 4), 4);
	unpin(1, host.answer.value);
	unpin(0, id);
	set(CORE_HOLDER_CLIENT, 0, 0);
}

static void test_a_context_pins_no_more_than_its_limit(void **state)
{
	(void)state;
	set(CORE_HOLDER_CONTEXT, 0, 5 * block());
	assert_int_equal(pin(0, 0, 4), 4);
	assert_int_equal(pin(1, KEYS / 2, 4), 1);
	assert_int_equal(pin(1, KEYS / 2 + 4, 1), -EDQUOT);
	assert_int_equal(whose(), ABI_LIMIT_CONTEXT);
	assert_true(host.answer.aux >> 8 * ABI_HELD_TIER == 1 + ABI_TIER_CXL);
	set(CORE_HOLDER_CONTEXT, 0, 0);
	assert_int_equal(pin(1, KEYS / 2 + 4, 1), 1);
	/* pins end with their connection, and give back what they took */
	host_client_gone(&host, 0);
	host_client_dead(&host, 0);
	host_client_gone(&host, 1);
	host_client_dead(&host, 1);
	host_audit(&host);
	host_client_open(&host, 0);
	host_client_attach(&host, 0);
}

static uint64_t kept(void)
{
	const struct context *x = core_context(host.core, host.context[0].id);

	assert_int_equal(host.core->pins.bytes[ABI_TIER_CXL], x->pinned[ABI_TIER_CXL]);
	return x->pinned[ABI_TIER_CXL] / block();
}

/* Two clients hold one prefix: it takes the room of one, until the second one lets go, too. */
static void test_what_several_pin_is_charged_once(void **state)
{
	uint64_t first, second, third;

	(void)state;
	set(CORE_HOLDER_CONTEXT, 0, 4 * block());
	set(CORE_HOLDER_SALT, 7, 4 * block());
	assert_int_equal(pin(0, 0, 4), 4);
	first = host.answer.value;
	assert_int_equal(pin(1, 0, 4), 4);
	second = host.answer.value;
	assert_int_equal(pin(1, 2, 4), 2); /* these two are kept anyway */
	third = host.answer.value;
	assert_int_equal(kept(), 4);
	assert_int_equal(pin(1, 4, 1), -EDQUOT);
	assert_int_equal(whose(), ABI_LIMIT_CONTEXT);
	unpin(1, third);
	unpin(0, first);
	assert_int_equal(kept(), 4);
	unpin(1, second);
	assert_int_equal(kept(), 0);
	set(CORE_HOLDER_SALT, 7, 0);
	set(CORE_HOLDER_CONTEXT, 0, 0);
}

/* A client's own limit is of what it asks for: who shares a prefix with it may let go any time. */
static void test_a_client_counts_all_that_it_pins(void **state)
{
	uint64_t first, second;

	(void)state;
	set(CORE_HOLDER_CLIENT, 1, 4 * block());
	assert_int_equal(pin(0, 0, 6), 6);
	first = host.answer.value;
	assert_int_equal(pin(1, 0, 6), 4);
	second = host.answer.value;
	assert_int_equal(pin(1, 0, 1), -EDQUOT);
	assert_int_equal(whose(), ABI_LIMIT_CLIENT);
	unpin(1, second);
	unpin(0, first);
	assert_int_equal(kept(), 0);
	set(CORE_HOLDER_CLIENT, 1, 0);
}

static void test_limits_of_pins_come_back(void **state)
{
	struct context *x = core_context(host.core, host.context[0].id);
	const struct disk_limit limit = { .context_uid = x->spec.uid | DISK_LIMIT_PINS, .salt = 9,
					  .hard = { 0, 1 << 20 } };
	struct core_holder_view v = { .key = 0 };

	(void)state;
	assert_int_equal(core_limit_restore(host.core, &limit), 0);
	for (uint32_t i = 0; v.key != 9; i++)
		assert_int_equal(core_holder_at(host.core, x->id, i, &v), 0);
	assert_int_equal(v.pin_limit[ABI_TIER_CXL], 1 << 20);
	assert_int_equal(v.limit[ABI_TIER_CXL].hard, 0);
	set(CORE_HOLDER_SALT, 9, 0);
}

/* At its limit on NVMe a salt gives its own older blocks: of these, one that nothing keeps. */
static void at_the_limit(void)
{
	const struct abi_put_args args = { .count = 1, .salt = 7 };
	struct core_quota q = { .who = CORE_HOLDER_SALT, .context_id = host.context[0].id,
				.key = 7, .tier = ABI_TIER_NVME, .limit.hard = KEYS / 2 * block() };

	assert_int_equal(core_quota_set(host.core, &q, 1), 0);
	host_look(&host);
	assert_int_equal(host_reserve(&host, &args, KEYS, 0), 0);
	assert_true(host_commit(&host, 0));
	assert_true(host_settle(&host, 100));
	for (uint32_t n = 0; n < KEYS / 2 - 1; n++)
		assert_true(is_there(n));
	assert_false(is_there(KEYS / 2 - 1));
	assert_true(is_there(KEYS));
}

static void test_a_quota_takes_nothing_that_is_pinned(void **state)
{
	(void)state;
	assert_true(host_settle(&host, 100));
	assert_int_equal(pin(0, 0, KEYS / 2 - 1), KEYS / 2 - 1);
	at_the_limit();
}

/* A request under way has the others. */
static void test_a_quota_takes_nothing_that_is_held(void **state)
{
	struct context *x = core_context(host.core, host.context[0].id);
	uint32_t slot[KEYS / 2 - 1];

	(void)state;
	assert_true(host_settle(&host, 100));
	for (uint32_t n = 0; n < KEYS / 2 - 1; n++) {
		slot[n] = slot_of(n);
		block_hold(x, slot[n]);
	}
	at_the_limit();
	for (uint32_t n = 0; n < KEYS / 2 - 1; n++)
		block_unhold(host.core, x, slot[n]);
	host_audit(&host);
}

/* As the core pins for a conversation: the first layers of the first `count` blocks. */
static int64_t pin_lead(uint32_t layers, uint32_t count, uint64_t *id)
{
	struct context *x = core_context(host.core, host.context[0].id);
	struct abi_block_ref ref[KEYS];
	struct pin_ask ask = { .tier = ABI_TIER_CXL, .ctx = x, .deadline_ns = UINT64_MAX,
			       .layers = layers, .ref = ref, .count = count };
	uint8_t key[ABI_KEY_BYTES];
	int64_t blocks;

	for (uint32_t n = 0; n < count; n++) {
		host_key(n, key);
		ref[n].slot = index_find(&x->ix, key);
		ref[n].generation = index_block(&x->ix, ref[n].slot)->generation;
	}
	blocks = pin_take(host.core, &ask);
	*id = ask.id;
	host_audit(&host);
	return blocks;
}

/* Foresight may take half of a budget; who reads gets the other half. */
static void test_foresight_leaves_half_of_the_budget(void **state)
{
	uint64_t lead;
	int64_t blocks;

	(void)state;
	set(CORE_HOLDER_CONTEXT, 0, 8 * block());
	blocks = pin_lead(UINT16_MAX, KEYS, &lead);
	assert_int_equal(blocks, 4);
	assert_int_equal(pin(0, 10, 8), 4);
	unpin(0, host.answer.value);
	unpin(0, lead);
	/* Not what is pinned anyway either: it would be foresight's when the reader has gone. */
	assert_int_equal(pin(0, 0, 5), 5);
	assert_int_equal(pin_lead(1, 5, &lead), -EDQUOT);
	unpin(0, host.answer.value);
	set(CORE_HOLDER_CONTEXT, 0, 0);
}

/* Two pins of a block's lead: the one of more layers counts, whichever came first or went. */
static void test_the_longer_lead_counts(void **state)
{
	const struct context *x = core_context(host.core, host.context[0].id);
	const struct abi_part *kv = &x->spec.geometry.part[0];
	uint64_t more, fewer;
	uint8_t key[ABI_KEY_BYTES];
	uint32_t slot, last;

	(void)state;
	host_key(0, key);
	slot = index_find(&x->ix, key);
	last = kv->page_base + (kv->layers - 1) * kv->groups;
	assert_true(kv->layers > 1);
	assert_int_equal(pin_lead(kv->layers, 1, &more), 1);
	assert_int_equal(pin_lead(1, 1, &fewer), 1);
	assert_true(pin_holds(x, slot, last, ABI_TIER_CXL));
	unpin(0, fewer);
	assert_true(pin_holds(x, slot, last, ABI_TIER_CXL));
	unpin(0, more);
	assert_false(pin_holds(x, slot, kv->page_base, ABI_TIER_CXL));
}

/* The lead of a block that is pinned whole costs nothing, and is what is left of the two. */
static void test_a_lead_is_charged_within_its_block(void **state)
{
	const struct context *x = core_context(host.core, host.context[0].id);
	uint64_t lead, bytes = pin_block_bytes(x, slot_of(0), 1), whole;

	(void)state;
	assert_true(bytes > 0 && bytes < block());
	assert_int_equal(pin(0, 0, 1), 1);
	whole = host.answer.value;
	assert_int_equal(pin_lead(1, 2, &lead), 2);
	assert_int_equal(x->pinned[ABI_TIER_CXL], block() + bytes);
	unpin(0, whole);
	assert_int_equal(x->pinned[ABI_TIER_CXL], 2 * bytes);
	assert_int_equal(pin(0, 1, 1), 1);
	assert_int_equal(x->pinned[ABI_TIER_CXL], block() + bytes);
	whole = host.answer.value;
	unpin(0, lead);
	unpin(0, whole);
	assert_int_equal(kept(), 0);
}

/* A block that left takes nobody's room, though its pins are still to be let go. */
static void test_a_block_that_left_is_charged_to_nobody(void **state)
{
	struct abi_sqe sqe = { .op = ABI_OP_DELETE };
	uint64_t first, second;

	(void)state;
	assert_int_equal(pin(0, 0, 2), 2);
	first = host.answer.value;
	assert_int_equal(pin(1, 0, 1), 1);
	second = host.answer.value;
	host_request_keys(&host, 0, sqe, 0, 1);
	assert_true(host_settle(&host, 100));
	assert_false(is_there(0));
	host_audit(&host);
	assert_int_equal(kept(), 1);
	unpin(1, second);
	assert_int_equal(kept(), 1);
	unpin(0, first);
	assert_int_equal(kept(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_foresight_leaves_half_of_the_budget),
		cmocka_unit_test(test_the_longer_lead_counts),
		cmocka_unit_test(test_a_salt_pins_no_more_than_its_limit),
		cmocka_unit_test(test_a_client_pins_no_more_than_its_limit),
		cmocka_unit_test(test_a_context_pins_no_more_than_its_limit),
		cmocka_unit_test(test_a_user_takes_no_table_whole),
		cmocka_unit_test(test_other_users_do_not_unpin),
		cmocka_unit_test(test_limits_of_pins_come_back),
		cmocka_unit_test_setup(test_what_several_pin_is_charged_once, again),
		cmocka_unit_test_setup(test_a_client_counts_all_that_it_pins, again),
		cmocka_unit_test_setup(test_a_lead_is_charged_within_its_block, again),
		cmocka_unit_test_setup(test_a_block_that_left_is_charged_to_nobody, again),
		cmocka_unit_test_setup(test_a_quota_takes_nothing_that_is_pinned, again),
		cmocka_unit_test_setup(test_a_quota_takes_nothing_that_is_held, again),
		cmocka_unit_test_setup(test_a_pin_of_many_is_let_go_whole, again),
	};

	return cmocka_run_group_tests(tests, begin, one_host_off);
}
