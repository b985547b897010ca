/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lives of a context's name. An owner may make a context again before the removal of the one
 * before is durable: until that is answered, a crash may bring the old one back, with all that it
 * held. After the answer it must not come back; and what was made, or raised to an epoch, and
 * answered must not be lost. The number of a life is kept where a client keeps a model's
 * fingerprint.
 */
#include <string.h>

#include "tests/sim/world_priv.h"

static struct world_life *past_of(struct world_context *x, uint64_t number)
{
	for (uint32_t i = 0; number && i < WORLD_LIVES; i++)
		if (x->past[i].number == number)
			return &x->past[i];
	return NULL;
}

/* May the context be made again, with room to remember the one before should it go as well? */
bool lives_room(const struct world_context *x)
{
	for (uint32_t i = 0; i < WORLD_LIVES; i++)
		if (!x->past[i].number)
			return true;
	return false;
}

void lives_mark(struct disk_context *spec, uint64_t number)
{
	memcpy(spec->fingerprint, &number, sizeof(number));
}

/* Made anew: nothing is owed. */
void lives_begin(struct world *w, uint32_t which)
{
	memset(&w->context[which].now, 0, sizeof(w->context[which].now));
	w->context[which].now.number = ++w->lives;
	w->context[which].now.epoch = 1;
}

/* Removed, and its last page was let go. */
void lives_end(struct world *w, uint32_t which)
{
	struct world_context *x = &w->context[which];

	for (uint32_t i = 0; !x->now.removed && i < WORLD_LIVES; i++)
		if (!x->past[i].number) {
			x->past[i] = x->now;
			break;
		}
	memset(&x->now, 0, sizeof(x->now));
}

/* What an owner was told is durable, of this life. */
void lives_made(struct world *w, uint32_t which, uint64_t number)
{
	struct world_context *x = &w->context[which];

	for (uint32_t i = 0; i < WORLD_LIVES; i++)
		if (x->past[i].number < number)
			x->past[i].number = 0;
	if (x->now.number == number)
		x->now.made = true;
}

void lives_raised(struct world *w, uint32_t which, uint64_t number, uint64_t epoch)
{
	struct world_context *x = &w->context[which];
	struct world_life *life = x->now.number == number ? &x->now : past_of(x, number);

	if (life && epoch > life->epoch)
		life->epoch = epoch;
}

void lives_removed(struct world *w, uint32_t which, uint64_t number)
{
	struct world_context *x = &w->context[which];
	struct world_life *past = past_of(x, number);

	if (past)
		past->number = 0;
	else if (x->now.number == number)
		x->now.removed = true;
}

/* Is the catalog that a crash leaves one that may be? from: its context, NULL = it has none. */
void lives_owed(struct world *w, uint32_t which, const struct disk_context *from)
{
	struct world_context *x = &w->context[which];
	const struct world_life *life = &x->now, *past;
	uint64_t number;

	if (!from) {
		if (x->now.made && !x->removing)
			world_fail(w, "context %u is gone", which);
		return;
	}
	memcpy(&number, from->fingerprint, sizeof(number));
	past = past_of(x, number);
	if (past)
		life = past;
	else if (number != x->now.number || x->now.removed)
		world_fail(w, "context %u is back after its removal", which);
	if (from->epoch < life->epoch)
		world_fail(w, "context %u lost its epoch %llu", which,
			   (unsigned long long)life->epoch);
}

/* After a crash: the catalog names the context. */
void lives_found(struct world *w, uint32_t which, const struct disk_context *from)
{
	struct world_context *x = &w->context[which];
	const struct world_life *past;
	uint64_t number;

	lives_owed(w, which, from);
	memcpy(&number, from->fingerprint, sizeof(number));
	past = past_of(x, number);
	if (past)
		x->now = *past;
	x->now.made = true;
	x->now.epoch = from->epoch; /* what a start has found stays */
	memset(x->past, 0, sizeof(x->past));
}

/* ... or it does not. */
void lives_missed(struct world *w, uint32_t which)
{
	lives_owed(w, which, NULL);
	memset(w->context[which].past, 0, sizeof(w->context[which].past));
}
