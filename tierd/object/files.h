/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects on NVMe: a folder with one plain file a version and the catalog of names. What takes long
 * is a job of a thread here; the loop submits jobs and reaps them.
 *
 *   SAVE     seal an upload (or copy it, while somebody can still write), sum it, write its file
 *   LOG      append a record to the catalog
 *   BRING    read a version's file into memory and compare its sums
 *   UNLINK   remove a version's file
 *   COPY     an upload begins as a copy of a version
 *   ANEW     from here on records go to a second catalog, too; PLACE: one that goes to it alone;
 *            DONE: it takes the place of the first, whose dead records are gone
 *
 * One thread appends, in the order of submission, with one flush for all that wait; the others do
 * the rest. That order is the order of what happened: the table is changed when LOG is reaped.
 */
#ifndef TIERD_OBJECT_FILES_H
#define TIERD_OBJECT_FILES_H

#include "libtier/base/list.h"
#include "libtier/base/log.h"
#include "tierd/backend/backend_ops.h"
#include "tierd/object/table.h"

enum object_job_kind {
	OBJECT_SAVE,
	OBJECT_BRING,
	OBJECT_COPY,
	OBJECT_LOG, /* from here on: the log thread's */
	OBJECT_UNLINK, /* when what was written before is flushed: then a data thread does it */
	OBJECT_FLUSH, /* no record: all that was written before is flushed */
	OBJECT_ANEW,
	OBJECT_PLACE,
	OBJECT_DONE,
};

struct object_job {
	struct list link;
	enum object_job_kind kind;
	int res;
	/*
	 * SAVE: the upload, sealed, or the copy in its place, if it had to be copied or is to be.
	 * BRING: out, sealed. COPY: the upload.
	 */
	int fd;
	bool copy;
	/* SAVE, out: the version's file, if its flush is the log's. LOG: closed behind that. */
	int file;
	int other; /* COPY: from it. SAVE: if it has the same bytes nothing is written, res = 1 */
	/* SAVE: context, version and size are given, the sums are made. Names and sums may point to
	 * the arrays below. */
	struct object_record record;
	uint32_t crc[DISK_OBJECT_CHUNKS_MAX];
	char name[ABI_OBJECT_NAME_BYTES], from[ABI_OBJECT_NAME_BYTES];
	bool lazy; /* LOG: done when it is written; it is flushed all the same */
	bool unsure; /* out, with an error: the next start may find the record all the same */
	uint64_t catalog_bytes; /* out, of the log thread's jobs: its length now */
	void *owner; /* the caller's */
};

struct object_files;

struct object_files_config {
	const char *path; /* of the folder */
	uint64_t store_id;
	bool anew;     /* the store was just formatted: what lies in the folder is nobody's */
	bool buffered; /* the page cache where O_DIRECT is refused is fine */
	const struct mem_ops *mem;
	int wake_fd; /* eventfd: jobs can be reaped */
	struct log *log;
	const uint64_t *version; /* the last number that was used */
	/* For each record of the catalog, in order. Errors end the opening. */
	int (*take)(void *arg, const struct object_record *r);
	/* Nobody sees what it says any more: its file need not be there. */
	bool (*is_void)(void *arg, const struct object_record *r);
	/* Afterwards: is this version still somebody's? */
	bool (*live)(void *arg, uint64_t version);
	/* To write the catalog anew: the next record behind the place; false: none. */
	bool (*each)(void *arg, struct object_place *place, struct object_record *r);
	void *arg;
};

/*
 * Reads the catalog, removes what no record names, writes the catalog anew when half of it is dead,
 * begins its threads. Errors: -ESTALE of another store, negative errno; the log says more.
 */
int object_files_open(struct object_files **out, const struct object_files_config *config);
/* Finishes all jobs; what was not reaped is given to drop (may be NULL) and freed. */
void object_files_close(struct object_files *f, void (*drop)(void *arg, struct object_job *job));

/* The pool owns the job until it is reaped. */
void object_files_submit(struct object_files *f, struct object_job *job);
struct object_job *object_files_reap(struct object_files *f);

/* A descriptor of a version's file, for reading. Errors: those of open(2). */
int object_files_share(const struct object_files *f, uint64_t version);

/* What the host says of it. Errors: those of fstatat(2). */
struct stat;
int object_files_look(const struct object_files *f, uint64_t version, struct stat *st);

/* Bytes of the folder's file system that are free; bytes that it has. */
uint64_t object_files_room(const char *path, uint64_t *all);

#endif
