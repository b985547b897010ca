/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the module of objects: questions under way (tasks) and uploads. object.c steps tasks,
 * upload.c looks after what is being written.
 */
#ifndef TIERD_OBJECT_OBJECT_PRIV_H
#define TIERD_OBJECT_OBJECT_PRIV_H

#include "tierd/object/files.h"
#include "tierd/object/object.h"

#define LOST_MAX 256u
#define UPLOAD_BUCKETS 1024u

enum task_stage {
	TASK_NEW,
	TASK_BLOCKED, /* the name is being changed by another task */
	TASK_ROOM,    /* COMMIT, SYNC: what has no room yet is saved later */
	TASK_WAITING, /* for an object that is coming */
	TASK_FILLING, /* COPY under way */
	TASK_SAVING,  /* SAVE under way */
	TASK_SAVED,   /* wants to append its record */
	TASK_LOGGING, /* LOG under way */
};

/* A question, or a commit or removal of our own (asked = false). */
struct task {
	struct list link;
	enum task_stage stage;
	bool asked;
	bool limited; /* who asks is an ordinary user */
	uint16_t type; /* WIRE_OBJ_* */
	uint32_t uid, flags, mode, priority;
	uint64_t context, epoch, ttl_ms;
	uint64_t deadline_ns;
	uint64_t mtime_ns;
	uint64_t upload_id; /* COMMIT, SYNC, ABORT: which; found anew at each step */
	uint32_t name_bytes, other_bytes;
	char name[ABI_OBJECT_NAME_BYTES], other[ABI_OBJECT_NAME_BYTES];
	struct object_account *account;
	struct upload *upload; /* CREATE that fills it, COMMIT, SYNC */
	int fd;                /* COMMIT, SYNC: what is saved, and becomes the version's memory */
	int file;              /* COMMIT, SYNC: what is written and not flushed */
	uint64_t charged;      /* in CXL, for that */
	struct object *object; /* that it waits for, removes, renames, or makes (COMMIT) */
	uint64_t reserved; /* in NVMe, of the account */
	struct object_answer *answer;
};

/* What is being written. */
struct upload {
	struct list link, named, numbered; /* of all, of its name's bucket, of its number's */
	uint64_t id, inode;
	struct object_who who; /* who made it */
	struct object_account *account;
	uint64_t context, epoch, ttl_ms;
	uint32_t uid, flags, mode, priority;
	int fd;
	uint64_t charged; /* in CXL */
	uint64_t mtime_ns; /* 0 = when it is committed */
	bool closing;  /* committed when nobody has it open any more */
	bool closed;   /* somebody closed it, and others went on */
	bool given;    /* others opened it, too */
	bool parked;   /* temporary, and closed: it waits for its rename */
	bool unlinked; /* its name was removed or replaced: nobody will see it */
	bool busy;     /* a task fills, saves or syncs it */
	bool left;     /* the connection that made it has ended, and not said that it closed it */
	bool orphan;   /* its process, too */
	uint64_t left_ns; /* since when; afterwards since when nobody has it open */
	uint32_t name_bytes;
	char name[ABI_OBJECT_NAME_BYTES];
};

struct objects {
	struct objects_config config;
	struct object_table table;
	struct object_files *files;
	struct list uploads, named[UPLOAD_BUCKETS], numbered[UPLOAD_BUCKETS];
	struct list tasks; /* all of them but those that are answered */
	struct list answers;
	struct list indexes;
	bool indexing; /* one of them is being filled */
	bool goes_on;  /* more is to leave memory for a task than one turn takes */
	uint64_t version, upload_id, index_generation; /* last used */
	uint64_t resident_most; /* each is a descriptor */
	uint64_t first_id; /* of uploads of this boot */
	struct {
		uint64_t id;
		int error;
	} lost[LOST_MAX]; /* uploads that were closed, and not kept */
	uint32_t lost_next;
	uint32_t upload_count;
	uint64_t jobs;
	uint64_t now_ns, wall_ms, looked_ns, watched_ns;
	struct {
		bool on, walked, asked;
		uint64_t jobs; /* PLACE under way */
		struct object_place place;
	} anew; /* the catalog is being written anew */
	uint64_t catalog_bytes;
	struct object_place swept, audited;
	struct list gone;  /* accounts whose objects are to go, for their contexts are gone */
	struct list ended; /* ... and have gone: freed when nobody speaks of them any more */
	struct objects_stats stats;
	uint64_t *live; /* versions, sorted, while the folder is swept */
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
void task_fail(struct objects *o, struct task *t, int error, const char *why);
struct task *task_new(struct objects *o, uint16_t type, bool asked);
void task_end(struct objects *o, struct task *t);
/* Go on with it: from its stage. */
void task_step(struct objects *o, struct task *t);
/* STORED -> COMING; room was made. -ENOMEM. */
int start_bring(struct objects *o, struct object *x);
/* Have it in memory: RESIDENT, or the task waits for it, or has failed. */
bool have_resident(struct objects *o, struct task *t, struct object *x);

/* Seen by nobody else: its writer's, or its user's. */
static inline bool upload_shared(const struct upload *u)
{
	return u->flags & WIRE_OBJ_SHARED;
}

/* Is the task about this name, or renames something to it? */
bool task_names(const struct task *t, const char *name, uint32_t bytes);
/* Bytes that nobody has open go at once, others when they are let go. */
void let_go(struct objects *o, struct object *x);
/* A version's file; what is not done now the next start does. */
void remove_file(struct objects *o, uint64_t version);
void job_done(struct objects *o, struct object_job *job);
/* All of a version, as a record of type PUT; names and sums are copied to the job. */
void fill_record(struct object_job *job, const struct object *x, uint32_t type);

/* room.c */
/*
 * Room in CXL for something of this account that is charged `has` bytes and comes to `wants`:
 * evicts. Errors: -EFBIG there can never be so much for one, -EDQUOT, -EUSERS its user's share,
 * -ENOSPC, -EMFILE, -EAGAIN more has to leave than one turn takes: goes_on, try again.
 */
int make_room(struct objects *o, struct object_account *a, uint64_t has, uint64_t wants);
/* The same of a hint, which gives up at one that was hinted lately: they do not undo each other. */
int make_room_of(struct objects *o, struct object_account *a, uint64_t has, uint64_t wants,
		 uint64_t promised_ns);
/* May its user have one name more? */
bool name_room(const struct object_account *a);
/* May who asks have one upload more? -EMFILE, -EUSERS. */
int upload_room(const struct objects *o, const struct task *t);

/* ask.c */
void step_index(struct objects *o, struct task *t);

/* upload.c */
void upload_drop(struct objects *o, struct upload *u);
/* It is not kept; who closes it is told so. */
void upload_lost(struct objects *o, const struct upload *u, int error);
/* What became of one that is no more: 0, or why it was not kept. */
int upload_fate(const struct objects *o, uint64_t id);
/* What a task saves is not kept, or is kept elsewhere: with a commit its upload goes. */
void upload_let(struct objects *o, struct task *t);
struct upload *upload_find(const struct objects *o, const struct task *t, uint64_t id);
/* Of this name: shared by the user, or else (own) of the connection. NULL = none. */
struct upload *upload_of(const struct objects *o, const struct task *t, const char *name,
			 uint32_t bytes, bool own);
/* Does somebody write this name? */
bool upload_names(const struct objects *o, uint64_t context, const char *name, uint32_t bytes);
/* As many write it as one question can look at. */
bool upload_name_full(const struct objects *o, uint64_t context, const char *name, uint32_t bytes);
/* Nobody will see it. */
void upload_unlink(struct objects *o, struct upload *u);
void upload_rename(struct objects *o, struct upload *u, const char *name, uint32_t bytes);
void uploads_init(struct objects *o);
/* CREATE, from its start. */
void upload_create(struct objects *o, struct task *t);
void upload_filled(struct objects *o, struct task *t, const struct object_job *job);
/* COMMIT or SYNC: save what the task's upload holds; on with one that had no room. */
void upload_save(struct objects *o, struct task *t);
void upload_save_on(struct objects *o, struct task *t);
void upload_saved(struct objects *o, struct task *t, struct object_job *job);
/* Begin what can be begun of those that are committed when they are closed. */
void uploads_look(struct objects *o);
/* A commit of this name is under way that nobody waits for; what can be begun is begun. */
bool closing(struct objects *o, const struct task *me);
/* Another task changes this name, and is at one of the stages: a record of it is under way; a
 * version of it has none yet, and who began that may be dead by now. */
#define TASK_RECORDS (1u << TASK_LOGGING)
#define TASK_SAVES (1u << TASK_SAVING | 1u << TASK_SAVED)
bool changing(const struct objects *o, const struct task *me, uint32_t stages, const char *name,
	      uint32_t bytes);
/* The version that it saved is older than what has the name by now. */
bool overtaken(const struct objects *o, const struct task *t);
/* Charge what is written by now. */
void uploads_watch(struct objects *o);

#endif
