/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is due without being asked: jobs that are done, versions that nobody has open any more,
 * names that have lapsed, contexts that are gone. A bounded part of each a turn.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libtier/base/time.h"
#include "tierd/object/index.h"
#include "tierd/object/memfile.h"
#include "tierd/object/object_priv.h"

#define LOOK_NS (10 * NS_PER_MS)
#define WATCH_NS (100 * NS_PER_MS)
#define HELD_A_LOOK 64u
#define GONE_A_TURN 64u
#define SWEPT_A_TIME 256u
#define PLACED_A_TURN 64u
#define PLACES_MAX 512u
#define RECORD_BYTES 256u /* of most */
#define ANEW_LEAST (1u << 17)
#define ANEW_TIMES 4u

static void look_held(struct objects *o)
{
	uint32_t looks = 0;

	list_each(at, &o->table.held) {
		struct object *x = list_entry(at, struct object, link);

		if (looks++ >= HELD_A_LOOK)
			break;
		list_remove(&x->link);
		list_push_back(&o->table.held, &x->link);
		if (!memfile_is_ours(x->fd))
			continue;
		close(object_drop(&o->table, x));
		object_free(x);
	}
}

static void step_blocked(struct objects *o)
{
	list_each(at, &o->tasks) {
		struct task *t = list_entry(at, struct task, link);

		if (t->stage == TASK_BLOCKED || t->stage == TASK_SAVED || t->stage == TASK_ROOM)
			task_step(o, t);
	}
}

static void end_late(struct objects *o)
{
	list_each(at, &o->tasks) {
		struct task *t = list_entry(at, struct task, link);

		if ((t->stage == TASK_WAITING || t->stage == TASK_BLOCKED) && t->asked &&
		    o->now_ns >= t->deadline_ns)
			task_fail(o, t, -ETIMEDOUT, "it did not come in time; ask again");
	}
}

/* A record of its name is under way. */
static bool in_log(const struct objects *o, const struct object *x)
{
	list_each(at, &o->tasks) {
		const struct task *t = list_entry(at, struct task, link);

		if (t->stage == TASK_LOGGING && t->context == x->context &&
		    task_names(t, x->name, x->name_bytes))
			return true;
	}
	return false;
}

/* Nobody's any more, and the catalog says as much without a record. */
static void drop(struct objects *o, struct object *x)
{
	object_leave(&o->table, x);
	index_update(o, x->account, x->name, x->name_bytes);
	remove_file(o, x->version);
	let_go(o, x);
}

/* What has lapsed, or is of an old epoch: some names a time, round and round. */
static void sweep(struct objects *o)
{
	for (uint32_t i = 0; i < SWEPT_A_TIME; i++) {
		struct object *x = object_walk(&o->table, &o->swept);

		if (!x)
			return;
		if ((lapsed(o, x) || x->epoch < x->account->epoch) && !in_log(o, x))
			drop(o, x);
	}
}

static void drop_gone(struct objects *o)
{
	struct object_account *a = list_entry(list_first(&o->gone), struct object_account, gone);
	struct object *x;

	list_each(at, &o->uploads) {
		struct upload *u = list_entry(at, struct upload, link);

		if (u->account == a && !u->busy)
			upload_drop(o, u);
	}
	for (uint32_t i = 0; i < GONE_A_TURN; i++) {
		x = object_next(&o->table, a->context, "", 0, true);
		if (x && in_log(o, x))
			return;
		if (!x)
			break;
		drop(o, x);
	}
	if (x)
		return;
	index_drop(o, a);
	list_remove(&a->gone);
	list_push_back(&o->ended, &a->gone);
}

/* One account: it goes when no task and no upload speaks of it, and what was held is let go. */
static void look_ended(struct objects *o)
{
	struct object_account *a;

	if (list_empty(&o->ended))
		return;
	a = list_entry(list_first(&o->ended), struct object_account, gone);
	list_remove(&a->gone);
	list_push_back(&o->ended, &a->gone);
	list_each(at, &o->tasks)
		if (list_entry(at, struct task, link)->account == a)
			return;
	list_each(at, &o->uploads)
		if (list_entry(at, struct upload, link)->account == a)
			return;
	object_account_done(&o->table, a);
}

/*
 * The catalog is written anew when most of it is dead. Changes go to both, and each version that
 * the walk comes by to the new one alone; one whose record is under way is there by that.
 */
static void place(struct objects *o)
{
	for (uint32_t i = 0; i < PLACED_A_TURN && o->anew.jobs < PLACES_MAX; i++) {
		struct object_job *job = job_new(OBJECT_PLACE, NULL);
		struct object *x = job ? object_walk(&o->table, &o->anew.place) : NULL;

		o->anew.walked = job && !x;
		if (!x || in_log(o, x))
			free(job);
		if (!x)
			return; /* that was the last, or no memory now */
		if (in_log(o, x))
			continue;
		fill_record(job, x, DISK_OBJECT_PUT);
		o->anew.jobs++;
		job_submit(o, job);
	}
}

static void write_anew(struct objects *o)
{
	uint64_t live = ANEW_LEAST + o->table.objects * RECORD_BYTES;
	struct object_job *job = NULL;

	if (o->anew.on && !o->anew.walked) {
		place(o);
	} else if (o->anew.on && !o->anew.jobs && !o->anew.asked) {
		job = job_new(OBJECT_DONE, NULL);
	} else if (!o->anew.on && !o->anew.asked && o->catalog_bytes > ANEW_TIMES * live) {
		memset(&o->anew, 0, sizeof(o->anew));
		job = job_new(OBJECT_ANEW, NULL);
		if (job)
			job->record.version = o->version;
	}
	if (!job)
		return;
	o->anew.asked = true;
	job_submit(o, job);
}

void objects_turn(struct objects *o, uint64_t now_ns)
{
	struct object_job *job;
	bool any = o->goes_on;

	o->now_ns = now_ns;
	o->goes_on = false;
	while ((job = object_files_reap(o->files))) {
		job_done(o, job);
		any = true;
	}
	if (!list_empty(&o->gone))
		drop_gone(o);
	write_anew(o);
	o->indexing = index_turn(o);
	if (now_ns - o->looked_ns >= LOOK_NS) {
		o->looked_ns = now_ns;
		o->wall_ms = time_wall_ms();
		uploads_look(o);
		look_held(o);
		look_ended(o);
		end_late(o);
		any = true;
	}
	if (now_ns - o->watched_ns >= WATCH_NS) {
		o->watched_ns = now_ns;
		uploads_watch(o);
		sweep(o);
	}
	if (any && !list_empty(&o->tasks))
		step_blocked(o);
}

uint64_t objects_wanted(const struct objects *o)
{
	if (!list_empty(&o->gone) || o->indexing || o->goes_on || (o->anew.on && !o->anew.walked))
		return 0;
	return list_empty(&o->tasks) && list_empty(&o->uploads) && list_empty(&o->table.held) &&
			       list_empty(&o->ended) ? UINT64_MAX : LOOK_NS;
}

bool objects_idle(const struct objects *o)
{
	return o->jobs == 0;
}
