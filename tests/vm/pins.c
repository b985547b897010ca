/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pins SLOTS [DAX]: what outlives an unmapping in the kernel module tier_mem: buffers registered
 *     for a device, dma-bufs, and with the name of a DAX device its poison and its end.
 *
 * vgem, a driver without hardware, imports the dma-bufs.
 */
#include <linux/io_uring.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "tests/vm/kmod.h"

#define WAIT_TRIES 500
#define WAIT_NS 10000000
#define UNBIND_HELD_MS 500

/* Of the kernel's ABI, in a header of libdrm. */
struct drm_prime_handle {
	uint32_t handle;
	uint32_t flags;
	int32_t fd;
};
#define DRM_IOCTL_PRIME_FD_TO_HANDLE _IOWR('d', 0x2e, struct drm_prime_handle)

#ifndef MADV_HWPOISON
#define MADV_HWPOISON 100
#endif

/* ---- registered buffers --------------------------------------------------------------------- */

/* A ring that has the bytes pinned until it is closed; -1: the kernel refuses. */
static int pin(void *at, size_t bytes)
{
	struct io_uring_params params = { 0 };
	struct iovec iov = { .iov_base = at, .iov_len = bytes };
	int ring = (int)syscall(SYS_io_uring_setup, 1, &params);

	if (ring < 0)
		fail("io_uring_setup: %s", strerror(errno));
	if (!syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, &iov, 1))
		return ring;
	close(ring);
	return -1;
}

static bool comes_to_hold(uint64_t chunks)
{
	for (int i = 0; i < WAIT_TRIES && status().held != chunks; i++)
		nanosleep(&(struct timespec){ .tv_nsec = WAIT_NS }, NULL);
	return status().held == chunks;
}

static void pins(int owner)
{
	int grant = (int)ask(owner, TIER_MEM_GRANT, 0, 2, NULL), ring;
	uint8_t *w = map(grant, PROT_READ | PROT_WRITE), *r = map(owner, PROT_READ);
	struct tier_mem_slots out;

	must(owner, TIER_MEM_FILL, 0, 2);
	ring = pin(word(w, 1), 4096);
	expect(ring >= 0 && ask(owner, TIER_MEM_COMMIT, 0, 2, &out) == -EBUSY && out.done == 1 &&
	       store(word(w, 0), 1) == SIGBUS && store(word(w, 1), 1) == SIGBUS,
	       "a commit under a pin says EBUSY, and how many slots (K4)");
	ask(owner, TIER_MEM_PUNCH, 0, 2, &out);
	expect(out.done == 2 && out.held == 1 && status().held == 1,
	       "a pinned chunk is held back when its slot is punched (K5)");
	must(owner, TIER_MEM_FILL, 1, 1);
	expect(!load(word(r, 1)) && *word(r, 1) == 0 && status().held == 1,
	       "the slot gets another one");
	expect(syscall(SYS_delete_module, "tier_mem", O_NONBLOCK) && errno == EWOULDBLOCK,
	       "the module cannot be unloaded");
	close(ring);
	expect(comes_to_hold(0), "it is free when the pin is gone");
	must(owner, TIER_MEM_PUNCH, 1, 1);
	munmap(w, slots * CHUNK);
	munmap(r, slots * CHUNK);
	close(grant);
}

/* What lies in a pipe is read out of the very page, by whoever has the pipe. */
static void spliced(int owner)
{
	int fd = share(owner, 4), ends[2];
	uint8_t *r = map(fd, PROT_READ);
	struct iovec iov = { .iov_base = word(r, 0), .iov_len = 8 };

	must(owner, TIER_MEM_FILL, 0, 1);
	if (pipe(ends) || load(word(r, 0)) || vmsplice(ends[1], &iov, 1, 0) != 8)
		fail("vmsplice: %s", strerror(errno));
	expect(revoke_client(owner, 4).pinned == 1 && revoke_client(owner, 4).pinned == 1 &&
	       ask(owner, TIER_MEM_COMMIT, 0, 1, NULL) == -EBUSY,
	       "what a reader has put into a pipe counts as pinned (K3, K4)");
	close(ends[0]);
	close(ends[1]);
	expect(revoke_client(owner, 4).pinned == 0 && !ask(owner, TIER_MEM_COMMIT, 0, 1, NULL),
	       "until the pipe is gone");
	must(owner, TIER_MEM_PUNCH, 0, 1);
	munmap(r, slots * CHUNK);
	close(fd);
}

/* ---- dma-bufs ------------------------------------------------------------------------------- */

static int dmabuf(int fd, uint32_t first, uint32_t count)
{
	return (int)ask(fd, TIER_MEM_DMABUF, first, count, NULL);
}

/* Mapped by a device until the descriptor is closed; -errno. */
static int import(int buf)
{
	struct drm_prime_handle args = { .fd = buf };
	int gem = open("/dev/dri/card0", O_RDWR | O_CLOEXEC), err;

	if (gem < 0)
		fail("vgem: %s", strerror(errno));
	if (!ioctl(gem, DRM_IOCTL_PRIME_FD_TO_HANDLE, &args))
		return gem;
	err = -errno;
	close(gem);
	return err;
}

static void dmabufs(int owner)
{
	int fd = share(owner, 5), read_only, grant, both, whole, gem;
	struct tier_mem_slots out;
	uint8_t *at;

	must(owner, TIER_MEM_FILL, 0, 2);
	read_only = dmabuf(fd, 1, 1);
	grant = (int)ask(owner, TIER_MEM_GRANT, 0, 1, NULL);
	both = dmabuf(grant, 0, 1);
	whole = dmabuf(owner, 0, 1);
	expect(read_only >= 0 && both >= 0 && dmabuf(grant, 1, 1) == -EINVAL &&
	       mmap(NULL, CHUNK, PROT_WRITE, MAP_SHARED, read_only, 0) == MAP_FAILED &&
	       import(read_only) == -EACCES, "a dma-buf has the mode of its descriptor");
	at = mmap(NULL, CHUNK, PROT_READ, MAP_SHARED, read_only, 0);
	expect(at != MAP_FAILED && !load(word(at, 0)) &&
	       revoke_client(owner, 5).descriptors == 1 && load(word(at, 0)) == SIGBUS,
	       "revocation reaches the mapping of a dma-buf");
	munmap(at, CHUNK);
	at = mmap(NULL, CHUNK, PROT_READ | PROT_WRITE, MAP_SHARED, whole, 0);
	expect(at != MAP_FAILED && !store(word(at, 0), 1) &&
	       (remap_file_pages(at, CHUNK, 0, CHUNK / 4096, 0) || load(word(at, 0)) == SIGBUS),
	       "a mapping of a dma-buf is not moved on to slots that are not in it");
	munmap(at, CHUNK);
	close(whole);
	gem = import(both);
	expect(gem >= 0 && ask(owner, TIER_MEM_COMMIT, 0, 1, &out) == -EBUSY &&
	       import(both) == -EIDRM, "a device that has it mapped makes a commit say EBUSY");
	ask(owner, TIER_MEM_PUNCH, 0, 2, &out);
	expect(out.done == 2 && out.held == 1, "and holds its chunk back");
	close(gem);
	expect(comes_to_hold(0), "until it lets go");
	must(owner, TIER_MEM_FILL, 0, 2);
	expect(ask(owner, TIER_MEM_COMMIT, 0, 2, NULL) == 0, "and then it is pinned no more");
	must(owner, TIER_MEM_PUNCH, 0, 2);
	close(read_only);
	close(both);
	close(grant);
	close(fd);
}

/* ---- a device that misbehaves --------------------------------------------------------------- */

static void poison(int owner)
{
	int fd = share(owner, 6);
	uint8_t *w = map(owner, PROT_READ | PROT_WRITE), *r = map(fd, PROT_READ);
	uint64_t retired = status().retired;

	must(owner, TIER_MEM_FILL, 0, 2);
	if (madvise(word(w, 1), 4096, MADV_HWPOISON))
		fail("MADV_HWPOISON: %s", strerror(errno));
	expect(load(word(r, 1)) == SIGBUS && bus_code == BUS_MCEERR_AR &&
	       load(word(w, 1)) == SIGBUS && !load(word(r, 0)) &&
	       ask(owner, TIER_MEM_FILL, 1, 1, NULL) == 0 && load(word(r, 1)) == SIGBUS,
	       "poison is SIGBUS for who touches it, others read on (K6)");
	must(owner, TIER_MEM_PUNCH, 1, 1);
	expect(status().retired == retired + 1, "a poisoned chunk is retired");
	must(owner, TIER_MEM_FILL, 1, 1);
	expect(!load(word(r, 1)) && *word(r, 1) == 0, "its slot gets another one");
	must(owner, TIER_MEM_PUNCH, 0, 2);
	munmap(w, slots * CHUNK);
	munmap(r, slots * CHUNK);
	close(fd);
}

static int write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);
	int err = fd < 0 || write(fd, text, strlen(text)) < 0 ? -errno : 0;

	if (fd >= 0)
		close(fd);
	return err;
}

static bool ends_by(pid_t pid, uint32_t ms, int *how)
{
	for (uint32_t i = 0; i < ms; i++) {
		if (waitpid(pid, how, WNOHANG) == pid)
			return true;
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	}
	return false;
}

/* The device is taken away while one slot is mapped and another is pinned. */
static void unbind(int owner, const char *dax)
{
	uint8_t *w = map(owner, PROT_READ | PROT_WRITE);
	int ring, how = -1;
	pid_t pid;

	must(owner, TIER_MEM_FILL, 0, 2);
	ring = pin(word(w, 1), 4096);
	if (load(word(w, 0)))
		fail("it cannot be read");
	pid = spawn();
	if (!pid) {
		close(ring); /* it would wait for itself */
		_exit(-write_text("/sys/bus/dax/drivers/tier_mem/unbind", dax));
	}
	expect(ring >= 0 && !ends_by(pid, UNBIND_HELD_MS, &how) && status().total == 1 &&
	       status().held == 1, "unbind waits for a pin, and no other chunk is left");
	expect(load(word(w, 0)) == SIGBUS && load(word(w, 1)) == SIGBUS &&
	       ask(owner, TIER_MEM_FILL, 0, 1, NULL) == -EIO,
	       "what was mapped is SIGBUS at once, for the owner too (K6)");
	close(ring);
	expect(ends_by(pid, 10000, &how) && WIFEXITED(how) && WEXITSTATUS(how) == 0,
	       "it ends when the pin is gone");
	if (write_text("/sys/bus/dax/drivers/tier_mem/bind", dax))
		fail("bind: %s", strerror(errno));
	expect(load(word(w, 0)) == SIGBUS && ask(owner, TIER_MEM_FILL, 0, 1, NULL) == -EIO,
	       "a slot that lost its memory stays lost when a device comes");
	must(owner, TIER_MEM_PUNCH, 0, 2);
	expect(!load(word(w, 0)) && status().lost >= 2, "until it is punched");
	must(owner, TIER_MEM_PUNCH, 0, 1);
	munmap(w, slots * CHUNK);
}

int main(int argc, char **argv)
{
	int owner;

	begin(argc, argv);
	owner = create();
	pins(owner);
	spliced(owner);
	dmabufs(owner);
	if (argc > 2) {
		poison(owner);
		unbind(owner, argv[2]);
	}
	close(owner);
	pool_is_whole();
	return 0;
}
