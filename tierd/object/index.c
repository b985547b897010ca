/* SPDX-License-Identifier: Apache-2.0 */
/* Indexes of names in shared memory; see index.h. */
#include "tierd/object/index.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libtier/base/names.h"
#include "tierd/object/memfile.h"

#define SLOTS_LEAST 256u
#define FILLED_A_TURN 512u

struct object_index {
	struct list link; /* objects.indexes */
	struct object_account *account;
	struct abi_names *names;
	struct object **owner; /* of each slot: the version that it tells of, or NULL */
	uint32_t slots;
	uint32_t used; /* slots that a probe goes on behind: of names, and dead */
	uint64_t charged;
	int fd;
	bool filled;
	uint32_t bytes; /* how far it is */
	char name[ABI_OBJECT_NAME_BYTES];
};

/* ---- memory -------------------------------------------------------------------------------- */

static uint64_t memory_of(uint32_t slots)
{
	return object_charge(names_bytes(slots) + slots * sizeof(struct object *));
}

static int map_names(struct object_index *x, const struct mem_ops *mem)
{
	void *at;

	x->fd = memfile_make(mem);
	if (x->fd < 0)
		return x->fd;
	if (ftruncate(x->fd, (off_t)names_bytes(x->slots)) ||
	    fcntl(x->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return -errno;
	at = mmap(NULL, names_bytes(x->slots), PROT_READ | PROT_WRITE, MAP_SHARED, x->fd, 0);
	if (at == MAP_FAILED)
		return -errno;
	x->names = at;
	return 0;
}

void index_drop(struct objects *o, struct object_account *a)
{
	struct object_index *x = a->index;

	if (!x)
		return;
	if (x->names) {
		names_state(x->names, ABI_NAMES_GONE);
		munmap(x->names, names_bytes(x->slots));
	}
	if (x->fd >= 0)
		close(x->fd);
	object_give(&o->table, a, OBJECT_CXL, x->charged);
	list_remove(&x->link);
	free(x->owner);
	free(x);
	a->index = NULL;
}

void indexes_end(struct objects *o)
{
	list_each(at, &o->indexes)
		index_drop(o, list_entry(at, struct object_index, link)->account);
}

/* Twice as large as the names that there are: it is half full, or less. */
static int begin(struct objects *o, struct object_account *a)
{
	struct object_index *x = calloc(1, sizeof(*x));
	int rc;

	if (!x)
		return -ENOMEM;
	a->index = x;
	x->account = a;
	x->fd = -1;
	list_push_back(&o->indexes, &x->link);
	x->slots = SLOTS_LEAST;
	while (x->slots < ABI_NAMES_SLOTS_MAX && x->slots < 2 * (a->objects + 1))
		x->slots *= 2;
	rc = make_room(o, a, 0, memory_of(x->slots));
	if (rc == 0) {
		x->charged = memory_of(x->slots);
		object_take(&o->table, a, OBJECT_CXL, x->charged);
		rc = map_names(x, o->config.mem);
	}
	if (rc == 0) {
		x->owner = calloc(x->slots, sizeof(struct object *));
		rc = x->owner ? 0 : -ENOMEM;
	}
	if (rc == 0)
		names_begin(x->names, x->slots, ++o->index_generation, o->config.seed);
	else
		index_drop(o, a);
	return rc;
}

int index_share(struct objects *o, struct object_account *a, uint64_t *bytes)
{
	int rc = a->index ? 0 : begin(o, a);

	if (rc)
		return rc;
	*bytes = names_bytes(a->index->slots);
	return memfile_share(a->index->fd, O_RDONLY);
}

uint64_t index_charged(const struct objects *o)
{
	uint64_t bytes = 0;

	list_each(at, &o->indexes)
		bytes += list_entry(at, struct object_index, link)->charged;
	return bytes;
}

/* ---- names --------------------------------------------------------------------------------- */

/* What there is of a name: a version, or somebody writes it, or nothing (false). */
static bool describe(const struct object_account *a, const struct object *v, bool written,
		     struct abi_names_slot *what)
{
	if (v && v->epoch == a->epoch) {
		what->inode = v->inode;
		what->size = v->size;
		what->mtime_ns = v->mtime_ns;
		what->expires_ms = v->expires_ms;
		what->word = v->mode | (uint64_t)v->priority << 16;
	}
	if (written)
		what->word |= (uint64_t)ABI_NAMES_ASK << 32;
	return written || what->inode;
}

/* False: it is three quarters full, dead slots counted. */
static bool put(const struct objects *o, struct object_index *x, const char *name, uint32_t bytes)
{
	struct object *v = object_find(&o->table, x->account->context, name, bytes);
	bool written = upload_names(o, x->account->context, name, bytes), new, dead;
	struct abi_names_slot what = { 0 };
	uint32_t slot;

	names_key(x->names, name, bytes, what.key);
	slot = names_place(x->names, what.key, &new, &dead);
	if (!describe(x->account, v, written, &what)) {
		if (new)
			return true;
		what.key[0] = ABI_NAMES_DEAD;
		what.key[1] = 0;
	}
	if (new && !dead && (x->used + 1) * 4ull > x->slots * 3ull)
		return false;
	x->used += new && !dead;
	x->owner[slot] = v;
	names_put(x->names, slot, &what);
	return true;
}

void index_update(struct objects *o, struct object_account *a, const char *name, uint32_t bytes)
{
	if (!a->index || put(o, a->index, name, bytes))
		return;
	index_drop(o, a); /* a reader asks for the next one */
	begin(o, a);
}

static void fill(struct objects *o, struct object_index *x)
{
	for (uint32_t i = 0; i < FILLED_A_TURN; i++) {
		const struct object *v = object_next(&o->table, x->account->context, x->name,
						     x->bytes, false);

		if (!v) {
			x->filled = true;
			names_state(x->names, ABI_NAMES_READY);
			return;
		}
		x->bytes = v->name_bytes;
		memcpy(x->name, v->name, v->name_bytes);
		if (!put(o, x, v->name, v->name_bytes)) {
			struct object_account *a = x->account;

			index_drop(o, a);
			begin(o, a);
			return;
		}
	}
}

bool index_turn(struct objects *o)
{
	bool more = false;

	list_each(at, &o->indexes) {
		struct object_index *x = list_entry(at, struct object_index, link);

		if (x->filled)
			continue;
		if (!more)
			fill(o, x);
		more = true; /* one a turn */
	}
	return more;
}

void index_hold(struct objects *o, const struct object_account *a,
		const struct wire_object_hold *m)
{
	const struct object_index *x = a->index;

	if (!x || x->names->generation != m->generation)
		return;
	for (uint32_t i = 0; i < m->count; i++) {
		struct object *v = m->slot[i] < x->slots ? x->owner[m->slot[i]] : NULL;

		if (v)
			object_touch(&o->table, v);
	}
}
