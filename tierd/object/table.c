/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names, accounts, order of leaving; see table.h. Names are a treap over (context, name): a tree by
 * name and a heap by a weight that is a hash, so that it is as deep as if names came in random
 * order.
 */
#include "tierd/object/table.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libtier/base/crc32c.h"

#define BUCKETS (sizeof(((struct object_table *)0)->bucket) / sizeof(struct object_account *))

void object_table_open(struct object_table *t, const uint64_t most[OBJECT_TIERS], uint64_t seed)
{
	memset(t, 0, sizeof(*t));
	memcpy(t->most, most, sizeof(t->most));
	for (uint32_t i = 0; i < OBJECT_PRIORITIES; i++)
		list_init(&t->leaving[i]);
	list_init(&t->held);
	list_init(&t->coming);
	t->seed = seed;
}

uint64_t object_charge(uint64_t size)
{
	return ((size + ABI_PAGE_ALIGN - 1) & ~(uint64_t)(ABI_PAGE_ALIGN - 1)) + OBJECT_COST;
}

/* ---- versions ------------------------------------------------------------------------------ */

struct object *object_new(const struct object_record *r)
{
	size_t at = (sizeof(struct object) + r->name_bytes + 3) & ~(size_t)3;
	struct object *o = calloc(1, at + r->chunks * sizeof(uint32_t));

	if (!o)
		return NULL;
	o->fd = -1;
	o->context = r->context;
	o->epoch = r->epoch;
	o->version = r->version;
	o->inode = r->inode;
	o->size = r->size;
	o->mtime_ns = r->mtime_ns;
	o->expires_ms = r->expires_ms;
	o->mode = r->mode;
	o->priority = r->priority;
	o->shift = r->shift;
	o->chunks = r->chunks;
	o->crc = (uint32_t *)(void *)((char *)o + at);
	o->name_bytes = r->name_bytes;
	memcpy(o->name, r->name, r->name_bytes);
	if (r->chunks)
		memcpy(o->crc, r->crc, r->chunks * sizeof(uint32_t));
	list_init(&o->link);
	list_init(&o->own);
	return o;
}

void object_describe(const struct object *o, struct object_record *r)
{
	*r = (struct object_record){
		.type = DISK_OBJECT_PUT, .context = o->context, .epoch = o->epoch,
		.version = o->version, .inode = o->inode, .size = o->size,
		.mtime_ns = o->mtime_ns, .expires_ms = o->expires_ms, .mode = o->mode,
		.priority = o->priority, .shift = o->shift, .chunks = o->chunks, .crc = o->crc,
		.name = o->name, .name_bytes = o->name_bytes,
	};
}

void object_free(struct object *o)
{
	assert(!o->named && list_empty(&o->link) && o->fd < 0);
	free(o);
}

/* Of our memory, as malloc rounds. */
static uint64_t memory_of(const struct object *o)
{
	return (sizeof(*o) + o->name_bytes + 3 + o->chunks * sizeof(uint32_t) + 8 + 15) &
	       ~(uint64_t)15;
}

/* ---- names --------------------------------------------------------------------------------- */

/* Of a name looked for and a version: below, equal, above 0. */
static int compare(uint64_t context, const char *name, uint32_t bytes, const struct object *o)
{
	uint32_t both = bytes < o->name_bytes ? bytes : o->name_bytes;
	int order;

	if (context != o->context)
		return context < o->context ? -1 : 1;
	order = memcmp(name, o->name, both);
	if (order)
		return order;
	return bytes == o->name_bytes ? 0 : bytes < o->name_bytes ? -1 : 1;
}

struct object *object_find(const struct object_table *t, uint64_t context, const char *name,
			   uint32_t bytes)
{
	struct object *o = t->root;

	while (o) {
		int order = compare(context, name, bytes, o);

		if (order == 0)
			break;
		o = order < 0 ? o->left : o->right;
	}
	return o;
}

static struct object *above(const struct object_table *t, uint64_t context, const char *name,
			    uint32_t bytes, bool same)
{
	struct object *o = t->root, *best = NULL;

	while (o) {
		int order = compare(context, name, bytes, o);

		if (order < 0 || (order == 0 && same)) {
			best = o;
			o = o->left;
		} else {
			o = o->right;
		}
	}
	return best;
}

struct object *object_next(const struct object_table *t, uint64_t context, const char *name,
			   uint32_t bytes, bool same)
{
	struct object *o = above(t, context, name, bytes, same);

	return o && o->context == context ? o : NULL;
}

struct object *object_walk(const struct object_table *t, struct object_place *p)
{
	struct object *o = above(t, p->context, p->name, p->bytes, false);

	p->context = o ? o->context : 0;
	p->bytes = o ? o->name_bytes : 0;
	memcpy(p->name, o ? o->name : "", p->bytes);
	return o;
}

/* Cut a tree into those below o's name and those above it; none has it. */
static void split(struct object *tree, const struct object *o, struct object **below,
		  struct object **above)
{
	while (tree) {
		if (compare(o->context, o->name, o->name_bytes, tree) < 0) {
			*above = tree;
			above = &tree->left;
			tree = tree->left;
		} else {
			*below = tree;
			below = &tree->right;
			tree = tree->right;
		}
	}
	*below = *above = NULL;
}

/* All of the one lie below all of the other. */
static struct object *join(struct object *below, struct object *above)
{
	struct object *root, **at = &root;

	while (below && above) {
		if (below->weight > above->weight) {
			*at = below;
			at = &below->right;
			below = below->right;
		} else {
			*at = above;
			at = &above->left;
			above = above->left;
		}
	}
	*at = below ? below : above;
	return root;
}

static struct object **place_of(struct object_table *t, const struct object *o)
{
	struct object **at = &t->root;

	while (*at && *at != o)
		at = compare(o->context, o->name, o->name_bytes, *at) < 0 ? &(*at)->left :
									     &(*at)->right;
	assert(*at == o);
	return at;
}

/* Numbers that those who choose names cannot foresee. */
static uint32_t weigh(const struct object_table *t, const struct object *o)
{
	uint64_t x = (t->seed ^ o->version) * 0xbf58476d1ce4e5b9ull;

	x = (x ^ x >> 31) * 0x94d049bb133111ebull;
	return (uint32_t)(x >> 32);
}

struct object *object_enter(struct object_table *t, struct object_account *a, struct object *o)
{
	struct object *former = object_find(t, o->context, o->name, o->name_bytes);
	struct object **at = &t->root, *rest;

	assert(!o->named && a->context == o->context);
	if (former)
		object_leave(t, former);
	o->weight = weigh(t, o);
	while (*at && (*at)->weight >= o->weight)
		at = compare(o->context, o->name, o->name_bytes, *at) < 0 ? &(*at)->left :
									     &(*at)->right;
	rest = *at;
	*at = o;
	split(rest, o, &o->left, &o->right);
	o->named = true;
	o->account = a;
	object_take(t, a, OBJECT_NVME, object_charge(o->size));
	a->objects++;
	t->objects++;
	t->bytes += memory_of(o);
	if (a->user)
		a->user->objects++;
	return former;
}

void object_leave(struct object_table *t, struct object *o)
{
	struct object **at = place_of(t, o);

	*at = join(o->left, o->right);
	o->left = o->right = NULL;
	o->named = false;
	object_give(t, o->account, OBJECT_NVME, object_charge(o->size));
	o->account->objects--;
	t->objects--;
	t->bytes -= memory_of(o);
	if (o->account->user)
		o->account->user->objects--;
}

/* ---- what a catalog says ------------------------------------------------------------------- */

static void forget(struct object_table *t, struct object *o)
{
	if (!o)
		return;
	if (o->named)
		object_leave(t, o);
	object_free(o);
}

int object_replay(struct object_table *t, const struct object_record *r, bool is_void)
{
	struct object_account *a;
	struct object *o;

	if (r->type == DISK_OBJECT_MOVE)
		forget(t, object_find(t, r->context, r->from, r->from_bytes));
	if (r->type == DISK_OBJECT_REMOVE || is_void) {
		forget(t, object_find(t, r->context, r->name, r->name_bytes));
		return 0;
	}
	a = object_account(t, r->context);
	o = a ? object_new(r) : NULL;
	if (!o)
		return -ENOMEM;
	forget(t, object_enter(t, a, o));
	return 0;
}

static int by_number(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

uint64_t *object_versions(const struct object_table *t)
{
	uint64_t *versions = calloc(t->objects + 1, sizeof(*versions)), count = 0;
	struct object_place place = { 0 };

	if (!versions)
		return NULL;
	for (const struct object *o; (o = object_walk(t, &place));)
		versions[count++] = o->version;
	qsort(versions, count, sizeof(*versions), by_number);
	return versions;
}

bool object_version_in(const uint64_t *versions, uint64_t count, uint64_t version)
{
	return bsearch(&version, versions, count, sizeof(version), by_number) != NULL;
}

void object_table_close(struct object_table *t)
{
	struct object *o = t->root, *next;

	list_each(at, &t->coming)
		if (!list_entry(at, struct object, link)->named)
			free(list_entry(at, struct object, link));
	/* Turned right until it is a list. */
	while (o) {
		while (o->left) {
			next = o->left;
			o->left = next->right;
			next->right = o;
			o = next;
		}
		next = o->right;
		free(o);
		o = next;
	}
	list_each(at, &t->held)
		free(list_entry(at, struct object, link));
	for (size_t i = 0; i < BUCKETS; i++)
		while (t->bucket[i]) {
			struct object_account *a = t->bucket[i];

			t->bucket[i] = a->next;
			free(a);
		}
	while (t->users) {
		struct object_user *u = t->users;

		t->users = u->next;
		free(u);
	}
	t->root = NULL;
}

/* ---- accounts ------------------------------------------------------------------------------ */

struct object_account *object_account_find(const struct object_table *t, uint64_t context)
{
	struct object_account *a = t->bucket[context % BUCKETS];

	while (a && a->context != context)
		a = a->next;
	return a;
}

struct object_account *object_account(struct object_table *t, uint64_t context)
{
	struct object_account **head = &t->bucket[context % BUCKETS];
	struct object_account *a = object_account_find(t, context);

	if (a)
		return a;
	a = calloc(1, sizeof(*a));
	if (!a)
		return NULL;
	a->context = context;
	for (uint32_t i = 0; i < OBJECT_PRIORITIES; i++)
		list_init(&a->leaving[i]);
	a->quota[OBJECT_CXL] = a->quota[OBJECT_NVME] = UINT64_MAX;
	list_init(&a->gone);
	a->next = *head;
	*head = a;
	t->accounts++;
	return a;
}

int object_own(struct object_table *t, struct object_account *a, uint32_t uid)
{
	struct object_user *u = t->users;

	if (a->user || uid == OBJECT_NO_USER)
		return 0;
	while (u && u->uid != uid)
		u = u->next;
	if (!u) {
		u = calloc(1, sizeof(*u));
		if (!u)
			return -ENOMEM;
		u->uid = uid;
		u->next = t->users;
		t->users = u;
	}
	a->user = u;
	a->sibling = u->first;
	u->first = a;
	u->accounts++;
	u->objects += a->objects;
	u->resident += a->resident;
	u->cxl += a->used[OBJECT_CXL];
	return 0;
}

static void disown(struct object_table *t, struct object_account *a)
{
	struct object_user **at = &t->users, *u = a->user;
	struct object_account **of = u ? &u->first : NULL;

	while (of && *of != a)
		of = &(*of)->sibling;
	if (of)
		*of = a->sibling;
	if (!u || --u->accounts)
		return;
	while (*at != u)
		at = &(*at)->next;
	*at = u->next;
	free(u);
}

uint64_t object_share(uint64_t most)
{
	return most - most / 4;
}

bool object_user_room(const struct object_table *t, const struct object_account *a,
		      uint64_t bytes)
{
	uint64_t share = object_share(t->most[OBJECT_CXL]);

	return !a->user || a->user->accounts == t->accounts || a->user->cxl + bytes <= share;
}

void object_account_done(struct object_table *t, struct object_account *a)
{
	struct object_account **at = &t->bucket[a->context % BUCKETS];

	if (a->objects || a->used[OBJECT_CXL] || a->used[OBJECT_NVME])
		return;
	while (*at != a)
		at = &(*at)->next;
	*at = a->next;
	list_remove(&a->gone);
	t->accounts--;
	disown(t, a);
	free(a);
}

int object_room(const struct object_table *t, const struct object_account *a,
		enum object_tier tier, uint64_t bytes)
{
	uint64_t quota = a->quota[tier] < t->most[tier] ? a->quota[tier] : t->most[tier];

	if (bytes > quota || a->used[tier] > quota - bytes)
		return quota < t->most[tier] ? -EDQUOT : -ENOSPC;
	return t->used[tier] > t->most[tier] - bytes ? -ENOSPC : 0;
}

void object_take(struct object_table *t, struct object_account *a, enum object_tier tier,
		 uint64_t bytes)
{
	a->used[tier] += bytes;
	t->used[tier] += bytes;
	if (a->user && tier == OBJECT_CXL)
		a->user->cxl += bytes;
}

void object_give(struct object_table *t, struct object_account *a, enum object_tier tier,
		 uint64_t bytes)
{
	assert(a->used[tier] >= bytes && t->used[tier] >= bytes);
	a->used[tier] -= bytes;
	t->used[tier] -= bytes;
	if (a->user && tier == OBJECT_CXL)
		a->user->cxl -= bytes;
}

/* ---- memory -------------------------------------------------------------------------------- */

/* One more version with memory, or one less. */
static void count_resident(struct object_table *t, struct object_account *a, int64_t more)
{
	t->resident += (uint64_t)more;
	a->resident += (uint64_t)more;
	if (a->user)
		a->user->resident += (uint64_t)more;
}

void object_coming(struct object_table *t, struct object *o)
{
	assert(o->state == OBJECT_STORED);
	o->state = OBJECT_COMING;
	list_push_back(&t->coming, &o->link);
	object_take(t, o->account, OBJECT_CXL, object_charge(o->size));
}

void object_came(struct object_table *t, struct object *o, int fd)
{
	assert(o->state == OBJECT_COMING);
	list_remove(&o->link);
	if (fd < 0) {
		o->state = OBJECT_STORED;
		object_give(t, o->account, OBJECT_CXL, object_charge(o->size));
		return;
	}
	o->state = OBJECT_RESIDENT;
	o->fd = fd;
	count_resident(t, o->account, 1);
	object_touch(t, o);
}

void object_touch(struct object_table *t, struct object *o)
{
	if (o->state != OBJECT_RESIDENT)
		return;
	list_remove(&o->link);
	list_remove(&o->own);
	list_push_back(&t->leaving[o->priority], &o->link);
	list_push_back(&o->account->leaving[o->priority], &o->own);
}

void object_leave_next(struct object_table *t, struct object *o)
{
	if (o->state != OBJECT_RESIDENT)
		return;
	o->promised_ns = 0;
	list_remove(&o->link);
	list_remove(&o->own);
	list_push_front(&t->leaving[o->priority], &o->link);
	list_push_front(&o->account->leaving[o->priority], &o->own);
}

int object_drop(struct object_table *t, struct object *o)
{
	int fd = o->fd;

	assert(o->state == OBJECT_RESIDENT || o->state == OBJECT_HELD);
	list_remove(&o->link);
	list_remove(&o->own);
	object_give(t, o->account, OBJECT_CXL, object_charge(o->size));
	if (o->state == OBJECT_HELD) {
		o->account->held -= object_charge(o->size);
		t->bytes -= memory_of(o);
	}
	o->state = OBJECT_STORED;
	o->fd = -1;
	count_resident(t, o->account, -1);
	return fd;
}

void object_hold(struct object_table *t, struct object *o)
{
	assert(o->state == OBJECT_RESIDENT && !o->named);
	list_remove(&o->link);
	list_remove(&o->own);
	list_push_back(&t->held, &o->link);
	o->state = OBJECT_HELD;
	o->account->held += object_charge(o->size);
	t->bytes += memory_of(o);
}

struct object *object_victim(const struct object_table *t, const struct object_account *a)
{
	for (uint32_t i = 0; i < OBJECT_PRIORITIES; i++) {
		struct list *first = list_first(a ? &a->leaving[i] : &t->leaving[i]);

		if (first)
			return a ? list_entry(first, struct object, own) :
				   list_entry(first, struct object, link);
	}
	return NULL;
}

struct object *object_victim_of_user(const struct object_table *t,
				     const struct object_account *a)
{
	const struct object_account *most = NULL, *x = a->user ? a->user->first : a;
	struct object *victim = NULL;

	for (; x; x = a->user ? x->sibling : NULL) {
		struct object *first = object_victim(t, x);

		if (!first || (most && x->used[OBJECT_CXL] <= most->used[OBJECT_CXL]))
			continue;
		most = x;
		victim = first;
	}
	return victim;
}

/* ---- audit --------------------------------------------------------------------------------- */

struct count {
	uint64_t objects, resident, bytes, used[OBJECT_TIERS];
};

static void count_one(struct count *n, const struct object *o)
{
	n->used[OBJECT_NVME] += o->named ? object_charge(o->size) : 0;
	n->used[OBJECT_CXL] += o->state != OBJECT_STORED ? object_charge(o->size) : 0;
	n->objects += o->named;
	n->resident += o->fd >= 0;
	n->bytes += o->named || o->state == OBJECT_HELD ? memory_of(o) : 0;
}

static void count_tree(struct count *n, const struct object *o)
{
	for (; o; o = o->right) {
		count_one(n, o);
		count_tree(n, o->left);
	}
}

static uint64_t differ(const char *what, uint64_t counted, uint64_t kept,
		       void (*tell)(void *arg, const char *text), void *arg)
{
	char text[160];

	if (counted == kept)
		return 0;
	snprintf(text, sizeof(text), "objects: %s: %" PRIu64 " counted, %" PRIu64 " in the account",
		 what, counted, kept);
	tell(arg, text);
	return 1;
}

/* From the versions up. */
static uint64_t recount(const struct object_table *t, const uint64_t extra[OBJECT_TIERS],
			void (*tell)(void *arg, const char *what), void *arg)
{
	struct count n = { .used = { extra[OBJECT_CXL], extra[OBJECT_NVME] } };

	count_tree(&n, t->root);
	list_each(at, &t->held)
		count_one(&n, list_entry(at, struct object, link));
	list_each(at, &t->coming)
		if (!list_entry(at, struct object, link)->named)
			count_one(&n, list_entry(at, struct object, link));
	return differ("names", n.objects, t->objects, tell, arg) +
	       differ("versions in memory", n.resident, t->resident, tell, arg) +
	       differ("bytes for names", n.bytes, t->bytes, tell, arg) +
	       differ("bytes in CXL", n.used[OBJECT_CXL], t->used[OBJECT_CXL], tell, arg) +
	       differ("bytes in NVMe", n.used[OBJECT_NVME], t->used[OBJECT_NVME], tell, arg);
}

/* Of each user from the accounts. */
static uint64_t recount_users(const struct object_table *t,
			      void (*tell)(void *arg, const char *what), void *arg)
{
	uint64_t wrong = 0, owned = 0;

	for (const struct object_user *u = t->users; u; u = u->next) {
		struct object_user n = { .accounts = 0 };

		for (const struct object_account *a = u->first; a; a = a->sibling) {
			uint64_t his = a->user == u;

			n.accounts += his;
			n.objects += his * a->objects;
			n.resident += his * a->resident;
			n.cxl += his * a->used[OBJECT_CXL];
		}
		owned += n.accounts;
		wrong += differ("a user's contexts", n.accounts, u->accounts, tell, arg) +
			 differ("a user's names", n.objects, u->objects, tell, arg) +
			 differ("a user's versions in memory", n.resident, u->resident, tell, arg) +
			 differ("a user's bytes in CXL", n.cxl, u->cxl, tell, arg);
	}
	for (size_t i = 0; i < BUCKETS; i++)
		for (const struct object_account *a = t->bucket[i]; a; a = a->next)
			owned -= a->user != NULL;
	return wrong + differ("contexts of users, less those in their lists", 0, owned, tell, arg);
}

uint64_t object_audit(const struct object_table *t, const uint64_t extra[OBJECT_TIERS],
		      void (*tell)(void *arg, const char *what), void *arg)
{
	uint64_t objects = 0, resident = 0, used[OBJECT_TIERS] = { 0, 0 };
	uint64_t wrong = t->objects > OBJECTS_RECOUNTED_MAX ? 0 : recount(t, extra, tell, arg);

	wrong += recount_users(t, tell, arg);

	for (size_t i = 0; i < BUCKETS; i++)
		for (const struct object_account *a = t->bucket[i]; a; a = a->next) {
			objects += a->objects;
			resident += a->resident;
			used[OBJECT_CXL] += a->used[OBJECT_CXL];
			used[OBJECT_NVME] += a->used[OBJECT_NVME];
		}
	wrong += differ("names of contexts", objects, t->objects, tell, arg);
	wrong += differ("contexts' versions in memory", resident, t->resident, tell, arg);
	wrong += differ("contexts' bytes in CXL", used[OBJECT_CXL], t->used[OBJECT_CXL], tell, arg);
	wrong += differ("contexts' bytes in NVMe", used[OBJECT_NVME], t->used[OBJECT_NVME], tell,
			arg);
	return wrong;
}
