/* SPDX-License-Identifier: Apache-2.0 */
/* What the core asks of the shell: actions, answers, operations and copies from their pools. */
#ifndef TIERD_CORE_IO_ACTIONS_H
#define TIERD_CORE_IO_ACTIONS_H

#include "tierd/core/core.h"

/* actions.c */
struct core_action *core_push(struct core *c, enum core_action_kind kind);
struct core_io *core_io_get(struct core *c, uint32_t klass, uint32_t client);
void core_io_put(struct core *c, struct core_io *io);
struct core_copy *core_copy_get(struct core *c, uint32_t klass, uint32_t client);
void core_copy_put(struct core *c, struct core_copy *copy);
void core_reply(struct core *c, uint64_t token, int res, uint64_t value);

#endif
