/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store whose device cannot read, or not write, single sectors: what its other copy is good for.
 */
#include "tests/lib/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tierd/recover.h"

#define STORE_BYTES (64ull << 20)
#define NOWHERE UINT64_MAX

/* The file backend, with sectors that have died. */
static struct {
	uint64_t unread, unwritten;
} bad;

static int bad_pread(struct block_device *d, void *buf, size_t bytes, uint64_t offset)
{
	if (offset <= bad.unread && bad.unread < offset + bytes)
		return -EIO;
	return block_backend(NULL)->pread(d, buf, bytes, offset);
}

static int bad_pwrite(struct block_device *d, const void *buf, size_t bytes, uint64_t offset)
{
	if (offset <= bad.unwritten && bad.unwritten < offset + bytes)
		return -EIO;
	return block_backend(NULL)->pwrite(d, buf, bytes, offset);
}

static struct shell *shell_new(struct block_ops *ops)
{
	const char *tmp = getenv("TMPDIR");
	struct shell *s = calloc(1, sizeof(*s));

	assert_non_null(s);
	bad.unread = bad.unwritten = NOWHERE;
	*ops = *block_backend(NULL);
	ops->pread = bad_pread;
	ops->pwrite = bad_pwrite;
	s->block = ops;
	s->log.level = LOG_LEVEL_ERROR;
	s->config.nvme_buffered = true;
	snprintf(s->config.store_path, sizeof(s->config.store_path), "%.200s/recover-%d",
		 tmp ? tmp : "/tmp", (int)getpid());
	assert_int_equal(recover_store(s, STORE_BYTES), 0);
	recover_store_close(s);
	return s;
}

static int again(struct shell *s)
{
	int rc = recover_store(s, STORE_BYTES);

	if (rc == 0)
		recover_store_close(s);
	return rc;
}

static void shell_free(struct shell *s)
{
	unlink(s->config.store_path);
	free(s);
}

static void test_a_super_block_that_cannot_be_read(void **state)
{
	struct block_ops ops;
	struct shell *s = shell_new(&ops);

	(void)state;
	bad.unread = 0;
	assert_int_equal(again(s), 0);
	/* Not to be written again either: the copy alone will do. */
	bad.unwritten = 0;
	assert_int_equal(again(s), 0);
	bad.unread = DISK_SECTOR;
	assert_int_equal(again(s), 0);
	shell_free(s);
}

/* The newer one may be the one that cannot be read just now: nothing is built upon the older. */
static void test_a_catalog_that_cannot_be_read(void **state)
{
	struct block_ops ops;
	struct shell *s = shell_new(&ops);

	(void)state;
	for (uint32_t slot = 0; slot < 2; slot++) {
		bad.unread = s->core_config.super.catalog_offset +
			     slot * s->core_config.super.catalog_bytes;
		assert_int_equal(again(s), -EIO);
	}
	bad.unread = NOWHERE;
	assert_int_equal(again(s), 0);
	shell_free(s);
}

static void slot_at(const struct shell *s, uint32_t slot, void *sector, bool write)
{
	off_t at = (off_t)(s->core_config.super.catalog_offset +
			   slot * s->core_config.super.catalog_bytes);
	int fd = open(s->config.store_path, O_RDWR);

	assert_true(fd >= 0);
	assert_int_equal(write ? pwrite(fd, sector, DISK_SECTOR, at) :
				 pread(fd, sector, DISK_SECTOR, at), DISK_SECTOR);
	close(fd);
}

/* D6: a catalog is taken only from the slot that its number belongs into; of one of which a crash
 * left a part the head is voided, before the next one is written there. */
static void test_slots_of_the_catalog(void **state)
{
	uint8_t good[DISK_SECTOR], torn[DISK_SECTOR], zero[DISK_SECTOR] = { 0 };
	struct block_ops ops;
	struct shell *s = shell_new(&ops);

	(void)state;
	slot_at(s, 1, good, false);
	memcpy(torn, good, sizeof(torn));
	torn[100] ^= 1;
	slot_at(s, 0, torn, true);
	assert_int_equal(again(s), 0);
	slot_at(s, 0, torn, false);
	assert_memory_equal(torn, zero, sizeof(zero));
	slot_at(s, 0, good, true);
	slot_at(s, 1, zero, true);
	assert_int_equal(again(s), -EBADMSG);
	slot_at(s, 1, good, true);
	assert_int_equal(again(s), 0);
	shell_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_super_block_that_cannot_be_read),
		cmocka_unit_test(test_a_catalog_that_cannot_be_read),
		cmocka_unit_test(test_slots_of_the_catalog),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
