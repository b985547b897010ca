/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening and closing. What is opened for reading is a descriptor of the object; what is opened for
 * writing one of an upload, which is committed when the process closes it (and nobody else, a child
 * for example, has it any more).
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libtier/base/atomic.h"
#include "libtier/shim/shim.h"

#define UPLOADS_MAX 512u
#define KNOWN_MAX 1024u
#define DEVICE 0x74696572u /* st_dev of objects: "tier" */
#define PENDING_INODE (1ull << 62)

static struct {
	pthread_mutex_t lock;
	uint32_t count; /* atomic: of uploads */
	struct shim_upload {
		bool used;
		int fd;
		pid_t pid;
		uint64_t id;
		char context[ABI_NAME_BYTES];
	} upload[UPLOADS_MAX];
	/* Inodes of what was opened last, and what stat tells of their names. */
	uint32_t next;
	struct {
		dev_t device;
		ino_t inode;
		uint64_t version;
		uint32_t mode;
	} known[KNOWN_MAX];
	uint64_t device; /* atomic: of all these inodes */
} files = { .lock = PTHREAD_MUTEX_INITIALIZER };

typedef int (*open_call)(const char *, int, ...);
typedef int (*openat_call)(int, const char *, int, ...);
typedef int (*close_call)(int);
typedef FILE *(*fopen_call)(const char *, const char *);

/* ---- what stat tells ----------------------------------------------------------------------- */

void shim_fill_stat(struct stat *st, const struct wire_object_info *info)
{
	memset(st, 0, sizeof(*st));
	st->st_dev = DEVICE;
	st->st_ino = info->version ? info->version : PENDING_INODE;
	st->st_mode = S_IFREG | info->mode;
	st->st_nlink = 1;
	st->st_uid = geteuid();
	st->st_gid = getegid();
	st->st_size = (off_t)info->size;
	st->st_blksize = 4096;
	st->st_blocks = (blkcnt_t)((info->size + 511) / 512);
	st->st_mtim.tv_sec = (time_t)(info->mtime_ns / 1000000000);
	st->st_mtim.tv_nsec = (long)(info->mtime_ns % 1000000000);
	st->st_atim = st->st_ctim = st->st_mtim;
}

static void know(int fd, const struct wire_object_info *info, uint64_t version)
{
	struct stat st;

	shim_enter();
	if (fstat(fd, &st) == 0) {
		pthread_mutex_lock(&files.lock);
		files.known[files.next % KNOWN_MAX].device = st.st_dev;
		files.known[files.next % KNOWN_MAX].inode = st.st_ino;
		files.known[files.next % KNOWN_MAX].version = version;
		files.known[files.next % KNOWN_MAX].mode = info->mode;
		files.next++;
		pthread_mutex_unlock(&files.lock);
		atomic_store_release_u64(&files.device, st.st_dev);
	}
	shim_leave();
}

void shim_fix_stat(struct stat *st)
{
	if (!S_ISREG(st->st_mode) || st->st_dev != atomic_load_acquire_u64(&files.device))
		return;
	pthread_mutex_lock(&files.lock);
	for (uint32_t i = 1; i <= KNOWN_MAX && i <= files.next; i++) {
		uint32_t k = (files.next - i) % KNOWN_MAX;

		if (files.known[k].inode != st->st_ino || files.known[k].device != st->st_dev)
			continue;
		st->st_dev = DEVICE;
		st->st_ino = files.known[k].version;
		st->st_mode = S_IFREG | files.known[k].mode;
		st->st_nlink = 1;
		st->st_uid = geteuid();
		st->st_gid = getegid();
		break;
	}
	pthread_mutex_unlock(&files.lock);
}

/* ---- uploads ------------------------------------------------------------------------------- */

static void track(int fd, uint64_t id, const char *context)
{
	pthread_mutex_lock(&files.lock);
	for (uint32_t i = 0; i < UPLOADS_MAX; i++) {
		struct shim_upload *u = &files.upload[i];

		if (u->used)
			continue;
		*u = (struct shim_upload){ true, fd, getpid(), id, "" };
		memcpy(u->context, context, sizeof(u->context));
		atomic_store_release_u32(&files.count, files.count + 1);
		break;
	}
	pthread_mutex_unlock(&files.lock);
}

/*
 * The descriptor is about to be closed. True: it is this process' last one of an upload, which *out
 * describes. A child of vfork shares our memory: what is not of its number stays as it is.
 */
static bool untrack(int fd, struct shim_upload *out)
{
	bool found = false, others = false;

	if (!atomic_load_acquire_u32(&files.count))
		return false;
	pthread_mutex_lock(&files.lock);
	for (uint32_t i = 0; i < UPLOADS_MAX; i++) {
		struct shim_upload *u = &files.upload[i];

		if (!u->used || u->fd != fd || u->pid != getpid())
			continue;
		*out = *u;
		u->used = false;
		atomic_store_release_u32(&files.count, files.count - 1);
		found = true;
		break;
	}
	for (uint32_t i = 0; found && i < UPLOADS_MAX; i++)
		others = others || (files.upload[i].used && files.upload[i].id == out->id &&
				    files.upload[i].pid == out->pid);
	pthread_mutex_unlock(&files.lock);
	return found && !others;
}

static void track_copy(int from, int to)
{
	uint64_t id = 0;
	char context[ABI_NAME_BYTES];

	if (!atomic_load_acquire_u32(&files.count))
		return;
	pthread_mutex_lock(&files.lock);
	for (uint32_t i = 0; i < UPLOADS_MAX; i++)
		if (files.upload[i].used && files.upload[i].fd == from &&
		    files.upload[i].pid == getpid()) {
			id = files.upload[i].id;
			memcpy(context, files.upload[i].context, sizeof(context));
		}
	pthread_mutex_unlock(&files.lock);
	if (id)
		track(to, id, context);
}

/* It is closed: 0, or why it was not kept. */
static int commit(const struct shim_upload *u)
{
	struct wire_object q;
	struct wire_object_info info;

	memset(&q, 0, sizeof(q));
	q.header.type = WIRE_OBJ_COMMIT;
	memcpy(q.context, u->context, sizeof(q.context));
	q.upload = u->id;
	q.flags = WIRE_OBJ_AT_CLOSE;
	return shim_ask(&q, WIRE_OBJ_INFO, &info, NULL);
}

/* What close says of an upload that was not kept. */
static int close_error(int rc)
{
	return rc == -ENOSPC || rc == -EDQUOT || rc == -EFBIG ? -rc : EIO;
}

void shim_end(void)
{
	struct shim_upload u;

	for (uint32_t i = 0; i < UPLOADS_MAX; i++) {
		if (!files.upload[i].used || files.upload[i].pid != getpid())
			continue;
		shim_enter();
		if (untrack(files.upload[i].fd, &u)) {
			REAL(close, close_call)(u.fd);
			commit(&u);
		}
		shim_leave();
	}
}

/* ---- open ---------------------------------------------------------------------------------- */

enum opened { IS_REAL, IS_OURS, FAILED };

static enum opened failed(int error)
{
	errno = error;
	return FAILED;
}

/* Late, or without memory: for a program it is not there. Never fewer bytes. */
static int open_error(int rc)
{
	return rc == -EFBIG || rc == -EMFILE || rc == -EACCES || rc == -EEXIST ? -rc : ENOENT;
}

static void set_flags(int fd, int flags)
{
	if (!(flags & O_CLOEXEC))
		fcntl(fd, F_SETFD, 0);
	if (flags & O_APPEND)
		fcntl(fd, F_SETFL, O_APPEND);
}

static enum opened open_read(const struct shim_name_of *n, int flags, int *fd)
{
	struct wire_object q;
	struct wire_object_info info;
	int rc;

	shim_question(&q, WIRE_OBJ_OPEN, n);
	rc = shim_ask(&q, WIRE_OBJ_INFO, &info, fd);
	if (rc == -ENOENT || rc == -ENOTCONN || rc == -EINVAL)
		return IS_REAL;
	if (rc)
		return failed(open_error(rc));
	know(*fd, &info, info.version);
	set_flags(*fd, flags);
	return IS_OURS;
}

static bool is_object(const struct shim_name_of *n)
{
	struct wire_object q;
	struct wire_object_info info;

	shim_question(&q, WIRE_OBJ_STAT, n);
	return shim_ask(&q, WIRE_OBJ_INFO, &info, NULL) == 0;
}

/* What the real directory has of it: 1 a file, 0 only the folder, negative not even that. */
static int real_has(const struct shim_name_of *n)
{
	char folder[sizeof(n->path)];
	struct stat st;
	int found;

	memcpy(folder, n->path, sizeof(folder));
	*strrchr(folder, '/') = '\0';
	shim_enter();
	found = lstat(n->path, &st) == 0;
	if (!found && (stat(folder, &st) || !S_ISDIR(st.st_mode)))
		found = SHIM_FAILED;
	shim_leave();
	return found;
}

/* The present bytes, for who changes some of them. */
static int copy_present(const struct shim_name_of *n, int to)
{
	struct wire_object q;
	struct wire_object_info info;
	loff_t in = 0, out = 0;
	int from = -1, rc;
	ssize_t moved = 1;

	shim_question(&q, WIRE_OBJ_OPEN, n);
	rc = shim_ask(&q, WIRE_OBJ_INFO, &info, &from);
	if (rc)
		return rc;
	while (moved > 0 && (uint64_t)in < info.size)
		moved = copy_file_range(from, &in, to, &out, info.size - (uint64_t)in, 0);
	rc = moved < 0 ? -errno : 0;
	REAL(close, close_call)(from);
	return rc;
}

static enum opened create(const struct shim_name_of *n, int flags, mode_t mode, int *fd)
{
	bool copy = !(flags & (O_TRUNC | O_EXCL)) && is_object(n);
	struct wire_object q;
	struct wire_object_info info;
	mode_t mask;
	int rc;

	shim_question(&q, WIRE_OBJ_CREATE, n);
	mask = umask(0);
	umask(mask);
	q.mode = mode & ~mask & 0777;
	q.flags = WIRE_OBJ_AT_CLOSE | (flags & O_EXCL ? WIRE_OBJ_EXCLUSIVE : 0);
	rc = shim_ask(&q, WIRE_OBJ_INFO, &info, fd);
	if (rc == -ENOTCONN || rc == -EINVAL)
		return IS_REAL;
	if (rc)
		return failed(open_error(rc));
	rc = copy ? copy_present(n, *fd) : 0;
	track(*fd, info.upload, q.context);
	if (rc) {
		shim_close(*fd);
		return failed(open_error(rc));
	}
	know(*fd, &info, PENDING_INODE | info.upload);
	set_flags(*fd, flags);
	return IS_OURS;
}

static enum opened open_write(const struct shim_name_of *n, int flags, mode_t mode, int *fd)
{
	int there = real_has(n);

	if (there < 0)
		return IS_REAL; /* whose error it is */
	if (flags & O_CREAT && flags & O_EXCL)
		return there ? IS_REAL : create(n, flags, mode, fd);
	if ((there || !(flags & O_CREAT)) && !is_object(n))
		return IS_REAL; /* a file of before, or none at all */
	return create(n, flags, mode, fd);
}

static enum opened open_ours(int at, const char *path, int flags, mode_t mode, int *fd)
{
	struct shim_name_of n;

	if (shim_passes() || flags & (O_PATH | O_DIRECTORY) || !shim_resolve(at, path, &n))
		return IS_REAL;
	if ((flags & O_ACCMODE) == O_RDONLY && !(flags & (O_CREAT | O_TRUNC)))
		return open_read(&n, flags, fd);
	return open_write(&n, flags, mode, fd);
}

int shim_open(enum shim_name name, int at, const char *path, int flags, mode_t mode)
{
	bool has_folder = name == SHIM_openat || name == SHIM_openat64;
	int fd = SHIM_FAILED;

	if (open_ours(at, path, flags, mode, &fd) != IS_REAL)
		return fd;
	if (has_folder)
		return ((openat_call)shim_real(name))(at, path, flags, mode);
	return ((open_call)shim_real(name))(path, flags, mode);
}

/* The flags that a mode of fopen means; negative: none, the C library says so. */
static int stdio_flags(const char *mode)
{
	int flags = mode[0] == 'r' ? O_RDONLY : mode[0] == 'w' ? O_WRONLY | O_CREAT | O_TRUNC :
		    mode[0] == 'a' ? O_WRONLY | O_CREAT | O_APPEND : SHIM_FAILED;

	if (flags < 0)
		return flags;
	for (mode++; *mode && *mode != ','; mode++) {
		if (*mode == '+')
			flags = (flags & ~O_ACCMODE) | O_RDWR;
		flags |= *mode == 'e' ? O_CLOEXEC : *mode == 'x' ? O_EXCL : 0;
	}
	return flags;
}

FILE *shim_fopen(enum shim_name name, const char *path, const char *mode)
{
	int flags = stdio_flags(mode), fd = SHIM_FAILED;
	FILE *file;

	if (flags < 0)
		return ((fopen_call)shim_real(name))(path, mode);
	switch (open_ours(AT_FDCWD, path, flags, 0666, &fd)) {
	case FAILED:
		return NULL;
	case IS_REAL:
		return ((fopen_call)shim_real(name))(path, mode);
	default:
		break;
	}
	file = fdopen(fd, mode);
	if (!file)
		shim_close(fd);
	return file;
}

/* ---- close --------------------------------------------------------------------------------- */

/* Behind the close of what had this upload's last descriptor here. */
static int closed(const struct shim_upload *u, int result)
{
	int rc = commit(u);

	if (rc && !result) {
		errno = close_error(rc);
		result = SHIM_FAILED;
	}
	return result;
}

int shim_close(int fd)
{
	struct shim_upload u;

	if (shim_passes())
		return REAL(close, close_call)(fd);
	if (shim_owns(fd)) { /* a program that closes whatever there is */
		errno = EBADF;
		return SHIM_FAILED;
	}
	if (!untrack(fd, &u))
		return REAL(close, close_call)(fd);
	return closed(&u, REAL(close, close_call)(fd));
}

int shim_fclose(FILE *file)
{
	int (*real)(FILE *) = REAL(fclose, int (*)(FILE *));
	struct shim_upload u;

	if (shim_passes() || !untrack(fileno(file), &u))
		return real(file);
	return closed(&u, real(file));
}

/* `to` is closed by the copy that takes its place. */
int shim_dup(int from, int to, int flags)
{
	int (*real)(int, int, int) = REAL(dup3, int (*)(int, int, int));
	struct shim_upload u;
	bool last;
	int fd;

	if (shim_passes() || from == to)
		return real(from, to, flags);
	last = untrack(to, &u);
	fd = real(from, to, flags);
	if (last)
		commit(&u);
	if (fd >= 0)
		track_copy(from, fd);
	return fd;
}
