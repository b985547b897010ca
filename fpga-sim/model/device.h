/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The golden model of the CXL-hybrid device: a pure state machine, written from docs/fpga.md and
 * the table of registers, not from the RTL. It never waits and knows no clock: its caller says what
 * is to be decided next (in lock-step: what the RTL decided next) and is told what must come of it.
 * With a store it keeps the bytes of DRAM and flash, too; without one any size fits into memory.
 *
 * One thread at a time. All memory is taken by device_open.
 */
#ifndef TIER_FPGA_DEVICE_H
#define TIER_FPGA_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "device_regs.h"

#define DEVICE_WAYS 16u
#define DEVICE_FLIT 64u      /* bytes */
#define DEVICE_AGE_MAX 15u
#define DEVICE_MSHRS_MAX 1024u
#define DEVICE_UNITS_MAX 1024u
#define DEVICE_WINDOWS 4u
#define DEVICE_CLEANS_MAX 1024u
#define DEVICE_CLASSES 4u
#define DEVICE_IDS_MAX (DEVICE_MSHRS_MAX + DEVICE_UNITS_MAX + DEVICE_CLEANS_MAX)

struct device_shape {
	uint32_t sets_log; /* log2 of the sets */
	uint32_t tag_bits; /* flash holds 2^(sets_log + tag_bits) lines; at most 16 */
	uint32_t line_log; /* log2 of the flits of a line */
	uint32_t mshrs;    /* 1 .. DEVICE_MSHRS_MAX */
	uint32_t units;    /* 1 .. DEVICE_UNITS_MAX, a power of two */
	uint32_t unit_log; /* log2 of the lines of a unit, 1 .. 6 */
	uint32_t cleans;   /* lines that can be cleaned at a time, 1 .. DEVICE_CLEANS_MAX */
};

/*
 * Where bytes are kept. line(): the bytes of a line of flash, and in *poison a word of bits for
 * each 64 flits of it (one word for less), both for as long as the store lives.
 */
struct device_store {
	uint8_t *(*line)(void *arg, uint64_t line, uint64_t **poison);
	void *arg;
};

enum device_what {
	DEVICE_HIT = 0,
	DEVICE_MISS = 1,
	DEVICE_JOIN = 2,
	DEVICE_RETRY = 3,
	DEVICE_FILLED = 4, /* the end of a miss: the line has come */
	DEVICE_BROKEN = 5, /* ... could not be read */
	DEVICE_FAILED = 6, /* a request whose line could not be read */
	DEVICE_REFUSED = 7,
	DEVICE_STAGED = 8, /* a read that finds its line in a unit */
	DEVICE_HELD = 9,   /* a window's look-up: the unit will have the line */
	DEVICE_SKIPPED = 10, /* ... or not, since others have it */
	DEVICE_FREED = 11, /* a unit's room is free again */
	DEVICE_CLEANS = 12, /* a dirty line is to be written to flash, and stays */
	DEVICE_PASSED = 13, /* ... the set has none, or it may not be now */
};

struct device_request {
	uint64_t address;    /* bytes */
	bool write, poison;  /* poison: of the data written */
	const uint8_t *data; /* [DEVICE_FLIT], of a write; NULL without a store */
};

/* What was decided, and what is answered when `what` is HIT, FAILED or REFUSED. */
struct device_verdict {
	enum device_what what;
	uint32_t set, way, id;   /* where they mean something; id: a miss register, from
				    `mshrs` on a unit, behind those a cleaning register */
	bool drops;              /* a write took the line from a unit */
	bool evicts, dirty;      /* MISS: a line makes room, which is dirty */
	uint64_t line, victim;
	bool error, poison;          /* of the answer */
	uint8_t data[DEVICE_FLIT];   /* of a read's answer; zeros when it is an error */
};

struct device_command {
	bool write;
	uint32_t cid;   /* its number: 16 bits */
	uint64_t line;  /* of flash */
	uint64_t place; /* of DRAM, in lines (docs/fpga.md) */
	uint32_t lines; /* that it moves */
	bool abort;     /* withdraws the register's command instead */
};

/* A window as the host sees it; win_state's bits. */
enum device_state {
	DEVICE_OPEN = 1,
	DEVICE_ALL = 2,
	DEVICE_BAD = 4,
	DEVICE_LATE = 8,
	DEVICE_STOPPED = 16,
	DEVICE_NOT_TAKEN = 32,
};

/* What win_addr .. win_limit say. */
struct device_prefetch {
	uint64_t address, deadline, lead;
	uint32_t length, class, limit;
};

/* What became of an answer of the drive. */
enum device_end {
	DEVICE_GOES_ON, /* the miss has another command to give */
	DEVICE_CAME,    /* the line is in DRAM: device_fill is to follow */
	DEVICE_GAVE_UP, /* it could not be read: device_fill is to follow */
	DEVICE_STRAY,   /* no command of this number is under way */
};

struct device_counters {
#define DEVICE_COUNTER(name, offset) uint64_t name;
	DEVICE_COUNTERS(DEVICE_COUNTER)
#undef DEVICE_COUNTER
};

struct device_settings {
#define DEVICE_SETTING(name, offset, reset) uint64_t name;
	DEVICE_SETTINGS(DEVICE_SETTING)
#undef DEVICE_SETTING
};

struct device;

/* store: NULL keeps no bytes. Errors: -EINVAL (shape), -ENOMEM. */
int device_open(struct device **out, const struct device_shape *shape,
		const struct device_store *store);
void device_close(struct device *d);

/* A request is looked up (again). Answers are due in the order of these calls. */
void device_request(struct device *d, const struct device_request *r, struct device_verdict *v);

/* A request is answered with an error: it waited for a line that could not be read. */
void device_fail(struct device *d, const struct device_request *r, struct device_verdict *v);

/* The end of a miss or of a unit's command is decided; it must be at its end. */
void device_fill(struct device *d, uint32_t id, struct device_verdict *v);

/* The command that a miss register or a unit has to give now. False: none, or given already. */
bool device_next(const struct device *d, uint32_t id, struct device_command *c);
/*
 * Its command is not answered in time: an abort is the next to give, and an answer to the command
 * itself is a stray from now on. The abort's answer says what became of the command. Errors:
 * -EINVAL: no command is under way, or its abort is.
 */
int device_expire(struct device *d, uint32_t id);
/* It is given; *c is device_next's. */
void device_give(struct device *d, uint32_t id);
/* The drive has answered the command of this number. */
enum device_end device_answer(struct device *d, uint32_t cid, bool error);
/* Something that device_fill is due for? *failed: as BROKEN. */
bool device_at_end(const struct device *d, uint32_t id, bool *failed);

/* --- windows (window.c): orders of the host, by win_go and win_release */
void device_prefetch(struct device *d, uint32_t window, const struct device_prefetch *p);
void device_drain(struct device *d, uint32_t window);
void device_cancel(struct device *d, uint32_t window);
void device_release(struct device *d, uint32_t window, uint32_t units);

/*
 * What windows have to decide at this clock: DEVICE_FREED, or DEVICE_HELD for a look-up; of which
 * window. -ENOENT: nothing. This is the device's choice; `may` says what is right whatever was
 * chosen.
 */
int device_choose(const struct device *d, uint32_t *window, uint64_t now);
bool device_may(const struct device *d, uint32_t window, enum device_what what, uint64_t now);
/* It is decided: a look-up of the window's next line, or its first unit is free. */
void device_probe(struct device *d, uint32_t window, struct device_verdict *v);
void device_free(struct device *d, uint32_t window, struct device_verdict *v);

/*
 * --- cleaning: when more lines are dirty than may be, the next set is looked at (device_clean);
 * waited: for `clean_wait` cycles, so that reads are no reason to wait any longer.
 */
bool device_over(const struct device *d);
bool device_can_clean(const struct device *d);  /* device_over, and a register is free */
uint32_t device_cleaning(const struct device *d); /* lines that are being cleaned */
uint32_t device_dirty(const struct device *d);    /* dirty_lines */
bool device_reads(const struct device *d); /* a read of flash is due or under way */
void device_clean(struct device *d, bool waited, struct device_verdict *v);

/* win_mark and win_state; now is the device's clock, for LATE. */
uint32_t device_mark(const struct device *d, uint32_t window);
uint32_t device_state(struct device *d, uint32_t window, uint64_t now);
/* Is the line of this unit's index held in it? */
bool device_holds(const struct device *d, uint32_t unit, uint32_t index);

/* From bit 0: valid, dirty, age (4 bits), tag (docs/fpga.md). */
uint32_t device_way(const struct device *d, uint32_t set, uint32_t way);

/* The bytes of a place of DRAM, and its words of poison; NULL without a store. */
const uint8_t *device_place(const struct device *d, uint64_t place, const uint64_t **poison);

uint32_t device_ids(const struct device *d);      /* miss registers and units */
uint64_t device_capacity(const struct device *d); /* in bytes */
struct device_counters *device_counters(struct device *d);
struct device_settings *device_settings(struct device *d);

#endif
