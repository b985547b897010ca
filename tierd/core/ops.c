/* SPDX-License-Identifier: Apache-2.0 */
/* The ring operations by their numbers; the file of each says what it is (op/op.h). */
#include "tierd/core/state.h"

extern const struct op_ops op_nop, op_put_reserve, op_put_commit, op_put_abort, op_fetch,
	op_fetch_pages, op_pin, op_unpin, op_delete, op_cancel, op_drain, op_prefetch, op_migrate,
	op_stream, op_session, op_plan, op_reserve;

const struct op_ops *const core_ops[ABI_OP_COUNT] = {
	[ABI_OP_NOP] = &op_nop,
	[ABI_OP_PUT_RESERVE] = &op_put_reserve,
	[ABI_OP_PUT_COMMIT] = &op_put_commit,
	[ABI_OP_PUT_ABORT] = &op_put_abort,
	[ABI_OP_FETCH] = &op_fetch,
	[ABI_OP_FETCH_PAGES] = &op_fetch_pages,
	[ABI_OP_PIN] = &op_pin,
	[ABI_OP_UNPIN] = &op_unpin,
	[ABI_OP_DELETE] = &op_delete,
	[ABI_OP_CANCEL] = &op_cancel,
	[ABI_OP_DRAIN] = &op_drain,
	[ABI_OP_PREFETCH] = &op_prefetch,
	[ABI_OP_MIGRATE] = &op_migrate,
	[ABI_OP_STREAM] = &op_stream,
	[ABI_OP_CONVERSATION] = &op_session,
	[ABI_OP_PLAN] = &op_plan,
	[ABI_OP_RESERVE] = &op_reserve,
};
