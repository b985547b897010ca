/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A victim under its own uid reads, puts durably and connects beside each attack; what it waited is
 * printed beside the same with a plain busy loop in the attacker's place. Told and not judged are
 * times, for others use the machine; judged are counts: no byte is wrong, nothing is refused, no
 * event is long, the daemon's own memory is below what its accounts allow, it ends when it is told
 * to, starts again with all that was promised, and `tierctl check` agrees.
 *
 * TIER_ISOLATION_MS: of each attack (make isolation), 250 in make test.
 * TIER_ISOLATION_ONLY: beside those attacks only that have it in their name.
 */
#include <sys/syscall.h>
#include <sys/uio.h>

#include "tests/integration/beside.h"

static const char *const settings[] = { "clients.max=64", "hbm.size=8MiB", "user.contexts=8",
					"cxl.size=64MiB", "nvme.size=256MiB", "index.size=64MiB",
					"put.deadline=600s", "client.pins=64",
					"client.puts=16", NULL };

#define BIND 2	     /* MPOL_BIND */
#define PIPES 56u /* of 1 MiB: below fs.pipe-user-pages-soft */

/* ---- attacks --------------------------------------------------------------------------------- */

static int create_of(tier *t, const char *name, uint32_t pages, uint32_t page_bytes,
		     uint64_t nvme, tier_context **out)
{
	const struct shape s = { pages, page_bytes, 4000, 16 * MIB, nvme };

	return create_shaped(t, name, &s, out);
}

static uint8_t page_bytes[2 * MIB];

static void by_deletions(struct isolation *w)
{
	tier *t = connect_to(&w->d);
	tier_context *c;
	uint32_t n = 0, refused = 0;

	CHECK(create_of(t, "deleter", 1, 4096, 24 * MIB, &c) == 0);
	for (; going_on(); n++) {
		tier_key key = secret_key(300000 + n), absent = secret_key(900000 + n);

		refused += tier_put_copy(c, &key, 1, page_bytes,
					 &(struct tier_put_options){
						 .size = sizeof(struct tier_put_options),
						 .flags = TIER_PUT_DURABLE }) != 1;
		refused += tier_delete(c, &key, 1) < 0;
		refused += tier_delete(c, &absent, 1) < 0;
	}
	printf("#   %u puts and deletions, %u refused\n", n, refused);
	CHECK(tier_context_remove(t, "deleter") == 0);
}

/* Beyond its quota it is refused, by name; nobody else is. */
static void by_small_blocks(struct isolation *w)
{
	tier *t = connect_to(&w->d);
	tier_context *c;
	uint32_t n = 0, refused = 0;

	CHECK(create_of(t, "small", 1, 4096, 24 * MIB, &c) == 0);
	for (; going_on() || (n < 500 && refused < 1); n++) {
		tier_key key = secret_key(400000 + n);

		refused += tier_put_copy(c, &key, 1, page_bytes,
					 &(struct tier_put_options){
						 .size = sizeof(struct tier_put_options),
						 .flags = TIER_PUT_DURABLE }) != 1;
	}
	printf("#   %u durable puts of one page, %u refused: %s\n", n, refused,
	       tier_error_text());
	CHECK(refused > 0);
	CHECK(tier_context_remove(t, "small") == 0);
}

/* Half of a sharded put, for as long as it may be. */
static void by_halves(struct isolation *w)
{
	tier *t = connect_to(&w->d);
	tier_context *c;
	uint32_t n = 0;

	CHECK(create_of(t, "halves", 64, 4096, 24 * MIB, &c) == 0);
	for (; going_on(); n++) {
		const struct tier_put_options o = { .size = sizeof(o), .shard = 0, .shards = 2,
						    .deadline_ns = time_now_ns() +
								   20 * 86400 * NS_PER_S };
		tier_key key = secret_key(500000 + n);

		tier_put_copy(c, &key, 1, page_bytes, &o);
	}
	printf("#   %u halves\n", n);
}

static void by_connections(struct isolation *w)
{
	struct tier_connect_options o = { .size = sizeof(o), .socket = w->d.socket };
	uint32_t n = 0, refused = 0;
	tier *t;

	for (; going_on(); n++)
		if (tier_connect(&t, &o) == 0)
			tier_close(t);
		else
			refused++;
	printf("#   %u connections, %u refused\n", n, refused);
}

static void by_contexts(struct isolation *w)
{
	tier *t = connect_to(&w->d);
	tier_key key = secret_key(1);
	tier_context *c;
	uint32_t n = 0, refused = 0;

	while (going_on()) {
		if (create_of(t, "again", 16, 4096, 24 * MIB, &c)) {
			refused++; /* the one before has not gone yet */
			continue;
		}
		tier_put_copy(c, &key, 1, page_bytes, NULL);
		tier_context_close(c);
		n += tier_context_remove(t, "again") == 0;
	}
	CHECK(n > 0);
	printf("#   %u contexts, %u refused\n", n, refused);
}

/* Of all memory of the daemon's that this process has mapped. */
static uint32_t each_mapping(void (*what)(uint8_t *at, uint64_t bytes))
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[512];
	uint32_t n = 0;

	CHECK(f);
	while (fgets(line, sizeof(line), f)) {
		unsigned long from, to;

		if (!strstr(line, "memfd:tier-") || sscanf(line, "%lx-%lx ", &from, &to) != 2 ||
		    strstr(line, "rw-"))
			continue;
		what((uint8_t *)from, to - from); /* NOLINT: an address of ours, as a text */
		n++;
	}
	fclose(f);
	return n;
}

static uint32_t policies_set;

static void set_policy(uint8_t *at, uint64_t bytes)
{
	unsigned long node = 1;

	policies_set += !syscall(SYS_mbind, at, bytes, BIND, &node, 64ul, 0);
}

/* Read-only as the mapping is: the policy is the file's. Where it is not allowed, nothing is. */
static void by_policies(struct isolation *w)
{
	tier *t = connect_to(&w->d);
	tier_context *c;
	uint32_t n = 0;

	do {
		tier_key key = secret_key(600000 + n++);

		if (create_of(t, "policies", 32, 65536, TIER_QUOTA_NONE, &c))
			continue; /* the one before has not gone yet */
		each_mapping(set_policy);
		tier_put_copy(c, &key, 1, page_bytes, NULL);
		tier_context_close(c);
		tier_context_remove(t, "policies");
	} while (going_on());
	printf("#   %u policies set\n", policies_set);
	board->policies = policies_set;
}

static int pipes[PIPES][2];

/* Pages of mappings in pipes stay when they are given back. Says how many bytes. */
static uint64_t fill_pipes(struct isolation *w)
{
	tier *t = connect_to(&w->d);
	struct tier_lease lease;
	uint64_t kept = 0;
	uint32_t n = 0;
	tier_context *c;
	tier_reader *r;

	CHECK(tier_reader_open(t, &r) == 0);
	for (uint32_t i = 0; i < PIPES; i++)
		if (!pipe(pipes[i]))
			fcntl(pipes[i][1], F_SETPIPE_SZ, 1 << 20);
	do {
		tier_key key = secret_key(700000);
		struct iovec v = { .iov_len = 1 << 20 };

		if (create_of(t, "pipes", 16, 65536, TIER_QUOTA_NONE, &c))
			continue; /* the one before has not gone yet */
		CHECK(tier_put_copy(c, &key, 1, page_bytes, NULL) == 1);
		CHECK(tier_lease_key(r, c, &key, 0, 0, &lease) == 0);
		v.iov_base = (void *)(uintptr_t)lease.data;
		for (ssize_t got = 1; n < PIPES && got > 0; kept += got > 0 ? (uint64_t)got : 0) {
			v.iov_len = 65536;
			got = vmsplice(pipes[n][1], &v, 1, SPLICE_F_NONBLOCK);
			n += got < 65536;
		}
		tier_release(r, &lease);
		tier_context_close(c);
		CHECK(tier_context_remove(t, "pipes") == 0);
	} while (going_on());
	tier_close(t);
	return kept;
}

static void by_pipes(struct isolation *w)
{
	printf("#   %llu MiB of pages in pipes\n", (unsigned long long)(fill_pipes(w) / MIB));
}

static uint64_t touched;

static void touch(uint8_t *at, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes && going_on(); i += 4096)
		touched += ((volatile uint8_t *)at)[i] + 1;
}

static void by_touches(struct isolation *w)
{
	tier *t = connect_to(&w->d);
	tier_context *c;

	CHECK(create_of(t, "touches", 32, 65536, TIER_QUOTA_NONE, &c) == 0);
	while (going_on())
		each_mapping(touch);
	CHECK(tier_context_remove(t, "touches") == 0);
}

/* The longest plan there is, again and again, and memory pinned and given back. */
static void by_plans(struct isolation *w)
{
	enum { ACCESSES = 131072 };
	struct tier_access *a = calloc(ACCESSES, sizeof(*a));
	const struct tier_plan_options o = { .size = sizeof(o), .tier = TIER_CXL };
	tier *t = connect_to(&w->d);
	struct tier_found found;
	tier_context *c;
	tier_plan *p;
	uint32_t n = 0;

	CHECK(a && create_of(t, "plans", 1, 4096, 24 * MIB, &c) == 0);
	for (uint32_t i = 0; i < 1000; i++) {
		tier_key key = secret_key(800000 + i);

		CHECK(tier_put_copy(c, &key, 1, page_bytes, NULL) <= 1);
		CHECK(tier_match(c, &key, 1, &found) >= 0);
		for (uint32_t k = i; k < ACCESSES; k += 1000)
			a[k].block = found.block;
	}
	for (; going_on(); n++)
		if (tier_plan_begin(c, a, ACCESSES, &o, &p) == 0)
			tier_plan_end(p);
	printf("#   %u plans\n", n);
	free(a);
	CHECK(tier_context_remove(t, "plans") == 0);
}

/* Blocks of one page that might have 801: nothing looks at those that they have not. */
static void by_wide_blocks(struct isolation *w)
{
	const struct tier_part part[2] = {
		{ .name = "one", .kind = TIER_KIND_STATE, .layers = 1, .groups = 1,
		  .page_bytes = 512 },
		{ .name = "many", .kind = TIER_KIND_STATE, .hit_rule = TIER_HIT_LAST,
		  .hit_arg = 1, .layers = 800, .groups = 1, .page_bytes = 512 },
	};
	const struct tier_geometry_options g = { .size = sizeof(g), .page_align = 4096,
						 .part_count = 2, .part = part };
	struct tier_context_options o = { .size = sizeof(o), .mode = 0600, .blocks_max = 1000 };
	const struct tier_put_options put = { .size = sizeof(put), .parts = 1,
					      .flags = TIER_PUT_DURABLE };
	tier *t = connect_to(&w->d);
	tier_geometry *geometry;
	tier_context *c;
	uint32_t n = 0, put_all = 0;

	o.quota[TIER_HBM] = TIER_QUOTA_NONE;
	CHECK(tier_geometry_new(&geometry, &g) == 0);
	CHECK(tier_context_create(t, "wide", geometry, &o, &c) == 0);
	for (; going_on(); n++) {
		tier_key key = secret_key(880000 + n);

		put_all += tier_put_copy(c, &key, 1, page_bytes, &put) == 1;
	}
	printf("#   %u of %u blocks of one page\n", put_all, n);
	CHECK(put_all > 0);
	tier_geometry_free(geometry);
	CHECK(tier_context_remove(t, "wide") == 0);
}

static void by_migrations(struct isolation *w)
{
	struct tier_ask down = { .size = sizeof(down), .tier = TIER_NVME },
			up = { .size = sizeof(up), .tier = TIER_CXL };
	tier *t = connect_to(&w->d);
	struct tier_found found[64];
	struct tier_block_list { tier_block b[64]; } list;
	tier_key key[64];
	tier_context *c;
	uint32_t n = 0;

	CHECK(create_of(t, "moves", 16, 4096, 24 * MIB, &c) == 0);
	for (uint32_t i = 0; i < 64; i++)
		key[i] = secret_key(850000 + i);
	CHECK(tier_put_copy(c, key, 32, page_bytes, NULL) == 32);
	CHECK(tier_match(c, key, 32, found) == 32);
	for (uint32_t i = 0; i < 32; i++)
		list.b[i] = found[i].block;
	for (; going_on(); n++) {
		tier_migrate(c, list.b, 32, &down);
		tier_fetch(c, list.b, 32, &up);
	}
	printf("#   %u times down and up\n", n);
	CHECK(tier_context_remove(t, "moves") == 0);
}

static const struct attack attacks[] = {
	{ "durable puts and deletions by turns (A6)", by_deletions },
	{ "durable puts of single pages (A7)", by_small_blocks },
	{ "halves of sharded puts (A8)", by_halves },
	{ "connections", by_connections },
	{ "contexts made and removed", by_contexts },
	{ "NUMA policies of read-only mappings (A11)", by_policies },
	{ "pages of mappings in pipes (A5)", by_pipes },
	{ "holes touched", by_touches },
	{ "plans of 131,072 accesses", by_plans },
	{ "blocks of one page that might have 801", by_wide_blocks },
	{ "blocks moved down and up", by_migrations },
};

static void test_beside_each(void **state)
{
	struct isolation *w = isolation_of(state);
	uint64_t foreign;

	if (!w)
		return;
	attack_each(w, attacks, COUNT(attacks));
	foreign = tierctl_number(&w->d, "stat", "loop.memory_foreign");
	printf("# policies put right: %llu\n", (unsigned long long)foreign);
	assert_true(foreign || !board->policies);
}

/* Until it says at least `least`, or at most `most`. */
static uint64_t lost_is(const struct daemon *d, uint64_t least, uint64_t most)
{
	uint64_t lost = 0;

	for (uint32_t i = 0; i < PATIENCE_MS / 100; i++) {
		lost = tierctl_number(d, "stat", "loop.memory_lost");
		if (lost >= least && lost <= most)
			break;
		usleep(100000);
	}
	return lost;
}

/*
 * What a user's pipes keep is seen, and the tier is smaller by it for as long: the host does not
 * run out. The numbers are the host's, where others work, too: 16 of 56 MiB must show.
 */
static void test_pages_in_pipes_are_seen(void **state)
{
	struct isolation *w = isolation_of(state);
	uint64_t lost;
	int status;
	pid_t pid;

	if (!w)
		return;
	board->kept = 0;
	atomic_store_release_u64(&board->until_ns, time_now_ns() + 3 * NS_PER_S);
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		become(UID_ATTACKER, UID_ATTACKER);
		atomic_store_release_u64(&board->kept, fill_pipes(w) + 1);
		pause();
	}
	for (uint32_t i = 0; i < PATIENCE_MS && !atomic_load_acquire_u64(&board->kept); i++)
		usleep(1000);
	assert_true(board->kept);
	lost = lost_is(&w->d, board->kept >= 50 * MIB ? 8 * MIB : 0, UINT64_MAX);
	printf("# %llu MiB in pipes, %llu MiB are seen to be lost\n",
	       (unsigned long long)(board->kept / MIB), (unsigned long long)(lost / MIB));
	if (board->kept >= 50 * MIB)
		assert_true(lost >= 8 * MIB);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	lost = lost_is(&w->d, 0, 4 * MIB);
	printf("# %llu MiB when it has ended\n", (unsigned long long)(lost / MIB));
	fflush(stdout);
}

static int setup(void **state)
{
	return beside_begin(state, settings);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_beside_each),
		cmocka_unit_test(test_pages_in_pipes_are_seen),
		cmocka_unit_test(test_the_end_and_a_start),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("isolation, beside", tests, setup, isolation_teardown);
}
