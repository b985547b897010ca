/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an operator sees: questions in, JSON documents out (README.md has their shapes). Pure
 * look-ups between events; what has to be done first (evict, drain) is told to the caller.
 */
#ifndef TIERD_OBS_OBS_H
#define TIERD_OBS_OBS_H

#include "libtier/base/hist.h"
#include "tierd/core/core.h"
#include "tierd/object/object.h"
#include "tierd/obs/trace.h"

#define OBS_FACTS_MAX 16u
#define OBS_LATENCIES_MAX 24u
#define OBS_WHY_BYTES 232u

/* What stands behind a tier (I12: emulation says so). */
struct obs_tier {
	bool present;
	bool emulated;
	bool device; /* its memory is not the host's */
	char backend[32];
	char detail[128];
};

/* One thing the host has or lacks, as the operator should read it. */
struct obs_fact {
	const char *name;
	char value[112];
};

struct obs_latency {
	const char *name;
	const char *klass; /* NULL = of no class */
	const struct hist *hist;
};

/* What the configuration allows (tierd.conf). */
struct obs_limits {
	uint32_t clients, user_connections, user_contexts;
	uint64_t staging_bytes;         /* of a client */
	uint32_t requests, puts, pins; /* of a client */
	uint32_t pin_percent, quarantine_percent;
	uint64_t table_bytes; /* of all contexts together */
};

/* A context that could not be made at the start. */
struct obs_aside {
	char name[ABI_NAME_BYTES];
	uint32_t owner_uid;
	int error; /* negative errno */
	char why[OBS_WHY_BYTES];
};

/* What the host says of our memory, beside what the core says (tierd/recount.c). */
struct obs_ground {
	uint64_t charged;  /* by the core, bytes */
	uint64_t written;  /* ... of pages that somebody may read */
	uint64_t resident; /* by fstat */
	uint64_t found;    /* by SEEK_DATA and SEEK_HOLE */
	uint64_t foreign;  /* found where nothing is charged */
	uint64_t missing;  /* written, and not found */
};

struct obs_recount {
	struct obs_ground tier[ABI_MEM_TIERS];
	uint64_t index_resident;
	uint32_t regions, descriptors; /* memfds: that we made, that are open for writing */
	uint64_t region_bytes, mapped; /* address space of these, by /proc/self/maps */
	bool store;
	uint64_t store_bytes, store_length, store_allocated, store_holes;
	bool busy; /* workers were at it: what changes is not judged */
};

struct shell;
typedef void (*obs_tell)(void *arg, const char *what);

/* Filled by the shell at start; counters of the loop by the loop. */
struct obs {
	struct core *core;
	const struct objects *objects; /* NULL = none are kept */
	const char *version;
	const char *socket;
	const char *store; /* path; NULL = no store */
	const char *drive[CORE_DRIVES_MAX]; /* paths; [0] as above */
	uint32_t drives;
	uint64_t boot_token;
	uint64_t started_ns, ready_ns;
	uint32_t workers;
	uint32_t uid;
	struct obs_tier tier[ABI_TIER_COUNT];
	struct disk_super super;
	struct obs_fact fact[OBS_FACTS_MAX];
	uint32_t facts;
	struct obs_latency latency[OBS_LATENCIES_MAX];
	uint32_t latencies;
	struct obs_limits limits;
	struct core_recovery recovery;
	uint64_t recovery_ns;
	struct core_handover handover; /* what was taken from the former daemon */
	struct obs_aside *aside; /* owned by the shell */
	uint32_t asides;
	const char *cold_kind; /* NULL = cold tables are in DRAM; else where, */
	const uint64_t *cold_bytes; /* ... and how many there are */
	uint64_t fixed_bytes; /* of memory, beside the tiers, before there is a context or client */
	uint64_t turns, sleeps;
	uint64_t gave_way; /* turns that ended in a short sleep for a client's sake */
	uint64_t turn_ns_most; /* the longest, without its sleep */
	uint64_t event_ns_most; /* the longest event of the core */
	/* Recount with the host; tells each disagreement, returns how many. */
	uint64_t (*recount)(struct shell *shell, struct obs_recount *out, obs_tell tell, void *arg);
	struct shell *shell;
	struct trace *trace; /* NULL = none can be taken */
	uint64_t holes_filled; /* bytes that readers made appear, given back since */
	uint64_t memory_foreign; /* pieces whose NUMA policy others had set, or on another node */
	uint64_t memory_lost; /* bytes that were given back and that somebody's pipes keep */
};

/* Say a fact; format as printf. More than OBS_FACTS_MAX are dropped. */
void obs_fact(struct obs *o, const char *name, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
void obs_latency(struct obs *o, const char *name, const char *klass, const struct hist *hist);

/* One connection, told by the front. */
struct obs_connection {
	uint32_t id;
	char name[32];
	uint32_t uid, gid;
	int32_t pid;
	bool open; /* false: ended, its process may still hold leases */
	bool operator_;
	uint64_t staging_bytes, region_bytes;
	uint64_t taken, posted; /* requests, completions */
	uint64_t since_ns;
};

/* What has to be asked of the core before there is an answer. */
enum obs_deed_kind { OBS_DEED_NONE = 0, OBS_DEED_EVICT, OBS_DEED_DRAIN, OBS_DEED_QUOTA,
		     OBS_DEED_UPGRADE, OBS_DEED_POLICY, OBS_DEED_DRIVE };
struct obs_deed {
	enum obs_deed_kind kind;
	uint32_t context_id;
	uint32_t tier;
	uint64_t bytes;
	struct core_quota quota;
	const char *policy; /* its name, of the registry */
	uint64_t store_id; /* of a drive */
	enum core_drive_deed drive;
};

struct obs_question {
	const char *verb;
	const char *args; /* JSON text; "" = none */
	bool operator_;
	uint32_t uid; /* of who asks */
	uint64_t now_ns;
	const struct obs_connection *connection; /* all of them */
	uint32_t connections;
	uint64_t answer_bytes; /* of answers that their connections have not read */
};

/*
 * 0: *json is the document, to be freed with free(). -EINPROGRESS: do the deed, then obs_done
 * makes the document of its value. Errors: -EPERM operator only, -ENOENT no such verb, context
 * (that who asks may know of) or block, -EINVAL arguments, -ENOMEM; why says more.
 */
int obs_answer(const struct obs *o, const struct obs_question *question, char **json,
	       struct obs_deed *deed, char why[OBS_WHY_BYTES]);
char *obs_done(enum obs_deed_kind kind, uint64_t value);

/* The context of that name, or -ENOENT. For operators, who see all of them. */
int64_t obs_context_id(const struct core *core, const char *name);

/* Names of tiers and classes as the documents have them. */
extern const char *const obs_tier_name[ABI_TIER_COUNT];
extern const char *const obs_class_name[ABI_CLASS_COUNT];

#endif
