/*
 * Scope-exit attributes: a variable so marked is released when its block is left, on every path.
 * For what ends with the scope only; what a constructor hands over on success is unwound by goto.
 * To hand a marked pointer over after all, use take_ptr. Locks: LOCK_SCOPE in lock.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_BASE_CLEANUP_H
#define TIER_BASE_CLEANUP_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* CLEANUP(f): f gets a pointer to the variable when the scope ends. */
#define CLEANUP(f) __attribute__((cleanup(f)))

/* char *name CLEANUP_FREE = malloc(n); */
#define CLEANUP_FREE CLEANUP(cleanup_free)
/* int fd CLEANUP_CLOSE = open(…); a negative value is nothing to close. errno is preserved. */
#define CLEANUP_CLOSE CLEANUP(cleanup_close)
/* FILE *f CLEANUP_FCLOSE = fopen(…); */
#define CLEANUP_FCLOSE CLEANUP(cleanup_fclose)

/* p is a pointer to the marked pointer, of whatever type. */
static inline void cleanup_free(void *p)
{
	free(*(void **)p);
}

static inline void cleanup_close(int *fd)
{
	int saved = errno;

	if (*fd >= 0)
		close(*fd);
	errno = saved;
}

static inline void cleanup_fclose(FILE **f)
{
	int saved = errno;

	if (*f)
		fclose(*f);
	errno = saved;
}

/* Empties a marked variable and yields what it held: `*out = take_ptr(name); return 0;` */
#define take_ptr(p)                                                                                \
	__extension__({                                                                            \
		__typeof__(p) taken = (p);                                                         \
		(p) = NULL;                                                                        \
		taken;                                                                             \
	})
static inline int take_fd(int *fd)
{
	int taken = *fd;

	*fd = -1;
	return taken;
}

#endif
