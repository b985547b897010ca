/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order by learnt ages: the block whose next use is worth least for the time it would wait
 * leaves first, ends of prefixes before their parents. How soon a class of blocks is used again, by
 * the age since the last use, is learnt while running (ages_learn.c), also from those that left.
 *
 * Time is the count of uses, in epochs of 1/16 of the blocks in the tier. Leaves stand in rings by
 * row (class and depth) and epoch of last use; a group is a row's rings within a range of ages, and
 * groups are ranked by worth.
 *
 * The limit: let O be the blocks that LRU would have now and this policy let go, B the hits that
 * LRU would not have had less those that only LRU would have had, at most N, the tier's blocks.
 * What LRU would keep may leave only while O + 1 <= C N + B; else the least of that which LRU would
 * not have leaves, or the oldest. A departure adds to O only below that; a hit that only LRU has
 * takes one from both; so B is never below -C N: on no pattern is it more than C of a tier behind.
 */
#include "tierd/policy/ages.h"

#include <string.h>

#include "tierd/core/unit/policy_ops.h"
#include "tierd/policy/ghosts.h"

#define EPOCHS_TIER 16u
#define EPOCH_MIN 64u
#define LEARN_USES 1024u /* at least between two rankings, and two epochs */
#define ROWS (CLASSES * DEPTHS)
#define GROUPS (ROWS * AGES)
#define RINGS (ROWS * (EPOCHS + 1) + 1)
#define INNER RINGS /* the last ring: all that have children here */
#define CHILDREN_MAX 0x7fffu /* one that ever had so many is never a leaf again */
#define USES_MAX 63u
#define USES_FEW 4u
#define SHARED_USES 50u /* a path that so many used is a common beginning, not a conversation */
#define GHOSTS_A_BLOCK 2u
#define GHOSTS_MIN 8192u
#define CLEARLY 1.25	     /* worth less by so much, or the oldest leaves: rates are estimates */
#define GRACE 1000.0	     /* what was used in this epoch stays if anything else can go */
#define FIRST_EPOCHS 16u     /* of LRU, from the first that leaves: then C, */
#define CREDIT_FIRST 0.125   /* from here */
#define CREDIT 0.25	     /* to here, */
#define CREDIT_STEP (1 / 128.0) /* so much an epoch */
#define ADMIT_WORTH (1 / 16.0) /* of a write: one in so many will be used on NVMe */

struct node {
	uint32_t prev, next, parent; /* nodes; 0 = none */
	uint32_t epoch;		     /* of the last use */
	uint32_t children : 15, row : 10, uses : 6, in : 1;
};

/* Where a walk may begin: goes on only, but for leaves that come; anew each epoch. */
struct front {
	uint32_t at;   /* a rank, or an age */
	uint32_t ring; /* there; 0 = to be found */
};

struct ages {
	struct policy_size size;
	uint64_t resident, clock, epoch_end, learnt;
	uint32_t epoch, learnt_epoch;
	uint32_t nodes, free;  /* handed out ever; first of these that is free */
	uint32_t began;	       /* node that began the walk out of turn; 0 = none did */
	uint32_t full_epochs;  /* since something had to leave */
	uint32_t edge;	       /* LRU would have what is younger, */
	double share;	       /* and so much of this age */
	double gone, balance;  /* O and B */
	/* No leaf ranks before these, of all ages and of those that LRU would not have; or is older. */
	struct front least, beyond, oldest;
	uint32_t *map, *slot;  /* by slot its node, and back; NULL = slot + RINGS + 1 */
	struct ghosts *ghosts;
	struct ages_learnt l;
	uint32_t known[EPOCHS][CLASSES]; /* blocks and ghosts, by epoch of last use */
	uint32_t here[EPOCHS];		 /* of these, in the tier */
	uint32_t leaves[EPOCHS + 1], of_row[ROWS]; /* leaves, by epoch and by row */
	uint16_t order[GROUPS], rank[GROUPS];
	struct node node[]; /* from 1 on RINGS heads, then blocks; then map, slot, ghosts */
};

static const uint64_t depth_first[DEPTHS] = { 0, 8192, 24576, 49152 }; /* tokens */

static uint32_t age_of(const struct ages *a, const struct node *n)
{
	return a->epoch - n->epoch < EPOCHS ? a->epoch - n->epoch : EPOCHS;
}

static uint32_t at_age(const struct ages *a, uint32_t age)
{
	return age >= EPOCHS ? EPOCHS : (a->epoch - age) % EPOCHS;
}

static uint32_t ring_at(const struct ages *a, uint32_t row, uint32_t age)
{
	return 1 + at_age(a, age) * ROWS + row;
}

static uint32_t group_of(const struct ages *a, const struct node *n)
{
	return n->row * AGES + ages_range(age_of(a, n));
}

static uint32_t node_of(const struct ages *a, uint32_t slot)
{
	return a->map ? a->map[slot] : RINGS + 1 + slot;
}

static uint32_t slot_of(const struct ages *a, uint32_t node)
{
	return a->map ? a->slot[node - RINGS] : node - RINGS - 1;
}

static bool is_in(const struct ages *a, uint32_t slot)
{
	return slot < a->size.blocks_max && a->node[node_of(a, slot)].in;
}

/* ---- rings --------------------------------------------------------------------------------- */

/* A ring has its first leaf. */
static void fronts_meet(struct ages *a, const struct node *n)
{
	uint32_t age = age_of(a, n), rank = a->rank[group_of(a, n)];

	if (rank <= a->least.at)
		a->least = (struct front){ rank, 0 };
	if (rank <= a->beyond.at && age > a->edge)
		a->beyond = (struct front){ rank, 0 };
	if (age >= a->oldest.at)
		a->oldest = (struct front){ age, 0 };
}

static void push(struct ages *a, uint32_t node)
{
	struct node *n = &a->node[node];
	uint32_t ring = n->children ? INNER : ring_at(a, n->row, age_of(a, n));

	n->prev = ring;
	n->next = a->node[ring].next;
	a->node[n->next].prev = node;
	a->node[ring].next = node;
	if (n->children)
		return;
	a->leaves[at_age(a, age_of(a, n))]++;
	a->of_row[n->row]++;
	if (n->next == ring)
		fronts_meet(a, n);
}

static void pull(struct ages *a, uint32_t node)
{
	const struct node *n = &a->node[node];

	a->node[n->prev].next = n->next;
	a->node[n->next].prev = n->prev;
	if (n->children)
		return;
	a->leaves[at_age(a, age_of(a, n))]--;
	a->of_row[n->row]--;
}

/* What is in the next epoch's rings is older than all ages now. */
static void rings_turn(struct ages *a)
{
	uint32_t at = (a->epoch + 1) % EPOCHS;

	for (uint32_t row = 0; row < ROWS && a->leaves[at]; row++) {
		uint32_t from = 1 + at * ROWS + row, to = 1 + EPOCHS * ROWS + row;
		uint32_t first = a->node[from].next, last = a->node[from].prev;

		if (first == from)
			continue;
		a->node[last].next = a->node[to].next;
		a->node[a->node[to].next].prev = last;
		a->node[to].next = first;
		a->node[first].prev = to;
		a->node[from].next = a->node[from].prev = from;
	}
	a->leaves[EPOCHS] += a->leaves[at];
	a->leaves[at] = 0;
}

/* ---- walks --------------------------------------------------------------------------------- */

static uint32_t first_of(const struct ages *a, uint32_t ring)
{
	uint32_t node = a->node[ring].next;

	return node == ring ? 0 : node;
}

/* The first ring with a leaf, of a row's ages from `until` - 1 down to `from`; 0 = none. */
static uint32_t ring_first(const struct ages *a, uint32_t row, uint32_t until, uint32_t from)
{
	if (!a->of_row[row])
		return 0;
	while (until-- > from)
		if (first_of(a, ring_at(a, row, until)))
			return ring_at(a, row, until);
	return 0;
}

/* The same of all groups from a rank on, at ages of `least` or more; then *rank is its own. */
static uint32_t ring_from(const struct ages *a, uint32_t *rank, uint32_t least)
{
	for (; *rank < GROUPS; ++*rank) {
		uint32_t row = a->order[*rank] / AGES, range = a->order[*rank] % AGES;
		uint32_t until = ages_first[range + 1] + (range == AGES - 1);
		uint32_t from = ages_first[range] > least ? ages_first[range] : least;
		uint32_t ring = ring_first(a, row, until, from);

		if (ring)
			return ring;
	}
	return 0;
}

/* The first leaf by rank, at ages of `least` or more; 0 = none. */
static uint32_t front_leaf(const struct ages *a, struct front *f, uint32_t least)
{
	if (!f->ring || !first_of(a, f->ring))
		f->ring = ring_from(a, &f->at, least);
	return f->ring ? first_of(a, f->ring) : 0;
}

/* Of those unused for most epochs the one that ranks first. There is one. */
static uint32_t oldest_leaf(struct ages *a)
{
	struct front *f = &a->oldest;
	uint32_t rank = GROUPS;

	if (f->ring && first_of(a, f->ring))
		return first_of(a, f->ring);
	while (f->at && !a->leaves[at_age(a, f->at)])
		f->at--;
	for (uint32_t row = 0; row < ROWS; row++) {
		uint32_t ring = ring_at(a, row, f->at);
		uint32_t its = a->rank[row * AGES + ages_range(f->at)];

		if (first_of(a, ring) && its < rank) {
			rank = its;
			f->ring = ring;
		}
	}
	return first_of(a, f->ring);
}

static double worth_of(const struct ages *a, uint32_t group)
{
	uint32_t row = group / AGES, range = group % AGES;
	double worth = a->l.rate[range][row / DEPTHS] * ages_depth_worth[row % DEPTHS];

	return range ? worth : worth * GRACE;
}

/* May one that LRU would keep leave? */
static bool limit_allows(const struct ages *a)
{
	double credit = CREDIT_FIRST + CREDIT_STEP * ((double)a->full_epochs - FIRST_EPOCHS);

	credit = credit < CREDIT ? credit : CREDIT;
	return a->full_epochs >= FIRST_EPOCHS &&
	       a->gone + 1 <= credit * (double)a->resident + a->balance;
}

/* What is worth least; the oldest, if that is not clearly more; or what the limit leaves. */
static uint32_t walk_begin(struct ages *a)
{
	uint32_t least = front_leaf(a, &a->least, 0), oldest, beyond;

	a->began = 0;
	if (!least)
		return first_of(a, INNER);
	oldest = oldest_leaf(a);
	if (worth_of(a, group_of(a, &a->node[oldest])) <
	    CLEARLY * worth_of(a, group_of(a, &a->node[least]))) {
		a->began = oldest;
		return oldest;
	}
	if (age_of(a, &a->node[least]) > a->edge || limit_allows(a))
		return least;
	beyond = front_leaf(a, &a->beyond, a->edge + 1);
	a->began = beyond ? beyond : oldest;
	return a->began;
}

/* In the order of ranks, then those with children; the one that began out of turn is over. */
static uint32_t walk_on(const struct ages *a, uint32_t node)
{
	const struct node *n = &a->node[node];
	uint32_t age = age_of(a, n), range = ages_range(age), rank, ring;

	if (n->next > RINGS || n->children)
		return n->next > RINGS ? n->next : 0;
	rank = a->rank[n->row * AGES + range] + 1u;
	ring = ring_first(a, n->row, age, ages_first[range]);
	if (!ring)
		ring = ring_from(a, &rank, 0);
	return first_of(a, ring ? ring : INNER);
}

static uint32_t ages_victim(void *state, uint32_t after)
{
	struct ages *a = state;
	uint32_t node, last = after == ABI_SLOT_NONE ? 0 : node_of(a, after);

	if (!last)
		node = walk_begin(a);
	else if (last == a->began)
		node = front_leaf(a, &a->least, 0);
	else
		node = walk_on(a, last);
	if (last && node && node == a->began)
		node = walk_on(a, node);
	return node ? slot_of(a, node) : ABI_SLOT_NONE;
}

/* ---- epochs -------------------------------------------------------------------------------- */

/* What LRU would have of what is known, and what of that is not here: anew each epoch. */
static void edge_find(struct ages *a)
{
	double sum = 0, all = 0, gone;

	a->gone = 0;
	a->share = 1;
	for (a->edge = 0; a->edge < EPOCHS - 1; a->edge++, sum += all) {
		uint32_t at = at_age(a, a->edge);

		all = 0;
		for (uint32_t k = 0; k < CLASSES; k++)
			all += a->known[at][k];
		gone = all - a->here[at];
		if (sum + all >= (double)a->resident) {
			a->share = all > 0 ? ((double)a->resident - sum) / all : 0;
			a->gone += gone * a->share;
			return;
		}
		a->gone += gone;
	}
}

static double lru_has(const struct ages *a, uint32_t age)
{
	return age == a->edge ? a->share : age < a->edge;
}

/* Insertion: mostly they are in order. */
static void rank_all(struct ages *a)
{
	double worth[GROUPS];

	for (uint32_t group = 0; group < GROUPS; group++)
		worth[group] = worth_of(a, group);
	for (uint32_t i = 1; i < GROUPS; i++) {
		uint16_t group = a->order[i];
		uint32_t at = i;

		for (; at && worth[a->order[at - 1]] > worth[group]; at--)
			a->order[at] = a->order[at - 1];
		a->order[at] = group;
	}
	for (uint32_t i = 0; i < GROUPS; i++)
		a->rank[a->order[i]] = (uint16_t)i;
}

static void clock_step(struct ages *a)
{
	uint64_t length = a->resident / EPOCHS_TIER;

	if (++a->clock < a->epoch_end)
		return;
	ages_waited(&a->l, (const uint32_t(*)[CLASSES])a->known, a->epoch);
	rings_turn(a);
	a->epoch++;
	memset(a->known[a->epoch % EPOCHS], 0, sizeof(a->known[0]));
	a->here[a->epoch % EPOCHS] = 0;
	edge_find(a);
	a->full_epochs += a->ghosts->added > 0;
	a->epoch_end = a->clock + (length < EPOCH_MIN ? EPOCH_MIN : length);
	a->least = a->beyond = (struct front){ 0, 0 };
	a->oldest = (struct front){ EPOCHS, 0 };
	if (a->epoch - a->learnt_epoch < 2 || a->clock - a->learnt < LEARN_USES)
		return;
	a->learnt_epoch = a->epoch;
	a->learnt = a->clock;
	ages_learn(&a->l);
	rank_all(a);
}

/* ---- a block's life ------------------------------------------------------------------------ */

static uint32_t class_new(const struct ages *a, uint32_t parent, const struct policy_hint *hint)
{
	const struct node *p = &a->node[parent];
	uint32_t run = 31 - (uint32_t)__builtin_clz(hint->brought | 1), turn = 0;

	if (parent && hint->joined && p->uses == 1)
		turn = p->row / DEPTHS / (RUNS * 2);
	else if (parent)
		turn = p->uses >= 2 && p->uses < SHARED_USES;
	return (turn * RUNS + (run < RUNS ? run : RUNS - 1)) * 2 + hint->last;
}

static uint32_t class_used(uint32_t uses)
{
	return CLASSES_NEW + (uses > USES_FEW);
}

static void known_drop(struct ages *a, uint32_t class, uint32_t age)
{
	uint32_t *known = &a->known[at_age(a, age)][class];

	*known -= *known > 0; /* an old ghost may pass for a young one */
}

/* A known block is used, here or where it is now. */
static void seen_again(struct ages *a, uint32_t class, uint32_t age, bool here)
{
	double most = (double)a->resident, lru = lru_has(a, age);

	a->balance += here - lru;
	a->balance = a->balance > most ? most : a->balance;
	a->gone -= here ? 0 : lru;
	if (age >= EPOCHS)
		return;
	a->l.uses[ages_range(age)][class]++;
	known_drop(a, class, age);
	a->here[at_age(a, age)] -= here;
}

static void ghost_make(struct ages *a, const struct node *n, const uint8_t *key)
{
	const struct ghost mine = { ghosts_tag(key),
				    n->epoch % 65536 | n->row << 16 | (uint32_t)n->uses << 26 };
	struct ghost lost;
	uint32_t age;

	ghosts_add(a->ghosts, &mine, &lost);
	age = (a->epoch - lost.note) % 65536;
	if (lost.tag && age < EPOCHS)
		known_drop(a, (lost.note >> 16) % 1024 / DEPTHS, age);
}

/* One that left is used: its ghost goes, and n is what it was, used once more. */
static bool ghost_take(struct ages *a, struct node *n, const uint8_t *key, uint32_t least_age)
{
	struct ghost *g = ghosts_find(a->ghosts, ghosts_tag(key));
	uint32_t note = g ? g->note : 0, age = (a->epoch - note) % 65536;

	if (!g || age < least_age)
		return false;
	ghosts_drop(a->ghosts, g);
	if (age >= EPOCHS)
		return false;
	seen_again(a, (note >> 16) % 1024 / DEPTHS, age, false);
	n->uses = ((note >> 26) + (note >> 26 < USES_MAX)) % 64;
	n->row = (class_used(n->uses) * DEPTHS + (note >> 16) % DEPTHS) % 1024;
	n->epoch = a->epoch;
	return true;
}

static void child_count(struct ages *a, uint32_t parent, bool more)
{
	struct node *p = &a->node[parent];
	uint32_t count = p->children + more - !more;

	if (!p->in || p->children == CHILDREN_MAX || (!more && !p->children))
		return;
	if (p->children && count) {
		p->children = count % (CHILDREN_MAX + 1);
		return;
	}
	pull(a, parent);
	p->children = more;
	push(a, parent);
}

static uint32_t node_take(struct ages *a, uint32_t slot)
{
	uint32_t node = a->free;

	if (!a->map) {
		a->nodes = a->nodes < slot + 1 ? slot + 1 : a->nodes;
		return node_of(a, slot);
	}
	if (node)
		a->free = a->node[node].next;
	else
		node = RINGS + ++a->nodes;
	a->map[slot] = node;
	a->slot[node - RINGS] = slot;
	return node;
}

static void ages_insert(void *state, uint32_t slot, const struct policy_hint *hint)
{
	struct ages *a = state;
	uint32_t node, parent = 0, depth = DEPTHS - 1;
	struct node n = { .uses = 1, .in = 1 };

	ghosts_prefetch(a->ghosts, ghosts_tag(hint->key));
	assert(slot < a->size.blocks_max && !is_in(a, slot));
	clock_step(a);
	node = node_take(a, slot);
	if (hint->parent < a->size.blocks_max && is_in(a, hint->parent))
		parent = node_of(a, hint->parent);
	while (depth_first[depth] > hint->position)
		depth--;
	n.epoch = a->epoch;
	n.parent = parent;
	if (!ghost_take(a, &n, hint->key, 0))
		n.row = (class_new(a, parent, hint) * DEPTHS + depth) % 1024;
	a->node[node] = n;
	a->resident++;
	a->known[a->epoch % EPOCHS][n.row / DEPTHS]++;
	a->here[a->epoch % EPOCHS]++;
	push(a, node);
	if (parent)
		child_count(a, parent, true);
}

/* Uses within one epoch, such as the steps of one decode, are one. */
static void ages_touch(void *state, uint32_t slot, uint32_t weight, uint64_t now_ns)
{
	struct ages *a = state;
	uint32_t node = node_of(a, slot);
	struct node *n = &a->node[node];

	(void)now_ns;
	assert(is_in(a, slot));
	if (!weight || !age_of(a, n))
		return;
	clock_step(a);
	pull(a, node);
	seen_again(a, n->row / DEPTHS, age_of(a, n), true);
	n->uses += n->uses < USES_MAX;
	n->row = (class_used(n->uses) * DEPTHS + n->row % DEPTHS) % 1024;
	n->epoch = a->epoch;
	a->known[a->epoch % EPOCHS][n->row / DEPTHS]++;
	a->here[a->epoch % EPOCHS]++;
	push(a, node);
}

static void ages_elsewhere(void *state, const uint8_t *key)
{
	struct ages *a = state;
	struct node n;

	if (!ghost_take(a, &n, key, 1))
		return;
	a->known[a->epoch % EPOCHS][n.row / DEPTHS]++;
	ghost_make(a, &n, key);
	clock_step(a);
}

static void ages_remove(void *state, uint32_t slot, const uint8_t *key)
{
	struct ages *a = state;
	uint32_t node = node_of(a, slot);
	struct node *n = &a->node[node];

	ghosts_prefetch(a->ghosts, ghosts_tag(key));
	assert(is_in(a, slot));
	a->resident--;
	if (n->parent) /* before: it mostly comes into the same ring */
		child_count(a, n->parent, false);
	pull(a, node);
	if (age_of(a, n) < EPOCHS) {
		a->here[n->epoch % EPOCHS]--;
		a->gone += lru_has(a, age_of(a, n));
		ghost_make(a, n, key);
	}
	n->in = 0;
	a->began = a->began == node ? 0 : a->began;
	if (!a->map)
		return;
	a->map[slot] = 0;
	n->next = a->free;
	a->free = node;
}

/* When a leaf has left its parent mostly is one, and first of the ring; else the ring goes on. */
static uint32_t ages_expect(const void *state, uint32_t slot, const uint8_t *key)
{
	const struct ages *a = state;
	const struct node *n;
	uint32_t behind;

	if (key)
		ghosts_prefetch(a->ghosts, ghosts_tag(key));
	if (slot == ABI_SLOT_NONE)
		return slot;
	n = &a->node[node_of(a, slot)];
	behind = n->parent && a->node[n->parent].children == 1 ? n->parent : n->next;
	__builtin_prefetch(&a->node[behind], 1);
	return behind > RINGS && a->node[behind].in ? slot_of(a, behind) : ABI_SLOT_NONE;
}

/* The chance of a use while NVMe keeps it, which is `reach` new blocks. */
static bool ages_admit(void *state, uint32_t slot, uint64_t reach)
{
	const struct ages *a = state;
	const struct node *n = &a->node[node_of(a, slot)];
	uint64_t length = a->resident / EPOCHS_TIER;
	double never = a->l.never[n->row / DEPTHS];
	double epochs = (double)reach / (double)(length < EPOCH_MIN ? EPOCH_MIN : length);

	assert(is_in(a, slot));
	if (epochs > EPOCHS)
		never /= 1 + a->l.beyond[n->row / DEPTHS] * (epochs - EPOCHS);
	return (1 - never) * ages_depth_worth[n->row % DEPTHS] >= ADMIT_WORTH;
}

/* ---- life ---------------------------------------------------------------------------------- */

/* A map costs 4 bytes a slot and a node: does it spare the nodes of most slots? */
static bool is_mapped(const struct policy_size *size)
{
	return size->most &&
	       (size->sparse || size->resident * 6 + size->blocks_max < size->blocks_max * 5);
}

static uint64_t nodes_most(const struct policy_size *size)
{
	return RINGS + 1 + (is_mapped(size) ? size->most : size->blocks_max);
}

static uint64_t ghosts_count(const struct policy_size *size)
{
	uint64_t count = size->resident * GHOSTS_A_BLOCK;

	return count < GHOSTS_MIN ? GHOSTS_MIN : count;
}

static size_t bytes_of(const struct policy_size *size, uint64_t nodes, uint64_t slots)
{
	size_t bytes = sizeof(struct ages) + (size_t)nodes * sizeof(struct node);

	if (is_mapped(size))
		bytes += (size_t)(slots + nodes - RINGS) * sizeof(uint32_t);
	return bytes + GHOSTS_ALIGN + ghosts_bytes(ghosts_count(size));
}

static size_t ages_state_bytes(const struct policy_size *size)
{
	return bytes_of(size, nodes_most(size), size->blocks_max);
}

static size_t ages_state_used(const void *state, uint64_t slots)
{
	const struct ages *a = state;

	return bytes_of(&a->size, RINGS + 1 + a->nodes, slots);
}

static void ages_init(void *state, const struct policy_size *size)
{
	struct ages *a = state;
	void *end = &a->node[nodes_most(size)];

	a->size = *size;
	if (is_mapped(size)) {
		a->map = end;
		a->slot = a->map + size->blocks_max;
		end = a->slot + (nodes_most(size) - RINGS);
	}
	a->ghosts = ghosts_at(end);
	ghosts_init(a->ghosts, ghosts_count(size));
	a->epoch_end = EPOCH_MIN;
	a->edge = EPOCHS - 1;
	a->oldest.at = EPOCHS;
	for (uint32_t ring = 1; ring <= RINGS; ring++)
		a->node[ring].prev = a->node[ring].next = ring;
	for (uint32_t i = 0; i < GROUPS; i++) /* the oldest first */
		a->order[i] = (uint16_t)((i % ROWS + 1) * AGES - 1 - i / ROWS);
	ages_learn(&a->l);
	rank_all(a);
}

extern const struct policy_ops policy_ages;
const struct policy_ops policy_ages = {
	.size = sizeof(struct policy_ops),
	.version = 1,
	.name = "ages",
	.help = "what is least likely to be used soon, by learnt rates; ends of prefixes first",
	.state_bytes = ages_state_bytes,
	.init = ages_init,
	.state_used = ages_state_used,
	.insert = ages_insert,
	.touch = ages_touch,
	.remove = ages_remove,
	.victim = ages_victim,
	.admit = ages_admit,
	.elsewhere = ages_elsewhere,
	.expect = ages_expect,
};
