/* SPDX-License-Identifier: Apache-2.0 */
/* Calls about folders, which show objects behind real names; see exports.c and folder.c. */
#undef _FILE_OFFSET_BITS /* it would make one of two names */

#include <fcntl.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libtier/shim/shim.h"

EXPORT DIR *opendir(const char *path)
{
	DIR *dir = REAL(opendir, DIR *(*)(const char *))(path);

	if (!dir && errno == ENOENT && shim_is_object(AT_FDCWD, path, true) == 0)
		errno = ENOTDIR;
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

typedef int (*scan_filter)(const struct dirent64 *);
typedef int (*scan_order)(const struct dirent64 **, const struct dirent64 **);
typedef int (*scan_call)(const char *, struct dirent64 ***, scan_filter, scan_order);

static void free_names(struct dirent64 **list, size_t count)
{
	while (count)
		free(list[--count]);
	free(list);
}

/* One more name; false: no memory. */
static bool add_name(struct dirent64 ***list, size_t *count, const struct dirent64 *e)
{
	struct dirent64 **more = *list;

	if (*count % 64 == 0)
		more = realloc(more, (*count + 64) * sizeof(struct dirent64 *));
	if (!more)
		return false;
	*list = more;
	more[*count] = malloc(e->d_reclen);
	if (!more[*count])
		return false;
	memcpy(more[(*count)++], e, e->d_reclen);
	return true;
}

/* The C library's reads folders by calls of its own, which nobody takes the place of. */
static int scan(scan_call real, const char *path, struct dirent64 ***out, scan_filter filter,
		scan_order order)
{
	struct dirent64 **list = NULL, *e = NULL;
	struct shim_name_of n;
	int saved = errno;
	size_t count = 0;
	DIR *dir;

	if (shim_passes() || !shim_resolve_folder(AT_FDCWD, path, true, &n))
		return real(path, out, filter, order);
	dir = opendir(path);
	if (!dir)
		return SHIM_FAILED;
	while ((e = readdir64(dir)))
		if ((!filter || filter(e)) && !add_name(&list, &count, e))
			break;
	closedir(dir);
	if (e || (!list && !(list = malloc(sizeof(struct dirent64 *))))) {
		free_names(list, count);
		errno = ENOMEM;
		return SHIM_FAILED;
	}
	if (order && count)
		qsort(list, count, sizeof(struct dirent64 *),
		      (int (*)(const void *, const void *))(void *)order);
	*out = list;
	errno = saved;
	return (int)count;
}

EXPORT int scandir(const char *path, struct dirent ***out, int (*filter)(const struct dirent *),
		   int (*order)(const struct dirent **, const struct dirent **))
{
	return scan((scan_call)shim_real(SHIM_scandir), path, (struct dirent64 ***)out,
		    (scan_filter)filter, (scan_order)order);
}

EXPORT int scandir64(const char *path, struct dirent64 ***out, scan_filter filter, scan_order order)
{
	return scan((scan_call)shim_real(SHIM_scandir64), path, out, filter, order);
}

EXPORT int rmdir(const char *path)
{
	int rc = shim_remove_folder(AT_FDCWD, path);

	return rc == SHIM_REAL ? REAL(rmdir, int (*)(const char *))(path) : shim_result(rc);
}

/* ---- glob: by the calls above in place of those inside the C library ------------------------ */

static void close_folder(void *dir)
{
	closedir(dir);
}

static void *open_folder(const char *path)
{
	return opendir(path);
}

static struct dirent64 *read_folder(void *dir)
{
	return readdir64(dir);
}

EXPORT int glob64(const char *pattern, int flags, int (*error)(const char *, int), glob64_t *out)
{
	int (*real)(const char *, int, int (*)(const char *, int), glob64_t *);
	int rc;

	real = shim_real(SHIM_glob64);
	if (shim_passes() || flags & GLOB_ALTDIRFUNC)
		return real(pattern, flags, error, out);
	out->gl_closedir = close_folder;
	out->gl_readdir = read_folder;
	out->gl_opendir = open_folder;
	out->gl_lstat = lstat64;
	out->gl_stat = stat64;
	rc = real(pattern, flags | GLOB_ALTDIRFUNC, error, out);
	out->gl_flags &= ~GLOB_ALTDIRFUNC;
	return rc;
}

/* Both have the same struct on the hosts that this is built for. */
EXPORT int glob(const char *pattern, int flags, int (*error)(const char *, int), glob_t *out)
{
	return glob64(pattern, flags, error, (glob64_t *)out);
}
