/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The folder of objects: its catalog, its threads; see files.h.
 *
 * A flush that failed leaves open what of the catalog is on the medium: from then on nothing is
 * appended, and the next start reads what is there.
 */
#include "tierd/object/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "libtier/base/cleanup.h"
#include "libtier/base/file.h"
#include "libtier/base/lock.h"
#include "libtier/base/time.h"
#include "tierd/object/datafile.h"
#include "tierd/object/flush.h"

#define CATALOG "catalog"
#define CATALOG_NEW "catalog.new"
#define DATA_THREADS 3u /* one waits for the device while others sum */
#define BATCH_BYTES (1u << 20)
#define NAMES_AHEAD 64u
#define REWRITE_BYTES (1u << 20) /* a catalog smaller than this is never written anew */
#define READY_BYTES (1u << 18)	  /* zeros behind the records */
#define LAZY_NS (100 * NS_PER_MS) /* what is lazy is flushed by then (O8) */

struct object_files {
	struct object_files_config config;
	int folder, catalog;
	uint64_t end; /* of the catalog: behind its last record */
	uint64_t ready; /* of the catalog: it has bytes up to here */
	uint64_t lsn, settled; /* last used; flushed up to it (O10) */
	uint64_t version; /* the last that has a record */
	bool early; /* some record is */
	uint64_t due_ns; /* of the flush that written records wait for; 0: none */
	struct list unlinks; /* wait for that, too */
	struct flush flush;
	int failed; /* of the catalog, for good */
	uint32_t voided; /* at start: early records whose files are not what they say */
	struct lock lock;
	pthread_cond_t work[2]; /* data, log */
	struct list queue[2] GUARDED_BY(lock);
	struct list done GUARDED_BY(lock);
	bool stopping GUARDED_BY(lock);
	pthread_t thread[1 + DATA_THREADS];
	uint32_t threads;
	uint8_t *batch[2]; /* the log thread's, for each catalog */
	struct lock names; /* taken alone */
	uint64_t named GUARDED_BY(names); /* files of versions below have their names, flushed */
	int anew; /* the second catalog, while there is one */
	uint64_t anew_end;
};

/* ---- jobs ---------------------------------------------------------------------------------- */

static void finish(struct object_files *f, struct list *done)
{
	uint64_t one = 1;

	lock_acquire(&f->lock);
	list_splice_back(&f->done, done);
	lock_release(&f->lock);
	if (write(f->config.wake_fd, &one, sizeof(one)) < 0)
		return; /* it counts to 2^64: it is awake already */
}

static void unlink_version(const struct object_files *f, uint64_t version)
{
	char name[DATAFILE_NAME_BYTES];

	datafile_name(name, version);
	unlinkat(f->folder, name, 0);
}

/*
 * The file of a version has its name before it is written, and many have after one flush of the
 * folder: then a version's own flush is all that it needs.
 */
static int name_ahead(struct object_files *f, uint64_t version)
{
	int rc = 0;

	LOCK_SCOPE(&f->names);
	if (version < f->named)
		return 0;
	/* From where the last time ended: threads come with their versions in any order. */
	for (uint64_t v = f->named; v < version + NAMES_AHEAD && rc == 0; v++)
		rc = datafile_name_it(f->folder, v);
	if (rc == 0 && fsync(f->folder))
		rc = -errno;
	if (rc == 0)
		f->named = version + NAMES_AHEAD;
	return rc;
}

static int save(struct object_files *f, struct object_job *job)
{
	int rc = name_ahead(f, job->record.version);

	if (rc == 0)
		rc = datafile_save(f->folder, job, f->config.mem, f->config.buffered);
	if (rc)
		unlink_version(f, job->record.version);
	return rc;
}

static void run_data(struct object_files *f, struct object_job *job)
{
	struct list one;

	switch (job->kind) {
	case OBJECT_SAVE:
		job->res = save(f, job);
		break;
	case OBJECT_BRING:
		job->res = datafile_bring(f->folder, job, f->config.mem, f->config.buffered);
		break;
	case OBJECT_COPY:
		job->res = datafile_copy(job->fd, job->other, job->record.size);
		break;
	case OBJECT_UNLINK:
		unlink_version(f, job->record.version);
		break;
	default:
		break;
	}
	list_init(&one);
	list_push_back(&one, &job->link);
	finish(f, &one);
}

/* The next job of a queue; NULL: it is due_ns (0: never), or all is over. */
static struct object_job *next_job(struct object_files *f, uint32_t queue, uint64_t due_ns)
{
	const struct timespec due = time_to_timespec(due_ns);
	struct list *link;

	LOCK_SCOPE(&f->lock);
	while (list_empty(&f->queue[queue]) && !f->stopping) {
		if (!due_ns)
			pthread_cond_wait(&f->work[queue], &f->lock.mutex);
		else if (pthread_cond_timedwait(&f->work[queue], &f->lock.mutex, &due))
			break;
	}
	link = list_pop_front(&f->queue[queue]);
	return link ? list_entry(link, struct object_job, link) : NULL;
}

static void *data_thread(void *arg)
{
	struct object_files *f = arg;
	struct object_job *job;

	while ((job = next_job(f, 0, 0)))
		run_data(f, job);
	return NULL;
}

static size_t encode_header(struct object_files *f, uint64_t version, void *record)
{
	const struct object_record r = { .type = DISK_OBJECT_HEADER, .lsn = ++f->lsn,
					 .version = version, .settled = f->settled };

	return object_record_encode(&r, f->config.store_id, record);
}

static int write_header(struct object_files *f, int fd, uint64_t version, uint64_t *end)
{
	uint8_t record[DISK_OBJECT_RECORD_MAX];

	*end = encode_header(f, version, record);
	return file_write(fd, record, *end, 0);
}

/* A new catalog takes the place of what there is. */
static int replace_catalog(struct object_files *f, int fd)
{
	if (fdatasync(fd) || renameat(f->folder, CATALOG_NEW, f->folder, CATALOG))
		return -errno;
	if (f->catalog >= 0)
		close(f->catalog);
	f->catalog = fd; /* the other one has no name any more */
	if (fsync(f->folder)) {
		f->failed = -errno; /* which of the two a crash leaves is open */
		log_error(f->config.log, "the folder of objects cannot be flushed",
			  f->config.path, "look at the disk, then restart the daemon",
			  "errno=%d", errno);
	}
	return 0;
}

/* What one look at the queue brought. */
struct batch {
	struct list jobs;
	size_t bytes[2]; /* of records, for each catalog */
	int file[FLUSH_MAX]; /* of early ones, and a place for the catalog */
	uint32_t files;
	bool wanted; /* somebody waits for the flush */
};

/* Records that wait, up to a batch; ANEW and DONE stand alone. */
static struct object_job *next_record(struct object_files *f, const struct batch *b)
{
	size_t bytes = b->bytes[0] > b->bytes[1] ? b->bytes[0] : b->bytes[1];
	struct list *first;

	if (bytes + DISK_OBJECT_RECORD_MAX > BATCH_BYTES || b->files + 1 == FLUSH_MAX)
		return NULL;
	LOCK_SCOPE(&f->lock);
	first = list_first(&f->queue[1]);
	if (!first || list_entry(first, struct object_job, link)->kind == OBJECT_ANEW ||
	    list_entry(first, struct object_job, link)->kind == OBJECT_DONE)
		return NULL;
	list_remove(first);
	return list_entry(first, struct object_job, link);
}

/* A record, for each catalog that it is for. */
static void encode(struct object_files *f, struct object_job *job, struct batch *b)
{
	uint8_t *at = f->batch[1] + b->bytes[1];
	size_t n;

	f->early = f->early || job->record.early;
	if (job->record.version > f->version)
		f->version = job->record.version;
	job->record.lsn = ++f->lsn;
	job->record.settled = f->settled;
	n = object_record_encode(&job->record, f->config.store_id, at);
	if (job->kind == OBJECT_LOG) {
		memcpy(f->batch[0] + b->bytes[0], at, n);
		b->bytes[0] += n;
	}
	b->bytes[1] += n;
}

static void gather(struct object_files *f, struct object_job *job, struct batch *b)
{
	for (; job; job = next_record(f, b)) {
		list_push_back(job->kind == OBJECT_UNLINK ? &f->unlinks : &b->jobs, &job->link);
		if (job->file >= 0)
			b->file[b->files++] = job->file;
		if (job->kind == OBJECT_LOG || job->kind == OBJECT_PLACE)
			encode(f, job, b);
		b->wanted = b->wanted || job->kind == OBJECT_FLUSH ||
			    (job->kind == OBJECT_LOG && !job->lazy);
	}
}

/*
 * Zeros are written and flushed ahead of the records, so that a record changes nothing of the file
 * but bytes that it has (O11). Without room for them it does without.
 */
static void make_ready(struct object_files *f, size_t bytes)
{
	static const uint8_t zeros[1u << 16];
	uint64_t to = f->end + bytes + READY_BYTES;

	if (f->end + bytes <= f->ready)
		return;
	f->ready = f->ready > f->end ? f->ready : f->end;
	while (f->ready < to && !file_write(f->catalog, zeros, sizeof(zeros), f->ready))
		f->ready += sizeof(zeros);
}

static int write_records(struct object_files *f, size_t bytes)
{
	int rc = f->failed;

	if (rc || !bytes)
		return rc;
	make_ready(f, bytes);
	rc = file_write(f->catalog, f->batch[0], bytes, f->end);
	if (rc) { /* part of it may be on the medium: cut it off */
		if (ftruncate(f->catalog, (off_t)f->end) || fdatasync(f->catalog))
			f->failed = rc;
		f->ready = f->end;
		return rc;
	}
	f->end += bytes;
	if (!f->due_ns)
		f->due_ns = time_now_ns() + LAZY_NS;
	return 0;
}

/* All records that were written, and the files of the early ones among them (O10). */
static int flush_records(struct object_files *f, struct batch *b)
{
	int rc;

	b->file[b->files] = f->catalog;
	rc = flush_all(&f->flush, b->file, b->files + 1);
	if (rc) {
		f->failed = rc;
		log_error(f->config.log, "the catalog of objects cannot be flushed",
			  f->config.path, "look at the disk, then restart the daemon",
			  "errno=%d", -rc);
		return rc;
	}
	f->due_ns = 0;
	f->settled = f->lsn;
	return 0;
}

/* What is lazy is done now (O8). */
static void finish_lazy(struct object_files *f, struct list *batch)
{
	struct list lazy;

	list_init(&lazy);
	list_each(at, batch) {
		struct object_job *job = list_entry(at, struct object_job, link);

		if (!job->lazy)
			continue;
		job->catalog_bytes = f->end;
		list_remove(&job->link);
		list_push_back(&lazy, &job->link);
	}
	if (!list_empty(&lazy))
		finish(f, &lazy);
}

/* The second catalog is given up; the first one has everything. */
static void give_up_anew(struct object_files *f)
{
	if (f->anew < 0)
		return;
	close(f->anew);
	f->anew = -1;
	unlinkat(f->folder, CATALOG_NEW, 0);
}

/* What the first catalog did not take must not be in the second one, either. */
static void append_anew(struct object_files *f, size_t bytes, int rc)
{
	if (f->anew < 0)
		return;
	if (rc == 0)
		rc = file_write(f->anew, f->batch[1], bytes, f->anew_end);
	if (rc)
		give_up_anew(f);
	f->anew_end += bytes;
}

static int begin_anew(struct object_files *f, uint64_t version)
{
	int rc;

	f->anew = openat(f->folder, CATALOG_NEW, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (f->anew < 0)
		return -errno;
	rc = write_header(f, f->anew, version, &f->anew_end);
	if (rc)
		give_up_anew(f);
	return rc;
}

static int end_anew(struct object_files *f)
{
	int rc = f->anew < 0 ? -EIO : replace_catalog(f, f->anew);

	if (rc) {
		give_up_anew(f);
		return rc;
	}
	f->anew = -1;
	f->end = f->ready = f->anew_end;
	f->due_ns = 0; /* all that was written is in it */
	f->settled = f->lsn;
	return 0;
}

/* Files whose records are on the medium: nobody will look for them any more. */
static void pass_unlinks(struct object_files *f)
{
	if (f->due_ns || list_empty(&f->unlinks))
		return;
	LOCK_SCOPE(&f->lock);
	list_splice_back(&f->queue[0], &f->unlinks);
	pthread_cond_broadcast(&f->work[0]);
}

/* Write what waits; flush it, unless all of it is lazy and not due. Lazy jobs are done before. */
static int append(struct object_files *f, struct batch *b)
{
	int rc = write_records(f, b->bytes[0]);

	if (rc == 0)
		finish_lazy(f, &b->jobs);
	if (rc == 0 && f->due_ns && (b->wanted || time_now_ns() >= f->due_ns))
		rc = flush_records(f, b);
	append_anew(f, b->bytes[1], rc);
	return rc;
}

static int do_batch(struct object_files *f, struct object_job *job, struct batch *b)
{
	if (job && (job->kind == OBJECT_ANEW || job->kind == OBJECT_DONE)) {
		list_push_back(&b->jobs, &job->link);
		return job->kind == OBJECT_ANEW ? begin_anew(f, job->record.version) : end_anew(f);
	}
	gather(f, job, b);
	return append(f, b);
}

/* A job with all that wait behind it, or (NULL) the flush that is due. */
static void log_batch(struct object_files *f, struct object_job *first, struct batch *b)
{
	bool failed = f->failed;
	int rc;

	*b = (struct batch){ .wanted = !first };
	list_init(&b->jobs);
	rc = do_batch(f, first, b);
	list_each(at, &b->jobs) {
		struct object_job *job = list_entry(at, struct object_job, link);

		job->res = rc;
		job->unsure = f->failed && !failed;
		job->catalog_bytes = f->end;
		if (job->file >= 0)
			close(job->file);
		job->file = -1;
	}
	if (f->failed) /* the next start removes what it may */
		list_splice_back(&b->jobs, &f->unlinks);
	pass_unlinks(f);
	finish(f, &b->jobs);
}

/* All is flushed, and the catalog says so: the next start checks nothing (O10). */
static void settle(struct object_files *f)
{
	struct batch b = { .files = 0 };

	if (!f->failed && f->early &&
	    write_records(f, encode_header(f, f->version, f->batch[0])) == 0)
		flush_records(f, &b);
}

static void *log_thread(void *arg)
{
	struct object_files *f = arg;
	struct object_job *job;
	struct batch b;

	while ((job = next_job(f, 1, f->failed ? 0 : f->due_ns)) || (f->due_ns && !f->failed))
		log_batch(f, job, &b);
	settle(f);
	return NULL;
}

void object_files_submit(struct object_files *f, struct object_job *job)
{
	uint32_t queue = job->kind >= OBJECT_LOG;

	LOCK_SCOPE(&f->lock);
	list_push_back(&f->queue[queue], &job->link);
	pthread_cond_signal(&f->work[queue]);
}

struct object_job *object_files_reap(struct object_files *f)
{
	struct list *link;

	LOCK_SCOPE(&f->lock);
	link = list_pop_front(&f->done);
	return link ? list_entry(link, struct object_job, link) : NULL;
}

int object_files_share(const struct object_files *f, uint64_t version)
{
	char name[DATAFILE_NAME_BYTES];
	int fd;

	datafile_name(name, version);
	fd = openat(f->folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 ? -errno : fd;
}

int object_files_look(const struct object_files *f, uint64_t version, struct stat *st)
{
	char name[DATAFILE_NAME_BYTES];

	datafile_name(name, version);
	return fstatat(f->folder, name, st, AT_SYMLINK_NOFOLLOW) ? -errno : 0;
}

uint64_t object_files_room(const char *path, uint64_t *all)
{
	struct statvfs fs;

	*all = 0;
	if (statvfs(path, &fs))
		return 0;
	*all = (uint64_t)fs.f_blocks * fs.f_frsize;
	return (uint64_t)fs.f_bavail * fs.f_frsize;
}

/* ---- the catalog at start ------------------------------------------------------------------ */

static int refuse(const struct object_files *f, int rc, const char *what, const char *advice)
{
	log_error(f->config.log, what, f->config.path, advice, "errno=%d", -rc);
	return rc;
}

/* A record that may be there without its version's bytes (O10): then only the number counts. */
static int doubt(struct object_files *f, struct object_record *r)
{
	int rc = datafile_verify(f->folder, r, true);

	if (rc == -EBADMSG) {
		r->type = DISK_OBJECT_HEADER;
		f->voided++;
	}
	return rc == -ENOMEM ? rc : 0;
}

static int take_all(struct object_files *f, struct object_scan *s)
{
	uint64_t settled = object_scan_settled(s->bytes, s->count, s->store_id);
	struct object_record r;
	int rc = 0;

	while (rc == 0 && object_scan_next(s, &r)) {
		if (r.early && r.lsn > settled && !f->config.is_void(f->config.arg, &r))
			rc = doubt(f, &r);
		if (rc == 0)
			rc = f->config.take(f->config.arg, &r);
		f->end = s->at;
	}
	f->lsn = s->lsn;
	return rc;
}

/* Records behind each other; a torn end is cut off, holes are told. */
static int read_catalog(struct object_files *f, uint64_t bytes)
{
	struct object_scan s = { .count = bytes, .store_id = f->config.store_id };
	void *map = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, f->catalog, 0);
	int rc;

	if (map == MAP_FAILED)
		return refuse(f, -errno, "the catalog of objects cannot be read",
			      "look at the disk");
	s.bytes = map;
	rc = take_all(f, &s);
	munmap(map, bytes);
	if (rc)
		return refuse(f, rc, "the catalog of objects does not fit into memory",
			      "give the daemon more");
	if (s.foreign)
		return refuse(f, -ESTALE, "the objects there are of another store",
			      "name the store that they belong to, or move the folder away");
	if (s.holes)
		log_warn(f->config.log, "the catalog of objects has bytes that are no record",
			 f->config.path, "a crash leaves some at its end; look at the disk if "
			 "there are many", "bytes=%" PRIu64, s.holes);
	if (f->voided)
		log_info(f->config.log, "versions whose bytes a crash kept from the disk do not "
			 "count", f->config.path, "count=%" PRIu32, f->voided);
	return 0;
}

/* What is dead is left out. */
static int write_anew(struct object_files *f)
{
	int fd CLEANUP_CLOSE = openat(f->folder, CATALOG_NEW,
				      O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	struct object_record r;
	struct object_place place = { 0 };
	int rc;

	if (fd < 0)
		return -errno;
	rc = write_header(f, fd, *f->config.version, &f->end);
	while (rc == 0 && f->config.each(f->config.arg, &place, &r)) {
		size_t bytes;

		r.lsn = ++f->lsn;
		bytes = object_record_encode(&r, f->config.store_id, f->batch[0]);
		rc = file_write(fd, f->batch[0], bytes, f->end);
		f->end += bytes;
	}
	if (rc == 0)
		rc = replace_catalog(f, fd);
	if (rc == 0)
		take_fd(&fd);
	return rc ? rc : f->failed;
}

static uint64_t live_bytes(struct object_files *f)
{
	struct object_record r;
	struct object_place place = { 0 };
	uint64_t bytes = 0;

	while (f->config.each(f->config.arg, &place, &r))
		bytes += object_record_encode(&r, f->config.store_id, f->batch[0]);
	return bytes;
}

static int open_catalog(struct object_files *f)
{
	struct stat st;
	int rc;

	f->catalog = openat(f->folder, CATALOG, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (f->catalog < 0 && errno != ENOENT)
		return refuse(f, -errno, "the catalog of objects cannot be opened",
			      "it must be the daemon's own");
	if (f->catalog < 0 || f->config.anew || fstat(f->catalog, &st) || st.st_size == 0)
		return write_anew(f);
	rc = read_catalog(f, (uint64_t)st.st_size);
	if (rc)
		return rc;
	if (f->voided || (f->end > REWRITE_BYTES && f->end / 2 > live_bytes(f)))
		return write_anew(f);
	if ((uint64_t)st.st_size > f->end && ftruncate(f->catalog, (off_t)f->end))
		return -errno;
	/* Of a daemon that was killed: what is taken for true is on the medium before files go. */
	return fdatasync(f->catalog) ? -errno : 0;
}

/* Files that no record names: of puts that were not committed, of removals half done. */
static int sweep(const struct object_files *f)
{
	int fd = openat(f->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	uint64_t removed = 0;

	if (!dir)
		return -errno;
	for (const struct dirent *e; (e = readdir(dir));) {
		uint64_t version = datafile_version(e->d_name);

		if (!version || (!f->config.anew && f->config.live(f->config.arg, version)))
			continue;
		removed += unlinkat(f->folder, e->d_name, 0) == 0;
	}
	closedir(dir);
	if (removed)
		log_info(f->config.log, "files that no name has were removed", f->config.path,
			 "count=%" PRIu64, removed);
	return 0;
}

/* ---- life ---------------------------------------------------------------------------------- */

static int begin_threads(struct object_files *f)
{
	sigset_t all, before;
	int rc = 0;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the loop's */
	for (uint32_t i = 0; rc == 0 && i < 1 + DATA_THREADS; i++) {
		rc = -pthread_create(&f->thread[i], NULL, i ? data_thread : log_thread, f);
		f->threads += rc == 0;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc;
}

static void end_threads(struct object_files *f)
{
	lock_acquire(&f->lock);
	f->stopping = true;
	pthread_cond_broadcast(&f->work[0]);
	pthread_cond_broadcast(&f->work[1]);
	lock_release(&f->lock);
	for (uint32_t i = 0; i < f->threads; i++)
		pthread_join(f->thread[i], NULL);
}

void object_files_close(struct object_files *f, void (*drop)(void *arg, struct object_job *job))
{
	struct object_job *job;

	end_threads(f);
	while ((job = next_job(f, 0, 0))) /* removals that the last flush let go */
		run_data(f, job);
	while ((job = object_files_reap(f))) {
		if (drop)
			drop(f->config.arg, job);
		free(job);
	}
	give_up_anew(f);
	flush_close(&f->flush);
	if (f->catalog >= 0)
		close(f->catalog);
	if (f->folder >= 0)
		close(f->folder);
	lock_fini(&f->lock);
	lock_fini(&f->names);
	free(f->batch[0]);
	free(f->batch[1]);
	free(f);
}

static void init_queues(struct object_files *f)
{
	pthread_condattr_t monotonic;

	lock_init(&f->lock);
	lock_init(&f->names);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC); /* as time_now_ns */
	for (uint32_t i = 0; i < 2; i++) {
		pthread_cond_init(&f->work[i], &monotonic);
		list_init(&f->queue[i]);
	}
	pthread_condattr_destroy(&monotonic);
	list_init(&f->done);
	list_init(&f->unlinks);
}

int object_files_open(struct object_files **out, const struct object_files_config *config)
{
	struct object_files *f = calloc(1, sizeof(*f));
	int rc;

	if (!f)
		return -ENOMEM;
	f->config = *config;
	f->folder = f->catalog = f->anew = -1;
	init_queues(f);
	f->batch[0] = malloc(BATCH_BYTES);
	f->batch[1] = malloc(BATCH_BYTES);
	rc = f->batch[0] && f->batch[1] ? 0 : -ENOMEM;
	if (rc == 0 && mkdir(config->path, 0700) && errno != EEXIST)
		rc = -errno;
	if (rc == 0)
		f->folder = open(config->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (rc == 0 && f->folder < 0)
		rc = -errno;
	if (rc)
		refuse(f, rc, "the folder of objects cannot be used", "name one that the daemon "
		       "may write (object.path)");
	if (rc == 0)
		rc = open_catalog(f);
	if (rc == 0)
		rc = sweep(f);
	f->named = *config->version + 1;
	f->ready = f->end;
	f->settled = f->lsn;
	flush_open(&f->flush);
	if (rc == 0)
		rc = begin_threads(f);
	if (rc) {
		object_files_close(f, NULL);
		return rc;
	}
	*out = f;
	return 0;
}
