/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libtier-preload.so: what its files share. It runs inside somebody else's process: no thread, no
 * allocation, errno as it was, and where the daemon is away each call is the C library's.
 *
 *   names.c  resolves a path: below which PATH=CONTEXT, and what name the object has there
 *   ask.c    the connection: a question, its answer
 *   look.c   is it an object? from shared memory, if that can tell
 *   open.c   the open family, close, and which descriptors are uploads
 *   stat.c   what is told of names and of descriptors, and what changes names
 *
 * Folders stay those of the real directory below PATH; objects are files laid over it. A file that
 * is no object is the real one.
 */
#ifndef LIBTIER_SHIM_SHIM_H
#define LIBTIER_SHIM_SHIM_H

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>

#include "libtier/abi/object.h"

#define EXPORT __attribute__((visibility("default")))
#define SHIM_MAPS_MAX 16u /* 8 that tier run was given, each by a link, too */
#define SHIM_REAL 1      /* it is none of ours, the C library is asked */
#define SHIM_FAILED (-1) /* as system calls say it, with errno */

/* The function of the C library that a name stands for. */
enum shim_name {
#define SHIM_NAME(name) SHIM_##name,
#include "shim_names.h"
#undef SHIM_NAME
	SHIM_NAMES
};
void *shim_real(enum shim_name name);
/* REAL(open, int (*)(const char *, int, ...))(path, flags) */
#define REAL(name, type) ((type)shim_real(SHIM_##name))

/* Is this thread inside the shim, or is there nothing to do at all? Then calls pass through. */
bool shim_passes(void);
void shim_enter(void);
void shim_leave(void);

/* ---- names.c --- */

struct shim_name_of {
	char context[ABI_NAME_BYTES];
	char name[ABI_OBJECT_NAME_BYTES];
	uint32_t map; /* which PATH=CONTEXT */
	char path[4096]; /* absolute, without . and .. */
};

/*
 * Is it the path of something below a PATH, itself excepted? Paths are compared as they are
 * written; what lies behind a link below PATH shim_follow tells.
 */
bool shim_resolve(int at, const char *path, struct shim_name_of *out);

/* A link is among its words (last: the last one counts): *n is what it leads to, below a PATH. */
bool shim_follow(struct shim_name_of *n, bool last);
/* The same, links or not: the name that realpath tells. */
bool shim_canonical(struct shim_name_of *n, bool last);

/* Does its last word look like one of those that the profile's programs rename? */
bool shim_is_temporary(const struct shim_name_of *n);

/* Its PATH: a folder that is there for real. */
const char *shim_folder_of(const struct shim_name_of *n);

/* A folder behind all links (last: that it is itself, too); PATH's own name is "". */
bool shim_resolve_folder(int at, const char *path, bool last, struct shim_name_of *out);

/* ---- ask.c --- */

/*
 * Ask; INFO is copied to info, its descriptor to *fd (-1 = none), NULL where it is not wanted.
 * Returns 0, or negative: -ENOTCONN, the daemon is away or keeps no objects.
 */
int shim_ask(struct wire_object *q, uint16_t answer, struct wire_object_info *info, int *fd);
/* The question about a name. */
void shim_question(struct wire_object *q, uint16_t type, const struct shim_name_of *n);
/* The same question, of another name. */
void shim_question_of(struct wire_object *q, const struct shim_name_of *n);
#define SHIM_NAMES_MAX 64u
/*
 * LIST: up to SHIM_NAMES_MAX names without their first `prefix` bytes, each an inode with the name
 * behind it, `stride` bytes apart. The last whole name goes to after. How many, or negative.
 */
int shim_list(struct wire_object *q, size_t prefix, char after[ABI_OBJECT_NAME_BYTES],
	      uint64_t *out, size_t stride, bool *more);
/* The daemon hears what was found, if nobody asks right now. False: it is away. */
bool shim_alive(void);
/* A real file is opened for writing below a PATH: the daemon counts it. */
void shim_tell_real(const struct shim_name_of *n);
/* Ours, which no program knows of. */
bool shim_owns(int fd);

/* ---- look.c --- */

/* 0 and what stat tells of it; SHIM_REAL: it is no object. */
int shim_look(const struct shim_name_of *n, struct wire_object_info *info);
/* The same of what links lead to, if it is none itself. */
int shim_find(struct shim_name_of *n, bool last, struct wire_object_info *info);
/* It is none, for sure, and nobody had to be asked. */
bool shim_absent(const struct shim_name_of *n);
/* What the daemon is to hear of what was found below a PATH; false: nothing. */
bool shim_look_found(uint32_t map, struct wire_object_hold *m);
/* The connection is gone, and with it what came over it; in a child of fork. */
void shim_look_dropped(void);
void shim_look_forked(void);

/* ---- open.c: as the calls of these names; `name` is the real one, if it is that one's --- */

int shim_open(enum shim_name name, int at, const char *path, int flags, mode_t mode);
FILE *shim_fopen(enum shim_name name, const char *path, const char *mode);
FILE *shim_freopen(enum shim_name name, const char *path, const char *mode, FILE *file);
int shim_close(int fd);
int shim_fclose(FILE *file);
int shim_dup(int from, int to, int flags);
void shim_close_range(unsigned first, unsigned last);
/* In a child of fork, before anything else; before exec. */
void shim_forked(void);
void shim_exec(void);
/* A copy was made of a descriptor; returns it. */
int shim_copied(int from, int to);
/* fsync: 0 or negative errno, SHIM_REAL: it is of no upload. */
int shim_sync(int fd);
/* The name by which a descriptor of an object was opened. */
bool shim_name_of_fd(int fd, struct shim_name_of *out);

/* The process ends: what it has written and not closed is committed. */
void shim_end(void);
/* What fstat tells of a descriptor of an object is what stat tells of its name. */
void shim_fix_stat(struct stat *st);
void shim_fill_stat(struct stat *st, const struct wire_object_info *info);

/* 0 or a negative errno of ours, as system calls say it. */
static inline int shim_result(int rc)
{
	if (rc == 0)
		return 0;
	errno = -rc;
	return SHIM_FAILED;
}
#define OR_REAL(rc, call) ((rc) == SHIM_REAL ? (call) : shim_result(rc))

/* ---- stat.c: 0 or negative errno; 1: it is none of ours, the C library is asked --- */

int shim_stat(int at, const char *path, bool last, struct stat *st);
int shim_access(int at, const char *path, int mode);
int shim_unlink(int at, const char *path);
/* Is it an object? 0, else SHIM_REAL: for calls that an object takes otherwise, or not at all. */
int shim_is_object(int at, const char *path, bool last);
/* chmod, utimes: of a name, of an upload's descriptor. */
struct shim_set {
	uint32_t flags; /* WIRE_OBJ_MODE, WIRE_OBJ_MTIME */
	bool link; /* of a link itself, not of what it leads to */
	mode_t mode;
	uint64_t mtime_ns;
};
int shim_set(int at, const char *path, const struct shim_set *set);
int shim_set_fd(int fd, const struct shim_set *set);
int shim_rename(int from_at, const char *from, int to_at, const char *to, unsigned flags);

/* ---- folder.c --- */

void shim_folder_forked(void);
void shim_folder_open(DIR *dir, int at, const char *path);
void shim_folder_close(DIR *dir);
void shim_folder_rewind(DIR *dir);
/* Behind the last real name: a struct dirent64 of an object, or NULL. */
void *shim_folder_next(DIR *dir);
/* Is it a folder below a PATH, or PATH itself, in which objects lie? */
bool shim_has_objects(int at, const char *path);
/* What rmdir says of what lies over the real folders; SHIM_REAL: nothing. */
int shim_remove_folder(int at, const char *path);

#endif
