/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folders: the real ones, and behind their own names those of the objects that lie in them. What is
 * both is told once, by the real name.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libtier/shim/shim.h"

#define FOLDERS_MAX 128u

/* A DIR that was opened below a PATH. */
struct folder {
	DIR *dir;
	struct shim_name_of at; /* of the folder; name "" = PATH itself */
	bool objects;           /* the real names are through */
	bool more;
	char after[ABI_OBJECT_NAME_BYTES];
	uint32_t next, count;
	struct dirent64 entry;
	struct {
		uint64_t inode;
		char name[ABI_OBJECT_NAME_BYTES];
	} name[SHIM_NAMES_MAX];
};

static struct {
	pthread_mutex_t lock;
	struct folder *folder[FOLDERS_MAX];
} folders = { .lock = PTHREAD_MUTEX_INITIALIZER };

void shim_folder_forked(void)
{
	pthread_mutex_init(&folders.lock, NULL);
}

void shim_folder_open(DIR *dir, int at, const char *path)
{
	struct shim_name_of where;
	struct folder *f;
	int saved = errno;

	if (!dir || shim_passes() || !shim_resolve_folder(at, path, true, &where))
		return;
	f = calloc(1, sizeof(*f));
	errno = saved;
	if (!f)
		return;
	f->dir = dir;
	f->at = where;
	f->more = true;
	pthread_mutex_lock(&folders.lock);
	for (uint32_t i = 0; f && i < FOLDERS_MAX; i++)
		if (!folders.folder[i]) {
			folders.folder[i] = f;
			f = NULL;
		}
	pthread_mutex_unlock(&folders.lock);
	free(f);
}

/* Of a DIR, or NULL; taken off the table, if it is closed. */
static struct folder *find(DIR *dir, bool take)
{
	struct folder *f = NULL;

	pthread_mutex_lock(&folders.lock);
	for (uint32_t i = 0; !f && i < FOLDERS_MAX; i++) {
		if (!folders.folder[i] || folders.folder[i]->dir != dir)
			continue;
		f = folders.folder[i];
		if (take)
			folders.folder[i] = NULL;
	}
	pthread_mutex_unlock(&folders.lock);
	return f;
}

void shim_folder_close(DIR *dir)
{
	if (!shim_passes())
		free(find(dir, true));
}

void shim_folder_rewind(DIR *dir)
{
	struct folder *f = shim_passes() ? NULL : find(dir, false);

	if (!f)
		return;
	f->objects = false;
	f->more = true;
	f->after[0] = '\0';
	f->next = f->count = 0;
}

/* What is asked of the daemon to list: names that begin with this one. */
static void list_question(struct wire_object *q, const struct shim_name_of *folder)
{
	shim_question(q, WIRE_OBJ_LIST, folder);
	if (q->name[0])
		strncat(q->name, "/", sizeof(q->name) - strlen(q->name) - 1);
}

/* The next names, without their folder. */
static bool refill(struct folder *f)
{
	struct wire_object q;
	size_t prefix;
	bool more;
	int n;

	if (!f->more)
		return false;
	list_question(&q, &f->at);
	prefix = strlen(q.name);
	q.flags = WIRE_OBJ_FLAT;
	q.count = SHIM_NAMES_MAX;
	memcpy(q.other, f->after, strlen(f->after));
	n = shim_list(&q, prefix, f->after, &f->name[0].inode, sizeof(f->name[0]), &more);
	f->more = n > 0 && more;
	f->next = 0;
	f->count = n > 0 ? (uint32_t)n : 0;
	return f->count > 0;
}

/* Is there a real file of the name, too? */
static bool is_real(const struct folder *f, const char *name)
{
	struct stat st;
	bool found;

	shim_enter();
	found = fstatat(dirfd(f->dir), name, &st, AT_SYMLINK_NOFOLLOW) == 0;
	shim_leave();
	return found;
}

void *shim_folder_next(DIR *dir)
{
	struct folder *f = shim_passes() ? NULL : find(dir, false);
	int saved = errno;

	while (f && (f->next < f->count || refill(f))) {
		uint32_t i = f->next++;

		if (is_real(f, f->name[i].name))
			continue;
		memset(&f->entry, 0, sizeof(f->entry));
		f->entry.d_ino = f->name[i].inode;
		f->entry.d_type = DT_REG;
		f->entry.d_reclen = sizeof(f->entry);
		memcpy(f->entry.d_name, f->name[i].name, strlen(f->name[i].name));
		errno = saved;
		return &f->entry;
	}
	errno = saved;
	return NULL;
}

bool shim_has_objects(int at, const char *path)
{
	struct shim_name_of where;
	struct wire_object q;
	char after[ABI_OBJECT_NAME_BYTES];
	struct {
		uint64_t inode;
		char name[ABI_OBJECT_NAME_BYTES];
	} one;
	bool more;

	if (shim_passes() || !shim_resolve_folder(at, path, false, &where))
		return false;
	list_question(&q, &where);
	q.count = 1;
	return shim_list(&q, 0, after, &one.inode, sizeof(one), &more) > 0;
}

int shim_remove_folder(int at, const char *path)
{
	if (shim_has_objects(at, path))
		return -ENOTEMPTY;
	return shim_is_object(at, path, false) == 0 ? -ENOTDIR : SHIM_REAL;
}
