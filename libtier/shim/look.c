/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is it an object? Answered from the context's index of names in shared memory, without a system
 * call, where that can tell; else the daemon is asked. An index counts as long as the connection
 * that it came over stands, which is looked at every BEAT_NS; then the daemon also hears what was
 * found, and keeps that in memory for a while.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libtier/base/atomic.h"
#include "libtier/base/names.h"
#include "libtier/base/time.h"
#include "libtier/shim/shim.h"

#define BEAT_NS (10 * NS_PER_MS)
#define AGAIN_NS (1 * NS_PER_S) /* before an index is asked for again that there was none of */

static struct {
	pthread_mutex_t lock; /* of changes; taken before the connection's */
	uint64_t beat_ns;     /* atomic */
	uint64_t connection;  /* atomic: which one it is */
	struct view {
		struct abi_names *names; /* room for the largest; at it lies the present one */
		uint32_t slots;          /* atomic; 0 = none */
		uint64_t next_ns;        /* atomic: not asked for before */
		char context[ABI_NAME_BYTES];
		uint64_t found;          /* atomic: entries of hold, not told yet */
		uint32_t hold[WIRE_HOLDS_MAX]; /* atomic */
	} view[SHIM_MAPS_MAX];
} look = { .lock = PTHREAD_MUTEX_INITIALIZER };

void shim_look_dropped(void)
{
	atomic_add_u64(&look.connection, 1);
	for (uint32_t i = 0; i < SHIM_MAPS_MAX; i++) {
		atomic_store_release_u32(&look.view[i].slots, 0);
		atomic_store_relaxed_u64(&look.view[i].next_ns, 0);
	}
}

void shim_look_forked(void)
{
	pthread_mutex_init(&look.lock, NULL);
}

/* About 5 ns, and some milliseconds behind. */
static uint64_t coarse_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/* ---- the index ----------------------------------------------------------------------------- */

/* In the place of the one before: who reads that right now sees another generation behind it. */
static uint32_t map_names(struct view *v, int fd, uint64_t bytes)
{
	if (!v->names) {
		void *at = mmap(NULL, names_bytes(ABI_NAMES_SLOTS_MAX), PROT_NONE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (at == MAP_FAILED)
			return 0;
		v->names = at;
	}
	if (bytes < sizeof(*v->names) || bytes > names_bytes(ABI_NAMES_SLOTS_MAX) ||
	    mmap(v->names, bytes, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
		return 0;
	return names_judge(v->names, bytes);
}

static void get_index(const struct shim_name_of *n, struct view *v)
{
	uint64_t connection = atomic_load_acquire_u64(&look.connection);
	struct wire_object_info info;
	struct wire_object q;
	int fd, rc;

	shim_question(&q, WIRE_OBJ_INDEX, n);
	memset(q.name, 0, sizeof(q.name));
	rc = shim_ask(&q, WIRE_OBJ_INFO, &info, &fd);
	atomic_store_relaxed_u64(&v->next_ns, coarse_ns() + (rc ? AGAIN_NS : BEAT_NS));
	if (rc)
		return;
	memcpy(v->context, n->context, sizeof(v->context));
	atomic_store_release_u32(&v->slots, map_names(v, fd, info.size));
	close(fd);
	if (atomic_load_acquire_u64(&look.connection) != connection)
		atomic_store_release_u32(&v->slots, 0);
}

static void renew(const struct shim_name_of *n, struct view *v)
{
	int saved = errno;

	shim_enter();
	if (coarse_ns() >= atomic_load_relaxed_u64(&v->next_ns) &&
	    pthread_mutex_trylock(&look.lock) == 0) {
		atomic_store_release_u32(&v->slots, 0);
		get_index(n, v);
		pthread_mutex_unlock(&look.lock);
	}
	shim_leave();
	errno = saved;
}

/* ---- what is found ------------------------------------------------------------------------- */

bool shim_look_found(uint32_t map, struct wire_object_hold *m)
{
	struct view *v = &look.view[map];
	uint64_t found = atomic_exchange_u64(&v->found, 0);

	if (!found || !atomic_load_acquire_u32(&v->slots))
		return false;
	memset(m, 0, sizeof(*m));
	m->header.type = WIRE_OBJ_HOLD;
	memcpy(m->context, v->context, sizeof(m->context));
	m->generation = v->names->generation;
	m->count = found < WIRE_HOLDS_MAX ? (uint32_t)found : WIRE_HOLDS_MAX;
	for (uint32_t i = 0; i < m->count; i++)
		m->slot[i] = atomic_load_relaxed_u32(&v->hold[i]);
	return true;
}

/* As names_look says it. */
static int look_up(const struct shim_name_of *n, struct view *v, struct abi_names_slot *s)
{
	uint32_t slots = atomic_load_acquire_u32(&v->slots), slot;
	uint64_t now = coarse_ns(), found = 0;
	int rc;

	if (!slots)
		return -ESTALE;
	rc = names_look(v->names, slots, n->name, (uint32_t)strlen(n->name), s, &slot);
	if (rc == 0 && s->expires_ms && s->expires_ms <= time_wall_ms())
		return -EAGAIN;
	if (rc == 0) {
		found = atomic_add_relaxed_u64(&v->found, 1) % WIRE_HOLDS_MAX;
		atomic_store_relaxed_u32(&v->hold[found], slot);
	}
	if (found < WIRE_HOLDS_MAX - 1 && now - atomic_load_relaxed_u64(&look.beat_ns) < BEAT_NS)
		return rc;
	atomic_store_relaxed_u64(&look.beat_ns, now);
	return shim_alive() ? rc : -ESTALE;
}

int shim_look(const struct shim_name_of *n, struct wire_object_info *info)
{
	struct view *v = &look.view[n->map];
	struct abi_names_slot s;
	struct wire_object q;
	int rc = look_up(n, v, &s);

	if (rc == -ENOENT)
		return SHIM_REAL;
	if (rc == 0) {
		*info = (struct wire_object_info){
			.inode = s.inode, .size = s.size, .mtime_ns = s.mtime_ns,
			.expires_ms = s.expires_ms, .mode = s.word & 0777,
		};
		return 0;
	}
	if (rc == -ESTALE)
		renew(n, v);
	shim_question(&q, WIRE_OBJ_STAT, n);
	return shim_ask(&q, WIRE_OBJ_INFO, info, NULL) ? SHIM_REAL : 0;
}

int shim_find(struct shim_name_of *n, bool last, struct wire_object_info *info)
{
	int rc = shim_look(n, info);

	return rc && shim_follow(n, last) ? shim_look(n, info) : rc;
}

bool shim_absent(const struct shim_name_of *n)
{
	struct abi_names_slot s;

	return look_up(n, &look.view[n->map], &s) == -ENOENT;
}
