/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store looked at from outside; see repair.h. What is repaired, and nothing else:
 *
 *   one damaged super block   written again from the other
 *   one damaged catalog slot  written again, with the next sequence number, from the other
 *   a file that was cut off   given its length again; the segments that it lost are free
 *
 * And one context is ended, when it is named: it goes out of both slots of the catalog, one after
 * the other, and its blocks with it, as when a daemon removes it. Repairing never does that.
 *
 * Damaged records and headers need no repairing: the daemon passes them over and uses their segment
 * again. Rebuilding them could bring back what was deleted, for the tombstones that speak of them
 * may be gone by now (abi/disk.h D8).
 */
#include "tierd/ctl/repair.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libtier/abi/geometry_check.h"
#include "libtier/base/cleanup.h"
#include "libtier/base/crc32c.h"
#include "libtier/base/file.h"
#include "tierd/core/unit/store.h"
#include "tierd/ctl/check_objects.h"

#define LINE_BYTES 512
#define LOCK_TRIES 100
#define LOCK_PAUSE_US 10000

struct look {
	const struct repair_options *options;
	struct repair_report *report;
	void (*tell)(void *arg, const char *line);
	void *arg;
	int fd;
	bool device;
	uint64_t bytes;
	struct disk_super super;
	struct store *store;
	uint8_t *catalog; /* both slots */
	const struct disk_catalog *head;
	const struct disk_context *context;
	uint8_t *page; /* the largest there can be */
};

static void say(struct look *l, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(struct look *l, const char *format, ...)
{
	char line[LINE_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	l->tell(l->arg, line);
}

/* A fault; what is done about it follows. */
static void found(struct look *l)
{
	l->report->found++;
}

/* Write and flush; whoever calls has been told to repair. */
static int write_at(struct look *l, const void *buf, size_t bytes, uint64_t offset)
{
	int rc = file_write(l->fd, buf, bytes, offset);

	if (rc)
		return rc;
	return fdatasync(l->fd) ? -errno : 0;
}

static void repair(struct look *l, int rc, const char *what)
{
	if (rc) {
		say(l, "  it could not be repaired: %s: %s", what, strerror(-rc));
		return;
	}
	l->report->repaired++;
	say(l, "  repaired: %s", what);
}

/* ---- opening ------------------------------------------------------------------------------- */

static bool writes(const struct look *l)
{
	return l->options->repair || l->options->remove;
}

/*
 * The lock that a daemon holds while it has the store. One that was killed keeps it until the
 * kernel has wound its ring down, some milliseconds.
 */
static int lock(const struct look *l)
{
	struct flock all = { .l_type = writes(l) ? F_WRLCK : F_RDLCK,
			     .l_whence = SEEK_SET };

	for (int i = 0; i < LOCK_TRIES; i++) {
		if (i)
			usleep(LOCK_PAUSE_US);
		if (fcntl(l->fd, F_OFD_SETLK, &all) == 0)
			return 0;
		if (errno != EAGAIN && errno != EACCES)
			return -errno;
	}
	return -EBUSY;
}

static int open_file(struct look *l)
{
	struct stat st;
	int rc;

	/* O_NONBLOCK: a pipe without anybody at its other end is refused below, not waited for. */
	l->fd = open(l->options->path,
		     (writes(l) ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK);
	if (l->fd < 0 || fstat(l->fd, &st)) {
		rc = -errno;
		say(l, "%s: %s", l->options->path, strerror(-rc));
		return rc;
	}
	l->device = S_ISBLK(st.st_mode);
	l->bytes = (uint64_t)st.st_size;
	if (!l->device && !S_ISREG(st.st_mode)) {
		say(l, "%s: neither a file nor a block device", l->options->path);
		return -EINVAL;
	}
	if (l->device && ioctl(l->fd, BLKGETSIZE64, &l->bytes))
		return -errno;
	rc = lock(l);
	if (rc == -EBUSY)
		say(l, "%s: a daemon has it; stop tierd first (a running one passes over what is "
		       "damaged by itself; tierctl check without a STORE recounts its bytes)",
		    l->options->path);
	return rc;
}

/* ---- super block --------------------------------------------------------------------------- */

static const char *verdict(int rc)
{
	switch (rc) {
	case 0:
		return "good";
	case -EBADMSG:
		return "damaged";
	case -ENODATA:
		return "cut off";
	case -EPROTO:
		return "of another version";
	default:
		return strerror(-rc);
	}
}

static int refuse_super(struct look *l, int first, int second)
{
	struct disk_super s;
	uint8_t sector[DISK_SECTOR];

	if (first == -EPROTO || second == -EPROTO) {
		if (file_read(l->fd, sector, sizeof(sector),
			      first == -EPROTO ? 0 : DISK_SECTOR) == 0)
			disk_super_open(sector, &s);
		else
			s = (struct disk_super){ .version = 0 };
		if (s.version == DISK_VERSION)
			say(l, "the store has features (%" PRIx64 ") that this tierctl does not "
			       "know: use the one that made it; nothing was changed", s.features);
		else
			say(l, "the store is of version %u, this tierctl of %u: use the one that "
			       "made it; nothing was changed", s.version, DISK_VERSION);
		return -EPROTO;
	}
	say(l, "%s is not a tier store (super block %s, its copy %s): nothing was changed",
	    l->options->path, verdict(first), verdict(second));
	return -EBADMSG;
}

static int look_super(struct look *l)
{
	uint8_t sector[2][DISK_SECTOR] = { { 0 } };
	struct disk_super super[2];
	char why[128] = "";
	int rc[2];

	for (uint32_t i = 0; i < 2; i++) {
		rc[i] = file_read(l->fd, sector[i], DISK_SECTOR, i * DISK_SECTOR);
		if (rc[i] == 0)
			rc[i] = disk_super_open(sector[i], &super[i]);
	}
	if (rc[0] == -EPROTO || (rc[0] && rc[1]))
		return refuse_super(l, rc[0], rc[1]);
	l->super = super[rc[0] ? 1 : 0];
	if (store_super_check(&l->super, why, sizeof(why))) {
		say(l, "the super block contradicts itself: %s; nothing was changed", why);
		return -EBADMSG;
	}
	for (uint32_t i = 0; i < 2; i++) {
		if (!rc[i])
			continue;
		found(l);
		say(l, "the super block's %s is %s", i ? "copy" : "first sector", verdict(rc[i]));
		if (l->options->repair)
			repair(l, write_at(l, &l->super, sizeof(l->super), i * DISK_SECTOR),
			       "written again from the other one");
	}
	return 0;
}

/* ---- length -------------------------------------------------------------------------------- */

static void look_length(struct look *l)
{
	uint64_t need = l->super.segment_offset + l->super.segment_count * l->super.segment_bytes;
	uint64_t whole = 0;

	if (l->bytes >= need)
		return;
	if (l->bytes > l->super.segment_offset)
		whole = (l->bytes - l->super.segment_offset) / l->super.segment_bytes;
	found(l);
	say(l, "the store has %" PRIu64 " bytes of %" PRIu64 ": %" PRIu64 " of its %" PRIu64
	       " segments are gone, and their blocks with them",
	    l->bytes, need, l->super.segment_count - whole, l->super.segment_count);
	if (!l->options->repair)
		return;
	if (l->device)
		say(l, "  a device cannot be made longer: bring it back to its size");
	else
		repair(l, -posix_fallocate(l->fd, (off_t)l->bytes, (off_t)(need - l->bytes)),
		       "the file has its length again; what it lost is free space");
}

/* ---- catalog ------------------------------------------------------------------------------- */

/* The good slot's contents, one sequence number on: that belongs into the other slot (D6). */
static int renew_catalog(struct look *l, uint32_t bad)
{
	uint64_t slot_bytes = l->super.catalog_bytes;
	struct disk_catalog head = *l->head;
	uint8_t *buf CLEANUP_FREE = aligned_alloc(DISK_SECTOR, slot_bytes);
	int64_t bytes;

	if (!buf)
		return -ENOMEM;
	head.sequence++;
	bytes = disk_catalog_seal(buf, slot_bytes, &head, l->context,
				  disk_catalog_limits(l->head));
	if (bytes < 0)
		return (int)bytes;
	if ((head.sequence & 1) != bad)
		return -EINVAL; /* the good one is not where its number belongs */
	return write_at(l, buf, (size_t)bytes, l->super.catalog_offset + bad * slot_bytes);
}

/* A slot that was never written: the store was made and got no context yet. */
static bool never_written(const uint8_t *slot)
{
	for (size_t i = 0; i < DISK_SECTOR; i++)
		if (slot[i])
			return false;
	return true;
}

static int look_catalog(struct look *l)
{
	uint64_t slot_bytes = l->super.catalog_bytes;
	int bad = -1, rc[2];

	l->catalog = aligned_alloc(DISK_SECTOR, 2 * slot_bytes);
	if (!l->catalog)
		return -ENOMEM;
	memset(l->catalog, 0, 2 * slot_bytes);
	for (uint32_t slot = 0; slot < 2; slot++) {
		uint8_t *at = l->catalog + slot * slot_bytes;
		const struct disk_context *context;
		const struct disk_catalog *head;

		rc[slot] = file_read(l->fd, at, slot_bytes,
				     l->super.catalog_offset + slot * slot_bytes);
		/* A slot is used from its beginning on: what was cut off may be spare room. */
		if (rc[slot] == 0 || rc[slot] == -ENODATA)
			rc[slot] = disk_catalog_open(at, slot_bytes, l->super.store_id, &head,
						     &context);
		if (rc[slot]) {
			bad = rc[slot] == -EBADMSG && never_written(at) ? bad : (int)slot;
		} else if (!l->head || head->sequence > l->head->sequence) {
			l->head = head;
			l->context = context;
		}
	}
	if (!l->head) {
		say(l, "both copies of the catalog are lost (%s, %s): which blocks are whose is "
		       "not known any more; restore the store from a backup, or begin anew with "
		       "tierd --format", verdict(rc[0]), verdict(rc[1]));
		return -EBADMSG;
	}
	if (bad < 0)
		return 0;
	found(l);
	say(l, "copy %d of the catalog is %s; the other one names %u contexts. If the lost one was "
	       "the newer, what it alone said is lost: a context made or removed, an epoch", bad,
	    verdict(rc[bad]), l->head->count);
	if (l->options->repair)
		repair(l, renew_catalog(l, (uint32_t)bad), "written again from the other one");
	return 0;
}

/* ---- removing a context -------------------------------------------------------------------- */

/* A catalog with the next number, into the slot that this has. */
static int write_catalog(struct look *l, struct disk_catalog *head,
			 const struct disk_context *context, const struct disk_limit *limit)
{
	uint64_t slot_bytes = l->super.catalog_bytes;
	uint8_t *buf CLEANUP_FREE = aligned_alloc(DISK_SECTOR, slot_bytes);
	int64_t bytes;

	if (!buf)
		return -ENOMEM;
	head->sequence++;
	bytes = disk_catalog_seal(buf, slot_bytes, head, context, limit);
	if (bytes < 0)
		return (int)bytes;
	return write_at(l, buf, (size_t)bytes,
			l->super.catalog_offset + (head->sequence & 1) * slot_bytes);
}

static int remove_from(struct look *l, uint32_t which)
{
	struct disk_context *context CLEANUP_FREE = NULL;
	struct disk_limit *limit CLEANUP_FREE = NULL;
	const struct disk_limit *had = disk_catalog_limits(l->head);
	struct disk_catalog head = *l->head;
	uint64_t uid = l->context[which].uid;
	int rc;

	context = calloc(head.count, sizeof(*context));
	limit = calloc(head.limit_count + 1ull, sizeof(*limit));
	if (!context || !limit)
		return -ENOMEM;
	memcpy(context, l->context, head.count * sizeof(*context));
	memmove(&context[which], &context[which + 1],
		(head.count - 1 - which) * sizeof(*context));
	head.count--;
	head.limit_count = 0;
	for (uint32_t i = 0; i < l->head->limit_count; i++)
		if ((had[i].context_uid & ~DISK_LIMIT_PINS) != uid)
			limit[head.limit_count++] = had[i];
	/* Twice: the older slot must not bring it back when the newer one rots. */
	rc = write_catalog(l, &head, context, limit);
	return rc ? rc : write_catalog(l, &head, context, limit);
}

static int remove_context(struct look *l)
{
	const char *name = l->options->remove;
	uint32_t i = 0;
	int rc;

	while (i < l->head->count && strcmp(l->context[i].name, name) != 0)
		i++;
	if (i == l->head->count) {
		say(l, "the catalog names no context %.63s; nothing was removed", name);
		return -ENOENT;
	}
	rc = remove_from(l, i);
	if (rc) {
		say(l, "context %.63s could not be removed: %s", name, strerror(-rc));
		return rc;
	}
	l->report->removed = true;
	say(l, "context %.63s of user %u is removed: its blocks are nobody's from now on", name,
	    l->context[i].owner_uid);
	free(l->catalog);
	l->catalog = NULL;
	l->head = NULL;
	return look_catalog(l);
}

/* ---- segments ------------------------------------------------------------------------------ */

static const struct disk_context *context_of(const struct look *l, uint64_t uid)
{
	for (uint32_t i = 0; i < l->head->count; i++)
		if (l->context[i].uid == uid)
			return &l->context[i];
	return NULL;
}

/* Read the bytes of a run and verify each page: key, salt and page number are in its checksum. */
static void look_run(struct look *l, const struct store_view *v)
{
	const struct disk_context *x = context_of(l, v->head->context_uid);
	const struct abi_geometry *g = x ? &x->geometry : NULL;
	uint32_t there = disk_there_below(v->head, v->head->block_count), nth = 0;
	const uint32_t *crc = v->crc;
	uint64_t bad = 0;
	char why[128];

	if (!g || abi_geometry_check(g, why, sizeof(why)) || x->epoch != v->head->epoch ||
	    v->head->pages_per_block != store_block_pages(g, v->head->parts) ||
	    v->head->data_bytes != there * store_block_bytes(g, v->head->parts))
		return; /* nobody's any more */
	for (uint32_t i = 0; i < v->head->block_count; nth += disk_there(v->head, i++)) {
		for (uint32_t p = 0, part = 0; p < g->pages_per_block; p++) {
			int64_t at = store_run_page(g, v->head->parts, there, nth, p);
			uint32_t seed = store_page_seed(v->block[i].key, v->block[i].salt, p);
			uint32_t bytes;

			while (p >= g->part[part].page_base + g->part[part].layers *
								      g->part[part].groups)
				part++;
			bytes = g->part[part].page_stride;
			if (at < 0 || !disk_there(v->head, i))
				continue;
			l->report->pages_read++;
			bad += file_read(l->fd, l->page, bytes, v->data_offset + (uint64_t)at) ||
			       crc32c(seed, l->page, bytes) != *crc;
			crc++;
		}
	}
	l->report->pages_bad += bad;
	if (!bad)
		return;
	found(l);
	say(l, "segment %u: %" PRIu64 " pages of a run of %u blocks of context %.63s do not "
	       "verify: reading them is a miss, and voids the block", v->segment, bad,
	    there, x->name);
}

static void look_records(struct look *l, uint32_t segment, const void *summary)
{
	uint64_t bytes = l->super.summary_bytes;
	struct store_view v;
	size_t cursor = 0;
	int rc;

	while ((rc = store_next(l->store, segment, summary, bytes, &cursor, &v)) == 0) {
		l->report->records++;
		if (v.head->type != DISK_RECORD_RUN)
			continue;
		l->report->blocks += disk_there_below(v.head, v.head->block_count);
		if (v.head->context_uid >= l->head->next_uid)
			l->report->orphans += disk_there_below(v.head, v.head->block_count);
		if (l->options->data)
			look_run(l, &v);
	}
	if (rc != -EBADMSG)
		return;
	l->report->records_bad++; /* no fault: a crash leaves such */
	say(l, "segment %u: a record does not verify and is passed over: its run never became "
	       "whole, or it rotted", segment);
}

static void look_segment(struct look *l, uint32_t segment, void *summary)
{
	uint64_t offset = l->super.segment_offset + segment * l->super.segment_bytes;
	int rc = file_read(l->fd, summary, l->super.summary_bytes, offset);

	l->report->segments++;
	if (rc == -ENODATA) {
		l->report->unreadable++;
		return; /* beyond the end, which was told already */
	}
	if (rc) {
		found(l);
		l->report->unreadable++;
		say(l, "segment %u cannot be read (%s): its blocks are lost; look at the device",
		    segment, strerror(-rc));
		return;
	}
	rc = store_recover(l->store, segment, summary, l->super.summary_bytes);
	if (rc >= 0) {
		look_records(l, segment, summary);
		return;
	}
	l->report->free++;
	if (never_written(summary))
		return;
	found(l);
	l->report->rotten++;
	l->report->free--;
	say(l, "segment %u: its header does not verify: what it held is not taken, and its space "
	       "is used again", segment);
}

static int look_segments(struct look *l)
{
	void *summary CLEANUP_FREE = aligned_alloc(DISK_SECTOR, l->super.summary_bytes);
	int rc = store_open(&l->store, &l->super);

	if (rc)
		return rc;
	l->page = malloc(ABI_PAGE_BYTES_MAX + ABI_PAGE_ALIGN);
	if (!summary || !l->page)
		return -ENOMEM;
	for (uint32_t i = 0; i < l->super.segment_count; i++)
		look_segment(l, i, summary);
	if (l->report->orphans)
		say(l, "%" PRIu64 " blocks of contexts that the catalog does not know any more",
		    l->report->orphans);
	return 0;
}

/* ---- the whole ----------------------------------------------------------------------------- */

static int look_objects(struct look *l)
{
	char path[4096];
	struct check_objects c = { .path = l->options->objects, .store_id = l->super.store_id,
				   .context = l->context, .data = l->options->data,
				   .contexts = l->head ? l->head->count : 0, .tell = l->tell,
				   .arg = l->arg };
	int rc;

	if (!c.path && (size_t)snprintf(path, sizeof(path), "%s.objects", l->options->path) >=
			       sizeof(path))
		return -ENAMETOOLONG;
	c.path = c.path ? c.path : path;
	rc = check_objects(&c);
	l->report->objects = c.objects;
	l->report->objects_read = c.read;
	l->report->objects_bad = c.faults;
	l->report->found += c.faults;
	return rc;
}

int repair_store(const struct repair_options *options, struct repair_report *report,
		 void (*tell)(void *arg, const char *line), void *arg)
{
	struct look l = { .options = options, .report = report, .tell = tell, .arg = arg,
			  .fd = -1 };
	int rc;

	*report = (struct repair_report){ .segments = 0 };
	rc = open_file(&l);
	if (rc == 0)
		rc = look_super(&l);
	if (rc == 0) {
		look_length(&l);
		rc = look_catalog(&l);
	}
	if (rc == 0 && options->remove)
		rc = remove_context(&l);
	if (rc == 0)
		rc = look_segments(&l);
	if (rc == 0)
		rc = look_objects(&l);
	if (rc == -ENOMEM)
		say(&l, "out of memory");
	if (l.store)
		store_close(l.store);
	free(l.catalog);
	free(l.page);
	if (l.fd >= 0)
		close(l.fd);
	return rc;
}
