/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attacks through what a client may write: its ring entries, its hazard words, its staging. It
 * guesses ids of contexts, blocks, puts, pins and requests, knows some of them, and scribbles over
 * all of its memory while requests run.
 */
#include "tests/integration/isolation.h"

#define GUESSES 4096u
#define CORE_PINS 65536u /* pins and puts count from the same random start */

static uint64_t next_random(uint64_t *x)
{
	*x ^= *x << 13;
	*x ^= *x >> 7;
	*x ^= *x << 17;
	return *x * 0x2545f4914f6cdd1dull;
}

/* One entry there and back. */
static struct abi_cqe ask(struct client *c, struct abi_sqe sqe)
{
	struct abi_cqe cqe;

	sqe.user_data = 4711;
	CHECK(client_push(c, &sqe));
	CHECK(client_pop(c, &cqe, PATIENCE_MS));
	CHECK(cqe.user_data == 4711);
	return cqe;
}

/* ---- guesses --------------------------------------------------------------------------------- */

static uint32_t open_shared(struct client *c)
{
	union answer a;

	CHECK(ask_context(c, WIRE_CTX_OPEN, "shared", &a) == 0);
	for (int i = 0; i < c->fds; i++)
		close(c->fd[i]);
	return a.info.context_id;
}

/* Every operation on a context that was not opened: as if it were not there. */
static void at_context(struct client *c, uint32_t id, tier_block block)
{
	static const uint8_t ops[] = { ABI_OP_PUT_RESERVE, ABI_OP_FETCH, ABI_OP_FETCH_PAGES,
				       ABI_OP_PIN, ABI_OP_DELETE };
	struct abi_put_args args = { .count = 1 };

	memcpy(c->staging, &args, sizeof(args));
	for (size_t i = 0; i < COUNT(ops); i++) {
		struct abi_sqe sqe = { .op = ops[i], .klass = ABI_CLASS_DEMAND, .context_id = id,
				       .count = 1, .tier = ABI_TIER_CXL };
		tier_key key = secret_key(0);
		struct abi_cqe cqe;

		sqe.arg_bytes = ops[i] == ABI_OP_PUT_RESERVE ? sizeof(args) + ABI_KEY_BYTES :
				ops[i] == ABI_OP_FETCH_PAGES ? sizeof(struct abi_page_ref) :
				ops[i] == ABI_OP_DELETE      ? ABI_KEY_BYTES :
							       sizeof(struct abi_block_ref);
		sqe.arg_offset = ops[i] == ABI_OP_PUT_RESERVE ? 0 : 4096;
		sqe.flags = ops[i] == ABI_OP_DELETE ? ABI_SQE_KEYS : 0;
		memcpy(c->staging + sizeof(args), &key, sizeof(key));
		memset(c->staging + 4096, 0, 64);
		if (ops[i] == ABI_OP_DELETE)
			memcpy(c->staging + 4096, &key, sizeof(key));
		else
			memcpy(c->staging + 4096, &block, sizeof(block));
		cqe = ask(c, sqe);
		if (cqe.res != -ENOENT)
			fprintf(stderr, "op %u: %d\n", ops[i], cqe.res);
		CHECK(cqe.res == -ENOENT && cqe.value == 0 && cqe.aux == 0);
	}
}

static void by_context(struct isolation *w)
{
	struct client c;
	uint32_t mine;

	CHECK(client_open(&c, &w->d) == 0);
	mine = open_shared(&c);
	for (uint32_t index = 0; index < 6; index++)
		for (uint32_t generation = 0; generation < 12; generation++)
			if ((generation << 16 | index) != mine)
				at_context(&c, generation << 16 | index, w->board->block);
	at_context(&c, UINT32_MAX, w->board->block);
	CHECK(client_nop(&c));
	client_close(&c);
}

static void test_contexts_are_guessed(void **state)
{
	struct isolation *w = isolation_of(state);

	if (w)
		attack(w, "guessed context ids", by_context);
}

/* Handles of the victim: its pin is known exactly, puts and requests are guessed. */
static void by_handle(struct isolation *w)
{
	struct client c;
	uint32_t mine;

	CHECK(client_open(&c, &w->d) == 0);
	mine = open_shared(&c);
	for (uint32_t index = 0; index < 6; index++) {
		uint32_t id = index == (mine & 0xffff) ? mine : 1u << 16 | index;

		CHECK(ask(&c, (struct abi_sqe){ .op = ABI_OP_UNPIN, .context_id = id,
						.handle = w->board->pin }).res == -ENOENT);
	}
	/* Handles of puts are a count from a random start, so near ones are good guesses. */
	for (uint32_t i = 0; i < GUESSES; i++) {
		uint64_t handle = w->board->pin / CORE_PINS * 1024 + i;

		CHECK(ask(&c, (struct abi_sqe){ .op = ABI_OP_PUT_ABORT, .context_id = mine,
						.handle = handle }).res == -ENOENT);
		CHECK(ask(&c, (struct abi_sqe){ .op = ABI_OP_PUT_COMMIT, .context_id = mine,
						.handle = handle }).res == -ENOENT);
		CHECK(ask(&c, (struct abi_sqe){ .op = ABI_OP_CANCEL, .handle = i }).res ==
		      -ENOENT);
	}
	CHECK(client_nop(&c));
	client_close(&c);
}

static void test_handles_are_guessed(void **state)
{
	struct isolation *w = isolation_of(state);

	if (w)
		attack(w, "guessed pins, puts, requests", by_handle);
}

/* Blocks of a context that may only be read: slots and generations that are not there. */
static void by_block(struct isolation *w)
{
	uint64_t random = 99;
	struct client c;
	uint32_t mine;

	CHECK(client_open(&c, &w->d) == 0);
	mine = open_shared(&c);
	for (uint32_t i = 0; i < GUESSES; i++) {
		uint64_t r = next_random(&random);
		struct abi_block_ref ref = { (uint32_t)r % (i % 2 ? 1u << 31 : 512u),
					     (uint32_t)(r >> 32) % (i % 3 ? 1u << 31 : 8u) };
		struct abi_sqe sqe = { .op = i % 4 == 3 ? ABI_OP_PIN : ABI_OP_FETCH,
				       .klass = ABI_CLASS_DEMAND, .context_id = mine, .count = 1,
				       .tier = ABI_TIER_CXL, .arg_bytes = sizeof(ref),
				       .deadline_ns = time_now_ns() + 20 * NS_PER_MS };
		struct abi_cqe cqe;

		memcpy(c.staging, &ref, sizeof(ref));
		cqe = ask(&c, sqe);
		CHECK(cqe.res == 0 || cqe.res == -ESTALE || cqe.res == -EINVAL ||
		      cqe.res == -EDQUOT);
	}
	CHECK(client_nop(&c));
	client_close(&c);
}

static void test_blocks_are_guessed(void **state)
{
	struct isolation *w = isolation_of(state);

	if (w)
		attack(w, "guessed slots and generations", by_block);
}

/* ---- scribbles ------------------------------------------------------------------------------- */

/* Random words over all that is ours to write, while entries of all kinds are taken from it. */
static void scribble(struct client *c, size_t region_bytes, uint64_t *random)
{
	uint64_t *region = (uint64_t *)c->region, *staging = (uint64_t *)c->staging;
	size_t words = region_bytes / 8, arena = c->welcome.staging_bytes / 8;
	uint64_t one = 1;

	for (uint32_t i = 0; i < 4096; i++) {
		uint64_t r = next_random(random);

		if (r % 4 == 0)
			atomic_store_relaxed_u64(&region[r / 4 % words], next_random(random));
		else
			atomic_store_relaxed_u64(&staging[r / 4 % arena], r);
		if (i % 512 == 0 && write(c->doorbell, &one, sizeof(one)) < 0)
			return;
	}
}

/* Entries that are nearly right, so that they come far. */
static void push_some(struct client *c, uint32_t context, uint64_t *random)
{
	for (uint32_t i = 0; i < 32; i++) {
		uint64_t r = next_random(random);
		struct abi_sqe sqe = { .op = (uint8_t)(r % 12), .klass = (uint8_t)(r >> 8 & 3),
				       .context_id = context, .count = (uint32_t)(r >> 16 & 15),
				       .tier = (uint8_t)(r >> 24 & 1),
				       .arg_offset = r >> 32 & 0xffff8,
				       .arg_bytes = (uint32_t)(r >> 16 & 15) * 8,
				       .handle = next_random(random) };

		c->sq[c->sq_tail & 63] = sqe;
		c->sq_tail++;
		atomic_store_release_u32(&c->region->sq_tail, c->sq_tail);
	}
}

#define SCRIBBLE_NS (1500 * NS_PER_MS)
#define SCRIBBLED 9u /* connections at least, and more while there is time */

static void by_scribble(struct isolation *w)
{
	uint64_t end = time_now_ns() + SCRIBBLE_NS, random = 4242;
	uint32_t connections = 0, mine;

	while (time_now_ns() < end || connections < SCRIBBLED) {
		struct client c;
		struct stat st;
		int rc = client_open(&c, &w->d);

		CHECK(rc == 0 || rc == -EUSERS); /* connections last until this process is dead */
		if (rc)
			break;
		connections++;
		CHECK(fstat(c.region_fd, &st) == 0);
		mine = open_shared(&c);
		for (uint32_t i = 0; i < 8 && !atomic_load_relaxed_u32(&c.region->closed); i++) {
			push_some(&c, mine, &random);
			scribble(&c, (size_t)st.st_size, &random);
		}
	}
	printf("# %u connections scribbled over\n", connections);
	fflush(stdout);
	CHECK(connections >= SCRIBBLED);
}

static void test_scribbles(void **state)
{
	struct isolation *w = isolation_of(state);

	if (w)
		attack(w, "scribbles over region and staging", by_scribble);
}

/* Hazard words that name every place of every context: they protect nothing that was not opened. */
static void by_hazard(struct isolation *w)
{
	struct abi_reader *r;
	struct client c;

	CHECK(client_open(&c, &w->d) == 0);
	r = (void *)((uint8_t *)c.region + c.region->reader_offset);
	for (uint32_t pass = 0; pass < 40; pass++) {
		for (uint32_t i = 0; i < ABI_HAZARD_SLOTS; i++)
			atomic_store_relaxed_u64(&r->slot[i],
						 abi_place(pass % 4, ABI_TIER_CXL,
							   (uint64_t)(pass * 1024 + i) * 8));
		atomic_store_release_u32(&r->high_water, UINT32_MAX);
		atomic_store_release_u32(&r->owned, 1);
		usleep(5000);
	}
	close(c.sock);
}

static void test_hazard_words(void **state)
{
	struct isolation *w = isolation_of(state);

	if (w)
		attack(w, "hazard words of contexts that are not open", by_hazard);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_contexts_are_guessed),
		cmocka_unit_test(test_handles_are_guessed),
		cmocka_unit_test(test_blocks_are_guessed),
		cmocka_unit_test(test_hazard_words),
		cmocka_unit_test(test_scribbles),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("isolation, rings", tests, isolation_setup,
					   isolation_teardown);
}
