/*
 * Several processes put and read at a time, of far more than the memory tier holds, so that the
 * daemon evicts, writes back and fetches under their hands. A leased page must hold its own bytes
 * from the first look to the last (I2), and every call must end with a promised answer.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/integration/front_client.h"

#include <tier.h>

#define PROCESSES 3u
#define FAMILIES 6u       /* prefixes that all share */
#define PREFIX 96u        /* blocks of each: 6 * 96 * 24 KiB = 13.5 MiB */
#define RUN_NS (2500 * NS_PER_MS)
#define PAGES_LEAST 100u  /* of each user: on a crowded machine it takes longer ... */
#define BLOCKS_LEAST 10u
#define RUN_MOST_NS (200 * NS_PER_S)
#define LIST 32u

struct user {
	tier *t;
	tier_context *c;
	tier_reader *r;
	uint32_t seed;
	uint64_t pages; /* verified */
	uint64_t blocks;
};

static uint32_t next_random(struct user *u)
{
	return (u->seed = u->seed * 1664525 + 1013904223) >> 8;
}

static uint8_t byte_of(const tier_key *key, uint32_t page)
{
	return (uint8_t)(key->bytes[3] ^ key->bytes[9] * 5 ^ page * 41);
}

static void keys_of(tier_key *keys, uint32_t family)
{
	uint32_t tokens[PREFIX];

	for (uint32_t i = 0; i < PREFIX; i++)
		tokens[i] = family * 1000 + i;
	tier_key_chain(keys, NULL, NULL, tokens, PREFIX, 1);
}

/* A child's way to fail: the parent sees the status, the log the words. */
static void give_up(const char *format, ...) __attribute__((noreturn))
__attribute__((format(printf, 1, 2)));

static void give_up(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, " (%s)\n", tier_error_text());
	_exit(1);
}

static void put_some(struct user *u, const tier_key *keys)
{
	static uint8_t data[LIST * 6 * 4096];
	uint32_t first = next_random(u) % (PREFIX - LIST);
	struct tier_put_options o = { .size = sizeof(o), .depth = first };
	int64_t n;

	o.parent = first ? &keys[first - 1] : NULL;
	o.flags = next_random(u) % 16 == 0 ? TIER_PUT_DURABLE : 0;
	for (uint32_t i = 0; i < LIST * 6; i++)
		memset(data + i * 4096, byte_of(&keys[first + i / 6], i % 6), 4096);
	n = tier_put_copy(u->c, keys + first, LIST, data, &o);
	if (n < 0 && n != -ENOSPC && n != -EAGAIN && n != -ETIMEDOUT)
		give_up("put: %lld", (long long)n);
	u->blocks += n > 0 ? (uint64_t)n : 0;
}

static void verify(struct user *u, const struct tier_lease *lease, const tier_key *key,
		   uint32_t page)
{
	const uint8_t *data = lease->data;

	for (uint32_t pass = 0; pass < 2; pass++)
		for (uint32_t i = pass * 7; i < 4096; i += 61)
			if (data[i] != byte_of(key, page))
				give_up("page %u has %u, not %u, at %u", page, data[i],
					byte_of(key, page), i);
	u->pages++;
}

static void read_some(struct user *u, const tier_key *keys)
{
	struct tier_found found[PREFIX];
	struct tier_page page[LIST];
	struct tier_lease lease[LIST];
	const tier_key *key[LIST];
	uint32_t count = 0;
	int rc;

	tier_match(u->c, keys, PREFIX, found);
	for (uint32_t i = next_random(u) % PREFIX; count < LIST && i < PREFIX; i++) {
		if (found[i].state != TIER_HIT)
			continue;
		page[count] = (struct tier_page){ found[i].block, next_random(u) % 6 };
		key[count++] = &keys[i];
	}
	if (next_random(u) % 2)
		rc = tier_lease_pages(u->r, u->c, page, count, 0, lease);
	else
		rc = tier_read_pages(u->r, u->c, page, count, time_now_ns() + 200 * NS_PER_MS,
				     lease);
	if (rc < 0)
		give_up("read: %d", rc);
	for (uint32_t i = 0; i < count; i++) {
		if (lease[i].data)
			verify(u, &lease[i], key[i], page[i].page);
		else if (lease[i].error != -ENODATA && lease[i].error != -ESTALE &&
			 lease[i].error != -ENOSPC && lease[i].error != -ETIMEDOUT)
			give_up("lease: %d", lease[i].error);
	}
	tier_release_many(u->r, lease, count);
}

static void disturb(struct user *u, const tier_key *keys)
{
	uint32_t at = next_random(u) % PREFIX;
	struct tier_found found;
	int64_t n;

	if (next_random(u) % 8 == 0) {
		n = tier_delete(u->c, &keys[at], 1);
	} else if (tier_match(u->c, &keys[at], 1, &found) == 1) {
		n = tier_fetch(u->c, &found.block, 1,
			       ASK(TIER_HBM, .deadline_ns = time_now_ns() + 50 * NS_PER_MS));
	} else {
		return;
	}
	if (n < 0 && n != -ETIMEDOUT && n != -ENOSPC)
		give_up("disturb: %lld", (long long)n);
}

static void __attribute__((noreturn)) run(const struct daemon *d, uint32_t number)
{
	struct tier_connect_options o = { .size = sizeof(o), .socket = d->socket,
					  .staging_bytes = 2u << 20 };
	struct user u = { .seed = number + 1 };
	uint64_t end = time_now_ns() + RUN_NS;
	tier_geometry *g;

	if (tier_geometry_preset(&g, "tiny") || tier_connect(&u.t, &o) ||
	    tier_context_create(u.t, "kv", g, NULL, &u.c) || tier_reader_open(u.t, &u.r))
		give_up("connect");
	while (time_now_ns() < end ||
	       ((u.pages <= PAGES_LEAST || u.blocks <= BLOCKS_LEAST) &&
		time_now_ns() < end + RUN_MOST_NS)) {
		tier_key keys[PREFIX];

		keys_of(keys, next_random(&u) % FAMILIES);
		if (next_random(&u) % 4 == 0)
			put_some(&u, keys);
		else if (next_random(&u) % 8 == 0)
			disturb(&u, keys);
		else
			read_some(&u, keys);
	}
	tier_close(u.t);
	tier_geometry_free(g);
	printf("# user %u: %llu pages verified, %llu blocks put\n", number,
	       (unsigned long long)u.pages, (unsigned long long)u.blocks);
	fflush(stdout);
	_exit(u.pages > PAGES_LEAST && u.blocks > BLOCKS_LEAST ? 0 : 2);
}

static void test_many_processes_under_pressure(void **state)
{
	static const char *const settings[] = { "cxl.size=8MiB", "hbm.size=2MiB",
						"nvme.size=64MiB", NULL };
	struct daemon d;
	pid_t child[PROCESSES];

	(void)state;
	daemon_folder(&d);
	daemon_start(&d, settings);
	for (uint32_t i = 0; i < PROCESSES; i++) {
		child[i] = fork();
		assert_true(child[i] >= 0);
		if (child[i] == 0)
			run(&d, i);
	}
	for (uint32_t i = 0; i < PROCESSES; i++) {
		int status;

		assert_int_equal(waitpid(child[i], &status, 0), child[i]);
		assert_int_equal(status, 0);
	}
	daemon_stop(&d);
	daemon_remove(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_many_processes_under_pressure),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
