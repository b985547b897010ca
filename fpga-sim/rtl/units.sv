// Units: what windows stage beside the cache, 2^UNIT_LOG lines each, with a register that says
// which of them it has. A line that the cache has, or gets by a write, is not held here: no line
// has two owners. All changes are decisions, in their cycle.
// SPDX-License-Identifier: Apache-2.0
`default_nettype none
module units #(
  parameter int UNITS = 16,    // units that can be staged
  parameter int UW = 4,        // bits of their numbers
  parameter int UNIT_LOG = 4,  // log2 of the lines of a unit
  parameter int LW = 19,       // bits of a line's number
  parameter int NW = LW - UNIT_LOG
) (
  input  logic clk, rst, bug_both, bug_here,
  input  logic [LW-1:0] look_line,
  output logic has, has_here, output logic [UW-1:0] has_unit,  // who holds look_line
  // a window's look-up of look_line: the first one of a unit takes a register
  input  logic probe, first, hold,
  output logic can_take, output logic [UW-1:0] probe_unit,
  input  logic drop,  // a write takes look_line from has_unit
  input  logic came, broken, free, input logic [UW-1:0] which,
  input  logic [UW-1:0] end_unit, flash_unit,  // what are the first lines of these?
  output logic [LW-1:0] end_line, flash_line,
  output logic [UW:0] used
);
  localparam int LINES = 1 << UNIT_LOG;
  logic [UNITS-1:0] busy, here;
  logic [NW-1:0] number [UNITS];
  logic [LINES-1:0] held [UNITS];
  logic [UW-1:0] free_unit, current;
  wire [UNIT_LOG-1:0] index = look_line[UNIT_LOG-1:0];
  always_comb begin
    has = 0;
    has_unit = '0;
    can_take = 0;
    free_unit = '0;
    for (int i = UNITS - 1; i >= 0; i--) begin
      if (busy[i] && number[i] == look_line[LW-1:UNIT_LOG] && held[i][index]) begin
        has = 1;
        has_unit = UW'(i);
      end
      if (!busy[i]) begin
        can_take = 1;
        free_unit = UW'(i);
      end
    end
  end
  assign has_here   = here[has_unit];
  assign probe_unit = first ? free_unit : current;
  assign end_line   = {number[end_unit], {UNIT_LOG{1'b0}}};
  assign flash_line = {number[flash_unit], {UNIT_LOG{1'b0}}};
  always_ff @(posedge clk)
    if (rst) begin
      busy <= '0;
      here <= '0;
      used <= '0;
    end else begin
      if (probe && first) begin
        busy[free_unit] <= 1;
        here[free_unit] <= bug_here;
      end
      if (came) here[which] <= 1;
      if (free) busy[which] <= 0;
      used <= used + {{UW{1'b0}}, probe && first} - {{UW{1'b0}}, free};
    end
  always_ff @(posedge clk) begin
    if (probe && first) begin
      number[free_unit]  <= look_line[LW-1:UNIT_LOG];
      current            <= free_unit;
      held[free_unit]    <= {{(LINES-1){1'b0}}, hold};
    end else if (probe) held[current][index] <= hold;
    if (drop && !bug_both) held[has_unit][index] <= 0;
    if (broken || free) held[which] <= '0;
  end
`ifndef SYNTHESIS
  always_ff @(posedge clk)
    if (!rst) begin
      assert (!(probe && first) || can_take);
      assert (!(probe && hold) || !has);  // no two units have a line
      assert (!(came || broken || free) || busy[which]);
    end
`endif
`ifdef PROVE_UNITS
`include "units.svh"
`endif
endmodule
`default_nettype wire
