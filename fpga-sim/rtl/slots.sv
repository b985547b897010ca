// The table of requests: each has a slot from the cycle it is taken until its answer is taken. A
// free slot is the host port's credit: without one no request is taken, so that no queue behind
// can overrun. Data to be written lies in a block RAM, what look-ups and answers need beside it.
// SPDX-License-Identifier: Apache-2.0
`default_nettype none
module slots #(
  parameter int LOG = 6,   // log2 of the slots
  parameter int IDW = 12,  // bits of the host's tags
  parameter int FW = 25    // bits of a flit's number
) (
  input  logic clk, rst, bug_leak, bug_poison,
  input  logic take, output logic has_free, output logic [LOG-1:0] take_slot,
  input  logic take_write, take_poison,
  input  logic [IDW-1:0] take_id, input logic [FW-1:0] take_flit, input logic [511:0] take_data,
  input  logic [LOG-1:0] look_slot,  // one that waits, for its next look-up
  output logic look_write, output logic [IDW-1:0] look_id, output logic [FW-1:0] look_flit,
  input  logic data_read, input logic [LOG-1:0] data_slot,  // its data in the next cycle
  output logic data_poison, output logic [511:0] data,
  input  logic [LOG-1:0] answer_slot, output logic answer_write, output logic [IDW-1:0] answer_id,
  input  logic free,  // answer_slot's answer is taken
  output logic [LOG:0] used
);
  logic [IDW+FW:0] info [1 << LOG];
  logic [512:0] bytes [1 << LOG];
  logic [LOG:0] fresh;  // slots below were in use before
  logic [LOG-1:0] old_slot;
  logic has_old, freed_ready;
  wire is_fresh = !fresh[LOG];
`ifdef PROVE_SLOTS
  logic [(1 << LOG)-1:0] holds;
  logic once;
`endif

  fifo #(.W(LOG), .LOG(LOG)) freed (.clk, .rst,
    .in_valid(free && !(bug_leak && answer_slot == '1)), .in_ready(freed_ready),
    .in_data(answer_slot),
    .out_valid(has_old), .out_ready(take && !is_fresh), .out_data(old_slot)
`ifdef PROVE_SLOTS
    , .holds, .once
`endif
    );

  assign has_free  = is_fresh || has_old;
  assign take_slot = is_fresh ? fresh[LOG-1:0] : old_slot;
  assign {look_write, look_id, look_flit} = info[look_slot];
  assign {answer_write, answer_id} = info[answer_slot][IDW+FW:FW];
  always_ff @(posedge clk)
    if (rst) begin
      fresh <= '0;
      used  <= '0;
    end else begin
      if (take && is_fresh) fresh <= fresh + 1'b1;
      used <= used + {{LOG{1'b0}}, take} - {{LOG{1'b0}}, free};
    end
  always_ff @(posedge clk) begin
    if (take) begin
      info[take_slot]  <= {take_write, take_id, take_flit};
      bytes[take_slot] <= {take_poison && !bug_poison, take_data};
    end
    if (data_read) {data_poison, data} <= bytes[data_slot];
  end
  wire unused = &{1'b0, freed_ready};
`ifndef SYNTHESIS
  always_ff @(posedge clk)
    if (!rst) begin
      assert (!take || has_free);     // nothing is taken without a credit
      assert (!free || used != 0);    // no credit comes back twice
      assert (!free || freed_ready);
      assert (has_free || used == {1'b1, {LOG{1'b0}}});  // no credit is lost
    end
`endif
`ifdef PROVE_SLOTS
`include "slots.svh"
`endif
endmodule
`default_nettype wire
