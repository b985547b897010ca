/* SPDX-License-Identifier: Apache-2.0 */
/* The stat family, in each of the spellings that programs have been built with; see exports.c. */
#undef _FILE_OFFSET_BITS /* it would make one of two names */

#include <fcntl.h>
#include <sys/sysmacros.h>

#include "libtier/shim/shim.h"

static int fixed(int rc, void *st)
{
	if (rc == 0 && !shim_passes())
		shim_fix_stat(st);
	return rc;
}

static void to_statx(struct statx *to, const struct stat *st)
{
	to->stx_mask |= STATX_BASIC_STATS;
	to->stx_blksize = (uint32_t)st->st_blksize;
	to->stx_nlink = (uint32_t)st->st_nlink;
	to->stx_uid = st->st_uid;
	to->stx_gid = st->st_gid;
	to->stx_mode = (uint16_t)st->st_mode;
	to->stx_ino = st->st_ino;
	to->stx_size = (uint64_t)st->st_size;
	to->stx_blocks = (uint64_t)st->st_blocks;
	to->stx_mtime.tv_sec = st->st_mtim.tv_sec;
	to->stx_mtime.tv_nsec = (uint32_t)st->st_mtim.tv_nsec;
	to->stx_atime = to->stx_ctime = to->stx_mtime;
	to->stx_dev_major = major(st->st_dev);
	to->stx_dev_minor = minor(st->st_dev);
}

/* The descriptor's own, if it is of an object. */
static void fix_statx(struct statx *to)
{
	struct stat st = { .st_dev = makedev(to->stx_dev_major, to->stx_dev_minor),
			   .st_ino = to->stx_ino, .st_mode = to->stx_mode };

	shim_fix_stat(&st);
	to->stx_dev_major = major(st.st_dev);
	to->stx_dev_minor = minor(st.st_dev);
	to->stx_ino = st.st_ino;
	to->stx_mode = (uint16_t)st.st_mode;
	if (st.st_nlink)
		to->stx_nlink = (uint32_t)st.st_nlink;
}

EXPORT int statx(int at, const char *path, int flags, unsigned mask, struct statx *to)
{
	struct stat st;
	int rc = shim_stat(at, path, !(flags & AT_SYMLINK_NOFOLLOW), &st);

	if (rc == SHIM_REAL) {
		rc = REAL(statx, int (*)(int, const char *, int, unsigned, struct statx *))
			(at, path, flags, mask, to);
		if (rc == 0 && !shim_passes())
			fix_statx(to);
		return rc;
	}
	if (rc == 0) {
		*to = (struct statx){ .stx_mask = 0 };
		to_statx(to, &st);
	}
	return shim_result(rc);
}

#define STAT(name, type, last, real_call)                                                  \
	{                                                                                 \
		int rc = shim_stat(AT_FDCWD, path, last, (struct stat *)st);              \
		return rc == SHIM_REAL ? REAL(name, type) real_call : shim_result(rc);    \
	}
#define STAT_PATH(name, last, of)                                                         \
	EXPORT int name(const char *path, struct of *st)                                  \
	STAT(name, int (*)(const char *, struct of *), last, (path, st))
STAT_PATH(stat, true, stat)
STAT_PATH(stat64, true, stat64)
STAT_PATH(lstat, false, stat)
STAT_PATH(lstat64, false, stat64)

#define STAT_AT(name, of)                                                                 \
	EXPORT int name(int at, const char *path, struct of *st, int flags)               \
	{                                                                                 \
		bool last = !(flags & AT_SYMLINK_NOFOLLOW);                               \
		int rc = shim_stat(at, path, last, (struct stat *)st);                    \
		if (rc != SHIM_REAL)                                                      \
			return shim_result(rc);                                           \
		return fixed(REAL(name, int (*)(int, const char *, struct of *, int))     \
				     (at, path, st, flags), st);                          \
	}
STAT_AT(fstatat, stat)
STAT_AT(fstatat64, stat64)

#define STAT_FD(name, of)                                                                 \
	EXPORT int name(int fd, struct of *st)                                            \
	{                                                                                 \
		return fixed(REAL(name, int (*)(int, struct of *))(fd, st), st);          \
	}
STAT_FD(fstat, stat)
STAT_FD(fstat64, stat64)

/* What programs call that were built with a C library before 2.33. */
#define XSTAT_PATH(name, last, of)                                                        \
	EXPORT int name(int version, const char *path, struct of *st);                    \
	EXPORT int name(int version, const char *path, struct of *st)                     \
	STAT(name, int (*)(int, const char *, struct of *), last, (version, path, st))
XSTAT_PATH(__xstat, true, stat)
XSTAT_PATH(__xstat64, true, stat64)
XSTAT_PATH(__lxstat, false, stat)
XSTAT_PATH(__lxstat64, false, stat64)

#define XSTAT_FD(name, of)                                                                \
	EXPORT int name(int version, int fd, struct of *st);                              \
	EXPORT int name(int version, int fd, struct of *st)                               \
	{                                                                                 \
		return fixed(REAL(name, int (*)(int, int, struct of *))(version, fd, st), st); \
	}
XSTAT_FD(__fxstat, stat)
XSTAT_FD(__fxstat64, stat64)

#define XSTAT_AT(name, of)                                                                \
	EXPORT int name(int version, int at, const char *path, struct of *st, int flags); \
	EXPORT int name(int version, int at, const char *path, struct of *st, int flags)  \
	{                                                                                 \
		bool last = !(flags & AT_SYMLINK_NOFOLLOW);                               \
		int rc = shim_stat(at, path, last, (struct stat *)st);                    \
		if (rc != SHIM_REAL)                                                      \
			return shim_result(rc);                                           \
		return fixed(REAL(name, int (*)(int, int, const char *, struct of *, int)) \
				     (version, at, path, st, flags), st);                 \
	}
XSTAT_AT(__fxstatat, stat)
XSTAT_AT(__fxstatat64, stat64)
