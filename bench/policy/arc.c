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
#define GHOSTS_A_BLOCK 2u /* twice what is looked for: see ghosts.h */

struct arc {
	uint64_t blocks_max, resident;
	uint64_t count[2];
	uint64_t target;	   /* for the queue of those used once */
	struct ghosts *ghosts[2];  /* of either queue, behind the blocks */
	uint8_t *queue;            /* of each block, behind the links */
	struct queue_link link[];
};

static size_t links_bytes(uint64_t blocks_max)
{
	return sizeof(struct arc) + queue_bytes(blocks_max);
}

/* The ghosts of either queue stand at the next aligned address behind the blocks. */
static size_t arc_state_bytes(const struct policy_size *size)
{
	return links_bytes(size->blocks_max) + size->blocks_max + GHOSTS_ALIGN +
	       2 * ghosts_bytes(GHOSTS_A_BLOCK * size->resident);
}

static size_t arc_state_used(const void *state, uint64_t slots)
{
	const struct arc *a = state;

	return links_bytes(slots) + slots + GHOSTS_ALIGN +
	       2 * ghosts_bytes(GHOSTS_A_BLOCK * a->resident);
}

static void arc_init(void *state, const struct policy_size *size)
{
	struct arc *a = state;
	uint64_t ghosts = GHOSTS_A_BLOCK * size->resident;

	a->blocks_max = size->blocks_max;
	a->resident = size->resident;
	a->queue = (uint8_t *)state + links_bytes(size->blocks_max);
	a->ghosts[ONCE] = ghosts_at(a->queue + size->blocks_max);
	a->ghosts[AGAIN] = ghosts_at((char *)a->ghosts[ONCE] + ghosts_bytes(ghosts));
	queue_init(a->link);
	ghosts_init(a->ghosts[ONCE], ghosts);
	ghosts_init(a->ghosts[AGAIN], ghosts);
}

static void arc_enter(struct arc *a, uint32_t slot, uint32_t queue)
{
	a->queue[slot] = (uint8_t)queue;
	a->count[queue]++;
	queue_push(a->link, queue, slot);
}

static void arc_leave(struct arc *a, uint32_t slot)
{
	a->count[a->queue[slot]]--;
	queue_pull(a->link, slot);
}

/* Each list remembers so many that both lists and their ghosts are twice the tier at most. */
static struct ghost *ghost_of(struct arc *a, uint32_t queue, uint32_t tag)
{
	uint64_t room = a->count[ONCE] + a->count[AGAIN];
	struct ghost *g = ghosts_find(a->ghosts[queue], tag);

	if (queue == ONCE)
		room = a->count[AGAIN];
	return g && a->ghosts[queue]->added - g->note <= room ? g : NULL;
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

static void arc_remove(void *state, uint32_t slot, const uint8_t *key)
{
	struct arc *a = state;
	struct ghosts *ghosts;
	struct ghost forgotten;

	assert(slot < a->blocks_max);
	ghosts = a->ghosts[a->queue[slot]];
	arc_leave(a, slot);
	ghosts_add(ghosts, &(struct ghost){ .tag = ghosts_tag(key), .note = ghosts->added },
		   &forgotten);
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
	if (next != ABI_SLOT_NONE || a->queue[after] != first_queue(a))
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
	.state_used = arc_state_used,
	.insert = arc_insert,
	.touch = arc_touch,
	.remove = arc_remove,
	.victim = arc_victim,
	.admit = policy_admit_all,
	.elsewhere = policy_elsewhere,
	.expect = policy_expect,
};
