/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stock NODE [DAX]: what the kernel offers without a module: the rows of the table in
 *     docs/kernel-mod.md, measured anew on memory of a NUMA node and, with the name of a DAX
 *     device, on that. Prints a line a row; one that does not hold any more ends it with status 1:
 *     then the table is wrong, and perhaps a function of the module is not needed.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/mempolicy.h>
#include <linux/udmabuf.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BYTES ((size_t)64 << 20)
#define HUGE ((size_t)2 << 20)

static sigjmp_buf back;

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void row(bool holds, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void row(bool holds, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	printf("%s", holds ? "holds: " : "HOLDS NO MORE: ");
	vprintf(format, args);
	printf("\n");
	va_end(args);
	if (!holds)
		exit(1);
}

static void caught(int signal)
{
	siglongjmp(back, signal);
}

/* 0, or the signal that the load got. */
static int load(const volatile uint8_t *at)
{
	int signal = sigsetjmp(back, 1);

	if (!signal)
		(void)*at;
	return signal;
}

static int memory(int seals, uint8_t **at)
{
	int fd = memfd_create("stock", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || ftruncate(fd, BYTES) || (seals && fcntl(fd, F_ADD_SEALS, seals)))
		row(false, "memfd_create: %s", strerror(errno));
	*at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	return fd;
}

static uint8_t *reads(int fd)
{
	char path[40];
	uint8_t *at;
	int read_only;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	read_only = open(path, O_RDONLY | O_CLOEXEC);
	at = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, read_only, 0);
	close(read_only);
	return at;
}

static uint64_t taken(int fd)
{
	struct stat st;

	fstat(fd, &st);
	return (uint64_t)st.st_blocks * 512;
}

static void sharing(unsigned long node)
{
	unsigned long mask = 1ul << node;
	uint8_t *own, *reader;
	int fd = memory(F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, &own), there = -1;
	long bound = syscall(SYS_mbind, own, BYTES, MPOL_BIND, &mask, 64, 0);

	own[0] = 1;
	syscall(SYS_get_mempolicy, &there, NULL, 0, own, MPOL_F_NODE | MPOL_F_ADDR);
	reader = reads(fd);
	row(bound == 0 && there == (int)node && !load(reader) && mprotect(reader, 4096, PROT_WRITE),
	    "a sealed memfd and mbind share memory of node %lu, for reading alone", node);
	load(reader + HUGE);
	row(taken(fd) == 2 * 4096, "open: a reader's touch of a hole takes a page (%lu bytes)",
	    (unsigned long)(taken(fd) - 4096));
	munmap(reader, BYTES);
	munmap(own, BYTES);
	close(fd);
}

/* All readers or none; and of a sealed one not even that while a client is stopped. */
static void revocation(void)
{
	uint8_t *own, *one, *other;
	int fd = memory(0, &own), pair[2], how;
	double begun;
	pid_t pid;
	char c;

	memset(own, 1, BYTES);
	one = reads(fd);
	other = reads(fd);
	for (size_t i = 0; i < BYTES; i += 4096)
		load(one + i);
	begun = now_ms();
	if (ftruncate(fd, 0))
		row(false, "ftruncate: %s", strerror(errno));
	begun = now_ms() - begun;
	row(load(one) == SIGBUS && load(other) == SIGBUS,
	    "open: ftruncate revokes 64 MiB in %.1f ms, of all readers or none", begun);
	munmap(own, BYTES);
	munmap(one, BYTES);
	munmap(other, BYTES);
	close(fd);
	fd = memory(F_SEAL_SHRINK | F_SEAL_GROW, &own);
	memset(own, 1, BYTES);
	if (pipe(pair))
		row(false, "pipe: %s", strerror(errno));
	pid = fork();
	if (pid == 0) {
		munmap(own, BYTES);
		load(reads(fd));
		close(fd);
		if (write(pair[1], "x", 1) == 1)
			raise(SIGSTOP);
		_exit(0);
	}
	if (read(pair[0], &c, 1) != 1)
		row(false, "a client does not begin");
	waitpid(pid, &how, WUNTRACED);
	row(ftruncate(fd, 0) && errno == EPERM && taken(fd) == BYTES,
	    "open: what clients trust to stay (sealed) stays with a stopped one until it dies");
	kill(pid, SIGKILL);
	waitpid(pid, &how, 0);
	munmap(own, BYTES);
	close(fd);
}

static int pin(void *at)
{
	struct io_uring_params params = { 0 };
	struct iovec iov = { .iov_base = at, .iov_len = 4096 };
	int ring = (int)syscall(SYS_io_uring_setup, 1, &params);

	if (ring >= 0 && syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, &iov, 1))
		row(false, "a buffer of a memfd cannot be registered: %s", strerror(errno));
	return ring;
}

static void writing(void)
{
	uint8_t *own;
	int fd = memory(0, &own), ring;
	double begun;
	bool mapped;

	memset(own, 1, BYTES);
	mapped = fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) && errno == EBUSY;
	ring = pin(own);
	begun = now_ms();
	munmap(own, BYTES);
	row(mapped && fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) && errno == EBUSY,
	    "open: F_SEAL_WRITE is EBUSY while a writable mapping or a pin lives");
	close(ring);
	for (int i = 0; fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) && i < 1000; i++)
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	row(fcntl(fd, F_GET_SEALS) & F_SEAL_WRITE,
	    "open: the writer must unmap 64 MiB first (%.1f ms until it is sealed)",
	    now_ms() - begun);
	close(fd);
}

static void dmabuf(void)
{
	uint8_t *own, *theirs;
	int fd = memory(F_SEAL_SHRINK, &own), device = open("/dev/udmabuf", O_RDWR | O_CLOEXEC);
	struct udmabuf_create args = { .memfd = (uint32_t)fd, .size = HUGE };
	int buf;

	if (device < 0) {
		printf("not here: /dev/udmabuf\n");
		return;
	}
	own[0] = 7;
	buf = ioctl(device, UDMABUF_CREATE, &args);
	theirs = mmap(NULL, HUGE, PROT_READ | PROT_WRITE, MAP_SHARED, buf, 0);
	row(buf >= 0 && theirs != MAP_FAILED && theirs[0] == 7, "udmabuf takes a service's memfd");
	theirs[0] = 8;
	row(own[0] == 8, "open: whoever has the dma-buf writes");
	fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, HUGE);
	row(own[0] == 0 && theirs[0] == 8, "open: it keeps old pages after a punch");
	close(buf);
	close(device);
	close(fd);
}

/* ---- a DAX device that is not onlined -------------------------------------------------------- */

static int write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);
	int err = fd < 0 || write(fd, text, strlen(text)) < 0 ? -errno : 0;

	if (fd >= 0)
		close(fd);
	return err;
}

static void dax(const char *name)
{
	char path[80];
	uint8_t *at;
	double begun;
	int fd, err;

	snprintf(path, sizeof(path), "/dev/%s", name);
	fd = open(path, O_RDWR | O_CLOEXEC);
	at = mmap(NULL, HUGE, PROT_READ, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED || load(at))
		row(false, "%s cannot be mapped: %s", path, strerror(errno));
	snprintf(path, sizeof(path), "/sys/bus/dax/devices/%s/size", name);
	err = write_text(path, "67108864");
	row(err == -EBUSY, "open: a DAX device that is in use does not change its size (%s)",
	    strerror(-err));
	begun = now_ms();
	err = write_text("/sys/bus/dax/drivers/device_dax/unbind", name);
	row(err == 0 && load(at) == SIGBUS, "unbind revokes a DAX device in %.0f ms, whole",
	    now_ms() - begun);
	munmap(at, HUGE);
	close(fd);
}

int main(int argc, char **argv)
{
	setlinebuf(stdout);
	signal(SIGBUS, caught);
	signal(SIGSEGV, caught);
	sharing(argc > 1 ? strtoul(argv[1], NULL, 10) : 0);
	revocation();
	writing();
	dmabuf();
	if (argc > 2)
		dax(argv[2]);
	return 0;
}
