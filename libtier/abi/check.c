/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proof that the shared formats are what their headers say: sizes and the offsets that matter.
 * Nothing here makes code; a failing line stops the build.
 */
#include <stddef.h>

#include "libtier/abi/disk.h"
#include "libtier/abi/handover.h"
#include "libtier/abi/object.h"
#include "libtier/abi/net.h"
#include "libtier/abi/ring.h"
#include "libtier/abi/tier_mem.h"
#include "libtier/abi/wire.h"

#define SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), #type " has a size")
#define AT(type, field, offset)                                                                    \
	_Static_assert(offsetof(struct type, field) == (offset), #type "." #field " has a place")

SIZE(abi_layout, 64);
SIZE(abi_part, 192);
AT(abi_part, layout, 64);
SIZE(abi_geometry, 3136);
AT(abi_geometry, part, 64);

SIZE(abi_index_header, 4096);
AT(abi_index_header, boot_token, 16);
AT(abi_index_header, fingerprint, 112);
AT(abi_index_header, bucket_count, 4032);
AT(abi_index_header, event_offset, 144);
AT(abi_index_header, life, 152);
AT(abi_index_header, closed, 4048);
SIZE(abi_event, 128);
AT(abi_event, key, 32);
SIZE(abi_bucket, 64);
AT(abi_bucket, slot, 8);
AT(abi_bucket, tag, 44);
SIZE(abi_block, 64);
AT(abi_block, state, 32);
SIZE(abi_page, 32);
AT(abi_page, nvme, 16);
AT(abi_page, streams, 28);

SIZE(abi_reader, 24640);
AT(abi_reader, era_begin, 16);
AT(abi_reader, era_done, 24);
AT(abi_reader, slot, 64);
SIZE(abi_region_header, 256);
AT(abi_region_header, sq_tail, 128);
AT(abi_region_header, sq_head, 192);
AT(abi_region_header, slabs_wanted, 216);
AT(abi_region_header, stream_offset, 80);
SIZE(abi_sqe, 64);
AT(abi_sqe, generation, 60);
SIZE(abi_stream, 128);
AT(abi_stream, released, 64);
SIZE(abi_cqe, 32);
SIZE(abi_block_ref, 8);
SIZE(abi_page_ref, 16);
SIZE(abi_put_args, 128);
SIZE(abi_conversation_args, 64);
SIZE(abi_plan_args, 64);
SIZE(abi_access, 16);
SIZE(abi_reserve_args, 64);

SIZE(disk_super, 4096);
SIZE(disk_context, 4096);
AT(disk_context, geometry, 960);
SIZE(disk_catalog, 4096);
SIZE(disk_limit, 80);
SIZE(disk_drive, 16);
SIZE(disk_segment, 4096);
SIZE(disk_record, 256);
AT(disk_record, parent, 88);
AT(disk_record, flushed_lsn, 128);
AT(disk_record, written_ms, 144);
SIZE(handover_head, 64);
AT(handover_head, bytes, 32);
SIZE(handover_context, 4160);
AT(handover_context, spec, 64);
SIZE(handover_block, 96);
AT(handover_block, depth, 72);
SIZE(handover_page, 16);
SIZE(handover_client, 2112);
AT(handover_client, attached, 64);

SIZE(disk_block, 48);
AT(disk_block, keep, 44);

SIZE(tier_mem_create, 144);
AT(tier_mem_create, label, 16);
SIZE(tier_mem_slots, 16);
SIZE(tier_mem_client, 16);
SIZE(tier_mem_status, 136);
AT(tier_mem_status, total, 8);
AT(tier_mem_status, lost, 104);

SIZE(wire_header, 16);
SIZE(wire_hello, 136);
SIZE(wire_welcome, 112);
SIZE(wire_ctx, 3384);
SIZE(wire_ctx_info, 160);
SIZE(wire_done, 64);
SIZE(wire_usage, 64);
SIZE(wire_usage_list, 24);
SIZE(wire_slab, 64);
SIZE(wire_place, 64);
SIZE(wire_admin, 48);
SIZE(wire_text, 24);
SIZE(wire_error, 256);

SIZE(wire_object, 672);
AT(wire_object, mtime_ns, 120);
AT(wire_object, reserved, 128);
AT(wire_object, name, 160);
SIZE(wire_object_info, 112);
SIZE(wire_object_names, 24);
SIZE(wire_object_name, 24);
SIZE(wire_object_hold, 352);
SIZE(abi_names_slot, 64);
SIZE(abi_names, 4096);
SIZE(disk_object, 144);
AT(disk_object, store_id, 24);
AT(disk_object, mode, 88);
AT(disk_object, inode, 112);
_Static_assert(sizeof(struct disk_object) + 2 * ABI_OBJECT_NAME_BYTES +
		       4 * DISK_OBJECT_CHUNKS_MAX <= DISK_OBJECT_RECORD_MAX, "records fit");
SIZE(net_header, 16);
SIZE(net_hello, 128);
SIZE(net_probe, 72);
SIZE(net_found, 48);
SIZE(net_ask, 88);
AT(net_ask, wait_ns, 72);
SIZE(net_grant, 56);
SIZE(net_pages, 40);
SIZE(net_path, 48);
SIZE(net_places, 56);
SIZE(net_at, 48);
SIZE(net_word, 32);
SIZE(net_offer, 104);
SIZE(net_pick, 40);
SIZE(net_pick_page, 8);
SIZE(net_picked, 40);
SIZE(net_picked_page, 8);
SIZE(net_far, 16);
SIZE(net_want, 128);
SIZE(net_placed, 288);
SIZE(net_admin, 176);
SIZE(net_text, 24);
