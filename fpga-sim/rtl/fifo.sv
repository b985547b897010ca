// A queue of 2^LOG entries. What went in comes out in the same order, from the next cycle on.
// SPDX-License-Identifier: Apache-2.0
`default_nettype none
module fifo #(
  parameter int W = 8,   // bits of an entry
  parameter int LOG = 2  // log2 of the entries, 1 or more
) (
  input  logic clk, rst,
  input  logic in_valid, output logic in_ready, input logic [W-1:0] in_data,
  output logic out_valid, input logic out_ready, output logic [W-1:0] out_data
`ifdef PROVE_INSIDE
  , output logic [(1 << LOG)-1:0] holds, output logic once  // of the numbers in LOG low bits
`endif
);
  logic [W-1:0] entry [1 << LOG];
  logic [LOG:0] head, tail;
  assign in_ready  = (tail - head) != {1'b1, {LOG{1'b0}}};
  assign out_valid = tail != head;
  assign out_data  = entry[head[LOG-1:0]];
  always_ff @(posedge clk)
    if (rst) begin
      head <= '0;
      tail <= '0;
    end else begin
      if (in_valid && in_ready) tail <= tail + 1'b1;
      if (out_valid && out_ready) head <= head + 1'b1;
    end
  always_ff @(posedge clk) if (in_valid && in_ready) entry[tail[LOG-1:0]] <= in_data;
`ifndef SYNTHESIS
  // never more inside than there is room for
  always_ff @(posedge clk) if (!rst) assert ((tail - head) <= {1'b1, {LOG{1'b0}}});
`endif
`ifdef PROVE_INSIDE
  always_comb begin
    holds = '0;
    once = 1;
    for (int i = 0; i < 1 << LOG; i++)
      if ((LOG+1)'(i) < tail - head) begin
        if (holds[entry[LOG'(head + (LOG+1)'(i))][LOG-1:0]]) once = 0;
        holds[entry[LOG'(head + (LOG+1)'(i))][LOG-1:0]] = 1;
      end
  end
`endif
`ifdef PROVE_FIFO
`include "fifo.svh"
`endif
endmodule
`default_nettype wire
