/*
 * Puts that go wrong, and what each piece of a long one says: no room is lost, no error swallowed,
 * and the daemon is told the prefix.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/unit/test_libtier_world.h"

#include "libtier/src/connection.h"
#include "libtier/src/put.h"

#define BLOCK_BYTES (6 * 4096u)
#define PIECES_MAX 16u

static struct {
	uint32_t op; /* that is refused; ABI_OP_NOP = none */
	int32_t res;
	uint32_t status;
	uint32_t pieces;
	struct abi_put_args args[PIECES_MAX];
	tier_key first[PIECES_MAX];
} daemon_side;

static bool hook(struct fake *f, const struct abi_sqe *e, struct abi_cqe *c, bool *silent)
{
	const uint8_t *arg = f->client[0].staging + e->arg_offset;

	(void)silent;
	if (e->op == ABI_OP_PUT_RESERVE && daemon_side.pieces < PIECES_MAX) {
		memcpy(&daemon_side.args[daemon_side.pieces], arg, sizeof(struct abi_put_args));
		memcpy(&daemon_side.first[daemon_side.pieces++],
		       arg + sizeof(struct abi_put_args), sizeof(tier_key));
	}
	if (e->op != daemon_side.op || !daemon_side.op)
		return false;
	c->res = daemon_side.res;
	c->status = daemon_side.status;
	return true;
}

static int setup(void **state)
{
	int rc = world_setup(state);

	memset(&daemon_side, 0, sizeof(daemon_side));
	((struct world *)*state)->fake->hook = hook;
	return rc;
}

static void refuse(uint32_t op, int32_t res)
{
	daemon_side.op = op;
	daemon_side.res = res;
}

static uint64_t arena_used(struct world *w)
{
	LOCK_SCOPE(&w->t->lock);
	return connection_attachment(w->t)->arena.used_bytes;
}

static uint32_t requests_free(struct world *w)
{
	LOCK_SCOPE(&w->t->lock);
	return w->t->requests.free_count;
}

static void test_a_refused_put_gives_its_room_back(void **state)
{
	struct world *w = *state;
	tier_key key = world_key(1);
	tier_put *p;

	refuse(ABI_OP_PUT_RESERVE, -ENOSPC);
	for (uint32_t i = 0; i < 100; i++)
		assert_int_equal(tier_put_begin(w->c, &key, 1, NULL, &p), -ENOSPC);
	assert_int_equal(arena_used(w), 0);
	assert_int_equal(connection_attachment(w->t)->puts, 0);
	refuse(ABI_OP_NOP, 0);
	assert_int_equal(tier_put_begin(w->c, &key, 1, NULL, &p), 0);
	tier_put_abort(p);
}

/* The order to abort is nobody's request: its place in the table must come back by itself. */
static void test_aborts_use_nothing_up(void **state)
{
	struct world *w = *state;
	tier_key key = world_key(1);
	uint32_t free_before = requests_free(w);
	tier_put *p;

	for (uint32_t i = 0; i < 400; i++) {
		assert_int_equal(tier_put_begin(w->c, &key, 1, NULL, &p), 0);
		tier_put_abort(p);
	}
	assert_int_equal(tier_drain(w->t), 0);
	assert_int_equal(arena_used(w), 0);
	assert_int_equal(requests_free(w), free_before);
	assert_int_equal(w->fake->ops[ABI_OP_PUT_ABORT], 400);
}

static void test_a_failed_commit_is_told(void **state)
{
	static uint8_t data[2 * BLOCK_BYTES];
	struct world *w = *state;
	tier_key keys[2] = { world_key(1), world_key(2) };
	struct tier_completion c;
	tier_put *p;

	refuse(ABI_OP_PUT_COMMIT, -ESTALE);
	assert_int_equal(tier_put_copy(w->c, keys, 2, data, NULL), -ESTALE);
	assert_int_equal(tier_put_begin(w->c, keys, 1, NULL, &p), 0);
	assert_int_equal(tier_put_commit(p, 5), 0);
	assert_int_equal(tier_wait(w->t, &c, 1, 1, 60 * NS_PER_S), 1);
	assert_int_equal(c.user_data, 5);
	assert_int_equal(c.result, -ESTALE);
	assert_int_equal(arena_used(w), 0);
}

/* Every waiting call hands the daemon's error on. */
static void test_errors_are_handed_on(void **state)
{
	struct world *w = *state;
	tier_block b = world_block(w, 1);
	struct tier_page page = { b, 0 };
	tier_key key = world_key(1);
	uint64_t pin;

	refuse(ABI_OP_FETCH, -EIO);
	assert_int_equal(tier_fetch(w->c, &b, 1, NULL), -EIO);
	refuse(ABI_OP_FETCH_PAGES, -EIO);
	assert_int_equal(tier_fetch_pages(w->c, &page, 1, NULL), -EIO);
	refuse(ABI_OP_PIN, -EDQUOT);
	assert_int_equal(tier_pin(w->c, &b, 1, TIER_CXL, 0, &pin), -EDQUOT);
	refuse(ABI_OP_UNPIN, -ENOENT);
	assert_int_equal(tier_unpin(w->c, 3), -ENOENT);
	assert_non_null(strstr(tier_error_text(), "no such pin"));
	refuse(ABI_OP_FETCH, -ENOENT);
	assert_int_equal(tier_fetch(w->c, &b, 1, NULL), -ENOENT);
	assert_non_null(strstr(tier_error_text(), "it is not there any more"));
	refuse(ABI_OP_FETCH, -ENOTCONN);
	assert_int_equal(tier_fetch(w->c, &b, 1, NULL), -ENOTCONN);
	assert_string_equal(tier_error_text(), "fetch: the daemon went away before it answered; "
					       "ask again");
	refuse(ABI_OP_DELETE, -EIO);
	assert_int_equal(tier_delete(w->c, &key, 1), -EIO);
	refuse(ABI_OP_DRAIN, -EIO);
	assert_int_equal(tier_drain(w->t), -EIO);
}

/* 100 blocks through 1 MiB: each piece names the block before it and how deep it lies. */
static void test_pieces_tell_their_prefix(void **state)
{
	enum { BLOCKS = 100, DEPTH = 7 };
	struct world *w = *state;
	struct tier_put_options o = { .size = sizeof(o), .depth = DEPTH };
	tier_key keys[BLOCKS], parent = world_key(5000);
	uint8_t *data = calloc(BLOCKS, BLOCK_BYTES);
	uint32_t at = 0;

	for (uint32_t i = 0; i < BLOCKS; i++)
		keys[i] = world_key(i);
	o.parent = &parent;
	assert_int_equal(tier_put_copy(w->c, keys, BLOCKS, data, &o), BLOCKS);
	assert_true(daemon_side.pieces > 2 && daemon_side.pieces < PIECES_MAX);
	for (uint32_t i = 0; i < daemon_side.pieces; i++) {
		const tier_key *before = at ? &keys[at - 1] : &parent;

		assert_memory_equal(&daemon_side.first[i], &keys[at], sizeof(tier_key));
		assert_memory_equal(daemon_side.args[i].parent, before, sizeof(tier_key));
		assert_int_equal(daemon_side.args[i].depth, DEPTH + at);
		at += daemon_side.args[i].count;
	}
	assert_int_equal(at, BLOCKS);
	free(data);
}

/* A put of this many pages of 2 MiB, from a connection that has room for it. */
static tier_put *begin_large(struct world *w, uint32_t pages)
{
	const struct tier_part part = { .name = "kv", .kind = TIER_KIND_DENSE, .layers = pages,
					.groups = 1, .page_bytes = ABI_HUGE };
	struct tier_geometry_options o = { .size = sizeof(o), .block_tokens = 16, .part_count = 1,
					   .part = &part };
	struct tier_connect_options to = { .size = sizeof(to), .socket = w->fake->path,
					   .staging_bytes = (pages + 1) * ABI_HUGE };
	tier_key key = world_key(1);
	tier_geometry *g;
	tier_context *c;
	tier_put *p;

	tier_close(w->t);
	assert_int_equal(tier_connect(&w->t, &to), 0);
	assert_int_equal(tier_geometry_new(&g, &o), 0);
	assert_int_equal(tier_context_create(w->t, "large", g, NULL, &c), 0);
	tier_geometry_free(g);
	assert_int_equal(tier_put_begin(c, &key, 1, NULL, &p), 0);
	return p;
}

/* Of a daemon that grants all: the pages behind the last place go to staging, the others stay. */
static void test_places_of_a_put_have_an_end(void **state)
{
	enum { PAGES = PUT_PLACES_MAX + 2 };
	struct world *w = *state;
	const uint8_t *staging;
	uint8_t *at[PAGES];
	tier_put *p;

	w->fake->hook = NULL; /* it looks into the staging of the connection before */
	w->fake->places = true;
	w->fake->staging_max = (PAGES + 1) * ABI_HUGE;
	p = begin_large(w, PAGES);
	staging = connection_attachment(w->t)->staging;
	for (uint32_t i = 0; i < PAGES; i++) {
		bool staged;

		at[i] = tier_put_data(p, 0, 0, i, 0);
		assert_non_null(at[i]);
		staged = at[i] >= staging && at[i] < staging + w->fake->staging_max;
		assert_int_equal(staged, i >= PUT_PLACES_MAX);
		memset(at[i], (int)i + 1, 4096);
	}
	for (uint32_t i = 0; i < PAGES; i++) {
		assert_ptr_equal(tier_put_data(p, 0, 0, i, 0), at[i]);
		assert_int_equal(at[i][4095], i + 1);
	}
	assert_int_equal(w->fake->placed, PUT_PLACES_MAX);
	tier_put_abort(p);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, world_teardown)
	const struct CMUnitTest tests[] = {
		T(test_a_refused_put_gives_its_room_back),
		T(test_aborts_use_nothing_up),
		T(test_a_failed_commit_is_told),
		T(test_errors_are_handed_on),
		T(test_pieces_tell_their_prefix),
		T(test_places_of_a_put_have_an_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
