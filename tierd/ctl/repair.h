/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looking at a store without its daemon, and repairing what can be repaired: for `tierctl check
 * --repair`. It speaks the format through the core's pure half (core/unit/store.h) and never writes
 * without being told to; a file that is not a store of this version is left alone in any case.
 */
#ifndef TIERD_CTL_REPAIR_H
#define TIERD_CTL_REPAIR_H

#include <stdbool.h>
#include <stdint.h>

struct repair_options {
	const char *path;
	bool repair; /* else look only */
	bool data;   /* also read every block's bytes */
	const char *remove; /* a context to end, by its name; NULL = none */
	const char *objects; /* the folder of objects; NULL = where it is by default */
};

struct repair_report {
	uint64_t segments, free, rotten, unreadable; /* rotten: a header that does not verify */
	uint64_t records, records_bad, blocks;       /* blocks: some may be stale */
	uint64_t orphans;                            /* blocks of contexts the catalog lost */
	uint64_t pages_read, pages_bad;              /* with data */
	uint64_t objects, objects_read, objects_bad;
	uint64_t found, repaired;                    /* faults, and those that are gone now */
	bool removed;                                /* the context */
};

/*
 * Look at the store; each finding and each deed is told in a line of words. Returns 0 when it could
 * be looked at (the report says what is wrong), or a negative errno after telling why not: -EBUSY a
 * daemon has it, -EBADMSG not a store, -EPROTO of another version, -ENOENT no such context.
 */
int repair_store(const struct repair_options *options, struct repair_report *report,
		 void (*tell)(void *arg, const char *line), void *arg);

#endif
