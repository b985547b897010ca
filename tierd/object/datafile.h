/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of one version on their way between its memory and its file. Block; for the threads of
 * files.c.
 */
#ifndef TIERD_OBJECT_DATAFILE_H
#define TIERD_OBJECT_DATAFILE_H

#include "tierd/object/files.h"

#define DATAFILE_NAME_BYTES 17u

void datafile_name(char out[DATAFILE_NAME_BYTES], uint64_t version);
/* The version of a file's name; 0: it is none of ours. */
uint64_t datafile_version(const char *name);

/* Make its file, empty. Errors: negative errno; that it is there is none. */
int datafile_name_it(int folder, uint64_t version);

/*
 * Seal the upload, sum it into job->crc, write the file, which has its name. It is flushed too,
 * unless it was written past the page cache: that is left to who has job->file, its descriptor.
 * Returns 1, with nothing written, where job->other holds the same bytes. Errors: negative errno.
 */
int datafile_save(int folder, struct object_job *job, const struct mem_ops *mem, bool buffered);

/* So many bytes of one descriptor into another; what there is none of is zeros. */
int datafile_copy(int to, int from, uint64_t size);

/*
 * Does the file hold what the record says? Then it is flushed, if it is to be. Errors: -EBADMSG it
 * does not, or is not there; negative errno.
 */
int datafile_verify(int folder, const struct object_record *r, bool flush);

/* Into new memory, job->fd, sealed. Errors: -EBADMSG the bytes are not those that were written. */
int datafile_bring(int folder, struct object_job *job, const struct mem_ops *mem, bool buffered);

/* ---- for this module's own files ---- */

/* Sums of chunks, as their bytes come by in order. */
struct sums {
	const struct object_record *r;
	uint64_t at;
	uint32_t crc; /* of the chunk that `at` is in */
};
void sums_add(struct sums *s, const uint8_t *bytes, uint64_t count, uint32_t *out);

/* O_DIRECT, or (buffered) without where the file system has none. */
int datafile_open(int folder, uint64_t version, int flags, bool buffered);

static inline uint64_t datafile_pages(uint64_t bytes)
{
	return (bytes + ABI_PAGE_ALIGN - 1) & ~(uint64_t)(ABI_PAGE_ALIGN - 1);
}

#endif
