/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lock-step bench: the RTL between a host that asks at random (host.c), a DRAM and a flash
 * controller (parts.c), and the golden model beside it, which replays the RTL's order of decisions
 * and must agree with all that can be seen (lockstep.c). A seed makes a run; run.c has the phases.
 */
#ifndef TIER_FPGA_BENCH_H
#define TIER_FPGA_BENCH_H

#include "cover.h"
#include "device.h"
#include "fpga-sim/port/port.h"
#include "media.h"
#include "nvme.h"
#include "points.h"
#include "pins.h"

#define BENCH_IDS 4096u     /* tags of the host */
#define BENCH_DRAM 128u     /* accesses inside the DRAM controller */
#define BENCH_FLASH 256u    /* commands inside the drives */
#define BENCH_BLOCKS 256u   /* of a command */
#define BENCH_STARVES 40000u  /* cycles beyond clean_wait: then a cleaning should have begun */
#define BENCH_LATE 20000u     /* cycles beyond a time-out: then its abort should have been given */
#define BENCH_PATIENCE 200000u /* cycles without a decision, beside what flash takes */
#define BENCH_RINGS 1000u      /* cycles at rest: then all doorbells have been rung */
#define BENCH_DIFFERENCES 3u   /* are printed; then the run ends */

enum pattern {
	PATTERN_RANDOM, /* any flit of the span */
	PATTERN_STREAM, /* one after the other */
	PATTERN_HOT,    /* most in few lines */
};

/* What a phase does. Shares are per mille. */
struct phase {
	const char *name;
	uint64_t requests;
	enum pattern pattern;
	uint32_t sets, tags;     /* the lines in use: so many sets, so many tags in each */
	uint32_t writes, poisons, bads;
	uint32_t gaps;           /* cycles in which no request begins */
	uint32_t stalls;         /* cycles in which a ready is low */
	bool random;             /* one of many */
	bool full_rate;          /* all hit: a look-up a cycle */
	bool late_ready;         /* ready only after valid was seen */
	uint32_t dram_cycles;    /* latency */
	uint32_t flash_least, flash_most; /* cycles */
	uint32_t slow;           /* commands that take 32 times as long */
	uint32_t errors, doubles; /* of commands: answered with an error, answered twice */
	uint32_t losts;           /* ... never answered: then there must be a time-out */
	uint32_t timeout;         /* cycles; 0: none */
	uint32_t drive_room, dram_room; /* commands, accesses at a time; 0: all there is room for */
	uint32_t windows; /* that the host keeps open, and asks into */
	uint32_t dirty_most, clean_wait; /* lines, cycles; 0 lines: as many as there are */
};

enum ask_state { ASK_FREE, ASK_NEW, ASK_WAITS, ASK_CAME, ASK_FAILED, ASK_AGAIN, ASK_DECIDED };

struct ask {
	enum ask_state state;
	uint64_t at;    /* the cycle in which it was taken */
	uint64_t since; /* ... was told to try again */
	uint16_t reader; /* of an experiment */
	struct device_request request;
	uint8_t data[DEVICE_FLIT];
};

struct answer {
	uint16_t id;
	bool error, poison;
	uint8_t data[DEVICE_FLIT];
};

/* Ids in order; never more than there are. */
struct line {
	uint16_t id[BENCH_IDS];
	uint32_t head, count;
};

/* Answers that are due on one channel, in order. */
struct answers {
	struct answer due[BENCH_IDS];
	uint32_t head, count;
};

struct access {
	bool write, poison, done;
	uint64_t flit, due;
	uint8_t data[DEVICE_FLIT];
};

/* A command that a drive has, or an abort. */
struct order {
	bool used, abort, write, error, moved, twice, lost;
	bool withdrawn;  /* an abort waits until it is answered */
	uint8_t drive;
	uint16_t cid, target; /* target: an abort's */
	uint64_t due, block, metadata;
	uint32_t blocks;
	uint64_t page[BENCH_BLOCKS];
};

/* A queue pair as the drive has it. */
struct queue_pair {
	uint64_t sq, cq; /* where they are; 0: not created */
	uint32_t sq_entries, cq_entries, sq_head, sq_tail, cq_head, cq_tail, phase;
};

struct nvme_drive {
	uint64_t aqa, asq, acq, csts_due;
	uint32_t csts;  /* what a read of it will say */
	uint8_t polls;  /* before it is ready */
	struct queue_pair pair[2];
};

/* What the drives do by the port on which they read and write. */
struct dma {
	enum { DMA_NONE, DMA_ENTRY, DMA_LIST, DMA_POST, DMA_WILD } what;
	bool asked, good;     /* a read was taken; the model says that it may be read */
	uint8_t drive, queue; /* of an entry */
	uint64_t list;        /* where it is read */
	uint32_t listed;      /* pages that it has given so far */
	struct order *order;
	uint8_t want[NVME_ENTRY];
};

/* The drives behind the device (drives.c). */
struct drives {
	struct nvme_drive drive[NVME_DRIVES_MAX];
	struct dma dma;
	struct order order[BENCH_FLASH];
	uint32_t orders, sick; /* sick: how the last drive fails at its start, 0: not */
	bool reads_csts;       /* a read is to be answered, of this drive: */
	uint8_t csts_drive;
	struct media media;
	struct exp_drive exp;  /* of an experiment */
	/* what the answer of the next cycle must be */
	bool answer_due, answer_error;
	uint32_t answer_cid;
};

/* A write to a register of windows, which counts for the model one cycle after it was taken. */
struct order_write {
	bool due;
	uint32_t offset;
	uint64_t value, at;
};

/* What the host knows of a window of its own. */
struct host_window {
	bool open, stopped;
	struct device_prefetch asked;
	uint64_t first;  /* line */
	uint32_t mark;   /* the highest that was read */
	bool must_late, may_late;
};

/* What the daemon asks for now: flits of one line. */
struct serve {
	uint64_t begin, at, end; /* bytes: the next one to ask for lies at `at` */
	uint8_t *data;
	bool write, failed;
	struct sim_flash flash;
};

struct bench {
	struct rtl *rtl;
	struct pins_in in;
	struct pins_out out;
	struct phase phase;
	uint64_t rng, cycle;
	uint32_t differences;
	bool quiet;

	/* what the registers say of the device */
	struct device_shape shape;
	uint32_t slots;
	uint64_t stage_place; /* of DRAM: where units begin */

	/* an experiment's host, instead of the random one; or NULL */
	struct readers *readers;
	struct serve *serve; /* the daemon is the host, or NULL */

	/* host */
	struct ask ask[BENCH_IDS];
	struct line free_ids;
	uint64_t beside_faults; /* answered in phases in which the drive fails */
	uint64_t asked, answered, stream_at, last_decision;
	int ar_id, aw_id, w_id; /* what is offered, or -1 */
	uint64_t slots_full;    /* cycles with a request that found none */
	uint32_t inside;        /* requests that the device has */

	/* DRAM and flash behind the RTL */
	uint8_t *dram;
	uint64_t *dram_poison;
	struct access access[BENCH_DRAM];
	uint32_t access_head, access_count;
	struct drives drives;

	/* golden model */
	struct device *model;
	struct nvme *nvme;
	struct media golden;
	struct line waits[DEVICE_IDS_MAX], came, failed, again;
	struct answers reads, writes;
	uint64_t accesses_due, accesses_done; /* of DRAM: decided, answered */
	uint64_t fence[DEVICE_IDS_MAX];       /* accesses before a command takes its place */
	uint64_t given_at[DEVICE_IDS_MAX];    /* the cycle of its command */
	struct order_write order_write;       /* an order of the host to windows */
	struct host_window window[DEVICE_WINDOWS];
	uint64_t *setting; /* of the model: what the register is that is being written */
	struct covered covered;
	uint64_t clean_since, starves_since; /* cycles: over the limit, or the last that began */
};

uint64_t bench_random(struct bench *b);
bool bench_chance(struct bench *b, uint32_t per_mille);
/* One bit of an address of so many, none of which may be set: each is the capacity or above. */
uint64_t bench_beyond(struct bench *b, uint32_t bits);

/* Something differs: says what, and when. */
void bench_differ(struct bench *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

void bench_cycle(struct bench *b);
uint64_t bench_register(struct bench *b, uint32_t offset);
void bench_set_register(struct bench *b, uint32_t offset, uint64_t value);

/*
 * bug: 0, or a planted one. sick: how the last drive fails at its start, 0: not. Errors: -ENOMEM,
 * -EIO (registers without sense).
 */
int bench_open(struct bench **out, const char *wave, uint8_t bug, uint32_t sick);
void bench_close(struct bench *b);

void line_put(struct line *l, uint16_t id);
uint16_t line_get(struct line *l); /* it must not be empty */

/* host.c: offers requests and takes answers. */
void host_open(struct bench *b);
void host_drive(struct bench *b);
void host_sample(struct bench *b);

/* parts.c: DRAM and its controller. */
int parts_open(struct bench *b);
void parts_close(struct bench *b);
void parts_drive(struct bench *b);
void parts_sample(struct bench *b);

/* drives.c: NVMe drives. */
void drives_open(struct bench *b, uint32_t sick);
void drives_drive(struct bench *b);
void drives_sample(struct bench *b);
uint32_t drives_sickest(void); /* ways to fail at the start */

/* stream.c: opens windows, watches, releases and stops them, all at random. */
void stream_step(struct bench *b);
bool stream_rests(const struct bench *b);
/* A line in or near a window; false: none is open. */
bool stream_line(struct bench *b, uint64_t *line);

/* The registers of window[i].asked, and go. */
void bench_prefetch(struct bench *b, uint32_t i);

/* serve.c: the device of a daemon, by a ring at this path, until a signal. */
int serve_run(struct bench *b, const char *path);
void serve_ask(struct bench *b);
void serve_answer(struct bench *b, const struct ask *a, const struct answer *got);

/* experiment.c: one point of an experiment, and how far the model's clock is from it. */
int experiment_run(struct bench *b, const char *text);

/* lockstep.c: the golden model beside it. */
void lockstep_decision(struct bench *b);
void lockstep_answer(struct bench *b, struct answers *a, const struct answer *got);
void lockstep_command(struct bench *b);
void lockstep_starves(struct bench *b); /* once a cycle */
void lockstep_abort(struct bench *b);
void lockstep_offer(struct bench *b); /* before answers of the same cycle: an abort is offered */
uint32_t lockstep_register(const struct bench *b, uint32_t cid); /* whose command that is */
void lockstep_completion(struct bench *b, uint16_t cid, bool error);
void lockstep_order(struct bench *b, uint32_t offset, uint64_t value);
void lockstep_end(struct bench *b); /* all is at rest: compare what is left */

#endif
