/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounce buffers: where the CXL tier is memory of a device that only its backend's copies reach
 * (the simulated one), a drive reads into and writes from ordinary memory, and a copy joins the
 * two. The loop's thread only.
 *
 *   write   bounce_in -> copy -> the drive -> bounce_out
 *   read    bounce_in -> the drive, verified -> bounce_out -> copy -> bounce_end
 */
#ifndef TIERD_BOUNCE_H
#define TIERD_BOUNCE_H

#include "tierd/core/core.h"

struct bounces;

/* Errors: -ENOMEM. */
int bounces_open(struct bounces **out);
void bounces_close(struct bounces *b);

/*
 * The operation has addresses of a buffer from now on. Returns the copy that has to come first, of
 * a write. Without memory for a buffer it is as it was, and fails as memory that has gone does.
 */
struct core_copy *bounce_in(struct bounces *b, struct core_io *io);

/*
 * It has ended: its addresses are its own again. Returns the copy that has to follow, of a read
 * that came; NULL: nothing more, or it was never bounced.
 */
struct core_copy *bounce_out(struct bounces *b, struct core_io *io);

/* That copy has ended. */
void bounce_end(struct bounces *b, const struct core_io *io);

#endif
