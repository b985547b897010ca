/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Questions about objects, step by step; see object.h. What changes a name goes through the catalog
 * first, one change of a name at a time; the table follows when the record is on the medium.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libtier/base/time.h"
#include "tierd/object/index.h"
#include "tierd/object/memfile.h"
#include "tierd/object/object_priv.h"

/* ---- tasks and jobs ------------------------------------------------------------------------ */

struct object_job *job_new(enum object_job_kind kind, void *owner)
{
	struct object_job *job = calloc(1, sizeof(*job));

	if (!job)
		return NULL;
	list_init(&job->link);
	job->kind = kind;
	job->fd = job->other = job->file = -1;
	job->owner = owner;
	return job;
}

void job_submit(struct objects *o, struct object_job *job)
{
	o->jobs++;
	object_files_submit(o->files, job);
}

struct task *task_new(struct objects *o, uint16_t type, bool asked)
{
	struct task *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->answer = calloc(1, sizeof(*t->answer));
	if (!t->answer) {
		free(t);
		return NULL;
	}
	list_init(&t->answer->link);
	t->answer->fd = -1;
	t->fd = t->file = -1;
	t->type = type;
	t->asked = asked;
	if (!asked) /* nobody's: no upload is of it */
		t->uid = t->answer->who.connection = UINT32_MAX;
	list_push_back(&o->tasks, &t->link);
	return t;
}

void task_end(struct objects *o, struct task *t)
{
	struct object_answer *a = t->answer;

	list_remove(&t->link);
	if (t->asked) {
		list_push_back(&o->answers, &a->link);
	} else {
		if (a->error)
			log_warn(o->config.log, "an object was not kept", t->name, a->why,
				 "errno=%d", -a->error);
		objects_answered(a);
	}
	free(t);
}

void objects_answered(struct object_answer *a)
{
	if (a->fd >= 0)
		close(a->fd);
	free(a);
}

struct object_answer *objects_answer(struct objects *o)
{
	struct list *link = list_pop_front(&o->answers);

	return link ? list_entry(link, struct object_answer, link) : NULL;
}

void task_fail(struct objects *o, struct task *t, int error, const char *why)
{
	if (error == -EUSERS) {
		error = -EDQUOT;
		why = "its user has three quarters of what all users' objects may have: names, "
		      "uploads, descriptors, or memory (object.cxl) beside others";
	}
	t->answer->error = error;
	snprintf(t->answer->why, sizeof(t->answer->why), "object %.*s: %s",
		 (int)(t->name_bytes < 80 ? t->name_bytes : 80), t->name, why);
	task_end(o, t);
}

static void tell(struct task *t, const struct object *x)
{
	struct wire_object_info *i = &t->answer->info;

	i->version = x->version;
	i->inode = x->inode;
	i->size = x->size;
	i->mtime_ns = x->mtime_ns;
	i->expires_ms = x->expires_ms;
	i->mode = x->mode;
	i->priority = x->priority;
	i->flags |= x->state == OBJECT_RESIDENT ? WIRE_OBJ_RESIDENT : 0;
}

/* ---- memory -------------------------------------------------------------------------------- */

/* Bytes that nobody has open go at once, others when they are let go. */
void let_go(struct objects *o, struct object *x)
{
	assert(!x->named);
	if (x->state == OBJECT_COMING)
		return; /* bring_done does it */
	if (x->state == OBJECT_RESIDENT && !memfile_is_ours(x->fd)) {
		object_hold(&o->table, x);
		return;
	}
	if (x->state != OBJECT_STORED)
		close(object_drop(&o->table, x));
	object_free(x);
}

/* ---- names that are being changed ---------------------------------------------------------- */

bool task_names(const struct task *t, const char *name, uint32_t bytes)
{
	if (bytes == t->name_bytes && memcmp(name, t->name, bytes) == 0)
		return true;
	return t->type == WIRE_OBJ_RENAME && bytes == t->other_bytes &&
	       memcmp(name, t->other, bytes) == 0;
}

struct object *seen(const struct objects *o, const struct task *t, const char *name,
		    uint32_t bytes)
{
	struct object *x = object_find(&o->table, t->context, name, bytes);

	return x && x->epoch == t->epoch && !lapsed(o, x) ? x : NULL;
}

#define NOT_THERE "there is none of that name"

/* ---- open, stat ---------------------------------------------------------------------------- */

static void give_open(struct objects *o, struct task *t, struct object *x, int fd)
{
	if (fd < 0) {
		task_fail(o, t, fd, "no descriptor is left for it; raise the daemon's limit of "
				    "open files");
		return;
	}
	t->answer->fd = fd;
	tell(t, x);
	o->stats.opened++;
	task_end(o, t);
}

int start_bring(struct objects *o, struct object *x)
{
	struct object_job *job = job_new(OBJECT_BRING, x);

	if (!job)
		return -ENOMEM;
	fill_record(job, x, DISK_OBJECT_PUT);
	object_coming(&o->table, x);
	job_submit(o, job);
	return 0;
}

static void wait_for(struct task *t, struct object *x)
{
	t->stage = TASK_WAITING;
	t->object = x;
}

bool have_resident(struct objects *o, struct task *t, struct object *x)
{
	int rc = 0;

	if (x->state == OBJECT_RESIDENT)
		return true;
	if (x->state == OBJECT_STORED)
		rc = make_room(o, t->account, 0, object_charge(x->size));
	if (rc == 0 && x->state == OBJECT_STORED)
		rc = start_bring(o, x);
	if (rc == -EAGAIN)
		t->stage = TASK_BLOCKED;
	else if (rc == -EFBIG)
		task_fail(o, t, rc, "it is larger than what memory it may have; raise object.cxl "
				    "or its quota, or allow object.direct");
	else if (rc)
		task_fail(o, t, rc, "no memory can be had for it: others have open what is there");
	else
		wait_for(t, x);
	return false;
}

/* What finds no memory is opened as its file, where that is allowed. */
static bool open_direct(struct objects *o, struct task *t, struct object *x)
{
	if (!o->config.direct || x->state != OBJECT_STORED ||
	    !make_room(o, t->account, 0, object_charge(x->size)))
		return false;
	t->answer->info.flags |= WIRE_OBJ_DIRECT;
	give_open(o, t, x, object_files_share(o->files, x->version));
	return true;
}

static void tell_upload(struct task *t, const struct upload *u)
{
	off_t end = lseek(u->fd, 0, SEEK_END);

	t->answer->info.size = end > 0 ? (uint64_t)end : 0;
	t->answer->info.upload = u->id;
	t->answer->info.mode = u->mode;
	t->answer->info.inode = u->inode;
	t->answer->info.flags = WIRE_OBJ_PENDING;
}

/* As in a directory: of what the user's own programs write is open what they write. */
static void open_upload(struct objects *o, struct task *t, const struct upload *u)
{
	int fd = u->busy ? -1 : memfile_share(u->fd, O_RDONLY);

	if (u->busy) {
		t->stage = TASK_BLOCKED;
	} else if (fd < 0) {
		task_fail(o, t, fd, "no descriptor is left for it");
	} else {
		tell_upload(t, u);
		t->answer->fd = fd;
		task_end(o, t);
	}
}

static void step_open(struct objects *o, struct task *t)
{
	const struct upload *u = NULL;
	struct object *x;

	if (closing(o, t)) {
		t->stage = TASK_BLOCKED;
		return;
	}
	if (t->flags & WIRE_OBJ_SHARED)
		u = upload_of(o, t, t->name, t->name_bytes, false);
	x = seen(o, t, t->name, t->name_bytes);
	if (u) {
		open_upload(o, t, u);
	} else if (!x) {
		task_fail(o, t, -ENOENT, NOT_THERE);
	} else if (!open_direct(o, t, x) && have_resident(o, t, x)) {
		object_touch(&o->table, x);
		give_open(o, t, x, memfile_share(x->fd, O_RDONLY));
	}
}

static void step_stat(struct objects *o, struct task *t)
{
	const struct upload *u;
	struct object *x;

	if (closing(o, t)) {
		t->stage = TASK_BLOCKED;
		return;
	}
	u = upload_of(o, t, t->name, t->name_bytes, true);
	x = seen(o, t, t->name, t->name_bytes);
	if (u && !u->busy && (upload_shared(u) || !x)) {
		tell_upload(t, u);
		task_end(o, t);
	} else if (x) {
		tell(t, x);
		task_end(o, t);
	} else if (u) {
		t->stage = TASK_BLOCKED;
	} else {
		task_fail(o, t, -ENOENT, NOT_THERE);
	}
}

/* ---- remove, rename, the record of a commit ------------------------------------------------ */

void remove_file(struct objects *o, uint64_t version)
{
	struct object_job *job = job_new(OBJECT_UNLINK, NULL);

	if (!job)
		return; /* the next start removes it */
	job->record.version = version;
	job_submit(o, job);
}

void fill_record(struct object_job *job, const struct object *x, uint32_t type)
{
	struct object_record *r = &job->record;

	object_describe(x, r);
	r->type = type;
	memcpy(job->name, x->name, x->name_bytes);
	memcpy(job->crc, x->crc, x->chunks * sizeof(x->crc[0]));
	r->name = job->name;
	r->from = job->from;
	r->crc = job->crc;
	if (type == DISK_OBJECT_REMOVE)
		r->chunks = r->shift = 0;
}

static void start_log(struct objects *o, struct task *t, const struct object *x, uint32_t type)
{
	struct object_job *job = job_new(OBJECT_LOG, t);
	struct object_record *r;

	if (!job) {
		task_fail(o, t, -ENOMEM, "out of memory");
		return;
	}
	fill_record(job, x, type);
	r = &job->record;
	if (t->type == WIRE_OBJ_SET && t->flags & WIRE_OBJ_MODE)
		r->mode = t->mode;
	if (t->type == WIRE_OBJ_SET && t->flags & WIRE_OBJ_MTIME)
		r->mtime_ns = t->mtime_ns;
	if (type == DISK_OBJECT_MOVE) {
		r->name_bytes = t->other_bytes;
		r->from_bytes = t->name_bytes;
		memcpy(job->name, t->other, t->other_bytes);
		memcpy(job->from, t->name, t->name_bytes);
	}
	job->file = t->file;
	job->record.early = t->file >= 0;
	t->file = -1;
	t->stage = TASK_LOGGING;
	job->lazy = t->flags & WIRE_OBJ_LAZY && t->type != WIRE_OBJ_COMMIT;
	job_submit(o, job);
}

/* SYNC of no upload: what was answered before is flushed. */
static void start_flush(struct objects *o, struct task *t)
{
	struct object_job *job = job_new(OBJECT_FLUSH, t);

	if (!job) {
		task_fail(o, t, -ENOMEM, "out of memory");
		return;
	}
	t->stage = TASK_LOGGING;
	job_submit(o, job);
}

/* The name of an upload that is being written; one that a task has waits for that. */
static bool upload_waits(struct objects *o, struct task *t, const char *name, uint32_t bytes)
{
	const struct upload *u = upload_of(o, t, name, bytes, true);

	return (u && u->busy) || changing(o, t, TASK_RECORDS | TASK_SAVES, name, bytes);
}

static void step_remove(struct objects *o, struct task *t)
{
	struct upload *u;

	if (closing(o, t) || upload_waits(o, t, t->name, t->name_bytes)) {
		t->stage = TASK_BLOCKED;
		return;
	}
	u = upload_of(o, t, t->name, t->name_bytes, true);
	t->object = seen(o, t, t->name, t->name_bytes);
	if (u)
		upload_unlink(o, u);
	if (t->object) {
		start_log(o, t, t->object, DISK_OBJECT_REMOVE);
	} else if (u) {
		t->answer->done = true;
		task_end(o, t);
	} else {
		task_fail(o, t, -ENOENT, NOT_THERE);
	}
}

/* What is being written goes with its name, and takes the place of what others write under it. */
static void rename_upload(struct objects *o, struct task *t, struct upload *u)
{
	struct upload *other = upload_of(o, t, t->other, t->other_bytes, true);

	if (other && other != u)
		upload_unlink(o, other);
	if (!u)
		return;
	u->flags &= ~WIRE_OBJ_TEMPORARY; /* not closed yet: its close is the commit, then */
	upload_rename(o, u, t->other, t->other_bytes);
}

/* W9: the rename is the commit. */
static void publish_parked(struct objects *o, struct task *t, struct upload *u)
{
	t->type = WIRE_OBJ_COMMIT;
	t->object = NULL;
	t->name_bytes = u->name_bytes;
	memcpy(t->name, u->name, u->name_bytes);
	t->upload = u;
	upload_save(o, t);
}

static void step_rename(struct objects *o, struct task *t)
{
	struct upload *u, *other;
	struct object *x;

	u = closing(o, t) ? NULL : upload_of(o, t, t->name, t->name_bytes, true);
	x = seen(o, t, t->name, t->name_bytes);
	if (closing(o, t) || upload_waits(o, t, t->name, t->name_bytes) ||
	    upload_waits(o, t, t->other, t->other_bytes) || (x && x->state == OBJECT_COMING)) {
		t->stage = TASK_BLOCKED;
		return;
	}
	other = upload_of(o, t, t->other, t->other_bytes, true);
	t->object = x;
	if (!x && !u) {
		task_fail(o, t, -ENOENT, NOT_THERE);
		return;
	}
	if (t->flags & WIRE_OBJ_EXCLUSIVE &&
	    (other || seen(o, t, t->other, t->other_bytes))) {
		task_fail(o, t, -EEXIST, "the new name is taken");
		return;
	}
	if (u && upload_name_full(o, t->context, t->other, t->other_bytes)) {
		task_fail(o, t, -EMFILE, "too many write the new name already");
		return;
	}
	rename_upload(o, t, u);
	if (x && !(u && u->parked)) {
		start_log(o, t, x, DISK_OBJECT_MOVE);
		return;
	}
	t->answer->done = true;
	if (u->parked)
		publish_parked(o, t, u);
	else
		task_end(o, t);
}

static void set_upload(struct objects *o, struct task *t, struct upload *u)
{
	if (t->flags & WIRE_OBJ_MODE)
		u->mode = t->mode;
	if (t->flags & WIRE_OBJ_MTIME)
		u->mtime_ns = t->mtime_ns;
	t->answer->done = true;
	task_end(o, t);
}

static void step_set(struct objects *o, struct task *t)
{
	struct upload *u;

	if (closing(o, t) || upload_waits(o, t, t->name, t->name_bytes)) {
		t->stage = TASK_BLOCKED;
		return;
	}
	u = t->upload_id ? upload_find(o, t, t->upload_id) :
			   upload_of(o, t, t->name, t->name_bytes, true);
	t->object = seen(o, t, t->name, t->name_bytes);
	if (u)
		set_upload(o, t, u);
	else if (t->object)
		start_log(o, t, t->object, DISK_OBJECT_PUT);
	else
		task_fail(o, t, -ENOENT, NOT_THERE);
}

/*
 * Give back what a commit had; its file is nobody's. But a file whose record may be on the medium
 * all the same stays: the next start would find the name without it, and no former version.
 */
static void undo_commit(struct objects *o, struct task *t, bool unsure)
{
	if (!unsure)
		remove_file(o, t->object->version);
	object_free(t->object);
	t->object = NULL;
	upload_let(o, t);
}

/* COMMIT and SYNC from their start: the upload may have gone while they waited. */
static void step_upload(struct objects *o, struct task *t)
{
	struct upload *u = upload_find(o, t, t->upload_id);
	bool commit = t->type == WIRE_OBJ_COMMIT;
	bool at_close = t->flags & WIRE_OBJ_AT_CLOSE;
	bool others = u && at_close && !memfile_is_ours(u->fd);
	int fate = upload_fate(o, t->upload_id);

	if (!u && commit && at_close && !fate) {
		task_end(o, t); /* it was kept, or nobody wanted it any more */
	} else if (!u) {
		task_fail(o, t, fate ? fate : -ESTALE,
			  "there is no such upload any more: there was no room, or another daemon");
	} else if (u->busy) {
		t->stage = TASK_BLOCKED;
	} else if (u->unlinked || u->flags & WIRE_OBJ_TEMPORARY || (commit && others)) {
		/* Nobody wants it, or not yet; or it is committed by whoever closes it last. */
		u->parked = u->parked || (commit && u->flags & WIRE_OBJ_TEMPORARY);
		u->closing = u->closing || (commit && !u->parked);
		t->answer->info.flags = WIRE_OBJ_PENDING;
		task_end(o, t);
	} else {
		t->name_bytes = u->name_bytes;
		memcpy(t->name, u->name, u->name_bytes);
		t->upload = u;
		upload_save(o, t);
	}
}

static void step_commit(struct objects *o, struct task *t)
{
	struct upload *u = t->upload;

	if (t->stage == TASK_ROOM) {
		upload_save_on(o, t);
	} else if (!u && t->type == WIRE_OBJ_SYNC && !t->upload_id) {
		start_flush(o, t);
	} else if (!u) {
		step_upload(o, t);
	} else if (changing(o, t, TASK_RECORDS, t->name, t->name_bytes)) {
		t->stage = TASK_SAVED; /* looked at again when a record is written */
	} else if (t->object->epoch < t->account->epoch) {
		undo_commit(o, t, false);
		task_fail(o, t, -ESTALE, "the epoch of its context was raised meanwhile");
	} else if (u->flags & WIRE_OBJ_EXCLUSIVE && seen(o, t, t->name, t->name_bytes)) {
		undo_commit(o, t, false);
		task_fail(o, t, -EEXIST, "somebody else made it meanwhile");
	} else if (overtaken(o, t)) {
		undo_commit(o, t, false);
		task_end(o, t);
	} else {
		start_log(o, t, t->object, DISK_OBJECT_PUT);
	}
}

void task_step(struct objects *o, struct task *t)
{
	switch (t->type) {
	case WIRE_OBJ_OPEN:
		step_open(o, t);
		break;
	case WIRE_OBJ_STAT:
		step_stat(o, t);
		break;
	case WIRE_OBJ_REMOVE:
		step_remove(o, t);
		break;
	case WIRE_OBJ_RENAME:
		step_rename(o, t);
		break;
	case WIRE_OBJ_CREATE:
		upload_create(o, t);
		break;
	case WIRE_OBJ_SET:
		step_set(o, t);
		break;
	case WIRE_OBJ_INDEX:
		step_index(o, t);
		break;
	default:
		step_commit(o, t);
	}
}

/* ---- jobs that are done -------------------------------------------------------------------- */

/* A version has the name from now on; another one may have had it. */
static void enter(struct objects *o, struct object_account *a, struct object *x)
{
	struct object *former = object_enter(&o->table, a, x);

	index_update(o, a, x->name, x->name_bytes);
	if (!former)
		return;
	remove_file(o, former->version);
	let_go(o, former);
}

static void publish(struct objects *o, struct task *t)
{
	struct object *x = t->object;
	int fd = t->fd;

	object_give(&o->table, t->account, OBJECT_NVME, t->reserved);
	t->reserved = 0;
	enter(o, t->account, x);
	t->fd = -1;
	upload_let(o, t);
	object_coming(&o->table, x);
	object_came(&o->table, x, fd);
	o->stats.committed++;
	tell(t, x);
	task_end(o, t);
}

static void removed(struct objects *o, struct task *t)
{
	struct object *x = t->object;

	object_leave(&o->table, x);
	index_update(o, x->account, x->name, x->name_bytes);
	remove_file(o, x->version);
	let_go(o, x);
	o->stats.removed++;
	t->answer->done = true;
	task_end(o, t);
}

/* The version's bytes stay where they are, in memory too. */
static void moved(struct objects *o, struct task *t, const struct object_job *job)
{
	struct object *x = t->object, *anew = object_new(&job->record);
	int fd = -1;

	if (!anew) { /* the catalog has it: the next start will, too */
		task_fail(o, t, -ENOMEM, "out of memory; it has its new name after a restart");
		return;
	}
	object_leave(&o->table, x);
	if (x->state == OBJECT_RESIDENT)
		fd = object_drop(&o->table, x);
	enter(o, t->account, anew);
	if (fd >= 0) {
		object_coming(&o->table, anew);
		object_came(&o->table, anew, fd);
	}
	index_update(o, t->account, x->name, x->name_bytes);
	let_go(o, x); /* an open may be bringing it */
	t->answer->done = true;
	task_end(o, t);
}

static void was_set(struct objects *o, struct task *t, const struct object_job *job)
{
	t->object->mode = job->record.mode;
	t->object->mtime_ns = job->record.mtime_ns;
	index_update(o, t->account, t->name, t->name_bytes);
	t->answer->done = true;
	task_end(o, t);
}

static void log_done(struct objects *o, struct task *t, const struct object_job *job)
{
	if (job->res && t->upload)
		undo_commit(o, t, job->unsure);
	if (job->res)
		task_fail(o, t, job->res, "the catalog of objects takes no record; see the log of "
					  "the daemon");
	else if (t->upload)
		publish(o, t);
	else if (job->kind == OBJECT_FLUSH)
		task_end(o, t);
	else if (t->type == WIRE_OBJ_REMOVE)
		removed(o, t);
	else if (t->type == WIRE_OBJ_SET)
		was_set(o, t, job);
	else
		moved(o, t, job);
}

/* Its bytes are not what was written: it is offered to nobody any more. */
static void drop_dead(struct objects *o, struct object *x)
{
	struct task *t = task_new(o, WIRE_OBJ_REMOVE, false);

	o->stats.rotten++;
	log_warn(o->config.log, "an object's bytes do not verify", x->name,
		 "it is removed; look at the disk", "bytes=%llu", (unsigned long long)x->size);
	if (!t)
		return;
	t->context = x->context;
	t->epoch = x->epoch;
	t->account = x->account;
	t->name_bytes = x->name_bytes;
	memcpy(t->name, x->name, x->name_bytes);
	task_step(o, t);
}

static void serve_waiting(struct objects *o, struct object *x, int rc)
{
	list_each(at, &o->tasks) {
		struct task *t = list_entry(at, struct task, link);

		if (t->stage != TASK_WAITING || t->object != x)
			continue;
		t->object = NULL;
		if (t->type != WIRE_OBJ_OPEN || (rc && !x->named)) /* from its start again */
			t->stage = TASK_BLOCKED;
		else if (rc == 0)
			give_open(o, t, x, memfile_share(x->fd, O_RDONLY));
		else
			task_fail(o, t, rc == -EBADMSG ? -ENOENT : rc,
				  rc == -EBADMSG ? "its bytes are damaged; it is removed" :
						   "it cannot be read; see the daemon's disk");
	}
}

static void bring_done(struct objects *o, struct object *x, const struct object_job *job)
{
	object_came(&o->table, x, job->res ? -1 : job->fd);
	o->stats.brought += job->res == 0;
	serve_waiting(o, x, job->res);
	if (!x->named)
		let_go(o, x);
	else if (job->res == -EBADMSG)
		drop_dead(o, x);
}

void job_done(struct objects *o, struct object_job *job)
{
	o->jobs--;
	switch (job->kind) {
	case OBJECT_SAVE:
		upload_saved(o, job->owner, job);
		break;
	case OBJECT_LOG:
	case OBJECT_FLUSH:
		log_done(o, job->owner, job);
		break;
	case OBJECT_BRING:
		bring_done(o, job->owner, job);
		break;
	case OBJECT_COPY:
		upload_filled(o, job->owner, job);
		break;
	case OBJECT_PLACE:
		o->anew.jobs--;
		break;
	case OBJECT_ANEW:
		o->anew.on = job->res == 0;
		o->anew.asked = false;
		break;
	case OBJECT_DONE:
		o->anew.on = o->anew.asked = false;
		break;
	case OBJECT_UNLINK:
		break;
	}
	if (job->catalog_bytes)
		o->catalog_bytes = job->catalog_bytes;
	free(job);
}
