/* SPDX-License-Identifier: Apache-2.0 */
/* Files of versions; see datafile.h. Past the page cache where the file system lets us. */
#include "tierd/object/datafile.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "libtier/base/cleanup.h"
#include "libtier/base/crc32c.h"
#include "libtier/base/file.h"
#include "libtier/base/time.h"
#include "tierd/object/memfile.h"

#define PIECE_BYTES (4ull << 20)

void datafile_name(char out[DATAFILE_NAME_BYTES], uint64_t version)
{
	snprintf(out, DATAFILE_NAME_BYTES, "%016" PRIx64, version);
}

uint64_t datafile_version(const char *name)
{
	char again[DATAFILE_NAME_BYTES];
	uint64_t version = 0;

	if (sscanf(name, "%16" SCNx64, &version) != 1)
		return 0;
	datafile_name(again, version);
	return strcmp(again, name) == 0 ? version : 0;
}

int datafile_open(int folder, uint64_t version, int flags, bool buffered)
{
	char name[DATAFILE_NAME_BYTES];
	int fd;

	datafile_name(name, version);
	fd = openat(folder, name, flags | O_DIRECT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0 && errno == EINVAL && buffered)
		fd = openat(folder, name, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
	return fd < 0 ? -errno : fd;
}

int datafile_name_it(int folder, uint64_t version)
{
	char name[DATAFILE_NAME_BYTES];

	datafile_name(name, version);
	return mknodat(folder, name, S_IFREG | 0600, 0) && errno != EEXIST ? -errno : 0;
}

void sums_add(struct sums *s, const uint8_t *bytes, uint64_t count, uint32_t *out)
{
	uint64_t chunk = (uint64_t)ABI_PAGE_ALIGN << s->r->shift;

	while (count) {
		uint64_t begun = s->at % chunk, n = chunk - begun < count ? chunk - begun : count;

		if (!begun)
			s->crc = object_record_seed(s->r->context, s->r->version, s->at / chunk);
		s->crc = crc32c(s->crc, bytes, n);
		out[s->at / chunk] = s->crc;
		s->at += n;
		bytes += n;
		count -= n;
	}
}

/* ---- save ---------------------------------------------------------------------------------- */

int datafile_copy(int to, int from, uint64_t size)
{
	loff_t in = 0, out = 0;

	if (ftruncate(to, (off_t)size))
		return -errno;
	while ((uint64_t)in < size) {
		ssize_t n = copy_file_range(from, &in, to, &out, size - (uint64_t)in, 0);

		if (n < 0)
			return -errno;
		if (n == 0) /* it became shorter meanwhile */
			break;
	}
	return 0;
}

/* Do both hold the same bytes? */
static bool same_bytes(int a, int b, uint64_t size)
{
	void *x, *y;
	bool same;

	if (!size)
		return true;
	x = mmap(NULL, size, PROT_READ, MAP_SHARED, a, 0);
	y = mmap(NULL, size, PROT_READ, MAP_SHARED, b, 0);
	same = x != MAP_FAILED && y != MAP_FAILED && memcmp(x, y, size) == 0;
	if (x != MAP_FAILED)
		munmap(x, size);
	if (y != MAP_FAILED)
		munmap(y, size);
	return same;
}

/* Somebody may still write to it: what it holds now, in memory of its own. */
static int copy_upload(struct object_job *job, const struct mem_ops *mem)
{
	int copy CLEANUP_CLOSE = memfile_make(mem), rc;

	if (copy < 0)
		return copy;
	rc = datafile_copy(copy, job->fd, job->record.size);
	if (rc == 0)
		rc = memfile_seal(copy);
	if (rc)
		return rc;
	close(job->fd);
	job->fd = take_fd(&copy);
	return 0;
}

static int write_file(int fd, struct object_job *job, const uint8_t *map)
{
	struct sums s = { .r = &job->record };
	uint64_t size = job->record.size;

	for (uint64_t at = 0; at < size; at += PIECE_BYTES) {
		uint64_t n = size - at < PIECE_BYTES ? size - at : PIECE_BYTES;
		int rc = file_write(fd, map + at, datafile_pages(n), at);

		if (rc)
			return rc;
		sums_add(&s, map + at, n, job->crc);
	}
	return ftruncate(fd, (off_t)size) ? -errno : 0;
}

static int write_mapped(int fd, struct object_job *job)
{
	uint64_t size = job->record.size;
	uint8_t *map;
	int rc;

	if (!size)
		return 0;
	map = mem_map_aligned(job->fd, size, PROT_READ);
	if (map == MAP_FAILED)
		return -errno;
	/* Its writer made small pages: who reads it is faster with huge ones, so is a device. */
	if (size >= ABI_HUGE)
		mem_collapse(map, size / ABI_HUGE * ABI_HUGE);
	rc = write_file(fd, job, map);
	munmap(map, size);
	return rc;
}

int datafile_save(int folder, struct object_job *job, const struct mem_ops *mem, bool buffered)
{
	struct timespec when = { (time_t)(job->record.mtime_ns / NS_PER_S),
				 (long)(job->record.mtime_ns % NS_PER_S) };
	const struct timespec times[2] = { when, when };
	int fd CLEANUP_CLOSE = -1;
	int rc = job->copy ? -EBUSY : memfile_seal(job->fd);

	if (rc == -EBUSY)
		rc = copy_upload(job, mem);
	if (rc)
		return rc;
	/* Sealed by now: what its writer can still cut short is not looked at through a mapping. */
	if (job->other >= 0 && same_bytes(job->fd, job->other, job->record.size))
		return 1;
	futimens(job->fd, times); /* what fstat tells of it; no more than that */
	fd = datafile_open(folder, job->record.version, O_WRONLY, buffered);
	if (fd < 0)
		return fd;
	rc = write_mapped(fd, job);
	if (rc == 0 && fcntl(fd, F_GETFL) & O_DIRECT)
		job->file = take_fd(&fd);
	else if (rc == 0 && fdatasync(fd)) /* what may find no room now must not have a record */
		rc = -errno;
	return rc;
}

/* ---- verify -------------------------------------------------------------------------------- */

static int verify_bytes(int fd, const struct object_record *r, uint8_t *buffer)
{
	uint32_t crc[DISK_OBJECT_CHUNKS_MAX];
	struct sums s = { .r = r };

	while (s.at < r->size) {
		uint64_t n = r->size - s.at < PIECE_BYTES ? r->size - s.at : PIECE_BYTES;
		int rc = file_read(fd, buffer, n, s.at);

		if (rc)
			return rc;
		sums_add(&s, buffer, n, crc);
	}
	return memcmp(crc, r->crc, r->chunks * sizeof(crc[0])) ? -EBADMSG : 0;
}

int datafile_verify(int folder, const struct object_record *r, bool flush)
{
	uint8_t *buffer CLEANUP_FREE = malloc(PIECE_BYTES);
	char name[DATAFILE_NAME_BYTES];
	int fd CLEANUP_CLOSE = -1, rc;
	struct stat st;

	if (!buffer)
		return -ENOMEM;
	datafile_name(name, r->version);
	fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return errno == ENOENT ? -EBADMSG : -errno;
	if (fstat(fd, &st))
		return -errno;
	rc = (uint64_t)st.st_size == r->size ? verify_bytes(fd, r, buffer) : -EBADMSG;
	return rc == 0 && flush && fdatasync(fd) ? -errno : rc;
}
