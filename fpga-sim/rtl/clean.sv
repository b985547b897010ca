// Cleaning: while more lines are dirty than `dirty_most` allows, dirty lines are written to flash
// ahead of their eviction, set after set, the oldest of a set first. It yields to reads: it begins
// while none is under way, or when it has waited `clean_wait` cycles. A line keeps its way, and is
// neither evicted nor written by the host, until its write has ended.
// SPDX-License-Identifier: Apache-2.0
`default_nettype none
module clean #(
  parameter int CLEANS = 4, parameter int KW = 2,  // cleaning registers, bits of their numbers
  parameter int SETS_LOG = 10,                     // log2 of the sets
  parameter int WAYS = 16, parameter int WW = 4,   // ways, bits of their numbers
  parameter int LW = 19                            // bits of a line's number
) (
  input  logic clk, rst, bug_yield, bug_starve,
  input  logic [31:0] dirty_most, clean_wait, output logic [31:0] dirty_lines,
  input  logic idle,             // no read is under way
  input  logic dirtied, undirtied,  // by a write; by an eviction
  // the next set to look at; must: requests wait for it
  output logic want, must, input logic take, output logic [SETS_LOG-1:0] set,
  // a cycle later: what it may do there
  output logic may, input logic begin_one, input logic [WW-1:0] begin_way,
  input  logic [LW-1:0] begin_line, output logic [KW-1:0] begin_which,
  // ways of this set that are being cleaned, and by whom this one
  input  logic [SETS_LOG-1:0] look_set, input logic [WW-1:0] look_way,
  output logic [WAYS-1:0] held, output logic [KW-1:0] holder,
  input  logic end_one, end_broken, input logic [KW-1:0] end_which,
  input  logic [KW-1:0] look_which, flash_which,  // what is known of these
  output logic [LW-1:0] end_line, flash_line, output logic [WW-1:0] end_way, flash_way
);
  localparam logic [1:0] PAUSE = 3;  // cycles between looks for which requests wait
  logic [CLEANS-1:0] busy;
  logic [LW-1:0] line [CLEANS];
  logic [WW-1:0] way [CLEANS];
  logic [31:0] waited;
  logic [1:0] pause;
  logic free;
  always_comb begin
    free = 0;
    begin_which = '0;
    held = '0;
    holder = '0;
    for (int i = CLEANS - 1; i >= 0; i--) begin
      if (!busy[i]) begin
        free = 1;
        begin_which = KW'(i);
      end
      if (busy[i] && line[i][SETS_LOG-1:0] == look_set) begin
        held[way[i]] = 1;
        if (way[i] == look_way) holder = KW'(i);
      end
    end
  end
  wire over  = dirty_lines > dirty_most;
  wire long  = waited >= clean_wait && !bug_starve;
  assign may  = over && free && (idle || long || bug_yield);
  assign want = may && pause == 0;
  assign must = long;
  assign end_line   = line[look_which];
  assign end_way    = way[look_which];
  assign flash_line = line[flash_which];
  assign flash_way  = way[flash_which];
  wire more = dirtied || (end_one && end_broken);
  wire less = undirtied || begin_one;
  always_ff @(posedge clk)
    if (rst) begin
      busy        <= '0;
      dirty_lines <= '0;
      set         <= '0;
      waited      <= '0;
      pause       <= '0;
    end else begin
      dirty_lines <= dirty_lines + {31'd0, more} - {31'd0, less};
      if (take) set <= set + 1'b1;
      if (take) pause <= PAUSE;
      else if (pause != 0) pause <= pause - 1'b1;
      if (begin_one || !over) waited <= '0;
      else if (!long) waited <= waited + 1'b1;
      if (begin_one) busy[begin_which] <= 1;
      if (end_one) busy[end_which] <= 0;
    end
  always_ff @(posedge clk)
    if (begin_one) begin
      line[begin_which] <= begin_line;
      way[begin_which]  <= begin_way;
    end
`ifndef SYNTHESIS
  always_ff @(posedge clk)
    if (!rst) begin
      assert (!begin_one || free);
      assert (!end_one || busy[end_which]);  // none is given back twice
`ifndef PROVE_CLEAN
      assert (!less || dirty_lines != 0);
`endif
    end
`endif
`ifdef PROVE_CLEAN
`include "clean.svh"
`endif
endmodule
`default_nettype wire
