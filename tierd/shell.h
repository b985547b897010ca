/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shell around the core: everything that touches the host, in one struct that main.c owns.
 * All of it belongs to the loop thread; workers see only their jobs.
 */
#ifndef TIERD_SHELL_H
#define TIERD_SHELL_H

#include <liburing.h>

#include "tierd/cold.h"
#include "tierd/config.h"
#include "tierd/dispatch.h"
#include "tierd/front/front.h"
#include "tierd/memory.h"
#include "tierd/obs/obs.h"
#include "tierd/worker.h"

#define SHELL_SETS_MAX 64u

/* The command line. */
struct options {
	const char *config; /* NULL = the default file, if there is one */
	bool foreground;
	bool format;
	struct {
		const char *key; /* NULL: value is "key=value" */
		const char *value;
	} set[SHELL_SETS_MAX]; /* in order: --set, --socket, --store */
	uint32_t sets;
};

/* A drive of the store. */
struct shell_drive {
	const char *path; /* in config.store_path */
	struct drive *device;
	struct disk_super super;
	uint64_t home; /* of one that is made: its home's store_id; 0 = it is the home */
};

/* What the catalog says, between reading it and making its contexts. */
struct catalog {
	void *bytes;
	const struct disk_context *context;
	const struct disk_limit *limit;
	uint32_t count, limits;
	struct disk_catalog head;
};

/* What the loop waits for beside the device: one-shot polls in the ring (loop.c). */
enum loop_source { LOOP_FRONT, LOOP_WORKERS, LOOP_SIGNAL, LOOP_SOURCES };

enum loop_phase { LOOP_RUN = 0, LOOP_DRAIN, LOOP_ANSWER, LOOP_SETTLE, LOOP_END };

struct loop {
	bool open;
	struct io_uring ring;
	int fd[LOOP_SOURCES]; /* -1 = not there yet */
	bool armed[LOOP_SOURCES];
	bool ready[LOOP_SOURCES];
	struct turn turn;
	bool tick_wanted;     /* the last turn changed something: the core may want to go on */
	uint64_t ticked_ns;
	uint64_t clock_ns;    /* the core was told the wall clock then */
	uint64_t busy_ns;     /* last time anything went on */
	bool slept;           /* or waited for a device, since it last gave way to a client */
	enum loop_phase phase;
	uint64_t phase_end_ns; /* all between RUN and END are bounded */
	uint32_t signals;
	bool drained;
	bool upgrade; /* what is dirty is left, and this program's file started anew */
	bool restart; /* what is dirty is left, and the service manager starts it anew */
};

/* Where the watch over holes is (holes.c). */
struct holes {
	uint64_t looked_ns;
	uint32_t index, tier;
	uint64_t offset; /* punched up to here */
	bool busy, lost_known;
	int64_t lost_least; /* bytes on the host's lists that are nobody's, the fewest so far */
	uint64_t punched; /* bytes that were given back since */
};

/* Memory that outlives this process, or outlived the one before (handover.c). */
struct handover {
	char program[CONFIG_PATH_BYTES]; /* that an upgrade starts, and its arguments */
	char **argv;
	struct handover_head *list; /* NULL = there is none */
	uint64_t bytes;
	int *fd; /* those beside the list, by name */
	char (*name)[HANDOVER_NAME_BYTES];
	int socket; /* that listens; 0 = none */
	uint32_t count;
	bool *taken; /* the memory of a context of the list */
	const void **index; /* ... and its index, mapped; NULL = none was left */
};

struct shell {
	struct options options;
	struct config config;
	struct config said; /* the same as file and options have it, before paths were split */
	struct log log;
	struct obs obs;
	const struct mem_ops *mem[ABI_MEM_TIERS];
	const struct drive_ops *drive_ops; /* NULL = no store */
	struct shell_drive drive[CORE_DRIVES_MAX]; /* of the store; the first is its home */
	uint32_t drives; /* that are there */
	struct core_config core_config;
	struct catalog catalog;
	bool formatted; /* in this start: there is nothing to recover */
	struct cold *cold; /* NULL = cold tables are in DRAM */
	struct core *core;
	struct memory *memory;
	struct worker_pool *workers;
	struct front *front;
	struct objects *objects; /* NULL = none are kept */
	uint64_t object_cxl;     /* of the CXL tier, theirs */
	struct dispatch dispatch;
	struct holes holes;
	struct loop loop;
	struct exporter *exporter; /* NULL = metrics are not served */
	struct handover handover;
	struct trace trace;
};

/* Tokens of the shell's own calls into the core; those of the front have the top bit. */
#define SHELL_TOKEN_DRAIN 1u

/* serve.c: what the front asks of the shell. */
extern const struct front_ops shell_front_ops;
/* Plan, make memory, create in the core: for clients, and for recovery (token 0, uid set). */
int shell_context_make(struct shell *s, const struct disk_context *spec, uint64_t token,
		       uint32_t *id, char why[FRONT_WHY_BYTES]);

/* kernel.c: look at the host, tell obs. Errors: -ENOSYS without what the protocol needs. */
int kernel_probe(struct obs *obs, struct log *log);
/* So many contexts has the host mappings for, beside those of so many clients; 0 = not known. */
uint32_t kernel_contexts(uint32_t clients);

/* notify.c: tell the service manager, if there is one. */
void notify_ready(const char *status);
void notify_status(const char *format, ...) __attribute__((format(printf, 1, 2)));
void notify_stopping(void);

/* holes.c: give back what readers made the kernel allocate. Each turn. */
void holes_turn(struct shell *s, uint64_t now_ns);

/*
 * exporter.c: metrics over HTTP, if the configuration asks for them. After the loop's descriptors
 * and signals. Errors: -EADDRINUSE, -EACCES ... of a socket, -ENOSYS built without it, -ENOMEM.
 */
int exporter_open(struct shell *s);
void exporter_close(struct shell *s);
/* A snapshot, if a scraper waits for one. Each turn. */
void exporter_turn(struct shell *s, uint64_t now_ns);

/* notify.c: descriptors that the service manager keeps over a restart. Errors: -ENOTCONN ... */
bool notify_keeps(void);
int notify_keep(const char *name, int fd);
void notify_forget(const char *name);
/* All of this has been read. */
void notify_barrier(void);

/* handover.c (abi/handover.h). Steps of start-up: what was left is looked at; its contexts, ... */
int handover_begin(struct shell *s);
void handover_end(struct shell *s);
int handover_contexts(struct shell *s);
/* ... their blocks, behind recovery; its clients. Errors: the start has failed. */
int handover_take(struct shell *s);
int handover_clients(struct shell *s);
/* Is there memory for a context of this spec? It becomes made's, and the core's. */
bool handover_has(const struct shell *s, const struct disk_context *spec);
void handover_memory(struct shell *s, const struct disk_context *spec,
		     const struct core_context_plan *plan, struct context_memory *made,
		     struct core_context_memory *memory);
/* The loop is over: write the list down. Then, all else ended: to whom it goes. */
void handover_leave(struct shell *s);
void handover_send(struct shell *s);

/* objects.c: bytes of a CXL tier of so many that objects get; the module's life. */
uint64_t objects_share(const struct shell *s, uint64_t cxl);
int objects_begin(struct shell *s);
void objects_end(struct shell *s);

/* recount.c: the host's word on what the core counts; obs.h says what is told. */
uint64_t recount_host(struct shell *s, struct obs_recount *out, obs_tell tell, void *arg);

/* loop.c */
int loop_open(struct shell *s);
void loop_close(struct shell *s);
/* From here SIGTERM, SIGINT and SIGHUP are read by the loop. */
int loop_signals(struct shell *s);
/* Returns when the daemon has ended: 0, or -ETIMEDOUT when the device did not let go. */
int loop_run(struct shell *s);

#endif
