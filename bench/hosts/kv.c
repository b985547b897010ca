/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hosts-kv: an engine's part in the demonstration and the tests of several hosts. Puts prompts made
 * by a generator, reads them elsewhere (locate, pull, every byte compared with the generator).
 *
 *   hosts-kv [--preset NAME] [--from BLOCK] put CONTEXT PROMPT BLOCKS  (0: the context alone)
 *   hosts-kv [--deadline MS] [--token-us US] [--stated-us US] [--expect BLOCKS] [--json]
 *            read CONTEXT PROMPT BLOCKS
 *   hosts-kv [--deadline MS] [--token-ns NS] [--expect BLOCKS] [--json]
 *            fetch|prefetch CONTEXT PROMPT BLOCKS  (fetch: as read, by tier_fetch_keys)
 *   hosts-kv [--deadline MS] [--token-ns NS] [--expect BLOCKS] [--json]
 *            stream CONTEXT PROMPT BLOCKS  (by tier_far_open: each layer compared as it comes)
 *   hosts-kv [--deadline MS] [--steps N | --until FILE] [--gap MS] [--expect BLOCKS]
 *            pages CONTEXT PROMPT BLOCKS  (by tier_grant_open: at each step 16 single pages)
 *   hosts-kv [--deadline MS] delete CONTEXT PROMPT BLOCKS  (on all hosts)
 *   hosts-kv [--from BLOCK] drop CONTEXT PROMPT BLOCKS  (on this one)
 *   hosts-kv [--deadline MS] demand CONTEXT PROMPT BLOCKS  (for so long, single pages from NVMe)
 *   hosts-kv [--deadline MS] own CONTEXT PROMPT BLOCKS  (a durable put, and for so long pulls of
 *            it: a line each, when in microseconds of the epoch, and how many nanoseconds it took)
 *
 * --token-us: what computing a token costs, by which is decided; --stated-us: only shown beside.
 * Exit status: 0 done, 1 wrong bytes, a refusal, or not what is expected, 2 usage.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tier.h>
#include <unistd.h>

#include "libtier/base/time.h"
#include "libtier/base/units.h"

#define PAGES_AT_ONCE 128u

struct kv {
	tier *t;
	tier_context *c;
	const tier_geometry *g;
	uint64_t prompt;
	uint32_t blocks, tokens, from; /* put, drop: without those before it */
	tier_key *key;
	uint64_t deadline_ms, token_ns, stated_us, gap_ms;
	uint32_t steps;
	const char *until; /* the steps go on until this file is there, and one more */
	int64_t expect; /* negative: whatever there is */
	bool json, fetch;
	uint32_t memory; /* blocks that were not on NVMe alone, before they were read */
};

/* ---- the generator ------------------------------------------------------------------------- */

/* The first word of a page; each word is the one before plus an odd constant. */
static uint64_t page_start(const struct kv *kv, uint32_t block, uint32_t page)
{
	uint64_t x = kv->prompt * UINT64_C(0x9e3779b97f4a7c15) + ((uint64_t)block << 20) + page;

	x ^= x >> 31;
	x *= UINT64_C(0xbf58476d1ce4e5b9);
	return x ^ x >> 27;
}

#define STEP UINT64_C(0x94d049bb133111eb)

static void generate(const struct kv *kv, uint64_t *to, uint32_t block, uint32_t page,
		     uint32_t bytes)
{
	uint64_t word = page_start(kv, block, page);

	for (uint32_t i = 0; i < bytes / 8; i++, word += STEP)
		to[i] = word;
}

static bool right(const struct kv *kv, const uint64_t *from, uint32_t block, uint32_t page,
		  uint32_t bytes)
{
	uint64_t word = page_start(kv, block, page), wrong = 0;

	for (uint32_t i = 0; i < bytes / 8; i++, word += STEP)
		wrong |= from[i] ^ word;
	return !wrong;
}

static int make_keys(struct kv *kv)
{
	size_t count = (size_t)kv->blocks * kv->tokens;
	uint32_t *token = calloc(count, sizeof(*token));
	int rc;

	kv->key = calloc(kv->blocks + 1, sizeof(*kv->key));
	if (!token || !kv->key || !count) {
		free(token);
		return count ? -1 : 0;
	}
	for (size_t i = 0; i < count; i++)
		token[i] = (uint32_t)(kv->prompt * 7919 + i);
	rc = tier_key_chain(kv->key, NULL, NULL, token, count, kv->tokens);
	free(token);
	return rc;
}

/* ---- put ----------------------------------------------------------------------------------- */

static void fill(const struct kv *kv, uint8_t *to, uint32_t block)
{
	struct tier_part part;

	for (uint32_t i = 0; tier_geometry_part(kv->g, i, &part) == 0; i++)
		for (uint32_t page = 0; page < part.layers * part.groups; page++) {
			generate(kv, (void *)to, block, part.page_base + page, part.page_bytes);
			to += part.page_stride;
		}
}

static int put_with(struct kv *kv, uint32_t flags)
{
	uint8_t *bytes = calloc(1, tier_geometry_block_bytes(kv->g));
	int64_t stored;

	for (uint32_t i = kv->from; bytes && i < kv->blocks; i++) {
		struct tier_put_options o = { .size = sizeof(o), .flags = flags, .depth = i };

		o.parent = i ? &kv->key[i - 1] : NULL;
		fill(kv, bytes, i);
		stored = tier_put_copy(kv->c, &kv->key[i], 1, bytes, &o);
		if (stored != 1) {
			fprintf(stderr, "hosts-kv: put: %s\n",
				stored ? tier_error_text() : "no room came in time");
			free(bytes);
			return 1;
		}
	}
	free(bytes);
	return 0;
}

static int put(struct kv *kv)
{
	return put_with(kv, 0);
}

/* ---- read ---------------------------------------------------------------------------------- */

static uint32_t part_bytes(const struct kv *kv, uint32_t page)
{
	struct tier_part part;

	for (uint32_t i = 0; tier_geometry_part(kv->g, i, &part) == 0; i++)
		if (page - part.page_base < part.layers * part.groups)
			return part.page_bytes;
	return 0;
}

/* Some pages of one block, read in place; how many bytes were right, or -1. */
static int64_t compare_pages(struct kv *kv, tier_reader *r, struct tier_page *page, uint32_t count,
			     uint32_t block)
{
	struct tier_lease lease[PAGES_AT_ONCE];
	int64_t bytes = 0;

	if (tier_read_pages(r, kv->c, page, count, 0, lease) != (int64_t)count) {
		fprintf(stderr, "hosts-kv: block %u: %s\n", block, tier_error_text());
		tier_release_many(r, lease, count);
		return -1;
	}
	for (uint32_t i = 0; i < count; i++) {
		if (lease[i].bytes != part_bytes(kv, page[i].page) ||
		    !right(kv, lease[i].data, block, page[i].page, lease[i].bytes)) {
			fprintf(stderr, "hosts-kv: WRONG BYTES: prompt %" PRIu64
				" block %u page %u\n", kv->prompt, block, page[i].page);
			bytes = -1;
			break;
		}
		bytes += lease[i].bytes;
	}
	tier_release_many(r, lease, count);
	return bytes;
}

/* Every byte of the usable blocks. */
static int64_t compare(struct kv *kv, uint32_t usable)
{
	struct tier_found *found = calloc(kv->blocks, sizeof(*found));
	uint32_t pages = tier_geometry_pages(kv->g);
	struct tier_page page[PAGES_AT_ONCE];
	tier_reader *r = NULL;
	int64_t bytes = 0, n;

	if (!found || tier_reader_open(kv->t, &r) ||
	    tier_match(kv->c, kv->key, kv->blocks, found) < (int64_t)usable)
		bytes = -1;
	for (uint32_t i = 0; bytes >= 0 && i < usable; i++)
		kv->memory += found[i].tier != TIER_NVME;
	for (uint32_t i = 0; bytes >= 0 && i < usable * pages;) {
		uint32_t block = i / pages, count = 0;

		for (; i / pages == block && count < PAGES_AT_ONCE; i++)
			page[count++] = (struct tier_page){ found[block].block, i % pages };
		n = compare_pages(kv, r, page, count, block);
		bytes = n < 0 ? -1 : bytes + n;
	}
	tier_reader_close(r);
	free(found);
	return bytes;
}

static const char *status_name(uint32_t status)
{
	static const char *const name[] = { "ready", "late", "missed", "dropped" };

	return status < 4 ? name[status] : "?";
}

static void tell_json(const struct kv *kv, const struct tier_hosts *where,
		      const struct tier_hosts *came, uint64_t took_ns, int64_t bytes)
{
	uint64_t given_ns = kv->deadline_ms * NS_PER_MS;

	printf("{\"prompt\": %" PRIu64 ", \"blocks\": %u, \"located\": %u, \"asked\": %u, "
	       "\"host\": \"%s\", \"estimate_ns\": %" PRIu64 ", \"local\": %u, "
	       "\"usable\": %u, \"status\": \"%s\", \"bytes\": %" PRIu64 ", "
	       "\"first_ns\": %" PRIu64 ", \"took_ns\": %" PRIu64 ", "
	       "\"compute_ns\": %" PRIu64 ", \"late_ns\": %" PRIu64
	       ", \"compared\": %" PRId64 ", \"memory\": %u}\n",
	       kv->prompt, kv->blocks, where->usable, where->hosts, where->host, where->all_ns,
	       came->local, came->usable, status_name(came->status), came->bytes, came->first_ns,
	       took_ns, came->compute_ns, took_ns > given_ns ? took_ns - given_ns : 0, bytes,
	       kv->memory);
}

static void tell(const struct kv *kv, const struct tier_hosts *where,
		 const struct tier_hosts *came, uint64_t took_ns, int64_t bytes)
{
	char a[UNITS_TEXT_BYTES], b[UNITS_TEXT_BYTES], c[UNITS_TEXT_BYTES], d[UNITS_TEXT_BYTES];
	uint64_t compute_ns;

	printf("prompt %-3" PRIu64 " %u of %u blocks here, ", kv->prompt, came->local, kv->blocks);
	if (*where->host)
		printf("%u on %s;", where->usable, where->host);
	else
		printf(came->local == kv->blocks ? "all of them;" :
						   "no more elsewhere (asked %u, answered %u);",
		       where->hosts, where->answered);
	if (came->bytes)
		printf(" %s in %s, %s; first layer %s;", units_print_bytes(a, came->bytes),
		       units_print_ns(b, took_ns),
		       units_print_rate(c, (double)came->bytes * 1e9 / (double)took_ns),
		       units_print_ns(d, came->first_ns));
	else
		printf(" %s after %s;", status_name(came->status), units_print_ns(a, took_ns));
	compute_ns = (kv->stated_us ? kv->stated_us * NS_PER_US : kv->token_ns) * kv->tokens *
		     (came->usable - came->local);
	if (compute_ns && came->bytes)
		printf(" computing: %s, %.1fx;", units_print_ns(a, compute_ns),
		       (double)compute_ns / (double)took_ns);
	printf(" %s compared, all right\n", units_print_bytes(a, (uint64_t)bytes));
}

static int64_t bring(struct kv *kv, const struct tier_hosts_options *o, struct tier_hosts *where,
		     struct tier_hosts *came)
{
	int64_t usable;

	if (kv->fetch)
		return tier_fetch_keys(kv->c, kv->key, kv->blocks, TIER_CXL, o, came);
	usable = tier_locate(kv->c, kv->key, kv->blocks, o, where);
	return usable < 0 ? usable : tier_pull(kv->c, kv->key, kv->blocks, o, came);
}

static int prefetch_prompt(struct kv *kv)
{
	struct tier_hosts_options o = { .size = sizeof(o), .token_ns = kv->token_ns };

	o.deadline_ns = time_now_ns() + kv->deadline_ms * NS_PER_MS;
	if (tier_prefetch_keys(kv->c, kv->key, kv->blocks, &o) == 0)
		return 0;
	fprintf(stderr, "hosts-kv: %s\n", tier_error_text());
	return 1;
}

static int read_prompt(struct kv *kv)
{
	struct tier_hosts_options o = { .size = sizeof(o), .token_ns = kv->token_ns };
	struct tier_hosts where = { .size = sizeof(where) }, came = { .size = sizeof(came) };
	uint64_t begun_ns, took_ns;
	int64_t usable, bytes;

	begun_ns = time_now_ns();
	o.deadline_ns = begun_ns + kv->deadline_ms * NS_PER_MS;
	usable = bring(kv, &o, &where, &came);
	took_ns = time_now_ns() - begun_ns;
	if (usable == -ETIMEDOUT) { /* the answer was late, too: what is here is usable */
		usable = tier_match(kv->c, kv->key, kv->blocks, NULL);
		came = (struct tier_hosts){ .status = TIER_LATE };
		came.local = came.usable = usable < 0 ? 0 : (uint32_t)usable;
	}
	if (usable < 0) {
		fprintf(stderr, "hosts-kv: %s\n", tier_error_text());
		return 1;
	}
	bytes = compare(kv, (uint32_t)usable);
	if (bytes < 0)
		return 1;
	(kv->json ? tell_json : tell)(kv, &where, &came, took_ns, bytes);
	if (kv->expect < 0 || kv->expect == usable)
		return 0;
	fprintf(stderr, "hosts-kv: %" PRId64 " blocks, not %" PRId64 "\n", usable, kv->expect);
	return 1;
}

/* A layer of blocks that are on their way: how many bytes are right, or -1. */
static int64_t compare_layer(const struct kv *kv, const tier_far *f, uint32_t layer,
			     uint32_t first, uint32_t blocks)
{
	struct tier_part part;
	int64_t bytes = 0;

	for (uint32_t i = 0; tier_geometry_part(kv->g, i, &part) == 0; i++) {
		uint32_t own = layer - part.layer_first;

		for (uint32_t k = 0; own < part.layers && k < blocks * part.groups; k++) {
			uint32_t block = k / part.groups, group = k % part.groups;
			uint32_t page = part.page_base + own * part.groups + group;
			const void *data = tier_far_data(f, block, i, own, group);

			if (!data || !right(kv, data, first + block, page, part.page_bytes)) {
				fprintf(stderr, "hosts-kv: WRONG BYTES: block %u page %u\n",
					first + block, page);
				return -1;
			}
			bytes += part.page_bytes;
		}
	}
	return bytes;
}

static int stream_prompt(struct kv *kv)
{
	struct tier_hosts_options o = { .size = sizeof(o), .token_ns = kv->token_ns };
	struct tier_hosts came = { .size = sizeof(came) };
	uint64_t begun_ns = time_now_ns(), first_ns = 0;
	int64_t comes, blocks = 0, usable, bytes = 0, n;
	uint32_t layers = 0, local;
	tier_far *f;

	o.deadline_ns = begun_ns + kv->deadline_ms * NS_PER_MS;
	comes = tier_far_open(kv->c, kv->key, kv->blocks, &o, &came, &f);
	local = came.local;
	while (comes > 0 && (n = tier_far_wait(f, layers, 0)) >= 0) {
		first_ns = layers++ ? first_ns : time_now_ns() - begun_ns;
		blocks = n;
		n = compare_layer(kv, f, layers - 1, local, (uint32_t)n);
		if (n < 0)
			return 1;
		bytes += n;
	}
	usable = comes > 0 ? tier_far_close(f, &came) : comes < 0 ? comes : (int64_t)local;
	if (usable == -ETIMEDOUT) { /* the verdict was late, too: none of it is good */
		usable = local;
		came.status = TIER_LATE;
	}
	if (usable < 0) {
		fprintf(stderr, "hosts-kv: %s\n", tier_error_text());
		return 1;
	}
	printf("{\"local\": %u, \"comes\": %" PRId64 ", \"blocks\": %" PRId64 ", \"layers\": %u, "
	       "\"usable\": %" PRId64 ", \"status\": \"%s\", \"compared\": %" PRId64
	       ", \"here\": %" PRId64 ", \"first_ns\": %" PRIu64 ", \"took_ns\": %" PRIu64 "}\n",
	       local, comes, blocks, layers, usable, status_name(came.status), bytes,
	       tier_match(kv->c, kv->key, kv->blocks, NULL), first_ns, time_now_ns() - begun_ns);
	if (kv->expect < 0 || kv->expect == usable)
		return 0;
	fprintf(stderr, "hosts-kv: %" PRId64 " blocks, not %" PRId64 "\n", usable, kv->expect);
	return 1;
}

/* ---- single pages, by a standing grant ------------------------------------------------------- */

#define PICK_PAGE_BYTES 65536u /* and no more */
#define PICK_BLOCKS 16u /* chosen at each step, as sparse attention does */

struct picks {
	uint64_t *to; /* room for PICK_BLOCKS pages */
	uint32_t came, missed, late;
	int64_t bytes;
	uint64_t late_ns; /* past its deadline, of the latest one */
	int over; /* the errno that ended it */
};

/* One step: a page of each of so many blocks. 0; 1: wrong bytes. */
static int pick_step(const struct kv *kv, tier_grant *g, uint32_t first, uint32_t blocks,
		     uint64_t *random, struct picks *p)
{
	struct tier_grant_page page[PICK_BLOCKS];
	uint64_t until_ns = time_now_ns() + kv->deadline_ms * NS_PER_MS, now;
	int64_t came;

	for (uint32_t i = 0; i < PICK_BLOCKS; i++) {
		*random = *random * UINT64_C(6364136223846793005) + 1442695040888963407u;
		page[i] = (struct tier_grant_page){
			.block = (uint32_t)(*random >> 33) % blocks,
			.page = (uint32_t)(*random >> 40) % tier_geometry_pages(kv->g),
			.to = p->to + i * (PICK_PAGE_BYTES / 8),
		};
	}
	came = tier_grant_read(g, page, PICK_BLOCKS, until_ns);
	now = time_now_ns();
	p->late_ns = now > until_ns + p->late_ns ? now - until_ns : p->late_ns;
	p->over = came < 0 ? (int)came : 0;
	for (uint32_t i = 0; i < PICK_BLOCKS && came >= 0; i++) {
		uint32_t n = part_bytes(kv, page[i].page);

		p->came += !page[i].error;
		p->missed += page[i].error == -ENODATA;
		p->late += page[i].error == -ETIMEDOUT;
		if (page[i].error)
			continue;
		if (!right(kv, page[i].to, first + page[i].block, page[i].page, n)) {
			fprintf(stderr, "hosts-kv: WRONG BYTES: block %u page %u\n",
				first + page[i].block, page[i].page);
			return 1;
		}
		p->bytes += n;
	}
	return 0;
}

static int pick_pages(struct kv *kv)
{
	const struct timespec gap = { .tv_sec = (time_t)(kv->gap_ms / 1000),
				      .tv_nsec = (long)(kv->gap_ms % 1000 * NS_PER_MS) };
	struct tier_hosts_options o = { .size = sizeof(o) };
	struct tier_hosts from = { .size = sizeof(from) };
	uint64_t random = kv->prompt, begun_ns, took_ns = 0;
	struct picks p = { .to = malloc(PICK_BLOCKS * PICK_PAGE_BYTES) };
	tier_grant *g = NULL;
	bool last = false;
	int64_t blocks;
	int status = 0;

	o.deadline_ns = time_now_ns() + kv->deadline_ms * NS_PER_MS;
	blocks = p.to ? tier_grant_open(kv->c, kv->key, kv->blocks, &o, &from, &g) : -ENOMEM;
	if (blocks < 0) {
		fprintf(stderr, "hosts-kv: %s\n", tier_error_text());
		free(p.to);
		return 1;
	}
	for (uint32_t i = 0; blocks && !status && !p.over; i++) {
		if (last || (!kv->until && i == kv->steps))
			break;
		if (i && kv->gap_ms)
			clock_nanosleep(CLOCK_MONOTONIC, 0, &gap, NULL);
		last = kv->until && access(kv->until, F_OK) == 0;
		begun_ns = time_now_ns();
		status = pick_step(kv, g, from.local, (uint32_t)blocks, &random, &p);
		took_ns += time_now_ns() - begun_ns;
		if (i == 0 && kv->until) {
			printf("reading\n");
			fflush(stdout);
		}
	}
	tier_grant_close(g);
	free(p.to);
	printf("{\"local\": %u, \"blocks\": %" PRId64 ", \"host\": \"%s\", \"came\": %u, "
	       "\"missed\": %u, \"late\": %u, \"over\": %d, \"compared\": %" PRId64
	       ", \"took_ns\": %" PRIu64 ", \"late_ns\": %" PRIu64 "}\n",
	       from.local, blocks, from.host, p.came, p.missed, p.late, -p.over, p.bytes, took_ns,
	       p.late_ns);
	if (status || kv->expect < 0 || kv->expect == blocks)
		return status;
	fprintf(stderr, "hosts-kv: %" PRId64 " blocks, not %" PRId64 "\n", blocks, kv->expect);
	return 1;
}

static int delete_prompt(struct kv *kv)
{
	struct tier_hosts_options o = { .size = sizeof(o) };

	o.deadline_ns = time_now_ns() + kv->deadline_ms * NS_PER_MS;
	if (tier_hosts_delete(kv->c, kv->key, kv->blocks, &o) == 0)
		return 0;
	fprintf(stderr, "hosts-kv: %s\n", tier_error_text());
	return 1;
}

static int drop_prompt(struct kv *kv)
{
	if (kv->from < kv->blocks &&
	    tier_delete(kv->c, &kv->key[kv->from], kv->blocks - kv->from) >= 0)
		return 0;
	fprintf(stderr, "hosts-kv: %s\n", tier_error_text());
	return 1;
}

/* ---- demand -------------------------------------------------------------------------------- */

#define GAP_NS (2 * NS_PER_MS)
#define PING_NS (400 * NS_PER_US)
#define READS_MAX 8192u

/* The gap to the next read. The daemon is kept awake: else how it wakes would be measured. */
static void gap(struct kv *kv)
{
	const struct timespec nap = { .tv_nsec = PING_NS };

	for (uint64_t left = GAP_NS; left; left -= PING_NS) {
		clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, NULL);
		tier_drain(kv->t);
	}
}

static int compare_ns(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* Single pages in a random order; those that are in memory by chance are passed over. */
static int demand(struct kv *kv)
{
	const struct tier_ask ask = { .size = sizeof(ask), .tier = TIER_CXL };
	uint64_t until_ns = time_now_ns() + kv->deadline_ms * NS_PER_MS, random = until_ns;
	uint32_t pages = tier_geometry_pages(kv->g), reads = 0;
	struct tier_found *found = calloc(kv->blocks, sizeof(*found));
	uint64_t *ns = calloc(READS_MAX, sizeof(*ns));
	tier_reader *r = NULL;
	int status = 1;

	if (!found || !ns || tier_reader_open(kv->t, &r) ||
	    tier_match(kv->c, kv->key, kv->blocks, found) != kv->blocks)
		goto out;
	while (time_now_ns() < until_ns && reads < READS_MAX) {
		struct tier_page page;
		struct tier_lease lease;
		uint32_t block;

		random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
		block = (uint32_t)(random >> 33) % kv->blocks;
		page = (struct tier_page){ found[block].block, (uint32_t)(random >> 40) % pages };
		if (tier_lease_page(r, kv->c, page.block, page.page, TIER_LEASE_NO_USE,
				    &lease) == 0) {
			tier_release_many(r, &lease, 1);
			continue;
		}
		gap(kv);
		ns[reads] = time_now_ns();
		if (tier_fetch_pages(kv->c, &page, 1, &ask) != 1)
			goto out;
		ns[reads] = time_now_ns() - ns[reads];
		reads++;
		if (compare_pages(kv, r, &page, 1, block) < 0)
			goto out;
	}
	qsort(ns, reads, sizeof(*ns), compare_ns);
	status = reads == 0;
	if (reads)
		printf("{\"reads\": %u, \"p50_ns\": %" PRIu64 ", \"p99_ns\": %" PRIu64 "}\n",
		       reads, ns[reads / 2], ns[(uint64_t)reads * 99 / 100]);
out:
	if (status)
		fprintf(stderr, "hosts-kv: demand: %s\n", tier_error_text());
	tier_reader_close(r);
	free(found);
	free(ns);
	return status;
}

/* ---- own ----------------------------------------------------------------------------------- */

#define OWN_GAP_NS (10 * NS_PER_MS)

/* What needs nobody else: asked of tierd-net, every byte compared behind the clock. */
static int own_once(struct kv *kv)
{
	struct tier_hosts_options o = { .size = sizeof(o) };
	struct tier_hosts came = { .size = sizeof(came) };
	struct timespec when;
	uint64_t begun_ns = time_now_ns();
	int64_t usable;

	clock_gettime(CLOCK_REALTIME, &when);
	o.deadline_ns = begun_ns + NS_PER_S;
	usable = tier_pull(kv->c, kv->key, kv->blocks, &o, &came);
	begun_ns = time_now_ns() - begun_ns;
	if (usable != kv->blocks || came.local != kv->blocks) {
		fprintf(stderr, "hosts-kv: own: %" PRId64 " blocks, %u here: %s\n", usable,
			came.local, usable < 0 ? tier_error_text() : "");
		return 1;
	}
	printf("%lld%06ld %" PRIu64 "\n", (long long)when.tv_sec, when.tv_nsec / 1000, begun_ns);
	return fflush(stdout) || compare(kv, kv->blocks) < 0;
}

static int own(struct kv *kv)
{
	const struct timespec nap = { .tv_nsec = OWN_GAP_NS };
	uint64_t until_ns = time_now_ns() + kv->deadline_ms * NS_PER_MS;
	int status = put_with(kv, TIER_PUT_DURABLE);

	while (status == 0 && time_now_ns() < until_ns) {
		status = own_once(kv);
		clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, NULL);
	}
	return status;
}

/* ---- command ------------------------------------------------------------------------------- */

static int open_context(struct kv *kv, const char *name, const char *preset)
{
	tier_geometry *g = NULL;
	int rc = tier_connect(&kv->t, NULL);

	if (rc == 0)
		rc = tier_geometry_preset(&g, preset);
	if (rc == 0)
		rc = tier_context_create(kv->t, name, g, NULL, &kv->c);
	tier_geometry_free(g);
	if (rc) {
		fprintf(stderr, "hosts-kv: %s\n", tier_error_text());
		return 1;
	}
	kv->g = tier_context_geometry(kv->c);
	kv->tokens = tier_geometry_block_tokens(kv->g);
	return make_keys(kv) ? 1 : 0;
}

static int run(struct kv *kv, const char *command)
{
	static const struct {
		const char *name;
		int (*does)(struct kv *kv);
	} commands[] = {
		{ "put", put }, { "fetch", read_prompt }, { "delete", delete_prompt },
		{ "drop", drop_prompt }, { "demand", demand }, { "prefetch", prefetch_prompt },
		{ "stream", stream_prompt }, { "pages", pick_pages }, { "own", own },
	};

	for (uint32_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (strcmp(command, commands[i].name) == 0)
			return commands[i].does(kv);
	return read_prompt(kv);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "preset", 1, NULL, 'p' },    { "deadline", 1, NULL, 'd' },
		{ "token-us", 1, NULL, 't' },  { "token-ns", 1, NULL, 'n' },
		{ "stated-us", 1, NULL, 's' }, { "expect", 1, NULL, 'x' },
		{ "json", 0, NULL, 'j' },      { "from", 1, NULL, 'f' },
		{ "steps", 1, NULL, 'S' },     { "gap", 1, NULL, 'g' },
		{ "until", 1, NULL, 'u' },
		{ 0 },
	};
	struct kv kv = { .deadline_ms = 10000, .expect = -1, .steps = 20 };
	const char *preset = "tiny";
	int c, status;

	while ((c = getopt_long(argc, argv, "+", options, NULL)) != -1) {
		if (c == 'p')
			preset = optarg;
		else if (c == 'd')
			kv.deadline_ms = strtoull(optarg, NULL, 10);
		else if (c == 't')
			kv.token_ns = strtoull(optarg, NULL, 10) * NS_PER_US;
		else if (c == 'n')
			kv.token_ns = strtoull(optarg, NULL, 10);
		else if (c == 's')
			kv.stated_us = strtoull(optarg, NULL, 10);
		else if (c == 'x')
			kv.expect = strtoll(optarg, NULL, 10);
		else if (c == 'f')
			kv.from = (uint32_t)strtoul(optarg, NULL, 10);
		else if (c == 'S')
			kv.steps = (uint32_t)strtoul(optarg, NULL, 10);
		else if (c == 'u')
			kv.until = optarg;
		else if (c == 'g')
			kv.gap_ms = strtoull(optarg, NULL, 10);
		else if (c == 'j')
			kv.json = true;
		else
			return 2;
	}
	if (argc - optind != 4) {
		fputs("usage: hosts-kv [OPTION...] put|read|fetch|stream|pages|prefetch|delete|"
		      "drop|demand|own CONTEXT PROMPT BLOCKS\n",
		      stderr);
		return 2;
	}
	kv.prompt = strtoull(argv[optind + 2], NULL, 10);
	kv.blocks = (uint32_t)strtoul(argv[optind + 3], NULL, 10);
	if (kv.blocks > 8000)
		return 2;
	kv.fetch = strcmp(argv[optind], "fetch") == 0;
	status = open_context(&kv, argv[optind + 1], preset);
	if (status == 0)
		status = run(&kv, argv[optind]);
	tier_close(kv.t);
	free(kv.key);
	return status;
}
