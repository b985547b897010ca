/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host of the experiments, the same in front of the RTL and of the model: a stream of lines
 * read in order by many readers at once, each with a line of its own and a few flits under way;
 * beside it, if wanted, a reader of random lines. And the drive behind: a latency, and a rate that
 * all share.
 */
#ifndef TIER_FPGA_READERS_H
#define TIER_FPGA_READERS_H

#include <stdbool.h>
#include <stdint.h>

#define READERS 512u       /* lines at a time: the host is never what a stream waits for */
#define READER_FLITS 2u    /* under way of each */
#define READER_RANDOM 0xffffu /* the reader of a random request */
#define READER_AHEAD 0xfffeu  /* of a request that only makes its line come */
#define READER_DELAY 40u   /* cycles, 100 ns at 400 MHz: how finely delays are told apart */
#define READER_DELAYS 8192u
#define READER_UNITS 128u  /* units that can be read at a time, at least those of the device */

/* Cycles are the device's. */
struct exp_setting {
	uint32_t line_log, sets_log, tag_bits;
	uint32_t dirty;           /* per mille of lines that are written, too */
	bool scattered;           /* pieces of the stream lie anywhere, not one after the other */
	bool windows;
	uint32_t random;          /* per mille of requests that go to random lines */
	uint64_t random_lines;    /* those, from the end of flash */
	double link_cycles;       /* from one flit to the next */
	double flash_cycles;      /* from one line to the next, of the drive */
	uint32_t flash_latency, dram_latency;
	uint32_t poll_cycles;     /* from one look at the watermark to the next */
	uint32_t unit_log, units; /* of windows */
	uint32_t class, stage_most; /* of windows; 0: no bound */
	uint32_t demand_cycles;   /* from one random request to the next; 0: by `random` */
	const uint64_t *list;     /* where each line of the stream lies; NULL: as pieces do */
	uint32_t cleans;          /* lines that can be cleaned at a time */
	uint32_t dirty_most, clean_wait; /* lines, 0: none is cleaned; cycles */
};

struct reader {
	uint64_t line; /* of the stream */
	uint32_t asked, answered;
};

struct readers {
	const struct exp_setting *set;
	uint64_t next, end, allowed; /* lines: the next one to take, the last, what may be read */
	uint64_t begin;
	uint64_t rng, done;          /* done: flits of the stream */
	struct reader reader[READERS];
	uint16_t ready[READERS], idle[READERS];
	uint32_t ready_head, ready_count, idle_count;
	double link_at;
	uint32_t under_way; /* random requests */
	uint64_t random_asked;
	double demand_at;
	uint32_t delay[READER_DELAYS + 1]; /* of random requests, by cycles / READER_DELAY */
	/* lines that are to come ahead of their use, with so many under way */
	const uint64_t *ahead;
	uint32_t ahead_count, ahead_next, ahead_under, ahead_most;
	/* units that are read whole, in order */
	uint64_t unit_done;
	uint32_t unit_flits[READER_UNITS];
};

struct exp_request {
	uint64_t flit;   /* of flash */
	bool write;
	uint16_t reader; /* to readers_answer */
	uint16_t flits;  /* of the line that it stands for: a decision each, with one look-up */
};

/* Lines [from, to) of the stream. */
void readers_begin(struct readers *r, const struct exp_setting *set, uint64_t from, uint64_t to);
/* The next request that the link lets out at this cycle; false: none. */
bool readers_next(struct readers *r, uint64_t now, struct exp_request *q);
/* When it may be asked again: now, later, or UINT64_MAX (after an answer, or more is allowed). */
uint64_t readers_when(const struct readers *r);
void readers_answer(struct readers *r, uint16_t reader);
/* A random request was answered after so many cycles; within how many were so many per mille? */
void readers_delay(struct readers *r, uint64_t cycles);
uint32_t readers_within(const struct readers *r, uint32_t per_mille);
/* So many lines of the stream may be read. */
void readers_allow(struct readers *r, uint64_t lines);
bool readers_end(const struct readers *r);
/* These lines are to come, behind all other requests. */
void readers_ahead(struct readers *r, const uint64_t *lines, uint32_t count, uint32_t most);
/* Where a line of the stream lies, and whether it is written. */
uint64_t readers_place(const struct exp_setting *set, uint64_t line);
bool readers_dirty(const struct exp_setting *set, uint64_t line);
uint64_t readers_random(struct readers *r); /* a random line */

/* The drive: when a command of so many lines is answered. */
struct exp_drive {
	double busy;
};
uint64_t drive_due(struct exp_drive *d, const struct exp_setting *set, uint64_t now,
		   uint32_t lines);

#endif
