// Which window begins its next unit: of those that may, the lowest class first; within a class they
// take turns, so that each waits for one unit of each other at most (formal/turns.svh).
// SPDX-License-Identifier: Apache-2.0
`default_nettype none
module turns #(
  parameter int WINDOWS = 4, parameter int CW = 2  // windows, a power of two; bits of their numbers
) (
  input  logic clk, rst, bug_turns,
  input  logic [WINDOWS-1:0] may, input logic [WINDOWS*2-1:0] of_class,
  output logic [CW-1:0] which, output logic [1:0] least,  // and its class
  input  logic take
);
  logic [CW-1:0] last [4];  // of each class, the one that began last
  always_comb begin
    which = '0;
    least = '1;
    for (int c = 3; c >= 0; c--)
      for (int i = WINDOWS - 1; i >= 0; i--)
        if (may[last[c] + CW'(i + 1)] && of_class[{last[c] + CW'(i + 1), 1'b0} +: 2] == 2'(c)) begin
          which = last[c] + CW'(i + 1);
          least = 2'(c);
        end
  end
  always_ff @(posedge clk)
    for (int c = 0; c < 4; c++)
      if (rst) last[c] <= '1;
      else if (take && least == 2'(c) && !bug_turns) last[c] <= which;
`ifdef PROVE_TURNS
`include "turns.svh"
`endif
endmodule
`default_nettype wire
