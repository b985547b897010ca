/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who leaves next under the policy "reuse": cells of blocks by row and epoch, and walks through
 * them in the order of the groups' ranks, leaves first. Bit maps say which cells, rows and epochs
 * have a leaf, so that empty ones cost nothing. A walk may begin out of turn: with the oldest, or
 * with one that LRU would not have.
 */
#include "tierd/policy/reuse.h"

#include <assert.h>
#include <string.h>

/* ---- cells --------------------------------------------------------------------------------- */

static uint32_t row_of(const struct reuse_node *n)
{
	return n->kind * REUSE_DEPTHS + n->depth;
}

static uint32_t cell_at(const struct reuse *r, uint32_t age)
{
	return age >= REUSE_EPOCHS ? REUSE_EPOCHS : (r->epoch - age) % REUSE_EPOCHS;
}

static struct reuse_cell *cell_of(struct reuse *r, const struct reuse_node *n)
{
	return &r->cell[cell_at(r, reuse_age_of(r, n))][row_of(n)];
}

static uint32_t group_of(const struct reuse *r, const struct reuse_node *n)
{
	return row_of(n) * REUSE_AGES + reuse_age(reuse_age_of(r, n));
}

static void bit_set(uint64_t *words, uint32_t bit)
{
	words[bit / 64] |= 1ull << bit % 64;
}

static void bit_clear(uint64_t *words, uint32_t bit)
{
	words[bit / 64] &= ~(1ull << bit % 64);
}

static void leaf_mark(struct reuse *r, uint32_t row, uint32_t at)
{
	r->front.known = false;
	bit_set(r->rows[at], row);
	if (at == REUSE_EPOCHS)
		return;
	bit_set(r->leaves[row], at);
	bit_set(r->columns, at);
}

static void leaf_unmark(struct reuse *r, uint32_t row, uint32_t at)
{
	uint64_t left = 0;

	r->front.known = false;
	bit_clear(r->rows[at], row);
	if (at == REUSE_EPOCHS)
		return;
	bit_clear(r->leaves[row], at);
	for (uint32_t word = 0; word < REUSE_ROW_WORDS; word++)
		left |= r->rows[at][word];
	if (!left)
		bit_clear(r->columns, at);
}

/* The group may have a leaf from now on. */
static void group_mark(struct reuse *r, uint32_t group)
{
	uint32_t at = r->rank[group];

	bit_set(r->leafy, at);
	bit_set(&r->leafy_words, at / 64);
}

static void list_push(struct reuse *r, uint32_t *list, uint32_t node)
{
	struct reuse_node *n = &r->node[node];
	uint32_t newest = *list;

	n->prev = node;
	n->next = newest;
	*list = node;
	if (newest) {
		n->prev = r->node[newest].prev;
		r->node[newest].prev = node;
	}
}

static void list_pull(struct reuse *r, uint32_t *list, uint32_t node)
{
	const struct reuse_node *n = &r->node[node];

	if (*list == node)
		*list = n->next;
	else
		r->node[n->prev].next = n->next;
	if (n->next)
		r->node[n->next].prev = n->prev;
	else if (*list)
		r->node[*list].prev = n->prev; /* the last one went */
}

/* Leaves are marked by the first of them. */
static void leaf_push(struct reuse *r, struct reuse_cell *c, uint32_t node, uint32_t at)
{
	const struct reuse_node *n = &r->node[node];
	bool first = !c->leaf;

	list_push(r, &c->leaf, node);
	if (!first)
		return;
	leaf_mark(r, row_of(n), at);
	group_mark(r, group_of(r, n));
}

static void leaf_pull(struct reuse *r, struct reuse_cell *c, uint32_t node, uint32_t at)
{
	list_pull(r, &c->leaf, node);
	if (!c->leaf)
		leaf_unmark(r, row_of(&r->node[node]), at);
}

void reuse_cell_push(struct reuse *r, uint32_t node)
{
	const struct reuse_node *n = &r->node[node];
	uint32_t at = cell_at(r, reuse_age_of(r, n));
	struct reuse_cell *c = &r->cell[at][row_of(n)];

	if (n->children)
		list_push(r, &c->inner, node);
	else
		leaf_push(r, c, node, at);
}

void reuse_cell_pull(struct reuse *r, uint32_t node)
{
	const struct reuse_node *n = &r->node[node];
	uint32_t at = cell_at(r, reuse_age_of(r, n));
	struct reuse_cell *c = &r->cell[at][row_of(n)];

	if (n->children)
		list_pull(r, &c->inner, node);
	else
		leaf_pull(r, c, node, at);
}

void reuse_cell_swap(struct reuse *r, uint32_t node, bool leaf)
{
	const struct reuse_node *n = &r->node[node];
	uint32_t at = cell_at(r, reuse_age_of(r, n));
	struct reuse_cell *c = &r->cell[at][row_of(n)];

	assert(leaf == !n->children);
	if (leaf) {
		list_pull(r, &c->inner, node);
		leaf_push(r, c, node, at);
	} else {
		leaf_pull(r, c, node, at);
		list_push(r, &c->inner, node);
	}
}

/* ---- walks --------------------------------------------------------------------------------- */

_Static_assert(REUSE_EPOCHS == 128, "leaf_after knows two words");
_Static_assert(REUSE_RANK_WORDS <= 64, "reuse.leafy_words");

/* From epoch `at` on, in a circle: how many come before one with a leaf, if any has. */
static uint32_t leaf_after(const uint64_t leaves[REUSE_EPOCHS / 64], uint32_t at)
{
	uint32_t word = at / 64, bit = at % 64;
	uint64_t here = leaves[word] >> bit, there = leaves[!word];

	if (here)
		return (uint32_t)__builtin_ctzll(here);
	if (there)
		return 64 - bit + (uint32_t)__builtin_ctzll(there);
	here = leaves[word] << (63 - bit) << 1; /* those before `at`, moved to the end */
	return here ? 64 + (uint32_t)__builtin_ctzll(here) : REUSE_EPOCHS;
}

/* The first block in the cells of ages [from, until), oldest first; 0 = none. */
static uint32_t cells_first(const struct reuse *r, uint32_t row, uint32_t from, uint32_t until,
			    bool inner)
{
	uint32_t oldest = (r->epoch - until + 1) % REUSE_EPOCHS, n = 0;

	if (until == REUSE_EPOCHS) {
		const struct reuse_cell *c = &r->cell[REUSE_EPOCHS][row];

		if (inner ? c->inner : c->leaf)
			return inner ? c->inner : c->leaf;
	}
	if (!inner) {
		n = leaf_after(r->leaves[row], oldest);
		return n < until - from ? r->cell[(oldest + n) % REUSE_EPOCHS][row].leaf : 0;
	}
	for (; n < until - from; n++) {
		uint32_t node = r->cell[(oldest + n) % REUSE_EPOCHS][row].inner;

		if (node)
			return node;
	}
	return 0;
}

static uint32_t group_first(const struct reuse *r, uint32_t group, bool inner)
{
	uint32_t age = group % REUSE_AGES;

	return cells_first(r, group / REUSE_AGES, reuse_age_first[age], reuse_age_first[age + 1],
			   inner);
}

/* The first leaf from the group of this rank on; groups that have lost theirs are unmarked. */
static uint32_t leaf_from(struct reuse *r, uint32_t rank)
{
	uint64_t words = rank < REUSE_GROUPS ? r->leafy_words & ~0ull << rank / 64 : 0;

	for (; words; words &= words - 1) {
		uint32_t word = (uint32_t)__builtin_ctzll(words);
		uint64_t left = r->leafy[word];

		if (word == rank / 64)
			left &= ~0ull << rank % 64;
		for (; left; left &= left - 1) {
			uint32_t at = word * 64 + (uint32_t)__builtin_ctzll(left);
			uint32_t node = group_first(r, r->order[at], false);

			if (node)
				return node;
			bit_clear(r->leafy, at);
		}
		if (!r->leafy[word])
			bit_clear(&r->leafy_words, word);
	}
	return 0;
}

static uint32_t inner_from(const struct reuse *r, uint32_t rank)
{
	for (; rank < REUSE_GROUPS; rank++) {
		uint32_t node = group_first(r, r->order[rank], true);

		if (node)
			return node;
	}
	return 0;
}

/* From the group of this rank on: leaves, then the others. */
static uint32_t walk_from(struct reuse *r, uint32_t rank, bool inner)
{
	uint32_t node = inner ? 0 : leaf_from(r, rank);

	return node ? node : inner_from(r, inner ? rank : 0);
}

static uint32_t walk_after(struct reuse *r, uint32_t node)
{
	const struct reuse_node *n = &r->node[node];
	uint32_t age = reuse_age_of(r, n), row = row_of(n), next = n->next;
	uint32_t group = group_of(r, n);
	bool inner = n->children > 0;

	if (!next) {
		uint32_t until = age < REUSE_EPOCHS ? age : REUSE_EPOCHS - 1;

		if (age >= REUSE_EPOCHS) /* the oldest cell was last */
			until = REUSE_EPOCHS - 1;
		next = cells_first(r, row, reuse_age_first[group % REUSE_AGES], until, inner);
		if (!next && age >= REUSE_EPOCHS) {
			uint32_t at = (r->epoch - until) % REUSE_EPOCHS;
			const struct reuse_cell *c = &r->cell[at][row];

			next = inner ? c->inner : c->leaf;
		}
	}
	return next ? next : walk_from(r, r->rank[group] + 1u, inner);
}

/* Of the rows with a leaf in this cell's epoch the one that ranks first. */
static uint32_t row_first(const struct reuse *r, uint32_t at, uint32_t age)
{
	uint32_t best = REUSE_ROWS, rank = REUSE_GROUPS;

	for (uint32_t word = 0; word < REUSE_ROW_WORDS; word++)
		for (uint64_t left = r->rows[at][word]; left; left &= left - 1) {
			uint32_t row = word * 64 + (uint32_t)__builtin_ctzll(left);
			uint32_t its = r->rank[row * REUSE_AGES + age];

			if (its < rank) {
				rank = its;
				best = row;
			}
		}
	return best;
}

/* A leaf of those unused for most epochs; 0 = there is none. */
static uint32_t oldest_leaf(const struct reuse *r)
{
	uint32_t row = row_first(r, REUSE_EPOCHS, REUSE_AGES - 1), n, at;

	if (row < REUSE_ROWS)
		return r->cell[REUSE_EPOCHS][row].leaf;
	n = leaf_after(r->columns, (r->epoch + 1) % REUSE_EPOCHS);
	if (n == REUSE_EPOCHS)
		return 0;
	at = (r->epoch + 1 + n) % REUSE_EPOCHS;
	row = row_first(r, at, reuse_age(REUSE_EPOCHS - 1 - n));
	return row < REUSE_ROWS ? r->cell[at][row].leaf : 0;
}

/* Of a group's leaves that LRU would not have: the last whose time comes, if it comes with age. */
static uint32_t group_beyond(const struct reuse *r, uint32_t group)
{
	uint32_t row = group / REUSE_AGES, age = group % REUSE_AGES;
	uint32_t from = reuse_age_first[age], until = reuse_age_first[age + 1];

	from = from > r->regret.edge ? from : r->regret.edge + 1;
	if (from >= until && until < REUSE_EPOCHS)
		return 0;
	if (until == REUSE_EPOCHS || reuse_worth(r, group + 1) <= reuse_worth(r, group))
		return cells_first(r, row, from, until, false);
	for (; from < until; from++) {
		uint32_t node = r->cell[(r->epoch - from) % REUSE_EPOCHS][row].leaf;

		if (node)
			return node;
	}
	return 0;
}

/* Of all leaves that LRU would not have the one that is worth least; 0 = there is none. */
static __attribute__((noinline)) uint32_t leaf_beyond(const struct reuse *r)
{
	for (uint64_t words = r->leafy_words; words; words &= words - 1) {
		uint32_t word = (uint32_t)__builtin_ctzll(words);

		for (uint64_t left = r->leafy[word]; left; left &= left - 1) {
			uint32_t at = word * 64 + (uint32_t)__builtin_ctzll(left);
			uint32_t node = group_beyond(r, r->order[at]);

			if (node)
				return node;
		}
	}
	return 0;
}

/* Apart, as is what follows it at the limit: mostly the front is known and all is allowed. */
static __attribute__((noinline)) void front_find(struct reuse *r)
{
	struct reuse_front *f = &r->front;
	uint32_t least = leaf_from(r, 0), oldest;

	*f = (struct reuse_front){ .known = true };
	if (!least)
		return;
	oldest = oldest_leaf(r);
	assert(oldest); /* there is a leaf */
	f->least = cell_of(r, &r->node[least]);
	f->oldest = cell_of(r, &r->node[oldest]);
	f->age = reuse_age_of(r, &r->node[least]);
	f->dear = reuse_worth(r, group_of(r, &r->node[oldest])) >=
		  r->regret.caution * reuse_worth(r, group_of(r, &r->node[least]));
}

/*
 * Whom to let go: what is worth least; the oldest, if that is not worth clearly more; or, where the
 * limit is reached, what is worth least of that which LRU would not have.
 */
uint32_t reuse_walk_begin(struct reuse *r)
{
	const struct reuse_front *f = &r->front;
	uint32_t beyond = 0;

	r->oldest = 0;
	if (!f->known)
		front_find(r);
	if (!f->least)
		return inner_from(r, 0);
	assert(f->least->leaf && f->oldest->leaf);
	if (f->least == f->oldest)
		return f->least->leaf;
	if (f->dear) {
		if (reuse_regret_allows(r, f->age))
			return f->least->leaf;
		beyond = leaf_beyond(r);
	}
	r->oldest = beyond ? beyond : f->oldest->leaf;
	return r->oldest;
}

/* The oldest was a walk's first out of turn: behind it all others come in theirs. */
uint32_t reuse_walk_on(struct reuse *r, uint32_t after)
{
	uint32_t node = after == r->oldest ? walk_from(r, 0, false) : walk_after(r, after);

	return node && node == r->oldest ? walk_after(r, node) : node;
}

/* ---- epochs -------------------------------------------------------------------------------- */

static void list_join(struct reuse *r, uint32_t *to, uint32_t *from)
{
	uint32_t last;

	if (!*from)
		return;
	last = r->node[*from].prev;
	r->node[last].next = *to;
	if (*to) {
		r->node[*from].prev = r->node[*to].prev;
		r->node[*to].prev = last;
	}
	*to = *from;
	*from = 0;
}

/* Cells are used again: what stands in the next epoch's is older than all ages now. */
void reuse_cells_turn(struct reuse *r)
{
	uint32_t at = (r->epoch + 1) % REUSE_EPOCHS;

	for (uint32_t row = 0; row < REUSE_ROWS; row++) {
		list_join(r, &r->cell[REUSE_EPOCHS][row].leaf, &r->cell[at][row].leaf);
		list_join(r, &r->cell[REUSE_EPOCHS][row].inner, &r->cell[at][row].inner);
	}
	for (uint32_t word = 0; word < REUSE_ROW_WORDS; word++) {
		for (uint64_t left = r->rows[at][word]; left; left &= left - 1)
			bit_clear(r->leaves[word * 64 + (uint32_t)__builtin_ctzll(left)], at);
		r->rows[REUSE_EPOCHS][word] |= r->rows[at][word];
		r->rows[at][word] = 0;
	}
	bit_clear(r->columns, at);
}

/* All rows with a leaf in the cells at `at`, which are of this range of ages. */
static void column_mark(struct reuse *r, uint32_t at, uint32_t age)
{
	for (uint32_t word = 0; word < REUSE_ROW_WORDS; word++)
		for (uint64_t left = r->rows[at][word]; left; left &= left - 1) {
			uint32_t row = word * 64 + (uint32_t)__builtin_ctzll(left);

			group_mark(r, row * REUSE_AGES + age);
		}
}

/* Blocks have moved into other groups by their age, and groups to other ranks. */
void reuse_groups_mark(struct reuse *r)
{
	r->front.known = false;
	memset(r->leafy, 0, sizeof(r->leafy));
	r->leafy_words = 0;
	column_mark(r, REUSE_EPOCHS, REUSE_AGES - 1);
	for (uint32_t word = 0; word < REUSE_EPOCHS / 64; word++)
		for (uint64_t left = r->columns[word]; left; left &= left - 1) {
			uint32_t at = word * 64 + (uint32_t)__builtin_ctzll(left);

			column_mark(r, at, reuse_age((r->epoch - at) % REUSE_EPOCHS));
		}
}
