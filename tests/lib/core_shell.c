/* SPDX-License-Identifier: Apache-2.0 */
/* An action of the core and the event that answers it; see core_shell.h. */
#include "tests/lib/core_shell.h"

bool core_shell_done(const struct core_action *a, struct core_event *e)
{
	*e = (struct core_event){ .kind = CORE_EV_TICK };
	switch (a->kind) {
	case CORE_AC_READ:
	case CORE_AC_WRITE:
		e->kind = CORE_EV_IO_DONE;
		e->io = a->io;
		return true;
	case CORE_AC_COPY:
		e->kind = CORE_EV_COPY_DONE;
		e->copy = a->copy;
		return true;
	case CORE_AC_SYNC:
		e->kind = CORE_EV_SYNC_DONE;
		e->sync.device = a->sync.device;
		e->sync.token = a->sync.token;
		return true;
	case CORE_AC_DISCARD:
		e->kind = CORE_EV_DISCARD_DONE;
		e->discard.device = a->range.device;
		return true;
	case CORE_AC_FENCE:
		e->kind = CORE_EV_FENCE_DONE;
		e->batch = a->batch;
		return true;
	case CORE_AC_SCAN:
		e->kind = CORE_EV_SCAN_DONE;
		return true;
	case CORE_AC_PUNCH:
		e->kind = CORE_EV_PUNCH_DONE;
		e->range = a->range;
		return true;
	default:
		return false;
	}
}

bool core_shell_at_once(const struct core_action *a, struct core_event *e)
{
	if (!core_shell_done(a, e))
		return false;
	if (e->kind == CORE_EV_IO_DONE) {
		e->io->res = (int32_t)e->io->bytes;
		e->io->bad_mask = 0;
	} else if (e->kind == CORE_EV_COPY_DONE) {
		e->copy->res = 0;
		for (uint32_t i = 0; i < e->copy->count; i++)
			e->copy->item[i].crc = 0; /* no bytes: all pages have the same sum */
	}
	return true;
}
