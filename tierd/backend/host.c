/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hbm tier without a GPU: plain host DRAM behind the same interface, so that everything above
 * it runs everywhere. It is no faster than the tier below and says that it is an emulation (I12).
 */
#include "tierd/backend/mem_common.h"

#define SHARE_PERCENT 6

static int host_probe(uint64_t nodes, struct backend_info *info)
{
	(void)nodes;
	*info = (struct backend_info){
		.name = "host",
		.detail = "emulates GPU memory in host DRAM",
		.emulated = true,
		.direct = true,
		.capacity_auto = mem_host_share(SHARE_PERCENT),
	};
	return 0;
}

const struct mem_ops mem_host = {
	.name = "host",
	.probe = host_probe,
	.open = mem_open,
	.close = mem_close,
	.create = mem_create_plain,
	.share = mem_share,
	.revoke = mem_revoke,
	.lend = mem_lend,
	.grant = mem_grant,
	.commit = mem_grant,
	.destroy = mem_destroy,
	.leave = mem_leave,
	.prepare = mem_prepare,
	.punch = mem_punch,
	.resident = mem_resident,
	.bind = mem_bind_none,
	.hint = mem_hint_none,
	.copy = mem_copy,
};
