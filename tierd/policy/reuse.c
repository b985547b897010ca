/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The default: the block whose next use is worth least for the time it would wait leaves first,
 * children before their parents. How soon blocks of a kind are used again is learnt while running
 * (reuse_learn.c); what one use is worth grows with the block's depth, as recomputing it does.
 *
 * Blocks stand in cells by row (kind and depth) and epoch of their last use; a group is the cells
 * of a row within a range of ages, and groups are ranked once an epoch. Every call is O(1) but for
 * the end of an epoch, which is some 10^4 operations. Leaves go first: what is worth more may hang
 * below a block, never above it. Where the gain is in doubt the oldest leaves instead, and how much
 * doubt is enough follows from what was lost by not being LRU, which has a limit (reuse_regret.c).
 */
#include "tierd/policy/reuse.h"

#include <assert.h>
#include <string.h>

/* A path that so many have used is a common beginning, not a conversation. */
#define SHARED_USES 50u
/* A block used again is of one kind up to so many uses, of another beyond. */
#define USES_FEW 4u
#define DECAY (1 - 1 / 512.0) /* of what was seen, an epoch: forgotten after some 32 fillings */
#define LEARN_EPOCHS 2u	      /* rates are learnt, and groups ranked, so often, */
#define LEARN_USES 1024u      /* but after so many uses at the earliest: it takes 10^5 operations */
#define GHOSTS_A_BLOCK 2u     /* of those that fill the tier, */
#define GHOSTS_MIN 8192u      /* but so many for small ones */

/*
 * A block is worth a write to NVMe if one in so many like it will be used while it is there, deep
 * ones counted for more. Small enough that what it refuses is worth little, whatever a write costs.
 */
#define ADMIT_WORTH (1 / 16.0)

/* Tokens before it at which a depth begins. */
static const uint64_t depth_first[REUSE_DEPTHS] = { 0, 8192, 24576, 49152 };

/* ---- children ------------------------------------------------------------------------------ */

static void child_add(struct reuse *r, uint32_t parent)
{
	struct reuse_node *p = &r->node[parent];

	assert(p->in);
	p->children += p->children < REUSE_CHILDREN_MAX;
	if (p->children == 1)
		reuse_cell_swap(r, parent, false);
}

/* Lives are counted in few bits: a parent may be taken for one that left, and then has no child. */
static void child_gone(struct reuse *r, uint32_t parent)
{
	struct reuse_node *p = &r->node[parent];

	assert(p->in);
	if (!p->children || p->children == REUSE_CHILDREN_MAX)
		return;
	p->children--;
	if (p->children == 0)
		reuse_cell_swap(r, parent, true);
}

/* ---- questions ----------------------------------------------------------------------------- */

static bool is_in(const struct reuse *r, uint32_t slot)
{
	return slot < r->size.blocks_max && r->node[reuse_node_of(r, slot)].in;
}

static uint32_t reuse_victim(void *state, uint32_t after)
{
	struct reuse *r = state;
	uint32_t node;

	if (after == ABI_SLOT_NONE) {
		node = reuse_walk_begin(r);
	} else {
		assert(is_in(r, after));
		node = reuse_walk_on(r, reuse_node_of(r, after));
	}
	return node ? reuse_slot_of(r, node) : ABI_SLOT_NONE;
}

/*
 * The chance of a use while NVMe keeps it: what enters NVMe leaves it again some `reach` new blocks
 * later, and an epoch sees a sixteenth of the tier's.
 */
static bool reuse_admit(void *state, uint32_t slot, uint64_t reach)
{
	const struct reuse *r = state;
	const struct reuse_node *n = &r->node[reuse_node_of(r, slot)];
	uint64_t length = r->resident / REUSE_EPOCHS_TIER;
	double never = r->never[n->kind], epochs;

	length = length < REUSE_EPOCH_MIN ? REUSE_EPOCH_MIN : length;
	epochs = (double)reach / (double)length;
	assert(slot < r->size.blocks_max && is_in(r, slot));
	if (epochs > REUSE_EPOCHS)
		never /= 1 + r->beyond[n->kind] * (epochs - REUSE_EPOCHS);
	return (1 - never) * reuse_depth_worth[n->depth] >= ADMIT_WORTH;
}

/* ---- epochs -------------------------------------------------------------------------------- */

/*
 * The oldest stay as old as they are: a node's epoch has few bits, and would become young again.
 * Each is looked at once in a quarter of the span, at less than one for 8 uses. What comes behind
 * the end of a round is young, and waits for the next: rounds end while the nodes grow.
 */
static void nodes_age(struct reuse *r)
{
	uint32_t most = r->nodes / (REUSE_EPOCH_SPAN / 4) + 1;

	for (uint32_t n = 0; n < most && r->nodes; n++) {
		struct reuse_node *at;

		if (r->swept >= r->sweep_end) {
			r->swept = 0;
			r->sweep_end = r->nodes;
		}
		r->swept++;
		at = &r->node[r->swept];
		if (at->in && reuse_age_of(r, at) > REUSE_EPOCHS)
			at->epoch = (r->epoch - REUSE_EPOCHS) % REUSE_EPOCH_SPAN;
	}
}

static struct reuse_note note_of(const struct ghost *g)
{
	return (struct reuse_note){
		.epoch = (uint16_t)g->note,
		.kind = (uint8_t)(g->note >> 16),
		.uses = (uint8_t)(g->note >> 24),
	};
}

/* Epochs since the last use of what the note is of. */
static uint32_t note_age(const struct reuse *r, const struct reuse_note *note)
{
	return (r->epoch - note->epoch) % REUSE_NOTE_SPAN;
}

/*
 * Ghosts count for nothing from REUSE_EPOCHS on, and go before their notes would be young again:
 * where little leaves, nothing makes them. Each is looked at once in a quarter of the span.
 */
static void ghosts_age(struct reuse *r)
{
	uint32_t most = r->ghosts->lines / (REUSE_NOTE_SPAN / 4) + 1;

	for (uint32_t n = 0; n < most; n++) {
		struct ghost *line = r->ghosts->place[r->ghosts_swept];

		r->ghosts_swept = (r->ghosts_swept + 1) % r->ghosts->lines;
		for (uint32_t i = GHOSTS_LINE; i-- > 0;) {
			const struct reuse_note note = note_of(&line[i]);

			if (line[i].tag && note_age(r, &note) >= REUSE_NOTE_SPAN / 2)
				ghosts_drop(r->ghosts, &line[i]);
		}
	}
}

/* An epoch of waiting for all that is known at the age. */
static void age_waited(struct reuse *r, uint32_t age)
{
	struct reuse_seen *s = &r->seen[age];
	uint32_t known[REUSE_KINDS] = { 0 }; /* blocks and their ghosts are fewer than 2^32 */

	for (uint32_t e = reuse_age_first[age]; e < reuse_age_first[age + 1]; e++) {
		const uint32_t *one = r->known[(r->epoch - e) % REUSE_EPOCHS];

		for (uint32_t k = 0; k < REUSE_KINDS; k++)
			known[k] += one[k];
	}
	for (uint32_t k = 0; k < REUSE_KINDS; k++) {
		s->time[k] = (s->time[k] + known[k]) * DECAY;
		s->uses[k] *= DECAY;
	}
}

static void epoch_end(struct reuse *r)
{
	uint64_t length = r->resident / REUSE_EPOCHS_TIER;

	for (uint32_t a = 0; a < REUSE_AGES; a++)
		age_waited(r, a);
	memset(r->known[(r->epoch + 1) % REUSE_EPOCHS], 0, sizeof(r->known[0]));
	reuse_cells_turn(r);
	reuse_regret_turn(r, r->ghosts->added > 0);
	r->epoch++;
	nodes_age(r);
	ghosts_age(r);
	r->epoch_end = r->clock + (length < REUSE_EPOCH_MIN ? REUSE_EPOCH_MIN : length);
	if (r->epoch - r->learnt_epoch >= LEARN_EPOCHS && r->clock - r->learnt >= LEARN_USES) {
		r->learnt = r->clock;
		r->learnt_epoch = r->epoch;
		reuse_learn(r);
		reuse_rank(r);
	}
	reuse_groups_mark(r);
}

static void clock_step(struct reuse *r)
{
	if (++r->clock >= r->epoch_end)
		epoch_end(r);
}

/* ---- a block's life ------------------------------------------------------------------------ */

static uint32_t run_of(uint32_t blocks)
{
	uint32_t run = 31 - (uint32_t)__builtin_clz(blocks | 1);

	return run < REUSE_RUNS - 1 ? run : REUSE_RUNS - 1;
}

_Static_assert(REUSE_KINDS <= 32, "a node's kind has five bits");

/* Of one that is used again: `kind` was its own before. */
static uint8_t kind_used(uint8_t uses, uint32_t kind)
{
	uint32_t origin = kind % 2 + kind / 2 / REUSE_RUNS * 2;

	if (kind >= REUSE_KINDS_NEW)
		origin = (kind - REUSE_KINDS_NEW) % REUSE_ORIGINS;
	return (uint8_t)(REUSE_KINDS_NEW + (uses > USES_FEW) * REUSE_ORIGINS + origin);
}

/* The kind of a block that nobody has used again. */
static uint8_t kind_new(const struct reuse *r, uint32_t parent, const struct policy_hint *hint)
{
	const struct reuse_node *p = &r->node[parent];
	uint32_t turn = 0;

	if (parent) {
		if (hint->joined && p->uses == 1)
			turn = p->kind / 2 / REUSE_RUNS;
		else
			turn = p->uses >= 2 && p->uses < SHARED_USES;
	}
	return (uint8_t)((turn * REUSE_RUNS + run_of(hint->brought)) * 2 + hint->last);
}

static void known_add(struct reuse *r, uint32_t kind)
{
	r->known[r->epoch % REUSE_EPOCHS][kind]++;
	reuse_regret_add(r);
}

static void known_drop(struct reuse *r, uint32_t kind, uint32_t age)
{
	uint32_t *known = &r->known[(r->epoch - age) % REUSE_EPOCHS][kind];

	assert(age < REUSE_EPOCHS && *known > 0);
	(*known)--;
	reuse_regret_drop(r, age);
}

static void seen_again(struct reuse *r, uint32_t kind, uint32_t age, bool here)
{
	reuse_regret_use(r, age, here);
	if (age >= REUSE_EPOCHS)
		return;
	r->seen[reuse_age(age)].uses[kind]++;
	known_drop(r, kind, age);
}

/* Was it here before? Then it is used again, though nobody found it. */
static void ghost_back(struct reuse *r, struct reuse_node *n, const uint8_t *key)
{
	struct ghost *g = ghosts_find(r->ghosts, ghosts_tag(key));
	struct reuse_note note;
	uint32_t age;

	if (!g)
		return;
	note = note_of(g);
	age = note_age(r, &note);
	if (age < REUSE_EPOCHS) {
		seen_again(r, note.kind, age, false);
		n->uses = (note.uses < REUSE_USES_MAX ? note.uses + 1u : note.uses) & 63;
		n->kind = kind_used(n->uses, note.kind);
	}
	ghosts_drop(r->ghosts, g);
}

/* A prompt that is put in pieces goes on: the end of the piece before was not its end. */
static void last_no_more(struct reuse *r, uint32_t parent)
{
	struct reuse_node *p = &r->node[parent];
	bool known = reuse_age_of(r, p) < REUSE_EPOCHS;

	if (p->kind >= REUSE_KINDS_NEW || !(p->kind & 1))
		return;
	reuse_cell_pull(r, parent);
	if (known)
		r->known[p->epoch % REUSE_EPOCHS][p->kind]--;
	p->kind--;
	if (known)
		r->known[p->epoch % REUSE_EPOCHS][p->kind]++;
	reuse_cell_push(r, parent);
}

static uint32_t node_take(struct reuse *r, uint32_t slot)
{
	uint32_t node = slot + 1;

	if (!r->map) {
		r->nodes = r->nodes < node ? node : r->nodes;
		return node;
	}
	node = r->free;
	if (node)
		r->free = r->node[node].next;
	else
		node = ++r->nodes;
	assert(node <= r->size.most);
	r->map[slot] = node;
	r->slot[node] = slot;
	return node;
}

static void node_free(struct reuse *r, uint32_t node)
{
	r->oldest = r->oldest == node ? 0 : r->oldest;
	if (r->map) {
		r->map[r->slot[node]] = 0;
		r->node[node].next = r->free;
		r->free = node;
	}
	r->node[node].in = 0; /* last: it lies in the word of next */
}

static uint8_t depth_of(const struct reuse *r, uint64_t position)
{
	uint8_t depth = r->flat ? 0 : REUSE_DEPTHS - 1;

	while (depth_first[depth] > position)
		depth--;
	return depth & 3;
}

static void reuse_insert(void *state, uint32_t slot, const struct policy_hint *hint)
{
	struct reuse *r = state;
	struct reuse_node *n;
	uint32_t node, parent = 0;

	ghosts_prefetch(r->ghosts, ghosts_tag(hint->key));
	assert(slot < r->size.blocks_max && !is_in(r, slot));
	clock_step(r);
	node = node_take(r, slot);
	n = &r->node[node];
	if (hint->parent < r->size.blocks_max && is_in(r, hint->parent))
		parent = reuse_node_of(r, hint->parent);
	*n = (struct reuse_node){ /* whole: a word with a part just stored is slow to load */
		.prev = 0,
		.depth = depth_of(r, hint->position),
		.next = 0,
		.in = 1,
		.parent = parent,
		.life = (n->life + 1) & 0xfff,
		.children = 0,
		.parent_life = r->node[parent].life,
		.epoch = r->epoch % REUSE_EPOCH_SPAN,
		.kind = kind_new(r, parent, hint),
		.uses = 1,
	};
	ghost_back(r, n, hint->key);
	if (n->parent)
		last_no_more(r, n->parent);
	r->resident++;
	known_add(r, n->kind);
	reuse_regret_come(r);
	reuse_cell_push(r, node);
	if (n->parent) /* now: in one cell, mostly, which so never lacks a leaf */
		child_add(r, n->parent);
}

/* Uses within one epoch, such as the steps of one decode, are one. */
static void reuse_touch(void *state, uint32_t slot, uint32_t weight, uint64_t now_ns)
{
	struct reuse *r = state;
	uint32_t node, age;
	struct reuse_node *n;

	(void)now_ns;
	assert(is_in(r, slot));
	node = reuse_node_of(r, slot);
	n = &r->node[node];
	if (!weight || !reuse_age_of(r, n))
		return;
	clock_step(r);
	age = reuse_age_of(r, n);
	reuse_cell_pull(r, node);
	if (age < REUSE_EPOCHS)
		reuse_regret_leave(r, age);
	seen_again(r, n->kind, age, true);
	n->uses += n->uses < REUSE_USES_MAX;
	n->kind = kind_used(n->uses, n->kind);
	n->epoch = r->epoch % REUSE_EPOCH_SPAN;
	known_add(r, n->kind);
	reuse_regret_come(r);
	reuse_cell_push(r, node);
}

static void ghost_make(struct reuse *r, const struct reuse_note *note, const uint8_t *key)
{
	const struct ghost mine = {
		.tag = ghosts_tag(key),
		.note = note->epoch | (uint32_t)note->kind << 16 | (uint32_t)note->uses << 24,
	};
	struct reuse_note lost;
	struct ghost old;
	uint32_t age;

	ghosts_add(r->ghosts, &mine, &old);
	lost = note_of(&old);
	age = note_age(r, &lost);
	if (old.tag && age < REUSE_EPOCHS)
		known_drop(r, lost.kind, age);
}

static void ghost_of(struct reuse *r, const struct reuse_node *n, const uint8_t *key)
{
	const struct reuse_note note = {
		.epoch = (uint16_t)(r->epoch - reuse_age_of(r, n)),
		.kind = n->kind,
		.uses = n->uses,
	};

	ghost_make(r, &note, key);
}

/* The ghost of a block that was used where it is now: the same as a use here, but for its place. */
static void reuse_elsewhere(void *state, const uint8_t *key)
{
	struct reuse *r = state;
	struct ghost *g = ghosts_find(r->ghosts, ghosts_tag(key));
	struct reuse_note note;
	uint32_t age;

	if (!g)
		return;
	note = note_of(g);
	age = note_age(r, &note);
	if (!age || age >= REUSE_EPOCHS)
		return;
	ghosts_drop(r->ghosts, g);
	clock_step(r);
	age = note_age(r, &note);
	seen_again(r, note.kind, age, false);
	note.uses += note.uses < REUSE_USES_MAX;
	note.kind = kind_used(note.uses, note.kind);
	note.epoch = (uint16_t)r->epoch;
	known_add(r, note.kind);
	ghost_make(r, &note, key);
}

static void reuse_remove(void *state, uint32_t slot, const uint8_t *key)
{
	struct reuse *r = state;
	const struct reuse_node *n, *p;
	uint32_t node;

	ghosts_prefetch(r->ghosts, ghosts_tag(key));
	assert(is_in(r, slot));
	node = reuse_node_of(r, slot);
	n = &r->node[node];
	p = &r->node[n->parent];
	__builtin_prefetch(p, 1);
	r->resident--;
	if (reuse_age_of(r, n) < REUSE_EPOCHS) {
		reuse_regret_leave(r, reuse_age_of(r, n));
		ghost_of(r, n, key);
	}
	if (n->parent && p->in && p->life == n->parent_life)
		child_gone(r, n->parent);
	reuse_cell_pull(r, node);
	node_free(r, node);
}

/* ---- ahead --------------------------------------------------------------------------------- */

/* When a leaf has left, its parent mostly is one, and newest in its cell; else the cell goes on. */
static uint32_t node_behind(const struct reuse *r, const struct reuse_node *n)
{
	const struct reuse_node *p = &r->node[n->parent];

	if (n->parent && p->in && p->life == n->parent_life && p->children == 1 &&
	    p->epoch == n->epoch && p->kind == n->kind)
		return n->parent;
	return n->next;
}

static uint32_t reuse_expect(const void *state, uint32_t slot, const uint8_t *key)
{
	const struct reuse *r = state;
	uint32_t behind;

	if (key)
		ghosts_prefetch(r->ghosts, ghosts_tag(key));
	if (slot == ABI_SLOT_NONE)
		return slot;
	behind = node_behind(r, &r->node[reuse_node_of(r, slot)]);
	if (!behind)
		return ABI_SLOT_NONE;
	__builtin_prefetch(&r->node[behind], 1);
	return reuse_slot_of(r, behind);
}

/* ---- life ---------------------------------------------------------------------------------- */

/* A map costs 4 bytes a slot and a node: does it spare the nodes of most slots? */
static bool is_mapped(const struct policy_size *size)
{
	const uint64_t node = sizeof(struct reuse_node), link = sizeof(uint32_t);

	if (size->sparse)
		return size->most > 0;
	return size->most && size->resident * (node + link) + size->blocks_max * link <
				     size->blocks_max * node;
}

static uint64_t nodes_most(const struct policy_size *size)
{
	return 1 + (is_mapped(size) ? size->most : size->blocks_max);
}

static uint64_t ghosts_count(const struct policy_size *size)
{
	uint64_t count = size->resident * GHOSTS_A_BLOCK;

	return count < GHOSTS_MIN ? GHOSTS_MIN : count;
}

static size_t nodes_bytes(const struct policy_size *size, uint64_t nodes, uint64_t slots)
{
	size_t bytes = sizeof(struct reuse) + (size_t)nodes * sizeof(struct reuse_node);

	if (is_mapped(size))
		bytes += (size_t)(slots + nodes) * sizeof(uint32_t);
	return bytes + GHOSTS_ALIGN + ghosts_bytes(ghosts_count(size));
}

static size_t reuse_state_bytes(const struct policy_size *size)
{
	return nodes_bytes(size, nodes_most(size), size->blocks_max);
}

static size_t reuse_state_used(const void *state, uint64_t slots)
{
	const struct reuse *r = state;

	return nodes_bytes(&r->size, 1 + r->nodes, slots);
}

static void reuse_init(void *state, const struct policy_size *size)
{
	struct reuse *r = state;
	void *end = &r->node[nodes_most(size)];

	r->size = *size;
	if (is_mapped(size)) {
		r->map = end;
		r->slot = r->map + size->blocks_max;
		end = r->slot + nodes_most(size);
	}
	r->ghosts = ghosts_at(end);
	ghosts_init(r->ghosts, ghosts_count(size));
	r->epoch_end = REUSE_EPOCH_MIN;
	for (uint32_t i = 0; i < REUSE_GROUPS; i++) /* the oldest first */
		r->order[i] = (uint16_t)((i % REUSE_ROWS + 1) * REUSE_AGES - 1 - i / REUSE_ROWS);
	reuse_regret_init(r);
	reuse_learn(r);
	reuse_rank(r);
}

static void reuse_hits_init(void *state, const struct policy_size *size)
{
	struct reuse *r = state;

	r->flat = true;
	reuse_init(state, size);
}

#define REUSE_OPS                                                                                  \
	.size = sizeof(struct policy_ops),                                                         \
	.version = 1,                                                                              \
	.state_bytes = reuse_state_bytes,                                                          \
	.state_used = reuse_state_used,                                                            \
	.insert = reuse_insert,                                                                    \
	.touch = reuse_touch,                                                                      \
	.remove = reuse_remove,                                                                    \
	.victim = reuse_victim,                                                                    \
	.admit = reuse_admit,                                                                      \
	.elsewhere = reuse_elsewhere,                                                              \
	.expect = reuse_expect

extern const struct policy_ops policy_reuse, policy_reuse_hits;
const struct policy_ops policy_reuse = {
	REUSE_OPS,
	.name = "reuse",
	.help = "what is least likely to be used soon, by learnt rates; ends of prefixes first",
	.init = reuse_init,
};

const struct policy_ops policy_reuse_hits = {
	REUSE_OPS,
	.name = "reuse-hits",
	.help = "as reuse, but what lies deep in a prefix is worth no more than its beginning",
	.init = reuse_hits_init,
};
