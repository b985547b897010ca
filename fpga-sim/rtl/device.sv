// The CXL-hybrid device: DRAM in front of flash, behind an AXI4-shaped CXL.mem port. Wiring only;
// docs/fpga.md says what it does. The `did` port reports each decision, in order, for the golden
// model; `bug` plants one when PLANTS is 1 (the names of the `bug_` ports tell) and is nothing
// otherwise.
// SPDX-License-Identifier: Apache-2.0
`default_nettype none
module device #(
  parameter int SETS_LOG = 10,  // log2 of sets. 2^10 x 16 lines of 4 KiB = 64 MiB, 1/512 of ITME's
  parameter int TAGW = 9,       // bits of a tag, ITME's: flash is 2^9 x one way of all sets
  parameter int LINE_LOG = 6,   // log2 of the 64 B flits of a line; 6: 4 KiB, ITME's
  parameter int MSHRS = 8,      // miss registers; no source says how many ITME has
  parameter int UNITS = 16,     // units of stream windows, a power of two
  parameter int UNIT_LOG = 2,   // log2 of the lines of a unit, 1 to 6
  parameter int CLEANS = 4,     // dirty lines that can be written ahead of their eviction at a time
  parameter int SLOT_LOG = 6,   // log2 of the requests inside; the latency of DRAM x a flit a cycle
  parameter int IDW = 12,       // bits of the host's tags; CXL.mem has 16
  parameter int DRIVES = 2,     // NVMe drives, 1 or 2; ITME has two
  parameter int QUEUE_LOG = 3,  // log2 of the entries of their queues, 1 to 9; a command more waits
  parameter int PLANTS = 0,     // 1: `bug` chooses a planted bug
  localparam int WAYS = 16,     // ITME's
  localparam int WW = 4, localparam int METAW = WAYS * (TAGW + 6),
  localparam int LW = SETS_LOG + TAGW, localparam int FW = LW + LINE_LOG,
  localparam int WINDOWS = 4, localparam int CW = 2, localparam int UW = $clog2(UNITS),
  localparam int SW = SETS_LOG + WW > UW + UNIT_LOG ? SETS_LOG + WW : UW + UNIT_LOG,
  localparam int PW = SW + 1, localparam int DW = PW + LINE_LOG,
  localparam int MW = MSHRS > 1 ? $clog2(MSHRS) : 1, localparam int MANY = MSHRS + UNITS + CLEANS,
  localparam int KW = CLEANS > 1 ? $clog2(CLEANS) : 1,
  localparam int IW = $clog2(MANY), localparam int CIDW = 16
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
  // NVMe drives: their registers; what they read and write here
  output logic mmio_valid, input logic mmio_ready, output logic mmio_write, mmio_drive,
  output logic [12:0] mmio_addr, output logic [63:0] mmio_wdata,
  input  logic mmio_rvalid, output logic mmio_rready, input logic [31:0] mmio_rdata,
  input  logic dma_valid, output logic dma_ready, input logic dma_write,
  input  logic [63:0] dma_addr, input logic [127:0] dma_wdata,
  output logic dma_rvalid, input logic dma_rready, output logic dma_rerror,
  output logic [511:0] dma_rdata,
  // the command that enters a queue in this cycle, the abort, and the answer that came
  output logic cmd, cmd_write, cmd_unit, output logic [CIDW-1:0] cmd_cid,
  output logic [LW-1:0] cmd_line, output logic [PW-1:0] cmd_place,
  output logic abort_valid, abort_ready, output logic [CIDW-1:0] abort_cid,
  output logic cpl_valid, cpl_error, output logic [CIDW-1:0] cpl_cid,
  // the decision of this cycle
  output logic did, output logic [3:0] did_what, output logic [IDW-1:0] did_id,
  output logic did_write, output logic [FW-1:0] did_flit, output logic [WW-1:0] did_way,
  output logic [IW-1:0] did_who, output logic [CW-1:0] did_window,
  output logic did_evicts, did_dirty, output logic [LW-1:0] did_victim,
  output logic [METAW-1:0] did_set
);
  if (IW > SLOT_LOG || MSHRS < 1 || CLEANS < 1 || UNITS < 2 || UNITS > 128 || UNITS != 1 << UW ||
      UNIT_LOG < 1 || UNIT_LOG > 6 || TAGW > 16 || FW > 46 || DRIVES < 1 || DRIVES > 2 ||
      QUEUE_LOG < 1 || QUEUE_LOG > 9 || LINE_LOG < 6 || LINE_LOG + UNIT_LOG > 14)
    $error("illegal parameters");
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
  logic [SLOT_LOG-1:0] take_slot, look_slot, data_slot, answer_slot, came_slot, failed_slot;
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
  logic op_valid, op_ready, op_free, op_first, op_last, unit_has, unit_here, can_take;
  logic staged, probe, probe_first, probe_last, hold, drop, unit_came, unit_broken, unit_free;
  logic [UW-1:0] op_unit, look_unit, probe_unit, unit;
  logic [LW-1:0] op_line, end_unit_line, flash_unit_line, end_mshr_line;
  logic [CW-1:0] op_window;
  logic [UW:0] units_used;
  logic [IW-1:0] end_who, flash_who;
  logic [MW-1:0] look_mshr, did_mshr;
  logic [LW-1:0] end_line, line;
  logic clean_want, clean_must, clean_take, clean_may, clean_found, clean_begin, clean_end;
  logic [KW-1:0] clean_which, holder, cleaned;
  logic [WW-1:0] clean_way, end_clean_way, flash_clean_way, end_mshr_way;
  logic [LW-1:0] clean_line, end_clean_line, flash_clean_line;
  logic [WAYS-1:0] held;
  logic [WW-1:0] end_way, hit_way, victim_way, fill_way;
  logic [TAGW-1:0] tag, victim_tag, clean_tag;
  logic [2:0] waiting, pop;
  logic [SLOT_LOG-1:0] again_slot, slot;
  logic [SETS_LOG-1:0] read_set, write_set, clean_set;
  logic [METAW-1:0] word, next_word;
  decide #(.SETS_LOG(SETS_LOG), .TAGW(TAGW), .LINE_LOG(LINE_LOG), .WW(WW), .MSHRS(MSHRS),
    .MW(MW), .UW(UW), .UNITS(UNITS), .KW(KW), .IW(IW), .SLOT_LOG(SLOT_LOG),
    .IDW(IDW)) u_decide (.clk, .rst,
    .bug_again(b == 5), .bug_pending(b == 6), .bug_skip(b == 21), .bug_torn(b == 33), .ready,
    .end_valid, .end_ready, .end_who, .end_broken, .end_line, .end_way,
    .waiting, .pop, .came_slot, .failed_slot, .again_slot,
    .look_slot, .look_write, .look_id, .look_flit,
    .req_valid, .req_ready, .req_write, .req_bad, .req_id, .req_flit, .has_free, .take_slot,
    .set_read, .set_write, .read_set, .write_set, .tag, .hit, .pending, .can_evict,
    .hit_way, .victim_way, .victim_tag, .touch, .miss, .fill, .broken, .fill_way,
    .op_valid, .op_ready, .op_free, .op_first, .op_last, .op_unit, .op_line,
    .unit_has, .unit_here, .look_unit, .probe_unit, .staged, .probe, .probe_first, .probe_last,
    .hold, .drop, .unit_came, .unit_broken, .unit_free, .unit,
    .clean_want, .clean_must, .clean_take, .clean_set, .clean_may, .clean_found, .clean_way,
    .clean_tag, .clean_begin, .clean_line, .clean_which, .holder, .is_held(held[hit_way]),
    .clean_end, .cleaned,
    .line, .mshr_leaves, .mshr_free, .look_mshr, .victim(did_victim),
    .join_one, .again, .fail, .write(did_write), .slot, .who(did_who), .mshr(did_mshr),
    .id(did_id),
    .flit(did_flit), .did, .what(did_what), .way(did_way));
  wire hit_dirty = word[32'(hit_way)*(TAGW+6)+1];
  assign did_evicts = evicts;
  assign did_dirty  = dirty;
  assign did_set    = set_write ? next_word : word;

  tags #(.SETS_LOG(SETS_LOG), .W(METAW)) u_tags (.clk, .rst, .bug_forward(b == 7), .ready,
    .read(set_read), .read_set, .word, .write(set_write), .write_set, .write_word(next_word));

  choose #(.TAGW(TAGW), .WAYS(WAYS), .WW(WW)) u_choose (
    .bug_age(b == 8), .bug_victim(b == 9), .bug_pending(b == 10), .bug_dirty(b == 11),
    .bug_old(b == 12), .bug_held(b == 32), .held, .clean_found, .clean_way, .clean_tag,
    .cleaned(clean_end),
    .ways_in(word), .tag, .hit, .pending, .hit_way, .can_evict, .evicts, .dirty, .victim_way,
    .victim_tag, .touch, .write(did_write), .miss, .fill, .broken, .fill_way, .next(next_word));

  logic [LW-1:0] flash_line, flash_victim;
  logic [WW-1:0] flash_way;
  logic flash_dirty;
  logic [MW:0] mshrs_used;
  wire [MW-1:0] flash_mshr = flash_who[MW-1:0];
  wire flash_of_unit = flash_who >= IW'(MSHRS);
  wire [UW-1:0] flash_unit = UW'(flash_who - IW'(MSHRS));
  wire end_of_unit = end_who >= IW'(MSHRS);
  wire end_of_clean = end_who >= IW'(MSHRS + UNITS);
  wire flash_of_clean = flash_who >= IW'(MSHRS + UNITS);
  assign end_line = end_of_clean ? end_clean_line : end_of_unit ? end_unit_line : end_mshr_line;
  assign end_way  = end_of_clean ? end_clean_way : end_mshr_way;
  mshr #(.MSHRS(MSHRS), .MW(MW), .LW(LW), .WW(WW)) u_mshr (.clk, .rst, .bug_leaves(b == 13),
    .look_line(line), .look_has, .look_leaves(mshr_leaves), .look_free(mshr_free), .look_mshr,
    .take(miss), .take_way(victim_way), .take_dirty(dirty), .take_victim(did_victim),
    .release_one(fill), .release_mshr(did_mshr), .end_mshr(end_who[MW-1:0]),
    .end_line(end_mshr_line), .end_way(end_mshr_way),
    .flash_mshr, .flash_line, .flash_victim, .flash_way, .flash_dirty, .used(mshrs_used));

  units #(.UNITS(UNITS), .UW(UW), .UNIT_LOG(UNIT_LOG), .LW(LW)) u_units (.clk, .rst,
    .bug_both(b == 22), .bug_here(b == 23),
    .look_line(line), .has(unit_has), .has_here(unit_here), .has_unit(look_unit),
    .probe, .first(probe_first), .hold, .can_take, .probe_unit, .drop,
    .came(unit_came), .broken(unit_broken), .free(unit_free), .which(unit),
    .end_unit(UW'(end_who - IW'(MSHRS))), .flash_unit, .end_line(end_unit_line),
    .flash_line(flash_unit_line), .used(units_used));

  logic [31:0] dirty_most, clean_wait, dirty_lines, flash_timeout;
  logic windows_idle;
  clean #(.CLEANS(CLEANS), .KW(KW), .SETS_LOG(SETS_LOG), .WAYS(WAYS), .WW(WW), .LW(LW)) u_clean (
    .clk, .rst, .bug_yield(b == 30), .bug_starve(b == 31), .dirty_most, .clean_wait, .dirty_lines,
    .idle(mshrs_used == 0 && windows_idle), .dirtied(touch && did_write && !hit_dirty),
    .undirtied(miss && dirty), .want(clean_want), .must(clean_must), .take(clean_take),
    .set(clean_set), .may(clean_may), .begin_one(clean_begin), .begin_way(clean_way),
    .begin_line(clean_line), .begin_which(clean_which), .look_set(write_set), .look_way(hit_way),
    .held, .holder, .end_one(clean_end), .end_broken(broken), .end_which(cleaned),
    .look_which(KW'(end_who - IW'(MSHRS + UNITS))),
    .flash_which(KW'(flash_who - IW'(MSHRS + UNITS))), .end_line(end_clean_line),
    .flash_line(flash_clean_line), .end_way(end_clean_way), .flash_way(flash_clean_way));

  logic [WINDOWS*64-1:0] win_addr, win_deadline, win_lead;
  logic [WINDOWS*32-1:0] win_length, win_mark;
  logic [WINDOWS*2-1:0] win_class;
  logic [WINDOWS*16-1:0] win_limit;
  logic [WINDOWS*6-1:0] win_state;
  logic [WINDOWS-1:0] win_go, win_release;
  logic [63:0] clock;
  logic [31:0] stage_most;
  windows #(.WINDOWS(WINDOWS), .CW(CW), .UNITS(UNITS), .UW(UW), .UNIT_LOG(UNIT_LOG),
    .LINE_LOG(LINE_LOG), .LW(LW)) u_windows (.clk, .rst,
    .bug_mark(b == 24), .bug_limit(b == 25), .bug_early(b == 26), .bug_soon(b == 28),
    .bug_class(b == 29),
    .addr(win_addr), .deadline(win_deadline), .lead(win_lead), .length(win_length), .cls(win_class),
    .limit(win_limit), .go(win_go), .release_to(win_release), .order(reg_wdata[31:0]),
    .stage_most, .mark(win_mark), .state(win_state), .clock,
    .idle(windows_idle),
    .op_valid, .op_ready, .op_free, .op_first, .op_last, .op_window, .op_unit, .op_line,
    .can_take, .took_unit(unit), .came(unit_came), .broken(unit_broken), .which(unit));
  always_ff @(posedge clk) did_window <= op_window;

  lists #(.LOG(SLOT_LOG), .MANY(MANY), .IW(IW)) u_lists (.clk, .rst,
    .bug_join(b == 14), .bug_order(b == 15),
    .wait_one(miss || join_one), .again, .slot, .who(did_who),
    .end_came((fill && !broken) || unit_came || unit_broken || clean_end),
    .end_failed(fill && broken),
    .waiting, .came_slot, .failed_slot, .again_slot, .pop);

  logic fence_valid, fence_ready, op_taken;
  logic [IW-1:0] fence_who;
  logic [1:0] op_kind;
  wire fence = miss || (probe && probe_last) || clean_begin;
  wire [SLOT_LOG-1:0] op_slot = fence ? SLOT_LOG'(did_who) : slot;
  wire [PW-1:0] op_place = staged ? {1'b1, SW'({unit, line[UNIT_LOG-1:0]})}
                                  : {1'b0, SW'({write_set, hit_way})};
  assign op_kind = fail ? 2'd3 : fence ? 2'd2 : {1'b0, did_write};
  dram #(.SLOT_LOG(SLOT_LOG), .IW(IW), .IDW(IDW), .DW(DW)) u_dram (.clk, .rst,
    .bug_fence(b == 16),
    .op_valid(touch || staged || fence || fail), .op_ready(op_taken), .op_kind, .op_slot,
    .op_flit({op_place, did_flit[LINE_LOG-1:0]}),
    .data_read, .data_slot, .data_poison, .data,
    .dram_valid, .dram_ready, .dram_write, .dram_wpoison, .dram_flit, .dram_wdata,
    .mem_valid, .mem_ready, .mem_poison, .mem_data,
    .fence_valid, .fence_ready, .fence_who,
    .answer_slot, .answer_write, .answer_id, .answer_taken,
    .r_valid, .r_ready, .r_id, .r_resp, .r_poison, .r_data, .b_valid, .b_ready, .b_id, .b_resp);

  logic flash_read_up, flash_write_up, flash_error_up, lost_up, stray_up, timeout_up;
  logic [3:0] flash_tries;
  logic cmd_valid, cmd_ready, cpl_ready, wrong_up;
  logic [1:0] started;
  flash #(.MANY(MANY), .FIRST_CLEAN(MSHRS + UNITS), .IW(IW), .LW(LW), .PW(PW),
    .CIDW(CIDW)) u_flash (.clk, .rst,
    .bug_stray(b == 17), .bug_tries(b == 18), .bug_clean(b == 19), .bug_late(b == 27),
    .tries_most(flash_tries), .timeout(flash_timeout),
    .fence_valid, .fence_ready, .fence_who,
    .look_who(flash_who), .look_line(flash_of_unit ? flash_unit_line : flash_line),
    .look_victim(flash_of_clean ? flash_clean_line : flash_victim),
    .look_place(flash_of_clean ? {1'b0, SW'({flash_clean_line[SETS_LOG-1:0], flash_clean_way})}
              : flash_of_unit ? {1'b1, SW'({flash_unit, {UNIT_LOG{1'b0}}})}
                              : {1'b0, SW'({flash_line[SETS_LOG-1:0], flash_way})}),
    .look_dirty(flash_of_clean || (flash_dirty && !flash_of_unit)),
    .look_unit(flash_of_unit && !flash_of_clean),
    .cmd_valid, .cmd_ready, .cmd_write, .cmd_cid, .cmd_line, .cmd_place, .cmd_unit,
    .abort_valid, .abort_ready, .abort_cid,
    .cpl_valid, .cpl_ready, .cpl_cid, .cpl_error,
    .end_valid, .end_ready, .end_who, .end_broken,
    .read_up(flash_read_up), .write_up(flash_write_up), .error_up(flash_error_up), .lost_up,
    .stray_up, .timeout_up);
  nvme #(.DRIVES(DRIVES), .QLOG(QUEUE_LOG), .LINE_LOG(LINE_LOG), .UNIT_LOG(UNIT_LOG), .IW(IW),
    .LW(LW), .PW(PW)) u_nvme (.clk, .rst,
    .bug_bell(b == 34), .bug_phase(b == 35), .bug_full(b == 36), .bug_list(b == 37),
    .bug_blocks(b == 38), .bug_fate(b == 39), .bug_stripe(b == 40), .bug_head(b == 41),
    .bug_status(b == 42), .bug_csts(b == 43), .started, .wrong_up,
    .cmd_valid, .cmd_ready, .cmd, .cmd_write, .cmd_cid, .cmd_line, .cmd_place, .cmd_unit,
    .abort_valid, .abort_ready, .abort_cid, .cpl_valid, .cpl_cid, .cpl_error,
    .mmio_valid, .mmio_ready, .mmio_write, .mmio_drive, .mmio_addr, .mmio_wdata,
    .mmio_rvalid, .mmio_rready, .mmio_rdata, .dma_valid, .dma_ready, .dma_write, .dma_addr,
    .dma_wdata, .dma_rvalid, .dma_rready, .dma_rerror, .dma_rdata);

  device_regs u_regs (.clk, .rst, .req_valid(reg_valid), .req_ready(reg_ready),
    .req_write(reg_write), .req_addr(reg_addr), .req_data(reg_wdata),
    .rsp_valid(reg_rvalid), .rsp_ready(reg_rready), .rsp_error(reg_error), .rsp_data(reg_rdata),
    .ident(64'h5449455244455631), .status(ready), .capacity(64'd1 << FW),
    .line(32'd64 << LINE_LOG), .sets(32'd1 << SETS_LOG), .ways(WAYS), .mshrs(MSHRS),
    .slots(32'd1 << SLOT_LOG), .slots_used({{(31-SLOT_LOG){1'b0}}, slots_used}),
    .mshrs_used({{(31-MW){1'b0}}, mshrs_used}), .units(UNITS), .unit_lines(32'd1 << UNIT_LOG),
    .windows(WINDOWS), .units_used({{(31-UW){1'b0}}, units_used}), .clock, .flash_tries,
    .flash_timeout, .dirty_most, .clean_wait, .dirty_lines, .cleans(CLEANS), .win_lead,
    .drives(DRIVES), .drives_ready(started), .queue(32'd1 << QUEUE_LOG), .stage_most, .win_addr,
    .win_length, .win_deadline, .win_class, .win_limit, .win_go, .win_release, .win_mark,
    .win_state, .reads_up((touch && !did_write) || staged), .writes_up(touch && did_write),
    .refusals_up(fail), .hits_up(touch), .misses_up(miss), .joins_up(join_one && b != 20),
    .retries_up(again), .evictions_up(miss && evicts), .dirty_evictions_up(miss && dirty),
    .fills_up(fill && !broken), .broken_fills_up(fill && broken),
    .flash_reads_up(flash_read_up), .flash_writes_up(flash_write_up),
    .flash_errors_up(flash_error_up), .lost_lines_up(lost_up), .strays_up(stray_up),
    .timeouts_up(timeout_up), .wrong_entries_up(wrong_up), .cleaned_up(clean_end && !broken),
    .broken_cleans_up(clean_end && broken),
    .staged_reads_up(staged), .units_taken_up(probe && probe_first), .units_came_up(unit_came),
    .units_broken_up(unit_broken), .units_freed_up(unit_free), .skips_up(probe && !hold),
    .drops_up(drop));

  wire unused = &{1'b0, look_has, op_taken, cpl_ready};
endmodule
`default_nettype wire
