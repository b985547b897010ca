/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Flushes of several files side by side: of a journaling file system they share one commit, and one
 * wait for the device. For the log thread of files.c.
 */
#ifndef TIERD_OBJECT_FLUSH_H
#define TIERD_OBJECT_FLUSH_H

#include <liburing.h>
#include <stdbool.h>
#include <stdint.h>

#define FLUSH_MAX 64u

struct flush {
	struct io_uring ring;
	bool ready; /* else one file is flushed behind the other */
};

void flush_open(struct flush *f);
void flush_close(struct flush *f);

/*
 * What was written to each of 1 to FLUSH_MAX descriptors, and what it takes to read it back, is on
 * the medium. Errors: the first one's; then nothing is known of any of them.
 */
int flush_all(struct flush *f, const int *fd, uint32_t count);

#endif
