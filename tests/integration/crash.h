/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kill loop and the storm: clients that put, read, delete and raise epochs of a real daemon
 * while it is killed (or while memory is moved under their hands), and what must hold all the time.
 *
 * Each worker process owns a context and is its only writer; everybody reads all of them. What a
 * writer knows of its keys stands in a board of shared memory, one word a key: state and version.
 * The bytes of a page name worker, key, version and page, and all else follows from these: a page
 * that is torn, stale or another's is seen wherever it is read.
 *
 *   NEVER(v)   -put begun->     MAYBE(v)    absent or v
 *   MAYBE(v)   -durable ack->   DURABLE(v)  must be there, over any crash
 *   any        -delete, raise-> GOING(v)    absent or v, until it is acknowledged
 *   GOING(v)   -ack->           NEVER(v+1)  must not be there, over any crash
 *
 * crash.c has the main function.
 */
#ifndef TIER_TESTS_CRASH_H
#define TIER_TESTS_CRASH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <tier.h>

#define CRASH_WORKERS 4u
#define CRASH_KEYS 400u /* of one worker */
#define CRASH_PAGES 6u  /* of a block of the "tiny" geometry */
#define CRASH_PAGE_BYTES 4096u
#define CRASH_BLOCK_BYTES (CRASH_PAGES * CRASH_PAGE_BYTES)
#define CRASH_RUN 8u /* blocks of one put, of one prefix that is checked, at most */
_Static_assert(CRASH_KEYS % CRASH_RUN == 0, "prefixes hold all keys");
#define CRASH_SCRAP CRASH_WORKERS /* "worker" of keys that nobody answers for */
#define CRASH_CHURN (CRASH_WORKERS + 1u) /* "worker" of the storm's passing contexts */

enum crash_state { CRASH_NEVER = 0, CRASH_MAYBE, CRASH_DURABLE, CRASH_GOING,
		   CRASH_STATES };

/* One worker's accounts; written by the worker alone. */
struct crash_worker {
	uint64_t cell[CRASH_KEYS]; /* state:8 | version:56 */
	uint64_t since_ns;         /* when the operation under way began; 0 = none */
	uint64_t op;               /* index into crash_op_name */
	uint64_t done;             /* operations that the daemon took part in, and that succeeded */
	uint64_t refused;          /* answered with a promised error: with a daemon there, */
	uint64_t refused_away;     /* and with none */
	uint64_t pages;            /* read and verified whole */
	uint64_t durable_acks;     /* blocks */
	uint64_t deletes, epochs, reattached, stale;
	uint64_t longest_ns, longest_op;
};

struct crash_board {
	struct crash_worker worker[CRASH_WORKERS];
	uint64_t stop;
	uint64_t boots;   /* raised before each start of a daemon */
	uint64_t churned; /* storm: contexts that came and went */
	uint64_t churn_pages;
	uint64_t judged[CRASH_STATES + 1]; /* cells that checks found in a state; last: skipped */
	uint64_t matched; /* blocks that checks found by the prefix of a prompt */
	uint64_t failed;  /* a child of a child found something wrong */
	char socket[108];
};

/* What one process needs to speak with the daemon. */
struct crash_client {
	struct crash_board *board;
	uint32_t number; /* of a worker */
	uint64_t random;
	tier *t;
	tier_reader *r;
	tier_geometry *g;
	tier_context *c[CRASH_WORKERS]; /* by worker */
	struct crash_worker *own;       /* NULL = not a worker */
};

/* ---- crash_oracle.c: keys, bytes, cells ------------------------------------------------------ */

void crash_fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
uint64_t crash_random(uint64_t *state);
uint32_t crash_below(uint64_t *state, uint32_t below);

tier_key crash_key(uint32_t worker, uint32_t key);
void crash_fill(uint8_t *page, uint32_t worker, uint32_t key, uint32_t number, uint64_t version);
/* The version that a page carries; fails when any of its bytes is not what it must be. */
uint64_t crash_verify(const uint8_t *page, uint32_t worker, uint32_t key, uint32_t number);

uint64_t crash_cell(enum crash_state state, uint64_t version);
enum crash_state crash_state_of(uint64_t cell);
uint64_t crash_version_of(uint64_t cell);
uint64_t crash_look(const struct crash_board *b, uint32_t worker, uint32_t key);
void crash_set(struct crash_worker *w, uint32_t key, enum crash_state state, uint64_t version);

/* ---- crash_client.c: what clients do --------------------------------------------------------- */

void crash_connect(struct crash_client *c, struct crash_board *b, uint32_t number, uint64_t seed);
/* Until the board says stop. Never returns. */
void crash_work(struct crash_board *b, uint32_t number, uint64_t seed) __attribute__((noreturn));
/* Read key of worker once, by lease or gather, and judge it by its cell. 1 = it was there. */
int crash_read(struct crash_client *c, uint32_t worker, uint32_t key);
const char *crash_op_name(uint64_t op);

/* ---- crash_doomed.c: clients that are killed; storm's passing contexts ----------------------- */

/* Leases, pins, half a put, a full ring and a child of its own; then it waits to be killed. */
void crash_doomed(struct crash_board *b, uint64_t seed) __attribute__((noreturn));
/* Contexts that come, are filled, read and removed, so that slabs change hands. */
void crash_churn(struct crash_board *b, uint64_t seed) __attribute__((noreturn));

/* ---- crash_check.c: what must hold ----------------------------------------------------------- */

/* After a start: every cell's promise, and the daemon's own recount. In a process of its own. */
void crash_check(struct crash_board *b);
/* Everybody has gone: nothing of theirs may be left. Prints what the daemon counted. */
void crash_check_idle(struct crash_board *b, bool storm);

#endif
