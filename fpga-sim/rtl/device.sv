// The CXL-hybrid device: DRAM in front of flash, behind an AXI4-shaped CXL.mem port. Wiring only;
// docs/fpga.md says what it does. The `did` port reports each decision, in order, for the golden
// model; `bug` plants one when PLANTS is 1 (tb/plants.h lists them) and is nothing otherwise.
// SPDX-License-Identifier: Apache-2.0
`default_nettype none
module device #(
  parameter int SETS_LOG = 10,  // log2 of sets. 2^10 x 16 lines of 4 KiB = 64 MiB, 1/512 of ITME's
  parameter int TAGW = 9,       // bits of a tag, ITME's: flash is 2^9 x one way of all sets
  parameter int LINE_LOG = 6,   // log2 of the 64 B flits of a line; 6: 4 KiB, ITME's
  parameter int MSHRS = 8,      // miss registers; no source says how many ITME has
  parameter int SLOT_LOG = 6,   // log2 of the requests inside; the latency of DRAM x a flit a cycle
  parameter int IDW = 12,       // bits of the host's tags; CXL.mem has 16
  parameter int PLANTS = 0,     // 1: `bug` chooses a planted bug
  localparam int WAYS = 16,     // ITME's
  localparam int WW = 4, localparam int METAW = WAYS * (TAGW + 6),
  localparam int LW = SETS_LOG + TAGW, localparam int FW = LW + LINE_LOG,
  localparam int PW = SETS_LOG + WW, localparam int DW = PW + LINE_LOG,
  localparam int MW = MSHRS > 1 ? $clog2(MSHRS) : 1, localparam int CIDW = 16
) (
  input  logic clk, rst, input logic [5:0] bug,
  // host: M2S Req, M2S RwD, S2M DRS, S2M NDR
  input  logic ar_valid, output logic ar_ready, input logic [IDW-1:0] ar_id,
  input  logic [51:0] ar_addr,
  input  logic aw_valid, output logic aw_ready, input logic [IDW-1:0] aw_id,
  input  logic [51:0] aw_addr,
  input  logic w_valid, output logic w_ready, input logic w_poison, input logic [511:0] w_data,
  output logic r_valid, input logic r_ready, output logic [IDW-1:0] r_id, output logic [1:0] r_resp,
  output logic r_poison, output logic [511:0] r_data,
  output logic b_valid, input logic b_ready, output logic [IDW-1:0] b_id, output logic [1:0] b_resp,
  // registers
  input  logic reg_valid, output logic reg_ready, input logic reg_write,
  input  logic [11:0] reg_addr, input logic [63:0] reg_wdata,
  output logic reg_rvalid, input logic reg_rready, output logic reg_error,
  output logic [63:0] reg_rdata,
  // DRAM controller
  output logic dram_valid, input logic dram_ready, output logic dram_write, dram_wpoison,
  output logic [DW-1:0] dram_flit, output logic [511:0] dram_wdata,
  input  logic mem_valid, output logic mem_ready, input logic mem_poison,
  input  logic [511:0] mem_data,
  // flash controller
  output logic cmd_valid, input logic cmd_ready, output logic cmd_write,
  output logic [CIDW-1:0] cmd_cid, output logic [LW-1:0] cmd_line, output logic [PW-1:0] cmd_place,
  input  logic cpl_valid, output logic cpl_ready, input logic [CIDW-1:0] cpl_cid,
  input  logic cpl_error,
  // the decision of this cycle
  output logic did, output logic [2:0] did_what, output logic [IDW-1:0] did_id,
  output logic did_write, output logic [FW-1:0] did_flit, output logic [WW-1:0] did_way,
  output logic [MW-1:0] did_mshr,
  output logic did_evicts, did_dirty, output logic [LW-1:0] did_victim,
  output logic [METAW-1:0] did_set
);
  if (MW > SLOT_LOG || MSHRS < 1 || TAGW > 16 || FW > 46) $error("illegal parameters");
  wire [5:0] b = PLANTS != 0 ? bug : '0;

  logic req_valid, req_ready, req_write, req_bad, req_poison;
  logic [IDW-1:0] req_id;
  logic [FW-1:0] req_flit;
  logic [511:0] req_data;
  front #(.IDW(IDW), .FW(FW)) u_front (.clk, .rst, .bug_starve(b == 1), .bug_refuse(b == 2),
    .ar_valid, .ar_ready, .ar_id, .ar_addr, .aw_valid, .aw_ready, .aw_id, .aw_addr,
    .w_valid, .w_ready, .w_poison, .w_data,
    .req_valid, .req_ready, .req_write, .req_bad, .req_poison, .req_id, .req_flit, .req_data);

  logic has_free, look_write, data_read, data_poison, answer_write, answer_taken;
  logic [SLOT_LOG-1:0] take_slot, look_slot, data_slot, answer_slot;
  logic [IDW-1:0] look_id, answer_id;
  logic [FW-1:0] look_flit;
  logic [511:0] data;
  logic [SLOT_LOG:0] slots_used;
  slots #(.LOG(SLOT_LOG), .IDW(IDW), .FW(FW)) u_slots (.clk, .rst,
    .bug_leak(b == 3), .bug_poison(b == 4),
    .take(req_valid && req_ready), .has_free, .take_slot, .take_write(req_write),
    .take_poison(req_poison), .take_id(req_id), .take_flit(req_flit), .take_data(req_data),
    .look_slot, .look_write, .look_id, .look_flit, .data_read, .data_slot, .data_poison, .data,
    .answer_slot, .answer_write, .answer_id, .free(answer_taken), .used(slots_used));

  logic ready, end_valid, end_ready, end_broken, hit, pending, can_evict, evicts, dirty;
  logic touch, miss, fill, broken, join_one, again, fail, set_read, set_write;
  logic look_has, mshr_leaves, mshr_free;
  logic [MW-1:0] end_mshr, look_mshr;
  logic [LW-1:0] end_line, line;
  logic [WW-1:0] end_way, hit_way, victim_way, fill_way;
  logic [TAGW-1:0] tag, victim_tag;
  logic [2:0] waiting, pop;
  logic [SLOT_LOG-1:0] came_slot, failed_slot, again_slot, slot;
  logic [SETS_LOG-1:0] read_set, write_set;
  logic [METAW-1:0] word, next_word;
  decide #(.SETS_LOG(SETS_LOG), .TAGW(TAGW), .LINE_LOG(LINE_LOG), .WW(WW), .MW(MW),
    .SLOT_LOG(SLOT_LOG), .IDW(IDW)) u_decide (.clk, .rst,
    .bug_again(b == 5), .bug_pending(b == 6), .ready,
    .end_valid, .end_ready, .end_mshr, .end_broken, .end_line, .end_way,
    .waiting, .pop, .came_slot, .failed_slot, .again_slot,
    .look_slot, .look_write, .look_id, .look_flit,
    .req_valid, .req_ready, .req_write, .req_bad, .req_id, .req_flit, .has_free, .take_slot,
    .set_read, .set_write, .read_set, .write_set, .tag, .hit, .pending, .can_evict,
    .hit_way, .victim_way, .victim_tag, .touch, .miss, .fill, .broken, .fill_way,
    .line, .mshr_leaves, .mshr_free, .look_mshr, .victim(did_victim),
    .join_one, .again, .fail, .write(did_write), .slot, .mshr(did_mshr), .id(did_id),
    .flit(did_flit), .did, .what(did_what), .way(did_way));
  assign did_evicts = evicts;
  assign did_dirty  = dirty;
  assign did_set    = set_write ? next_word : word;

  tags #(.SETS_LOG(SETS_LOG), .W(METAW)) u_tags (.clk, .rst, .bug_forward(b == 7), .ready,
    .read(set_read), .read_set, .word, .write(set_write), .write_set, .write_word(next_word));

  choose #(.TAGW(TAGW), .WAYS(WAYS), .WW(WW)) u_choose (
    .bug_age(b == 8), .bug_victim(b == 9), .bug_pending(b == 10), .bug_dirty(b == 11),
    .bug_old(b == 12),
    .ways_in(word), .tag, .hit, .pending, .hit_way, .can_evict, .evicts, .dirty, .victim_way,
    .victim_tag, .touch, .write(did_write), .miss, .fill, .broken, .fill_way, .next(next_word));

  logic [MW-1:0] flash_mshr;
  logic [LW-1:0] flash_line, flash_victim;
  logic [WW-1:0] flash_way;
  logic flash_dirty;
  logic [MW:0] mshrs_used;
  mshr #(.MSHRS(MSHRS), .MW(MW), .LW(LW), .WW(WW)) u_mshr (.clk, .rst, .bug_leaves(b == 13),
    .look_line(line), .look_has, .look_leaves(mshr_leaves), .look_free(mshr_free), .look_mshr,
    .take(miss), .take_way(victim_way), .take_dirty(dirty), .take_victim(did_victim),
    .release_one(fill), .release_mshr(did_mshr), .end_mshr, .end_line, .end_way,
    .flash_mshr, .flash_line, .flash_victim, .flash_way, .flash_dirty, .used(mshrs_used));

  lists #(.LOG(SLOT_LOG), .MSHRS(MSHRS), .MW(MW)) u_lists (.clk, .rst,
    .bug_join(b == 14), .bug_order(b == 15),
    .start(miss), .append(join_one), .again, .slot, .mshr(did_mshr),
    .came(fill && !broken), .failed(fill && broken),
    .waiting, .came_slot, .failed_slot, .again_slot, .pop);

  logic fence_valid, fence_ready, op_ready;
  logic [MW-1:0] fence_mshr;
  logic [1:0] op_kind;
  wire [SLOT_LOG-1:0] op_slot = miss ? {{(SLOT_LOG-MW){1'b0}}, did_mshr} : slot;
  assign op_kind = fail ? 2'd3 : miss ? 2'd2 : {1'b0, did_write};
  dram #(.SLOT_LOG(SLOT_LOG), .MW(MW), .IDW(IDW), .DW(DW)) u_dram (.clk, .rst,
    .bug_fence(b == 16),
    .op_valid(touch || miss || fail), .op_ready, .op_kind, .op_slot,
    .op_flit({write_set, hit_way, did_flit[LINE_LOG-1:0]}),
    .data_read, .data_slot, .data_poison, .data,
    .dram_valid, .dram_ready, .dram_write, .dram_wpoison, .dram_flit, .dram_wdata,
    .mem_valid, .mem_ready, .mem_poison, .mem_data,
    .fence_valid, .fence_ready, .fence_mshr,
    .answer_slot, .answer_write, .answer_id, .answer_taken,
    .r_valid, .r_ready, .r_id, .r_resp, .r_poison, .r_data, .b_valid, .b_ready, .b_id, .b_resp);

  logic flash_read_up, flash_write_up, flash_error_up, lost_up, stray_up;
  logic [3:0] flash_tries;
  flash #(.MSHRS(MSHRS), .MW(MW), .LW(LW), .PW(PW), .CIDW(CIDW)) u_flash (.clk, .rst,
    .bug_stray(b == 17), .bug_tries(b == 18), .bug_clean(b == 19), .tries_most(flash_tries),
    .fence_valid, .fence_ready, .fence_mshr,
    .look_mshr(flash_mshr), .look_line(flash_line), .look_victim(flash_victim),
    .look_place({flash_line[SETS_LOG-1:0], flash_way}), .look_dirty(flash_dirty),
    .cmd_valid, .cmd_ready, .cmd_write, .cmd_cid, .cmd_line, .cmd_place,
    .cpl_valid, .cpl_ready, .cpl_cid, .cpl_error,
    .end_valid, .end_ready, .end_mshr, .end_broken,
    .read_up(flash_read_up), .write_up(flash_write_up), .error_up(flash_error_up), .lost_up,
    .stray_up);

  device_regs u_regs (.clk, .rst, .req_valid(reg_valid), .req_ready(reg_ready),
    .req_write(reg_write), .req_addr(reg_addr), .req_data(reg_wdata),
    .rsp_valid(reg_rvalid), .rsp_ready(reg_rready), .rsp_error(reg_error), .rsp_data(reg_rdata),
    .ident(64'h5449455244455631), .status(ready), .capacity(64'd1 << FW),
    .line(32'd64 << LINE_LOG), .sets(32'd1 << SETS_LOG), .ways(WAYS), .mshrs(MSHRS),
    .slots(32'd1 << SLOT_LOG), .slots_used({{(31-SLOT_LOG){1'b0}}, slots_used}),
    .mshrs_used({{(31-MW){1'b0}}, mshrs_used}), .flash_tries,
    .reads_up(touch && !did_write), .writes_up(touch && did_write), .refusals_up(fail),
    .hits_up(touch), .misses_up(miss), .joins_up(join_one && b != 20), .retries_up(again),
    .evictions_up(miss && evicts), .dirty_evictions_up(miss && dirty),
    .fills_up(fill && !broken), .broken_fills_up(fill && broken),
    .flash_reads_up(flash_read_up), .flash_writes_up(flash_write_up),
    .flash_errors_up(flash_error_up), .lost_lines_up(lost_up), .strays_up(stray_up));

  stable #(.W(IDW + 52)) check_ar (.clk, .rst, .valid(ar_valid), .ready(ar_ready),
    .data({ar_id, ar_addr}));
  stable #(.W(IDW + 52)) check_aw (.clk, .rst, .valid(aw_valid), .ready(aw_ready),
    .data({aw_id, aw_addr}));
  stable #(.W(513)) check_w (.clk, .rst, .valid(w_valid), .ready(w_ready),
    .data({w_poison, w_data}));
  stable #(.W(1 + CIDW)) check_cpl (.clk, .rst, .valid(cpl_valid), .ready(cpl_ready),
    .data({cpl_error, cpl_cid}));
  wire unused = &{1'b0, look_has, op_ready};
endmodule
`default_nettype wire
