// The host port's requests: reads (AR: CXL.mem's M2S Req) and writes (AW with W: M2S RwD) in turn,
// one a cycle, behind a register.
// SPDX-License-Identifier: Apache-2.0
`default_nettype none
module front #(
  parameter int IDW = 12,  // bits of the host's tags; CXL.mem has 16
  parameter int FW = 25    // bits of a flit's number; the capacity is 2^FW flits
) (
  input  logic clk, rst, bug_starve, bug_refuse,
  input  logic ar_valid, output logic ar_ready, input logic [IDW-1:0] ar_id,
  input  logic [51:0] ar_addr,  // byte
  input  logic aw_valid, output logic aw_ready, input logic [IDW-1:0] aw_id,
  input  logic [51:0] aw_addr,  // byte
  input  logic w_valid, output logic w_ready, input logic w_poison, input logic [511:0] w_data,
  output logic req_valid, input logic req_ready,
  output logic req_write, req_bad, req_poison,
  output logic [IDW-1:0] req_id, output logic [FW-1:0] req_flit, output logic [511:0] req_data
);
  logic want_read, want_write, pick_write, load, last_write;
  logic [51:0] addr;
  assign want_read  = ar_valid;
  assign want_write = aw_valid && w_valid;
  assign pick_write = want_write && (!want_read || !last_write) && !(bug_starve && want_read);
  assign load       = !req_valid || req_ready;
  assign ar_ready   = load && !pick_write;
  assign aw_ready   = load && pick_write;
  assign w_ready    = aw_ready;
  assign addr       = pick_write ? aw_addr : ar_addr;
  always_ff @(posedge clk)
    if (rst) begin
      req_valid  <= 0;
      last_write <= 0;
    end else if (load) begin
      req_valid <= want_read || want_write;
      if (want_read || want_write) last_write <= pick_write;
    end
  always_ff @(posedge clk)
    if (load) begin
      req_write  <= pick_write;
      req_bad    <= (|addr[5:0] || |addr[51:FW+6]) && !bug_refuse;
      req_id     <= pick_write ? aw_id : ar_id;
      req_flit   <= addr[FW+5:6];
      req_poison <= w_poison;
      req_data   <= w_data;
    end
`ifndef SYNTHESIS
  // each side waits for at most one request of the other
  logic [1:0] read_waits, write_waits;
  always_ff @(posedge clk)
    if (rst) begin
      read_waits  <= 0;
      write_waits <= 0;
    end else begin
      if (!want_read || ar_ready) read_waits <= 0;
      else if (load) read_waits <= read_waits + 1'b1;
      if (!want_write || aw_ready) write_waits <= 0;
      else if (load) write_waits <= write_waits + 1'b1;
      assert (read_waits < 2);
      assert (write_waits < 2);
    end
`endif
  stable #(.W(IDW + 52)) check_ar (.clk, .rst, .valid(ar_valid), .ready(ar_ready),
    .data({ar_id, ar_addr}));
  stable #(.W(IDW + 52)) check_aw (.clk, .rst, .valid(aw_valid), .ready(aw_ready),
    .data({aw_id, aw_addr}));
  stable #(.W(513)) check_w (.clk, .rst, .valid(w_valid), .ready(w_ready),
    .data({w_poison, w_data}));
`ifdef PROVE_FRONT
`include "front.svh"
`endif
endmodule
`default_nettype wire
