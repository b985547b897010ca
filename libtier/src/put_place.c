/*
 * Pages of a put that are written where they stay (wire.h W10): the daemon is asked for each, once,
 * and what it gives is mapped until the put ends. A memory that is lost meanwhile, or a daemon that
 * dies, is no signal for who writes: it writes on into memory of its own, and the commit says what
 * became of the put.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "libtier/src/attach.h"
#include "libtier/src/error.h"
#include "libtier/src/put.h"
#include "libtier/src/taken.h"

static int map_answer(struct put_place *out, const struct message *m)
{
	void *at;

	if (m->fd_count != 1 || m->place.bytes != out->bytes || m->place.offset % ABI_HUGE)
		return error_note(-EPROTO, "put: the daemon's place is not the one asked for");
	at = mmap(NULL, out->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd[0],
		  (off_t)m->place.offset);
	if (at == MAP_FAILED)
		return -errno;
	out->watch = taken_watch(at, out->bytes, NULL);
	if (out->watch < 0) {
		munmap(at, out->bytes);
		return out->watch;
	}
	out->at = at;
	return 0;
}

/* The next place, of that page. */
static int place_ask(struct tier *t, struct tier_put *p, struct put_place *out) REQUIRES(t->wire)
{
	struct wire_place q = { .header.type = WIRE_PLACE, .put = p->handle, .block = out->block,
				.page = out->page };
	int rc;

	if (p->a != connection_attachment(t) || p->places == PUT_PLACES_MAX)
		return -EAGAIN;
	rc = attach_ask(t, &q.header, sizeof(q), WIRE_PLACE);
	p->broken = rc == -ENOTCONN || rc == -ETIMEDOUT || rc == -EPROTO;
	if (rc)
		return rc;
	rc = map_answer(out, t->message);
	message_drop(t->message);
	p->broken = rc != 0;
	return rc;
}

void *put_place(struct tier_put *p, uint32_t block, uint32_t page, uint32_t bytes)
{
	struct tier *t = p->t;
	struct put_place next = { .block = block, .page = page, .bytes = bytes };

	if (!put_may_place(p, bytes))
		return NULL;
	LOCK_SCOPE(&t->wire);
	for (uint32_t i = 0; i < p->places; i++)
		if (p->place[i].block == block && p->place[i].page == page)
			return p->place[i].at;
	if (p->unplaced)
		return NULL;
	p->unplaced = place_ask(t, p, &next) != 0;
	if (p->unplaced)
		return NULL;
	p->place[p->places++] = next;
	return next.at;
}

void put_unplace(struct tier_put *p)
{
	for (uint32_t i = 0; i < p->places; i++) {
		taken_forget(p->place[i].watch);
		munmap(p->place[i].at, p->place[i].bytes);
	}
	p->places = 0;
}
