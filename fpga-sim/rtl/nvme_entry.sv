// What a drive reads, as 64 bytes: an entry of a submission queue, made of the little that is kept
// of it; or eight entries of a list of pages, made of their own address. Combinational, no state.
// SPDX-License-Identifier: Apache-2.0
`default_nettype none
module nvme_entry #(
  parameter int LINE_LOG = 6,   // log2 of the flits of a line, at least 6
  parameter int UNIT_LOG = 2,   // log2 of the lines of a unit
  parameter int QLOG = 4,       // log2 of the entries of a queue
  parameter int LW = 19, parameter int PW = 15,  // bits of a line's number, of a place's
  parameter int IW = 5          // bits of the register in a command's number
) (
  input  logic bug_list, bug_blocks,
  // an entry: READ, WRITE, ABORT of the command before this one, or a queue's creation
  input  logic [2:0] op, input logic [15:0] cid, input logic unit, input logic drive,
  input  logic [LW-1:0] line, input logic [PW-1:0] place,  // line: of the drive
  input  logic is_list, input logic [45:0] at,  // a list, from its beginning
  output logic [511:0] bytes
);
  localparam logic [2:0] READ = 0, WRITE = 1, ABORT = 2, CREATE_CQ = 3, CREATE_SQ = 4;
  localparam int BLOCKS = 1 << (LINE_LOG - 6);
  wire [45:0] data = 46'(place) << (LINE_LOG + 6);
  wire [45:0] meta = 46'(place) << (LINE_LOG - 3);
  wire [15:0] blocks = unit ? 16'(BLOCKS << UNIT_LOG) : 16'(BLOCKS);
  wire [63:0] second = blocks == 1 ? '0 : blocks == 2 ? {18'd0, data} + 64'd4096
                     : {16'd0, 2'b10, data};
  wire [15:0] target = cid - (16'd1 << IW);
  wire [63:0] queue = {15'd0, 1'b1, 27'd0, drive, 3'd0, 1'b1, op == CREATE_CQ, 15'd0};
  logic [511:0] entry, list;
  always_comb begin
    entry = '0;
    entry[16 +: 16] = cid;
    case (op)
      READ, WRITE: begin
        entry[7:0] = op == WRITE ? 8'd1 : 8'd2;
        entry[32]  = 1;
        entry[128 +: 64] = {17'd0, 1'b1, meta};
        entry[192 +: 64] = {18'd0, data};
        entry[256 +: 64] = second;
        entry[320 +: 64] = 64'(line) << (LINE_LOG - 6);
        entry[384 +: 16] = blocks - {15'd0, !bug_blocks};
      end
      ABORT: begin
        entry[7:0] = 8'd8;
        entry[320 +: 32] = {target, 16'd1};
      end
      default: begin
        entry[7:0] = op == CREATE_SQ ? 8'd1 : 8'd5;
        entry[192 +: 64] = queue;
        entry[320 +: 32] = {16'((1 << QLOG) - 1), 16'd1};
        entry[352 +: 32] = {15'd0, op == CREATE_SQ, 16'd1};
      end
    endcase
  end
  for (genvar g = 0; g < 8; g++) begin : g_page
    wire [33:0] page = at[45:12] + 34'({at[11:6], 3'(g)}) + {33'd0, !bug_list};
    assign list[g*64 +: 64] = {18'd0, page, 12'd0};
  end
  assign bytes = is_list ? list : entry;
  wire unused = &{1'b0, at[5:0]};
endmodule
`default_nettype wire
