/*
 * The connection as a handle: connect, close, check, accounts, and how a call says that it is
 * inside. Attaching itself is attach.c's.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "libtier/src/connection.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "libtier/base/time.h"
#include "libtier/src/attach.h"
#include "libtier/src/device.h"
#include "libtier/src/error.h"
#include "libtier/src/options.h"
#include "libtier/src/object.h"
#include "libtier/src/promise.h"
#include "libtier/src/put.h"
#include "libtier/src/stream.h"
#include "libtier/src/reader.h"

#define ENTER_TRIES 1024 /* an exchange replaces its words within microseconds */

int connection_check(const struct tier *t)
{
	if (unlikely(!t))
		return error_note(-EINVAL, "the connection is NULL");
	if (connection_orphaned(t->alive))
		return error_note(-EOWNERDEAD, "the connection belongs to the parent process; "
					       "connect anew after fork");
	return 0;
}

int context_check(const struct tier_context *c)
{
	if (unlikely(!c))
		return error_note(-EINVAL, "the context is NULL");
	return connection_check(c->t);
}

const struct map *context_enter(struct tier_context *c, struct attachment **out)
{
	for (int i = 0; i < ENTER_TRIES; i++) {
		struct attachment *a = connection_attachment(c->t);
		const struct map *m;

		atomic_add_u32(&a->users, 1);
		/* Our count before our look at the word; attach_reclaim does the reverse, and
		 * pays for both. */
		asymmetric_light_fence();
		if (likely(connection_attachment(c->t) == a)) {
			m = context_map(c);
			if (likely(m->number == a->number)) {
				*out = a;
				return m;
			}
		}
		atomic_sub_u32(&a->users, 1);
		cpu_relax();
	}
	return NULL;
}

void context_leave(struct attachment *a)
{
	atomic_sub_u32(&a->users, 1);
}

/* ---- connect --------------------------------------------------------------------------------- */

_Static_assert(CONNECTION_PATH_BYTES <= sizeof(((struct sockaddr_un *)0)->sun_path), "it fits");

static int choose_path(char *path, const char *wanted)
{
	const char *dir = secure_getenv("XDG_RUNTIME_DIR");
	const char *from = wanted ? wanted : secure_getenv("TIER_SOCKET");
	char own[CONNECTION_PATH_BYTES];

	if (!wanted && from && !*from)
		from = NULL;
	if (!from && dir && snprintf(own, sizeof(own), "%s/tier.sock", dir) < (int)sizeof(own) &&
	    access(own, F_OK) == 0)
		from = own;
	if (!from)
		from = "/run/tier/tier.sock";
	if (from[0] == '\0' || strlen(from) >= CONNECTION_PATH_BYTES)
		return error_set(-EINVAL, "connect: the socket's path has not 1 to %u characters",
				 CONNECTION_PATH_BYTES - 1);
	memcpy(path, from, strlen(from) + 1);
	return 0;
}

static int take_options(struct tier *t, const struct tier_connect_options *options)
{
	struct tier_connect_options o;
	const char *name;
	int rc = options_read(&o, sizeof(o), options);

	if (rc == 0)
		rc = choose_path(t->path, o.socket);
	if (rc)
		return rc;
	t->request_entries = o.requests ? o.requests : CONNECTION_REQUESTS_DEFAULT;
	t->readers_wanted = o.readers ? o.readers : CONNECTION_READERS_DEFAULT;
	t->staging_bytes = o.staging_bytes ? o.staging_bytes : CONNECTION_STAGING_DEFAULT;
	if ((t->request_entries & (t->request_entries - 1)) ||
	    t->request_entries > CONNECTION_REQUESTS_MAX)
		return error_set(-EINVAL, "connect: requests %u is not a power of two up to %u",
				 t->request_entries, CONNECTION_REQUESTS_MAX);
	if (t->readers_wanted > ABI_READERS_MAX)
		return error_set(-EINVAL, "connect: readers %u is more than %u", t->readers_wanted,
				 ABI_READERS_MAX);
	if (t->staging_bytes > 1ull << 46)
		return error_note(-EINVAL, "connect: staging_bytes is beyond all memory");
	name = o.name ? o.name : program_invocation_short_name;
	memcpy(t->name, name, strnlen(name, sizeof(t->name) - 1));
	return 0;
}

/* A word that is 1 here and 0 in forked children. */
static int make_alive(struct tier *t)
{
	size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
	uint32_t *word = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			      0);

	if (word == MAP_FAILED)
		return error_note(-ENOMEM, "connect: out of memory");
	t->alive = word;
	if (madvise(word, bytes, MADV_WIPEONFORK) != 0)
		return error_set(-errno, "connect: the kernel cannot mark memory as wiped on fork");
	*word = 1;
	return 0;
}

static int register_membarrier(void)
{
	if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0)
		return 0;
	return error_set(-errno, "connect: membarrier is refused (%s); allow it in the sandbox: "
				 "leases are safe only with it", strerror(errno));
}

static int make_parts(struct tier *t)
{
	pthread_condattr_t attributes;
	int rc = requests_init(&t->requests, 2 * t->request_entries + REQUEST_SYNC_RESERVE);

	if (rc)
		return error_note(rc, "connect: out of memory");
	t->message = malloc(sizeof(*t->message));
	if (!t->message)
		return error_note(-ENOMEM, "connect: out of memory");
	t->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	t->own.notify = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (t->wake < 0 || t->own.notify < 0)
		return error_set(-errno, "connect: no event descriptor: %s", strerror(errno));
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	rc = -pthread_cond_init(&t->moved, &attributes);
	pthread_condattr_destroy(&attributes);
	return rc;
}

static void connection_free(struct tier *t)
{
	{
		LOCK_SCOPE(&t->lock);
		promise_forget(t, NULL);
		attach_drop_all(t);
	}
	queue_fini(&t->own);
	if (t->hosts_fd >= 0)
		close(t->hosts_fd);
	if (t->wake >= 0)
		close(t->wake);
	requests_fini(&t->requests);
	free(t->message);
	if (t->alive)
		munmap((void *)(uintptr_t)t->alive, (size_t)sysconf(_SC_PAGESIZE));
	pthread_cond_destroy(&t->moved);
	lock_fini(&t->lock);
	lock_fini(&t->wire);
	lock_fini(&t->copy);
	free(t);
}

static struct tier *connection_new(void)
{
	struct tier *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	lock_init(&t->copy);
	lock_init(&t->wire);
	lock_init(&t->lock);
	list_init(&t->contexts);
	list_init(&t->readers);
	list_init(&t->puts);
	list_init(&t->promises);
	list_init(&t->streams);
	list_init(&t->objects);
	list_init(&t->devices);
	list_init(&t->old);
	list_init(&t->spare);
	list_init(&t->queues);
	t->own = (struct tier_queue){ .t = t, .event_fd = -1, .notify = -1 };
	list_push_back(&t->queues, &t->own.link);
	t->hosts_fd = -1;
	t->wake = -1;
	return t;
}

int tier_connect(tier **out, const struct tier_connect_options *options)
{
	struct tier *t;
	int rc;

	if (!out)
		return error_note(-EINVAL, "tier_connect: out is NULL");
	*out = NULL;
	t = connection_new();
	if (!t)
		return error_note(-ENOMEM, "connect: out of memory");
	rc = take_options(t, options);
	if (rc == 0)
		rc = make_alive(t);
	if (rc == 0)
		rc = register_membarrier();
	if (rc == 0)
		rc = make_parts(t);
	if (rc == 0) {
		LOCK_SCOPE(&t->wire);
		rc = attach_first(t);
	}
	if (rc) {
		connection_free(t);
		return rc;
	}
	*out = t;
	return 0;
}

/* A forked child owns nothing but its copies of the descriptors; locks and lists may be torn. */
static void close_in_child(struct tier *t)
{
	struct attachment *a = connection_attachment(t);

	if (!a)
		return;
	close(a->socket.fd);
	close(a->doorbell);
	close(a->event);
	close(t->wake);
	queue_fini(&t->own);
	if (t->hosts_fd >= 0)
		close(t->hosts_fd);
}

void tier_close(tier *t)
{
	if (!t)
		return;
	if (connection_orphaned(t->alive)) {
		close_in_child(t);
		return;
	}
	list_each(at, &t->streams)
		tier_stream_close(list_entry(at, struct tier_stream, link));
	object_drop_all(t);
	list_each(at, &t->queues)
		if (list_entry(at, struct tier_queue, link) != &t->own)
			tier_queue_close(list_entry(at, struct tier_queue, link));
	list_each(at, &t->puts)
		put_drop(list_entry(at, struct tier_put, link));
	list_each(at, &t->devices)
		tier_device_close(list_entry(at, struct tier_device, link));
	list_each(at, &t->readers)
		tier_reader_close(list_entry(at, struct tier_reader, link));
	list_each(at, &t->contexts)
		tier_context_close(list_entry(at, struct tier_context, link));
	connection_free(t);
}

/* ---- check, accounts ------------------------------------------------------------------------- */

static void look(struct tier *t)
{
	struct attachment *a;

	LOCK_SCOPE(&t->lock);
	a = connection_attachment(t);
	if (!a->dead && attach_is_over(a))
		attach_fail(t, a);
	attach_reclaim(t);
}

/* Is this attachment news to tier_check's caller? */
static bool is_news(struct tier *t)
{
	uint64_t number;

	LOCK_SCOPE(&t->lock);
	number = connection_attachment(t)->number;
	if (t->checked_number == number)
		return false;
	t->checked_number = number;
	return true;
}

int tier_check(tier *t)
{
	int rc = connection_check(t);

	if (rc)
		return rc;
	look(t);
	rc = attach_ensure(t);
	if (rc)
		return rc;
	attach_retry_lost(t);
	return is_news(t) ? 1 : 0;
}

int tier_counters(tier *t, struct tier_counters *out)
{
	struct tier_counters sum = { .size = sizeof(sum) };
	size_t size;
	int rc = connection_check(t);

	if (rc)
		return rc;
	if (!out || out->size < sizeof(size) || out->size > 4096)
		return error_note(-EINVAL, "tier_counters: set size with sizeof");
	sum.lookups = atomic_load_relaxed_u64(&t->lookups);
	sum.lookup_hits = atomic_load_relaxed_u64(&t->lookup_hits);
	{
		LOCK_SCOPE(&t->lock);
		sum.requests = t->requests.submitted;
		sum.completions = t->requests.completed;
		sum.reattached = t->reattached;
		sum.leases = t->reader_counts.leases;
		sum.lease_not_ready = t->reader_counts.not_ready;
		sum.lease_stale = t->reader_counts.stale;
		sum.lease_retries = t->reader_counts.retries;
		list_each(at, &t->readers)
			reader_count(list_entry(at, struct tier_reader, link), &sum);
	}
	size = out->size < sizeof(sum) ? out->size : sizeof(sum);
	sum.size = out->size;
	memset(out, 0, out->size);
	memcpy(out, &sum, size);
	return 0;
}
