/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is being written: a memfd that its writer has open. A commit fixes its length, finds room,
 * and has it sealed, summed and written; object.c does the rest. Until then nothing of it is seen.
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

#include "tierd/object/memfile.h"
#include "tierd/object/object_priv.h"

#define LOOKS_MAX 64u
#define MODE_DEFAULT 0644u

struct upload *upload_find(const struct objects *o, const struct object_who *who, uint64_t id)
{
	list_each(at, &o->uploads) {
		struct upload *u = list_entry(at, struct upload, link);

		if (u->id == id && u->who.session == who->session &&
		    u->who.generation == who->generation)
			return u;
	}
	return NULL;
}

static bool same_name(const struct upload *u, const struct task *t)
{
	return u->context == t->context && u->name_bytes == t->name_bytes &&
	       memcmp(u->name, t->name, t->name_bytes) == 0;
}

struct upload *upload_of(const struct objects *o, const struct object_who *who,
			 const struct task *t)
{
	list_each(at, &o->uploads) {
		struct upload *u = list_entry(at, struct upload, link);

		if (u->who.session == who->session && u->who.generation == who->generation &&
		    same_name(u, t))
			return u;
	}
	return NULL;
}

void upload_drop(struct objects *o, struct upload *u)
{
	if (u->fd >= 0)
		close(u->fd);
	object_give(&o->table, u->account, OBJECT_CXL, u->charged);
	list_remove(&u->link);
	o->upload_count--;
	free(u);
}

/* ---- create -------------------------------------------------------------------------------- */

static uint32_t session_uploads(const struct objects *o, const struct object_who *who)
{
	uint32_t n = 0;

	list_each(at, &o->uploads) {
		const struct upload *u = list_entry(at, struct upload, link);

		n += u->who.session == who->session && u->who.generation == who->generation;
	}
	return n;
}

static struct upload *upload_new(struct objects *o, const struct task *t,
				 const struct wire_object *m)
{
	struct upload *u = calloc(1, sizeof(*u));

	if (!u)
		return NULL;
	u->id = ++o->upload_id;
	u->who = t->answer->who;
	u->account = t->account;
	u->context = t->context;
	u->epoch = t->epoch;
	u->ttl_ms = m->ttl_ms;
	u->flags = m->flags;
	u->mode = m->mode ? m->mode : MODE_DEFAULT;
	u->priority = m->priority;
	u->name_bytes = t->name_bytes;
	memcpy(u->name, t->name, t->name_bytes);
	u->fd = memfile_make(o->config.mem);
	list_push_back(&o->uploads, &u->link);
	o->upload_count++;
	return u;
}

void upload_create(struct objects *o, struct task *t, const struct wire_object *m)
{
	struct upload *u = NULL;
	int fd = -ENOMEM;

	if (m->flags & WIRE_OBJ_EXCLUSIVE && seen(o, t, t->name, t->name_bytes)) {
		task_fail(o, t, -EEXIST, "it exists already");
		return;
	}
	if (o->upload_count >= OBJECTS_UPLOADS_MAX ||
	    session_uploads(o, &t->answer->who) >= OBJECTS_SESSION_UPLOADS_MAX) {
		task_fail(o, t, -EMFILE, "too many objects are being written; commit some");
		return;
	}
	u = upload_new(o, t, m);
	if (u)
		fd = u->fd < 0 ? u->fd : memfile_share(u->fd, O_RDWR);
	if (fd < 0) {
		if (u)
			upload_drop(o, u);
		task_fail(o, t, fd, "there is no memory or descriptor for it; see the daemon's "
				    "limit of open files");
		return;
	}
	t->answer->fd = fd;
	t->answer->info.upload = u->id;
	t->answer->info.mode = u->mode;
	task_end(o, t);
}

/* ---- commit -------------------------------------------------------------------------------- */

/* Room for what it takes in both tiers; it is charged from here. */
static int find_room(struct objects *o, struct task *t, uint64_t size)
{
	uint64_t charge = object_charge(size);
	struct upload *u = t->upload;
	int rc = object_room(&o->table, t->account, OBJECT_NVME, charge);

	if (rc == 0 && charge > u->charged) {
		rc = make_room(o, t->account, charge - u->charged);
		if (rc == 0) {
			object_take(&o->table, t->account, OBJECT_CXL, charge - u->charged);
			u->charged = charge;
		}
	}
	if (rc)
		return rc;
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

static void fail_commit(struct objects *o, struct task *t, int rc, const char *why)
{
	struct upload *u = t->upload;

	t->upload = NULL;
	task_fail(o, t, rc, why);
	upload_drop(o, u);
}

static struct object_job *save_job(struct objects *o, struct task *t, uint64_t size)
{
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
		.mtime_ns = o->wall_ms * 1000000,
		.expires_ms = u->ttl_ms ? o->wall_ms + u->ttl_ms : 0,
		.mode = u->mode,
		.priority = u->priority,
		.name = job->name,
		.name_bytes = t->name_bytes,
		.crc = job->crc,
	};
	memcpy(job->name, t->name, t->name_bytes);
	object_record_cut(r, size);
	job->fd = u->fd;
	return job;
}

void upload_commit(struct objects *o, struct task *t)
{
	struct upload *u = t->upload;
	struct object_job *job;
	struct stat st;
	int rc;

	u->saving = true;
	rc = memfile_fix_length(u->fd);
	if (rc || fstat(u->fd, &st)) {
		fail_commit(o, t, rc ? rc : -errno, "its writer sealed it");
		return;
	}
	rc = find_room(o, t, (uint64_t)st.st_size);
	if (rc) {
		fail_commit(o, t, rc, no_room(rc));
		return;
	}
	job = save_job(o, t, (uint64_t)st.st_size);
	if (!job) {
		object_give(&o->table, t->account, OBJECT_NVME, t->reserved);
		fail_commit(o, t, -ENOMEM, "out of memory");
		return;
	}
	t->stage = TASK_SAVING;
	job_submit(o, job);
}

/* Its file is written, or never will be. Memory is taken now: nothing may fail behind the log. */
void upload_saved(struct objects *o, struct task *t, struct object_job *job)
{
	int rc = job->res;

	t->upload->fd = job->fd;
	if (rc == 0) {
		t->object = object_new(&job->record);
		rc = t->object ? 0 : -ENOMEM;
	}
	if (rc) {
		object_give(&o->table, t->account, OBJECT_NVME, t->reserved);
		fail_commit(o, t, rc, "it could not be written; see the daemon's disk");
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
	t->flags = u->flags & WIRE_OBJ_EXCLUSIVE;
	t->name_bytes = u->name_bytes;
	memcpy(t->name, u->name, u->name_bytes);
	t->upload = u;
	upload_commit(o, t);
}

void uploads_look(struct objects *o)
{
	uint32_t looks = 0;

	list_each(at, &o->uploads) {
		struct upload *u = list_entry(at, struct upload, link);

		if (!u->closing || u->saving)
			continue;
		if (looks++ >= LOOKS_MAX)
			break;
		if (memfile_is_ours(u->fd))
			commit_closed(o, u);
	}
}

void objects_session_gone(struct objects *o, uint32_t session, uint32_t generation)
{
	list_each(at, &o->uploads) {
		struct upload *u = list_entry(at, struct upload, link);

		if (u->who.session != session || u->who.generation != generation || u->saving)
			continue;
		if (u->flags & WIRE_OBJ_AT_CLOSE && !memfile_is_ours(u->fd))
			u->closing = true; /* W7: another program has it now */
		else if (!u->closing)
			upload_drop(o, u);
	}
}

void uploads_watch(struct objects *o)
{
	list_each(at, &o->uploads) {
		struct upload *u = list_entry(at, struct upload, link);
		uint64_t now = u->charged;
		struct stat st;

		if (u->saving || fstat(u->fd, &st))
			continue;
		now = (uint64_t)st.st_blocks * 512;
		if (now > u->charged && make_room(o, u->account, now - u->charged)) {
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
