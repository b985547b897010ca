/*
 * The daemon goes away and comes back: nothing in the engine fails, hangs or dies (I15); handles
 * stay valid, leases keep their bytes, blocks found before are stale, requests end with -ENOTCONN.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <linux/membarrier.h>
#include <sys/syscall.h>

#include "tests/unit/test_libtier_world.h"

#include "libtier/src/attach.h"
#include "libtier/src/reader.h"

#define READERS_LIVES READER_OLD_MAX

#define LONG_NS (60 * NS_PER_S)

static uint32_t old_count(tier *t)
{
	uint32_t n = 0;

	LOCK_SCOPE(&t->lock);
	list_each(at, &t->old)
		n++;
	return n;
}

/* ---- connect --------------------------------------------------------------------------------- */

static void test_connect_refuses_and_explains(void **state)
{
	struct world *w = *state;
	struct tier_connect_options o = { .size = sizeof(o), .socket = "/nonexistent/tier.sock" };
	char path[200];
	tier *t;

	assert_int_equal(tier_connect(&t, &o), -ENOENT);
	assert_null(t);
	assert_non_null(strstr(tier_error_text(), "/nonexistent/tier.sock"));
	assert_int_equal(tier_connect(NULL, &o), -EINVAL);
	o.socket = w->fake->path;
	o.requests = 100;
	assert_int_equal(tier_connect(&t, &o), -EINVAL);
	o.requests = 0;
	o.readers = 65;
	assert_int_equal(tier_connect(&t, &o), -EINVAL);
	o.readers = 0;
	o.size = 0;
	assert_int_equal(tier_connect(&t, &o), -EINVAL);
	memset(path, 'x', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	o = (struct tier_connect_options){ .size = sizeof(o), .socket = path };
	assert_int_equal(tier_connect(&t, &o), -EINVAL);
	tier_close(NULL);
	assert_int_equal(tier_check(NULL), -EINVAL);
	assert_int_equal(tier_event_fd(NULL), -EINVAL);
}

static void test_connect_by_environment(void **state)
{
	struct world *w = *state;
	tier *t;

	setenv("TIER_SOCKET", w->fake->path, 1);
	assert_int_equal(tier_connect(&t, NULL), 0);
	assert_int_equal(tier_check(t), 0);
	tier_close(t);
	unsetenv("TIER_SOCKET");
}

/* One of no letters is none: the next place is looked at. */
static void test_an_empty_environment(void **state)
{
	const char *folder = getenv("TMPDIR"), *former = getenv("XDG_RUNTIME_DIR");
	struct world *w = *state;
	char link[200], kept[200];
	tier *t;

	snprintf(link, sizeof(link), "%s/tier.sock", folder ? folder : "/tmp");
	if (symlink(w->fake->path, link))
		skip(); /* somebody's daemon */
	snprintf(kept, sizeof(kept), "%s", former ? former : "");
	setenv("XDG_RUNTIME_DIR", folder ? folder : "/tmp", 1);
	setenv("TIER_SOCKET", "", 1);
	assert_int_equal(tier_connect(&t, NULL), 0);
	assert_int_equal(tier_check(t), 0);
	tier_close(t);
	unlink(link);
	unsetenv("TIER_SOCKET");
	if (former)
		setenv("XDG_RUNTIME_DIR", kept, 1);
	else
		unsetenv("XDG_RUNTIME_DIR");
}

/* The daemon's fence reaches only processes that have registered. */
static void test_connect_registers_for_the_fence(void **state)
{
	long have = syscall(SYS_membarrier, 1 << 9 /* GET_REGISTRATIONS, Linux 6.3 */, 0, 0);

	(void)state;
	if (have < 0)
		skip();
	assert_true(have & MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED);
}

static void test_contexts_refuse_nonsense(void **state)
{
	struct world *w = *state;
	struct tier_context_options o = { .size = sizeof(o), .flags = 4 };
	tier_geometry *g;
	tier_context *c;

	assert_int_equal(tier_geometry_preset(&g, "tiny"), 0);
	assert_int_equal(tier_context_create(NULL, "a", g, NULL, &c), -EINVAL);
	assert_int_equal(tier_context_create(w->t, NULL, g, NULL, &c), -EINVAL);
	assert_int_equal(tier_context_create(w->t, "", g, NULL, &c), -EINVAL);
	assert_int_equal(tier_context_create(w->t, "a/b", g, NULL, &c), -EINVAL);
	assert_int_equal(tier_context_create(w->t, "a", NULL, NULL, &c), -EINVAL);
	assert_int_equal(tier_context_create(w->t, "a", g, NULL, NULL), -EINVAL);
	assert_int_equal(tier_context_create(w->t, "a", g, &o, &c), -EINVAL);
	o = (struct tier_context_options){ .size = sizeof(o), .mode = 0777 };
	assert_int_equal(tier_context_create(w->t, "a", g, &o, &c), -EINVAL);
	o = (struct tier_context_options){ .size = sizeof(o), .policy = "a-name-of-sixteen" };
	assert_int_equal(tier_context_create(w->t, "a", g, &o, &c), -EINVAL);
	o = (struct tier_context_options){ .size = sizeof(o), .blocks_max = UINT64_MAX };
	assert_int_equal(tier_context_create(w->t, "a", g, &o, &c), -EINVAL);
	assert_int_equal(tier_context_open(w->t, "nobody", NULL, &c), -ENOENT);
	assert_null(c);
	assert_int_equal(tier_context_open(w->t, "ctx", NULL, NULL), -EINVAL);
	assert_int_equal(tier_context_remove(w->t, "nobody"), -ENOENT);
	assert_int_equal(tier_context_raise_epoch(w->t, "nobody", NULL), -ENOENT);
	assert_int_equal(tier_context_raise_epoch(w->t, NULL, NULL), -EINVAL);
	assert_null(tier_context_geometry(NULL));
	assert_int_equal(tier_context_epoch(NULL), 0);
	assert_int_equal(tier_geometry_pages(tier_context_geometry(w->c)), 6);
	tier_context_close(NULL);
	tier_geometry_free(g);
}

/* ---- away ------------------------------------------------------------------------------------ */

static void test_reads_go_on_without_a_daemon(void **state)
{
	struct world *w = *state;
	tier_block b = world_block(w, 1);
	tier_key key = world_key(1);
	struct tier_lease lease;
	tier_context *c;
	tier_put *p;
	char *reply;

	fake_stop(w->fake, false);
	assert_int_equal(tier_match(w->c, &key, 1, NULL), 1);
	assert_int_equal(tier_lease_page(w->r, w->c, b, 3, 0, &lease), 0);
	assert_int_equal(((const uint8_t *)lease.data)[9], fake_byte(key.bytes, 3));
	assert_int_equal(tier_check(w->t), -ENOTCONN);
	assert_int_equal(tier_check(w->t), -ENOTCONN);
	assert_int_equal(tier_fetch(w->c, &b, 1, NULL), -ENOTCONN);
	assert_int_equal(tier_fetch_start(w->c, &b, 1, ASK(TIER_CXL, .user_data = 1)), -ENOTCONN);
	assert_int_equal(tier_put_begin(w->c, &key, 1, NULL, &p), -ENOTCONN);
	assert_int_equal(tier_context_open(w->t, "ctx", NULL, &c), -ENOTCONN);
	assert_int_equal(tier_admin(w->t, "status", NULL, &reply), -ENOTCONN);
	assert_int_equal(tier_drain(w->t), -ENOTCONN);
	assert_int_equal(((const uint8_t *)lease.data)[9], fake_byte(key.bytes, 3));
	tier_release(w->r, &lease);
	assert_int_equal(tier_match(w->c, &key, 1, NULL), 1);
}

static bool hook_silence(struct fake *f, const struct abi_sqe *e, struct abi_cqe *c, bool *silent)
{
	(void)f;
	(void)e;
	(void)c;
	*silent = true;
	return true;
}

static void *fetch_one(void *arg)
{
	struct world *w = arg;
	tier_block b = { 0, 0 };

	return (void *)(intptr_t)tier_fetch(w->c, &b, 1, NULL);
}

static void test_requests_end_when_the_daemon_dies(void **state)
{
	struct world *w = *state;
	tier_block b = world_block(w, 1);
	struct tier_completion c[8];
	pthread_t thread;
	void *result;

	w->fake->hook = hook_silence;
	for (uint32_t i = 0; i < 5; i++)
		assert_int_equal(tier_fetch_start(w->c, &b, 1, ASK(TIER_CXL, .user_data = i)), 0);
	assert_int_equal(pthread_create(&thread, NULL, fetch_one, w), 0);
	usleep(20000);
	fake_stop(w->fake, false);
	pthread_join(thread, &result);
	assert_int_equal((intptr_t)result, -ENOTCONN);
	assert_int_equal(tier_wait(w->t, c, 5, 8, LONG_NS), 5);
	for (uint32_t i = 0; i < 5; i++) {
		assert_int_equal(c[i].user_data, i);
		assert_int_equal(c[i].result, -ENOTCONN);
	}
	assert_int_equal(tier_wait(w->t, c, 1, 8, LONG_NS), -ENOTCONN);
	assert_int_equal(tier_poll(w->t, c, 8), 0);
}

static void test_the_event_descriptor_tells_of_a_death(void **state)
{
	struct world *w = *state;
	tier_block b = world_block(w, 1);
	struct pollfd p = { .fd = tier_event_fd(w->t), .events = POLLIN };
	struct tier_completion c;

	w->fake->hook = hook_silence;
	assert_int_equal(tier_fetch_start(w->c, &b, 1, ASK(TIER_CXL, .user_data = 9)), 0);
	assert_int_equal(tier_poll(w->t, &c, 1), 0);
	assert_int_equal(poll(&p, 1, 0), 0);
	fake_stop(w->fake, false);
	assert_int_equal(poll(&p, 1, 60000), 1);
	assert_int_equal(tier_poll(w->t, &c, 1), 1);
	assert_int_equal(c.result, -ENOTCONN);
	assert_int_equal(c.user_data, 9);
	assert_int_equal(tier_poll(w->t, &c, 1), 0);
	assert_int_equal(poll(&p, 1, 0), 0);
	/* And of what the next daemon completes. */
	w->fake->hook = NULL;
	fake_restart(w->fake);
	assert_int_equal(world_attach(w), 1);
	assert_int_equal(tier_fetch_start(w->c, &b, 1, ASK(TIER_CXL, .user_data = 10)), 0);
	assert_int_equal(poll(&p, 1, 60000), 1);
}

/* ---- back ------------------------------------------------------------------------------------ */

static void test_handles_survive_a_restart(void **state)
{
	struct world *w = *state;
	tier_block b = world_block(w, 1);
	tier_key keys[2] = { world_key(1), world_key(2) };
	struct tier_counters n = { .size = sizeof(n) };
	struct tier_lease held, lease;
	tier_block again;

	assert_int_equal(tier_lease_page(w->r, w->c, b, 3, 0, &held), 0);
	fake_restart(w->fake);
	assert_int_equal(world_attach(w), 1);
	assert_int_equal(tier_check(w->t), 0);
	/* The new index is empty; what was leased stays as it was. */
	assert_int_equal(tier_match(w->c, keys, 1, NULL), 0);
	assert_int_equal(((const uint8_t *)held.data)[9], fake_byte(keys[0].bytes, 3));
	assert_int_equal(tier_lease_page(w->r, w->c, b, 3, 0, &lease), -ESTALE);
	/* The same slot and generation in the new index are another block. */
	again = world_block(w, 2);
	assert_int_equal(again.slot, b.slot);
	assert_int_not_equal(again.generation, b.generation);
	assert_int_equal(tier_lease_page(w->r, w->c, b, 3, 0, &lease), -ESTALE);
	assert_int_equal(tier_lease_page(w->r, w->c, again, 3, 0, &lease), 0);
	assert_int_not_equal(lease.slot, held.slot);
	assert_int_equal(old_count(w->t), 1);
	assert_int_equal(((const uint8_t *)held.data)[9], fake_byte(keys[0].bytes, 3));
	tier_release(w->r, &lease);
	tier_release(w->r, &held);
	assert_int_equal(tier_check(w->t), 0);
	assert_int_equal(old_count(w->t), 0);
	tier_counters(w->t, &n);
	assert_int_equal(n.reattached, 1);
}

static void test_idle_readers_do_not_keep_old_memory(void **state)
{
	struct world *w = *state;
	tier_reader *idle;
	struct tier_lease lease;
	tier_block b = world_block(w, 1);

	assert_int_equal(tier_reader_open(w->t, &idle), 0);
	assert_int_equal(tier_lease_page(idle, w->c, b, 0, 0, &lease), 0);
	tier_release(idle, &lease);
	fake_restart(w->fake);
	assert_int_equal(world_attach(w), 1);
	assert_int_equal(old_count(w->t), 0);
	/* Hostile: a lease from before, given back twice. */
	lease.data = &lease;
	tier_release(idle, &lease);
	b = world_block(w, 3);
	assert_int_equal(tier_lease_page(idle, w->c, b, 0, 0, &lease), 0);
	tier_reader_close(idle);
	fake_restart(w->fake);
	assert_int_equal(world_attach(w), 1);
	tier_reader_close(w->r);
}

static void test_leases_of_many_lives(void **state)
{
	struct world *w = *state;
	struct tier_lease lease[READERS_LIVES + 2];
	uint32_t lives = 0;

	for (; lives < READERS_LIVES; lives++) {
		tier_block b = world_block(w, lives);

		assert_int_equal(tier_lease_page(w->r, w->c, b, 0, 0, &lease[lives]), 0);
		fake_restart(w->fake);
		assert_int_equal(world_attach(w), 1);
	}
	assert_int_equal(old_count(w->t), READERS_LIVES);
	for (uint32_t i = 0; i < lives; i++) {
		tier_key key = world_key(i);

		assert_int_equal(((const uint8_t *)lease[i].data)[0], fake_byte(key.bytes, 0));
	}
	/* One life more than a reader can remember. */
	{
		tier_block b = world_block(w, 50);

		assert_int_equal(tier_lease_page(w->r, w->c, b, 0, 0, &lease[lives]), 0);
		fake_restart(w->fake);
		assert_int_equal(world_attach(w), 1);
		b = world_block(w, 51);
		assert_int_equal(tier_lease_page(w->r, w->c, b, 0, 0, &lease[lives + 1]), -EAGAIN);
		tier_release(w->r, &lease[2]);
		assert_int_equal(tier_lease_page(w->r, w->c, b, 0, 0, &lease[lives + 1]), 0);
	}
	tier_release_many(w->r, lease, READERS_LIVES + 2);
	assert_int_equal(tier_check(w->t), 0);
	assert_int_equal(old_count(w->t), 0);
}

static void test_a_put_across_a_restart(void **state)
{
	struct world *w = *state;
	tier_key key = world_key(1);
	struct tier_completion c;
	tier_put *p[2];

	assert_int_equal(tier_put_begin(w->c, &key, 1, NULL, &p[0]), 0);
	assert_int_equal(tier_put_begin(w->c, &key, 1, NULL, &p[1]), 0);
	fake_restart(w->fake);
	assert_int_equal(world_attach(w), 1);
	/* The staging memory is still ours to write. */
	memset(tier_put_data(p[0], 0, 0, 0, 0), 1, 4096);
	assert_int_equal(tier_put_commit(p[0], 5), 0);
	assert_int_equal(tier_wait(w->t, &c, 1, 1, LONG_NS), 1);
	assert_int_equal(c.user_data, 5);
	assert_int_equal(c.result, -ENOTCONN);
	tier_put_abort(p[1]);
	assert_int_equal(tier_check(w->t), 0);
	assert_int_equal(old_count(w->t), 0);
	assert_int_equal(tier_put_begin(w->c, &key, 1, NULL, &p[0]), 0);
	tier_put_abort(p[0]);
}

/* Another daemon's plans can have the same numbers: an old one's end must not end a new one. */
static void test_a_plan_across_a_restart(void **state)
{
	struct world *w = *state;
	struct tier_access access = { .block = world_block(w, 1) };
	tier_plan *old, *new;
	uint32_t sent;

	assert_int_equal(tier_plan_begin(w->c, &access, 1, NULL, &old), 0);
	fake_restart(w->fake);
	assert_int_equal(world_attach(w), 1);
	access.block = world_block(w, 1);
	assert_int_equal(tier_plan_begin(w->c, &access, 1, NULL, &new), 0);
	sent = w->fake->ops[ABI_OP_PLAN];
	tier_plan_advance(old, 1); /* into memory that nobody reads */
	tier_plan_end(old);
	assert_int_equal(tier_drain(w->t), 0);
	assert_int_equal(w->fake->ops[ABI_OP_PLAN], sent);
	tier_plan_end(new);
	assert_int_equal(tier_drain(w->t), 0);
	assert_int_equal(w->fake->ops[ABI_OP_PLAN], sent + 1);
	assert_int_equal(tier_check(w->t), 0);
	assert_int_equal(old_count(w->t), 0);
}

static void test_requests_attach_by_themselves(void **state)
{
	struct world *w = *state;
	tier_key key = world_key(1);
	tier_put *p;
	int rc = -1;

	fake_restart(w->fake);
	for (uint32_t i = 0; i < 6000 && rc != 0; i++) {
		rc = tier_put_begin(w->c, &key, 1, NULL, &p);
		if (rc != 0)
			assert_int_equal(rc, -ENOTCONN);
		usleep(rc ? 10000 : 0);
	}
	assert_int_equal(rc, 0);
	tier_put_abort(p);
	assert_int_equal(world_attach(w), 1);
}

static void test_an_ended_connection_is_opened_anew(void **state)
{
	struct world *w = *state;
	tier_block b = world_block(w, 1);
	struct tier_lease lease;

	pthread_mutex_lock(&w->fake->lock);
	atomic_store_release_u32(&w->fake->client[0].region->closed, 1);
	pthread_mutex_unlock(&w->fake->lock);
	assert_int_equal(world_attach(w), 1);
	/* The same daemon: what was found is as good as before. */
	assert_int_equal(tier_lease_page(w->r, w->c, b, 0, 0, &lease), 0);
	tier_release(w->r, &lease);
}

/* Who asks for a context again names the fingerprint it had. */
static void test_a_context_is_the_same_or_lost(void **state)
{
	struct world *w = *state;
	tier_key key = world_key(1);
	tier_geometry *other;
	struct abi_geometry g;
	tier_context *c;

	memset(w->x->ix.header->fingerprint, 0x5a, 32);
	w->fake->other = 7;
	assert_int_equal(tier_context_open(w->t, "ctx", NULL, &c), 0);
	pthread_mutex_lock(&w->fake->lock);
	atomic_store_release_u32(&w->fake->client[0].region->closed, 1);
	pthread_mutex_unlock(&w->fake->lock);
	assert_int_equal(world_attach(w), 1);
	assert_memory_equal(w->fake->asked.fingerprint, w->x->ix.header->fingerprint, 32);
	/* The same name, and another geometry. */
	world_block(w, 1);
	assert_int_equal(tier_match(c, &key, 1, NULL), 1);
	fake_stop(w->fake, true);
	w->fake->boot_token++;
	assert_int_equal(tier_geometry_preset(&other, "llama-3.1-8b"), 0);
	g = other->abi;
	tier_geometry_free(other);
	fake_context_make(w->fake, 0, "ctx", &g);
	fake_start(w->fake);
	assert_int_equal(world_attach(w), 1);
	assert_int_equal(tier_match(c, &key, 1, NULL), 0);
	assert_int_equal(tier_delete(c, &key, 1), -ENOENT);
}

static void test_descriptors_do_not_pile_up(void **state)
{
	struct world *w = *state;
	tier_context *c;
	int before = 0;

	for (uint32_t i = 0; i < 4; i++) {
		fake_restart(w->fake);
		assert_int_equal(world_attach(w), 1);
		assert_int_equal(tier_context_open(w->t, "ctx", NULL, &c), 0);
		tier_context_close(c);
		assert_int_equal(tier_context_open(w->t, "nobody", NULL, &c), -ENOENT);
		assert_int_equal(tier_check(w->t), 0);
		if (i == 0)
			before = fake_open_fds();
	}
	assert_int_equal(fake_open_fds(), before);
}

static void test_a_lost_context_is_a_miss_and_may_return(void **state)
{
	struct world *w = *state;
	tier_block b = world_block(w, 1);
	tier_key key = world_key(1);
	struct tier_lease lease;
	tier_context *c;

	assert_int_equal(tier_context_open(w->t, "ctx", NULL, &c), 0);
	tier_context_close(w->c);
	w->fake->context[0].hidden = true;
	fake_restart(w->fake);
	w->fake->context[0].hidden = true;
	assert_int_equal(world_attach(w), 1);
	assert_int_equal(tier_match(c, &key, 1, NULL), 0);
	assert_int_equal(tier_lease_page(w->r, c, b, 0, 0, &lease), -ESTALE);
	assert_int_equal(tier_lease_key(w->r, c, &key, 0, 0, &lease), -ENOENT);
	assert_int_equal(tier_fetch(c, &b, 1, NULL), -ENOENT);
	assert_int_equal(tier_context_epoch(c), 1);
	w->fake->context[0].hidden = false;
	pthread_mutex_lock(&w->fake->lock);
	fake_store(w->x, &key, ABI_BLOCK_COMMITTED);
	pthread_mutex_unlock(&w->fake->lock);
	for (uint32_t i = 0; i < 6000 && tier_match(c, &key, 1, NULL) == 0; i++) {
		assert_int_equal(tier_check(w->t), 0);
		usleep(10000);
	}
	assert_int_equal(tier_lease_key(w->r, c, &key, 0, 0, &lease), 0);
	tier_release(w->r, &lease);
	tier_context_close(c);
}

/* It is there, but not to be had at the moment: that is tried again, and no context is lost. */
static void test_a_context_that_cannot_be_had_now(void **state)
{
	static const int errors[] = { -ENOMEM, -EMFILE, -ETIMEDOUT };
	struct world *w = *state;
	tier_key key = world_key(1);

	for (uint32_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		fake_stop(w->fake, false);
		w->fake->refusal = errors[i];
		fake_start(w->fake);
		assert_int_equal(tier_check(w->t), -ENOTCONN);
		assert_int_equal(tier_delete(w->c, &key, 1), -ENOTCONN);
		w->fake->refusal = 0;
		assert_int_equal(world_attach(w), 1);
		assert_int_equal(tier_delete(w->c, &key, 1), 0);
	}
}

static void test_who_created_creates_again(void **state)
{
	struct world *w = *state;
	tier_key key = world_key(1);
	static uint8_t data[6 * 4096];

	fake_stop(w->fake, true);
	w->fake->boot_token++;
	fake_start(w->fake);
	assert_int_equal(world_attach(w), 1);
	assert_int_equal(tier_put_copy(w->c, &key, 1, data, NULL), 1);
	assert_int_equal(tier_match(w->c, &key, 1, NULL), 1);
}

/* ---- all at once ----------------------------------------------------------------------------- */

struct reading {
	struct world *w;
	tier_reader *r;
	uint32_t stop; /* atomic */
	uint32_t wrong;
	uint32_t leased; /* atomic */
};

static void *read_on(void *arg)
{
	struct reading *k = arg;
	tier_key keys[4] = { world_key(0), world_key(1), world_key(2), world_key(3) };
	uint64_t n = 0;

	while (!atomic_load_acquire_u32(&k->stop)) {
		uint32_t i = (uint32_t)(n++ % 4);
		struct tier_found found[4];
		struct tier_lease lease;
		const uint8_t *data;

		tier_match(k->w->c, keys, 4, found);
		if (found[i].state != TIER_HIT ||
		    tier_lease_page(k->r, k->w->c, found[i].block, 2, 0, &lease) != 0)
			continue;
		atomic_store_relaxed_u32(&k->leased, k->leased + 1);
		data = lease.data;
		for (uint32_t at = 0; at < 4096; at += 512)
			k->wrong += data[at] != fake_byte(keys[i].bytes, 2);
		tier_release(k->r, &lease);
	}
	return NULL;
}

static void test_readers_through_restarts(void **state)
{
	struct world *w = *state;
	struct reading k[2] = { { .w = w }, { .w = w } };
	pthread_t thread[2];

	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(tier_reader_open(w->t, &k[i].r), 0);
		assert_int_equal(pthread_create(&thread[i], NULL, read_on, &k[i]), 0);
	}
	for (uint32_t life = 0; life < 20; life++) {
		for (uint32_t i = 0; i < 4; i++) {
			tier_key key = world_key(i);

			pthread_mutex_lock(&w->fake->lock);
			fake_store(w->x, &key, ABI_BLOCK_COMMITTED);
			pthread_mutex_unlock(&w->fake->lock);
		}
		usleep(5000);
		/* On a crowded machine their turn comes later. */
		for (uint32_t i = 0; life == 19 && i < 2;)
			if (atomic_load_relaxed_u32(&k[i].leased))
				i++;
			else
				usleep(1000);
		fake_restart(w->fake);
		assert_int_equal(world_attach(w), 1);
	}
	for (uint32_t i = 0; i < 2; i++) {
		atomic_store_release_u32(&k[i].stop, 1);
		pthread_join(thread[i], NULL);
		assert_int_equal(k[i].wrong, 0);
		assert_true(k[i].leased > 0);
	}
	assert_int_equal(tier_check(w->t), 0);
	assert_int_equal(old_count(w->t), 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)
	const struct CMUnitTest tests[] = {
		T(test_connect_refuses_and_explains),
		T(test_connect_by_environment),
		T(test_an_empty_environment),
		T(test_connect_registers_for_the_fence),
		T(test_contexts_refuse_nonsense),
		T(test_reads_go_on_without_a_daemon),
		T(test_requests_end_when_the_daemon_dies),
		T(test_the_event_descriptor_tells_of_a_death),
		T(test_handles_survive_a_restart),
		T(test_idle_readers_do_not_keep_old_memory),
		T(test_leases_of_many_lives),
		T(test_a_put_across_a_restart),
		T(test_a_plan_across_a_restart),
		T(test_requests_attach_by_themselves),
		T(test_an_ended_connection_is_opened_anew),
		T(test_a_context_is_the_same_or_lost),
		T(test_descriptors_do_not_pile_up),
		T(test_a_lost_context_is_a_miss_and_may_return),
		T(test_a_context_that_cannot_be_had_now),
		T(test_who_created_creates_again),
		T(test_readers_through_restarts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
