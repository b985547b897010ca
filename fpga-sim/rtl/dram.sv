// The way to DRAM and back to the host. What was decided is done in that order: reads and writes
// of flits, answers without either (errors), and fences: a miss or a unit may use its place in DRAM
// when its fence comes out behind all accesses before it.
// SPDX-License-Identifier: Apache-2.0
`default_nettype none
module dram #(
  parameter int SLOT_LOG = 6,  // log2 of the slots
  parameter int IW = 3,        // bits of the numbers of miss registers and units, at most SLOT_LOG
  parameter int IDW = 12,      // bits of the host's tags
  parameter int DW = 20        // bits of a flit's number in DRAM
) (
  input  logic clk, rst, bug_fence,
  input  logic op_valid, output logic op_ready, input logic [1:0] op_kind,
  input  logic [SLOT_LOG-1:0] op_slot,  // or the miss register or unit, of a fence
  input  logic [DW-1:0] op_flit,
  output logic data_read, output logic [SLOT_LOG-1:0] data_slot,
  input  logic data_poison, input logic [511:0] data,
  // the DRAM controller; it answers each access, in order
  output logic dram_valid, input logic dram_ready, output logic dram_write, dram_wpoison,
  output logic [DW-1:0] dram_flit, output logic [511:0] dram_wdata,
  input  logic mem_valid, output logic mem_ready, input logic mem_poison,
  input  logic [511:0] mem_data,
  // fences that are through
  output logic fence_valid, input logic fence_ready, output logic [IW-1:0] fence_who,
  // answers
  output logic [SLOT_LOG-1:0] answer_slot, input logic answer_write,
  input  logic [IDW-1:0] answer_id, output logic answer_taken,
  output logic r_valid, input logic r_ready, output logic [IDW-1:0] r_id,
  output logic [1:0] r_resp, output logic r_poison, output logic [511:0] r_data,
  output logic b_valid, input logic b_ready, output logic [IDW-1:0] b_id, output logic [1:0] b_resp
);
  localparam logic [1:0] READ = 0, WRITE = 1, FENCE = 2, FAIL = 3;

  logic in_valid, in_ready, at_valid, at_ready, order_ready, head_valid, head_ready;
  logic [1:0] in_kind, at_kind, head_kind;
  logic [SLOT_LOG-1:0] in_slot, at_slot, head_slot;
  logic [DW-1:0] in_flit, at_flit;

  fifo #(.W(2 + SLOT_LOG + DW), .LOG(SLOT_LOG + 1)) ops (.clk, .rst,
    .in_valid(op_valid), .in_ready(op_ready), .in_data({op_kind, op_slot, op_flit}),
    .out_valid(in_valid), .out_ready(in_ready), .out_data({in_kind, in_slot, in_flit}));

  // one stage, in which the slot's data come out of their RAM
  assign in_ready  = !at_valid || at_ready;
  assign data_read = in_valid && in_ready;
  assign data_slot = in_slot;
  always_ff @(posedge clk)
    if (rst) at_valid <= 0;
    else if (in_ready) at_valid <= in_valid;
  always_ff @(posedge clk) if (in_ready) {at_kind, at_slot, at_flit} <= {in_kind, in_slot, in_flit};

  wire at_access = at_kind == READ || at_kind == WRITE;
  assign dram_valid   = at_valid && at_access && order_ready;
  assign dram_write   = at_kind == WRITE;
  assign dram_wpoison = data_poison;
  assign dram_flit    = at_flit;
  assign dram_wdata   = data;
  wire at_fence = bug_fence && at_kind == FENCE;
  assign at_ready     = at_fence ? fence_ready : order_ready && (!at_access || dram_ready);

  fifo #(.W(2 + SLOT_LOG), .LOG(SLOT_LOG + 1)) order (.clk, .rst,
    .in_valid(at_valid && !at_fence && (!at_access || dram_ready)), .in_ready(order_ready),
    .in_data({at_kind, at_slot}),
    .out_valid(head_valid), .out_ready(head_ready), .out_data({head_kind, head_slot}));

  wire head_access = head_kind == READ || head_kind == WRITE;
  wire answers = head_valid && (head_kind == FAIL || (head_access && mem_valid));
  assign answer_slot = head_slot;
  assign r_valid  = answers && !answer_write;
  assign r_id     = answer_id;
  assign r_resp   = {head_kind == FAIL, 1'b0};  // AXI4: SLVERR or OKAY
  assign r_poison = head_kind == FAIL || mem_poison;
  assign r_data   = head_kind == FAIL ? '0 : mem_data;
  assign b_valid  = answers && answer_write;
  assign b_id     = answer_id;
  assign b_resp   = r_resp;
  assign answer_taken = (r_valid && r_ready) || (b_valid && b_ready);
  assign mem_ready    = answer_taken && head_access;
  assign fence_valid  = bug_fence ? at_valid && at_fence : head_valid && head_kind == FENCE;
  assign fence_who   = bug_fence ? at_slot[IW-1:0] : head_slot[IW-1:0];
  assign head_ready   = answer_taken || (head_valid && head_kind == FENCE && fence_ready);

  stable #(.W(514 + DW)) check_dram (.clk, .rst, .valid(dram_valid), .ready(dram_ready),
    .data({dram_write, dram_write && dram_wpoison, dram_flit, dram_write ? dram_wdata : '0}));
  stable #(.W(515 + IDW)) check_r (.clk, .rst, .valid(r_valid), .ready(r_ready),
    .data({r_id, r_resp, r_poison, r_data}));
  stable #(.W(2 + IDW)) check_b (.clk, .rst, .valid(b_valid), .ready(b_ready),
    .data({b_id, b_resp}));
  stable #(.W(513)) check_mem (.clk, .rst, .valid(mem_valid), .ready(mem_ready),
    .data({mem_poison, mem_data}));
`ifndef SYNTHESIS
  always_ff @(posedge clk) if (!rst) assert (!op_valid || op_ready);  // slots bound what is inside
`endif
endmodule
`default_nettype wire
