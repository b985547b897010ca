/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What another host or an engine sends to tierd-net: bytes through the decoder, and what it accepts
 * through both ends of the protocol.
 *
 * Must hold: a message that is accepted is as long as it says and lies in what is there; its names
 * end and have letters that are safe in logs; what a requester accepts never leads it beyond the
 * pages that it asked for, nor to a put before all of them came; the decoder reads no byte beyond.
 * A home names for a tag only who told it of that tag, as many as it may, and nobody twice. A box
 * takes of one host's offers no more than its part. Of frames that lie to be read a READ frees the
 * oldest one, and no other. A pool's header that is taken has all extents within the device; what a
 * host is told of lies in one extent of who told it. Under a standing grant as many bytes come as
 * the pages that were picked have, none is good without the word, and none is served that was not
 * granted.
 */
#include <errno.h>

#include "tests/fuzz/fuzz.h"
#include "tierd/net/box.h"
#include "libtier/base/crc32c.h"
#include "tierd/net/homes.h"
#include "tierd/net/keep.h"
#include "tierd/net/pool.h"

#define LAYERS 3u
#define PAGES 7u

static const uint32_t first[LAYERS + 1] = { 0, 2, 2, 7 };
static const uint32_t number[PAGES] = { 0, 1, 2, 3, 4, 5, 6 };
static struct shape_page page[PAGES];
static struct shape shape = { .layers = LAYERS, .pages = PAGES, .block_bytes = 7 * 512,
			      .first = (uint32_t *)first, .page = page,
			      .by_number = (uint32_t *)number };

void fuzz_open(void)
{
	for (uint32_t i = 0; i < PAGES; i++)
		page[i] = (struct shape_page){ .page = i, .bytes = 512 };
}

static void check_name(const char *name, size_t bytes)
{
	size_t length = strnlen(name, bytes);

	FUZZ_CHECK(length < bytes);
	for (size_t i = 0; i < length; i++)
		FUZZ_CHECK(name[i] > 0x20 && name[i] < 0x7f && !strchr("\"'/\\", name[i]));
}

static void check_members(const void *m, uint16_t type)
{
	const struct net_placed *placed = m;
	const struct net_want *want = m;
	const struct net_admin *admin = m;

	if (type == NET_HELLO) {
		check_name(((const struct net_hello *)m)->name, NET_NAME_BYTES);
	} else if (type == NET_LOCATE || type == NET_PULL || type == NET_STREAM ||
		   type == NET_OPEN) {
		check_name(want->context, NET_NAME_BYTES);
		FUZZ_CHECK(want->count > 0 && want->count <= NET_LOCAL_KEYS_MAX);
	} else if (type == NET_PLACED) {
		check_name(placed->host, NET_NAME_BYTES);
		FUZZ_CHECK(memchr(placed->text, 0, sizeof(placed->text)));
	} else if (type == NET_ADMIN) {
		check_name(admin->verb, sizeof(admin->verb));
		check_name(admin->word[0], NET_NAME_BYTES);
		check_name(admin->word[1], NET_NAME_BYTES);
		for (size_t at = sizeof(*admin); at < admin->header.length; at += NET_NAME_BYTES)
			check_name((const char *)m + at, NET_NAME_BYTES);
	} else if (type == NET_ASK) {
		FUZZ_CHECK(((const struct net_ask *)m)->count <= NET_KEYS_MAX);
	} else if (type == NET_KEEP) {
		FUZZ_CHECK(((const struct net_ask *)m)->count <= NET_LOCAL_KEYS_MAX);
	} else if (type == NET_PICK) {
		FUZZ_CHECK(((const struct net_pick *)m)->count <= NET_FRAME_PAGES_MAX);
	} else if (type == NET_PICKED) {
		FUZZ_CHECK(((const struct net_picked *)m)->count <= NET_FRAME_PAGES_MAX);
	} else if (type == NET_PAGES || type == NET_PLACES) {
		FUZZ_CHECK(((const struct net_pages *)m)->count <= NET_FRAME_PAGES_MAX);
	} else if (type == NET_PATH) {
		FUZZ_CHECK(((const struct net_path *)m)->mtu <= 5);
		FUZZ_CHECK(((const struct net_path *)m)->qpn <= 0xffffff);
	}
}

struct ends {
	struct pull pull;
	struct serve serve;
	uint64_t pages; /* that the requester took */
	uint64_t now;
	struct keep keep;
	struct kept kept;
	struct homes homes;
	struct homes_slot slot[32 + HOMES_WINDOW];
	struct box box;
	struct window window;
};

#define TELLS 77u /* the one host that tells */

static void home(struct ends *e, const void *m, uint16_t type)
{
	const struct net_find *find = m;
	struct net_held *held;
	const struct net_holders *of;

	if (type == NET_HOLD)
		homes_take(&e->homes, m, TELLS, (uint32_t)e->now);
	if (type != NET_FIND)
		return;
	held = malloc(sizeof(*held) + find->count * sizeof(*of)); /* exactly: as above */
	FUZZ_CHECK(held);
	homes_answer(&e->homes, find, held);
	FUZZ_CHECK(net_check(held, held->header.length) == held->header.length);
	FUZZ_CHECK(held->header.length == sizeof(*held) + find->count * sizeof(*of));
	of = (const void *)(held + 1);
	for (uint32_t i = 0; i < find->count; i++)
		FUZZ_CHECK((of[i].host[0] == 0 || of[i].host[0] == TELLS) && of[i].host[1] == 0);
	free(held);
}

static void box(struct ends *e, const void *m, uint16_t type)
{
	static struct box_taken out;
	uint32_t count = e->box.count;
	int rc;

	if (type != NET_OFFER)
		return;
	rc = box_take(&e->box, m, TELLS);
	FUZZ_CHECK(rc == 0 || (rc == -EBUSY && count == BOX_OFFERS_EACH));
	FUZZ_CHECK(e->box.count - count <= 1 && e->box.count <= BOX_OFFERS_EACH);
	if (e->now % 3 == 0 && box_next(&e->box, &out))
		FUZZ_CHECK(out.from == TELLS && out.offer.m.count > 0 &&
			   out.offer.m.count <= NET_OFFER_KEYS);
}

#define POOL_EXTENT 4096u

static void pool(const void *m, uint16_t type)
{
	struct pool_extent extent[3] = { { .incarnation = 1 }, { .incarnation = 5 } };
	struct pool p = { .extent = extent };
	const struct net_at *at = m;
	uint64_t from = POOL_FIRST + POOL_EXTENT;

	if (type != NET_AT)
		return;
	pool_format(&p.header, 9, POOL_FIRST + 3 * POOL_EXTENT, POOL_EXTENT, 512);
	if (pool_within(&p, 5, at->offset, at->pages.bytes) == 0)
		FUZZ_CHECK(at->offset >= from && at->offset < from + POOL_EXTENT &&
			   at->pages.bytes <= from + POOL_EXTENT - at->offset);
}

/* As a host would leave it that means harm: its CRC is right. */
static void pool_header(const struct fuzz_input *in)
{
	struct pool_header h;
	uint64_t bytes;

	if (in->left < sizeof(h))
		return;
	memcpy(&h, in->at, sizeof(h));
	h.magic = POOL_MAGIC;
	h.version = POOL_VERSION;
	bytes = h.bytes;
	h.crc = crc32c(0, &h, offsetof(struct pool_header, crc));
	if (pool_judge(&h, bytes))
		return;
	FUZZ_CHECK(h.extents > 0 && h.extents <= POOL_EXTENTS_MAX && bytes > POOL_FIRST);
	FUZZ_CHECK(h.place_bytes > 0 && h.place_bytes <= h.extent_bytes);
	FUZZ_CHECK(h.extent_bytes <= (bytes - POOL_FIRST) / h.extents);
}

/* The requester's end; an error ends the connection, which then is a new one. */
static void requester(struct ends *e, const void *m, uint16_t type)
{
	struct net_ask ask;
	struct cursor at;
	int rc = 0;

	if (type == NET_GRANT)
		rc = pull_granted(&e->pull, m);
	else if (type == NET_PAGES || type == NET_PLACES) /* a PLACES begins with one */
		rc = pull_pages(&e->pull, m, &at);
	else if (type == NET_AT)
		rc = pull_at(&e->pull, m, e->now, &at);
	else if (type == NET_END)
		rc = pull_ended(&e->pull, m);
	else if (type == NET_WHOLE)
		rc = pull_whole(&e->pull, m, e->now);
	FUZZ_CHECK(rc == 0 || rc == -EPROTO || (type == NET_AT && rc == -ETIMEDOUT));
	if ((type == NET_PAGES || type == NET_PLACES || type == NET_AT) && rc == 0) {
		FUZZ_CHECK(at.layer < LAYERS);
		FUZZ_CHECK(at.at + ((const struct net_pages *)m)->count <=
			   (first[at.layer + 1] - first[at.layer]) * e->pull.blocks);
		e->pages += ((const struct net_pages *)m)->count;
		/* What an engine may read by now (R7) has come; what does not stand may not. */
		FUZZ_CHECK(pull_layers(&e->pull, true, e->now) <= LAYERS);
		FUZZ_CHECK(first[pull_layers(&e->pull, true, e->now)] * e->pull.blocks <= e->pages);
		FUZZ_CHECK(pull_layers(&e->pull, false, e->now) == 0);
	}
	if (e->pull.state == PULL_CAME || e->pull.state == PULL_WHOLE)
		FUZZ_CHECK(e->pages == PAGES * e->pull.blocks && e->pull.blocks <= e->pull.asked);
	if (rc == 0 && e->pull.state != PULL_OVER && e->pull.state != PULL_WHOLE)
		return;
	e->pull = (struct pull){ .id = 1, .asked = 3, .deadline_ns = e->now + 100 };
	e->pages = 0;
	pull_ask(&e->pull, &shape, &ask, e->now);
}

/* Pages 0 and 6 of block 1, again and again; what is wrong begins anew. */
static void picks(struct ends *e)
{
	struct net_pick m;
	struct net_ask ask;

	if (e->keep.state == KEEP_FREE) {
		e->keep.asked = 3;
		keep_ask(&e->keep, &shape, 100, &ask, e->now);
		return;
	}
	if (e->keep.state != KEEP_OPEN || e->keep.blocks < 2)
		return;
	e->keep.count = 2;
	e->keep.page[0] = (struct net_pick_page){ 1, 0 };
	e->keep.page[1] = (struct net_pick_page){ 1, 6 };
	keep_pick(&e->keep, &m);
}

static void keep(struct ends *e, const void *m, uint16_t type)
{
	enum keep_state was = e->keep.state;
	int rc = 0;

	if (type == NET_GRANT)
		rc = keep_granted(&e->keep, m);
	else if (type == NET_PICKED)
		rc = keep_picked(&e->keep, m);
	else if (type == NET_WHOLE)
		rc = keep_whole(&e->keep, m, e->now % 5, e->now);
	else
		return;
	FUZZ_CHECK(rc <= 0);
	FUZZ_CHECK(e->keep.state != KEEP_OPEN || e->keep.blocks <= 3);
	if (type == NET_PICKED && rc == 0)
		FUZZ_CHECK(was == KEEP_PICKED && ((const struct net_picked *)m)->bytes <= 1024);
	if (type == NET_WHOLE && rc == 0)
		FUZZ_CHECK(was == KEEP_CAME && e->now < e->keep.ends_ns && e->now % 5);
	if (rc)
		e->keep = (struct keep){ .id = 0 };
	picks(e);
}

/* The holder's end: an answer has the bytes of what was granted, within its bounds. */
static void kept(struct ends *e, const void *m, uint16_t type)
{
	static struct {
		struct net_picked m;
		struct net_picked_page page[NET_FRAME_PAGES_MAX];
	} out;
	const struct net_pick_page *of = (const void *)((const struct net_pick *)m + 1);
	struct net_grant grant = { .error = 0 };
	struct net_word word;
	int rc;

	if (type == NET_KEEP)
		kept_grant(&e->kept, m, &shape, ((const struct net_ask *)m)->count % 3, &grant,
			   e->now);
	if (type != NET_PICK)
		return;
	rc = kept_pick(&e->kept, m, e->now % 7, e->now);
	if (rc == -EPROTO)
		return;
	kept_picked(&e->kept, m, rc, &out.m);
	FUZZ_CHECK(out.m.bytes == (rc ? 0 : out.m.count * 512) && out.m.bytes <= NET_PICK_BYTES);
	FUZZ_CHECK(net_check(&out, out.m.header.length) == out.m.header.length);
	for (uint32_t i = 0; i < out.m.count; i++)
		FUZZ_CHECK(of[i].block < e->kept.blocks && of[i].page < PAGES);
	if (!rc)
		kept_whole(&e->kept, e->now % 3, &word, e->now);
}

/* What lies to be read at a holder: a frame for each PLACES that came, until its READ. */
static void window(struct ends *e, const void *m, uint16_t type)
{
	const struct net_word *word = m;
	struct window was = e->window;

	if (type == NET_PLACES && !window_full(&e->window)) {
		FUZZ_CHECK(window_add(&e->window, word->id) < NET_PLACES_MAX);
		FUZZ_CHECK(window_has(&e->window, word->id));
	} else if (type == NET_READ && window_read(&e->window, word) == 0) {
		FUZZ_CHECK(was.count && word->id == was.told - was.count + 1);
		FUZZ_CHECK(window_take(&e->window) == was.first);
		FUZZ_CHECK(e->window.count == was.count - 1);
	}
	FUZZ_CHECK(e->window.count <= NET_PLACES_MAX);
}

static void end_if_over(struct ends *e)
{
	struct net_word word;

	if (serve_over(&e->serve))
		serve_whole(&e->serve, true, &word, e->now);
}

/* Each frame is said to be copied once, in order; only then is the grant over. */
static void copied(struct ends *e, const struct net_word *m)
{
	uint32_t before = e->serve.copied;
	bool due = e->serve.state == SERVE_SENT && before < e->serve.told &&
		   m->number == before + 1;
	int rc = serve_copied(&e->serve, m);

	FUZZ_CHECK(rc == (due ? 0 : -EPROTO));
	FUZZ_CHECK(e->serve.copied == before + (rc == 0));
	end_if_over(e);
}

/* The holder's: whatever is asked, it sends the pages of what it granted and no others. */
static void holder(struct ends *e, const void *m, uint16_t type)
{
	struct net_grant grant = { .error = 0 };
	struct net_pages frame;
	struct net_at told;
	struct cursor at;
	uint64_t sent = 0;

	if (type == NET_COPIED)
		copied(e, m);
	if (type != NET_ASK || e->serve.state != SERVE_FREE)
		return;
	e->serve.blocks = ((const struct net_ask *)m)->count % 5;
	if (e->serve.blocks > ((const struct net_ask *)m)->count)
		e->serve.blocks = ((const struct net_ask *)m)->count;
	serve_grant(&e->serve, m, &shape, &grant, e->now);
	while (e->serve.state == SERVE_PAGES) {
		serve_frame(&e->serve, &frame, &at);
		if (((const struct net_ask *)m)->klass % 2)
			serve_at(&e->serve, &frame, POOL_FIRST, &told);
		sent += frame.count;
	}
	FUZZ_CHECK(e->serve.told == 0 || !serve_over(&e->serve));
	FUZZ_CHECK(sent == (uint64_t)PAGES * grant.blocks);
	end_if_over(e);
}

void fuzz_one(struct fuzz_input *in)
{
	static struct ends e; /* a box is large */

	e = (struct ends){ .now = 1000 };
	e.homes = (struct homes){ .slot = e.slot, .room = 32 };
	e.pull = (struct pull){ .id = 1, .asked = 3, .deadline_ns = 1100 };
	pull_ask(&e.pull, &shape, &(struct net_ask){ 0 }, e.now);
	picks(&e);
	pool_header(in);
	while (in->left) {
		/* Memory of exactly that size: a byte read beyond is found. */
		uint8_t *bytes = malloc(in->left);
		int64_t length;
		uint16_t type;

		FUZZ_CHECK(bytes);
		memcpy(bytes, in->at, in->left);
		length = net_check(bytes, in->left);
		FUZZ_CHECK(length == 0 || length == -EPROTO || length >= 16);
		if (length <= 0) {
			free(bytes);
			return;
		}
		FUZZ_CHECK((uint64_t)length <= in->left && length <= NET_MESSAGE_MAX);
		type = ((const struct net_header *)bytes)->type;
		check_members(bytes, type);
		requester(&e, bytes, type);
		holder(&e, bytes, type);
		home(&e, bytes, type);
		box(&e, bytes, type);
		window(&e, bytes, type);
		keep(&e, bytes, type);
		kept(&e, bytes, type);
		pool(bytes, type);
		free(bytes);
		in->at += length;
		in->left -= (size_t)length;
		e.now++;
	}
}

/* ---- seeds -------------------------------------------------------------------------------- */

static void put(struct fuzz_seed *s, void *m, uint16_t type, uint32_t items)
{
	struct net_form form = net_form(type);
	static const uint8_t zero[NET_KEY_BYTES * 3];
	struct net_header *h = m;

	*h = (struct net_header){ NET_MAGIC, NET_VERSION, type, form.fixed + items * form.item, 0 };
	fuzz_put(s, m, form.fixed);
	fuzz_put(s, zero, items * form.item);
}

/* A pull of one block, whole but for what is missing in its last frame. */
static void put_pull(struct fuzz_seed *s, uint32_t missing)
{
	struct net_grant grant = { .id = 1, .blocks = 1, .layers = LAYERS, .duration_ns = 50,
				   .bytes = 7 * 512 };
	struct net_pages frame[] = { { .id = 1, .layer = 0, .count = 2, .bytes = 1024 },
				     { .id = 1, .layer = 2, .count = 5 - missing,
				       .bytes = (5 - missing) * 512 } };
	struct net_word whole = { .id = 1 };

	put(s, &grant, NET_GRANT, 0);
	put(s, &frame[0], NET_PAGES, 2);
	put(s, &frame[1], NET_PAGES, 5 - missing);
	put(s, &whole, NET_WHOLE, 0);
}

/* A frame that is read, not sent. */
static void put_places(struct fuzz_seed *s)
{
	struct net_path path = { .qpn = 17, .mtu = 3 };
	struct net_grant grant = { .id = 1, .blocks = 1, .layers = LAYERS, .duration_ns = 50,
				   .bytes = 7 * 512 };
	struct net_places places = { .pages = { .id = 1, .count = 2, .bytes = 1024 },
				     .address = 4096, .rkey = 7, .number = 1 };
	struct net_word word = { .id = 1 };

	put(s, &path, NET_PATH, 0);
	put(s, &grant, NET_GRANT, 0);
	put(s, &places, NET_PLACES, 2);
	put(s, &word, NET_READ, 0);
}

/* A pull of one block by the pool, and a grant of one: what is copied of it. */
static void put_pool(struct fuzz_seed *s)
{
	struct net_grant grant = { .id = 1, .blocks = 1, .layers = LAYERS, .duration_ns = 50,
				   .bytes = 7 * 512 };
	struct net_at at[] = { { .pages = { .id = 1, .layer = 0, .count = 2, .bytes = 1024 },
				 .offset = POOL_FIRST + POOL_EXTENT },
			       { .pages = { .id = 1, .layer = 2, .count = 5, .bytes = 5 * 512 },
				 .offset = POOL_FIRST + POOL_EXTENT + 1024 } };
	struct net_ask ask = { .id = 1, .count = 2, .wait_ns = 100, .klass = 1 };
	struct net_word whole = { .id = 1 }, copied = { .id = 1 };

	put(s, &grant, NET_GRANT, 0);
	put(s, &at[0], NET_AT, 2);
	put(s, &at[1], NET_AT, 5);
	put(s, &whole, NET_WHOLE, 0);
	put(s, &ask, NET_ASK, 2);
	for (copied.number = 1; copied.number < 4; copied.number++)
		put(s, &copied, NET_COPIED, 0);
}

/* A standing grant, asked for and given; two of its pages, and one that is not there. */
static void put_keep(struct fuzz_seed *s)
{
	struct net_grant grant = { .id = 1, .blocks = 2, .layers = LAYERS, .duration_ns = 50,
				   .bytes = 2 * 7 * 512 };
	struct net_ask ask = { .id = 1, .count = 2, .wait_ns = 100, .klass = 1 };
	struct net_want want = { .context = "kv", .count = 1 };
	struct net_pick pick = { .id = 2, .wait_ns = 10, .count = 2 };
	struct net_picked picked = { .id = 2, .count = 2, .bytes = 1024 };
	struct net_word whole = { .id = 2 };

	put(s, &grant, NET_GRANT, 0);
	put(s, &picked, NET_PICKED, 2);
	put(s, &whole, NET_WHOLE, 0);
	picked = (struct net_picked){ .id = 3, .error = -ESTALE };
	put(s, &picked, NET_PICKED, 0);
	put(s, &ask, NET_KEEP, 2);
	put(s, &pick, NET_PICK, 2);
	put(s, &pick, NET_PICK, 2);
	put(s, &want, NET_OPEN, 1);
}

void fuzz_seeds(void)
{
	static struct fuzz_seed s;
	struct net_hello hello = { .incarnation = 5, .name = "A" };
	struct net_probe probe = { .id = 1, .count = 2 };
	struct net_found found = { .id = 1, .found = 2, .cold = 1 };
	struct net_ask ask = { .id = 1, .count = 2, .wait_ns = 100 };
	struct net_word word = { .id = 1 };
	struct net_word layer = { .id = 2 };
	struct net_want want = { .context = "kv", .count = 1 };
	struct net_placed placed = { .host = "A", .text = "why" };
	struct net_admin admin = { .verb = "share", .word = { "kv" } };
	struct {
		struct net_admin m;
		char name[2][NET_NAME_BYTES];
	} names = { .m = admin, .name = { "A", "b.c-d_9" } };
	struct net_text text = { .bytes = 2 };
	struct net_offer offer = { .id = 1, .depth = 2, .count = 3 };
	struct net_hold hold = { .id = 1, .count = 2 };
	struct net_find find = { .id = 1, .count = 2 };

	put(&s, &hello, NET_HELLO, 0);
	put(&s, &probe, NET_PROBE, 2);
	put(&s, &found, NET_FOUND, 0);
	fuzz_seed_end(&s, "probe");
	put(&s, &ask, NET_ASK, 2);
	put(&s, &word, NET_WHOLE, 0);
	put(&s, &word, NET_END, 0);
	fuzz_seed_end(&s, "ask");
	put(&s, &offer, NET_OFFER, 3);
	offer.count = 1;
	put(&s, &offer, NET_OFFER, 1);
	put(&s, &word, NET_TAKEN, 0);
	fuzz_seed_end(&s, "box");
	put(&s, &hold, NET_HOLD, 2);
	put(&s, &find, NET_FIND, 2);
	fuzz_seed_end(&s, "home");
	put_pull(&s, 0);
	put_pull(&s, 1);
	put_pull(&s, 0);
	fuzz_seed_end(&s, "pull");
	put_places(&s);
	fuzz_seed_end(&s, "places");
	put_pool(&s);
	fuzz_seed_end(&s, "pool");
	put_keep(&s);
	fuzz_seed_end(&s, "keep");
	put(&s, &want, NET_LOCATE, 1);
	put(&s, &want, NET_PULL, 1);
	put(&s, &want, NET_STREAM, 1);
	put(&s, &layer, NET_LAYER, 0);
	put(&s, &placed, NET_PLACED, 0);
	put(&s, &admin, NET_ADMIN, 0);
	names.m.header = admin.header;
	names.m.header.length = sizeof(names);
	fuzz_put(&s, &names, sizeof(names));
	put(&s, &text, NET_TEXT, 2);
	fuzz_seed_end(&s, "local");
}
