/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order by learnt ages: the block whose next use is worth least for the time it would wait
 * leaves first, ends of prefixes before their parents. How soon a class of blocks is used again, by
 * the age since the last use, is learnt while running (reuse_learn.c), also from those that left.
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
#include "tierd/policy/reuse.h"

#include <string.h>

#define EPOCHS_TIER 16u
#define EPOCH_MIN 64u
#define LEARN_USES 1024u /* at least between two rankings, and two epochs */
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

static const uint64_t depth_first[DEPTHS] = { 0, 8192, 24576, 49152 }; /* tokens */

static uint32_t age_of(const struct reuse *r, const struct node *n)
{
	return r->epoch - n->epoch < EPOCHS ? r->epoch - n->epoch : EPOCHS;
}

static uint32_t at_age(const struct reuse *r, uint32_t age)
{
	return age >= EPOCHS ? EPOCHS : (r->epoch - age) % EPOCHS;
}

static uint32_t ring_at(const struct reuse *r, uint32_t row, uint32_t age)
{
	return HEAD | (at_age(r, age) * ROWS + row);
}

static uint32_t group_of(const struct reuse *r, const struct node *n)
{
	return n->row * AGES + reuse_range(age_of(r, n));
}

static uint32_t node_of(const struct reuse *r, uint32_t slot)
{
	return r->map ? r->map[slot] : slot + 1;
}

static uint32_t slot_of(const struct reuse *r, uint32_t node)
{
	return r->map ? r->slot[node] : node - 1;
}

static bool is_in(const struct reuse *r, uint32_t slot)
{
	return slot < r->size.blocks_max && r->node[node_of(r, slot)].in;
}

/* ---- rings --------------------------------------------------------------------------------- */

static struct link *link_of(struct reuse *r, uint32_t at)
{
	return at & HEAD ? &r->head[at & ~HEAD] : &r->node[at].link;
}

static void group_mark(struct reuse *r, uint32_t group)
{
	r->marked[r->rank[group] / 64] |= 1ull << r->rank[group] % 64;
}

/* A ring has its first leaf. */
static void fronts_meet(struct reuse *r, const struct node *n)
{
	uint32_t age = age_of(r, n), rank = r->rank[group_of(r, n)];

	group_mark(r, group_of(r, n));
	if (age < EPOCHS)
		r->leafy[n->row][n->epoch % EPOCHS / 64] |= 1ull << n->epoch % 64;
	if (rank <= r->least.at)
		r->least = (struct front){ rank, 0 };
	if (rank <= r->beyond.at && age > r->edge)
		r->beyond = (struct front){ rank, 0 };
	if (age >= r->oldest.at)
		r->oldest = (struct front){ age, 0 };
}

static void push(struct reuse *r, uint32_t node)
{
	struct node *n = &r->node[node];
	uint32_t ring = n->children ? INNER : ring_at(r, n->row, age_of(r, n));

	n->link = (struct link){ .prev = ring, .next = link_of(r, ring)->next };
	link_of(r, n->link.next)->prev = node;
	link_of(r, ring)->next = node;
	if (n->children)
		return;
	r->leaves[at_age(r, age_of(r, n))]++;
	if (n->link.next == ring)
		fronts_meet(r, n);
}

static void pull(struct reuse *r, uint32_t node)
{
	const struct node *n = &r->node[node];

	link_of(r, n->link.prev)->next = n->link.next;
	link_of(r, n->link.next)->prev = n->link.prev;
	if (n->children)
		return;
	r->leaves[at_age(r, age_of(r, n))]--;
	if (n->link.next == n->link.prev && age_of(r, n) < EPOCHS)
		r->leafy[n->row][n->epoch % EPOCHS / 64] &= ~(1ull << n->epoch % 64);
}

/* What is in the next epoch's rings is older than all ages now. */
static void rings_turn(struct reuse *r)
{
	uint32_t at = (r->epoch + 1) % EPOCHS;

	for (uint32_t row = 0; row < ROWS && r->leaves[at]; row++) {
		uint32_t to = HEAD | (EPOCHS * ROWS + row), ring = HEAD | (at * ROWS + row);
		const struct link all = *link_of(r, ring);

		if (all.next == ring)
			continue;
		r->node[all.prev].link.next = link_of(r, to)->next;
		link_of(r, link_of(r, to)->next)->prev = all.prev;
		link_of(r, to)->next = all.next;
		r->node[all.next].link.prev = to;
		*link_of(r, ring) = (struct link){ ring, ring };
		r->leafy[row][at / 64] &= ~(1ull << at % 64);
	}
	r->leaves[EPOCHS] += r->leaves[at];
	r->leaves[at] = 0;
}

/* ---- walks --------------------------------------------------------------------------------- */

static uint32_t first_of(const struct reuse *r, uint32_t ring)
{
	uint32_t node = r->head[ring & ~HEAD].next;

	return node & HEAD ? 0 : node;
}

/* The first ring with a leaf, of a row's ages from `until` - 1 down to `from`; 0 = none. */
static uint32_t ring_first(const struct reuse *r, uint32_t row, uint32_t until, uint32_t from)
{
	const uint64_t *leafy = r->leafy[row];
	uint32_t at, word, bit;
	uint64_t left;

	if (until > EPOCHS && first_of(r, ring_at(r, row, EPOCHS)))
		return ring_at(r, row, EPOCHS);
	until = until > EPOCHS ? EPOCHS : until;
	if (until <= from)
		return 0;
	at = (r->epoch - until + 1) % EPOCHS;
	word = at / 64;
	bit = at % 64;
	left = leafy[word] >> bit | (bit ? leafy[!word] << (64 - bit) : 0);
	left &= (1ull << (until - from)) - 1;
	return left ? ring_at(r, row, until - 1 - (uint32_t)__builtin_ctzll(left)) : 0;
}

static uint32_t marked_from(const struct reuse *r, uint32_t rank)
{
	uint32_t word = rank / 64;
	uint64_t left = r->marked[word] & ~0ull << rank % 64;

	while (!left && word < GROUPS / 64)
		left = r->marked[++word];
	return left ? word * 64 + (uint32_t)__builtin_ctzll(left) : GROUPS;
}

/* The same of all groups from a rank on, at ages of `least` or more; then *rank is its own. */
static uint32_t ring_from(struct reuse *r, uint32_t *rank, uint32_t least)
{
	for (; (*rank = marked_from(r, *rank)) < GROUPS; ++*rank) {
		uint32_t row = r->order[*rank] / AGES, range = r->order[*rank] % AGES;
		uint32_t until = reuse_first[range + 1] + (range == AGES - 1);
		uint32_t from = reuse_first[range] > least ? reuse_first[range] : least;
		uint32_t ring = ring_first(r, row, until, from);

		if (ring)
			return ring;
		if (!least)
			r->marked[*rank / 64] &= ~(1ull << *rank % 64);
	}
	return 0;
}

/* The first leaf by rank, at ages of `least` or more; 0 = none. */
static uint32_t front_leaf(struct reuse *r, struct front *f, uint32_t least)
{
	if (!f->ring || !first_of(r, f->ring))
		f->ring = ring_from(r, &f->at, least);
	return f->ring ? first_of(r, f->ring) : 0;
}

/* Of those unused for most epochs the one that ranks first. There is one. */
static uint32_t oldest_leaf(struct reuse *r)
{
	struct front *f = &r->oldest;
	uint32_t rank = GROUPS;

	if (f->ring && first_of(r, f->ring))
		return first_of(r, f->ring);
	while (f->at && !r->leaves[at_age(r, f->at)])
		f->at--;
	for (uint32_t row = 0; row < ROWS; row++) {
		uint32_t ring = ring_at(r, row, f->at);
		uint32_t its = r->rank[row * AGES + reuse_range(f->at)];

		if (first_of(r, ring) && its < rank) {
			rank = its;
			f->ring = ring;
		}
	}
	return first_of(r, f->ring);
}

static double worth_of(const struct reuse *r, uint32_t group)
{
	uint32_t row = group / AGES, range = group % AGES;
	double worth = r->l.rate[range][row / DEPTHS] * reuse_depth_worth[row % DEPTHS];

	return range ? worth : worth * GRACE;
}

/* May one that LRU would keep leave? */
static bool limit_allows(const struct reuse *r)
{
	double credit = CREDIT_FIRST + CREDIT_STEP * ((double)r->full_epochs - FIRST_EPOCHS);

	credit = credit < CREDIT ? credit : CREDIT;
	return r->full_epochs >= FIRST_EPOCHS &&
	       r->gone + 1 <= credit * (double)r->resident + r->balance;
}

/* What is worth least; the oldest, if that is not clearly more; or what the limit leaves. */
static uint32_t walk_begin(struct reuse *r)
{
	uint32_t least = front_leaf(r, &r->least, 0), oldest, beyond;

	r->began = 0;
	if (!least)
		return first_of(r, INNER);
	oldest = oldest_leaf(r);
	if (worth_of(r, group_of(r, &r->node[oldest])) <
	    CLEARLY * worth_of(r, group_of(r, &r->node[least]))) {
		r->began = oldest;
		return oldest;
	}
	if (age_of(r, &r->node[least]) > r->edge || limit_allows(r))
		return least;
	beyond = front_leaf(r, &r->beyond, r->edge + 1);
	r->began = beyond ? beyond : oldest;
	return r->began;
}

/* In the order of ranks, then those with children; the one that began out of turn is over. */
static uint32_t walk_on(struct reuse *r, uint32_t node)
{
	const struct node *n = &r->node[node];
	uint32_t age = age_of(r, n), range = reuse_range(age), rank, ring;

	if (!(n->link.next & HEAD) || n->children)
		return n->link.next & HEAD ? 0 : n->link.next;
	rank = r->rank[n->row * AGES + range] + 1u;
	ring = ring_first(r, n->row, age, reuse_first[range]);
	if (!ring)
		ring = ring_from(r, &rank, 0);
	return first_of(r, ring ? ring : INNER);
}

static uint32_t reuse_victim(void *state, uint32_t after)
{
	struct reuse *r = state;
	uint32_t node, last = after == ABI_SLOT_NONE ? 0 : node_of(r, after);

	if (!last)
		node = walk_begin(r);
	else if (last == r->began)
		node = front_leaf(r, &r->least, 0);
	else
		node = walk_on(r, last);
	if (last && node && node == r->began)
		node = walk_on(r, node);
	return node ? slot_of(r, node) : ABI_SLOT_NONE;
}

/* ---- epochs -------------------------------------------------------------------------------- */

/* What LRU would have of what is known, and what of that is not here: anew each epoch. */
static void edge_find(struct reuse *r)
{
	double sum = 0, all = 0, gone;

	r->gone = 0;
	r->share = 1;
	for (r->edge = 0; r->edge < EPOCHS - 1; r->edge++, sum += all) {
		uint32_t at = at_age(r, r->edge);

		all = 0;
		for (uint32_t k = 0; k < CLASSES; k++)
			all += r->known[at][k];
		gone = all - r->here[at];
		if (sum + all >= (double)r->resident) {
			r->share = all > 0 ? ((double)r->resident - sum) / all : 0;
			r->gone += gone * r->share;
			return;
		}
		r->gone += gone;
	}
}

static double lru_has(const struct reuse *r, uint32_t age)
{
	return age == r->edge ? r->share : age < r->edge;
}

/* Insertion: mostly they are in order. */
static void rank_all(struct reuse *r)
{
	double worth[GROUPS];

	for (uint32_t group = 0; group < GROUPS; group++)
		worth[group] = worth_of(r, group);
	for (uint32_t i = 1; i < GROUPS; i++) {
		uint16_t group = r->order[i];
		uint32_t at = i;

		for (; at && worth[r->order[at - 1]] > worth[group]; at--)
			r->order[at] = r->order[at - 1];
		r->order[at] = group;
	}
	for (uint32_t i = 0; i < GROUPS; i++)
		r->rank[r->order[i]] = (uint16_t)i;
}

/* Groups have other leaves, by their age, and other ranks. */
static void groups_mark(struct reuse *r)
{
	memset(r->marked, 0, sizeof(r->marked));
	for (uint32_t row = 0; row < ROWS; row++) {
		if (first_of(r, ring_at(r, row, EPOCHS)))
			group_mark(r, row * AGES + AGES - 1);
		for (uint32_t word = 0; word < EPOCHS / 64; word++)
			for (uint64_t left = r->leafy[row][word]; left; left &= left - 1) {
				uint32_t at = word * 64 + (uint32_t)__builtin_ctzll(left);
				uint32_t age = (r->epoch - at) % EPOCHS;

				group_mark(r, row * AGES + reuse_range(age));
			}
	}
}

static void clock_step(struct reuse *r)
{
	uint64_t length = r->resident / EPOCHS_TIER;

	if (++r->clock < r->epoch_end)
		return;
	reuse_waited(&r->l, (const uint32_t(*)[CLASSES])r->known, r->epoch);
	rings_turn(r);
	r->epoch++;
	memset(r->known[r->epoch % EPOCHS], 0, sizeof(r->known[0]));
	r->here[r->epoch % EPOCHS] = 0;
	edge_find(r);
	r->full_epochs += r->ghosts->added > 0;
	r->epoch_end = r->clock + (length < EPOCH_MIN ? EPOCH_MIN : length);
	r->least = r->beyond = (struct front){ 0, 0 };
	r->oldest = (struct front){ EPOCHS, 0 };
	if (r->epoch - r->learnt_epoch >= 2 && r->clock - r->learnt >= LEARN_USES) {
		r->learnt_epoch = r->epoch;
		r->learnt = r->clock;
		reuse_learn(&r->l);
		rank_all(r);
	}
	groups_mark(r);
}

/* ---- a block's life ------------------------------------------------------------------------ */

static uint32_t class_new(const struct reuse *r, uint32_t parent, const struct policy_hint *hint)
{
	const struct node *p = &r->node[parent];
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

static void known_drop(struct reuse *r, uint32_t class, uint32_t age)
{
	uint32_t *known = &r->known[at_age(r, age)][class];

	*known -= *known > 0; /* an old ghost may pass for a young one */
}

/* A known block is used, here or where it is now. */
static void seen_again(struct reuse *r, uint32_t class, uint32_t age, bool here)
{
	double most = (double)r->resident, lru = lru_has(r, age);

	r->balance += here - lru;
	r->balance = r->balance > most ? most : r->balance;
	r->gone -= here ? 0 : lru;
	if (age >= EPOCHS)
		return;
	r->l.uses[reuse_range(age)][class]++;
	known_drop(r, class, age);
	r->here[at_age(r, age)] -= here;
}

static void ghost_make(struct reuse *r, const struct node *n, const uint8_t *key)
{
	const struct ghost mine = { ghosts_tag(key),
				    n->epoch % 65536 | n->row << 16 | (uint32_t)n->uses << 26 };
	struct ghost lost;
	uint32_t age;

	ghosts_add(r->ghosts, &mine, &lost);
	age = (r->epoch - lost.note) % 65536;
	if (lost.tag && age < EPOCHS)
		known_drop(r, (lost.note >> 16) % 1024 / DEPTHS, age);
}

/* A prompt that is put in pieces goes on: the end of the piece before was not its end. */
static void last_no_more(struct reuse *r, uint32_t parent)
{
	struct node *p = &r->node[parent];
	uint32_t class = p->row / DEPTHS, age = age_of(r, p);

	if (class >= CLASSES_NEW || class % 2 == 0)
		return;
	pull(r, parent);
	if (age < EPOCHS) {
		r->known[at_age(r, age)][class]--;
		r->known[at_age(r, age)][class - 1]++;
	}
	p->row -= DEPTHS;
	push(r, parent);
}

/* One that left is used: its ghost goes, and n is what it was, used once more. */
static bool ghost_take(struct reuse *r, struct node *n, const uint8_t *key, uint32_t least_age)
{
	struct ghost *g = ghosts_find(r->ghosts, ghosts_tag(key));
	uint32_t note = g ? g->note : 0, age = (r->epoch - note) % 65536;

	if (!g || age < least_age)
		return false;
	ghosts_drop(r->ghosts, g);
	if (age >= EPOCHS)
		return false;
	seen_again(r, (note >> 16) % 1024 / DEPTHS, age, false);
	n->uses = ((note >> 26) + (note >> 26 < USES_MAX)) % 64;
	n->row = (class_used(n->uses) * DEPTHS + (note >> 16) % DEPTHS) % 1024;
	n->epoch = r->epoch;
	return true;
}

static void child_count(struct reuse *r, uint32_t parent, bool more)
{
	struct node *p = &r->node[parent];
	uint32_t count = p->children + more - !more;

	if (!p->in || p->children == CHILDREN_MAX || (!more && !p->children))
		return;
	if (p->children && count) {
		p->children = count % (CHILDREN_MAX + 1);
		return;
	}
	pull(r, parent);
	p->children = more;
	push(r, parent);
}

static uint32_t node_take(struct reuse *r, uint32_t slot)
{
	uint32_t node = r->free;

	if (!r->map) {
		r->nodes = r->nodes < slot + 1 ? slot + 1 : r->nodes;
		return node_of(r, slot);
	}
	if (node)
		r->free = r->node[node].link.next;
	else
		node = ++r->nodes;
	r->map[slot] = node;
	r->slot[node] = slot;
	return node;
}

static void reuse_insert(void *state, uint32_t slot, const struct policy_hint *hint)
{
	struct reuse *r = state;
	uint32_t node, parent = 0, depth = DEPTHS - 1;
	struct node n = { .uses = 1, .in = 1 };

	ghosts_prefetch(r->ghosts, ghosts_tag(hint->key));
	assert(slot < r->size.blocks_max && !is_in(r, slot));
	clock_step(r);
	node = node_take(r, slot);
	if (hint->parent < r->size.blocks_max && is_in(r, hint->parent))
		parent = node_of(r, hint->parent);
	while (depth_first[depth] > hint->position)
		depth--;
	n.epoch = r->epoch;
	n.parent = parent;
	if (!ghost_take(r, &n, hint->key, 0))
		n.row = (class_new(r, parent, hint) * DEPTHS + depth) % 1024;
	r->node[node] = n;
	r->resident++;
	r->known[r->epoch % EPOCHS][n.row / DEPTHS]++;
	r->here[r->epoch % EPOCHS]++;
	push(r, node);
	if (!parent)
		return;
	last_no_more(r, parent);
	child_count(r, parent, true);
}

/* Uses within one epoch, such as the steps of one decode, are one. */
static void reuse_touch(void *state, uint32_t slot, uint32_t weight, uint64_t now_ns)
{
	struct reuse *r = state;
	uint32_t node = node_of(r, slot);
	struct node *n = &r->node[node];

	(void)now_ns;
	assert(is_in(r, slot));
	if (!weight || !age_of(r, n))
		return;
	clock_step(r);
	pull(r, node);
	seen_again(r, n->row / DEPTHS, age_of(r, n), true);
	n->uses += n->uses < USES_MAX;
	n->row = (class_used(n->uses) * DEPTHS + n->row % DEPTHS) % 1024;
	n->epoch = r->epoch;
	r->known[r->epoch % EPOCHS][n->row / DEPTHS]++;
	r->here[r->epoch % EPOCHS]++;
	push(r, node);
}

static void reuse_elsewhere(void *state, const uint8_t *key)
{
	struct reuse *r = state;
	struct node n;

	if (!ghost_take(r, &n, key, 1))
		return;
	r->known[r->epoch % EPOCHS][n.row / DEPTHS]++;
	ghost_make(r, &n, key);
	clock_step(r);
}

static void reuse_remove(void *state, uint32_t slot, const uint8_t *key)
{
	struct reuse *r = state;
	uint32_t node = node_of(r, slot);
	struct node *n = &r->node[node];

	ghosts_prefetch(r->ghosts, ghosts_tag(key));
	assert(is_in(r, slot));
	r->resident--;
	if (n->parent) /* before: it mostly comes into the same ring */
		child_count(r, n->parent, false);
	pull(r, node);
	if (age_of(r, n) < EPOCHS) {
		r->here[n->epoch % EPOCHS]--;
		r->gone += lru_has(r, age_of(r, n));
		ghost_make(r, n, key);
	}
	n->in = 0;
	r->began = r->began == node ? 0 : r->began;
	if (!r->map)
		return;
	r->map[slot] = 0;
	n->link.next = r->free;
	r->free = node;
}

/* When a leaf has left its parent mostly is one, and first of the ring; else the ring goes on. */
static uint32_t reuse_expect(const void *state, uint32_t slot, const uint8_t *key)
{
	const struct reuse *r = state;
	const struct node *n, *p;
	uint32_t behind;

	if (key)
		ghosts_prefetch(r->ghosts, ghosts_tag(key));
	if (slot == ABI_SLOT_NONE)
		return slot;
	n = &r->node[node_of(r, slot)];
	p = &r->node[n->parent];
	behind = p->in && p->children == 1 && p->epoch == n->epoch ? n->parent : n->link.next;
	if (!(behind & HEAD))
		__builtin_prefetch(&r->node[behind], 1);
	return behind & HEAD ? ABI_SLOT_NONE : slot_of(r, behind);
}

/* The chance of a use while NVMe keeps it, which is `reach` new blocks. */
static bool reuse_admit(void *state, uint32_t slot, uint64_t reach)
{
	const struct reuse *r = state;
	const struct node *n = &r->node[node_of(r, slot)];
	uint64_t length = r->resident / EPOCHS_TIER;
	double never = r->l.never[n->row / DEPTHS];
	double epochs = (double)reach / (double)(length < EPOCH_MIN ? EPOCH_MIN : length);

	assert(is_in(r, slot));
	if (epochs > EPOCHS)
		never /= 1 + r->l.beyond[n->row / DEPTHS] * (epochs - EPOCHS);
	return (1 - never) * reuse_depth_worth[n->row % DEPTHS] >= ADMIT_WORTH;
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
	return 1 + (is_mapped(size) ? size->most : size->blocks_max);
}

static uint64_t ghosts_count(const struct policy_size *size)
{
	uint64_t count = size->resident * GHOSTS_A_BLOCK;

	return count < GHOSTS_MIN ? GHOSTS_MIN : count;
}

static size_t bytes_of(const struct policy_size *size, uint64_t nodes, uint64_t slots)
{
	size_t bytes = sizeof(struct reuse) + (size_t)nodes * sizeof(struct node);

	if (is_mapped(size))
		bytes += (size_t)(slots + nodes) * sizeof(uint32_t);
	return bytes + GHOSTS_ALIGN + ghosts_bytes(ghosts_count(size));
}

static size_t reuse_state_bytes(const struct policy_size *size)
{
	return bytes_of(size, nodes_most(size), size->blocks_max);
}

static size_t reuse_state_used(const void *state, uint64_t slots)
{
	const struct reuse *r = state;

	return bytes_of(&r->size, 1 + r->nodes, slots);
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
	r->epoch_end = EPOCH_MIN;
	r->edge = EPOCHS - 1;
	r->oldest.at = EPOCHS;
	for (uint32_t ring = 0; ring < RINGS; ring++)
		r->head[ring] = (struct link){ HEAD | ring, HEAD | ring };
	for (uint32_t i = 0; i < GROUPS; i++) /* the oldest first */
		r->order[i] = (uint16_t)((i % ROWS + 1) * AGES - 1 - i / ROWS);
	reuse_learn(&r->l);
	rank_all(r);
}

extern const struct policy_ops policy_reuse;
const struct policy_ops policy_reuse = {
	.size = sizeof(struct policy_ops),
	.version = 1,
	.name = "reuse",
	.help = "what is least likely to be used soon, by learnt rates; ends of prefixes first",
	.state_bytes = reuse_state_bytes,
	.init = reuse_init,
	.state_used = reuse_state_used,
	.insert = reuse_insert,
	.touch = reuse_touch,
	.remove = reuse_remove,
	.victim = reuse_victim,
	.admit = reuse_admit,
	.elsewhere = reuse_elsewhere,
	.expect = reuse_expect,
};
