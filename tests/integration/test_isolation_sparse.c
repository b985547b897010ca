/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Geometries of many pages a block, of which blocks have few: the most that one user can make the
 * daemon hold beside the tiers. Addresses, descriptors that are only announced, descriptors that a
 * reader touches; each is in an account, and the daemon's own memory stays below what `tierctl
 * status` says that all accounts allow.
 */
#include "tests/integration/isolation.h"

#define WIDE_PAGES 65536u
#define MANY 90u

/* ---- wide contexts --------------------------------------------------------------------------- */

/* A block has one page that it must have, and 65,535 that it may have. */
static int create_wide(tier *t, const char *name, uint64_t blocks_max, uint32_t align,
		       tier_context **out)
{
	const struct tier_part parts[] = {
		{ .name = "one", .kind = TIER_KIND_STATE, .layers = 1, .groups = 1,
		  .page_bytes = 512 },
		{ .name = "rest", .kind = TIER_KIND_STATE, .hit_rule = TIER_HIT_LAST,
		  .hit_arg = 1, .layers = WIDE_PAGES - 1, .groups = 1, .page_bytes = 512 },
	};
	const struct tier_geometry_options g = { .size = sizeof(g), .page_align = align,
						 .part_count = 2, .part = parts };
	struct tier_context_options o = { .size = sizeof(o), .blocks_max = blocks_max };
	tier_geometry *geometry;
	int rc;

	o.quota[TIER_HBM] = o.quota[TIER_NVME] = TIER_QUOTA_NONE;
	CHECK(tier_geometry_new(&geometry, &g) == 0);
	rc = tier_context_create(t, name, geometry, &o, out);
	tier_geometry_free(geometry);
	return rc;
}

/* Two blocks of all its pages must fit: 512 bytes each. */
static const char *const settings[] = { "clients.max=64", "hbm.size=8MiB", "user.contexts=100",
					"cxl.size=96MiB", "put.deadline=600s", "index.size=64MiB",
					"client.puts=16", "nvme.size=256MiB", NULL };

static int setup(void **state)
{
	return isolation_begin(state, settings);
}

/* Until the daemon's own memory is no more than that. */
static uint64_t own_memory_falls(const struct daemon *d, uint64_t to)
{
	uint64_t own = own_memory(d->pid);

	for (uint32_t i = 0; i < PATIENCE_MS / 100 && own > to; i++) {
		usleep(100000);
		own = own_memory(d->pid);
	}
	return own;
}

/* ---- addresses ------------------------------------------------------------------------------- */

static void by_addresses(struct isolation *w)
{
	tier *t = connect_to(&w->d);
	tier_context *c;
	char name[16];
	uint32_t got = 0;
	int rc = 0;

	while (got < MANY && rc == 0) {
		snprintf(name, sizeof(name), "wide-%u", got);
		rc = create_wide(t, name, 1000000, 512, &c);
		got += rc == 0;
		if (rc == 0)
			tier_context_close(c);
	}
	printf("# %u contexts of 1,000,000 blocks of %u pages: %s\n", got, WIDE_PAGES,
	       rc ? tier_error_text() : "all");
	CHECK(rc == 0);
	tier_close(t);
}

static void another_creates(struct isolation *w)
{
	tier *t = connect_to(&w->d);

	tier_context_close(create_as(t, "beside", 0600));
	CHECK(tier_context_remove(t, "beside") == 0);
	tier_close(t);
}

/* From the first one on, until there is none of that number. Returns how many there were. */
static uint32_t remove_all(struct isolation *w, const char *kind)
{
	tier *t = connect_to(&w->d);
	char name[16];
	uint32_t i = 0;
	int rc;

	do {
		snprintf(name, sizeof(name), "%s-%u", kind, i);
		rc = tier_context_remove(t, name);
		i += rc == 0;
	} while (rc == 0);
	CHECK(rc == -ENOENT);
	tier_close(t);
	return i;
}

static void removes_wide(struct isolation *w)
{
	CHECK(remove_all(w, "wide") == MANY);
}

static void test_addresses(void **state)
{
	struct isolation *w = isolation_of(state);

	if (!w)
		return;
	attack(w, "contexts with indexes of terabytes", by_addresses);
	attack_as(w, UID_READER, UID_READER, "a context beside these", another_creates);
	attack(w, "their removal", removes_wide);
}

/* ---- descriptors ----------------------------------------------------------------------------- */

/* Reserve so many keys from `first` on, all parts; the answer. */
static struct abi_cqe reserve(struct client *c, uint32_t context, uint32_t first, uint32_t count)
{
	struct abi_put_args *args = (struct abi_put_args *)c->staging;
	struct abi_sqe sqe = { .op = ABI_OP_PUT_RESERVE, .context_id = context, .count = count,
			       .arg_bytes = (uint32_t)(sizeof(*args) + count * sizeof(tier_key)) };
	struct abi_cqe cqe;

	*args = (struct abi_put_args){ .count = count };
	for (uint32_t i = 0; i < count; i++) {
		tier_key key = secret_key(first + i);

		memcpy(c->staging + sizeof(*args) + i * sizeof(key), &key, sizeof(key));
	}
	CHECK(client_push(c, &sqe) && client_pop(c, &cqe, PATIENCE_MS));
	return cqe;
}

static void by_descriptors(struct isolation *w)
{
	tier *t = connect_to(&w->d);
	struct client c;
	tier_context *own;
	union answer a;
	uint64_t worst = 0;
	uint32_t put = 0;

	CHECK(create_wide(t, "announced", 1000000, 512, &own) == 0);
	CHECK(client_open(&c, &w->d) == 0);
	CHECK(ask_context(&c, WIRE_CTX_OPEN, "announced", &a) == 0);
	for (uint32_t round = 0; round < 4; round++) {
		struct abi_cqe cqe = reserve(&c, a.info.context_id, round * 1000, 1000);

		CHECK(cqe.res == -ENOSPC);
	}
	/* Fewer at a time, until the account is full; each is let go at once. */
	for (uint32_t round = 0; round < 64; round++) {
		struct abi_cqe cqe = reserve(&c, a.info.context_id, 100000 + round * 8, 8);
		struct abi_sqe abort_it = { .op = ABI_OP_PUT_ABORT, .handle = cqe.value };
		uint64_t begun = time_now_ns();

		CHECK(cqe.res == 0);
		put++;
		CHECK(client_push(&c, &abort_it) && client_pop(&c, &cqe, PATIENCE_MS));
		CHECK(cqe.res == 0);
		worst = time_now_ns() - begun > worst ? time_now_ns() - begun : worst;
	}
	printf("# 4 x 1,000 keys refused; %u x 8 begun and let go, the slowest in %.2f ms\n", put,
	       (double)worst / 1e6);
	tier_close(t);
}

static void test_descriptors(void **state)
{
	struct isolation *w = isolation_of(state);
	uint64_t before, after;

	if (!w)
		return;
	before = own_memory(w->d.pid);
	attack(w, "descriptors announced, none used", by_descriptors);
	after = own_memory_falls(&w->d, before + 16 * MIB);
	printf("# the daemon's own memory: %llu, then %llu MiB\n",
	       (unsigned long long)(before / MIB), (unsigned long long)(after / MIB));
	assert_true(after < before + 16 * MIB);
}

#define SINGLES 1000u

static void single_keys(tier_key key[SINGLES])
{
	for (uint32_t i = 0; i < SINGLES; i++)
		key[i] = secret_key(500000 + i);
}

/* Blocks of one page of 65,536. */
static void by_singles(struct isolation *w)
{
	struct tier_put_options o = { .size = sizeof(o), .parts = 1 };
	tier *t = connect_to(&w->d);
	static uint8_t page[SINGLES * 512];
	static tier_key key[SINGLES];
	tier_context *own;

	CHECK(create_wide(t, "singles", 1000000, 512, &own) == 0);
	single_keys(key);
	memset(page, 0x5a, sizeof(page));
	CHECK(tier_put_copy(own, key, SINGLES, page, &o) == SINGLES);
	tier_close(t);
}

#define TOUCHED (64 * MIB)

/* The descriptors beside these pages are read: holes of the index. */
static void by_touching(struct isolation *w)
{
	tier *t = connect_to(&w->d);
	static tier_key key[SINGLES];
	struct tier_lease lease;
	const uint8_t *index;
	tier_reader *r;
	uint64_t sum = 0;
	tier_context *own;
	struct client c;
	union answer a;

	CHECK(client_open(&c, &w->d) == 0);
	CHECK(ask_context(&c, WIRE_CTX_OPEN, "singles", &a) == 0);
	index = mmap(NULL, a.info.index_bytes, PROT_READ, MAP_SHARED, c.fd[0], 0);
	CHECK(index != MAP_FAILED);
	for (uint64_t at = ((const struct abi_index_header *)index)->desc_offset, n = 0;
	     n < TOUCHED; n += 4096)
		sum += *(volatile const uint8_t *)(index + at + n);
	CHECK(tier_context_open(t, "singles", NULL, &own) == 0);
	single_keys(key);
	CHECK(tier_reader_open(t, &r) == 0);
	for (uint32_t i = 0; i < SINGLES; i++) { /* what was there stays */
		CHECK(tier_lease_key(r, own, &key[i], 0, 0, &lease) == 0);
		CHECK(*(const uint8_t *)lease.data == 0x5a);
		tier_release(r, &lease);
	}
	tier_close(t);
	CHECK(sum != 1);
}

static void removes_singles(struct isolation *w)
{
	tier *t = connect_to(&w->d);

	CHECK(tier_context_remove(t, "singles") == 0);
	CHECK(tier_context_remove(t, "announced") == 0);
	tier_close(t);
}

static void test_singles(void **state)
{
	struct isolation *w = isolation_of(state);
	uint64_t before, after, touched;

	if (!w)
		return;
	before = own_memory(w->d.pid);
	attack(w, "blocks of one page of 65,536", by_singles);
	after = own_memory_falls(&w->d, before + 16 * MIB);
	attack(w, "holes beside these pages touched", by_touching);
	touched = own_memory_falls(&w->d, after + 4 * MIB);
	printf("# %u of them took %llu KiB; %llu MiB of their holes were touched, %llu KiB are "
	       "left of that\n", SINGLES, (unsigned long long)((after - before) >> 10),
	       (unsigned long long)(TOUCHED / MIB),
	       (unsigned long long)((touched > after ? touched - after : 0) >> 10));
	assert_true(after <= before + 16 * MIB);
	assert_true(touched <= after + 4 * MIB);
	attack(w, "their removal", removes_singles);
}

/* ---- lanes ----------------------------------------------------------------------------------- */

#define SALTED 60u
#define SALTS 8u

/*
 * A block for each of eight salts in each of many contexts, all of them open at once: each is to
 * have an order of leaving of its own in either tier, until the account of their owner is full.
 */
static void by_salts(struct isolation *w)
{
	uint32_t begun = 0, refused = 0;
	tier *t = connect_to(&w->d);
	tier_context *c;
	char name[16];
	int rc = 0;

	for (uint32_t i = 0; i < SALTED && rc == 0; i++) {
		tier_geometry *g;

		snprintf(name, sizeof(name), "salted-%u", i);
		CHECK(tier_geometry_preset(&g, "tiny") == 0);
		rc = tier_context_create(t, name, g, NULL, &c);
		tier_geometry_free(g);
		for (uint32_t salt = 1; salt <= SALTS && rc == 0; salt++) {
			struct tier_put_options o = { .size = sizeof(o), .salt = salt };
			static const uint8_t data[ATTACKED_BYTES];
			tier_key key = secret_key(700000 + salt);
			int64_t put = tier_put_copy(c, &key, 1, data, &o);

			begun += put == 1;
			refused += put == -ENOSPC && strstr(tier_error_text(), "index.size");
			CHECK(put == 1 || strstr(tier_error_text(), "index.size"));
		}
	}
	CHECK(rc == 0 || (rc == -EDQUOT && strstr(tier_error_text(), "index.size")));
	printf("# %u blocks of salts put, %u refused, then %s\n", begun, refused,
	       rc ? tier_error_text() : "no context");
	fflush(stdout);
	CHECK(begun > SALTS && (refused || rc));
	tier_close(t);
}

static void removes_salted(struct isolation *w)
{
	CHECK(remove_all(w, "salted") > 0);
}

static void test_salts(void **state)
{
	struct isolation *w = isolation_of(state);

	if (!w)
		return;
	attack(w, "a lane for each salt of many contexts", by_salts);
	attack_as(w, UID_READER, UID_READER, "another's context beside these", another_creates);
	attack(w, "their end", removes_salted);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_addresses),
		cmocka_unit_test(test_descriptors),
		cmocka_unit_test(test_singles),
		cmocka_unit_test(test_salts),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("isolation, sparse", tests, setup, isolation_teardown);
}
