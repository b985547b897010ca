/* SPDX-License-Identifier: Apache-2.0 */
/*
 * storm SLOTS ROUNDS KILLS: revocations and commits of the kernel module tier_mem against processes
 *     that fault in and unmap all the time, some of which have memory pinned for a device; then
 *     owners, readers and writers that are killed at any moment. Nobody reads or stores after his
 *     right was taken, nobody else ends, and the pool is whole.
 */
#include <linux/io_uring.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "tests/vm/kmod.h"

#define LOOKS 20
#define WAIT_TRIES 500
#define END_US 5e6 /* most that a process takes to end on a busy machine */
#define HELD_SLOT 3 /* what pins are on */
#define OFTEN 3 /* accesses, until it is unmapped: it faults all the time, */
#define NEVER UINT32_MAX /* ... or is seen to go on where a fault maps what was taken */

static uint32_t random_state = 1;

static uint32_t below(uint32_t most)
{
	random_state = random_state * 1103515245u + 12345u;
	return (random_state >> 8) % most;
}

static void sleep_us(uint32_t us)
{
	nanosleep(&(struct timespec){ .tv_nsec = (long)us * 1000 }, NULL);
}

static int pin(void *at, size_t bytes)
{
	struct io_uring_params params = { 0 };
	struct iovec iov = { .iov_base = at, .iov_len = bytes };
	int ring = (int)syscall(SYS_io_uring_setup, 1, &params);

	if (ring >= 0 && syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, &iov, 1)) {
		close(ring);
		return -1;
	}
	return ring;
}

/* How a process ends that must: by this signal, and soon. */
static void must_end(pid_t pid, int signal, const char *who)
{
	double begun = now_us();
	int how = 0;

	while (now_us() - begun < END_US) {
		if (waitpid(pid, &how, WNOHANG) == pid) {
			if (WIFSIGNALED(how) && WTERMSIG(how) == signal)
				return;
			fail("broken: a %s ends by %x", who, (unsigned)how);
		}
		sleep_us(1000);
	}
	fail("broken: a %s goes on after its right was taken", who);
}

/* In a child: its right may be gone before it has mapped anything. */
static uint8_t *map_or_end(int fd, int protection)
{
	uint8_t *at = mmap(NULL, slots * CHUNK, protection, MAP_SHARED, fd, 0);

	signal(SIGBUS, SIG_DFL);
	if (at == MAP_FAILED)
		kill(getpid(), errno == EIDRM ? SIGBUS : SIGABRT);
	return at;
}

/* Reads, or stores into, all slots from first on, and now and then unmaps them, until SIGBUS. */
static pid_t faulter(int fd, uint32_t first, uint32_t count, bool stores, uint32_t unmap_every)
{
	pid_t pid = spawn();
	uint8_t *base;

	if (pid)
		return pid;
	base = map_or_end(fd, stores ? PROT_READ | PROT_WRITE : PROT_READ);
	for (uint64_t n = 1;; n++) {
		volatile uint64_t *at = word(base, first + (uint32_t)n % count);

		if (stores)
			*at = n;
		else
			(void)*at;
		if (n % unmap_every == 0)
			madvise(base + first * CHUNK, count * CHUNK, MADV_DONTNEED);
	}
}

static uint32_t changes(volatile uint64_t *at)
{
	uint64_t was = *at;
	uint32_t n = 0;

	for (uint32_t i = 0; i < LOOKS; i++) {
		sleep_us(20);
		n += *at != was;
	}
	return n;
}

/* A pin of the grant's slot comes and goes beside the commit: then it says so. */
static pid_t pinner(int fd)
{
	pid_t pid = spawn();
	uint8_t *base;

	if (pid)
		return pid;
	base = map_or_end(fd, PROT_READ | PROT_WRITE);
	for (;;) {
		int ring = pin(word(base, HELD_SLOT), 4096);

		if (ring >= 0)
			close(ring);
	}
}

/* Where nobody has it pinned, what a writer unmaps meanwhile is still held for a moment. */
static int64_t commit(int owner, bool pins)
{
	double begun = now_us();
	int64_t rc;

	do
		rc = ask(owner, TIER_MEM_COMMIT, 2, 2, NULL);
	while (rc == -EBUSY && !pins && now_us() - begun < END_US);
	if (rc && rc != -EBUSY)
		fail("COMMIT: %s", strerror((int)-rc));
	if (rc && !pins)
		fail("broken: EBUSY, and nothing is pinned");
	return rc;
}

static void one_round(int owner, const uint8_t *seen, uint32_t *busy)
{
	int fd = share(owner, 7), other = share(owner, 8);
	int grant = (int)ask(owner, TIER_MEM_GRANT, 2, 2, NULL);
	pid_t reader = below(2) ? faulter(fd, 0, 2, false, OFTEN) : faulter(fd, 0, 1, false, NEVER);
	pid_t stays = faulter(other, 0, 2, false, OFTEN);
	pid_t writer = faulter(grant, 2, 1, true, below(2) ? OFTEN : NEVER);
	pid_t pins = below(2) ? pinner(grant) : 0;
	int64_t rc;

	close(fd);
	close(other);
	sleep_us(below(3000));
	if (revoke_client(owner, 7).descriptors != 1)
		fail("broken: a descriptor is not revoked");
	rc = commit(owner, pins);
	if (!rc && changes((volatile uint64_t *)(uintptr_t)(seen + 2 * CHUNK)))
		fail("broken: a byte changes after a commit");
	*busy += rc != 0;
	must_end(reader, SIGBUS, "revoked reader");
	must_end(writer, SIGBUS, "writer");
	if (pins) {
		kill(pins, SIGKILL);
		waitpid(pins, NULL, 0); /* or it had its signal before */
	}
	if (waitpid(stays, NULL, WNOHANG))
		fail("broken: a reader ends whose right nobody took");
	kill(stays, SIGKILL);
	must_end(stays, SIGKILL, "reader");
	close(grant);
	must(owner, TIER_MEM_PUNCH, 0, slots);
	must(owner, TIER_MEM_FILL, 0, slots);
}

static bool comes_to_rest(void)
{
	for (int i = 0; i < WAIT_TRIES && (status().held || status().regions); i++)
		sleep_us(10000);
	return !status().held && !status().regions;
}

static void rounds(uint32_t count)
{
	int owner = create();
	uint8_t *seen = map(owner, PROT_READ);
	uint32_t busy = 0;

	must(owner, TIER_MEM_FILL, 0, slots);
	for (uint32_t i = 0; i < count; i++)
		one_round(owner, seen, &busy);
	munmap(seen, slots * CHUNK);
	close(owner);
	printf("%u revocations and %u commits (%u of them EBUSY) against processes that fault and "
	       "pin\n", count, count, busy);
}

/* ---- killed at any step --------------------------------------------------------------------- */

/* An owner with a reader and a writer, which does one thing after another for ever. */
static void whole_life(void)
{
	int owner = create();
	uint8_t *base = map(owner, PROT_READ | PROT_WRITE);

	for (uint32_t n = 0;; n++) {
		int fd = share(owner, n % 3), grant = (int)ask(owner, TIER_MEM_GRANT, 1, 1, NULL);
		uint8_t *r = map(fd, PROT_READ), *w = map(grant, PROT_READ | PROT_WRITE);
		int ring;

		must(owner, TIER_MEM_FILL, 0, 2);
		load(word(r, 0));
		store(word(w, 1), n);
		store(word(base, 2), n);
		ring = pin(word(w, 1), 4096);
		ask(owner, TIER_MEM_COMMIT, 1, 1, NULL);
		revoke_client(owner, n % 3);
		close((int)ask(owner, TIER_MEM_DMABUF, 0, 1, NULL));
		ask(owner, TIER_MEM_PUNCH, n % slots, 1, NULL);
		if (ring >= 0)
			close(ring);
		munmap(r, slots * CHUNK);
		munmap(w, slots * CHUNK);
		close(fd);
		close(grant);
	}
}

static void kills(uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		pid_t pid = fork(), beside = 0;
		int owner;

		if (pid == 0)
			whole_life();
		owner = create();
		must(owner, TIER_MEM_FILL, 0, slots);
		if (i % 2) { /* a reader or writer of an owner that lives */
			int fd = i % 4 == 1 ? share(owner, 1) :
					      (int)ask(owner, TIER_MEM_GRANT, 0, 2, NULL);

			beside = faulter(fd, 0, 2, i % 4 != 1, OFTEN);
			close(fd);
		}
		sleep_us(below(20000));
		kill(pid, SIGKILL);
		if (beside)
			kill(beside, SIGKILL);
		must_end(pid, SIGKILL, "owner");
		if (beside)
			must_end(beside, SIGKILL, "reader or writer");
		close(owner);
	}
	if (!comes_to_rest())
		fail("broken: who was killed keeps memory");
	printf("%u processes were killed at any step\n", count + count / 2);
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	random_state = (uint32_t)time(NULL);
	rounds(argc > 2 ? (uint32_t)atoi(argv[2]) : 20);
	kills(argc > 3 ? (uint32_t)atoi(argv[3]) : 20);
	if (!comes_to_rest())
		fail("broken: chunks are held for ever");
	pool_is_whole();
	return 0;
}
