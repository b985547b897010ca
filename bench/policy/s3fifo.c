/* SPDX-License-Identifier: Apache-2.0 */
/*
 * S3-FIFO (Yang, Zhang, Qiu, Yue and Vinayak, SOSP 2023) with its usual queues: new blocks enter a
 * small one, a tenth of the tier; what is touched twice there, or comes back soon after leaving it,
 * belongs to the main one, where a touched block gets another round. Here to be compared with.
 */
#include "tierd/policy/ghosts.h"
#include "tierd/policy/queue.h"

#define SMALL 0u
#define MAIN 1u
#define SMALL_SHARE 10u /* the small queue is 1/10 of the blocks there */
#define TOUCHES_MAX 3u
#define GHOSTS_A_BLOCK 2u /* twice what is looked for: see ghosts.h */
#define PROMOTE 2u /* touches in the small queue that lead to the main one */

struct s3_block {
	uint8_t touches, queue;
};

struct s3 {
	uint64_t blocks_max, resident;
	uint64_t count[2];
	struct ghosts *ghosts;   /* behind the queues */
	struct s3_block *block;  /* likewise */
	struct queue_link link[];
};

static size_t links_bytes(uint64_t blocks_max)
{
	return sizeof(struct s3) + queue_bytes(blocks_max);
}

/* The ghosts stand at the next aligned address behind the blocks. */
static size_t s3_state_bytes(const struct policy_size *size)
{
	return links_bytes(size->blocks_max) + size->blocks_max * sizeof(struct s3_block) +
	       GHOSTS_ALIGN + ghosts_bytes(GHOSTS_A_BLOCK * size->resident);
}

static size_t s3_state_used(const void *state, uint64_t slots)
{
	const struct s3 *s = state;

	return links_bytes(slots) + slots * sizeof(struct s3_block) + GHOSTS_ALIGN +
	       ghosts_bytes(GHOSTS_A_BLOCK * s->resident);
}

static void s3_init(void *state, const struct policy_size *size)
{
	struct s3 *s = state;

	s->blocks_max = size->blocks_max;
	s->resident = size->resident;
	s->block = (struct s3_block *)((char *)state + links_bytes(size->blocks_max));
	s->ghosts = ghosts_at(s->block + size->blocks_max);
	queue_init(s->link);
	ghosts_init(s->ghosts, GHOSTS_A_BLOCK * size->resident);
}

static void s3_enter(struct s3 *s, uint32_t slot, uint8_t queue)
{
	s->block[slot].queue = queue;
	s->count[queue]++;
	queue_push(s->link, queue, slot);
}

static void s3_leave(struct s3 *s, uint32_t slot)
{
	s->count[s->block[slot].queue]--;
	queue_pull(s->link, slot);
}

static void s3_insert(void *state, uint32_t slot, const struct policy_hint *hint)
{
	struct s3 *s = state;
	uint32_t tag = ghosts_tag(hint->key);
	struct ghost *g = ghosts_find(s->ghosts, tag);
	bool back = g && s->ghosts->added - g->note <= s->count[MAIN];

	assert(slot < s->blocks_max);
	if (g)
		ghosts_drop(s->ghosts, g);
	s->block[slot] = (struct s3_block){ .touches = 0 };
	s3_enter(s, slot, back ? MAIN : SMALL);
}

static void s3_touch(void *state, uint32_t slot, uint32_t weight, uint64_t now_ns)
{
	struct s3 *s = state;
	struct s3_block *b = &s->block[slot];

	(void)now_ns;
	assert(slot < s->blocks_max && queue_has(s->link, slot));
	if (weight && b->touches < TOUCHES_MAX)
		b->touches++;
}

static void s3_remove(void *state, uint32_t slot, const uint8_t *key)
{
	struct s3 *s = state;
	const struct ghost mine = { .tag = ghosts_tag(key), .note = s->ghosts->added };
	struct ghost forgotten;

	assert(slot < s->blocks_max);
	s3_leave(s, slot);
	if (s->block[slot].queue == SMALL)
		ghosts_add(s->ghosts, &mine, &forgotten);
}

/* As its authors filter what flash gets: what only the small queue has seen, once, is not. */
static bool s3_admit(void *state, uint32_t slot, uint64_t reach)
{
	const struct s3 *s = state;

	(void)reach;
	assert(slot < s->blocks_max && queue_has(s->link, slot));
	return s->block[slot].queue == MAIN || s->block[slot].touches;
}

/* Until the oldest of the queue whose turn it is can go. Each turn costs a touch or a move. */
static uint32_t s3_first(struct s3 *s)
{
	for (;;) {
		bool small = s->count[SMALL] * SMALL_SHARE > s->count[SMALL] + s->count[MAIN];
		uint32_t queue = small || !s->count[MAIN] ? SMALL : MAIN;
		uint32_t slot = queue_oldest(s->link, queue);
		struct s3_block *b = &s->block[slot];

		if (slot == ABI_SLOT_NONE)
			return slot;
		if (queue == SMALL && b->touches < PROMOTE)
			return slot;
		if (queue == MAIN && !b->touches)
			return slot;
		s3_leave(s, slot);
		b->touches = queue == SMALL ? 0 : b->touches - 1;
		s3_enter(s, slot, MAIN);
	}
}

/* A walk goes through the queue that it began in, then through the other. */
static uint32_t s3_victim(void *state, uint32_t after)
{
	struct s3 *s = state;
	uint32_t next;
	bool small;

	if (after == ABI_SLOT_NONE)
		return s3_first(s);
	assert(after < s->blocks_max);
	next = queue_next(s->link, after);
	if (next != ABI_SLOT_NONE)
		return next;
	small = s->count[SMALL] * SMALL_SHARE > s->count[SMALL] + s->count[MAIN];
	if ((s->block[after].queue == SMALL) == (small || !s->count[MAIN]))
		return queue_oldest(s->link, s->block[after].queue == SMALL ? MAIN : SMALL);
	return ABI_SLOT_NONE;
}

extern const struct policy_ops policy_s3fifo;
const struct policy_ops policy_s3fifo = {
	.size = sizeof(struct policy_ops),
	.version = 1,
	.name = "s3fifo",
	.help = "three queues: new blocks that nobody touches again leave soon",
	.state_bytes = s3_state_bytes,
	.init = s3_init,
	.state_used = s3_state_used,
	.insert = s3_insert,
	.touch = s3_touch,
	.remove = s3_remove,
	.victim = s3_victim,
	.admit = s3_admit,
	.elsewhere = policy_elsewhere,
	.expect = policy_expect,
};
