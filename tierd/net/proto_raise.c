/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A raise: an epoch, or a deletion, written into etcd and waited for; see agree.h. It is
 * acknowledged when no record under applied/ is behind: who has not applied it holds that up until
 * its lease is over, and then serves nothing strict (R5).
 */
#include <errno.h>
#include <string.h>

#include "tierd/net/agree.h"

static bool fail(struct agree_raise *r, int error)
{
	r->error = error;
	return false;
}

/* What context/DIGEST is to become. False: it is not to be raised. */
static bool wanted(struct agree_raise *r, struct agree_call *c)
{
	uint64_t epoch = r->ours > r->there.epoch ? r->ours : r->there.epoch;

	c->mod = r->there.mod;
	c->first = r->there.mod ? r->there.first : 1;
	if (r->deletion) { /* an epoch of our own comes there by our turn alone */
		c->what = AGREE_ADD;
		c->epoch = r->there.mod ? r->there.epoch : epoch;
		c->deleted = r->there.deleted + 1;
		r->number = c->deleted;
		return c->deleted - c->first < AGREE_LOG_MAX || fail(r, -ENOSPC);
	}
	r->epoch = r->want ? r->want : epoch + 1;
	c->what = AGREE_PUT;
	c->epoch = r->epoch;
	c->deleted = r->there.deleted;
	c->first = r->there.deleted + 1;
	return r->epoch > epoch || fail(r, -EINVAL);
}

enum agree_do agree_raise_next(struct agree_raise *r, struct agree_call *c)
{
	*c = (struct agree_call){ .what = AGREE_AWAY };
	memcpy(c->digest, r->digest, sizeof(c->digest));
	if (r->done)
		return c->what = AGREE_DONE;
	if (r->error)
		return c->what;
	if (r->put)
		return c->what = AGREE_APPLIED;
	if (!r->read)
		return c->what = AGREE_READ;
	return wanted(r, c) ? c->what : (c->what = AGREE_AWAY);
}

static void took_context(struct agree_raise *r, const struct agree_answer *answer)
{
	r->there = (struct agree_record){ 0 };
	for (uint32_t i = 0; i < answer->count; i++)
		if (memcmp(answer->record[i].digest, r->digest, 32) == 0)
			r->there = answer->record[i];
	r->read = true;
}

static void took_applied(struct agree_raise *r, const struct agree_answer *answer)
{
	r->done = true;
	for (uint32_t i = 0; i < answer->count && r->done; i++) {
		const struct agree_record *one = &answer->record[i];

		r->laggard = i;
		r->done = r->deletion ? one->deleted >= r->number : one->epoch >= r->epoch;
	}
}

void agree_raise_answered(struct agree_raise *r, const struct agree_call *c,
			  const struct agree_answer *answer)
{
	if (answer->error == -ESTALE && r->tries++ < AGREE_TRIES) {
		r->read = false; /* somebody was first */
		return;
	}
	if (answer->error) { /* who waits, goes on */
		r->error = c->what == AGREE_APPLIED ? 0 : -EAGAIN;
		return;
	}
	if (c->what == AGREE_READ)
		took_context(r, answer);
	else if (c->what == AGREE_APPLIED)
		took_applied(r, answer);
	else
		r->put = true;
}
