/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ARC (Megiddo and Modha, FAST 2003): a queue of blocks used once and one of those used again, and
 * a target between them that moves with what comes back from the ghosts of either. The tier's size
 * is not told: it is what is there. Here to be compared with.
 */
#include "tierd/policy/ghosts.h"
#include "tierd/policy/queue.h"

#define ONCE 0u
#define AGAIN 1u

struct arc_block {
	uint32_t tag;
	uint32_t queue;
};

struct arc {
	uint64_t blocks_max;
	uint64_t count[2];
	uint64_t target;	   /* for the queue of those used once */
	struct ghosts *ghosts[2];  /* of either queue, behind the blocks */
	struct arc_block *block;   /* behind the links */
	struct queue_link link[];
};

static size_t links_bytes(uint64_t blocks_max)
{
	return sizeof(struct arc) + queue_bytes(blocks_max);
}

/* Rings stand one after the other: keep the second aligned. */
static size_t ring_bytes(uint64_t blocks_max)
{
	return (ghosts_bytes(blocks_max) + 7) & ~(size_t)7;
}

static size_t arc_state_bytes(uint64_t blocks_max)
{
	return links_bytes(blocks_max) + blocks_max * sizeof(struct arc_block) +
	       2 * ring_bytes(blocks_max);
}

static void arc_init(void *state, uint64_t blocks_max)
{
	struct arc *a = state;

	a->blocks_max = blocks_max;
	a->block = (struct arc_block *)((char *)state + links_bytes(blocks_max));
	a->ghosts[ONCE] = (struct ghosts *)(a->block + blocks_max);
	a->ghosts[AGAIN] = (struct ghosts *)((char *)a->ghosts[ONCE] + ring_bytes(blocks_max));
	queue_init(a->link);
	ghosts_init(a->ghosts[ONCE], blocks_max);
	ghosts_init(a->ghosts[AGAIN], blocks_max);
}

static void arc_enter(struct arc *a, uint32_t slot, uint32_t queue)
{
	a->block[slot].queue = queue;
	a->count[queue]++;
	queue_push(a->link, queue, slot);
}

static void arc_leave(struct arc *a, uint32_t slot)
{
	a->count[a->block[slot].queue]--;
	queue_pull(a->link, slot);
}

/* Each list remembers so many that both lists and their ghosts are twice the tier at most. */
static struct ghost *ghost_of(struct arc *a, uint32_t queue, uint32_t tag)
{
	uint64_t room = a->count[ONCE] + a->count[AGAIN];
	struct ghost *g = ghosts_find(a->ghosts[queue], tag);

	if (queue == ONCE)
		room = a->count[AGAIN];
	return g && ghosts_age(a->ghosts[queue], g) <= room ? g : NULL;
}

static void target_move(struct arc *a, uint32_t queue)
{
	uint64_t other = a->count[!queue] ? a->count[!queue] : 1;
	uint64_t mine = a->count[queue] ? a->count[queue] : 1;
	uint64_t step = other > mine ? other / mine : 1;
	uint64_t most = a->count[ONCE] + a->count[AGAIN];

	if (queue == AGAIN)
		a->target = a->target > step ? a->target - step : 0;
	else
		a->target = a->target + step < most ? a->target + step : most;
}

static void arc_insert(void *state, uint32_t slot, const struct policy_hint *hint)
{
	struct arc *a = state;
	uint32_t tag = ghosts_tag(hint->key), to = ONCE;

	assert(slot < a->blocks_max);
	for (uint32_t queue = ONCE; queue <= AGAIN; queue++) {
		struct ghost *g = ghost_of(a, queue, tag);

		if (!g)
			continue;
		target_move(a, queue);
		ghosts_drop(a->ghosts[queue], g);
		to = AGAIN;
		break;
	}
	a->block[slot] = (struct arc_block){ .tag = tag };
	arc_enter(a, slot, to);
}

static void arc_touch(void *state, uint32_t slot, uint32_t weight, uint64_t now_ns)
{
	struct arc *a = state;

	(void)now_ns;
	assert(slot < a->blocks_max && queue_has(a->link, slot));
	if (!weight)
		return;
	arc_leave(a, slot);
	arc_enter(a, slot, AGAIN);
}

static void arc_remove(void *state, uint32_t slot)
{
	struct arc *a = state;
	const struct ghost mine = { .tag = a->block[slot].tag };
	struct ghost forgotten;

	assert(slot < a->blocks_max);
	arc_leave(a, slot);
	ghosts_add(a->ghosts[a->block[slot].queue], &mine, &forgotten);
}

static uint32_t first_queue(const struct arc *a)
{
	if (!a->count[AGAIN])
		return ONCE;
	return a->count[ONCE] && a->count[ONCE] > a->target ? ONCE : AGAIN;
}

static uint32_t arc_victim(void *state, uint32_t after)
{
	const struct arc *a = state;
	uint32_t next;

	if (after == ABI_SLOT_NONE)
		return queue_oldest(a->link, first_queue(a));
	assert(after < a->blocks_max);
	next = queue_next(a->link, after);
	if (next != ABI_SLOT_NONE || a->block[after].queue != first_queue(a))
		return next;
	return queue_oldest(a->link, !first_queue(a));
}

extern const struct policy_ops policy_arc;
const struct policy_ops policy_arc = {
	.size = sizeof(struct policy_ops),
	.version = 1,
	.name = "arc",
	.help = "blocks used once and blocks used again, the share of each learnt from what left",
	.state_bytes = arc_state_bytes,
	.init = arc_init,
	.insert = arc_insert,
	.touch = arc_touch,
	.remove = arc_remove,
	.victim = arc_victim,
};
