/*
 * Whole transfers; see file.h. A loop around each call, and the end of the file told from an error.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "libtier/base/file.h"

#include <errno.h>
#include <unistd.h>

int file_read(int fd, void *buf, size_t bytes, uint64_t offset)
{
	uint8_t *at = buf;

	while (bytes) {
		ssize_t n = pread(fd, at, bytes, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -ENODATA;
		at += n;
		bytes -= (size_t)n;
		offset += (uint64_t)n;
	}
	return 0;
}

int file_write(int fd, const void *buf, size_t bytes, uint64_t offset)
{
	const uint8_t *at = buf;

	while (bytes) {
		ssize_t n = pwrite(fd, at, bytes, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EIO;
		at += n;
		bytes -= (size_t)n;
		offset += (uint64_t)n;
	}
	return 0;
}
