/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store's file or device before anything is moved: filled once, locked, of the right kind, on a
 * file system that can do it, and what happens when there is no room.
 */
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <linux/magic.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#include "tests/unit/test_backend_nvme.h"

static bool is_written(const char *path, uint64_t bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	off_t hole = lseek(fd, 0, SEEK_HOLE);
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	close(fd);
	return hole == (off_t)bytes && st.st_size == (off_t)bytes &&
	       (uint64_t)st.st_blocks * 512 >= bytes;
}

static void test_preallocates_once(void **state)
{
	struct fixture *f = *state;
	uint8_t *buf;
	struct stat st;
	int fd;

	start(f, 20 * MIB, 8);
	buf = pages(2);
	assert_true(is_written(f->path, 20 * MIB));
	assert_true(f->progress_calls >= 2);
	assert_int_equal(f->progress_done, 20 * MIB);
	assert_int_equal(f->progress_total, 20 * MIB);
	assert_int_equal(stat(f->path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	memset(buf, 0x5a, 2 * PAGE);
	assert_int_equal(nvme()->pwrite(f->d, buf, PAGE, 7 * MIB), 0);
	nvme()->close(f->d);
	assert_int_equal(try_open(f, 20 * MIB, &f->d), 0);
	assert_int_equal(f->progress_calls, 0); /* a whole file is not written again */
	nvme()->close(f->d);
	/* A filling that was interrupted goes on, and touches nothing that is there. */
	fd = open(f->path, O_RDWR | O_CLOEXEC);
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 2 * MIB, MIB),
			 0);
	assert_int_equal(ftruncate(fd, 18 * MIB), 0);
	close(fd);
	assert_int_equal(try_open(f, 24 * MIB, &f->d), 0);
	assert_true(is_written(f->path, 24 * MIB));
	assert_int_equal(f->progress_calls, 2);
	assert_int_equal(nvme()->pread(f->d, buf + PAGE, PAGE, 7 * MIB), 0);
	assert_memory_equal(buf, buf + PAGE, PAGE);
	nvme()->close(f->d);
	/* Asked for less: what is there may be a store. */
	assert_int_equal(try_open(f, MIB, &f->d), 0);
	assert_int_equal(nvme()->bytes(f->d), 24 * MIB);
	free(buf);
}

/* An answer of the file system tells of 32 extents at most. */
#define EXTENTS 100u

/*
 * A place that was set aside and not written reads as a hole and is none: its room is there. Here
 * are many of both, side by side.
 */
static void test_holes_in_many_pieces(void **state)
{
	struct fixture *f = *state;
	struct fiemap map = { .fm_length = MIB };
	struct drive_backing b;
	int fd;

	start(f, 8 * MIB, 4);
	assert_int_equal(nvme()->backing(f->d, &b), 0);
	assert_int_equal(b.holes, 0);
	assert_true(b.allocated >= 8 * MIB);
	fd = open(f->path, O_RDWR | O_CLOEXEC);
	if (ioctl(fd, FS_IOC_FIEMAP, &map)) {
		print_message("no fiemap on the file system of %s\n", f->folder);
		close(fd);
		skip();
	}
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 2 * MIB,
				   2 * EXTENTS * PAGE), 0);
	assert_int_equal(nvme()->backing(f->d, &b), 0);
	assert_int_equal(b.holes, 2 * EXTENTS * PAGE);
	assert_int_equal(b.hole, 2 * MIB);
	for (uint32_t i = 0; i < EXTENTS; i++)
		assert_int_equal(fallocate(fd, 0, (off_t)(2 * MIB + (2 * i + 1) * PAGE), PAGE), 0);
	assert_int_equal(nvme()->backing(f->d, &b), 0);
	assert_int_equal(b.holes, EXTENTS * PAGE);
	assert_int_equal(b.hole, 2 * MIB);
	assert_int_equal(b.bytes, 8 * MIB);
	/* The rest of it is written pages with holes between them. */
	for (uint32_t i = 0; i < EXTENTS; i++)
		assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
					   (off_t)(4 * MIB + 2 * i * PAGE), PAGE), 0);
	assert_int_equal(nvme()->backing(f->d, &b), 0);
	assert_int_equal(b.holes, 2 * EXTENTS * PAGE);
	close(fd);
}

/* What is discarded of a file is room of its file system; all else stays, and it can be written. */
static void test_a_file_gives_its_room_back(void **state)
{
	struct fixture *f = *state;
	struct drive_backing b;
	uint8_t *buf;
	int rc;

	start(f, 8 * MIB, 4);
	assert_int_equal(nvme()->discards(f->d), DRIVE_DISCARD_FILE);
	buf = pages(2);
	memset(buf, 0x5a, PAGE);
	for (uint64_t at = MIB; at <= 3 * MIB; at += MIB)
		assert_int_equal(nvme()->pwrite(f->d, buf, PAGE, at), 0);
	rc = nvme()->discard(f->d, 2 * MIB, MIB);
	if (rc) {
		assert_int_equal(rc, -EOPNOTSUPP);
		print_message("no holes on the file system of %s\n", f->folder);
		free(buf);
		skip();
	}
	assert_int_equal(nvme()->backing(f->d, &b), 0);
	assert_int_equal(b.holes, MIB);
	assert_int_equal(b.hole, 2 * MIB);
	assert_int_equal(b.bytes, 8 * MIB);
	assert_int_equal(nvme()->bytes(f->d), 8 * MIB);
	for (uint64_t at = MIB; at <= 3 * MIB; at += 2 * MIB) {
		assert_int_equal(nvme()->pread(f->d, buf + PAGE, PAGE, at), 0);
		assert_memory_equal(buf, buf + PAGE, PAGE);
	}
	assert_int_equal(nvme()->pwrite(f->d, buf, PAGE, 2 * MIB), 0);
	assert_int_equal(nvme()->pread(f->d, buf + PAGE, PAGE, 2 * MIB), 0);
	assert_memory_equal(buf, buf + PAGE, PAGE);
	free(buf);
}

static void test_probe(void **state)
{
	static char longer[8192];
	struct fixture *f = *state;
	struct drive_options options = { .path = f->path };
	struct backend_info info;

	assert_int_equal(nvme()->probe(&options, &info), 0);
	assert_string_equal(info.name, "file");
	assert_true(info.capacity_auto % MIB == 0);
	assert_int_equal(access(f->path, F_OK), -1); /* no effect */
	assert_int_equal(truncate(f->path, MIB), -1);
	start(f, 3 * MIB, 4);
	assert_int_equal(nvme()->probe(&options, &info), 0);
	assert_int_equal(info.capacity_auto, 3 * MIB);
	options.path = "/nowhere/at/all";
	assert_int_equal(nvme()->probe(&options, &info), -ENODEV);
	options.path = "/proc/version/store";
	assert_int_equal(nvme()->probe(&options, &info), -ENOTDIR);
	memset(longer, 'a', sizeof(longer));
	longer[0] = '/';
	longer[sizeof(longer) - 1] = 0;
	options.path = longer;
	assert_int_equal(nvme()->probe(&options, &info), -ENAMETOOLONG);
	options.path = f->folder;
	assert_int_equal(nvme()->probe(&options, &info), -ENODEV);
}

/* What is logged while the store is opened again. */
static void open_heard(struct fixture *f, char *text, size_t bytes)
{
	int says = memfd_create("says", MFD_CLOEXEC), saved = dup(STDERR_FILENO);
	ssize_t n;
	int rc;

	assert_true(says >= 0 && saved >= 0);
	dup2(says, STDERR_FILENO);
	rc = try_open(f, MIB, &f->d);
	dup2(saved, STDERR_FILENO);
	close(saved);
	n = pread(says, text, bytes - 1, 0);
	close(says);
	assert_int_equal(rc, 0);
	assert_true(n >= 0);
	text[n] = '\0';
	nvme()->close(f->d);
	f->d = NULL;
}

/* Somebody made the file before us, or meant well: what users computed is nobody else's. */
static void test_others_may_read_the_store(void **state)
{
	struct fixture *f = *state;
	char text[2048];

	start(f, MIB, 4);
	nvme()->close(f->d);
	f->d = NULL;
	open_heard(f, text, sizeof(text));
	assert_null(strstr(text, "others may read"));
	for (mode_t bit = 1; bit <= 040; bit <<= 1) {
		assert_int_equal(chmod(f->path, 0600 | bit), 0);
		open_heard(f, text, sizeof(text));
		assert_non_null(strstr(text, "others may read this file"));
		assert_non_null(strstr(text, f->path));
		assert_non_null(strstr(text, "chmod 600"));
	}
}

static void test_one_daemon_a_store(void **state)
{
	struct fixture *f = *state;
	struct drive *second = NULL;
	uint8_t *buf;
	static struct core_io io;
	int status;
	pid_t pid;

	start(f, MIB, 4);
	buf = pages(1);
	fill_io(&io, buf, 1, 0);
	assert_int_equal(nvme()->submit(f->d, &f->ring, &io), 0); /* the ring knows the file now */
	assert_int_equal(finish_one(f)->res, PAGE);
	assert_int_equal(try_open(f, MIB, &second), -EBUSY);
	pid = fork();
	if (pid == 0)
		_exit(try_open(f, MIB, &second) == -EBUSY ? 0 : 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(access(f->path, F_OK), 0);
	/* Free again, although the ring still holds a reference. */
	nvme()->close(f->d);
	f->d = NULL;
	assert_int_equal(try_open(f, MIB, &f->d), 0);
	free(buf);
}

static void test_wrong_kinds(void **state)
{
	struct fixture *f = *state;
	char folder[256];

	if (!f->direct)
		skip();
	assert_int_equal(try_open(f, 0, &f->d), -ENOENT); /* nothing to open, no size to make */
	assert_int_equal(mkfifo(f->path, 0600), 0);
	assert_int_equal(try_open(f, MIB, &f->d), -EINVAL);
	assert_int_equal(access(f->path, F_OK), 0); /* not ours to remove */
	unlink(f->path);
	strcpy(folder, f->path);
	strcpy(f->path, f->folder);
	assert_true(try_open(f, MIB, &f->d) < 0);
	strcpy(f->path, folder);
	assert_null(f->d);
}

/* ---- no room -------------------------------------------------------------------------------- */

static void test_file_size_limit(void **state)
{
	struct fixture *f = *state;
	struct rlimit old, small;
	struct stat st;
	int rc;

	if (!f->direct)
		skip();
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	small = old;
	small.rlim_cur = 2 * MIB;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	rc = try_open(f, 4 * MIB, &f->d);
	assert_int_equal(rc, -EFBIG);
	assert_int_equal(access(f->path, F_OK), -1); /* we made it, we removed it */
	assert_int_equal(try_open(f, MIB, &f->d), 0);
	nvme()->close(f->d);
	f->d = NULL;
	assert_int_equal(try_open(f, 4 * MIB, &f->d), -EFBIG);
	assert_int_equal(stat(f->path, &st), 0); /* what was there is as it was */
	assert_int_equal(st.st_size, MIB);
	/* The size is there, the blocks are not: the limit strikes while they are written. */
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	assert_int_equal(truncate(f->path, 4 * MIB), 0);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	assert_int_equal(try_open(f, 4 * MIB, &f->d), -EFBIG);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	assert_int_equal(stat(f->path, &st), 0);
	assert_int_equal(st.st_size, 4 * MIB);
}

static bool tell(const char *file, const char *before, int id)
{
	char path[64], text[64];
	int fd, n = id < 0 ? snprintf(text, sizeof(text), "%s", before) :
			   snprintf(text, sizeof(text), "%s %d 1", before, id);
	bool ok;

	snprintf(path, sizeof(path), "/proc/self/%s", file);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	ok = fd >= 0 && write(fd, text, (size_t)n) == n;
	close(fd);
	return ok;
}

/* A mount namespace of our own; for others than root, with a user namespace around it. */
static bool own_mounts(void)
{
	int uid = (int)geteuid(), gid = (int)getegid();

	if (unshare(uid ? CLONE_NEWUSER | CLONE_NEWNS : CLONE_NEWNS))
		return false;
	if (uid && !(tell("setgroups", "deny", -1) && tell("uid_map", "0", uid) &&
		     tell("gid_map", "0", gid)))
		return false;
	return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

/* In a mount namespace of its own: a file system of 1 MiB. 77 = this host does not let us. */
static int full_file_system(struct fixture *f)
{
	struct drive_options options = { .path = f->path, .bytes = 4 * MIB, .buffered = true };
	struct drive *d = NULL;

	if (!own_mounts() || mount("tier-test", f->folder, "tmpfs", 0, "size=1m"))
		return 77;
	if (nvme()->open(&d, &options) != -ENOSPC || access(f->path, F_OK) == 0)
		return 1;
	options.bytes = MIB / 2;
	if (nvme()->open(&d, &options))
		return 2;
	nvme()->close(d);
	options.bytes = 4 * MIB;
	if (nvme()->open(&d, &options) != -ENOSPC || truncate(f->path, MIB / 2))
		return 3;
	options.bytes = 0;
	return nvme()->open(&d, &options) == 0 && nvme()->bytes(d) == MIB / 2 ? 0 : 4;
}

static void in_child(struct fixture *f, int (*work)(struct fixture *f))
{
	pid_t pid = fork();
	int status;

	if (pid == 0)
		_exit(work(f));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_file_system_full(void **state)
{
	in_child(*state, full_file_system);
}

/* On file systems of these sizes; 77 = this host does not let us. */
static int auto_sizes(struct fixture *f)
{
	static const struct {
		const char *size;
		uint64_t bytes; /* of a store of its own size */
	} want[] = {
		{ "size=1040m", 256 * MIB }, /* a quarter, in whole 4 MiB */
		{ "size=32g", 8192 * MIB - 4 * MIB },
		{ "size=200g", 16384 * MIB }, /* filling it takes start-up time */
		{ "size=2m", 0 },
	};
	struct drive_options options = { .path = f->path };
	struct backend_info info;

	if (!own_mounts())
		return 77;
	for (int i = 0; i < (int)(sizeof(want) / sizeof(want[0])); i++) {
		if (mount("tier-test", f->folder, "tmpfs", 0, want[i].size))
			return 77;
		if (nvme()->probe(&options, &info) || info.capacity_auto != want[i].bytes)
			return 1 + i;
		umount(f->folder);
	}
	return 0;
}

static void test_auto_size_is_bounded(void **state)
{
	in_child(*state, auto_sizes);
}

/* A file in memory is refused, unless the operator says that it will do. */
static void test_needs_direct_io(void **state)
{
	struct drive_options options = { 0 };
	struct backend_info info;
	struct drive *d = NULL;
	struct statfs fs;
	char path[64];
	uint8_t *buf = pages(1);

	(void)state;
	/* A file system that says so at open. */
	options.path = "/proc/self/oom_score_adj";
	options.bytes = 0;
	assert_int_equal(nvme()->open(&d, &options), -EOPNOTSUPP);
	options.buffered = true;
	assert_int_equal(nvme()->open(&d, &options), 0);
	nvme()->close(d);
	/* One that takes it and has no device below. */
	options = (struct drive_options){ .bytes = MIB };
	snprintf(path, sizeof(path), "/dev/shm/tier-test.%d", (int)getpid());
	options.path = path;
	if (statfs("/dev/shm", &fs) || fs.f_type != TMPFS_MAGIC) {
		free(buf);
		skip();
	}
	assert_int_equal(nvme()->probe(&options, &info), 0);
	assert_true(info.emulated);
	assert_int_equal(nvme()->open(&d, &options), -EOPNOTSUPP);
	assert_int_equal(access(path, F_OK), -1);
	options.buffered = true;
	assert_int_equal(nvme()->open(&d, &options), 0);
	assert_int_equal(nvme()->bytes(d), MIB);
	assert_int_equal(nvme()->pwrite(d, buf, PAGE, 0), 0);
	assert_int_equal(nvme()->pread(d, buf, PAGE, PAGE), 0);
	nvme()->close(d);
	unlink(path);
	free(buf);
}

/* ---- a block device ------------------------------------------------------------------------- */

static int loop_attach(const char *file, char *path, size_t path_bytes)
{
	int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
	int backing = open(file, O_RDWR | O_CLOEXEC);
	struct loop_config config = { .fd = (uint32_t)backing, .block_size = PAGE };
	int n = ioctl(control, LOOP_CTL_GET_FREE), loop;

	config.info.lo_flags = LO_FLAGS_AUTOCLEAR;
	snprintf(path, path_bytes, "/dev/loop%d", n);
	loop = n < 0 ? -1 : open(path, O_RDWR | O_CLOEXEC);
	if (loop >= 0 && ioctl(loop, LOOP_CONFIGURE, &config)) {
		close(loop);
		loop = -1;
	}
	close(control);
	close(backing);
	return loop;
}

static void test_block_device(void **state)
{
	struct fixture *f = *state;
	struct drive_options options = { 0 };
	struct drive *d = NULL, *second = NULL;
	struct backend_info info;
	uint8_t *buf;
	char path[32];
	int loop;

	start(f, 8 * MIB, 4);
	buf = pages(2);
	loop = loop_attach(f->path, path, sizeof(path));
	if (loop < 0) {
		free(buf);
		skip();
	}
	options.path = path;
	assert_int_equal(nvme()->probe(&options, &info), 0);
	assert_string_equal(info.name, "device");
	assert_false(info.emulated);
	assert_int_equal(info.capacity_auto, 8 * MIB);
	options.bytes = 9 * MIB;
	assert_int_equal(nvme()->open(&d, &options), -ENOSPC);
	options.bytes = 0;
	assert_int_equal(nvme()->open(&d, &options), 0);
	assert_int_equal(nvme()->bytes(d), 8 * MIB);
	assert_int_equal(nvme()->open(&second, &options), -EBUSY);
	memset(buf, 0x77, PAGE);
	assert_int_equal(nvme()->pwrite(d, buf, PAGE, 5 * MIB), 0);
	assert_int_equal(nvme()->flush(d), 0);
	assert_int_equal(nvme()->pread(d, buf + PAGE, PAGE, 5 * MIB), 0);
	assert_memory_equal(buf, buf + PAGE, PAGE);
	/* Whether its queue takes discards or not: it says so, and does. */
	if (nvme()->discards(d) == DRIVE_DISCARD_DEVICE)
		assert_int_equal(nvme()->discard(d, 6 * MIB, MIB), 0);
	else
		assert_int_equal(nvme()->discards(d), DRIVE_DISCARD_NONE);
	assert_int_equal(nvme()->pread(d, buf + PAGE, PAGE, 5 * MIB), 0);
	assert_memory_equal(buf, buf + PAGE, PAGE);
	nvme()->close(d);
	close(loop);
	free(buf);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_preallocates_once),
		CASE(test_holes_in_many_pieces),
		CASE(test_a_file_gives_its_room_back),
		CASE(test_probe),
		CASE(test_others_may_read_the_store),
		CASE(test_one_daemon_a_store),
		CASE(test_wrong_kinds),
		CASE(test_file_size_limit),
		CASE(test_file_system_full),
		CASE(test_auto_size_is_bounded),
		CASE(test_needs_direct_io),
		CASE(test_block_device),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
