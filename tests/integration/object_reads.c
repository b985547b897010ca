/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that knows nothing of tier: reads one file by each of the ways that the kernel has, and
 * prints what it found. tests/integration/objects.sh runs it on an object and on a plain file; what
 * it prints must be the same.
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned char *room;
static size_t size;

static void die(const char *what)
{
	printf("%s: %s\n", what, strerror(errno));
	exit(1);
}

/* FNV-1a: nothing of the project's own. */
static void tell(const char *how, const unsigned char *bytes, size_t count)
{
	uint64_t hash = 14695981039346656037ull;

	for (size_t i = 0; i < count; i++)
		hash = (hash ^ bytes[i]) * 1099511628211ull;
	printf("%-12s %zu bytes %016llx\n", how, count, (unsigned long long)hash);
}

static void by_stdio(const char *path)
{
	FILE *f = fopen(path, "rb");
	size_t n = 0;
	int c;

	if (!f)
		die("fopen");
	while (n < size && (c = getc(f)) != EOF)
		room[n++] = (unsigned char)c;
	tell("getc", room, n);
	if (fseek(f, (long)(size / 2), SEEK_SET))
		die("fseek");
	n = fread(room, 1, size, f);
	tell("fseek fread", room, n);
	printf("ftell        %ld\n", ftell(f));
	fclose(f);
}

static void by_map(const char *how, int fd, int protection, int flags)
{
	unsigned char *at = mmap(NULL, size, protection, flags, fd, 0);

	if (at == MAP_FAILED)
		die(how);
	if (flags & MAP_PRIVATE && protection & PROT_WRITE)
		at[0] ^= 0xff; /* our own copy */
	tell(how, at, size);
	munmap(at, size);
}

static void by_ring(int fd)
{
	enum { DEPTH = 8, PIECE = 65536 };
	struct io_uring ring;
	struct io_uring_cqe *cqe;
	size_t at = 0, got = 0;

	if (io_uring_queue_init(DEPTH, &ring, 0))
		die("io_uring");
	while (got < size) {
		unsigned flying = 0;

		for (; flying < DEPTH && at < size; flying++, at += PIECE) {
			struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
			unsigned n = size - at < PIECE ? (unsigned)(size - at) : PIECE;

			io_uring_prep_read(sqe, fd, room + at, n, at);
		}
		io_uring_submit(&ring);
		for (; flying; flying--) {
			if (io_uring_wait_cqe(&ring, &cqe) || cqe->res <= 0)
				die("io_uring read");
			got += (size_t)cqe->res;
			io_uring_cqe_seen(&ring, cqe);
		}
	}
	io_uring_queue_exit(&ring);
	tell("io_uring", room, got);
}

static void by_sendfile(int fd)
{
	int out = memfd_create("out", 0);
	off_t at = 0;

	while ((size_t)at < size && sendfile(out, fd, &at, size) > 0)
		;
	tell("sendfile", room, (size_t)pread(out, room, size, 0));
	close(out);
}

/* A child of fork reads on where its parent is, and one of exec by the number alone. */
static void by_children(int fd)
{
	char command[64];

	lseek(fd, 1, SEEK_SET);
	fflush(stdout);
	if (fork() == 0) {
		tell("fork", room, (size_t)read(fd, room, size));
		fflush(stdout);
		_exit(0);
	}
	wait(NULL);
	printf("offset       %lld\n", (long long)lseek(fd, 0, SEEK_CUR));
	fflush(stdout);
	snprintf(command, sizeof(command), "cksum <&%d", fd);
	lseek(fd, 0, SEEK_SET);
	if (system(command))
		die("system");
}

int main(int argc, char **argv)
{
	struct stat by_name, by_fd;
	int fd, copy;

	if (argc != 2)
		return 2;
	fd = open(argv[1], O_RDONLY);
	if (fd < 0)
		die("open");
	if (stat(argv[1], &by_name) || fstat(fd, &by_fd))
		die("stat");
	size = (size_t)by_fd.st_size;
	room = malloc(size + 1);
	printf("stat         %lld, one inode %d, a file %d, links %d\n",
	       (long long)by_name.st_size,
	       by_name.st_ino == by_fd.st_ino && by_name.st_dev == by_fd.st_dev,
	       S_ISREG(by_name.st_mode), (int)by_fd.st_nlink);
	tell("read", room, (size_t)read(fd, room, size + 1));
	tell("pread", room, (size_t)pread(fd, room, size, 3));
	by_stdio(argv[1]);
	by_map("MAP_SHARED", fd, PROT_READ, MAP_SHARED);
	by_map("MAP_POPULATE", fd, PROT_READ, MAP_SHARED | MAP_POPULATE);
	by_map("MAP_PRIVATE", fd, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	by_ring(fd);
	by_sendfile(fd);
	by_children(fd);
	copy = dup(fd);
	lseek(copy, (off_t)size - 1, SEEK_SET);
	tell("dup", room, (size_t)read(fd, room, size));
	printf("write        %zd\n", write(fd, "x", 1));
	close(copy);
	close(fd);
	return 0;
}
