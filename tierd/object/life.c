/* SPDX-License-Identifier: Apache-2.0 */
/* Objects at start and at the end: from the catalog's records to the table, and away. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "libtier/base/time.h"
#include "tierd/object/index.h"

/* A record whose context is gone is void, too. */
static bool is_void_record(void *arg, const struct object_record *r)
{
	const struct objects *o = arg;

	for (uint32_t i = 0; i < o->config.contexts; i++)
		if (o->config.context[i].uid == r->context)
			return object_record_void(r, o->config.context[i].epoch, o->wall_ms);
	return true;
}

/* One record, in order. Versions whose context is gone are nobody's: their files are swept. */
static int take(void *arg, const struct object_record *r)
{
	struct objects *o = arg;

	if (r->version > o->version)
		o->version = r->version;
	if (r->type == DISK_OBJECT_HEADER)
		return 0;
	return object_replay(&o->table, r, is_void_record(o, r));
}

/* Every version, in the order of contexts and names. */
static bool each(void *arg, struct object_place *place, struct object_record *r)
{
	struct objects *o = arg;
	const struct object *x = object_walk(&o->table, place);

	if (!x)
		return false;
	object_describe(x, r);
	return true;
}

/* ---- the folder's files -------------------------------------------------------------------- */

/* Versions are looked for once the last record was taken. */
static bool live(void *arg, uint64_t version)
{
	struct objects *o = arg;

	if (!o->live)
		o->live = object_versions(&o->table);
	if (version > o->version)
		o->version = version;
	/* Without memory to tell it stays. */
	return !o->live || object_version_in(o->live, o->table.objects, version);
}

/* ---- life ---------------------------------------------------------------------------------- */

/* Jobs that ended after the last turn: their descriptors. */
static void drop_job(void *arg, struct object_job *job)
{
	struct task *t = job->owner;

	(void)arg;
	if (job->kind == OBJECT_SAVE) {
		t->fd = job->fd;
		t->file = job->file;
	}
	if (job->other >= 0)
		close(job->other);
	if (job->kind == OBJECT_BRING && job->res == 0)
		close(job->fd);
}

static void close_memory(struct objects *o)
{
	for (uint32_t i = 0; i < OBJECT_PRIORITIES; i++)
		list_each(at, &o->table.leaving[i])
			close(list_entry(at, struct object, link)->fd);
	list_each(at, &o->table.held)
		close(list_entry(at, struct object, link)->fd);
}

void objects_close(struct objects *o)
{
	struct object_answer *a;

	if (o->files)
		object_files_close(o->files, drop_job);
	list_each(at, &o->tasks) {
		struct task *t = list_entry(at, struct task, link);

		if (t->upload && t->object)
			object_free(t->object);
		if (t->fd >= 0)
			close(t->fd);
		if (t->file >= 0)
			close(t->file);
		object_give(&o->table, t->account, OBJECT_CXL, t->charged);
		list_remove(&t->link);
		objects_answered(t->answer);
		free(t);
	}
	while ((a = objects_answer(o)))
		objects_answered(a);
	indexes_end(o);
	list_each(at, &o->uploads)
		upload_drop(o, list_entry(at, struct upload, link));
	close_memory(o);
	object_table_close(&o->table);
	free(o->live);
	free(o);
}

/* Half of the descriptors that we may have are for objects in memory (kernel.c raised the limit):
 * the rest is uploads', clients' and the daemon's own. */
static uint64_t descriptors(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return 256;
	return limit.rlim_cur / 2;
}

int objects_open(struct objects **out, const struct objects_config *config)
{
	struct objects *o = calloc(1, sizeof(*o));
	struct object_files_config files = {
		.path = config->path,
		.store_id = config->store_id,
		.anew = config->anew,
		.buffered = config->buffered,
		.mem = config->mem,
		.wake_fd = config->wake_fd,
		.log = config->log,
		.version = &o->version,
		.take = take,
		.is_void = is_void_record,
		.live = live,
		.each = each,
		.arg = o,
	};
	int rc;

	if (!o)
		return -ENOMEM;
	o->config = *config;
	o->wall_ms = time_wall_ms();
	o->resident_most = descriptors();
	object_table_open(&o->table, config->most, config->seed);
	o->first_id = o->upload_id = config->seed | 1; /* of no other boot */
	uploads_init(o);
	list_init(&o->tasks);
	list_init(&o->answers);
	list_init(&o->indexes);
	list_init(&o->gone);
	list_init(&o->ended);
	rc = object_files_open(&o->files, &files);
	free(o->live);
	o->live = NULL;
	for (uint32_t i = 0; rc == 0 && i < o->config.contexts; i++) {
		const struct objects_context *x = &o->config.context[i];
		struct object_account *a = object_account(&o->table, x->uid);

		rc = a ? object_own(&o->table, a, x->owner) : -ENOMEM;
	}
	o->config.context = NULL; /* the caller's; needed until here */
	o->config.contexts = 0;
	if (rc) {
		objects_close(o);
		return rc;
	}
	log_info(o->config.log, "objects", config->path, "count=%llu bytes=%llu",
		 (unsigned long long)o->table.objects,
		 (unsigned long long)o->table.used[OBJECT_NVME]);
	*out = o;
	return 0;
}
