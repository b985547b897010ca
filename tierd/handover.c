/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handover in the shell (abi/handover.h): the list and its descriptors leave with this process, or
 * came with it. An upgrade starts the program's file anew in this process, so a service manager
 * sees nothing; a stop gives them to the service manager, which has them again if it was a restart.
 * Either way they come as systemd's sd_listen_fds(3) has it: from descriptor 3 on, named.
 *
 * A list that is in doubt is not taken, and says so in one line of the log: then this start is one
 * behind a crash. The mark in the list comes before anything else, so one that fails, or is killed,
 * later leaves that to the next as well.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <linux/membarrier.h>
#include <unistd.h>

#include "libtier/abi/geometry_check.h"
#include "libtier/base/crc32c.h"
#include "libtier/base/time.h"
#include "tierd/shell.h"

#define LISTEN_FIRST 3 /* sd_listen_fds(3) */
#define DESCRIPTORS_MAX (2u + 2u * ABI_CONTEXTS_MAX + 2u * CORE_CLIENTS_MAX)

/* ---- descriptors --------------------------------------------------------------------------- */

/* A descriptor of our own for what is kept, beyond those that a later program finds at 3. */
static int add(struct handover *h, int fd, const char *kind, unsigned number)
{
	int own = fcntl(fd, F_DUPFD_CLOEXEC, LISTEN_FIRST);

	if (own < 0)
		return -errno;
	h->fd[h->count] = own;
	snprintf(h->name[h->count++], HANDOVER_NAME_BYTES, "%s%u", kind, number);
	return 0;
}

static int room(struct handover *h, uint32_t most)
{
	h->fd = calloc(most, sizeof(*h->fd));
	h->name = calloc(most, sizeof(*h->name));
	return h->fd && h->name ? 0 : -ENOMEM;
}

static int *find(struct handover *h, const char *kind, unsigned number)
{
	char name[HANDOVER_NAME_BYTES];

	snprintf(name, sizeof(name), "%s%u", kind, number);
	for (uint32_t i = 0; i < h->count; i++)
		if (strcmp(h->name[i], name) == 0 && h->fd[i] >= 0)
			return &h->fd[i];
	return NULL;
}

static uint64_t index_bytes(const void *index)
{
	return ((const struct abi_index_header *)index)->total_bytes;
}

/* Whoever needs it has it. */
static void drop(struct handover *h)
{
	for (uint32_t i = 0; i < h->count; i++)
		if (h->fd[i] >= 0)
			close(h->fd[i]);
	for (uint32_t i = 0; h->index && i < h->list->contexts; i++)
		if (h->index[i])
			munmap((void *)(uintptr_t)h->index[i], index_bytes(h->index[i]));
	if (h->list)
		munmap(h->list, h->bytes);
	free(h->fd);
	free(h->name);
	free(h->taken);
	free(h->index);
	h->index = NULL;
	h->list = NULL;
	h->fd = NULL;
	h->name = NULL;
	h->taken = NULL;
	h->count = 0;
}

/* ---- leaving ------------------------------------------------------------------------------- */

static uint32_t sum(const struct handover_head *head)
{
	struct handover_head plain = *head;

	plain.crc = plain.taken = 0;
	return crc32c(crc32c(0, &plain, sizeof(plain)), head + 1, head->bytes - sizeof(plain));
}

static bool leaves(const struct shell *s, const struct context_memory *made)
{
	struct core_context_stats stats;

	return made->mem[ABI_TIER_CXL].fd >= 0 &&
	       fcntl(made->mem[ABI_TIER_CXL].fd, F_GET_SEALS) >= 0 &&
	       !core_context_stats(s->core, made->id, &stats) &&
	       stats.spec.kind != DISK_KIND_OBJECT;
}

/* Contexts, to NULL: only how long they are. */
static uint64_t write_contexts(struct shell *s, uint8_t *to, uint32_t *count)
{
	const struct context_memory *made;
	uint64_t bytes = 0;

	*count = 0;
	for (uint32_t i = 0; (made = memory_next(s->memory, &i)); i++) {
		uint64_t one = leaves(s, made) ?
			core_handover_leave(s->core, made->id, to ? to + bytes : NULL) : 0;

		if (one && to &&
		    (add(&s->handover, made->mem[ABI_TIER_CXL].fd, HANDOVER_MEMORY, *count) ||
		     add(&s->handover, made->index.fd, HANDOVER_INDEX, *count)))
			return 0;
		bytes += one;
		*count += one != 0;
	}
	return bytes;
}

static uint64_t write_clients(struct shell *s, struct handover_client *to, uint32_t *count)
{
	struct handover_client one;
	uint32_t at = 0;
	int region, process;

	for (*count = 0; front_leave(s->front, &at, &one, &region, &process); (*count)++) {
		if (!to)
			continue;
		to[*count] = one;
		if (add(&s->handover, region, HANDOVER_REGION, *count) ||
		    add(&s->handover, process, HANDOVER_PROCESS, *count))
			return 0;
	}
	return *count * sizeof(one);
}

/* The list in a memfd of its own; the last thing that is written is the head. */
static int write_list(struct shell *s, int fd, uint64_t bytes)
{
	struct handover *h = &s->handover;
	struct handover_head head = {
		.magic = HANDOVER_MAGIC,
		.version = HANDOVER_VERSION,
		.bytes = bytes,
		.boot_token = s->obs.boot_token,
		.capacity = s->core_config.capacity[ABI_TIER_CXL],
	};
	uint8_t *to;
	uint64_t part;

	if (ftruncate(fd, (off_t)bytes))
		return -errno;
	to = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (to == MAP_FAILED)
		return -errno;
	h->list = (void *)to;
	h->bytes = bytes;
	part = write_contexts(s, to + sizeof(head), &head.contexts);
	part += write_clients(s, (void *)(to + sizeof(head) + part), &head.clients);
	if (part + sizeof(head) != bytes)
		return -EMFILE;
	*h->list = head;
	h->list->crc = sum(h->list);
	return 0;
}

void handover_leave(struct shell *s)
{
	struct handover *h = &s->handover;
	uint64_t begun = time_now_ns(), bytes = sizeof(struct handover_head);
	uint32_t contexts, clients;
	int fd, rc;

	if (!s->loop.upgrade && !notify_keeps())
		return;
	bytes += write_contexts(s, NULL, &contexts);
	bytes += write_clients(s, NULL, &clients);
	fd = memfd_create("tier-handover", MFD_CLOEXEC);
	rc = fd < 0 ? -errno : room(h, 2 + 2 * contexts + 2 * clients);
	if (rc == 0)
		rc = add(h, fd, HANDOVER_LIST, 0);
	if (rc == 0 && h->socket)
		rc = add(h, h->socket, HANDOVER_SOCKET, 0);
	if (rc == 0)
		rc = write_list(s, fd, bytes);
	if (fd >= 0)
		close(fd);
	if (rc) {
		log_error(&s->log, "memory cannot be handed over; it is lost, and what was dirty",
			  NULL, rc == -EMFILE ? "raise the limit of open files" : "free memory",
			  "errno=%d", -rc);
		drop(h);
		return;
	}
	log_info(&s->log, "handing over", NULL,
		 "contexts=%u clients=%u list=%" PRIu64 " us=%" PRIu64, contexts, clients, bytes,
		 (time_now_ns() - begun) / NS_PER_US);
}

/* ---- to whom it goes ----------------------------------------------------------------------- */

static char *join_names(const struct handover *h)
{
	char *names = calloc(h->count + 1, HANDOVER_NAME_BYTES + 1), *end = names;

	for (uint32_t i = 0; names && i < h->count; i++)
		end += sprintf(end, i ? ":%s" : "%s", h->name[i]);
	return names;
}

/* They must lie from 3 on: first all are beyond those numbers, then each goes to its own. */
static int line_up(struct handover *h)
{
	int beyond = LISTEN_FIRST + (int)h->count;

	for (uint32_t i = 0; i < h->count; i++) {
		int high = h->fd[i] < beyond ? fcntl(h->fd[i], F_DUPFD_CLOEXEC, beyond) : h->fd[i];

		if (high < 0)
			return -errno;
		h->fd[i] = high;
	}
	for (uint32_t i = 0; i < h->count; i++)
		if (dup2(h->fd[i], LISTEN_FIRST + (int)i) < 0)
			return -errno;
	return 0;
}

static int set_number(const char *name, long value)
{
	char text[24];

	snprintf(text, sizeof(text), "%ld", value);
	return setenv(name, text, 1) ? -errno : 0;
}

/* Returns only when it failed. */
static int start_anew(struct shell *s)
{
	struct handover *h = &s->handover;
	char *names = h->list ? join_names(h) : NULL;
	sigset_t none;
	int rc = 0;

	if (names) {
		rc = line_up(h);
		if (rc == 0)
			rc = set_number("LISTEN_PID", (long)getpid());
		if (rc == 0)
			rc = set_number("LISTEN_FDS", (long)h->count);
		if (rc == 0 && setenv("LISTEN_FDNAMES", names, 1))
			rc = -errno;
		free(names);
	}
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (rc == 0)
		execv(h->program, h->argv);
	return rc ? rc : -errno;
}

void handover_send(struct shell *s)
{
	struct handover *h = &s->handover;
	int rc = 0;

	if (s->loop.upgrade) {
		rc = start_anew(s);
		log_error(&s->log, "the program cannot be started anew", h->program,
			  "start the daemon by hand", "errno=%d", -rc);
		return;
	}
	for (uint32_t i = 0; h->list && i < h->count && rc == 0; i++)
		rc = notify_keep(h->name[i], h->fd[i]);
	if (h->list && rc == 0)
		notify_barrier();
	drop(h);
}

/* ---- coming -------------------------------------------------------------------------------- */

static long number(const char *name)
{
	const char *text = getenv(name);

	return text ? strtol(text, NULL, 10) : 0;
}

/* What was given to this process, named; closed over exec from now on. */
static int receive(struct handover *h)
{
	long count = number("LISTEN_PID") == (long)getpid() ? number("LISTEN_FDS") : 0;
	const char *names = getenv("LISTEN_FDNAMES");
	int rc = 0;

	if (count < 0 || count > DESCRIPTORS_MAX || !names)
		count = 0;
	if (count)
		rc = room(h, (uint32_t)count);
	for (long i = 0; i < count && rc == 0; i++) {
		int length = (int)strcspn(names, ":");

		h->fd[i] = LISTEN_FIRST + (int)i;
		fcntl(h->fd[i], F_SETFD, FD_CLOEXEC);
		snprintf(h->name[i], HANDOVER_NAME_BYTES, "%.*s", length, names);
		names += length + (names[length] == ':');
	}
	h->count = rc ? 0 : (uint32_t)count;
	unsetenv("LISTEN_PID");
	unsetenv("LISTEN_FDS");
	unsetenv("LISTEN_FDNAMES");
	return rc;
}

/* Contexts and clients are as long as they say, and end where the list does. */
static bool is_whole(const struct handover_head *head)
{
	uint64_t left = head->bytes - sizeof(*head);
	const uint8_t *at = (const void *)(head + 1);

	if (head->contexts > ABI_CONTEXTS_MAX || head->clients > CORE_CLIENTS_MAX)
		return false;
	for (uint32_t i = 0; i < head->contexts; i++) {
		const struct handover_context *x = (const void *)at;

		if (left < sizeof(*x) || x->bytes < sizeof(*x) || x->bytes > left)
			return false;
		at += x->bytes;
		left -= x->bytes;
	}
	return left == head->clients * sizeof(struct handover_client);
}

/* Without one of them a lease could not be seen. */
static bool has_clients(struct handover *h, uint32_t clients)
{
	for (uint32_t i = 0; i < clients; i++)
		if (!find(h, HANDOVER_REGION, i) || !find(h, HANDOVER_PROCESS, i))
			return false;
	return true;
}

static const char *judge(struct shell *s, int fd)
{
	struct handover *h = &s->handover;
	struct handover_head *head;
	struct stat st;

	if (fstat(fd, &st) || (uint64_t)st.st_size < sizeof(*head))
		return "it has no head";
	h->bytes = (uint64_t)st.st_size;
	head = mmap(NULL, h->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (head == MAP_FAILED)
		return "there is no memory to look at it";
	h->list = head;
	if (head->magic != HANDOVER_MAGIC || head->version != HANDOVER_VERSION)
		return "it is of another version";
	if (head->taken)
		return "a daemon took it, and ended without leaving another";
	head->taken = 1; /* Y1 */
	if (head->bytes != h->bytes || head->crc != sum(head) || !is_whole(head))
		return "its sum is wrong";
	if (head->clients > s->config.clients_max)
		return "it has more clients than clients.max allows";
	if (!has_clients(h, head->clients))
		return "descriptors of clients are missing: raise FileDescriptorStoreMax=";
	h->taken = calloc(head->contexts + 1, sizeof(*h->taken));
	h->index = calloc(head->contexts + 1, sizeof(*h->index));
	return h->taken && h->index ? NULL : "there is no memory for it";
}

/* The first of the list; each next one lies x->bytes behind. */
static const struct handover_context *first(const struct handover *h)
{
	return (const void *)(h->list + 1);
}

static const struct handover_context *behind(const struct handover_context *x)
{
	return (const void *)((const uint8_t *)x + x->bytes);
}

/* Beyond all that are taken; with a store its catalog says more, later. */
static void begin_uids(struct shell *s)
{
	const struct handover_context *x = first(&s->handover);

	for (uint32_t i = 0; i < s->handover.list->contexts; i++, x = behind(x))
		if (x->spec.uid >= s->core_config.next_uid)
			s->core_config.next_uid = x->spec.uid + 1;
}

int handover_begin(struct shell *s)
{
	struct handover *h = &s->handover;
	const char *why = NULL;
	int *list, *socket, rc = receive(h);

	if (rc)
		return rc;
	socket = find(h, HANDOVER_SOCKET, 0);
	if (socket) {
		h->socket = *socket;
		*socket = -1;
	}
	list = find(h, HANDOVER_LIST, 0);
	if (list)
		why = judge(s, *list);
	for (uint32_t i = 0; i < h->count; i++)
		notify_forget(h->name[i]);
	if (why)
		log_warn(&s->log, "what the former daemon left is not taken", NULL, why, "");
	if (why || !list)
		drop(h);
	else
		begin_uids(s);
	return 0;
}

void handover_end(struct shell *s)
{
	drop(&s->handover);
}

/* ---- contexts ------------------------------------------------------------------------------ */

/* Its number in the list, -ENOENT: it is not there, or lies otherwise (Y2). */
static int64_t number_of(const struct shell *s, const struct disk_context *spec,
			 const struct handover_context **out)
{
	const struct handover *h = &s->handover;
	const struct handover_context *x = h->list ? first(h) : NULL;

	if (!h->list || s->core_config.capacity[ABI_TIER_CXL] < h->list->capacity || !spec->uid)
		return -ENOENT;
	for (uint32_t i = 0; i < h->list->contexts; i++, x = behind(x)) {
		*out = x;
		if (x->spec.uid == spec->uid && x->spec.epoch == spec->epoch &&
		    !memcmp(x->spec.name, spec->name, sizeof(spec->name)) &&
		    !memcmp(&x->spec.geometry, &spec->geometry, sizeof(spec->geometry)))
			return i;
	}
	return -ENOENT;
}

bool handover_has(const struct shell *s, const struct disk_context *spec)
{
	const struct handover_context *x;

	return number_of(s, spec, &x) >= 0;
}

/* The context's index as the former daemon left it, of the size that it has now; NULL: none. */
static const void *take_index(struct handover *h, uint32_t number, uint64_t bytes)
{
	int *fd = find(h, HANDOVER_INDEX, number);
	struct stat st;
	void *at;

	if (!fd || fstat(*fd, &st) || (uint64_t)st.st_size != bytes)
		return NULL;
	at = mmap(NULL, bytes, PROT_READ, MAP_SHARED, *fd, 0);
	if (at == MAP_FAILED)
		return NULL;
	if (index_bytes(at) != bytes) {
		munmap(at, bytes);
		return NULL;
	}
	h->index[number] = at;
	return at;
}

void handover_memory(struct shell *s, const struct disk_context *spec,
		     const struct core_context_plan *plan, struct context_memory *made,
		     struct core_context_memory *memory)
{
	const struct handover_context *x;
	int64_t number = number_of(s, spec, &x);
	int *fd = number < 0 ? NULL : find(&s->handover, HANDOVER_MEMORY, (unsigned)number);

	if (!fd || plan->mem_bytes[ABI_TIER_CXL] != x->mem_bytes ||
	    memory_take(s->memory, made, ABI_TIER_CXL, *fd))
		return;
	*fd = -1;
	memory->at = 1 + ABI_CONTEXT_INDEX(x->id);
	memory->former = take_index(&s->handover, (uint32_t)number, plan->index_bytes);
	memory->former_slots = x->slots;
	s->handover.taken[number] = true;
}

/* Without a store no catalog names them. */
int handover_contexts(struct shell *s)
{
	const struct handover *h = &s->handover;
	const struct handover_context *x = h->list ? first(h) : NULL;
	char why[FRONT_WHY_BYTES] = "";
	uint32_t id;

	for (uint32_t i = 0; h->list && !s->drives && i < h->list->contexts; i++, x = behind(x)) {
		int rc = abi_geometry_check(&x->spec.geometry, why, sizeof(why));

		if (rc == 0)
			rc = shell_context_make(s, &x->spec, 0, &id, why);
		if (rc)
			log_warn(&s->log, "a context cannot be made again", x->spec.name, why,
				 "errno=%d", -rc);
	}
	return 0;
}

/* ---- blocks, clients ----------------------------------------------------------------------- */

/* The memory that the context of the list has now; NULL: it could not be made after all. */
static const struct context_memory *made_for(const struct shell *s,
					     const struct handover_context *x)
{
	uint32_t index = ABI_CONTEXT_INDEX(x->id);
	const struct context_memory *made = memory_next(s->memory, &index);
	struct core_context_stats stats;

	if (!made || core_context_stats(s->core, made->id, &stats) ||
	    stats.spec.uid != x->spec.uid)
		return NULL;
	return made;
}

/* What lies in slabs that nobody needs now. */
static void punch(struct shell *s, const struct context_memory *made)
{
	struct core_range hole = { .offset = 0 };
	uint64_t at = 0;

	while (core_context_hole(s->core, made->id, ABI_TIER_CXL, at, &hole)) {
		s->mem[ABI_TIER_CXL]->punch(&made->mem[ABI_TIER_CXL], hole.offset, hole.bytes);
		at = hole.offset + hole.bytes;
	}
}

int handover_take(struct shell *s)
{
	struct handover *h = &s->handover;
	const struct handover_context *x = h->list ? first(h) : NULL;
	struct core_handover taken = { .blocks = 0 };
	uint64_t begun = time_now_ns();
	int rc = 0;

	if (!h->list)
		return 0;
	/* Whoever saw a word before it was taken back has his slot visible by now. */
	syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
	for (uint32_t i = 0; i < h->list->contexts && rc == 0; i++, x = behind(x)) {
		const struct context_memory *made = h->taken[i] ? made_for(s, x) : NULL;

		if (!made)
			continue;
		rc = core_handover_take(s->core, made->id, x, &taken);
		if (rc == 0)
			punch(s, made);
	}
	if (rc) {
		log_error(&s->log, "what the former daemon left contradicts itself", NULL,
			  "start again: it is not taken then", "errno=%d", -rc);
		return rc;
	}
	s->obs.handover = taken;
	log_info(&s->log, "taken over", NULL,
		 "blocks=%" PRIu64 " pages=%" PRIu64 " dirty=%" PRIu64 " refused=%" PRIu64
		 " bytes=%" PRIu64 " us=%" PRIu64, taken.blocks, taken.pages, taken.dirty,
		 taken.refused, taken.bytes, (time_now_ns() - begun) / NS_PER_US);
	return 0;
}

int handover_clients(struct shell *s)
{
	struct handover *h = &s->handover;
	const struct handover_client *k;
	int rc = 0;

	if (!h->list)
		return 0;
	k = (const void *)((const uint8_t *)h->list + h->bytes);
	k -= h->list->clients;
	for (uint32_t i = 0; i < h->list->clients && rc == 0; i++) {
		int *region = find(h, HANDOVER_REGION, i), *process = find(h, HANDOVER_PROCESS, i);

		rc = front_take(s->front, &s->loop.turn, &k[i], *region, *process);
		*region = *process = -1;
	}
	if (rc)
		log_error(&s->log, "leases of a client from before are not known", NULL,
			  "start again: no memory is taken over then", "errno=%d", -rc);
	handover_end(s);
	return rc;
}
