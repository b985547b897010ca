/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cxl tier where no CXL memory is: plain host DRAM. Works on every host; says that it is an
 * emulation (I12), for its latency is DRAM's.
 */
#include "tierd/backend/mem_common.h"

#define SHARE_PERCENT 25

static int memfd_probe(uint64_t nodes, struct backend_info *info)
{
	(void)nodes;
	*info = (struct backend_info){
		.name = "memfd",
		.detail = "plain host DRAM",
		.emulated = true,
		.capacity_auto = mem_host_share(SHARE_PERCENT),
	};
	return 0;
}

const struct mem_ops mem_cxl_memfd = {
	.name = "memfd",
	.probe = memfd_probe,
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
	.bind = mem_bind,
	.hint = mem_hint_none,
	.copy = mem_copy,
};
