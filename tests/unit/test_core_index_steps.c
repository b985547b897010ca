/*
 * The index seen from between any two of its stores. index.c is compiled into this program with a
 * hook behind every ordered store: there, readers that follow abi/index.h look for every key, and
 * look-ups that began some stores ago are judged. What two threads meet once in a million runs
 * happens here in each, with one thread and a seed.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/lib/index_reader.h"
#include "tests/lib/property.h"
#include "tests/lib/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define IDS 700u
#define BLOCKS 800u
#define OPS 1800u
#define ID_NONE UINT32_MAX

/*
 * A reader that does without the second look at seq: a slot from wherever, then its loads with any
 * number of stores between them. Their order is what makes it right: state before the key, because
 * a line that is being filled for its next life is FREE until the key is whole, and generation
 * around both (X3).
 */
struct slow_look {
	enum { SLOW_SLOT, SLOW_GENERATION, SLOW_STATE, SLOW_KEY, SLOW_END } next;
	uint32_t slot, generation, state;
	bool equal;
};

struct world {
	struct index ix;
	void *memory;
	size_t bytes;
	struct rng rng;
	uint64_t step; /* stores so far */
	uint32_t busy; /* the id that is being put or removed */
	uint64_t key[IDS][4];
	uint32_t slot[IDS]; /* ABI_SLOT_NONE = not in the table */
	uint32_t generation[IDS];
	struct reader_look look[IDS]; /* begun some stores ago */
	struct slow_look slow[IDS];
	uint64_t found, missed, retried, slow_found;
};

/* The hook has no argument to find it by. */
static struct world *world;

/* What passes the second look is true now: the chain has not changed since the first (X1). */
static void judge(struct world *w, uint32_t id)
{
	const struct reader_look *look = &w->look[id];
	enum reader_answer answer = reader_end(&w->ix, look);

	if (answer == READER_RETRY) {
		w->retried++;
		return;
	}
	if (answer == READER_MISS) {
		w->missed++;
		assert_true(id == w->busy || w->slot[id] == ABI_SLOT_NONE);
		return;
	}
	w->found++;
	assert_int_equal(look->depth, id);
	assert_int_not_equal(look->state, ABI_BLOCK_FREE);
	if (id != w->busy) {
		assert_int_equal(look->slot, w->slot[id]);
		assert_int_equal(look->generation, w->generation[id]);
	}
}

/* One load further. What passes the second look at generation is in the table now. */
static void slow_step(struct world *w, uint32_t id, const struct reader_look *now)
{
	struct slow_look *slow = &w->slow[id];
	const struct abi_block *block = index_block(&w->ix, slow->slot);

	switch (slow->next++) {
	case SLOW_SLOT:
		if (now->found)
			slow->slot = now->slot;
		break;
	case SLOW_GENERATION:
		slow->generation = atomic_load_acquire_u32(&block->generation);
		break;
	case SLOW_STATE:
		slow->state = atomic_load_acquire_u32(&block->state);
		break;
	case SLOW_KEY:
		slow->equal = reader_key_equal(block, w->key[id]);
		break;
	default:
		slow->next = SLOW_SLOT;
		if (slow->state == ABI_BLOCK_FREE || !slow->equal || id == w->busy ||
		    atomic_load_relaxed_u32(&block->generation) != slow->generation)
			break;
		assert_int_equal(w->slot[id], slow->slot);
		assert_int_equal(w->generation[id], slow->generation);
		w->slow_found++;
	}
}

static void after_store(void)
{
	struct world *w = world;

	if (!w)
		return;
	w->step++;
	for (uint32_t id = 0; id < IDS; id++) {
		struct reader_look now;

		/* A reader that does all of it here: only an odd chain may put it off. */
		reader_begin(&w->ix, w->key[id], &now);
		if (now.seq % 2 == 0 && id != w->busy)
			assert_int_equal(reader_end(&w->ix, &now),
					 w->slot[id] == ABI_SLOT_NONE ? READER_MISS : READER_FOUND);
		if (rng_below(&w->rng, 8) == 0) {
			judge(w, id);
			w->look[id] = now;
			do
				slow_step(w, id, &now);
			while (rng_below(&w->rng, 2));
		}
	}
}

static void hooked_relaxed_u32(uint32_t *p, uint32_t v)
{
	atomic_store_relaxed_u32(p, v);
	after_store();
}

static void hooked_release_u32(uint32_t *p, uint32_t v)
{
	atomic_store_release_u32(p, v);
	after_store();
}

static void hooked_release_u64(uint64_t *p, uint64_t v)
{
	atomic_store_release_u64(p, v);
	after_store();
}

#define atomic_store_relaxed_u32 hooked_relaxed_u32
#define atomic_store_release_u32 hooked_release_u32
#define atomic_store_release_u64 hooked_release_u64
#include "tierd/core/unit/index.c"

static struct world *world_new(uint64_t seed)
{
	struct abi_geometry geometry = { .part_count = 1, .pages_per_block = 1 };
	struct abi_index_header header = { 0 };
	struct world *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	w->rng.state = seed;
	w->busy = ID_NONE;
	memset(w->slot, 0xff, sizeof(w->slot));
	index_plan(&header, &geometry, BLOCKS);
	w->bytes = header.total_bytes;
	w->memory = mmap(NULL, w->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			 0);
	assert_ptr_not_equal(w->memory, MAP_FAILED);
	index_format(&w->ix, w->memory, &header, &geometry);
	for (uint32_t id = 0; id < IDS; id++) {
		/* Most keys alone with their hash; some share it, so that chains grow long. */
		struct rng rng = { id < IDS / 8 ? id / 30 : id };

		w->key[id][0] = rng_next(&rng);
		w->key[id][1] = rng_next(&rng);
		w->key[id][2] = id;
		reader_begin(&w->ix, w->key[id], &w->look[id]);
	}
	return w;
}

static void put(struct world *w, uint32_t id)
{
	uint32_t slot = index_slot_alloc(&w->ix);
	struct abi_block *block = index_block(&w->ix, slot);

	assert_int_not_equal(slot, ABI_SLOT_NONE);
	memcpy(block->key, w->key[id], sizeof(block->key));
	block->depth = id;
	index_block_state(&w->ix, slot, ABI_BLOCK_PENDING);
	assert_int_equal(index_insert(&w->ix, slot), 0);
	w->slot[id] = slot;
	w->generation[id] = block->generation;
}

static void drop(struct world *w, uint32_t id)
{
	index_remove(&w->ix, w->slot[id]);
	index_slot_free(&w->ix, w->slot[id]);
	w->slot[id] = ABI_SLOT_NONE;
}

static void run(uint64_t seed)
{
	struct world *w = world = world_new(seed);
	uint64_t count = w->ix.header->bucket_count;

	for (uint32_t i = 0; i < OPS; i++) {
		uint32_t id = (uint32_t)rng_below(&w->rng, IDS);

		/* Up to the last, then up and down. */
		if (i < IDS)
			id = i;
		w->busy = id;
		if (w->slot[id] == ABI_SLOT_NONE)
			put(w, id);
		else
			drop(w, id);
		w->busy = ID_NONE;
	}
	assert_true(w->ix.header->bucket_count >= count + 40);
	assert_true(w->ix.overflow_used > 10);
	assert_true(w->slow_found > 1000);
	printf("# seed %llu: %llu stores; look-ups across them: %llu hits, %llu misses, %llu "
	       "retries, %llu slow hits\n",
	       (unsigned long long)seed, (unsigned long long)w->step,
	       (unsigned long long)w->found, (unsigned long long)w->missed,
	       (unsigned long long)w->retried, (unsigned long long)w->slow_found);
	world = NULL;
	munmap(w->memory, w->bytes);
	free(w);
}

static void test_any_two_stores(void **state)
{
	(void)state;
	run(1);
	run(2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_any_two_stores),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
