/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slabs for devices, asked for by hand (libtier/abi/wire.h W5): who gets which, that each is left
 * as often as it was taken, and that a context which is removed wants its own back.
 */
#include "tests/integration/kv_world.h"

static int setup(void **state)
{
	*state = world_begin(NULL);
	return 0;
}

static int ask_slab(struct client *c, uint16_t type, const struct wire_slab *about,
		    struct wire_slab *out)
{
	struct wire_slab m = *about;
	union answer a;

	assert_true(client_ask(c, &m, type, sizeof(m), &a) > 0);
	if (a.header.type == WIRE_ERROR)
		return a.error.error;
	assert_int_equal(a.header.type, WIRE_SLAB);
	assert_int_equal(a.header.length, sizeof(*out));
	memcpy(out, a.bytes, sizeof(*out));
	assert_int_equal(out->pieces, (uint32_t)c->fds);
	return 0;
}

static uint32_t open_kv(struct client *c)
{
	struct wire_ctx m = { .name = "kv" };
	union answer a;

	assert_true(client_ask(c, &m, WIRE_CTX_OPEN, sizeof(m), &a) > 0);
	assert_int_equal(a.header.type, WIRE_CTX_INFO);
	for (int i = 0; i < c->fds; i++)
		close(c->fd[i]);
	return a.info.context_id;
}

static void put_one(struct world *w)
{
	static const uint8_t data[BLOCK_BYTES];
	tier_key key;

	assert_int_equal(tier_key_opaque(&key, "slab", 4, NULL), 0);
	assert_int_equal(tier_put_copy(w->c, &key, 1, data, NULL), 1);
}

/* So many times, and then it has it no more. */
static void leave(struct client *c, const struct wire_slab *got, uint32_t times)
{
	struct wire_slab none;

	for (uint32_t i = 0; i < times; i++) {
		assert_int_equal(ask_slab(c, WIRE_SLAB_LEAVE, got, &none), 0);
		assert_int_equal(none.bytes, 0);
	}
	assert_int_equal(ask_slab(c, WIRE_SLAB_LEAVE, got, &none), -ENOENT);
}

static void test_who_gets_which(void **state)
{
	struct world *w = *state;
	struct wire_slab q = { .tier = ABI_TIER_CXL }, got;
	struct client c;

	assert_int_equal(client_open(&c, &w->d), 0);
	assert_true(c.welcome.flags & WIRE_SLABS);
	assert_int_equal(ask_slab(&c, WIRE_SLAB_TAKE, &q, &got), -ENOENT);
	q.context_id = open_kv(&c);
	assert_int_equal(ask_slab(&c, WIRE_SLAB_TAKE, &q, &got), -EAGAIN); /* nothing is there */
	put_one(w);
	assert_int_equal(ask_slab(&c, WIRE_SLAB_TAKE, &q, &got), 0);
	assert_true(got.bytes && got.bytes % ABI_HUGE == 0 && got.offset == 0);
	assert_int_equal(got.pieces, 0); /* it registers what it has mapped */
	q.tier = ABI_TIER_HBM; /* of who did not say that it maps HBM */
	assert_int_equal(ask_slab(&c, WIRE_SLAB_TAKE, &q, &got), -EINVAL);
	q.tier = WIRE_SLAB_INDEX + 1;
	assert_int_equal(ask_slab(&c, WIRE_SLAB_TAKE, &q, &got), -EINVAL);
	assert_int_equal(ask_slab(&c, WIRE_SLAB_LEAVE, &q, &got), -EINVAL);
	q.tier = ABI_TIER_CXL;
	q.reserved[3] = 1;
	assert_int_equal(ask_slab(&c, WIRE_SLAB_TAKE, &q, &got), -EINVAL);
	q.reserved[3] = 0;
	q.offset = UINT64_MAX;
	assert_int_equal(ask_slab(&c, WIRE_SLAB_TAKE, &q, &got), -EAGAIN);
	client_close(&c);
}

/* An index is one slab, wherever in it the byte is. */
static void test_an_index_is_one_slab(void **state)
{
	struct world *w = *state;
	struct wire_slab q = { .tier = WIRE_SLAB_INDEX, .offset = 8192 }, got;
	struct client c;

	assert_int_equal(client_open(&c, &w->d), 0);
	assert_int_equal(ask_slab(&c, WIRE_SLAB_TAKE, &q, &got), -ENOENT);
	q.context_id = open_kv(&c);
	assert_int_equal(ask_slab(&c, WIRE_SLAB_TAKE, &q, &got), 0);
	assert_true(got.offset == 0 && got.bytes > 2 * 4096 && got.tier == WIRE_SLAB_INDEX);
	assert_int_equal(got.pieces, 0);
	leave(&c, &got, 1);
	client_close(&c);
}

/* This tier cannot be granted, which the daemon says, and who asks all the same is refused. */
static void test_no_places_here(void **state)
{
	struct world *w = *state;
	struct wire_place m = { .put = 1 };
	struct client c;
	union answer a;

	assert_int_equal(client_open(&c, &w->d), 0);
	assert_false(c.welcome.flags & WIRE_PLACES);
	assert_true(client_ask(&c, &m, WIRE_PLACE, sizeof(m), &a) > 0);
	assert_int_equal(a.error.error, -ENOENT);
	m.reserved[2] = 1;
	assert_true(client_ask(&c, &m, WIRE_PLACE, sizeof(m), &a) > 0);
	assert_int_equal(a.error.error, -EINVAL);
	client_close(&c);
}

static void test_left_as_often_as_taken(void **state)
{
	struct world *w = *state;
	struct wire_slab q = { .tier = ABI_TIER_CXL }, got, none;
	struct client c;

	put_one(w);
	assert_int_equal(client_open(&c, &w->d), 0);
	q.context_id = open_kv(&c);
	assert_int_equal(ask_slab(&c, WIRE_SLAB_TAKE, &q, &got), 0);
	q.offset = 4096; /* the same one */
	assert_int_equal(ask_slab(&c, WIRE_SLAB_TAKE, &q, &none), 0);
	assert_int_equal(none.offset, got.offset);
	leave(&c, &got, 2);
	client_close(&c);
}

static void test_a_removed_context_wants_its_own(void **state)
{
	struct world *w = *state;
	struct wire_slab q = { .tier = ABI_TIER_CXL }, got, wanted;
	struct client c;

	put_one(w);
	assert_int_equal(client_open(&c, &w->d), 0);
	q.context_id = open_kv(&c);
	assert_int_equal(ask_slab(&c, WIRE_SLAB_TAKE, &q, &got), 0);
	assert_int_equal(atomic_load_acquire_u64(&c.region->slabs_wanted), 0);
	tier_context_close(w->c);
	assert_int_equal(tier_context_remove(w->t, "kv"), 0);
	while (!atomic_load_acquire_u64(&c.region->slabs_wanted))
		usleep(1000);
	q.tier = 0;
	assert_int_equal(ask_slab(&c, WIRE_SLAB_LEAVE, &q, &wanted), 0);
	assert_int_equal(wanted.tier, ABI_TIER_CXL);
	assert_int_equal(wanted.offset, got.offset);
	assert_int_equal(wanted.bytes, got.bytes);
	assert_int_equal(ask_slab(&c, WIRE_SLAB_TAKE, &(struct wire_slab){
				  .tier = ABI_TIER_CXL, .context_id = q.context_id }, &got),
			 -EAGAIN);
	assert_int_equal(ask_slab(&c, WIRE_SLAB_LEAVE, &wanted, &got), 0);
	assert_int_equal(got.bytes, 0);
	client_close(&c);
	/* Its index is free: another one of the name is made. */
	assert_int_equal(tier_context_create(w->t, "kv", w->g, NULL, &w->c), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_who_gets_which, setup, world_end),
		cmocka_unit_test_setup_teardown(test_an_index_is_one_slab, setup, world_end),
		cmocka_unit_test_setup_teardown(test_no_places_here, setup, world_end),
		cmocka_unit_test_setup_teardown(test_left_as_often_as_taken, setup, world_end),
		cmocka_unit_test_setup_teardown(test_a_removed_context_wants_its_own, setup,
						world_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
