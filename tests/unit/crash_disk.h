/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A folder whose every change is recorded, and what a crash may leave of it. The calls of the C
 * library that change files are defined here: they do what they always do, and are noted.
 *
 * Fault model. A kill leaves everything. A power cut leaves of a file what was written before the
 * last flush of it; each write behind that is there, or not, or some of its
 * sectors are. Of names it leaves what was done before the last such flush of the folder; of what
 * was done behind that the first few, or any. A rename is whole. (No file system that we know is as
 * bad; what holds here holds on each.) Beside that calls can be made to fail: reads with an error
 * or with a bit that is wrong, writes after half of their bytes, flushes after none, names; and
 * reads wait while they are held.
 */
#ifndef TIER_TESTS_CRASH_DISK_H
#define TIER_TESTS_CRASH_DISK_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/lib/property.h"

#define DISK_EVENTS_MAX 100000u
#define DISK_FILES_MAX 20000u
#define TORN_BYTES 512u

/* Calls that can be made to fail; FLIP: a read that succeeds, with one bit wrong. */
enum disk_call { DISK_READ, DISK_FLIP, DISK_PUT, DISK_FLUSH, DISK_NAME, DISK_CALLS };

enum disk_kind { DISK_CREATE, DISK_WRITE, DISK_CUT, DISK_FLUSHED, DISK_RENAME, DISK_UNLINK };

struct disk_event {
	enum disk_kind kind;
	uint32_t file; /* 0: the folder */
	uint64_t at, bytes; /* FLUSHED: at = events of the file below it are safe */
	uint8_t *data;	    /* NULL: zeros */
	char name[20], to[20];
};

static struct {
	pthread_mutex_t lock;
	char path[128];
	int folder;
	bool on;
	dev_t device;
	struct disk_event *event;
	uint32_t events, files;
	ino_t *inode; /* of file i; the folder's is 0 */
	void *heap[DISK_EVENTS_MAX]; /* freed at the end */
	uint32_t heaps;
	uint32_t fails[DISK_CALLS]; /* the n-th call from now; 0 = none */
	uint32_t failed[DISK_CALLS]; /* how often they did */
	int error[DISK_CALLS];
	bool held; /* reads wait */
	pthread_cond_t release;
} disk = { .lock = PTHREAD_MUTEX_INITIALIZER, .release = PTHREAD_COND_INITIALIZER };

static void disk_give_up(const char *what)
{
	fprintf(stderr, "%s: %s: %s\n", disk.path, what, strerror(errno));
	abort();
}

/* ---- recording ----------------------------------------------------------------------------- */

static struct disk_event *disk_add(enum disk_kind kind, uint32_t file)
{
	struct disk_event *e = &disk.event[disk.events++];

	if (disk.events == DISK_EVENTS_MAX)
		disk_give_up("too many events");
	*e = (struct disk_event){ .kind = kind, .file = file };
	return e;
}

static void *disk_own(void *data)
{
	if (disk.heaps == DISK_EVENTS_MAX)
		disk_give_up("too many pieces");
	disk.heap[disk.heaps++] = data;
	return data;
}

/* The number of what a descriptor is of; UINT32_MAX: of something else. */
static uint32_t disk_file(int fd)
{
	struct stat st;

	if (!disk.on || fstat(fd, &st) || st.st_dev != disk.device)
		return UINT32_MAX;
	if (S_ISDIR(st.st_mode))
		return st.st_ino == disk.inode[0] ? 0 : UINT32_MAX;
	for (uint32_t i = disk.files; i-- > 1;)
		if (disk.inode[i] == st.st_ino && st.st_nlink)
			return i;
	return UINT32_MAX;
}

static void disk_created(const char *name)
{
	struct stat st;

	if (fstatat(disk.folder, name, &st, AT_SYMLINK_NOFOLLOW))
		return;
	if (disk.files == DISK_FILES_MAX)
		disk_give_up("too many files");
	disk.inode[disk.files] = st.st_ino;
	snprintf(disk_add(DISK_CREATE, disk.files++)->name, 20, "%s", name);
}

static bool disk_has(const char *name)
{
	struct stat st;

	return fstatat(disk.folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Is it this call's turn to fail? Then errno is set. */
static bool disk_fails(enum disk_call call)
{
	if (!disk.on || !disk.fails[call] || --disk.fails[call])
		return false;
	disk.failed[call]++;
	errno = disk.error[call];
	return true;
}

int mknodat(int folder, const char *name, mode_t mode, dev_t dev)
{
	int rc = -1;

	pthread_mutex_lock(&disk.lock);
	if (!disk_fails(DISK_NAME))
		rc = (int)syscall(SYS_mknodat, folder, name, mode, dev);
	if (rc == 0 && disk.on)
		disk_created(name);
	pthread_mutex_unlock(&disk.lock);
	return rc;
}

int openat(int folder, const char *name, int flags, ...)
{
	bool anew;
	int fd;

	pthread_mutex_lock(&disk.lock);
	anew = disk.on && flags & O_CREAT && !disk_has(name);
	fd = (int)syscall(SYS_openat, folder, name, flags, 0600);
	if (fd >= 0 && anew)
		disk_created(name);
	else if (fd >= 0 && flags & O_TRUNC && disk_file(fd) != UINT32_MAX)
		disk_add(DISK_CUT, disk_file(fd));
	pthread_mutex_unlock(&disk.lock);
	return fd;
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at)
{
	const uint8_t *byte = data;
	uint32_t file;
	ssize_t n;
	bool bad;

	pthread_mutex_lock(&disk.lock);
	bad = disk_file(fd) != UINT32_MAX && disk_fails(DISK_PUT);
	n = syscall(SYS_pwrite64, fd, data, bad ? bytes / 2 : bytes, at);
	file = n > 0 ? disk_file(fd) : UINT32_MAX;
	if (file != UINT32_MAX) {
		struct disk_event *e = disk_add(DISK_WRITE, file);

		e->at = (uint64_t)at;
		e->bytes = (uint64_t)n;
		if (n < 1 << 16 || *byte || memcmp(byte, byte + 1, (size_t)n - 1)) {
			e->data = disk_own(malloc((size_t)n)); /* else NULL: zeros */
			memcpy(e->data, data, (size_t)n);
		}
	}
	pthread_mutex_unlock(&disk.lock);
	if (bad)
		errno = disk.error[DISK_PUT];
	return bad ? -1 : n;
}

ssize_t pread(int fd, void *data, size_t bytes, off_t at)
{
	ssize_t n = -1;

	pthread_mutex_lock(&disk.lock);
	while (disk.held && disk_file(fd) != UINT32_MAX)
		pthread_cond_wait(&disk.release, &disk.lock);
	if (disk_file(fd) == UINT32_MAX || !disk_fails(DISK_READ))
		n = syscall(SYS_pread64, fd, data, bytes, at);
	if (n > 0 && disk_file(fd) != UINT32_MAX && disk_fails(DISK_FLIP))
		((uint8_t *)data)[n / 2] ^= 1;
	pthread_mutex_unlock(&disk.lock);
	return n;
}

int ftruncate(int fd, off_t bytes)
{
	uint32_t file;
	int rc;

	pthread_mutex_lock(&disk.lock);
	rc = (int)syscall(SYS_ftruncate, fd, bytes);
	file = rc == 0 ? disk_file(fd) : UINT32_MAX;
	if (file != UINT32_MAX)
		disk_add(DISK_CUT, file)->at = (uint64_t)bytes;
	pthread_mutex_unlock(&disk.lock);
	return rc;
}

int renameat(int a, const char *from, int b, const char *to)
{
	int rc;

	pthread_mutex_lock(&disk.lock);
	rc = (int)syscall(SYS_renameat2, a, from, b, to, 0);
	if (rc == 0 && disk.on) {
		struct disk_event *e = disk_add(DISK_RENAME, 0);

		snprintf(e->name, sizeof(e->name), "%s", from);
		snprintf(e->to, sizeof(e->to), "%s", to);
	}
	pthread_mutex_unlock(&disk.lock);
	return rc;
}

int unlinkat(int folder, const char *name, int flags)
{
	int rc;

	pthread_mutex_lock(&disk.lock);
	rc = (int)syscall(SYS_unlinkat, folder, name, flags);
	if (rc == 0 && disk.on)
		snprintf(disk_add(DISK_UNLINK, 0)->name, 20, "%s", name);
	pthread_mutex_unlock(&disk.lock);
	return rc;
}

/* The medium is ours: there is nothing that the kernel would have to do. */
static int disk_flush(int fd, long call)
{
	uint32_t file, begun;
	bool bad;

	pthread_mutex_lock(&disk.lock);
	file = disk_file(fd);
	begun = disk.events;
	bad = file != UINT32_MAX && disk_fails(DISK_FLUSH);
	if (file != UINT32_MAX && !bad)
		disk_add(DISK_FLUSHED, file)->at = begun;
	pthread_mutex_unlock(&disk.lock);
	return bad ? -1 : file != UINT32_MAX ? 0 : (int)syscall(call, fd);
}

int fdatasync(int fd)
{
	return disk_flush(fd, SYS_fdatasync);
}

int fsync(int fd)
{
	return disk_flush(fd, SYS_fsync);
}

/* One file is flushed behind the other, then, by the calls above. */
int io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags)
{
	(void)entries;
	(void)ring;
	(void)flags;
	return -ENOSYS;
}

/* ---- what a crash leaves ------------------------------------------------------------------- */

/* Events of a file below this one are on the medium, if the crash comes behind `end` events. */
static uint32_t disk_safe(uint32_t file, uint32_t end)
{
	uint32_t safe = 0;

	for (uint32_t i = 0; i < end; i++)
		if (disk.event[i].kind == DISK_FLUSHED && disk.event[i].file == file &&
		    disk.event[i].at > safe)
			safe = (uint32_t)disk.event[i].at;
	return safe;
}

struct disk_image {
	uint32_t entries;
	struct disk_entry {
		char name[20];
		uint32_t file;
		uint8_t *data;
		uint64_t bytes;
	} entry[DISK_FILES_MAX];
};

static struct disk_entry *disk_find(struct disk_image *m, const char *name)
{
	for (uint32_t i = 0; i < m->entries; i++)
		if (strcmp(m->entry[i].name, name) == 0)
			return &m->entry[i];
	return NULL;
}

static void disk_name(struct disk_image *m, const struct disk_event *e)
{
	struct disk_entry *x = disk_find(m, e->name), *to;

	if (e->kind == DISK_CREATE && !x) {
		x = &m->entry[m->entries++];
		*x = (struct disk_entry){ .file = e->file };
		memcpy(x->name, e->name, sizeof(x->name));
	} else if (e->kind == DISK_UNLINK && x) {
		*x = m->entry[--m->entries];
	} else if (e->kind == DISK_RENAME && x) {
		to = disk_find(m, e->to);
		if (to)
			to->file = x->file;
		else
			memcpy(x->name, e->to, sizeof(x->name));
		if (to)
			*x = m->entry[--m->entries];
	}
}

static void disk_resize(struct disk_entry *x, uint64_t bytes)
{
	x->data = realloc(x->data, bytes + 1);
	if (bytes > x->bytes)
		memset(x->data + x->bytes, 0, bytes - x->bytes);
	x->bytes = bytes;
}

static void disk_apply(struct disk_entry *x, const struct disk_event *e, struct rng *torn)
{
	if (e->kind == DISK_CUT) {
		disk_resize(x, e->at);
		return;
	}
	if (x->bytes < e->at + e->bytes)
		disk_resize(x, e->at + e->bytes);
	for (uint64_t at = 0; at < e->bytes;) {
		uint64_t n = TORN_BYTES - (e->at + at) % TORN_BYTES;

		n = n < e->bytes - at ? n : e->bytes - at;
		if ((!torn || rng_below(torn, 2)) && e->data)
			memcpy(x->data + e->at + at, e->data + at, n);
		else if (!e->data)
			memset(x->data + e->at + at, 0, n);
		at += n;
	}
}

/* The bytes of a file; rng NULL: all that was done. */
static void disk_fill(struct disk_entry *x, uint32_t end, struct rng *rng)
{
	uint32_t safe = rng ? disk_safe(x->file, end) : end;

	for (uint32_t i = 0; i < end; i++) {
		const struct disk_event *e = &disk.event[i];
		uint64_t luck = i < safe ? 0 : rng_below(rng, 5);

		if (e->file != x->file || luck > 2 ||
		    (e->kind != DISK_WRITE && e->kind != DISK_CUT))
			continue;
		disk_apply(x, e, luck == 2 && e->kind == DISK_WRITE ? rng : NULL);
	}
}

/* What is left when it happens behind `end` events: of a power cut (rng), or a kill (NULL). */
static void disk_crash(struct disk_image *m, uint32_t end, struct rng *rng)
{
	uint32_t safe = rng ? disk_safe(0, end) : end;
	uint32_t until = rng && safe < end ? safe + (uint32_t)rng_below(rng, end - safe + 1) : end;
	bool any = rng && rng_below(rng, 2);

	m->entries = 0;
	for (uint32_t i = 0; i < end; i++) {
		const struct disk_event *e = &disk.event[i];

		if (e->kind != DISK_CREATE && e->kind != DISK_RENAME && e->kind != DISK_UNLINK)
			continue;
		if (i < safe || (any ? rng_below(rng, 2) : i < until))
			disk_name(m, e);
	}
	for (uint32_t i = 0; i < m->entries; i++)
		disk_fill(&m->entry[i], end, rng);
}

/* ---- the folder ---------------------------------------------------------------------------- */

static void disk_empty(void)
{
	DIR *dir = fdopendir(dup(disk.folder));

	rewinddir(dir);
	for (const struct dirent *e; (e = readdir(dir));)
		syscall(SYS_unlinkat, disk.folder, e->d_name, 0);
	closedir(dir);
}

/* A test that fails leaves nothing in memory. */
static void disk_at_exit(void)
{
	if (!disk.on)
		return;
	disk_empty();
	rmdir(disk.path);
}

/* A folder of its own, whose name begins so. */
static void disk_open(const char *in, const char *name)
{
	static bool at_exit;
	struct stat st;

	if (!at_exit)
		atexit(disk_at_exit);
	at_exit = true;
	disk.event = calloc(DISK_EVENTS_MAX, sizeof(*disk.event));
	disk.inode = calloc(DISK_FILES_MAX, sizeof(*disk.inode));
	snprintf(disk.path, sizeof(disk.path), "%s/%.32s.XXXXXX", in, name);
	if (!disk.event || !disk.inode || !mkdtemp(disk.path))
		disk_give_up("no folder");
	disk.folder = open(disk.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fstat(disk.folder, &st))
		disk_give_up("the folder");
	disk.device = st.st_dev;
	disk.inode[0] = st.st_ino;
	disk.files = 1;
	disk.events = 0;
	disk.on = true;
}

static void disk_close(void)
{
	disk.on = false;
	close(disk.folder);
	rmdir(disk.path);
	while (disk.heaps)
		free(disk.heap[--disk.heaps]);
	free(disk.event);
	free(disk.inode);
}

/* The folder holds the image. What happened stays noted; with forget it is how all began. */
static void disk_become(struct disk_image *m, bool forget)
{
	struct disk_event *flushed;

	disk_empty();
	if (forget)
		disk.events = 0; /* whoever wants them back has a copy */
	for (uint32_t i = 0; i < m->entries; i++) {
		struct disk_entry *x = &m->entry[i];
		int fd = (int)syscall(SYS_openat, disk.folder, x->name, O_CREAT | O_WRONLY, 0600);
		struct stat st;

		if (fd < 0 || syscall(SYS_pwrite64, fd, x->data ? x->data : (uint8_t *)"", x->bytes,
				      0) != (long)x->bytes || fstat(fd, &st))
			disk_give_up(x->name);
		disk.inode[x->file] = st.st_ino;
		if (forget) {
			memcpy(disk_add(DISK_CREATE, x->file)->name, x->name, sizeof(x->name));
			*disk_add(DISK_WRITE, x->file) = (struct disk_event){
				.kind = DISK_WRITE, .file = x->file, .bytes = x->bytes,
				.data = disk_own(x->data ? x->data : calloc(1, 1)) };
			flushed = disk_add(DISK_FLUSHED, x->file);
			flushed->at = disk.events;
		} else {
			free(x->data);
		}
		x->data = NULL;
		close(fd);
	}
	if (!forget)
		return;
	flushed = disk_add(DISK_FLUSHED, 0);
	flushed->at = disk.events;
}

#endif
