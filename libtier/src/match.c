/*
 * Match: how much of a prefix is stored. A batch of look-ups as a pipeline of four stages over
 * groups of keys: while the block lines of one group are compared, tags of the overflow lines of
 * the next are, and those of the bucket lines of the one after, and the bucket lines of the last
 * are on their way. Each stage asks for the one line that the next one reads.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <string.h>

#include "libtier/base/key.h"
#include "libtier/src/error.h"
#include "libtier/src/index_read.h"
#include "libtier/src/connection.h"

/* Three of its stages have a miss under way at a time, and a core overlaps few dozens: 8 to 12 come
 * to the same, 16 are a tenth slower in large indexes, 4 a quarter. */
#define MATCH_GROUP 10u
#define MATCH_FEW 3u
#define TAILS 32u /* looked up at a time, the longest first */

struct match {
	const struct map *map;
	const tier_key *keys;
	uint32_t count;
	struct tier_found *found; /* NULL: only the prefix is wanted */
	uint64_t buckets;
	uint32_t epoch;
	uint32_t hits;
	int64_t usable;  /* blocks of the longest prefix so far that is whole */
	bool ended;      /* a block was no hit: the prefix ends there */
	uint32_t run[ABI_PARTS_MAX]; /* consecutive blocks up to here that have the part */
};

/* The keys of a group between two stages. */
struct group {
	struct index_probe probe[MATCH_GROUP];
};

static uint32_t group_size(const struct match *s, uint32_t group)
{
	uint64_t from = (uint64_t)group * MATCH_GROUP;
	uint64_t left = from < s->count ? s->count - from : 0;

	return left < MATCH_GROUP ? (uint32_t)left : MATCH_GROUP;
}

static void start_group(const struct match *s, uint32_t number, struct group *g)
{
	uint32_t n = group_size(s, number);
	const tier_key *keys = s->keys + (uint64_t)number * MATCH_GROUP;

	for (uint32_t i = 0; i < n; i++)
		index_read_start(s->map, s->buckets, keys[i].bytes, &g->probe[i]);
}

static void tag_group(const struct match *s, uint32_t number, struct group *g)
{
	uint32_t n = group_size(s, number);

	for (uint32_t i = 0; i < n; i++)
		index_read_tags(s->map, &g->probe[i]);
}

static void overflow_group(const struct match *s, uint32_t number, struct group *g)
{
	uint32_t n = group_size(s, number);

	for (uint32_t i = 0; i < n; i++)
		index_read_overflow(s->map, &g->probe[i]);
}

/* The block is whole: does the prefix that ends with it satisfy the parts that need the last n? */
static void extend_prefix(struct match *s, int64_t length, uint32_t parts)
{
	bool whole = true;

	for (uint32_t p = 0; p < s->map->part_count; p++) {
		uint32_t need = s->map->part[p].hit_last;

		if (need == 0)
			continue;
		s->run[p] = parts >> p & 1 ? s->run[p] + 1 : 0;
		whole = whole && s->run[p] >= (length < need ? length : need);
	}
	if (whole)
		s->usable = length;
}

static uint8_t state_of(const struct match *s, const struct index_found *f)
{
	if (f->epoch != s->epoch)
		return TIER_MISS;
	if (f->state == ABI_BLOCK_PENDING)
		return TIER_PENDING;
	return (f->parts & s->map->parts_every) == s->map->parts_every ? TIER_HIT : TIER_MISS;
}

static void take_answer(struct match *s, uint32_t i, bool there, const struct index_found *f)
{
	uint8_t state = there ? state_of(s, f) : TIER_MISS;

	if (state == TIER_HIT)
		s->hits++;
	else
		s->ended = true;
	if (!s->ended)
		extend_prefix(s, (int64_t)i + 1, f->parts);
	if (!s->found)
		return;
	s->found[i] = (struct tier_found){ .state = state };
	if (state == TIER_MISS)
		return;
	s->found[i].block.slot = f->slot;
	s->found[i].block.generation = f->generation ^ s->map->salt;
	s->found[i].tier = f->tier < TIER_COUNT ? (uint8_t)f->tier : TIER_NVME;
}

static void finish_group(struct match *s, uint32_t number, const struct group *g)
{
	uint32_t n = group_size(s, number);
	uint32_t from = number * MATCH_GROUP;

	for (uint32_t i = 0; i < n; i++) {
		struct index_found f;
		bool there = index_read_finish(s->map, s->buckets, s->keys[from + i].bytes,
					       &g->probe[i], &f);

		take_answer(s, from + i, there, &f);
	}
}

static void match_many(struct match *s)
{
	uint32_t groups = (uint32_t)(((uint64_t)s->count + MATCH_GROUP - 1) / MATCH_GROUP);
	struct group ring[4]; /* group n lies in ring[n % 4] */

	for (uint32_t n = 0; n < 3; n++)
		start_group(s, n, &ring[n]);
	tag_group(s, 0, &ring[0]);
	tag_group(s, 1, &ring[1]);
	overflow_group(s, 0, &ring[0]);
	for (uint32_t n = 0; n < groups; n++) {
		start_group(s, n + 3, &ring[(n + 3) % 4]);
		tag_group(s, n + 2, &ring[(n + 2) % 4]);
		overflow_group(s, n + 1, &ring[(n + 1) % 4]);
		finish_group(s, n, &ring[n % 4]);
		if (s->ended && !s->found)
			break;
	}
}

/* Too few to overlap anything. */
static void match_few(struct match *s)
{
	for (uint32_t i = 0; i < s->count; i++) {
		struct index_found f;
		bool there = index_read_find(s->map, s->keys[i].bytes, INDEX_NO_PAGE, &f);

		take_answer(s, i, there, &f);
	}
}

int64_t tier_match(tier_context *c, const tier_key *keys, uint32_t count,
		   struct tier_found *found)
{
	struct match s = { .keys = keys, .count = count, .found = found };
	struct attachment *a;
	int rc = context_check(c);

	if (unlikely(rc))
		return rc;
	if (count == 0)
		return 0;
	if (!keys)
		return error_note(-EINVAL, "tier_match: keys is NULL");
	s.map = context_enter(c, &a);
	if (!s.map) {
		if (found)
			memset(found, 0, count * sizeof(*found));
		return 0;
	}
	s.buckets = index_read_buckets(s.map);
	s.epoch = map_epoch(s.map);
	if (count < MATCH_FEW)
		match_few(&s);
	else
		match_many(&s);
	context_leave(a);
	atomic_add_relaxed_u64(&c->t->lookups, count);
	if (s.hits > 0)
		atomic_add_relaxed_u64(&c->t->lookup_hits, s.hits);
	return s.usable;
}

static int tail_check(const tier_context *c, const struct tier_tail *tail)
{
	int rc = context_check(c);

	if (rc)
		return rc;
	if (!tail || (tail->count > 0 && !tail->tokens) ||
	    (tail->salt && tail->salt->count > 0 && !tail->salt->bytes))
		return error_note(-EINVAL, "tier_match_tail: a pointer is NULL");
	return 0;
}

/*
 * Of the beginnings of a block that the caller knows, which is the longest that is stored? A tail
 * is a block like any other, so only its keys tell: all that it can have are looked up, in few
 * batches. That is hashing of some hundred nanoseconds for each token, where computing one takes
 * an engine thousands of times as long.
 */
int64_t tier_match_tail(tier_context *c, const struct tier_tail *tail, tier_key *key,
			struct tier_found *found)
{
	struct tier_found all[TAILS];
	tier_key keys[TAILS];
	struct key_sequence s;
	int rc = tail_check(c, tail);

	if (rc)
		return rc;
	s = (struct key_sequence){
		.parent = tail->parent ? tail->parent->bytes : NULL,
		.salt = tail->salt ? tail->salt->bytes : NULL,
		.salt_len = tail->salt ? tail->salt->count : 0,
		.block_tokens = c->geometry.abi.block_tokens - 1,
	};
	if (s.block_tokens > tail->count)
		s.block_tokens = tail->count;
	while (s.block_tokens > 0) {
		uint32_t n = s.block_tokens < TAILS ? (uint32_t)s.block_tokens : TAILS;
		int64_t usable;

		if (key_tails((uint8_t(*)[KEY_BYTES])keys, &s, tail->tokens, n) != 0)
			return error_note(-ENOMEM, "tier_match_tail: libcrypto failed");
		usable = tier_match(c, keys, n, all);
		for (uint32_t i = 0; i < n && usable >= 0; i++) {
			if (all[i].state != TIER_HIT)
				continue;
			if (key)
				*key = keys[i];
			if (found)
				*found = all[i];
			return (int64_t)s.block_tokens - i;
		}
		if (usable < 0)
			return usable;
		s.block_tokens -= n;
	}
	return 0;
}
