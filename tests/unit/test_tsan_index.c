/*
 * Readers that follow abi/index.h word by word, while the writer grows the table, removes keys and
 * re-uses their slots. A reader must never miss a key that stays, never find one that was never
 * put, and never take another life of a slot for the one it looked up. Beside them libtier follows
 * the events: whoever began with a snapshot knows in the end what is there (E1-E4).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "libtier/src/reader.h"
#include "tests/lib/index_reader.h"
#include "tests/lib/property.h"
#include "tests/lib/unit.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define READERS 2
#define STABLE 300u    /* ids [0, STABLE) are put first and stay */
#define CHANGING 3000u /* ids [STABLE, CHANGING) come and go */
#define ABSENT 6000u   /* ids [CHANGING, ABSENT) are never put */
#define BLOCKS 4000u
#define STEPS 40000u
#define ROUNDS 16u

struct world {
	struct index ix;
	void *memory;
	size_t bytes;
	uint32_t slot[CHANGING]; /* the writer's */
	uint32_t stop;
};

struct reader {
	struct world *world;
	pthread_t thread;
	uint64_t seed;
	uint64_t hits, misses, busy;
	uint64_t snapshots, events; /* in a sum: the followers' */
	const char *wrong; /* judged by the main thread: cmocka's asserts are for that one */
};

static void key_of(uint64_t id, uint64_t *word)
{
	struct rng rng = { id / 4 }; /* four keys of each hash */

	word[0] = rng_next(&rng);
	word[1] = rng_next(&rng);
	word[2] = id;
	word[3] = ~id;
}

/* ---- the readers --------------------------------------------------------------------------- */

/* NULL, or what is wrong with a hit. */
static const char *judge_hit(const struct world *w, uint32_t id, const struct reader_look *f)
{
	if (id >= CHANGING)
		return "a key was found that was never put";
	if (f->slot >= BLOCKS || f->depth != id)
		return "the slot has another key";
	if (f->state == ABI_BLOCK_FREE)
		return "the block was removed";
	if (id >= STABLE)
		return NULL;
	if (f->state != ABI_BLOCK_COMMITTED || f->slot != atomic_load_relaxed_u32(&w->slot[id]))
		return "a key that stays was found elsewhere";
	if (atomic_load_relaxed_u32(&w->ix.block[f->slot].generation) != f->generation)
		return "a key that stays changed its generation";
	return NULL;
}

static void look_once(struct reader *r, uint32_t id)
{
	const char *wrong = NULL;
	uint64_t key[4];
	struct reader_look f;

	key_of(id, key);
	switch (reader_find(&r->world->ix, key, &f)) {
	case READER_RETRY:
		/* The writer was interrupted inside a chain: the reader's time to let it run. */
		r->busy++;
		sched_yield();
		break;
	case READER_MISS:
		r->misses++;
		wrong = id < STABLE ? "a key that stays was missed" : NULL;
		break;
	default:
		r->hits++;
		wrong = judge_hit(r->world, id, &f);
	}
	r->wrong = wrong ? wrong : r->wrong;
}

static void *reader_run(void *arg)
{
	struct reader *r = arg;
	struct rng rng = { r->seed };

	while (!atomic_load_relaxed_u32(&r->world->stop)) {
		uint32_t below = rng_below(&rng, 2) ? STABLE : ABSENT;

		look_once(r, (uint32_t)rng_below(&rng, below));
	}
	return NULL;
}

/* ---- the follower -------------------------------------------------------------------------- */

/* What libtier needs to follow a world's events, and what it makes of them. */
struct follower {
	struct world *world;
	pthread_t thread;
	struct tier t;
	struct attachment a;
	struct tier_context c;
	struct map map;
	tier_events *events;
	bool there[CHANGING];
	uint64_t snapshots, read;
	const char *wrong;
};

static void apply(struct follower *f, const struct tier_event *e)
{
	uint64_t key[4];

	if (e->depth < CHANGING)
		key_of(e->depth, key);
	if (e->depth >= CHANGING || memcmp(key, e->key.bytes, sizeof(key)) != 0)
		f->wrong = "an event is torn";
	else
		f->there[e->depth] = e->kind == TIER_EVENT_STORED;
}

/* Everything that can be read at this moment. */
static void follow(struct follower *f, bool anew)
{
	struct tier_event e[128];
	int64_t n = anew ? -EOVERFLOW : 0;

	do {
		if (n < 0) {
			memset(f->there, 0, sizeof(f->there));
			f->snapshots++;
			while ((n = tier_events_snapshot(f->events, e, 128)) > 0)
				for (int64_t i = 0; i < n; i++)
					apply(f, &e[i]);
			for (uint32_t id = 0; n == 0 && id < STABLE; id++)
				f->wrong = f->there[id] ? f->wrong : "a snapshot missed a key";
		}
		n = tier_events_read(f->events, e, 128, 0);
		for (int64_t i = 0; i < n; i++, f->read++)
			apply(f, &e[i]);
	} while (n != 0 && !f->wrong);
}

static void *follower_run(void *arg)
{
	struct follower *f = arg;

	uint32_t i = 0;

	do
		follow(f, i++ % 4 == 0);
	while (!atomic_load_relaxed_u32(&f->world->stop) && !f->wrong);
	return NULL;
}

static struct follower *follower_new(struct world *w)
{
	static const uint32_t alive = 1;
	const struct abi_index_header *h = w->ix.header;
	const uint8_t *base = w->memory;
	struct follower *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	f->world = w;
	f->map = (struct map){ .number = 1, .header = h, .blocks_max = BLOCKS,
			       .buckets_max = h->buckets_max, .overflow_max = h->overflow_max,
			       .bucket = (const void *)(base + h->bucket_offset),
			       .overflow = (const void *)(base + h->overflow_offset),
			       .block = (const void *)(base + h->block_offset),
			       .event = (const void *)(base + h->event_offset) };
	f->a.number = 1;
	f->t.alive = f->c.alive = &alive;
	f->t.attachment_word = (uintptr_t)&f->a;
	f->c.t = &f->t;
	f->c.map_word = (uintptr_t)&f->map;
	assert_int_equal(tier_events_open(&f->c, &f->events), 0);
	assert_int_equal(pthread_create(&f->thread, NULL, follower_run, f), 0);
	return f;
}

/* Nothing changes any more. */
static void follower_end(struct follower *f, struct reader *sum)
{
	pthread_join(f->thread, NULL);
	follow(f, false);
	for (uint32_t id = 0; id < CHANGING && !f->wrong; id++)
		if (f->there[id] != (f->world->slot[id] != ABI_SLOT_NONE))
			f->wrong = "a follower does not know what is there";
	if (f->wrong)
		fail_msg("%s", f->wrong);
	sum->snapshots += f->snapshots;
	sum->events += f->read;
	tier_events_close(f->events);
	free(f);
}

/* ---- the writer ---------------------------------------------------------------------------- */

static void put(struct world *w, uint32_t id)
{
	uint32_t slot = index_slot_alloc(&w->ix);
	struct abi_block *block = index_block(&w->ix, slot);
	uint64_t key[4];

	assert_int_not_equal(slot, ABI_SLOT_NONE);
	key_of(id, key);
	/* Readers of its last life may still look: word by word, as any writer of a line must. */
	for (uint32_t i = 0; i < 4; i++)
		atomic_store_relaxed_u64((uint64_t *)(void *)block->key + i, key[i]);
	atomic_store_relaxed_u32(&block->depth, id);
	index_block_state(&w->ix, slot, ABI_BLOCK_PENDING);
	if (index_insert(&w->ix, slot) < 0) {
		index_block_state(&w->ix, slot, ABI_BLOCK_FREE);
		index_slot_free(&w->ix, slot);
		return;
	}
	index_block_state(&w->ix, slot, ABI_BLOCK_COMMITTED);
	index_event(&w->ix, ABI_EVENT_STORED, slot);
	atomic_store_relaxed_u32(&w->slot[id], slot);
}

static void drop(struct world *w, uint32_t id)
{
	index_remove(&w->ix, w->slot[id]);
	index_slot_free(&w->ix, w->slot[id]);
	w->slot[id] = ABI_SLOT_NONE;
}

/* First mostly puts, so that the table grows under the readers; then as many removes. */
static void writer_run(struct world *w, uint64_t seed)
{
	struct rng rng = { ~seed };

	for (uint32_t i = 0; i < STEPS; i++) {
		uint32_t id = STABLE + (uint32_t)rng_below(&rng, CHANGING - STABLE);

		if (w->slot[id] == ABI_SLOT_NONE)
			put(w, id);
		else if (i > STEPS / 4 || rng_below(&rng, 8) == 0)
			drop(w, id);
	}
}

static struct world *world_new(void)
{
	struct abi_geometry geometry = { .part_count = 1, .pages_per_block = 1 };
	struct abi_index_header header = { 0 };
	struct world *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	index_plan(&header, &geometry, BLOCKS);
	w->bytes = header.total_bytes;
	w->memory = mmap(NULL, w->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			 0);
	assert_ptr_not_equal(w->memory, MAP_FAILED);
	index_format(&w->ix, w->memory, &header, &geometry);
	memset(w->slot, 0xff, sizeof(w->slot));
	return w;
}

static void round_run(uint64_t seed, struct reader *sum)
{
	struct world *w = world_new();
	struct reader reader[READERS];
	struct follower *follower;
	uint64_t count = w->ix.header->bucket_count;

	for (uint32_t id = 0; id < STABLE; id++)
		put(w, id);
	for (uint32_t i = 0; i < READERS; i++) {
		reader[i] = (struct reader){ .world = w, .seed = seed * READERS + i };
		assert_int_equal(pthread_create(&reader[i].thread, NULL, reader_run, &reader[i]),
				 0);
	}
	follower = follower_new(w);
	writer_run(w, seed);
	atomic_store_relaxed_u32(&w->stop, 1);
	for (uint32_t i = 0; i < READERS; i++) {
		pthread_join(reader[i].thread, NULL);
		sum->hits += reader[i].hits;
		sum->misses += reader[i].misses;
		sum->busy += reader[i].busy;
		sum->wrong = reader[i].wrong ? reader[i].wrong : sum->wrong;
	}
	follower_end(follower, sum);
	assert_true(w->ix.header->bucket_count > 4 * count);
	assert_true(w->ix.overflow_used > 0);
	munmap(w->memory, w->bytes);
	free(w);
}

static void test_readers_beside_the_writer(void **state)
{
	struct reader sum = { .hits = 0 };

	(void)state;
	for (uint64_t seed = 0; seed < ROUNDS; seed++)
		round_run(seed, &sum);
	printf("# %u readers: %llu hits, %llu misses, %llu gave up; %llu snapshots, %llu events\n",
	       READERS, (unsigned long long)sum.hits, (unsigned long long)sum.misses,
	       (unsigned long long)sum.busy, (unsigned long long)sum.snapshots,
	       (unsigned long long)sum.events);
	if (sum.wrong)
		fail_msg("%s", sum.wrong);
	/* A follower that began late may have had no event to read. */
	assert_true(sum.hits > 0 && sum.misses > 0 && sum.snapshots > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_readers_beside_the_writer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
