// The heart: one decision a cycle, in two stages. The first takes what is to be decided (the end
// of a miss, a request that waited, one that tries again, a new one) and reads its set; the second
// decides and writes the set back. It never stalls: a request that cannot go on joins a list. Miss
// registers and units share one numbering: the units' begin at MSHRS.
// SPDX-License-Identifier: Apache-2.0
`default_nettype none
module decide #(
  parameter int SETS_LOG = 10, // log2 of the sets
  parameter int TAGW = 9,      // bits of a tag
  parameter int LINE_LOG = 6,  // log2 of the flits of a line
  parameter int WW = 4,        // bits of a way's number
  parameter int MSHRS = 8,     // miss registers
  parameter int MW = 3,        // bits of their numbers
  parameter int UW = 4,        // bits of a unit's number
  parameter int UNITS = 16, parameter int KW = 2,  // units; bits of a cleaning register's number
  parameter int IW = 5,        // bits of the numbers of both
  parameter int SLOT_LOG = 6,  // log2 of the slots
  parameter int IDW = 12,      // bits of the host's tags
  parameter int LW = SETS_LOG + TAGW, parameter int FW = LW + LINE_LOG
) (
  input  logic clk, rst, bug_again, bug_pending, bug_skip, bug_torn,
  input  logic ready,  // the tags are cleared
  // the end of a miss or of a unit, and its line
  input  logic end_valid, output logic end_ready, input logic [IW-1:0] end_who,
  input  logic end_broken, input logic [LW-1:0] end_line, input logic [WW-1:0] end_way,
  // lists of those who wait: came, failed, again
  input  logic [2:0] waiting, output logic [2:0] pop,
  input  logic [SLOT_LOG-1:0] came_slot, failed_slot, again_slot,
  output logic [SLOT_LOG-1:0] look_slot, input logic look_write,
  input  logic [IDW-1:0] look_id, input logic [FW-1:0] look_flit,
  // what windows want: the first line of a unit, one more, or a unit's room
  input  logic op_valid, output logic op_ready, input logic op_free, op_first, op_last,
  input  logic [UW-1:0] op_unit, input logic [LW-1:0] op_line,
  // a set to be cleaned; must: requests wait for it
  input  logic clean_want, clean_must, output logic clean_take,
  input  logic [SETS_LOG-1:0] clean_set,
  // the next request of the host, and a slot for it
  input  logic req_valid, output logic req_ready, input logic req_write, req_bad,
  input  logic [IDW-1:0] req_id, input logic [FW-1:0] req_flit,
  input  logic has_free, input logic [SLOT_LOG-1:0] take_slot,
  // its set, and the set's choices
  output logic set_read, set_write, output logic [SETS_LOG-1:0] read_set, write_set,
  output logic [TAGW-1:0] tag,
  input  logic hit, pending, can_evict, input logic [WW-1:0] hit_way, victim_way,
  input  logic [TAGW-1:0] victim_tag,
  output logic touch, miss, fill, broken, output logic [WW-1:0] fill_way,
  // cleaning: may it begin, and where
  input  logic clean_may, clean_found, input logic [WW-1:0] clean_way,
  input  logic [TAGW-1:0] clean_tag, output logic clean_begin, output logic [LW-1:0] clean_line,
  input  logic [KW-1:0] clean_which, holder, input logic is_held,  // hit_way is being cleaned
  output logic clean_end, output logic [KW-1:0] cleaned,
  // miss registers
  output logic [LW-1:0] line, input logic mshr_leaves, mshr_free,
  input  logic [MW-1:0] look_mshr, output logic [LW-1:0] victim,
  // units
  input  logic unit_has, unit_here, input logic [UW-1:0] look_unit, probe_unit,
  output logic staged, probe, probe_first, probe_last, hold, drop,
  output logic unit_came, unit_broken, unit_free, output logic [UW-1:0] unit,
  // to the lists
  output logic join_one, again, fail, write, output logic [SLOT_LOG-1:0] slot,
  output logic [IW-1:0] who, output logic [MW-1:0] mshr,
  output logic [IDW-1:0] id, output logic [FW-1:0] flit,
  // the record of the decision (model/device.h: enum device_what)
  output logic did, output logic [3:0] what, output logic [WW-1:0] way
);
  // --- first stage: what is next
  logic may_again, take_end, take_new, take_op, none_again;
  logic [2:0] can;
  assign none_again = !waiting[2] || bug_again;
  assign can        = {waiting[2] && may_again, waiting[1:0]};
  assign take_end   = ready && end_valid;
  assign end_ready  = ready;
  always_comb begin
    pop = '0;
    if (ready && !end_valid) begin
      if (can[1]) pop[1] = 1;
      else if (can[0]) pop[0] = 1;
      else if (can[2] && !op_valid) pop[2] = 1;
    end
  end
  assign op_ready  = ready && !end_valid && can[1:0] == 0;
  assign take_op   = op_valid && op_ready;
  wire clean_first = clean_want && clean_must;
  assign req_ready = ready && !end_valid && can == 0 && !op_valid && none_again && has_free &&
                     !clean_first;
  assign clean_take = ready && !end_valid && can == 0 && !op_valid && clean_want && !take_new;
  assign take_new  = req_valid && req_ready;
  assign look_slot = pop[1] ? failed_slot : pop[0] ? came_slot : again_slot;
  wire [FW-1:0] next_flit = take_end ? {end_line, {LINE_LOG{1'b0}}}
                          : take_op ? {op_line, {LINE_LOG{1'b0}}}
                          : clean_take ? {{TAGW{1'b0}}, clean_set, {LINE_LOG{1'b0}}}
                          : take_new ? req_flit : look_flit;
  assign set_read = take_end || take_op || take_new || clean_take || |pop;
  assign read_set = next_flit[LINE_LOG +: SETS_LOG];

  // --- second stage: the decision
  logic is_request, is_end, is_failed, is_bad, is_probe, is_free, is_clean;
  logic blocked;
  always_ff @(posedge clk)
    if (rst) begin
      is_request <= 0;
      is_end     <= 0;
      is_failed  <= 0;
      is_bad     <= 0;
      is_probe   <= 0;
      is_free    <= 0;
      is_clean   <= 0;
    end else begin
      is_request <= (take_new && !req_bad) || pop[0] || pop[2];
      is_end     <= take_end;
      is_failed  <= pop[1];
      is_bad     <= take_new && req_bad;
      is_probe   <= take_op && !op_free;
      is_free    <= take_op && op_free;
      is_clean   <= clean_take;
    end
  logic [IW-1:0] end_now;
  logic [UW-1:0] free_now;
  always_ff @(posedge clk) begin
    slot     <= take_new ? take_slot : look_slot;
    write    <= take_new ? req_write : look_write;
    id       <= take_new ? req_id : look_id;
    flit     <= next_flit;
    broken   <= end_broken;
    fill_way <= end_way;
    end_now  <= end_who;
    free_now <= op_unit;
    probe_first <= op_first;
    probe_last  <= op_last;
  end
  assign line    = flit[FW-1:LINE_LOG];
  assign tag     = line[LW-1:SETS_LOG];
  assign victim  = {victim_tag, line[SETS_LOG-1:0]};
  assign blocked = !mshr_free || mshr_leaves || !can_evict;
  wire torn      = is_request && hit && write && is_held && !bug_torn;  // it waits
  assign touch   = is_request && ((hit && !torn) || (bug_pending && pending));
  wire from_unit = is_request && !hit && !pending && unit_has && !write;
  wire missing   = is_request && !hit && !pending && !from_unit;
  assign staged  = from_unit && unit_here;
  assign join_one = (is_request && !touch && pending) || torn || (from_unit && !unit_here);
  assign again   = missing && blocked;
  assign miss    = missing && !blocked;
  assign drop    = miss && unit_has;
  assign probe   = is_probe;
  assign hold    = !(hit || pending || mshr_leaves || unit_has) || bug_skip;
  assign clean_begin = is_clean && clean_may && clean_found;
  assign clean_line  = {clean_tag, line[SETS_LOG-1:0]};
  wire end_clean = end_now >= IW'(MSHRS + UNITS);
  wire end_unit  = end_now >= IW'(MSHRS) && !end_clean;
  assign clean_end = is_end && end_clean;
  assign cleaned   = KW'(end_now - IW'(MSHRS + UNITS));
  assign unit_came   = is_end && end_unit && !broken;
  assign unit_broken = is_end && end_unit && broken;
  assign unit_free   = is_free;
  assign fill    = is_end && !end_unit && !end_clean;
  assign fail    = is_failed || is_bad;
  assign mshr    = is_end ? end_now[MW-1:0] : look_mshr;
  assign unit    = is_end ? UW'(end_now - IW'(MSHRS)) : is_probe ? probe_unit
                 : is_free ? free_now : look_unit;
  wire of_unit   = from_unit || is_probe || is_free;
  wire of_clean  = is_clean || torn;
  wire [KW-1:0] cleaner = is_clean ? clean_which : holder;
  assign who     = is_end ? end_now
                 : of_clean ? IW'(MSHRS + UNITS) + IW'(cleaner)
                 : of_unit ? IW'(MSHRS) + IW'(unit) : IW'(mshr);
  assign set_write = touch || miss || fill || clean_end;
  assign write_set = line[SETS_LOG-1:0];
  // who tries again does so when a miss has ended since: only that frees what it lacked
  always_ff @(posedge clk)
    if (rst) may_again <= 0;
    else if (is_end) may_again <= 1;
    else if (again) may_again <= 0;

  assign did = is_request || is_end || is_failed || is_bad || is_probe || is_free || is_clean;
  assign way = is_end ? fill_way : is_clean ? clean_way : (hit || pending) ? hit_way : victim_way;
  always_comb begin
    what = 4'd0;
    if (miss) what = 4'd1;
    if (join_one) what = 4'd2;
    if (again) what = 4'd3;
    if (is_end) what = broken ? 4'd5 : 4'd4;
    if (is_failed) what = 4'd6;
    if (is_bad) what = 4'd7;
    if (staged) what = 4'd8;
    if (is_probe) what = hold ? 4'd9 : 4'd10;
    if (is_free) what = 4'd11;
    if (is_clean) what = clean_begin ? 4'd12 : 4'd13;
  end
`ifndef SYNTHESIS
  // no line is both in the cache, or on its way there, and in a unit
  always_ff @(posedge clk) if (!rst) assert (!(is_request && (hit || pending) && unit_has));
`endif
endmodule
`default_nettype wire
