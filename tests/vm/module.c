/* SPDX-License-Identifier: Apache-2.0 */
/*
 * module SLOTS COMMITS: what the kernel module tier_mem promises (abi/tier_mem.h, K1-K7), asked
 *     from user space on regions of SLOTS slots, with COMMITS commits under a storing writer.
 *
 * Prints a line for each thing that holds and the microseconds of fill, punch, revoke and commit.
 * A promise that is broken ends it with status 1.
 */
#include <pthread.h>
#include <sys/wait.h>

#include "tests/vm/kmod.h"

#define LOOKS 20 /* at the words after a commit */
#define LOOK_NS 20000
#define COMMITTED 2 /* the slot */
#define TELL_EVERY 1000u

/* ---- the promises --------------------------------------------------------------------------- */

static void costs(int owner, uint8_t *base)
{
	double begun = now_us();

	must(owner, TIER_MEM_FILL, 0, 1);
	figure(now_us() - begun, "a fill, the first slot");
	begun = now_us();
	must(owner, TIER_MEM_FILL, 1, slots - 1);
	figure((now_us() - begun) / (slots - 1), "a fill, each other slot");
	for (uint32_t i = 0; i < slots; i++)
		if (load(word(base, i)))
			fail("a full slot cannot be read");
	begun = now_us();
	must(owner, TIER_MEM_COMMIT, 0, slots);
	figure(now_us() - begun, "a commit of all slots");
	begun = now_us();
	must(owner, TIER_MEM_PUNCH, 1, 1);
	figure(now_us() - begun, "a punch");
}

static void holes(int owner, uint8_t *reader, uint8_t *writer)
{
	uint64_t used = status().used;

	expect(load(word(reader, 1)) == SIGBUS && store(word(writer, 1), 1) == SIGBUS &&
	       status().used == used, "a touched hole is SIGBUS and takes nothing (K1)");
	must(owner, TIER_MEM_FILL, 1, 1);
	expect(!load(word(reader, 1)) && *word(reader, 1) == 0, "a full one reads as zeros (K2)");
}

static void reads_only(int fd, uint8_t *reader)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	expect(mmap(NULL, CHUNK, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED &&
	       errno == EACCES && mprotect(reader, CHUNK, PROT_READ | PROT_WRITE) &&
	       errno == EACCES && mprotect(reader, CHUNK, PROT_READ | PROT_EXEC) &&
	       mmap(NULL, CHUNK, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED &&
	       mmap(NULL, CHUNK, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0) == MAP_FAILED &&
	       open(path, O_RDWR) < 0 && ftruncate(fd, 0) &&
	       madvise(reader, CHUNK, MADV_REMOVE) &&
	       ioctl(fd, TIER_MEM_LEAVE) && errno == ENOTTY,
	       "a reader's descriptor is good for reading alone");
}

static void revocation(int owner)
{
	int a = share(owner, 7), b = share(owner, 8);
	uint8_t *one = map(a, PROT_READ), *other = map(b, PROT_READ);
	struct tier_mem_client gone;
	double begun;

	if (load(word(one, 0)) || load(word(other, 0)))
		fail("a reader cannot read");
	begun = now_us();
	gone = revoke_client(owner, 7);
	figure(now_us() - begun, "a revocation");
	expect(gone.descriptors == 1 && load(word(one, 0)) == SIGBUS &&
	       !load(word(other, 0)) &&
	       mmap(NULL, CHUNK, PROT_READ, MAP_SHARED, a, 0) == MAP_FAILED && errno == EIDRM,
	       "a revoked reader gets SIGBUS, another reads on (K3)");
	munmap(one, slots * CHUNK);
	munmap(other, slots * CHUNK);
	close(a);
	close(b);
}

/* ---- commits under a writer that never helps ---------------------------------- */

static void *keep_storing(void *arg)
{
	volatile uint64_t *at = arg;

	for (uint64_t n = 1;; n++)
		*at = n;
	return NULL;
}

/* Stores by two threads until it is killed by SIGBUS. */
static pid_t writer(int fd, uint32_t slot)
{
	pid_t pid = spawn();
	pthread_t thread;
	uint8_t *base;

	if (pid)
		return pid;
	signal(SIGBUS, SIG_DFL);
	base = map(fd, PROT_READ | PROT_WRITE);
	if (pthread_create(&thread, NULL, keep_storing, word(base, slot)) == 0)
		keep_storing(word(base, slot) + 1);
	_exit(2);
}

/* How often one of the words changed after the commit. */
static uint32_t changes(volatile uint64_t *at)
{
	uint64_t first = at[0], second = at[1];
	uint32_t n = 0;

	for (uint32_t i = 0; i < LOOKS; i++) {
		nanosleep(&(struct timespec){ .tv_nsec = LOOK_NS }, NULL);
		n += at[0] != first || at[1] != second;
	}
	return n;
}

/* Both threads of a writer have stored; a busy host takes its time for it. */
static pid_t busy_writer(int grant, volatile const uint64_t *at)
{
	pid_t pid = writer(grant, COMMITTED);

	while (!at[0] || !at[1]) {
		if (waitpid(pid, NULL, WNOHANG))
			fail("a writer ends before it has stored");
		nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
	}
	return pid;
}

static void commits(int owner, uint8_t *reader, uint32_t count)
{
	volatile uint64_t *at = word(reader, COMMITTED);
	double spent = 0;

	for (uint32_t i = 0; i < count; i++) {
		int grant = (int)ask(owner, TIER_MEM_GRANT, COMMITTED, 1, NULL), how = 0;
		pid_t pid;
		double begun;

		if (grant < 0)
			fail("GRANT: %s", strerror(-grant));
		if (at[0] || at[1])
			fail("broken: a slot that is filled again has old bytes");
		pid = busy_writer(grant, at);
		begun = now_us();
		must(owner, TIER_MEM_COMMIT, COMMITTED, 1);
		spent += now_us() - begun;
		if (changes(at))
			fail("broken: a byte changed after %u of %u commits", i + 1, count);
		waitpid(pid, &how, 0);
		if (!WIFSIGNALED(how) || WTERMSIG(how) != SIGBUS)
			fail("broken: a writer ends by %x", (unsigned)how);
		close(grant);
		must(owner, TIER_MEM_PUNCH, COMMITTED, 1);
		must(owner, TIER_MEM_FILL, COMMITTED, 1);
		if ((i + 1) % TELL_EVERY == 0 || i + 1 == count)
			printf("%u commits under two storing writers: 0 bytes changed\n", i + 1);
	}
	figure(spent / count, "a commit under a writer on two threads");
	printf("no byte changes after a commit, the writer gets SIGBUS (K4)\n");
}

static void overlap(int owner)
{
	int grant = (int)ask(owner, TIER_MEM_GRANT, 0, 2, NULL);

	expect(grant >= 0 && ask(owner, TIER_MEM_GRANT, 1, 1, NULL) == -EBUSY &&
	       ask(owner, TIER_MEM_COMMIT, 1, 1, NULL) == 0 &&
	       mmap(NULL, CHUNK, PROT_READ | PROT_WRITE, MAP_SHARED, grant, 0) == MAP_FAILED &&
	       errno == EIDRM, "a slot has one writer, and none once it is committed");
	close(grant);
}

/* Reads a word of each slot until it gets SIGBUS. */
static pid_t stubborn(int fd)
{
	int ready[2];
	pid_t pid;
	char c;

	if (pipe(ready))
		fail("pipe: %s", strerror(errno));
	pid = spawn();
	if (!pid) {
		uint8_t *base = map(fd, PROT_READ);
		uint64_t sum = 0;

		signal(SIGBUS, SIG_DFL);
		for (uint32_t i = 0;; i++) {
			sum += *(volatile uint64_t *)word(base, i % slots);
			if (i == slots && write(ready[1], &sum, 1) != 1)
				_exit(1);
		}
	}
	if (read(ready[0], &c, 1) != 1)
		fail("a reader does not begin");
	close(ready[0]);
	close(ready[1]);
	return pid;
}

static void stopped_client(int owner)
{
	uint64_t free_before = status().free;
	struct tier_mem_slots out;
	int fd = share(owner, 9), how;
	pid_t pid = stubborn(fd);
	double begun;

	kill(pid, SIGSTOP);
	waitpid(pid, &how, WUNTRACED);
	begun = now_us();
	if (revoke_client(owner, 9).pinned)
		fail("nothing is pinned");
	ask(owner, TIER_MEM_PUNCH, 0, slots, &out);
	figure(now_us() - begun, "taking all chunks of a stopped client");
	expect(out.done == slots && !out.held && status().free == free_before + slots,
	       "what a stopped client reads can be taken and used again");
	kill(pid, SIGCONT);
	waitpid(pid, &how, 0);
	expect(WIFSIGNALED(how) && WTERMSIG(how) == SIGBUS, "it gets SIGBUS when it goes on");
	close(fd);
}

static void death(void)
{
	struct tier_mem_status before = status();
	int owner = create(), fd = share(owner, 1);
	uint8_t *reader = map(fd, PROT_READ);

	must(owner, TIER_MEM_FILL, 0, 1);
	expect(!load(word(reader, 0)) && !close(owner) && load(word(reader, 0)) == SIGBUS &&
	       status().used == before.used, "the owner's end revokes everything (K7)");
	munmap(reader, slots * CHUNK);
	close(fd);
	owner = create();
	fd = share(owner, 1);
	reader = map(fd, PROT_READ);
	must(owner, TIER_MEM_FILL, 0, 1);
	ioctl(owner, TIER_MEM_LEAVE);
	expect(!close(owner) && !load(word(reader, 0)), "but not where it has left");
	munmap(reader, slots * CHUNK);
	close(fd);
	expect(status().regions == before.regions && status().used == before.used,
	       "and the last reader's end frees it");
}

static void one_region(uint32_t rounds)
{
	int owner = create(), fd = share(owner, 3), grant;
	uint8_t *base = map(owner, PROT_READ | PROT_WRITE), *reader = map(fd, PROT_READ), *w;

	costs(owner, base);
	grant = (int)ask(owner, TIER_MEM_GRANT, 1, 1, NULL);
	w = map(grant, PROT_READ | PROT_WRITE);
	holes(owner, reader, w);
	expect(store(word(w, 0), 1) == SIGBUS && !store(word(w, 1), 5) && *word(reader, 1) == 5,
	       "a grant stores into its own slots alone");
	munmap(w, slots * CHUNK);
	close(grant);
	reads_only(fd, reader);
	revocation(owner);
	overlap(owner);
	commits(owner, reader, rounds);
	stopped_client(owner);
	munmap(base, slots * CHUNK);
	munmap(reader, slots * CHUNK);
	close(owner);
	close(fd);
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	one_region(argc > 2 ? (uint32_t)atoi(argv[2]) : 10);
	death();
	pool_is_whole();
	return 0;
}
