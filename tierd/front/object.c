/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages about objects: judged, asked of the module of objects, answered when it is done. Who may
 * do what follows from the context, as for blocks: a context that the credentials do not open is
 * not there (I4).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "tierd/front/front_priv.h"

/* ---- judging ------------------------------------------------------------------------------- */

/* A text that ends inside its field, with zeros behind it. */
static bool text_good(const char *text, size_t bytes)
{
	size_t length = strnlen(text, bytes);

	return length < bytes && control_zero(text + length, bytes - length);
}

static bool needs_name(uint16_t type)
{
	return type != WIRE_OBJ_LIST && type != WIRE_OBJ_COMMIT && type != WIRE_OBJ_ABORT &&
	       type != WIRE_OBJ_SYNC && type != WIRE_OBJ_INDEX && type != WIRE_OBJ_STAT;
}

/* NULL: the message can be answered. Else what is wrong with it. */
static const char *judge(const struct wire_object *m)
{
	if (!m->context[0] || !text_good(m->context, sizeof(m->context)))
		return "a context's name is 1 to 63 characters";
	if (!text_good(m->name, sizeof(m->name)) || !text_good(m->other, sizeof(m->other)))
		return "an object's name is 1 to 255 bytes, and zeros follow it";
	if (needs_name(m->header.type) && !m->name[0] &&
	    !(m->header.type == WIRE_OBJ_SET && m->upload))
		return "an object's name is 1 to 255 bytes";
	if (m->header.type == WIRE_OBJ_RENAME && !m->other[0])
		return "the new name is 1 to 255 bytes";
	if (m->flags & ~WIRE_OBJ_FLAGS || m->mode & ~0777u)
		return "unknown flags, or a mode beyond 0777";
	if (m->priority > ABI_OBJECT_PRIORITY_MAX)
		return "priorities are 0 to 3";
	if (m->ttl_ms > UINT32_MAX * 1000ull)
		return "a TTL of more than 136 years";
	return NULL;
}

static void refuse(struct front *f, struct turn *t, struct connection *s, int error,
		   const char *what)
{
	char text[FRONT_WHY_BYTES];

	snprintf(text, sizeof(text), "objects of context %.63s: %.140s", f->in.object.context,
		 what);
	control_error(f, t, s, error, text);
}

/* 0 in the catalog: all that objects may have. */
static uint64_t quota_of(const struct disk_context *spec, uint32_t tier)
{
	return spec->quota[tier] ? spec->quota[tier] : UINT64_MAX;
}

static bool is_operator(const struct front *f, uint32_t uid)
{
	return uid == 0 || uid == f->config.obs->uid;
}

/* Whose objects they are. Negative: *why says what is wrong. */
static int look_for(const struct front *f, const struct connection *s, struct object_ask *ask,
		    const char **why)
{
	const struct wire_object *m = &f->in.object;
	struct core_context_view view;
	int rc;

	*why = judge(m);
	if (*why)
		return -EINVAL;
	*why = "this daemon keeps none; give it memory for them (object.cxl)";
	if (!f->config.objects)
		return -EOPNOTSUPP;
	rc = core_context_find(f->config.core, m->context, s->uid, s->gid, &view);
	*why = rc ? "there is none that these credentials open" : "it holds blocks";
	if (rc || view.spec->kind != DISK_KIND_OBJECT)
		return rc ? rc : -EINVAL;
	*ask = (struct object_ask){
		.who = { s->id, s->generation, m->header.seq },
		.uid = s->uid,
		.limited = !is_operator(f, s->uid),
		.owner = is_operator(f, view.spec->owner_uid) ? OBJECT_NO_USER :
								view.spec->owner_uid,
		.context = view.spec->uid,
		.epoch = view.spec->epoch,
		.quota = { quota_of(view.spec, ABI_TIER_CXL), quota_of(view.spec, ABI_TIER_NVME) },
		.writable = view.writable,
		.message = m,
	};
	return 0;
}

/* False = answered. */
static bool find(struct front *f, struct turn *t, struct connection *s, struct object_ask *ask)
{
	const char *why;
	int rc = look_for(f, s, ask, &why);

	if (rc)
		refuse(f, t, s, rc, why);
	return rc == 0;
}

/* ---- answers ------------------------------------------------------------------------------- */

static void answer(struct front *f, struct turn *t, struct connection *s, struct object_answer *a)
{
	struct wire_object_info *info;

	s->asking = false;
	watch_socket(f, s, EPOLLIN);
	f->in.header.seq = a->who.seq;
	if (a->error) {
		control_error(f, t, s, a->error, a->why);
	} else if (a->done) {
		control_message(f, WIRE_DONE, sizeof(struct wire_done), a->who.seq);
		control_send(f, t, s);
	} else {
		info = (void *)control_message(f, WIRE_OBJ_INFO, sizeof(*info), a->who.seq);
		a->info.header = info->header;
		*info = a->info;
		control_grant(f, t, s, &a->fd, a->fd >= 0 ? 1 : 0);
	}
}

static void give_answers(struct front *f, struct turn *t)
{
	struct object_answer *a;

	while (f->config.objects && (a = objects_answer(f->config.objects))) {
		struct connection *s = connection_find(f, a->who.connection, a->who.generation);

		if (s && s->state == CONNECTION_OPEN)
			answer(f, t, s, a);
		objects_answered(a);
	}
}

/* ---- questions ----------------------------------------------------------------------------- */

/* A list goes on in a later turn. */
static void list_later(struct front *f, struct turn *t, struct connection *s)
{
	s->listing = malloc(sizeof(*s->listing));
	if (!s->listing) {
		refuse(f, t, s, -ENOMEM, "out of memory");
		return;
	}
	*s->listing = f->in.object;
	f->listings++;
	s->asking = true;
	watch_socket(f, s, 0);
}

static void list(struct front *f, struct turn *t, struct connection *s,
		 const struct object_ask *ask)
{
	char looked[ABI_OBJECT_NAME_BYTES];
	struct wire_object_names *m;

	m = (void *)control_message(f, WIRE_OBJ_NAMES, sizeof(*m), f->in.header.seq);
	m->header.length = (uint32_t)objects_list(f->config.objects, ask, m, looked);
	if (m->header.length) {
		control_send(f, t, s);
		return;
	}
	memset(f->in.object.other, 0, sizeof(f->in.object.other));
	memcpy(f->in.object.other, looked, strlen(looked));
	list_later(f, t, s);
}

/* One a turn, each in its turn. */
static void list_on(struct front *f, struct turn *t)
{
	for (uint32_t i = 0; f->listings && i < f->config.clients_max; i++) {
		struct connection *s = &f->connection[f->next_listing++ % f->config.clients_max];

		if (!s->listing)
			continue;
		f->in.object = *s->listing;
		free(s->listing);
		s->listing = NULL;
		f->listings--;
		s->asking = false;
		watch_socket(f, s, EPOLLIN);
		object_ask(f, t, s);
		return;
	}
}

void object_ask(struct front *f, struct turn *t, struct connection *s)
{
	struct object_ask ask;
	int rc;

	if (!find(f, t, s, &ask))
		return;
	if (f->in.header.type == WIRE_OBJ_LIST) {
		list(f, t, s, &ask);
		return;
	}
	rc = objects_ask(f->config.objects, &ask);
	if (rc) {
		refuse(f, t, s, rc, "out of memory");
		return;
	}
	s->asking = true;
	give_answers(f, t); /* most have their answer already */
	if (s->asking)
		watch_socket(f, s, 0);
}

/* These have no answer: what is wrong in them is passed over. */

void object_hint(struct front *f, struct turn *t, struct connection *s)
{
	struct object_ask ask;
	const char *why;

	(void)t;
	if (look_for(f, s, &ask, &why) == 0)
		objects_hint(f->config.objects, &ask);
}

void object_promise(struct front *f, struct turn *t, struct connection *s)
{
	const struct wire_object_hold *m = &f->in.hold;
	struct core_context_view view;

	(void)t;
	if (!f->config.objects || m->count > WIRE_HOLDS_MAX ||
	    !text_good(m->context, sizeof(m->context)) ||
	    core_context_find(f->config.core, m->context, s->uid, s->gid, &view) ||
	    view.spec->kind != DISK_KIND_OBJECT)
		return;
	objects_hold(f->config.objects, view.spec->uid, m);
}

void front_objects(struct front *f, struct turn *t)
{
	list_on(f, t);
	give_answers(f, t);
}

/* ---- the end of a client ------------------------------------------------------------------- */

void object_process_dead(struct front *f, const struct connection *s)
{
	if (f->config.objects)
		objects_process_dead(f->config.objects, s->id, s->generation);
}

void object_connection_gone(struct front *f, const struct connection *s)
{
	if (f->config.objects)
		objects_connection_gone(f->config.objects, s->id, s->generation);
}

/* ---- contexts of objects ------------------------------------------------------------------- */

/*
 * What the core sees of one: a context that no block is put to, small, without HBM. It keeps its
 * name, owner, mode and quotas.
 */
void object_context_spec(struct disk_context *spec)
{
	static const char name[] = "objects";
	struct abi_geometry *g = &spec->geometry;

	spec->kind = DISK_KIND_OBJECT;
	spec->blocks_max = 64;
	spec->quota[ABI_TIER_HBM] = UINT64_MAX;
	memset(g, 0, sizeof(*g));
	g->part_count = g->pages_per_block = 1;
	g->block_tokens = 1;
	g->page_align = ABI_PAGE_ALIGN;
	g->block_bytes = ABI_PAGE_ALIGN;
	memcpy(g->part[0].name, name, sizeof(name));
	g->part[0].kind = ABI_KIND_DENSE;
	g->part[0].hit_rule = ABI_HIT_EVERY;
	g->part[0].shard_rule = ABI_SHARD_GROUPS;
	g->part[0].preferred_tier = ABI_TIER_CXL;
	g->part[0].layers = g->part[0].groups = 1;
	g->part[0].page_bytes = g->part[0].page_stride = ABI_PAGE_ALIGN;
}
