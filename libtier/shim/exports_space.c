/* SPDX-License-Identifier: Apache-2.0 */
/*
 * statvfs and statfs below a PATH tell what the context may have and still has; all else is the
 * real file system's. Both spellings take the same structs on the hosts that this is built for.
 */
#undef _FILE_OFFSET_BITS /* it would make one of two names */

#include <fcntl.h>
#include <string.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>

#include "libtier/shim/shim.h"

static bool space_of(struct shim_name_of *n, struct wire_object_info *info)
{
	struct wire_object q;

	shim_question(&q, WIRE_OBJ_STAT, n);
	memset(q.name, 0, sizeof(q.name));
	return shim_ask(&q, WIRE_OBJ_INFO, info, NULL) == 0;
}

/* Of a name there, an object's, too; 0, or what the real call said. */
#define TELL_PATH(name, of)                                                               \
	EXPORT int name(const char *path, struct of *to)                                  \
	{                                                                                 \
		int (*real)(const char *, struct of *) = shim_real(SHIM_##name);          \
		struct shim_name_of n;                                                    \
		int rc = real(path, to);                                                  \
		if (shim_passes() || !shim_resolve_folder(AT_FDCWD, path, false, &n))     \
			return rc;                                                        \
		if (rc && shim_is_object(AT_FDCWD, path, true) == 0)                      \
			rc = real(shim_folder_of(&n), to);                                \
		if (rc == 0)                                                              \
			FILL(&n, to);                                                     \
		return rc;                                                                \
	}
#define TELL_FD(name, of)                                                                 \
	EXPORT int name(int fd, struct of *to)                                            \
	{                                                                                 \
		struct shim_name_of n;                                                    \
		int rc = REAL(name, int (*)(int, struct of *))(fd, to);                   \
		if (rc == 0 && !shim_passes() &&                                          \
		    (shim_name_of_fd(fd, &n) || shim_resolve_folder(fd, ".", true, &n)))  \
			FILL(&n, to);                                                     \
		return rc;                                                                \
	}
/* Blocks of the real size, as many as there is room for. */
#define FILL(n, to)                                                                       \
	do {                                                                              \
		struct wire_object_info info;                                             \
		uint64_t block = (uint64_t)(to)->FRAGMENT;                                \
		if (!block || !space_of(n, &info))                                        \
			break;                                                            \
		(to)->f_blocks = info.limit / block;                                      \
		(to)->f_bfree = (to)->f_bavail = info.free / block;                       \
	} while (0)

#define FRAGMENT f_frsize
TELL_PATH(statvfs, statvfs)
TELL_PATH(statvfs64, statvfs64)
TELL_FD(fstatvfs, statvfs)
TELL_FD(fstatvfs64, statvfs64)
#undef FRAGMENT
#define FRAGMENT f_bsize
TELL_PATH(statfs, statfs)
TELL_PATH(statfs64, statfs64)
TELL_FD(fstatfs, statfs)
TELL_FD(fstatfs64, statfs64)
