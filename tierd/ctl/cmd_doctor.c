/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierctl doctor: what of this host the service needs or is better with, looked at without a
 * daemon. Each check is a function that says what it saw, and what to change where that is worth
 * it. It changes nothing, and leaves no file behind.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/magic.h>
#include <linux/membarrier.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "libtier/base/cleanup.h"
#include "libtier/base/units.h"
#include "tierd/ctl/ctl.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1; older headers lack it */
#endif
#define HUGE (2u << 20)
#define LINE 512

/* Also the words of the JSON document. */
enum verdict { FINE, BETTER, WRONG };
static const char *const verdict_name[] = { "ok", "advice", "problem" };

struct finding {
	enum verdict verdict;
	char seen[CTL_CELL];
	char advice[CTL_CELL]; /* a cell of the table, too */
};

struct host {
	const char *store; /* where the store is, or would be */
};

struct check {
	const char *name;
	void (*look)(const struct host *host, struct finding *f);
};

static void saw(struct finding *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void saw(struct finding *f, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(f->seen, sizeof(f->seen), format, args);
	va_end(args);
}

static void advise(struct finding *f, enum verdict verdict, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
static void advise(struct finding *f, enum verdict verdict, const char *format, ...)
{
	va_list args;

	f->verdict = verdict;
	va_start(args, format);
	vsnprintf(f->advice, sizeof(f->advice), format, args);
	va_end(args);
}

/* The first line of a file of the kernel, without its end; false: it is not there. */
static bool read_line(char line[LINE], const char *path)
{
	FILE *file CLEANUP_FCLOSE = fopen(path, "re");

	if (!file || !fgets(line, LINE, file))
		return false;
	line[strcspn(line, "\n")] = '\0';
	return true;
}

/* Of "always [never] madvise" the word that holds. */
static void keep_chosen(char *line)
{
	char *open = strchr(line, '['), *end = open ? strchr(open, ']') : NULL;

	if (!end)
		return;
	*end = '\0';
	memmove(line, open + 1, strlen(open + 1) + 1);
}

static void look_kernel(const struct host *host, struct finding *f)
{
	struct utsname name;
	int major = 0, minor = 0;

	(void)host;
	uname(&name);
	saw(f, "Linux %.64s", name.release);
	if (sscanf(name.release, "%d.%d", &major, &minor) != 2 || major < 6 ||
	    (major == 6 && minor < 1))
		advise(f, WRONG, "use Linux 6.1 or newer: tier is not tested below it");
}

static void look_membarrier(const struct host *host, struct finding *f)
{
	long have = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);

	(void)host;
	if (have >= 0 && (have & MEMBARRIER_CMD_GLOBAL_EXPEDITED)) {
		saw(f, "there");
		return;
	}
	saw(f, "not there");
	advise(f, WRONG, "leases need it: CONFIG_MEMBARRIER; in a container let seccomp pass "
			 "membarrier");
}

static void look_uring(const struct host *host, struct finding *f)
{
	struct io_uring_params params = { 0 };
	long fd = syscall(SYS_io_uring_setup, 8, &params);
	char line[LINE] = "";

	(void)host;
	if (fd >= 0) {
		close((int)fd);
		saw(f, "there");
		return;
	}
	saw(f, "refused: %s", strerror(errno));
	if (read_line(line, "/proc/sys/kernel/io_uring_disabled") && strcmp(line, "0") != 0)
		advise(f, WRONG, "the store needs it: sysctl kernel.io_uring_disabled=0 (is %s)",
		       line);
	else
		advise(f, WRONG, "the store needs it: in a container let seccomp pass io_uring_*");
}

/* Whether shared memory can be made huge: tried on two pages' worth of it. */
static bool collapses(void)
{
	int fd = memfd_create("tierctl-doctor", MFD_CLOEXEC);
	char *at = MAP_FAILED, *page;
	bool huge = false;

	if (fd >= 0 && ftruncate(fd, 2 * HUGE) == 0)
		at = mmap(NULL, 2 * HUGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at != MAP_FAILED) {
		page = (char *)(((uintptr_t)at + HUGE - 1) & ~(uintptr_t)(HUGE - 1));
		*page = 1;
		/* The file's offset must be as aligned as the address is. */
		page = mmap(page, HUGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
		if (page != MAP_FAILED) {
			*page = 1;
			huge = madvise(page, HUGE, MADV_COLLAPSE) == 0;
		}
		munmap(at, 2 * HUGE);
	}
	if (fd >= 0)
		close(fd);
	return huge;
}

static void look_huge(const struct host *host, struct finding *f)
{
	char line[LINE];

	(void)host;
	if (!read_line(line, "/sys/kernel/mm/transparent_hugepage/shmem_enabled"))
		snprintf(line, sizeof(line), "absent");
	keep_chosen(line);
	if (collapses()) {
		saw(f, "made on demand (shmem_enabled is %s)", line);
		return;
	}
	saw(f, "none for shared memory (shmem_enabled is %s)", line);
	advise(f, BETTER,
	       "CONFIG_TRANSPARENT_HUGEPAGE, free memory: of 10 million lines one took 224 ns in "
	       "small pages, 145 in huge");
}

static void look_files(const struct host *host, struct finding *f)
{
	struct rlimit limit;

	(void)host;
	getrlimit(RLIMIT_NOFILE, &limit);
	saw(f, "%llu", (unsigned long long)limit.rlim_max);
	if (limit.rlim_max < 16384)
		advise(f, BETTER,
		       "1,000 clients and their contexts take 16,384: LimitNOFILE= of the unit, or "
		       "ulimit -Hn");
}

static void look_locked(const struct host *host, struct finding *f)
{
	struct rlimit limit;
	char text[UNITS_TEXT_BYTES];

	(void)host;
	getrlimit(RLIMIT_MEMLOCK, &limit);
	if (limit.rlim_max == RLIM_INFINITY || geteuid() == 0) {
		saw(f, "as much as it wants");
		return;
	}
	saw(f, "%s", units_print_bytes(text, limit.rlim_max));
	if (limit.rlim_max < 8u << 20)
		advise(f, BETTER, "rings of io_uring are locked: LimitMEMLOCK= of the unit, 8 MiB "
				  "or more");
}

/* What of "Name:  123 kB" in /proc/meminfo, in bytes. */
static uint64_t meminfo(const char *name)
{
	FILE *file CLEANUP_FCLOSE = fopen("/proc/meminfo", "re");
	unsigned long long kib = 0;
	char line[LINE];
	size_t length = strlen(name);

	while (file && fgets(line, sizeof(line), file))
		if (strncmp(line, name, length) == 0 && line[length] == ':')
			sscanf(line + length + 1, "%llu", &kib);
	return kib << 10;
}

static void look_memory(const struct host *host, struct finding *f)
{
	char line[LINE], text[UNITS_TEXT_BYTES];
	uint64_t available = meminfo("MemAvailable");

	(void)host;
	saw(f, "%s available", units_print_bytes(text, available));
	if (read_line(line, "/proc/sys/vm/overcommit_memory") && strcmp(line, "2") == 0)
		advise(f, WRONG, "sysctl vm.overcommit_memory=0: indexes are mapped whole and "
				 "backed as they grow, which 2 refuses");
	else if (available < 1u << 30)
		advise(f, BETTER, "free some, or say cxl.size and hbm.size: their defaults are "
				  "shares of this");
}

/* Numbers of the NUMA nodes that a file of sysfs lists: "0-1,3". */
static uint64_t node_mask(const char *path)
{
	uint64_t mask = 0;
	unsigned from, to;
	char line[LINE];

	if (!read_line(line, path))
		return 0;
	for (char *at = line; *at; at += strspn(at, ",")) {
		int fields = sscanf(at, "%u-%u", &from, &to);

		if (fields < 1)
			break;
		for (unsigned i = from; i <= (fields == 2 ? to : from) && i < 64; i++)
			mask |= 1ull << i;
		at += strcspn(at, ",");
	}
	return mask;
}

static void look_cxl(const struct host *host, struct finding *f)
{
	uint64_t far = node_mask("/sys/devices/system/node/has_memory") &
		       ~node_mask("/sys/devices/system/node/has_cpu");

	(void)host;
	if (far)
		saw(f, "NUMA node %d has memory and no processor", __builtin_ctzll(far));
	else if (access("/dev/tier_mem", F_OK) == 0)
		saw(f, "the kernel module has memory");
	else if (access("/sys/bus/dax/devices/dax0.0", F_OK) == 0) {
		saw(f, "a dax device that is no memory of the system");
		advise(f, BETTER, "daxctl reconfigure-device --mode=system-ram dax0.0, or load "
				  "tier_mem: docs/kernel-mod.md");
	} else {
		saw(f, "none: ordinary memory stands in");
	}
}

static void look_gpu(const struct host *host, struct finding *f)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	(void)host;
	if (driver)
		dlclose(driver);
	if (driver && access("/dev/nvidiactl", R_OK | W_OK) == 0)
		saw(f, "a GPU's driver");
	else if (access("/dev/nvidiactl", F_OK) == 0) {
		saw(f, "a GPU that this user's programs cannot open");
		advise(f, BETTER, "libcuda.so.1 and access to /dev/nvidia* for the daemon's user");
	} else {
		saw(f, "none: host memory stands in for HBM");
	}
}

/* The nearest folder of the store's path that is there. */
static void nearest(char folder[LINE], const char *path)
{
	struct stat st;

	snprintf(folder, LINE, "%s", path);
	while (stat(folder, &st) && strrchr(folder, '/') > folder)
		*strrchr(folder, '/') = '\0';
	if (stat(folder, &st))
		snprintf(folder, LINE, "/");
}

/* Does the file system take reads past the page cache? Tried on a file without a name. */
static bool takes_direct(const char *folder)
{
	struct stat st;
	int fd = -1;

	if (stat(folder, &st) == 0 && !S_ISDIR(st.st_mode))
		fd = open(folder, O_RDONLY | O_DIRECT | O_CLOEXEC);
	else
		fd = open(folder, O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
	if (fd < 0)
		return errno != EINVAL;
	close(fd);
	return true;
}

static void look_place(const struct host *host, struct finding *f)
{
	char folder[LINE], text[UNITS_TEXT_BYTES];
	struct statfs fs = { 0 };

	nearest(folder, host->store);
	statfs(folder, &fs);
	saw(f, "%.90s, %s free", folder,
	    units_print_bytes(text, (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize));
	if (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC)
		advise(f, WRONG, "that is memory: name a store on a drive (store.path)");
	else if (fs.f_type == NFS_SUPER_MAGIC || fs.f_type == FUSE_SUPER_MAGIC)
		advise(f, WRONG, "a network's file system does not say when bytes are safe: name a "
				 "store on a local drive");
	else if (!takes_direct(folder))
		advise(f, WRONG, "it refuses O_DIRECT: use ext4, xfs or a whole block device");
	else if (fs.f_type == BTRFS_SUPER_MAGIC || fs.f_type == OVERLAYFS_SUPER_MAGIC)
		advise(f, BETTER, "it copies what is written over: use ext4, xfs or a whole block "
				  "device");
}

static bool queue_line(char line[LINE], dev_t device, const char *name)
{
	char path[LINE];

	for (int up = 0; up < 2; up++) { /* a partition's queue is its drive's */
		snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/%squeue/%s", major(device),
			 minor(device), up ? "../" : "", name);
		if (read_line(line, path))
			return true;
	}
	return false;
}

static void look_drive(const struct host *host, struct finding *f)
{
	char folder[LINE], scheduler[LINE] = "-", cache[LINE] = "-", spins[LINE] = "0";
	struct stat st;
	dev_t device;

	nearest(folder, host->store);
	if (stat(folder, &st))
		return;
	device = S_ISBLK(st.st_mode) ? st.st_rdev : st.st_dev;
	if (!queue_line(scheduler, device, "scheduler")) {
		saw(f, "its queue cannot be seen from here");
		return;
	}
	keep_chosen(scheduler);
	queue_line(cache, device, "write_cache");
	queue_line(spins, device, "rotational");
	saw(f, "scheduler %.32s, cache %.32s", scheduler, cache);
	if (strcmp(spins, "1") == 0)
		advise(f, BETTER, "the kernel takes it for a disk that turns; for contexts that "
				  "wait for reads use NVMe");
	else if (strcmp(scheduler, "none") != 0 && queue_line(cache, device, "nr_hw_queues") &&
		 atoi(cache) > 1)
		advise(f, BETTER, "echo none > .../queue/scheduler: tierd orders its reads itself");
}

static const struct check checks[] = {
	{ "kernel", look_kernel },
	{ "membarrier", look_membarrier },
	{ "io_uring", look_uring },
	{ "huge pages", look_huge },
	{ "open files", look_files },
	{ "locked memory", look_locked },
	{ "memory", look_memory },
	{ "CXL memory", look_cxl },
	{ "GPU", look_gpu },
	{ "store", look_place },
	{ "drive", look_drive },
};
#define CHECKS (sizeof(checks) / sizeof(checks[0]))

static const char *default_store(char path[LINE])
{
	const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");

	if (geteuid() == 0)
		return "/var/lib/tier";
	if (data && *data == '/')
		snprintf(path, LINE, "%s/tier", data);
	else
		snprintf(path, LINE, "%s/.local/share/tier", home ? home : "");
	return path;
}

static int show_json(const struct finding *found)
{
	json_t *list = json_array(), *document;
	int rc;

	for (size_t i = 0; i < CHECKS; i++)
		json_array_append_new(list, json_pack("{ss ss ss ss}", "check", checks[i].name,
						      "verdict", verdict_name[found[i].verdict],
						      "seen", found[i].seen, "advice",
						      found[i].advice));
	document = json_pack("{so}", "checks", list);
	rc = ctl_print_json(document);
	json_decref(document);
	return rc;
}

static int show(const struct ctl *ctl, const struct finding *found)
{
	static const char *const heads[] = { "check", "", "=seen, and what to do" };
	struct grid *g = grid_new(heads, 3);

	for (size_t i = 0; i < CHECKS; i++) {
		grid_add(g, checks[i].name);
		grid_add(g, verdict_name[found[i].verdict]);
		grid_add(g, found[i].seen);
		if (!*found[i].advice)
			continue;
		grid_add(g, "");
		grid_add(g, "");
		grid_add(g, found[i].advice);
	}
	return grid_print(g, stdout, ctl->terminal ? ctl->terminal : 80) ? CTL_FAILED : CTL_OK;
}

int ctl_doctor(struct ctl *ctl, int argc, char **argv)
{
	struct finding found[CHECKS] = { 0 };
	char path[LINE];
	struct host host = { argc ? argv[0] : default_store(path) };
	int rc;

	for (size_t i = 0; i < CHECKS; i++)
		checks[i].look(&host, &found[i]);
	rc = ctl->json ? show_json(found) : show(ctl, found);
	for (size_t i = 0; i < CHECKS; i++)
		if (found[i].verdict == WRONG && rc == CTL_OK)
			rc = CTL_FAILED;
	return rc;
}
