/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store's file or block device before the loop runs: find, lock, fill. Blocking; start-up only.
 *
 * A file is given all its blocks, and every block is written once: space that was only reserved
 * would be converted at the first write of each place, which costs a journal commit in the middle
 * of write-back, and running out of space would come at the worst time.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "libtier/base/cleanup.h"
#include "libtier/base/file.h"
#include "libtier/base/log.h"
#include "tierd/backend/nvme.h"

/* One write of zeros: large enough that the device is never idle between two. */
#define FILL_BYTES ((size_t)8 << 20)

#define EXTENTS 32u /* asked for at a time */
#define AUTO_PERCENT 25
#define AUTO_BYTES_MAX (16ull << 30) /* filling it takes start-up time: tens of seconds at most */
#define AUTO_ALIGN (4ull << 20)

/* ---- what is there ------------------------------------------------------------------------- */

/* Since Linux 6.6 tmpfs takes O_DIRECT and ignores it: there is no device below. */
static bool in_memory_only(const struct statfs *fs)
{
	return fs->f_type == TMPFS_MAGIC || fs->f_type == RAMFS_MAGIC;
}

static int size_of(int fd, uint64_t *bytes)
{
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	if (S_ISREG(st.st_mode)) {
		*bytes = (uint64_t)st.st_size;
		return 0;
	}
	if (!S_ISBLK(st.st_mode))
		return -EINVAL;
	return ioctl(fd, BLKGETSIZE64, bytes) ? -errno : 0;
}

/* What a new file may have by itself: a share of what is free, bounded. */
static uint64_t free_share(const struct statfs *fs)
{
	uint64_t free_bytes = (uint64_t)fs->f_bavail * (uint64_t)fs->f_bsize;
	uint64_t share = free_bytes / 100 * AUTO_PERCENT;

	return (share < AUTO_BYTES_MAX ? share : AUTO_BYTES_MAX) / AUTO_ALIGN * AUTO_ALIGN;
}

int nvme_file_probe(const struct drive_options *options, struct backend_info *info)
{
	char folder[PATH_MAX];
	struct statfs fs;
	struct stat st;
	bool exists = stat(options->path, &st) == 0;
	bool device = exists && S_ISBLK(st.st_mode);

	if (!exists && errno != ENOENT)
		return -errno;
	if (exists && !device && !S_ISREG(st.st_mode))
		return -ENODEV;
	snprintf(folder, sizeof(folder), "%s", options->path); /* fits: stat took it */
	if (statfs(exists ? options->path : dirname(folder), &fs))
		return errno == ENOENT ? -ENODEV : -errno;
	*info = (struct backend_info){ .emulated = !device && in_memory_only(&fs) };
	snprintf(info->name, sizeof(info->name), device ? "device" : "file");
	snprintf(info->detail, sizeof(info->detail), "%s",
		 info->emulated ? "in memory: nothing outlives a reboot" :
		 device ? "O_DIRECT" : "on a file system, O_DIRECT");
	info->capacity_auto = free_share(&fs);
	if (device || (exists && st.st_size > 0)) {
		int fd CLEANUP_CLOSE = open(options->path, O_RDONLY | O_CLOEXEC);

		if (fd < 0)
			return -errno;
		return size_of(fd, &info->capacity_auto);
	}
	return 0;
}

/* ---- opening ------------------------------------------------------------------------------- */

#define LOCK_TRIES 100
#define LOCK_PAUSE_US 10000

struct opening {
	const struct drive_options *options;
	int fd;
	bool device;
	bool created; /* by us: removed again when something fails */
	bool locked;
	uint64_t bytes;
};

static int explain(const struct opening *o, int rc, const char *what, const char *advice)
{
	log_error(NULL, what, o->options->path, advice, "error=\"%s\" errno=%d", strerror(-rc),
		  -rc);
	return rc;
}

/*
 * A device has O_EXCL: not while it is mounted or part of another one. A ring that referred to it
 * keeps it a little longer than its daemon lived, or than close() took (see lock()).
 */
static int open_flags(struct opening *o, int direct)
{
	int flags = O_RDWR | O_CLOEXEC | direct | (o->device ? O_EXCL : 0);

	for (int i = 0; i < LOCK_TRIES; i++) {
		o->fd = open(o->options->path, flags);
		if (o->fd >= 0 || errno != EBUSY || i + 1 == LOCK_TRIES)
			break;
		usleep(LOCK_PAUSE_US);
	}
	if (o->fd < 0 && errno == ENOENT && o->options->bytes) {
		o->fd = open(o->options->path, flags | O_CREAT | O_EXCL, 0600);
		o->created = o->fd >= 0;
	}
	return o->fd < 0 ? -errno : 0;
}

static int explain_open(const struct opening *o, int rc)
{
	return explain(o, rc, "cannot open the store",
		       rc == -EBUSY ? "the device is mounted or in use" :
				      "check the path and its permissions");
}

/* With O_DIRECT; without only where the file system has none and the operator allows that. */
static int open_direct(struct opening *o)
{
	struct statfs fs;
	int rc = open_flags(o, O_DIRECT);

	if (rc && rc != -EINVAL)
		return explain_open(o, rc);
	if (rc == 0 && fstatfs(o->fd, &fs))
		return explain_open(o, -errno);
	/* A device's node lies in memory, its bytes do not. */
	if (rc == 0 && (o->device || !in_memory_only(&fs)))
		return 0;
	if (!o->options->buffered)
		return explain(o, -EOPNOTSUPP, "the store's file system has no O_DIRECT",
			       "use another file system, or allow the page cache (nvme.buffered)");
	if (rc == 0)
		return fcntl(o->fd, F_SETFL, 0) ? -errno : 0; /* clears O_DIRECT */
	rc = open_flags(o, 0);
	return rc ? explain_open(o, rc) : 0;
}

static int open_store(struct opening *o)
{
	struct stat st;
	bool exists = stat(o->options->path, &st) == 0;

	o->device = exists && S_ISBLK(st.st_mode);
	if (exists && !o->device && !S_ISREG(st.st_mode))
		return explain(o, -EINVAL, "the store is neither a file nor a block device",
			       "name a file, or a device such as /dev/nvme0n1");
	return open_direct(o);
}

/*
 * An open-file-description lock: it ends with this descriptor, whatever else the process closes. A
 * daemon that was killed keeps it until the kernel has wound its ring down, some milliseconds.
 */
static int lock(struct opening *o)
{
	struct flock whole = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	for (int i = 0; i < LOCK_TRIES; i++) {
		if (fcntl(o->fd, F_OFD_SETLK, &whole) == 0) {
			o->locked = true;
			return 0;
		}
		if (errno != EAGAIN && errno != EACCES)
			break;
		if (i + 1 < LOCK_TRIES)
			usleep(LOCK_PAUSE_US);
	}
	if (errno == EAGAIN || errno == EACCES)
		return explain(o, -EBUSY, "another daemon has the store open",
			       "stop it, or give this one a store of its own");
	return explain(o, -errno, "cannot lock the store", "its file system must support locks");
}

static void unlock(int fd)
{
	struct flock whole = { .l_type = F_UNLCK, .l_whence = SEEK_SET };

	fcntl(fd, F_OFD_SETLK, &whole);
	close(fd);
}

static void progress(const struct drive_options *options, uint64_t done)
{
	if (options->progress)
		options->progress(options->arg, done, options->bytes);
}

/* Write zeros over begin ... end, whole sectors inside of a hole. */
static int fill_hole(const struct drive_options *options, int fd, uint64_t begin, uint64_t end)
{
	/* Never written: all of it is the kernel's page of zeros. */
	void *zeros = mmap(NULL, FILL_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int rc = 0;

	if (zeros == MAP_FAILED)
		return -errno;
	begin = (begin + DISK_SECTOR - 1) / DISK_SECTOR * DISK_SECTOR;
	end = end / DISK_SECTOR * DISK_SECTOR;
	while (begin < end && rc == 0) {
		size_t n = end - begin < FILL_BYTES ? (size_t)(end - begin) : FILL_BYTES;

		rc = file_write(fd, zeros, n, begin);
		begin += n;
		if (rc == 0)
			progress(options, begin);
	}
	munmap(zeros, FILL_BYTES);
	return rc;
}

/* The first hole of [from, bytes). 1; 0 = none. Errors: of lseek; -ENXIO the file ends before. */
static int next_hole(int fd, uint64_t from, uint64_t bytes, uint64_t *begin, uint64_t *end)
{
	off_t hole = lseek(fd, (off_t)from, SEEK_HOLE), data;

	if (hole < 0)
		return -errno;
	if ((uint64_t)hole >= bytes)
		return 0;
	data = lseek(fd, hole, SEEK_DATA);
	if (data < 0 && errno != ENXIO)
		return -errno;
	*begin = (uint64_t)hole;
	*end = data < 0 || (uint64_t)data > bytes ? bytes : (uint64_t)data;
	return 1;
}

/* Fill every hole below `bytes`. What was reserved but never written reads as a hole, so a filling
 * that was interrupted goes on where it stopped, and a whole file costs one system call. */
static int fill_holes(const struct drive_options *options, int fd, uint64_t bytes)
{
	uint64_t at = 0, hole;

	while (at < bytes) {
		int rc = next_hole(fd, at, bytes, &hole, &at);

		if (rc <= 0)
			return rc;
		rc = fill_hole(options, fd, hole, at);
		if (rc)
			return rc;
	}
	return 0;
}

static int reserve(int fd, uint64_t size, uint64_t bytes)
{
	if (fallocate(fd, 0, 0, (off_t)bytes) == 0)
		return 0;
	if (errno != EOPNOTSUPP)
		return -errno;
	return size < bytes && ftruncate(fd, (off_t)bytes) ? -errno : 0;
}

/* Bring a file to its size; on failure back to the size that it had. */
static int preallocate(struct opening *o)
{
	uint64_t want = o->options->bytes / DISK_SECTOR * DISK_SECTOR, size = o->bytes;
	int rc;

	if (want < size)
		want = size / DISK_SECTOR * DISK_SECTOR; /* never cut what may hold a store */
	rc = reserve(o->fd, size, want);
	if (rc == 0)
		rc = fill_holes(o->options, o->fd, want);
	if (rc == 0 && fsync(o->fd))
		rc = -errno;
	if (rc == 0) {
		o->bytes = want;
		return 0;
	}
	explain(o, rc, "cannot preallocate the store",
		rc == -ENOSPC ? "free some space, or set a smaller nvme size" :
		rc == -EFBIG ? "raise the limit on file sizes (ulimit -f), or set a smaller nvme "
			       "size" : "check the device");
	if (!o->created && ftruncate(o->fd, (off_t)size))
		log_warn(NULL, "cannot give the space back", o->options->path, NULL, "errno=%d",
			 errno);
	return rc;
}

static int ready(struct opening *o)
{
	struct stat st;
	int rc = size_of(o->fd, &o->bytes);

	if (rc)
		return explain(o, rc, "cannot tell the store's size", "check the device");
	if (!o->device) {
		if (fstat(o->fd, &st) == 0 && st.st_mode & 077)
			log_warn(NULL, "others may read this file", o->options->path,
				 "if it is a store: chmod 600", "mode=%o", st.st_mode & 07777);
		return o->options->bytes ? preallocate(o) : 0;
	}
	if (o->options->bytes > o->bytes)
		return explain(o, -ENOSPC, "the device is smaller than the nvme size",
			       "set a smaller nvme size, or auto");
	return 0;
}

int nvme_file_open(const struct drive_options *options, struct nvme_file *out)
{
	struct opening o = { .options = options, .fd = -1 };
	int rc = open_store(&o);

	if (rc == 0)
		rc = lock(&o);
	if (rc == 0)
		rc = ready(&o);
	if (rc) {
		/* Only what we made, and only while nobody else can have it. */
		if (o.created && (o.locked || rc == -EOPNOTSUPP))
			unlink(options->path);
		if (o.fd >= 0)
			unlock(o.fd);
		return rc;
	}
	*out = (struct nvme_file){ .fd = o.fd, .device = o.device,
				   .bytes = o.bytes / DISK_SECTOR * DISK_SECTOR };
	return 0;
}

void nvme_file_close(const struct nvme_file *f)
{
	unlock(f->fd);
}

/* ---- what sysfs tells ---------------------------------------------------------------------- */

/* 0: it is not told. */
static uint64_t number_of(dev_t device, const char *queue, const char *name)
{
	char path[96], text[32] = "";
	int fd CLEANUP_CLOSE = -1;

	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/%s/%s", major(device), minor(device),
		 queue, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd >= 0 && read(fd, text, sizeof(text) - 1) > 0 ? strtoull(text, NULL, 10) : 0;
}

uint64_t nvme_file_limit(const struct nvme_file *f, const char *name)
{
	struct stat st;
	uint64_t n;

	if (fstat(f->fd, &st))
		return 0;
	n = number_of(st.st_rdev, "queue", name);
	return n ? n : number_of(st.st_rdev, "../queue", name); /* a partition has its disk's */
}

int nvme_file_disk(const struct nvme_file *f, char *name, size_t bytes)
{
	char path[96], target[PATH_MAX];
	struct stat st;
	ssize_t n;

	if (fstat(f->fd, &st))
		return -errno;
	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u", major(st.st_rdev),
		 minor(st.st_rdev));
	n = readlink(path, target, sizeof(target) - 1);
	if (n < 0)
		return -errno;
	target[n] = '\0';
	return snprintf(name, bytes, "%s", basename(target)) < (int)bytes ? 0 : -ERANGE;
}

/* ---- discarding ---------------------------------------------------------------------------- */

enum drive_discard nvme_file_discards(const struct nvme_file *f)
{
	if (!f->device)
		return DRIVE_DISCARD_FILE;
	return nvme_file_limit(f, "discard_max_bytes") ? DRIVE_DISCARD_DEVICE : DRIVE_DISCARD_NONE;
}

int nvme_file_discard(const struct nvme_file *f, uint64_t offset, uint64_t bytes)
{
	uint64_t range[2] = { offset, bytes };
	int rc;

	/* A hole punched into a device would be written with zeros where it cannot be unmapped. */
	do {
		if (f->device)
			rc = ioctl(f->fd, BLKDISCARD, range);
		else
			rc = fallocate(f->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				       (off_t)offset, (off_t)bytes);
	} while (rc && errno == EINTR);
	if (rc && (errno == ENOTTY || errno == ENOSYS))
		return -EOPNOTSUPP;
	return rc ? -errno : 0;
}

/* ---- what the host holds ------------------------------------------------------------------- */

/*
 * Bytes of [from, to) that have room on the medium: SEEK_HOLE shows what was only set aside as a
 * hole, too. A file system that cannot tell has set nothing aside.
 */
static uint64_t set_aside(int fd, uint64_t from, uint64_t to)
{
	union {
		struct fiemap map;
		uint8_t room[sizeof(struct fiemap) + EXTENTS * sizeof(struct fiemap_extent)];
	} ask;
	uint64_t bytes = 0;

	while (from < to) {
		const struct fiemap_extent *e = ask.map.fm_extents;

		memset(&ask, 0, sizeof(ask));
		ask.map.fm_start = from;
		ask.map.fm_length = to - from;
		ask.map.fm_extent_count = EXTENTS;
		if (ioctl(fd, FS_IOC_FIEMAP, &ask) || !ask.map.fm_mapped_extents)
			return bytes;
		for (uint32_t i = 0; i < ask.map.fm_mapped_extents; i++) {
			uint64_t end = e[i].fe_logical + e[i].fe_length;
			uint64_t begin = e[i].fe_logical > from ? e[i].fe_logical : from;

			end = end < to ? end : to;
			bytes += end > begin ? end - begin : 0;
			from = end > from ? end : to;
		}
	}
	return bytes;
}

int nvme_file_backing(const struct nvme_file *f, struct drive_backing *out)
{
	uint64_t at = 0, hole, bytes = f->bytes;
	struct stat st;

	*out = (struct drive_backing){ .bytes = bytes, .allocated = bytes, .hole = bytes };
	if (f->device)
		return 0;
	if (fstat(f->fd, &st))
		return -errno;
	out->bytes = (uint64_t)st.st_size;
	out->allocated = (uint64_t)st.st_blocks * 512;
	while (at < bytes) {
		int rc = next_hole(f->fd, at, bytes, &hole, &at);
		uint64_t lost;

		if (rc <= 0)
			return rc == -ENXIO ? 0 : rc;
		lost = at - hole - set_aside(f->fd, hole, at);
		if (lost && !out->holes)
			out->hole = hole;
		out->holes += lost;
	}
	return 0;
}
