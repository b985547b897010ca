/* SPDX-License-Identifier: Apache-2.0 */
/* What the core asks of the shell: actions, answers, operations and copies from their pools. */
#ifndef TIERD_CORE_IO_ACTIONS_H
#define TIERD_CORE_IO_ACTIONS_H

#include "tierd/core/core.h"

#define CORE_ACTIONS_MAX 8192u /* queued for the shell; every producer is bounded below this */

struct actions {
	struct core_action *ring; /* of CORE_ACTIONS_MAX */
	uint32_t head, tail;
	struct core_io *io, *io_free;
	uint32_t ios; /* in use */
	struct core_copy *copy, *copy_free;
	uint32_t copies; /* in use */
};

/* actions.c */
struct core_action *core_push(struct core *c, enum core_action_kind kind);
struct core_io *core_io_get(struct core *c, uint32_t klass, uint32_t client);
void core_io_put(struct core *c, struct core_io *io);
struct core_copy *core_copy_get(struct core *c, uint32_t klass, uint32_t client);
void core_copy_put(struct core *c, struct core_copy *copy);
void core_reply(struct core *c, uint64_t token, int res, uint64_t value);

#endif
