/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay LOG DISK MARK SEED [LIES]: what a power cut some time after MARK may have left on a device
 * with a volatile cache, built on DISK from the record that the kernel's dm-log-writes made in LOG
 * (Documentation/admin-guide/device-mapper/log-writes.rst; drivers/md/dm-log-writes.c).
 *
 * The cut is drawn between MARK and the next `SPAN` entries. All that was written before the last
 * flush ahead of the cut is there. Of what was written after it, each write is there or not, or
 * torn at a sector, as the seed decides; FUA writes are there. With LIES, as many of the last
 * flushes did nothing: a test that passes on such a disk sees nothing.
 *
 * Prints how many writes were kept, lost and torn.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOG_MAGIC 0x6a736677736872ull
#define LOG_VERSION 1u
#define LOG_FLUSH 1u
#define LOG_FUA 2u
#define LOG_DISCARD 4u
#define LOG_MARK 8u

#define SPAN 60u
#define ENTRIES_MAX (1u << 20)

struct log_super {
	uint64_t magic, version, nr_entries;
	uint32_t sectorsize;
};

struct log_entry {
	uint64_t sector, nr_sectors, flags, data_len;
};

struct entry {
	struct log_entry head;
	uint64_t at; /* of its data in the log, bytes */
	int marked;  /* it is the mark that we were asked for */
};

struct record {
	int log, disk;
	uint32_t sector; /* bytes */
	uint64_t count;
	struct entry *entry;
	uint64_t kept, lost, torn;
	uint64_t random;
	uint32_t lies;
};

static uint32_t draw(struct record *r, uint32_t below)
{
	r->random = r->random * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)((r->random >> 33) % below);
}

static int read_all(int fd, void *buf, size_t bytes, uint64_t at)
{
	return pread(fd, buf, bytes, (off_t)at) == (ssize_t)bytes ? 0 : -EIO;
}

static int load(struct record *r, const char *mark)
{
	struct log_super super;
	uint64_t at;
	int rc = read_all(r->log, &super, sizeof(super), 0);

	if (rc || le64toh(super.magic) != LOG_MAGIC || le64toh(super.version) != LOG_VERSION)
		return -EBADMSG;
	r->sector = le32toh(super.sectorsize);
	r->count = le64toh(super.nr_entries);
	if (r->count > ENTRIES_MAX)
		return -EFBIG;
	r->entry = calloc(r->count ? r->count : 1, sizeof(*r->entry));
	if (!r->entry)
		return -ENOMEM;
	at = r->sector;
	for (uint64_t i = 0; i < r->count; i++) {
		struct entry *e = &r->entry[i];
		char text[512] = "";

		rc = read_all(r->log, &e->head, sizeof(e->head), at);
		if (rc)
			return rc;
		e->head.sector = le64toh(e->head.sector);
		e->head.nr_sectors = le64toh(e->head.nr_sectors);
		e->head.flags = le64toh(e->head.flags);
		e->head.data_len = le64toh(e->head.data_len);
		if (e->head.flags & LOG_MARK && e->head.data_len < sizeof(text))
			rc = read_all(r->log, text, e->head.data_len, at + sizeof(e->head));
		if (rc)
			return rc;
		e->marked = e->head.flags & LOG_MARK && !strcmp(text, mark);
		at += r->sector;
		e->at = at;
		if (!(e->head.flags & LOG_DISCARD))
			at += e->head.nr_sectors * r->sector;
	}
	return 0;
}

static int apply(struct record *r, const struct entry *e, uint64_t sectors)
{
	size_t bytes = sectors * r->sector;
	void *buf;
	int rc;

	if (!bytes || e->head.flags & (LOG_DISCARD | LOG_MARK))
		return 0;
	buf = malloc(bytes);
	if (!buf)
		return -ENOMEM;
	rc = read_all(r->log, buf, bytes, e->at);
	if (!rc && pwrite(r->disk, buf, bytes, (off_t)(e->head.sector * r->sector)) !=
			   (ssize_t)bytes)
		rc = -EIO;
	free(buf);
	return rc;
}

/* A write that no flush covers. */
static int apply_some(struct record *r, const struct entry *e)
{
	uint64_t n = e->head.nr_sectors;
	uint32_t fate = draw(r, 4);

	if (!n || e->head.flags & LOG_MARK)
		return 0;
	if (e->head.flags & LOG_FUA || fate < 2) {
		r->kept++;
		return apply(r, e, n);
	}
	if (fate == 2) {
		r->lost++;
		return 0;
	}
	r->torn++;
	return apply(r, e, draw(r, (uint32_t)n));
}

static int rebuild(struct record *r)
{
	uint64_t mark = 0, cut, flush = 0;
	int rc = 0;

	while (mark < r->count && !r->entry[mark].marked)
		mark++;
	if (mark == r->count)
		return -ENOENT;
	cut = mark + 1 + draw(r, SPAN);
	if (cut > r->count)
		cut = r->count;
	for (uint64_t i = cut; i-- > 0 && !flush;)
		if (r->entry[i].head.flags & LOG_FLUSH && !r->lies--)
			flush = i;
	for (uint64_t i = 0; i < flush && !rc; i++)
		rc = apply(r, &r->entry[i], r->entry[i].head.nr_sectors);
	for (uint64_t i = flush; i < cut && !rc; i++)
		rc = apply_some(r, &r->entry[i]);
	printf("replay: cut at entry %" PRIu64 " of %" PRIu64 ", %" PRIu64 " behind the flush: %"
	       PRIu64 " kept, %" PRIu64 " lost, %" PRIu64 " torn\n",
	       cut, r->count, cut - flush, r->kept, r->lost, r->torn);
	return rc;
}

int main(int argc, char **argv)
{
	struct record r = { .log = -1, .disk = -1 };
	int rc;

	if (argc != 5 && argc != 6) {
		fputs("usage: replay LOG DISK MARK SEED [LIES]\n", stderr);
		return 2;
	}
	r.lies = argc == 6 ? (uint32_t)strtoul(argv[5], NULL, 0) : 0;
	r.random = strtoull(argv[4], NULL, 0);
	r.log = open(argv[1], O_RDONLY | O_CLOEXEC);
	r.disk = open(argv[2], O_WRONLY | O_CLOEXEC);
	rc = r.log < 0 || r.disk < 0 ? -errno : load(&r, argv[3]);
	if (!rc)
		rc = rebuild(&r);
	if (!rc && fsync(r.disk))
		rc = -errno;
	if (rc)
		fprintf(stderr, "replay: %s: %s\n", rc == -ENOENT ? argv[3] : argv[1],
			strerror(-rc));
	free(r.entry);
	if (r.log >= 0)
		close(r.log);
	if (r.disk >= 0)
		close(r.disk);
	return rc != 0;
}
