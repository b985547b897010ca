/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is being written: a memfd that its writer has open. A commit fixes its length, finds room,
 * and has it sealed, summed and written; object.c does the rest. Until then nobody else sees it,
 * but of a shared one all who write as the same user have the same memfd, as they would have one
 * inode in a directory; a sync saves a copy of what it holds, and it goes on.
 *
 * Pages of an upload are the writer's: the kernel charges its control group, and they go with its
 * last descriptor. Here they are charged to the context all the same, as they come (I18).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libtier/base/crc32c.h"
#include "libtier/base/time.h"
#include "tierd/object/index.h"
#include "tierd/object/memfile.h"
#include "tierd/object/object_priv.h"

#define LOOKS_MAX 64u
#define OF_NAME_MAX 256u /* uploads of one name: each question about it looks at all of them */
#define MODE_DEFAULT 0644u
#define LEFT_NS (200 * NS_PER_MS) /* a process that was killed is dead by then */
#define FREE_NS (1 * NS_PER_S)    /* who closed the last descriptor has said so by then */

static bool of_connection(const struct upload *u, const struct object_who *who)
{
	return u->who.connection == who->connection && u->who.generation == who->generation;
}

/* ---- names and numbers --------------------------------------------------------------------- */

void uploads_init(struct objects *o)
{
	list_init(&o->uploads);
	for (uint32_t i = 0; i < UPLOAD_BUCKETS; i++) {
		list_init(&o->named[i]);
		list_init(&o->numbered[i]);
	}
}

static uint32_t bucket_of(uint64_t context, const char *name, uint32_t bytes)
{
	return crc32c((uint32_t)context, name, bytes) % UPLOAD_BUCKETS;
}

/* What began before an epoch was raised is written on for nobody else. */
static bool has_name(const struct upload *u, uint64_t context, const char *name, uint32_t bytes)
{
	return u->context == context && !u->unlinked && u->epoch >= u->account->epoch &&
	       u->name_bytes == bytes && memcmp(u->name, name, bytes) == 0;
}

struct upload *upload_find(const struct objects *o, const struct task *t, uint64_t id)
{
	list_each(at, &o->numbered[id % UPLOAD_BUCKETS]) {
		struct upload *u = list_entry(at, struct upload, numbered);

		if (u->id == id && u->context == t->context &&
		    (of_connection(u, &t->answer->who) || (upload_shared(u) && u->uid == t->uid)))
			return u;
	}
	return NULL;
}

struct upload *upload_of(const struct objects *o, const struct task *t, const char *name,
			 uint32_t bytes, bool own)
{
	struct upload *found = NULL;

	list_each(at, &o->named[bucket_of(t->context, name, bytes)]) {
		struct upload *u = list_entry(at, struct upload, named);

		if (!has_name(u, t->context, name, bytes))
			continue;
		if (upload_shared(u) && u->uid == t->uid)
			return u;
		if (own && of_connection(u, &t->answer->who) && (!found || found->id < u->id))
			found = u;
	}
	return found;
}

bool upload_names(const struct objects *o, uint64_t context, const char *name, uint32_t bytes)
{
	list_each(at, &o->named[bucket_of(context, name, bytes)])
		if (has_name(list_entry(at, struct upload, named), context, name, bytes))
			return true;
	return false;
}

void upload_rename(struct objects *o, struct upload *u, const char *name, uint32_t bytes)
{
	char former[ABI_OBJECT_NAME_BYTES];
	uint32_t former_bytes = u->name_bytes;

	memcpy(former, u->name, former_bytes);
	u->name_bytes = bytes;
	memcpy(u->name, name, bytes);
	list_remove(&u->named);
	list_push_back(&o->named[bucket_of(u->context, name, bytes)], &u->named);
	index_update(o, u->account, name, bytes);
	if (former_bytes)
		index_update(o, u->account, former, former_bytes);
}

void upload_unlink(struct objects *o, struct upload *u)
{
	u->unlinked = true;
	index_update(o, u->account, u->name, u->name_bytes);
}

void upload_drop(struct objects *o, struct upload *u)
{
	if (u->fd >= 0)
		close(u->fd);
	object_give(&o->table, u->account, OBJECT_CXL, u->charged);
	list_remove(&u->link);
	list_remove(&u->named);
	list_remove(&u->numbered);
	o->upload_count--;
	index_update(o, u->account, u->name, u->name_bytes);
	free(u);
}

void upload_lost(struct objects *o, const struct upload *u, int error)
{
	o->lost[o->lost_next % LOST_MAX].id = u->id;
	o->lost[o->lost_next++ % LOST_MAX].error = error == -EUSERS ? -EDQUOT : error;
}

int upload_fate(const struct objects *o, uint64_t id)
{
	if (id - o->first_id > o->upload_id - o->first_id || id == o->first_id)
		return -ESTALE; /* of another boot */
	for (uint32_t i = 0; i < LOST_MAX; i++)
		if (o->lost[i].id == id)
			return o->lost[i].error;
	return 0;
}

/* ---- create -------------------------------------------------------------------------------- */

static uint32_t connection_uploads(const struct objects *o, const struct object_who *who)
{
	uint32_t n = 0;

	list_each(at, &o->uploads)
		n += of_connection(list_entry(at, struct upload, link), who);
	return n;
}

bool upload_name_full(const struct objects *o, uint64_t context, const char *name, uint32_t bytes)
{
	uint32_t n = 0;

	list_each(at, &o->named[bucket_of(context, name, bytes)])
		n += has_name(list_entry(at, struct upload, named), context, name, bytes);
	return n >= OF_NAME_MAX;
}

static struct upload *upload_new(struct objects *o, const struct task *t, const struct object *x)
{
	struct upload *u = calloc(1, sizeof(*u));

	if (!u)
		return NULL;
	u->id = ++o->upload_id;
	u->inode = x ? x->inode : u->id;
	u->who = t->answer->who;
	u->uid = t->uid;
	u->account = t->account;
	u->context = t->context;
	u->epoch = t->epoch;
	u->ttl_ms = t->ttl_ms;
	u->flags = t->flags;
	if (upload_shared(u)) /* it is there from now on, for those whom it concerns */
		u->flags &= ~WIRE_OBJ_EXCLUSIVE;
	u->mode = t->mode ? t->mode : MODE_DEFAULT;
	u->priority = t->priority;
	u->fd = memfile_make(o->config.mem);
	list_push_back(&o->uploads, &u->link);
	list_push_back(&o->numbered[u->id % UPLOAD_BUCKETS], &u->numbered);
	list_init(&u->named);
	o->upload_count++;
	upload_rename(o, u, t->name, t->name_bytes);
	return u;
}

/* The writer's descriptor. */
static void give_upload(struct objects *o, struct task *t, struct upload *u)
{
	int fd = memfile_share(u->fd, O_RDWR);

	if (fd < 0) {
		task_fail(o, t, fd, "no descriptor is left for it; raise the daemon's limit of "
				    "open files");
		return;
	}
	if (u->orphan) { /* its maker is dead: it belongs to who opens it now */
		u->who = t->answer->who;
		u->left = u->orphan = false;
	}
	u->given = u->given || !of_connection(u, &t->answer->who);
	u->closed = u->closed || u->closing;
	u->closing = u->parked = false;
	t->answer->fd = fd;
	t->answer->info.upload = u->id;
	t->answer->info.inode = u->inode;
	t->answer->info.mode = u->mode;
	task_end(o, t);
}

/* It begins with the bytes of x, which are in memory. */
static void fill(struct objects *o, struct task *t, struct upload *u, const struct object *x)
{
	uint64_t charge = object_charge(x->size);
	struct object_job *job = job_new(OBJECT_COPY, t);
	int rc = -ENOMEM;

	if (job) {
		job->fd = u->fd;
		job->record.size = x->size;
		job->other = memfile_share(x->fd, O_RDONLY); /* open: it makes no room for that */
		rc = job->other < 0 ? job->other : make_room(o, t->account, 0, charge);
	}
	if (rc) {
		if (job && job->other >= 0)
			close(job->other);
		free(job);
		upload_drop(o, u);
		if (rc == -EAGAIN)
			t->stage = TASK_BLOCKED;
		else
			task_fail(o, t, rc, "there is no memory for a copy of it");
		return;
	}
	u->charged = charge;
	object_take(&o->table, t->account, OBJECT_CXL, charge);
	u->mode = x->mode;
	u->priority = x->priority;
	u->busy = true;
	t->upload = u;
	t->stage = TASK_FILLING;
	job_submit(o, job);
}

void upload_filled(struct objects *o, struct task *t, const struct object_job *job)
{
	struct upload *u = t->upload;

	close(job->other);
	t->upload = NULL;
	u->busy = false;
	if (job->res == 0) {
		give_upload(o, t, u);
		return;
	}
	upload_drop(o, u);
	task_fail(o, t, job->res, "it could not be copied");
}

/* x: what has the name now; it begins with the bytes of that, or (copy = false) empty. */
static void create_new(struct objects *o, struct task *t, const struct object *x, bool copy)
{
	struct upload *u = NULL;
	int rc = upload_room(o, t);

	if (rc == 0 && !upload_name_full(o, t->context, t->name, t->name_bytes) &&
	    connection_uploads(o, &t->answer->who) < OBJECTS_CONNECTION_UPLOADS_MAX)
		u = upload_new(o, t, x);
	if (!u || u->fd < 0) {
		rc = u ? u->fd : rc ? rc : -EMFILE;
		if (u)
			upload_drop(o, u);
		task_fail(o, t, rc, "too many objects are being written, or no descriptor is left");
	} else if (copy) {
		fill(o, t, u, x);
	} else {
		give_upload(o, t, u);
	}
}

void upload_create(struct objects *o, struct task *t)
{
	struct upload *u = upload_of(o, t, t->name, t->name_bytes, false);
	struct object *x;

	if ((u && u->busy) || closing(o, t)) {
		t->stage = TASK_BLOCKED;
		return;
	}
	u = upload_of(o, t, t->name, t->name_bytes, false); /* closing may have ended it */
	x = seen(o, t, t->name, t->name_bytes);
	if (x && t->flags & WIRE_OBJ_AT_CLOSE) /* as a file that is truncated keeps its mode */
		t->mode = x->mode;
	if (t->flags & WIRE_OBJ_EXCLUSIVE && (u || x))
		task_fail(o, t, -EEXIST, "it exists already");
	else if (t->flags & WIRE_OBJ_EXISTING && !u && !x)
		task_fail(o, t, -ENOENT, "there is none of that name");
	else if (t->flags & WIRE_OBJ_SHARED && u)
		give_upload(o, t, u);
	else if (!(t->flags & WIRE_OBJ_COPY) || !x)
		create_new(o, t, x, false);
	else if (have_resident(o, t, x))
		create_new(o, t, x, true);
}

/* ---- commit, sync -------------------------------------------------------------------------- */

/* Room for what it takes in both tiers; it is charged from here, to the task. */
static int find_room(struct objects *o, struct task *t, uint64_t size)
{
	uint64_t charge = object_charge(size);
	int rc = o->table.objects < OBJECTS_MAX ?
			 object_room(&o->table, t->account, OBJECT_NVME, charge) : -ENOSPC;

	if (rc == 0 && !name_room(t->account))
		rc = -EUSERS;
	if (rc == 0)
		rc = make_room(o, t->account, t->charged, charge);
	if (rc)
		return rc;
	object_give(&o->table, t->account, OBJECT_CXL, t->charged);
	object_take(&o->table, t->account, OBJECT_CXL, charge);
	t->charged = charge;
	object_take(&o->table, t->account, OBJECT_NVME, charge);
	t->reserved = charge;
	return 0;
}

static const char *no_room(int rc)
{
	switch (rc) {
	case -EDQUOT:
		return "the quota of its context is used up; remove objects, or raise it";
	case -EFBIG:
		return "it is larger than what memory objects may have (object.cxl)";
	default:
		return "there is no room for it: object.nvme is used up, or what is in memory is "
		       "open somewhere";
	}
}

/* What the task saves goes; a commit's upload, too, and a sync's goes on. */
void upload_let(struct objects *o, struct task *t)
{
	struct upload *u = t->upload;

	t->upload = NULL;
	u->busy = false;
	if (t->type == WIRE_OBJ_COMMIT)
		upload_drop(o, u);
	if (t->fd >= 0)
		close(t->fd);
	if (t->file >= 0)
		close(t->file);
	t->fd = t->file = -1;
	object_give(&o->table, t->account, OBJECT_CXL, t->charged);
	object_give(&o->table, t->account, OBJECT_NVME, t->reserved);
	t->charged = t->reserved = 0;
}

static void fail_save(struct objects *o, struct task *t, int rc, const char *why)
{
	upload_lost(o, t->upload, rc);
	upload_let(o, t);
	task_fail(o, t, rc, why);
}

static struct object_job *save_job(struct objects *o, struct task *t, uint64_t size)
{
	const struct object *x = seen(o, t, t->name, t->name_bytes);
	struct object_job *job = job_new(OBJECT_SAVE, t);
	const struct upload *u = t->upload;
	struct object_record *r;

	if (!job)
		return NULL;
	r = &job->record;
	*r = (struct object_record){
		.type = DISK_OBJECT_PUT,
		.context = t->context,
		.epoch = u->epoch,
		.version = ++o->version,
		.inode = u->inode,
		.mtime_ns = u->mtime_ns ? u->mtime_ns : o->wall_ms * NS_PER_MS,
		.expires_ms = u->ttl_ms ? o->wall_ms + u->ttl_ms : 0,
		.mode = u->mode,
		.priority = u->priority,
		.name = job->name,
		.name_bytes = t->name_bytes,
		.crc = job->crc,
	};
	memcpy(job->name, t->name, t->name_bytes);
	object_record_cut(r, size);
	job->fd = t->fd;
	job->copy = t->type == WIRE_OBJ_SYNC;
	/* Who opened it to change it may not have. */
	if (upload_shared(u) && x && x->state == OBJECT_RESIDENT && x->size == size &&
	    x->mode == u->mode)
		job->other = fcntl(x->fd, F_DUPFD_CLOEXEC, 0);
	return job;
}

/* The descriptor and what is charged move from the upload to the task; a sync has its own. */
static int take_over(struct task *t)
{
	struct upload *u = t->upload;
	int rc = t->type == WIRE_OBJ_COMMIT ? memfile_fix_length(u->fd) : 0;

	if (rc)
		return rc;
	if (t->type == WIRE_OBJ_SYNC) {
		t->fd = fcntl(u->fd, F_DUPFD_CLOEXEC, 0);
		return t->fd < 0 ? -errno : 0;
	}
	t->fd = u->fd;
	t->charged = u->charged;
	u->fd = -1;
	u->charged = 0;
	return 0;
}

void upload_save(struct objects *o, struct task *t)
{
	int rc;

	t->upload->busy = true;
	rc = take_over(t);
	if (rc)
		fail_save(o, t, rc, "its writer sealed it, or no descriptor is left");
	else
		upload_save_on(o, t);
}

void upload_save_on(struct objects *o, struct task *t)
{
	struct object_job *job;
	struct stat st;
	uint64_t size;
	int rc = fstat(t->fd, &st) ? -errno : 0;

	size = (uint64_t)st.st_size;
	if (rc == 0)
		rc = find_room(o, t, size);
	if (rc == -EAGAIN) {
		t->stage = TASK_ROOM;
		return;
	}
	if (rc) {
		fail_save(o, t, rc, no_room(rc));
		return;
	}
	job = save_job(o, t, size);
	if (!job) {
		fail_save(o, t, -ENOMEM, "out of memory");
		return;
	}
	t->stage = TASK_SAVING;
	job_submit(o, job);
}

/* Its file is written, or never will be. Memory is taken now: nothing may fail behind the log. */
void upload_saved(struct objects *o, struct task *t, struct object_job *job)
{
	int rc = job->res;

	t->fd = job->fd;
	t->file = job->file;
	if (job->other >= 0)
		close(job->other);
	if (rc == 1) {
		upload_let(o, t);
		t->answer->info.size = job->record.size;
		task_end(o, t);
		return;
	}
	if (rc == 0) {
		t->object = object_new(&job->record);
		rc = t->object ? 0 : -ENOMEM;
	}
	if (rc) {
		fail_save(o, t, rc, "it could not be written; see the daemon's disk");
		return;
	}
	t->stage = TASK_SAVED;
	task_step(o, t);
}

/* ---- those that are committed when they are closed ----------------------------------------- */

/* A commit that nobody waits for. */
static void commit_closed(struct objects *o, struct upload *u)
{
	struct task *t = task_new(o, WIRE_OBJ_COMMIT, false);

	if (!t)
		return; /* looked at again */
	t->context = u->context;
	t->epoch = u->epoch;
	t->account = u->account;
	t->name_bytes = u->name_bytes;
	memcpy(t->name, u->name, u->name_bytes);
	t->upload = u;
	upload_save(o, t);
}

/* Nobody has it open; nor has one who closed it its word on the way. */
static bool nobody_closes(const struct objects *o, const struct upload *u)
{
	return (u->orphan && !u->given) || o->now_ns - u->left_ns >= FREE_NS;
}

/*
 * Its connection ended without a word. A process that lives on has become another program, which
 * has the descriptor: what that closes counts. Of a dead one only what others have open does.
 */
static void look_left(struct objects *o, struct upload *u)
{
	bool ours = memfile_is_ours(u->fd);

	if (ours && u->closed)
		u->closing = true;
	else if (!(u->flags & WIRE_OBJ_AT_CLOSE) || (ours && nobody_closes(o, u)))
		upload_drop(o, u);
	else if (!ours && !u->orphan && o->now_ns - u->left_ns >= LEFT_NS)
		u->closing = true;
	else if (!ours && u->orphan)
		u->left_ns = o->now_ns;
}

/* False: there was nothing to ask the kernel. */
static bool look_at(struct objects *o, struct upload *u)
{
	if (u->busy || !(u->closing || u->left || u->unlinked))
		return false;
	if (u->left && !u->closing && !u->unlinked)
		look_left(o, u);
	else if (!memfile_is_ours(u->fd)) /* asked once: it may be closed right now */
		return true;
	else if (u->unlinked)
		upload_drop(o, u);
	else
		commit_closed(o, u);
	return true;
}

void uploads_look(struct objects *o)
{
	uint32_t looks = 0;

	list_each(at, &o->uploads) {
		if (!look_at(o, list_entry(at, struct upload, link)) || ++looks < LOOKS_MAX)
			continue;
		/* The next look begins here: what somebody keeps open holds up nobody. */
		if (at_next != &o->uploads) {
			list_remove(&o->uploads);
			list_push_back(at_next, &o->uploads);
		}
		break;
	}
}

bool closing(struct objects *o, const struct task *me)
{
	const struct list *bucket =
		&o->named[bucket_of(me->context, me->name, me->name_bytes)];
	bool found = false;

	list_each(at, bucket)
		if (has_name(list_entry(at, struct upload, named), me->context, me->name,
			     me->name_bytes))
			look_at(o, list_entry(at, struct upload, named));
	list_each(at, bucket) {
		const struct upload *u = list_entry(at, struct upload, named);

		found = found || (u->closing && u->busy &&
				  has_name(u, me->context, me->name, me->name_bytes));
	}
	return found;
}

void objects_connection_gone(struct objects *o, uint32_t connection, uint32_t generation)
{
	const struct object_who who = { connection, generation, 0 };

	list_each(at, &o->uploads) {
		struct upload *u = list_entry(at, struct upload, link);

		if (!of_connection(u, &who) || u->closing)
			continue;
		if (!u->busy && !(u->flags & WIRE_OBJ_AT_CLOSE)) {
			upload_drop(o, u);
			continue;
		}
		u->left = true;
		u->left_ns = o->now_ns;
	}
}

bool changing(const struct objects *o, const struct task *me, uint32_t stages, const char *name,
	      uint32_t bytes)
{
	list_each(at, &o->tasks) {
		const struct task *t = list_entry(at, struct task, link);

		if (t != me && t->context == me->context && stages & 1u << t->stage &&
		    task_names(t, name, bytes))
			return true;
	}
	return false;
}

/*
 * The name has a version that was begun later, and was quicker. So this one was there before it,
 * for a moment that nobody saw: what returned behind the death of who wrote this is not undone.
 */
bool overtaken(const struct objects *o, const struct task *t)
{
	const struct object *x = object_find(&o->table, t->context, t->name, t->name_bytes);

	return x && x->version > t->object->version;
}

/* Killed: what it had open alone, and had not closed, never was. */
void objects_process_dead(struct objects *o, uint32_t connection, uint32_t generation)
{
	const struct object_who who = { connection, generation, 0 };

	list_each(at, &o->uploads) {
		struct upload *u = list_entry(at, struct upload, link);

		if (!of_connection(u, &who) || !u->left || u->closing)
			continue;
		u->orphan = true;
		if (!u->busy && !u->closed && !u->given && memfile_is_ours(u->fd))
			upload_drop(o, u);
	}
}

void uploads_watch(struct objects *o)
{
	list_each(at, &o->uploads) {
		struct upload *u = list_entry(at, struct upload, link);
		uint64_t now;
		struct stat st;
		int rc;

		if (u->busy || fstat(u->fd, &st))
			continue;
		now = (uint64_t)st.st_blocks * 512;
		rc = make_room(o, u->account, u->charged, now);
		if (rc == -EAGAIN)
			continue; /* charged the next time */
		if (rc) {
			upload_lost(o, u, rc);
			log_warn(o->config.log, "an upload was dropped", NULL,
				 "its context's quota or the tier is used up", "bytes=%llu",
				 (unsigned long long)now);
			upload_drop(o, u);
			continue;
		}
		object_give(&o->table, u->account, OBJECT_CXL, u->charged);
		object_take(&o->table, u->account, OBJECT_CXL, now);
		u->charged = now;
	}
}
