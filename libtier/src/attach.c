/*
 * Attachments; see attach.h and the head of connection.h.
 *
 * Exchange: a new attachment and new maps of all contexts are made first; then, under both locks,
 * requests under way are failed and the words that readers follow are replaced. The old attachment
 * goes to tier.old. It is unmapped once no call is inside it and no lease or put needs its memory,
 * which is looked at again at each exchange and each tier_check: memory of a dead daemon must not
 * stay allocated because one thread of an engine sleeps.
 *
 * Handover: a daemon that another one follows says so when it ends (ABI_CLOSED_HANDOVER). Then
 * nothing fails: whoever notices attaches to the next one, which listens on the same socket, and
 * what the former daemon had not answered is asked again (request.c). If it cannot be had all ends
 * as behind a crash.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "libtier/src/attach.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "libtier/abi/object.h"
#include "libtier/base/time.h"
#include "libtier/src/context.h"
#include "libtier/src/error.h"
#include "libtier/src/reader.h"
#include "libtier/src/submit.h"
#include "libtier/src/wait.h"

#define ATTACH_FDS 4u
#define ATTACH_PUTS_MAX 4096u /* allocations of puts in the staging arena, beside requests' */

/* ---- making one ------------------------------------------------------------------------------ */

static struct attachment *attachment_new(struct tier *t)
{
	struct attachment *a = NULL;

	LOCK_SCOPE(&t->lock);
	if (list_empty(&t->spare)) {
		a = calloc(1, sizeof(*a));
		if (!a)
			return NULL;
	} else {
		a = list_entry(list_pop_front(&t->spare), struct attachment, link);
	}
	list_init(&a->link);
	list_init(&a->maps);
	a->number = ++t->last_number;
	a->readers_max = 0;
	a->readers = NULL;
	a->dead = false;
	a->puts = a->streams = 0;
	a->stream_used = 0;
	a->stream_serial = 0;
	memset(a->stream_word, 0, sizeof(a->stream_word));
	a->streams_max = 0;
	a->lines = NULL;
	a->socket = (struct socket){ .fd = -1 };
	a->doorbell = -1;
	a->event = -1;
	a->staging = NULL;
	a->region = NULL;
	arena_init(&a->arena, 0, 0);
	return a;
}

/* Gives back all it holds; the struct goes to the spare ones. */
static void attachment_drop(struct tier *t, struct attachment *a) REQUIRES(t->lock)
{
	list_each(at, &a->maps)
		map_close(list_entry(at, struct map, link));
	socket_close(&a->socket);
	if (a->doorbell >= 0)
		close(a->doorbell);
	if (a->event >= 0)
		close(a->event);
	if (a->staging)
		munmap(a->staging, a->staging_bytes);
	if (a->region)
		munmap(a->region, a->region_bytes);
	arena_fini(&a->arena);
	list_remove(&a->link);
	list_push_back(&t->spare, &a->link);
}

/* A daemon without streams has none: tier_stream_open says so. */
static void map_streams(struct attachment *a, const struct abi_region_header *h)
{
	uint64_t offset = h->stream_offset;
	uint32_t count = h->streams_max < ABI_STREAMS_MAX ? h->streams_max : ABI_STREAMS_MAX;

	if (!(h->features & ABI_REGION_STREAMS) || offset % sizeof(struct abi_stream) ||
	    offset > a->region_bytes ||
	    count > (a->region_bytes - offset) / sizeof(struct abi_stream))
		return;
	a->lines = (void *)((uint8_t *)a->region + offset);
	a->streams_max = count;
}

static int map_region(struct attachment *a, int fd, uint64_t boot_token)
{
	struct abi_region_header *h;
	struct stat st;
	int rc;

	if (fstat(fd, &st) != 0 || (uint64_t)st.st_size < sizeof(*h))
		return error_note(-EPROTO, "the client region is too small");
	rc = map_shared(&a->region, fd, (uint64_t)st.st_size, PROT_READ | PROT_WRITE);
	if (rc)
		return rc;
	a->region_bytes = (uint64_t)st.st_size;
	rc = ring_open(&a->ring, a->region, a->region_bytes);
	if (rc)
		return rc;
	h = a->region;
	if (h->boot_token != boot_token)
		return error_note(-EPROTO, "the client region is of another boot of the daemon");
	a->boot_token = boot_token;
	a->readers_max = h->readers_max;
	a->readers = (void *)((uint8_t *)a->region + h->reader_offset);
	if (a->readers_max > ABI_READERS_MAX ||
	    h->reader_offset + a->readers_max * sizeof(struct abi_reader) > a->region_bytes)
		return error_note(-EPROTO, "the client region changed while it was read");
	map_streams(a, h);
	return 0;
}

static int map_staging(struct tier *t, struct attachment *a, int fd, uint64_t bytes)
{
	struct stat st;
	void *base;
	int rc;

	if (bytes < ARENA_ALIGN || fstat(fd, &st) != 0 || (uint64_t)st.st_size < bytes)
		return error_note(-EPROTO, "the staging arena is not as large as announced");
	rc = map_shared(&base, fd, bytes, PROT_READ | PROT_WRITE);
	if (rc)
		return rc;
	a->staging = base;
	a->staging_bytes = bytes;
	arena_fini(&a->arena);
	rc = arena_init(&a->arena, bytes, t->request_entries * 2 + ATTACH_PUTS_MAX);
	return rc ? error_note(rc, "staging: out of memory") : 0;
}

static int take_welcome(struct tier *t, struct attachment *a) REQUIRES(t->wire)
{
	struct message *m = t->message;
	int rc;

	if (m->fd_count != ATTACH_FDS)
		return error_set(-EPROTO, "the daemon's welcome carries %u descriptors, not %u",
				 m->fd_count, ATTACH_FDS);
	a->owners = m->welcome.flags & WIRE_OWNERS;
	a->usage = m->welcome.flags & WIRE_USAGE;
	a->slabs = m->welcome.flags & WIRE_SLABS;
	a->places = m->welcome.flags & WIRE_PLACES;
	rc = map_region(a, m->fd[0], m->welcome.boot_token);
	if (rc == 0)
		rc = map_staging(t, a, m->fd[1], m->welcome.staging_bytes);
	if (rc)
		return rc;
	/* R5. Whether it must be is the daemon's to judge: one that came before R5 forbids it. */
	for (uint32_t i = 0; i < 2; i++)
		fcntl(m->fd[i], F_ADD_SEALS, ABI_CLIENT_SEALS);
	a->doorbell = message_take_fd(m, 2);
	a->event = message_take_fd(m, 3);
	return 0;
}

/* Connect and shake hands. */
static int attachment_open(struct tier *t, uint64_t deadline_ns, struct attachment **out)
	REQUIRES(t->wire)
{
	struct wire_hello hello = {
		.header.type = WIRE_HELLO,
		.features = WIRE_HELLO_DEVICE,
		.staging_bytes = t->staging_bytes,
		.sq_entries = t->request_entries,
		.readers = t->readers_wanted,
	};
	struct attachment *a = attachment_new(t);
	int rc;

	if (!a)
		return error_note(-ENOMEM, "connect: out of memory");
	memcpy(hello.name, t->name, sizeof(hello.name));
	rc = socket_open(&a->socket, t->path, deadline_ns);
	if (rc == 0)
		rc = socket_send(&a->socket, &hello.header, sizeof(hello), deadline_ns);
	if (rc == 0)
		rc = socket_receive(&a->socket, t->message, WIRE_WELCOME, deadline_ns);
	if (rc == 0) {
		rc = take_welcome(t, a);
		message_drop(t->message);
	}
	if (rc) {
		LOCK_SCOPE(&t->lock);
		attachment_drop(t, a);
		return rc;
	}
	*out = a;
	return 0;
}

/* ---- exchanging ------------------------------------------------------------------------------ */

void attach_fail(struct tier *t, struct attachment *a)
{
	if (a->dead || a != connection_attachment(t))
		return;
	submit_answers(t, a);
	a->dead = true;
	wait_event_forget(t, a);
	if (ring_handed_over(&a->ring)) {
		t->handover_ns = time_now_ns() + CONNECTION_HANDOVER_NS;
		wait_moved(t);
	} else {
		request_fail_all(t, -ENOTCONN);
	}
}

bool attach_is_over(const struct attachment *a)
{
	return a->dead || ring_closed(&a->ring) || socket_hung_up(&a->socket);
}

static void exchange(struct tier *t, struct attachment *a) EXCLUDES(t->lock)
{
	struct attachment *before = connection_attachment(t);

	LOCK_SCOPE(&t->lock);
	if (before) {
		attach_fail(t, before);
		list_push_back(&t->old, &before->link);
		t->reattached++;
	}
	atomic_store_release_u64(&t->attachment_word, (uintptr_t)a);
	list_each(at, &a->maps) {
		struct map *m = list_entry(at, struct map, link);
		struct tier_context *c = m->owner;

		atomic_store_release_u64(&c->map_word, (uintptr_t)m);
	}
	wait_event_follow(t, a);
	if (t->handover_ns)
		again_all(t, before);
	else
		t->unbroken = a->number;
	t->handover_ns = 0;
	pthread_cond_broadcast(&t->moved);
	attach_reclaim(t);
}

int attach_first(struct tier *t)
{
	struct attachment *a;
	int rc = attachment_open(t, time_now_ns() + CONNECTION_CONNECT_NS, &a);

	if (rc)
		return rc;
	exchange(t, a);
	LOCK_SCOPE(&t->lock);
	t->checked_number = a->number;
	return 0;
}

/* A map of every context in the new attachment; contexts that are gone get an empty one. */
static int reopen_contexts(struct tier *t, struct attachment *a, uint64_t deadline_ns)
	REQUIRES(t->wire)
{
	list_each(at, &t->contexts) {
		struct tier_context *c = list_entry(at, struct tier_context, link);
		struct map *m;
		int rc = context_reopen(t, c, a, deadline_ns, &m);

		if (rc == 0 && !m)
			rc = map_open_lost(&m, context_map(c), a->number);
		if (rc)
			return rc;
		m->owner = c;
		list_push_back(&a->maps, &m->link);
	}
	return 0;
}

static int attach_try(struct tier *t, uint64_t deadline_ns, struct attachment **out)
	REQUIRES(t->wire)
{
	int rc = attachment_open(t, deadline_ns, out);

	if (rc)
		return rc;
	rc = reopen_contexts(t, *out, deadline_ns);
	if (rc) {
		LOCK_SCOPE(&t->lock);
		attachment_drop(t, *out);
	}
	return rc;
}

static uint64_t handover_until(struct tier *t)
{
	LOCK_SCOPE(&t->lock);
	return t->handover_ns;
}

/*
 * The next daemon. It may be short of places for clients until it has let go of those of the former
 * one. If it died its socket is gone.
 */
static int attach_next(struct tier *t, uint64_t until_ns, struct attachment **out)
	REQUIRES(t->wire)
{
	int rc;

	while ((rc = attach_try(t, until_ns, out)) == -ENOTCONN || rc == -EUSERS) {
		if (time_now_ns() >= until_ns)
			break;
		usleep(1000);
	}
	if (rc) {
		LOCK_SCOPE(&t->lock);
		t->handover_ns = 0;
		request_fail_all(t, -ENOTCONN);
	}
	return rc;
}

static int attach_again(struct tier *t) REQUIRES(t->wire)
{
	uint64_t until_ns = handover_until(t);
	struct attachment *a;
	int rc = until_ns ? attach_next(t, until_ns, &a)
			  : attach_try(t, time_now_ns() + CONNECTION_REATTACH_NS, &a);

	if (rc) {
		/* One that is there but does not answer costs its time-out at each try. */
		t->retry_ns = time_now_ns() +
			      (rc == -ETIMEDOUT ? CONNECTION_REATTACH_NS : CONNECTION_BACKOFF_NS);
		return -ENOTCONN;
	}
	exchange(t, a);
	return 0;
}

static bool is_alive(struct tier *t)
{
	LOCK_SCOPE(&t->lock);
	return !connection_attachment(t)->dead;
}

int attach_ensure_wired(struct tier *t)
{
	if (is_alive(t))
		return 0;
	if (!handover_until(t) && time_now_ns() < t->retry_ns)
		return error_note(-ENOTCONN, "the daemon is away; start tierd, and the library "
					     "re-attaches by itself");
	return attach_again(t);
}

/* pthread_mutex_trylock as the analysis must see it. */
static bool wire_try(struct tier *t) LOCK_ATTRIBUTE(try_acquire_capability(true, t->wire))
	LOCK_ATTRIBUTE(no_thread_safety_analysis)
{
	return pthread_mutex_trylock(&t->wire.mutex) == 0;
}

/* Of a daemon that hands over: whoever attaches anew is waited for. */
static bool wire_take(struct tier *t) LOCK_ATTRIBUTE(try_acquire_capability(true, t->wire))
	LOCK_ATTRIBUTE(no_thread_safety_analysis)
{
	if (!handover_until(t))
		return wire_try(t);
	lock_acquire(&t->wire);
	return true;
}

int attach_ensure(struct tier *t)
{
	int rc;

	if (is_alive(t))
		return 0;
	if (!wire_take(t)) /* whoever has it may have attached since we looked */
		return is_alive(t) ? 0 : error_note(-ENOTCONN, "the daemon is away; another thread "
							       "is re-attaching");
	rc = attach_ensure_wired(t);
	lock_release(&t->wire);
	return rc;
}

void attach_follow(struct tier *t)
{
	lock_release(&t->lock);
	attach_ensure(t);
	lock_acquire(&t->lock);
}

static bool has_lost(struct tier *t)
{
	LOCK_SCOPE(&t->lock);
	list_each(at, &t->contexts)
		if (context_map(list_entry(at, struct tier_context, link))->lost)
			return true;
	return false;
}

/* Within an attachment: the empty map stays, unused, until the attachment goes. */
static void find_again(struct tier *t, struct tier_context *c) REQUIRES(t->wire)
{
	struct attachment *a = connection_attachment(t);
	struct map *m;

	if (!context_map(c)->lost ||
	    context_reopen(t, c, a, time_now_ns() + CONNECTION_REATTACH_NS, &m) != 0 || !m)
		return;
	LOCK_SCOPE(&t->lock);
	list_push_back(&a->maps, &m->link);
	atomic_store_release_u64(&c->map_word, (uintptr_t)m);
}

void attach_retry_lost(struct tier *t)
{
	if (!has_lost(t) || !wire_try(t))
		return;
	if (time_now_ns() >= t->retry_ns) {
		list_each(at, &t->contexts)
			find_again(t, list_entry(at, struct tier_context, link));
		t->retry_ns = time_now_ns() + CONNECTION_REATTACH_NS;
	}
	lock_release(&t->wire);
}

/* ---- letting go ------------------------------------------------------------------------------ */

static bool is_used(struct tier *t, struct attachment *a) REQUIRES(t->lock)
{
	if (a->puts > 0 || a->streams > 0 || atomic_load_acquire_u32(&a->users) > 0)
		return true;
	list_each(at, &t->readers)
		if (reader_uses(list_entry(at, struct tier_reader, link), a->number))
			return true;
	return false;
}

void attach_reclaim(struct tier *t)
{
	if (list_empty(&t->old))
		return;
	/*
	 * The words that were replaced before whatever is read next, here and in every thread: a
	 * call that we do not see inside below has seen the new words. The other halves are in
	 * reader_enter and context_enter.
	 */
	full_fence();
	if (syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) != 0)
		return;
	list_each(at, &t->old) {
		struct attachment *a = list_entry(at, struct attachment, link);

		if (!is_used(t, a))
			attachment_drop(t, a);
	}
}

void attach_drop_all(struct tier *t)
{
	struct attachment *a = connection_attachment(t);

	if (a) {
		/* No reader is open any more: the daemon need not wait for our death (R4). */
		atomic_store_release_u32(&a->ring.shared->goodbye, 1);
		list_push_back(&t->old, &a->link);
	}
	atomic_store_release_u64(&t->attachment_word, 0);
	list_each(at, &t->old)
		attachment_drop(t, list_entry(at, struct attachment, link));
	list_each(at, &t->spare) {
		list_remove(at);
		free(list_entry(at, struct attachment, link));
	}
}

/* ---- asking ---------------------------------------------------------------------------------- */

static int ask_once(struct tier *t, struct wire_header *question, size_t bytes, uint16_t answer)
	REQUIRES(t->wire)
{
	struct attachment *a = connection_attachment(t);
	uint64_t deadline_ns = time_now_ns() + CONNECTION_ANSWER_NS;
	int rc = socket_send(&a->socket, question, bytes, deadline_ns);

	if (rc == 0)
		rc = socket_receive(&a->socket, t->message, answer, deadline_ns);
	if (rc == -ENOTCONN && !socket_hung_up(&a->socket))
		return rc; /* an answer of the daemon's */
	if (rc == -ENOTCONN || rc == -EPROTO) {
		LOCK_SCOPE(&t->lock);
		attach_fail(t, a);
	}
	return rc;
}

/* It speaks of what the next daemon knows as the former one did. */
static bool may_ask_again(uint16_t type)
{
	return type != WIRE_SLAB_TAKE && type != WIRE_SLAB_LEAVE && type != WIRE_PLACE &&
	       type != WIRE_OBJ_COMMIT && type != WIRE_OBJ_ABORT && type != WIRE_OBJ_HOLD;
}

int attach_ask(struct tier *t, struct wire_header *question, size_t bytes, uint16_t answer)
{
	int rc = ask_once(t, question, bytes, answer);

	if (rc != -ENOTCONN || !handover_until(t) || !may_ask_again(question->type))
		return rc;
	rc = attach_ensure_wired(t);
	return rc ? rc : ask_once(t, question, bytes, answer);
}
