/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is told of names, and what changes them. An object lies over the real file of its name: who
 * removes or replaces the one removes the other.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libtier/shim/shim.h"

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1u
#endif

static int find(int at, const char *path, bool last, struct wire_object_info *info)
{
	struct shim_name_of n;

	return shim_passes() || !shim_resolve(at, path, &n) ? SHIM_REAL :
							      shim_find(&n, last, info);
}

int shim_stat(int at, const char *path, bool last, struct stat *st)
{
	struct wire_object_info info;

	if (find(at, path, last, &info))
		return SHIM_REAL;
	shim_fill_stat(st, &info);
	return 0;
}

int shim_access(int at, const char *path, int mode)
{
	struct wire_object_info info;

	if (find(at, path, true, &info))
		return SHIM_REAL;
	return mode & X_OK && !(info.mode & 0111) ? -EACCES : 0;
}

int shim_is_object(int at, const char *path, bool last)
{
	struct wire_object_info info;

	return find(at, path, last, &info);
}

/* A change of a name, or of what links lead to, if it is no object itself. */
static int change(struct shim_name_of *n, bool last, struct wire_object *q)
{
	int rc = shim_ask(q, WIRE_DONE, NULL, NULL);

	if (rc != -ENOENT || !shim_follow(n, last))
		return rc;
	shim_question_of(q, n);
	return shim_ask(q, WIRE_DONE, NULL, NULL);
}

int shim_set(int at, const char *path, const struct shim_set *set)
{
	struct shim_name_of n;
	struct wire_object q;
	int rc;

	if (shim_passes() || !shim_resolve(at, path, &n))
		return SHIM_REAL;
	shim_question(&q, WIRE_OBJ_SET, &n);
	q.flags = set->flags | WIRE_OBJ_LAZY;
	q.mode = set->mode & 0777;
	q.mtime_ns = set->mtime_ns;
	rc = change(&n, !set->link, &q);
	if (rc == -ENOENT || rc == -ENOTCONN || rc == -EINVAL)
		return SHIM_REAL;
	return rc == 0 || rc == -EACCES ? rc : -EIO;
}

/* The real file that lies below, if there is one. */
static void unlink_real(const struct shim_name_of *n)
{
	int saved = errno;

	shim_enter();
	unlink(n->path);
	shim_leave();
	errno = saved;
}

int shim_unlink(int at, const char *path)
{
	struct shim_name_of n;
	struct wire_object q;
	int rc;

	if (shim_passes() || !shim_resolve(at, path, &n))
		return SHIM_REAL;
	shim_question(&q, WIRE_OBJ_REMOVE, &n);
	q.flags = WIRE_OBJ_LAZY;
	rc = change(&n, false, &q);
	if (rc == -ENOENT || rc == -ENOTCONN || rc == -EINVAL)
		return SHIM_REAL;
	if (rc == 0)
		unlink_real(&n);
	return rc == 0 || rc == -EACCES ? rc : -EIO;
}

/* The new name's folder must be there. */
static bool has_folder(const struct shim_name_of *n)
{
	char folder[sizeof(n->path)];
	int saved = errno;
	struct stat st;
	bool found;

	memcpy(folder, n->path, sizeof(folder));
	*strrchr(folder, '/') = '\0';
	shim_enter();
	found = stat(folder, &st) == 0 && S_ISDIR(st.st_mode);
	shim_leave();
	errno = saved;
	return found;
}

/* Of the real file there, a link itself; 0: there is none. */
static mode_t real_mode(int at, const char *path)
{
	int saved = errno;
	struct stat st = { .st_mode = 0 };

	shim_enter();
	if (fstatat(at, path, &st, AT_SYMLINK_NOFOLLOW))
		st.st_mode = 0;
	shim_leave();
	errno = saved;
	return st.st_mode;
}

static int rename_object(const struct shim_name_of *from, const struct shim_name_of *to,
			 unsigned flags)
{
	struct wire_object q;
	int rc;

	if (strcmp(from->context, to->context))
		return -EXDEV;
	if (flags & ~RENAME_NOREPLACE)
		return -EINVAL;
	if (!has_folder(to))
		return -ENOENT;
	if (S_ISDIR(real_mode(AT_FDCWD, to->path)))
		return flags & RENAME_NOREPLACE ? -EEXIST : -EISDIR;
	shim_question(&q, WIRE_OBJ_RENAME, from);
	memcpy(q.other, to->name, strlen(to->name));
	q.flags = WIRE_OBJ_LAZY | (flags & RENAME_NOREPLACE ? WIRE_OBJ_EXCLUSIVE : 0);
	rc = shim_ask(&q, WIRE_DONE, NULL, NULL);
	if (rc == 0 && strcmp(from->path, to->path)) {
		unlink_real(from);
		unlink_real(to);
	}
	return rc == 0 || rc == -EEXIST || rc == -EACCES || rc == -ENOENT || rc == -ENOSPC ||
			       rc == -EDQUOT ? rc : -EIO;
}

int shim_rename(int from_at, const char *from, int to_at, const char *to, unsigned flags)
{
	struct wire_object_info info;
	struct shim_name_of a, b;
	bool in, out;
	mode_t real;

	if (shim_passes())
		return SHIM_REAL;
	in = shim_resolve(from_at, from, &a) && shim_find(&a, false, &info) == 0;
	out = shim_resolve(to_at, to, &b);
	if (out)
		shim_follow(&b, false);
	if (in && !out)
		return -EXDEV; /* mv copies, then */
	if (in)
		return rename_object(&a, &b, flags);
	if (shim_has_objects(from_at, from)) /* a folder: its objects would keep their names */
		return -EXDEV;
	real = real_mode(from_at, from);
	if (S_ISDIR(real) && shim_has_objects(to_at, to)) /* its real folder may be empty */
		return flags & RENAME_NOREPLACE ? -EEXIST : -ENOTEMPTY;
	if (real && out && shim_look(&b, &info) == 0) {
		struct wire_object q;

		/* A real file comes in an object's place, which would hide it. */
		if (flags & RENAME_NOREPLACE)
			return -EEXIST;
		if (S_ISDIR(real))
			return -ENOTDIR;
		shim_question(&q, WIRE_OBJ_REMOVE, &b);
		shim_ask(&q, WIRE_DONE, NULL, NULL);
	}
	return SHIM_REAL;
}
