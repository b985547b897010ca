/*
 * A forked child finds its handles orphaned: every call says -EOWNERDEAD, none touches memory that
 * the child does not have, and the parent goes on undisturbed.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <sys/mman.h>
#include <sys/wait.h>

#include "tests/unit/test_libtier_world.h"

#include "libtier/src/connection.h"

/* Does the child have none of it? */
static bool is_gone(const void *at)
{
	uintptr_t page = (uintptr_t)at & ~(uintptr_t)4095;
	unsigned char in[1];

	return mincore((void *)page, 4096, in) != 0 && errno == ENOMEM;
}

static int maps_inherited(const struct world *w, const void *page)
{
	const struct attachment *a = connection_attachment(w->t);
	const struct map *m = context_map(w->c);

	return !is_gone(page) + !is_gone(a->region) + !is_gone(a->staging) +
	       !is_gone(m->index_base) + !is_gone(m->mem[TIER_HBM]);
}

static tier_plan *the_plan;
static tier_stream *the_stream;

static int foresee_all(struct world *w, tier_block b)
{
	struct tier_stream_progress progress = { .size = sizeof(progress) };
	const struct tier_access access = { .block = b };
	struct tier_reserved reserved;
	tier_stream *stream;
	tier_plan *plan;
	int wrong = 0;

	wrong += tier_prefetch(w->c, &b, 1, NULL) != -EOWNERDEAD;
	wrong += tier_migrate(w->c, &b, 1, NULL) != -EOWNERDEAD;
	wrong += tier_conversation(w->c, 1, TIER_CONVERSATION_RETURN, NULL) != -EOWNERDEAD;
	wrong += tier_reserve(w->c, NULL, &reserved) != -EOWNERDEAD;
	wrong += tier_reserve_end(w->c, 1) != -EOWNERDEAD;
	wrong += tier_plan_begin(w->c, &access, 1, NULL, &plan) != -EOWNERDEAD;
	tier_plan_advance(the_plan, 1);
	tier_plan_end(the_plan);
	wrong += tier_stream_open(w->c, &b, 1, NULL, &stream) != -EOWNERDEAD;
	wrong += tier_stream_ready(the_stream) != 0;
	wrong += tier_stream_last(the_stream) != 0;
	wrong += tier_stream_look(the_stream, &progress) != -EOWNERDEAD;
	wrong += tier_stream_wait(the_stream, 0, 1) != -EOWNERDEAD;
	tier_stream_release(the_stream, 1);
	tier_stream_close(the_stream);
	return wrong;
}

/* What the child does with everything it inherited; returns how many calls misbehaved. */
static int use_all(struct world *w, tier_block b, tier_put *p, struct tier_lease *held)
{
	struct tier_page page = { b, 0 };
	struct tier_counters n = { .size = sizeof(n) };
	const struct tier_selection s = { .blocks = &b, .count = 1 };
	struct tier_completion c;
	struct tier_lease lease;
	tier_key key = world_key(1);
	uint8_t bytes[4096];
	tier_context *other;
	tier_reader *r;
	uint64_t pin;
	char *reply;
	int wrong = 0;
	int fds;

	wrong += maps_inherited(w, held->data);
	wrong += tier_check(w->t) != -EOWNERDEAD;
	wrong += tier_context_open(w->t, "ctx", NULL, &other) != -EOWNERDEAD;
	wrong += tier_context_remove(w->t, "ctx") != -EOWNERDEAD;
	wrong += tier_context_raise_epoch(w->t, "ctx", NULL) != -EOWNERDEAD;
	wrong += tier_context_epoch(w->c) != 0;
	wrong += tier_match(w->c, &key, 1, NULL) != -EOWNERDEAD;
	wrong += tier_reader_open(w->t, &r) != -EOWNERDEAD;
	wrong += tier_lease_page(w->r, w->c, b, 0, 0, &lease) != -EOWNERDEAD;
	wrong += tier_lease_key(w->r, w->c, &key, 0, 0, &lease) != -EOWNERDEAD;
	wrong += tier_lease_pages(w->r, w->c, &page, 1, 0, &lease) != -EOWNERDEAD;
	wrong += tier_lease_blocks(w->r, w->c, &s, &lease) != -EOWNERDEAD;
	wrong += tier_gather(w->r, w->c, &page, 1, INTO(bytes, 0, NULL)) != -EOWNERDEAD;
	wrong += tier_read_pages(w->r, w->c, &page, 1, 0, &lease) != -EOWNERDEAD;
	tier_release(w->r, held);
	tier_release_many(w->r, held, 1);
	wrong += tier_put_data(p, 0, 0, 0, 0) != NULL;
	wrong += tier_put_commit(p, 1) != -EOWNERDEAD;
	tier_put_abort(p);
	wrong += tier_put_begin(w->c, &key, 1, NULL, &p) != -EOWNERDEAD;
	wrong += tier_put_copy(w->c, &key, 1, bytes, NULL) != -EOWNERDEAD;
	wrong += tier_fetch_start(w->c, &b, 1, NULL) != -EOWNERDEAD;
	wrong += tier_fetch_pages_start(w->c, &page, 1, NULL) != -EOWNERDEAD;
	wrong += tier_fetch(w->c, &b, 1, NULL) != -EOWNERDEAD;
	wrong += tier_fetch_pages(w->c, &page, 1, NULL) != -EOWNERDEAD;
	wrong += tier_pin(w->c, &b, 1, TIER_CXL, 0, &pin) != -EOWNERDEAD;
	wrong += tier_unpin(w->c, 1) != -EOWNERDEAD;
	wrong += tier_delete(w->c, &key, 1) != -EOWNERDEAD;
	wrong += tier_cancel(w->t, 1) != -EOWNERDEAD;
	wrong += tier_drain(w->t) != -EOWNERDEAD;
	wrong += tier_poll(w->t, &c, 1) != -EOWNERDEAD;
	wrong += tier_wait(w->t, &c, 1, 1, NS_PER_S) != -EOWNERDEAD;
	wrong += tier_event_fd(w->t) != -EOWNERDEAD;
	wrong += tier_counters(w->t, &n) != -EOWNERDEAD;
	wrong += tier_admin(w->t, "status", NULL, &reply) != -EOWNERDEAD;
	wrong += foresee_all(w, b);
	tier_reader_close(w->r);
	tier_context_close(w->c);
	fds = fake_open_fds();
	tier_close(w->t);
	/* Socket, doorbell, completions, and three of the library's own. */
	wrong += fds - fake_open_fds() != 6;
	return wrong;
}

static void test_a_child_is_told(void **state)
{
	struct world *w = *state;
	tier_block b = world_block(w, 1);
	tier_key keys[2] = { world_key(1), world_key(2) };
	const struct tier_access access = { .block = b };
	struct tier_lease held;
	struct tier_completion c;
	tier_put *p;
	int status;
	pid_t child;

	assert_int_equal(tier_lease_page(w->r, w->c, b, 0, 0, &held), 0);
	assert_int_equal(tier_put_begin(w->c, &keys[1], 1, NULL, &p), 0);
	assert_int_equal(tier_plan_begin(w->c, &access, 1, NULL, &the_plan), 0);
	assert_int_equal(tier_stream_open(w->c, &b, 1, NULL, &the_stream), 0);
	assert_true(tier_event_fd(w->t) >= 0);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		alarm(300); /* it must not wait for anything */
		_exit(use_all(w, b, p, &held));
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	/* The parent's lease, put and connection are as they were. */
	assert_int_equal(*(const uint8_t *)held.data, fake_byte(keys[0].bytes, 0));
	assert_int_equal(tier_check(w->t), 0);
	memset(tier_put_data(p, 0, 0, 0, 0), 1, 4096);
	assert_int_equal(tier_put_commit(p, 3), 0);
	assert_int_equal(tier_wait(w->t, &c, 1, 1, 60 * NS_PER_S), 1);
	assert_int_equal(c.result, 0);
	tier_plan_advance(the_plan, 1);
	tier_plan_end(the_plan);
	tier_stream_close(the_stream);
	tier_release(w->r, &held);
	assert_int_equal(tier_match(w->c, keys, 2, NULL), 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_a_child_is_told, world_setup, world_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
