/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the module of objects: questions under way (tasks) and uploads. object.c steps tasks,
 * upload.c looks after what is being written.
 */
#ifndef TIERD_OBJECT_OBJECT_PRIV_H
#define TIERD_OBJECT_OBJECT_PRIV_H

#include "tierd/object/files.h"
#include "tierd/object/object.h"

enum task_stage {
	TASK_NEW,
	TASK_BLOCKED, /* the name is being changed by another task */
	TASK_WAITING, /* for an object that is coming */
	TASK_SAVING,  /* SAVE under way */
	TASK_SAVED,   /* wants to append its record */
	TASK_LOGGING, /* LOG under way */
};

/* A question, or a commit of our own (asked = false). */
struct task {
	struct list link;
	enum task_stage stage;
	bool asked;
	uint16_t type; /* WIRE_OBJ_* */
	uint32_t flags;
	uint64_t context, epoch;
	uint64_t deadline_ns;
	uint64_t upload_id;
	uint32_t name_bytes, other_bytes;
	char name[ABI_OBJECT_NAME_BYTES], other[ABI_OBJECT_NAME_BYTES];
	struct object_account *account;
	struct upload *upload; /* COMMIT */
	struct object *object; /* that it waits for, removes, renames, or makes (COMMIT) */
	uint64_t reserved; /* in NVMe, of the account */
	struct object_answer *answer;
};

/* What is being written. */
struct upload {
	struct list link;
	uint64_t id;
	struct object_who who;
	struct object_account *account;
	uint64_t context, epoch, ttl_ms;
	uint32_t flags, mode, priority;
	int fd;
	uint64_t charged; /* in CXL */
	bool closing; /* committed when nobody has it open any more */
	bool saving;  /* a task has it */
	uint32_t name_bytes;
	char name[ABI_OBJECT_NAME_BYTES];
};

struct objects {
	struct objects_config config;
	struct object_table table;
	struct object_files *files;
	struct list uploads;
	struct list tasks; /* all of them but those that are answered */
	struct list answers;
	uint64_t version, upload_id; /* last used */
	uint32_t upload_count;
	uint64_t jobs;
	uint64_t now_ns, wall_ms, looked_ns, watched_ns;
	uint64_t swept_context; /* how far the sweep is */
	uint32_t swept_bytes;
	char swept_name[ABI_OBJECT_NAME_BYTES];
	uint64_t gone[64]; /* contexts whose objects are to go */
	uint32_t gone_count;
	struct objects_stats stats;
	uint64_t *live; /* versions, sorted, while the folder is swept */
	size_t live_count;
};

static inline bool lapsed(const struct objects *o, const struct object *x)
{
	return x->expires_ms && x->expires_ms <= o->wall_ms;
}

/* object.c */
/* The version that who asks may see, or NULL. */
struct object *seen(const struct objects *o, const struct task *t, const char *name,
		    uint32_t bytes);
struct object_job *job_new(enum object_job_kind kind, void *owner);
void job_submit(struct objects *o, struct object_job *job);
/* Room in CXL for so many more bytes of this account: evicts. Errors: -ENOSPC, -EDQUOT. */
int make_room(struct objects *o, struct object_account *a, uint64_t bytes);
void task_fail(struct objects *o, struct task *t, int error, const char *why);
struct task *task_new(struct objects *o, uint16_t type, bool asked);
void task_end(struct objects *o, struct task *t);
/* Go on with it: from its stage. */
void task_step(struct objects *o, struct task *t);

/* upload.c */
void upload_create(struct objects *o, struct task *t, const struct wire_object *m);
void upload_drop(struct objects *o, struct upload *u);
struct upload *upload_find(const struct objects *o, const struct object_who *who, uint64_t id);
/* Of the same session, by name; NULL = none. */
struct upload *upload_of(const struct objects *o, const struct object_who *who,
			 const struct task *t);
/* Begin to save it, for this task. */
void upload_commit(struct objects *o, struct task *t);
void upload_saved(struct objects *o, struct task *t, struct object_job *job);
/* Begin what can be begun of those that are committed when they are closed. */
void uploads_look(struct objects *o);
/* Charge what is written by now. */
void uploads_watch(struct objects *o);

#endif
