/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that change what stat tells, and those that an object cannot have; see exports.c. An object
 * has one owner, its context's: chown says that it was done when it changes nothing.
 */
#undef _FILE_OFFSET_BITS /* it would make one of two names */

#include <fcntl.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>
#include <utime.h>

#include "libtier/shim/shim.h"

static struct shim_set to_mode(mode_t mode)
{
	return (struct shim_set){ .flags = WIRE_OBJ_MODE, .mode = mode };
}

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* The second of two times is the mtime; without them it is now. */
static struct shim_set to_times(const struct timespec *times)
{
	struct shim_set set = { .flags = WIRE_OBJ_MTIME, .mtime_ns = now() };

	if (times && times[1].tv_nsec == UTIME_OMIT)
		set.flags = 0;
	else if (times && times[1].tv_nsec != UTIME_NOW)
		set.mtime_ns = (uint64_t)times[1].tv_sec * 1000000000 + (uint64_t)times[1].tv_nsec;
	return set;
}

/* Microseconds, as older calls have them. */
static struct shim_set to_timevals(const struct timeval *times)
{
	struct timespec t[2] = { { 0, UTIME_NOW }, { 0, UTIME_NOW } };

	if (times)
		t[1] = (struct timespec){ times[1].tv_sec, times[1].tv_usec * 1000 };
	return to_times(t);
}

EXPORT int chmod(const char *path, mode_t mode)
{
	const struct shim_set set = to_mode(mode);
	int rc = shim_set(AT_FDCWD, path, &set);

	return OR_REAL(rc, REAL(chmod, int (*)(const char *, mode_t))(path, mode));
}

EXPORT int lchmod(const char *path, mode_t mode)
{
	struct shim_set set = to_mode(mode);
	int rc;

	set.link = true;
	rc = shim_set(AT_FDCWD, path, &set);

	return OR_REAL(rc, REAL(lchmod, int (*)(const char *, mode_t))(path, mode));
}

EXPORT int fchmodat(int at, const char *path, mode_t mode, int flags)
{
	struct shim_set set = to_mode(mode);
	int rc;

	set.link = flags & AT_SYMLINK_NOFOLLOW;
	rc = shim_set(at, path, &set);

	return OR_REAL(rc, REAL(fchmodat, int (*)(int, const char *, mode_t, int))
				   (at, path, mode, flags));
}

EXPORT int fchmod(int fd, mode_t mode)
{
	const struct shim_set set = to_mode(mode);
	int rc = shim_set_fd(fd, &set);

	return OR_REAL(rc, REAL(fchmod, int (*)(int, mode_t))(fd, mode));
}

/* Without a path it is the descriptor: futimens of other C libraries. */
static int set_at(int at, const char *path, const struct shim_set *set)
{
	return path ? shim_set(at, path, set) : shim_set_fd(at, set);
}

EXPORT int utimensat(int at, const char *path, const struct timespec times[2], int flags)
{
	struct shim_set set = to_times(times);
	int rc;

	set.link = flags & AT_SYMLINK_NOFOLLOW;
	rc = set_at(at, path, &set);

	return OR_REAL(rc, REAL(utimensat, int (*)(int, const char *, const struct timespec *, int))
				   (at, path, times, flags));
}

EXPORT int futimens(int fd, const struct timespec times[2])
{
	const struct shim_set set = to_times(times);
	int rc = shim_set_fd(fd, &set);

	return OR_REAL(rc, REAL(futimens, int (*)(int, const struct timespec *))(fd, times));
}

EXPORT int utimes(const char *path, const struct timeval times[2])
{
	const struct shim_set set = to_timevals(times);
	int rc = shim_set(AT_FDCWD, path, &set);

	return OR_REAL(rc, REAL(utimes, int (*)(const char *, const struct timeval *))
				   (path, times));
}

EXPORT int lutimes(const char *path, const struct timeval times[2])
{
	struct shim_set set = to_timevals(times);
	int rc;

	set.link = true;
	rc = shim_set(AT_FDCWD, path, &set);

	return OR_REAL(rc, REAL(lutimes, int (*)(const char *, const struct timeval *))
				   (path, times));
}

EXPORT int futimes(int fd, const struct timeval times[2])
{
	const struct shim_set set = to_timevals(times);
	int rc = shim_set_fd(fd, &set);

	return OR_REAL(rc, REAL(futimes, int (*)(int, const struct timeval *))(fd, times));
}

EXPORT int utime(const char *path, const struct utimbuf *times)
{
	struct timespec t[2] = { { 0, UTIME_NOW }, { 0, UTIME_NOW } };
	struct shim_set set;
	int rc;

	if (times)
		t[1] = (struct timespec){ times->modtime, 0 };
	set = to_times(t);
	rc = shim_set(AT_FDCWD, path, &set);
	return OR_REAL(rc, REAL(utime, int (*)(const char *, const struct utimbuf *))(path, times));
}

/* ---- owners -------------------------------------------------------------------------------- */

/* To whom it belongs already, or it may not be. */
static int owned(int rc, uid_t uid, gid_t gid)
{
	if (rc == SHIM_REAL)
		return rc;
	return (uid == (uid_t)-1 || uid == geteuid()) && (gid == (gid_t)-1 || gid == getegid()) ?
		       0 : -EPERM;
}

EXPORT int chown(const char *path, uid_t uid, gid_t gid)
{
	int rc = owned(shim_is_object(AT_FDCWD, path, true), uid, gid);

	return OR_REAL(rc, REAL(chown, int (*)(const char *, uid_t, gid_t))(path, uid, gid));
}

EXPORT int lchown(const char *path, uid_t uid, gid_t gid)
{
	int rc = owned(shim_is_object(AT_FDCWD, path, false), uid, gid);

	return OR_REAL(rc, REAL(lchown, int (*)(const char *, uid_t, gid_t))(path, uid, gid));
}

EXPORT int fchownat(int at, const char *path, uid_t uid, gid_t gid, int flags)
{
	int rc = owned(shim_is_object(at, path, !(flags & AT_SYMLINK_NOFOLLOW)), uid, gid);

	return OR_REAL(rc, REAL(fchownat, int (*)(int, const char *, uid_t, gid_t, int))
				   (at, path, uid, gid, flags));
}

EXPORT int fchown(int fd, uid_t uid, gid_t gid)
{
	const struct shim_set none = { .flags = 0 };
	int rc = owned(shim_set_fd(fd, &none), uid, gid);

	return OR_REAL(rc, REAL(fchown, int (*)(int, uid_t, gid_t))(fd, uid, gid));
}

/* ---- what an object has not ---------------------------------------------------------------- */

typedef ssize_t (*getxattr_call)(const char *, const char *, void *, size_t);
typedef ssize_t (*listxattr_call)(const char *, char *, size_t);

EXPORT ssize_t getxattr(const char *path, const char *name, void *value, size_t size)
{
	int rc = shim_is_object(AT_FDCWD, path, true) ? SHIM_REAL : -ENODATA;

	return OR_REAL(rc, REAL(getxattr, getxattr_call)(path, name, value, size));
}

EXPORT ssize_t lgetxattr(const char *path, const char *name, void *value, size_t size)
{
	int rc = shim_is_object(AT_FDCWD, path, false) ? SHIM_REAL : -ENODATA;

	return OR_REAL(rc, REAL(lgetxattr, getxattr_call)(path, name, value, size));
}

typedef int (*setxattr_call)(const char *, const char *, const void *, size_t, int);

EXPORT int setxattr(const char *path, const char *name, const void *value, size_t size, int flags)
{
	int rc = shim_is_object(AT_FDCWD, path, true) ? SHIM_REAL : -ENOTSUP;

	return OR_REAL(rc, REAL(setxattr, setxattr_call)(path, name, value, size, flags));
}

EXPORT int lsetxattr(const char *path, const char *name, const void *value, size_t size, int flags)
{
	int rc = shim_is_object(AT_FDCWD, path, false) ? SHIM_REAL : -ENOTSUP;

	return OR_REAL(rc, REAL(lsetxattr, setxattr_call)(path, name, value, size, flags));
}

EXPORT int fsetxattr(int fd, const char *name, const void *value, size_t size, int flags)
{
	const struct shim_set none = { .flags = 0 };
	int rc = shim_set_fd(fd, &none) == SHIM_REAL ? SHIM_REAL : -ENOTSUP;

	return OR_REAL(rc, REAL(fsetxattr, int (*)(int, const char *, const void *, size_t, int))
				   (fd, name, value, size, flags));
}

EXPORT ssize_t listxattr(const char *path, char *list, size_t size)
{
	int rc = shim_is_object(AT_FDCWD, path, true);

	return OR_REAL(rc, REAL(listxattr, listxattr_call)(path, list, size));
}

EXPORT ssize_t llistxattr(const char *path, char *list, size_t size)
{
	int rc = shim_is_object(AT_FDCWD, path, false);

	return OR_REAL(rc, REAL(llistxattr, listxattr_call)(path, list, size));
}

static int cut(const char *path, off_t size)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), rc;

	if (fd < 0)
		return fd;
	rc = ftruncate(fd, size);
	return close(fd) || rc ? SHIM_FAILED : 0;
}

EXPORT int truncate(const char *path, off_t size)
{
	return shim_is_object(AT_FDCWD, path, true) ?
		       REAL(truncate, int (*)(const char *, off_t))(path, size) : cut(path, size);
}

EXPORT int truncate64(const char *path, off64_t size)
{
	return truncate(path, size);
}
