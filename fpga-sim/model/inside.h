/* SPDX-License-Identifier: Apache-2.0 */
/* What device.c and window.c share of the golden model's state; nobody else includes it. */
#ifndef TIER_FPGA_INSIDE_H
#define TIER_FPGA_INSIDE_H

#include "device.h"

struct set {
	uint16_t tag[DEVICE_WAYS];
	uint8_t age[DEVICE_WAYS];
	uint16_t valid, dirty; /* a bit a way; dirty and not valid: pending */
	uint8_t pad[12];
};
_Static_assert(sizeof(struct set) == 64, "a set is one cache line");

enum stage {
	FREE, PROBING, WRITE_DUE, WRITE_GIVEN, READ_DUE, READ_GIVEN, CAME, GAVE_UP, HERE, BAD,
};

/* A miss register; or a unit, which has no way and evicts nothing. */
struct miss {
	enum stage stage;
	uint32_t set, way, tries;
	uint64_t line, victim; /* a unit: its first line */
	bool dirty;            /* the victim is */
	enum { NO_ABORT, ABORT_DUE, ABORT_GIVEN } abort;
	uint32_t given;        /* commands, ever */
	uint32_t window;       /* a unit: whose */
	uint64_t held;         /* a unit: a bit for each line that it has, or will have */
};

struct window {
	struct device_prefetch asked;
	bool open, stop, drop, failed, late, refused;
	uint64_t first; /* unit of flash */
	uint64_t begin_at; /* by the device's clock */
	uint32_t taken, mark, freed, released;
	uint32_t unit[DEVICE_UNITS_MAX]; /* of seq, modulo the units */
};

struct device {
	struct device_shape shape;
	struct device_store store;
	struct device_counters count;
	struct device_settings settings;
	struct set *sets;
	struct miss *misses; /* miss registers, then units */
	struct window windows[DEVICE_WINDOWS];
	uint32_t probing, probed; /* the window whose unit is looked up, or WINDOWS; lines so far */
	uint32_t staging[DEVICE_CLASSES]; /* units that are on their way */
	uint32_t turn[DEVICE_CLASSES];    /* of equals the window that goes first */
	uint32_t dirty, clean_set; /* lines that are dirty and not being cleaned; next set */
	uint32_t cleaning;         /* cleaning registers in use */
	uint32_t reading;          /* miss registers in use, and units on their way */
	uint8_t *dram;            /* of all places; NULL without a store */
	uint64_t *poison;         /* poison_words of each place */
	uint64_t dram_bytes, stage_place;
	uint32_t line_bytes, poison_words, id_bits, ids;
};

static inline bool is_unit(const struct device *d, uint32_t id)
{
	return id >= d->shape.mshrs && id < d->shape.mshrs + d->shape.units;
}

static inline bool is_cleaner(const struct device *d, uint32_t id)
{
	return id >= d->shape.mshrs + d->shape.units;
}

static inline uint32_t last_unit(const struct device *d)
{
	return d->shape.mshrs + d->shape.units;
}

/* The unit that holds the line, as an id; or `ids`. */
uint32_t unit_of(const struct device *d, uint64_t line);
/* The way with this tag that is not empty, or DEVICE_WAYS. */
uint32_t find_tag(const struct set *s, uint16_t tag);
/* The cleaning register of this line, or `ids`. */
uint32_t cleaner_of(const struct device *d, uint32_t set, uint32_t way);
void cleaning_ends(struct device *d, uint32_t id, bool came);
/* Does a miss register write this line to flash? */
bool line_leaves(const struct device *d, uint64_t line);
/* A unit's command is answered for good. */
void unit_ends(struct device *d, uint32_t id, bool came);

#endif
