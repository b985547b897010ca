/*
 * Queues of completions beside the connection's own. What comes in which is told by bits of
 * user_data, so no request names its queue; how they are waited for is wait.c's.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "libtier/src/error.h"
#include "libtier/src/submit.h"
#include "libtier/src/wait.h"

void queue_fini(struct tier_queue *q)
{
	if (q->event_fd >= 0)
		close(q->event_fd);
	if (q->notify >= 0)
		close(q->notify);
}

int tier_queue_open(tier *t, uint64_t mask, uint64_t value, tier_queue **out)
{
	struct tier_queue *q;
	int rc = connection_check(t);

	if (rc)
		return rc;
	if (!out || value & ~mask || mask & REQUEST_SYNC)
		return error_note(-EINVAL, "tier_queue_open: out is NULL, value has bits that mask "
					   "has not, or mask has the top bit");
	*out = NULL;
	q = calloc(1, sizeof(*q));
	if (!q)
		return error_note(-ENOMEM, "queue: out of memory");
	*q = (struct tier_queue){ .t = t, .mask = mask, .value = value, .event_fd = -1 };
	q->notify = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (q->notify < 0) {
		rc = error_set(-errno, "queue: no event descriptor: %s", strerror(errno));
		free(q);
		return rc;
	}
	LOCK_SCOPE(&t->lock);
	list_insert_after(t->own.link.prev, &q->link);
	*out = q;
	return 0;
}

static int check(const struct tier_queue *q)
{
	return q ? connection_check(q->t) : error_note(-EINVAL, "queue: it is NULL");
}

void tier_queue_close(tier_queue *q)
{
	struct tier *t;

	if (!q || connection_orphaned(q->t->alive))
		return;
	t = q->t;
	{
		LOCK_SCOPE(&t->lock);
		list_remove(&q->link);
		submit_hand_on(t, &q->done);
		wait_moved(t);
	}
	queue_fini(q);
	free(q);
}

int tier_queue_poll(tier_queue *q, struct tier_completion *out, uint32_t max)
{
	int rc = check(q);

	return rc ? rc : queue_take(q, out, &(struct queue_wait){ .max = max });
}

int tier_queue_wait(tier_queue *q, struct tier_completion *out, uint32_t min, uint32_t max,
		    uint64_t timeout_ns)
{
	const struct queue_wait w = { min, max, timeout_ns };
	int rc = check(q);

	return rc ? rc : queue_take(q, out, &w);
}

int tier_queue_fd(tier_queue *q)
{
	int rc = check(q);

	return rc ? rc : queue_event_fd(q);
}
