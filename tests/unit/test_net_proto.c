/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The protocol between hosts, both ends of it as pure state: a pull and a grant walk through all
 * pages of odd shapes together; an answer that is wrong, repeated, out of order, too long or late
 * ends the pull (R1, N1); a peer that failed is asked by nobody until it was met again (R4).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libtier/base/crc32c.h"
#include "tests/lib/unit.h"
#include "tierd/net/agree.h"
#include "tierd/net/pool.h"

#define MS 1000000ull
#define LAYERS 4u

/* Layers of 1, 0, 300 and 2 pages; of 64 KiB in the first, of 4 KiB in the others. */
static const uint32_t first[LAYERS + 1] = { 0, 1, 1, 301, 303 };

struct world {
	struct shape shape;
	struct pull pull;
	struct serve serve;
	struct net_ask ask;
	struct net_grant grant;
	struct net_pages frame;
	uint64_t now;
};

static struct world *begin(uint32_t asked, uint32_t granted)
{
	struct world *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	w->shape = (struct shape){ .layers = LAYERS, .pages = 303, .first = (uint32_t *)first,
				   .block_bytes = 65536 + 302 * 4096 };
	w->shape.page = calloc(w->shape.pages, sizeof(*w->shape.page));
	assert_non_null(w->shape.page);
	for (uint32_t i = 0; i < w->shape.pages; i++)
		w->shape.page[i] = (struct shape_page){ .page = i, .bytes = i ? 4096 : 65536 };
	w->now = 1000 * MS;
	w->pull = (struct pull){ .id = 7, .epoch = 3, .asked = asked,
				 .deadline_ns = w->now + 100 * MS };
	pull_ask(&w->pull, &w->shape, &w->ask, w->now);
	assert_int_equal(w->ask.wait_ns, 100 * MS);
	w->serve.blocks = granted;
	serve_grant(&w->serve, &w->ask, &w->shape, &w->grant, w->now);
	return w;
}

static void end(struct world *w)
{
	free(w->shape.page);
	free(w);
}

/* One frame from the holder to the requester; false: it was the last one. */
static bool step(struct world *w, uint64_t *pages)
{
	struct cursor sent, got;
	bool more = serve_frame(&w->serve, &w->frame, &sent);

	assert_true(w->frame.count > 0 && w->frame.count <= NET_FRAME_PAGES_MAX);
	assert_true(w->frame.bytes < NET_FRAME_BYTES + 65536);
	assert_int_equal(net_form(NET_PAGES).fixed + 4 * w->frame.count, w->frame.header.length);
	assert_int_equal(pull_pages(&w->pull, &w->frame, &got), 0);
	assert_memory_equal(&sent, &got, sizeof(sent));
	*pages += w->frame.count;
	return more;
}

static void test_both_ends_walk_through_all_pages(void **state)
{
	static const uint32_t blocks[] = { 1, 2, 7, 40 };

	(void)state;
	for (uint32_t i = 0; i < COUNT(blocks); i++) {
		struct world *w = begin(50, blocks[i]);
		struct net_word whole;
		uint64_t pages = 0;

		assert_int_equal(pull_granted(&w->pull, &w->grant), 0);
		assert_int_equal(w->pull.blocks, blocks[i]);
		while (step(w, &pages))
			assert_int_equal(w->pull.state, PULL_PAGES);
		assert_int_equal(pages, 303 * blocks[i]);
		serve_whole(&w->serve, true, &whole, w->now);
		assert_int_equal(pull_whole(&w->pull, &whole, w->now), 0);
		assert_int_equal(w->pull.state, PULL_WHOLE);
		assert_int_equal(w->serve.state, SERVE_FREE);
		end(w);
	}
}

static void test_what_is_not_there_ends_the_pull(void **state)
{
	struct world *w = begin(5, 0);

	(void)state;
	assert_int_equal(w->serve.state, SERVE_FREE);
	assert_int_equal(pull_granted(&w->pull, &w->grant), 0);
	assert_int_equal(w->pull.state, PULL_OVER);
	assert_int_equal(w->pull.error, -ENODATA);
	end(w);
}

static void test_a_grant_of_something_else_is_refused(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 5; i++) {
		struct world *w = begin(5, 5);

		switch (i) {
		case 0:
			w->grant.id++;
			break;
		case 1:
			w->grant.blocks = 6;
			break;
		case 2:
			w->grant.layers++;
			break;
		case 3:
			w->grant.bytes--;
			break;
		default: /* repeated */
			assert_int_equal(pull_granted(&w->pull, &w->grant), 0);
		}
		assert_int_equal(pull_granted(&w->pull, &w->grant), -EPROTO);
		end(w);
	}
}

static void test_a_frame_that_is_not_the_next_one_is_refused(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 6; i++) {
		struct world *w = begin(5, 5);
		struct cursor at;
		uint64_t pages = 0;

		assert_int_equal(pull_granted(&w->pull, &w->grant), 0);
		step(w, &pages);
		step(w, &pages);
		/* i == 0: the last one again, as it was */
		if (i)
			serve_frame(&w->serve, &w->frame, &at);
		w->frame.id += i == 1;
		w->frame.layer += i == 2;
		w->frame.first += i == 3;
		w->frame.count -= i == 4;
		w->frame.bytes += i == 5;
		assert_int_equal(pull_pages(&w->pull, &w->frame, &at), -EPROTO);
		end(w);
	}
}

static void test_no_page_comes_behind_the_last_one(void **state)
{
	struct world *w = begin(2, 2);
	struct cursor at;
	uint64_t pages = 0;

	(void)state;
	assert_int_equal(pull_granted(&w->pull, &w->grant), 0);
	while (step(w, &pages))
		;
	w->frame.layer = LAYERS;
	w->frame.first = 0;
	assert_int_equal(pull_pages(&w->pull, &w->frame, &at), -EPROTO);
	end(w);
}

/* All pages through, and then: is it whole? */
static struct world *all_came(void)
{
	struct world *w = begin(1, 1);
	uint64_t pages = 0;

	assert_int_equal(pull_granted(&w->pull, &w->grant), 0);
	while (step(w, &pages))
		;
	return w;
}

static void test_a_grant_that_lapsed_is_not_whole(void **state)
{
	struct world *w = all_came();
	struct net_word whole;

	(void)state;
	/* what was granted did not stand */
	serve_whole(&w->serve, false, &whole, w->now);
	assert_int_equal(pull_whole(&w->pull, &whole, w->now), 0);
	assert_int_equal(w->pull.state, PULL_OVER);
	assert_int_equal(w->pull.error, -ESTALE);
	end(w);
	/* its time was over at the holder */
	w = all_came();
	serve_whole(&w->serve, true, &whole, w->now + 100 * MS);
	assert_int_equal(pull_whole(&w->pull, &whole, w->now), 0);
	assert_int_equal(w->pull.error, -ETIMEDOUT);
	end(w);
	/* or here, where the holder's clock is slow */
	w = all_came();
	serve_whole(&w->serve, true, &whole, w->now);
	assert_int_equal(pull_whole(&w->pull, &whole, w->now + 100 * MS), 0);
	assert_int_equal(w->pull.state, PULL_OVER);
	/* or the word comes twice, or is another grant's, or before all pages */
	assert_int_equal(pull_whole(&w->pull, &whole, w->now), -EPROTO);
	end(w);
	w = all_came();
	whole.id++;
	assert_int_equal(pull_whole(&w->pull, &whole, w->now), -EPROTO);
	end(w);
	w = begin(1, 1);
	whole.id = 7;
	assert_int_equal(pull_granted(&w->pull, &w->grant), 0);
	assert_int_equal(pull_whole(&w->pull, &whole, w->now), -EPROTO);
	end(w);
}

static void test_a_layer_is_read_when_all_its_pages_came_and_all_stands(void **state)
{
	struct world *w = begin(2, 2);
	struct net_word whole;
	uint64_t pages = 0;

	(void)state;
	assert_int_equal(pull_layers(&w->pull, true, w->now), 0);
	assert_int_equal(pull_granted(&w->pull, &w->grant), 0);
	assert_int_equal(pull_layers(&w->pull, true, w->now), 0);
	while (step(w, &pages)) {
		uint32_t layers = pull_layers(&w->pull, true, w->now);

		/* an empty one is there with its former */
		assert_true(layers > 0 && layers < LAYERS);
		assert_true(first[layers] * 2 <= pages && first[layers + 1] * 2 > pages);
		assert_int_equal(pull_layers(&w->pull, false, w->now), 0);
		assert_int_equal(pull_layers(&w->pull, true, w->now + 100 * MS), 0);
	}
	assert_int_equal(pull_layers(&w->pull, true, w->now), LAYERS);
	/* The verdict is another matter: what did not stand has no more layers to read. */
	serve_whole(&w->serve, false, &whole, w->now);
	assert_int_equal(pull_whole(&w->pull, &whole, w->now), 0);
	assert_int_equal(pull_layers(&w->pull, true, w->now), 0);
	end(w);
}

/* What a turn comes to with that record: RAISE and to what, PUT, or DONE. */
static enum agree_do turn_of(struct agreed *s, const struct agree_record *record, uint64_t *epoch)
{
	struct agree a = { .lease_ns = 1000 * MS };
	struct agreed *share[] = { s };
	struct agree_call c;
	enum agree_do what;

	s->shared = true;
	agree_begin(&a, share, 1, 5 * MS);
	for (uint32_t i = 0; i < 20; i++) {
		struct agree_answer r = { .mod = 1, .right = true };

		what = agree_next(&a, &c);
		*epoch = c.epoch;
		if (what == AGREE_PUT || what == AGREE_DONE)
			return what;
		if (what == AGREE_MINE)
			r.mod = 0;
		if (what == AGREE_READ) {
			r.record = record;
			r.count = 1;
		}
		assert_true(what != AGREE_AWAY);
		agree_answered(&a, &c, &r);
		if (what == AGREE_RAISE)
			return what;
	}
	return AGREE_AWAY;
}

/*
 * A host whose epoch was raised by hand has done a deletion in it; then a fleet's epoch ends the
 * list. In an old copy of its store is what was deleted, in that epoch, so it must not become the
 * fleet's: the next one does, of which there are no copies yet.
 */
static void test_an_own_epoch_with_deletions_behind_it_is_raised_once_more(void **state)
{
	struct agree_record r = { .epoch = 10, .deleted = 1, .first = 2, .mod = 7 };
	struct agreed s = { .epoch = 20, .deleted = 1 };
	uint64_t epoch;

	(void)state;
	assert_int_equal(turn_of(&s, &r, &epoch), AGREE_RAISE);
	assert_int_equal(epoch, 21);
	s.epoch = 21;
	assert_int_equal(turn_of(&s, &r, &epoch), AGREE_PUT);
	assert_int_equal(epoch, 21);
	/* By hand again, and what was known of the one before says nothing of it. */
	s.epoch = 30;
	assert_int_equal(turn_of(&s, &r, &epoch), AGREE_RAISE);
	assert_int_equal(epoch, 31);
	/* Where no list has ended there is nothing that could come back unseen. */
	s = (struct agreed){ .epoch = 20, .deleted = 1 };
	r.first = 1;
	assert_int_equal(turn_of(&s, &r, &epoch), AGREE_PUT);
	assert_int_equal(epoch, 20);
}

/* Frames that lie to be read (N5): as many as there is room for, answered in their order. */
static void test_frames_that_lie_to_be_read_are_answered_in_order(void **state)
{
	struct window w = { .count = 0 };
	uint64_t number = 1;
	struct net_word read = { .id = 1 };

	(void)state;
	assert_int_equal(window_read(&w, &read), -EPROTO);
	for (uint32_t round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < NET_PLACES_MAX; i++) {
			uint32_t place;

			assert_false(window_full(&w));
			place = window_add(&w, i < 2 ? 5 : 6);
			assert_true(place < NET_PLACES_MAX);
			assert_int_equal(w.count, i + 1);
		}
		assert_true(window_full(&w));
		for (uint32_t i = 0; i < NET_PLACES_MAX; i++) {
			uint32_t place = w.first;

			/* Its memory lies there while one of it does. */
			assert_int_equal(window_has(&w, 5), i < 2);
			assert_true(window_has(&w, 6));
			read.id = number + 1;
			assert_int_equal(window_read(&w, &read), -EPROTO);
			read.id = number - 1; /* it came twice */
			assert_int_equal(window_read(&w, &read), -EPROTO);
			read.id = number++;
			assert_int_equal(window_read(&w, &read), 0);
			assert_int_equal(window_take(&w), place);
			assert_false(window_full(&w));
		}
		assert_false(window_has(&w, 6));
		number++;
		window_add(&w, 7); /* so that each round begins at another place */
		window_take(&w);
	}
}

/* A queue pair that failed is tried again after 1 to 30 s; one that served is good. */
static void test_a_queue_pair_that_failed_is_left_alone_for_a_while(void **state)
{
	struct peer p = { .path = true };
	uint64_t now = 1000 * MS, wait = PROBATION_FIRST_NS;

	(void)state;
	assert_true(peer_path_due(&p, now));
	for (uint32_t i = 0; i < 8; i++) {
		peer_path_failed(&p, now);
		assert_false(p.path);
		assert_false(peer_path_due(&p, now + wait - 1));
		assert_true(peer_path_due(&p, now + wait));
		wait = 2 * wait < PROBATION_MAX_NS ? 2 * wait : PROBATION_MAX_NS;
	}
	peer_read(&p, 100, false); /* it came before that failed */
	assert_false(p.path);
	assert_false(peer_path_due(&p, now));
	peer_read(&p, 100, true);
	assert_true(p.path);
	assert_true(peer_path_due(&p, now));
	assert_int_equal(p.read_in, 200);
	peer_read(&p, 0, true); /* all of it by the connection */
	assert_false(p.path);
}

static void test_a_pages_crc_is_of_its_key_epoch_number_and_bytes(void **state)
{
	uint8_t key[NET_KEY_BYTES] = { 1 }, other[NET_KEY_BYTES] = { 2 };
	const struct shape_page page = { .page = 1, .bytes = 4 }, next = { .page = 2, .bytes = 4 };
	uint32_t crc = page_crc(key, 1, &page, "abcd");

	(void)state;
	assert_int_equal(crc, page_crc(key, 1, &page, "abcd"));
	assert_int_not_equal(crc, page_crc(other, 1, &page, "abcd"));
	assert_int_not_equal(crc, page_crc(key, 2, &page, "abcd"));
	assert_int_not_equal(crc, page_crc(key, 1, &next, "abcd"));
	assert_int_not_equal(crc, page_crc(key, 1, &page, "abce"));
}

static void test_a_peer_that_failed_is_asked_by_nobody_until_met(void **state)
{
	struct peers *p = calloc(1, sizeof(*p));
	struct peer *one = peers_add(p, "a", "127.0.0.1:1");
	uint64_t now = 1000 * MS, wait = 1000 * MS;

	(void)state;
	assert_false(peer_asked(one));
	assert_true(peer_due(one, now));
	assert_int_equal(peer_met(one, 5), 0);
	assert_true(peer_asked(one));
	for (uint32_t i = 0; i < 8; i++) {
		peer_failed(one, now, "why");
		assert_false(peer_asked(one));
		assert_false(peer_due(one, now + wait - 1));
		assert_true(peer_due(one, now + wait));
		wait = wait * 2 < 30000 * MS ? wait * 2 : 30000 * MS;
	}
	assert_string_equal(one->why, "why");
	/* a life that was replaced is not met; etcd tells of the new one */
	assert_int_equal(peer_met(one, 6), -ESTALE);
	assert_false(peer_asked(one));
	peers_member(p, &(struct peer){ .name = "a", .address = "127.0.0.1:1", .incarnation = 6 },
		     now);
	assert_true(peer_due(one, now));
	assert_int_equal(peer_met(one, 6), 0);
	assert_true(peer_asked(one));
	peers_forget(p, "a");
	assert_null(peers_find(p, "a"));
	free(p);
}

static void test_there_are_as_many_peers_as_there_is_room(void **state)
{
	struct peers *p = calloc(1, sizeof(*p));
	char name[8];

	(void)state;
	for (uint32_t i = 0; i < PEERS_MAX; i++) {
		snprintf(name, sizeof(name), "%u", i);
		assert_non_null(peers_add(p, name, "x:1"));
	}
	assert_null(peers_add(p, "more", "x:1"));
	peers_member(p, &(struct peer){ .name = "more", .address = "x:1" }, 0);
	assert_null(peers_find(p, "more"));
	free(p);
}

static void test_estimates_follow_the_slower_of_wire_and_device(void **state)
{
	struct peer p = { .state = PEER_UP };

	(void)state;
	assert_int_equal(peer_estimate(&p, 1 << 20, 1 << 20), 0); /* not known: it is tried */
	peer_answered(&p, 100000);
	peer_moved(&p, 1000000, 1000000); /* 1 GB/s */
	assert_in_range(peer_estimate(&p, 1000000, 0), 1090000, 1110000);
	p.stage_bytes_per_s = 100000000;
	assert_in_range(peer_estimate(&p, 1000000, 1000000), 10090000, 10110000);
	assert_in_range(peer_estimate(&p, 1000000, 0), 1090000, 1110000);
}

static void test_anchors_are_few_and_have_both_ends(void **state)
{
	static const uint32_t some[] = { 0, 1, 3, 7, 15, 31, 63, 95, 99 };
	uint32_t depth[NET_ANCHORS_MAX];

	(void)state;
	assert_int_equal(anchors(0, 100, depth), COUNT(some));
	assert_memory_equal(depth, some, sizeof(some));
	assert_int_equal(anchors(5, 9, depth), 3); /* 5, 7, 8 */
	assert_int_equal(anchors(8, 9, depth), 1);
	assert_int_equal(anchors(9, 9, depth), 0);
	assert_in_range(anchors(0, NET_LOCAL_KEYS_MAX, depth), 250, NET_ANCHORS_MAX);
	assert_int_equal(depth[anchors(0, NET_LOCAL_KEYS_MAX, depth) - 1], NET_LOCAL_KEYS_MAX - 1);
}

/* ---- the decoder ----------------------------------------------------------------------------- */

static struct net_ask an_ask(uint32_t count)
{
	return (struct net_ask){ .header = { NET_MAGIC, NET_VERSION, NET_ASK,
					     (uint32_t)sizeof(struct net_ask) + 32 * count, 0 },
				 .count = count };
}

static void test_a_message_is_as_long_as_it_says(void **state)
{
	static uint8_t bytes[sizeof(struct net_ask) + 3 * 32];
	struct net_ask m = an_ask(2);

	(void)state;
	memcpy(bytes, &m, sizeof(m));
	for (size_t have = 0; have < sizeof(m) + 64; have++)
		assert_int_equal(net_check(bytes, have), 0);
	assert_int_equal(net_check(bytes, sizeof(m) + 64), sizeof(m) + 64);
	assert_int_equal(net_check(bytes, sizeof(bytes)), sizeof(m) + 64);
}

/* Names behind an operator's words: as many as its length says, each one a name. */
static void test_names_are_judged(void **state)
{
	struct {
		struct net_admin m;
		char name[2][NET_NAME_BYTES];
	} m = { .m = { .header = { NET_MAGIC, NET_VERSION, NET_ADMIN, sizeof(m), 0 },
		       .verb = "share", .word = { "kv" } },
		.name = { "A", "b.c-d_9" } };

	(void)state;
	assert_int_equal(net_check(&m, sizeof(m)), sizeof(m));
	m.name[1][0] = '\n';
	assert_int_equal(net_check(&m, sizeof(m)), -EPROTO);
	assert_int_equal(net_check(&m, sizeof(m) - 1), 0);
	m.m.header.length -= NET_NAME_BYTES;
	assert_int_equal(net_check(&m, sizeof(m)), sizeof(m) - NET_NAME_BYTES);
	memset(m.name[0], 0, NET_NAME_BYTES);
	assert_int_equal(net_check(&m, sizeof(m)), -EPROTO);
	m.m.header.length--;
	assert_int_equal(net_check(&m, sizeof(m)), -EPROTO);
	m.m.header.length = sizeof(m.m) + (NET_NAMES_MAX + 1) * NET_NAME_BYTES;
	assert_int_equal(net_check(&m, sizeof(m)), -EPROTO);
}

static void test_a_message_that_is_none_is_refused(void **state)
{
	struct net_ask m = an_ask(0);

	(void)state;
	assert_int_equal(net_check(&m, sizeof(m)), -EPROTO); /* no keys */
	m = an_ask(NET_KEYS_MAX + 1);
	assert_int_equal(net_check(&m, sizeof(m)), -EPROTO);
	m = an_ask(2);
	m.header.length++;
	assert_int_equal(net_check(&m, sizeof(m)), -EPROTO);
	for (uint32_t i = 0; i < 5; i++) {
		m = an_ask(2);
		m.header.magic ^= i == 0;
		m.header.version += i == 1;
		m.header.type = i == 2 ? 77 : m.header.type;
		m.header.reserved = i == 3;
		m.header.length = i == 4 ? NET_MESSAGE_MAX + 1 : m.header.length;
		assert_int_equal(net_check(&m, sizeof(m.header)), -EPROTO);
	}
	m = an_ask(2);
	m.klass = 3;
	assert_int_equal(net_check(&m, sizeof(m)), -EPROTO);
}

/* ---- a CXL pool ------------------------------------------------------------------------------ */

#define POOL_EXTENTS 3u
#define POOL_BYTES (POOL_FIRST + POOL_EXTENTS * 65536u)

static void test_a_header_is_judged(void **state)
{
	static const struct {
		size_t at;
		const char *what;
	} wrong[] = {
		{ offsetof(struct pool_header, magic), "formatted" },
		{ offsetof(struct pool_header, version), "version" },
		{ offsetof(struct pool_header, extents), "damaged" },
		{ offsetof(struct pool_header, id), "damaged" },
		{ offsetof(struct pool_header, reserved), "damaged" },
		{ offsetof(struct pool_header, crc), "damaged" },
	};
	struct pool_header h;

	(void)state;
	pool_format(&h, 9, POOL_BYTES, 65536, 8192);
	assert_int_equal(h.extents, POOL_EXTENTS);
	assert_null(pool_judge(&h, POOL_BYTES));
	assert_non_null(strstr(pool_judge(&h, POOL_BYTES + 1), "another size"));
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		((uint8_t *)&h)[wrong[i].at] ^= 1;
		assert_non_null(strstr(pool_judge(&h, POOL_BYTES), wrong[i].what));
		((uint8_t *)&h)[wrong[i].at] ^= 1;
	}
	/* A host that means harm makes the CRC anew. */
	for (uint32_t i = 0; i < 6; i++) {
		pool_format(&h, 9, POOL_BYTES, 65536, 8192);
		if (i < 3)
			pool_format(&h, i == 0 ? 0 : 9, POOL_BYTES, i == 1 ? 65537 : 65536,
				    i == 2 ? 65537 : 8192);
		h.extents += i == 3;
		h.extent_bytes <<= i == 4 ? 48 : 0;
		h.place_bytes = i == 5 ? 0 : h.place_bytes;
		h.crc = crc32c(0, &h, offsetof(struct pool_header, crc));
		assert_non_null(strstr(pool_judge(&h, POOL_BYTES), "cannot be"));
	}
}

static void test_a_place_lies_in_one_extent_of_who_told_of_it(void **state)
{
	struct pool_extent extent[POOL_EXTENTS] = { { .incarnation = 5 }, { .incarnation = 7 } };
	struct pool p = { .extent = extent };
	const struct {
		uint64_t incarnation, offset;
		uint32_t bytes;
		int rc;
	} cases[] = {
		{ 5, POOL_FIRST, 65536, 0 },
		{ 5, POOL_FIRST, 65537, -ESTALE },
		{ 5, POOL_FIRST + 64, 65536, -ESTALE },
		{ 5, POOL_FIRST + 1, 10, -ESTALE },
		{ 5, 0, 10, -ESTALE },
		{ 5, POOL_FIRST + 65536, 10, -ESTALE }, /* another one's */
		{ 7, POOL_FIRST + 65536, 10, 0 },
		{ 0, POOL_FIRST + 2 * 65536, 10, -ESTALE }, /* nobody's */
		{ 7, POOL_FIRST + 3 * 65536, 10, -ESTALE }, /* behind the last one */
		{ 7, UINT64_MAX - 63, 10, -ESTALE },
	};

	(void)state;
	pool_format(&p.header, 9, POOL_BYTES, 65536, 8192);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(pool_within(&p, cases[i].incarnation, cases[i].offset,
					     cases[i].bytes), cases[i].rc);
}

static void test_a_grant_is_whole_when_all_was_copied_and_kept(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 3; i++) {
		struct world *w = begin(5, 5);
		struct net_pages frame;
		struct net_word m, word;
		struct net_at told;
		struct cursor at;

		assert_int_equal(pull_granted(&w->pull, &w->grant), 0);
		while (w->serve.state == SERVE_PAGES) {
			serve_frame(&w->serve, &frame, &at);
			serve_at(&w->serve, &frame, POOL_FIRST, &told);
			assert_int_equal(net_check(&told, sizeof(told)), 0); /* its CRCs lack */
			assert_int_equal(pull_at(&w->pull, &told, 1, &at), 0);
			pull_copied(&w->pull, &m);
			assert_int_equal(net_check(&m, sizeof(m)), sizeof(m));
			assert_false(serve_over(&w->serve));
			m.number += i == 2; /* another frame than the oldest one */
			assert_int_equal(serve_copied(&w->serve, &m), i == 2 ? -EPROTO : 0);
			serve_kept(&w->serve, i == 0 || w->serve.copied != 1);
			assert_int_equal(serve_copied(&w->serve, &m), -EPROTO); /* twice */
			if (i == 2)
				break;
		}
		assert_int_equal(serve_over(&w->serve), i != 2);
		if (i != 2) {
			serve_whole(&w->serve, true, &word, 1);
			assert_int_equal(word.error, i == 0 ? 0 : -ESTALE);
			assert_int_equal(pull_whole(&w->pull, &word, 1), 0);
			assert_int_equal(w->pull.state, i == 0 ? PULL_WHOLE : PULL_OVER);
		}
		end(w);
	}
}

static void test_nothing_is_copied_behind_a_grants_end(void **state)
{
	struct world *w = begin(5, 5);
	struct net_pages frame;
	struct net_at told;
	struct cursor at;

	(void)state;
	assert_int_equal(pull_granted(&w->pull, &w->grant), 0);
	serve_frame(&w->serve, &frame, &at);
	serve_at(&w->serve, &frame, POOL_FIRST, &told);
	assert_int_equal(pull_at(&w->pull, &told, w->pull.ends_ns, &at), -ETIMEDOUT);
	end(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_both_ends_walk_through_all_pages),
		cmocka_unit_test(test_what_is_not_there_ends_the_pull),
		cmocka_unit_test(test_a_grant_of_something_else_is_refused),
		cmocka_unit_test(test_a_frame_that_is_not_the_next_one_is_refused),
		cmocka_unit_test(test_no_page_comes_behind_the_last_one),
		cmocka_unit_test(test_a_grant_that_lapsed_is_not_whole),
		cmocka_unit_test(test_an_own_epoch_with_deletions_behind_it_is_raised_once_more),
		cmocka_unit_test(test_a_layer_is_read_when_all_its_pages_came_and_all_stands),
		cmocka_unit_test(test_frames_that_lie_to_be_read_are_answered_in_order),
		cmocka_unit_test(test_a_queue_pair_that_failed_is_left_alone_for_a_while),
		cmocka_unit_test(test_a_pages_crc_is_of_its_key_epoch_number_and_bytes),
		cmocka_unit_test(test_a_peer_that_failed_is_asked_by_nobody_until_met),
		cmocka_unit_test(test_there_are_as_many_peers_as_there_is_room),
		cmocka_unit_test(test_estimates_follow_the_slower_of_wire_and_device),
		cmocka_unit_test(test_anchors_are_few_and_have_both_ends),
		cmocka_unit_test(test_a_message_is_as_long_as_it_says),
		cmocka_unit_test(test_names_are_judged),
		cmocka_unit_test(test_a_message_that_is_none_is_refused),
		cmocka_unit_test(test_a_header_is_judged),
		cmocka_unit_test(test_a_place_lies_in_one_extent_of_who_told_of_it),
		cmocka_unit_test(test_a_grant_is_whole_when_all_was_copied_and_kept),
		cmocka_unit_test(test_nothing_is_copied_behind_a_grants_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
