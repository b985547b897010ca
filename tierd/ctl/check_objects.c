/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects looked at from outside; see check_objects.h. Which there are the catalog tells, as at a
 * start; of each the file must be there, whole, and (with data) hold what was written. Files that
 * no record names are of puts that were not committed: the next start removes them.
 */
#include "tierd/ctl/check_objects.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libtier/base/cleanup.h"
#include "libtier/base/time.h"
#include "tierd/object/datafile.h"

static void say(struct check_objects *c, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void say(struct check_objects *c, const char *format, ...)
{
	char line[512];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	c->tell(c->arg, line);
}

static const struct disk_context *context_of(const struct check_objects *c, uint64_t uid)
{
	for (uint32_t i = 0; i < c->contexts; i++)
		if (c->context[i].uid == uid)
			return &c->context[i];
	return NULL;
}

/* ---- the catalog --------------------------------------------------------------------------- */

/* A crash came between a version's record and its bytes (O10): the next start does without it. */
static bool unfinished(struct check_objects *c, int folder, const struct object_record *r)
{
	bool is = datafile_verify(folder, r, false) == -EBADMSG;

	if (is)
		say(c, "a crash kept the bytes of a version of object %.*s from the disk: the next "
		    "start takes the one before it", (int)r->name_bytes, r->name);
	return is;
}

static int replay(struct check_objects *c, int folder, struct object_scan *s,
		  struct object_table *t)
{
	uint64_t settled = object_scan_settled(s->bytes, s->count, s->store_id);
	struct object_record r;
	int rc = 0;

	while (rc == 0 && object_scan_next(s, &r)) {
		const struct disk_context *context = context_of(c, r.context);
		bool is_void = context && object_record_void(&r, context->epoch, time_wall_ms());

		if (r.type != DISK_OBJECT_HEADER && context &&
		    (is_void || !r.early || r.lsn <= settled || !unfinished(c, folder, &r)))
			rc = object_replay(t, &r, is_void);
	}
	if (s->foreign) {
		say(c, "the objects there are of another store: %s", c->path);
		c->faults++;
	}
	if (s->holes)
		say(c, "the catalog of objects has %" PRIu64 " bytes that are no record; a crash "
		    "leaves some at its end", s->holes);
	return rc;
}

static int read_catalog(struct check_objects *c, int folder, struct object_table *t)
{
	int fd CLEANUP_CLOSE = openat(folder, "catalog", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	struct object_scan s = { .store_id = c->store_id };
	struct stat st;
	void *map;
	int rc;

	if (fd < 0 || fstat(fd, &st))
		return -errno;
	if (!st.st_size)
		return 0;
	map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	s.bytes = map;
	s.count = (size_t)st.st_size;
	rc = replay(c, folder, &s, t);
	munmap(map, (size_t)st.st_size);
	return rc;
}

/* ---- files --------------------------------------------------------------------------------- */

/* Its bytes against their sums. */
static int read_object(int folder, const struct object *x)
{
	struct object_record r;

	object_describe(x, &r);
	return datafile_verify(folder, &r, false);
}

static void look_at(struct check_objects *c, int folder, const struct object *x)
{
	char name[DATAFILE_NAME_BYTES], what[128] = "";
	struct stat st;
	int rc = 0;

	c->objects++;
	datafile_name(name, x->version);
	if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW))
		snprintf(what, sizeof(what), "its file %s: %s", name, strerror(errno));
	else if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != x->size)
		snprintf(what, sizeof(what), "its file %s has %lld bytes, not %" PRIu64, name,
			 (long long)st.st_size, x->size);
	else if (c->data)
		rc = read_object(folder, x);
	c->read += c->data && rc == 0 && !what[0];
	if (rc)
		snprintf(what, sizeof(what), "its file %s %s", name,
			 rc == -EBADMSG ? "does not hold what was written" : strerror(-rc));
	if (!what[0])
		return;
	c->faults++;
	say(c, "object %.*s of context %.63s: %s; it is lost", (int)x->name_bytes, x->name,
	    context_of(c, x->context)->name, what);
}

static int look_at_folder(struct check_objects *c, int folder, const struct object_table *t)
{
	uint64_t *live CLEANUP_FREE = object_versions(t);
	DIR *dir = fdopendir(dup(folder));

	if (!dir || !live) {
		if (dir)
			closedir(dir);
		return -ENOMEM;
	}
	for (const struct dirent *e; (e = readdir(dir));) {
		uint64_t version = datafile_version(e->d_name);
		struct stat st;

		if (e->d_name[0] == '.' || strncmp(e->d_name, "catalog", 7) == 0)
			continue;
		if (!version)
			say(c, "%.255s in the folder of objects is none of ours", e->d_name);
		else if (!object_version_in(live, t->objects, version) &&
			 fstatat(folder, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
			c->nobodys += st.st_size > 0; /* empty ones are made ahead */
	}
	closedir(dir);
	if (c->nobodys)
		say(c, "%" PRIu64 " files in the folder of objects are nobody's; the next start "
		    "removes them", c->nobodys);
	return 0;
}

int check_objects(struct check_objects *c)
{
	static const uint64_t most[OBJECT_TIERS] = { UINT64_MAX, UINT64_MAX };
	int folder CLEANUP_CLOSE = open(c->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct object_place place = { 0 };
	struct object_table t;
	struct object *x;
	int rc;

	if (folder < 0 && errno == ENOENT)
		return 0;
	object_table_open(&t, most, c->store_id);
	rc = folder < 0 ? -errno : read_catalog(c, folder, &t);
	while (rc == 0 && (x = object_walk(&t, &place)))
		look_at(c, folder, x);
	if (rc == 0)
		rc = look_at_folder(c, folder, &t);
	object_table_close(&t);
	if (rc)
		say(c, "the objects in %.200s cannot be looked at: %s", c->path, strerror(-rc));
	return rc;
}
