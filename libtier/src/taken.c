/*
 * What becomes of a SIGBUS in a tier's memory; see taken.h.
 *
 * The handler lays zeros over the piece of 2 MiB that faulted, so that the instruction goes on, and
 * marks the piece before that: who has read a zero of it finds the mark. Where more of them are
 * taken than an entry can note, all of its memory is. An entry's base is written last and cleared
 * first, since the handler takes no lock.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "libtier/src/taken.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <tier.h>
#include <unistd.h>

#include "libtier/abi/common.h"
#include "libtier/base/atomic.h"
#include "libtier/src/error.h"

#define ENTRY_TAKEN 1u
#define PIECES_MAX 16u
#define PLACES_MAX 256u /* of puts that are open */
#define ENTRIES_MAX (ABI_MEM_TIERS * ABI_CONTEXTS_MAX + PLACES_MAX)

struct entry {
	uint64_t base; /* atomic; 0 = free, ENTRY_TAKEN = being written */
	uint64_t bytes;
	uint64_t *usable; /* atomic; NULL = it is written */
	uint32_t taken;	  /* atomic: how many pieces, */
	pid_t pid;	  /* whose: a forked child has no mapping there */
	uint32_t piece[PIECES_MAX]; /* atomic: ... and 1 + which */
};

static uint32_t installed;	/* atomic */
static struct sigaction before; /* written once, before the handler is there */
static struct entry table[ENTRIES_MAX];
static uint32_t used;	  /* atomic: entries below have been in use */
static uint32_t any_ever; /* atomic: some memory was taken */

static struct entry *entry_of(uint64_t address)
{
	uint32_t count = atomic_load_acquire_u32(&used);
	pid_t pid = getpid();

	for (uint32_t i = 0; i < count; i++) {
		struct entry *e = &table[i];
		uint64_t base = atomic_load_acquire_u64(&e->base);

		if (base && address >= base && address - base < e->bytes && e->pid == pid)
			return e;
	}
	return NULL;
}

/* Is none of these bytes in a piece that was taken? */
static bool intact(const struct entry *e, uint64_t offset, uint64_t bytes)
{
	uint32_t count = atomic_load_acquire_u32(&e->taken);
	uint64_t first = offset / ABI_HUGE, last = (offset + bytes - 1) / ABI_HUGE;

	if (count > PIECES_MAX)
		return false;
	for (uint32_t i = 0; i < count; i++) {
		uint64_t piece = atomic_load_acquire_u32(&e->piece[i]);

		if (!piece || (piece - 1 >= first && piece - 1 <= last)) /* 0: just being noted */
			return false;
	}
	return true;
}

static void mark(struct entry *e, uint32_t piece)
{
	uint32_t at = atomic_load_acquire_u32(&e->taken);

	for (uint32_t i = 0; i < at && i < PIECES_MAX; i++)
		if (atomic_load_relaxed_u32(&e->piece[i]) == piece + 1)
			return;
	while (at <= PIECES_MAX && !atomic_cas_u32(&e->taken, &at, at + 1))
		;
	if (at < PIECES_MAX)
		atomic_store_release_u32(&e->piece[at], piece + 1);
}

int tier_fault(const void *address)
{
	uint64_t at = (uintptr_t)address, piece, end;
	struct entry *e = entry_of(at);
	void *laid;

	if (!e)
		return 0;
	piece = e->base + (at - e->base) / ABI_HUGE * ABI_HUGE;
	end = e->base + e->bytes;
	if (end - piece > ABI_HUGE)
		end = piece + ABI_HUGE;
	mark(e, (uint32_t)((piece - e->base) / ABI_HUGE));
	if (e->usable)
		atomic_store_relaxed_u64(e->usable, 0);
	atomic_store_release_u32(&any_ever, 1);
	laid = mmap((void *)(uintptr_t)piece, end - piece,
		    e->usable ? PROT_READ : PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	return laid != MAP_FAILED;
}

int tier_lease_check(const struct tier_lease *lease)
{
	struct entry *e;

	if (!lease || !lease->data)
		return error_note(-EINVAL, "tier_lease_check: the lease holds nothing");
	if (!atomic_load_acquire_u32(&any_ever))
		return 0;
	e = entry_of((uintptr_t)lease->data);
	if (!e || intact(e, (uintptr_t)lease->data - e->base, lease->bytes))
		return 0;
	return error_note(-ENODATA, "lease: its memory was taken away while it was read (the "
				    "connection ended, or the device failed); it is a miss");
}

/* ---- the signal ------------------------------------------------------------------------------ */

static void on_bus(int signal, siginfo_t *info, void *context)
{
	int saved = errno;
	bool ours = info->si_code > 0 && tier_fault(info->si_addr);

	errno = saved;
	if (ours)
		return;
	if (before.sa_flags & SA_SIGINFO) {
		before.sa_sigaction(signal, info, context);
		return;
	}
	if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
		before.sa_handler(signal);
		return;
	}
	/* As without us: a fault comes again when we return, what was sent is sent again. */
	if (info->si_code > 0 || before.sa_handler == SIG_DFL)
		sigaction(SIGBUS, &(struct sigaction){ .sa_handler = SIG_DFL }, NULL);
	if (info->si_code <= 0 && before.sa_handler == SIG_DFL)
		raise(SIGBUS);
}

static int install(void)
{
	struct sigaction action = { .sa_sigaction = on_bus,
				    .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART };
	uint32_t no = 0;

	if (!atomic_cas_u32(&installed, &no, 1))
		return 0;
	if (sigaction(SIGBUS, NULL, &before) || sigaction(SIGBUS, &action, NULL))
		return error_set(-errno, "cannot set a handler of SIGBUS: %s", strerror(errno));
	return 0;
}

/* An entry that nobody else has. No lock: a forked child would find it taken. */
static uint32_t entry_take(void)
{
	for (uint32_t i = 0; i < ENTRIES_MAX; i++) {
		uint64_t free_base = 0;
		uint32_t count = atomic_load_relaxed_u32(&used);

		if (!atomic_cas_u64(&table[i].base, &free_base, ENTRY_TAKEN))
			continue;
		while (count <= i && !atomic_cas_u32(&used, &count, i + 1))
			;
		return i;
	}
	return ENTRIES_MAX;
}

int taken_watch(const void *base, uint64_t bytes, uint64_t *usable)
{
	uint32_t i;
	int rc = install();

	if (rc)
		return rc;
	i = entry_take();
	if (i == ENTRIES_MAX)
		return error_note(-ENFILE, "context: the process has too many of them open");
	table[i].bytes = bytes;
	table[i].usable = usable;
	table[i].pid = getpid();
	atomic_store_relaxed_u32(&table[i].taken, 0);
	memset(table[i].piece, 0, sizeof(table[i].piece));
	atomic_store_release_u64(&table[i].base, (uintptr_t)base);
	return (int)i;
}

void taken_forget(int entry)
{
	if (entry >= 0)
		atomic_store_release_u64(&table[entry].base, 0);
}

bool taken_intact(int entry, uint64_t offset, uint64_t bytes)
{
	return entry >= 0 && intact(&table[entry], offset, bytes);
}
