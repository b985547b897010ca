/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A turn: what a host does once in a fifth of its lease; see agree.h. Rules are looked at in one
 * order, again after each answer, and the first that has something to do makes the next call. So
 * what a turn left undone, or somebody else changed, the same rule does again.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "tierd/net/pool.h"

void agree_alone(struct agree *a)
{
	a->until_ns = UINT64_MAX;
}

void agree_begin(struct agree *a, struct agreed *const *share, uint32_t shares, uint64_t now_ns)
{
	assert(shares <= AGREE_SHARES_MAX);
	a->began_ns = now_ns;
	a->away = a->kept = a->read = a->logged = a->entered = a->outside = false;
	a->tries = 0;
	if (a->pool)
		pool_begin(a->pool);
	a->shares = shares;
	for (uint32_t i = 0; i < shares; i++) {
		a->share[i] = share[i];
		a->refused[i] = false;
	}
}

/* ---- what we said -------------------------------------------------------------------------- */

/* NULL: nothing was; make: a new place, what we say there is not known. */
static struct agree_told *told_of(struct agree *a, const uint8_t digest[32], bool make)
{
	struct agree_told *empty = NULL;

	for (uint32_t i = 0; i < AGREE_SHARES_MAX; i++) {
		struct agree_told *t = &a->told[i];

		if (t->used && memcmp(t->digest, digest, 32) == 0)
			return t;
		if (!t->used)
			empty = t;
	}
	if (!make)
		return NULL;
	assert(empty); /* of what is shared no longer it was removed before (leave) */
	*empty = (struct agree_told){ .used = true, .mod = -1 };
	memcpy(empty->digest, digest, 32);
	return empty;
}

static bool shared(const struct agree *a, const uint8_t digest[32])
{
	for (uint32_t i = 0; i < a->shares; i++)
		if (memcmp(a->share[i]->digest, digest, 32) == 0)
			return true;
	return false;
}

/* It is not known what stands there. What is said now, is said before context/ is read (G2). */
static void told_lost(struct agree *a, struct agree_told *t)
{
	t->said = false;
	t->mod = -1;
	a->read = false;
}

static void lease_lost(struct agree *a)
{
	a->leased = false;
	a->until_ns = 0;
	if (a->pool)
		pool_lost(a->pool);
	for (uint32_t i = 0; i < AGREE_SHARES_MAX; i++)
		told_lost(a, &a->told[i]);
}

/* ---- the rules ----------------------------------------------------------------------------- */

static bool lease(const struct agree *a, struct agree_call *c)
{
	c->what = a->leased ? AGREE_KEEP : AGREE_LEASE;
	return !a->kept;
}

static bool mine(const struct agree_told *t, struct agree_call *c)
{
	memcpy(c->digest, t->digest, sizeof(c->digest));
	c->what = AGREE_MINE;
	c->mod = t->mod;
	return t->mod < 0;
}

/* Of contexts that are shared no longer nobody waits for us. */
static bool leave(struct agree *a, struct agree_call *c)
{
	for (uint32_t i = 0; i < AGREE_SHARES_MAX; i++) {
		struct agree_told *t = &a->told[i];

		if (!t->used || shared(a, t->digest))
			continue;
		if (!mine(t, c))
			c->what = AGREE_LEAVE;
		return true;
	}
	return false;
}

static bool say(struct agree *a, struct agree_call *c)
{
	for (uint32_t i = 0; i < a->shares; i++) {
		const struct agreed *s = a->share[i];
		struct agree_told *t = told_of(a, s->digest, true);

		if (t->said && t->epoch == s->epoch && t->deleted == s->deleted)
			continue;
		if (!mine(t, c)) {
			c->what = AGREE_SAY;
			c->epoch = s->epoch;
			c->deleted = s->deleted;
		}
		return true;
	}
	return false;
}

/* A higher epoch of ours is the fleet's. */
static bool put(const struct agreed *s, const struct agree_record *r, struct agree_call *c)
{
	c->what = AGREE_PUT;
	c->epoch = s->epoch;
	c->deleted = r->deleted;
	c->first = r->mod ? r->first : 1;
	c->mod = r->mod;
	return true;
}

static bool raise(uint64_t epoch, struct agree_call *c)
{
	c->what = AGREE_RAISE;
	c->epoch = epoch;
	return true;
}

/* Deletions that we lack, a part at a time; none while bytes of before are on their way (G5). */
static bool catch_up(struct agree *a, uint32_t i, struct agree_call *c)
{
	const struct agreed *s = a->share[i];
	const struct agree_record *r = &a->there[i];

	c->what = a->logged ? AGREE_DELETE : AGREE_LOG;
	c->first = s->deleted + 1 > r->first ? s->deleted + 1 : r->first;
	c->last = c->first + AGREE_LOG_PART - 1 < r->deleted ? c->first + AGREE_LOG_PART - 1 :
							       r->deleted;
	a->refused[i] = s->publishing > 0;
	return !a->refused[i];
}

/*
 * One context is as etcd has it, or the other way round. Of an epoch that was raised here alone
 * there may be blocks older than a deletion whose record has gone, also where it was done: a copy
 * of the store may come back. The next epoch has none.
 */
static bool settle(struct agree *a, uint32_t i, struct agree_call *c)
{
	struct agreed *s = a->share[i];
	const struct agree_record *r = &a->there[i];

	memcpy(c->digest, s->digest, sizeof(c->digest));
	c->share = i;
	if (s->epoch < r->epoch)
		return raise(r->epoch, c);
	if (s->epoch > r->epoch && r->first > 1 &&
	    (s->clean_epoch != s->epoch || s->clean < r->first))
		return raise(s->epoch + 1, c);
	if (s->deleted < r->deleted && r->first <= r->deleted)
		return catch_up(a, i, c);
	if (s->deleted != r->deleted) { /* all have gone; or etcd was made anew */
		s->deleted = r->deleted;
		return say(a, c);
	}
	if (!r->mod || s->epoch > r->epoch)
		return put(s, r, c);
	s->known = true;
	return false;
}

static bool settle_all(struct agree *a, struct agree_call *c)
{
	for (uint32_t i = 0; i < a->shares; i++)
		if (!a->refused[i] && settle(a, i, c))
			return true;
	return false;
}

enum agree_do agree_next(struct agree *a, struct agree_call *c)
{
	*c = (struct agree_call){ .what = AGREE_AWAY };
	if (a->away || a->tries > AGREE_TRIES)
		return c->what;
	if (lease(a, c) || leave(a, c) || say(a, c))
		return c->what;
	c->what = AGREE_READ;
	if (!a->read || settle_all(a, c))
		return c->what;
	c->what = a->outside ? AGREE_ENTER : AGREE_MEMBERS;
	c->mod = a->member_mod;
	if (!a->entered || (a->pool && pool_next(a->pool, a->member_mod, c)))
		return c->what;
	a->until_ns = a->began_ns + a->lease_ns - a->lease_ns / 32; /* G3 */
	return c->what = AGREE_DONE;
}

/* ---- answers ------------------------------------------------------------------------------- */

static void took_lease(struct agree *a, const struct agree_call *c, const struct agree_answer *r)
{
	if (r->error && c->what == AGREE_KEEP)
		lease_lost(a);
	else if (r->error)
		a->away = true;
	else
		a->kept = a->leased = true;
}

static void told(struct agree *a, const struct agree_call *c, const struct agree_answer *r)
{
	struct agree_told *t = told_of(a, c->digest, false);

	assert(t);
	if (r->error) {
		told_lost(a, t);
	} else if (c->what == AGREE_MINE) {
		t->mod = r->mod;
		if (!r->mod && !shared(a, c->digest))
			t->used = false;
	} else if (c->what == AGREE_LEAVE) {
		t->used = false;
	} else {
		t->mod = r->mod;
		t->said = true;
		t->epoch = c->epoch;
		t->deleted = c->deleted;
	}
}

static void took_records(struct agree *a, const struct agree_answer *r)
{
	for (uint32_t i = 0; i < a->shares; i++) {
		struct agreed *s = a->share[i];

		a->there[i] = (struct agree_record){ 0 };
		for (uint32_t k = 0; k < r->count; k++)
			if (memcmp(r->record[k].digest, s->digest, 32) == 0)
				a->there[i] = r->record[k];
		if (a->there[i].epoch > s->epoch || a->there[i].deleted > s->deleted)
			s->known = false; /* G4 */
	}
	a->read = true;
}

/* Are all of them there? Those of an epoch go when the next one comes: then it is read again. */
static void took_log(struct agree *a, const struct agree_call *c, const struct agree_answer *r)
{
	a->logged = !r->error && r->count == c->last - c->first + 1;
	a->read = a->logged;
	a->tries += !a->logged;
}

static void took_host(struct agree *a, const struct agree_call *c, const struct agree_answer *r)
{
	struct agreed *s = a->share[c->share];

	a->logged = false;
	if (r->error) {
		a->refused[c->share] = true;
	} else if (c->what == AGREE_DELETE) {
		s->deleted = c->last;
	} else { /* what they were about is no hit */
		s->deleted = a->there[c->share].deleted;
		s->clean = a->there[c->share].first;
		s->clean_epoch = c->epoch;
	}
}

void agree_answered(struct agree *a, const struct agree_call *c, const struct agree_answer *r)
{
	bool lost = c->what == AGREE_SAY || c->what == AGREE_LEAVE;

	if (c->what == AGREE_POOL_READ || c->what == AGREE_POOL_CLAIM) {
		pool_answered(a->pool, c, r);
		a->away = r->error == -EAGAIN;
		return;
	}
	a->tries += r->error == -ESTALE;
	if (r->error == -EAGAIN && c->what != AGREE_RAISE && c->what != AGREE_DELETE) {
		a->away = true;
		if (lost) /* it may have been written */
			told_lost(a, told_of(a, c->digest, false));
		return;
	}
	switch (c->what) {
	case AGREE_KEEP:
	case AGREE_LEASE:
		took_lease(a, c, r);
		break;
	case AGREE_MINE:
	case AGREE_SAY:
	case AGREE_LEAVE:
		told(a, c, r);
		break;
	case AGREE_READ:
		took_records(a, r);
		break;
	case AGREE_LOG:
		took_log(a, c, r);
		break;
	case AGREE_RAISE:
	case AGREE_DELETE:
		took_host(a, c, r);
		break;
	case AGREE_MEMBERS:
		a->entered = r->right;
		a->outside = !r->right;
		a->member_mod = r->mod;
		break;
	case AGREE_PUT:
		a->read = false;
		break;
	default:
		a->outside = false; /* it is looked at again */
	}
}

/* ---- what may be done ----------------------------------------------------------------------- */

bool agreed_stands(const struct agree *a, const struct agreed *s, uint64_t now_ns)
{
	return s->shared && s->known && (!s->strict || now_ns < a->until_ns);
}

int agreed_grants(const struct agree *a, const struct agreed *s, uint64_t epoch, uint64_t deleted,
		  uint64_t now_ns)
{
	return agreed_stands(a, s, now_ns) && s->epoch == epoch && s->deleted >= deleted ?
		       0 : -ESTALE;
}

bool agreed_publishes(const struct agree *a, const struct agreed *s, uint64_t epoch,
		      uint64_t deleted, uint64_t now_ns)
{
	return agreed_stands(a, s, now_ns) && s->epoch == epoch && s->deleted == deleted;
}
