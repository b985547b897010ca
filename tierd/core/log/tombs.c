/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tombstones: keys whose records must not come back at the next start. Two queues, of those that
 * are new and of those that the cleaner carries; write-back makes records of them.
 *
 * And which keys may have a record: what is deleted and never was there needs no tombstone. Else
 * who deletes keys of his invention fills the log of all with them.
 *
 *   lsn[hash of context and key] = the highest lsn of a run that names a key of this hash
 *
 * A key whose place says less than the oldest run that any segment shows has no record. More keys
 * than places only mean a tombstone too many. The hash is keyed: which keys share a place is
 * nobody's to know, or one that is there would do for any number that is not.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tierd/core/state.h"

#define PLACES_MIN (1u << 12)
#define PLACES_MAX (1u << 22) /* 32 MiB, touched as they are used */

/*
 * Queue a tombstone for the key. Also for one that is not in the index: a record of a block that
 * was evicted lies in its segment until that is used again, and recovery would bring it back.
 * The bound spares what is put under the key while the tombstone waits for its record.
 * False: the queue is full, try again later.
 */
bool tombstone(struct core *c, struct context *x, const uint8_t *key, uint64_t up_to_lsn)
{
	if (!context_has_nvme(c, x))
		return true;
	if (!tombs_room(&c->tombs[TOMBS_NEW], 1))
		return false;
	tomb_push(&c->tombs[TOMBS_NEW], x->spec.uid, key, up_to_lsn);
	tomb_count(x, up_to_lsn);
	return true;
}

/* ---- whose they are ------------------------------------------------------------------------ */

/* The context has one more. */
void tomb_count(struct context *x, uint64_t bound)
{
	struct tomb_sum *s = &x->tombs;
	uint64_t all = 0;

	for (uint32_t i = 0; i < TOMB_AGES; i++)
		all += s->age[i].keys;
	if (s->age[0].keys > all / TOMB_AGES && s->age[0].keys >= STORE_TOMBSTONE_KEYS_MAX) {
		s->age[TOMB_AGES - 2].keys += s->age[TOMB_AGES - 1].keys;
		for (uint32_t i = TOMB_AGES - 1; i > 0; i--)
			s->age[i] = s->age[i - 1];
		s->age[0].keys = 0;
	}
	s->age[0].keys++;
	if (s->age[0].bound < bound)
		s->age[0].bound = bound;
}

/* What they hold of the store. oldest: store_oldest_lsn, now. */
static uint64_t tombs_bytes(struct core *c, struct context *x, uint64_t oldest)
{
	uint64_t keys = 0;

	for (uint32_t i = 0; i < TOMB_AGES; i++) {
		if (x->tombs.age[i].bound < oldest)
			x->tombs.age[i].keys = 0;
		keys += x->tombs.age[i].keys;
	}
	return store_tombstone_room(core_home(c)->store, keys);
}

/*
 * May it have one more? As much as its quota, beside its blocks, for deleting must end a shortage;
 * and an eighth of the store. At half of that the cleaner begins to move what is as old as they
 * are, whoever it is of: nothing else ends the need.
 */
bool tombs_may(struct core *c, struct context *x, uint64_t oldest)
{
	uint64_t most = c->config.super.segment_count * c->config.super.segment_bytes / 8;
	uint64_t least = store_tombstone_room(core_home(c)->store, TOMBS_MAX);
	uint64_t bytes = tombs_bytes(c, x, oldest);

	assert(least > 0);
	if (most > x->plan.quota[ABI_TIER_NVME])
		most = x->plan.quota[ABI_TIER_NVME];
	if (most < least)
		most = least; /* small ones: a queue full */
	for (uint32_t i = TOMB_AGES; bytes > most / 2 && i-- > 0;)
		if (x->tombs.age[i].keys) {
			if (c->tombs_bound < x->tombs.age[i].bound)
				c->tombs_bound = x->tombs.age[i].bound;
			break;
		}
	c->tombs_refused |= bytes > most;
	return bytes <= most;
}

/* ---- the queues ---------------------------------------------------------------------------- */

bool tombs_room(const struct tombs *t, uint32_t keys)
{
	return t->queued - t->flushed + keys <= TOMBS_MAX;
}

void tomb_push(struct tombs *t, uint64_t context_uid, const uint8_t *key, uint64_t up_to_lsn)
{
	struct tomb *at = &t->tomb[t->queued++ % TOMBS_MAX];

	assert(t->queued - t->flushed <= TOMBS_MAX);
	memset(at, 0, sizeof(*at));
	at->context_uid = context_uid;
	memcpy(at->block.key, key, ABI_KEY_BYTES);
	at->block.salt = up_to_lsn;
}

/*
 * How many one record takes from the queue's head on: all of the context of the first. Those that
 * the cleaner carries stand in any order, so others of that context come to the front: where
 * contexts had deleted by turns each key would have a record again.
 */
static uint32_t tombs_alike(struct tombs *t, enum tombs_kind kind)
{
	uint64_t first = t->written;
	uint64_t uid = t->tomb[first % TOMBS_MAX].context_uid;
	uint32_t n = 0;

	assert(t->flushed <= first && first <= t->queued);
	for (uint64_t i = first; i < t->queued && n < STORE_TOMBSTONE_KEYS_MAX; i++) {
		struct tomb *at = &t->tomb[i % TOMBS_MAX];
		struct tomb *to = &t->tomb[(first + n) % TOMBS_MAX], moved = *to;

		if (at->context_uid != uid && kind == TOMBS_NEW)
			break; /* who waits for these counts by their places */
		if (at->context_uid != uid)
			continue;
		*to = *at;
		*at = moved;
		n++;
	}
	return n;
}

/* ---- which keys may have a record ---------------------------------------------------------- */

/* Two for each block of the smallest size that fits all devices. */
int recorded_open(struct core *c)
{
	uint64_t blocks = 0;
	uint32_t places = PLACES_MIN;

	for (uint32_t i = 0; i < c->drives; i++) {
		const struct disk_super *s = &c->drive[i]->super;

		blocks += s->segment_count * s->segment_bytes / DISK_SECTOR;
	}
	while (places < PLACES_MAX && places < 2 * blocks)
		places *= 2;
	c->recorded.lsn = calloc(places, sizeof(*c->recorded.lsn));
	c->recorded.places = places;
	return c->recorded.lsn ? 0 : -ENOMEM;
}

void recorded_close(struct core *c)
{
	free(c->recorded.lsn);
}

/* As in splitmix64, with the secret stirred in before each of the words. */
static uint64_t *place_of(const struct core *c, uint64_t uid, const uint8_t *key)
{
	uint64_t z = c->config.secret ^ uid, word;

	for (uint32_t i = 0; i < ABI_KEY_BYTES / sizeof(word); i++) {
		memcpy(&word, key + i * sizeof(word), sizeof(word));
		z = (z ^ word) + c->config.secret;
		z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
		z = (z ^ z >> 27) * 0x94d049bb133111ebull;
		z ^= z >> 31;
	}
	return &c->recorded.lsn[z & (c->recorded.places - 1)];
}

/* A record of this lsn names the key, or will once it is written. */
void recorded_add(struct core *c, const struct context *x, const uint8_t *key, uint64_t lsn)
{
	uint64_t *place = place_of(c, x->spec.uid, key);

	assert(lsn);
	/* Written first: read first a place without memory costs two faults instead of one. */
	if (atomic_add_relaxed_u64(place, 0) < lsn)
		*place = lsn;
}

/* May a record of the key come back? oldest: store_oldest_lsn, now. */
bool recorded_may(const struct core *c, const struct context *x, const uint8_t *key,
		  uint64_t oldest)
{
	uint64_t lsn = *place_of(c, x->spec.uid, key);

	return !oldest || (lsn && lsn >= oldest);
}

/* ---- their record ------------------------------------------------------------------------- */

/* Place for a record of so many keys, if need be in a segment that is made free for it. */
static bool tombs_place(struct core *c, uint32_t keys, enum tombs_kind kind,
			struct store_run *place)
{
	struct drive *home = core_home(c);
	bool carried = kind == TOMBS_CARRIED;
	int err = store_append_tombstone(home->store, keys, carried, place);

	if (err == -ENOSPC && evict_store_for(c, home, STORE_DURABLE))
		err = store_append_tombstone(home->store, keys, carried, place);
	return !err;
}

/*
 * As many as the record takes, all of one context: the queue's head decides which. False: there are
 * none, or no room for them.
 */
static bool tombs_begin(struct core *c, struct run *run, enum tombs_kind kind)
{
	struct tombs *t = &c->tombs[kind];
	uint64_t first = t->written;
	uint64_t uid = t->tomb[first % TOMBS_MAX].context_uid;
	uint32_t n = tombs_alike(t, kind);

	assert(run->phase == RUN_FREE && n <= t->queued - first);
	if (!n)
		return false;
	if (!tombs_place(c, n, kind, &run->place)) {
		if (!t->full_since_ns)
			t->full_since_ns = c->now_ns;
		return false;
	}
	t->full_since_ns = 0;
	n = run->place.blocks; /* as many as one record takes */
	run->place.bound = 0;
	for (uint32_t i = 0; i < n; i++)
		if (t->tomb[(first + i) % TOMBS_MAX].block.salt > run->place.bound)
			run->place.bound = t->tomb[(first + i) % TOMBS_MAX].block.salt;
	run->tomb_kind = kind;
	run->tomb_first = first;
	run->ctx = NULL;
	run->tombs = n;
	run->blocks = run->cursor = run->outstanding = 0;
	run->written = 0;
	run->failed = run->suspect = run->lost = false;
	memset(&run->head, 0, sizeof(run->head));
	run->head.type = DISK_RECORD_TOMBSTONE;
	run->head.context_uid = uid;
	run->head.block_count = n;
	run->voids = c->catalog.voids;
	run->phase = run->place.header_offset ? RUN_HEADER : RUN_DATA;
	return true;
}

/* One record at a time, beside those of blocks. */
void tombs_write(struct core *c)
{
	struct drive *home = core_home(c);
	struct run *run = drive_run_free(home, DISK_LOG_DURABLE);

	for (uint32_t i = CORE_RUN_FIRST(DISK_LOG_DURABLE); i < CORE_RUNS_MAX; i++)
		if (home->run[i].phase != RUN_FREE && home->run[i].tombs)
			return;
	if (run && c->now_ns >= home->write_retry_ns &&
	    !tombs_begin(c, run, TOMBS_CARRIED)) /* they make room for the others */
		tombs_begin(c, run, TOMBS_NEW);
}
