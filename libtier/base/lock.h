/*
 * A mutex that clang's thread-safety analysis understands, and the annotations for what it guards.
 * The clang build makes a forgotten lock an error; gcc sees plain pthread calls. Both sides use it
 * off the data path; the daemon's core takes no lock at all.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_BASE_LOCK_H
#define TIER_BASE_LOCK_H

#include <assert.h>
#include <pthread.h>

#include "libtier/base/cleanup.h"

#ifdef __clang__
#define LOCK_ATTRIBUTE(x) __attribute__((x))
#else
#define LOCK_ATTRIBUTE(x)
#endif

/* After a field: it is read and written only with lock l of the same struct held. For the reader
 * only: before clang 20, C attributes cannot name a sibling field. What is checked is REQUIRES. */
#define GUARDED_BY(l)
/* After a prototype: the caller holds the lock / must not hold it. */
#define REQUIRES(...) LOCK_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) LOCK_ATTRIBUTE(locks_excluded(__VA_ARGS__))

struct LOCK_ATTRIBUTE(capability("mutex")) lock {
	pthread_mutex_t mutex;
};

#define LOCK_INIT { .mutex = PTHREAD_MUTEX_INITIALIZER }

/* Zero or a negative errno. */
static inline int lock_init(struct lock *l)
{
	return -pthread_mutex_init(&l->mutex, NULL);
}

static inline void lock_fini(struct lock *l)
{
	pthread_mutex_destroy(&l->mutex);
}

static inline void lock_acquire(struct lock *l) LOCK_ATTRIBUTE(acquire_capability(*l))
	LOCK_ATTRIBUTE(no_thread_safety_analysis)
{
	int rc = pthread_mutex_lock(&l->mutex);

	assert(rc == 0);
	(void)rc;
}

static inline void lock_release(struct lock *l) LOCK_ATTRIBUTE(release_capability(*l))
	LOCK_ATTRIBUTE(no_thread_safety_analysis)
{
	int rc = pthread_mutex_unlock(&l->mutex);

	assert(rc == 0);
	(void)rc;
}

/* The two halves of LOCK_SCOPE; not called by hand. Compilers before clang 18 do not see scope-exit
 * attributes, so the analysis is told that the lock is held from here to the end of the scope. */
static inline struct lock *lock_scope_begin(struct lock *l) LOCK_ATTRIBUTE(assert_capability(*l))
	LOCK_ATTRIBUTE(no_thread_safety_analysis)
{
	lock_acquire(l);
	return l;
}

static inline void lock_scope_end(struct lock **l) LOCK_ATTRIBUTE(no_thread_safety_analysis)
{
	if (*l)
		lock_release(*l);
}

/* Takes the lock and gives it back when the enclosing block is left, on whichever way. */
#define CLEANUP_UNLOCK CLEANUP(lock_scope_end)
#define LOCK_SCOPE(l)                                                                              \
	struct lock *LOCK_NAME(lock_held_, __LINE__) CLEANUP_UNLOCK __attribute__((unused)) =      \
		lock_scope_begin(l)
#define LOCK_NAME(a, b) LOCK_NAME_(a, b)
#define LOCK_NAME_(a, b) a##b

#endif
