/*
 * Whole transfers: what comes by halves is completed, the end of a file and a file that takes no
 * more are told apart from success.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "libtier/base/cleanup.h"
#include "libtier/base/file.h"
#include "tests/lib/unit.h"

#define BYTES 100000u

static int memfd(void)
{
	int fd = memfd_create("file", MFD_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

static void test_there_and_back(void **state)
{
	uint8_t out[BYTES], in[BYTES];
	int fd CLEANUP_CLOSE = memfd();

	(void)state;
	for (uint32_t i = 0; i < BYTES; i++)
		out[i] = (uint8_t)(i * 7 + i / 256);
	assert_int_equal(file_write(fd, out, BYTES, 12345), 0);
	assert_int_equal(file_read(fd, in, BYTES, 12345), 0);
	assert_memory_equal(in, out, BYTES);
	assert_int_equal(file_read(fd, in, 0, 1ull << 40), 0);
}

static void test_the_end_is_no_data(void **state)
{
	uint8_t bytes[200] = { 0 };
	int fd CLEANUP_CLOSE = memfd();

	(void)state;
	assert_int_equal(file_write(fd, bytes, 100, 0), 0);
	assert_int_equal(file_read(fd, bytes, 100, 0), 0);
	assert_int_equal(file_read(fd, bytes, 101, 0), -ENODATA);
	assert_int_equal(file_read(fd, bytes, 1, 100), -ENODATA);
	assert_int_equal(file_read(-1, bytes, 1, 0), -EBADF);
	assert_int_equal(file_write(-1, bytes, 1, 0), -EBADF);
}

/* The kernel's own lists come a page at a time, however much is asked for. */
static void test_a_file_that_reads_by_halves(void **state)
{
	static uint8_t whole[4 * 4096], piece[4 * 4096];
	int fd CLEANUP_CLOSE = open("/proc/kallsyms", O_RDONLY | O_CLOEXEC);

	(void)state;
	if (fd < 0 || pread(fd, piece, sizeof(piece), 0) <= 0)
		skip();
	assert_int_equal(file_read(fd, whole, sizeof(whole), 0), 0);
	for (size_t at = 0; at < sizeof(piece); at += 512)
		assert_int_equal(pread(fd, piece + at, 512, (off_t)at), 512);
	assert_memory_equal(whole, piece, sizeof(whole));
}

/* The first write(2) stops at the limit, the second says why. */
static void test_a_file_that_takes_a_part(void **state)
{
	struct rlimit before, small;
	uint8_t bytes[8192];
	int fd CLEANUP_CLOSE = memfd();

	(void)state;
	memset(bytes, 3, sizeof(bytes));
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	small = before;
	small.rlim_cur = 4096;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	assert_int_equal(file_write(fd, bytes, sizeof(bytes), 0), -EFBIG);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	assert_int_equal(lseek(fd, 0, SEEK_END), 4096);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_there_and_back),
		cmocka_unit_test(test_the_end_is_no_data),
		cmocka_unit_test(test_a_file_that_reads_by_halves),
		cmocka_unit_test(test_a_file_that_takes_a_part),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
