/*
 * The reader's look-up for one key, and the rare ends of a look-up in stages; see index_read.h.
 *
 * A positive answer needs no second look at the bucket's sequence word: the key was read within one
 * life of the slot (generation equal before and after, X3), and while it lives it is in the table.
 * Only "not there" must be backed by an unchanged sequence word and bucket count.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "libtier/src/index_read.h"

#include <time.h>

#include "libtier/base/time.h"

#define INDEX_CHAIN_MAX 64u /* lines; the daemon's are far shorter, a torn one may be a ring */

/* One line of a chain. */
static enum index_outcome read_line(const struct map *m, const struct abi_bucket *line,
				    const uint8_t *key, uint16_t tag, uint32_t page,
				    struct index_found *out)
{
	for (uint32_t equal = index_equal_tags(line, tag); equal; equal &= equal - 1) {
		uint32_t slot = atomic_load_relaxed_u32(&line->slot[__builtin_ctz(equal)]);
		enum index_outcome outcome;

		if (slot >= m->blocks_max)
			continue;
		if (page < m->pages_per_block)
			prefetch_read(&m->page[(uint64_t)slot * m->pages_per_block + page]);
		outcome = index_read_block(m, slot, key, out);
		if (outcome != INDEX_ABSENT)
			return outcome;
	}
	return INDEX_ABSENT;
}

static enum index_outcome read_chain(const struct map *m, uint64_t hash, const uint8_t *key,
				     uint32_t page, struct index_found *out)
{
	uint64_t count = index_read_buckets(m);
	const struct abi_bucket *head;
	const struct abi_bucket *line;
	uint32_t seq;

	if (count == 0)
		return INDEX_ABSENT;
	head = &m->bucket[abi_bucket_of(hash, count)];
	seq = atomic_load_acquire_u32(&head->seq);
	line = head;
	for (uint32_t i = 0; i < INDEX_CHAIN_MAX; i++) {
		enum index_outcome outcome = read_line(m, line, key, abi_key_tag(hash), page, out);
		uint32_t next = atomic_load_relaxed_u32(&line->overflow);

		if (outcome != INDEX_ABSENT)
			return outcome;
		if (next == 0 || next > m->overflow_max)
			break;
		line = &m->overflow[next - 1];
	}
	/* All of the chain before the second look at seq, and that before the one at the count. */
	acquire_fence();
	if (seq & 1 || atomic_load_acquire_u32(&head->seq) != seq ||
	    index_read_buckets(m) != count)
		return INDEX_CHANGED;
	return INDEX_ABSENT;
}

#define GIVEN_UP_NS 1000000000ull /* where a look-up waited in vain, none waits for as long */

/*
 * The scheduler stopped the daemon in the middle of a bucket. It goes on within a slice or two, and
 * a miss that is none costs an engine far more than that.
 */
static __attribute__((cold, noinline)) bool find_patiently(const struct map *m, uint64_t hash,
							   const uint8_t *key, uint32_t page,
							   struct index_found *out)
{
	const struct timespec nap = { .tv_nsec = ABI_READ_NAP_NS };
	uint64_t *gave_up_ns = (uint64_t *)(uintptr_t)&m->gave_up_ns;
	enum index_outcome outcome = INDEX_CHANGED;

	if (time_now_ns() - atomic_load_relaxed_u64(gave_up_ns) < GIVEN_UP_NS)
		return false;
	for (uint32_t i = 0; i < ABI_READ_NAPS && outcome == INDEX_CHANGED; i++) {
		clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, NULL);
		outcome = read_chain(m, hash, key, page, out);
	}
	if (outcome == INDEX_CHANGED)
		atomic_store_relaxed_u64(gave_up_ns, time_now_ns());
	return outcome == INDEX_FOUND;
}

bool index_read_find(const struct map *m, const uint8_t *key, uint32_t page,
		     struct index_found *out)
{
	uint64_t hash = abi_key_hash(key);

	for (uint32_t i = 0; i < ABI_READ_RETRIES; i++) {
		enum index_outcome outcome = read_chain(m, hash, key, page, out);

		if (outcome != INDEX_CHANGED)
			return outcome == INDEX_FOUND;
		cpu_relax();
	}
	return find_patiently(m, hash, key, page, out);
}

bool index_read_slowly(const struct map *m, uint64_t buckets, const uint8_t *key,
		       const struct index_probe *p, struct index_found *out)
{
	if (!p->bucket)
		return false;
	if (p->slot == INDEX_PROBE_NONE) {
		/* The tags of all lines before the second look at seq. */
		acquire_fence();
		if (!(p->seq & 1) && atomic_load_acquire_u32(&p->bucket->seq) == p->seq &&
		    index_read_buckets(m) == buckets)
			return false;
	}
	return index_read_find(m, key, INDEX_NO_PAGE, out);
}
