/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The default: the block whose next use is worth least for the time it would wait leaves first,
 * children before their parents. How soon blocks of a kind are used again is learnt while running
 * (reuse_learn.c); what one use is worth grows with the block's depth, as recomputing it does.
 *
 * Blocks stand in cells by row (kind and depth) and epoch of their last use; a group is the cells
 * of a row within a range of ages, and groups are ranked once an epoch. Every call is O(1) but for
 * the end of an epoch, which is some 10^4 operations. Leaves go first: what is worth more may hang
 * below a block, never above it.
 */
#include "tierd/policy/reuse.h"

#include <assert.h>

#define NODE_OF(slot) ((slot) + 1u)
#define SLOT_OF(node) ((node)-1u)

#define FLAG_IN 1u /* inserted */

/* A path that so many have used is a common beginning, not a conversation. */
#define SHARED_USES 50u
#define DECAY (1 - 1 / 512.0) /* of what was seen, an epoch: forgotten after some 32 fillings */
#define LEARN_EPOCHS 2u	      /* rates are learnt, and groups ranked, so often */
#define GRACE 1000.0	      /* what was used in this epoch stays if anything else can go */
#define GHOSTS_A_BLOCK 2u

/*
 * Tokens before it at which a depth begins, and what a use there is worth: about the root of what
 * recomputing costs there (docs/policies.md). The whole of it would keep long prompts that are not
 * used again longer than the counts can tell them from others.
 */
static const uint64_t depth_first[REUSE_DEPTHS] = { 0, 8192, 24576, 49152 };
static const double depth_worth[REUSE_DEPTHS] = { 1.0, 1.2, 1.4, 1.8 };

/* ---- cells --------------------------------------------------------------------------------- */

static uint32_t row_of(const struct reuse_node *n)
{
	return n->kind * REUSE_DEPTHS + n->depth;
}

static uint32_t cell_at(const struct reuse *r, uint32_t epoch)
{
	return r->epoch - epoch >= REUSE_EPOCHS ? REUSE_EPOCHS : epoch % REUSE_EPOCHS;
}

static uint32_t group_of(const struct reuse *r, uint32_t row, uint32_t epoch)
{
	return row * REUSE_AGES + reuse_age(r->epoch - epoch);
}

static struct reuse_list *list_of(struct reuse *r, const struct reuse_node *n)
{
	struct reuse_cell *c = &r->cell[row_of(n)][cell_at(r, n->epoch)];

	return n->children ? &c->inner : &c->leaf;
}

static void leaf_mark(struct reuse *r, uint32_t row, uint32_t at, bool any)
{
	uint64_t bit = 1ull << at % 64, *word;

	if (at == REUSE_EPOCHS)
		return;
	word = &r->leaves[row][at / 64];
	*word = any ? *word | bit : *word & ~bit;
}

static void cell_push(struct reuse *r, uint32_t node)
{
	struct reuse_node *n = &r->node[node];
	struct reuse_list *list = list_of(r, n);
	uint32_t rank;

	n->prev = 0;
	n->next = list->head;
	if (list->head)
		r->node[list->head].prev = node;
	else
		list->tail = node;
	list->head = node;
	if (n->children)
		return;
	leaf_mark(r, row_of(n), cell_at(r, n->epoch), true);
	rank = r->rank[group_of(r, row_of(n), n->epoch)];
	if (r->lowest > rank)
		r->lowest = rank;
}

static void cell_pull(struct reuse *r, uint32_t node)
{
	struct reuse_node *n = &r->node[node];
	struct reuse_list *list = list_of(r, n);

	if (n->prev)
		r->node[n->prev].next = n->next;
	else
		list->head = n->next;
	if (n->next)
		r->node[n->next].prev = n->prev;
	else
		list->tail = n->prev;
	if (!n->children && !list->head)
		leaf_mark(r, row_of(n), cell_at(r, n->epoch), false);
}

static void child_add(struct reuse *r, uint32_t parent)
{
	struct reuse_node *p = &r->node[parent];
	bool moves = p->children == 0;

	assert(p->flags & FLAG_IN);
	if (moves)
		cell_pull(r, parent);
	p->children++;
	if (moves)
		cell_push(r, parent);
}

static void child_gone(struct reuse *r, uint32_t parent)
{
	struct reuse_node *p = &r->node[parent];
	bool moves = p->children == 1;

	assert(p->flags & FLAG_IN && p->children > 0);
	if (moves)
		cell_pull(r, parent);
	p->children--;
	if (moves)
		cell_push(r, parent);
}

/* ---- walks --------------------------------------------------------------------------------- */

/* The first block in the cells of ages [from, until), oldest first; 0 = none. */
static uint32_t cells_first(const struct reuse *r, uint32_t row, uint32_t from, uint32_t until,
			    bool inner)
{
	if (until == REUSE_EPOCHS) {
		const struct reuse_cell *c = &r->cell[row][REUSE_EPOCHS];

		if (inner ? c->inner.head : c->leaf.head)
			return inner ? c->inner.head : c->leaf.head;
	}
	if (!inner && !(r->leaves[row][0] | r->leaves[row][1]))
		return 0;
	for (uint32_t age = until; age-- > from;) {
		uint32_t at = (r->epoch - age) % REUSE_EPOCHS;
		const struct reuse_cell *c = &r->cell[row][at];

		if (!inner && !(r->leaves[row][at / 64] >> at % 64 & 1))
			continue;
		if (inner ? c->inner.head : c->leaf.head)
			return inner ? c->inner.head : c->leaf.head;
	}
	return 0;
}

static uint32_t group_first(const struct reuse *r, uint32_t group, bool inner)
{
	uint32_t age = group % REUSE_AGES;

	return cells_first(r, group / REUSE_AGES, reuse_age_first[age], reuse_age_first[age + 1],
			   inner);
}

/* From the group of this rank on: leaves, then the others. */
static uint32_t walk_from(const struct reuse *r, uint32_t rank, bool inner)
{
	for (;; rank = 0, inner = true) {
		for (; rank < REUSE_GROUPS; rank++) {
			uint32_t node = group_first(r, r->order[rank], inner);

			if (node)
				return node;
		}
		if (inner)
			return 0;
	}
}

static uint32_t walk_after(const struct reuse *r, uint32_t node)
{
	const struct reuse_node *n = &r->node[node];
	uint32_t age = r->epoch - n->epoch, row = row_of(n), next = n->next, group;
	bool inner = n->children > 0;

	group = group_of(r, row, n->epoch);
	if (!next) {
		uint32_t until = age < REUSE_EPOCHS ? age : REUSE_EPOCHS - 1;

		if (age >= REUSE_EPOCHS) /* the oldest cell was last */
			until = REUSE_EPOCHS - 1;
		next = cells_first(r, row, reuse_age_first[group % REUSE_AGES], until, inner);
		if (!next && age >= REUSE_EPOCHS) {
			uint32_t at = (r->epoch - until) % REUSE_EPOCHS;
			const struct reuse_cell *c = &r->cell[row][at];

			next = inner ? c->inner.head : c->leaf.head;
		}
	}
	return next ? next : walk_from(r, r->rank[group] + 1u, inner);
}

static uint32_t reuse_victim(void *state, uint32_t after)
{
	const struct reuse *r = state;
	uint32_t node;

	if (after == ABI_SLOT_NONE) {
		node = walk_from(r, r->lowest, false);
	} else {
		assert(after < r->blocks_max && r->node[NODE_OF(after)].flags & FLAG_IN);
		node = walk_after(r, NODE_OF(after));
	}
	return node ? SLOT_OF(node) : ABI_SLOT_NONE;
}

/* No leaf stands below the lowest any more: find where they begin. */
static void lowest_raise(struct reuse *r)
{
	while (r->lowest < REUSE_GROUPS - 1 && !group_first(r, r->order[r->lowest], false))
		r->lowest++;
}

/* ---- epochs -------------------------------------------------------------------------------- */

static double worth(const struct reuse *r, uint32_t group)
{
	uint32_t row = group / REUSE_AGES, age = group % REUSE_AGES;
	double rate = r->rate[row / REUSE_DEPTHS][age];

	return rate * depth_worth[row % REUSE_DEPTHS] * (age ? 1 : GRACE);
}

/* The order of the last epoch is nearly right: insertion moves few. Ties keep their places. */
static void groups_rank(struct reuse *r)
{
	double value[REUSE_GROUPS];

	for (uint32_t i = 0; i < REUSE_GROUPS; i++) {
		uint16_t group = r->order[i];
		double mine = worth(r, group);
		uint32_t at = i;

		for (; at && value[at - 1] > mine; at--) {
			value[at] = value[at - 1];
			r->order[at] = r->order[at - 1];
		}
		value[at] = mine;
		r->order[at] = group;
	}
	for (uint32_t i = 0; i < REUSE_GROUPS; i++)
		r->rank[r->order[i]] = (uint16_t)i;
}

static void list_join(struct reuse *r, struct reuse_list *to, struct reuse_list *from)
{
	if (!from->head)
		return;
	r->node[from->tail].next = to->head;
	if (to->head)
		r->node[to->head].prev = from->tail;
	else
		to->tail = from->tail;
	to->head = from->head;
	*from = (struct reuse_list){ 0, 0 };
}

/* Cells are used again: what stands in the next epoch's is older than all ages now. */
static void cells_turn(struct reuse *r)
{
	uint32_t at = (r->epoch + 1) % REUSE_EPOCHS;

	for (uint32_t row = 0; row < REUSE_ROWS; row++) {
		list_join(r, &r->cell[row][REUSE_EPOCHS].leaf, &r->cell[row][at].leaf);
		list_join(r, &r->cell[row][REUSE_EPOCHS].inner, &r->cell[row][at].inner);
		leaf_mark(r, row, at, false);
	}
}

/* An epoch of waiting for all that is known of the kind. */
static void kind_waited(struct reuse *r, uint32_t kind)
{
	struct reuse_seen *s = &r->seen[kind];

	for (uint32_t a = 0; a < REUSE_AGES; a++) {
		uint64_t known = 0;

		for (uint32_t age = reuse_age_first[a]; age < reuse_age_first[a + 1]; age++)
			known += r->known[kind][(r->epoch - age) % REUSE_EPOCHS];
		s->time[a] = (s->time[a] + (double)known) * DECAY;
		s->uses[a] *= DECAY;
	}
	r->known[kind][(r->epoch + 1) % REUSE_EPOCHS] = 0;
}

static void epoch_end(struct reuse *r)
{
	uint64_t length = r->resident / REUSE_EPOCHS_TIER;

	for (uint32_t k = 0; k < REUSE_KINDS; k++)
		kind_waited(r, k);
	cells_turn(r);
	r->epoch++;
	r->epoch_end = r->clock + (length < REUSE_EPOCH_MIN ? REUSE_EPOCH_MIN : length);
	if (r->epoch % LEARN_EPOCHS == 0) {
		reuse_learn(r);
		groups_rank(r);
	}
	r->lowest = 0; /* blocks have moved into other groups by their age */
	lowest_raise(r);
}

static void clock_step(struct reuse *r)
{
	if (++r->clock >= r->epoch_end)
		epoch_end(r);
}

/* ---- a block's life ------------------------------------------------------------------------ */

static uint8_t run_of(uint32_t blocks)
{
	uint8_t run = 0;

	for (; blocks > 1 && run < REUSE_RUNS - 1; blocks /= 2)
		run++;
	return run;
}

static uint8_t kind_used(uint8_t uses)
{
	return (uint8_t)(REUSE_KINDS_NEW + (uses == 2 ? 0 : uses <= 4 ? 1 : 2));
}

/* The kind of a block that nobody has used again. */
static uint8_t kind_new(const struct reuse *r, const struct reuse_node *n,
			const struct policy_hint *hint)
{
	const struct reuse_node *p = &r->node[n->parent];
	uint32_t turn = 0;

	if (n->parent) {
		if (p->batch == n->batch && p->uses == 1) /* brought by the same prompt */
			turn = p->kind / 2 / REUSE_RUNS;
		else
			turn = p->uses >= 2 && p->uses < SHARED_USES;
	}
	return (uint8_t)((turn * REUSE_RUNS + run_of(hint->brought)) * 2 + hint->last);
}

static void seen_again(struct reuse *r, uint32_t kind, uint32_t age, uint32_t epoch)
{
	r->seen[kind].uses[reuse_age(age)]++;
	assert(r->known[kind][epoch % REUSE_EPOCHS] > 0);
	r->known[kind][epoch % REUSE_EPOCHS]--;
}

/* Was it here before? Then it is used again, though nobody found it. */
static void ghost_back(struct reuse *r, struct reuse_node *n)
{
	struct ghost *g = ghosts_find(r->ghosts, n->tag);
	uint32_t age;

	if (!g)
		return;
	age = (uint16_t)(r->epoch - g->time);
	if (age < REUSE_EPOCHS) {
		seen_again(r, g->kind, age, r->epoch - age);
		n->uses = g->uses < UINT8_MAX ? g->uses + 1 : UINT8_MAX;
		n->kind = kind_used(n->uses);
	}
	ghosts_drop(r->ghosts, g);
}

/* A prompt that is put in pieces goes on: the end of the piece before was not its end. */
static void last_no_more(struct reuse *r, uint32_t parent)
{
	struct reuse_node *p = &r->node[parent];
	uint32_t age = r->epoch - p->epoch;

	if (p->kind >= REUSE_KINDS_NEW || !(p->kind & 1))
		return;
	cell_pull(r, parent);
	if (age < REUSE_EPOCHS)
		r->known[p->kind][p->epoch % REUSE_EPOCHS]--;
	p->kind--;
	if (age < REUSE_EPOCHS)
		r->known[p->kind][p->epoch % REUSE_EPOCHS]++;
	cell_push(r, parent);
}

static void reuse_insert(void *state, uint32_t slot, const struct policy_hint *hint)
{
	struct reuse *r = state;
	struct reuse_node *n = &r->node[NODE_OF(slot)];

	assert(slot < r->blocks_max && !(n->flags & FLAG_IN));
	clock_step(r);
	n->life++;
	n->children = 0;
	n->parent = 0;
	if (hint->parent < r->blocks_max && r->node[NODE_OF(hint->parent)].flags & FLAG_IN) {
		n->parent = NODE_OF(hint->parent);
		n->parent_life = r->node[n->parent].life;
	}
	n->batch = hint->batch;
	n->tag = ghosts_tag(hint->key);
	n->epoch = r->epoch;
	n->uses = 1;
	n->flags = FLAG_IN;
	n->depth = REUSE_DEPTHS - 1;
	while (depth_first[n->depth] > hint->position)
		n->depth--;
	n->kind = kind_new(r, n, hint);
	ghost_back(r, n);
	if (n->parent) {
		last_no_more(r, n->parent);
		child_add(r, n->parent);
	}
	r->known[n->kind][n->epoch % REUSE_EPOCHS]++;
	cell_push(r, NODE_OF(slot));
	r->resident++;
}

/* Uses within one epoch, such as the steps of one decode, are one. */
static void reuse_touch(void *state, uint32_t slot, uint32_t weight, uint64_t now_ns)
{
	struct reuse *r = state;
	struct reuse_node *n = &r->node[NODE_OF(slot)];
	uint32_t age;

	(void)now_ns;
	assert(slot < r->blocks_max && n->flags & FLAG_IN);
	age = r->epoch - n->epoch;
	if (!weight || !age)
		return;
	clock_step(r);
	age = r->epoch - n->epoch;
	cell_pull(r, NODE_OF(slot));
	if (age < REUSE_EPOCHS)
		seen_again(r, n->kind, age, n->epoch);
	n->uses += n->uses < UINT8_MAX;
	n->kind = kind_used(n->uses);
	n->epoch = r->epoch;
	r->known[n->kind][n->epoch % REUSE_EPOCHS]++;
	cell_push(r, NODE_OF(slot));
}

static void ghost_make(struct reuse *r, const struct reuse_node *n)
{
	const struct ghost mine = {
		.tag = n->tag,
		.time = (uint16_t)n->epoch,
		.kind = n->kind,
		.uses = n->uses,
	};
	struct ghost old;
	uint32_t age;

	ghosts_add(r->ghosts, &mine, &old);
	age = (uint16_t)(r->epoch - old.time);
	if (old.tag && age < REUSE_EPOCHS)
		r->known[old.kind][(r->epoch - age) % REUSE_EPOCHS]--;
}

static void reuse_remove(void *state, uint32_t slot)
{
	struct reuse *r = state;
	struct reuse_node *n = &r->node[NODE_OF(slot)];

	assert(slot < r->blocks_max && n->flags & FLAG_IN);
	cell_pull(r, NODE_OF(slot));
	n->flags = 0;
	r->resident--;
	if (r->epoch - n->epoch < REUSE_EPOCHS)
		ghost_make(r, n);
	if (n->parent && r->node[n->parent].flags & FLAG_IN &&
	    r->node[n->parent].life == n->parent_life)
		child_gone(r, n->parent);
	lowest_raise(r);
}

/* ---- life ---------------------------------------------------------------------------------- */

static size_t nodes_bytes(uint64_t blocks_max)
{
	return sizeof(struct reuse) + (size_t)(blocks_max + 1) * sizeof(struct reuse_node);
}

static size_t reuse_state_bytes(uint64_t blocks_max)
{
	return nodes_bytes(blocks_max) + ghosts_bytes(blocks_max * GHOSTS_A_BLOCK);
}

static void reuse_init(void *state, uint64_t blocks_max)
{
	struct reuse *r = state;

	r->blocks_max = blocks_max;
	r->ghosts = (struct ghosts *)((char *)state + nodes_bytes(blocks_max));
	ghosts_init(r->ghosts, blocks_max * GHOSTS_A_BLOCK);
	r->epoch_end = REUSE_EPOCH_MIN;
	for (uint32_t i = 0; i < REUSE_GROUPS; i++) /* the oldest first */
		r->order[i] = (uint16_t)((i % REUSE_ROWS + 1) * REUSE_AGES - 1 - i / REUSE_ROWS);
	reuse_learn(r);
	groups_rank(r);
}

extern const struct policy_ops policy_reuse;
const struct policy_ops policy_reuse = {
	.size = sizeof(struct policy_ops),
	.version = 1,
	.name = "reuse",
	.help = "what is least likely to be used soon, by learnt rates; ends of prefixes first",
	.state_bytes = reuse_state_bytes,
	.init = reuse_init,
	.insert = reuse_insert,
	.touch = reuse_touch,
	.remove = reuse_remove,
	.victim = reuse_victim,
};
