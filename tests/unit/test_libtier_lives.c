/*
 * What a new daemon is told of readers that were there before it, and what its streams, waits and
 * puts must not take over from the life before; and single numbers that travel: times to live,
 * which blocks exist, flags, how many a wait waits for.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/unit/test_libtier_world.h"

#define LONG_NS (10 * NS_PER_S)
#define SHORT_NS (50 * NS_PER_MS)

static struct abi_reader *area(struct world *w, uint32_t i)
{
	struct fake_client *k = &w->fake->client[0];

	return (struct abi_reader *)((uint8_t *)k->region + k->region->reader_offset) + i;
}

/* ---- readers --------------------------------------------------------------------------------- */

/* H2: every slot that is used lies below high_water, in whichever life it was first used. */
static void test_high_water_over_a_restart(void **state)
{
	struct world *w = *state;
	tier_block b = world_block(w, 1);
	struct tier_lease lease[4];

	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(tier_lease_page(w->r, w->c, b, i, 0, &lease[i]), 0);
	tier_release(w->r, &lease[2]);
	fake_restart(w->fake);
	assert_int_equal(world_attach(w), 1);
	b = world_block(w, 1);
	assert_int_equal(tier_lease_page(w->r, w->c, b, 0, 0, &lease[3]), 0);
	assert_true(lease[3].slot < area(w, 0)->high_water);
	assert_int_not_equal(area(w, 0)->slot[lease[3].slot], 0);
	assert_int_equal(area(w, 0)->owned, 1);
}

/* Nor does a new reader in an area lower what one before it has raised. */
static void test_high_water_is_not_lowered(void **state)
{
	struct world *w = *state;
	tier_block b = world_block(w, 1);
	struct tier_lease lease[5];

	for (uint32_t i = 0; i < COUNT(lease); i++)
		assert_int_equal(tier_lease_page(w->r, w->c, b, i, 0, &lease[i]), 0);
	tier_reader_close(w->r);
	assert_int_equal(tier_reader_open(w->t, &w->r), 0);
	assert_int_equal(tier_lease_page(w->r, w->c, b, 0, 0, &lease[0]), 0);
	assert_int_equal(area(w, 0)->high_water, COUNT(lease));
}

/* A daemon that grants fewer readers than the one before has no area for the last ones. */
static void test_a_reader_without_an_area(void **state)
{
	struct world *w = *state;
	struct tier_lease lease;
	tier_reader *second;
	tier_block b;

	assert_int_equal(tier_reader_open(w->t, &second), 0);
	w->fake->readers_max = 1;
	fake_restart(w->fake);
	assert_int_equal(world_attach(w), 1);
	b = world_block(w, 1);
	assert_int_equal(tier_lease_page(second, w->c, b, 0, 0, &lease), -EAGAIN);
	assert_int_equal(tier_lease_page(w->r, w->c, b, 0, 0, &lease), 0);
}

/* Accesses of lists are told like those of single leases. */
static void test_lists_tell_their_accesses(void **state)
{
	struct world *w = *state;
	tier_block b = world_block(w, 1);
	struct tier_page page[40];
	struct tier_lease lease[40];

	for (uint32_t i = 0; i < COUNT(page); i++)
		page[i] = (struct tier_page){ b, i % 6 };
	assert_int_equal(tier_lease_pages(w->r, w->c, page, COUNT(page), 0, lease), COUNT(page));
	assert_int_equal(area(w, 0)->access_tail, COUNT(page));
}

/* Leases for others' sake are held like all, and are no use that the daemon hears of. */
static void test_no_use_is_not_told(void **state)
{
	struct world *w = *state;
	tier_block b = world_block(w, 1);
	struct tier_page page[40];
	struct tier_lease lease[40], one;

	for (uint32_t i = 0; i < COUNT(page); i++)
		page[i] = (struct tier_page){ b, i % 6 };
	assert_int_equal(tier_lease_pages(w->r, w->c, page, COUNT(page), TIER_LEASE_NO_USE,
					  lease), COUNT(page));
	assert_int_equal(tier_lease_page(w->r, w->c, b, 0, TIER_LEASE_CXL | TIER_LEASE_NO_USE,
					 &one), 0);
	assert_int_not_equal(area(w, 0)->slot[one.slot], 0);
	assert_int_equal(area(w, 0)->access_tail, 0);
}

static void test_unknown_flags(void **state)
{
	struct world *w = *state;
	tier_block b = world_block(w, 1);
	static const uint32_t flags[] = { 8, 1u << 31, TIER_LEASE_LAST | 8,
					  TIER_LEASE_LAST | 1u << 24, 1u << 8 };
	struct tier_lease lease;

	for (uint32_t i = 0; i < COUNT(flags); i++) {
		assert_int_equal(tier_lease_page(w->r, w->c, b, 0, flags[i], &lease), -EINVAL);
		assert_null(lease.data);
	}
}

/* ---- streams --------------------------------------------------------------------------------- */

/* A daemon that takes streams, has all their layers, and never answers. */
static bool take_streams(struct fake *f, const struct abi_sqe *e, struct abi_cqe *c, bool *silent)
{
	struct abi_stream *line = &f->client[0].lines[e->stream % FAKE_STREAMS];

	(void)c;
	if (e->op != ABI_OP_STREAM)
		return false;
	line->layers = line->ready = 2;
	line->usable = e->count;
	atomic_store_release_u32(&line->generation, e->generation);
	*silent = true;
	return true;
}

static uint32_t last_of(struct world *w, tier_block b, tier_stream **s)
{
	uint32_t flags;

	assert_int_equal(tier_stream_open(w->c, &b, 1, NULL, s), 0);
	flags = tier_stream_last(*s);
	assert_int_not_equal(flags, 0);
	while (tier_stream_ready(*s) == 0)
		usleep(1000);
	return flags;
}

static uint32_t released(struct world *w)
{
	return (uint32_t)atomic_load_relaxed_u64(&w->fake->client[0].lines[0].released);
}

/* Last leases of a stream that ended with its daemon are not those of the next one's. */
static void test_last_leases_of_another_life(void **state)
{
	static const uint32_t layer[] = { 0, 1, 4 }; /* pages of the first layer of tiny */
	struct world *w = *state;
	tier_block b = world_block(w, 1);
	struct tier_lease lease[2][COUNT(layer)];
	tier_stream *before, *after;
	uint32_t flags;

	w->fake->hook = take_streams;
	flags = last_of(w, b, &before);
	for (uint32_t i = 0; i < COUNT(layer); i++)
		assert_int_equal(tier_lease_page(w->r, w->c, b, layer[i], flags, &lease[0][i]), 0);
	fake_restart(w->fake);
	assert_int_equal(world_attach(w), 1);
	b = world_block(w, 1);
	flags = last_of(w, b, &after);
	/* Before the reader has followed, and behind it. */
	tier_release(w->r, &lease[0][0]);
	for (uint32_t i = 0; i < COUNT(layer); i++)
		assert_int_equal(tier_lease_page(w->r, w->c, b, layer[i], flags, &lease[1][i]), 0);
	tier_release_many(w->r, lease[0], COUNT(layer));
	tier_release(w->r, &lease[1][0]);
	tier_release(w->r, &lease[1][1]);
	assert_int_equal(released(w), 0);
	tier_release(w->r, &lease[1][2]);
	assert_int_equal(released(w), 1);
	w->fake->hook = NULL;
}

/* A layer is over with its last page of the last block, and layers count from the range's first. */
static void test_last_leases_of_all_blocks(void **state)
{
	static const uint32_t layer[2][3] = { { 0, 1, 4 }, { 2, 3, 5 } };
	const struct tier_range second = { .layer_first = 1, .layer_count = 1 };
	struct world *w = *state;
	tier_block b[2] = { world_block(w, 1), world_block(w, 2) };
	struct tier_stream_options o = { .size = sizeof(o), .tier = TIER_CXL };
	struct tier_lease lease;
	tier_stream *s;

	w->fake->hook = take_streams;
	for (uint32_t ranged = 0; ranged < 2; ranged++) {
		uint32_t flags;

		o.range = ranged ? &second : NULL;
		assert_int_equal(tier_stream_open(w->c, b, 2, &o, &s), 0);
		flags = tier_stream_last(s);
		while (tier_stream_ready(s) == 0)
			usleep(1000);
		for (uint32_t i = 0; i < 6; i++) {
			assert_int_equal(released(w), 0);
			assert_int_equal(tier_lease_page(w->r, w->c, b[i / 3], layer[ranged][i % 3],
							 flags, &lease), 0);
			tier_release(w->r, &lease);
		}
		assert_int_equal(released(w), 1);
		fake_restart(w->fake); /* no stream is ever answered */
		assert_int_equal(world_attach(w), 1);
		tier_stream_close(s);
		b[0] = world_block(w, 1);
		b[1] = world_block(w, 2);
	}
	w->fake->hook = NULL;
}

/* Nothing of a layer is left; and a layer that does not come, by the stream's own deadline. */
static void test_a_layer_of_nothing(void **state)
{
	struct world *w = *state;
	tier_block b = world_block(w, 1);
	struct tier_stream_options o = { .size = sizeof(o), .tier = TIER_CXL };
	uint64_t begin = time_now_ns();
	struct abi_stream *line = &w->fake->client[0].lines[0];
	tier_stream *s;

	w->fake->hook = take_streams;
	o.deadline_ns = begin + NS_PER_S; /* what is there has come by then */
	assert_int_equal(tier_stream_open(w->c, &b, 1, &o, &s), 0);
	assert_int_equal(tier_stream_wait(s, 2, 0), -ETIMEDOUT);
	assert_true(time_now_ns() - begin >= NS_PER_S);
	assert_true(time_now_ns() - begin < LONG_NS); /* which is the default */
	assert_int_equal(tier_stream_wait(s, 1, 0), 1);
	atomic_store_release_u32(&line->usable, 0);
	assert_int_equal(tier_stream_wait(s, 1, 0), -ENODATA);
	w->fake->hook = NULL;
	fake_restart(w->fake);
	assert_int_equal(world_attach(w), 1);
	tier_stream_close(s);
}

static void test_streams_refuse_nonsense(void **state)
{
	static const struct tier_range range[] = {
		{ .part_first = 2 }, { .part_first = 1, .part_count = 2 }, { .part_count = 3 },
		{ .part_first = 1 }, { .layer_first = 1 },
	};
	static const struct tier_stream_options odd[] = {
		{ .size = sizeof(odd[0]), .tier = TIER_NVME },
		{ .size = sizeof(odd[0]), .mode = TIER_MODE_CACHE + 1 },
		{ .size = sizeof(odd[0]), .klass = TIER_CLASS_SPECULATIVE + 1 },
		{ .size = sizeof(odd[0]), .reserved = 1 },
		{ .size = 1 },
	};
	struct world *w = *state;
	tier_block b = world_block(w, 1);
	struct tier_stream_options o = { .size = sizeof(o), .tier = TIER_CXL };
	tier_stream *s;

	for (uint32_t i = 0; i < COUNT(range); i++) {
		o.range = &range[i];
		assert_int_equal(tier_stream_open(w->c, &b, 1, &o, &s), -EINVAL);
	}
	for (uint32_t i = 0; i < COUNT(odd); i++)
		assert_int_equal(tier_stream_open(w->c, &b, 1, &odd[i], &s), -EINVAL);
	assert_int_equal(tier_stream_open(w->c, NULL, 1, NULL, &s), -EINVAL);
	assert_non_null(strstr(tier_error_text(), "NULL or empty"));
	assert_int_equal(tier_stream_open(w->c, &b, 1, NULL, NULL), -EINVAL);
	assert_non_null(strstr(tier_error_text(), "out is NULL"));
	assert_int_equal(tier_stream_open(w->c, &b, 0, NULL, &s), -EINVAL);
	assert_int_equal(tier_stream_open(w->c, &b, 8193, NULL, &s), -EINVAL);
	assert_int_equal(w->fake->ops[ABI_OP_STREAM], 0);
}

/* ---- waits ----------------------------------------------------------------------------------- */

static bool answer_first(struct fake *f, const struct abi_sqe *e, struct abi_cqe *c, bool *silent)
{
	(void)c;
	*silent = e->op == ABI_OP_FETCH && f->ops[ABI_OP_FETCH] > 1;
	return *silent;
}

/* One of two is not two, and for ever is not at once. */
static void test_how_many_and_how_long(void **state)
{
	struct world *w = *state;
	tier_block b = world_block(w, 1);
	const uint32_t *cq_tail = &w->fake->client[0].region->cq_tail;
	uint32_t tail = atomic_load_acquire_u32(cq_tail);
	struct tier_completion c[4];
	uint64_t begin;

	w->fake->hook = answer_first;
	for (uint32_t i = 0; i < 2; i++)
		assert_int_equal(tier_fetch_start(w->c, &b, 1, ASK(TIER_CXL, .user_data = i)), 0);
	while (atomic_load_acquire_u32(cq_tail) == tail)
		usleep(1000);
	begin = time_now_ns();
	assert_int_equal(tier_wait(w->t, c, 2, 4, SHORT_NS), 1);
	assert_true(time_now_ns() - begin >= SHORT_NS);
	w->fake->hook = NULL;
	w->fake->mute = true;
	assert_int_equal(tier_fetch_start(w->c, &b, 1, ASK(TIER_CXL, .user_data = 2)), 0);
	w->fake->mute = false;
	assert_int_equal(tier_wait(w->t, c, 1, 4, UINT64_MAX), 1);
	assert_int_equal(c[0].user_data, 2);
}

/* A connection that the daemon ended, while its socket is still open, ends what waits. */
static void test_a_closed_connection_ends_requests(void **state)
{
	struct world *w = *state;
	tier_block b = world_block(w, 1);
	struct tier_completion c;

	w->fake->mute = true;
	assert_int_equal(tier_fetch_start(w->c, &b, 1, ASK(TIER_CXL, .user_data = 4)), 0);
	atomic_store_release_u32(&w->fake->client[0].region->closed, 1);
	assert_int_equal(tier_poll(w->t, &c, 1), 1);
	assert_int_equal(c.result, -ENOTCONN);
	w->fake->mute = false;
}

static bool answer_slowly(struct fake *f, const struct abi_sqe *e, struct abi_cqe *c, bool *silent)
{
	(void)f;
	(void)e;
	(void)c;
	(void)silent;
	usleep(3000);
	return false;
}

/* Who has the event descriptor is woken for good, whoever waits in between. */
static void test_a_wait_leaves_the_wake_ups_on(void **state)
{
	struct world *w = *state;
	tier_block b = world_block(w, 1);

	w->fake->hook = answer_slowly; /* so that the call sleeps, and asks for its own wake-up */
	assert_true(tier_event_fd(w->t) >= 0);
	for (uint32_t i = 0; i < 5; i++)
		assert_int_equal(tier_fetch(w->c, &b, 1, NULL), 1);
	assert_true(atomic_load_relaxed_u32(&w->fake->client[0].region->cq_wait) > 0);
}

/* ---- puts ------------------------------------------------------------------------------------ */

static void test_what_a_put_says(void **state)
{
	struct world *w = *state;
	struct tier_put_options o = { .size = sizeof(o), .ttl_ns = 1, .parts = 2 };
	tier_key key[64];
	tier_put *p;

	for (uint32_t i = 0; i < COUNT(key); i++)
		key[i] = world_key(i);
	world_block(w, 63);
	assert_int_equal(tier_put_begin(w->c, key, COUNT(key), &o, &p), 0);
	assert_int_equal(tier_put_exists(p, 63), 1);
	assert_int_equal(tier_put_exists(p, 62), 0);
	assert_int_equal(tier_put_exists(p, 64), 0);
	/* Less than a millisecond is one: 0 would be for ever. */
	assert_int_equal(w->fake->put[0].args.ttl_ms, 1);
	tier_put_abort(p);
}

/* What the daemon is told of a put: when it ends, in both of its entries. */
static uint64_t deadline_of[ABI_OP_COUNT];

static bool note_deadlines(struct fake *f, const struct abi_sqe *e, struct abi_cqe *c,
			   bool *silent)
{
	(void)f;
	(void)c;
	(void)silent;
	deadline_of[e->op] = e->deadline_ns;
	return false;
}

static void test_a_puts_deadline_travels(void **state)
{
	static uint8_t data[6 * 4096];
	struct world *w = *state;
	struct tier_put_options o = { .size = sizeof(o),
				      .deadline_ns = time_now_ns() + LONG_NS };
	tier_key key = world_key(1);

	w->fake->hook = note_deadlines;
	assert_int_equal(tier_put_copy(w->c, &key, 1, data, &o), 1);
	assert_true(deadline_of[ABI_OP_PUT_RESERVE] == o.deadline_ns);
	assert_true(deadline_of[ABI_OP_PUT_COMMIT] == o.deadline_ns);
	w->fake->hook = NULL;
	o.priority = TIER_PRIORITY_HIGH + 1;
	assert_int_equal(tier_put_copy(w->c, &key, 1, data, &o), -EINVAL);
}

/* Another daemon's put may have the number that ours had: it is not for us to end. */
static void test_a_put_of_another_life_is_not_aborted(void **state)
{
	struct world *w = *state;
	tier_key key = world_key(1);
	tier_put *p;

	assert_int_equal(tier_put_begin(w->c, &key, 1, NULL, &p), 0);
	fake_restart(w->fake);
	assert_int_equal(world_attach(w), 1);
	tier_put_abort(p);
	assert_int_equal(tier_drain(w->t), 0);
	assert_int_equal(w->fake->ops[ABI_OP_PUT_ABORT], 0);
}

/* One that cannot ever fit is refused at once, not when its deadline has passed. */
static void test_a_block_larger_than_the_arena(void **state)
{
	static uint8_t data[6 * 4096];
	struct world *w = *state;
	struct tier_put_options o = { .size = sizeof(o) };
	tier_key key = world_key(1);
	uint64_t begin;

	w->fake->staging_max = 5 * 4096;
	fake_restart(w->fake);
	assert_int_equal(world_attach(w), 1);
	begin = time_now_ns();
	o.deadline_ns = begin + LONG_NS;
	assert_int_equal(tier_put_copy(w->c, &key, 1, data, &o), -ENOBUFS);
	assert_true(time_now_ns() - begin < LONG_NS);
	assert_non_null(strstr(tier_error_text(), "connect with more staging_bytes"));
}

static bool refuse_later_commits(struct fake *f, const struct abi_sqe *e, struct abi_cqe *c,
				 bool *silent)
{
	(void)silent;
	if (e->op != ABI_OP_PUT_COMMIT || f->ops[ABI_OP_PUT_COMMIT] == 1)
		return false;
	c->res = -EIO;
	return true;
}

/* What is whole is told, though what came after it failed. */
static void test_a_put_that_fails_later(void **state)
{
	enum { BLOCKS = 64 * 6 };
	static uint8_t data[BLOCKS * 6 * 4096];
	struct world *w = *state;
	tier_key key[BLOCKS];
	struct tier_found found[BLOCKS];
	int64_t whole;

	for (uint32_t i = 0; i < BLOCKS; i++)
		key[i] = world_key(i);
	w->fake->hook = refuse_later_commits;
	whole = tier_put_copy(w->c, key, BLOCKS, data, NULL);
	assert_true(whole > 0 && whole < BLOCKS);
	assert_int_equal(tier_match(w->c, key, BLOCKS, found), whole);
	w->fake->hook = NULL;
}

static bool drop_commits(struct fake *f, const struct abi_sqe *e, struct abi_cqe *c, bool *silent)
{
	(void)f;
	(void)silent;
	c->status = TIER_DROPPED;
	return e->op == ABI_OP_PUT_COMMIT;
}

/* What follows a block that was dropped would be found by nobody: it is not sent. */
static void test_a_dropped_piece_ends_the_put(void **state)
{
	enum { BLOCKS = 64 * 6 };
	static uint8_t data[BLOCKS * 6 * 4096];
	struct world *w = *state;
	tier_key key[BLOCKS];

	for (uint32_t i = 0; i < BLOCKS; i++)
		key[i] = world_key(i);
	w->fake->hook = drop_commits;
	assert_int_equal(tier_put_copy(w->c, key, BLOCKS, data, NULL), 0);
	assert_true(w->fake->ops[ABI_OP_PUT_COMMIT] <= 2);
	w->fake->hook = NULL;
}

/* ---- descriptors ----------------------------------------------------------------------------- */

/* What an engine execs gets none of our descriptors. */
static void test_descriptors_end_with_exec(void **state)
{
	bool before[256];

	(void)state;
	for (int fd = 0; fd < 256; fd++)
		before[fd] = fcntl(fd, F_GETFD) >= 0;
	assert_int_equal(world_setup(state), 0);
	assert_true(tier_event_fd(((struct world *)*state)->t) >= 0);
	for (int fd = 0; fd < 256; fd++)
		if (!before[fd] && fcntl(fd, F_GETFD) >= 0)
			assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	world_teardown(state);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)
	const struct CMUnitTest tests[] = {
		T(test_high_water_over_a_restart),
		T(test_high_water_is_not_lowered),
		T(test_a_reader_without_an_area),
		T(test_lists_tell_their_accesses),
		T(test_no_use_is_not_told),
		T(test_unknown_flags),
		T(test_last_leases_of_another_life),
		T(test_last_leases_of_all_blocks),
		T(test_a_layer_of_nothing),
		T(test_streams_refuse_nonsense),
		T(test_how_many_and_how_long),
		T(test_a_closed_connection_ends_requests),
		T(test_a_wait_leaves_the_wake_ups_on),
		T(test_what_a_put_says),
		T(test_a_puts_deadline_travels),
		T(test_a_put_of_another_life_is_not_aborted),
		T(test_a_block_larger_than_the_arena),
		T(test_a_put_that_fails_later),
		T(test_a_dropped_piece_ends_the_put),
		cmocka_unit_test(test_descriptors_end_with_exec),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
