/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store at start-up: open or format it, make the catalog's contexts, read the segments back.
 * Blocking; before the loop runs. Every failure is logged here with what to do.
 */
#ifndef TIERD_RECOVER_H
#define TIERD_RECOVER_H

#include "tierd/core/unit/store.h"
#include "tierd/shell.h"

/* bytes: of a new store. Fills device, core_config's store members and catalog. */
int recover_store(struct shell *s, uint64_t bytes);
void recover_store_close(struct shell *s);

/* Log a failure about the store, once, where its cause is known. Returns rc. */
int recover_explain(struct shell *s, const struct shell_drive *d, int rc, const char *what,
		    const char *advice);
/* The super block, made whole again if its copy is. Errors: as explained. */
int recover_super(struct shell *s, struct shell_drive *d, struct disk_super *super);
/* Write a catalog, with what the one that was read says, into the other slot. */
int recover_catalog_again(struct shell *s, const struct disk_catalog *head);

/* Make sure that what is read next is on the medium. */
int recover_flush(struct shell *s, const struct shell_drive *d);

/* drives.c: before a first drive is made: not if a further path has a drive of a store. */
int drives_home_missing(struct shell *s);
/* The others, after the first: those there are, those to be made, those missing. */
int drives_begin(struct shell *s);
void drives_end(struct shell *s);
/* Whole bytes of data of a store. */
uint64_t drives_capacity(const struct disk_super *super);

/* format.c: a new store on the path; device: a block device, overwritten in place. */
int format_store(struct shell *s, struct shell_drive *d, uint64_t bytes, bool device,
		 struct disk_super *super);

int recover_contexts(struct shell *s);
int recover_segments(struct shell *s);

#endif
