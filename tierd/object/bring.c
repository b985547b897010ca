/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A version's file is read into memory of its own, and verified; see datafile.h. Several reads are
 * under way at a time: pages are made, and bytes summed, while the device reads.
 */
#include <errno.h>
#include <liburing.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "libtier/base/cleanup.h"
#include "libtier/base/time.h"
#include "tierd/object/datafile.h"
#include "tierd/object/memfile.h"

#define PIECE_BYTES (4ull << 20)
#define FLIGHT_BYTES (1ull << 20) /* of one read */
#define FLIGHT_DEPTH 4u

/* From `at` to the size, in whole pages: only the file's last read is short. */
static int read_file(int fd, uint8_t *map, uint64_t at, uint64_t size)
{
	while (at < size) {
		uint64_t n = datafile_pages(size - at) < PIECE_BYTES ? datafile_pages(size - at) :
								    PIECE_BYTES;
		ssize_t got = pread(fd, map + at, n, (off_t)at);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got ? -errno : -EBADMSG;
		at += (uint64_t)got;
	}
	return at == size ? 0 : -EBADMSG;
}

/* Reads of one file, several at a time; they end in any order, and are summed in the bytes' own. */
struct flight {
	struct io_uring ring;
	int fd;
	uint8_t *map;
	uint64_t size, asked; /* bytes */
	uint32_t under_way;
	bool done[FLIGHT_DEPTH];
};

static uint64_t flight_bytes(const struct flight *f, uint64_t at)
{
	return f->size - at < FLIGHT_BYTES ? f->size - at : FLIGHT_BYTES;
}

static bool *flight_done(struct flight *f, uint64_t at)
{
	return &f->done[at / FLIGHT_BYTES % FLIGHT_DEPTH];
}

static int ask_reads(struct flight *f, uint64_t summed)
{
	int rc;

	while (f->asked < f->size && f->asked - summed < FLIGHT_DEPTH * FLIGHT_BYTES) {
		struct io_uring_sqe *e = io_uring_get_sqe(&f->ring);
		uint64_t n = flight_bytes(f, f->asked);

		/* Before the device wants its pages; where there is no huge one it makes them. */
		if (f->asked % ABI_HUGE == 0 && f->size - f->asked >= ABI_HUGE)
			mem_back(f->map + f->asked, ABI_HUGE);
		io_uring_prep_read(e, f->fd, f->map + f->asked, (unsigned)datafile_pages(n),
				   f->asked);
		io_uring_sqe_set_data64(e, f->asked);
		*flight_done(f, f->asked) = false;
		f->asked += n;
		do
			rc = io_uring_submit(&f->ring);
		while (rc == -EINTR || rc == -EAGAIN);
		if (rc != 1)
			return rc < 0 ? rc : -EIO;
		f->under_way++;
	}
	return 0;
}

/* One that has ended. What is short of it is read here: it is the file's end, or rare. */
static int take_read(struct flight *f)
{
	struct io_uring_cqe *e;
	uint64_t at, n, got;
	int rc;

	do
		rc = io_uring_wait_cqe(&f->ring, &e);
	while (rc == -EINTR);
	if (rc)
		return rc;
	at = io_uring_cqe_get_data64(e);
	rc = e->res;
	io_uring_cqe_seen(&f->ring, e);
	f->under_way--;
	n = flight_bytes(f, at);
	got = rc > 0 ? (uint64_t)rc : 0;
	if (rc >= 0 && got < n)
		rc = read_file(f->fd, f->map, at + got, at + n);
	*flight_done(f, at) = rc >= 0;
	return rc < 0 ? rc : 0;
}

static int read_flights(struct flight *f, struct sums *s, uint32_t *crc)
{
	int rc = 0;

	while (rc == 0 && s->at < f->size) {
		rc = ask_reads(f, s->at);
		if (rc == 0)
			rc = take_read(f);
		while (rc == 0 && s->at < f->asked && *flight_done(f, s->at))
			sums_add(s, f->map + s->at, flight_bytes(f, s->at), crc);
	}
	/* Before its memory goes, whatever becomes of each. */
	for (uint32_t left = f->under_way; left; left--)
		take_read(f);
	return rc;
}

static int read_and_sum(int fd, uint8_t *map, uint64_t size, struct sums *s, uint32_t *crc)
{
	struct flight f = { .fd = fd, .map = map, .size = size };
	int rc;

	if (size > FLIGHT_BYTES && io_uring_queue_init(FLIGHT_DEPTH, &f.ring, 0) == 0) {
		rc = read_flights(&f, s, crc);
		io_uring_queue_exit(&f.ring);
		return rc;
	}
	rc = read_file(fd, map, 0, size);
	if (rc == 0)
		sums_add(s, map, size, crc);
	return rc;
}

static int read_mapped(int fd, int to, const struct object_job *job)
{
	const struct object_record *r = &job->record;
	uint32_t crc[DISK_OBJECT_CHUNKS_MAX];
	struct sums s = { .r = r };
	uint8_t *map;
	int rc;

	map = mem_map_aligned(to, r->size, PROT_READ | PROT_WRITE);
	if (map == MAP_FAILED)
		return -errno;
	rc = read_and_sum(fd, map, r->size, &s, crc);
	if (rc == 0)
		rc = memcmp(crc, job->crc, r->chunks * sizeof(crc[0])) ? -EBADMSG : 0;
	munmap(map, r->size);
	return rc;
}

int datafile_bring(int folder, struct object_job *job, const struct mem_ops *mem, bool buffered)
{
	const struct object_record *r = &job->record;
	struct timespec when = { (time_t)(r->mtime_ns / NS_PER_S),
				 (long)(r->mtime_ns % NS_PER_S) };
	const struct timespec times[2] = { when, when };
	int fd CLEANUP_CLOSE = datafile_open(folder, r->version, O_RDONLY, buffered);
	int to CLEANUP_CLOSE = -1;
	struct stat st;
	int rc = 0;

	if (fd < 0)
		return fd == -ENOENT ? -EBADMSG : fd;
	if (fstat(fd, &st))
		return -errno;
	if ((uint64_t)st.st_size != r->size)
		return -EBADMSG;
	to = memfile_make(mem);
	if (to < 0)
		return to;
	if (ftruncate(to, (off_t)r->size))
		return -errno;
	if (r->size)
		rc = read_mapped(fd, to, job);
	futimens(to, times);
	if (rc == 0)
		rc = memfile_seal(to);
	if (rc == 0)
		job->fd = take_fd(&to);
	return rc;
}
