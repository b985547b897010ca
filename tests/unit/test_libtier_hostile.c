/*
 * A daemon that lies: headers that do not fit, rings that jump, an index of random bytes. The
 * library refuses what it checks once, and stays inside its mappings whatever it reads later.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/unit/test_libtier_world.h"

#include "libtier/src/ring.h"

static uint64_t random_state = 88172645463325252ull;

static uint64_t random_word(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

/* ---- headers --------------------------------------------------------------------------------- */

static void assert_refused(struct world *w, const char *what)
{
	tier_context *c;
	int rc = tier_context_open(w->t, "ctx", NULL, &c);

	if (rc != -EPROTO)
		print_error("%s: %d\n", what, rc);
	assert_int_equal(rc, -EPROTO);
	assert_null(c);
}

static void test_index_headers_that_do_not_fit(void **state)
{
	struct world *w = *state;
	struct abi_index_header *h = w->x->ix.header;
	const struct abi_index_header good = *h;
	tier_context *c;

	w->fake->other = 7; /* what was mapped before is not looked at again */
#define REFUSED(member, value)                                                                     \
	do {                                                                                       \
		h->member = (value);                                                               \
		assert_refused(w, #member);                                                        \
		*h = good;                                                                         \
	} while (0)
	REFUSED(magic, 1);
	REFUSED(version, 2);
	REFUSED(boot_token, 1);
	REFUSED(context_id, 9);
	REFUSED(pages_per_block, 0);
	REFUSED(pages_per_block, 7);
	REFUSED(pages_per_block, UINT32_MAX);
	REFUSED(blocks_max, 0);
	REFUSED(blocks_max, UINT64_MAX);
	REFUSED(blocks_max, 1ull << 31);
	REFUSED(buckets_max, 0);
	REFUSED(buckets_max, UINT64_MAX);
	REFUSED(buckets_max, 1ull << 58); /* times 64 it is 0 */
	REFUSED(overflow_max, 1ull << 58);
	REFUSED(overflow_max, UINT64_MAX / 64);
	REFUSED(bucket_offset, 0);
	REFUSED(bucket_offset, good.bucket_offset + 1);
	REFUSED(bucket_offset, UINT64_MAX - 63);
	REFUSED(overflow_offset, UINT64_MAX - 63);
	REFUSED(block_offset, good.total_bytes);
	REFUSED(desc_offset, good.total_bytes - 64);
	REFUSED(total_bytes, good.total_bytes + 1);
#undef REFUSED
	w->x->ix.header->mem_bytes[1]++;
	assert_refused(w, "mem_bytes");
	*h = good;
	((struct abi_geometry *)(w->x->index_base + 4096))->part_count = 99;
	assert_refused(w, "geometry");
	((struct abi_geometry *)(w->x->index_base + 4096))->part_count = 2;
	assert_int_equal(tier_context_open(w->t, "ctx", NULL, &c), 0);
}

static void test_region_headers_that_do_not_fit(void **state)
{
	union {
		struct abi_region_header h;
		uint8_t bytes[16384];
	} region = { .h = { .magic = ABI_REGION_MAGIC, .version = ABI_VERSION,
			    .total_bytes = sizeof(region), .sq_entries = 16, .cq_entries = 32,
			    .sq_offset = 256, .cq_offset = 2048, .reader_offset = 4096 } };
	struct abi_region_header good = region.h;
	struct ring r;

	(void)state;
	assert_int_equal(ring_open(&r, &region, sizeof(region)), 0);
#define REFUSED(member, value)                                                                     \
	do {                                                                                       \
		region.h.member = (value);                                                         \
		assert_int_equal(ring_open(&r, &region, sizeof(region)), -EPROTO);                 \
		region.h = good;                                                                   \
	} while (0)
	REFUSED(magic, 0);
	REFUSED(version, 0);
	REFUSED(total_bytes, sizeof(region) + 1);
	REFUSED(sq_entries, 0);
	REFUSED(sq_entries, 3);
	REFUSED(sq_entries, 1u << 31);
	REFUSED(cq_entries, 0);
	REFUSED(cq_entries, 1u << 20);
	REFUSED(cq_entries, 512);
	REFUSED(readers_max, 65);
	REFUSED(readers_max, 1);
	REFUSED(sq_offset, 0);
	REFUSED(sq_offset, 257);
	REFUSED(cq_offset, sizeof(region));
	REFUSED(reader_offset, UINT64_MAX - 63);
#undef REFUSED
}

static void test_a_ring_that_jumps_ends_the_connection(void **state)
{
	struct world *w = *state;
	tier_block b = world_block(w, 1);
	struct tier_completion c;

	w->fake->mute = true;
	assert_int_equal(tier_fetch_start(w->c, &b, 1, ASK(TIER_CXL, .user_data = 4)), 0);
	atomic_store_release_u32(&w->fake->client[0].region->cq_tail, 1u << 30);
	assert_int_equal(tier_poll(w->t, &c, 1), 1);
	assert_int_equal(c.result, -ENOTCONN);
	w->fake->mute = false;
	assert_int_equal(world_attach(w), 1);
	assert_int_equal(tier_fetch(w->c, &b, 1, NULL), 1);
}

static void test_a_region_of_another_boot(void **state)
{
	struct world *w = *state;
	struct tier_connect_options o = { .size = sizeof(o), .socket = w->fake->path };
	tier *t;

	w->fake->region_boot = 1;
	assert_int_equal(tier_connect(&t, &o), -EPROTO);
	assert_non_null(strstr(tier_error_text(), "another boot"));
	w->fake->region_boot = 0;
	assert_int_equal(tier_connect(&t, &o), 0);
	tier_close(t);
}

/* The other ring: a daemon that says to have taken what was never put there. */
static void test_a_head_that_jumps_ends_the_connection(void **state)
{
	struct world *w = *state;
	tier_block b = world_block(w, 1);

	w->fake->mute = true;
	atomic_store_release_u32(&w->fake->client[0].region->sq_head, 1u << 30);
	assert_int_equal(tier_fetch_start(w->c, &b, 1, ASK(TIER_CXL, .user_data = 4)), -ENOTCONN);
	w->fake->mute = false;
	assert_int_equal(world_attach(w), 1);
	assert_int_equal(tier_fetch(w->c, &b, 1, NULL), 1);
}

/* Memory that is shorter than announced would be a SIGBUS at its end. */
static void test_less_memory_than_announced(void **state)
{
	struct world *w = *state;
	struct tier_connect_options o = { .size = sizeof(o), .socket = w->fake->path };
	tier_block b = world_block(w, 1);
	tier_stream *s;
	tier *t;

	w->fake->staging_lie = 64;
	assert_int_equal(tier_connect(&t, &o), -EPROTO);
	assert_non_null(strstr(tier_error_text(), "staging"));
	w->fake->staging_lie = 0;
	w->fake->stream_lie = sizeof(struct abi_stream);
	fake_restart(w->fake);
	assert_int_equal(world_attach(w), 1);
	assert_int_equal(tier_stream_open(w->c, &b, 1, NULL, &s), -ENOTSUP);
	w->fake->stream_lie = 0;
}

/* An answer that comes after its question was given up is not the next one's. */
static void test_answers_to_older_questions(void **state)
{
	struct world *w = *state;
	tier_context *c;
	char *reply;
	int open;

	/* Behind an answer without descriptors those of the answers before it are closed. */
	assert_int_equal(tier_admin(w->t, "status", NULL, &reply), 0);
	free(reply);
	open = fake_open_fds();
	w->fake->stale = true;
	assert_int_equal(tier_context_open(w->t, "ctx", NULL, &c), 0);
	assert_int_equal(tier_context_open(w->t, "nobody", NULL, &c), -ENOENT);
	assert_int_equal(tier_admin(w->t, "status", NULL, &reply), 0);
	assert_string_equal(reply, "{\"verb\":\"ok\"}");
	free(reply);
	w->fake->stale = false;
	tier_context_close(c);
	assert_int_equal(fake_open_fds(), open);
}

static bool hook_lie(struct fake *f, const struct abi_sqe *e, struct abi_cqe *c, bool *silent)
{
	(void)silent;
	if (e->op != ABI_OP_FETCH)
		return false;
	/* Answers to what was never asked, to the entry's request before, and one with a result of
	 * no errno. */
	c->user_data = e->count == 1 ? random_word() : e->user_data;
	if (e->count == 1 && f->ops[ABI_OP_FETCH] % 2)
		c->user_data = e->user_data ^ 1ull << 16;
	c->res = 77;
	c->status = UINT32_MAX;
	return true;
}

static void test_answers_to_nothing_are_passed_over(void **state)
{
	struct world *w = *state;
	tier_block b[2] = { world_block(w, 1), world_block(w, 2) };
	struct tier_completion c;

	w->fake->hook = hook_lie;
	for (uint32_t i = 0; i < 20; i++)
		assert_int_equal(tier_fetch_start(w->c, b, 1, ASK(TIER_CXL, .user_data = i)), 0);
	assert_int_equal(tier_fetch_start(w->c, b, 2, ASK(TIER_CXL, .user_data = 99)), 0);
	assert_int_equal(tier_wait(w->t, &c, 1, 1, 60 * NS_PER_S), 1);
	assert_int_equal(c.user_data, 99);
	assert_int_equal(c.result, 0);
	assert_int_equal(tier_poll(w->t, &c, 1), 0);
}

/* ---- the index ------------------------------------------------------------------------------- */

/* Every read call, with whatever keys and blocks; the leases' bytes are touched. */
static void read_all(struct world *w, const tier_key *keys, uint32_t count)
{
	struct tier_found found[64];
	struct tier_page page[64];
	struct tier_lease lease[64];
	volatile uint8_t sum = 0;

	tier_match(w->c, keys, count, found);
	for (uint32_t i = 0; i < count; i++) {
		page[i].block = found[i].state != TIER_MISS ?
					found[i].block :
					(tier_block){ (uint32_t)random_word(),
						      (uint32_t)random_word() };
		page[i].page = (uint32_t)random_word() % 8;
	}
	tier_lease_pages(w->r, w->c, page, count, 0, lease);
	for (uint32_t i = 0; i < count; i++)
		if (lease[i].data)
			sum += ((const uint8_t *)lease[i].data)[lease[i].bytes - 1];
	tier_release_many(w->r, lease, count);
	for (uint32_t i = 0; i < count; i++)
		if (tier_lease_key(w->r, w->c, &keys[i], page[i].page, 0, lease) == 0) {
			sum += *(const uint8_t *)lease->data;
			tier_release(w->r, lease);
		}
	tier_context_epoch(w->c);
	(void)sum;
}

static void test_an_index_of_random_bytes(void **state)
{
	struct world *w = *state;
	struct abi_index_header *h = w->x->ix.header;
	uint64_t *word = (uint64_t *)(void *)w->x->index_base;
	tier_key keys[64];

	for (uint32_t i = 0; i < 64; i++) {
		keys[i] = world_key(i);
		fake_store(w->x, &keys[i], ABI_BLOCK_COMMITTED);
	}
	/* The tables of the first blocks, a bit of them or all, over and over. */
	for (uint32_t round = 0; round < 3000; round++) {
		uint64_t table[] = { h->bucket_offset, h->overflow_offset, h->block_offset,
				     h->desc_offset };

		for (uint32_t i = 0; i < 200; i++) {
			uint64_t at = table[i % 4] / 8 + random_word() % 2048;

			word[at] = round % 2 ? random_word() : word[at] ^ 1ull << (i % 64);
		}
		if (round % 16 == 0)
			h->bucket_count = random_word() >> random_word() % 64;
		h->epoch = random_word() % 3;
		read_all(w, keys, 64);
	}
}

static void test_slots_and_addresses_outside(void **state)
{
	struct world *w = *state;
	tier_block b = world_block(w, 1);
	tier_key key = world_key(1);
	struct abi_page *d = index_page(&w->x->ix, b.slot, 0);
	struct tier_lease lease;

	/* One page beyond the end, half beyond it, far beyond it. */
	for (uint32_t i = 0; i < 3; i++) {
		const uint64_t at[] = { FAKE_MEM_BYTES, FAKE_MEM_BYTES - 2048, 1ull << 44 };

		d->word[ABI_TIER_CXL] = abi_word(at[i], ABI_PAGE_READY, 9);
		d->word[ABI_TIER_HBM] = d->word[ABI_TIER_CXL];
		assert_int_equal(tier_lease_page(w->r, w->c, b, 0, 0, &lease), -ENODATA);
	}
	d->word[ABI_TIER_CXL] = abi_word(FAKE_MEM_BYTES - 4096, ABI_PAGE_READY, 9);
	assert_int_equal(tier_lease_page(w->r, w->c, b, 0, 0, &lease), 0);
	tier_release(w->r, &lease);
	/* A bucket that names slots there are not, an overflow chain in a ring. */
	for (uint64_t i = 0; i < w->x->ix.header->bucket_count; i++) {
		struct abi_bucket *line = &w->x->ix.bucket[i];

		for (uint32_t k = 0; k < ABI_BUCKET_SLOTS; k++) {
			line->slot[k] = FAKE_BLOCKS + k;
			line->tag[k] = abi_key_tag(abi_key_hash(key.bytes));
		}
		line->overflow = 1;
	}
	memset(&w->x->ix.overflow[0], 0xff, sizeof(struct abi_bucket));
	w->x->ix.overflow[0].overflow = 1;
	assert_int_equal(tier_match(w->c, &key, 1, NULL), 0);
	assert_int_equal(tier_lease_key(w->r, w->c, &key, 0, 0, &lease), -ENOENT);
	w->x->ix.overflow[0].overflow = UINT32_MAX;
	assert_int_equal(tier_match(w->c, &key, 1, NULL), 0);
	/* A writer that died in the middle of a bucket: bounded, and a miss. */
	for (uint64_t i = 0; i < w->x->ix.header->bucket_count; i++)
		w->x->ix.bucket[i].seq |= 1;
	assert_int_equal(tier_match(w->c, &key, 1, NULL), 0);
	assert_int_equal(tier_lease_key(w->r, w->c, &key, 0, 0, &lease), -ENOENT);
}

/* ---- the socket ------------------------------------------------------------------------------ */

/* A server of one answer: whatever bytes, with whatever descriptors. */
struct liar {
	char path[108];
	int listener;
	pthread_t thread;
	uint8_t bytes[512];
	size_t count;
	uint32_t fds;
};

static void *liar_loop(void *arg)
{
	struct liar *l = arg;
	struct fake_client k = { .sock = accept(l->listener, NULL, NULL) };
	uint8_t question[1024];
	int fds[5] = { 0, 0, 0, 0, 0 };

	if (recv(k.sock, question, sizeof(question), 0) > 0 && l->count > 0) {
		char control[CMSG_SPACE(sizeof(fds))] = { 0 };
		struct iovec iov = { l->bytes, l->count };
		struct msghdr h = { .msg_iov = &iov, .msg_iovlen = 1 };

		if (l->fds > 0) {
			h.msg_control = control;
			h.msg_controllen = CMSG_SPACE(l->fds * sizeof(int));
			*CMSG_FIRSTHDR(&h) = (struct cmsghdr){
				.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS,
				.cmsg_len = CMSG_LEN(l->fds * sizeof(int)) };
			memcpy(CMSG_DATA(CMSG_FIRSTHDR(&h)), fds, l->fds * sizeof(int));
		}
		if (sendmsg(k.sock, &h, MSG_NOSIGNAL) < 0)
			print_message("sendmsg: %s\n", strerror(errno));
	}
	close(k.sock);
	return NULL;
}

static int connect_to_liar(struct liar *l)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	struct tier_connect_options o = { .size = sizeof(o), .socket = l->path };
	tier *t = NULL;
	int rc;

	snprintf(l->path, sizeof(l->path), "%s/liar-%d.sock",
		 getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", getpid());
	memcpy(a.sun_path, l->path, sizeof(a.sun_path));
	unlink(l->path);
	l->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(l->listener, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(l->listener, 1), 0);
	assert_int_equal(pthread_create(&l->thread, NULL, liar_loop, l), 0);
	rc = tier_connect(&t, &o);
	pthread_join(l->thread, NULL);
	close(l->listener);
	unlink(l->path);
	assert_null(t);
	return rc;
}

static void test_welcomes_that_are_none(void **state)
{
	struct wire_welcome good = { .header = { .magic = WIRE_MAGIC, .version = ABI_VERSION,
						 .type = WIRE_WELCOME, .length = sizeof(good),
						 .seq = 1 },
				     .boot_token = 1, .staging_bytes = 4096 };
	struct wire_error error = { .header = { .magic = WIRE_MAGIC, .version = ABI_VERSION,
						.type = WIRE_ERROR, .length = sizeof(error),
						.seq = 1 },
				    .error = -EUSERS, .text = "too many" };
	struct liar l = { .count = 0 };

	(void)state;
	assert_int_equal(connect_to_liar(&l), -ENOTCONN);
#define ANSWER(message, size)                                                                      \
	do {                                                                                       \
		memcpy(l.bytes, &(message), sizeof(message));                                      \
		l.count = (size);                                                                  \
	} while (0)
	ANSWER(good, 8);
	assert_int_equal(connect_to_liar(&l), -EPROTO);
	ANSWER(good, sizeof(good));
	assert_int_equal(connect_to_liar(&l), -EPROTO); /* no descriptors */
	l.fds = 4;
	assert_int_equal(connect_to_liar(&l), -EPROTO); /* not those of memory */
	l.fds = 5;
	assert_int_equal(connect_to_liar(&l), -EPROTO);
	l.fds = 0;
	good.header.version = 9;
	ANSWER(good, sizeof(good));
	assert_int_equal(connect_to_liar(&l), -EPROTO);
	assert_non_null(strstr(tier_error_text(), "version 9"));
	good.header.version = ABI_VERSION;
	good.header.type = WIRE_TEXT;
	ANSWER(good, sizeof(good));
	assert_int_equal(connect_to_liar(&l), -EPROTO);
	ANSWER(error, sizeof(error));
	assert_int_equal(connect_to_liar(&l), -EUSERS);
	assert_string_equal(tier_error_text(), "too many");
	error.error = 5;
	memset(error.text, 'x', sizeof(error.text));
	ANSWER(error, sizeof(error));
	assert_int_equal(connect_to_liar(&l), -EPROTO);
	error.error = -EUSERS;
	ANSWER(error, sizeof(error));
	assert_int_equal(connect_to_liar(&l), -EUSERS);
	ANSWER(error, sizeof(error) - 1);
	assert_int_equal(connect_to_liar(&l), -EPROTO);
	/* Shorter than its kind, or other than it says itself. */
	error.header.length = sizeof(error) - 1;
	ANSWER(error, sizeof(error) - 1);
	assert_int_equal(connect_to_liar(&l), -EPROTO);
	ANSWER(error, sizeof(error));
	assert_int_equal(connect_to_liar(&l), -EPROTO);
#undef ANSWER
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)
	const struct CMUnitTest tests[] = {
		T(test_index_headers_that_do_not_fit),
		cmocka_unit_test(test_region_headers_that_do_not_fit),
		T(test_a_ring_that_jumps_ends_the_connection),
		T(test_a_head_that_jumps_ends_the_connection),
		T(test_less_memory_than_announced),
		T(test_a_region_of_another_boot),
		T(test_answers_to_older_questions),
		T(test_answers_to_nothing_are_passed_over),
		T(test_an_index_of_random_bytes),
		T(test_slots_and_addresses_outside),
		cmocka_unit_test(test_welcomes_that_are_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
