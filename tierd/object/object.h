/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects: what clients ask about them, and what becomes of it (docs/objects.md). The loop thread
 * calls everything here; the table says what there is, threads of files.c do what takes long.
 *
 *   objects_ask -> answered at once, or when its jobs are done -> objects_answer
 */
#ifndef TIERD_OBJECT_OBJECT_H
#define TIERD_OBJECT_OBJECT_H

#include "libtier/base/log.h"
#include "tierd/backend/backend_ops.h"
#include "tierd/object/table.h"

#define OBJECTS_UPLOADS_MAX 4096u
#define OBJECTS_CONNECTION_UPLOADS_MAX 512u
#define OBJECTS_WHY_BYTES 232u

struct objects;
struct object_answer;

/* A context that holds objects, as the store's catalog has it. */
struct objects_context {
	uint64_t uid, epoch;
	uint32_t owner; /* OBJECT_NO_USER: an operator */
};

struct objects_config {
	const char *path;
	uint64_t store_id;
	bool anew; /* the store was just formatted */
	bool buffered;
	bool direct; /* what is larger than memory is opened as the file that it lies in */
	uint64_t most[OBJECT_TIERS];
	uint64_t seed;
	uint64_t wait_ns; /* of an open that names no time of its own */
	const struct mem_ops *mem;
	int wake_fd; /* eventfd: objects_turn has something to do */
	struct log *log;
	const struct objects_context *context;
	uint32_t contexts;
};

/* Reads the catalog. Errors: as object_files_open, -ENOMEM; the log says more. */
int objects_open(struct objects **out, const struct objects_config *config);
/* Finishes what was begun. */
void objects_close(struct objects *o);

/* Whose question it is; comes back with its answer. */
struct object_who {
	uint32_t connection, generation, seq;
};

struct object_ask {
	struct object_who who;
	uint32_t uid;
	bool limited;   /* uid is an ordinary user, not an operator */
	uint32_t owner; /* of the context; OBJECT_NO_USER: an operator */
	uint64_t context, epoch; /* of the catalog */
	uint64_t quota[OBJECT_TIERS];
	bool writable;
	const struct wire_object *message; /* judged (W5); its header says what is asked */
};

/* Not LIST. Errors: -ENOMEM, there will be no answer. */
int objects_ask(struct objects *o, const struct object_ask *ask);

/*
 * LIST: fills a whole answer of at most WIRE_MESSAGE_MAX bytes behind its header; its length. 0: of
 * as many names as one turn looks at none is to be told; the list goes on behind the one in looked.
 */
size_t objects_list(struct objects *o, const struct object_ask *ask,
		    struct wire_object_names *out, char looked[ABI_OBJECT_NAME_BYTES]);

/* An answer that is ready, or NULL; the caller gives it back. */
struct object_answer {
	struct list link;
	struct object_who who;
	int error; /* then why says more; else info is filled in, without its header */
	char why[OBJECTS_WHY_BYTES];
	struct wire_object_info info;
	bool done; /* the answer is DONE, not INFO */
	int fd;    /* for the client; -1 = none */
};
struct object_answer *objects_answer(struct objects *o);
void objects_answered(struct object_answer *a);

/* The connection has ended; its process has: its uploads go (W7), or wait for their last close. */
void objects_connection_gone(struct objects *o, uint32_t connection, uint32_t generation);
void objects_process_dead(struct objects *o, uint32_t connection, uint32_t generation);
/* It will be opened soon, or not soon again. */
void objects_hint(struct objects *o, const struct object_ask *ask);
/* Its names stay in memory for a while. */
void objects_hold(struct objects *o, uint64_t context, const struct wire_object_hold *m);
/* Its epoch was raised: what it has is void, and goes. */
void objects_context_changed(struct objects *o, uint64_t context, uint64_t epoch);
/* No catalog names the context any more: its objects go, a few a turn. */
void objects_context_gone(struct objects *o, uint64_t context);

/* What is due. Each turn of the loop. */
void objects_turn(struct objects *o, uint64_t now_ns);
/* Within how many ns objects_turn is wanted though nothing happens; UINT64_MAX = never. */
uint64_t objects_wanted(const struct objects *o);
/* Nothing is under way. */
bool objects_idle(const struct objects *o);

struct objects_stats {
	uint64_t objects, resident, uploads, held, accounts;
	uint64_t memory; /* beside the tiers: names and uploads */
	uint64_t used[OBJECT_TIERS], most[OBJECT_TIERS];
	uint64_t opened, brought, committed, removed, evicted, rotten;
	uint64_t passed; /* real files that were opened for writing below a PATH of tier run */
};
void objects_stats(const struct objects *o, struct objects_stats *out);

/*
 * Recount, and ask the host of some names, on from where it was asked last: of memory in use that
 * it is as long as its version and sealed, of each version that its file is there. Tells each
 * disagreement, returns how many.
 */
#define OBJECTS_LOOKED_MAX 4096u
uint64_t objects_audit(struct objects *o, void (*tell)(void *arg, const char *what),
		       void *arg);

#endif
