// One stream window: what its registers order, which units it may begin and free, and the
// watermark. Units are begun, counted and freed in order; they may come in any order.
// SPDX-License-Identifier: Apache-2.0
`default_nettype none
module window #(
  parameter int UNITS = 16, parameter int UW = 4,  // units, bits of their numbers
  parameter int UNIT_LOG = 4,                      // log2 of the lines of a unit
  parameter int LINE_LOG = 6,                      // log2 of the flits of a line
  parameter int LW = 19, parameter int NW = LW - UNIT_LOG
) (
  input  logic clk, rst, bug_mark, bug_limit, bug_early, bug_soon,
  // registers
  input  logic [63:0] addr, deadline, lead, input logic [31:0] length, input logic [1:0] cls,
  input  logic [15:0] limit,
  input  logic go, release_to, input logic [31:0] order, input logic [63:0] clock,
  output logic [31:0] mark, output logic [5:0] state,
  // one more unit, where it is, and its slot: its number here, modulo UNITS
  output logic may_begin, input logic can_take, may_stage, probing, input logic begin_one,
  output logic [1:0] of_class, output logic [NW-1:0] next, output logic [UW-1:0] begin_slot,
  // the first unit that there is
  output logic may_free, input logic free_one, output logic [UW-1:0] free_slot,
  // the end of a unit's command
  input  logic came, broken, input logic [UW-1:0] end_slot
);
  logic open, stop, drop, failed, late, refused;
  logic [NW-1:0] first;
  logic [31:0] many, taken, freed, released;
  logic [63:0] until_cycle, begin_cycle;
  logic [UW:0] most;
  logic [UNITS-1:0] done, bad;  // by slot
  wire all = mark == many && many != 0 && !refused;
  wire [UW-1:0] mark_slot = mark[UW-1:0];
  wire [31:0] mark_next = mark + {31'd0, open && mark != taken && done[mark_slot]};
  wire [31:0] room_used = taken - freed;
  assign state      = {refused, stop, late, failed, all, open};
  assign begin_slot = taken[UW-1:0];
  assign free_slot  = freed[UW-1:0];
  assign next       = first + taken[NW-1:0];
  assign may_free   = open && freed != taken && (done[free_slot] || bad[free_slot]) &&
      (drop ? !(freed == mark && done[free_slot])
            : freed < released && (freed < mark || bug_early));
  assign may_begin  = open && !stop && !broken && taken != many && can_take &&
      (room_used < {{(31-UW){1'b0}}, most} || bug_limit) && may_stage &&
      (clock >= begin_cycle || bug_soon);

  wire [NW-1:0] from = addr[6+LINE_LOG+UNIT_LOG +: NW];
  wire beyond = |addr[63:6+LINE_LOG+LW] ||
                {{(33-NW){1'b0}}, from} + {1'b0, length} > 33'd1 << NW;
  wire unused = &{1'b0, addr[5+LINE_LOG+UNIT_LOG:0]};  // bits below a unit
  wire bad_order = length == 0 || limit == 0 || beyond;
  wire begins = go && order[1:0] == 2'd1 && !open;
  always_ff @(posedge clk)
    if (rst) begin
      open    <= 0;
      stop    <= 0;
      drop    <= 0;
      failed  <= 0;
      late    <= 0;
      refused <= 0;
      many    <= '0;
      mark    <= '0;
      taken   <= '0;
      freed   <= '0;
      done    <= '0;
      bad     <= '0;
    end else if (begins) begin
      open    <= !bad_order;
      refused <= bad_order;
      stop    <= 0;
      drop    <= 0;
      failed  <= 0;
      late    <= 0;
      many    <= length;
      mark    <= '0;
      taken   <= '0;
      freed   <= '0;
    end else begin
      if (go && order[1]) stop <= 1;
      if (go && order[1:0] == 2'd3) drop <= 1;
      if (open && !all && clock > until_cycle) late <= 1;
      mark <= mark_next;
      if (begin_one) taken <= taken + 1;
      if (free_one) begin
        freed           <= freed + 1;
        done[free_slot] <= 0;
        bad[free_slot]  <= 0;
      end
      if (came) done[end_slot] <= 1;
      if (broken) begin
        bad[end_slot] <= 1;
        failed        <= 1;
        stop          <= 1;
        mark <= bug_mark ? freed : mark_next;
      end
      if ((stop || taken == many) && freed == taken && !probing) open <= 0;
    end
  always_ff @(posedge clk)
    if (begins) begin
      first       <= from;
      until_cycle <= deadline;
      begin_cycle <= deadline > lead ? deadline - lead : '0;
      of_class    <= cls;
      most        <= |limit[15:UW] ? {1'b1, {UW{1'b0}}} : limit[UW:0];
      released    <= '0;
    end else if (open && release_to && order > released) released <= order;
`ifndef SYNTHESIS
  // progress never goes back, and is never ahead of what was begun
  logic [31:0] mark_before;
  logic same;
  always_ff @(posedge clk) begin
    mark_before <= mark;
    same        <= !rst && !begins;
    if (!rst && same) assert (mark >= mark_before);
    if (!rst && open) begin
      assert (mark <= taken);
      assert (freed <= taken);
      assert (room_used <= {{(31-UW){1'b0}}, most});
    end
  end
`endif
`ifdef PROVE_WINDOW
`include "window.svh"
`endif
endmodule
`default_nettype wire
