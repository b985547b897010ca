/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierctl check STORE: what is wrong with a store is said in clear words, what can be repaired is
 * repaired and only that, and the daemon serves what is left. A file that is not ours, or of
 * another version, is not touched.
 */
#include "tests/integration/front_client.h"

#include <linux/fiemap.h>
#include <linux/fs.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <tier.h>

#include "libtier/abi/disk.h"

#define BLOCKS 40u
#define BLOCK_BYTES (6 * 4096u)

static char said[65536];

/* Run tierctl check on the store; its exit status, its words in said. */
static int check(const struct daemon *d, const char *options)
{
	const char *build = getenv("BUILD");
	char command[600];
	size_t n;
	FILE *f;
	int status;

	snprintf(command, sizeof(command), "%s/tierctl check %s %s 2>&1",
		 build ? build : "build/plain", options, d->store);
	f = popen(command, "r");
	assert_non_null(f);
	n = fread(said, 1, sizeof(said) - 1, f);
	said[n] = '\0';
	status = pclose(f);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void says(const char *text)
{
	if (!strstr(said, text))
		fail_msg("no \"%s\" in: %s", text, said);
}

static void poke(const struct daemon *d, uint64_t at, const void *bytes, size_t count)
{
	int fd = open(d->store, O_RDWR);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, bytes, count, (off_t)at), (ssize_t)count);
	close(fd);
}

static void peek(const struct daemon *d, uint64_t at, void *bytes, size_t count)
{
	int fd = open(d->store, O_RDONLY);

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, bytes, count, (off_t)at), (ssize_t)count);
	close(fd);
}

static tier_key key_of(uint32_t n)
{
	tier_key key;

	assert_int_equal(tier_key_opaque(&key, &n, sizeof(n), NULL), 0);
	return key;
}

static tier_context *open_context(const struct daemon *d, tier **t)
{
	struct tier_connect_options o = { .size = sizeof(o), .socket = d->socket,
					  .staging_bytes = 4u << 20 };
	tier_geometry *g;
	tier_context *c;

	assert_int_equal(tier_geometry_preset(&g, "tiny"), 0);
	assert_int_equal(tier_connect(t, &o), 0);
	assert_int_equal(tier_context_create(*t, "kv", g, NULL, &c), 0);
	tier_geometry_free(g);
	return c;
}

/* A store with durable blocks, and nobody who has it open. */
static void make_store(struct daemon *d, struct disk_super *super)
{
	static uint8_t data[BLOCK_BYTES];
	struct tier_put_options o = { .size = sizeof(o), .flags = TIER_PUT_DURABLE };
	tier_context *c;
	tier *t;

	daemon_folder(d);
	daemon_start(d, NULL);
	c = open_context(d, &t);
	for (uint32_t i = 0; i < BLOCKS; i++) {
		tier_key key = key_of(i);

		memset(data, (int)i + 1, sizeof(data));
		assert_int_equal(tier_put_copy(c, &key, 1, data, &o), 1);
	}
	tier_close(t);
	daemon_stop(d);
	peek(d, 0, super, sizeof(*super));
}

/* How many of the blocks are there, with their own bytes; none may have others'. */
static uint32_t count_blocks(struct daemon *d)
{
	uint32_t count = 0;
	tier_context *c;
	tier_reader *r;
	tier *t;

	daemon_start(d, NULL);
	c = open_context(d, &t);
	assert_int_equal(tier_reader_open(t, &r), 0);
	for (uint32_t i = 0; i < BLOCKS; i++) {
		tier_key key = key_of(i);
		struct tier_lease lease;
		struct tier_found found;
		struct tier_page page;

		if (tier_match(c, &key, 1, &found) != 1)
			continue;
		page = (struct tier_page){ found.block, 3 };
		if (tier_read_pages(r, c, &page, 1, time_now_ns() + 60 * NS_PER_S, &lease) != 1)
			continue;
		assert_int_equal(((const uint8_t *)lease.data)[77], i + 1);
		tier_release(r, &lease);
		count++;
	}
	tier_close(t);
	daemon_stop(d);
	return count;
}

/* ---- nothing to do, or nothing that may be done ---------------------------------------------- */

static void test_a_good_store(void **state)
{
	struct disk_super super;
	struct daemon d;

	(void)state;
	make_store(&d, &super);
	assert_int_equal(check(&d, ""), 0);
	says("nothing is wrong");
	assert_int_equal(check(&d, "--data --repair"), 0);
	says(" 0 do not verify");
	assert_int_equal(check(&d, "--data --json"), 0);
	says("\"pages_bad\": 0");
	says("\"rotten\": 0");
	assert_int_equal(count_blocks(&d), BLOCKS);
	assert_int_equal(check(&d, "--sideways"), 2);
	daemon_start(&d, NULL);
	assert_int_equal(check(&d, "--repair"), 1);
	says("stop tierd first");
	daemon_stop(&d);
	daemon_remove(&d);
}

static void *let_go(void *arg)
{
	usleep(200 * 1000);
	close(*(int *)arg);
	return NULL;
}

/* A daemon that was killed has the store until the kernel is done with its ring. */
static void test_a_lock_that_goes(void **state)
{
	struct flock whole = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	struct disk_super super;
	struct daemon d;
	pthread_t thread;
	int fd;

	(void)state;
	make_store(&d, &super);
	fd = open(d.store, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(fcntl(fd, F_OFD_SETLK, &whole), 0);
	assert_int_equal(pthread_create(&thread, NULL, let_go, &fd), 0);
	assert_int_equal(check(&d, "--repair"), 0);
	says("nothing is wrong");
	pthread_join(thread, NULL);
	daemon_remove(&d);
}

/* A store of which only one copy of the catalog was ever written has no fault. */
static void test_a_new_store(void **state)
{
	struct daemon d;

	(void)state;
	daemon_folder(&d);
	daemon_start(&d, NULL);
	daemon_stop(&d);
	assert_int_equal(check(&d, ""), 0);
	says("nothing is wrong");
	daemon_remove(&d);
}

/* Parts with pages of different sizes: each page is verified as long as it is. */
static void test_parts_of_different_pages(void **state)
{
	static const struct tier_part part[] = {
		{ .name = "kv", .kind = TIER_KIND_DENSE, .layers = 2, .groups = 2,
		  .page_bytes = 8192 },
		{ .name = "index", .kind = TIER_KIND_INDEX, .layers = 2, .groups = 1,
		  .page_bytes = 4096 },
	};
	const struct tier_geometry_options shape = { .size = sizeof(shape), .part_count = 2,
						     .part = part };
	struct tier_put_options durable = { .size = sizeof(durable), .flags = TIER_PUT_DURABLE };
	struct tier_connect_options o = { .size = sizeof(o) };
	static uint8_t data[4 * 8192 + 2 * 4096];
	tier_key key = key_of(1);
	tier_geometry *g;
	tier_context *c;
	struct daemon d;
	tier *t;

	(void)state;
	daemon_folder(&d);
	daemon_start(&d, NULL);
	o.socket = d.socket;
	assert_int_equal(tier_connect(&t, &o), 0);
	assert_int_equal(tier_geometry_new(&g, &shape), 0);
	assert_int_equal(tier_context_create(t, "mixed", g, NULL, &c), 0);
	tier_geometry_free(g);
	memset(data, 7, sizeof(data));
	assert_int_equal(tier_put_copy(c, &key, 1, data, &durable), 1);
	tier_close(t);
	daemon_stop(&d);
	assert_int_equal(check(&d, "--data"), 0);
	says("6 pages read, 0 do not verify");
	daemon_remove(&d);
}

static void test_not_ours(void **state)
{
	char before[8192], after[8192];
	struct disk_super super;
	struct daemon d;

	(void)state;
	make_store(&d, &super);
	super.version++;
	poke(&d, 0, &super, sizeof(super));
	poke(&d, 4096, &super, sizeof(super));
	peek(&d, 0, before, sizeof(before));
	assert_int_equal(check(&d, "--repair"), 1);
	says("of version 2, this tierctl of 1");
	says("nothing was changed");
	memset(before, 'x', sizeof(before));
	poke(&d, 0, before, sizeof(before));
	assert_int_equal(check(&d, "--repair"), 1);
	says("is not a tier store");
	peek(&d, 0, after, sizeof(after));
	assert_memory_equal(before, after, sizeof(before));
	assert_int_equal(truncate(d.store, 100), 0);
	assert_int_equal(check(&d, "--repair"), 1);
	says("is not a tier store");
	unlink(d.store);
	assert_int_equal(check(&d, "--repair"), 1);
	says("No such file");
	daemon_remove(&d);
}

/* Where the catalog with the higher (or lower) sequence number is. */
static uint64_t slot_at(const struct daemon *d, const struct disk_super *super, bool newest)
{
	struct disk_catalog slot[2];

	for (uint32_t i = 0; i < 2; i++)
		peek(d, super->catalog_offset + i * super->catalog_bytes, &slot[i],
		     sizeof(slot[i]));
	return super->catalog_offset +
	       ((slot[1].sequence > slot[0].sequence) == newest ? super->catalog_bytes : 0);
}

/* ---- what can be repaired -------------------------------------------------------------------- */

static void test_super_and_catalog(void **state)
{
	uint8_t noise[4096];
	struct disk_super super;
	struct daemon d;

	(void)state;
	make_store(&d, &super);
	memset(noise, 0x5a, sizeof(noise));
	poke(&d, 4096, noise, sizeof(noise));
	poke(&d, slot_at(&d, &super, false), noise, sizeof(noise));
	assert_int_equal(check(&d, ""), 1);
	says("nothing was changed");
	says("copy is damaged");
	says("the catalog is damaged");
	assert_int_equal(check(&d, "--repair"), 0);
	says("faults: 2, of them repaired: 2");
	assert_int_equal(check(&d, ""), 0);
	/* Both slots say the same now: either may go. */
	poke(&d, slot_at(&d, &super, true), noise, sizeof(noise));
	poke(&d, 0, noise, sizeof(noise));
	assert_int_equal(check(&d, "--repair"), 0);
	assert_int_equal(count_blocks(&d), BLOCKS);
	poke(&d, super.catalog_offset, noise, sizeof(noise));
	poke(&d, super.catalog_offset + super.catalog_bytes, noise, sizeof(noise));
	assert_int_equal(check(&d, "--repair"), 1);
	says("both copies of the catalog are lost");
	daemon_remove(&d);
}

/* The slot that alone names the context goes: its blocks are nobody's, and nobody else's either. */
static void test_the_newest_catalog_is_lost(void **state)
{
	uint8_t noise[4096];
	struct disk_super super;
	struct daemon d;

	(void)state;
	make_store(&d, &super);
	memset(noise, 0x5a, sizeof(noise));
	poke(&d, slot_at(&d, &super, true), noise, sizeof(noise));
	assert_int_equal(check(&d, "--repair"), 0);
	says("what it alone said is lost");
	says("40 blocks of contexts that the catalog does not know any more");
	assert_int_equal(count_blocks(&d), 0); /* makes a context of the same name and shape */
	assert_int_equal(count_blocks(&d), 0); /* which has not taken over the lost one's */
	daemon_remove(&d);
}

/* Elsewhere what was allocated and never written counts as a hole. */
static bool tells_extents(const struct daemon *d)
{
	struct fiemap map = { .fm_length = 4096 };
	int fd = open(d->store, O_RDONLY);
	bool tells = fd >= 0 && ioctl(fd, FS_IOC_FIEMAP, &map) == 0;

	close(fd);
	return tells;
}

static void test_cut_off(void **state)
{
	struct disk_super super;
	struct daemon d;

	(void)state;
	make_store(&d, &super);
	if (!tells_extents(&d)) {
		print_message("no fiemap on the file system of %s\n", d.folder);
		daemon_remove(&d);
		skip();
	}
	/* The blocks lie in the first segments; the last ones go. */
	assert_int_equal(truncate(d.store, (off_t)(super.segment_offset +
						   (super.segment_count - 3) *
							   super.segment_bytes + 5000)), 0);
	assert_int_equal(check(&d, ""), 1);
	says("3 of its");
	assert_int_equal(check(&d, "--repair"), 0);
	says("length again");
	assert_int_equal(check(&d, ""), 0);
	assert_int_equal(count_blocks(&d), BLOCKS);
	/* Within the catalog, whose slots have room behind what they say: nothing is lost of it. */
	assert_int_equal(truncate(d.store, (off_t)(super.catalog_offset + 4 * DISK_SECTOR)), 0);
	assert_int_equal(check(&d, ""), 1);
	says("segments are gone");
	assert_null(strstr(said, "both copies"));
	assert_int_equal(check(&d, "--repair"), 0);
	assert_int_equal(count_blocks(&d), 0);
	/* Within the super blocks. */
	assert_int_equal(truncate(d.store, 4096), 0);
	assert_int_equal(check(&d, ""), 1);
	says("copy is cut off");
	daemon_remove(&d);
	make_store(&d, &super);
	/* Now all of them. */
	assert_int_equal(truncate(d.store, (off_t)super.segment_offset), 0);
	assert_int_equal(check(&d, "--repair"), 0);
	assert_int_equal(count_blocks(&d), 0);
	daemon_remove(&d);
}

/* ---- rot ------------------------------------------------------------------------------------- */

/* Where the first segment that holds records begins. */
static uint64_t used_segment(const struct daemon *d, const struct disk_super *super)
{
	struct disk_segment header;
	uint64_t record;

	for (uint64_t i = 0; i < super->segment_count; i++) {
		uint64_t at = super->segment_offset + i * super->segment_bytes;

		peek(d, at, &header, sizeof(header));
		peek(d, at + DISK_SECTOR, &record, sizeof(record));
		if (header.magic == DISK_SEGMENT_MAGIC && record == DISK_RECORD_MAGIC)
			return at;
	}
	fail_msg("no segment in use");
	return 0;
}

static void test_rot(void **state)
{
	uint8_t noise[4096];
	struct disk_super super;
	struct daemon d;
	uint64_t at;

	(void)state;
	make_store(&d, &super);
	at = used_segment(&d, &super);
	memset(noise, 0x5a, sizeof(noise));
	poke(&d, at + super.summary_bytes + 3 * 4096, noise, sizeof(noise)); /* data */
	assert_int_equal(check(&d, ""), 0); /* summaries alone do not show it */
	assert_int_equal(check(&d, "--data"), 1);
	says(" 1 do not verify");
	poke(&d, at + DISK_SECTOR + 300, noise, 16); /* the first record */
	assert_int_equal(check(&d, ""), 0);
	says("a record does not verify");
	assert_int_equal(count_blocks(&d), BLOCKS - 1);
	poke(&d, at, noise, sizeof(noise)); /* the header */
	assert_int_equal(check(&d, "--repair"), 1);
	says("header does not verify");
	says("faults: 1, of them repaired: 0");
	assert_true(count_blocks(&d) < BLOCKS - 1);
	daemon_remove(&d);
}

/* What stands in the way of looking is told: a pipe, an output that takes nothing. */
static void test_in_the_way(void **state)
{
	struct disk_super super;
	struct daemon d;
	char words[200];

	(void)state;
	make_store(&d, &super);
	snprintf(words, sizeof(words), "%s 2>&1 >/dev/full #", d.store);
	assert_int_equal(check(&d, words), 1);
	says("standard output");
	unlink(d.store);
	assert_int_equal(mkfifo(d.store, 0600), 0);
	assert_int_equal(check(&d, ""), 1);
	says("neither a file nor a block device");
	daemon_remove(&d);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_good_store),
		cmocka_unit_test(test_a_lock_that_goes),
		cmocka_unit_test(test_a_new_store),
		cmocka_unit_test(test_parts_of_different_pages),
		cmocka_unit_test(test_not_ours),
		cmocka_unit_test(test_super_and_catalog),
		cmocka_unit_test(test_the_newest_catalog_is_lost),
		cmocka_unit_test(test_cut_off),
		cmocka_unit_test(test_rot),
		cmocka_unit_test(test_in_the_way),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("store repair", tests, NULL, NULL);
}
