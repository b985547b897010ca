// Starts the drives, one after the other: the registers of the controller, the wait until it is
// ready, then its I/O queues. A drive that fails stays out.
// SPDX-License-Identifier: Apache-2.0
`default_nettype none
module nvme_start #(
  parameter int DRIVES = 2,  // 1 or 2
  parameter int QLOG = 4     // log2 of the entries of a queue
) (
  input  logic clk, rst, bug_csts,
  output logic [1:0] started, output logic drive,  // which is being started
  // a register of the drive: written, or CSTS read
  output logic set_valid, input logic set_ready, output logic set_write,
  output logic [12:0] set_addr, output logic [63:0] set_data,
  input  logic got_valid, input logic [31:0] got_data,
  // an order to its admin queue, and its answer
  output logic order_valid, input logic order_ready, output logic order_sq,
  input  logic answer_valid, answer_error
);
  localparam logic [3:0] AQA = 0, ASQ = 1, ACQ = 2, CC = 3, READ_CSTS = 4, WAIT_CSTS = 5,
                         CREATE_CQ = 6, WAIT_CQ = 7, CREATE_SQ = 8, WAIT_SQ = 9, NEXT = 10,
                         IDLE = 11;
  logic [3:0] step;
  wire [63:0] queues = {15'd0, 1'b1, 27'd0, drive, 20'd0};
  assign set_valid = step <= READ_CSTS;
  assign set_write = step != READ_CSTS;
  always_comb
    case (step)
      AQA:     {set_addr, set_data} = {13'h24, 36'd0, 12'((1 << QLOG) - 1), 4'd0,
                                       12'((1 << QLOG) - 1)};
      ASQ:     {set_addr, set_data} = {13'h28, queues};
      ACQ:     {set_addr, set_data} = {13'h30, queues | 64'h8000};
      CC:      {set_addr, set_data} = {13'h14, 64'h460001};
      default: {set_addr, set_data} = {13'h1c, 64'd0};
    endcase
  assign order_valid = step == CREATE_CQ || step == CREATE_SQ;
  assign order_sq    = step == CREATE_SQ;
  wire is_ready = got_data[0] || bug_csts;
  wire is_fatal = got_data[1];
  always_ff @(posedge clk)
    if (rst) begin
      step    <= AQA;
      drive   <= 0;
      started <= '0;
    end else
      case (step)
        AQA, ASQ, ACQ, CC, READ_CSTS: if (set_ready) step <= step + 1'b1;
        WAIT_CSTS: if (got_valid) step <= is_fatal ? NEXT : is_ready ? CREATE_CQ : READ_CSTS;
        CREATE_CQ, CREATE_SQ: if (order_ready) step <= step + 1'b1;
        WAIT_CQ: if (answer_valid) step <= answer_error ? NEXT : CREATE_SQ;
        WAIT_SQ: if (answer_valid) begin
          step <= NEXT;
          started[drive] <= !answer_error;
        end
        NEXT: begin
          step  <= DRIVES == 2 && !drive ? AQA : IDLE;
          drive <= DRIVES == 2;
        end
        default: step <= IDLE;
      endcase
  wire unused = &{1'b0, got_data[31:2]};
endmodule
`default_nettype wire
