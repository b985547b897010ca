/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one writer of an index: linear hashing (Litwin 1980) over lines of nine slots, read by other
 * processes without a lock. It must never let a reader that follows abi/index.h take a wrong slot
 * for a key, nor miss a key that stays; the order of every store below follows from that.
 *
 * A chain is a head line and up to ABI_CHAIN_MAX - 1 overflow lines, always compact: every line
 * but the last is full, the last one is filled from its start and, unless it is the head, not
 * empty. Two things follow. A chain of k entries has fewer than k / 9 overflow lines, so
 * overflow_max = blocks_max / 9 can not run out. And a split needs no more overflow lines than the
 * chain had, so it can not fail.
 *
 * Free overflow lines are threaded through seq, which readers look at in head lines only: a reader
 * that strayed into a freed line finds it empty and at the end of its chain.
 */
#include "tierd/core/unit/index.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "libtier/base/atomic.h"

#define LOAD 6u           /* entries a bucket, on average, above which the table grows */
#define BUCKETS_FIRST 64u /* lines of an empty table: one page of memory */
#define CHAIN_ENTRIES (ABI_CHAIN_MAX * ABI_BUCKET_SLOTS)
#define GEOMETRY_OFFSET sizeof(struct abi_index_header)

/* A bucket line as the words in which it is stored; tags are written two at a time. */
#define LINE_WORDS (sizeof(struct abi_bucket) / sizeof(uint32_t))
#define TAG_WORD (offsetof(struct abi_bucket, tag) / sizeof(uint32_t))
_Static_assert(offsetof(struct abi_bucket, seq) == 0, "line_store leaves word 0 alone");
_Static_assert(offsetof(struct abi_bucket, tag) % sizeof(uint32_t) == 0, "tags fill words");

/* One chain, by its ends; no array of its lines, since most have one. */
struct chain {
	struct abi_bucket *head, *last;
	struct abi_bucket *before; /* the line that leads to the last; NULL = that is the head */
	uint32_t lines;
	uint32_t fill; /* entries in the last line */
};

/* Overflow lines of a chain that is stored anew. */
struct spare {
	struct abi_bucket *line[ABI_CHAIN_MAX];
	uint32_t count;
};

/* Entries on their way from one chain to another. */
struct entries {
	uint32_t slot[CHAIN_ENTRIES];
	uint16_t tag[CHAIN_ENTRIES];
	uint32_t count;
};

static uint64_t round_up(uint64_t value, uint64_t unit)
{
	return (value + unit - 1) / unit * unit;
}

/* ---- layout ------------------------------------------------------------------------------- */

void index_plan(struct abi_index_header *header, const struct abi_geometry *geometry,
		uint64_t blocks_max)
{
	const uint64_t line = sizeof(struct abi_bucket), page = ABI_PAGE_ALIGN;
	uint64_t at = round_up(GEOMETRY_OFFSET + sizeof(*geometry), page);

	assert(blocks_max > 0 && blocks_max < ABI_SLOT_NONE);
	assert(geometry->pages_per_block > 0);
	assert(geometry->pages_per_block <= ABI_PAGES_PER_BLOCK_MAX);
	header->magic = ABI_INDEX_MAGIC;
	header->version = ABI_VERSION;
	header->pages_per_block = geometry->pages_per_block;
	header->blocks_max = blocks_max;
	header->buckets_max = round_up(blocks_max / LOAD + 1, page / line);
	header->overflow_max = round_up(blocks_max / ABI_BUCKET_SLOTS + 1, page / line);
	header->event_offset = at;
	header->bucket_offset = at += round_up(ABI_EVENTS * sizeof(struct abi_event), page);
	header->overflow_offset = at += header->buckets_max * line;
	header->block_offset = at += header->overflow_max * line;
	header->desc_offset = at += round_up(blocks_max * sizeof(struct abi_block), page);
	at += blocks_max * geometry->pages_per_block * sizeof(struct abi_page);
	/* Sparse, so rounding costs nothing; a last partial huge page could not be collapsed. */
	header->total_bytes = round_up(at, ABI_HUGE);
}

/* All words of a line but its seq; the order among them is covered by the head's seq. */
static void line_store(struct abi_bucket *line, const struct abi_bucket *image)
{
	uint32_t *to = (uint32_t *)line;
	uint32_t word[LINE_WORDS];

	memcpy(word, image, sizeof(word));
	for (uint32_t i = 1; i < LINE_WORDS; i++)
		atomic_store_relaxed_u32(to + i, word[i]);
}

static void line_clear(struct abi_bucket *line)
{
	struct abi_bucket empty = { 0 };

	memset(empty.slot, 0xff, sizeof(empty.slot)); /* ABI_SLOT_NONE */
	line_store(line, &empty);
}

static void line_set(struct abi_bucket *line, uint32_t i, uint32_t slot, uint16_t tag)
{
	uint32_t *pair = (uint32_t *)line + TAG_WORD + i / 2;
	uint32_t shift = i % 2 * 16;

	assert(i < ABI_BUCKET_SLOTS);
	atomic_store_relaxed_u32(&line->slot[i], slot);
	atomic_store_relaxed_u32(pair, (*pair & ~(0xffffu << shift)) | (uint32_t)tag << shift);
}

void index_format(struct index *ix, void *memory, const struct abi_index_header *header,
		  const struct abi_geometry *geometry)
{
	char *base = memory;

	assert(header->magic == ABI_INDEX_MAGIC && header->blocks_max > 0);
	assert(header->pages_per_block == geometry->pages_per_block);
	memcpy(base, header, sizeof(*header));
	memcpy(base + GEOMETRY_OFFSET, geometry, sizeof(*geometry));
	*ix = (struct index){
		.header = (struct abi_index_header *)memory,
		.event = (struct abi_event *)(base + header->event_offset),
		.bucket = (struct abi_bucket *)(base + header->bucket_offset),
		.overflow = (struct abi_bucket *)(base + header->overflow_offset),
		.block = (struct abi_block *)(base + header->block_offset),
		.page = (struct abi_page *)(base + header->desc_offset),
		.pages_per_block = header->pages_per_block,
		.blocks_max = header->blocks_max,
		.free_head = ABI_SLOT_NONE,
	};
	assert(header->buckets_max >= BUCKETS_FIRST);
	for (uint32_t i = 0; i < BUCKETS_FIRST; i++)
		line_clear(&ix->bucket[i]);
	atomic_store_release_u64(&ix->header->bucket_count, BUCKETS_FIRST);
}

/* ---- slots -------------------------------------------------------------------------------- */

/* X3: readers compare it before and after. */
static void generation_raise(struct abi_block *block)
{
	atomic_store_release_u32(&block->generation, block->generation + 1);
}

uint32_t index_slot_alloc(struct index *ix)
{
	uint32_t slot;

	if (ix->slots_free > 0) {
		slot = ix->free_head;
		assert(slot < ix->slots_used);
		ix->free_head = ix->block[slot].parent;
		ix->slots_free--;
		assert((ix->slots_free == 0) == (ix->free_head == ABI_SLOT_NONE));
	} else if (ix->slots_used < ix->blocks_max) {
		slot = (uint32_t)ix->slots_used++;
	} else {
		return ABI_SLOT_NONE;
	}
	assert(ix->block[slot].state == ABI_BLOCK_FREE);
	atomic_store_relaxed_u32(&ix->block[slot].parent, ABI_SLOT_NONE);
	generation_raise(&ix->block[slot]);
	/* A reader that sees what the caller writes into the line next sees FREE or the raise. */
	release_fence();
	return slot;
}

void index_slot_free(struct index *ix, uint32_t slot)
{
	struct abi_block *block = &ix->block[slot];

	assert(slot < ix->slots_used && ix->slots_free < ix->slots_used);
	assert(block->state == ABI_BLOCK_FREE);
	atomic_store_relaxed_u32(&block->parent, ix->free_head);
	ix->free_head = slot;
	ix->slots_free++;
}

void index_block_state(struct index *ix, uint32_t slot, uint32_t state)
{
	assert(slot < ix->slots_used && state <= ABI_BLOCK_COMMITTED);
	atomic_store_release_u32(&ix->block[slot].state, state);
}

void index_epoch(struct index *ix, uint64_t epoch)
{
	assert(epoch >= ix->header->epoch);
	atomic_store_release_u64(&ix->header->epoch, epoch);
	index_event(ix, ABI_EVENT_CLEARED, ABI_SLOT_NONE);
}

/* ---- chains ------------------------------------------------------------------------------- */

/* From here on a reader of the chain finds seq odd, or finds at its second look that it changed:
 * the fence keeps the stores that follow from being seen before the odd word (X1). */
static void chain_open(struct abi_bucket *head)
{
	assert(head->seq % 2 == 0);
	atomic_store_relaxed_u32(&head->seq, head->seq + 1);
	release_fence();
}

static void chain_close(struct abi_bucket *head)
{
	assert(head->seq % 2 == 1);
	atomic_store_release_u32(&head->seq, head->seq + 1);
}

static struct abi_bucket *line_next(const struct index *ix, const struct abi_bucket *line)
{
	assert(line->overflow <= ix->overflow_used);
	return line->overflow ? &ix->overflow[line->overflow - 1] : NULL;
}

static inline void chain_walk(const struct index *ix, uint64_t bucket, struct chain *chain)
{
	struct abi_bucket *last = &ix->bucket[bucket], *before = NULL;
	uint32_t lines = 1, fill = 0;

	assert(bucket < ix->header->bucket_count);
	chain->head = last;
	for (; last->overflow; lines++) {
		assert(lines < ABI_CHAIN_MAX);
		before = last;
		last = line_next(ix, last);
	}
	for (uint32_t i = 0; i < ABI_BUCKET_SLOTS; i++) /* all: where to stop is hard to foresee */
		fill += last->slot[i] != ABI_SLOT_NONE;
	assert(fill > 0 || !before);
	chain->last = last;
	chain->before = before;
	chain->lines = lines;
	chain->fill = fill;
}

/* The entries of a line with this tag, as a set of their numbers. */
static uint32_t line_tagged(const struct abi_bucket *line, uint16_t tag)
{
	return abi_tags_equal((const uint32_t *)line + TAG_WORD, tag);
}

/* The line where the slot stands, which has this tag, and where in it; NULL = nowhere. */
static struct abi_bucket *chain_find(const struct index *ix, const struct chain *chain,
				     uint32_t slot, uint16_t tag, uint32_t *at)
{
	for (struct abi_bucket *line = chain->head; line; line = line_next(ix, line))
		for (uint32_t in = line_tagged(line, tag); in; in &= in - 1) {
			*at = (uint32_t)__builtin_ctz(in);
			if (line->slot[*at] == slot)
				return line;
		}
	return NULL;
}

/* An empty overflow line. Whoever comes into it came through a chain whose seq has changed. */
static struct abi_bucket *overflow_get(struct index *ix)
{
	uint32_t line;

	if (ix->overflow_free) {
		line = ix->overflow_free - 1;
		ix->overflow_free = ix->overflow[line].seq;
		assert(ix->overflow_free <= ix->overflow_used);
	} else {
		assert(ix->overflow_used < ix->header->overflow_max);
		line = (uint32_t)ix->overflow_used++;
	}
	ix->overflow[line].seq = 0;
	line_clear(&ix->overflow[line]);
	return &ix->overflow[line];
}

static void overflow_put(struct index *ix, struct abi_bucket *line)
{
	line_clear(line);
	line->seq = ix->overflow_free;
	ix->overflow_free = 1 + (uint32_t)(line - ix->overflow);
	assert(ix->overflow_free <= ix->overflow_used);
}

static void overflow_link(const struct index *ix, struct abi_bucket *line,
			  const struct abi_bucket *next)
{
	atomic_store_relaxed_u32(&line->overflow, 1 + (uint32_t)(next - ix->overflow));
}

/* Write the entries into head and, as far as needed, the lines of spare from *taken on. */
static void chain_store(const struct index *ix, struct abi_bucket *head, const struct entries *e,
			const struct spare *spare, uint32_t *taken)
{
	struct abi_bucket *line = head;
	uint32_t done = 0;

	do {
		struct abi_bucket image = { 0 }, *next = NULL;

		for (uint32_t i = 0; i < ABI_BUCKET_SLOTS; i++, done++) {
			image.slot[i] = done < e->count ? e->slot[done] : ABI_SLOT_NONE;
			image.tag[i] = done < e->count ? e->tag[done] : 0;
		}
		if (done < e->count) {
			assert(*taken < spare->count);
			next = spare->line[(*taken)++];
			image.overflow = 1 + (uint32_t)(next - ix->overflow);
		}
		line_store(line, &image);
		line = next;
	} while (line);
}

static void entries_add(struct entries *e, uint32_t slot, uint16_t tag)
{
	assert(e->count < CHAIN_ENTRIES);
	e->slot[e->count] = slot;
	e->tag[e->count++] = tag;
}

/* Which entries of a line of bucket `from` move when there is one bucket more. */
static void line_part(const struct index *ix, const struct abi_bucket *line, uint64_t from,
		      struct entries *stay, struct entries *move)
{
	uint64_t count = ix->header->bucket_count;

	for (uint32_t i = 0; i < ABI_BUCKET_SLOTS && line->slot[i] != ABI_SLOT_NONE; i++) {
		uint64_t hash = abi_key_hash(ix->block[line->slot[i]].key);
		uint64_t to = abi_bucket_of(hash, count + 1);

		assert(to == from || to == count);
		entries_add(to == from ? stay : move, line->slot[i], line->tag[i]);
	}
}

/*
 * Grow by one line: the next bucket in turn gives it the entries whose hash has one more bit set.
 * The count is raised while the old chain is still odd. A reader with the old count that finds the
 * old chain even again has thereby acquired the new count, and its step 3 sends it round.
 */
static void split(struct index *ix)
{
	uint64_t count = ix->header->bucket_count;
	uint64_t from = count - (1ull << (63 - __builtin_clzll(count)));
	struct abi_bucket *old = &ix->bucket[from];
	struct entries stay = { .count = 0 }, move = { .count = 0 };
	struct spare spare = { .count = 0 };
	uint32_t taken = 0;

	assert(count < ix->header->buckets_max && ix->bucket[count].seq == 0);
	for (struct abi_bucket *line = old; line; line = line_next(ix, line)) {
		line_part(ix, line, from, &stay, &move);
		assert(line == old || spare.count < ABI_CHAIN_MAX - 1);
		if (line != old)
			spare.line[spare.count++] = line;
	}
	chain_open(old);
	chain_store(ix, &ix->bucket[count], &move, &spare, &taken);
	atomic_store_release_u64(&ix->header->bucket_count, count + 1);
	chain_store(ix, old, &stay, &spare, &taken);
	while (taken < spare.count)
		overflow_put(ix, spare.line[taken++]);
	chain_close(old);
}

/* ---- entries ------------------------------------------------------------------------------ */

/* As memcmp, without a call: it is asked for each block of each request. */
static bool key_equal(const uint8_t *a, const uint8_t *b)
{
	uint64_t p[ABI_KEY_BYTES / 8], q[ABI_KEY_BYTES / 8];

	memcpy(p, a, sizeof(p));
	memcpy(q, b, sizeof(q));
	return !((p[0] ^ q[0]) | (p[1] ^ q[1]) | (p[2] ^ q[2]) | (p[3] ^ q[3]));
}

void index_prefetch(const struct index *ix, const uint8_t *key)
{
	uint64_t bucket = abi_bucket_of(abi_key_hash(key), ix->header->bucket_count);

	__builtin_prefetch(&ix->bucket[bucket]);
}

static inline uint32_t line_find(const struct index *ix, const struct abi_bucket *line,
			  const uint8_t *key, uint16_t tag)
{
	for (uint32_t equal = line_tagged(line, tag); equal; equal &= equal - 1) {
		uint32_t slot = line->slot[__builtin_ctz(equal)];

		if (slot != ABI_SLOT_NONE && key_equal(ix->block[slot].key, key))
			return slot;
	}
	return ABI_SLOT_NONE;
}

uint32_t index_find(const struct index *ix, const uint8_t *key)
{
	uint64_t hash = abi_key_hash(key);
	const struct abi_bucket *line =
		&ix->bucket[abi_bucket_of(hash, ix->header->bucket_count)];
	uint32_t slot = ABI_SLOT_NONE;

	for (; line && slot == ABI_SLOT_NONE; line = line_next(ix, line)) {
		slot = line_find(ix, line, key, abi_key_tag(hash));
		if (line->slot[ABI_BUCKET_SLOTS - 1] == ABI_SLOT_NONE)
			break; /* chains are compact: no line follows */
	}
	return slot;
}

static bool chain_has(const struct index *ix, const struct chain *chain, const uint8_t *key,
		      uint16_t tag)
{
	const struct abi_bucket *line = chain->head;

	while (line && line_find(ix, line, key, tag) == ABI_SLOT_NONE)
		line = line_next(ix, line);
	return line != NULL;
}

int index_insert(struct index *ix, uint32_t slot)
{
	const struct abi_block *block = &ix->block[slot];
	uint64_t count = ix->header->bucket_count, hash = abi_key_hash(block->key);
	struct chain chain;

	assert(slot < ix->slots_used && ix->entries < ix->slots_used);
	assert(block->state != ABI_BLOCK_FREE);
	chain_walk(ix, abi_bucket_of(hash, count), &chain);
	assert(!chain_has(ix, &chain, block->key, abi_key_tag(hash))); /* X2 */
	if (chain.fill < ABI_BUCKET_SLOTS) {
		chain_open(chain.head);
		line_set(chain.last, chain.fill, slot, abi_key_tag(hash));
	} else if (chain.lines < ABI_CHAIN_MAX) {
		struct abi_bucket *extra = overflow_get(ix);

		chain_open(chain.head);
		overflow_link(ix, chain.last, extra);
		line_set(extra, 0, slot, abi_key_tag(hash));
	} else {
		return -ENOSPC;
	}
	chain_close(chain.head);

	ix->entries++;
	if (ix->entries > LOAD * count && count < ix->header->buckets_max)
		split(ix);
	return 0;
}

/* The last entry fills the hole, so that the chain stays compact. State and generation change
 * while seq is odd: a reader that looked at them before its second look knows one life only. */
void index_remove(struct index *ix, uint32_t slot)
{
	struct abi_block *block = &ix->block[slot];
	uint64_t hash = abi_key_hash(block->key);
	struct abi_bucket *line;
	struct chain chain;
	uint32_t i = 0, last;
	bool known = block->state == ABI_BLOCK_COMMITTED;

	assert(slot < ix->slots_used && ix->entries > 0);
	assert(block->state != ABI_BLOCK_FREE);
	chain_walk(ix, abi_bucket_of(hash, ix->header->bucket_count), &chain);
	line = chain_find(ix, &chain, slot, abi_key_tag(hash), &i);
	assert(line);
	last = chain.fill - 1;

	chain_open(chain.head);
	if (line != chain.last || i != last)
		line_set(line, i, chain.last->slot[last], chain.last->tag[last]);
	line_set(chain.last, last, ABI_SLOT_NONE, 0);
	if (last == 0 && chain.before) {
		atomic_store_relaxed_u32(&chain.before->overflow, 0);
		overflow_put(ix, chain.last);
	}
	atomic_store_release_u32(&block->state, ABI_BLOCK_FREE);
	generation_raise(block);
	chain_close(chain.head);
	ix->entries--;
	if (known)
		index_event(ix, ABI_EVENT_REMOVED, slot);
}

/* ---- what is used of it -------------------------------------------------------------------- */

struct index_area index_area(const struct index *ix, uint32_t i)
{
	const struct abi_index_header *h = ix->header;
	const uint64_t line = sizeof(struct abi_bucket), block = sizeof(struct abi_block);
	const uint64_t pages = ix->pages_per_block * sizeof(struct abi_page);
	const struct index_area all[INDEX_AREAS] = {
		{ h->bucket_offset, h->bucket_count * line, h->overflow_offset },
		{ h->overflow_offset, ix->overflow_used * line, h->block_offset },
		{ h->block_offset, ix->slots_used * block, h->desc_offset },
		{ h->desc_offset, ix->slots_used * pages, h->total_bytes },
	};
	struct index_area area;

	assert(i < INDEX_AREAS);
	area = all[i];
	area.used += area.begin;
	assert(area.used <= area.end);
	return area;
}

uint64_t index_bytes_used(const struct index *ix)
{
	uint64_t bytes = ix->header->bucket_offset;

	for (uint32_t i = 0; i < INDEX_DESCS; i++) {
		struct index_area area = index_area(ix, i);

		bytes += area.used - area.begin;
	}
	return bytes;
}
