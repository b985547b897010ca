/* SPDX-License-Identifier: Apache-2.0 */
/*
 * durable put FIRST LAST: store blocks FIRST..LAST one by one, each acknowledged as durable and its
 *     number printed on a line; then it waits for a line before it goes on.
 * durable churn FIRST: best-effort puts from block FIRST on, until it is killed.
 * durable verify LAST: blocks 1..LAST must be there, every byte as it was put.
 *
 * Block n's key and bytes follow from n, so that the two need not be the same process, or boot.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tier.h"

#define CONTEXT "durable"
#define GONE_SHOWN 8
#define CHURN_NS 20000000 /* between puts: enough to keep writes between the flushes */

static int failed(const char *what, uint32_t n, int64_t rc)
{
	fprintf(stderr, "durable: %s of block %u: %s (%s)\n", what, n, tier_strerror((int)rc),
		tier_error_text());
	return 1;
}

static int key_of(tier_key *key, uint32_t n)
{
	return tier_key_opaque(key, &n, sizeof(n), NULL);
}

/* Different for every page of every block. */
static void fill(uint8_t *page, size_t bytes, uint32_t n, uint32_t number)
{
	uint64_t x = ((uint64_t)n << 32 | number) * 0x9e3779b97f4a7c15ull + 1;

	for (size_t i = 0; i < bytes; i++) {
		x = x * 6364136223846793005ull + 1442695040888963407ull;
		page[i] = (uint8_t)(x >> 56);
	}
}

static int64_t put(tier_context *c, const tier_geometry *g, uint32_t n, uint32_t flags)
{
	struct tier_put_options options = { .size = sizeof(options), .flags = flags };
	size_t bytes = tier_geometry_block_bytes(g);
	uint32_t pages = tier_geometry_pages(g);
	uint8_t *block = malloc(bytes);
	tier_key key;
	int64_t stored;

	if (!block)
		return -ENOMEM;
	key_of(&key, n);
	for (uint32_t i = 0; i < pages; i++)
		fill(block + i * (bytes / pages), bytes / pages, n, i);
	stored = tier_put_copy(c, &key, 1, block, &options);
	free(block);
	return stored;
}

static int put_durable(tier_context *c, const tier_geometry *g, uint32_t first, uint32_t last)
{
	char line[16];

	for (uint32_t n = first; n <= last; n++) {
		int64_t stored = put(c, g, n, TIER_PUT_DURABLE);

		if (stored != 1)
			return failed("put", n, stored < 0 ? stored : -EIO);
		printf("%u\n", n);
		fflush(stdout);
		if (!fgets(line, sizeof(line), stdin))
			return 0;
	}
	return 0;
}

static int churn(tier_context *c, const tier_geometry *g, uint32_t first)
{
	for (uint32_t n = first; n; n++) {
		int64_t stored = put(c, g, n, 0);

		if (stored < 0)
			return failed("put", n, stored);
		nanosleep(&(struct timespec){ .tv_nsec = CHURN_NS }, NULL);
	}
	return 0;
}

static int verify_block(tier_context *c, tier_reader *r, const tier_geometry *g, uint32_t n)
{
	uint32_t pages = tier_geometry_pages(g);
	uint8_t want[1u << 16];
	struct tier_found found;
	tier_key key;

	key_of(&key, n);
	if (tier_match(c, &key, 1, &found) != 1)
		return -ENOENT;
	for (uint32_t i = 0; i < pages; i++) {
		struct tier_page page = { found.block, i };
		struct tier_lease lease;
		int64_t rc = tier_read_pages(r, c, &page, 1, 0, &lease);
		int same;

		if (rc != 1)
			return rc < 0 ? (int)rc : lease.error;
		fill(want, lease.bytes, n, i);
		same = !memcmp(want, lease.data, lease.bytes);
		rc = tier_lease_check(&lease);
		tier_release(r, &lease);
		if (rc)
			return (int)rc;
		if (!same)
			return -EBADMSG;
	}
	return 0;
}

static int verify(tier *t, tier_context *c, const tier_geometry *g, uint32_t last)
{
	tier_reader *r;
	uint32_t bad = 0;
	int rc = tier_reader_open(t, &r);

	if (rc)
		return failed("reader", 0, rc);
	for (uint32_t n = 1; n <= last; n++) {
		rc = verify_block(c, r, g, n);
		if (rc && ++bad <= GONE_SHOWN)
			failed("read", n, rc);
	}
	tier_reader_close(r);
	printf("durable: %u of %u blocks are there and right\n", last - bad, last);
	return bad != 0;
}

int main(int argc, char **argv)
{
	struct tier_context_options options = { .size = sizeof(options), .blocks_max = 65536 };
	tier_geometry *g = NULL;
	tier_context *c;
	tier *t = NULL;
	int rc;

	if (argc < 3 || argc > 4 || !strcmp(argv[1], "put") != (argc == 4)) {
		fputs("usage: durable put FIRST LAST | churn FIRST | verify LAST\n", stderr);
		return 2;
	}
	rc = tier_connect(&t, NULL);
	if (!rc)
		rc = tier_geometry_preset(&g, "tiny");
	if (!rc)
		rc = tier_context_create(t, CONTEXT, g, &options, &c);
	if (rc)
		failed("context", 0, rc);
	else if (argc == 4)
		rc = put_durable(c, g, (uint32_t)atoi(argv[2]), (uint32_t)atoi(argv[3]));
	else if (!strcmp(argv[1], "churn"))
		rc = churn(c, g, (uint32_t)atoi(argv[2]));
	else
		rc = verify(t, c, g, (uint32_t)atoi(argv[2]));
	tier_geometry_free(g);
	tier_close(t);
	return rc != 0;
}
