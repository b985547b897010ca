/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What clean.c (which segment, which step), clean_gather.c (which blocks together) and clean_copy.c
 * (their bytes) share. Nobody else includes it.
 */
#ifndef TIERD_CORE_CLEAN_PRIV_H
#define TIERD_CORE_CLEAN_PRIV_H

#include "tierd/core/state.h"

/* The class of the cleaner's operations now. */
uint32_t clean_class(const struct core *c);

/* Where what it moves goes, of the store it moves it to. */
enum store_stream clean_stream(const struct drive *dv);

/* Choose the batch's next run. 0, -ENOENT no block is left, -ENOSPC. */
int clean_gather(struct core *c, struct drive *dv, struct run *run);

/* Are there more beginnings of chains in the segment than it has records? Then holes tear runs. */
bool clean_is_torn(struct core *c, const struct drive *dv);

/* The next run as its record has it, less its dead. 0, -ENOENT none left in the part of the summary
 * that was read, -ENOSPC. */
int clean_gather_run(struct core *c, struct drive *dv, struct run *run);

/* Is the block still in the cleaner's segment? */
bool clean_there(const struct core *c, const struct drive *dv, const struct context *x,
		 uint32_t slot);

/* Read and write more of the batch's data. True: something is under way. Then at == runs is the
 * end, unless no operation was to be had; or the batch has failed. */
bool clean_copy(struct core *c, struct drive *dv);

#endif
