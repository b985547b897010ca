/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages about contexts: create, open, remove, epoch. Who may do what is decided by the core
 * from the peer's credentials; a context that they do not open looks as if it were not there (I4).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "libtier/abi/geometry_check.h"
#include "tierd/front/front_priv.h"

/* ---- judging ------------------------------------------------------------------------------- */

static bool word_good(const char *word, size_t bytes, const char *allowed)
{
	size_t len = strnlen(word, bytes);

	return len < bytes && strspn(word, allowed) == len && control_zero(word + len, bytes - len);
}

#define NAME_CHARS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"

/* NULL: the message can be answered. Else what is wrong with it. */
static const char *judge(const struct wire_ctx *m)
{
	if (!m->name[0] || !word_good(m->name, sizeof(m->name), NAME_CHARS))
		return "a context's name is 1 to 63 of A-Z a-z 0-9 . _ -";
	if (m->flags & ~(WIRE_CTX_EXCLUSIVE | WIRE_CTX_OBJECTS | WIRE_CTX_FOREIGN |
			 WIRE_CTX_OWNED) ||
	    (m->owner && !(m->flags & WIRE_CTX_OWNED)))
		return "unknown flags";
	if (m->mode & ~0777u)
		return "the mode has bits beyond 0777";
	if (!word_good(m->policy, sizeof(m->policy), NAME_CHARS))
		return "a policy's name is up to 15 of A-Z a-z 0-9 . _ -";
	return NULL;
}

static bool check(struct front *f, struct turn *t, struct connection *s)
{
	const char *wrong = judge(&f->in.ctx);

	if (wrong)
		control_error(f, t, s, -EINVAL, wrong);
	return !wrong;
}

static void error_about(struct front *f, struct turn *t, struct connection *s, int error,
			const char *what)
{
	char text[FRONT_WHY_BYTES];

	snprintf(text, sizeof(text), "context %.63s: %.150s", f->in.ctx.name, what);
	control_error(f, t, s, error, text);
}

/* ---- open ---------------------------------------------------------------------------------- */

/* Attach the connection and send the descriptors. */
static void grant(struct front *f, struct turn *t, struct connection *s,
		  const struct core_context_view *view)
{
	int fd[FRONT_CONTEXT_FDS];
	struct wire_ctx_info *m;
	int rc;

	m = (void *)control_message(f, WIRE_CTX_INFO, sizeof(*m), f->in.header.seq);
	m->context_id = view->id;
	m->writable = view->writable;
	m->uid = view->spec->uid;
	m->epoch = view->spec->epoch;
	m->owner = view->spec->owner_uid;
	m->index_bytes = view->index_bytes;
	memcpy(m->mem_bytes, view->mem_bytes, sizeof(m->mem_bytes));
	memcpy(m->quota, view->spec->quota, sizeof(m->quota));
	rc = f->config.ops->context_grant(f->config.shell, view->id, connection_tag(s), fd);
	if (rc) {
		error_about(f, t, s, rc, "no descriptors left for it; raise the daemon's limit of "
					 "open files");
		return;
	}
	rc = core_context_attach(f->config.core, s->id, view);
	if (rc)
		error_about(f, t, s, rc, "it cannot be attached");
	else
		control_grant(f, t, s, fd, FRONT_CONTEXT_FDS);
	for (uint32_t i = 0; i < FRONT_CONTEXT_FDS; i++)
		close(fd[i]);
}

/* Names are one space for all: who asks for his own context is told when it is another's. */
static void refuse_owner(struct front *f, struct turn *t, struct connection *s,
			 const struct core_context_view *view)
{
	char text[FRONT_WHY_BYTES];

	snprintf(text, sizeof(text), "it belongs to user %u, and %s; use another name, or %s",
		 view->spec->owner_uid, view->writable ? "what is put there lies in that user's "
							 "context" : "may be read only",
		 f->in.ctx.flags & WIRE_CTX_OWNED ? "ask for that owner" :
						    "say TIER_OPEN_FOREIGN");
	error_about(f, t, s, -EEXIST, text);
}

/* Root's, and those of the daemon's own user, whom every client trusts as it is. */
static bool is_operators(const struct front *f, uint32_t uid)
{
	return uid == 0 || uid == f->config.obs->uid;
}

static bool fingerprint_agrees(const struct wire_ctx *m, const struct disk_context *spec)
{
	return memcmp(m->fingerprint, spec->fingerprint, sizeof(m->fingerprint)) == 0;
}

static int find(struct front *f, const struct connection *s, struct core_context_view *view)
{
	/* The daemon's own user may do what root may: tierd-net opens what it shares. */
	return core_context_find(f->config.core, f->in.ctx.name, s->operator_ ? 0 : s->uid, s->gid,
				 view);
}

/*
 * A context that is not found: one that was set aside is told from one that never was, to its owner
 * and operators.
 */
static void not_found(struct front *f, struct turn *t, struct connection *s, int error)
{
	const struct disk_context *aside = core_aside_find(f->config.core, f->in.ctx.name);

	if (aside && (s->operator_ || s->uid == aside->owner_uid))
		error_about(f, t, s, error, "it could not be made at the start and is set aside, "
					    "with its blocks (tierctl status says why); it comes "
					    "back with a start at which it can be made");
	else
		error_about(f, t, s, error, "there is none that these credentials open");
}

void context_open(struct front *f, struct turn *t, struct connection *s)
{
	const struct wire_ctx *m = &f->in.ctx;
	struct core_context_view view;
	int rc;

	if (!check(f, t, s))
		return;
	rc = find(f, s, &view);
	if (rc)
		not_found(f, t, s, rc);
	else if (view.spec->kind == DISK_KIND_OBJECT)
		error_about(f, t, s, -EINVAL, "it holds objects, and no blocks");
	else if (m->flags & WIRE_CTX_OWNED && m->owner != view.spec->owner_uid)
		refuse_owner(f, t, s, &view);
	else if (!control_zero(m->fingerprint, sizeof(m->fingerprint)) &&
		 !fingerprint_agrees(m, view.spec))
		error_about(f, t, s, -ESTALE, "its fingerprint differs: another model, revision, "
					      "layout or key scheme wrote it");
	else
		grant(f, t, s, &view);
}

/* ---- create -------------------------------------------------------------------------------- */

static void spec_of(const struct wire_ctx *m, const struct connection *s, struct disk_context *spec)
{
	memset(spec, 0, sizeof(*spec));
	memcpy(spec->name, m->name, sizeof(spec->name));
	spec->owner_uid = s->uid;
	spec->owner_gid = s->gid;
	spec->mode = m->mode ? m->mode : 0600;
	spec->kind = DISK_KIND_KV;
	spec->blocks_max = m->blocks_max;
	memcpy(spec->quota, m->quota, sizeof(spec->quota));
	memcpy(spec->fingerprint, m->fingerprint, sizeof(spec->fingerprint));
	memcpy(spec->policy, m->policy, sizeof(spec->policy));
	spec->geometry = m->geometry;
	if (m->flags & WIRE_CTX_OBJECTS)
		object_context_spec(spec);
}

/* Objects are asked for by their context's name: there is nothing to map. */
static void done(struct front *f, struct turn *t, struct connection *s)
{
	control_message(f, WIRE_DONE, sizeof(struct wire_done), f->in.header.seq);
	control_send(f, t, s);
}

/* It is there already: does it agree with what the client wants? */
static void create_found(struct front *f, struct turn *t, struct connection *s,
			 const struct core_context_view *view)
{
	const struct wire_ctx *m = &f->in.ctx;

	bool objects = m->flags & WIRE_CTX_OBJECTS;

	if (m->flags & WIRE_CTX_EXCLUSIVE)
		error_about(f, t, s, -EEXIST, "it exists already");
	else if (view->spec->owner_uid != s->uid && !is_operators(f, view->spec->owner_uid) &&
		 !(m->flags & WIRE_CTX_FOREIGN))
		refuse_owner(f, t, s, view);
	else if (objects != (view->spec->kind == DISK_KIND_OBJECT))
		error_about(f, t, s, -ESTALE, objects ? "it exists, and holds blocks" :
							"it exists, and holds objects");
	else if (objects)
		done(f, t, s);
	else if (memcmp(&m->geometry, &view->spec->geometry, sizeof(m->geometry)) != 0)
		error_about(f, t, s, -ESTALE, "it exists with another geometry; remove it or use "
					      "another name");
	else if (!fingerprint_agrees(m, view->spec))
		error_about(f, t, s, -ESTALE, "it exists with another fingerprint (model, "
					      "revision, layout or key scheme); use another name");
	else
		grant(f, t, s, view);
}

/* Is somebody just making a context of this name? It is found only once it is in the catalog. */
static bool being_made(const struct front *f, const char *name)
{
	for (uint32_t i = 0; i < f->pending_max; i++)
		if (f->pending[i].kind == PENDING_CREATE &&
		    strcmp(f->pending[i].name, name) == 0)
			return true;
	return false;
}

/* Look again when that is over. */
static void wait_for_other(struct front *f, struct turn *t, struct connection *s)
{
	s->again = malloc(sizeof(*s->again));
	if (!s->again) {
		error_about(f, t, s, -ENOMEM, "out of memory");
		return;
	}
	*s->again = f->in.ctx;
	f->waiting++;
	s->asking = true;
	watch_socket(f, s, 0);
}

void context_retry(struct front *f, struct turn *t)
{
	for (uint32_t i = 0; f->waiting && i < f->config.clients_max; i++) {
		struct connection *s = &f->connection[i];

		if (!s->again || being_made(f, s->again->name))
			continue;
		f->in.ctx = *s->again;
		free(s->again);
		s->again = NULL;
		f->waiting--;
		s->asking = false;
		watch_socket(f, s, EPOLLIN);
		context_create(f, t, s);
	}
}

static void create_failed(struct front *f, struct turn *t, struct connection *s, int rc,
			  const char *why)
{
	if (rc != -EEXIST)
		error_about(f, t, s, rc, why);
	else if (being_made(f, f->in.ctx.name))
		wait_for_other(f, t, s);
	else /* there, but not for these credentials */
		error_about(f, t, s, -EACCES, "the name belongs to another user");
}

/* One user must not fill the catalog for all. */
static bool may_own(const struct front *f, const struct connection *s, char why[FRONT_WHY_BYTES])
{
	uint32_t count = s->operator_ ? 0 : core_user_contexts(f->config.core, s->uid);

	snprintf(why, FRONT_WHY_BYTES, "user %u owns %u contexts, its limit (user.contexts); "
				       "remove some, or raise it", s->uid, count);
	return count < f->config.user_contexts;
}

static void create_new(struct front *f, struct turn *t, struct connection *s)
{
	struct pending *p = control_pending(f, s, PENDING_CREATE);
	char why[FRONT_WHY_BYTES] = "it cannot be created";
	struct disk_context spec;
	int rc;

	if (!p) {
		error_about(f, t, s, -EBUSY, "too many questions are under way; ask again");
		return;
	}
	if (!may_own(f, s, why)) {
		control_forget(p);
		error_about(f, t, s, -EDQUOT, why);
		return;
	}
	spec_of(&f->in.ctx, s, &spec);
	rc = f->config.ops->context_create(f->config.shell, &spec, p->token, &p->context_id, why);
	if (rc) {
		control_forget(p);
		create_failed(f, t, s, rc, why);
		return;
	}
	memcpy(p->name, spec.name, sizeof(p->name));
	s->asking = true;
	watch_socket(f, s, 0);
}

/* What blocks are made of; of objects nothing is said. */
static int check_shape(const struct front *f, char why[FRONT_WHY_BYTES])
{
	const struct wire_ctx *m = &f->in.ctx;

	if (!(m->flags & WIRE_CTX_OBJECTS))
		return abi_geometry_check(&m->geometry, why, FRONT_WHY_BYTES);
	snprintf(why, FRONT_WHY_BYTES, "%s", f->config.objects ?
		 "objects have no geometry, policy or number of blocks" :
		 "this daemon keeps no objects; give it memory for them (object.cxl)");
	if (!f->config.objects)
		return -EOPNOTSUPP;
	return control_zero(&m->geometry, sizeof(m->geometry)) && !m->blocks_max &&
	       !m->policy[0] ? 0 : -EINVAL;
}

void context_create(struct front *f, struct turn *t, struct connection *s)
{
	struct core_context_view view;
	char why[FRONT_WHY_BYTES];
	int rc;

	if (!check(f, t, s))
		return;
	rc = check_shape(f, why);
	if (rc)
		error_about(f, t, s, rc, why);
	else if (find(f, s, &view) == 0)
		create_found(f, t, s, &view);
	else if (core_aside_find(f->config.core, f->in.ctx.name))
		error_about(f, t, s, -EEXIST, "one of this name could not be made at the start and "
					      "is set aside, with its blocks (tierctl status); "
					      "tierctl check --remove, offline, ends it");
	else
		create_new(f, t, s);
}

/* The catalog has it: open it for whom it was made. */
void context_created(struct front *f, struct turn *t, struct connection *s, uint32_t id)
{
	struct core_context_stats stats;
	struct core_context_view view;
	int rc = core_context_stats(f->config.core, id, &stats);

	if (rc == 0)
		rc = core_context_find(f->config.core, stats.spec.name, s->uid, s->gid, &view);
	if (rc)
		error_about(f, t, s, rc, "it was removed at once by somebody else");
	else if (view.spec->kind == DISK_KIND_OBJECT)
		done(f, t, s);
	else
		grant(f, t, s, &view);
}

/* ---- remove, epoch ------------------------------------------------------------------------- */

/* The context that a change is asked for; only its owner and operators may. Negative = answered. */
static int64_t find_owned(struct front *f, struct turn *t, struct connection *s)
{
	struct core_context_view view;
	int rc = find(f, s, &view);

	if (rc == 0 && (view.owner || s->operator_))
		return view.id;
	if (rc && s->operator_) {
		int64_t id = obs_context_id(f->config.core, f->in.ctx.name);

		if (id >= 0)
			return id;
	}
	if (rc)
		not_found(f, t, s, rc);
	else
		error_about(f, t, s, -EACCES, "only its owner may do that");
	return -EACCES;
}

/* The number under which a context's objects are kept; 0: it holds none. */
static uint64_t objects_of(const struct front *f, uint32_t id)
{
	struct core_context_stats stats;

	if (core_context_stats(f->config.core, id, &stats))
		return 0;
	return stats.spec.kind == DISK_KIND_OBJECT ? stats.spec.uid : 0;
}

static void change(struct front *f, struct turn *t, struct connection *s, enum pending_kind kind)
{
	struct pending *p;
	int64_t id;
	int rc;

	if (!check(f, t, s))
		return;
	id = find_owned(f, t, s);
	if (id < 0)
		return;
	p = control_pending(f, s, kind);
	if (!p) {
		error_about(f, t, s, -EBUSY, "too many questions are under way; ask again");
		return;
	}
	p->context_id = (uint32_t)id;
	p->context_uid = objects_of(f, (uint32_t)id);
	memcpy(p->name, f->in.ctx.name, sizeof(p->name));
	if (kind == PENDING_REMOVE)
		rc = core_context_remove(f->config.core, p->context_id, p->token,
					 CONTROL_TOKEN_GONE);
	else
		rc = core_context_epoch(f->config.core, p->context_id, f->in.ctx.epoch, p->token);
	if (rc) {
		control_forget(p);
		error_about(f, t, s, rc,
			    rc == -EINVAL ?
				    "the epoch must be larger than before, and below 2^32" :
				    "not possible now; ask again");
		return;
	}
	s->asking = true;
	watch_socket(f, s, 0);
}

void context_remove(struct front *f, struct turn *t, struct connection *s)
{
	change(f, t, s, PENDING_REMOVE);
}

void context_epoch(struct front *f, struct turn *t, struct connection *s)
{
	change(f, t, s, PENDING_EPOCH);
}
