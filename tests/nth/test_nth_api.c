/*
 * Failing allocations in a client of a live daemon: every call of the public API that may allocate,
 * tried with its first, second, ... allocation failing, alone and with all that follow. The answer
 * is -ENOMEM (or success, where that memory was no need), the same call succeeds right after, and
 * at the end nothing is lost. tests/nth/names looks that no public name is left out.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/integration/front_client.h"

#include <tier.h>
#include <tier_device.h>
#include <tier_kernel.h>

#include "tests/nth/nth.h"

#define TRIES_MAX 200u
#define BLOCKS 4u
#define BLOCK_BYTES (6 * 4096u) /* of the preset "tiny" */
#define WAIT_NS (60 * NS_PER_S)

static const char *const settings[] = { "object.cxl=4MiB", "object.nvme=4MiB", NULL };

struct world {
	struct daemon d;
	tier *t;
	tier_context *c;
	tier_reader *reader;
	tier_geometry *g;
	tier_key key[BLOCKS];
	tier_block block[BLOCKS];
	uint8_t *data;
};

/* 0 or what the library said; what it made it has given back. */
typedef int attempt(struct world *w);

static void sweep(struct world *w, attempt *call, const char *name)
{
	uint32_t failed = 0;

	for (uint32_t sticky = 0; sticky < 2; sticky++) {
		uint32_t n = 0, hits;

		do {
			int rc;

			nth_arm(++n, sticky);
			rc = call(w);
			hits = nth_disarm();
			failed += hits;
			/* Some libraries, and the library, can do without some memory. */
			if (rc && (!hits || rc != -ENOMEM))
				fail_msg("%s: allocation %u, %u failed: the answer was %d (%s)",
					 name, n, hits, rc, tier_error_text());
			if (hits && call(w))
				fail_msg("%s: does not recover from allocation %u: %s", name, n,
					 tier_error_text());
		} while (hits && n < TRIES_MAX);
		assert_true(n < TRIES_MAX);
	}
	print_message("%s: %u failures\n", name, failed);
	assert_int_equal(nth_leaks(), 0);
}

/* ---- calls without a daemon ------------------------------------------------------------------ */

static int try_geometry(struct world *w)
{
	struct tier_part part = { .name = "kv", .kind = TIER_KIND_DENSE, .layers = 2, .groups = 1,
				  .page_bytes = 4096 };
	struct tier_geometry_options o = { .size = sizeof(o), .part_count = 1, .part = &part,
					  .block_tokens = 16 };
	tier_geometry *preset, *own;
	int rc = tier_geometry_preset(&preset, "tiny");

	(void)w;
	if (rc)
		return rc;
	assert_non_null(tier_geometry_preset_name(0));
	rc = tier_geometry_new(&own, &o);
	if (rc == 0) {
		assert_int_equal(tier_geometry_part(own, 0, &part), 0);
		assert_int_equal(tier_geometry_part_count(own), 1);
		assert_int_equal(tier_geometry_pages(own), 2);
		assert_int_equal(tier_geometry_page(own, 0, 1, 0), 1);
		assert_int_equal(tier_geometry_block_bytes(own), 2 * 4096);
		assert_int_equal(tier_geometry_block_tokens(own), o.block_tokens);
		tier_geometry_free(own);
	}
	tier_geometry_free(preset);
	return rc;
}

static int try_keys(struct world *w)
{
	struct tier_fingerprint f = { .size = sizeof(f), .model = "m", .block_tokens = 4 };
	uint32_t tokens[8] = { 1, 2, 3 };
	uint8_t digest[32];
	tier_key key[2];
	int rc = tier_key_chain(key, NULL, SALT("s", 1), tokens, 8, 4);

	(void)w;
	if (rc == 0)
		rc = tier_key_opaque(key, "name", 4, NULL);
	if (rc == 0)
		rc = tier_key_names(key, &(struct tier_name){ "name", 4 }, 1, NULL);
	return rc ? rc : tier_fingerprint_digest(digest, &f);
}

/* ---- calls with one -------------------------------------------------------------------------- */

static int try_queue(struct world *w)
{
	struct tier_completion done;
	tier_queue *q = NULL;
	int rc = tier_queue_open(w->t, 1ull << 50, 1ull << 50, &q), fd;

	assert_true((rc == 0) == (q != NULL));
	if (rc)
		return rc;
	fd = tier_queue_fd(q);
	assert_int_equal(tier_queue_poll(q, &done, 1), 0);
	assert_int_equal(tier_queue_wait(q, &done, 1, 1, 1), 0);
	tier_queue_close(q);
	return fd < 0 ? fd : 0;
}

static int try_pieces(struct world *w)
{
	const struct tier_ask ask = { .size = sizeof(ask), .tier = TIER_CXL };
	uint8_t byte;
	struct tier_piece piece = { .to = &byte, .page.block = w->block[0], .bytes = 1 };
	struct tier_completion done;
	int32_t error;
	int rc = tier_load_start(w->c, &piece, 1, &ask, &error);

	if (rc == 0)
		assert_int_equal(tier_wait(w->t, &done, 1, 1, WAIT_NS), 1);
	if (rc == 0)
		rc = error;
	return rc ? rc : tier_scatter(w->reader, w->c, &piece, 1, NULL) == 1 ? 0 : -EIO;
}

static int try_connect(struct world *w)
{
	struct tier_connect_options o = { .size = sizeof(o), .socket = w->d.socket,
					  .staging_bytes = 1u << 20 };
	tier *t = NULL;
	int rc = tier_connect(&t, &o);

	assert_true((rc == 0) == (t != NULL));
	tier_close(t);
	return rc;
}

static int try_create(struct world *w)
{
	tier_context *c = NULL;
	int rc = tier_context_create(w->t, "nth", w->g, NULL, &c);

	assert_true((rc == 0) == (c != NULL));
	tier_context_close(c);
	return rc;
}

static int try_open(struct world *w)
{
	tier_context *c = NULL;
	int rc = tier_context_open(w->t, "nth", NULL, &c);

	assert_true((rc == 0) == (c != NULL));
	tier_context_close(c);
	return rc;
}

static int try_reader(struct world *w)
{
	tier_reader *r = NULL;
	int rc = tier_reader_open(w->t, &r);

	assert_true((rc == 0) == (r != NULL));
	tier_reader_close(r);
	return rc;
}

static int try_put(struct world *w)
{
	struct tier_completion done;
	tier_put *p = NULL;
	int rc = tier_put_begin(w->c, w->key, BLOCKS, NULL, &p);

	if (rc)
		return rc;
	for (uint32_t i = 0; i < BLOCKS; i++)
		memset(tier_put_data(p, i, 0, 0, 0), (int)i, 4096);
	rc = tier_put_commit(p, 7);
	if (rc) {
		tier_put_abort(p);
		return rc;
	}
	rc = tier_wait(w->t, &done, 1, 1, WAIT_NS);
	return rc < 0 ? rc : rc == 1 ? done.result : -ETIMEDOUT;
}

static int negative(int64_t n)
{
	return n < 0 ? (int)n : 0;
}

/* A context of its own: epoch and end. */
static int try_remove(struct world *w)
{
	tier_context *c = NULL;
	uint64_t epoch = 0;
	int rc = tier_context_create(w->t, "gone", w->g, NULL, &c);

	if (rc == 0) {
		assert_non_null(tier_context_geometry(c));
		assert_true(tier_context_epoch(c) > 0);
		rc = tier_context_raise_epoch(w->t, "gone", &epoch);
	}
	tier_context_close(c);
	return rc ? rc : tier_context_remove(w->t, "gone");
}

/* Those that answer from what is there. */
static int try_accounts(struct world *w)
{
	struct tier_counters counters = { .size = sizeof(counters) };
	struct tier_completion done;
	struct tier_usage usage;
	int rc = tier_counters(w->t, &counters);

	if (rc == 0)
		rc = negative(tier_usage_salts(w->t, "nth", &usage, 1));

	assert_true(tier_version()[0] && tier_strerror(-ENOMEM)[0] && tier_error_text());
	assert_true(tier_poll(w->t, &done, 1) == 0);
	return rc ? rc : negative(tier_event_fd(w->t));
}

static int try_abort(struct world *w)
{
	tier_key key = w->key[0];
	tier_put *p = NULL;
	int rc;

	key.bytes[5] ^= 1; /* not there yet */
	rc = tier_put_begin(w->c, &key, 1, NULL, &p);
	if (rc)
		return rc;
	assert_int_equal(tier_put_exists(p, 0), 0);
	tier_put_abort(p);
	return 0;
}

static int try_copy(struct world *w)
{
	return negative(tier_put_copy(w->c, w->key, BLOCKS, w->data, NULL));
}

static void find(struct world *w, struct tier_page *pages)
{
	struct tier_found found[BLOCKS];

	assert_int_equal(tier_match(w->c, w->key, BLOCKS, found), BLOCKS);
	for (uint32_t i = 0; i < BLOCKS; i++) {
		w->block[i] = found[i].block;
		pages[i] = (struct tier_page){ found[i].block, i };
	}
}

static int try_fetch(struct world *w)
{
	static const uint32_t tokens[] = { 1, 2, 3 };
	const struct tier_tail tail = { .tokens = tokens, .count = 3 };
	struct tier_page pages[BLOCKS];
	uint64_t pin = 0;
	int rc;

	find(w, pages);
	rc = negative(tier_match_tail(w->c, &tail, NULL, NULL));
	if (rc == 0)
		rc = negative(tier_fetch(w->c, w->block, BLOCKS,
					 ASK(TIER_HBM, .deadline_ns = 0)));
	if (rc == 0)
		rc = negative(tier_pin(w->c, w->block, BLOCKS, TIER_CXL, 0, &pin));
	if (rc == 0)
		rc = tier_unpin(w->c, pin);
	return rc ? rc : tier_drain(w->t);
}

static int try_pages(struct world *w)
{
	struct tier_page pages[BLOCKS];
	struct tier_completion done;
	int rc, other;

	find(w, pages);
	rc = negative(tier_fetch_pages(w->c, pages, BLOCKS, ASK(TIER_CXL, .deadline_ns = 0)));
	if (rc)
		return rc;
	rc = tier_fetch_start(w->c, w->block, BLOCKS, ASK(TIER_CXL, .user_data = 3));
	if (rc)
		return rc;
	rc = tier_cancel(w->t, 3);
	if (rc == -ENOENT)
		rc = 0; /* it was faster */
	assert_int_equal(tier_wait(w->t, &done, 1, 1, WAIT_NS), 1);
	other = tier_fetch_pages_start(w->c, pages, 1, ASK(TIER_CXL, .user_data = 4));
	if (other == 0)
		assert_int_equal(tier_wait(w->t, &done, 1, 1, WAIT_NS), 1);
	return rc ? rc : other;
}

/* The completion of what was started; rc is what starting it answered. */
static int completed(struct world *w, int rc)
{
	struct tier_completion done;

	if (rc)
		return rc;
	assert_int_equal(tier_wait(w->t, &done, 1, 1, WAIT_NS), 1);
	return done.result;
}

static int try_foresight(struct world *w)
{
	struct tier_conversation_options turn = { .size = sizeof(turn), .tier = TIER_CXL,
						  .blocks = w->block, .count = BLOCKS };
	struct tier_page pages[BLOCKS];
	int rc;

	find(w, pages);
	rc = completed(w, tier_prefetch(w->c, w->block, BLOCKS, ASK(TIER_CXL, .user_data = 5)));
	if (rc == 0)
		rc = completed(w, tier_conversation(w->c, 1, TIER_CONVERSATION_TURN_END, &turn));
	if (rc == 0)
		rc = completed(w, tier_session(w->c, 1, TIER_SESSION_CLOSE, NULL)); /* (old) */
	if (rc == 0)
		rc = completed(w, tier_migrate(w->c, w->block, BLOCKS,
					       ASK(TIER_CXL, .user_data = 6)));
	return rc;
}

static int try_stream(struct world *w)
{
	struct tier_stream_progress at = { .size = sizeof(at) };
	struct tier_page pages[BLOCKS];
	tier_stream *s;
	int64_t rc;

	find(w, pages);
	rc = tier_stream_open(w->c, w->block, BLOCKS, NULL, &s);
	if (rc)
		return (int)rc;
	rc = tier_stream_wait(s, 0, time_now_ns() + WAIT_NS);
	if (rc == BLOCKS) {
		struct tier_lease lease;
		uint32_t last = tier_stream_last(s); /* 0: no memory, which is no error */

		assert_true(tier_stream_ready(s) > 0);
		assert_int_equal(tier_stream_look(s, &at), 0);
		assert_int_equal(tier_lease_page(w->reader, w->c, w->block[0], 0, last, &lease), 0);
		tier_release(w->reader, &lease);
		tier_stream_release(s, 1);
	}
	tier_stream_close(s);
	return rc < 0 ? (int)rc : 0;
}

static int try_reserve(struct world *w)
{
	struct tier_reserve_options options = { .size = sizeof(options), .expected = 2 };
	struct tier_reserved room;
	int rc = tier_reserve(w->c, &options, &room);

	if (rc)
		return rc;
	/* What could not be given back now ends with its deadline; here it must not stay. */
	rc = negative(tier_reserve_end(w->c, room.id));
	if (rc)
		assert_int_equal(negative(tier_reserve_end(w->c, room.id)), 0);
	return rc;
}

static int try_plan(struct world *w)
{
	struct tier_plan_options options = { .size = sizeof(options), .tier = TIER_CXL };
	struct tier_access access[2 * BLOCKS];
	struct tier_page pages[BLOCKS];
	tier_plan *p;
	int rc;

	find(w, pages);
	for (uint32_t i = 0; i < 2 * BLOCKS; i++)
		access[i] = (struct tier_access){ .block = w->block[i % BLOCKS] };
	rc = tier_plan_begin(w->c, access, 2 * BLOCKS, &options, &p);
	if (rc)
		return rc;
	tier_plan_advance(p, BLOCKS);
	tier_plan_end(p);
	return 0;
}

static void take_leases(struct world *w, const struct tier_page *pages)
{
	struct tier_selection all = { .blocks = w->block, .count = BLOCKS };
	struct tier_lease lease[BLOCKS];
	tier_reader *r = w->reader;

	assert_int_equal(tier_lease_page(r, w->c, w->block[0], 0, 0, lease), 0);
	tier_release(r, lease);
	assert_int_equal(tier_lease_key(r, w->c, w->key, 0, 0, lease), 0);
	tier_release(r, lease);
	assert_int_equal(tier_lease_pages(r, w->c, pages, BLOCKS, 0, lease), BLOCKS);
	tier_release_many(r, lease, BLOCKS);
	assert_int_equal(tier_lease_blocks(r, w->c, &all, lease), BLOCKS);
	tier_release_many(r, lease, BLOCKS);
	assert_int_equal(tier_gather(r, w->c, pages, BLOCKS, INTO(w->data, 4096, NULL)), BLOCKS);
	assert_int_equal(tier_read_pages(r, w->c, pages, BLOCKS, 0, lease), BLOCKS);
	tier_release_many(r, lease, BLOCKS);
}

/* What is in memory is leased without any. */
static int try_leases(struct world *w)
{
	struct tier_page pages[BLOCKS];
	struct tier_lease lease;

	find(w, pages);
	take_leases(w, pages);
	assert_int_equal(tier_lease_page(w->reader, w->c, w->block[0], 0, 0, &lease), 0);
	assert_int_equal(tier_lease_check(&lease), 0);
	assert_int_equal(tier_fault(w), 0);
	tier_release(w->reader, &lease);
	return 0;
}

static int try_admin(struct world *w)
{
	char *reply = NULL;
	int rc = tier_admin(w->t, "stat", "{}", &reply);

	assert_true((rc == 0) == (reply != NULL));
	free(reply);
	return rc;
}

static int try_delete(struct world *w)
{
	return negative(tier_delete(w->c, w->key, BLOCKS));
}

/* ---- beside blocks --------------------------------------------------------------------------- */

static int try_owner(struct world *w)
{
	tier_context *c = NULL;
	uint32_t owner = 0;
	int rc = tier_context_open_of(w->t, "nth", geteuid(), NULL, &c);

	assert_true((rc == 0) == (c != NULL));
	if (rc == 0)
		assert_int_equal(tier_context_owner(c, &owner), 0);
	tier_context_close(c);
	return rc;
}

static int try_events(struct world *w)
{
	struct tier_event e[128];
	tier_events *events = NULL;
	int rc = tier_events_open(w->c, &events);

	assert_true((rc == 0) == (events != NULL));
	if (rc == 0)
		rc = negative(tier_events_snapshot(events, e, 128));
	if (rc == 0)
		rc = negative(tier_events_read(events, e, 128, 0));
	tier_events_close(events);
	return rc;
}

/* A launch that came to its end, and one that failed. */
static int try_era(struct world *w)
{
	tier_reader *r = NULL;
	uint64_t *done;
	int rc = tier_reader_open(w->t, &r);

	rc = rc ? rc : tier_era_open(r, &done);
	rc = rc ? rc : tier_era_begin(r);
	if (rc == 0) {
		*done += 1;
		rc = tier_era_begin(r);
	}
	rc = rc ? rc : tier_era_failed(r);
	tier_era_close(r);
	tier_reader_close(r);
	return rc;
}

/* No GPU here: that is said (tests/integration/test_api_gpu.c has one). */
static int try_device(struct world *w)
{
	struct tier_device_page at;
	tier_reader *r = NULL;
	tier_device *d = NULL;
	uint64_t *done, view;
	int rc = tier_reader_open(w->t, &r);

	rc = rc ? rc : tier_era_open(r, &done);
	rc = rc ? rc : tier_device_open(w->c, r, &d);
	assert_null(d);
	assert_int_equal(tier_device_pages(d, NULL, 0, &at), -EINVAL);
	assert_int_equal(tier_device_view(d, &view), -EINVAL);
	assert_int_equal(tier_device_give_back(d), -EINVAL);
	tier_device_close(d);
	tier_reader_close(r);
	return rc == -ENODEV ? 0 : rc;
}

/* Nobody speaks with other hosts here: that is said, not that memory is short. */
static int try_hosts(struct world *w)
{
	struct tier_hosts out = { .size = sizeof(out) };
	struct tier_grant_page page = { .error = 0 };
	tier_grant *g = NULL;
	tier_far *f = NULL;
	int rc = negative(tier_locate(w->c, w->key, BLOCKS, NULL, &out));

	if (rc == -ENOTCONN)
		rc = negative(tier_pull(w->c, w->key, BLOCKS, NULL, &out));
	if (rc == -ENOTCONN)
		rc = tier_hosts_delete(w->c, w->key, BLOCKS, NULL);
	if (rc == -ENOTCONN)
		rc = tier_prefetch_keys(w->c, w->key, BLOCKS, NULL);
	if (rc == -ENOTCONN)
		rc = negative(tier_far_open(w->c, w->key, BLOCKS, NULL, &out, &f));
	assert_null(f);
	assert_int_equal(tier_far_ready(f), 0);
	assert_null(tier_far_data(f, 0, 0, 0, 0));
	assert_int_equal(tier_far_wait(f, 0, 0), -EINVAL);
	assert_int_equal(tier_far_close(f, &out), 0);
	if (rc == -ENOTCONN)
		rc = negative(tier_grant_open(w->c, w->key, BLOCKS, NULL, &out, &g));
	assert_null(g);
	assert_int_equal(tier_grant_read(g, &page, 1, 0), -EINVAL);
	tier_grant_close(g);
	if (rc == -ENOTCONN) /* what is here is fetched */
		rc = negative(tier_fetch_keys(w->c, w->key, BLOCKS, TIER_CXL, NULL, &out)) ?:
		     -ENOTCONN;
	return rc == -ENOTCONN ? 0 : rc;
}

static int object_write(struct world *w)
{
	tier_object *o = NULL;
	int rc = tier_object_create(w->t, "nth.objects", "a", NULL, &o);

	assert_true((rc == 0) == (o != NULL));
	if (rc)
		return rc;
	assert_int_equal(write(tier_object_fd(o), "text", 4), 4);
	return tier_object_commit(o);
}

static int object_drop(struct world *w)
{
	tier_object *o = NULL;
	int rc = tier_object_create(w->t, "nth.objects", "b", NULL, &o);

	tier_object_abort(o);
	return rc;
}

static int object_read(struct world *w)
{
	struct tier_object_info info;
	struct tier_object_entry list[4];
	int rc = tier_object_stat(w->t, "nth.objects", "a", &info);

	if (rc == 0)
		rc = negative(tier_object_list(w->t, "nth.objects", NULL, NULL, list, 4));
	if (rc)
		return rc;
	rc = tier_object_open(w->t, "nth.objects", "a", 0);
	if (rc < 0)
		return rc;
	close(rc);
	return 0;
}

static int object_stream(struct world *w)
{
	static const char table[] = "tier weights 1 1\npart 0 0 4\n";
	struct tier_object_part part;
	tier_object_stream *s = NULL;
	tier_object *o = NULL;
	int rc = tier_object_create(w->t, "nth.objects", "m/tensors", NULL, &o);

	if (rc)
		return rc;
	assert_int_equal(write(tier_object_fd(o), table, strlen(table)), strlen(table));
	rc = tier_object_commit(o);
	if (rc == 0)
		rc = tier_object_rename(w->t, "nth.objects", "a", "m/0000", 0);
	if (rc == 0)
		rc = tier_object_stream_open(w->t, "nth.objects", "m", NULL, &s);
	assert_true((s != NULL) == (rc == 0));
	if (rc)
		return rc;
	rc = tier_object_stream_next(s, 0, &part);
	if (rc == 0)
		rc = negative(tier_object_stream_ready(s));
	tier_object_stream_close(s);
	return rc ? rc : tier_object_rename(w->t, "nth.objects", "m/0000", "a", 0);
}

/* From the start each time: what a failed try left is put anew, and removed under either name. */
static int try_objects(struct world *w)
{
	int rc = tier_object_context(w->t, "nth.objects", NULL);

	rc = rc ? rc : object_write(w);
	rc = rc ? rc : object_read(w);
	rc = rc ? rc : object_drop(w);
	rc = rc ? rc : object_stream(w);
	rc = rc ? rc : tier_object_rename(w->t, "nth.objects", "a", "c", 0);
	return rc ? rc : tier_object_remove(w->t, "nth.objects", "c");
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void the_pure_calls(void **state)
{
	sweep(*state, try_geometry, "geometry");
	sweep(*state, try_keys, "keys");
}

static void connecting_and_opening(void **state)
{
	sweep(*state, try_connect, "connect");
	sweep(*state, try_create, "create");
	sweep(*state, try_open, "open");
	sweep(*state, try_reader, "reader");
	sweep(*state, try_remove, "raise_epoch, remove");
	sweep(*state, try_accounts, "accounts");
}

/* Some of these allocate nothing: then there is nothing to fail, and that is checked, too. */
static void requests(void **state)
{
	sweep(*state, try_abort, "put_abort");
	sweep(*state, try_put, "put");
	sweep(*state, try_copy, "put_copy");
	sweep(*state, try_fetch, "fetch, pin");
	sweep(*state, try_pages, "fetch_pages, fetch_start, cancel");
	sweep(*state, try_foresight, "prefetch, conversation, migrate");
	sweep(*state, try_stream, "stream");
	sweep(*state, try_plan, "plan");
	sweep(*state, try_reserve, "reserve");
	sweep(*state, try_leases, "leases");
	sweep(*state, try_queue, "queue");
	sweep(*state, try_pieces, "load, scatter");
	sweep(*state, try_admin, "admin");
	sweep(*state, try_delete, "delete");
}

static void what_is_beside_blocks(void **state)
{
	sweep(*state, try_owner, "open_of, owner");
	sweep(*state, try_events, "events");
	sweep(*state, try_era, "era");
	sweep(*state, try_device, "device");
	sweep(*state, try_hosts, "locate, pull");
	sweep(*state, try_objects, "objects");
}

/* The daemon is replaced; each try finds the connection dead and re-attaches, or says why not. */
static void attaching_again(void **state)
{
	struct world *w = *state;
	uint32_t hits = 1;

	for (uint32_t n = 1; hits; n++) {
		struct timespec pause = { 0, 150 * 1000 * 1000 };
		tier_key key = w->key[0];
		int rc;

		daemon_stop(&w->d);
		daemon_start(&w->d, settings);
		nth_arm(n, n % 2);
		rc = tier_check(w->t);
		hits = nth_disarm();
		assert_true(rc == 1 || rc == -ENOTCONN);
		assert_true(tier_match(w->c, &key, 1, NULL) >= 0);
		/* The library waits before it tries again. */
		for (uint32_t i = 0; rc < 0 && i < 20; i++) {
			nanosleep(&pause, NULL);
			rc = tier_check(w->t);
		}
		assert_true(rc >= 0);
		assert_int_equal(try_copy(w), 0);
		assert_true(n < 30);
	}
	assert_int_equal(nth_leaks(), 0);
}

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	daemon_folder(&w->d);
	daemon_start(&w->d, settings);
	w->data = calloc(BLOCKS, BLOCK_BYTES);
	assert_non_null(w->data);
	for (uint32_t i = 0; i < BLOCKS; i++)
		assert_int_equal(tier_key_opaque(&w->key[i], &i, sizeof(i), NULL), 0);
	assert_int_equal(tier_geometry_preset(&w->g, "tiny"), 0);
	assert_int_equal(tier_connect(&w->t, &(struct tier_connect_options){
						     .size = sizeof(struct tier_connect_options),
						     .socket = w->d.socket }), 0);
	assert_int_equal(tier_context_create(w->t, "nth", w->g, NULL, &w->c), 0);
	assert_int_equal(tier_reader_open(w->t, &w->reader), 0);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	tier_reader_close(w->reader);
	tier_close(w->t);
	tier_geometry_free(w->g);
	daemon_stop(&w->d);
	daemon_remove(&w->d);
	free(w->data);
	free(w);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_pure_calls),
		cmocka_unit_test(connecting_and_opening),
		cmocka_unit_test(requests),
		cmocka_unit_test(what_is_beside_blocks),
		cmocka_unit_test(attaching_again),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
