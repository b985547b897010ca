/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attacks that are few entries and much work: a geometry whose blocks have 32,000 pages, of which
 * one is there, and lists that name a block thousands of times. What one event of the core looks at
 * has a bound, the rest goes on a share in each turn, so the victim notices nothing; and it ends
 * with who asked for it, so the daemon does as soon as it is told to.
 */
#include "tests/integration/isolation.h"
#include "tests/integration/tierctl_json.h"

#define LAYERS 9u
#define GROUPS 3555u
#define BLOCKS 64u
#define REFS 8000u /* of one entry */
#define NOTICED_NS (3 * NS_PER_S) /* an event of these took 10 s; a loaded machine takes some */

static void make_wide(struct isolation *w)
{
	const struct tier_part part[2] = {
		{ .name = "one", .kind = TIER_KIND_INDEX, .layers = 1, .groups = 1,
		  .page_bytes = 512 },
		{ .name = "many", .kind = TIER_KIND_STATE, .hit_rule = TIER_HIT_LAST,
		  .hit_arg = 1, .layers = LAYERS, .groups = GROUPS, .page_bytes = 512 },
	};
	const struct tier_geometry_options g = { .size = sizeof(g), .page_align = 512,
						 .part_count = 2, .part = part };
	const struct tier_context_options o = {
		.size = sizeof(o), .mode = 0600, .blocks_max = BLOCKS,
		.quota = { TIER_QUOTA_NONE, 0, TIER_QUOTA_NONE },
	};
	tier *t = connect_to(&w->d);
	tier_geometry *geometry;
	tier_context *c;
	int rc;

	CHECK(tier_geometry_new(&geometry, &g) == 0);
	rc = tier_context_create(t, "wide", geometry, &o, &c);
	if (rc)
		fprintf(stderr, "%s\n", tier_error_text());
	CHECK(rc == 0);
	tier_close(t);
	tier_geometry_free(geometry);
}

static uint32_t open_wide(struct client *c, struct isolation *w)
{
	union answer a;

	CHECK(client_open(c, &w->d) == 0);
	CHECK(ask_context(c, WIRE_CTX_OPEN, "wide", &a) == 0);
	for (int i = 0; i < c->fds; i++)
		close(c->fd[i]);
	return a.info.context_id;
}

static struct abi_cqe ask(struct client *c, struct abi_sqe sqe)
{
	struct abi_cqe cqe;

	CHECK(client_push(c, &sqe));
	CHECK(client_pop(c, &cqe, PATIENCE_MS));
	return cqe;
}

static int reserve(struct client *c, uint32_t context, uint64_t parts, uint32_t first,
		   uint64_t *handle)
{
	const struct abi_put_args args = { .count = BLOCKS / 2, .parts = parts };
	struct abi_cqe cqe;

	memcpy(c->staging, &args, sizeof(args));
	for (uint32_t i = 0; i < args.count; i++) {
		tier_key key = secret_key(first + i);

		memcpy(c->staging + sizeof(args) + i * sizeof(key), &key, sizeof(key));
	}
	cqe = ask(c, (struct abi_sqe){ .op = ABI_OP_PUT_RESERVE, .context_id = context,
				       .count = args.count,
				       .arg_bytes = sizeof(args) + args.count * ABI_KEY_BYTES });
	*handle = cqe.value;
	return cqe.res;
}

/* The one page of each block. */
static void put_ones(struct client *c, uint32_t context)
{
	struct abi_cqe cqe;
	uint64_t handle;

	CHECK(reserve(c, context, 1, 50000, &handle) == 0);
	cqe = ask(c, (struct abi_sqe){ .op = ABI_OP_PUT_COMMIT, .handle = handle });
	CHECK(cqe.res == 0 && cqe.value == BLOCKS / 2);
}

/* A list that names block 0 so often, of the store's first life. */
static void name_block(struct client *c, size_t at)
{
	struct abi_block_ref *ref = (struct abi_block_ref *)(void *)(c->staging + at);

	for (uint32_t i = 0; i < REFS; i++)
		ref[i] = (struct abi_block_ref){ 0, 1 };
}

static const struct abi_sqe often = { .tier = ABI_TIER_CXL, .count = REFS,
				      .arg_bytes = REFS * sizeof(struct abi_block_ref) };

static void by_fetches(struct isolation *w)
{
	struct abi_sqe sqe = often;
	struct client c;

	make_wide(w);
	sqe.op = ABI_OP_FETCH;
	sqe.context_id = open_wide(&c, w);
	put_ones(&c, sqe.context_id);
	name_block(&c, 0);
	for (uint32_t i = 0; i < 8; i++)
		CHECK(client_push(&c, &sqe));
	usleep(500000);
	/* And it goes, with all of them. */
}

static void by_conversations(struct isolation *w)
{
	struct abi_sqe sqe = often;
	struct client c;

	sqe.op = ABI_OP_CONVERSATION;
	sqe.mode = ABI_CONVERSATION_TURN_END;
	sqe.arg_bytes += sizeof(struct abi_conversation_args);
	sqe.context_id = open_wide(&c, w);
	memset(c.staging, 0, sizeof(struct abi_conversation_args));
	name_block(&c, sizeof(struct abi_conversation_args));
	for (sqe.handle = 1; sqe.handle <= 12; sqe.handle++)
		CHECK(ask(&c, sqe).value == REFS);
	sqe.mode = ABI_CONVERSATION_RETURN;
	sqe.count = sqe.arg_bytes = 0;
	for (sqe.handle = 1; sqe.handle <= 12; sqe.handle++)
		CHECK(client_push(&c, &sqe));
	usleep(300000);
}

/* Others announced pages of all blocks: each commit looks whether they have begun. */
static void by_puts(struct isolation *w)
{
	struct client c;
	uint64_t all, handle;
	uint32_t context = open_wide(&c, w);
	struct abi_cqe cqe;

	for (uint32_t i = 0; i < 4; i++) {
		CHECK(reserve(&c, context, 0, 60000, &all) == 0);
		CHECK(reserve(&c, context, 1, 60000, &handle) == 0);
		CHECK(client_push(&c, &(struct abi_sqe){ .op = ABI_OP_PUT_COMMIT,
							 .handle = handle }));
		CHECK(client_push(&c, &(struct abi_sqe){ .op = ABI_OP_PUT_ABORT,
							 .handle = all }));
		CHECK(client_pop(&c, &cqe, PATIENCE_MS) && client_pop(&c, &cqe, PATIENCE_MS));
	}
}

static void by_pins(struct isolation *w)
{
	struct abi_sqe sqe = often;
	struct client c;

	sqe.op = ABI_OP_PIN;
	sqe.context_id = open_wide(&c, w);
	name_block(&c, 0);
	for (uint32_t i = 0; i < 32; i++)
		CHECK(client_push(&c, &sqe));
	usleep(300000);
}

/* ---- leases ---------------------------------------------------------------------------------- */

#define READERS 20u
#define SLOTS 1024u /* leases of a reader */

/* A block of SLOTS pages for each reader, all leased, and then deleted: a fifth of the tier. */
static void by_leases(struct isolation *w)
{
	const struct tier_part part = { .name = "small", .kind = TIER_KIND_INDEX, .layers = 1,
					.groups = SLOTS, .page_bytes = 512 };
	const struct tier_geometry_options g = { .size = sizeof(g), .page_align = 512,
						 .part_count = 1, .part = &part };
	const struct tier_context_options o = {
		.size = sizeof(o), .blocks_max = 1000,
		.quota = { TIER_QUOTA_NONE, 0, TIER_QUOTA_NONE },
	};
	const struct tier_connect_options connect = { .size = sizeof(connect),
						      .socket = w->d.socket,
						      .staging_bytes = 4u << 20,
						      .readers = READERS };
	static uint8_t data[SLOTS * 512];
	static struct tier_lease lease;
	tier_geometry *geometry;
	tier_context *c;
	tier_reader *r;
	tier *t;

	CHECK(tier_connect(&t, &connect) == 0);
	CHECK(tier_geometry_new(&geometry, &g) == 0);
	CHECK(tier_context_create(t, "small", geometry, &o, &c) == 0);
	for (uint32_t n = 0; n < READERS; n++) {
		tier_key key = secret_key(70000 + n);

		CHECK(tier_put_copy(c, &key, 1, data, NULL) == 1);
		CHECK(tier_reader_open(t, &r) == 0);
		for (uint32_t i = 0; i < SLOTS; i++)
			CHECK(tier_lease_key(r, c, &key, i, 0, &lease) == 0);
	}
	for (uint32_t n = 0; n < READERS; n++) {
		tier_key key = secret_key(70000 + n);

		CHECK(tier_delete(c, &key, 1) == 1);
	}
	sleep(2); /* and all of it is held */
}

/* ---- what the daemon says of it -------------------------------------------------------------- */

static void attacked(void **state, const char *name, void (*body)(struct isolation *w))
{
	struct isolation *w = isolation_of(state);
	uint64_t most;

	if (!w)
		return;
	attack(w, name, body);
	assert_true(w->board->slowest_ns < NOTICED_NS);
	most = tierctl_number(&w->d, "stat event_items_most", "metrics.0.value");
	printf("# the longest event looked at %llu items\n", (unsigned long long)most);
	assert_in_range(most, 1, 4096);
}

static void test_fetches(void **state)
{
	attacked(state, "a block asked for 64,000 times", by_fetches);
}

static void test_conversations(void **state)
{
	attacked(state, "users of 12 conversations are back, and go", by_conversations);
}

static void test_puts(void **state)
{
	attacked(state, "puts beside announced pages", by_puts);
}

static void test_pins(void **state)
{
	attacked(state, "a block pinned 256,000 times", by_pins);
}

static void test_leases(void **state)
{
	attacked(state, "20,480 leases of pages that were deleted", by_leases);
}

static int setup(void **state)
{
	/* Bytes are not the limit of leases. */
	static const char *const settings[] = { "clients.max=64", "hbm.size=8MiB",
						"user.contexts=6", "cxl.size=48MiB",
						"put.deadline=600s", "client.pins=64",
						"client.puts=16", "quarantine.percent=50", NULL };

	return isolation_begin(state, settings);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fetches),
		cmocka_unit_test(test_conversations),
		cmocka_unit_test(test_puts),
		cmocka_unit_test(test_pins),
		cmocka_unit_test(test_leases),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("isolation, bounds", tests, setup, isolation_teardown);
}
