/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that make names of another kind than a file's, or tell what a name is; see exports.c. */
#undef _FILE_OFFSET_BITS /* it would make one of two names */
#undef _FORTIFY_SOURCE

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libtier/shim/shim.h"

/* What would lie below an object, unseen. */
static int taken(int at, const char *path)
{
	return shim_is_object(at, path, false) ? SHIM_REAL : -EEXIST;
}

EXPORT int mkdir(const char *path, mode_t mode)
{
	int rc = taken(AT_FDCWD, path);

	return OR_REAL(rc, REAL(mkdir, int (*)(const char *, mode_t))(path, mode));
}

EXPORT int mkdirat(int at, const char *path, mode_t mode)
{
	int rc = taken(at, path);

	return OR_REAL(rc, REAL(mkdirat, int (*)(int, const char *, mode_t))(at, path, mode));
}

EXPORT int symlink(const char *target, const char *path)
{
	int rc = taken(AT_FDCWD, path);

	return OR_REAL(rc, REAL(symlink, int (*)(const char *, const char *))(target, path));
}

EXPORT int symlinkat(const char *target, int at, const char *path)
{
	int rc = taken(at, path);

	return OR_REAL(rc, REAL(symlinkat, int (*)(const char *, int, const char *))
				   (target, at, path));
}

/* An object has one name: who is told so copies, or renames. */
EXPORT int link(const char *from, const char *to)
{
	int rc = shim_is_object(AT_FDCWD, from, false) ? taken(AT_FDCWD, to) : -EPERM;

	return OR_REAL(rc, REAL(link, int (*)(const char *, const char *))(from, to));
}

EXPORT int linkat(int from_at, const char *from, int to_at, const char *to, int flags)
{
	int rc = shim_is_object(from_at, from, flags & AT_SYMLINK_FOLLOW) ? taken(to_at, to) :
									     -EPERM;

	return OR_REAL(rc, REAL(linkat, int (*)(int, const char *, int, const char *, int))
				   (from_at, from, to_at, to, flags));
}

/* ---- what a name is ------------------------------------------------------------------------ */

static ssize_t no_link(ssize_t n, int at, const char *path)
{
	if (n < 0 && errno == ENOENT)
		errno = shim_is_object(at, path, false) ? ENOENT : EINVAL;
	return n;
}

EXPORT ssize_t readlink(const char *path, char *out, size_t bytes)
{
	return no_link(REAL(readlink, ssize_t(*)(const char *, char *, size_t))(path, out, bytes),
		       AT_FDCWD, path);
}

EXPORT ssize_t readlinkat(int at, const char *path, char *out, size_t bytes)
{
	return no_link(REAL(readlinkat, ssize_t(*)(int, const char *, char *, size_t))
			       (at, path, out, bytes), at, path);
}

/* What a fortified program calls instead; the size of its buffer is the last argument. */
EXPORT ssize_t __readlink_chk(const char *path, char *out, size_t bytes, size_t room);
EXPORT ssize_t __readlink_chk(const char *path, char *out, size_t bytes, size_t room)
{
	return bytes <= room ? readlink(path, out, bytes) : (abort(), 0);
}

EXPORT ssize_t __readlinkat_chk(int at, const char *path, char *out, size_t bytes, size_t room);
EXPORT ssize_t __readlinkat_chk(int at, const char *path, char *out, size_t bytes, size_t room)
{
	return bytes <= room ? readlinkat(at, path, out, bytes) : (abort(), 0);
}

EXPORT char *realpath(const char *path, char *out)
{
	char *whole = REAL(realpath, char *(*)(const char *, char *))(path, out);
	struct wire_object_info info;
	struct shim_name_of n;

	if (whole || errno != ENOENT || shim_passes() || !shim_resolve(AT_FDCWD, path, &n) ||
	    !shim_canonical(&n, true) || shim_look(&n, &info))
		return whole;
	if (!out)
		return strdup(n.path);
	if (strlen(n.path) >= PATH_MAX) {
		errno = ENAMETOOLONG;
		return NULL;
	}
	return memcpy(out, n.path, strlen(n.path) + 1);
}

EXPORT char *__realpath_chk(const char *path, char *out, size_t room);
EXPORT char *__realpath_chk(const char *path, char *out, size_t room)
{
	return room >= PATH_MAX ? realpath(path, out) : (abort(), NULL);
}

EXPORT char *canonicalize_file_name(const char *path)
{
	return realpath(path, NULL);
}
