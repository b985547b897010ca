/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names that programs call (shim.list), in each of their spellings. Both spellings of a call
 * take the same structs on the 64-bit hosts that this is built for.
 */
#undef _FILE_OFFSET_BITS /* it would make one of two names */
#undef _FORTIFY_SOURCE

#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "libtier/shim/shim.h"

#define MODE_OF(flags, mode)                                                              \
	do {                                                                              \
		va_list args;                                                             \
		va_start(args, flags);                                                    \
		if (flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE)                  \
			mode = va_arg(args, mode_t);                                      \
		va_end(args);                                                             \
	} while (0)

/* ---- open ---------------------------------------------------------------------------------- */

/* As the C library's, which opens inside itself: six letters before the suffix, none taken yet. */
static int make_temporary(char *path, int suffix, int flags)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				      "0123456789__";
	char *at = path + strlen(path) - (size_t)suffix - 6;
	uint8_t random[6];
	int fd = SHIM_FAILED;

	if (suffix < 0 || strlen(path) < (size_t)suffix + 6 || memcmp(at, "XXXXXX", 6)) {
		errno = EINVAL;
		return SHIM_FAILED;
	}
	for (int tries = 0; tries < 100; tries++) {
		if (getrandom(random, sizeof(random), 0) != sizeof(random))
			break;
		for (size_t i = 0; i < sizeof(random); i++)
			at[i] = letters[random[i] % 64];
		fd = shim_open(SHIM_open, AT_FDCWD, path,
			       (flags & ~O_ACCMODE) | O_RDWR | O_CREAT | O_EXCL, 0600);
		if (fd >= 0 || errno != EEXIST)
			break;
	}
	return fd;
}

#define OPEN(name)                                                                        \
	EXPORT int name(const char *path, int flags, ...)                                 \
	{                                                                                 \
		mode_t mode = 0;                                                          \
		MODE_OF(flags, mode);                                                     \
		return shim_open(SHIM_##name, AT_FDCWD, path, flags, mode);               \
	}
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                                      \
	EXPORT int name(int at, const char *path, int flags, ...)                         \
	{                                                                                 \
		mode_t mode = 0;                                                          \
		MODE_OF(flags, mode);                                                     \
		return shim_open(SHIM_##name, at, path, flags, mode);                     \
	}
OPENAT(openat)
OPENAT(openat64)

/* What a fortified program calls instead. */
#define OPEN_2(name, real)                                                                \
	EXPORT int name(const char *path, int flags);                                     \
	EXPORT int name(const char *path, int flags)                                      \
	{                                                                                 \
		return shim_open(SHIM_##real, AT_FDCWD, path, flags, 0);                  \
	}
OPEN_2(__open_2, open)
OPEN_2(__open64_2, open64)

#define OPENAT_2(name, real)                                                              \
	EXPORT int name(int at, const char *path, int flags);                             \
	EXPORT int name(int at, const char *path, int flags)                              \
	{                                                                                 \
		return shim_open(SHIM_##real, at, path, flags, 0);                        \
	}
OPENAT_2(__openat_2, openat)
OPENAT_2(__openat64_2, openat64)

#define CREATE_FLAGS (O_WRONLY | O_CREAT | O_TRUNC)
#define CREAT(name, real)                                                                 \
	EXPORT int name(const char *path, mode_t mode)                                    \
	{                                                                                 \
		return shim_open(SHIM_##real, AT_FDCWD, path, CREATE_FLAGS, mode);        \
	}
CREAT(creat, open)
CREAT(creat64, open64)

#define MKSTEMP(name, more, suffix, flags)                                                \
	EXPORT int name more;                                                             \
	EXPORT int name more                                                              \
	{                                                                                 \
		return make_temporary(path, suffix, flags);                               \
	}
MKSTEMP(mkstemp, (char *path), 0, 0)
MKSTEMP(mkstemp64, (char *path), 0, 0)
MKSTEMP(mkostemp, (char *path, int flags), 0, flags)
MKSTEMP(mkostemp64, (char *path, int flags), 0, flags)
MKSTEMP(mkstemps, (char *path, int suffix), suffix, 0)
MKSTEMP(mkstemps64, (char *path, int suffix), suffix, 0)
MKSTEMP(mkostemps, (char *path, int suffix, int flags), suffix, flags)
MKSTEMP(mkostemps64, (char *path, int suffix, int flags), suffix, flags)

EXPORT FILE *fopen(const char *path, const char *mode)
{
	return shim_fopen(SHIM_fopen, path, mode);
}

EXPORT FILE *fopen64(const char *path, const char *mode)
{
	return shim_fopen(SHIM_fopen64, path, mode);
}

EXPORT FILE *freopen(const char *path, const char *mode, FILE *file)
{
	return shim_freopen(SHIM_freopen, path, mode, file);
}

EXPORT FILE *freopen64(const char *path, const char *mode, FILE *file)
{
	return shim_freopen(SHIM_freopen64, path, mode, file);
}

/* ---- close --------------------------------------------------------------------------------- */

EXPORT int close(int fd)
{
	return shim_close(fd);
}

EXPORT int fclose(FILE *file)
{
	return shim_fclose(file);
}

EXPORT int dup(int fd)
{
	return shim_copied(fd, REAL(dup, int (*)(int))(fd));
}

/* A pointer or a number: both come through the same register. */
#define FCNTL(name)                                                                       \
	EXPORT int name(int fd, int command, ...)                                         \
	{                                                                                 \
		void *argument;                                                           \
		va_list args;                                                             \
		int rc;                                                                   \
		va_start(args, command);                                                  \
		argument = va_arg(args, void *);                                          \
		va_end(args);                                                             \
		rc = REAL(name, int (*)(int, int, ...))(fd, command, argument);           \
		return command == F_DUPFD || command == F_DUPFD_CLOEXEC ?                 \
			       shim_copied(fd, rc) : rc;                                  \
	}
FCNTL(fcntl)
FCNTL(fcntl64)

EXPORT int fsync(int fd)
{
	int rc = shim_sync(fd);

	return rc == SHIM_REAL ? REAL(fsync, int (*)(int))(fd) : shim_result(rc);
}

EXPORT int fdatasync(int fd)
{
	int rc = shim_sync(fd);

	return rc == SHIM_REAL ? REAL(fdatasync, int (*)(int))(fd) : shim_result(rc);
}

EXPORT int dup2(int from, int to)
{
	if (from == to)
		return REAL(dup2, int (*)(int, int))(from, to);
	return shim_dup(from, to, 0);
}

EXPORT int dup3(int from, int to, int flags)
{
	return shim_dup(from, to, flags);
}

EXPORT void _exit(int status)
{
	shim_end();
	REAL(_exit, void (*)(int))(status);
	__builtin_unreachable();
}

EXPORT void _Exit(int status)
{
	_exit(status);
}

static void __attribute__((destructor)) end(void)
{
	if (shim_passes())
		return;
	fflush(NULL); /* the C library does it later, when what it writes to is committed */
	shim_end();
}

/* ---- names --------------------------------------------------------------------------------- */

EXPORT int access(const char *path, int mode)
{
	int rc = shim_access(AT_FDCWD, path, mode);

	return rc == SHIM_REAL ? REAL(access, int (*)(const char *, int))(path, mode) :
				 shim_result(rc);
}

EXPORT int euidaccess(const char *path, int mode)
{
	int rc = shim_access(AT_FDCWD, path, mode);

	return rc == SHIM_REAL ? REAL(euidaccess, int (*)(const char *, int))(path, mode) :
				 shim_result(rc);
}

EXPORT int faccessat(int at, const char *path, int mode, int flags)
{
	int rc = shim_access(at, path, mode);

	return rc == SHIM_REAL ? REAL(faccessat, int (*)(int, const char *, int, int))
					 (at, path, mode, flags) : shim_result(rc);
}

EXPORT int unlink(const char *path)
{
	int rc = shim_unlink(AT_FDCWD, path);

	return rc == SHIM_REAL ? REAL(unlink, int (*)(const char *))(path) : shim_result(rc);
}

EXPORT int unlinkat(int at, const char *path, int flags)
{
	int rc;

	if (flags & AT_REMOVEDIR)
		rc = shim_remove_folder(at, path);
	else
		rc = shim_unlink(at, path);

	return rc == SHIM_REAL ? REAL(unlinkat, int (*)(int, const char *, int))(at, path, flags) :
				 shim_result(rc);
}

EXPORT int remove(const char *path)
{
	int rc = shim_unlink(AT_FDCWD, path);

	if (rc == SHIM_REAL && shim_has_objects(AT_FDCWD, path)) /* a folder */
		rc = -ENOTEMPTY;
	return rc == SHIM_REAL ? REAL(remove, int (*)(const char *))(path) : shim_result(rc);
}

EXPORT int rename(const char *from, const char *to)
{
	int rc = shim_rename(AT_FDCWD, from, AT_FDCWD, to, 0);

	return rc == SHIM_REAL ? REAL(rename, int (*)(const char *, const char *))(from, to) :
				 shim_result(rc);
}

EXPORT int renameat(int from_at, const char *from, int to_at, const char *to)
{
	int rc = shim_rename(from_at, from, to_at, to, 0);

	return rc == SHIM_REAL ? REAL(renameat, int (*)(int, const char *, int, const char *))
					 (from_at, from, to_at, to) : shim_result(rc);
}

EXPORT int renameat2(int from_at, const char *from, int to_at, const char *to, unsigned flags)
{
	int rc = shim_rename(from_at, from, to_at, to, flags);

	return rc == SHIM_REAL ?
		       REAL(renameat2, int (*)(int, const char *, int, const char *, unsigned))
			       (from_at, from, to_at, to, flags) : shim_result(rc);
}
