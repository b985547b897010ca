/* SPDX-License-Identifier: Apache-2.0 */
/* Following a context's events (abi/index.h E1-E4), and reading all of its table. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libtier/base/time.h"
#include "libtier/src/error.h"
#include "libtier/src/index_read.h"
#include "libtier/src/connection.h"

#define LOOK_NS 1000000u
#define SNAPSHOT_LEAST 128u
#define CHECK_LOOKS 100u
#define CHAIN_LOOKS 1000000u
#define CHAIN_ENTRIES (ABI_CHAIN_MAX * ABI_BUCKET_SLOTS)
#define EVENT_WORDS (sizeof(struct abi_event) / sizeof(uint64_t))
#define KEY_WORDS (ABI_KEY_BYTES / sizeof(uint32_t))
_Static_assert(CHAIN_ENTRIES <= SNAPSHOT_LEAST, "a call takes a chain whole");

struct tier_events {
	tier_context *c;
	uint64_t number; /* of the mapping that is followed */
	uint64_t next;   /* event */
	uint64_t bucket; /* the snapshot's; 0 = it begins */
	uint32_t looks; /* without a look at the socket: over calls, as each may wait for less */
};

static uint64_t newest(const struct map *m)
{
	return atomic_load_acquire_u64(&m->header->event_seq);
}

static void begin(struct tier_events *e, const struct map *m)
{
	e->number = m->number;
	e->next = newest(m) + 1;
	e->bucket = 0;
}

/* The mapping, if it is the one that was followed. */
static int enter(struct tier_events *e, const struct map **m, struct attachment **a)
{
	int rc = 0;

	*m = context_enter(e->c, a);
	if (!*m)
		return -EAGAIN;
	if ((*m)->lost || !index_read_buckets(*m)) /* its memory is empty once it was removed */
		rc = error_note(-ENOENT, "events: the context is gone");
	else if (!(*m)->event)
		rc = error_note(-ENOTSUP, "events: this daemon writes none; update it");
	else if ((*m)->number != e->number)
		rc = error_note(-EOVERFLOW, "events: the daemon was restarted; take a snapshot");
	if (rc == -EOVERFLOW)
		begin(e, *m);
	if (rc)
		context_leave(*a);
	return rc;
}

int tier_events_open(tier_context *c, tier_events **out)
{
	struct tier_events *e;
	struct attachment *a;
	const struct map *m;
	int rc = context_check(c);

	if (rc)
		return rc;
	if (!out)
		return error_note(-EINVAL, "tier_events_open: out is NULL");
	e = calloc(1, sizeof(*e));
	if (!e)
		return error_note(-ENOMEM, "events: out of memory");
	e->c = c;
	rc = enter(e, &m, &a); /* where the daemon is away, reading begins with -EOVERFLOW */
	if (rc == 0)
		context_leave(a);
	if (rc == -ENOTSUP || rc == -ENOENT) {
		free(e);
		return rc;
	}
	*out = e;
	return 0;
}

void tier_events_close(tier_events *e)
{
	free(e);
}

/* ---- the ring ------------------------------------------------------------------------------- */

/* E2. False: overtaken. */
static bool copy(const struct map *m, uint64_t seq, struct tier_event *out)
{
	const uint64_t *from = (const uint64_t *)&m->event[seq % ABI_EVENTS];
	uint64_t word[EVENT_WORDS];
	struct abi_event e;

	if (atomic_load_acquire_u64(from) != seq)
		return false;
	for (uint32_t i = 0; i < EVENT_WORDS; i++)
		word[i] = atomic_load_relaxed_u64(from + i);
	acquire_fence(); /* all words before the second look */
	if (atomic_load_relaxed_u64(from) != seq)
		return false;
	memcpy(&e, word, sizeof(e));
	*out = (struct tier_event){ .seq = seq, .kind = e.kind, .depth = e.depth,
				    .tier = e.tier < TIER_COUNT ? e.tier : TIER_NVME,
				    .epoch = e.epoch };
	memcpy(out->key.bytes, e.key, ABI_KEY_BYTES);
	memcpy(out->parent.bytes, e.parent, ABI_KEY_BYTES);
	return true;
}

static int64_t take(struct tier_events *e, const struct map *m, struct tier_event *out,
		    uint32_t max)
{
	uint64_t last = newest(m);
	int64_t n = 0;

	while (n < max && e->next <= last && copy(m, e->next, &out[n])) {
		e->next++;
		n++;
	}
	if (n > 0 || e->next > last)
		return n;
	last = newest(m);
	n = error_set(-EOVERFLOW, "events: %llu were lost; take a snapshot",
		      (unsigned long long)(last - e->next + 1));
	e->next = last + 1;
	e->bucket = 0; /* a snapshot that was left half-way is of no use any more */
	return n;
}

int64_t tier_events_read(tier_events *e, struct tier_event *out, uint32_t max, uint64_t timeout_ns)
{
	uint64_t end = timeout_ns ? time_now_ns() + timeout_ns : 0;
	struct attachment *a;
	const struct map *m;
	int64_t n = 0;
	int rc;

	if (!e || !out || !max)
		return error_note(-EINVAL, "tier_events_read: a pointer is NULL, or max is 0");
	rc = context_check(e->c);
	if (rc)
		return rc;
	for (;;) {
		const struct timespec look = { .tv_nsec = LOOK_NS };

		rc = enter(e, &m, &a);
		if (rc && rc != -EAGAIN)
			return rc;
		if (!rc) {
			n = take(e, m, out, max);
			context_leave(a);
		}
		if (n || !timeout_ns || time_now_ns() >= end)
			return n;
		nanosleep(&look, NULL);
		if (++e->looks % CHECK_LOOKS == 0)
			tier_check(e->c->t); /* who only follows attaches anew by this alone */
	}
}

/* ---- the table ------------------------------------------------------------------------------ */

static void copy_key(uint8_t *to, const uint8_t *from)
{
	uint32_t word[KEY_WORDS];

	for (uint32_t i = 0; i < KEY_WORDS; i++)
		word[i] = atomic_load_relaxed_u32((const uint32_t *)(const void *)from + i);
	memcpy(to, word, ABI_KEY_BYTES);
}

/* One life of a slot, whole. False: it is none that can be hit. */
static bool copy_block(const struct map *m, uint32_t slot, struct tier_event *out)
{
	const struct abi_block *b = &m->block[slot];
	uint32_t generation = atomic_load_acquire_u32(&b->generation), state, parent;

	*out = (struct tier_event){ .kind = TIER_EVENT_STORED };
	state = atomic_load_acquire_u32(&b->state);
	copy_key(out->key.bytes, b->key);
	out->tier = atomic_load_relaxed_u32(&b->tier);
	out->depth = atomic_load_relaxed_u32(&b->depth);
	out->epoch = atomic_load_relaxed_u32(&b->epoch);
	parent = atomic_load_relaxed_u32(&b->parent);
	if (parent < m->blocks_max &&
	    atomic_load_acquire_u32(&m->block[parent].state) != ABI_BLOCK_FREE)
		copy_key(out->parent.bytes, m->block[parent].key);
	acquire_fence();
	if (out->tier >= TIER_COUNT)
		out->tier = TIER_NVME;
	return atomic_load_relaxed_u32(&b->generation) == generation &&
	       state == ABI_BLOCK_COMMITTED && out->epoch == map_epoch(m);
}

/* The slots of one chain; how many, -EAGAIN: it is being changed. */
static int chain_slots(const struct map *m, uint64_t bucket, uint32_t slot[CHAIN_ENTRIES])
{
	const struct abi_bucket *head = &m->bucket[bucket], *line = head;
	uint32_t seq = atomic_load_acquire_u32(&head->seq);
	int n = 0;

	if (seq & 1)
		return -EAGAIN;
	for (uint32_t i = 0; i < ABI_CHAIN_MAX; i++) {
		uint32_t next = atomic_load_relaxed_u32(&line->overflow);

		for (uint32_t k = 0; k < ABI_BUCKET_SLOTS; k++) {
			slot[n] = atomic_load_relaxed_u32(&line->slot[k]);
			n += slot[n] < m->blocks_max;
		}
		if (next == 0 || next > m->overflow_max)
			break;
		line = &m->overflow[next - 1];
	}
	acquire_fence();
	return atomic_load_relaxed_u32(&head->seq) == seq ? n : -EAGAIN;
}

/*
 * A table that grows meanwhile moves entries to buckets behind all there are (abi_bucket_of), so
 * going up misses none.
 */
static int64_t scan(struct tier_events *e, const struct map *m, struct tier_event *out,
		    uint32_t max)
{
	int64_t n = 0;

	while (n + CHAIN_ENTRIES <= max && e->bucket < index_read_buckets(m)) {
		uint32_t slot[CHAIN_ENTRIES];
		int slots = chain_slots(m, e->bucket, slot);

		for (uint32_t i = 0; slots < 0 && i < CHAIN_LOOKS; i++) {
			cpu_relax();
			slots = chain_slots(m, e->bucket, slot);
		}
		if (slots < 0) /* the daemon holds it for some stores only: it has died in these */
			return error_note(-ENOTCONN, "events: the daemon is away");
		for (int i = 0; i < slots; i++)
			n += copy_block(m, slot[i], &out[n]);
		e->bucket++;
	}
	return n;
}

int64_t tier_events_snapshot(tier_events *e, struct tier_event *out, uint32_t max)
{
	struct attachment *a;
	const struct map *m;
	int64_t n;
	int rc;

	if (!e || !out || max < SNAPSHOT_LEAST)
		return error_set(-EINVAL, "tier_events_snapshot: a pointer is NULL, or max is "
					  "below %u", SNAPSHOT_LEAST);
	rc = context_check(e->c);
	if (rc)
		return rc;
	rc = enter(e, &m, &a);
	if (rc == -EOVERFLOW && !e->bucket)
		rc = enter(e, &m, &a); /* it has not begun yet: it is of the new one */
	if (rc == -EAGAIN)
		rc = error_note(-ENOTCONN, "events: the daemon is away");
	if (rc)
		return rc;
	if (!e->bucket)
		begin(e, m);
	n = scan(e, m, out, max);
	context_leave(a);
	if (n <= 0)
		e->bucket = 0;
	return n;
}
