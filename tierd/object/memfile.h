/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of one object: a memfd of the CXL tier's memory, written once, sealed for ever, opened by
 * each client for reading only. None of these blocks for longer than a page fault.
 */
#ifndef TIERD_OBJECT_MEMFILE_H
#define TIERD_OBJECT_MEMFILE_H

#include <stdbool.h>

#include "tierd/backend/backend_ops.h"

/* An empty one, 0600, to be filled. ops: the tier's memory. Errors: -EMFILE, -ENOMEM. */
int memfile_make(const struct mem_ops *ops);

/*
 * Nobody changes its length any more; -EBUSY, -EPERM as fcntl says. memfile_seal: nor its bytes,
 * -EBUSY while somebody has it mapped for writing.
 */
int memfile_fix_length(int fd);
int memfile_seal(int fd);

/* A descriptor of its own for a client: flags of open(2). Errors: -EMFILE. */
int memfile_share(int fd, int flags);

/* Has nobody but us a descriptor or a mapping of it, on the way in a socket included? */
bool memfile_is_ours(int fd);

#endif
