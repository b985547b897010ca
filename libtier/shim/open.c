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
	/* What was opened last: its inode, what stat tells of its name, and that. */
	uint32_t next;
	struct known {
		dev_t device;
		ino_t inode;
		uint64_t told;
		uint32_t mode;
		char context[ABI_NAME_BYTES];
		char name[ABI_OBJECT_NAME_BYTES];
	} known[KNOWN_MAX];
	uint64_t device; /* atomic: of all these inodes */
} files = { .lock = PTHREAD_MUTEX_INITIALIZER };

typedef int (*open_call)(const char *, int, ...);
typedef int (*openat_call)(int, const char *, int, ...);
typedef int (*close_call)(int);
typedef FILE *(*fopen_call)(const char *, const char *);

/* A signal's handler that comes in between passes through, as everywhere in the shim. */
static void lock_files(void)
{
	shim_enter();
	pthread_mutex_lock(&files.lock);
}

static void unlock_files(void)
{
	pthread_mutex_unlock(&files.lock);
	shim_leave();
}

/* Another thread of the parent may have had the lock; its uploads are none of the child's. */
void shim_forked(void)
{
	pthread_mutex_init(&files.lock, NULL);
	memset(files.upload, 0, sizeof(files.upload));
	atomic_store_release_u32(&files.count, 0);
}

/* ---- what stat tells ----------------------------------------------------------------------- */

void shim_fill_stat(struct stat *st, const struct wire_object_info *info)
{
	memset(st, 0, sizeof(*st));
	st->st_dev = DEVICE;
	st->st_ino = info->inode;
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

static void know(int fd, const struct wire_object *q, const struct wire_object_info *info)
{
	struct stat st;

	shim_enter();
	if (fstat(fd, &st) == 0) {
		struct known *k;

		lock_files();
		k = &files.known[files.next++ % KNOWN_MAX];
		*k = (struct known){ st.st_dev, st.st_ino, info->inode, info->mode, "", "" };
		memcpy(k->context, q->context, sizeof(k->context));
		memcpy(k->name, q->name, sizeof(k->name));
		unlock_files();
		atomic_store_release_u64(&files.device, st.st_dev);
	}
	shim_leave();
}

/* Under the lock: what was opened last as this inode, or NULL. */
static struct known *find_known(const struct stat *st)
{
	for (uint32_t i = 1; i <= KNOWN_MAX && i <= files.next; i++) {
		struct known *k = &files.known[(files.next - i) % KNOWN_MAX];

		if (k->inode == st->st_ino && k->device == st->st_dev)
			return k;
	}
	return NULL;
}

void shim_fix_stat(struct stat *st)
{
	const struct known *k;

	if (!S_ISREG(st->st_mode) || st->st_dev != atomic_load_acquire_u64(&files.device))
		return;
	lock_files();
	k = find_known(st);
	if (k) {
		st->st_dev = DEVICE;
		st->st_ino = k->told;
		st->st_mode = S_IFREG | k->mode;
		st->st_nlink = 1;
		st->st_uid = geteuid();
		st->st_gid = getegid();
	}
	unlock_files();
}

/* The question about the name by which a descriptor was opened; NULL: it is of no object. */
static struct known *question_of(int fd, struct wire_object *q)
{
	struct known *k = NULL;
	struct stat st;

	memset(q, 0, sizeof(*q));
	shim_enter();
	if (atomic_load_acquire_u64(&files.device) && fstat(fd, &st) == 0) {
		lock_files();
		k = find_known(&st);
		if (k) {
			memcpy(q->context, k->context, sizeof(q->context));
			memcpy(q->name, k->name, sizeof(q->name));
		}
		unlock_files();
	}
	shim_leave();
	return k;
}

bool shim_name_of_fd(int fd, struct shim_name_of *out)
{
	struct wire_object q;

	if (!question_of(fd, &q))
		return false;
	memcpy(out->context, q.context, sizeof(out->context));
	memcpy(out->name, q.name, sizeof(out->name));
	return true;
}

/* ---- uploads ------------------------------------------------------------------------------- */

static void track(int fd, uint64_t id, const char *context)
{
	lock_files();
	for (uint32_t i = 0; i < UPLOADS_MAX; i++) {
		struct shim_upload *u = &files.upload[i];

		if (u->used)
			continue;
		*u = (struct shim_upload){ true, fd, getpid(), id, "" };
		memcpy(u->context, context, sizeof(u->context));
		atomic_store_release_u32(&files.count, files.count + 1);
		break;
	}
	unlock_files();
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
	lock_files();
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
	unlock_files();
	return found && !others;
}

/* The upload that a descriptor is of; false: it is of none. */
static bool tracked(int fd, struct shim_upload *out)
{
	bool found = false;

	if (!atomic_load_acquire_u32(&files.count))
		return false;
	lock_files();
	for (uint32_t i = 0; !found && i < UPLOADS_MAX; i++) {
		*out = files.upload[i];
		found = out->used && out->fd == fd && out->pid == getpid();
	}
	unlock_files();
	return found;
}

static void track_copy(int from, int to)
{
	struct shim_upload u;

	if (tracked(from, &u))
		track(to, u.id, u.context);
}

/* 0, or why it was not kept. */
static int save(const struct shim_upload *u, uint16_t type)
{
	struct wire_object q;
	struct wire_object_info info;

	memset(&q, 0, sizeof(q));
	q.header.type = type;
	memcpy(q.context, u->context, sizeof(q.context));
	q.upload = u->id;
	q.flags = WIRE_OBJ_AT_CLOSE;
	return shim_ask(&q, WIRE_OBJ_INFO, &info, NULL);
}

static int commit(const struct shim_upload *u)
{
	return save(u, WIRE_OBJ_COMMIT);
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

/*
 * Another program is about to take this one's place, and closes what it has of ours unsaid:
 * what it leaves when it ends counts, as if it were closed here. If exec fails, nothing changes.
 */
void shim_exec(void)
{
	struct shim_upload u;

	for (uint32_t i = 0; i < UPLOADS_MAX && atomic_load_acquire_u32(&files.count); i++) {
		lock_files();
		u = files.upload[i];
		unlock_files();
		if (u.used && u.pid == getpid())
			commit(&u);
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

static int ask_open(const struct shim_name_of *n, struct wire_object *q,
		    struct wire_object_info *info, int *fd)
{
	if (shim_absent(n))
		return -ENOENT;
	shim_question(q, WIRE_OBJ_OPEN, n);
	q->flags = WIRE_OBJ_SHARED;
	return shim_ask(q, WIRE_OBJ_INFO, info, fd);
}

static enum opened open_read(struct shim_name_of *n, int flags, int *fd)
{
	struct wire_object q;
	struct wire_object_info info;
	int rc = ask_open(n, &q, &info, fd);

	if (rc == -ENOENT && shim_follow(n, !(flags & O_NOFOLLOW)))
		rc = ask_open(n, &q, &info, fd);
	if (rc == -ENOENT || rc == -ENOTCONN || rc == -EINVAL)
		return IS_REAL;
	if (rc)
		return failed(open_error(rc));
	know(*fd, &q, &info);
	set_flags(*fd, flags);
	return IS_OURS;
}

static bool is_object(const struct shim_name_of *n)
{
	struct wire_object_info info;

	return shim_look(n, &info) == 0;
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

/* As a file is made: O_TRUNC begins a new version, all else is one upload for all of the user. */
static uint32_t create_flags(int flags)
{
	uint32_t create = WIRE_OBJ_AT_CLOSE;

	if (flags & O_CREAT && flags & O_EXCL)
		return create | WIRE_OBJ_EXCLUSIVE | WIRE_OBJ_SHARED;
	if (!(flags & O_CREAT))
		create |= WIRE_OBJ_EXISTING;
	return flags & O_TRUNC ? create : create | WIRE_OBJ_SHARED | WIRE_OBJ_COPY;
}

static enum opened create(const struct shim_name_of *n, int flags, mode_t mode, int *fd)
{
	struct wire_object q;
	struct wire_object_info info;
	mode_t mask;
	int rc;

	shim_question(&q, WIRE_OBJ_CREATE, n);
	mask = umask(0);
	umask(mask);
	q.mode = mode & ~mask & 0777;
	q.flags = create_flags(flags);
	if (shim_is_temporary(n))
		q.flags |= WIRE_OBJ_TEMPORARY | WIRE_OBJ_SHARED;
	rc = shim_ask(&q, WIRE_OBJ_INFO, &info, fd);
	if (rc == -ENOTCONN || rc == -EINVAL || (rc == -ENOENT && !(flags & O_CREAT)))
		return IS_REAL;
	if (rc)
		return failed(open_error(rc));
	if (q.flags & WIRE_OBJ_TEMPORARY && flags & O_TRUNC && ftruncate(*fd, 0))
		return failed(errno);
	track(*fd, info.upload, q.context);
	know(*fd, &q, &info);
	set_flags(*fd, flags);
	return IS_OURS;
}

static enum opened open_write(struct shim_name_of *n, int flags, mode_t mode, int *fd)
{
	int there;

	if (!is_object(n))
		shim_follow(n, !(flags & (O_NOFOLLOW | O_EXCL)));
	there = real_has(n);
	if (there < 0)
		return IS_REAL; /* whose error it is */
	if (there && flags & O_EXCL)
		return IS_REAL; /* which says that it is there */
	if (there && !is_object(n)) { /* a file of before */
		shim_tell_real(n);
		return IS_REAL;
	}
	return create(n, flags, mode, fd);
}

static enum opened open_ours(int at, const char *path, int flags, mode_t mode, int *fd)
{
	struct shim_name_of n;

	if (shim_passes() || !shim_resolve(at, path, &n))
		return IS_REAL;
	if (flags & O_DIRECTORY) /* cp asks so what there is */
		return is_object(&n) ? failed(ENOTDIR) : IS_REAL;
	if (flags & O_PATH)
		return open_read(&n, flags, fd);
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

/* The file has its descriptor's number still, and by it what was opened. */
FILE *shim_freopen(enum shim_name name, const char *path, const char *mode, FILE *file)
{
	FILE *(*real)(const char *, const char *, FILE *) = shim_real(name);
	int flags = path ? stdio_flags(mode) : SHIM_FAILED, fd = SHIM_FAILED;
	enum opened opened = IS_REAL;
	struct shim_upload u;
	char ours[32];
	bool last;

	if (shim_passes())
		return real(path, mode, file);
	if (flags >= 0)
		opened = open_ours(AT_FDCWD, path, flags, 0666, &fd);
	fflush(file);
	last = fileno(file) >= 0 && path && untrack(fileno(file), &u);
	if (opened == FAILED) {
		fclose(file);
		file = NULL;
	} else {
		snprintf(ours, sizeof(ours), "/proc/self/fd/%d", fd);
		file = real(opened == IS_OURS ? ours : path, mode, file);
	}
	if (last)
		commit(&u);
	if (file && opened == IS_OURS)
		track_copy(fd, fileno(file));
	if (opened == IS_OURS)
		shim_close(fd);
	return file;
}

/* What is open of ours from `first` to `last`; the real call closes all else. */
void shim_close_range(unsigned first, unsigned last)
{
	struct shim_upload u;

	for (uint32_t i = 0; i < UPLOADS_MAX && atomic_load_acquire_u32(&files.count); i++) {
		lock_files();
		u = files.upload[i];
		unlock_files();
		if (u.used && u.pid == getpid() && (unsigned)u.fd >= first &&
		    (unsigned)u.fd <= last)
			shim_close(u.fd);
	}
}

/* Of a folder: what was renamed or removed in it is flushed (O8); then the real one. */
static int sync_folder(int fd)
{
	struct shim_name_of n;
	struct wire_object q;
	struct stat st;
	bool is_folder;
	int rc;

	shim_enter();
	is_folder = fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);
	shim_leave();
	if (!is_folder || !shim_resolve_folder(fd, ".", true, &n))
		return SHIM_REAL;
	shim_question(&q, WIRE_OBJ_SYNC, &n);
	memset(q.name, 0, sizeof(q.name));
	rc = shim_ask(&q, WIRE_OBJ_INFO, NULL, NULL);
	return rc == 0 || rc == -ENOTCONN || rc == -EACCES || rc == -EINVAL || rc == -ENOENT ?
		       SHIM_REAL : -EIO;
}

int shim_sync(int fd)
{
	struct shim_upload u;
	int rc;

	if (shim_passes())
		return SHIM_REAL;
	if (!tracked(fd, &u))
		return sync_folder(fd);
	rc = save(&u, WIRE_OBJ_SYNC);
	return rc ? -close_error(rc) : 0;
}

int shim_set_fd(int fd, const struct shim_set *set)
{
	struct shim_upload u;
	struct wire_object q;
	struct known *k;

	k = shim_passes() ? NULL : question_of(fd, &q);
	if (!k)
		return SHIM_REAL;
	if (tracked(fd, &u)) {
		memset(q.name, 0, sizeof(q.name));
		q.upload = u.id;
	}
	q.header.type = WIRE_OBJ_SET;
	q.flags = set->flags;
	q.mode = set->mode & 0777;
	q.mtime_ns = set->mtime_ns;
	if (shim_ask(&q, WIRE_DONE, NULL, NULL))
		return -EIO;
	if (set->flags & WIRE_OBJ_MODE)
		k->mode = q.mode;
	return 0;
}

int shim_copied(int from, int to)
{
	if (to >= 0 && !shim_passes())
		track_copy(from, to);
	return to;
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
