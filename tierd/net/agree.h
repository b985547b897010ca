/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the hosts of a fleet agree on by etcd, as pure state: who is there, which epoch a shared
 * context has, and what was deleted from it (R5, R6). No clock, no socket, no JSON: a turn and a
 * raise are sequences of calls, each with one answer. members.c and epochs.c make them of etcd and
 * of tierd; the simulator makes them of a model of both.
 *
 *   member/HOST         address, incarnation                           under HOST's lease
 *   context/DIGEST      epoch; deletions so far; the first that counts in this epoch
 *   deletion/DIGEST/N   up to AGREE_KEYS_MAX keys: the N-th deletion
 *   applied/DIGEST/HOST epoch and deletions that HOST has applied      under HOST's lease
 *
 * G1  Each write is conditional on its record's revision. A call that nobody answered may be done
 *     at any time later, and then it changes nothing.
 * G2  A host's record is under applied/ before it reads what context/ has. Who raises later waits
 *     for that host; what was raised before, the host reads, and applies before it serves.
 * G3  The lease is ours from before it was asked for, and a 32nd shorter: clocks may drift by that.
 * G4  Nothing is served or fetched while an epoch or deletion that was read is not applied here.
 * G5  Bytes that were asked for before a deletion are not published after it, and none are asked of
 *     a host that has done fewer of them than we have: else what was deleted comes back.
 */
#ifndef TIERD_NET_AGREE_H
#define TIERD_NET_AGREE_H

#include <stdbool.h>

#include <stdint.h>

#define AGREE_SHARES_MAX 64u
#define AGREE_KEYS_MAX 64u   /* of one deletion's record */
#define AGREE_LOG_MAX 4096u  /* deletions of one epoch: a raise ends them */
#define AGREE_LOG_PART 32u   /* read at once */
#define AGREE_TRIES 8u

/* A shared context's part. A deletion's number is counted from the fleet's first. */
struct agreed {
	uint8_t digest[32];
	bool shared;
	bool strict;         /* not served, and not fetched, when the lease is over */
	bool known;          /* what etcd has, as far as was read, is applied here (G4) */
	uint64_t epoch;      /* the context's, and */
	uint32_t publishing; /* puts of fetched bytes that tierd has not answered: who calls sets
				both before each call */
	uint64_t deleted;    /* so many are done here */
	/* In this epoch no block here, nor in any copy of the store, is older than the deletions
	   before this one; of another epoch than clean_epoch that is not known. */
	uint64_t clean, clean_epoch;
};

enum agree_do {
	AGREE_KEEP,    /* keep the lease; -ESTALE: it is over */
	AGREE_LEASE,   /* get one */
	AGREE_MINE,    /* read our applied/DIGEST: mod, 0 = it is not there */
	AGREE_SAY,     /* write it, under our lease */
	AGREE_LEAVE,   /* remove it */
	AGREE_READ,    /* read context/ */
	AGREE_PUT,     /* write context/DIGEST; deletions before `first` go */
	AGREE_ADD,     /* the same, with deletion/DIGEST/(deleted) */
	AGREE_RAISE,   /* of this host: the context's epoch */
	AGREE_LOG,     /* read deletion/DIGEST/, first to last */
	AGREE_DELETE,  /* of this host: what that read; durable when it is answered */
	AGREE_APPLIED, /* read applied/DIGEST/, of all hosts */
	AGREE_MEMBERS, /* read member/: mod of ours, and whether it is as it should be */
	AGREE_ENTER,   /* write ours, under our lease */
	AGREE_POOL_READ,  /* member/ and the pool's owners, of one moment (pool.h) */
	AGREE_POOL_CLAIM, /* write that extent `first` is ours; epoch: our record's revision,
			     last: for how long it rests */
	AGREE_DONE,
	AGREE_AWAY, /* etcd does not answer, or others are always first */
};

struct agree_call {
	enum agree_do what;
	uint32_t share; /* its place, of RAISE and DELETE */
	uint8_t digest[32];
	uint64_t epoch, deleted, first, last;
	int64_t mod; /* a write's condition: the record's revision, 0 = it is not there */
};

/* Of context/, applied/ or deletion/ (deleted: its number). */
struct agree_record {
	uint8_t digest[32];
	uint64_t epoch, deleted, first;
	int64_t mod;
};

struct pool;
struct pool_seen;

struct agree_answer {
	int error;   /* -EAGAIN nobody answered; -ESTALE the condition does not hold */
	int64_t mod; /* of the record read or written */
	bool right;  /* MEMBERS */
	const struct agree_record *record;
	uint32_t count;
	const struct pool_seen *pool; /* POOL_READ, POOL_CLAIM */
};

/* What we said under applied/. */
struct agree_told {
	bool used, said; /* said: under this lease */
	uint8_t digest[32];
	uint64_t epoch, deleted;
	int64_t mod; /* negative: not known */
};

struct agree {
	uint64_t lease_ns;
	uint64_t until_ns; /* strict contexts are shared until then */
	struct pool *pool; /* NULL: there is none */
	bool leased;
	struct agree_told told[AGREE_SHARES_MAX];
	/* of this turn */
	uint64_t began_ns;
	bool away, kept, read, entered;
	bool logged;  /* LOG was answered, and DELETE is next */
	bool outside; /* our record under member/ is not as it should be */
	int64_t member_mod;
	uint32_t tries, shares;
	struct agreed *share[AGREE_SHARES_MAX];
	struct agree_record there[AGREE_SHARES_MAX]; /* context/ of each; mod 0 = none */
	bool refused[AGREE_SHARES_MAX];              /* it cannot be applied here, now */
};

/* Without etcd: all that is shared stands. */
void agree_alone(struct agree *a);
/* A turn over these; until it ends they stay. */
void agree_begin(struct agree *a, struct agreed *const *share, uint32_t shares, uint64_t now_ns);
/* The next call of the turn. DONE, AWAY: it is over. */
enum agree_do agree_next(struct agree *a, struct agree_call *c);
void agree_answered(struct agree *a, const struct agree_call *c, const struct agree_answer *r);

/* May it be served, and fetched, at this moment? */
bool agreed_stands(const struct agree *a, const struct agreed *s, uint64_t now_ns);
/* May blocks of this epoch be granted to who has done so many deletions? 0 or -ESTALE. */
int agreed_grants(const struct agree *a, const struct agreed *s, uint64_t epoch, uint64_t deleted,
		  uint64_t now_ns);
/* May bytes be published that were asked for under this epoch, after so many deletions? */
bool agreed_publishes(const struct agree *a, const struct agreed *s, uint64_t epoch,
		      uint64_t deleted, uint64_t now_ns);

/* ---- raising: an epoch, or a deletion, of all hosts ------------------------------------------ */

struct agree_raise {
	uint8_t digest[32];
	bool deletion;
	uint64_t want;   /* the epoch; 0 = one more than there is */
	uint64_t epoch;  /* what it becomes */
	uint64_t ours;   /* the context's epoch here */
	uint64_t number; /* the deletion's */
	bool read, put, done;
	int error; /* -EAGAIN, -EINVAL not larger, -ENOSPC raise the epoch first */
	uint32_t tries;
	struct agree_record there;
	uint32_t laggard; /* its place in the last APPLIED */
};

/*
 * The next call; DONE: every host that is alive has applied it. AWAY: it is not acknowledged, and
 * error says why. Between two APPLIED calls whoever calls waits.
 */
enum agree_do agree_raise_next(struct agree_raise *r, struct agree_call *c);
void agree_raise_answered(struct agree_raise *r, const struct agree_call *c,
			  const struct agree_answer *answer);

#endif
