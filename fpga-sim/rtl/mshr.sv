// Miss registers: one for each line that is on its way from flash. A look-up tells whether the
// line has one, whether one writes it to flash (as its victim), and which is the lowest free one.
// SPDX-License-Identifier: Apache-2.0
`default_nettype none
module mshr #(
  parameter int MSHRS = 8,      // miss registers
  parameter int MW = 3,         // bits of their numbers
  parameter int LW = 19,        // bits of a line's number
  parameter int WW = 4          // bits of a way's number
) (
  input  logic clk, rst, bug_leaves,
  input  logic [LW-1:0] look_line,
  output logic look_has, look_leaves, look_free, output logic [MW-1:0] look_mshr,
  input  logic take, input logic [WW-1:0] take_way, input logic take_dirty,
  input  logic [LW-1:0] take_victim,                      // look_mshr for look_line
  input  logic release_one, input logic [MW-1:0] release_mshr,
  input  logic [MW-1:0] end_mshr,                         // what is known of this one,
  output logic [LW-1:0] end_line, output logic [WW-1:0] end_way,
  input  logic [MW-1:0] flash_mshr,                       // and of this one
  output logic [LW-1:0] flash_line, flash_victim, output logic [WW-1:0] flash_way,
  output logic flash_dirty,
  output logic [MW:0] used
);
  logic [MSHRS-1:0] busy, dirty;
  logic [LW-1:0] line [MSHRS];
  logic [LW-1:0] victim [MSHRS];
  logic [WW-1:0] way [MSHRS];
  logic [MW-1:0] has_mshr, free_mshr;
  always_comb begin
    look_has = 0;
    look_leaves = 0;
    look_free = 0;
    has_mshr = '0;
    free_mshr = '0;
    for (int i = MSHRS - 1; i >= 0; i--) begin
      if (busy[i] && line[i] == look_line) begin
        look_has = 1;
        has_mshr = MW'(i);
      end
      if (busy[i] && dirty[i] && victim[i] == look_line && !bug_leaves) look_leaves = 1;
      if (!busy[i]) begin
        look_free = 1;
        free_mshr = MW'(i);
      end
    end
  end
  assign look_mshr    = look_has ? has_mshr : free_mshr;
  assign end_line     = line[end_mshr];
  assign end_way      = way[end_mshr];
  assign flash_line   = line[flash_mshr];
  assign flash_victim = victim[flash_mshr];
  assign flash_way    = way[flash_mshr];
  assign flash_dirty  = dirty[flash_mshr];
  always_ff @(posedge clk)
    if (rst) begin
      busy <= '0;
      used <= '0;
    end else begin
      if (release_one) busy[release_mshr] <= 0;
      if (take) busy[free_mshr] <= 1;
      used <= used + {{MW{1'b0}}, take} - {{MW{1'b0}}, release_one};
    end
  always_ff @(posedge clk)
    if (take) begin
      line[free_mshr]   <= look_line;
      victim[free_mshr] <= take_victim;
      way[free_mshr]    <= take_way;
      dirty[free_mshr]  <= take_dirty;
    end
`ifndef SYNTHESIS
  always_ff @(posedge clk)
    if (!rst) begin
      assert (!take || (look_free && !look_has));  // no two owners of a line
      assert (!release_one || busy[release_mshr]); // none is given back twice
    end
`endif
`ifdef PROVE_MSHR
`include "mshr.svh"
`endif
endmodule
`default_nettype wire
