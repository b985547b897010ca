/* SPDX-License-Identifier: Apache-2.0 */
/*
 * poison clean FIRST: durable blocks are put from FIRST on; memory of the daemon gets poison
 *     (MADV_HWPOISON, of a page under a lease) while two clients lease it, one with a handler of
 *     SIGBUS of its own. Both live, both leases are misses, others' blocks are read.
 * poison dirty FIRST: the same to a block that has not been written to the store: puts go on, the
 *     durable ones too.
 * poison verify FIRST: what is there of such blocks has the right bytes. Prints how many.
 *
 * A client poisons what it has mapped: it must be root.
 */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tier.h"

#ifndef MADV_HWPOISON
#define MADV_HWPOISON 100
#endif
#define CONTEXT "poison"
#define BLOCKS 24u /* 6 MiB */

static void fail(const char *what, int64_t rc)
{
	printf("poison: %s: %s (%s)\n", what, tier_strerror((int)rc), tier_error_text());
	exit(1);
}

static void must(int64_t rc, const char *what)
{
	if (rc < 0)
		fail(what, rc);
}

struct user {
	tier *t;
	tier_context *c;
	tier_geometry *g;
	tier_reader *r;
};

static void begin(struct user *u)
{
	/* 256 KiB a block. */
	const struct tier_part part = { .name = "kv", .kind = TIER_KIND_DENSE, .layers = 2,
					.groups = 2, .page_bytes = 64 << 10 };
	const struct tier_geometry_options geometry = { .size = sizeof(geometry),
							.part_count = 1,
							.part = &part };
	const struct tier_context_options options = { .size = sizeof(options),
						      .blocks_max = 4096 };

	must(tier_connect(&u->t, NULL), "connect");
	must(tier_geometry_new(&u->g, &geometry), "geometry");
	must(tier_context_create(u->t, CONTEXT, u->g, &options, &u->c), "context");
	must(tier_reader_open(u->t, &u->r), "reader");
}

static tier_key key_of(uint32_t n)
{
	tier_key key;

	tier_key_opaque(&key, &n, sizeof(n), NULL);
	return key;
}

/* Block n is full of its number. */
static void put(struct user *u, uint32_t n, uint32_t flags)
{
	struct tier_put_options options = { .size = sizeof(options), .flags = flags };
	size_t bytes = tier_geometry_block_bytes(u->g);
	uint8_t *data = malloc(bytes);
	tier_key key = key_of(n);

	if (!data)
		fail("put", -ENOMEM);
	memset(data, (int)(n % 251 + 1), bytes);
	must(tier_put_copy(u->c, &key, 1, data, &options), "put");
	free(data);
}

static void lease(struct user *u, uint32_t n, struct tier_lease *out)
{
	tier_key key = key_of(n);

	must(tier_lease_key(u->r, u->c, &key, 1, 0, out), "lease");
}

/* The bytes of a lease: 0 right, else what tier_lease_check says. */
static int look(const struct tier_lease *l, uint32_t n)
{
	const volatile uint8_t *at = l->data;
	bool right = true;
	int rc;

	for (uint32_t i = 0; i < l->bytes; i += 512)
		right &= at[i] == (uint8_t)(n % 251 + 1);
	rc = tier_lease_check(l);
	if (!rc && !right)
		fail("bytes that are not those of the page", -EBADMSG);
	return rc;
}

static void poison(const struct tier_lease *l)
{
	uintptr_t page = ((uintptr_t)l->data + l->bytes / 2) & ~4095ul;

	if (madvise((void *)page, 4096, MADV_HWPOISON))
		fail("MADV_HWPOISON", -errno);
}

/* ---- clean ---------------------------------------------------------------------------------- */

static volatile sig_atomic_t faults;

static void engine(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)context;
	faults++;
	if (!tier_fault(info->si_addr))
		_exit(51);
}

/* Another client with the library's handler: it looks when it is told to. */
static void other(uint32_t first, int ready, int go)
{
	struct tier_lease l, apart;
	struct user u = { 0 };
	char byte = 'x';

	begin(&u);
	lease(&u, first, &l);
	if (write(ready, &byte, 1) != 1 || read(go, &byte, 1) != 1)
		_exit(52);
	if (look(&l, first) != -ENODATA)
		_exit(53);
	tier_release(u.r, &l);
	lease(&u, first + BLOCKS - 1, &apart); /* more than 2 MiB away */
	_exit(look(&apart, first + BLOCKS - 1) ? 54 : 0);
}

static void clean(uint32_t first)
{
	struct sigaction action = { .sa_sigaction = engine, .sa_flags = SA_SIGINFO };
	int ready[2], go[2], how;
	struct user u = { 0 };
	struct tier_lease l;
	char byte;
	pid_t pid;

	begin(&u);
	for (uint32_t n = first; n < first + BLOCKS; n++)
		put(&u, n, TIER_PUT_DURABLE);
	if (pipe(ready) || pipe(go))
		fail("pipe", -errno);
	pid = fork();
	if (!pid)
		other(first, ready[1], go[0]);
	close(ready[1]);
	if (read(ready[0], &byte, 1) != 1)
		fail("another client does not begin", -EPIPE);
	lease(&u, first, &l);
	sigaction(SIGBUS, &action, NULL);
	poison(&l);
	if (look(&l, first) != -ENODATA || !faults)
		fail("a poisoned lease is no miss", 0);
	tier_release(u.r, &l);
	if (write(go[1], "x", 1) != 1)
		fail("pipe", -errno);
	waitpid(pid, &how, 0);
	if (!WIFEXITED(how) || WEXITSTATUS(how)) {
		printf("poison: another client ended by %x\n", (unsigned)how);
		exit(1);
	}
	lease(&u, first + BLOCKS - 1, &l);
	if (look(&l, first + BLOCKS - 1))
		fail("what has no poison is no hit", 0);
	tier_release(u.r, &l);
	tier_close(u.t);
	printf("poison under two leases: both are misses, both clients live and read on\n");
}

/* ---- dirty ---------------------------------------------------------------------------------- */

static void dirty(uint32_t first)
{
	struct user u = { 0 };
	struct tier_lease l;

	begin(&u);
	put(&u, first, 0);
	lease(&u, first, &l);
	poison(&l);
	tier_release(u.r, &l);
	for (uint32_t n = 1; n < BLOCKS; n++)
		put(&u, first + n, n & 1 ? TIER_PUT_DURABLE : 0);
	tier_close(u.t);
	printf("poison of a block that was not written: puts go on\n");
}

static int verify_block(struct user *u, uint32_t n)
{
	struct tier_found found;
	struct tier_page page;
	struct tier_lease l;
	tier_key key = key_of(n);
	int rc = -ENOENT;

	if (tier_match(u->c, &key, 1, &found) != 1)
		return rc;
	page = (struct tier_page){ found.block, 1 };
	if (tier_read_pages(u->r, u->c, &page, 1, 0, &l) != 1)
		return l.error ? l.error : -ENODATA;
	rc = look(&l, n);
	tier_release(u->r, &l);
	return rc;
}

static void verify(uint32_t first)
{
	struct user u = { 0 };
	uint32_t right = 0;

	begin(&u);
	for (uint32_t n = first; n < first + BLOCKS; n++)
		right += verify_block(&u, n) == 0;
	tier_close(u.t);
	printf("%u of %u blocks are there and right\n", right, BLOCKS);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*does)(uint32_t first);
	} verb[] = { { "clean", clean }, { "dirty", dirty }, { "verify", verify } };

	setlinebuf(stdout);
	for (uint32_t i = 0; argc == 3 && i < sizeof(verb) / sizeof(verb[0]); i++)
		if (!strcmp(argv[1], verb[i].name)) {
			verb[i].does((uint32_t)atoi(argv[2]));
			return 0;
		}
	fputs("usage: poison clean|dirty|verify FIRST\n", stderr);
	return 2;
}
