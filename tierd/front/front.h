/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's front: the only code that speaks with clients. It accepts them, looks at their
 * credentials, hands out descriptors, reads their submission rings and fills their completion
 * rings. What a client wrote is copied once, then judged; a bad value ends that client's connection
 * and nothing else (I3).
 *
 * Everything here is called by the loop thread. What the front cannot do itself (memory of
 * contexts) it asks of the shell through front_ops.
 */
#ifndef TIERD_FRONT_FRONT_H
#define TIERD_FRONT_FRONT_H

#include "libtier/abi/object.h"
#include "libtier/base/log.h"
#include "tierd/front/turn.h"
#include "tierd/object/object.h"
#include "tierd/obs/obs.h"

struct front;
struct shell;

#define FRONT_WHY_BYTES 232u /* of wire_error.text */
#define FRONT_CONTEXT_FDS (1u + ABI_MEM_TIERS)

struct front_ops {
	/*
	 * Make memory for a new context and create it in the core with this token (REPLY follows).
	 * Errors: as core_context_create, why says more.
	 */
	int (*context_create)(struct shell *s, struct disk_context *spec, uint64_t token,
			      uint32_t *id, char why[FRONT_WHY_BYTES]);
	/* The core let go of the context, or did not keep it: give its memory back. */
	void (*context_gone)(struct shell *s, uint32_t id);
	/* Read-only descriptors for a client, which the front closes: index, then memory tiers. */
	int (*context_grant)(struct shell *s, uint32_t id, uint64_t client,
			     int fd[FRONT_CONTEXT_FDS]);
	/* Take back what the client was granted, of all contexts: as memory_revoke. */
	uint32_t (*context_revoke)(struct shell *s, uint64_t client, uint32_t *tiers);
	/* A slab for a device: as mem_ops.lend. */
	int (*slab_lend)(struct shell *s, const struct core_range *range, int *fd, uint32_t *count);
	/* The right to write a place of a put: as mem_ops.grant. */
	int (*place_grant)(struct shell *s, const struct core_range *range);
	/* The daemon is to end soon, and its program to start anew with what it leaves. */
	int (*upgrade)(struct shell *s, char why[FRONT_WHY_BYTES]);
	/* Jobs of the workers: has everything submitted up to the mark ended? (worker.h) */
	uint64_t (*jobs_mark)(struct shell *s);
	bool (*jobs_passed)(struct shell *s, uint64_t mark);
};

struct front_config {
	const char *socket;
	int listening; /* a descriptor of it that listens, and is the front's; 0 = none */
	uint32_t socket_mode;
	uint32_t clients_max; /* <= CORE_CLIENTS_MAX */
	uint64_t staging_max;
	uint32_t user_contexts; /* most that one user owns */
	bool places; /* CXL can be granted for writing (W10) */
	uint64_t boot_token;
	struct core *core;
	struct objects *objects; /* NULL = this daemon keeps none */
	const struct obs *obs;
	struct log *log;
	const struct front_ops *ops;
	struct shell *shell;
};

/* Errors: -ENOMEM, -EMFILE. */
int front_open(struct front **out, const struct front_config *config);

/* Ends every connection without waiting, unmaps everything. No job may be under way. */
void front_close(struct front *f);

/*
 * Before anything is made: would front_listen meet another daemon (-EADDRINUSE), or what is no
 * socket (-EEXIST)? Changes nothing; why else it may not listen is seen then.
 */
int front_look(const char *path, char why[FRONT_WHY_BYTES]);

/* Bind and listen; a socket left behind by a dead daemon is replaced. Errors: -EADDRINUSE ... */
int front_listen(struct front *f, char why[FRONT_WHY_BYTES]);

/* Take no new clients, no new requests and no new questions: the daemon ends. */
void front_unlisten(struct front *f);
/*
 * The same, but who connects queues up for the next daemon: its descriptor, the caller's. Who was
 * accepted before is welcomed until front_end_all, and learns by its region that another one comes.
 */
int front_leave_socket(struct front *f);
/* No request and no question that was taken waits for its answer, nobody for a welcome. */
bool front_answered(const struct front *f);

/* Readable when front_events has something to do. Never read or closed by others. */
int front_fd(const struct front *f);

/* Look after sockets, doorbells and process ends. */
void front_events(struct front *f, struct turn *t);

/* Time-outs of handshakes, memory of ended connections. Before front_events in a turn: a number
 * that it frees was told DEAD in an earlier turn, whose actions have all been carried out. */
void front_tick(struct front *f, struct turn *t);

/* Within how many ns front_tick and front_poll are wanted again though nothing happens; UINT64_MAX
 * = never. Covers clients whose completion ring is full: nothing tells us when they read it. */
uint64_t front_next(const struct front *f);

/*
 * Take entries from the rings of clients that were active within `awake_ns`, feed them to the
 * core. Those that were not are parked: they ring their doorbell first. Returns how many clients
 * are watched and not held back; 0 = the loop may sleep.
 */
uint32_t front_poll(struct front *f, struct turn *t, uint64_t awake_ns);

/* Entries that one front_poll takes at most, of all clients: the core's action queue is bounded. */
#define FRONT_TAKE_MAX 512u

/* ---- the core's actions --------------------------------------------------------------------- */

/* CORE_AC_COMPLETE. */
void front_complete(struct front *f, uint32_t client, const struct abi_cqe *cqe);

/* CORE_AC_WAKE: the next front_flush signals the client. */
void front_wake(struct front *f, uint32_t client);

/* Wake those who wait for completions posted since the last call. */
void front_flush(struct front *f);

/* Was one of these, since the last call, asleep on the processor that woke it? */
bool front_woke_here(struct front *f);

/* CORE_AC_REPLY. False = the token is not of the front. */
bool front_reply(struct front *f, struct turn *t, uint64_t token, int32_t res, uint64_t value);

/* Send what the module of objects has answered. */
void front_objects(struct front *f, struct turn *t);

/* CORE_AC_END. */
void front_end(struct front *f, struct turn *t, uint32_t client, int error, const char *why);

/* End every connection (shutdown). error: what clients find in their region. */
void front_end_all(struct front *f, struct turn *t, int error);

/* ---- handover (abi/handover.h) -------------------------------------------------------------- */

/*
 * All connections have ended: the next client behind *at whose leases may outlive us, and its
 * descriptors, which stay ours. False: there is none.
 */
bool front_leave(const struct front *f, uint32_t *at, struct handover_client *out, int *region,
		 int *process);

/*
 * Before front_listen: a client of the former daemon, gone and not dead. Takes both descriptors in
 * any case. The contexts that it has open are this daemon's of these indexes. Errors: -EBADMSG,
 * -EUSERS, -ENOMEM: its leases are not known.
 */
int front_take(struct front *f, struct turn *t, const struct handover_client *client, int region,
	       int process);

/* Recount connections and what they have in flight: tells each disagreement, returns how many. */
uint64_t front_audit(const struct front *f, void (*tell)(void *arg, const char *what), void *arg);

/* Say what the front found on this host, and where its latencies are kept. */
void front_describe(const struct front *f, struct obs *o);

#endif
