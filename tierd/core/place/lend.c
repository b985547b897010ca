/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slabs that devices of clients have: an HBM slab that a client has mapped, or a slab of host
 * memory that it has registered with a GPU or a network card. A device goes on reading the pages
 * that it was shown, whatever becomes of the file, so a lent slab keeps its memory (space.h). A
 * loan is known here before the device is told, and ends when the client says that the device has
 * let go, or with the death of its process, never with its connection. An index is lent like a
 * slab, whole: then nothing of it is punched or collapsed, and all of it counts (tables.c).
 *
 * What is wanted back is marked, and the client's count of recalls rises; it asks what to leave
 * when it sees that. Nobody is forced: what stays is charged to the context like any slab of its.
 * So of contexts that are others' a user's devices have half of a tier at most, and an index only
 * if that costs its owner nothing.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "tierd/core/state.h"

#define BUCKETS 8192u
#define RECALL_NS (10 * MS) /* between two times that some are wanted back */
#define LATELY_NS (200 * MS)

struct lend {
	uint32_t client, context; /* the context's index */
	uint32_t tier;
	uint32_t times;       /* that it took it, less those that it left it */
	uint64_t slab;
	uint32_t chain;       /* 1 + the next of the bucket */
	uint32_t prev, next;  /* 1 + ... of the client; next: of the free ones, too */
};

int lend_open(struct core *c)
{
	struct lends *l = &c->evict.lends;

	l->table = calloc(CORE_LENDS_MAX, sizeof(*l->table));
	l->bucket = calloc(BUCKETS, sizeof(*l->bucket));
	l->to = calloc(CORE_CLIENTS_MAX, sizeof(*l->to));
	return l->table && l->bucket && l->to ? 0 : -ENOMEM;
}

void lend_close(struct core *c)
{
	free(c->evict.lends.table);
	free(c->evict.lends.bucket);
	free(c->evict.lends.to);
}

static uint32_t *bucket_of(struct core *c, uint32_t client, const struct context *x,
			   uint64_t place)
{
	uint64_t hash = (place ^ (uint64_t)client << 48 ^ (uint64_t)x->index << 40) *
			UINT64_C(0x9e3779b97f4a7c15);

	return &c->evict.lends.bucket[(hash >> 32) % BUCKETS];
}

/* What names it in its chain; NULL: the client does not have that slab. */
static uint32_t *find(struct core *c, uint32_t client, const struct context *x, uint32_t tier,
		      uint64_t slab)
{
	uint32_t *link = bucket_of(c, client, x, slab + tier);

	while (*link) {
		struct lend *at = &c->evict.lends.table[*link - 1];

		if (at->client == client && at->context == x->index && at->tier == tier &&
		    at->slab == slab)
			return link;
		link = &at->chain;
	}
	return NULL;
}

static bool is_foreign(const struct client *k, const struct context *x)
{
	return !k->open.operator_ && k->open.uid != x->spec.owner_uid;
}

/* What counts for a user: slabs of others. */
static uint64_t *counted(struct core *c, const struct client *k, const struct context *x,
			 uint32_t tier)
{
	assert(k->state && k->account < CORE_ACCOUNTS_MAX);
	if (tier >= ABI_MEM_TIERS || !is_foreign(k, x))
		return NULL;
	return &c->accounts.table[k->account].lent[tier];
}

static void add(struct core *c, uint32_t client, struct context *x, uint32_t tier, uint64_t slab)
{
	struct lends *l = &c->evict.lends;
	struct client *k = &c->client[client];
	uint32_t *link = bucket_of(c, client, x, slab + tier), number = l->free;
	uint32_t *first = &l->to[client].first;

	if (number)
		l->free = l->table[number - 1].next;
	else
		number = ++l->high;
	assert(number <= CORE_LENDS_MAX);
	l->table[number - 1] = (struct lend){
		.client = client, .context = x->index, .tier = tier, .times = 1, .slab = slab,
		.chain = *link, .next = *first,
	};
	if (*first)
		l->table[*first - 1].prev = number;
	*link = *first = number;
	account_take(c, k, ACCOUNT_LENDS);
	if (counted(c, k, x, tier))
		*counted(c, k, x, tier) += space_slab_bytes(x->space[tier]);
	x->lent++;
	l->count++;
}

/* Who has it no more. If it was wanted back and is free now, those who wait look again. */
static void end(struct core *c, uint32_t *link)
{
	struct lends *l = &c->evict.lends;
	uint32_t number = *link;
	struct lend *at = &l->table[number - 1];
	struct context *x = c->context[at->context];
	struct client *k = &c->client[at->client];
	uint64_t *lent = counted(c, k, x, at->tier);
	bool index = at->tier == CORE_RANGE_INDEX;

	assert(x && x->lent > 0 && l->count > 0);
	*link = at->chain;
	*(at->prev ? &l->table[at->prev - 1].next : &l->to[at->client].first) = at->next;
	if (at->next)
		l->table[at->next - 1].prev = at->prev;
	if (index)
		x->index_lent--;
	else
		space_lend_end(x->space[at->tier], at->slab);
	if (!index && space_is_recalled(x->space[at->tier], at->slab))
		request_wake_space(c);
	at->next = l->free;
	l->free = number;
	if (lent) {
		assert(*lent >= space_slab_bytes(x->space[at->tier]));
		*lent -= space_slab_bytes(x->space[at->tier]);
	}
	account_give(c, k->account, k, ACCOUNT_LENDS);
	x->lent--;
	l->count--;
}

/* ---- clients ------------------------------------------------------------------------------ */

static struct context *attached(struct core *c, uint32_t client, const struct core_range *range)
{
	struct context *x = core_context(c, range->context_id);
	const struct client *k = &c->client[client];

	assert(client < CORE_CLIENTS_MAX);
	return x && k->state == 1 && bit_get(k->attached, x->index) ? x : NULL;
}

static uint64_t bytes_of(const struct context *x, uint32_t tier)
{
	return tier == CORE_RANGE_INDEX ? x->plan.index_bytes : space_slab_bytes(x->space[tier]);
}

/* All of it is brought when it is registered. */
static int index_lend(struct core *c, const struct client *k, struct context *x)
{
	if (x->descs_short)
		return -EAGAIN;
	return tables_lend(c, x, !is_foreign(k, x)) ? 0 : -EDQUOT;
}

static int slab_lend(struct core *c, const struct client *k, struct context *x,
		     const struct core_range *range)
{
	const uint64_t *lent = counted(c, k, x, range->tier);
	int64_t slab;

	if (range->tier == CORE_RANGE_INDEX)
		return index_lend(c, k, x);
	if (lent && *lent + range->bytes > c->pool[range->tier].capacity / 2)
		return -EDQUOT;
	slab = space_lend(x->space[range->tier], range->offset);
	assert(slab < 0 || (uint64_t)slab == range->offset);
	return slab < 0 ? (int)slab : 0;
}

int core_slab_lend(struct core *c, uint32_t client, struct core_range *range)
{
	struct context *x = attached(c, client, range);
	struct client *k = &c->client[client];
	uint32_t *link;
	int rc;

	if (!x || range->tier > CORE_RANGE_INDEX ||
	    (range->tier < ABI_MEM_TIERS && !x->space[range->tier]))
		return -ENOENT;
	/* To read memory of a device is to be able to write it. */
	if (range->tier == ABI_TIER_HBM && k->open.uid != x->spec.owner_uid)
		return -EACCES;
	if (x->closing)
		return -EAGAIN;
	if (!account_may(c, k, ACCOUNT_LENDS) || c->evict.lends.count == CORE_LENDS_MAX)
		return -EDQUOT;
	range->bytes = bytes_of(x, range->tier);
	range->offset -= range->offset % range->bytes;
	link = find(c, client, x, range->tier, range->offset);
	if (link) {
		c->evict.lends.table[*link - 1].times++;
		return 0;
	}
	rc = slab_lend(c, k, x, range);
	if (rc == 0)
		add(c, client, x, range->tier, range->offset);
	return rc;
}

int core_slab_leave(struct core *c, uint32_t client, const struct core_range *range)
{
	struct context *x = attached(c, client, range);
	uint32_t *link = x ? find(c, client, x, range->tier, range->offset) : NULL;

	if (!link)
		return -ENOENT;
	if (!--c->evict.lends.table[*link - 1].times)
		end(c, link);
	return 0;
}

static bool is_wanted(const struct context *x, const struct lend *at)
{
	return x->closing || (at->tier == CORE_RANGE_INDEX ? x->descs_short
				: space_is_recalled(x->space[at->tier], at->slab));
}

static bool is_before(uint32_t tier, uint64_t offset, const struct core_range *than)
{
	return tier < than->tier || (tier == than->tier && offset < than->offset);
}

bool core_slab_wanted(struct core *c, uint32_t client, const struct core_range *from,
		      struct core_range *out)
{
	struct context *x = attached(c, client, from);
	const struct lends *l = &c->evict.lends;

	*out = (struct core_range){ .bytes = 0 };
	if (!x)
		return false;
	for (uint32_t i = c->evict.lends.to[client].first; i; i = l->table[i - 1].next) {
		const struct lend *at = &l->table[i - 1];

		if (at->context != x->index || is_before(at->tier, at->slab, from) ||
		    !is_wanted(x, at) || (out->bytes && !is_before(at->tier, at->slab, out)))
			continue;
		*out = (struct core_range){ { x->id }, at->tier, at->slab, bytes_of(x, at->tier) };
	}
	return out->bytes;
}

uint64_t core_slab_recalls(const struct core *c, uint32_t client)
{
	const struct lends *l = &c->evict.lends;

	return client < CORE_CLIENTS_MAX ? l->to[client].recalls : l->recalls;
}

void lend_client_open(struct core *c, uint32_t client)
{
	assert(!c->evict.lends.to[client].first);
	c->evict.lends.to[client].recalls = 0;
}

void lend_client_dead(struct core *c, uint32_t client)
{
	struct lends *l = &c->evict.lends;

	while (c->evict.lends.to[client].first) {
		const struct lend *at = &l->table[c->evict.lends.to[client].first - 1];

		end(c, find(c, client, c->context[at->context], at->tier, at->slab));
	}
}

uint32_t lend_next(const struct core *c, uint32_t at)
{
	assert(at > 0 && at <= c->evict.lends.high);
	return c->evict.lends.table[at - 1].next;
}

uint64_t lend_of_others(const struct core *c, uint32_t at, uint32_t *tier)
{
	const struct lend *l = &c->evict.lends.table[at - 1];
	const struct context *x = c->context[l->context];

	*tier = l->tier;
	return l->tier < ABI_MEM_TIERS && is_foreign(&c->client[l->client], x) ?
		       space_slab_bytes(x->space[l->tier]) : 0;
}

/* ---- back --------------------------------------------------------------------------------- */

static void ask(struct core *c, uint32_t client)
{
	c->evict.lends.to[client].recalls++;
	c->evict.lends.recalls++;
}

/* The context is removed: all that it lent is wanted back. */
void lend_context_closing(struct core *c, const struct context *x)
{
	for (uint32_t i = 0; i < c->clients_high; i++)
		if (c->evict.lends.to[i].first && bit_get(c->client[i].attached, x->index))
			ask(c, i);
}

static void recall(struct core *c, struct context *x, uint32_t tier, uint64_t slab)
{
	for (uint32_t i = 0; i < c->clients_high; i++)
		if (c->evict.lends.to[i].first && find(c, i, x, tier, slab))
			ask(c, i);
}

/* So many slabs are wanted, and what is not lent could not be emptied. */
void lend_recall(struct core *c, struct context *x, uint32_t tier, uint32_t count)
{
	struct lends *l = &c->evict.lends;

	if (!x->lent || c->now_ns < l->recalled_ns + RECALL_NS)
		return;
	for (uint32_t n = 0; n < count; n++) {
		int64_t slab = space_recall(x->space[tier]);

		if (slab < 0)
			return;
		recall(c, x, tier, (uint64_t)slab);
		l->recalled_ns = c->now_ns;
	}
}

/* Descriptors that nobody uses are wanted, and devices have the index. */
void lend_recall_index(struct core *c, struct context *x)
{
	if (!x->index_lent)
		return;
	x->index_wanted_ns = c->now_ns;
	recall(c, x, CORE_RANGE_INDEX, 0);
}

/* May a slab come that was wanted back lately? Clients ask when they launch. */
bool lend_comes(const struct core *c)
{
	const struct lends *l = &c->evict.lends;

	return l->count && l->recalled_ns && c->now_ns < l->recalled_ns + LATELY_NS;
}
