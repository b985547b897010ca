// A property of every valid/ready port, and nothing else: what is offered stays offered, unchanged,
// until it is taken. Bound beside each port; synthesis sees an empty module.
// SPDX-License-Identifier: Apache-2.0
`default_nettype none
module stable #(
  parameter int W = 1  // bits of what is offered
) (
  input logic clk, rst,
  input logic valid, ready,
  input logic [W-1:0] data
);
`ifndef SYNTHESIS
  logic waiting;
  logic [W-1:0] offered;
  always_ff @(posedge clk) begin
    waiting <= !rst && valid && !ready;
    offered <= data;
    if (!rst && waiting) begin
      assert (valid);
      assert (data == offered);
    end
  end
`else
  wire unused = &{1'b0, clk, rst, valid, ready, data};
`endif
endmodule
`default_nettype wire
