/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hostile SLOTS SEQUENCES [SEED]: requests of the kernel module tier_mem with arguments that nobody
 *     sane gives, in sequences of random length over descriptors of all kinds; after each all
 *     chunks must be accounted for, and at the end the pool must be whole. Every second sequence is
 *     two threads' at once, over the same descriptors. Before, what processes can do with a
 *     mapping: fork, exec, mremap, unmap a part, pass a descriptor on. What a sequence asks
 *     for depends on its seed alone, so that runs from different seeds add up.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "tests/vm/kmod.h"

#define TELL_EVERY 1000u
#define FDS_MAX 10
#define MAPS_MAX 6
#define STEPS_MAX 24
#define WAIT_TRIES 500

static _Thread_local uint64_t state;
static _Atomic uint64_t accepted, touched; /* else nothing of this shows anything */

static uint32_t below(uint32_t most)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(state >> 33) % most;
}

/* ---- requests ------------------------------------------------------------------------------- */

static _Atomic int fds[FDS_MAX]; /* who takes one out of here closes it */
static _Thread_local struct {
	uint8_t *at;
	size_t bytes;
} maps[MAPS_MAX];

static uint32_t odd_number(void)
{
	const uint32_t odd[] = { 0, 1, slots - 1, slots, slots + 1, TIER_MEM_SLOTS_MAX,
				 0x7fffffff, 0x80000000u, UINT32_MAX, below(slots) };

	return odd[below(sizeof(odd) / sizeof(odd[0]))];
}

/* Where an argument lies: mostly where it should. */
static void *odd_place(void *sane)
{
	static uint8_t *read_only;

	if (!read_only)
		read_only = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	switch (below(48)) {
	case 0:
		return NULL;
	case 1:
		return (void *)(uintptr_t)0xffff888000000000ull;
	case 2:
		return (void *)(uintptr_t)0x7ffffffff000ull;
	case 3:
		return read_only;
	case 4:
		return read_only + 4096 - 4;
	default:
		return sane;
	}
}

static void keep(int fd)
{
	int before;

	if (fd < 0)
		return;
	before = atomic_exchange(&fds[below(FDS_MAX)], fd);
	if (before >= 0)
		close(before);
}

/* Mostly one that is open: what is asked of a closed one ends in the kernel's own table. */
static int some_fd(void)
{
	uint32_t at = below(FDS_MAX);
	bool any = !below(16);

	for (uint32_t i = 0; i < FDS_MAX; i++) {
		int fd = fds[(at + i) % FDS_MAX];

		if (fd >= 0 || any)
			return fd;
	}
	return -1;
}

static void odd_create(void)
{
	struct tier_mem_create args = { .bytes = slots * CHUNK };

	if (!below(4))
		args.bytes = (uint64_t)odd_number() << below(40);
	if (args.bytes > slots * CHUNK)
		args.bytes |= 1ull << 50; /* refused: a table of millions of slots is no aim */
	if (!below(8))
		args.reserved = 1;
	memset(args.label, below(8) ? 0 : 'x', sizeof(args.label));
	keep(ioctl(device, TIER_MEM_CREATE, odd_place(&args)));
}

static void odd_request(void)
{
	static const unsigned long requests[] = {
		TIER_MEM_STATUS, TIER_MEM_CREATE, TIER_MEM_FILL, TIER_MEM_PUNCH, TIER_MEM_SHARE,
		TIER_MEM_REVOKE, TIER_MEM_GRANT, TIER_MEM_COMMIT, TIER_MEM_LEAVE, TIER_MEM_DMABUF,
	};
	unsigned long what = requests[below(sizeof(requests) / sizeof(requests[0]))];
	union {
		struct tier_mem_slots slots;
		struct tier_mem_client client;
		uint8_t bytes[256];
	} args;
	int rc;

	memset(&args, 0, sizeof(args));
	if (what == TIER_MEM_SHARE || what == TIER_MEM_REVOKE) {
		args.client.client = below(3);
		args.client.pinned = !below(16);
	} else {
		args.slots.first = below(2) ? below(slots) : odd_number();
		args.slots.count = below(2) ? 1 + below(2) : odd_number();
		args.slots.held = !below(16);
	}
	if (!below(32))
		for (size_t i = 0; i < sizeof(args); i++)
			args.bytes[i] = (uint8_t)below(256);
	if (!below(8))
		what = _IOC(below(4), TIER_MEM_IOC, 0x10 + below(0x30), below(512));
	rc = ioctl(below(16) ? some_fd() : device, what, odd_place(&args));
	accepted += rc >= 0;
	if (rc > 2 && (what == TIER_MEM_SHARE || what == TIER_MEM_GRANT ||
		       what == TIER_MEM_DMABUF || what == TIER_MEM_CREATE))
		keep(rc);
}

static void odd_map(void)
{
	uint32_t i = below(MAPS_MAX);
	size_t bytes = below(4) ? CHUNK * (1 + below(slots)) : 4096 * (size_t)(1 + below(2000));
	off_t at = below(2) ? 0 : (off_t)(below(4) ? below(slots) * CHUNK : odd_number() * 4096ull);
	int flags = below(8) ? MAP_SHARED : MAP_PRIVATE;
	void *got;

	if (maps[i].at)
		munmap(maps[i].at, maps[i].bytes);
	got = mmap(NULL, bytes, below(4) ? 1 + 2 * (int)below(2) : (int)below(8), flags, some_fd(),
		   at);
	maps[i].at = got == MAP_FAILED ? NULL : got;
	maps[i].bytes = bytes;
}

static void odd_touch(void)
{
	uint32_t i = below(MAPS_MAX);
	uint8_t *at;

	for (uint32_t k = 0; k < MAPS_MAX && !maps[i].at; k++)
		i = (i + 1) % MAPS_MAX;
	if (!maps[i].at)
		return;
	at = maps[i].at + below((uint32_t)(maps[i].bytes / 8)) * 8ull;
	switch (below(6)) {
	case 0:
		madvise(maps[i].at, maps[i].bytes, (int)below(30));
		break;
	case 1:
		mprotect(maps[i].at, maps[i].bytes / (1 + below(4)), (int)below(8));
		break;
	case 2:
		/* A part of it is another mapping, so that nothing else comes to lie there. */
		mmap(maps[i].at + maps[i].bytes / 8192 * 4096, 4096, PROT_NONE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		break;
	case 3:
		touched += !store((volatile uint64_t *)(void *)at, 1);
		break;
	default:
		touched += !load((const volatile uint64_t *)(void *)at);
	}
}

static void odd_file(void)
{
	uint64_t word;
	int fd = some_fd();

	switch (below(8)) {
	case 0:
		lseek(fd, (off_t)odd_number() << below(30), (int)below(6));
		break;
	case 1:
		if (read(fd, &word, sizeof(word)) > 0 || write(fd, &word, sizeof(word)) > 0)
			fail("broken: a descriptor can be read or written");
		break;
	case 2:
		if (!ftruncate(fd, (off_t)below(8) * 4096))
			fail("broken: a descriptor can be truncated");
		break;
	case 3:
		fallocate(fd, (int)below(64), 0, 4096);
		break;
	case 4:
		keep(dup(fd));
		break;
	default:
		fd = atomic_exchange(&fds[below(FDS_MAX)], -1);
		if (fd >= 0)
			close(fd);
	}
}

static bool comes_to_rest(void)
{
	for (int i = 0; i < WAIT_TRIES && status().held; i++)
		nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
	return !status().held;
}

static void steps(void)
{
	uint32_t count = 1 + below(STEPS_MAX);

	for (uint32_t i = 0; i < count; i++) {
		switch (below(12)) {
		case 0:
			odd_create();
			break;
		case 1:
			odd_file();
			break;
		case 2:
		case 3:
			odd_map();
			break;
		case 4:
		case 5:
		case 6:
			odd_touch();
			break;
		default:
			odd_request();
		}
	}
	for (uint32_t i = 0; i < MAPS_MAX; i++)
		if (maps[i].at)
			munmap(maps[i].at, maps[i].bytes);
	memset(maps, 0, sizeof(maps));
}

static pthread_barrier_t meet;
static uint64_t state_of_another;

/* It lives as long as the process: to begin and end a thread costs more than a sequence. */
static void *another(void *arg)
{
	for (;;) {
		pthread_barrier_wait(&meet);
		state = state_of_another;
		steps();
		pthread_barrier_wait(&meet);
	}
	return arg;
}

/* Two at once: what one asks for the other closes, empties, revokes. */
static void steps_together(void)
{
	state_of_another = state ^ 0x5851f42d4c957f2dull;
	pthread_barrier_wait(&meet);
	steps();
	pthread_barrier_wait(&meet);
}

static void sequence(bool together)
{
	struct tier_mem_status s;
	int owner = create();

	for (uint32_t i = 0; i < FDS_MAX; i++)
		fds[i] = -1;
	if (below(2))
		must(owner, TIER_MEM_FILL, 0, 1 + below(slots));
	keep(owner);
	if (together)
		steps_together();
	else
		steps();
	for (uint32_t i = 0; i < FDS_MAX; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	s = status();
	if (s.free + s.held + s.used + s.retired != s.total || s.used || s.regions || s.retired)
		fail("broken: %" PRIu64 " chunks are used in %" PRIu64 " regions of nobody", s.used,
		     s.regions);
}

static void fuzz(uint64_t seed, uint32_t count)
{
	pthread_t other;

	if (pthread_barrier_init(&meet, NULL, 2) || pthread_create(&other, NULL, another, NULL))
		fail("no thread");
	for (uint32_t i = 0; i < count; i++) {
		state = seed + i;
		for (uint32_t k = 0; k < 4; k++)
			below(2);
		sequence((seed + i) % 2);
		if (i % 256 == 0 && !comes_to_rest())
			fail("broken: chunks are held for ever, seed %" PRIu64, seed + i);
		if ((i + 1) % TELL_EVERY == 0 || i + 1 == count)
			printf("%u hostile sequences from seed %" PRIu64 ": 0 wrong; %" PRIu64
			       " requests were accepted, %" PRIu64 " touches went through\n",
			       i + 1, seed, accepted, touched);
	}
	if (count >= 1000 && (accepted < count || touched < count / 4))
		fail("broken: what is asked is refused, so that nothing is tried");
}

/* ---- processes ------------------------------------------------------------------------------ */

static int how_it_ends(pid_t pid)
{
	int how = 0;

	waitpid(pid, &how, 0);
	return WIFSIGNALED(how) ? WTERMSIG(how) : 1000 + WEXITSTATUS(how);
}

/* Two threads fill the same slots: each gets one chunk. */
static void fills_meet(int owner)
{
	for (int n = 0; n < 30; n++) {
		pid_t pid = spawn();

		if (pid == 0)
			_exit((int)-ask(owner, TIER_MEM_FILL, 0, slots, NULL));
		must(owner, TIER_MEM_FILL, 0, slots);
		if (how_it_ends(pid) != 1000 || status().used != slots)
			fail("broken: two fills of a slot take two chunks");
		must(owner, TIER_MEM_PUNCH, 0, slots);
	}
	printf("fills that meet take one chunk a slot\n");
}

static void mappings(int owner)
{
	int fd = share(owner, 1);
	uint8_t *r = map(fd, PROT_READ), *moved;
	pid_t pid;

	must(owner, TIER_MEM_FILL, 0, slots);
	for (uint32_t i = 0; i < slots; i++)
		if (load(word(r, i)))
			fail("a reader cannot read");
	expect(mmap(NULL, CHUNK, PROT_READ, MAP_SHARED, fd, (off_t)(slots * CHUNK)) == MAP_FAILED &&
	       mmap(NULL, (slots + 1) * CHUNK, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED &&
	       mremap(r, slots * CHUNK, (slots + 1) * CHUNK, MREMAP_MAYMOVE) == MAP_FAILED &&
	       mremap(r, 0, slots * CHUNK, MREMAP_MAYMOVE) == MAP_FAILED,
	       "no mapping reaches beyond the region, or grows");
	moved = mremap(r, slots * CHUNK, slots * CHUNK, MREMAP_MAYMOVE | MREMAP_FIXED,
		       (uint8_t *)mmap(NULL, (slots + 1) * CHUNK, PROT_NONE,
				       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) + 4096);
	if (moved == MAP_FAILED || load(word(moved, 0)) || munmap(moved + CHUNK / 2, 4096))
		fail("it cannot be moved: %s", strerror(errno));
	pid = spawn();
	if (pid == 0) {
		signal(SIGBUS, SIG_DFL);
		for (;;)
			(void)*(volatile uint64_t *)moved;
	}
	expect(revoke_client(owner, 1).descriptors == 1 && load(word(moved, 0)) == SIGBUS &&
	       load(word(moved, 0) + 1000) == SIGBUS && how_it_ends(pid) == SIGBUS,
	       "revocation reaches what was moved, cut up and inherited by a child");
	munmap(moved, slots * CHUNK);
	close(fd);
	must(owner, TIER_MEM_PUNCH, 0, slots);
}

static void pass(int sock, int fd)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 }, byte = 'x';
	struct iovec iov = { &byte, 1 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
			    .msg_controllen = sizeof(control) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	if (sendmsg(sock, &m, 0) != 1)
		fail("sendmsg: %s", strerror(errno));
}

static int passed(int sock)
{
	char control[CMSG_SPACE(sizeof(int))], byte;
	struct iovec iov = { &byte, 1 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
			    .msg_controllen = sizeof(control) };
	int fd;

	if (recvmsg(sock, &m, MSG_CMSG_CLOEXEC) != 1 || !CMSG_FIRSTHDR(&m))
		fail("recvmsg: %s", strerror(errno));
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
	return fd;
}

static void passed_on(int owner)
{
	int pair[2], fd = share(owner, 2), ready[2];
	pid_t pid;
	char c;

	must(owner, TIER_MEM_FILL, 0, 1);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) || pipe(ready))
		fail("socketpair: %s", strerror(errno));
	pid = spawn();
	if (pid == 0) {
		uint8_t *r;

		signal(SIGBUS, SIG_DFL);
		close(fd);
		r = map(passed(pair[1]), PROT_READ);
		(void)*(volatile uint64_t *)r;
		if (write(ready[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			(void)*(volatile uint64_t *)r;
	}
	pass(pair[0], fd);
	close(fd);
	if (read(ready[0], &c, 1) != 1)
		fail("who was passed a descriptor cannot read");
	expect(revoke_client(owner, 2).descriptors == 1 && how_it_ends(pid) == SIGBUS,
	       "revocation reaches a descriptor that was passed on");
	must(owner, TIER_MEM_PUNCH, 0, 1);
	for (int i = 0; i < 2; i++) {
		close(pair[i]);
		close(ready[i]);
	}
}

/* The owner becomes another program: its descriptors are closed by that, and all is revoked. */
static void owner_executes(void)
{
	int pair[2], fd;
	uint8_t *r;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		fail("socketpair: %s", strerror(errno));
	pid = spawn();
	if (pid == 0) {
		int owner = create();
		char c;

		must(owner, TIER_MEM_FILL, 0, 1);
		pass(pair[1], share(owner, 3));
		if (read(pair[1], &c, 1) == 1)
			execl("/bin/sleep", "sleep", "100", NULL);
		_exit(1);
	}
	fd = passed(pair[0]);
	r = map(fd, PROT_READ);
	if (load(word(r, 0)) || write(pair[0], "x", 1) != 1)
		fail("a reader cannot read");
	for (int i = 0; i < WAIT_TRIES && !load(word(r, 0)); i++)
		nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
	expect(load(word(r, 0)) == SIGBUS, "an owner that becomes another program revokes all");
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	munmap(r, slots * CHUNK);
	close(fd);
	close(pair[0]);
	close(pair[1]);
}

int main(int argc, char **argv)
{
	uint64_t seed;
	int owner;

	begin(argc, argv);
	seed = argc > 3 ? strtoull(argv[3], NULL, 10) : (uint64_t)time(NULL);
	owner = create();
	fills_meet(owner);
	mappings(owner);
	passed_on(owner);
	close(owner);
	owner_executes();
	fuzz(seed, argc > 2 ? (uint32_t)atoi(argv[2]) : 1000);
	if (!comes_to_rest())
		fail("broken: chunks are held for ever");
	pool_is_whole();
	return 0;
}
