// Checks of slots.sv, for all that can happen within some cycles of a reset: no credit is lost,
// none comes back twice, no slot is taken that is in use.
// SPDX-License-Identifier: Apache-2.0
`default_nettype none
module slots_proof (input logic clk, rst, want, back, input logic [1:0] back_slot);
  logic has_free, look_write, data_poison, answer_write;
  logic [1:0] take_slot;
  logic look_id, answer_id;
  logic [1:0] look_flit;
  logic [511:0] data;
  logic [2:0] used;
  wire take = want && has_free;
  slots #(.LOG(2), .IDW(1), .FW(2)) u (.clk, .rst, .bug_leak(`BUG), .bug_poison(1'b0), .take,
    .has_free, .take_slot, .take_write(1'b0), .take_poison(1'b0), .take_id(1'b0), .take_flit(2'd0),
    .take_data(512'd0), .look_slot(2'd0), .look_write, .look_id, .look_flit, .data_read(1'b0),
    .data_slot(2'd0), .data_poison, .data, .answer_slot(back_slot), .answer_write, .answer_id,
    .free(back), .used);
  logic started = 0;
  logic [3:0] taken;
  always_ff @(posedge clk) begin
    started <= 1;
    if (rst) taken <= '0;
    else begin
      if (back) taken[back_slot] <= 0;
      if (take) taken[take_slot] <= 1;
    end
  end
  always_comb begin
    if (!started) assume (rst);
    if (started) assume (!rst);
    assume (!back || (taken[back_slot] && !rst));
  end
  always_ff @(posedge clk)
    if (started && !rst) begin
      if (take) assert (!taken[take_slot]);
      assert (has_free == (taken != '1));
      assert (used == {2'd0, taken[0]} + {2'd0, taken[1]} + {2'd0, taken[2]} + {2'd0, taken[3]});
    end
endmodule
`default_nettype wire
