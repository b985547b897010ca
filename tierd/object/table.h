/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of objects: which names a context has, the version behind each, what is charged to
 * whom, and who leaves memory first. Pure: no system call, no clock.
 *
 *   a version   STORED -> COMING -> RESIDENT -> STORED   while a name has it
 *                 |                    |
 *                 forgotten            HELD until nobody has its memory open, then forgotten
 *
 * Every version of a name is charged to its context in NVMe, and where its bytes are in memory (or
 * on their way, or held) in CXL: bytes in whole pages and OBJECT_COST for what comes with them.
 */
#ifndef TIERD_OBJECT_TABLE_H
#define TIERD_OBJECT_TABLE_H

#include "libtier/base/list.h"
#include "tierd/object/record.h"

#define OBJECTS_MAX (1u << 20)
/* In NVMe: an inode, its place in a folder, a record and half of one that is dead. In CXL: an inode
 * and a descriptor. */
#define OBJECT_COST 8192u
#define OBJECT_PRIORITIES (ABI_OBJECT_PRIORITY_MAX + 1)

enum object_tier { OBJECT_CXL, OBJECT_NVME, OBJECT_TIERS };

enum object_state { OBJECT_STORED, OBJECT_COMING, OBJECT_RESIDENT, OBJECT_HELD };

#define OBJECT_NO_USER UINT32_MAX /* an operator: no share is his limit */

/* One user's: what is in his contexts. It is there as long as one of them has an account. */
struct object_user {
	struct object_user *next;
	struct object_account *first;
	uint32_t uid;
	uint64_t accounts, objects, resident, cxl;
};

/* One context's. It is there from the first question on, and goes when its context is gone. */
struct object_index;
struct object_account {
	struct object_account *next;
	struct list gone; /* with others whose contexts are gone */
	struct object_account *sibling; /* of the same user */
	struct object_user *user; /* NULL: nobody asked so far, or an operator's */
	struct object_index *index; /* names in shared memory; NULL: nobody asked for it */
	uint64_t context; /* uid of the store's catalog */
	uint64_t used[OBJECT_TIERS], quota[OBJECT_TIERS];
	uint64_t held; /* of used[OBJECT_CXL]: of versions that no name has any more */
	uint64_t objects, resident;
	uint64_t epoch; /* the latest that was asked with: versions of another are void */
	struct list leaving[OBJECT_PRIORITIES];
};

/* One version. */
struct object {
	struct object *left, *right; /* in the tree of names */
	uint32_t weight;
	bool named;
	enum object_state state;
	int fd; /* RESIDENT, HELD: its memory; -1 */
	uint64_t promised_ns; /* until then no hint makes it leave: one of it was given */
	struct list link; /* RESIDENT: in the order of leaving; else in held or coming */
	struct list own;  /* RESIDENT: the same among its account's */
	struct object_account *account;
	uint64_t context, epoch, version, inode, size, mtime_ns, expires_ms;
	uint32_t mode, priority, shift, chunks;
	uint32_t *crc;
	uint32_t name_bytes;
	char name[];
};

struct object_table {
	struct object *root;
	uint64_t objects; /* that names have */
	uint64_t accounts;
	uint64_t bytes; /* of our memory: versions that have a name, or are held */
	struct object_user *users;
	uint64_t resident; /* versions with memory: each is a descriptor */
	uint64_t used[OBJECT_TIERS], most[OBJECT_TIERS];
	struct list leaving[OBJECT_PRIORITIES]; /* first: leaves next */
	struct list held, coming;
	uint64_t seed;
	struct object_account *bucket[1024];
};

/* seed: a number that clients cannot know. */
void object_table_open(struct object_table *t, const uint64_t most[OBJECT_TIERS], uint64_t seed);
void object_table_close(struct object_table *t); /* closes no descriptor */

/* What a version of so many bytes is charged in either tier. */
uint64_t object_charge(uint64_t size);

/* ---- names --------------------------------------------------------------------------------- */

/* A version that nobody knows of yet. NULL: no memory. */
struct object *object_new(const struct object_record *r);
/* The record of type PUT that tells all of it; name and sums are the version's. */
void object_describe(const struct object *o, struct object_record *r);
/* Of a version that is neither named nor charged. */
void object_free(struct object *o);

/* The context's version of a name, or NULL. */
struct object *object_find(const struct object_table *t, uint64_t context, const char *name,
			   uint32_t bytes);
/* The first name at or (same = false) behind this one in the order of bytes; NULL: none. */
struct object *object_next(const struct object_table *t, uint64_t context, const char *name,
			   uint32_t bytes, bool same);

/* How far a walk over the names of all contexts is; zeros: at its start. */
struct object_place {
	uint64_t context;
	uint32_t bytes;
	char name[ABI_OBJECT_NAME_BYTES];
};
/* The first name behind the place, which moves there. NULL: none, and it is at its start again. */
struct object *object_walk(const struct object_table *t, struct object_place *p);

/*
 * Give a version its name and charge NVMe. What had the name before is returned, without a name and
 * without its charge: the caller lets go of it with object_forget.
 */
struct object *object_enter(struct object_table *t, struct object_account *a, struct object *o);
/* Take the name off a version, and its charge in NVMe. */
void object_leave(struct object_table *t, struct object *o);
/*
 * What a record of the catalog says, in their order; nothing is in memory. Of one that is void
 * (object_record_void) the name has nothing. -ENOMEM.
 */
int object_replay(struct object_table *t, const struct object_record *r, bool is_void);
/* The numbers of all named versions, in their order; free() it. NULL: no memory. */
uint64_t *object_versions(const struct object_table *t);
bool object_version_in(const uint64_t *versions, uint64_t count, uint64_t version);

/* ---- accounts ------------------------------------------------------------------------------ */

/* Of a context, made if there is none. NULL: no memory. */
struct object_account *object_account(struct object_table *t, uint64_t context);
/* NULL: there is none. */
struct object_account *object_account_find(const struct object_table *t, uint64_t context);
/* Frees it when nothing is charged to it. */
void object_account_done(struct object_table *t, struct object_account *a);

/* It is this user's, from now on for good. -ENOMEM. */
int object_own(struct object_table *t, struct object_account *a, uint32_t uid);
/* Three quarters: what one user may have of a table. */
uint64_t object_share(uint64_t most);
/* May its user have so many bytes more in CXL? While no other one has an account: all there are. */
bool object_user_room(const struct object_table *t, const struct object_account *a,
		      uint64_t bytes);

/* Is there room? -EDQUOT: not within the context's quota, -ENOSPC: not in the tier. */
int object_room(const struct object_table *t, const struct object_account *a,
		enum object_tier tier, uint64_t bytes);
void object_take(struct object_table *t, struct object_account *a, enum object_tier tier,
		 uint64_t bytes);
void object_give(struct object_table *t, struct object_account *a, enum object_tier tier,
		 uint64_t bytes);

/* ---- memory -------------------------------------------------------------------------------- */

/* STORED -> COMING; its CXL charge is taken. */
void object_coming(struct object_table *t, struct object *o);
/* COMING -> RESIDENT with this descriptor, or back to STORED (fd < 0) without its charge. */
void object_came(struct object_table *t, struct object *o, int fd);
/* It was opened: it leaves last. */
void object_touch(struct object_table *t, struct object *o);
/* Not soon again: it leaves first. */
void object_leave_next(struct object_table *t, struct object *o);
/* RESIDENT or HELD -> STORED: returns the descriptor, which the caller closes. */
int object_drop(struct object_table *t, struct object *o);
/* RESIDENT, and no name has it any more -> HELD. */
void object_hold(struct object_table *t, struct object *o);
/* Who leaves first; only of this account, if one is given. NULL: nobody is there. */
struct object *object_victim(const struct object_table *t, const struct object_account *a);
/* The same of all of its user's: from the account that has most in memory. */
struct object *object_victim_of_user(const struct object_table *t,
				     const struct object_account *a);

/*
 * Recount everything from the versions, if there are not too many for one event (I17), and from the
 * accounts; tells each disagreement through tell(arg, text) and returns how many there were.
 * extra[]: charges that the caller knows of (uploads).
 */
#define OBJECTS_RECOUNTED_MAX 32768u
uint64_t object_audit(const struct object_table *t, const uint64_t extra[OBJECT_TIERS],
		      void (*tell)(void *arg, const char *what), void *arg);

#endif
