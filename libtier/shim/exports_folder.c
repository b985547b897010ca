/* SPDX-License-Identifier: Apache-2.0 */
/* Calls about folders, which show objects behind real names; see exports.c and folder.c. */
#undef _FILE_OFFSET_BITS /* it would make one of two names */

#include <fcntl.h>
#include <unistd.h>

#include "libtier/shim/shim.h"

EXPORT DIR *opendir(const char *path)
{
	DIR *dir = REAL(opendir, DIR *(*)(const char *))(path);

	shim_folder_open(dir, AT_FDCWD, path);
	return dir;
}

EXPORT DIR *fdopendir(int fd)
{
	DIR *dir = REAL(fdopendir, DIR *(*)(int))(fd);

	shim_folder_open(dir, fd, ".");
	return dir;
}

EXPORT struct dirent *readdir(DIR *dir)
{
	struct dirent *entry = REAL(readdir, struct dirent *(*)(DIR *))(dir);

	return entry ? entry : shim_folder_next(dir);
}

EXPORT struct dirent64 *readdir64(DIR *dir)
{
	struct dirent64 *entry = REAL(readdir64, struct dirent64 *(*)(DIR *))(dir);

	return entry ? entry : shim_folder_next(dir);
}

EXPORT int closedir(DIR *dir)
{
	shim_folder_close(dir);
	return REAL(closedir, int (*)(DIR *))(dir);
}

EXPORT void rewinddir(DIR *dir)
{
	shim_folder_rewind(dir);
	REAL(rewinddir, void (*)(DIR *))(dir);
}

EXPORT int rmdir(const char *path)
{
	int rc = shim_has_objects(AT_FDCWD, path) ? -ENOTEMPTY : SHIM_REAL;

	return rc == SHIM_REAL ? REAL(rmdir, int (*)(const char *))(path) : shim_result(rc);
}
