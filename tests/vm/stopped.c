/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stopped MIB: a client of a daemon with cxl.backend=module leases MIB of blocks, more than its
 *     budget, and is stopped. Its blocks are deleted: the daemon ends its connection, and the
 *     memory must be free for others while the client still stands still. When it goes on every
 *     lease is a miss or right, also under handlers of its own, and it can put and read anew.
 *
 * Prints how long it took from the end of the connection until the memory was free.
 */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tier.h"

#define CONTEXT "stopped"
#define LEASES_MAX 1024u
#define PATIENCE_US 60e6

static void fail(const char *what, int64_t rc)
{
	printf("stopped: %s: %s (%s)\n", what, tier_strerror((int)rc), tier_error_text());
	exit(1);
}

static void must(int64_t rc, const char *what)
{
	if (rc < 0)
		fail(what, rc);
}

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

struct user {
	tier *t;
	tier_context *c;
	tier_geometry *g;
	uint32_t blocks;
};

static void begin(struct user *u, uint64_t bytes)
{
	/* In memory alone: the store is no part of this. 1 MiB a block. */
	const struct tier_part part = { .name = "kv", .kind = TIER_KIND_DENSE, .layers = 4,
					.groups = 4, .page_bytes = 64 << 10 };
	const struct tier_geometry_options geometry = { .size = sizeof(geometry),
							.page_align = 2048, .part_count = 1,
							.part = &part };
	const struct tier_context_options options = {
		.size = sizeof(options), .blocks_max = 65536,
		.quota = { [TIER_HBM] = TIER_QUOTA_NONE, [TIER_NVME] = TIER_QUOTA_NONE },
	};

	must(tier_connect(&u->t, NULL), "connect");
	must(tier_geometry_new(&u->g, &geometry), "geometry");
	must(tier_context_create(u->t, CONTEXT, u->g, &options, &u->c), "context");
	u->blocks = (uint32_t)(bytes / tier_geometry_block_bytes(u->g));
}

static tier_key key_of(uint32_t n)
{
	tier_key key;

	tier_key_opaque(&key, &n, sizeof(n), NULL);
	return key;
}

/* Block n is full of its number. */
static void put(struct user *u, uint32_t first, uint32_t count)
{
	struct tier_put_options options = { .size = sizeof(options) };
	size_t bytes = tier_geometry_block_bytes(u->g);
	uint8_t *data = malloc(bytes);

	for (uint32_t n = first; data && n < first + count; n++) {
		tier_key key = key_of(n);

		memset(data, (int)(n % 251 + 1), bytes);
		must(tier_put_copy(u->c, &key, 1, data, &options), "put");
	}
	free(data);
}

static uint32_t lease_all(struct user *u, tier_reader *r, struct tier_lease *lease)
{
	uint32_t pages = tier_geometry_pages(u->g), count = 0;

	for (; count < u->blocks * pages && count < LEASES_MAX; count++) {
		tier_key key = key_of(count / pages);

		must(tier_lease_key(r, u->c, &key, count % pages, 0, &lease[count]), "lease");
	}
	return count;
}

/* ---- the client ----------------------------------------------------------------------------- */

static volatile sig_atomic_t faults;

static void before(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)info;
	(void)context;
	_exit(50); /* not for what is tier's */
}

static void after(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)context;
	faults++;
	if (!tier_fault(info->si_addr))
		_exit(51);
}

static void handle(void (*handler)(int, siginfo_t *, void *))
{
	struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO };

	sigaction(SIGBUS, &action, NULL);
}

/* Misses among the leases; what is none has its bytes. */
static uint32_t look(const struct user *u, struct tier_lease *lease, uint32_t count)
{
	uint32_t pages = tier_geometry_pages(u->g), misses = 0;

	for (uint32_t i = 0; i < count; i++) {
		const volatile uint8_t *at = lease[i].data;
		uint8_t want = (uint8_t)(i / pages % 251 + 1), first = at[0];
		uint8_t last = at[lease[i].bytes - 1];
		int rc = tier_lease_check(&lease[i]);

		if (rc == -ENODATA)
			misses++;
		else if (rc || first != want || last != want)
			_exit(52);
	}
	return misses;
}

static void client(int out, uint64_t bytes)
{
	static struct tier_lease lease[LEASES_MAX];
	struct user u = { 0 };
	tier_reader *r;
	uint32_t count = 0, i;
	char byte = 'x';

	handle(before);
	begin(&u, bytes);
	handle(after);
	put(&u, 0, u.blocks);
	must(tier_reader_open(u.t, &r), "reader");
	count = lease_all(&u, r, lease);
	if (look(&u, lease, count) || write(out, &byte, 1) != 1)
		_exit(53);
	raise(SIGSTOP);
	i = look(&u, lease, count);
	printf("%u of %u leases are misses, %u faults, and the client lives\n", i, count,
	       (unsigned)faults);
	if (i != count || !faults)
		_exit(54);
	tier_release_many(r, lease, count);
	for (i = 0; tier_check(u.t) && i < 600; i++) /* attaches again by itself */
		nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
	put(&u, 9000, 2);
	for (i = 9000; i < 9002; i++) {
		tier_key key = key_of(i);

		must(tier_lease_key(r, u.c, &key, 0, 0, lease), "lease");
		if (*(const uint8_t *)lease->data != i % 251 + 1 || tier_lease_check(lease))
			_exit(55);
		tier_release(r, lease);
	}
	tier_close(u.t);
	_exit(0);
}

/* ---- others --------------------------------------------------------------------------------- */

/* Is a number of this name in the status not 0? Some stand there by an old name, too. */
static bool any(struct user *u, const char *name)
{
	char *reply = NULL, want[64];
	bool found = false;

	must(tier_admin(u->t, "status", NULL, &reply), "status");
	snprintf(want, sizeof(want), "\"%s\":", name);
	for (const char *at = reply; (at = strstr(at, want)); at++)
		found |= strtoull(at + strlen(want), NULL, 10) != 0;
	free(reply);
	return found;
}

static uint32_t looks; /* that it took */

/* Until there are some, or none, if it comes to that. */
static bool comes_to(struct user *u, const char *name, bool some)
{
	double end = now_us() + PATIENCE_US;

	for (looks = 1; now_us() < end; looks++) {
		if (any(u, name) == some)
			return true;
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	}
	return false;
}

int main(int argc, char **argv)
{
	uint64_t bytes = (argc > 1 ? strtoull(argv[1], NULL, 10) : 64) << 20;
	struct user u = { 0 };
	int ready[2], how;
	double begun;
	pid_t pid;
	char byte;

	setlinebuf(stdout);
	if (pipe(ready))
		return 1;
	pid = fork();
	if (pid == 0)
		client(ready[1], bytes);
	close(ready[1]);
	if (read(ready[0], &byte, 1) != 1)
		fail("the client does not begin", -EPIPE);
	waitpid(pid, &how, WUNTRACED);
	begin(&u, bytes);
	for (uint32_t n = 0; n < u.blocks; n++) {
		tier_key key = key_of(n);

		must(tier_delete(u.c, &key, 1), "delete");
	}
	if (!comes_to(&u, "ended", true))
		fail("the connection does not end", -ETIMEDOUT);
	begun = now_us();
	if (!comes_to(&u, "quarantined", false))
		fail("its memory is not free", -EBUSY);
	printf("%u MiB that a stopped client leased are free at look %u\n",
	       (unsigned)(bytes >> 20), looks);
	printf("figure: %.0f us of a look at what it leased, after the end of its connection\n",
	       now_us() - begun);
	put(&u, 5000, u.blocks); /* all of it, for others */
	kill(pid, SIGCONT);
	waitpid(pid, &how, 0);
	if (!WIFEXITED(how) || WEXITSTATUS(how)) {
		printf("stopped: the client ended by %x\n", (unsigned)how);
		return 1;
	}
	tier_close(u.t);
	return 0;
}
