/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading summaries ahead; see summaries.h. Each thread has one buffer and reads every so many-th
 * segment into it, whenever the former one was taken: whole, for a record that never came does not
 * end a summary.
 */
#include "tierd/summaries.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define AHEAD 4u	    /* summaries at a time; measured: bench/results, upgrade */
#define BAD_SECTORS_MAX 16u /* of a summary: each may take a sick drive seconds */

struct ahead {
	struct summaries *all;
	pthread_t thread;
	uint8_t *buffer;
	uint64_t segment; /* that is read next */
	int unread;
	bool full; /* the buffer is the caller's, else the thread's; under lock */
};

struct summaries {
	const struct drive_ops *ops;
	struct drive *device;
	struct disk_super super;
	pthread_mutex_t lock;
	pthread_cond_t changed; /* full, or over */
	bool over;		/* under lock */
	uint32_t count;
	uint64_t next;	   /* segment; the caller's */
	struct ahead *held; /* the caller has its buffer */
	struct ahead ahead[AHEAD];
};

/* Sector by sector where it cannot be read whole: a bad one costs the records that lie in it. */
static int read_summary(const struct summaries *sm, uint8_t *summary, uint64_t segment)
{
	uint64_t offset = sm->super.segment_offset + segment * sm->super.segment_bytes;
	uint64_t bytes = sm->super.summary_bytes, at;
	int first = sm->ops->pread(sm->device, summary, bytes, offset);
	uint32_t bad = 0;

	if (!first)
		return 0;
	memset(summary, 0, bytes);
	for (at = 0; at < bytes && bad < BAD_SECTORS_MAX; at += DISK_SECTOR) {
		if (!sm->ops->pread(sm->device, summary + at, DISK_SECTOR, offset + at))
			continue;
		memset(summary + at, 0, DISK_SECTOR);
		bad++;
	}
	return first;
}

/* Until the buffer was taken. False: it is over. */
static bool wait_empty(struct ahead *a)
{
	struct summaries *sm = a->all;
	bool over;

	pthread_mutex_lock(&sm->lock);
	while (a->full && !sm->over)
		pthread_cond_wait(&sm->changed, &sm->lock);
	over = sm->over;
	pthread_mutex_unlock(&sm->lock);
	return !over;
}

static void *read_ahead(void *ahead)
{
	struct ahead *a = ahead;
	struct summaries *sm = a->all;

	while (a->segment < sm->super.segment_count && wait_empty(a)) {
		a->unread = read_summary(sm, a->buffer, a->segment);
		a->segment += AHEAD;
		pthread_mutex_lock(&sm->lock);
		a->full = true;
		pthread_cond_broadcast(&sm->changed);
		pthread_mutex_unlock(&sm->lock);
	}
	return NULL;
}

static int ahead_open(struct summaries *sm, struct ahead *a)
{
	int rc;

	*a = (struct ahead){ .all = sm, .segment = sm->count };
	a->buffer = aligned_alloc(DISK_SECTOR, sm->super.summary_bytes);
	if (!a->buffer)
		return -ENOMEM;
	rc = -pthread_create(&a->thread, NULL, read_ahead, a);
	if (rc)
		free(a->buffer);
	else
		sm->count++;
	return rc;
}

int summaries_open(struct summaries **out, const struct drive_ops *ops, struct drive *device,
		   const struct disk_super *super)
{
	struct summaries *sm = calloc(1, sizeof(*sm));
	int rc = 0;

	if (!sm)
		return -ENOMEM;
	sm->ops = ops;
	sm->device = device;
	sm->super = *super;
	pthread_mutex_init(&sm->lock, NULL);
	pthread_cond_init(&sm->changed, NULL);
	for (uint32_t i = 0; i < AHEAD && rc == 0; i++)
		rc = ahead_open(sm, &sm->ahead[i]);
	if (rc)
		summaries_close(sm);
	else
		*out = sm;
	return rc;
}

void *summaries_next(struct summaries *sm, int *unread)
{
	struct ahead *a = &sm->ahead[sm->next % AHEAD];

	assert(sm->next < sm->super.segment_count);
	pthread_mutex_lock(&sm->lock);
	if (sm->held) {
		sm->held->full = false;
		pthread_cond_broadcast(&sm->changed);
	}
	while (!a->full)
		pthread_cond_wait(&sm->changed, &sm->lock);
	pthread_mutex_unlock(&sm->lock);
	sm->held = a;
	sm->next++;
	*unread = a->unread;
	return a->buffer;
}

void summaries_close(struct summaries *sm)
{
	if (!sm)
		return;
	pthread_mutex_lock(&sm->lock);
	sm->over = true;
	pthread_cond_broadcast(&sm->changed);
	pthread_mutex_unlock(&sm->lock);
	for (uint32_t i = 0; i < sm->count; i++) {
		pthread_join(sm->ahead[i].thread, NULL);
		free(sm->ahead[i].buffer);
	}
	pthread_cond_destroy(&sm->changed);
	pthread_mutex_destroy(&sm->lock);
	free(sm);
}
